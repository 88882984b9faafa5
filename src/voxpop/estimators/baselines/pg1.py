"""PG1: the peer-grading model of Piech et al., by Gibbs sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_worker,
    means_or_gold,
    sum_by_task,
    sum_by_worker,
    variance_within_tasks,
    with_gold,
)
from voxpop.errors import require
from voxpop.estimators.base import CheckedEstimator, OnSweep, positive
from voxpop.estimators.iterate import UNDAMPED, iterate_until
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result

# Lower bound of the variance of the biases, as a share of the variance within tasks.
_LEAST_BIAS = 0.01


@dataclass(frozen=True, kw_only=True)
class PG1(CheckedEstimator):
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
    gamma0: float | None = positive(None)
    a0: float = positive(1.0)
    b0: float | None = positive(None)
    eta0: float | None = positive(None)
    n_sweeps: int = 800
    burn_in: int = 80
    seed: int = 0
    name: ClassVar[str] = "pg1"
    summary: ClassVar[str] = "peer-grading model with worker bias and precision, by Gibbs sampling"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 <= self.burn_in < self.n_sweeps,
            f"burn_in must be below n_sweeps ({self.n_sweeps}), got {self.burn_in}",
        )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        origin, unit, gamma, b, eta = self._prior(answers)
        gold = None if answers.gold is None else (answers.gold - origin) / unit
        scaled = replace(answers, value=(answers.value - origin) / unit, gold=gold)
        chain = _chain(scaled, gamma, self.a0, b, eta, np.random.default_rng(self.seed))
        n_swept, mean, squares = 0, [np.zeros(1)] * 4, [np.zeros(1)] * 4

        def sweep(_: float) -> float:
            nonlocal n_swept
            n_swept += 1
            state = next(chain)
            if n_swept > self.burn_in:
                # Running means and sums of squares (Welford).
                for k, item in enumerate(state):
                    off = item - mean[k]
                    mean[k] = mean[k] + off / (n_swept - self.burn_in)
                    squares[k] = squares[k] + off * (item - mean[k])
            # A chain does not converge: this is the share of sweeps left.
            return 1.0 - n_swept / self.n_sweeps

        tol = 0.5 / self.n_sweeps
        trace = iterate_until(sweep, tol, self.n_sweeps, "PG1", on_sweep, UNDAMPED)
        truth, within, precision, log_precision = mean
        variance = [part / (self.n_sweeps - self.burn_in) for part in squares]
        half = 1.96 * np.sqrt(variance[3])
        interval = np.exp(np.stack([-log_precision - half, -log_precision + half], axis=1))
        return gaussian_result(
            self,
            answers,
            origin + unit * truth,
            unit**2 * (variance[0] + within),
            unit**2 / precision,
            precision,
            worker_interval=unit**2 * interval,
            trace=trace,
            settings={
                "mu0_used": origin.tolist(),
                "gamma0_used": gamma / unit**2,
                "b0_used": b * unit**2,
                "eta0_used": eta / unit**2,
            },
        )

    def _prior(self, answers: Answers) -> tuple[Floats, float, float, float, float]:
        """Mean truth, sd within tasks, and in units of that gamma0, b0 and eta0."""
        v = float(variance_within_tasks(answers).mean())
        # Where all answers agree, the noise is in the last digit of a float.
        v = v or max(float(np.spacing(np.abs(answers.value).max())) ** 2, 1e-200)
        means = means_or_gold(answers)
        origin = means[0] + (means - means[0]).mean(axis=0)
        spread = float(((means - origin) ** 2).mean())
        mean_residual = mean_by_worker(answers, answers.value - means[answers.task])
        noise = float((v / answers.worker_degree).mean())
        between = max(float((mean_residual**2).mean()) - noise, _LEAST_BIAS * v)
        return (
            origin if self.mu0 is None else np.full(answers.dimension, self.mu0),
            float(np.sqrt(v)),
            v / max(spread, v) if self.gamma0 is None else self.gamma0 * v,
            self.a0 if self.b0 is None else self.b0 / v,
            v / between if self.eta0 is None else self.eta0 * v,
        )


def _chain(
    a: Answers, gamma: float, shape: float, b: float, eta: float, rng: np.random.Generator
) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
    """Draw precisions, biases and truths, sweep by sweep.

    Yields the conditional mean and variance of the truths, the conditional mean of the precisions,
    and the logarithms of the precisions drawn.
    """
    # Numbers are drawn in the order of the ids, so that the order of rows does not matter.
    of_task, of_worker = _places(a.task_ids), _places(a.worker_ids)
    shapes = shape + 0.5 * a.worker_degree * a.dimension
    bias, mu = np.zeros((a.n_workers, a.dimension)), means_or_gold(a)
    while True:
        off = a.value - mu[a.task]
        rate = b + 0.5 * sum_by_worker(a, ((off - bias[a.worker]) ** 2).sum(axis=1))
        tau = rng.standard_gamma(shapes[np.argsort(of_worker)])[of_worker] / rate
        precision = (eta + a.worker_degree * tau)[:, None]
        noise = rng.standard_normal(bias.shape)[of_worker]
        bias = tau[:, None] * sum_by_worker(a, off) / precision + noise / np.sqrt(precision)
        per_edge = tau[a.worker][:, None]
        total = gamma + sum_by_task(a, per_edge)
        mean = sum_by_task(a, per_edge * (a.value - bias[a.worker])) / total
        noise = rng.standard_normal(mu.shape)[of_task]
        mu = with_gold(a, mean + noise / np.sqrt(total))
        yield mean, 1.0 / total, shapes / rate, np.log(tau)


def _places(ids: Ids) -> Index:
    """Position of each id in the order of their texts."""
    order = sorted(range(len(ids)), key=lambda i: (str(ids[i]), type(ids[i]).__name__))
    return np.argsort(order)
