"""The schedule of sweeps: first guesses, who has moved and is heard anew, and the workers' sums.

It holds all that a sweep needs to know of the workers, and nothing of the tasks: these may be in
memory (:class:`MessagePassing`) or in parts elsewhere, and send the same messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.cost_model import Inference, choose_kernel
from voxpop.inference.groups import SweepParameters, WorkerBias
from voxpop.inference.kernel_set import ExpectedCounts, belief

# Guesses before the first sweep, where a kernel makes them: the fourth is as good as they get.
_N_GUESSES = 4
# With more than this share of the workers moved, most tasks have one of them: all send.
_MOST_MOVED = 0.125

Mask = NDArray[np.bool_]
Sent = tuple[WorkerSums, float, ExpectedCounts | None]
"""Sums of the messages to each worker, the largest change, and counts to learn from."""


@dataclass(frozen=True)
class Whole:
    """What a part of the answers must know of all of them, to send the messages it would among all.

    ``per_worker`` are the answers that a worker gives, as a rule, and ``most_answers`` the most;
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
    ``log_weights`` (K,) they are what tasks hear.
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
        """Guess where messages would be slow to send from flat ones; return the sums of all."""

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
        what they hear, and the sums are renewed in the end.
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
        """Tell whose beliefs have moved since all of their tasks last heard them; None: all.

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
