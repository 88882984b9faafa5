"""Bounds of the truths: kept by every estimate and interval, and no truth lost by them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.everyday_crowds import ratings
from hypothesis import given, settings
from hypothesis import strategies as st

import voxpop as vp
from voxpop.arrays import Floats
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.scale import ScaleName
from voxpop.results.calibration import within

Make = Callable[[tuple[float, float] | None], vp.Estimator]
METHODS: dict[str, Make] = {
    "auto": lambda bounds: vp.Auto(bounds=bounds),
    "bi": lambda bounds: vp.BI(noise=vp.Noise(bounds=bounds)),
    "bi with bias and tails": lambda bounds: vp.BI(
        noise=vp.Noise(bounds=bounds, bias=True, tails="learn")
    ),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def crowd(seed: int, n_gold: int = 0, n_tasks: int = 30) -> tuple[vp.Answers, Floats]:
    """Answers 0 to 100 or so of 10 workers, five a task, and the truths."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0, 100, n_tasks)
    task = np.repeat(np.arange(n_tasks), 5)
    worker = np.concatenate([rng.permutation(10)[:5] for _ in range(n_tasks)])
    noise = rng.normal(0, 1, len(task)) * rng.uniform(5, 30, 10)[worker]
    gold = np.where(np.arange(n_tasks) < n_gold, truth, np.nan) if n_gold else None
    return vp.Answers.from_arrays(task, worker, truth[task] + noise, gold=gold), truth


def assert_kept(result: vp.Result, low: float, high: float) -> None:
    for found in (result.estimate, result.quantile):
        assert low <= found.min()
        assert found.max() <= high
    lower, upper = result.interval()
    assert (lower <= result.estimate).all()
    assert (result.estimate <= upper).all()
    assert (np.diff(result.quantile, axis=2) >= 0).all()


@every_method
@given(
    seed=st.integers(0, 1000),
    ends=st.tuples(st.floats(-50, 140), st.floats(-50, 140)).filter(
        lambda ends: abs(ends[0] - ends[1]) > 1e-6
    ),
)
@settings(max_examples=8, deadline=None)
def test_estimates_and_intervals_lie_within_any_bounds(
    method: Make, seed: int, ends: tuple[float, float]
) -> None:
    low, high = sorted(ends)
    answers, _ = crowd(seed, n_tasks=12)
    inside = (low <= answers.value) & (answers.value <= high)
    if not inside.any():
        with pytest.raises(vp.DataError, match="exclude all answers, which range from"):
            method((low, high)).fit(answers)
        return
    result = method((low, high)).fit(answers)
    assert_kept(result, low, high)
    said = [note for note in result.notes if "outside the bounds" in note]
    n_outside = int((~inside).sum())
    assert [note.split(" of ")[0] for note in said] == [str(n_outside)] * bool(n_outside)


@pytest.mark.parametrize("scale", ["log", "sqrt"])
def test_bounds_are_kept_to_the_bit_on_every_scale(scale: ScaleName) -> None:
    answers, _ = crowd(3)
    positive = vp.Answers.from_arrays(answers.task, answers.worker, np.abs(answers.value) + 0.1)
    assert_kept(vp.Auto(scale=scale, bounds=(7.1, 83.7)).fit(positive), 7.1, 83.7)
    noise = vp.Noise(bounds=(7.1, 83.7))
    assert_kept(vp.BI(scale=scale, noise=noise).fit(positive), 7.1, 83.7)


@every_method
def test_bounds_are_kept_by_intervals_that_gold_stretches(method: Make) -> None:
    answers, truth = crowd(5, n_gold=25, n_tasks=60)
    bounds = 0.0, 100.0
    shifted = vp.Answers.from_arrays(
        answers.task, answers.worker, answers.value + 15, gold=answers.gold
    )
    fit = method(bounds).fit
    result = vp.widen_by_gold(fit, shifted, fit(shifted))
    # Auto allows for an error that all workers share; the others are stretched.
    assert result.calibration.shared or result.calibration.gold_stretch > 1
    assert result.calibration.bounds == bounds
    assert_kept(result, *bounds)
    np.testing.assert_allclose(result.estimate[:25, 0], truth[:25])


