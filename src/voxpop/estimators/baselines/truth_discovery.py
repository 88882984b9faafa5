"""Truth discovery: weights of the workers and estimates in turn, as that literature does it.

All of them are invariant to the origin and the units of the answers, weigh within every task (the
weights of a task's workers are normalised there), and keep a worker who happens to agree exactly
with the estimates from taking all the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import chdtri

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    by_degree,
    mean_by_worker,
    squared_residual,
    sum_by_task,
    sum_by_worker,
    variance_within_tasks,
    weighted_means,
    with_gold,
)
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.baselines.weighing import (
    FLOOR,
    alternate,
    in_turns,
    least_variance,
    task_spread,
    weighted_medians,
    weighted_result,
    worker_residual,
)
from voxpop.estimators.iterate import repeat, require_stop
from voxpop.estimators.make_result import (
    make_result,
    normal_posterior,
    plain_noise,
    relative_weight,
)
from voxpop.results.result import Result

_PATIENT = 2000
# Kernels of pairs of answers kept between sweeps, 256 MB; beyond that they are made anew.
_MOST_KEPT = 32_000_000


@dataclass(frozen=True, kw_only=True)
class CATD(Estimator):
    """Weigh a worker by the lower bound of its precision: few answers, little trust.

    With the summed squares of a worker's residuals SSE_u over n_u answers of d coordinates,
    w_u = chi2(alpha/2, n_u d) / SSE_u, and the estimates are the means with these weights. Also
    known as RASA for vectors. SSE_u is at least that of a variance one hundredth of the middle
    worker's.

    References
    ----------
    Li et al.: A Confidence-Aware Approach for Truth Discovery on Long-Tail Data, VLDB 2015.
    """

    alpha: float = 0.05
    tol: float = 1e-6
    max_iter: int = _PATIENT
    name: ClassVar[str] = "catd"
    summary: ClassVar[str] = "weights from a lower bound of each worker's precision"

    def __post_init__(self) -> None:
        require(0 < self.alpha < 1, f"alpha must be between 0 and 1, got {self.alpha}")
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        freedom = answers.worker_degree * answers.dimension
        bound = chdtri(freedom, 1 - self.alpha / 2) / freedom
        least = least_variance(answers)

        def weigh(estimate: Floats) -> Floats:
            if not least:
                return np.asarray(bound)
            variance = worker_residual(answers, estimate)
            return np.asarray(bound / np.maximum(variance, least))

        return alternate(answers, self, weigh, self.tol, self.max_iter, on_sweep)


@dataclass(frozen=True, kw_only=True)
class CRH(Estimator):
    """Weigh a worker by minus the logarithm of its share of all losses (CRH, and PM).

    The loss of an answer is its squared or absolute distance from the estimate, in units of the
    spread of its task; a worker's is the mean over its answers. Squared losses go with weighted
    means, absolute ones with weighted medians. ``reference="max"`` compares with the worst worker
    instead, who then counts for next to nothing: that is PM.

    References
    ----------
    Li et al.: Resolving Conflicts in Heterogeneous Data by Truth Discovery, SIGMOD 2014.
    Aydin et al.: Crowdsourcing for Multiple-Choice Question Answering, AAAI 2014.
    """

    loss: Literal["squared", "absolute"] = "squared"
    reference: Literal["sum", "max"] = "sum"
    tol: float = 1e-6
    max_iter: int = _PATIENT
    name: ClassVar[str] = "crh"
    summary: ClassVar[str] = "weights from the logarithm of each worker's share of the loss"

    def __post_init__(self) -> None:
        require(
            self.loss in ("squared", "absolute"),
            f"loss must be 'squared' or 'absolute', got {self.loss!r}",
        )
        require(
            self.reference in ("sum", "max"),
            f"reference must be 'sum' or 'max', got {self.reference!r}",
        )
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        squared = self.loss == "squared"
        spread = task_spread(answers)[answers.task]
        unit = spread if squared else np.sqrt(spread)

        def weigh(estimate: Floats) -> Floats:
            residual = squared_residual(answers, estimate)
            if not squared:
                residual = np.abs(answers.value - estimate[answers.task]).sum(axis=1)
            loss = mean_by_worker(answers, residual / unit)
            loss = np.maximum(loss, FLOOR * (np.median(loss) or loss.mean()))
            if not loss.max() or len(loss) == 1:
                return np.ones_like(loss)
            # Sorted: the same sum in any order of the workers.
            top = np.sort(loss).sum() if self.reference == "sum" else loss.max()
            weight = -np.log(loss / top)
            if not weight.max():
                return np.ones_like(loss)
            return np.asarray(np.maximum(weight, 1e-6 * weight.max()))

        centre = weighted_means if squared else weighted_medians
        return alternate(answers, self, weigh, self.tol, self.max_iter, on_sweep, centre)


@dataclass(frozen=True, kw_only=True)
class GTM(Estimator):
    """Gaussian truth model: inverse-gamma prior on a worker's variance, Gaussian prior on truths.

    In units of the variance within tasks v: the variance of a worker has an inverse-gamma prior
    with ``alpha`` and ``beta``, and a truth is Gaussian about the mean of its answers with
    variance ``prior_variance``. In turn, with SSE_u the summed squares of residuals::

        s_u  = (2 beta v + SSE_u) / (2 (alpha + 1) + n_u d)
        mu_i = (mean_i / (v prior_variance) + sum A_iu / s_u) / (1/(v prior_variance) + sum 1/s_u)

    The defaults are the authors'; a smaller ``alpha`` (with ``beta`` to match) trusts the answers
    more and suits workers with few of them less.

    References
    ----------
    Zhao, Han: A Probabilistic Model for Estimating Real-valued Truth, QDB 2012.
    """

    alpha: float = 10.0
    beta: float = 10.0
    prior_variance: float = 1.0
    tol: float = 1e-6
    max_iter: int = _PATIENT
    name: ClassVar[str] = "gtm"
    summary: ClassVar[str] = "Gaussian truth model: worker variances with an inverse-gamma prior"

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "prior_variance"):
            number = getattr(self, name)
            require(number > 0, f"{name} must be positive, got {number}")
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        within = float(variance_within_tasks(answers).mean())
        centre = weighted_means(answers, np.ones(answers.n_edges))
        # In units of v; where nobody differs from anybody there is nothing to weigh.
        unit = within or 1.0
        freedom = 2 * (self.alpha + 1) + answers.worker_degree * answers.dimension
        prior = 1.0 / self.prior_variance

        def weigh(estimate: Floats) -> Floats:
            residual = sum_by_worker(answers, squared_residual(answers, estimate) / unit)
            return np.asarray(freedom / (2 * self.beta + residual))

        def towards_prior(answers: Answers, weight: Floats) -> Floats:
            total = sum_by_task(answers, weight)[:, None]
            mean = weighted_means(answers, weight)
            return np.asarray(centre + total / (total + prior) * (mean - centre))

        weight, estimate, trace = in_turns(
            answers, weigh, towards_prior, self.tol, self.max_iter, "GTM", on_sweep
        )
        precision = prior + sum_by_task(answers, weight[answers.worker])[:, None]
        variance = np.repeat(within / precision, answers.dimension, axis=1)
        found = normal_posterior(answers, estimate, variance)
        workers = plain_noise(answers, within / weight, relative_weight(weight))
        return make_result(answers, plain_settings(self), found, workers, trace)


@dataclass(frozen=True, kw_only=True)
class KDEm(Estimator):
    """The mode of a weighted kernel density of each task's answers.

    A worker's weight is minus the logarithm of its share of all residuals, measured in the space
    of the kernel, where far is no worse than far enough: ``|phi(A_iu) - f_i|^2``, f_i the density
    of the task. The Gaussian kernel has the width ``bandwidth`` times the sd within tasks times
    n_i^(-1/5). The sd reported is that of a median with the same weights: a guide, no more.

    References
    ----------
    Wan et al.: From Truth Discovery to Trustworthy Opinion Discovery, KDD 2016.
    """

    bandwidth: float = 1.06
    tol: float = 1e-6
    max_iter: int = _PATIENT
    name: ClassVar[str] = "kdem"
    summary: ClassVar[str] = "mode of a weighted kernel density of the answers"

    def __post_init__(self) -> None:
        require(self.bandwidth > 0, f"bandwidth must be positive, got {self.bandwidth}")
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        within = float(variance_within_tasks(answers).mean())
        blocks = [*by_degree(answers, lambda size: size * size)]
        few = int((answers.task_degree**2).sum()) <= _MOST_KEPT
        kept = [self._kernel(answers.value[edge], within) for _, edge in blocks] if few else []

        def density(weight: Floats) -> tuple[Floats, Floats]:
            """Residual in kernel space of every edge, and the density there."""
            residual, at = np.empty(answers.n_edges), np.empty(answers.n_edges)
            for number, (_, edge) in enumerate(blocks):
                kernel = kept[number] if few else self._kernel(answers.value[edge], within)
                share = weight[edge] / weight[edge].sum(axis=1, keepdims=True)
                near = np.einsum("nuv,nv->nu", kernel, share)
                own = np.einsum("nu,nu->n", near, share)
                residual[edge] = np.maximum(1.0 - 2.0 * near + own[:, None], 0.0)
                at[edge] = near
            return residual, at

        weight = np.ones(answers.n_workers)

        def sweep(damping: float) -> float:
            nonlocal weight
            loss = mean_by_worker(answers, density(weight[answers.worker])[0])
            loss = np.maximum(loss, FLOOR * (np.median(loss) or loss.mean()))
            new = np.ones_like(loss)
            if loss.max() and len(loss) > 1:
                new = -np.log(loss / np.sort(loss).sum())
            change = np.log(new / weight)
            weight = weight * np.exp((1 - damping) * change)
            return float(np.abs(change).max())

        trace = repeat(sweep, tol=self.tol, max_iter=self.max_iter, what="KDEm", on_sweep=on_sweep)
        per_edge = weight[answers.worker]
        at = density(per_edge)[1]
        estimate = np.empty((answers.n_tasks, answers.dimension))
        for tasks, edge in blocks:
            width = self._variance(edge.shape[1], within)
            estimate[tasks] = _climb(answers.value[edge], per_edge[edge], at[edge], width)
        inflation = np.where(answers.task_degree > 2, np.pi / 2, 1.0)[:, None]
        return weighted_result(
            answers, self, with_gold(answers, estimate), weight, trace, inflation
        )

    def _variance(self, degree: int, within: float) -> float:
        return float(self.bandwidth**2 * within * degree**-0.4)

    def _kernel(self, value: Floats, within: float) -> Floats:
        """Kernel of every pair of a task's answers, 1 at distance 0."""
        difference = ((value[:, :, None] - value[:, None]) ** 2).sum(axis=3)
        width = self._variance(value.shape[1], within) * value.shape[2]
        return np.asarray(np.exp(-0.5 * difference / (width or 1.0)))


def _climb(value: Floats, weight: Floats, density: Floats, variance: float) -> Floats:
    """Go from the answer of highest density uphill to the mode, by mean shift."""
    order = np.lexsort((value.sum(axis=2), -density), axis=1)[:, 0]
    point = value[np.arange(len(value)), order]
    width = variance * value.shape[2] or 1.0
    for _ in range(200):
        difference = value - point[:, None]
        pull = weight * np.exp(-0.5 * (difference**2).sum(axis=2) / width)
        step = np.einsum("nu,nud->nd", pull, difference) / pull.sum(axis=1, keepdims=True)
        point = point + step
        if (step**2).sum(axis=1).max() <= 1e-20 * width:
            break
    return point
