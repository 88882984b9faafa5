"""Average and Median: the obvious methods, which every other must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, variance_within_tasks, weighted_means
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result, Trace


@dataclass(frozen=True, kw_only=True)
class Average(Estimator):
    """The mean of a task's answers (M18), every worker counting alike.

    The sd is that of a mean of equally noisy answers: the variance within tasks, pooled over all
    tasks, divided by the number of answers.
    """

    name: ClassVar[str] = "average"
    summary: ClassVar[str] = "mean of the answers, all workers alike"

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


def unweighted_result(
    estimator: Estimator,
    answers: Answers,
    estimate: Floats,
    inflation: float = 1.0,
    trace: Trace | None = None,
) -> Result:
    """Report a location estimate that counts all workers alike.

    Its variance is that of the mean of equally noisy answers, times ``inflation``.
    """
    within = inflation_by_task(answers, inflation) * variance_within_tasks(answers)
    variance = within / answers.task_degree[:, None]
    return gaussian_result(estimator, answers, estimate, variance, trace=trace)


def inflation_by_task(answers: Answers, inflation: float) -> Floats:
    """Variance relative to the mean (n, 1); 1 for one or two answers, whose centre is the mean."""
    return np.where(answers.task_degree > 2, inflation, 1.0)[:, None]
