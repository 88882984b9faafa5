"""Averages: mean, median and robust locations of a task's answers, with equal weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, ndtr

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    by_degree,
    medians,
    squared_residual,
    sum_by_task,
    variance_within_tasks,
    weighted_means,
)
from voxpop.estimators.base import CheckedEstimator, Estimator, OnSweep, at_least, positive
from voxpop.estimators.iterate import UNDAMPED, iterate_until
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result, Trace

# Sd of a Gaussian, divided by its median absolute deviation.
_SD_OF_MAD = 1.4826


@dataclass(frozen=True, kw_only=True)
class Average(Estimator):
    """The mean of a task's answers (M18), with equal weights.

    The sd is that of a mean of equally noisy answers: the variance within tasks, pooled over all
    tasks, divided by the number of answers.
    """

    name: ClassVar[str] = "average"
    summary: ClassVar[str] = "mean of the answers, all workers weighted equally"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        return unweighted_result(self, answers, weighted_means(answers))


@dataclass(frozen=True, kw_only=True)
class Median(Estimator):
    """The median of a task's answers, coordinate by coordinate.

    The sd is that of a median of equally noisy Gaussian answers: the variance is pi/2 times that
    of their mean.
    """

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median of the answers, coordinate by coordinate"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        return unweighted_result(self, answers, medians(answers), np.pi / 2)


@dataclass(frozen=True, kw_only=True)
class HodgesLehmann(Estimator):
    """The median of the means of all pairs of answers, coordinate by coordinate.

    Every answer is also paired with itself. Almost as good as the mean for Gaussian answers (its
    sd is sqrt(pi/3) times that of the mean), and up to 29 % of outliers do little harm.

    References
    ----------
    Hodges, Lehmann: Estimates of Location Based on Rank Tests, 1963.
    """

    name: ClassVar[str] = "hodges-lehmann"
    summary: ClassVar[str] = "median of the means of all pairs of answers"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        estimate = np.empty((answers.n_tasks, answers.dimension))
        for tasks, edge in by_degree(answers, lambda size: size * (size + 1) // 2):
            left, right = np.triu_indices(edge.shape[1])
            value = answers.value[edge]
            deviation = value - value[:, :1]
            pair = (deviation[:, left] + deviation[:, right]) / 2
            estimate[tasks] = np.median(pair, axis=1) + value[:, 0]
        return unweighted_result(self, answers, estimate, np.pi / 3)


@dataclass(frozen=True, kw_only=True)
class Huber(CheckedEstimator):
    """Huber's M-estimator: a mean in which answers beyond ``cut`` sd are moved to that distance.

    The sd of an answer is estimated per coordinate by the median absolute deviation from the tasks'
    medians, over all tasks. The default ``cut`` costs 5 % of efficiency on Gaussian answers.

    References
    ----------
    Huber: Robust Estimation of a Location Parameter, 1964.
    """

    cut: float = positive(1.345)
    tol: float = positive(1e-9)
    max_iter: int = at_least(1, 500)
    name: ClassVar[str] = "huber"
    summary: ClassVar[str] = (
        "Huber's M-estimator: outliers count less, all workers weighted equally"
    )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        estimate = medians(answers)
        sd = _robust_sd(answers, estimate)
        unit = np.where(sd > 0, sd, 1.0)

        def sweep(_: float) -> float:
            nonlocal estimate
            distance = answers.value - estimate[answers.task]
            far = np.abs(distance) / (self.cut * unit)
            weight = 1.0 / np.maximum(far, 1.0)
            step = sum_by_task(answers, weight * distance) / sum_by_task(answers, weight)
            # Where the answers to every task agree there is no scale: the median stays.
            estimate = estimate + np.where(sd > 0, step, 0.0)
            return float((np.abs(step) / unit)[:, sd > 0].max(initial=0.0))

        trace = iterate_until(sweep, self.tol, self.max_iter, "Huber", on_sweep, UNDAMPED)
        return unweighted_result(self, answers, estimate, self._inflation(), trace)

    def _inflation(self) -> float:
        """Asymptotic variance on standard Gaussian answers, E psi^2 / (E psi')^2."""
        c = self.cut
        inside = 2 * ndtr(c) - 1
        density = np.exp(-c * c / 2) / np.sqrt(2 * np.pi)
        squared = inside - 2 * c * density + 2 * c * c * (1 - ndtr(c))
        return float(squared / inside**2)


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(CheckedEstimator):
    """The point with the smallest sum of distances to a task's answers.

    For numbers it is the median; for vectors, a median that does not depend on the axes. Found by
    Weiszfeld steps, or Newton steps where these do better. The sd is that of Gaussian answers with
    equal noise in all directions.

    References
    ----------
    Vardi, Zhang: The multivariate L1-median and associated data depth, PNAS 2000.
    """

    tol: float = positive(1e-7)
    max_iter: int = at_least(1, 2000)
    name: ClassVar[str] = "geometric-median"
    summary: ClassVar[str] = "point with the smallest sum of distances to the answers"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        d = answers.dimension
        if d == 1:
            return unweighted_result(self, answers, medians(answers), np.pi / 2)
        # Efficiency against the mean: pi/4 in the plane, and nearer 1 in more dimensions.
        ratio = np.exp(2 * (gammaln((d - 1) / 2) - gammaln(d / 2)))
        efficiency = float((d - 1) ** 2 / (2 * d) * ratio)
        # Start at the answer nearest to all others: if the median is an answer it is that one,
        # to which Weiszfeld steps would converge slowly.
        estimate = _central_answers(answers)
        unit = float(np.sqrt(squared_residual(answers, estimate).mean())) or 1.0

        def sweep(_: float) -> float:
            nonlocal estimate
            step = _median_step(answers, estimate)
            estimate = estimate + step
            return float(np.sqrt((step**2).sum(axis=1)).max() / unit)

        what = "the geometric median"
        trace = iterate_until(sweep, self.tol, self.max_iter, what, on_sweep, UNDAMPED)
        return unweighted_result(self, answers, estimate, 1 / efficiency, trace)


def _median_step(answers: Answers, estimate: Floats) -> Floats:
    """Weiszfeld step, towards the mean with weights 1/distance, or Newton step where it is better.

    An answer at the estimate itself would have infinite weight; instead it resists the step with a
    force of one (Vardi and Zhang).
    """
    difference = answers.value - estimate[answers.task]
    distance = np.sqrt((difference**2).sum(axis=1))
    near = distance <= 1e-12 * np.maximum.reduceat(distance, answers.task_ptr[:-1])[answers.task]
    inverse = np.where(near, 0.0, 1.0 / np.where(near, 1.0, distance))
    unit = inverse[:, None] * difference
    pull, total = sum_by_task(answers, unit), sum_by_task(answers, inverse)
    force = np.sqrt((pull**2).sum(axis=1))
    held = sum_by_task(answers, near.astype(np.float64))
    share = np.where(force > held, 1.0 - held / np.where(force > 0, force, 1.0), 0.0)
    step = (share / np.where(total > 0, total, 1.0))[:, None] * pull
    # The Hessian is sum (1 - u u') / distance; a small ridge keeps it invertible.
    turned = sum_by_task(answers, inverse[:, None, None] * unit[:, :, None] * unit[:, None, :])
    flat = (np.where(total > 0, total, 1.0) * (1 + 1e-9))[:, None, None] * np.eye(len(pull.T))
    newton = np.linalg.solve(flat - turned, pull[:, :, None])[:, :, 0]
    better = _total_distance(answers, estimate + newton) < _total_distance(answers, estimate + step)
    return np.asarray(np.where((better & (held == 0))[:, None], newton, step))


def _total_distance(answers: Answers, point: Floats) -> Floats:
    """Sum of the distances of a task's answers to a point, for every task."""
    return sum_by_task(answers, np.sqrt(squared_residual(answers, point)))


def _central_answers(answers: Answers) -> Floats:
    """The answer of every task with the smallest sum of distances to the others.

    Of two answers, between which every point is as near, the middle.
    """
    centre = np.empty((answers.n_tasks, answers.dimension))
    for tasks, edge in by_degree(answers, lambda size: size * size):
        value = answers.value[edge]
        if edge.shape[1] == 2:
            centre[tasks] = value[:, 0] + (value[:, 1] - value[:, 0]) / 2
            continue
        distance = np.sqrt(((value[:, :, None] - value[:, None]) ** 2).sum(axis=3)).sum(axis=2)
        # Ties by the sum of coordinates, not by position.
        best = np.lexsort((value.sum(axis=2), distance), axis=1)[:, 0]
        centre[tasks] = value[np.arange(len(tasks)), best]
    return centre


def _robust_sd(answers: Answers, centre: Floats) -> Floats:
    """Sd of an answer per coordinate, by the median absolute deviation from the tasks' centres."""
    distance = np.abs(answers.value - centre[answers.task])[answers.task_degree[answers.task] > 1]
    if not len(distance):
        return np.zeros(answers.dimension)
    sd = _SD_OF_MAD * np.median(distance, axis=0)
    # Where more than half the deviations are zero, their mean.
    return np.asarray(np.where(sd > 0, sd, distance.mean(axis=0)))


def unweighted_result(
    estimator: Estimator,
    answers: Answers,
    estimate: Floats,
    inflation: float = 1.0,
    trace: Trace | None = None,
) -> Result:
    """Report a location estimate with equal weights.

    Its variance is that of the mean of equally noisy answers, times ``inflation``.
    """
    within = inflation_by_task(answers, inflation) * variance_within_tasks(answers)
    variance = within / answers.task_degree[:, None]
    return gaussian_result(estimator, answers, estimate, variance, trace=trace)


def inflation_by_task(answers: Answers, inflation: float) -> Floats:
    """Variance relative to the mean (n, 1); 1 for one or two answers, whose centre is the mean."""
    return np.where(answers.task_degree > 2, inflation, 1.0)[:, None]
