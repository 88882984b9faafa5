"""The portable backend: numpy only, always there, and the oracle for any other.

Tasks are grouped by number of answers and way of inference, and worked through in blocks of
bounded size. Messages are kept as whole numbers of a small quantum (M16), so that the sums per
worker come out the same to the last bit in whatever order they are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.answers import Answers
from voxpop.backends import Inference, WorkerSums
from voxpop.errors import require
from voxpop.kernels import enumerate as enumeration
from voxpop.kernels import integrate as integration
from voxpop.kernels.posterior import Posterior, known
from voxpop.model import Model
from voxpop.tables import Floats

# Most configurations of one task that are enumerated rather than integrated over.
MOST_CONFIGURATIONS = 2048
# Numbers in flight in one block, and numbers kept between sweeps: 8 MB and 256 MB.
_BLOCK_NUMBERS = 1_000_000
_CACHE_NUMBERS = 32_000_000


class Way(Protocol):
    """One way to work out what tasks of the same degree say."""

    name: str
    numbers_per_task: int
    """Numbers in flight while one task is worked out."""

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Write the log messages of some rows, largest entry 0."""

    def posterior(self, rows: slice, incoming: Floats, probabilities: Floats) -> Posterior:
        """Return what is known of the truths of some rows."""


class Enumeration:
    """Tasks whose levels are summed over jointly, all coordinates together."""

    name = "enumerate"

    def __init__(self, value: Floats, prior_mean: Floats, model: Model, room: int) -> None:
        self._value, self._prior_mean = value, prior_mean
        self._prior_precision = model.prior_precision
        self._c = enumeration.configurations(
            tuple(model.support), value.shape[1], model.prior_precision
        )
        n_configurations = len(self._c.total)
        self.numbers_per_task = n_configurations * (2 + value.shape[2])
        self._factor: Floats | None = None
        self.kept = 0
        if len(value) * n_configurations <= room:
            self.kept = len(value) * n_configurations
            self._factor = np.concatenate(
                [
                    self._make_factor(rows)
                    for rows in blocks(len(value), max(1, _BLOCK_NUMBERS // n_configurations))
                ]
            )

    def _make_factor(self, rows: slice) -> Floats:
        log_c = enumeration.log_factor(self._value[rows], self._prior_mean[rows], self._c)
        return enumeration.scaled_factor(log_c)

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Sum over configurations."""
        factor = self._make_factor(rows) if self._factor is None else self._factor[rows]
        enumeration.send(self._value[rows], self._prior_mean[rows], incoming, self._c, factor, out)

    def posterior(self, rows: slice, incoming: Floats, probabilities: Floats) -> Posterior:
        """Return the mixture over configurations."""
        value, prior_mean = self._value[rows], self._prior_mean[rows]
        table = enumeration.belief(value, prior_mean, incoming, self._c)
        return enumeration.posterior(
            table, value, prior_mean, self._prior_precision, self._c, probabilities
        )


class Integration:
    """One-dimensional tasks whose truth is integrated over."""

    name = "integrate"

    def __init__(
        self, value: Floats, prior_mean: Floats, model: Model, accuracy: float, room: int
    ) -> None:
        self._value, self._prior_mean = value[:, :, 0], prior_mean[:, 0]
        self._levels, self._variance = model.levels, model.prior_variance
        self._accuracy = accuracy
        # The task with the widest spread is the last; its nodes are the most.
        longest = self._place(slice(len(value) - 1, len(value))).x.shape[1]
        self.numbers_per_task = longest * value.shape[1] * (len(self._levels) + 3)
        self._kept_rows = min(len(value), room // (2 * longest))
        self.kept = self._kept_rows * 2 * longest
        self._nodes: dict[int, integration.Nodes] = {}

    def _place(self, rows: slice) -> integration.Nodes:
        return integration.place_nodes(
            self._value[rows], self._levels, self._prior_mean[rows], self._variance, self._accuracy
        )

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Integrate on nodes that are kept for the next sweep while there is room."""
        nodes = self._nodes.get(rows.start)
        if nodes is None:
            nodes = self._place(rows)
            if rows.stop <= self._kept_rows:
                self._nodes[rows.start] = nodes
        integration.send(
            self._value[rows],
            self._prior_mean[rows],
            self._variance,
            incoming,
            self._levels,
            nodes,
            out,
        )

    def posterior(self, rows: slice, incoming: Floats, probabilities: Floats) -> Posterior:
        """Return the density on finer nodes."""
        return integration.posterior(
            self._value[rows],
            self._prior_mean[rows],
            self._variance,
            incoming,
            self._levels,
            self._accuracy,
            probabilities,
        )


class Gold:
    """Tasks whose truth is known: what they say never changes (M11)."""

    name = "gold"

    def __init__(self, value: Floats, gold: Floats, model: Model) -> None:
        self._gold = gold
        squared = ((value - gold[:, None, :]) ** 2).sum(axis=2)
        message = -0.5 * (
            squared[:, :, None] / model.levels + value.shape[2] * np.log(model.levels)
        )
        self._message = message - message.max(axis=2, keepdims=True)
        self.numbers_per_task = max(1, message[0].size)

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:  # noqa: ARG002
        """Say how likely the answer is at each level, the truth being known."""
        out[:] = self._message[rows]

    def posterior(self, rows: slice, incoming: Floats, probabilities: Floats) -> Posterior:  # noqa: ARG002
        """Return the truth itself, without any spread."""
        return known(self._gold[rows], len(probabilities))


class Group:
    """Rows of the same degree that are worked out the same way, with their messages.

    A row is a task, or one coordinate of a task where coordinates are taken apart (M15).
    """

    def __init__(
        self,
        way: Way,
        task: NDArray[np.int64],
        coordinates: slice,
        worker: NDArray[np.int32],
        origin: Floats,
        n_levels: int,
    ) -> None:
        self.way, self.task, self.coordinates, self.worker = way, task, coordinates, worker
        self.origin = origin
        self.message = np.zeros((*worker.shape, n_levels), dtype=np.int64)

    def blocks(self) -> Iterator[slice]:
        """Cut the rows into blocks of bounded memory."""
        return blocks(len(self.task), max(1, _BLOCK_NUMBERS // self.way.numbers_per_task))


class Portable:
    """Belief propagation in numpy; see :class:`voxpop.backends.Backend`."""

    def __init__(
        self, answers: Answers, model: Model, inference: Inference, accuracy: float
    ) -> None:
        require(
            inference in ("auto", "enumerate", "integrate"),
            f"inference must be 'auto', 'enumerate' or 'integrate', got {inference!r}",
        )
        self._shape = (answers.n_tasks, answers.dimension)
        self._unit = noise_unit(model)
        answers, model = in_units(answers, model, self._unit)
        self._groups = list(_groups(answers, model, inference, accuracy))
        self.used: dict[str, int] = {}
        for group in self._groups:
            n_tasks = len(np.unique(group.task)) if group.coordinates.start == 0 else 0
            self.used[group.way.name] = self.used.get(group.way.name, 0) + n_tasks
        apart = any(len(g.origin[0]) < answers.dimension for g in self._groups)
        messages = answers.worker_degree.max() * (answers.dimension if apart else 1)
        self.quantum, self._floor = fixed_point(int(messages))
        self._sums = np.zeros((answers.n_workers, len(model.support)), dtype=np.int64)
        self._log_weights = model.log_weights

    def to_workers(self, damping: float) -> tuple[WorkerSums, float]:
        """Work out all messages to workers, and add them up."""
        sums, change = np.zeros_like(self._sums), 0.0
        for group in self._groups:
            for rows in group.blocks():
                old = group.message[rows]
                log_message = np.empty(old.shape)
                group.way.send(rows, self._incoming(group, rows), log_message)
                np.maximum(log_message, self._floor, out=log_message)
                if damping:
                    log_message *= 1.0 - damping
                    log_message += damping * self.quantum * old
                new = np.rint(log_message / self.quantum).astype(np.int64)
                change = max(change, self._largest_change(old, new))
                group.message[rows] = new
                _add_to_workers(sums, group.worker[rows], new)
        return sums, change

    def to_tasks(self, sums: WorkerSums, log_weights: Floats) -> None:
        """Keep the workers' sums; a task's own message is taken off when it listens."""
        self._sums, self._log_weights = sums, log_weights

    def moments(self, probabilities: Floats) -> Posterior:
        """Collect the posteriors of all rows."""
        estimate, variance = np.empty(self._shape), np.empty(self._shape)
        quantile = np.empty((*self._shape, len(probabilities)))
        for group in self._groups:
            for rows in group.blocks():
                found = group.way.posterior(rows, self._incoming(group, rows), probabilities)
                at = (group.task[rows], group.coordinates)
                # Answers were centred within their task, to keep small differences of large
                # values; here the origin comes back.
                estimate[at] = (found.estimate + group.origin[rows]) * self._unit
                variance[at] = found.variance * self._unit**2
                quantile[at] = (found.quantile + group.origin[rows][:, :, None]) * self._unit
        return Posterior(estimate, variance, quantile)

    def _incoming(self, group: Group, rows: slice) -> Floats:
        """M4: the workers' beliefs, each without the message of the task it goes to."""
        cavity = self._sums[group.worker[rows]] - group.message[rows]
        log_message = cavity * self.quantum + self._log_weights
        return np.asarray(log_message - log_message.max(axis=2, keepdims=True))

    def _largest_change(self, old: WorkerSums, new: WorkerSums) -> float:
        before, after = np.exp(old * self.quantum), np.exp(new * self.quantum)
        before /= before.sum(axis=2, keepdims=True)
        after /= after.sum(axis=2, keepdims=True)
        return float(np.abs(after - before).max())


def _add_to_workers(sums: WorkerSums, worker: NDArray[np.int32], message: WorkerSums) -> None:
    # One flat index per number is what numpy adds fastest.
    n_levels = sums.shape[1]
    flat = worker.astype(np.intp)[:, :, None] * n_levels + np.arange(n_levels)
    np.add.at(sums.reshape(-1), flat.reshape(-1), message.reshape(-1))


def noise_unit(model: Model) -> float:
    """Power of two near the middle of the levels' standard deviations.

    In units of it no product of precisions over- or underflows, and nothing is rounded.
    """
    return float(2.0 ** np.rint(0.25 * np.log2(model.levels[[0, -1]]).sum()))


def in_units(answers: Answers, model: Model, unit: float) -> tuple[Answers, Model]:
    """Express values, levels and prior in multiples of ``unit``."""
    gold = None if answers.gold is None else answers.gold / unit
    return (
        replace(answers, value=answers.value / unit, gold=gold),
        replace(
            model,
            support=(model.levels / unit**2).tolist(),
            prior_mean=np.asarray(model.prior_mean) / unit,
            prior_variance=model.prior_variance / unit**2,
        ),
    )


def fixed_point(n_messages: int) -> tuple[float, float]:
    """Choose the quantum of messages, and the lowest message kept, in nats (M16).

    ``n_messages`` is the most messages that any worker gets: their sum must fit 62 bits.
    """
    lowest = float(np.clip(2.0**24 / n_messages, 512.0, 2.0**20))
    bits = 62 - int(np.ceil(np.log2(n_messages * lowest)))
    return 2.0**-bits, -lowest


def _groups(
    answers: Answers, model: Model, inference: Inference, accuracy: float
) -> Iterator[Group]:
    """Sort the tasks into groups by degree and way; refuse what cannot be enumerated."""
    n_levels, degree = len(model.support), answers.task_degree
    prior_mean = model.prior_means(answers.n_tasks)
    everything = slice(0, answers.dimension)
    room = _CACHE_NUMBERS
    for size in np.unique(degree).tolist():
        gold_tasks = np.flatnonzero((degree == size) & answers.is_gold)
        tasks = np.flatnonzero((degree == size) & ~answers.is_gold)
        if len(gold_tasks):
            assert answers.gold is not None
            worker, value, origin = _gather(answers, gold_tasks, size)
            gold = answers.gold[gold_tasks]
            way: Way = Gold(value + origin[:, None, :], gold, model)
            yield Group(way, gold_tasks, everything, worker, np.zeros_like(gold), n_levels)
        if not len(tasks):
            continue
        if _enumerates(inference, n_levels, size):
            worker, value, origin = _gather(answers, tasks, size)
            enumerated = Enumeration(value, prior_mean[tasks] - origin, model, room)
            room -= enumerated.kept
            yield Group(enumerated, tasks, everything, worker, origin, n_levels)
            continue
        for j in range(answers.dimension):
            worker, value, origin = _gather(answers, tasks, size)
            # Tasks of similar spread side by side need similarly many nodes.
            by_spread = np.argsort(np.ptp(value[:, :, j], axis=1), kind="stable")
            task, worker = tasks[by_spread], worker[by_spread]
            value, origin = value[by_spread, :, j : j + 1], origin[by_spread, j : j + 1]
            centred_prior = prior_mean[task, j : j + 1] - origin
            integrated = Integration(value, centred_prior, model, accuracy, room)
            room -= integrated.kept
            yield Group(integrated, task, slice(j, j + 1), worker, origin, n_levels)


def _enumerates(inference: Inference, n_levels: int, degree: int) -> bool:
    n_configurations = float(n_levels) ** degree
    if inference == "enumerate":
        require(
            n_configurations <= 2**22,
            f"a task with {degree} answers has {n_levels}^{degree} configurations of levels, too "
            "many to enumerate; use inference='auto'",
        )
    # With one answer there is nothing to integrate against a flat prior.
    return (
        inference == "enumerate"
        or degree == 1
        or (inference == "auto" and n_configurations <= MOST_CONFIGURATIONS)
    )


def _gather(
    answers: Answers, tasks: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int32], Floats, Floats]:
    """Collect workers and centred values of tasks with ``size`` answers each."""
    edge = answers.task_ptr[tasks][:, None] + np.arange(size)
    value = answers.value[edge]
    # The middle answer: its difference from any other is exact where that matters.
    origin = np.sort(value, axis=1)[:, size // 2, :]
    return answers.worker[edge], value - origin[:, None, :], origin


def blocks(n: int, size: int) -> Iterator[slice]:
    """Cut n rows into slices of at most ``size``."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
