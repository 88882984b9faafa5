"""The portable backend: numpy only, always there, and the oracle for any other."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.cost_model import most_free
from voxpop.inference.kernel_set import Heard, Sweep, Way, Workers, add_to_workers
from voxpop.inference.kernels import active
from voxpop.inference.kernels import enumerate as enumeration
from voxpop.inference.kernels import integrate as integration
from voxpop.inference.kernels.nodes import Tasks, place_nodes
from voxpop.inference.kernels.posterior import Posterior, known, log_known
from voxpop.inference.message_passing import blocks
from voxpop.models.model import Model


class Speaker(Protocol):
    """A way that writes the log messages of a block of rows, and leaves the rest to a sweep."""

    numbers_per_task: int

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Write the log messages of some rows, largest entry 0."""


def sweep_in_blocks(
    way: Speaker, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
) -> float:
    """Let a group speak, block by block: clip, damp, round, compare and add up its messages."""
    change = 0.0
    for rows in blocks(len(worker), way.numbers_per_task):
        old = message[rows]
        log_message = np.empty(old.shape)
        way.send(rows, sweep.incoming(worker[rows], old), log_message)
        np.maximum(log_message, sweep.floor, out=log_message)
        if sweep.damping:
            log_message *= 1.0 - sweep.damping
            log_message += sweep.damping * sweep.quantum * old
        new = np.rint(log_message / sweep.quantum).astype(np.int64)
        change = max(change, _largest_change(old, new, sweep.quantum))
        message[rows] = new
        add_to_workers(new_sums, worker[rows], new)
    return change


def _largest_change(old: WorkerSums, new: WorkerSums, quantum: float) -> float:
    return float(np.abs(_softmax(new, quantum) - _softmax(old, quantum)).max())


def _softmax(message: WorkerSums, quantum: float) -> Floats:
    # Damping leaves messages whose largest entry is below 0.
    p = np.exp((message - message.max(axis=2, keepdims=True)) * quantum)
    p /= p.sum(axis=2, keepdims=True)
    return np.asarray(p)


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
                [self._make_factor(rows) for rows in blocks(len(value), n_configurations)]
            )

    def _make_factor(self, rows: slice) -> Floats:
        log_c = enumeration.log_factor(self._value[rows], self._prior_mean[rows], self._c)
        return enumeration.scaled_factor(log_c)

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Sum over configurations."""
        factor = self._make_factor(rows) if self._factor is None else self._factor[rows]
        enumeration.send(self._value[rows], self._prior_mean[rows], incoming, self._c, factor, out)

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return sweep_in_blocks(self, sweep, worker, message, new_sums)

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return the mixture over configurations."""
        value, prior_mean = self._value[rows], self._prior_mean[rows]
        table = enumeration.belief(value, prior_mean, heard.incoming(), self._c)
        return enumeration.posterior(
            table, value, prior_mean, self._prior_precision, self._c, probabilities
        )


