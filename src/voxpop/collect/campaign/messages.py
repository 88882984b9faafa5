"""Messages of a campaign: after new answers only those that moved are worked out again.

A task speaks when it has a new answer, or when what one of its workers tells it has moved since it
last spoke (M3); workers are heard at once, their beliefs being sums (M4). When no task has to
speak, the messages are at a fixed point of BI, the one that a fit of all answers finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.collect.campaign.ledger import Growing, Ledger
from voxpop.estimators.iterate import iterate_until
from voxpop.inference.cost_model import KernelName, choose_kernel
from voxpop.inference.engine import Engine
from voxpop.inference.groups import (
    Group,
    RowGroup,
    SweepParameters,
    fixed_point,
    make_groups,
    model_in_units,
    noise_unit,
    put_gold,
    put_posterior,
)
from voxpop.inference.kernel_set import SweepState, belief
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# A worker's sum has room for so many messages before the quantum is chosen anew.
_FEWEST_MESSAGES = 16
# Edges looked at at once.
_BLOCK = 200_000
# When more than this share of the tasks have to speak, sweeping all of them costs less.
_MOST_APART = 0.2
# Up to so many answers a fit of all of them takes milliseconds.
_FEW = 2000
# As BI's own limit, with room for the smaller tolerance.
_MOST_SWEEPS = 500
_WHAT = "the campaign's BI"


class Messages:
    """What tasks have told their workers, kept by edge, and the workers' sums of it.

    ``slot`` j of an edge is what the coordinate j of its task says, where coordinates are taken
    apart (M15); otherwise all is in slot 0. ``heard`` is what the task had been told when it said
    so: its worker's sum less the edge's own message. Both are whole numbers of ``quantum`` (M16).
    """

    def __init__(self, ledger: Ledger, model: Model, engine: Engine, tol: float) -> None:
        self._ledger, self._engine, self._tol = ledger, engine, tol
        self._unit = noise_unit(model)
        self._model = model_in_units(model, self._unit)
        self._log_weights = model.log_weights
        self._kernels = engine.kernels()
        self._kernel_of: dict[int, KernelName] = {}
        self._shape = (1, len(model.support))
        self._message, self._heard = self._column(), self._column()
        self._sums = Growing(np.int64, self._shape[1:])
        self._n_messages = _FEWEST_MESSAGES
        self.quantum, self._floor = fixed_point(self._n_messages)
        # Tasks whose coordinates are apart; tasks who have to speak.
        self._apart, self._dirty = Growing(np.bool_), Growing(np.bool_)
        self._started = False
        # Whether all was worked out from flat messages to the last, and nothing is new since.
        self._from_scratch = False
        self.fresh_below = _FEW

    def _column(self) -> Growing:
        return Growing(np.int64, self._shape)

    def touch(self, task: Index) -> None:
        """Note that tasks have new answers."""
        self._grow()
        self._dirty.rows[task] = True
        self._from_scratch = False

    def start_over(self) -> None:
        """Begin with flat messages at the next settling, unless the last one did so.

        Where two workers share most of their tasks, the answers may not say which of them is the
        good one; there are then several fixed points, and which is found depends on the start.
        """
        self._started = self._started and self._from_scratch

    def _grow(self) -> None:
        ledger = self._ledger
        self._message.grow(ledger.n_edges)
        self._heard.grow(ledger.n_edges)
        self._sums.grow(len(ledger.workers))
        self._apart.grow(len(ledger.tasks))
        self._dirty.grow(len(ledger.tasks))

    def belief(self) -> Floats:
        """Return every worker's probabilities of the levels."""
        return self._belief(self._sums.rows)

    def settle(self, tol: float) -> Index:
        """Pass messages until none moves by more than ``tol`` as a probability.

        Returns the tasks of which something else is known than before. A finer ``tol`` than the
        last time takes a start over.
        """
        self._grow()
        self._choose_kernels()
        ledger = self._ledger
        moved = self._dirty.rows.copy()
        if not ledger.n_edges:
            return np.flatnonzero(moved)
        if not self._started or ledger.n_edges <= self.fresh_below:
            if moved.any() or not self._started:
                self._fit_all(tol, resume=False)
                moved |= ledger.of_task.size > 0
            return np.flatnonzero(moved)

        def sweep(damping: float) -> float:
            tasks = np.flatnonzero(self._dirty.rows)
            moved[tasks] = True
            if len(tasks) > _MOST_APART * len(moved):
                self._fit_all(tol, resume=True)
                moved[ledger.of_task.size > 0] = True
                return 0.0
            return self._sweep(tasks, damping, tol)

        if self._dirty.rows.any():
            iterate_until(sweep, tol=tol, max_iter=_MOST_SWEEPS, what=_WHAT)
            self._dirty.rows[:] = False
        return np.flatnonzero(moved)

    def _fit_all(self, tol: float, resume: bool) -> None:
        """Let all tasks speak, as BI does: from flat messages, or from those that are there."""
        ledger = self._ledger
        answers, order = ledger.by_task()
        model = model_in_units(self._model, 1.0 / self._unit)
        messages = self._engine.open(answers, model)
        if resume:
            messages.resume(self._message.rows[order], self.quantum)

        iterate_until(lambda damping: messages.sweep(damping)[0], tol, _MOST_SWEEPS, _WHAT)
        found = messages.messages()
        self._widen(found.shape[1])
        units = np.rint(found * (messages.quantum / self.quantum)).astype(np.int64)
        lowest = np.int64(self._floor / self.quantum)
        self._message.rows[order, : found.shape[1]] = np.maximum(units, lowest)
        self._add_up()
        self._heard.rows[:] = self._told(np.arange(ledger.n_edges))
        self._dirty.rows[:] = False
        self._started, self._from_scratch = True, not resume and tol <= self._tol

    def _add_up(self) -> None:
        """Sum all messages to each worker afresh."""
        self._sums.rows[:] = 0
        np.add.at(self._sums.rows, self._ledger.worker, self._message.rows.sum(axis=1))

    def _told(self, edge: Index) -> WorkerSums:
        """What each edge's worker tells its task: the sum of what the worker was told elsewhere."""
        sums = self._sums.rows[self._ledger.worker[edge]]
        return np.asarray(sums[:, None, :] - self._message.rows[edge])

    # Which way

    def _choose_kernels(self) -> None:
        """Choose the way of every degree that occurs, as BI would for all answers."""
        ledger = self._ledger
        sizes = np.unique(ledger.of_task.size)
        per_worker = float(np.median(ledger.of_worker.size)) if len(ledger.workers) else 1.0
        for size in sizes[sizes > 0].tolist():
            self._kernel_of[size] = choose_kernel(
                self._engine.inference,
                self._model.levels,
                size,
                ledger.dimension,
                self._engine.accuracy,
                per_worker,
            )
        if len(ledger.workers):
            self._make_room(int(ledger.of_worker.size.max()) * self._message.rows.shape[1])
        if ledger.dimension == 1:
            return
        apart = np.array(
            [self._kernel_of.get(n) == "integrate" for n in range(int(sizes.max()) + 1)]
        )
        now = apart[ledger.of_task.size] | ~np.isnan(ledger.gold[:, 0])
        if now.any():
            self._widen(ledger.dimension)
        changed = np.flatnonzero(now != self._apart.rows)
        self._apart.rows[:] = now
        if self._started and len(changed):
            # What one coordinate says is not what all say together: such tasks begin anew.
            edge, _ = ledger.of_task.gather(changed)
            self._message.rows[edge] = 0
            self._add_up()
            self._dirty.rows[changed] = True

    def _widen(self, n_slots: int) -> None:
        """Make room for what coordinates say one by one."""
        if n_slots <= self._shape[0]:
            return
        self._shape = (n_slots, self._shape[1])
        for name in ("_message", "_heard"):
            wide, old = self._column(), getattr(self, name).rows
            wide.grow(len(old))
            wide.rows[:, : old.shape[1]] = old
            setattr(self, name, wide)
        self._make_room(int(self._ledger.of_worker.size.max()) * n_slots)

    def _make_room(self, n_messages: int) -> None:
        """Choose the quantum anew when a worker's messages might no longer fit its sum."""
        if n_messages <= self._n_messages:
            return
        while self._n_messages < n_messages:
            self._n_messages *= 2
        old, (self.quantum, self._floor) = self.quantum, fixed_point(self._n_messages)
        lowest = np.int64(self._floor / self.quantum)
        for column in (self._message, self._heard):
            if old != self.quantum:
                column.rows[:] = np.rint(column.rows * (old / self.quantum)).astype(np.int64)
        np.maximum(self._message.rows, lowest, out=self._message.rows)
        self._add_up()

    def _state(self, sums: WorkerSums, damping: float = 0.0) -> SweepState:
        return SweepState(sums, self._log_weights, self.quantum, self._floor, damping)

    # One sweep

    def _sweep(self, tasks: Index, damping: float, tol: float) -> float:
        """Let some tasks speak; mark those who have to speak next; return the largest change."""
        ledger = self._ledger
        self._dirty.rows[tasks] = False
        change, parts = 0.0, []
        for edge, group, rows, parameters in self._groups_of(tasks):
            old = np.ascontiguousarray(self._message.rows[edge, group.slot])
            group.message[:] = old
            who, local = np.unique(group.worker, return_inverse=True)
            state = self._state(np.ascontiguousarray(self._sums.rows[who]), damping)
            group.worker = np.ascontiguousarray(local.reshape(group.worker.shape), dtype=np.int32)
            change = max(change, group.send(parameters, state, np.zeros_like(state.sums)))
            self._heard.rows[edge, group.slot] = state.sums[group.worker] - old
            if damping:
                still = np.abs(group.message - old).max(axis=(1, 2)) * self.quantum > tol
                self._dirty.rows[rows[still]] = True
            parts.append((edge, group.slot, old, group.message))
        # All at once at the end: every task of a sweep hears the same workers.
        for edge, slot, old, new in parts:
            self._message.rows[edge, slot] = new
            np.add.at(self._sums.rows, ledger.worker[edge], new - old)
        workers = np.unique(np.concatenate([ledger.worker[part[0]].ravel() for part in parts]))
        self._wake(workers, tol)
        # It is over when nobody has to speak, however much was said.
        return max(change, 2.0 * tol) if self._dirty.rows.any() else 0.0

    def _wake(self, workers: Index, tol: float) -> None:
        """Mark the tasks who are told something else than when they last spoke."""
        edge, _ = self._ledger.of_worker.gather(workers.astype(np.int64))
        for start in range(0, len(edge), _BLOCK):
            some = edge[start : start + _BLOCK]
            told, heard = self._told(some), self._heard.rows[some]
            reach = _range(told - heard) * self.quantum
            if reach.shape[1] > 1:
                reach[~self._apart.rows[self._ledger.task[some]], 1:] = 0.0
            # A probability moves by less than the logarithms do.
            at, slot = np.nonzero(reach > tol)
            moved = np.abs(self._belief(told[at, slot]) - self._belief(heard[at, slot]))
            far = at[(moved > tol).any(axis=1)]
            self._dirty.rows[self._ledger.task[some[far]]] = True

    def _belief(self, units: WorkerSums) -> Floats:
        return belief(units, self.quantum, self._log_weights)

    def _groups_of(
        self, tasks: Index
    ) -> Iterator[tuple[NDArray[np.int64], Group | RowGroup, Index, SweepParameters]]:
        """Sort tasks into groups, as a fit does: edges (n, l), group, its tasks, parameters."""
        ledger, accuracy = self._ledger, self._engine.accuracy
        degree = ledger.of_task.size[tasks]
        is_gold = ~np.isnan(ledger.gold[tasks, 0])
        unit = np.full(ledger.dimension, self._unit)
        for size in np.unique(degree[degree > 0]).tolist():
            for known in (False, True):
                some = tasks[(degree == size) & (is_gold == known)]
                if not len(some):
                    continue
                edge = ledger.of_task.matrix(some, size)
                parameters = SweepParameters.of_model(self._model, len(some), accuracy)
                for group in make_groups(
                    self._kernels,
                    "integrate" if known else self._kernel_of[size],
                    np.arange(len(some)),
                    ledger.worker[edge],
                    ledger.value[edge],
                    ledger.gold[some] / self._unit,
                    self._model.prior_means(len(some)),
                    unit,
                    self._model,
                    accuracy,
                ):
                    yield edge[group.task], group, some[group.task], parameters

    # What is known of the truths

    def moments(self, tasks: Index, probabilities: Floats) -> Posterior:
        """Return what is known of the truths of some tasks that have answers."""
        ledger = self._ledger
        shape = (len(tasks), ledger.dimension)
        out = Posterior(np.empty(shape), np.empty(shape), np.empty((*shape, len(probabilities))))
        place = np.empty(len(ledger.tasks), dtype=np.int64)
        place[tasks] = np.arange(len(tasks))
        state, unit = self._state(self._sums.rows), np.full(ledger.dimension, self._unit)
        for edge, group, rows, parameters in self._groups_of(tasks):
            group.message[:] = self._message.rows[edge, group.slot]
            found = group.posterior(parameters, state, probabilities)
            put_posterior(out, place[rows], group.coordinates, found, group.origin, unit)
        known = ~np.isnan(ledger.gold[tasks, 0])
        put_gold(out, known, ledger.gold[tasks[known]])
        return out


def _range(units: WorkerSums) -> NDArray[np.int64]:
    """Largest less smallest number along the last axis."""
    return np.asarray(_reduce(np.maximum, units) - _reduce(np.minimum, units))


def _reduce(combine: np.ufunc, numbers: NDArray[Any]) -> NDArray[Any]:
    """Reduce the last axis step by step: numpy is slow to do so where it is short."""
    total = numbers[..., 0]
    for k in range(1, numbers.shape[-1]):
        total = combine(total, numbers[..., k])
    return total
