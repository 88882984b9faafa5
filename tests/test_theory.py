"""Theory: formulas against simulation, and the statements of the paper about them."""

from __future__ import annotations

import numpy as np
import pytest

from voxpop import (
    BI,
    Average,
    ConfigError,
    Model,
    StrongOracle,
    assign_regular,
    average_mse,
    mse_given,
    oracle_mse,
    simulate,
    theorem1,
    theorem2_holds,
)

SMALL = Model(support=(10, 100, 1000), dimension=2)


@pytest.mark.parametrize("per_task", [1, 3, 5])
def test_errors_are_what_simulation_finds(per_task: int) -> None:
    """40 crowds of 300 tasks; within 4 standard errors, 1 in 15,000 by chance."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(40):
        crowd = simulate(SMALL, assign_regular(300, per_task, 3, rng), rng)
        methods = (StrongOracle(variances=crowd.variances), Average())
        estimates = [method.fit(crowd.answers).estimate for method in methods]
        found.append([((e - crowd.truth) ** 2).sum(axis=1).mean() for e in estimates])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(40)
    expected = np.array([oracle_mse(SMALL, per_task), average_mse(SMALL, per_task)])
    assert (np.abs(mean - expected) < 4 * error).all()


def test_a_prior_counts_as_one_more_answer() -> None:
    model = Model(support=(4.0,), prior_variance=4.0)
    assert oracle_mse(model, 3) == pytest.approx(1.0)
    weighted = Model(support=(1.0, 3.0), weights=(0.25, 0.75))
    assert oracle_mse(weighted, 1) == pytest.approx(2.5)
    by_hand = 0.25**2 / 2 + 2 * 0.25 * 0.75 / (1 + 1 / 3) + 0.75**2 / (2 / 3)
    assert oracle_mse(weighted, 2) == pytest.approx(by_hand)
    assert average_mse(weighted, 2) == pytest.approx(1.25)


def test_the_boxes_of_the_paper() -> None:
    model = Model(support=(10, 1000), dimension=2)
    assert average_mse(model, 3) == pytest.approx(336.7, abs=0.05)
    assert oracle_mse(model, 3) == pytest.approx(95.3, abs=0.05)


def test_one_precise_worker_is_enough_for_the_oracle_only() -> None:
    average, oracle = mse_given([1e-9, 50, 50, 50, 50], dimension=2)
    assert average == pytest.approx(2 * 50 * 4 / 25)
    assert oracle < 1e-8
    with pytest.raises(ConfigError, match="positive number"):
        mse_given([1.0, 0.0])


def test_harmonic_is_below_arithmetic() -> None:
    rng = np.random.default_rng(0)
    for s in rng.lognormal(0, 2, (50, 6)):
        average, oracle = mse_given(s)
        assert oracle <= average


def test_the_bound_of_theorem_1_holds_and_falls() -> None:
    """The simulated error of BI is far below the bound; the gap falls exponentially in r, k."""
    rng = np.random.default_rng(2)
    crowd = simulate(SMALL, assign_regular(300, 5, 5, rng), rng)
    error = BI(support=SMALL.support).fit(crowd.answers).estimate - crowd.truth
    t = theorem1(SMALL, 5, 5, 10)
    assert (error**2).sum(axis=1).mean() < t.bound
    assert t.constant == pytest.approx(2 * 2 * (5 * 1000 / 10**2) / (5 / 10) ** 2)
    assert t.bound == t.oracle + t.gap
    assert t.oracle == oracle_mse(SMALL, 5)
    assert t.loops == 2.0**-10
    near = Model(support=(1.0, 2.0))
    gaps = [theorem1(near, 5, r, 10**3).gap for r in (1000, 2000, 3000)]
    # Equal steps in r take off equal factors, exp(-1000 eps² / (32 (8 eps + 1) s_max)).
    assert gaps[1] / gaps[0] == pytest.approx(gaps[2] / gaps[1])
    assert gaps[1] / gaps[0] == pytest.approx(np.exp(-1000 / (32 * 9 * 2)))
    assert theorem1(near, 5, 10**6, 40).gap == pytest.approx(
        theorem1(near, 5, 10**6, 36).gap / 2, rel=1e-6
    )


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="per_task must be at least 2"):
        theorem1(SMALL, 1, 5, 5)
    with pytest.raises(ConfigError, match="smallest difference of two levels, 90"):
        theorem1(SMALL, 5, 5, 5, separation=100.0)
    with pytest.raises(ConfigError, match="two levels"):
        theorem1(Model(support=(1.0,)), 5, 5, 5)


def test_the_condition_of_theorem_2() -> None:
    assert theorem2_holds(Model(support=(10, 20)))
    assert not theorem2_holds(Model(support=(10, 20.1)))
    assert not theorem2_holds(Model(support=(10, 15, 20)))
    assert not theorem2_holds(Model(support=(10, 20), weights=(0.9, 0.1)))
