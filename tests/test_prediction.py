"""What a worker would answer: fresh answers fall as evenly as predicted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kstest

from tests.conftest import make_crowd
from voxpop import BI, Answers, Average, DataError, Model, assign_regular, predict_answer, simulate
from voxpop.arrays import Codes, Floats
from voxpop.models.noise import Noise
from voxpop.results.prediction import Prediction


def fresh_pits(
    noise: Noise,
    seed: int,
    *,
    biased: bool,
    heavy: bool,
    unknown: bool = False,
    narrow: float = 1.0,
) -> Floats:
    """PIT of one fresh answer to each of 200 tasks, by workers who had not answered them."""
    rng = np.random.default_rng(seed)
    model = Model(support=(4.0, 100.0))
    crowd = simulate(model, assign_regular(200, 5, 20, rng), rng)
    n_workers = crowd.answers.n_workers
    bias = rng.normal(0, 5.0 * biased, n_workers)

    def answer(task: Codes, worker: Codes) -> Floats:
        sd = np.sqrt(crowd.worker_variance[worker])
        draw = rng.standard_t(4, len(task)) if heavy else rng.normal(size=len(task))
        return np.asarray(crowd.truth[task, 0] + bias[worker] + sd * draw)

    given = crowd.answers
    answers = replace(given, value=answer(given.task, given.worker)[:, None])
    result = BI(noise=noise).fit(answers)
    found = []
    for i in range(given.n_tasks):
        here = given.worker[given.task == i]
        u = rng.choice(np.setdiff1d(np.arange(n_workers), here))
        worker = None if unknown else given.worker_ids[u]
        prediction = predict_answer(result, worker, given.task_ids[i])
        prediction = replace(prediction, variance=prediction.variance / narrow**2)
        found.append(prediction.cdf(answer(np.array([i], np.int32), np.array([u], np.int32)))[0])
    return np.array(found)


@pytest.mark.parametrize(
    ("noise", "biased", "heavy"),
    [
        (Noise(), False, False),
        (Noise(tails="learn"), False, True),
        (Noise(bias=True), True, False),
    ],
    ids=["levels", "tails", "bias"],
)
def test_fresh_answers_fall_evenly(noise: Noise, biased: bool, heavy: bool) -> None:
    """200 answers: Kolmogorov and Smirnov's p above 0.001, missed by one seed in a thousand."""
    pit = fresh_pits(noise, 11, biased=biased, heavy=heavy)
    assert kstest(pit, "uniform").pvalue > 1e-3


def test_so_do_those_of_a_worker_of_whom_nothing_is_known() -> None:
    """As above; 30 workers' levels are what the crowd's shares are learned from."""
    pit = fresh_pits(Noise(), 12, biased=False, heavy=False, unknown=True)
    assert kstest(pit, "uniform").pvalue > 1e-3


def test_predictions_of_half_the_spread_are_found_out() -> None:
    pit = fresh_pits(Noise(), 11, biased=False, heavy=False, narrow=2.0)
    assert kstest(pit, "uniform").pvalue < 1e-3


def test_interval_mean_and_sd_are_the_mixtures() -> None:
    answers = make_crowd(1).answers
    result = BI(support=(10, 100, 1000)).fit(answers)
    found = result.predict_answer(answers.worker_ids[3], answers.task_ids[5])
    np.testing.assert_allclose(found.cdf(found.lower), 0.025, atol=1e-9)
    np.testing.assert_allclose(found.cdf(found.upper), 0.975, atol=1e-9)
    np.testing.assert_allclose(found.cdf(found.mean), 0.5)
    expected = result.variance[5] + result.worker_variance[3]
    np.testing.assert_allclose(found.sd**2, expected)


def test_methods_without_levels_and_known_truths() -> None:
    answers = Answers.from_arrays(
        list("aabb"), list("uvuv"), [1.0, 3.0, 5.0, 6.0], gold=[np.nan, 6.0]
    )
    result = Average().fit(answers)
    found = [predict_answer(result, worker, "b") for worker in ("u", "v", None)]
    assert all(isinstance(p, Prediction) for p in found)
    assert [p.mean[0] for p in found] == [6.0, 6.0, 6.0]
    np.testing.assert_allclose(found[0].sd ** 2, result.worker_variance[0])
    np.testing.assert_allclose(found[2].sd ** 2, result.worker_variance.mean())
    certain = replace(result, worker_variance=np.zeros(2))
    exact = predict_answer(certain, "u", "b")
    assert (exact.lower[0], exact.upper[0], exact.sd[0]) == (6.0, 6.0, 0.0)
    assert exact.cdf([5.9])[0] == 0.0


def test_unknown_workers_are_told() -> None:
    result = Average().fit(make_crowd(0).answers)
    with pytest.raises(DataError, match=r"^no worker 'w0'; near it are 'w0"):
        result.predict_answer("w0", "t00")
