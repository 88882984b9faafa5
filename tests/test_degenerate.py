"""Odd crowds at odd scales: finite, or refused in a line (`python -m tests.degenerate`: all)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.degenerate import cases, crowds, full, is_fine, wild, wrong_with
from voxpop import (
    BI,
    ESTIMATORS,
    Answers,
    Auto,
    Average,
    DataError,
    Exact,
    Model,
    Noise,
    Result,
    StrongOracle,
    aggregate,
)
from voxpop.estimators.bi.groups_apart import groups_apart

# auto takes seconds for some of these, and the exponential methods for one.
QUICK = [name for name in ESTIMATORS if name not in ("auto", "exact", "weak-oracle")]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "scale"), [(0, 1e-160), (1, 1e-80), (2, 1e99)])
def test_every_estimator_holds_on_some_odd_crowds(first: int, scale: float) -> None:
    found = list(cases(QUICK, [1.0, scale], lambda number: number % 9 == first))
    assert len(found) == 2 * len(QUICK) * len(range(first, len(crowds()), 9))
    assert [case for case in found if not is_fine(case[3])] == []


def test_the_default_holds_on_wild_crowds_in_tiny_units() -> None:
    """Usual distances of 1e-110, of which powers are no floats: some asked for all memory."""
    chosen = {number for number, name in enumerate(crowds()) if "wild" in name or "1e30" in name}
    found = list(cases(["auto"], [1.0, 1e-80], chosen.__contains__))
    assert len(found) > 8
    assert not [case for case in found if not is_fine(case[3])]


@pytest.mark.parametrize("scale", [1e3, 2.0**20])
def test_a_coordinate_in_which_all_agree_decides_nothing(scale: float) -> None:
    crowd = crowds()["points on a line"]
    one, other = (
        aggregate(Answers.from_arrays(crowd.task, crowd.worker, unit * crowd.value))
        for unit in (1.0, scale)
    )
    np.testing.assert_allclose(other.estimate / scale, one.estimate, atol=1e-3)


@pytest.mark.filterwarnings("ignore:all answers are equal")
def test_values_too_small_to_be_squared_are_refused_and_zeros_are_not() -> None:
    with pytest.raises(
        DataError, match="the largest number in column 'value' is 3e-160, too small"
    ):
        Answers.from_arrays([1, 1], [1, 2], [1e-160, 3e-160])
    mixed = Answers.from_arrays([1, 1], [1, 2], [1e-160, 1.0])
    zeros = Answers.from_arrays([1, 1, 2], [1, 2, 2], [0.0, 0.0, 0.0])
    for answers in (mixed, zeros):
        assert np.isfinite(Average().fit(answers).estimate).all()


def test_variances_beyond_those_of_any_values_are_refused() -> None:
    with pytest.raises(ValueError, match="positive finite variances"):
        Model(support=(1e-320,))
    answers = Answers.from_arrays([1, 1], ["u", "v"], [1.0, 2.0])
    with pytest.raises(DataError, match="variances: expected positive finite numbers"):
        StrongOracle(variances={"u": 1e-320, "v": 1.0}).fit(answers)


def test_gold_too_large_to_be_squared_is_refused() -> None:
    with pytest.raises(DataError, match=r"finite number of at most 1e\+100"):
        Answers.from_arrays([1, 1], [1, 2], [1.0, 2.0], gold=[1e300])


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**300])
def test_exact_is_the_same_in_any_units(scale: float) -> None:
    crowd = crowds()["a chain"]
    one, other = (Exact(support=(s**2, 9 * s**2)).fit(crowd.at(s)) for s in (1.0, scale))
    np.testing.assert_allclose(other.estimate / scale, one.estimate, rtol=1e-12)


def two_groups(ratio: float, seed: int, joined: bool = False) -> tuple[Answers, np.ndarray]:
    """Two groups of 6 workers and 20 tasks, the second ``ratio`` times as large in all."""
    rng = np.random.default_rng(seed)
    task, worker = (index.ravel() for index in np.indices((20, 6)))
    truth = [size * rng.normal(0, 10, 20) for size in (1.0, ratio)]
    values = [
        t[task] + size * (10 ** rng.uniform(-0.5, 0.5, 6))[worker] * rng.normal(size=120)
        for t, size in zip(truth, (1.0, ratio), strict=True)
    ]
    tasks, workers = np.append(task, task + 20), np.append(worker, worker + 6)
    value = np.concatenate(values)
    if joined:  # one worker answers in both
        tasks, workers = np.append(tasks, 20), np.append(workers, 0)
        value = np.append(value, truth[1][0])
    return Answers.from_arrays(tasks, workers, value), np.concatenate(truth)


@pytest.mark.parametrize("method", ["bi", pytest.param("auto", marks=pytest.mark.slow)])
def test_groups_that_scatter_very_differently_are_fitted_one_by_one(method: str) -> None:
    answers, _ = two_groups(1000.0, 0)
    found = aggregate(answers, method)
    assert found.settings["groups_apart"] == 2
    assert any("2 groups that share no worker or task" in note for note in found.notes)
    for rows, ids in ((answers.task < 20, slice(0, 6)), (answers.task >= 20, slice(6, 12))):
        alone = aggregate(answers.select(rows), method)
        tasks = np.unique(answers.task[rows])
        for name in ("estimate", "variance", "quantile", "agreement_variance"):
            np.testing.assert_array_equal(getattr(found, name)[tasks], getattr(alone, name))
        for name in ("worker_variance", "worker_interval", "worker_weight"):
            np.testing.assert_array_equal(getattr(found, name)[ids], getattr(alone, name))
        assert found.audit is not None
        assert alone.audit is not None
        np.testing.assert_array_equal(found.audit.pit[rows], alone.audit.pit)
        task = alone.task_ids[3]
        one, other = found.explain(answers, task), alone.explain(answers.select(rows), task)
        np.testing.assert_array_equal(one.weight, other.weight)
    np.testing.assert_allclose(found.level_weights.sum(), 1.0)
    np.testing.assert_allclose(found.worker_posterior.sum(axis=1), 1.0)
    assert "groups_apart" not in aggregate(two_groups(2.0, 0)[0], method).settings
    assert "groups_apart" not in aggregate(two_groups(1000.0, 0, joined=True)[0], method).settings


def test_groups_apart_keep_their_intervals() -> None:
    # 200 truths in each group: six standard errors below 95 % is 86 %. Fitted together, intervals
    # of the second group held 56 %.
    held = np.zeros(2)
    for seed in range(10):
        answers, truth = two_groups(1000.0, seed)
        low, high = aggregate(answers, "bi").interval(0.95)
        held += ((low[:, 0] <= truth) & (truth <= high[:, 0])).reshape(2, 20).mean(axis=1) / 10
    assert (held > 0.86).all()


def test_groups_apart_do_not_depend_on_units_and_order(tmp_path: Path) -> None:
    answers, _ = two_groups(1000.0, 1)
    found = aggregate(answers, "bi")
    order = np.random.default_rng(0).permutation(answers.n_edges)
    shuffled = Answers.from_arrays(
        answers.task_ids[answers.task[order]],
        answers.worker_ids[answers.worker[order]],
        2.0**40 * answers.value[order],
    )
    other = aggregate(shuffled, "bi")
    place = np.argsort(other.task_ids)[answers.task_ids]
    span = float(np.ptp(answers.value))
    np.testing.assert_allclose(
        other.estimate[place] / 2.0**40, found.estimate, atol=1e-9 * span, rtol=1e-9
    )
    loaded = Result.load(found.save(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.agreement_variance, found.agreement_variance, rtol=1e-12)
    np.testing.assert_allclose(loaded.worker_posterior, found.worker_posterior, rtol=1e-12)


def test_a_few_wild_answers_set_no_group_apart() -> None:
    answers, _ = two_groups(1.0, 2)
    value = answers.value.copy()
    value[[3, 50, 99]] *= 1e6
    wild = Answers.from_arrays(answers.task, answers.worker, value)
    assert groups_apart(wild) is None


NOISES = {
    "plain": Noise(),
    "tails": Noise(tails="learn"),
    "slips": Noise(slips=True),
    "careless": Noise(careless=True),
    "bias": Noise(bias=True),
    "difficulty": Noise(difficulty=True),
    "truths": Noise(truths="learn"),
    "gain": Noise(gain=True),
    "growth": Noise(growth=True),
    "bounds": Noise(bounds=(-1e8, 1e8)),
    "several": Noise(bias=True, slips=True, truths="learn"),
}


def ordinary() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(0, 10, (12, 1)) + rng.normal(size=(12, 5))


@pytest.mark.filterwarnings("ignore::voxpop.ConvergenceWarning")
@pytest.mark.parametrize("name", wild(ordinary()))
def test_answers_out_of_all_reach_leave_the_default_and_bi_standing(name: str) -> None:
    # The default took all memory from 1e30 on, and failed at 1e60; so did gains, and biases from
    # 1e13 on.
    answers = wild(ordinary())[name].at(1e30)
    for estimator in (Auto(threads=1), BI(threads=1), BI(support="common"), BI(support="nbi")):
        assert wrong_with(estimator.fit(answers), answers) is None


@pytest.mark.filterwarnings("ignore::voxpop.ConvergenceWarning")
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ["wild points", "wild answers and gold", "ninety decades"])
def test_every_noise_component_stands_answers_out_of_reach(noise: str, name: str) -> None:
    answers = wild(ordinary())[name].at(1e30)
    assert wrong_with(BI(noise=NOISES[noise], threads=1).fit(answers), answers) is None


@pytest.mark.parametrize("size", [1e15, 1e20, 1e30, 1e60, 1e99])
def test_one_wild_answer_changes_estimates_as_little_as_a_slip_does(size: float) -> None:
    value = ordinary()
    alone = aggregate(full(value).at(1.0))
    value[1, 2] = size
    answers = full(value).at(1.0)
    found = aggregate(answers)
    assert (np.abs(found.estimate - alone.estimate) < 2 * alone.sd).all()
    far = [note for note in found.notes if "times as far" in note]
    assert len(far) == 1
    assert "by worker 2 to task 1)" in far[0]
    assert not any("times as far" in note for note in alone.notes)


def test_a_task_far_from_all_others_gets_its_own_estimate() -> None:
    crowd = wild(ordinary())["a task of 1e30"]
    answers = crowd.at(2.0**99)
    found = aggregate(answers, "bi")
    np.testing.assert_allclose(found.estimate[12], answers.value[-1])
    rest = aggregate(answers.select(answers.task < 12), "bi")
    np.testing.assert_allclose(found.estimate[:12], rest.estimate, atol=rest.sd.max())


def test_hundreds_of_decades_in_one_table_are_fitted() -> None:
    # Half of the squares are nothing in floating point: the grid of levels began at zero.
    rng = np.random.default_rng(0)
    value = rng.normal(size=40) * 10.0 ** rng.integers(-300, 98, 40)
    answers = full(value.reshape(10, 4)).at(1.0)
    for method in ("auto", "bi"):
        assert wrong_with(aggregate(answers, method), answers) is None
