"""The kernels in numpy: always there, and the reference for any other set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.cost_model import most_free
from voxpop.inference.kernel_set import (
    BiasMessages,
    Edges,
    HostArrays,
    Integrals,
    Matching,
    Predictions,
    RowInputs,
    SweepState,
    add_to_workers,
)
from voxpop.inference.kernels import active, integrate, match
from voxpop.inference.kernels import enumerate as enumeration
from voxpop.inference.kernels.integrate import Rows
from voxpop.inference.kernels.match import MatchedRows
from voxpop.inference.kernels.nodes import Aim
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# Numbers in flight in one block: 8 MB.
_BLOCK_NUMBERS = 1_000_000
# Nodes that a row is expected to need, for the size of a block.
_USUAL_NODES = 250

Send = Callable[[slice, Floats, Floats], None]
"""Write the outgoing log messages of some rows, given the incoming ones; the largest entry is 0."""


def blocks(n: int, numbers_per_task: int) -> Iterator[slice]:
    """Cut n rows into blocks of bounded memory."""
    size = max(1, _BLOCK_NUMBERS // numbers_per_task)
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def sweep_in_blocks(
    send: Send, numbers_per_task: int, state: SweepState, edges: Edges, new_sums: WorkerSums
) -> float:
    """Compute messages block by block: clip, damp, round, compare and add them up."""
    change = 0.0
    for rows in blocks(len(edges.worker), numbers_per_task):
        worker, old = edges.worker[rows], edges.message[rows]
        log_message = np.empty(old.shape)
        send(rows, state.incoming(worker, old), log_message)
        new = _rounded(log_message, old, state)
        moved = np.abs(_softmax(new, state.quantum) - _softmax(old, state.quantum))
        change = max(change, float(moved.max()))
        edges.message[rows] = new
        add_to_workers(new_sums, worker, new)
    return change


def _rounded(log_message: Floats, old: WorkerSums, state: SweepState) -> WorkerSums:
    """Clip and damp new messages, and round them to the quantum (M16)."""
    log_message = np.maximum(log_message, state.floor)
    if state.damping:
        log_message *= 1.0 - state.damping
        log_message += state.damping * state.quantum * old
    return np.asarray(np.rint(log_message / state.quantum).astype(np.int64))


def _softmax(message: WorkerSums, quantum: float) -> Floats:
    # Damping leaves messages whose largest entry is below 0.
    p = np.exp((message - message.max(axis=2, keepdims=True)) * quantum)
    p /= p.sum(axis=2, keepdims=True)
    return np.asarray(p)


class Enumeration:
    """Tasks whose levels are summed over jointly, all coordinates together."""

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

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return sweep_in_blocks(self.send, self.numbers_per_task, state, edges, new_sums)

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the mixture over configurations."""
        parts = []
        for rows in blocks(len(self._value), self.numbers_per_task):
            value, prior_mean = self._value[rows], self._prior_mean[rows]
            incoming = state.incoming(edges.worker[rows], edges.message[rows])
            table = enumeration.belief(value, prior_mean, incoming, self._c)
            parts.append(
                enumeration.posterior(
                    table, value, prior_mean, self._prior_precision, self._c, probabilities
                )
            )
        return Posterior.join(parts)


