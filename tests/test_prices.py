"""Prices: where errors are in proportion and wide, a median is safer than any mean."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.everyday_crowds import prices

import voxpop as vp
from voxpop.arrays import Floats


def rmse(estimate: Floats, truth: Floats) -> float:
    return float(np.sqrt(((estimate - truth) ** 2).mean()))


@pytest.mark.slow
@pytest.mark.parametrize(("sds", "most"), [((0.6,), 1.0), ((1.0,), 1.0), ((0.1, 0.3, 1.0), 0.75)])
def test_prices_are_no_worse_than_the_median(sds: tuple[float, ...], most: float) -> None:
    """Log-normal noise, truths its median: where workers are alike the mean has 1.03 to 2.5.

    Seen on 20 seeds of each: 1, 1 and at most 0.7.
    """
    for seed in range(3):
        case = prices(np.random.default_rng(seed), sds)
        found = rmse(vp.aggregate(case.answers).estimate, case.truth)
        assert found <= most * rmse(vp.Median().fit(case.answers).estimate, case.truth)


@pytest.mark.slow
def test_a_median_is_preferred_only_where_noise_is_wide_and_in_proportion() -> None:
    """Noise of sd .6 and .5 in logs, 1000 degrees of freedom: either is 4 standard errors off."""
    for sd, preferred in ((0.6, True), (0.5, False)):
        case = prices(np.random.default_rng(1), (sd,))
        chosen = vp.aggregate(case.answers).settings["chosen"]
        assert (chosen == "median") == preferred
    shifted = vp.Answers.from_arrays(
        case.answers.task, case.answers.worker, case.answers.value - 50.0
    )
    assert vp.aggregate(shifted).settings["chosen"] != "median"
