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
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.iterate import repeat, require_stop
from voxpop.estimators.make_result import (
    make_result,
    normal_posterior,
    plain_noise,
    relative_weight,
)
from voxpop.results.result import Result


@dataclass(frozen=True, kw_only=True)
class NBI(Estimator):
    """Weigh by inverse variance, take variances from the residuals, and repeat (M19).

    Left alone, a worker whose answers decide their own estimates is taken for ever more precise,
    down to a variance of zero. Variances are therefore held above ``floor`` times the mean
    squared residual about the plain average; the result notes whom that concerns. Its sd takes
    the found variances for true and is too small where workers have few answers.
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
        estimate = with_gold(answers, weighted_means(answers, np.ones(answers.n_edges)))
        lowest = self.floor * float(squared_residual(answers, estimate).mean())

        def sweep(_: float) -> float:
            nonlocal variance, estimate
            residual = mean_by_worker(answers, squared_residual(answers, estimate))
            # Where all answers of every task agree there is no floor, and nothing to weigh.
            new = np.maximum(residual, lowest) if lowest else np.ones_like(residual)
            change = float(np.abs(np.log(new / variance)).max())
            variance = new
            weighted = weighted_means(answers, 1.0 / variance[answers.worker])
            estimate = with_gold(answers, weighted)
            return change

        # Each sweep raises the likelihood: there is nothing to damp.
        trace = repeat(
            sweep,
            tol=self.tol,
            max_iter=self.max_iter,
            what="NBI",
            on_sweep=on_sweep,
            dampings=(0.0,),
        )
        # The paper's variance sums over coordinates; the tables speak of one coordinate. Where
        # no answer differs from its estimate, the noise is that of the average: 0 where answers
        # agree, and as large as can be where no task has two.
        within = float(variance_within_tasks(answers).mean())
        per_coordinate = variance / answers.dimension if lowest else within * variance
        precision = sum_by_task(answers, 1.0 / variance[answers.worker])[:, None]
        scale = 1.0 / answers.dimension if lowest else within
        task_variance = np.repeat(scale / precision, answers.dimension, axis=1)
        held = int((variance <= lowest).sum())
        note = f"{held} of {answers.n_workers} workers' variances were held at NBI's floor"
        workers = plain_noise(answers, per_coordinate, relative_weight(1.0 / variance))
        return make_result(
            answers,
            plain_settings(self) | {"floor_variance": lowest / answers.dimension},
            normal_posterior(answers, estimate, task_variance),
            workers,
            trace,
            (note,) if held else (),
        )
