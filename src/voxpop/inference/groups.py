"""Groups: tasks of equal degree that one kernel computes together, and their messages.

Where the levels of a task's workers are summed over, all coordinates are in one group; where the
truth is integrated over, each coordinate of a task is a row of a group of its own (M15).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.cost_model import KernelName
from voxpop.inference.kernel_set import (
    BiasEdges,
    BiasMessages,
    Edges,
    Integrals,
    KernelSet,
    Predictions,
    RowInputs,
    SweepState,
    TaskKernel,
    WarmStartKernel,
    Workers,
)
from voxpop.inference.kernels.integrate import Law, NoiseGrid
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# Rows that are put in order together.
_NEARBY_ROWS = 1 << 14
# Tasks whose classes stay in the cache.
_TASKS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class TruthPrior:
    """Prior of the truths: per coordinate a mixture of Gaussians about one mean; or flat.

    ``mean`` is (d,), or (n_tasks, d) where every task has its own; ``variance`` and ``weight`` are
    (d, J), with J = 0 for a flat prior.
    """

    mean: Floats
    variance: Floats
    weight: Floats


@dataclass(frozen=True, eq=False)
class SweepParameters:
    """The inputs of a sweep: the noise, the shares of the classes, the prior."""

    grid: NoiseGrid
    log_class: Floats
    truths: TruthPrior
    accuracy: float

    @classmethod
    def of_model(cls, model: Model, n_tasks: int, accuracy: float) -> SweepParameters:
        """The paper's noise: one class of difficulty, and a Gaussian prior or none."""
        d, n_prior = model.dimension, int(model.prior_precision > 0)
        variance = np.full((d, n_prior), model.prior_variance)
        truths = TruthPrior(model.prior_means(n_tasks), variance, np.ones((d, n_prior)))
        return cls(NoiseGrid.plain(model.levels), np.zeros(1), truths, accuracy)

    def law(self, j: int, floor: float) -> Law:
        """The common inputs of the rows of coordinate j."""
        variance, weight = self.truths.variance[j], self.truths.weight[j]
        return Law(self.grid, variance, weight, self.accuracy, floor)


@dataclass(frozen=True, eq=False)
class WorkerBias:
    """Beliefs about the workers' biases: mean and precision (m, d)."""

    mean: Floats
    precision: Floats
    damping: float = 0.0


class Group:
    """Tasks of the same degree whose levels are summed over jointly, with their messages."""

    def __init__(
        self,
        kernels: KernelSet,
        kernel: TaskKernel,
        task: Index,
        worker: Workers,
        origin: Floats,
        n_levels: int,
    ) -> None:
        self.kernel, self.task, self.worker, self.origin = kernel, task, worker, origin
        self.slot, self.coordinates = 0, slice(0, origin.shape[1])
        # Asking isinstance of a protocol takes as long as a sweep of a few hundred tasks.
        self.warm = cast(WarmStartKernel, kernel) if hasattr(kernel, "guess") else None
        self._worker = kernels.bring(worker)
        self.message = kernels.zeros((*worker.shape, n_levels), np.int64)
        self.sent: WorkerSums | None = None
        """Sums per worker of the messages of a warm kernel, which few tasks renew in a sweep."""

    @property
    def edges(self) -> Edges:
        """Workers and messages."""
        return Edges(self._worker, self.message)


