"""Weights and estimates in turn: what the methods of truth discovery share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_worker,
    medians,
    squared_residual,
    sum_by_task,
    sum_by_worker,
    variance_within_tasks,
    weighted_means,
    with_gold,
)
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.iterate import repeat
from voxpop.estimators.make_result import (
    make_result,
    normal_posterior,
    plain_noise,
    relative_weight,
)
from voxpop.results.result import Result, Trace

# Nobody is taken for more precise than this share of the middle worker's variance: a tenth of
# its sd. Without it a worker who decides its own tasks soon has all their weight.
FLOOR = 0.01

Centre = Callable[[Answers, Floats], Floats]
"""An estimate of every task from one weight per edge."""


def in_turns(
    answers: Answers,
    weigh: Callable[[Floats], Floats],
    centre: Centre,
    tol: float,
    max_iter: int,
    what: str,
    on_sweep: OnSweep | None,
) -> tuple[Floats, Floats, Trace]:
    """Weights from estimates, estimates from weights, until no weight changes by more than tol."""
    weight = np.ones(answers.n_workers)
    estimate = with_gold(answers, centre(answers, np.ones(answers.n_edges)))

    def sweep(damping: float) -> float:
        nonlocal weight, estimate
        change = np.log(weigh(estimate) / weight)
        weight = weight * np.exp((1 - damping) * change)
        estimate = with_gold(answers, centre(answers, weight[answers.worker]))
        return float(np.abs(change).max())

    trace = repeat(sweep, tol=tol, max_iter=max_iter, what=what, on_sweep=on_sweep)
    return weight, estimate, trace


def alternate(
    answers: Answers,
    estimator: Estimator,
    weigh: Callable[[Floats], Floats],
    tol: float,
    max_iter: int,
    on_sweep: OnSweep | None,
    centre: Centre = weighted_means,
) -> Result:
    """Run :func:`in_turns` and report where it ends."""
    weight, estimate, trace = in_turns(
        answers, weigh, centre, tol, max_iter, estimator.name.upper(), on_sweep
    )
    few = (answers.task_degree <= 2)[:, None]
    loses = np.pi / 2 if centre is weighted_medians else 1.0
    return weighted_result(answers, estimator, estimate, weight, trace, np.where(few, 1.0, loses))


def weighted_result(
    answers: Answers,
    estimator: Estimator,
    estimate: Floats,
    weight: Floats,
    trace: Trace,
    inflation: Floats,
) -> Result:
    """Report weighted estimates.

    These methods have weights but no variances. A worker's variance is taken from its residuals,
    each freed of the worker's own share in the estimate, with one more answer at the variance
    within tasks; a task's is that of a mean with these weights and variances, taken for true.
    """
    within = float(variance_within_tasks(answers).mean())
    per_edge = weight[answers.worker]
    total = sum_by_task(answers, per_edge)
    share = np.where(answers.is_gold[answers.task], 0.0, per_edge / total[answers.task])
    residual = sum_by_worker(answers, squared_residual(answers, estimate)) / answers.dimension
    worker_variance = (residual + within) / (sum_by_worker(answers, 1.0 - share) + 1.0)
    variance = sum_by_task(answers, share**2 * worker_variance[answers.worker])[:, None]
    found = normal_posterior(
        answers, estimate, np.repeat(inflation * variance, answers.dimension, axis=1)
    )
    workers = plain_noise(answers, worker_variance, relative_weight(weight))
    return make_result(answers, plain_settings(estimator), found, workers, trace)


def worker_residual(answers: Answers, estimate: Floats) -> Floats:
    """Mean squared residual of every worker, per coordinate."""
    return mean_by_worker(answers, squared_residual(answers, estimate)) / answers.dimension


def least_variance(answers: Answers) -> float:
    """The smallest variance believed of a worker; 0 where no answer differs from another."""
    residual = worker_residual(answers, with_gold(answers, medians(answers)))
    return FLOOR * float(np.median(residual) or np.sort(residual).mean())


def weighted_medians(answers: Answers, weight: Floats) -> Floats:
    """Weighted median of every task's answers, coordinate by coordinate.

    Where exactly half the weight lies on either side, the middle between the two answers.
    """
    first, last = answers.task_ptr[:-1], answers.task_ptr[1:] - 1
    estimate = np.empty((answers.n_tasks, answers.dimension))
    for j in range(answers.dimension):
        order = np.lexsort((answers.value[:, j], answers.task))
        value = answers.value[order, j]
        so_far = np.cumsum(weight[order])
        before = so_far[first] - weight[order][first]
        half = before + (so_far[last] - before) / 2
        slack = 1e-12 * so_far[last]
        low = np.searchsorted(so_far, half - slack)
        high = np.searchsorted(so_far, half + slack)
        low, high = np.clip(low, first, last), np.clip(high, first, last)
        estimate[:, j] = value[low] + (value[high] - value[low]) / 2
    return estimate


def task_spread(answers: Answers) -> Floats:
    """Variance of each task's answers over all coordinates; where it is 0, that of all tasks."""
    mean = weighted_means(answers, np.ones(answers.n_edges))
    spread = sum_by_task(answers, squared_residual(answers, mean)) / answers.task_degree
    pooled = float(variance_within_tasks(answers).sum())
    return np.asarray(np.where(spread > 0, spread, pooled or 1.0))
