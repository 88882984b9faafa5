"""Kernel sets: what an implementation of the kernels (numpy, compiled, a GPU's) must offer.

A kernel computes the messages of many tasks with the same number of answers at once. A set has two
ways to sum over the levels of a task's workers, all coordinates together, and one to integrate over
the truth, coordinate by coordinate; the last carries every noise model, the paper's included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.data.exact import largest_by_owner, owner_sums, owner_values
from voxpop.inference.kernels.integrate import Law
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

Workers = NDArray[np.int32]

# Messages that are gathered at once: a few megabytes.
_GATHERED = 1 << 16


@dataclass(frozen=True, eq=False)
class SweepState:
    """The input of all tasks in one sweep: the workers' sums (m, K), in units of a quantum (M16).

    ``floor`` is the lowest log message kept, ``damping`` the share of the old message in the new.
    """

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


class Edges(NamedTuple):
    """The workers (n, l) of some tasks, and the messages (n, l, K) to them."""

    worker: Workers
    message: WorkerSums


class BiasEdges(NamedTuple):
    """The workers (n, l) of some tasks, and the messages (n, l) about their biases."""

    worker: Any
    precision: Any
    pull: Any


@dataclass(frozen=True, eq=False)
class BiasMessages:
    """One coordinate of the workers' biases: beliefs (m,), and the messages about them (n, l).

    A belief is a mean and a precision; a message a precision and a precision times a mean. A sweep
    replaces the messages, with this ``damping``.
    """

    mean: Floats
    precision: Floats
    edge_precision: Floats
    edge_pull: Floats
    damping: float


@dataclass(frozen=True, eq=False)
class RowInputs:
    """Rows (one coordinate of one task each) to integrate over, as ``kernels.integrate.Rows``.

    ``value`` (n, l) are the answers; the kernel combines them with their workers' messages.
    """

    value: Floats
    prior_mean: Floats
    low: Floats
    high: Floats
    known: Floats
    log_class: Floats
    bias: BiasMessages | None = None


class Integrals(NamedTuple):
    """The input of a kernel that integrates over rows."""

    law: Law
    rows: RowInputs
    state: SweepState
    edges: Edges


@dataclass(frozen=True, eq=False)
class MatchInputs:
    """Rows of any degree, at most ``most``, to match moments in: ``kernels.match.MatchedRows``.

    ``value`` (E,) are the answers, row by row; ``site`` and ``prior_site`` are replaced. Only rows
    that are ``sending`` (n,) do anything; None: all.
    """

    ptr: Index
    most: int
    value: Floats
    prior_mean: Floats
    known: Floats
    log_class: Floats
    site: Floats
    prior_site: Floats
    bias: BiasMessages | None = None
    sending: NDArray[np.bool_] | None = None


class Matching(NamedTuple):
    """The input of a kernel that matches moments in rows."""

    law: Law
    rows: MatchInputs
    state: SweepState
    edges: Edges


@dataclass(frozen=True, eq=False)
class ExpectedCounts:
    """Sums over all rows that learning needs; see ``kernels.integrate.Outgoing``.

    ``components``, ``pull`` and ``precision`` are per coordinate, (d, J), (d,) and (d,).
    """

    pairs: Floats
    classes: Floats
    components: Floats
    pull: Floats
    precision: Floats


@dataclass(frozen=True, eq=False)
class Predictions:
    """Every answer as predicted by the others: log density, PIT, and moments.

    ``truth_mean`` and ``truth_variance`` are the moments of the truth given the others, ``bias``
    the belief about the worker's without this answer, ``variance`` that of the predicted answer.
    """

    log_density: Floats
    pit: Floats
    truth_mean: Floats
    truth_variance: Floats
    bias: Floats
    variance: Floats

    def in_units(self, origin: Floats, unit: float) -> tuple[Floats, ...]:
        """Return all six in the units of the answers, given the origin of each row."""
        return (
            self.log_density - np.log(unit), self.pit, (self.truth_mean + origin) * unit,
            self.truth_variance * unit**2, self.bias * unit, self.variance * unit**2,
        )  # fmt: skip


class TaskKernel(Protocol):
    """One way to compute the messages of tasks of the same degree, under the paper's noise."""

    kept: int
    """Numbers kept between sweeps."""

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the posterior of the truths."""


class WarmStartKernel(TaskKernel, Protocol):
    """A kernel that is slow from flat messages, and can guess better ones to start from.

    Its messages are accurate as probabilities, not in logs: tasks none of whose workers has changed
    its belief, as a probability, need not be computed again.
    """

    def guess(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """As ``sweep``, but roughly and quickly (M27)."""

    def some(self, rows: NDArray[np.intp]) -> TaskKernel:
        """Return the kernel of some of the rows."""


class Arrays(Protocol):
    """The place where a kernel set keeps per-answer arrays and the workers' sums.

    Values, workers and messages stay there from sweep to sweep; other code reads them by ``fetch``.
    """

    def bring(self, array: NDArray[Any]) -> Any:
        """Bring an array there."""

    def fetch(self, array: Any) -> NDArray[Any]:
        """Bring an array back."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros there."""

    def take(self, array: Any, rows: NDArray[np.intp]) -> Any:
        """Copy some rows."""

    def put(self, array: Any, rows: NDArray[np.intp], part: Any) -> None:
        """Overwrite some rows."""

    def add_messages(self, sums: Any, edges: Edges, sign: int = 1) -> None:
        """Add messages to the sums of their workers."""

    def recentre(self, worker: Any, precision: Any, pull: Any, shift: Floats) -> None:
        """Take ``shift`` (m,) off every worker's bias, in the messages about it (n, l)."""

    def sum_by_worker(self, groups: Sequence[tuple[Any, Any]], n_workers: int) -> Floats:
        """Sum numbers over the answers of each worker; groups are of workers and numbers (n, l).

        The same bits come out on every run; on the host also in any order of the answers.
        """

    def gather(self, per_edge: Any, edge: Index, levels: Index | None = None) -> Any:
        """Copy messages (E, 1, ...) at the edges (n, l), or some of their levels: (n, l, ...)."""


