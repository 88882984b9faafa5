"""What the backends share: tasks in groups of equal degree, their messages, and one sweep.

Messages are kept as whole numbers of a small quantum (M16), so that the sums per worker come out
the same to the last bit in whatever order they are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.cost_model import Inference, WayName, choose_way
from voxpop.inference.kernel_set import (
    GuessingWay,
    Heard,
    Sweep,
    Way,
    Ways,
    Workers,
    add_to_workers,
    belief,
)
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# Numbers in flight in one block, and numbers kept between sweeps: 8 MB and 256 MB.
BLOCK_NUMBERS = 1_000_000
CACHE_NUMBERS = 32_000_000
# Guesses before the first sweep, where a way makes them: the fourth is as good as they get.
N_GUESSES = 4
# Lowest log message of a guess: it does not know which answer of a task is the odd one, so one
# task must not outweigh all others of a worker.
GUESS_FLOOR = -10.0


class Group:
    """Rows of the same degree that are worked out the same way, with their messages.

    A row is a task, or one coordinate of a task where coordinates are taken apart (M15).
    """

    def __init__(
        self,
        way: Way,
        task: NDArray[np.int64],
        coordinates: slice,
        worker: Workers,
        origin: Floats,
        n_levels: int,
    ) -> None:
        self.way, self.task, self.coordinates, self.worker = way, task, coordinates, worker
        self.origin = origin
        # Asking isinstance of a protocol takes as long as a sweep of a few hundred tasks.
        self.guessing = cast(GuessingWay, way) if hasattr(way, "guess") else None
        self.message = np.zeros((*worker.shape, n_levels), dtype=np.int64)
        self.said: WorkerSums | None = None
        """What a way that guesses has said to every worker."""

    def speak(self, sweep: Sweep, moved: NDArray[np.bool_] | None, new_sums: WorkerSums) -> float:
        """Add all messages to the sums, and return the largest change of any.

        Rows of a way that guesses stay with what they said if none of their workers has ``moved``;
        None stands for all.
        """
        if self.guessing is None:
            return self.way.sweep(sweep, self.worker, self.message, new_sums)
        rows = np.arange(0) if moved is None else self._rows_of(moved)
        if moved is None or self.said is None or 2 * len(rows) > len(self.worker):
            self.said = np.zeros_like(new_sums)
            change = self.way.sweep(sweep, self.worker, self.message, self.said)
        elif len(rows):
            worker, message = self.worker[rows], self.message[rows]
            add_to_workers(self.said, worker, -message)
            change = self.guessing.some(rows).sweep(sweep, worker, message, self.said)
            self.message[rows] = message
        else:
            change = 0.0
        new_sums += self.said
        return change

    def _rows_of(self, workers: NDArray[np.bool_]) -> NDArray[np.intp]:
        return np.unique(np.flatnonzero(workers[self.worker]) // self.worker.shape[1])


class Groups:
    """All tasks of a data set in groups, with the workers' sums; does what a backend must."""

    def __init__(
        self, answers: Answers, model: Model, inference: Inference, accuracy: float, ways: Ways
    ) -> None:
        self._shape = (answers.n_tasks, answers.dimension)
        self._unit = noise_unit(model)
        model = model_in_units(model, self._unit)
        self._groups = list(_groups(answers, self._unit, model, inference, accuracy, ways))
        self.used: dict[str, int] = {}
        for group in self._groups:
            n_tasks = len(group.task) if group.coordinates.start == 0 else 0
            self.used[group.way.name] = self.used.get(group.way.name, 0) + n_tasks
        apart = any(len(g.origin[0]) < answers.dimension for g in self._groups)
        messages = answers.worker_degree.max() * (answers.dimension if apart else 1)
        self.quantum, self._floor = fixed_point(int(messages))
        self._sums = np.zeros((answers.n_workers, len(model.support)), dtype=np.int64)
        self._log_weights = model.log_weights
        self._guesses_left = N_GUESSES if any(g.guessing for g in self._groups) else 0
        self._guesses = self._guesses_left > 0
        self._accuracy, self._heard = accuracy, np.empty((0, 0))

    def to_workers(self, damping: float) -> tuple[WorkerSums, float]:
        """Work out all messages to workers, and add them up."""
        while self._guesses_left:
            self._guesses_left -= 1
            self.to_tasks(self._guess(), self._log_weights)
        new_sums = np.zeros_like(self._sums)
        sweep, moved = self._sweep(damping), self._moved(damping)
        return new_sums, max(g.speak(sweep, moved, new_sums) for g in self._groups)

    def _moved(self, damping: float) -> NDArray[np.bool_] | None:
        """Tell which workers' beliefs have moved since all of their tasks last spoke; None: all.

        As probabilities, by more than the accuracy asked for. A damped message moves by itself.
        """
        if not self._guesses:
            return None
        now = belief(self._sums, self.quantum, self._log_weights)
        if damping or self._heard.shape != now.shape:
            self._heard = np.empty((0, 0)) if damping else now
            return None
        moved = np.asarray(np.abs(now - self._heard).max(axis=1) > self._accuracy)
        self._heard[moved] = now[moved]
        return moved

    def _guess(self) -> WorkerSums:
        """Let tasks guess that would be slow to speak from flat messages; the others speak."""
        new_sums = np.zeros_like(self._sums)
        sweep = replace(self._sweep(0.0), floor=GUESS_FLOOR)
        for g in self._groups:
            say = g.guessing.guess if g.guessing else g.way.sweep
            say(sweep, g.worker, g.message, new_sums)
        return new_sums

    def to_tasks(self, sums: WorkerSums, log_weights: Floats) -> None:
        """Keep the workers' sums; a task's own message is taken off when it listens."""
        self._sums = np.ascontiguousarray(sums)
        self._log_weights = np.ascontiguousarray(log_weights)

    def moments(self, probabilities: Floats) -> Posterior:
        """Collect the posteriors of all rows."""
        estimate, variance = np.empty(self._shape), np.empty(self._shape)
        quantile = np.empty((*self._shape, len(probabilities)))
        sweep = self._sweep(0.0)
        for group in self._groups:
            for rows in blocks(len(group.task), group.way.numbers_per_task):
                heard = Heard(sweep, group.worker[rows], group.message[rows])
                found = group.way.posterior(rows, heard, probabilities)
                at = (group.task[rows], group.coordinates)
                # Answers were centred within their task, to keep small differences of large
                # values; here the origin comes back.
                estimate[at] = (found.estimate + group.origin[rows]) * self._unit
                variance[at] = found.variance * self._unit**2
                quantile[at] = (found.quantile + group.origin[rows][:, :, None]) * self._unit
        return Posterior(estimate, variance, quantile)

    def messages(self, task_ptr: Index) -> WorkerSums:
        """Return all messages by edge and coordinate, (n_edges, c, n_levels).

        ``task_ptr`` is that of the answers; c is 1 unless coordinates were taken apart.
        """
        n_slots = max(g.coordinates.start for g in self._groups) + 1
        found = np.zeros((task_ptr[-1], n_slots, self._sums.shape[1]), dtype=np.int64)
        for g in self._groups:
            edge = task_ptr[g.task][:, None] + np.arange(g.worker.shape[1])
            found[edge, g.coordinates.start] = g.message
        return found

    def resume(self, messages: WorkerSums, quantum: float, task_ptr: Index) -> None:
        """Go on from messages by edge and coordinate, as :meth:`messages` gives them."""
        self._guesses_left = 0
        lowest = int(self._floor / self.quantum)
        for g in self._groups:
            edge = task_ptr[g.task][:, None] + np.arange(g.worker.shape[1])
            units = messages[edge, g.coordinates.start] * (quantum / self.quantum)
            g.message[:] = np.maximum(np.rint(units).astype(np.int64), lowest)
            np.add.at(self._sums, g.worker, g.message)

    def _sweep(self, damping: float) -> Sweep:
        return Sweep(self._sums, self._log_weights, self.quantum, self._floor, damping)


