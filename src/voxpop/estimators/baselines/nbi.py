"""NBI: the paper's iterative baseline without a prior on the workers' noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_worker,
    squared_residual,
    sum_by_task,
    variance_within_tasks,
    weighted_means,
    with_gold,
)
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.iterate import UNDAMPED, iterate_until, require_stop
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result


@dataclass(frozen=True, kw_only=True)
class NBI(Estimator):
    """Weigh by inverse variance, estimate variances from the residuals, and iterate (M19).

    Without a bound, a worker whose answers dominate their own estimates would seem ever more
    precise, down to a variance of zero. Variances are therefore at least ``floor`` times the mean
    squared residual about the plain average; the result notes how many workers that concerns. The
    sd takes the variances as known and is too small where workers have few answers.
    """

    floor: float = 1e-3
    tol: float = 1e-6
    max_iter: int = 2000
    name: ClassVar[str] = "nbi"
    summary: ClassVar[str] = "iteratively weighted mean: weights from residuals, no prior"

    def __post_init__(self) -> None:
        require(0 < self.floor < 1, f"floor must be between 0 and 1, got {self.floor}")
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        variance = np.ones(answers.n_workers)
        estimate = with_gold(answers, weighted_means(answers))
        lowest = self.floor * float(squared_residual(answers, estimate).mean())

        def sweep(_: float) -> float:
            nonlocal variance, estimate
            residual = mean_by_worker(answers, squared_residual(answers, estimate))
            # Without a floor all answers to every task agree, and all weights are equal.
            new = np.maximum(residual, lowest) if lowest else np.ones_like(residual)
            change = float(np.abs(np.log(new / variance)).max())
            variance = new
            weighted = weighted_means(answers, 1.0 / variance[answers.worker])
            estimate = with_gold(answers, weighted)
            return change

        # Each sweep raises the likelihood: there is nothing to damp.
        trace = iterate_until(sweep, self.tol, self.max_iter, "NBI", on_sweep, UNDAMPED)
        # The paper's variance sums over coordinates, a result's is per coordinate. Where no answer
        # differs from its estimate, the noise is that of the average.
        within = float(variance_within_tasks(answers).mean())
        precision = sum_by_task(answers, 1.0 / variance[answers.worker])[:, None]
        held = int((variance <= lowest).sum())
        note = f"{held} of {answers.n_workers} workers' variances were held at NBI's floor"
        return gaussian_result(
            self,
            answers,
            estimate,
            (1.0 / answers.dimension if lowest else within) / precision,
            variance / answers.dimension if lowest else within * variance,
            1.0 / variance,
            trace=trace,
            notes=(note,) if held else (),
            settings={"floor_variance": lowest / answers.dimension},
        )
