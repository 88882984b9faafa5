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
    """Prices, limits and targets of a campaign.

    Parameters
    ----------
    half_width
        Target: a task is done when its 95 % interval is ± this or narrower in every coordinate.
    capacity
        Maximum number of answers per worker in total, including those already given.
    per_worker
        Maximum number of answers per worker in a batch. By default a batch is divided equally
        among the named workers. To prefer the best of them, ask for fewer answers than there are
        workers, or raise this limit.
    price
        Price of an answer by a worker without a price of their own.
    budget
        Money left to spend.
    least_gain
        Minimum reduction of the mean variance per unit of cost; answers below it are not bought.
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
    """The answers to ask for next, best first, and the progress of the campaign.

    Attributes
    ----------
    task, worker
        Ids, row by row; ``worker`` is None if anyone may answer.
    gain
        Expected reduction of the task's variance per coordinate; infinite for the first answer
        under a flat prior.
    sd, sd_after
        Standard deviation of the task's truth before this answer and expected after it, shrunk by
        the trust in the beliefs about workers. Repeated tasks continue from the row before.
    price
        Cost of the answer.
    reason
        Why the answer is asked for, in words.
    stop
        Why no further answers should be bought; empty if the campaign goes on.
    n_tasks, n_done, n_unanswered
        Numbers of all tasks, of those that need no more answers, and of those without any.
    rmse, rmse_after
        Expected root mean squared error of a coordinate over the answered tasks, now and after
        this batch.
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
        """Total price."""
        return float(self.price.sum())

    def columns(self) -> dict[str, Any]:
        """Return the table as columns."""
        names = ("task", "worker", "gain", "sd", "sd_after", "price")
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        return columns | {"reason": np.array(self.reason, dtype=object)}

    @property
    def table(self) -> Any:
        """The table as a pandas data frame."""
        return frame(self.columns(), "pandas")

    def summary(self) -> str:
        """Describe the progress and the effect of the batch in one line."""
        state = f"{self.n_done} of {self.n_tasks} tasks done"
        if self.n_unanswered:
            state += f", {self.n_unanswered} without an answer"
        if np.isfinite(self.rmse):
            state += f"; expected RMSE{' of the others' * bool(self.n_unanswered)} {self.rmse:.4g}"
        if not len(self):
            return f"{state}; stop: {self.stop}"
        more = "1 more answer" if len(self) == 1 else f"{len(self)} more answers"
        after = f"{self.rmse_after:.4g} after {more} (cost {self.cost:,.2f})"
        return f"{state}, {after}" + (f"; then stop: {self.stop}" if self.stop else "")

    def __repr__(self) -> str:
        return f"Batch({self.summary()})"
