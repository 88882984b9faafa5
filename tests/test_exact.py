"""Exact: variable elimination equals the sum over all states, also where that has too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import random_tree
from tests.oracles import brute_force
from voxpop import BI, Answers, ConfigError, Exact, Model, assign_degrees, assign_regular, simulate

SUPPORT = (2.0, 50.0)


@given(
    seed=st.integers(0, 2**31),
    dimension=st.sampled_from([1, 2]),
    prior_variance=st.sampled_from([np.inf, 30.0]),
)
@settings(max_examples=6)
def test_elimination_is_brute_force_with_loops(
    seed: int, dimension: int, prior_variance: float
) -> None:
    rng = np.random.default_rng(seed)
    a = assign_degrees([3, 2, 3, 2, 2, 1], [3, 2, 2, 2, 2, 1, 1], rng)
    answers = Answers.from_arrays(a.task, a.worker, rng.normal(0, 10, (13, dimension)))
    prior = {"weights": (0.3, 0.7), "prior_variance": prior_variance}
    ours = Exact(support=SUPPORT, **prior).fit(answers)  # type: ignore[arg-type]
    model = Model(support=SUPPORT, dimension=dimension, **prior)  # type: ignore[arg-type]
    theirs = brute_force(answers, model)
    np.testing.assert_allclose(ours.estimate, theirs.estimate, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-9)
    np.testing.assert_allclose(ours.worker_posterior, theirs.worker_posterior, atol=1e-10)


def test_a_tree_of_many_workers_is_what_bi_says() -> None:
    answers = random_tree(np.random.default_rng(3), 150, 2, 10.0)
    ours, bi = Exact(support=SUPPORT).fit(answers), BI(support=SUPPORT).fit(answers)
    np.testing.assert_allclose(ours.estimate, bi.estimate, rtol=1e-8)
    np.testing.assert_allclose(ours.variance, bi.variance, rtol=1e-7)
    np.testing.assert_allclose(ours.worker_posterior, bi.worker_posterior, atol=1e-7)


@pytest.mark.slow
def test_nobody_beats_it_on_rings() -> None:
    """Rings of 30 tasks and workers in all, 30 times: the error of BI is no smaller in expectation
    (within 3 standard errors of the difference: a false alarm in 1 of 700), and near."""
    rng = np.random.default_rng(0)
    model = Model(support=SUPPORT)
    difference, reference = [], []
    for _ in range(30):
        crowd = simulate(model, assign_regular(30, 2, 2, rng), rng)
        exact = Exact(support=SUPPORT).fit(crowd.answers)
        assert exact.settings["largest_clique"] <= 3
        error = [
            ((found.estimate - crowd.truth) ** 2).mean()
            for found in (exact, BI(support=SUPPORT).fit(crowd.answers))
        ]
        difference.append(error[1] - error[0])
        reference.append(error[0])
    assert np.mean(difference) > -3 * np.std(difference) / np.sqrt(30)
    assert abs(np.mean(difference)) < 0.02 * np.mean(reference)


@pytest.mark.slow
def test_bi_is_near_it_where_loops_are_many_and_short() -> None:
    """12 tasks, 12 workers, 3 answers each: nearly everybody shares a loop of four. BI's beliefs
    about the workers are the exact ones within 0.1 on average (0.03 over 200 crowds), and no
    smaller in error (3 standard errors of 40 differences: a false alarm in 1 of 700)."""
    rng = np.random.default_rng(1)
    support = (10.0, 1000.0)
    difference, apart = [], []
    for _ in range(40):
        crowd = simulate(Model(support=support), assign_regular(12, 3, 3, rng), rng)
        exact, bi = (
            Exact(support=support).fit(crowd.answers),
            BI(support=support).fit(crowd.answers),
        )
        assert exact.settings["largest_clique"] >= 5  # no tree, no ring
        error = [((found.estimate - crowd.truth) ** 2).mean() for found in (exact, bi)]
        difference.append(error[1] - error[0])
        apart.append(np.abs(exact.worker_posterior - bi.worker_posterior).max())
    assert np.mean(apart) < 0.1
    assert np.mean(difference) > -3 * np.std(difference) / np.sqrt(40)


def test_workers_who_hang_together_are_refused() -> None:
    rng = np.random.default_rng(0)
    a = assign_regular(60, 5, 5, rng)
    answers = Answers.from_arrays(a.task, a.worker, rng.normal(size=300))
    with pytest.raises(ConfigError, match=r"workers jointly, more than .*; use BI"):
        Exact(support=(1.0, 10.0, 100.0)).fit(answers)
