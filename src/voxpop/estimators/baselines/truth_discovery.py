"""Truth discovery: estimate worker weights and truths in turn, as that literature does.

All methods are invariant to the origin and the units of the answers, normalise the weights within
every task, and bound the weight of a worker who happens to agree exactly with the estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import chdtri

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    by_degree,
    mean_by_task,
    mean_by_worker,
    means_or_gold,
    medians,
    squared_residual,
    sum_by_task,
    sum_by_worker,
    variance_within_tasks,
    weighted_means,
    with_gold,
)
from voxpop.estimators.base import (
    CheckedEstimator,
    Estimator,
    OnSweep,
    at_least,
    one_of,
    positive,
    share,
)
from voxpop.estimators.baselines.averages import inflation_by_task
from voxpop.estimators.iterate import iterate_weights
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result, Trace

# Lower bound of a worker's variance, as a share of the median worker's: a tenth of its sd. Without
# it, a worker whose answers dominate their own tasks would soon have all the weight there.
_FLOOR = 0.01
# Kernels of pairs of answers kept between sweeps, 256 MB; beyond that they are recomputed.
_MOST_KEPT = 32_000_000


@dataclass(frozen=True, kw_only=True)
class _Reweighting(CheckedEstimator):
    """Estimates from weights and weights from estimates in turn, until the weights settle."""

    tol: float = positive(1e-6)
    max_iter: int = at_least(1, 2000)

    def _settle(
        self, weigh: Callable[[Floats], Floats], answers: Answers, on_sweep: OnSweep | None
    ) -> tuple[Floats, Trace]:
        what = type(self).__name__
        return iterate_weights(weigh, answers, self.tol, self.max_iter, what, on_sweep)


@dataclass(frozen=True, kw_only=True)
class CATD(_Reweighting):
    """Weigh a worker by a lower confidence bound of its precision: few answers, little trust.

    With the summed squares of a worker's residuals SSE_u over n_u answers of d coordinates,
    w_u = chi2(alpha/2, n_u d) / SSE_u, and the estimates are the means with these weights. Also
    known as RASA for vectors. The variance SSE_u / (n_u d) is bounded below by one hundredth of
    the median worker's.

    References
    ----------
    Li et al.: A Confidence-Aware Approach for Truth Discovery on Long-Tail Data, VLDB 2015.
    """

    alpha: float = share(0.05)
    name: ClassVar[str] = "catd"
    summary: ClassVar[str] = "weights from a lower bound of each worker's precision"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        freedom = answers.worker_degree * answers.dimension
        bound = np.asarray(chdtri(freedom, 1 - self.alpha / 2) / freedom)

        def residual(estimate: Floats) -> Floats:
            return mean_by_worker(answers, squared_residual(answers, estimate)) / answers.dimension

        first = residual(with_gold(answers, medians(answers)))
        least = _FLOOR * float(np.median(first) or np.sort(first).mean())

        def weigh(per_edge: Floats) -> Floats:
            found = residual(means_or_gold(answers, per_edge))
            return bound / np.maximum(found, least) if least else bound

        weight, trace = self._settle(weigh, answers, on_sweep)
        estimate = means_or_gold(answers, weight[answers.worker])
        return _weighted_result(self, answers, estimate, weight, trace)


@dataclass(frozen=True, kw_only=True)
class CRH(_Reweighting):
    """Weigh a worker by minus the logarithm of its share of the total loss (CRH, and PM).

    The loss of an answer is its squared or absolute distance from the estimate, in units of the
    spread of its task; a worker's is the mean over its answers. Squared losses go with weighted
    means, absolute ones with weighted medians. ``reference="max"`` divides by the loss of the worst
    worker instead, whose weight is then next to zero: that is PM.

    References
    ----------
    Li et al.: Resolving Conflicts in Heterogeneous Data by Truth Discovery, SIGMOD 2014.
    Aydin et al.: Crowdsourcing for Multiple-Choice Question Answering, AAAI 2014.
    """

    loss: Literal["squared", "absolute"] = one_of("squared", "absolute")
    reference: Literal["sum", "max"] = one_of("sum", "max")
    name: ClassVar[str] = "crh"
    summary: ClassVar[str] = "weights from the logarithm of each worker's share of the loss"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        squared = self.loss == "squared"
        spread = mean_by_task(answers, squared_residual(answers, weighted_means(answers)))
        # Where the answers to a task agree, the spread of all tasks.
        pooled = float(variance_within_tasks(answers).sum()) or 1.0
        unit = np.where(spread > 0, spread, pooled)[answers.task]
        unit = unit if squared else np.sqrt(unit)

        def estimate(per_edge: Floats) -> Floats:
            centre = weighted_means if squared else medians
            return with_gold(answers, centre(answers, per_edge))

        def weigh(per_edge: Floats) -> Floats:
            off = answers.value - estimate(per_edge)[answers.task]
            loss = (off**2 if squared else np.abs(off)).sum(axis=1) / unit
            weight = _minus_log_share(mean_by_worker(answers, loss), self.reference)
            return np.asarray(np.maximum(weight, 1e-6 * weight.max()))

        weight, trace = self._settle(weigh, answers, on_sweep)
        found, inflation = estimate(weight[answers.worker]), 1.0 if squared else np.pi / 2
        return _weighted_result(self, answers, found, weight, trace, inflation)


@dataclass(frozen=True, kw_only=True)
class GTM(_Reweighting):
    """Gaussian truth model: inverse-gamma prior on a worker's variance, Gaussian prior on truths.

    In units of the variance within tasks v: the variance of a worker has an inverse-gamma prior
    with ``alpha`` and ``beta``, and a truth is Gaussian about the mean of its answers with
    variance ``prior_variance``. In turn, with SSE_u the summed squares of residuals::

        s_u  = (2 beta v + SSE_u) / (2 (alpha + 1) + n_u d)
        mu_i = (mean_i / (v prior_variance) + sum A_iu / s_u) / (1/(v prior_variance) + sum 1/s_u)

    The defaults are the authors'. A smaller ``alpha`` (with ``beta`` to match) trusts the answers
    more, and suits workers with few answers less.

    References
    ----------
    Zhao, Han: A Probabilistic Model for Estimating Real-valued Truth, QDB 2012.
    """

    alpha: float = positive(10.0)
    beta: float = positive(10.0)
    prior_variance: float = positive(1.0)
    name: ClassVar[str] = "gtm"
    summary: ClassVar[str] = "Gaussian truth model: worker variances with an inverse-gamma prior"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        within = float(variance_within_tasks(answers).mean())
        centre = weighted_means(answers)
        # In units of v; where all answers agree, all weights are equal.
        unit = within or 1.0
        freedom = 2 * (self.alpha + 1) + answers.worker_degree * answers.dimension
        prior = 1.0 / self.prior_variance

        def estimate(per_edge: Floats) -> tuple[Floats, Floats]:
            total = sum_by_task(answers, per_edge)[:, None]
            mean = weighted_means(answers, per_edge)
            shrunk = centre + total / (total + prior) * (mean - centre)
            return with_gold(answers, shrunk), prior + total

        def weigh(per_edge: Floats) -> Floats:
            squared = squared_residual(answers, estimate(per_edge)[0]) / unit
            return np.asarray(freedom / (2 * self.beta + sum_by_worker(answers, squared)))

        weight, trace = self._settle(weigh, answers, on_sweep)
        truth, precision = estimate(weight[answers.worker])
        variance = within / precision
        return gaussian_result(self, answers, truth, variance, within / weight, weight, trace=trace)


@dataclass(frozen=True, kw_only=True)
class KDEm(_Reweighting):
    """The mode of a weighted kernel density of each task's answers.

    A worker's weight is minus the logarithm of its share of all residuals. These are measured in
    the feature space of the kernel, where distances are bounded: ``|phi(A_iu) - f_i|^2``, f_i the
    density of the task. The Gaussian kernel has the width ``bandwidth`` times the sd within tasks
    times n_i^(-1/5). The sd reported is only a guide: that of a median with the same weights.

    References
    ----------
    Wan et al.: From Truth Discovery to Trustworthy Opinion Discovery, KDD 2016.
    """

    bandwidth: float = positive(1.06)
    name: ClassVar[str] = "kdem"
    summary: ClassVar[str] = "mode of a weighted kernel density of the answers"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        within = float(variance_within_tasks(answers).mean())
        blocks = [*by_degree(answers, lambda size: size * size)]
        few = int((answers.task_degree**2).sum()) <= _MOST_KEPT
        kept = [self._kernel(answers.value[edge], within) for _, edge in blocks] if few else []

        def density(weight: Floats) -> tuple[Floats, Floats]:
            """Share of every answer in its task's weight, and the task's density there."""
            share, at = weight / sum_by_task(answers, weight)[answers.task], np.empty_like(weight)
            for number, (_, edge) in enumerate(blocks):
                kernel = kept[number] if few else self._kernel(answers.value[edge], within)
                at[edge] = np.einsum("nuv,nv->nu", kernel, share[edge])
            return share, at

        def weigh(per_edge: Floats) -> Floats:
            share, at = density(per_edge)
            own = sum_by_task(answers, at * share)[answers.task]
            return _minus_log_share(mean_by_worker(answers, np.maximum(1 - 2 * at + own, 0.0)))

        weight, trace = self._settle(weigh, answers, on_sweep)
        per_edge = weight[answers.worker]
        _, at = density(per_edge)
        estimate = np.empty((answers.n_tasks, answers.dimension))
        for tasks, edge in blocks:
            value = answers.value[edge]
            estimate[tasks] = _climb(value, per_edge[edge], at[edge], self._width(value, within))
        estimate = with_gold(answers, estimate)
        return _weighted_result(self, answers, estimate, weight, trace, np.pi / 2)

    def _width(self, value: Floats, within: float) -> float:
        """Squared width of the kernel, over all coordinates."""
        width = float(self.bandwidth**2 * within * value.shape[1] ** -0.4)
        return width * value.shape[2] or 1.0

    def _kernel(self, value: Floats, within: float) -> Floats:
        """Kernel of every pair of a task's answers, 1 at distance 0."""
        difference = ((value[:, :, None] - value[:, None]) ** 2).sum(axis=3)
        return np.asarray(np.exp(-0.5 * difference / self._width(value, within)))


