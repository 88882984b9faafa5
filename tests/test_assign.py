"""Assignments: the degrees asked for, no pair twice, and every graph as likely as the next."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from voxpop import Assignment, ConfigError, assign_degrees, assign_regular


def assert_simple(assignment: Assignment) -> None:
    pairs = set(zip(assignment.task.tolist(), assignment.worker.tolist(), strict=True))
    assert len(pairs) == len(assignment.task)


@given(
    n_tasks=st.integers(1, 40),
    per_task=st.integers(1, 8),
    per_worker=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_as_regular_as_possible(n_tasks: int, per_task: int, per_worker: int, seed: int) -> None:
    n_workers = -(-n_tasks * per_task // per_worker)
    assume(per_task <= n_workers)
    a = assign_regular(n_tasks, per_task, per_worker, np.random.default_rng(seed))
    assert_simple(a)
    assert (np.bincount(a.task, minlength=n_tasks) == per_task).all()
    load = np.bincount(a.worker, minlength=a.n_workers)
    assert a.n_workers == n_workers
    assert load.max() <= per_worker
    assert np.ptp(load) <= 1


@given(seed=st.integers(0, 2**31), n_tasks=st.integers(1, 12), n_workers=st.integers(1, 12))
def test_any_possible_degrees(seed: int, n_tasks: int, n_workers: int) -> None:
    """Degrees taken from a random graph, dense ones included, are found again."""
    rng = np.random.default_rng(seed)
    graph = rng.random((n_tasks, n_workers)) < rng.choice([0.3, 0.6, 0.95])
    graph[:, 0] = True
    graph[0, :] = True
    a = assign_degrees(graph.sum(1), graph.sum(0), rng)
    assert_simple(a)
    np.testing.assert_array_equal(np.bincount(a.task), graph.sum(1))
    np.testing.assert_array_equal(np.bincount(a.worker), graph.sum(0))


def test_all_graphs_are_equally_likely() -> None:
    """The 90 simple (2, 2)-regular graphs of four and four; a fair draw fails once in 10,000."""
    rng = np.random.default_rng(0)
    seen: Counter[bytes] = Counter()
    for _ in range(1800):
        a = assign_regular(4, 2, 2, rng)
        seen[a.worker.tobytes()] += 1
    assert len(seen) == 90
    assert chisquare(list(seen.values())).pvalue > 1e-4


def test_a_worker_with_half_of_all_tasks() -> None:
    degrees = np.r_[457, np.full(150, 1), np.full(13, 50)]
    tasks = np.full(1002, degrees.sum() // 1002)
    tasks[: degrees.sum() - tasks.sum()] += 1
    assert_simple(assign_degrees(tasks, degrees, np.random.default_rng(0)))


def test_the_seed_decides() -> None:
    a, b, c = (assign_regular(50, 3, 5, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.worker, b.worker)
    assert (a.worker != c.worker).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 5), "n_tasks must be at least 1"),
        ((10, 0, 5), "per_task must be at least 1"),
        ((2, 5, 5), "5 answers per task need as many workers"),
    ],
)
def test_impossible_regular_assignments(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign_regular(*arguments, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("tasks", "workers", "message"),
    [
        ([2, 2], [3], "ask for 4 answers, the workers give 3"),
        ([2], [2], "no assignment has these degrees"),
        ([3, 1, 1], [3, 2], "no assignment has these degrees"),
        ([1, 0], [1], "at least one answer"),
        ([], [], "two lists"),
        ([2.5, 1.5], [2, 2], "whole numbers"),
    ],
)
def test_impossible_degrees(tasks: list[int], workers: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assign_degrees(tasks, workers, np.random.default_rng(0))