class Active:
    """Tasks of which only those configurations are summed over that can matter."""

    name = "active"
    kept = 0

    def __init__(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> None:
        self._dense = Enumeration(value, prior_mean, model, 0)
        self._task, self._model = (value, prior_mean), model
        self._levels, self._prior_precision = model.levels, model.prior_precision
        self._accuracy = accuracy
        self._most_free = most_free(len(model.support), value.shape[1])
        self.numbers_per_task = self._dense.numbers_per_task

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Sum over what matters; where that is not little, over everything."""
        value, prior_mean = (part[rows] for part in self._task)
        settled = active.send(
            value,
            prior_mean,
            self._prior_precision,
            incoming,
            self._levels,
            self._accuracy,
            self._most_free,
            out,
        )
        # One at a time: plain enumeration by matrix products rounds by the size of a block.
        for i in np.flatnonzero(~settled):
            row = slice(rows.start + i, rows.start + i + 1)
            self._dense.send(row, incoming[i : i + 1], out[i : i + 1])

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return sweep_in_blocks(self, sweep, worker, message, new_sums)

    def guess(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Do as ``sweep`` does, roughly and quickly."""
        return sweep_in_blocks(
            _Guess(self._task, self._prior_precision, self._levels),
            sweep,
            worker,
            message,
            new_sums,
        )

    def some(self, rows: NDArray[np.intp]) -> Active:
        """Return the way of some of the rows."""
        value, prior_mean = self._task
        return Active(value[rows], prior_mean[rows], self._model, self._accuracy)

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return the mixture over all configurations."""
        return self._dense.posterior(rows, heard, probabilities)


class _Guess:
    """Speaks roughly (M27)."""

    def __init__(self, task: tuple[Floats, Floats], prior_precision: float, levels: Floats) -> None:
        self._task, self._prior_precision, self._levels = task, prior_precision, levels
        self.numbers_per_task = 8 * task[0][0].size * len(levels)

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Take the others' average for the truth."""
        value, prior_mean = (part[rows] for part in self._task)
        active.guess(value, prior_mean, self._prior_precision, incoming, self._levels, out)


class Integration:
    """One-dimensional tasks whose truth is integrated over."""

    name = "integrate"
    kept = 0

    def __init__(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> None:
        self._value, self._prior_mean = value[:, :, 0], prior_mean[:, 0]
        self._levels, self._variance = model.levels, model.prior_variance
        self._accuracy = accuracy
        # The task with the widest spread is the last; its nodes are the most.
        flat = np.zeros((1, *value.shape[1:2], len(self._levels)))
        longest = place_nodes(self._hear(slice(len(value) - 1, len(value)), flat), accuracy)
        self.numbers_per_task = longest.x.shape[1] * value.shape[1] * (len(self._levels) + 3)

    def _hear(self, rows: slice, incoming: Floats) -> Tasks:
        return Tasks.hear(
            self._value[rows], incoming, self._levels, self._prior_mean[rows], self._variance
        )

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Integrate where there is mass."""
        tasks = self._hear(rows, incoming)
        integration.send(tasks, place_nodes(tasks, self._accuracy), out)

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return sweep_in_blocks(self, sweep, worker, message, new_sums)

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return the density on finer nodes."""
        tasks = self._hear(rows, heard.incoming())
        return integration.posterior(tasks, self._accuracy, probabilities)


class Gold:
    """Tasks whose truth is known: what they say never changes (M11)."""

    name = "gold"

    def __init__(self, value: Floats, gold: Floats, model: Model) -> None:
        self._gold = gold
        message = log_known(value, gold, model.levels)
        self._message = message - message.max(axis=2, keepdims=True)
        self.numbers_per_task = max(1, message[0].size)
        self.kept = message.size

    def send(self, rows: slice, incoming: Floats, out: Floats) -> None:  # noqa: ARG002
        """Say how likely the answer is at each level, the truth being known."""
        out[:] = self._message[rows]

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return sweep_in_blocks(self, sweep, worker, message, new_sums)

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:  # noqa: ARG002
        """Return the truth itself, without any spread."""
        return known(self._gold[rows], len(probabilities))


class PortableWays:
    """The ways of this backend."""

    def centred(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values less an origin of their task, and the origins."""
        value, middle = value / unit, value.shape[1] // 2
        origin = np.partition(value, middle, axis=1)[:, middle, :]
        return value - origin[:, None, :], origin

    def gold(self, value: Floats, gold: Floats, model: Model) -> Way:
        """Take tasks whose truth is known."""
        return Gold(value, gold, model)

    def enumeration(self, value: Floats, prior_mean: Floats, model: Model, room: int) -> Way:
        """Sum over all configurations of the levels."""
        return Enumeration(value, prior_mean, model, room)

    def active(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> Way:
        """Sum over those configurations that can matter."""
        return Active(value, prior_mean, model, accuracy)

    def integration(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> Way:
        """Integrate over the truth, in one dimension."""
        return Integration(value, prior_mean, model, accuracy)
