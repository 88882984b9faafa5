"""Odd crowds at odd scales: finite, or refused in a line (`python -m tests.degenerate`: all)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.degenerate import cases, crowds, is_fine
from voxpop import (
    ESTIMATORS,
    Answers,
    Average,
    DataError,
    DataWarning,
    Exact,
    Model,
    StrongOracle,
    aggregate,
)

# auto takes seconds for some of these, and the exponential methods for one.
QUICK = [name for name in ESTIMATORS if name not in ("auto", "exact", "weak-oracle")]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "scale"), [(0, 1e-160), (1, 1e-80), (2, 1e99)])
def test_every_estimator_holds_on_some_odd_crowds(first: int, scale: float) -> None:
    found = list(cases(QUICK, [1.0, scale], lambda number: number % 9 == first))
    assert len(found) == 2 * len(QUICK) * len(range(first, len(crowds()), 9))
    assert [case for case in found if not is_fine(case[3])] == []


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


@pytest.mark.parametrize("method", ["bi", pytest.param("auto", marks=pytest.mark.slow)])
def test_groups_that_scatter_very_differently_are_warned_of(method: str) -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(0, 10, (20, 1)) + rng.normal(size=(20, 3))
    task, worker = (np.indices(table.shape)[k].ravel() for k in (0, 1))

    def both(ratio: float, joined: bool) -> Answers:
        tasks = np.append(task, task + 20)
        workers = np.append(worker, worker + 3)
        value = np.append(table, ratio * table)
        if joined:  # one worker answers in both
            tasks, workers, value = np.append(tasks, 20), np.append(workers, 0), np.append(value, 0)
        return Answers.from_arrays(tasks, workers, value)

    with pytest.warns(DataWarning, match="2 groups .* scatter 1e\\+03 times as far"):
        aggregate(both(1000, False), method)
    aggregate(both(2, False), method)
    aggregate(both(1000, True), method)
