"""PG1: the peer-grading model of Piech et al., by Gibbs sampling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_worker,
    sum_by_task,
    sum_by_worker,
    variance_within_tasks,
    weighted_means,
    with_gold,
)
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.iterate import UNDAMPED, iterate_until
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result

# Lower bound of the variance of the biases, as a share of the variance within tasks.
_LEAST_BIAS = 0.01


@dataclass(frozen=True, kw_only=True)
class PG1(Estimator):
    """Truths, biases and precisions of the workers, by Gibbs sampling.

    The model, for every coordinate alike, with one precision per worker for all coordinates::

        mu_i ~ N(mu0, 1/gamma0),  tau_u ~ Gamma(a0, rate b0),  beta_u ~ N(0, 1/eta0),
        A_iu ~ N(mu_i + beta_u, 1/tau_u)

    Estimates are averages of the conditional means over the sweeps kept (Rao-Blackwell). The
    variance is the mean conditional variance plus the variance of these means; intervals are
    Gaussian. A worker's variance is one over its mean precision; its interval takes the logarithm
    of the precision as Gaussian.

    Parameters
    ----------
    mu0, gamma0
        Mean and precision of the truths. From the answers: mean and one over the variance of the
        tasks' means (at least the variance within tasks).
    a0, b0
        Shape and rate of the workers' precisions. ``b0`` from the answers: ``a0`` times the
        variance within tasks v, so that the mean precision is 1/v.
    eta0
        Precision of the biases. From the answers: one over the variance of the workers' mean
        residuals minus the part due to noise, and at least v/100.
    n_sweeps, burn_in
        Number of sweeps, and how many of the first are discarded.
    seed
        Seed of the random numbers; the same seed gives the same result for any order of rows.

    References
    ----------
    Piech et al.: Tuned Models of Peer Assessment in MOOCs, EDM 2013.
    """

    mu0: float | None = None
    gamma0: float | None = None
    a0: float = 1.0
    b0: float | None = None
    eta0: float | None = None
    n_sweeps: int = 800
    burn_in: int = 80
    seed: int = 0
    name: ClassVar[str] = "pg1"
    summary: ClassVar[str] = "peer-grading model with worker bias and precision, by Gibbs sampling"

    def __post_init__(self) -> None:
        for name in ("gamma0", "a0", "b0", "eta0"):
            number = getattr(self, name)
            require(number is None or number > 0, f"{name} must be positive, got {number}")
        require(
            0 <= self.burn_in < self.n_sweeps,
            f"burn_in must be below n_sweeps ({self.n_sweeps}), got {self.burn_in}",
        )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        prior = self._prior(answers)
        chain = _Chain(answers, prior, np.random.default_rng(self.seed))

        def sweep(_: float) -> float:
            chain.sweep()
            chain.n_swept += 1
            if chain.n_swept > self.burn_in:
                chain.keep()
            # A chain does not converge: this is the share of sweeps left.
            return 1.0 - chain.n_swept / self.n_sweeps

        tol = 0.5 / self.n_sweeps
        trace = iterate_until(sweep, tol, self.n_sweeps, "PG1", on_sweep, UNDAMPED)
        mean, variance = chain.truth.moments()
        within = chain.conditional.moments()[0][:, None]
        unit = prior.unit
        precision, _ = chain.precision.moments()
        log_mean, log_variance = chain.log_precision.moments()
        half = 1.96 * np.sqrt(log_variance)
        interval = np.stack([np.exp(-log_mean - half), np.exp(-log_mean + half)], axis=1)
        return gaussian_result(
            self,
            answers,
            prior.origin + unit * mean,
            unit**2 * (variance + within),
            unit**2 / precision,
            precision,
            worker_interval=unit**2 * interval,
            trace=trace,
            settings={
                "mu0_used": prior.origin.tolist(),
                "gamma0_used": prior.gamma / unit**2,
                "b0_used": prior.b * unit**2,
                "eta0_used": prior.eta / unit**2,
            },
        )

    def _prior(self, answers: Answers) -> _Prior:
        v = float(variance_within_tasks(answers).mean())
        # Where all answers agree, the noise is in the last digit of a float.
        v = v or max(float(np.spacing(np.abs(answers.value).max())) ** 2, 1e-200)
        unit = float(np.sqrt(v))
        means = with_gold(answers, weighted_means(answers))
        residual = answers.value - means[answers.task]
        origin = means[0] + (means - means[0]).mean(axis=0)
        spread = float(((means - origin) ** 2).mean())
        mean_residual = mean_by_worker(answers, residual)
        noise = float((v / answers.worker_degree).mean())
        between = max(float((mean_residual**2).mean()) - noise, _LEAST_BIAS * v)
        return _Prior(
            unit=unit,
            origin=origin if self.mu0 is None else np.full(answers.dimension, self.mu0),
            gamma=v / max(spread, v) if self.gamma0 is None else self.gamma0 * v,
            a=self.a0,
            b=self.a0 if self.b0 is None else self.b0 / v,
            eta=v / between if self.eta0 is None else self.eta0 * v,
        )


@dataclass(frozen=True)
class _Prior:
    """The hyper-parameters in units of the sd within tasks, about the mean truth."""

    unit: float
    origin: Floats
    gamma: float
    a: float
    b: float
    eta: float


class _Moments:
    """Running mean and variance of arrays (Welford)."""

    def __init__(self) -> None:
        self._n = 0
        self._mean: Floats = np.zeros(1)
        self._squares: Floats = np.zeros(1)

    def add(self, item: Floats) -> None:
        self._n += 1
        off = item - self._mean
        self._mean = self._mean + off / self._n
        self._squares = self._squares + off * (item - self._mean)

    def moments(self) -> tuple[Floats, Floats]:
        return self._mean, self._squares / self._n


class _Chain:
    """The state of the sampler, and the moments of its samples."""

    def __init__(self, answers: Answers, prior: _Prior, rng: np.random.Generator) -> None:
        self.rng, self.prior = rng, prior
        value = (answers.value - prior.origin) / prior.unit
        gold = None if answers.gold is None else (answers.gold - prior.origin) / prior.unit
        self.answers = replace(answers, value=value, gold=gold)
        self.task_place, self.worker_place = _places(answers.task_ids), _places(answers.worker_ids)
        self.bias = np.zeros((answers.n_workers, answers.dimension))
        self.tau = np.ones(answers.n_workers)
        self.mu = with_gold(self.answers, weighted_means(self.answers))
        self.rate: Floats = np.ones_like(self.tau)
        self.mean: Floats = self.mu
        self.total: Floats = np.ones((answers.n_tasks, 1))
        self.n_swept = 0
        self.truth, self.conditional = _Moments(), _Moments()
        self.precision, self.log_precision = _Moments(), _Moments()
        self.shape = prior.a + 0.5 * answers.worker_degree * answers.dimension
        # Numbers are drawn in the order of the ids, so that the order of rows does not matter.
        self.drawn_shape = np.empty_like(self.shape)
        self.drawn_shape[self.worker_place] = self.shape

    def sweep(self) -> None:
        """Draw precisions, biases and truths."""
        a, prior, rng = self.answers, self.prior, self.rng
        off = a.value - self.mu[a.task]
        squared = sum_by_worker(a, ((off - self.bias[a.worker]) ** 2).sum(axis=1))
        self.rate = prior.b + 0.5 * squared
        self.tau = rng.standard_gamma(self.drawn_shape)[self.worker_place] / self.rate
        precision = (prior.eta + a.worker_degree * self.tau)[:, None]
        noise = rng.standard_normal(self.bias.shape)[self.worker_place]
        mean = self.tau[:, None] * sum_by_worker(a, off) / precision
        self.bias = mean + noise / np.sqrt(precision)
        per_edge = self.tau[a.worker][:, None]
        self.total = prior.gamma + sum_by_task(a, per_edge)
        self.mean = sum_by_task(a, per_edge * (a.value - self.bias[a.worker])) / self.total
        noise = rng.standard_normal(self.mu.shape)[self.task_place]
        self.mu = with_gold(a, self.mean + noise / np.sqrt(self.total))

    def keep(self) -> None:
        """Add the state to the moments."""
        self.truth.add(self.mean)
        self.conditional.add(1.0 / self.total[:, 0])
        self.precision.add(self.shape / self.rate)
        self.log_precision.add(np.log(self.tau))


def _places(ids: Ids) -> NDArray[np.int64]:
    """Position of each id in the order of their texts."""
    order = sorted(range(len(ids)), key=lambda i: (str(ids[i]), type(ids[i]).__name__))
    place = np.empty(len(ids), dtype=np.int64)
    place[order] = np.arange(len(ids))
    return place
