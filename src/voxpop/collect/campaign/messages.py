"""Messages of a campaign: after new answers only those that change are recomputed.

A task is recomputed (M3) if it has a new answer, or if one of its incoming messages has moved since
it was last computed (residual scheduling). Workers need no step: their beliefs are sums (M4). When
no task is left to recompute, the messages are at a fixed point of BI, the one that a fit of all
answers finds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.collect.campaign.ledger import Growing, Ledger
from voxpop.data.answers import Answers
from voxpop.estimators.iterate import iterate_until
from voxpop.inference.engine import Engine
from voxpop.inference.groups import fixed_point
from voxpop.inference.kernel_set import belief
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.kernels.posterior import Posterior
from voxpop.inference.message_passing import MessagePassing
from voxpop.models.model import Model

# A worker's sum has room for this many messages before a new quantum is chosen.
_FEWEST_MESSAGES = 16
# Edges processed at once.
_BLOCK = 200_000
# If more than this share of the tasks must be recomputed, sweeping all of them costs less.
_MOST_APART = 0.2
# Up to this many answers, a fit of all of them takes milliseconds.
_FEW = 2000
# As BI's own limit, with room for the smaller tolerance.
_MOST_SWEEPS = 500
_WHAT = "the campaign's BI"


class Messages:
    """Messages from tasks to workers by edge, and their sums by worker.

    ``slot`` j of an edge holds the message of coordinate j of its task, where coordinates are taken
    apart (M15); otherwise all is in slot 0. ``incoming`` is the cavity message that the task was
    last computed from: its worker's sum less the edge's own message. Both are whole numbers of
    ``quantum`` (M16).
    """

    def __init__(
        self,
        ledger: Ledger,
        model: Model,
        tol: float,
        freed: Callable[[Answers], Answers],
        mixture: NoiseGrid | None = None,
    ) -> None:
        """Pass messages about answers ``freed`` of what model and ``mixture`` leave out."""
        self._ledger, self._model, self._tol, self._engine = ledger, model, tol, Engine()
        self._freed, self._mixture = freed, mixture
        shape = (ledger.dimension, len(model.support))
        self._message, self._incoming = Growing(np.int64, shape), Growing(np.int64, shape)
        self._sums = Growing(np.int64, shape[1:])
        # Tasks to recompute; how many slots they last had.
        self._dirty, self._slots = Growing(np.bool_), Growing(np.int64)
        self._n_messages = _FEWEST_MESSAGES
        self.quantum, self._floor = fixed_point(self._n_messages)
        # Answers per worker when all tasks were last computed: they decide on the kernels.
        self._per_worker = 1.0
        self._started = False
        # Workers whose answers were taken back: their other tasks may need recomputing.
        self._lost_a_message: set[int] = set()
        # Whether all was computed from flat messages to full accuracy, and nothing is new since.
        self._from_scratch = False
        self.fresh_below = _FEW

    def touch(self, task: Index) -> None:
        """Note that tasks have new answers."""
        self._grow()
        self._dirty.rows[task] = True
        self._from_scratch = False

    def drop(self, edge: int) -> None:
        """Take the message of an answer out, exactly, before the ledger takes out its edge.

        The task is recomputed, and, at the next settling, the worker's other tasks if their
        incoming messages have moved.
        """
        self._grow()
        task, worker = int(self._ledger.task[edge]), int(self._ledger.worker[edge])
        self._put(np.array([edge]), np.zeros_like(self._message.rows[[edge]]))
        for column in (self._message, self._incoming):
            column.drop(edge)
        self._dirty.rows[task] = True
        self._lost_a_message.add(worker)
        self._from_scratch = False

    def start_over(self) -> None:
        """Start from flat messages at the next settling, unless the last one did so.

        If two workers share most of their tasks, the answers may not show which of them is the good
        one; there are then several fixed points, and the start decides between them.
        """
        self._started = self._started and self._from_scratch

    def belief(self) -> Floats:
        """Return every worker's probabilities of the levels."""
        return self._belief(self._sums.rows)

    def belief_without(self, edge: Index) -> Floats:
        """Return the probabilities of each edge's worker without the edge's own message."""
        own = self._message.rows[edge].sum(axis=1)
        return self._belief(self._sums.rows[self._ledger.worker[edge]] - own)

    def moments(self, tasks: Index | None, probabilities: Floats) -> Posterior:
        """Return the posterior of the truths of some tasks that have answers, or of all of them.

        All are in the order of their ids (:meth:`Ledger.answered`), and rounded as in a fit.
        """
        return self._open(tasks)[0].posterior(probabilities)

    def settle(self, tol: float) -> Index:
        """Pass messages until none moves by more than ``tol`` as a probability.

        Returns the tasks with answers whose posterior may have changed. A finer ``tol`` than the
        last time needs a start over.
        """
        self._grow()
        if self._lost_a_message:
            self._wake(np.array(sorted(self._lost_a_message)), tol)
            self._lost_a_message.clear()
        answered = self._ledger.of_task.size > 0
        self._dirty.rows[~answered] = False
        moved = self._dirty.rows.copy() if self._started else answered

        def sweep(damping: float) -> float:
            tasks = np.flatnonzero(self._dirty.rows)
            moved[tasks] = True
            if len(tasks) > _MOST_APART * len(moved):
                self._fit_all(tol, resume=True)
                moved[answered] = True
                return 0.0
            return self._sweep(tasks, damping, tol)

        if moved.any() and (not self._started or self._ledger.n_edges <= self.fresh_below):
            self._fit_all(tol, resume=False)
            moved = answered
        elif moved.any():
            iterate_until(sweep, tol, _MOST_SWEEPS, _WHAT)
        self._dirty.rows[:] = False
        return np.flatnonzero(moved)

    def _fit_all(self, tol: float, resume: bool) -> None:
        """Recompute all tasks, as BI does: from flat messages, or from the current ones."""
        if not resume:
            self._flatten()
        messages, edge = self._open(None, resume)
        iterate_until(lambda damping: messages.sweep(damping)[0], tol, _MOST_SWEEPS, _WHAT)
        self._take_over(messages, edge)
        self._incoming.rows[:] = self._cavity(np.arange(len(edge)))
        self._dirty.rows[:] = False
        self._started, self._from_scratch = True, not resume and tol <= self._tol

    def _sweep(self, tasks: Index, damping: float, tol: float) -> float:
        """Recompute some tasks; mark those that must follow; return the largest change."""
        self._dirty.rows[tasks] = False
        messages, edge = self._open(tasks)
        self._incoming.rows[edge] = self._cavity(edge)
        change = messages.sweep(damping)[0]
        moved = self._take_over(messages, edge)
        if damping:
            still = np.abs(moved).max(axis=(1, 2)) * self.quantum > tol
            self._dirty.rows[self._ledger.task[edge[still]]] = True
        self._wake(np.unique(self._ledger.worker[edge]), tol)
        # It ends when no task is left to recompute, however large the change was.
        return max(change, 2.0 * tol) if self._dirty.rows.any() else 0.0

    def _wake(self, workers: Index, tol: float) -> None:
        """Mark the tasks whose incoming messages have moved since they were last computed."""
        edge, _ = self._ledger.of_worker.gather(workers)
        for start in range(0, len(edge), _BLOCK):
            some = edge[start : start + _BLOCK]
            task, now, before = (
                self._ledger.task[some],
                self._cavity(some),
                self._incoming.rows[some],
            )
            # Levels first: numpy is slow to reduce a short last axis.
            reach = np.ptp(np.ascontiguousarray((now - before).T), axis=0).T * self.quantum
            if reach.shape[1] > 1:
                reach[self._slots.rows[task] == 1, 1:] = 0.0
            # A probability moves by less than the logarithms do.
            at, slot = np.nonzero(reach > tol)
            moved = np.abs(self._belief(now[at, slot]) - self._belief(before[at, slot]))
            self._dirty.rows[task[at[(moved > tol).any(axis=1)]]] = True

    def _belief(self, units: WorkerSums) -> Floats:
        return belief(units, self.quantum, self._model.log_weights)

    def _cavity(self, edge: Index) -> WorkerSums:
        """Cavity message of each edge: its worker's sum less the edge's own message."""
        sums = self._sums.rows[self._ledger.worker[edge]]
        return np.asarray(sums[:, None, :] - self._message.rows[edge])

    # From here to a fit and back

    def _open(self, tasks: Index | None, resume: bool = True) -> tuple[MessagePassing, Index]:
        """Lay out some tasks, or all, as a fit does; also return the edges, in its order."""
        answers, edge = self._ledger.by_task(tasks)
        if tasks is None:
            self._per_worker = float(np.median(answers.worker_degree))
        per_worker = None if tasks is None else self._per_worker
        messages = self._engine.open(
            self._freed(answers), self._model, per_worker, grid=self._mixture
        )
        # Messages of one coordinate and of all together differ: if that changes, start again.
        changed = messages.slots != self._slots.rows[answers.task_ids]
        if changed.any():
            self._slots.rows[answers.task_ids] = messages.slots
            anew = edge[changed[answers.task]]
            self._put(anew, np.zeros_like(self._message.rows[anew]))
        if resume:
            sums = self._sums.rows[answers.worker_ids]
            messages.resume_part(self._message.rows[edge], sums, self.quantum)
        return messages, edge

    def _take_over(self, messages: MessagePassing, edge: Index) -> WorkerSums:
        """Keep the messages of a fit, and return by how much they moved."""
        units = np.rint(messages.messages() * (messages.quantum / self.quantum))
        lowest = np.int64(self._floor / self.quantum)
        return self._put(edge, np.maximum(units.astype(np.int64), lowest))

    def _put(self, edge: Index, units: WorkerSums) -> WorkerSums:
        """Replace messages, keep the workers' sums right, and return the differences."""
        used = np.s_[edge, : units.shape[1]]
        difference = np.asarray(units - self._message.rows[used])
        self._message.rows[used] = units
        np.add.at(self._sums.rows, self._ledger.worker[edge], difference.sum(axis=1))
        return difference

    def _flatten(self) -> None:
        """Forget all messages, and choose the quantum as if the answers were new."""
        for column in (self._message, self._incoming, self._sums):
            column.rows[:] = 0
        self._n_messages = self._room_for(self._ledger.of_worker.size)
        self.quantum, self._floor = fixed_point(self._n_messages)

    def _room_for(self, n_answers: Index) -> int:
        """Round up how many messages a worker with so many answers gets."""
        most = int(n_answers.max(initial=0)) * self._ledger.dimension
        return max(_FEWEST_MESSAGES, 1 << int(np.ceil(np.log2(max(most, 1)))))

    def _grow(self) -> None:
        """Make room for new answers, and choose a new quantum if a sum might not fit."""
        ledger, n_before = self._ledger, self._message.n
        for column in (self._message, self._incoming):
            column.grow(ledger.n_edges)
        for column in (self._dirty, self._slots):
            column.grow(len(ledger.tasks))
        self._sums.grow(len(ledger.workers))
        # Only workers of answers added since may need more room.
        some = slice(None) if n_before == 0 else np.unique(ledger.worker[n_before:])
        n_messages = self._room_for(ledger.of_worker.size[some])
        if n_messages > self._n_messages:
            self._n_messages = n_messages
            old, (self.quantum, self._floor) = self.quantum, fixed_point(self._n_messages)
            shift = int(np.log2(self.quantum / old))
            self._incoming.rows[:] >>= shift
            units = self._message.rows >> shift
            self._message.rows[:], self._sums.rows[:] = 0, 0
            lowest = np.int64(self._floor / self.quantum)
            self._put(np.arange(ledger.n_edges), np.maximum(units, lowest))
