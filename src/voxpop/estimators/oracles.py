"""Oracles: estimators that are told what nobody knows, to bound what anybody can reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from voxpop.answers import Answers
from voxpop.arrays import Floats
from voxpop.errors import DataError, shorten
from voxpop.estimators.base import (
    OnSweep,
    WorkerNoise,
    make_result,
    normal_posterior,
    relative_weight,
    sum_by_task,
    weighted_means,
)
from voxpop.result import Result
from voxpop.tables import open_table, resolve_column


@dataclass(frozen=True, kw_only=True)
class StrongOracle:
    """The precision-weighted mean with every worker's true variance known (M20).

    ``variances`` maps worker ids to variances, or is a table (or a path to one) with columns
    ``worker`` and ``variance``, as ``voxpop simulate`` writes it.
    """

    variances: object = field(compare=False)
    name: ClassVar[str] = "strong-oracle"
    summary: ClassVar[str] = "weighted mean with the workers' true variances, a lower bound"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        variance = self._aligned(answers)
        precision = 1.0 / variance
        per_edge = precision[answers.worker]
        estimate = weighted_means(answers, per_edge)
        task_variance = 1.0 / sum_by_task(answers, per_edge)[:, None]
        found = normal_posterior(
            answers, estimate, np.repeat(task_variance, answers.dimension, axis=1)
        )
        workers = WorkerNoise(
            variance=variance,
            interval=np.stack([variance, variance], axis=1),
            weight=relative_weight(precision),
        )
        return make_result(answers, {"method": self.name}, found, workers)

    def _aligned(self, answers: Answers) -> Floats:
        if isinstance(self.variances, Mapping):
            known = dict(self.variances)
        else:
            table = open_table(self.variances)
            codes, ids = table.ids(resolve_column(table, "worker", None))
            column = resolve_column(table, "variance", "variance")
            known = dict(zip(ids[codes].tolist(), table.numbers(column).tolist(), strict=True))
        missing = [worker for worker in answers.worker_ids.tolist() if worker not in known]
        if missing:
            raise DataError(f"variances: there is none for worker {shorten(missing)}")
        variance = np.array([known[worker] for worker in answers.worker_ids.tolist()], dtype=float)
        if not (np.isfinite(variance).all() and (variance > 0).all()):
            raise DataError("variances: expected positive finite numbers")
        return variance