def test_bounds_survive_saving(tmp_path: object) -> None:
    result = vp.Auto(bounds=(0, 100)).fit(crowd(1)[0])
    again = vp.Result.load(result.save(f"{tmp_path}/result"))
    assert again.calibration == result.calibration
    assert again.calibration.bounds == (0.0, 100.0)


def test_moving_onto_a_bound_loses_no_truth() -> None:
    rng = np.random.default_rng(0)
    estimate = rng.normal(0, 2, (500, 1))
    quantile = estimate[:, :, None] + np.sort(rng.normal(0, 1, (500, 1, 4)), axis=2)
    truth = rng.uniform(-1, 1, (500, 1))
    before = Posterior(estimate, np.ones((500, 1)), quantile)
    after = within(before, (-1.0, 1.0))
    assert (np.abs(after.estimate - truth) <= np.abs(estimate - truth)).all()
    was, now = (
        (p.quantile[..., 0] <= truth) & (truth <= p.quantile[..., 3]) for p in (before, after)
    )
    assert (now >= was).all()
    assert within(before, None) is before


def covered(result: vp.Result, truth: Floats) -> float:
    low, high = result.interval()
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.slow
def test_bounds_cost_no_coverage() -> None:
    """Ratings 1 to 5, one truth in nine at an end: 800 tasks, sd of either share below .009.

    The same tasks are counted twice, so that the difference is far more certain; before, bounds
    cost .09.
    """
    with_bounds, without = [], []
    for seed in range(4):
        case = ratings(np.random.default_rng(seed))
        with_bounds.append(covered(vp.Auto(bounds=(1, 5)).fit(case.answers), case.truth))
        without.append(covered(vp.Auto().fit(case.answers), case.truth))
    assert np.mean(with_bounds) > np.mean(without) - 0.01
    assert np.mean(with_bounds) > 0.92


@every_method
def test_bounds_go_with_the_units(method: Make) -> None:
    answers, _ = crowd(7)
    result = method((0.0, 90.0)).fit(answers)
    moved = vp.Answers.from_arrays(answers.task, answers.worker, 4 * answers.value - 1000)
    there = method((-1000.0, -640.0)).fit(moved)
    np.testing.assert_allclose(there.estimate, 4 * result.estimate - 1000, atol=0.1)
    np.testing.assert_allclose(there.quantile, 4 * result.quantile - 1000, atol=0.4)


@every_method
def test_bounds_far_away_do_nothing(method: Make) -> None:
    answers, _ = crowd(8)
    bounded, free = (method((-far, far)).fit(answers) for far in (1e6, 1e9))
    np.testing.assert_allclose(bounded.estimate, free.estimate, rtol=1e-6)
    np.testing.assert_allclose(bounded.quantile, free.quantile, rtol=1e-6)


def test_what_contradicts_bounds_is_refused_in_one_line() -> None:
    answers, _ = crowd(9, n_gold=20)
    with pytest.raises(
        vp.DataError, match=r"bounds 500 to 600 exclude all answers, which range"
    ) as e:
        vp.Auto(bounds=(500, 600)).fit(answers)
    assert f"{answers.value.min():g} to {answers.value.max():g}" in str(e.value)
    assert "\n" not in str(e.value)
    with pytest.raises(vp.DataError, match=r"exclude \d+ of 20 gold truths: the first is that of"):
        vp.Auto(bounds=(0, 50)).fit(answers)
    both = vp.Answers.from_arrays(
        answers.task, answers.worker, np.column_stack([answers.value, answers.value + 1000])
    )
    with pytest.raises(vp.DataError, match="exclude all answers of"):
        vp.BI(noise=vp.Noise(bounds=(0, 100))).fit(both)