class RowGroup:
    """Rows (one coordinate of one task each) of the same degree that are integrated over.

    ``value`` (n, l), ``low``, ``high`` and ``known`` (n,) are relative to ``origin`` (n, 1). Where
    coordinates are taken apart, each has a slot for its messages (M15). The messages about the
    workers' biases are (n, l), or empty. Values, bounds and messages are where the kernels are.
    """

    kernel, warm = None, None

    def __init__(
        self,
        kernels: KernelSet,
        task: Index,
        slot: int,
        worker: Workers,
        value: Floats,
        origin: Floats,
        bounds: tuple[Floats, Floats],
        known: Floats,
        n_levels: int,
        has_bias: bool,
    ) -> None:
        self._kernels, self.task, self.worker, self.has_bias = kernels, task, worker, has_bias
        self.slot, self.coordinates, self.origin = slot, slice(slot, slot + 1), origin
        self.is_known = bool(np.isfinite(known).all())
        self._worker, self.value = kernels.bring(worker), kernels.bring(value)
        self._bounds = kernels.bring(bounds[0]), kernels.bring(bounds[1])
        self._known = kernels.bring(known)
        self.message = kernels.zeros((*worker.shape, n_levels), np.int64)
        size = worker.shape if has_bias else (0, 0)
        self.bias_precision, self.bias_pull = (kernels.zeros(size, np.float64) for _ in range(2))
        self._log_class = np.zeros((len(task), 1))

    @property
    def edges(self) -> Edges:
        """Workers and messages."""
        return Edges(self._worker, self.message)

    def rows(self, rows: NDArray[np.intp]) -> RowGroup:
        """Some of the rows, with copies of their messages."""
        part = copy(self)
        for name in ("task", "worker", "origin", "_log_class"):
            setattr(part, name, getattr(self, name)[rows])
        there = ("_worker", "value", "_known", "message")
        for name in (*there, "bias_precision", "bias_pull") if self.has_bias else there:
            setattr(part, name, self._kernels.take(getattr(self, name), rows))
        low, high = (self._kernels.take(bound, rows) for bound in self._bounds)
        part._bounds = low, high
        return part

    def hidden(self) -> RowGroup:
        """The same rows, with the same messages, as if no truth were known."""
        part = copy(self)
        part._known = self._kernels.bring(np.full(len(self.task), np.nan))
        part.is_known = False
        return part

    def put_back(self, rows: NDArray[np.intp], part: RowGroup) -> None:
        """Take over the messages of some rows."""
        self._kernels.put(self.message, rows, part.message)
        if self.has_bias:
            self._kernels.put(self.bias_precision, rows, part.bias_precision)
            self._kernels.put(self.bias_pull, rows, part.bias_pull)

    @property
    def about_bias(self) -> BiasEdges:
        """Workers, and the messages about their biases."""
        return BiasEdges(self._worker, self.bias_precision, self.bias_pull)

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all messages about it."""
        of_slot = np.ascontiguousarray(shift[:, self.slot])
        self._kernels.recentre(self._worker, self.bias_precision, self.bias_pull, of_slot)

    def resume_bias(self, precision: Floats, pull: Floats) -> None:
        """Continue from messages (n, l) about the biases."""
        self.bias_precision, self.bias_pull = precision, pull

    def receive_classes(self, log_class: Floats, evidence: Floats) -> None:
        """Use the evidence of the other coordinates (n_tasks, d, C) for the class of each task."""
        if len(log_class) > 1:
            self._log_class = class_messages(log_class, evidence[self.task], self.slot)

    def sweep(
        self,
        parameters: SweepParameters,
        state: SweepState,
        bias: WorkerBias | None,
        new_sums: WorkerSums,
        is_counted: bool,
    ) -> tuple[float, Floats, Floats | None]:
        """Replace all messages; see :meth:`KernelSet.integrate_sweep`."""
        given = self._integrals(parameters, state, bias)
        return self._kernels.integrate_sweep(given, new_sums, is_counted)

    def posterior_and_classes(
        self,
        parameters: SweepParameters,
        state: SweepState,
        probabilities: Floats,
        bias: WorkerBias | None,
        bounded: bool = True,
    ) -> tuple[Posterior, Floats]:
        """Posterior of the truths, within their bounds or not, and of the classes (n, C)."""
        given = self._integrals(parameters, state, bias)
        if not bounded:
            anywhere = np.full(len(self.task), np.inf)
            given = given._replace(rows=replace(given.rows, low=-anywhere, high=anywhere))
        return self._kernels.integrate_posterior(given, probabilities)

    def predict(
        self,
        parameters: SweepParameters,
        state: SweepState,
        bias: WorkerBias | None,
        with_pit: bool,
    ) -> Predictions:
        """Predict each answer from the others."""
        given = self._integrals(parameters, state, bias)
        return self._kernels.integrate_predict(given, with_pit)

    def _integrals(
        self, parameters: SweepParameters, state: SweepState, bias: WorkerBias | None
    ) -> Integrals:
        j, mean = self.slot, parameters.truths.mean
        centre = (mean[self.task, j] if mean.ndim == 2 else mean[j]) - self.origin[:, 0]
        about = None
        if bias is not None:
            messages = self.bias_precision, self.bias_pull
            about = BiasMessages(bias.mean[:, j], bias.precision[:, j], *messages, bias.damping)
        known = self._known, self._log_class
        rows = RowInputs(self.value, centre, *self._bounds, *known, about)
        return Integrals(parameters.law(j, state.floor), rows, state, self.edges)


def bias_sums(
    kernels: KernelSet, about: list[list[BiasEdges]], n_workers: int
) -> tuple[Floats, Floats]:
    """Sum the messages about biases, by coordinate and group, of each worker: two of (m, d)."""

    def sums(which: int) -> Floats:
        parts = ([(edges.worker, edges[which]) for edges in groups] for groups in about)
        return np.stack([kernels.sum_by_worker(part, n_workers) for part in parts], axis=1)

    return sums(1), sums(2)


def class_messages(log_class: Floats, evidence: Floats, slot: int) -> Floats:
    """Log probability (n, C) of each task's class by the evidence (n, d, C) of the others."""
    found = np.empty((len(evidence), len(log_class)))
    # Class by class, some tasks at once: numpy is slow along short axes, and out of the cache.
    for start in range(0, len(evidence), _TASKS_AT_ONCE):
        some = evidence[start : start + _TASKS_AT_ONCE]
        of_class = np.tile(log_class[:, None], len(some))
        for j in range(some.shape[1]):
            if j != slot:
                of_class += some[:, j].T
        of_class -= of_class.max(axis=0)
        of_class -= np.log(sum(np.exp(of_class)))
        found[start : start + _TASKS_AT_ONCE] = of_class.T
    return found


