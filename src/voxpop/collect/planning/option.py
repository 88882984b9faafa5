"""Options of a plan: numbers of answers per task and worker, with their cost and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from voxpop.collect.planning.density import PredictedError
from voxpop.errors import require

Criterion = Literal["rmse", "half_width"]


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices in any currency: of an answer, of qualifying a worker, of making a gold question."""

    answer: float = 1.0
    worker: float = 0.0
    gold: float = 0.0

    def __post_init__(self) -> None:
        require(
            0 < self.answer < np.inf, f"the price of an answer must be positive, got {self.answer}"
        )
        for what, price in (("worker", self.worker), ("gold question", self.gold)):
            require(0 <= price < np.inf, f"the price of a {what} must be 0 or more, got {price}")


@dataclass(frozen=True, kw_only=True)
class Option:
    """Numbers of answers per task and worker, with their cost and expected accuracy.

    ``per_worker`` counts tasks; the ``gold`` questions that every worker also answers are extra,
    and paid for. ``crowd_error`` is the relative standard error of RMSE and half-width due to a
    finite pilot. ``luck`` is the relative standard deviation of the RMSE between campaigns, which
    cannot be predicted. ``shared_variance`` is that of an error that all workers share, which the
    prediction leaves out.
    """

    per_task: float
    per_worker: int
    gold: int
    n_workers: int
    n_answers: int
    cost: float
    prediction: PredictedError
    crowd_error: float = 0.0
    luck: float = 0.0
    shared_variance: float = 0.0

    def accuracy(self, criterion: Criterion) -> float:
        """RMSE or half-width."""
        return float(getattr(self.prediction, criterion))

    def error(self, criterion: Criterion) -> float:
        """Standard error of the accuracy, from the populations and the pilot."""
        drawn = float(getattr(self.prediction, f"{criterion}_error"))
        return float(np.hypot(drawn, self.crowd_error * self.accuracy(criterion)))

    def row(self) -> dict[str, Any]:
        """Return cost, numbers and accuracy as a row of a table."""
        found, root = self.prediction, np.sqrt(self.prediction.dimension)
        return {
            "cost": self.cost,
            "per_task": self.per_task,
            "per_worker": self.per_worker,
            "gold": self.gold,
            "workers": self.n_workers,
            "answers": self.n_answers,
            "rmse": found.rmse,
            "rmse_error": self.error("rmse"),
            "rmse_luck": self.luck * found.rmse,
            "half_width_95": found.half_width,
            "average_rmse": float(np.sqrt(found.average_mse) / root),
            "oracle_rmse": float(np.sqrt(found.oracle_mse) / root),
            "truth_rmse": float(np.sqrt(found.rmse**2 + self.shared_variance)),
        }

    def summary(self) -> str:
        """Describe what to buy."""
        gold = f" and {self.gold} gold questions" if self.gold else ""
        return (
            f"{self.per_task:.4g} answers per task, {self.n_workers} workers with up to "
            f"{self.per_worker} tasks{gold} each"
        )
