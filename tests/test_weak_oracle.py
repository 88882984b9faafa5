"""Weak-Oracle: the posterior mean with the far workers' variances known, on any graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import random_tree
from tests.oracles import Floats, log_likelihood
from voxpop import (
    BI,
    Answers,
    ConfigError,
    Exact,
    Model,
    StrongOracle,
    WeakOracle,
    assign_degrees,
    assign_regular,
    simulate,
)
from voxpop.estimators.bounds.weak_oracle import tree_depth

SUPPORT = (2.0, 50.0)


def distances(answers: Answers, root: int) -> tuple[dict[int, int], dict[int, int]]:
    """Steps from a task to every task and worker, by breadth-first search."""
    tasks: dict[int, int] = {root: 0}
    workers: dict[int, int] = {}
    frontier, step = [root], 0
    while frontier:
        step += 1
        reached = {int(u) for i in frontier for u in answers.worker[answers.task == i]}
        new_workers = reached - set(workers)
        workers |= dict.fromkeys(new_workers, step)
        step += 1
        near = {int(i) for u in new_workers for i in answers.task[answers.worker == u]}
        frontier = list(near - set(tasks))
        tasks |= dict.fromkeys(frontier, step)
    return tasks, workers


def conditional_mean(answers: Answers, variance: Floats, root: int, depth: int) -> Floats:
    """E[truth of the root | all answers, variances at distance 2 depth + 1], by brute force."""
    _, distance = distances(answers, root)
    revealed = [u for u in range(answers.n_workers) if distance.get(u) == 2 * depth + 1]
    hidden = [u for u in range(answers.n_workers) if u not in revealed]
    zero = np.zeros(answers.dimension)
    log_p, means = [], []
    for state in product(SUPPORT, repeat=len(hidden)):
        s = variance.copy()
        s[hidden] = state
        total = 0.0
        for i in range(answers.n_tasks):
            edges = answers.task == i
            total += log_likelihood(answers.value[edges], s[answers.worker[edges]], zero, np.inf)
        edges = answers.task == root
        w = 1 / s[answers.worker[edges]]
        log_p.append(total)
        means.append((w[:, None] * answers.value[edges]).sum(axis=0) / w.sum())
    p = np.exp(np.array(log_p) - max(log_p))
    return np.asarray((p / p.sum()) @ np.array(means))


def check(answers: Answers, variance: Floats, depth: int) -> None:
    variances = dict(zip(answers.worker_ids.tolist(), variance.tolist(), strict=True))
    found = WeakOracle(support=SUPPORT, variances=variances, depth=depth).fit(answers)
    for i, k in enumerate(tree_depth(answers, depth).tolist()):
        expected = conditional_mean(answers, variance, i, k)
        np.testing.assert_allclose(found.estimate[i], expected, rtol=1e-8, atol=1e-8)


@given(seed=st.integers(0, 2**31), dimension=st.sampled_from([1, 2]), depth=st.integers(1, 3))
@settings(max_examples=6)
def test_it_is_the_conditional_mean_on_trees(seed: int, dimension: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    answers = random_tree(rng, 6, dimension, 10.0)
    # The variances told need not be among the levels.
    check(answers, rng.uniform(1, 80, answers.n_workers), depth)


@given(seed=st.integers(0, 2**31), dimension=st.sampled_from([1, 2]))
@settings(max_examples=5)
def test_it_is_the_conditional_mean_with_loops(seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    a = assign_degrees([3, 2, 3, 2, 2], [3, 2, 2, 2, 1, 1, 1], rng)
    value = rng.normal(0, 10, (12, dimension))
    answers = Answers.from_arrays(a.task, a.worker, value)
    check(answers, rng.uniform(1, 80, answers.n_workers), 3)


@given(seed=st.integers(0, 2**31))
@settings(max_examples=10)
def test_where_nothing_is_left_to_reveal_it_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 8, 2, 10.0)
    gold = np.full((tree.n_tasks, 2), np.nan)
    gold[0] = 3.0
    for answers in (tree, replace(tree, gold=gold)):
        variances = dict.fromkeys(answers.worker_ids.tolist(), 1.0)
        ours = WeakOracle(support=SUPPORT, variances=variances, depth=9).fit(answers)
        exact = Exact(support=SUPPORT).fit(answers)
        np.testing.assert_allclose(ours.estimate, exact.estimate, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours.variance, exact.variance, rtol=1e-9)
        np.testing.assert_allclose(ours.quantile, exact.quantile, rtol=1e-6, atol=1e-6)


def test_gold_cuts_loops() -> None:
    rng = np.random.default_rng(0)
    a = assign_degrees([2, 2, 2], [2, 2, 2], rng)  # one ring of three
    gold = np.array([[np.nan], [5.0], [np.nan]])
    answers = Answers.from_arrays(a.task, a.worker, rng.normal(0, 10, 6), gold=gold)
    variances = dict.fromkeys(answers.worker_ids.tolist(), 1.0)
    ours = WeakOracle(support=SUPPORT, variances=variances).fit(answers)
    exact = Exact(support=SUPPORT).fit(answers)
    np.testing.assert_allclose(ours.estimate, exact.estimate, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("per_task", "per_worker"), [(5, 5), (3, 5), (5, 2)])
def test_it_lies_between_bi_and_the_strong_oracle(per_task: int, per_worker: int) -> None:
    """In expectation; here over 12 crowds of 200 tasks, within 3 standard errors of the
    difference (odds of a false alarm below 1 in 300 each), and BI within 10 % of it."""
    rng = np.random.default_rng(7)
    support = (10.0, 100.0, 1000.0)
    model = Model(support=support, dimension=2)
    squared = np.empty((12, 3))
    for draw in range(12):
        crowd = simulate(model, assign_regular(200, per_task, per_worker, rng), rng)
        methods = (
            StrongOracle(variances=crowd.variances),
            WeakOracle(support=support, variances=crowd.variances),
            BI(support=support),
        )
        for m, method in enumerate(methods):
            error = method.fit(crowd.answers).estimate - crowd.truth
            squared[draw, m] = (error**2).sum(axis=1).mean()
    for worse, better in ((1, 0), (2, 1)):
        difference = squared[:, worse] - squared[:, better]
        assert difference.mean() > -3 * difference.std(ddof=1) / np.sqrt(12)
    strong, weak, bi = squared.mean(axis=0)
    assert strong < weak
    assert bi < 1.1 * weak


def test_too_much_is_refused_in_one_line() -> None:
    answers = Answers.from_arrays(np.zeros(30), np.arange(30), np.arange(30.0))
    oracle = WeakOracle(support=SUPPORT, variances=dict.fromkeys(range(30), 1.0))
    with pytest.raises(ConfigError, match=r"2\^30 levels"):
        oracle.fit(answers)
    with pytest.raises(ConfigError, match="depth must be"):
        WeakOracle(support=SUPPORT, variances={}, depth=0)
    worker = np.append(np.zeros(5000), 1)
    wide = Answers.from_arrays(np.arange(5001), worker, np.arange(5001.0))
    with pytest.raises(ConfigError, match="25000001 pairs"):
        WeakOracle(support=SUPPORT, variances={0.0: 1.0, 1.0: 1.0}).fit(wide)
