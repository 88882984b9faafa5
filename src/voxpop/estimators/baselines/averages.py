"""Average and Median: what everybody takes, and what everything else must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_worker,
    medians,
    squared_residual,
    variance_within_tasks,
    weighted_means,
)
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.make_result import make_result, normal_posterior, plain_noise
from voxpop.results.result import Result, Trace


@dataclass(frozen=True, kw_only=True)
class Average(Estimator):
    """The mean of a task's answers (M18), every worker counting alike.

    The sd is that of a mean of equally noisy answers: the variance within tasks, pooled over the
    whole table, over the number of answers. It knows nothing of who gave them.
    """

    name: ClassVar[str] = "average"
    summary: ClassVar[str] = "mean of the answers, all workers alike"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        estimate = weighted_means(answers, np.ones(answers.n_edges))
        return unweighted(answers, self, estimate, inflation=1.0)


@dataclass(frozen=True, kw_only=True)
class Median(Estimator):
    """The median of a task's answers, coordinate by coordinate.

    The sd is that of a median of equally noisy Gaussian answers, pi/2 times the variance of
    their mean (for one or two answers the median is the mean).
    """

    name: ClassVar[str] = "median"
    summary: ClassVar[str] = "median of the answers, coordinate by coordinate"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        inflation = np.where(answers.task_degree > 2, np.pi / 2, 1.0)[:, None]
        return unweighted(answers, self, medians(answers), inflation)


def unweighted(
    answers: Answers,
    estimator: Estimator,
    estimate: Floats,
    inflation: Floats | float,
    trace: Trace | None = None,
) -> Result:
    """Report a location that takes all workers alike.

    Its variance is that of the mean of as many equally noisy answers, times ``inflation``: how
    much less it makes of Gaussian answers than the mean does.
    """
    variance = inflation * variance_within_tasks(answers) / answers.task_degree[:, None]
    found = normal_posterior(answers, estimate, variance)
    residual = squared_residual(answers, found.estimate) / answers.dimension
    worker_variance = mean_by_worker(answers, residual)
    workers = plain_noise(answers, worker_variance, np.ones(answers.n_workers))
    return make_result(answers, plain_settings(estimator), found, workers, trace)
