"""The strong oracle: it knows the workers' variances, and bounds what any estimator can reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task, weighted_means
from voxpop.data.truths import read_variances
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result


@dataclass(frozen=True, kw_only=True)
class StrongOracle(Estimator):
    """The precision-weighted mean with every worker's true variance known (M20).

    ``variances`` maps worker ids to variances, or is a table (or a path to one) with columns
    ``worker`` and ``variance``, as ``voxpop simulate`` writes it.
    """

    variances: object = field(repr=False)
    name: ClassVar[str] = "strong-oracle"
    summary: ClassVar[str] = "weighted mean with the workers' true variances, a lower bound"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        variance = read_variances(self.variances, answers.worker_ids)
        precision = 1.0 / variance
        per_edge = precision[answers.worker]
        return gaussian_result(
            self,
            answers,
            weighted_means(answers, per_edge),
            1.0 / sum_by_task(answers, per_edge)[:, None],
            variance,
            precision,
            worker_interval=np.stack([variance, variance], axis=1),
        )