class PrunedEnumeration:
    """Tasks of which only configurations that can matter are summed over."""

    kept = 0

    def __init__(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> None:
        self._dense = Enumeration(value, prior_mean, model, 0)
        self._value, self._prior_mean, self._model = value, prior_mean, model
        self._accuracy = accuracy
        self._most_free = most_free(len(model.support), value.shape[1])

    def _send(self, rows: slice, incoming: Floats, out: Floats) -> None:
        """Sum over the configurations that matter; where these are many, over all."""
        settled = active.send(
            self._value[rows],
            self._prior_mean[rows],
            self._model.prior_precision,
            incoming,
            self._model.levels,
            self._accuracy,
            self._most_free,
            out,
        )
        # One at a time: plain enumeration by matrix products rounds by the size of a block.
        for i in np.flatnonzero(~settled):
            row = slice(rows.start + i, rows.start + i + 1)
            self._dense.send(row, incoming[i : i + 1], out[i : i + 1])

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return sweep_in_blocks(self._send, self._dense.numbers_per_task, state, edges, new_sums)

    def guess(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Use the others' average as the truth (M27)."""
        levels = self._model.levels

        def send(rows: slice, incoming: Floats, out: Floats) -> None:
            value, prior_mean = self._value[rows], self._prior_mean[rows]
            active.guess(value, prior_mean, self._model.prior_precision, incoming, levels, out)

        size = 8 * self._value[0].size * len(levels)
        return sweep_in_blocks(send, size, state, edges, new_sums)

    def some(self, rows: NDArray[np.intp]) -> PrunedEnumeration:
        """Return the kernel of some of the rows."""
        value, prior_mean = self._value[rows], self._prior_mean[rows]
        return PrunedEnumeration(value, prior_mean, self._model, self._accuracy)

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the mixture over all configurations."""
        return self._dense.posterior(state, edges, probabilities)


class NumpyKernels(HostArrays):
    """All kernels in numpy."""

    enumeration = staticmethod(Enumeration)
    pruned_enumeration = staticmethod(PrunedEnumeration)

    def centre(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values relative to an origin of their task, and the origins."""
        value, middle = value / unit, value.shape[1] // 2
        origin = np.partition(value, middle, axis=1)[:, middle, :]
        return value - origin[:, None, :], origin

    def integrate_sweep(
        self, given: Integrals, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Integrate where there is mass."""
        law, rows, state, edges = given
        evidence = np.empty(rows.log_class.shape)
        counts: list[Floats] = []

        def send(some: slice, incoming: Floats, out: Floats) -> None:
            block = _rows(rows, edges.worker, some, incoming)
            found = integrate.send(block, law, integrate.nodes_of(block, law))
            out[:], evidence[some] = found.message, found.evidence
            old = rows.value[some] - block.centre
            _send_bias(rows.bias, some, old, block.spread, found.shift, found.shift_variance)
            sums = found.pairs.ravel(), found.classes, found.components
            counts.append(np.concatenate([*sums, [found.pull, found.precision]]))

        change = sweep_in_blocks(send, _numbers_per_row(given), state, edges, new_sums)
        return change, evidence, np.sum(counts, axis=0) if is_counted else None

    def integrate_posterior(
        self, given: Integrals, probabilities: Floats
    ) -> tuple[Posterior, Floats]:
        """Return the density on finer nodes."""
        parts = [
            integrate.posterior(block, given.law, probabilities) for _, block in _row_blocks(given)
        ]
        posterior = Posterior.join([part[0] for part in parts])
        return posterior, np.concatenate([part[1] for part in parts])

    def integrate_predict(self, given: Integrals, with_pit: bool = True) -> Predictions:
        """Predict each answer from the others."""
        del with_pit  # it is computed anyway
        value = given.rows.value
        out = np.empty((6, *value.shape))
        for some, block in _row_blocks(given):
            nodes = integrate.nodes_of(block, given.law, Aim.PREDICTIONS)
            p = integrate.predict(block, given.law, nodes)
            bias = value[some] - block.centre
            out[:, some] = p.log_density, p.pit, p.mean, p.truth_variance, bias, p.variance
        return Predictions(*out)

    def match_sweep(
        self, given: Matching, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Match moments, of all rows at once."""
        law, rows, state, (worker, message) = given
        block = _matched_rows(given)
        found, site, prior_site, moved = match.send(block, law, state.damping)
        sending = np.ones(len(rows.known), bool) if rows.sending is None else rows.sending
        edge = np.repeat(sending, np.diff(rows.ptr))
        rows.site[:, edge], rows.prior_site[:, sending] = site[:, edge], prior_site[:, sending]
        old = rows.value - block.centre
        about = old, block.spread, found.shift, found.shift_variance
        _send_bias(rows.bias, edge, *(part[edge, None] for part in about))
        new = _rounded(found.message[:, None], message, state)
        message[edge] = new[edge]
        add_to_workers(new_sums, worker[edge], new[edge])
        counts = None
        if is_counted:
            sums = found.pairs.ravel(), found.classes, found.components
            counts = np.concatenate([*sums, [found.pull, found.precision]])
        return moved, found.evidence, counts

    def match_predict(self, given: Matching, with_pit: bool = True) -> Predictions:
        """Predict each answer from the others."""
        del with_pit
        block = _matched_rows(given)
        p = match.predict(block, given.law)
        bias = given.rows.value - block.centre
        parts = p.log_density, p.pit, p.mean, p.truth_variance, bias, p.variance
        return Predictions(*(part[:, None] for part in parts))


def _numbers_per_row(given: Integrals) -> int:
    return int(given.rows.value.shape[1]) * len(given.law.grid.variance) * _USUAL_NODES


def _row_blocks(given: Integrals) -> Iterator[tuple[slice, Rows]]:
    worker, message = given.edges
    for some in blocks(len(worker), _numbers_per_row(given)):
        incoming = given.state.incoming(worker[some], message[some])
        yield some, _rows(given.rows, worker, some, incoming)


def _without_bias(
    value: Floats, bias: BiasMessages | None, worker: NDArray[np.int32], some: slice
) -> tuple[Floats, Floats]:
    """Subtract the cavity belief about the bias from each answer (M31); its variance too."""
    if bias is None:
        return value, np.zeros_like(value)
    who = worker[some]
    precision = bias.precision[who] - bias.edge_precision[some]
    pull = bias.mean[who] * bias.precision[who] - bias.edge_pull[some]
    spread = 1.0 / np.maximum(precision, 1e-300)
    return value - pull * spread, spread


def _matched_rows(given: Matching) -> MatchedRows:
    rows, (worker, message) = given.rows, given.edges
    everything = slice(None)
    centre, spread = _without_bias(rows.value[:, None], rows.bias, worker, everything)
    return MatchedRows(
        rows.ptr, centre[:, 0], spread[:, 0], given.state.incoming(worker, message)[:, 0],
        rows.log_class, rows.prior_mean, rows.known, rows.site, rows.prior_site,
    )  # fmt: skip


def _rows(rows: RowInputs, worker: NDArray[np.int32], some: slice, incoming: Floats) -> Rows:
    centre, spread = _without_bias(rows.value[some], rows.bias, worker, some)
    return Rows(
        centre, spread, incoming, rows.log_class[some], rows.prior_mean[some],
        rows.low[some], rows.high[some], rows.known[some],
    )  # fmt: skip


def _send_bias(
    bias: BiasMessages | None,
    some: slice | NDArray[np.bool_],
    old: Floats,
    before: Floats,
    shift: Floats,
    shift_variance: Floats,
) -> None:
    """Divide the belief about a bias with the answer by that without (M31).

    Without it, the bias has the mean ``old`` and the variance ``before``.
    """
    if bias is None:
        return
    variance = np.clip(shift_variance, 1e-12 * before, before)
    precision = np.maximum(1.0 / variance - 1.0 / before, 1e-9 / before)
    pull = (old + shift) * (precision + 1.0 / before) - old / before
    for kept, new in ((bias.edge_precision, precision), (bias.edge_pull, pull)):
        kept[some] = bias.damping * kept[some] + (1.0 - bias.damping) * new
