"""PG1: the sampler draws from the posterior of its model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import Floats
from voxpop import PG1, Answers, ConfigError, assign_regular

HYPER = {"mu0": 20.0, "gamma0": 1 / 25.0, "a0": 3.0, "b0": 12.0, "eta0": 1 / 4.0}


def draw(
    rng: np.random.Generator, n_tasks: int, per_task: int, per_worker: int, dimension: int = 1
) -> tuple[Answers, Floats, Floats]:
    """Answers drawn from the model with ``HYPER``, the truths, and the workers' precisions."""
    a = assign_regular(n_tasks, per_task, per_worker, rng)
    truth = rng.normal(20, 5, (n_tasks, dimension))
    precision = rng.gamma(3.0, 1 / 12.0, a.n_workers)
    bias = rng.normal(0, 2, (a.n_workers, dimension))
    noise = rng.normal(size=(len(a.task), dimension)) / np.sqrt(precision[a.worker])[:, None]
    value = truth[a.task] + bias[a.worker] + noise
    answers = Answers.from_arrays(a.task, a.worker, value)
    return answers, truth[answers.task_ids.astype(int)], precision[answers.worker_ids.astype(int)]


@pytest.mark.parametrize("dimension", [1, 2])
def test_it_recovers_its_own_parameters(dimension: int) -> None:
    """Posteriors of the true model cover: 300 truths, 95 % give or take 4 standard errors
    (sqrt(.95 * .05 / 300) = .013 each, correlated by the biases); precisions are found."""
    rng = np.random.default_rng(0)
    answers, truth, precision = draw(rng, 300, 6, 20, dimension)
    result = PG1(**HYPER, n_sweeps=600).fit(answers)  # type: ignore[arg-type]
    low, high = result.interval(0.95)
    assert 0.9 < ((low <= truth) & (truth <= high)).mean() < 1.0
    error = (result.estimate - truth) / result.sd
    assert 0.8 < (error**2).mean() < 1.25
    low, high = result.worker_interval.T
    assert ((low <= 1 / precision) & (1 / precision <= high)).mean() > 0.85
    assert np.corrcoef(np.log(result.worker_variance), -np.log(precision))[0, 1] > 0.7


def test_known_posterior_when_biases_and_precisions_are_known() -> None:
    """Strong priors leave a conjugate normal: the sampler must give its mean and variance."""
    value = np.array([3.0, 5.0, 10.0])
    answers = Answers.from_arrays([0, 0, 1], [0, 1, 1], value)
    result = PG1(mu0=1.0, gamma0=0.5, a0=2e8, b0=1e8, eta0=1e12).fit(answers)
    # Precision 2 for every answer, no bias.
    np.testing.assert_allclose(
        result.estimate[:, 0], [(0.5 + 2 * 8) / 4.5, (0.5 + 20) / 2.5], rtol=1e-3
    )
    np.testing.assert_allclose(result.variance[:, 0], [1 / 4.5, 1 / 2.5], rtol=1e-3)
    np.testing.assert_allclose(result.worker_variance, 0.5, rtol=1e-3)


def test_known_posterior_of_a_precision() -> None:
    """With truths known (gold) and no bias, precisions are gamma: a0 + n/2, b0 + SSE/2."""
    rng = np.random.default_rng(1)
    truth, noise = rng.normal(0, 5, 40), rng.normal(0, 2, 40)
    worker = np.tile([0, 1], 20)
    answers = Answers.from_arrays(np.arange(40), worker, truth + noise, gold=truth)
    result = PG1(a0=2.0, b0=3.0, eta0=1e12, n_sweeps=4000).fit(answers)
    for u in (0, 1):
        rate = 3.0 + 0.5 * (noise[worker == u] ** 2).sum()
        assert result.worker_variance[u] == pytest.approx(rate / 12.0, rel=1e-4)
        # Log precision of a gamma of shape 12: sd 0.295, so a factor 0.56 to 1.78.
        ratio = result.worker_interval[u] / result.worker_variance[u]
        np.testing.assert_allclose(ratio, [0.59, 1.87], rtol=0.08)
    np.testing.assert_array_equal(result.estimate[:, 0], truth)


@pytest.mark.slow
def test_two_answers_by_quadrature() -> None:
    """One task, two workers: the posterior of the truth by a grid over all that is unknown."""
    value = np.array([0.0, 4.0])
    answers = Answers.from_arrays([0, 0], [0, 1], value)
    prior = {"mu0": 1.0, "gamma0": 0.2, "a0": 2.0, "b0": 2.0, "eta0": 1.0}
    result = PG1(**prior, n_sweeps=12_000, burn_in=100).fit(answers)  # type: ignore[arg-type]
    x = np.linspace(-12, 16, 4001)
    tau = np.linspace(1e-3, 12, 3000)
    log_p = -0.5 * 0.2 * (x - 1) ** 2
    for a in value:
        variance = 1 / tau + 1.0  # the bias integrated out
        density = np.exp(-0.5 * (a - x[:, None]) ** 2 / variance) / np.sqrt(variance)
        log_p += np.log((density * tau * np.exp(-2 * tau)).sum(axis=1))
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p @ x
    # 12,000 correlated draws: an error of the mean of about 0.025 here.
    assert result.estimate[0, 0] == pytest.approx(mean, abs=0.1)
    assert result.variance[0, 0] == pytest.approx(p @ (x - mean) ** 2, rel=0.1)


@pytest.mark.slow
def test_the_default_run_is_as_good_as_a_long_one() -> None:
    rng = np.random.default_rng(2)
    answers, _, _ = draw(rng, 100, 5, 10)
    ours, long = PG1().fit(answers), PG1(n_sweeps=6000, seed=1).fit(answers)
    # Well within the posterior's own spread: 720 draws of a chain that forgets within ten.
    assert np.abs((ours.estimate - long.estimate) / long.sd).max() < 0.5
    assert np.sqrt((((ours.estimate - long.estimate) / long.sd) ** 2).mean()) < 0.15
    assert ours.trace.n_sweeps == 800
    assert ours.settings["b0_used"] > 0


def test_arguments_are_checked() -> None:
    with pytest.raises(ConfigError, match="eta0 must be positive"):
        PG1(eta0=0.0)
    with pytest.raises(ConfigError, match="burn_in must be below n_sweeps"):
        PG1(n_sweeps=10, burn_in=10)
