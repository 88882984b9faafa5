"""Message store: the messages of all groups by edge, and going on from some that are given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.groups import Group, RowGroup
from voxpop.inference.kernel_set import KernelSet, add_to_workers


class MessageStore:
    """The messages of all groups of a data set, and their sums per worker (m, K).

    Messages are whole numbers of a ``quantum``; ``_floor`` is the lowest that is kept, in nats, and
    ``_n_slots`` how many messages an edge has: as many as coordinates are apart (M15).
    """

    sums: WorkerSums
    quantum: float
    _answers: Answers
    _kernels: KernelSet
    _groups: list[Group | RowGroup]
    _n_slots: int
    _floor: float
    _guesses_left: int

    def messages(self) -> WorkerSums:
        """Return all messages by edge and slot, (n_edges, c, n_levels).

        c is 1 unless coordinates were taken apart.
        """
        shape = (self._answers.n_edges, self._n_slots, self.sums.shape[1])
        found = np.zeros(shape, dtype=np.int64)
        for group in self._groups:
            at = edges_of(self._answers, group), group.slot
            found[at] = self._kernels.fetch(group.message)
        return found

    @property
    def slots(self) -> NDArray[np.int64]:
        """How many slots a task has for its messages: as many as coordinates are apart (M15)."""
        found = np.zeros(self._answers.n_tasks, dtype=np.int64)
        for group in self._groups:
            found[group.task] += 1
        return found

    def resume(self, messages: NDArray[Any], quantum: float, bias: tuple[Floats, ...] = ()) -> None:
        """Go on from messages by edge and slot, as :meth:`messages` gives them.

        With ``bias``, from messages (E, d) about the biases, too: precision and pull.
        """
        self._guesses_left = 0
        lowest, sums = int(self._floor / self.quantum), np.zeros_like(self.sums)
        for group in self._groups:
            at = edges_of(self._answers, group), group.slot
            message = np.rint(messages[at] * (quantum / self.quantum)).astype(np.int64)
            message = np.maximum(message, lowest)
            group.message = self._kernels.bring(message)
            add_to_workers(sums, group.worker, message)
            if bias and isinstance(group, RowGroup):
                group.resume_bias(*(self._kernels.bring(part[at]) for part in bias))
        self.sums = sums

    def resume_part(self, messages: WorkerSums, sums: WorkerSums, quantum: float) -> None:
        """Go on where the answers are a part of a larger set, in its quantum.

        ``sums`` (m, K) are those of all messages to the workers, also from other tasks.
        """
        self._guesses_left, self.quantum, self.sums = 0, quantum, sums
        for group in self._groups:
            at = edges_of(self._answers, group), group.slot
            group.message = self._kernels.bring(messages[at])


def edges_of(answers: Answers, group: Group | RowGroup) -> NDArray[np.int64]:
    """Numbers of the edges (n, l) of a group."""
    first = answers.task_ptr[group.task]
    return np.asarray(first[:, None] + np.arange(group.worker.shape[1]))
