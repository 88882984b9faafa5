"""Rules for buying answers, and a batch of them: what to ask for next, of whom, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.tables import frame
from voxpop.errors import require


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What an answer may cost, and when enough has been bought.

    Parameters
    ----------
    half_width
        Target: a task is done when half of its 95 % interval is no wider, in every coordinate.
    capacity
        Most answers of one worker in all, those given included.
    per_worker
        Most answers of one worker in a batch. By default the batch is shared out evenly among
        those named; to choose the best of them, ask for fewer answers than there are workers, or
        say how many each may get.
    price
        Price of an answer, of workers who have none of their own.
    budget
        Money left to spend.
    least_gain
        Least variance, averaged over all tasks, that a unit of money must be expected to take
        off; an answer that takes off less is not asked for.
    """

    half_width: float | None = None
    capacity: int | None = None
    per_worker: int | None = None
    price: float = 1.0
    budget: float | None = None
    least_gain: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("half_width", 0.0), ("price", 0.0), ("budget", -1e-300)):
            number = getattr(self, name)
            require(
                number is None or least < number < np.inf,
                f"{name} must be positive, got {number}",
            )
        for name in ("capacity", "per_worker"):
            number = getattr(self, name)
            require(number is None or number >= 1, f"{name} must be at least 1, got {number}")
        require(self.least_gain >= 0, f"least_gain must be 0 or more, got {self.least_gain}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Answers to ask for next, best first, and where the campaign stands.

    Attributes
    ----------
    task, worker
        Ids, row by row; ``worker`` is None where anyone will do.
    gain
        Variance per coordinate that the answer is expected to take off the task's; infinite for
        the first answer under a flat prior.
    sd, sd_after
        Standard deviation of the task's truth before this answer, hedged by the trust in what is
        known of workers, and as expected after it; those of tasks asked for twice go on from each
        other.
    price
        What the answer costs.
    reason
        Why it is asked for, in words.
    stop
        Why nothing more should be bought; empty when the campaign goes on.
    n_tasks, n_done, n_unanswered
        Tasks in all, those that need no more answers, and those that have none.
    rmse, rmse_after
        Expected root mean squared error of a coordinate over the tasks that have answers, now;
        and with this batch, over those that then have.
    """

    task: Ids
    worker: Ids
    gain: Floats
    sd: Floats
    sd_after: Floats
    price: Floats
    reason: list[str]
    stop: str
    n_tasks: int
    n_done: int
    n_unanswered: int
    rmse: float
    rmse_after: float

    def __len__(self) -> int:
        return len(self.task)

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Task and worker of every row."""
        return list(zip(self.task.tolist(), self.worker.tolist(), strict=True))

    @property
    def cost(self) -> float:
        """What all of it costs."""
        return float(self.price.sum())

    def columns(self) -> dict[str, Any]:
        """Return the table as columns."""
        return {
            "task": self.task,
            "worker": self.worker,
            "gain": self.gain,
            "sd": self.sd,
            "sd_after": self.sd_after,
            "price": self.price,
            "reason": np.array(self.reason, dtype=object),
        }

    @property
    def table(self) -> Any:
        """The table as a pandas data frame."""
        return frame(self.columns(), "pandas")

    def summary(self) -> str:
        """Say in a line where the campaign stands and what the batch is for."""
        state = f"{self.n_done} of {self.n_tasks} tasks done"
        if self.n_unanswered:
            state += f", {self.n_unanswered} without an answer"
        if np.isfinite(self.rmse):
            of = " of the others" if self.n_unanswered else ""
            state += f"; expected RMSE{of} {self.rmse:.4g}"
        if not len(self):
            return f"{state}; stop: {self.stop}"
        more = "1 more answer" if len(self) == 1 else f"{len(self)} more answers"
        after = f"{self.rmse_after:.4g} after {more} ({self.cost:,.2f})"
        return f"{state}, {after}" + (f"; then stop: {self.stop}" if self.stop else "")

    def __repr__(self) -> str:
        return f"Batch({self.summary()})"
