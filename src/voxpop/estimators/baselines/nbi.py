"""NBI and Raykar: the workers' variances by maximum likelihood, without a prior on the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_worker,
    means_or_gold,
    squared_residual,
    sum_by_task,
    variance_within_tasks,
)
from voxpop.estimators.base import CheckedEstimator, OnSweep, at_least, positive, share
from voxpop.estimators.iterate import UNDAMPED, iterate_until, iterate_weights
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result


@dataclass(frozen=True, kw_only=True)
class _Floored(CheckedEstimator):
    """Shared by NBI and Raykar: the workers' variances have a lower bound."""

    floor: float = share(1e-3)
    tol: float = positive(1e-6)
    max_iter: int = at_least(1, 2000)

    def _notes(self, held: NDArray[np.bool_]) -> tuple[str, ...]:
        n, name = int(held.sum()), type(self).__name__
        note = f"{n} of {len(held)} workers' variances were held at {name}'s floor"
        return (note,) if n else ()


@dataclass(frozen=True, kw_only=True)
class NBI(_Floored):
    """Weigh by inverse variance, estimate variances from the residuals, and iterate (M19).

    Without a bound, a worker whose answers dominate their own estimates would seem ever more
    precise, down to a variance of zero. Variances are therefore at least ``floor`` times the mean
    squared residual about the plain average; the result notes how many workers that concerns. The
    sd takes the variances as known and is too small where workers have few answers.
    """

    name: ClassVar[str] = "nbi"
    summary: ClassVar[str] = "iteratively weighted mean: weights from residuals, no prior"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        lowest = self.floor * float(squared_residual(answers, means_or_gold(answers)).mean())

        def weigh(per_edge: Floats) -> Floats:
            estimate = means_or_gold(answers, per_edge)
            residual = mean_by_worker(answers, squared_residual(answers, estimate))
            # Without a floor all answers to every task agree, and all weights are equal.
            return 1.0 / np.maximum(residual, lowest) if lowest else np.ones_like(residual)

        # Each sweep raises the likelihood: there is nothing to damp.
        stop = self.tol, self.max_iter, "NBI", on_sweep, UNDAMPED
        weight, trace = iterate_weights(weigh, answers, *stop)
        per_edge = weight[answers.worker]
        # The paper's variance sums over coordinates, a result's is per coordinate. Where no answer
        # differs from its estimate, the noise is that of the average.
        within = float(variance_within_tasks(answers).mean())
        unit = 1.0 / answers.dimension if lowest else within
        most = 1.0 / lowest if lowest else np.inf
        return gaussian_result(
            self,
            answers,
            means_or_gold(answers, per_edge),
            unit / sum_by_task(answers, per_edge)[:, None],
            unit / weight,
            weight,
            trace=trace,
            notes=self._notes(weight >= most),
            settings={"floor_variance": lowest / answers.dimension},
        )


@dataclass(frozen=True, kw_only=True)
class Raykar(_Floored):
    """EM for the workers' variances; the truths, with a flat prior, are the latent variables.

    The regression model of Raykar et al. without features. Where NBI takes the residuals about the
    estimates as they are, EM adds the uncertainty v_i of the estimates::

        v_i = 1 / sum_u 1/s_u,   mu_i = v_i sum_u A_iu / s_u
        s_u = mean over i of ( |A_iu - mu_i|^2 / d + v_i )

    No sweep lowers the marginal likelihood of the answers, which the result keeps, up to a
    constant, in its settings under ``log_likelihood``. Variances may still creep towards zero;
    they are at least ``floor`` times the variance within tasks. EM stops when a sweep raises the
    log likelihood by no more than ``tol``. The sd takes the variances as known and is too small
    where workers have few answers.

    References
    ----------
    Raykar et al.: Learning From Crowds, JMLR 2010.
    """

    tol: float = positive(1e-4)
    max_iter: int = at_least(1, 5000)
    name: ClassVar[str] = "raykar"
    summary: ClassVar[str] = "maximum likelihood of the workers' variances by EM"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        within = float(variance_within_tasks(answers).mean())
        # In units of the variance within tasks; without any there is nothing to learn.
        unit = within or 1.0
        variance = np.ones(answers.n_workers)
        mean, uncertain, likelihood = _truths(answers, variance, unit)
        history = [likelihood]

        def sweep(_: float) -> float:
            nonlocal variance, mean, uncertain
            residual = squared_residual(answers, mean) / (answers.dimension * unit)
            new = mean_by_worker(answers, residual + uncertain[answers.task])
            variance = np.maximum(new, self.floor)
            mean, uncertain, likelihood = _truths(answers, variance, unit)
            history.append(likelihood)
            # Where the likelihood is flat, as in the smallest variances, these change forever.
            return abs(history[-1] - history[-2])

        trace = iterate_until(sweep, self.tol, self.max_iter, "Raykar's EM", on_sweep, UNDAMPED)
        return gaussian_result(
            self,
            answers,
            mean,
            within * uncertain[:, None],
            within * variance,
            1.0 / variance,
            trace=trace,
            notes=self._notes(variance <= self.floor),
            settings={"log_likelihood": history},
        )


def _truths(answers: Answers, variance: Floats, unit: float) -> tuple[Floats, Floats, float]:
    """Posterior mean and variance of every truth, and the marginal log likelihood of the answers.

    Given the workers' variances, and the likelihood up to a constant. For one task, with
    W = sum 1/s_u and the weighted mean mu, it is::

        -1/2 [ d (log W + sum log s_u) + sum |A_u - mu|^2 / s_u ]

    For a gold task mu is the known truth, and the term in W is left out.
    """
    per_edge = variance[answers.worker]
    total = sum_by_task(answers, 1.0 / per_edge)
    mean = means_or_gold(answers, 1.0 / per_edge)
    fit = (squared_residual(answers, mean) / (unit * per_edge)).sum()
    logs = np.log(per_edge).sum() + np.log(total)[~answers.is_gold].sum()
    likelihood = float(-0.5 * (fit + answers.dimension * logs))
    return mean, np.where(answers.is_gold, 0.0, 1.0 / total), likelihood
