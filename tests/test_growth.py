"""Growth: noise that grows with the value is found, and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import voxpop as vp
from voxpop.arrays import Floats
from voxpop.estimators.bi.growth import learn_growth

GROWING = vp.Noise(growth=True)


def crowd(seed: int, ratio: float, n_gold: int = 0) -> tuple[vp.Answers, Floats]:
    """Truths from 10 to 110; the sd of the noise is 1 at the lowest, and ``ratio`` at the highest.

    Workers differ in noise by a factor of up to 4.
    """
    rng = np.random.default_rng(seed)
    n_tasks, per_task, n_workers = 120, 6, 30
    truth = rng.uniform(10, 110, n_tasks)
    task = np.repeat(np.arange(n_tasks), per_task)
    worker = np.concatenate([rng.permutation(n_workers)[:per_task] for _ in range(n_tasks)])
    sd = np.exp(rng.uniform(-0.7, 0.7, n_workers))[worker]
    sd = sd * (1 + (ratio - 1) * (truth[task] - 10) / 100)
    value = truth[task] + sd * rng.standard_normal(len(task))
    gold = np.where(np.arange(n_tasks) < n_gold, truth, np.nan)[:, None] if n_gold else None
    return vp.Answers.from_arrays(task, worker, value, gold=gold), truth[:, None]


def rmse(result: vp.Result, truth: Floats) -> float:
    return float(np.sqrt(((result.estimate - truth) ** 2).mean()))


@pytest.mark.parametrize("ratio", [0.1, 1.0, 10.0])
def test_the_ratio_is_recovered(ratio: float) -> None:
    """An sd of 720 residuals is known to 3 %, its slope in logs to about a sixth: within e."""
    for seed in range(3):
        found = learn_growth(crowd(seed, ratio)[0]).component.ratio
        assert np.log(found / ratio) == pytest.approx(0.0, abs=1.0)


def test_growth_lowers_the_error_and_fits_intervals_to_the_task() -> None:
    """Of tasks with six answers of unequal workers: about 5 % on average; five crowds."""
    plain, grown = [], []
    for seed in range(5):
        answers, truth = crowd(seed, 20.0)
        plain.append(rmse(vp.BI(noise=vp.Noise(tails="learn")).fit(answers), truth))
        result = vp.BI(noise=vp.Noise(tails="learn", growth=True)).fit(answers)
        grown.append(rmse(result, truth))
        low, high = result.interval()
        inside = ((low <= truth) & (truth <= high))[:, 0]
        small = truth[:, 0] < 40
        # Of 36 tasks a crowd: an error of 4 points.
        assert inside[small].mean() > 0.82
        assert inside[~small].mean() > 0.82
        sd = result.sd[:, 0]
        assert np.median(sd[~small]) > 2 * np.median(sd[small])
    assert np.mean(grown) < np.mean(plain)


@pytest.mark.parametrize(("factor", "shift"), [(3.0, -200.0), (-2.0, 10.0), (1e-3, 0.0)])
def test_units_zero_and_sign_do_not_matter(factor: float, shift: float) -> None:
    answers, _ = crowd(1, 8.0, n_gold=10)
    assert answers.gold is not None
    moved = replace(
        answers, value=factor * answers.value + shift, gold=factor * answers.gold + shift
    )
    here, there = (vp.BI(noise=GROWING).fit(a) for a in (answers, moved))
    np.testing.assert_allclose((there.estimate - shift) / factor, here.estimate, rtol=1e-4)
    np.testing.assert_allclose(there.sd / abs(factor), here.sd, rtol=1e-3, atol=1e-9)
    ends = 1.0 if factor > 0 else -1.0
    assert here.noise.growth[0] == pytest.approx(there.noise.growth[0] ** ends)


def test_what_a_result_says_of_growth() -> None:
    answers, truth = crowd(2, 8.0, n_gold=5)
    result = vp.BI(noise=GROWING).fit(answers)
    np.testing.assert_array_equal(result.estimate[:5], truth[:5])
    difficulty = result.task_difficulty
    assert np.exp(np.log(difficulty).mean()) == pytest.approx(1.0)
    hardest = int(difficulty.argmax())
    assert difficulty[hardest] / difficulty.min() == pytest.approx(result.noise.growth[0] ** 2)
    assert "harder than the average task" in str(result.explain(answers, hardest))
    # A left-out answer is predicted with the noise of its task.
    assert result.audit is not None
    assert 0.92 < result.audit.coverage_95 < 0.98


def test_growth_goes_with_neither_gains_nor_bounds() -> None:
    with pytest.raises(vp.ConfigError, match="gain and growth"):
        vp.Noise(growth=True, gain=True)
    with pytest.raises(vp.ConfigError, match="growth and bounds cannot be combined"):
        vp.Noise(growth=True, bounds=(0, 1))


@pytest.mark.slow
def test_auto_uses_growth_where_answers_show_it() -> None:
    grown = vp.aggregate(crowd(0, 20.0)[0])
    assert "noise that grows with the value" in grown.settings["chosen"]
    plain = vp.aggregate(crowd(0, 1.0)[0])
    assert not any("grows" in row["model"] for row in plain.settings["contest"])
    bounded = vp.Auto(bounds=(0, 150)).fit(crowd(0, 20.0)[0])
    assert not any("grows" in row["model"] for row in bounded.settings["contest"])


def test_alike_tasks_have_no_growth() -> None:
    answers, _ = crowd(3, 1.0)
    same = replace(answers, value=np.full_like(answers.value, 7.0))
    assert (learn_growth(same).spread == 1).all()