def make_groups(
    kernels: KernelSet,
    name: KernelName,
    tasks: Index,
    worker: Workers,
    value: Floats,
    gold: Floats,
    prior_mean: Floats,
    unit: Floats,
    model: Model,
    accuracy: float,
    room: int = 0,
    bounds: Floats | None = None,
    has_bias: bool = False,
) -> Iterator[Group | RowGroup]:
    """Group tasks of equal degree: one group, or one per coordinate where these are apart.

    ``worker`` is (n, l), ``value`` (n, l, d), ``gold``, NaN where unknown, and ``prior_mean`` are
    (n, d), in the order of ``tasks``; all but the values are in multiples of ``unit`` (d,).
    """
    n_levels, dimension = len(model.support), value.shape[2]
    if (unit == unit[0]).all() and np.log2(unit[0]) % 1 == 0:
        value, origin = kernels.centre(value, float(unit[0]))
    else:
        value, origin = kernels.centre(value, 1.0)
        value, origin = value / unit, origin / unit
    if name != "integrate":
        prior_mean = prior_mean - origin
        if name == "active":
            kernel: TaskKernel = kernels.pruned_enumeration(value, prior_mean, model, accuracy)
        else:
            kernel = kernels.enumeration(value, prior_mean, model, room)
        yield Group(kernels, kernel, tasks, worker, origin, n_levels)
        return
    for j in range(dimension):
        order = _by_spread(value[:, :, j])
        low, high = np.full(len(order), -np.inf), np.full(len(order), np.inf)
        if bounds is not None:
            low, high = (bound[j] / unit[j] - origin[order, j] for bound in bounds)
        yield RowGroup(
            kernels, tasks[order], j, worker[order], np.ascontiguousarray(value[order, :, j]),
            origin[order, j : j + 1], (low, high), gold[order, j] - origin[order, j],
            n_levels, has_bias,
        )  # fmt: skip


def _by_spread(value: Floats) -> Index:
    """Order rows (n, l) by their spread, so that those side by side need similarly many nodes.

    Rows are sorted in stretches whose messages fit the cache.
    """
    spread = value.max(axis=1) - value.min(axis=1)
    blocks = range(0, len(spread), _NEARBY_ROWS)
    parts = [at + np.argsort(spread[at : at + _NEARBY_ROWS], kind="stable") for at in blocks]
    return np.concatenate(parts)


def gather_tasks(answers: Answers, tasks: Index, size: int) -> tuple[Workers, Floats]:
    """Collect workers and values of tasks with ``size`` answers each."""
    if len(tasks) * size == answers.n_edges:
        # All are wanted, and edges are sorted by task.
        return (
            answers.worker.reshape(-1, size),
            answers.value.reshape(-1, size, answers.dimension),
        )
    edge = answers.task_ptr[tasks][:, None] + np.arange(size)
    return answers.worker.take(edge), answers.value.take(edge, axis=0)


def put_posterior(
    out: Posterior, task: Index, coordinates: slice, found: Posterior, origin: Floats, unit: Floats
) -> None:
    """Write the posterior of some tasks, relative to their origins, into arrays for all."""
    at, scale = (task, coordinates), unit[coordinates]
    # Answers were centred within their task, to keep small differences of large values; here the
    # origin is added again.
    out.estimate[at] = (found.estimate + origin) * scale
    out.variance[at] = found.variance * scale**2
    out.quantile[at] = (found.quantile + origin[:, :, None]) * scale[:, None]


def put_gold(out: Posterior, rows: NDArray[Any], truth: Floats) -> None:
    """Write known truths, to the last bit and without any variance, in place of estimates."""
    out.estimate[rows], out.variance[rows], out.quantile[rows] = truth, 0.0, truth[:, :, None]


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
