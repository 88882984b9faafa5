"""Known parameters are recovered, and intervals cover what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from voxpop import BI, NBI, Model, assign_regular, score, simulate

SMALL = (10.0, 100.0, 1000.0)


def coverages(estimator: BI | NBI, per_task: int, per_worker: int) -> tuple[float, float]:
    """Mean coverage at 90 and 95 % over crowds with 6000 coordinates in all."""
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        model = Model(support=SMALL, dimension=2)
        crowd = simulate(model, assign_regular(500, per_task, per_worker, rng), rng)
        scored = score(estimator.fit(crowd.answers), crowd.truth)
        found.append((scored.coverage_90, scored.coverage_95))
    ninety, ninety_five = np.mean(found, axis=0)
    return float(ninety), float(ninety_five)


@pytest.mark.parametrize(("per_task", "per_worker"), [(2, 2), (3, 6), (5, 5), (5, 25)])
def test_intervals_cover_as_promised(per_task: int, per_worker: int) -> None:
    """Standard errors are 0.4 and 0.3 %, so that 2 % is a departure of five of them."""
    ninety, ninety_five = coverages(BI(support=SMALL), per_task, per_worker)
    assert ninety == pytest.approx(0.90, abs=0.02)
    assert ninety_five == pytest.approx(0.95, abs=0.015)


def test_intervals_with_learned_levels_cover_too() -> None:
    ninety, ninety_five = coverages(BI(), 3, 10)
    assert ninety == pytest.approx(0.90, abs=0.025)
    assert ninety_five == pytest.approx(0.95, abs=0.02)


def test_a_method_that_trusts_its_own_variances_fails_this_test() -> None:
    """The negative control: NBI's plug-in intervals are far too narrow at five answers each."""
    _, ninety_five = coverages(NBI(), 5, 5)
    assert ninety_five < 0.8


def test_worker_levels_are_found() -> None:
    rng = np.random.default_rng(0)
    crowd = simulate(Model(support=SMALL), assign_regular(500, 5, 50, rng), rng)
    result = BI(support=SMALL).fit(crowd.answers)
    assert (result.levels[result.worker_posterior.argmax(1)] == crowd.worker_variance).mean() > 0.97
    scored = score(result, crowd.truth, crowd.worker_variance)
    assert scored.rank_correlation is not None
    assert scored.rank_correlation > 0.9


def test_worker_probabilities_are_calibrated() -> None:
    """Of all (worker, level) pairs given 30 to 70 %, about half are true: 3 standard errors."""
    p, hit = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        crowd = simulate(Model(support=SMALL), assign_regular(300, 4, 4, rng), rng)
        result = BI(support=SMALL).fit(crowd.answers)
        p.append(result.worker_posterior.ravel())
        hit.append((crowd.worker_variance[:, None] == result.levels).ravel())
    probability, true = np.concatenate(p), np.concatenate(hit)
    vague = (probability > 0.3) & (probability < 0.7)
    error = true[vague].mean() - probability[vague].mean()
    assert abs(error) < 3 * 0.5 / np.sqrt(vague.sum())


def test_a_prior_helps_as_much_as_it_says() -> None:
    """With the right prior the error is the posterior variance, within five standard errors."""
    rng = np.random.default_rng(1)
    model = Model(support=SMALL, prior_mean=50.0, prior_variance=25.0)
    crowd = simulate(model, assign_regular(2000, 2, 4, rng), rng)
    flat, informed = BI(support=SMALL), BI(support=SMALL, prior_mean=50.0, prior_variance=25.0)
    result = informed.fit(crowd.answers)
    mse = score(result, crowd.truth).mse
    assert mse < 0.5 * score(flat.fit(crowd.answers), crowd.truth).mse
    assert mse == pytest.approx(float(result.variance.mean()), rel=0.15)
