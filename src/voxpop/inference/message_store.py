"""Message store: the messages of all groups by edge, and continuing from given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Index, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.groups import Group, RowGroup
from voxpop.inference.kernel_set import KernelSet


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

    def resume(
        self, messages: Sequence[Any], levels: Index, bias: Sequence[tuple[Any, ...]]
    ) -> None:
        """Continue from the messages (E, 1, K) of every slot, with some of the levels.

        With ``bias``, from messages (E, 1) about the biases, too: precision and pull, or nothing.
        All are of the same kernels and in the same quantum, and are not copied from them. The
        caller sets the sums.
        """
        kernels, self._guesses_left = self._kernels, 0
        for group in self._groups:
            at = edges_of(self._answers, group)
            group.message = kernels.gather(messages[group.slot], at, levels)
            if bias[group.slot] and isinstance(group, RowGroup):
                group.resume_bias(*(kernels.gather(part, at) for part in bias[group.slot]))

    def resume_part(self, messages: WorkerSums, sums: WorkerSums, quantum: float) -> None:
        """Continue where the answers are a part of a larger set, in its quantum.

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
