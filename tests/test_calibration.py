"""A calibration does what it says to a posterior, once, and nothing where it says nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from tests.conftest import make_crowd
from voxpop import BI, Calibration, GoldCheck, Noise, Result
from voxpop.inference.kernels.posterior import Posterior
from voxpop.results.calibration import calibrated
from voxpop.results.result import PROBABILITIES


def gaussian(mean: float, sd: float) -> Posterior:
    quantile = mean + sd * ndtri(PROBABILITIES)
    return Posterior(np.array([[mean]]), np.array([[sd**2]]), quantile[None, None])


def test_what_says_nothing_does_nothing() -> None:
    ours = gaussian(3.0, 2.0)
    for gold in (None, GoldCheck(20, 1.0, 0.7), GoldCheck(20, 0.0, None)):
        assert calibrated(ours, Calibration(gold=gold)) is ours


def test_stretches_multiply() -> None:
    wide = calibrated(gaussian(3.0, 2.0), Calibration(stretch=2.0, gold=GoldCheck(20, 0.8, 1.5)))
    np.testing.assert_allclose(wide.quantile, gaussian(3.0, 6.0).quantile)


def test_a_result_tells_what_was_applied_and_its_agreement_variance() -> None:
    answers = make_crowd(1, dimension=1).answers
    result = BI(noise=Noise(bias=True)).fit(answers)
    assert result.audit is not None
    assert result.calibration == Calibration(stretch=max(result.audit.stretch, 1.0))
    assert result.agreement_variance is result.variance
    gold = GoldCheck(20, 0.8, 1.5)
    wide = result.calibrated(Calibration(gold=gold))
    assert wide.calibration == replace(result.calibration, gold=gold)
    assert wide.agreement_variance is result.variance
    np.testing.assert_allclose(wide.sd, 1.5 * result.sd)

    def predicted(result: Result) -> float:
        return float(result.predict_answer("w00", "t03").sd[0])

    # What gold shows is an error that the next answer shares.
    assert predicted(wide) == predicted(result)
