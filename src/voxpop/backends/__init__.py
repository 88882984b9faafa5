"""Backends own the memory of a fit and run the kernels; estimators see three methods.

A sweep of belief propagation is: tasks speak (local to a task), what they said is summed per
worker, workers answer (local to an edge). Only the per-worker sums travel, so threads, a GPU or
a cluster fit behind this seam without touching an estimator.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.answers import Answers
from voxpop.errors import require
from voxpop.kernels.posterior import Posterior
from voxpop.model import Model
from voxpop.tables import Floats

Inference = Literal["auto", "enumerate", "integrate"]
WorkerSums = NDArray[np.int64]


class Backend(Protocol):
    """One data set and one model, ready to pass messages."""

    quantum: float
    """Size of one unit of the sums, in nats."""

    used: dict[str, int]
    """How many tasks each way of inference handles."""

    def to_workers(self, damping: float) -> tuple[WorkerSums, float]:
        """Let every task speak to its workers.

        Returns the sum of the log messages to each worker, (n_workers, n_levels) in units of
        ``quantum``, and the largest change of a message, as a probability.
        """

    def to_tasks(self, sums: WorkerSums, log_weights: Floats) -> None:
        """Let every worker answer: its belief, without what the task itself has told it."""

    def moments(self, probabilities: Floats) -> Posterior:
        """Return what is known of all truths."""


def open_backend(
    name: str, answers: Answers, model: Model, inference: Inference, accuracy: float
) -> Backend:
    """Open the backend of that name; ``auto`` is the best one installed."""
    from voxpop.backends.portable import Portable

    require(name in ("auto", "portable"), f"backend must be 'auto' or 'portable', got {name!r}")
    return Portable(answers, model, inference, accuracy)


def backend_in_use() -> str:
    """Name the backend that ``auto`` stands for on this machine."""
    return "portable"