def noise_unit(model: Model) -> float:
    """Power of two near the middle of the levels' standard deviations.

    In units of it no product of precisions over- or underflows, and nothing is rounded.
    """
    return float(2.0 ** np.rint(0.25 * np.log2(model.levels[[0, -1]]).sum()))


def model_in_units(model: Model, unit: float) -> Model:
    """Express levels and prior in multiples of ``unit``."""
    return replace(
        model,
        support=(model.levels / unit**2).tolist(),
        prior_mean=np.asarray(model.prior_mean) / unit,
        prior_variance=model.prior_variance / unit**2,
    )


def fixed_point(n_messages: int) -> tuple[float, float]:
    """Choose the quantum of messages, and the lowest message kept, in nats (M16).

    ``n_messages`` is the most messages that any worker gets: their sum must fit 62 bits.
    """
    lowest = float(np.clip(2.0**24 / n_messages, 512.0, 2.0**20))
    bits = 62 - int(np.ceil(np.log2(n_messages * lowest)))
    return 2.0**-bits, -lowest


def blocks(n: int, numbers_per_task: int) -> Iterator[slice]:
    """Cut n rows into blocks of bounded memory."""
    size = max(1, BLOCK_NUMBERS // numbers_per_task)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _groups(
    answers: Answers,
    unit: float,
    model: Model,
    inference: Inference,
    accuracy: float,
    ways: Ways,
) -> Iterator[Group]:
    """Sort the tasks into groups by degree and way; refuse what cannot be enumerated.

    The model is in multiples of the unit, the answers are not yet.
    """
    degree = answers.task_degree
    prior_mean = model.prior_means(answers.n_tasks)
    room = CACHE_NUMBERS
    per_worker = float(np.median(answers.worker_degree))
    for size in np.flatnonzero(np.bincount(degree)).tolist():
        gold_tasks = np.flatnonzero((degree == size) & answers.is_gold)
        tasks = np.flatnonzero((degree == size) & ~answers.is_gold)
        if len(gold_tasks):
            assert answers.gold is not None
            worker, value = _gather(answers, gold_tasks, size)
            gold = answers.gold[gold_tasks] / unit
            yield gold_group(ways, gold_tasks, worker, value / unit, gold, model)
        if not len(tasks):
            continue
        worker, value = _gather(answers, tasks, size)
        name = choose_way(inference, model.levels, size, answers.dimension, accuracy, per_worker)
        for group in task_groups(
            ways, name, tasks, worker, value, unit, prior_mean[tasks], model, accuracy, room
        ):
            room -= group.way.kept
            yield group