def _weighted_result(
    estimator: Estimator,
    answers: Answers,
    estimate: Floats,
    weight: Floats,
    trace: Trace,
    inflation: float = 1.0,
) -> Result:
    """Report weighted estimates of a method without variances.

    A worker's variance comes from its residuals, with the degrees of freedom reduced by its own
    share in the estimates, and a pseudo-count of one answer at the variance within tasks. A task's
    is that of a mean with these weights and variances, taken as known.
    """
    within = float(variance_within_tasks(answers).mean())
    per_edge = weight[answers.worker]
    total = sum_by_task(answers, per_edge)
    share = np.where(answers.is_gold[answers.task], 0.0, per_edge / total[answers.task])
    residual = sum_by_worker(answers, squared_residual(answers, estimate)) / answers.dimension
    worker_variance = (residual + within) / (sum_by_worker(answers, 1.0 - share) + 1.0)
    variance = sum_by_task(answers, share**2 * worker_variance[answers.worker])[:, None]
    variance = inflation_by_task(answers, inflation) * variance
    return gaussian_result(
        estimator, answers, estimate, variance, worker_variance, weight, trace=trace
    )


def _minus_log_share(loss: Floats, reference: str = "sum") -> Floats:
    """Minus the logarithm of each worker's share of the loss; 1 where all shares are equal."""
    loss = np.maximum(loss, _FLOOR * (np.median(loss) or loss.mean()))
    if not loss.max() or len(loss) == 1:
        return np.ones_like(loss)
    # Sorted: the same sum in any order of the workers.
    top = np.sort(loss).sum() if reference == "sum" else loss.max()
    weight = -np.log(loss / top)
    return weight if weight.max() else np.ones_like(loss)


def _climb(value: Floats, weight: Floats, density: Floats, width: float) -> Floats:
    """Climb from the answer of highest density to the mode, by mean shift."""
    order = np.lexsort((value.sum(axis=2), -density), axis=1)[:, 0]
    point = value[np.arange(len(value)), order]
    for _ in range(200):
        difference = value - point[:, None]
        pull = weight * np.exp(-0.5 * (difference**2).sum(axis=2) / width)
        step = np.einsum("nu,nud->nd", pull, difference) / pull.sum(axis=1, keepdims=True)
        point = point + step
        if (step**2).sum(axis=1).max() <= 1e-20 * width:
            break
    return point
