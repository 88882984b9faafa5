"""Robust locations: estimates that a few wild answers cannot drag away, all workers alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, ndtr

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import by_degree, medians, sum_by_task
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.baselines.averages import unweighted
from voxpop.estimators.iterate import repeat, require_stop
from voxpop.results.result import Result

# The sd of a Gaussian is this much larger than the median of its absolute deviations.
_SD_OF_MAD = 1.4826


@dataclass(frozen=True, kw_only=True)
class HodgesLehmann(Estimator):
    """The median of the means of all pairs of answers, coordinate by coordinate.

    Every answer also makes a pair with itself. Almost as good as the mean for Gaussian answers
    (its sd is sqrt(pi/3) times that of the mean), and up to 29 % of wild answers do little harm.

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
            origin = value[:, :1]
            deviation = value - origin
            pair = (deviation[:, left] + deviation[:, right]) / 2
            estimate[tasks] = np.median(pair, axis=1) + origin[:, 0]
        inflation = np.where(answers.task_degree > 2, np.pi / 3, 1.0)[:, None]
        return unweighted(answers, self, estimate, inflation)


@dataclass(frozen=True, kw_only=True)
class Huber(Estimator):
    """Huber's location: like the mean near the centre, like the median far from it.

    Answers farther than ``cut`` sd from the estimate count as if they were at that distance. The
    sd of an answer is taken from the median distance to the tasks' medians, over all tasks, per
    coordinate. The default ``cut`` costs 5 % of efficiency on Gaussian answers.

    References
    ----------
    Huber: Robust Estimation of a Location Parameter, 1964.
    """

    cut: float = 1.345
    tol: float = 1e-9
    max_iter: int = 500
    name: ClassVar[str] = "huber"
    summary: ClassVar[str] = "Huber's location: far answers count less, all workers alike"

    def __post_init__(self) -> None:
        require(self.cut > 0, f"cut must be positive, got {self.cut}")
        require_stop(self.tol, self.max_iter)

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
            # Where half the answers coincide there is no scale: the median stays.
            estimate = estimate + np.where(sd > 0, step, 0.0)
            return float((np.abs(step) / unit)[:, sd > 0].max(initial=0.0))

        trace = repeat(
            sweep,
            tol=self.tol,
            max_iter=self.max_iter,
            what="Huber",
            on_sweep=on_sweep,
            dampings=(0.0,),
        )
        inflation = np.where(answers.task_degree > 2, self._inflation(), 1.0)[:, None]
        return unweighted(answers, self, estimate, inflation, trace)

    def _inflation(self) -> float:
        """Asymptotic variance on standard Gaussian answers, E psi^2 / (E psi')^2."""
        c = self.cut
        inside = 2 * ndtr(c) - 1
        density = np.exp(-c * c / 2) / np.sqrt(2 * np.pi)
        squared = inside - 2 * c * density + 2 * c * c * (1 - ndtr(c))
        return float(squared / inside**2)


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Estimator):
    """The point with the smallest sum of distances to a task's answers.

    For vectors, the median that does not depend on the axes; for numbers it is the median. Found
    by Weiszfeld's steps, or Newton's where these do better. The sd is that of Gaussian answers,
    equally noisy in all directions.

    References
    ----------
    Vardi, Zhang: The multivariate L1-median and associated data depth, PNAS 2000.
    """

    tol: float = 1e-7
    max_iter: int = 2000
    name: ClassVar[str] = "geometric-median"
    summary: ClassVar[str] = "point nearest to all answers in sum; the median for numbers"

    def __post_init__(self) -> None:
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        estimate = medians(answers)
        d = answers.dimension
        # Efficiency against the mean: 2/pi for numbers, pi/4 in the plane, towards 1 beyond.
        log_ratio = 2 * (gammaln((d - 1) / 2) - gammaln(d / 2)) if d > 1 else 0.0
        efficiency = (d - 1) ** 2 / (2 * d) * np.exp(log_ratio) if d > 1 else 2 / np.pi
        inflation = np.where(answers.task_degree > 2, 1 / efficiency, 1.0)[:, None]
        if d == 1:
            return unweighted(answers, self, estimate, inflation)
        # From the answer nearest to all others: if the median is an answer it is that one, and
        # Weiszfeld's steps, which would only creep up to it, have nothing left to do.
        estimate = _central_answers(answers)
        scale = np.sqrt(((answers.value - estimate[answers.task]) ** 2).sum(axis=1).mean())
        unit = scale if scale > 0 else 1.0

        def sweep(_: float) -> float:
            nonlocal estimate
            step = _median_step(answers, estimate)
            estimate = estimate + step
            return float(np.sqrt((step**2).sum(axis=1)).max() / unit)

        trace = repeat(
            sweep,
            tol=self.tol,
            max_iter=self.max_iter,
            what="the geometric median",
            on_sweep=on_sweep,
            dampings=(0.0,),
        )
        return unweighted(answers, self, estimate, inflation, trace)


def _median_step(answers: Answers, estimate: Floats) -> Floats:
    """Move towards the mean with weights 1/distance, or by Newton's step where that is better.

    Where the estimate sits on answers, those hold it back with a force of one each (Vardi and
    Zhang); without that, Weiszfeld's steps could never leave an answer.
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
    # The curvature is sum (1 - u u') / distance; a little more of it keeps it invertible.
    turned = sum_by_task(answers, inverse[:, None, None] * unit[:, :, None] * unit[:, None, :])
    flat = (np.where(total > 0, total, 1.0) * (1 + 1e-9))[:, None, None] * np.eye(len(pull.T))
    newton = np.linalg.solve(flat - turned, pull[:, :, None])[:, :, 0]
    better = _total_distance(answers, estimate + newton) < _total_distance(answers, estimate + step)
    return np.asarray(np.where((better & (held == 0))[:, None], newton, step))


def _total_distance(answers: Answers, point: Floats) -> Floats:
    """Sum of the distances of a task's answers to a point, for every task."""
    return sum_by_task(answers, np.sqrt(((answers.value - point[answers.task]) ** 2).sum(axis=1)))


def _central_answers(answers: Answers) -> Floats:
    """The answer of every task with the smallest sum of distances to the others.

    Between two answers, where every point is as near, the middle.
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
    """Sd of an answer per coordinate, from distances to the tasks' centres; 0 where all are 0."""
    distance = np.abs(answers.value - centre[answers.task])[answers.task_degree[answers.task] > 1]
    if not len(distance):
        return np.zeros(answers.dimension)
    sd = _SD_OF_MAD * np.median(distance, axis=0)
    # Where more than half the answers coincide, the mean distance still says something.
    return np.asarray(np.where(sd > 0, sd, distance.mean(axis=0)))