def gold_group(
    ways: Ways, task: Index, worker: Workers, value: Floats, gold: Floats, model: Model
) -> Group:
    """Group tasks whose truth is known."""
    way = ways.gold(value, gold, model)
    everything = slice(0, value.shape[2])
    return Group(way, task, everything, worker, np.zeros_like(gold), len(model.support))


def task_groups(
    ways: Ways,
    name: WayName,
    tasks: Index,
    worker: Workers,
    value: Floats,
    unit: float,
    prior_mean: Floats,
    model: Model,
    accuracy: float,
    room: int,
) -> Iterator[Group]:
    """Group tasks of equal degree: one group, or one per coordinate where these are apart.

    ``worker`` is (n, l), ``value`` (n, l, d) and ``prior_mean`` (n, d), in the order of ``tasks``;
    all but the values are in multiples of ``unit``.
    """
    value, origin = ways.centred(value, unit)
    n_levels, dimension = len(model.support), value.shape[2]
    if name != "integrate":
        centred = prior_mean - origin
        if name == "active":
            way = ways.active(value, centred, model, accuracy)
        else:
            way = ways.enumeration(value, centred, model, room)
        yield Group(way, tasks, slice(0, dimension), worker, origin, n_levels)
        return
    for j in range(dimension):
        # Tasks of similar spread side by side need similarly many nodes.
        by_spread = np.argsort(np.ptp(value[:, :, j], axis=1), kind="stable")
        origin_j = origin[by_spread, j : j + 1]
        way = ways.integration(
            value[by_spread, :, j : j + 1],
            prior_mean[by_spread, j : j + 1] - origin_j,
            model,
            accuracy,
        )
        yield Group(way, tasks[by_spread], slice(j, j + 1), worker[by_spread], origin_j, n_levels)


def _gather(answers: Answers, tasks: Index, size: int) -> tuple[Workers, Floats]:
    """Collect workers and values of tasks with ``size`` answers each."""
    if len(tasks) * size == answers.n_edges:
        # Edges are sorted by task: all of them are there as they are.
        return (
            answers.worker.reshape(-1, size),
            answers.value.reshape(-1, size, answers.dimension),
        )
    edge = answers.task_ptr[tasks][:, None] + np.arange(size)
    return answers.worker.take(edge), answers.value.take(edge, axis=0)
