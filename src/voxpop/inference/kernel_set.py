"""What every way of inference does with the tasks it is given, whatever the backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

Workers = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Sweep:
    """What all groups need to know for one sweep."""

    sums: WorkerSums
    log_weights: Floats
    quantum: float
    floor: float
    damping: float

    def incoming(self, worker: Workers, message: WorkerSums) -> Floats:
        """M4: the workers' beliefs, each without the message of the task it goes to."""
        units = self.sums.take(worker, axis=0)
        units -= message
        log_message = units * self.quantum
        log_message += self.log_weights
        # Level by level: numpy is slow to find the largest of a few numbers.
        top = log_message[:, :, 0]
        for k in range(1, log_message.shape[2]):
            top = np.maximum(top, log_message[:, :, k])
        log_message -= top[:, :, None]
        return np.asarray(log_message)


class Heard(NamedTuple):
    """What workers tell some rows: their sums, who they are, and the rows' own part in these."""

    sweep: Sweep
    worker: Workers
    message: WorkerSums

    def incoming(self) -> Floats:
        """Return the workers' beliefs without the rows' own messages (M4)."""
        return self.sweep.incoming(self.worker, self.message)


def belief(units: WorkerSums, quantum: float, log_weights: Floats) -> Floats:
    """Return the probabilities of the levels that sums of messages (m, K) stand for."""
    # Level by level: numpy is slow along short axes, and from one place to the next.
    log_p = units.T.copy() * quantum + log_weights[:, None]
    p = np.exp(log_p - log_p.max(axis=0))
    return np.asarray((p / p.sum(axis=0)).T)


def add_to_workers(sums: WorkerSums, worker: Workers, message: WorkerSums) -> None:
    """Add messages (n, l, K) to the sums of their workers."""
    # One flat index per number is what numpy adds fastest.
    n_levels = sums.shape[1]
    flat = worker.astype(np.intp)[:, :, None] * n_levels + np.arange(n_levels)
    np.add.at(sums.reshape(-1), flat.reshape(-1), message.reshape(-1))


class Way(Protocol):
    """One way to work out what tasks of the same degree say."""

    name: str
    numbers_per_task: int
    """Numbers in flight while the posterior of one task is worked out in numpy."""

    kept: int
    """Numbers kept between sweeps."""

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return what is known of the truths of some rows that have heard this."""


class GuessingWay(Way, Protocol):
    """A way that is slow from flat messages, and can guess better ones to start from.

    What it says is accurate as probabilities, not in logs: tasks none of whose workers has changed
    its mind, as a probability, need not speak again.
    """

    def guess(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Do as ``sweep`` does, roughly and quickly (M27)."""

    def some(self, rows: NDArray[np.intp]) -> Way:
        """Return the way of some of the rows."""


class Ways(Protocol):
    """How one backend works out tasks of (n, l, d) values; ``room`` is for what it keeps."""

    def centred(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values (n, l, d) in multiples of a unit less an origin, and the origins (n, d).

        The origin is the middle answer of the task, in each coordinate: its difference from any
        other is exact where that matters. The unit is a power of two.
        """

    def gold(self, value: Floats, gold: Floats, model: Model) -> Way:
        """Take tasks whose truth is known."""

    def enumeration(self, value: Floats, prior_mean: Floats, model: Model, room: int) -> Way:
        """Sum over all configurations of the levels."""

    def active(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> Way:
        """Sum over those configurations that can matter."""

    def integration(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> Way:
        """Integrate over the truth, in one dimension."""
