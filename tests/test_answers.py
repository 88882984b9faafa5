"""Answers: the layout, the checks, and what a bad table is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxpop import Answers, DataError, DataWarning

TASK = ["b", "a", "b", "c", "a"]
WORKER = ["u", "u", "v", "w", "w"]
VALUE = [1.0, 2.0, 3.0, 4.0, 5.0]


def test_order_of_first_appearance_is_kept() -> None:
    answers = Answers.from_arrays(TASK, WORKER, VALUE)
    assert answers.task_ids.tolist() == ["b", "a", "c"]
    assert answers.worker_ids.tolist() == ["u", "v", "w"]
    assert (answers.n_tasks, answers.n_workers, answers.n_edges, answers.dimension) == (3, 3, 5, 1)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30, unique=True)
)
def test_both_views_hold_every_edge_once(pairs: list[tuple[int, int]]) -> None:
    task, worker = np.array(pairs).T
    value = np.arange(float(len(pairs)))
    try:
        answers = Answers.from_arrays(task, worker, value)
    except DataWarning:
        return  # one worker, or one answer: said elsewhere
    table = {
        (answers.task_ids[i], answers.worker_ids[u]): v
        for i, u, v in zip(answers.task, answers.worker, answers.value[:, 0], strict=True)
    }
    assert table == dict(zip(map(tuple, pairs), value, strict=True))
    for i in range(answers.n_tasks):
        edges = slice(answers.task_ptr[i], answers.task_ptr[i + 1])
        assert (answers.task[edges] == i).all()
    for u in range(answers.n_workers):
        own = answers.by_worker[answers.worker_ptr[u] : answers.worker_ptr[u + 1]]
        assert (answers.worker[own] == u).all()
    assert answers.task_degree.sum() == answers.worker_degree.sum() == len(pairs)


def test_any_hashable_id_will_do() -> None:
    ids = [("image", 1), 7, "7"]
    answers = Answers.from_arrays(ids, ["u", "v", "u"], VALUE[:3])  # type: ignore[arg-type]
    assert answers.task_ids.tolist() == ids
    pairs = [("a", 1), ("a", 2), ("b", 1)]
    assert Answers.from_arrays(pairs, ["u", "v", "u"], VALUE[:3]).task_ids.tolist() == pairs


@pytest.mark.parametrize(
    ("task", "value", "message"),
    [
        (["a", None], [1.0, 2.0], "column 'task' is empty in row 2"),
        ([["a"], ["b"]], [1.0, 2.0], "ids that cannot be hashed"),
        (["a", "b"], ["one", "two"], "values must be numbers"),
    ],
)
def test_other_ids_and_values_are_refused(
    task: list[object], value: list[object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Answers.from_arrays(task, ["u", "v"], value)  # type: ignore[arg-type]


def test_arrays_are_read_only() -> None:
    answers = Answers.from_arrays(TASK, WORKER, VALUE)
    for name in ("value", "task", "worker", "task_ptr", "by_worker", "task_degree"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(answers, name)[0] = 0


@pytest.mark.parametrize(("policy", "expected"), [("mean", [2.0, 2.5]), ("last", [3.0, 2.5])])
def test_repeated_answers_are_combined_when_asked(policy: str, expected: list[float]) -> None:
    answers = Answers.from_arrays(
        ["a", "b", "a"],
        ["u", "v", "u"],
        [1.0, 2.5, 3.0],
        duplicates=policy,  # type: ignore[arg-type]
    )
    assert answers.value[:, 0].tolist() == expected


def test_repeated_answers_are_refused_by_name() -> None:
    with pytest.raises(DataError) as error:
        Answers.from_arrays(["a", "b", "a"], ["u", "v", "u"], [1.0, 2.0, 3.0])
    assert str(error.value) == (
        "worker 'u' answered task 'a' more than once (rows 1 and 3); 1 answer repeats an earlier "
        "one in all; combine them with duplicates='mean' or 'last' (command line: --duplicates)"
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_values_must_be_finite(bad: float) -> None:
    with pytest.raises(DataError, match=r"row 2: .* in column 'value' is not a finite number"):
        Answers.from_arrays(["a", "b"], ["u", "v"], [1.0, bad])


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(DataError, match="there are no answers"):
        Answers.from_arrays([], [], [])


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="equally long"):
        Answers.from_arrays(["a"], ["u", "v"], [1.0, 2.0])


def test_weak_data_are_warned_of() -> None:
    with pytest.warns(DataWarning, match="all answers come from one worker, 'u'"):
        Answers.from_arrays(["a", "b"], ["u", "u"], [1.0, 2.0])
    with pytest.warns(DataWarning, match="all answers are equal"):
        Answers.from_arrays(["a", "b"], ["u", "v"], [1.0, 1.0])
    with pytest.warns(DataWarning, match=r"worker ids 'u' and 'u ' differ only by white space"):
        Answers.from_arrays(["a", "b"], ["u", "u "], [1.0, 2.0])
    with pytest.warns(DataWarning, match=r"task ids 'a  b' and 'a b' differ only"):
        Answers.from_arrays(["a  b", "a b"], ["u", "v"], [1.0, 2.0])


def test_gold_must_be_whole_and_finite() -> None:
    answers = Answers.from_arrays(
        ["a", "b"], ["u", "v"], [[1.0, 2.0], [3.0, 4.0]], gold=[[1.0, 1.0], [np.nan, np.nan]]
    )
    assert answers.is_gold.tolist() == [True, False]
    with pytest.raises(DataError, match="gold of task 'b' must give every coordinate"):
        Answers.from_arrays(
            ["a", "b"], ["u", "v"], [[1.0, 2.0], [3.0, 4.0]], gold=[[1.0, 1.0], [1.0, np.nan]]
        )
    with pytest.raises(DataError, match="gold must have shape"):
        Answers.from_arrays(["a", "b"], ["u", "v"], [1.0, 2.0], gold=[1.0])
