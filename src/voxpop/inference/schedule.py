"""The schedule of sweeps: first guesses, which tasks to recompute, and the workers' sums.

It holds everything that a sweep needs about the workers, and nothing about the tasks: these may be
in memory (:class:`MessagePassing`) or in parts elsewhere, and send the same messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from voxpop.arrays import Floats, Mask, WorkerSums
from voxpop.inference.cost_model import Inference, choose_kernel
from voxpop.inference.groups import SweepParameters, WorkerBias
from voxpop.inference.kernel_set import ExpectedCounts, KernelSet, belief

# Guesses before the first sweep, where a kernel makes them: later ones are no better.
_N_GUESSES = 4
# If more than this share of the workers has moved, most tasks have one of them, and all send.
_MOST_MOVED = 0.125

Sent = tuple[WorkerSums, float, ExpectedCounts | None]
"""Sums of the messages to each worker, the largest change, and counts to learn from."""


@dataclass(frozen=True)
class Whole:
    """What a part of the answers must know about all of them, to send the messages of the whole.

    ``per_worker`` is the typical number of answers of a worker, and ``most_answers`` the most;
    ``open_degrees`` those of tasks without a known truth.
    """

    n_workers: int
    dimension: int
    per_worker: float
    most_answers: int
    open_degrees: tuple[int, ...]
    has_gold: bool

    def kernels(self, inference: Inference, levels: Floats, accuracy: float) -> set[str]:
        """Name the kernels of all tasks; gold is always integrated over."""
        d, gold = self.dimension, {"integrate"} if self.has_gold else set()
        return gold | {
            choose_kernel(inference, levels, degree, d, accuracy, self.per_worker)
            for degree in self.open_degrees
        }


class DeviceSums:
    """The workers' sums where the kernels compute: on a GPU, copied there only after a change."""

    def __init__(self, kernels: KernelSet) -> None:
        self._kernels = kernels
        self._known: tuple[WorkerSums, Any] | None = None
        self.others: WorkerSums | None = None
        """Sums of other parts of the answers, to add messages to."""

    def new(self, sums: WorkerSums) -> Any:
        """Return zeros in the shape of these sums, or the sums of other parts."""
        return self._kernels.zeros(sums.shape, np.int64) if self.others is None else self.others

    def of(self, sums: WorkerSums) -> Any:
        """Return the copy of these sums there."""
        if self._known is None or self._known[0] is not sums:
            self._known = sums, self._kernels.bring(sums)
        return self._known[1]

    def fetch(self, there: Any) -> WorkerSums:
        """Bring new sums back, and remember where they came from."""
        sums = self._kernels.fetch(there)
        self._known = sums, there
        return sums


class Asked(NamedTuple):
    """What tasks are asked to send, as in :meth:`Schedule.sweep`; None is all or the model's."""

    damping: float = 0.0
    moved: Mask | None = None
    parameters: SweepParameters | None = None
    bias: WorkerBias | None = None
    tasks: Mask | None = None
    is_counted: bool = False


class Schedule(ABC):
    """Sweeps of all tasks, wherever these are; see :meth:`sweep`.

    ``sums`` (m, K) of the messages to each worker are in units of ``quantum`` (M16); with
    ``log_weights`` (K,) they are the input of tasks.
    """

    sums: WorkerSums
    quantum: float
    log_weights: Floats

    def _begin(self, is_warm: bool, accuracy: float) -> None:
        """Start from flat messages; warm kernels guess first, and send only where one moved."""
        self._is_warm, self._accuracy = is_warm, accuracy
        self._guesses_left = _N_GUESSES if is_warm else 0
        self._known_belief = np.empty((0, 0))

    @abstractmethod
    def guess(self) -> WorkerSums:
        """Guess messages where flat ones would be slow to start from; return the sums of all."""

    @abstractmethod
    def send(self, asked: Asked) -> Sent:
        """Let tasks send; return the sums, or what is added to them where only some tasks send."""

    def sweep(
        self,
        damping: float = 0.0,
        *,
        parameters: SweepParameters | None = None,
        bias: WorkerBias | None = None,
        tasks: Mask | None = None,
        is_counted: bool = False,
    ) -> tuple[float, ExpectedCounts | None]:
        """Let tasks send their messages once; return the largest change, and counts to learn from.

        Messages are sent by all tasks, or by some (n,); :attr:`sums` and :attr:`log_weights` are
        their input, and the sums are renewed in the end.
        """
        while self._guesses_left:
            self._guesses_left -= 1
            self.sums = self.guess()
        moved = self._moved_workers(damping)
        asked = Asked(damping, moved, parameters, bias, tasks, is_counted)
        sums, change, counts = self.send(asked)
        self.sums = sums if tasks is None else self.sums + sums
        return change, counts

    def _moved_workers(self, damping: float) -> Mask | None:
        """Return whose beliefs have moved since all of their tasks last used them; None: all.

        As probabilities, by more than the accuracy asked for. A damped message moves by itself.
        """
        if not self._is_warm:
            return None
        now = belief(self.sums, self.quantum, self.log_weights)
        if damping or self._known_belief.shape != now.shape:
            self._known_belief = np.empty((0, 0)) if damping else now
            return None
        moved = np.asarray(np.abs(now - self._known_belief).max(axis=1) > self._accuracy)
        if moved.mean() > _MOST_MOVED:
            self._known_belief = now
            return None
        self._known_belief[moved] = now[moved]
        return moved