class HostArrays:
    """Arrays that stay where they are, for kernels in numpy and compiled ones."""

    def bring(self, array: NDArray[Any]) -> Any:
        """Leave an array where it is."""
        return array

    def fetch(self, array: Any) -> NDArray[Any]:
        """Leave an array where it is."""
        return np.asarray(array)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros."""
        return np.zeros(shape, dtype)

    def take(self, array: Any, rows: NDArray[np.intp]) -> Any:
        """Copy some rows."""
        return array[rows]

    def put(self, array: Any, rows: NDArray[np.intp], part: Any) -> None:
        """Overwrite some rows."""
        array[rows] = part

    def add_messages(self, sums: Any, edges: Edges, sign: int = 1) -> None:
        """Add messages to the sums of their workers."""
        add_to_workers(sums, edges.worker, edges.message if sign == 1 else sign * edges.message)

    def recentre(self, worker: Any, precision: Any, pull: Any, shift: Floats) -> None:
        """Take ``shift`` (m,) off every worker's bias, in the messages about it (n, l)."""
        pull -= precision * shift[worker]

    def sum_by_worker(self, groups: Sequence[tuple[Any, Any]], n_workers: int) -> Floats:
        """Sum numbers over the answers of each worker: the same bits in any order."""
        flat = [(worker.ravel(), per_edge.ravel()) for worker, per_edge in groups]
        largest, limbs = np.zeros(n_workers), np.zeros((2, n_workers), np.int64)
        for worker, terms in flat:
            np.maximum(largest, largest_by_owner(worker, terms, n_workers), out=largest)
        for worker, terms in flat:
            limbs += owner_sums(worker, terms, largest)
        return owner_values(limbs, largest)

    def gather(self, per_edge: Any, edge: Index, levels: Index | None = None) -> Any:
        """Copy messages (E, 1, ...) at the edges (n, l), or some of their levels: (n, l, ...)."""
        found = per_edge[:, 0]
        if levels is None:
            return found[edge]
        flat = edge.reshape(-1)
        out = np.empty((len(flat), len(levels)), dtype=found.dtype)
        # Whole messages first: numpy copies rows several times as fast as single numbers.
        for start in range(0, len(flat), _GATHERED):
            some = slice(start, start + _GATHERED)
            out[some] = found[flat[some]][:, levels]
        return out.reshape(*edge.shape, len(levels))


class KernelSet(Arrays, Protocol):
    """One implementation of all kernels."""

    def centre(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values (n, l, d) in multiples of a unit less an origin, and the origins (n, d).

        The origin is the middle answer of the task, in each coordinate: its difference from any
        other is exact where that matters. The unit is a power of two.
        """

    def enumeration(self, value: Floats, prior_mean: Floats, model: Model, room: int) -> TaskKernel:
        """Sum over all configurations of the levels; ``room`` is for numbers that are kept."""

    def pruned_enumeration(
        self, value: Floats, prior_mean: Floats, model: Model, accuracy: float
    ) -> TaskKernel:
        """Sum over configurations that can matter; see also :class:`WarmStartKernel`."""

    def integrate_sweep(
        self, given: Integrals, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Replace all messages, and add them to the sums.

        Returns the largest change, the evidence for each class (n, C), and if they are wanted the
        counts in one array: pairs, classes, components, pull, precision.
        """

    def integrate_posterior(
        self, given: Integrals, probabilities: Floats
    ) -> tuple[Posterior, Floats]:
        """Return the posterior of the truths (n, 1) and of the classes (n, C)."""

    def integrate_predict(self, given: Integrals, with_pit: bool = True) -> Predictions:
        """Predict each answer (n, l) from the others; the PIT may be left out."""

    def match_sweep(
        self, given: Matching, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Replace messages and sites, and add the messages to the sums.

        Returns the sum of the squared changes of the truths' means, in sds and in steps (see
        ``kernels.match``), and what ``integrate_sweep`` does.
        """

    def match_predict(self, given: Matching, with_pit: bool = True) -> Predictions:
        """Predict each answer (E, 1) from the others; the PIT may be left out."""


def belief(units: WorkerSums, quantum: float, log_weights: Floats) -> Floats:
    """Return the probabilities of the levels, from sums of messages (m, K)."""
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
