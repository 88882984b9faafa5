"""Message passing: tasks in groups of equal degree, the messages of every edge, and one sweep.

A sweep is: tasks send messages to their workers (local to a task), these are summed per worker, and
every task hears the sums less its own part (local to an edge). Messages about levels are kept as
whole numbers of a small quantum (M16), so that the sums per worker come out the same to the last bit
in whatever order they are added. Only per-worker sums leave a task, so threads, a GPU or a cluster
fit behind the kernel set without touching an estimator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.cost_model import Inference, KernelName, choose_kernel
from voxpop.inference.kernel_set import (
    BiasMessages,
    Edges,
    ExpectedCounts,
    KernelSet,
    Predictions,
    RowInputs,
    SweepState,
    TaskKernel,
    WarmStartKernel,
    Workers,
    add_to_workers,
    belief,
)
from voxpop.inference.kernels.integrate import Law, NoiseGrid
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# Numbers kept between sweeps: 256 MB.
_CACHE_NUMBERS = 32_000_000
# Guesses before the first sweep, where a kernel makes them: the fourth is as good as they get.
_N_GUESSES = 4
# Lowest log message of a guess: it does not know which answer of a task is the odd one, so one
# task must not outweigh all others of a worker.
_GUESS_FLOOR = -10.0
# Under a learned noise model a level that explains an answer worse than another by so many nats is
# out of the question, by however much more.
_LEARNED_FLOOR = -575.0
# Numbers in flight while messages are added up: 16 MB.
_BLOCK_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class TruthPrior:
    """Prior of the truths: per coordinate a mixture of Gaussians about one mean; or flat.

    ``mean`` is (d,), or (n_tasks, d) where every task has its own; ``variance`` and ``weight`` are
    (d, J), with J = 0 for a flat prior.
    """

    mean: Floats
    variance: Floats
    weight: Floats

    @property
    def is_flat(self) -> bool:
        """Tell whether any truth is as likely as any other."""
        return self.weight.size == 0


@dataclass(frozen=True, eq=False)
class SweepParameters:
    """What is taken as given in a sweep: the noise, the shares of the classes, the prior."""

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
        """What the rows of coordinate j have in common."""
        variance, weight = self.truths.variance[j], self.truths.weight[j]
        return Law(self.grid, variance, weight, self.accuracy, floor)


@dataclass(frozen=True, eq=False)
class WorkerBias:
    """What is believed of the workers' biases: mean and precision (m, d)."""

    mean: Floats
    precision: Floats
    damping: float = 0.0


class Group:
    """Tasks of the same degree whose levels are summed over jointly, with their messages."""

    def __init__(
        self, kernel: TaskKernel, task: Index, worker: Workers, origin: Floats, n_levels: int
    ) -> None:
        self.kernel, self.task, self.worker, self.origin = kernel, task, worker, origin
        self.slot, self.coordinates = 0, slice(0, origin.shape[1])
        # Asking isinstance of a protocol takes as long as a sweep of a few hundred tasks.
        self.warm = cast(WarmStartKernel, kernel) if hasattr(kernel, "guess") else None
        self.message = np.zeros((*worker.shape, n_levels), dtype=np.int64)

    @property
    def edges(self) -> Edges:
        """Workers and messages."""
        return Edges(self.worker, self.message)

    def posterior(
        self, parameters: SweepParameters, state: SweepState, probabilities: Floats
    ) -> Posterior:
        """What is known of the truths, less the origins."""
        del parameters  # the kernel has them
        return self.kernel.posterior(state, self.edges, probabilities)


class RowGroup:
    """Rows (one coordinate of one task each) of the same degree that are integrated over.

    ``value`` (n, l), ``low``, ``high`` and ``known`` (n,) are relative to ``origin`` (n, 1). Where
    coordinates are taken apart, each has a slot for its messages (M15). The messages about the
    workers' biases are (n, l), or empty.
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
        self._kernels, self.task, self.worker, self.value = kernels, task, worker, value
        self.slot, self.coordinates, self.origin = slot, slice(slot, slot + 1), origin
        self._bounds, self._known = bounds, known
        self.message = np.zeros((*worker.shape, n_levels), dtype=np.int64)
        self.bias_precision = np.zeros(worker.shape if has_bias else (0, 0))
        self.bias_pull = np.zeros_like(self.bias_precision)
        self._log_class = np.zeros((len(task), 1))

    @property
    def edges(self) -> Edges:
        """Workers and messages."""
        return Edges(self.worker, self.message)

    def rows(self, rows: NDArray[np.intp]) -> RowGroup:
        """Some of the rows, with copies of their messages."""
        part = object.__new__(RowGroup)
        part.__dict__.update(self.__dict__)
        for name in ("task", "worker", "value", "origin", "_known", "message", "_log_class"):
            setattr(part, name, getattr(self, name)[rows])
        part._bounds = self._bounds[0][rows], self._bounds[1][rows]
        if self.bias_precision.size:
            part.bias_precision, part.bias_pull = self.bias_precision[rows], self.bias_pull[rows]
        return part

    def put_back(self, rows: NDArray[np.intp], part: RowGroup) -> None:
        """Take over the messages of some rows."""
        self.message[rows] = part.message
        if self.bias_precision.size:
            self.bias_precision[rows] = part.bias_precision
            self.bias_pull[rows] = part.bias_pull

    def hear_classes(self, log_class: Floats, evidence: Floats) -> None:
        """Take what the other coordinates (n_tasks, d, C) say of the class of each task."""
        if len(log_class) == 1:
            return
        told = evidence[self.task]
        found = log_class + told.sum(axis=1) - told[:, self.slot]
        self._log_class = found - logsumexp(found, axis=1, keepdims=True)

    def sweep(
        self,
        parameters: SweepParameters,
        state: SweepState,
        bias: WorkerBias | None,
        new_sums: WorkerSums,
        is_counted: bool,
    ) -> tuple[float, Floats, Floats | None]:
        """Replace all messages; see :meth:`KernelSet.integrate_sweep`."""
        law = parameters.law(self.slot, state.floor)
        inputs = self._inputs(parameters, bias)
        return self._kernels.integrate_sweep(law, inputs, state, self.edges, new_sums, is_counted)

    def posterior(
        self,
        parameters: SweepParameters,
        state: SweepState,
        probabilities: Floats,
        bias: WorkerBias | None = None,
    ) -> Posterior:
        """What is known of the truths, less the origins."""
        return self.posterior_and_classes(parameters, state, probabilities, bias)[0]

    def posterior_and_classes(
        self,
        parameters: SweepParameters,
        state: SweepState,
        probabilities: Floats,
        bias: WorkerBias | None,
    ) -> tuple[Posterior, Floats]:
        """What is known of the truths, and of the classes (n, C)."""
        law, inputs = parameters.law(self.slot, state.floor), self._inputs(parameters, bias)
        return self._kernels.integrate_posterior(law, inputs, state, self.edges, probabilities)

    def predict(
        self, parameters: SweepParameters, state: SweepState, bias: WorkerBias | None
    ) -> Predictions:
        """Predict each answer from the others."""
        law, inputs = parameters.law(self.slot, state.floor), self._inputs(parameters, bias)
        return self._kernels.integrate_predict(law, inputs, state, self.edges)

    def _inputs(self, parameters: SweepParameters, bias: WorkerBias | None) -> RowInputs:
        j, mean = self.slot, parameters.truths.mean
        centre = (mean[self.task, j] if mean.ndim == 2 else mean[j]) - self.origin[:, 0]
        about = None
        if bias is not None:
            messages = self.bias_precision, self.bias_pull
            about = BiasMessages(bias.mean[:, j], bias.precision[:, j], *messages, bias.damping)
        return RowInputs(self.value, centre, *self._bounds, self._known, self._log_class, about)


class MessagePassing:
    """All tasks of a data set in groups, with the messages of every edge and the workers' sums.

    Parameters
    ----------
    answers
        The data; values are taken in multiples of ``unit``.
    model
        Levels, weights and prior to start with, in the same units.
    unit
        Of each coordinate, (d,).
    inference, accuracy, kernels
        Which kernel for which task ("auto": the cheapest), how exact, and whose.
    learned
        Whether parameters other than the model's are going to be given in every sweep: all tasks
        are then integrated over, with ``n_classes`` classes of difficulty, ``bounds`` (2, d) of the
        truths, and messages about the workers' biases if these are ``has_bias``.
    """

    def __init__(
        self,
        answers: Answers,
        model: Model,
        unit: Floats,
        inference: Inference,
        accuracy: float,
        kernels: KernelSet,
        *,
        learned: bool = False,
        n_classes: int = 1,
        bounds: Floats | None = None,
        has_bias: bool = False,
    ) -> None:
        self._answers, self._unit = answers, unit
        self._parameters = SweepParameters.of_model(model, answers.n_tasks, accuracy)
        self._accuracy = accuracy
        self._groups = list(
            _all_groups(
                answers, unit, model, inference, accuracy, kernels, learned, bounds, has_bias
            )
        )
        self._start(len(model.support), n_classes, learned)
        self.log_weights = model.log_weights
        warm = any(group.warm for group in self._groups)
        self._guesses_left = _N_GUESSES if warm else 0
        self._is_warm, self._known_belief = warm, np.empty((0, 0))

    def _start(self, n_levels: int, n_classes: int, learned: bool) -> None:
        answers = self._answers
        n_slots = 1 + max(group.slot for group in self._groups)
        self.quantum, floor = fixed_point(int(answers.worker_degree.max()) * n_slots)
        self._floor = max(floor, _LEARNED_FLOOR) if learned else floor
        self.sums: WorkerSums = np.zeros((answers.n_workers, n_levels), dtype=np.int64)
        self.evidence = np.zeros((answers.n_tasks, answers.dimension, n_classes))

    @property
    def used(self) -> dict[str, int]:
        """How many tasks each kernel handles."""
        used: dict[str, int] = {}
        for group in self._groups:
            if group.slot == 0:
                name = _name(group)
                used[name] = used.get(name, 0) + len(group.task)
        return used

    def sweep(
        self,
        damping: float = 0.0,
        *,
        parameters: SweepParameters | None = None,
        bias: WorkerBias | None = None,
        tasks: NDArray[np.bool_] | None = None,
        is_counted: bool = False,
    ) -> tuple[float, ExpectedCounts | None]:
        """Let tasks send their messages once; return the largest change, and counts to learn from.

        Messages are sent by all tasks, or by some (n,); :attr:`sums` and :attr:`log_weights` are
        what they hear, and the sums are renewed in the end.
        """
        while self._guesses_left:
            self._guesses_left -= 1
            self.sums = self._guess()
        parameters = parameters or self._parameters
        state = self._state(damping)
        moved = self._moved_workers(damping)
        new_sums = np.zeros_like(self.sums) if tasks is None else self.sums.copy()
        counts = _Counter(parameters, self._answers.dimension) if is_counted else None
        evidence, change = self.evidence.copy(), 0.0
        for group in self._groups:
            if isinstance(group, Group):
                change = max(change, _sweep_tasks(group, state, moved, new_sums))
                continue
            group.hear_classes(parameters.log_class, self.evidence)
            part, rows = group, None
            if tasks is not None:
                rows = np.flatnonzero(tasks[group.task])
                if not len(rows):
                    continue
                part = group.rows(rows)
                add_to_workers(new_sums, part.worker, -part.message)
            found, said, sums = part.sweep(parameters, state, bias, new_sums, is_counted)
            change, evidence[part.task, group.slot] = max(change, found), said
            if rows is not None:
                group.put_back(rows, part)
            if counts is not None and sums is not None:
                counts.add(sums, group.slot)
        self.sums, self.evidence = new_sums, evidence
        return change, None if counts is None else counts.result()

    def _guess(self) -> WorkerSums:
        """Guess where messages would be slow to send from flat ones; others are sent."""
        new_sums = np.zeros_like(self.sums)
        state = replace(self._state(0.0), floor=_GUESS_FLOOR)
        for group in self._groups:
            if isinstance(group, Group):
                send = group.warm.guess if group.warm else group.kernel.sweep
                send(state, group.edges, new_sums)
            else:
                group.sweep(self._parameters, state, None, new_sums, False)
        return new_sums

    def _moved_workers(self, damping: float) -> NDArray[np.bool_] | None:
        """Tell whose beliefs have moved since all of their tasks last heard them; None: all.

        As probabilities, by more than the accuracy asked for. A damped message moves by itself.
        """
        if not self._is_warm:
            return None
        now = belief(self.sums, self.quantum, self.log_weights)
        if damping or self._known_belief.shape != now.shape:
            self._known_belief = np.empty((0, 0)) if damping else now
            return None
        moved = np.asarray(np.abs(now - self._known_belief).max(axis=1) > self._accuracy)
        self._known_belief[moved] = now[moved]
        return moved

    def posterior(self, probabilities: Floats) -> Posterior:
        """What is known of all truths, in the answers' own units."""
        return self.posterior_and_classes(probabilities)[0]

    def posterior_and_classes(
        self,
        probabilities: Floats,
        parameters: SweepParameters | None = None,
        bias: WorkerBias | None = None,
    ) -> tuple[Posterior, Floats]:
        """What is known of all truths, and the probabilities of each task's class (n, C)."""
        parameters, state = parameters or self._parameters, self._state(0.0)
        shape = (self._answers.n_tasks, self._answers.dimension)
        out = Posterior(np.empty(shape), np.empty(shape), np.empty((*shape, len(probabilities))))
        classes = np.zeros((shape[0], len(parameters.log_class)))
        for group in self._groups:
            if isinstance(group, Group):
                found = group.posterior(parameters, state, probabilities)
            else:
                group.hear_classes(parameters.log_class, self.evidence)
                found, said = group.posterior_and_classes(parameters, state, probabilities, bias)
                classes[group.task] += said / shape[1]
            put_posterior(out, group.task, group.coordinates, found, group.origin, self._unit)
        return out, classes

    def predict(self, parameters: SweepParameters, bias: WorkerBias | None) -> Predictions:
        """Predict every answer (E, d) from the others, in the answers' own units."""
        state = self._state(0.0)
        out = [np.zeros(self._answers.value.shape) for _ in range(6)]
        for group in self._groups:
            assert isinstance(group, RowGroup)
            group.hear_classes(parameters.log_class, self.evidence)
            p, j = group.predict(parameters, state, bias), group.slot
            unit, edge = self._unit[j], self._edges(group)
            mean = (p.truth_mean + group.origin) * unit
            parts = (
                p.log_density - np.log(unit), p.pit, mean, p.truth_variance * unit**2,
                p.bias * unit, p.variance * unit**2,
            )  # fmt: skip
            for array, part in zip(out, parts, strict=True):
                array[edge, j] = part
        return Predictions(*out)

    def bias_sums(self) -> tuple[Floats, Floats]:
        """Precision and precision times mean of all messages about each bias, (m, d)."""
        found = []
        for name in ("bias_precision", "bias_pull"):
            per_edge = np.zeros(self._answers.value.shape)
            for group in self._groups:
                per_edge[self._edges(group), group.slot] = getattr(group, name)
            found.append(_sum_by_worker(self._answers, per_edge))
        return found[0], found[1]

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all messages about it."""
        for group in self._groups:
            assert isinstance(group, RowGroup)
            group.bias_pull -= group.bias_precision * shift[group.worker, group.slot]

    def messages(self) -> WorkerSums:
        """Return all messages by edge and slot, (n_edges, c, n_levels).

        c is 1 unless coordinates were taken apart.
        """
        n_slots = 1 + max(group.slot for group in self._groups)
        found = np.zeros((self._answers.n_edges, n_slots, self.sums.shape[1]), dtype=np.int64)
        for group in self._groups:
            found[self._edges(group), group.slot] = group.message
        return found

    def resume(self, messages: WorkerSums, quantum: float) -> None:
        """Go on from messages by edge and slot, as :meth:`messages` gives them."""
        self._guesses_left = 0
        lowest, sums = int(self._floor / self.quantum), np.zeros_like(self.sums)
        for group in self._groups:
            units = messages[self._edges(group), group.slot] * (quantum / self.quantum)
            group.message[:] = np.maximum(np.rint(units).astype(np.int64), lowest)
            add_to_workers(sums, group.worker, group.message)
        self.sums = sums

    def _edges(self, group: Group | RowGroup) -> NDArray[np.int64]:
        """Numbers of the edges (n, l) of a group."""
        first = self._answers.task_ptr[group.task]
        return np.asarray(first[:, None] + np.arange(group.worker.shape[1]))

    def _state(self, damping: float) -> SweepState:
        weights = np.ascontiguousarray(self.log_weights)
        return SweepState(self.sums, weights, self.quantum, self._floor, damping)


def _name(group: Group | RowGroup) -> str:
    if isinstance(group, RowGroup):
        return "gold" if np.isfinite(group._known).all() else "integrate"
    return "active" if group.warm else "enumerate"


def _sweep_tasks(
    group: Group, state: SweepState, moved: NDArray[np.bool_] | None, new_sums: WorkerSums
) -> float:
    """Let a group send its messages; a warm one only where a worker has ``moved`` (None: all)."""
    if group.warm is None or moved is None:
        return group.kernel.sweep(state, group.edges, new_sums)
    rows = np.unique(np.flatnonzero(moved[group.worker]) // group.worker.shape[1])
    if 2 * len(rows) > len(group.worker):
        return group.kernel.sweep(state, group.edges, new_sums)
    change = 0.0
    if len(rows):
        part = Edges(group.worker[rows], group.message[rows])
        change = group.warm.some(rows).sweep(state, part, np.zeros_like(new_sums))
        group.message[rows] = part.message
    add_to_workers(new_sums, group.worker, group.message)
    return change


class _Counter:
    """Adds up what learning needs."""

    def __init__(self, parameters: SweepParameters, dimension: int) -> None:
        shape, n_prior = parameters.grid.mixing.shape, parameters.truths.weight.shape[1]
        self._sums = np.zeros((dimension, int(np.prod(shape)) + shape[0] + n_prior + 2))
        self._shape, self._prior = shape, n_prior

    def add(self, sums: Floats, j: int) -> None:
        self._sums[j] += sums

    def result(self) -> ExpectedCounts:
        sizes = (int(np.prod(self._shape)), self._shape[0], self._prior, 1)
        pairs, classes, components, pull, precision = np.split(self._sums, np.cumsum(sizes), axis=1)
        d = len(self._sums)
        return ExpectedCounts(
            pairs.sum(axis=0).reshape(self._shape),
            classes.sum(axis=0) / d,
            components,
            pull[:, 0],
            precision[:, 0],
        )


def put_posterior(
    out: Posterior, task: Index, coordinates: slice, found: Posterior, origin: Floats, unit: Floats
) -> None:
    """Write what was found of some tasks, relative to their origins, into arrays for all."""
    at, scale = (task, coordinates), unit[coordinates]
    # Answers were centred within their task, to keep small differences of large values; here the
    # origin comes back.
    out.estimate[at] = (found.estimate + origin) * scale
    out.variance[at] = found.variance * scale**2
    out.quantile[at] = (found.quantile + origin[:, :, None]) * scale[:, None]


def _sum_by_worker(answers: Answers, per_edge: Floats) -> Floats:
    """Add up numbers (E, d) of each worker's edges, in bounded memory."""
    ptr, total = answers.worker_ptr, np.empty((answers.n_workers, per_edge.shape[1]))
    most = max(1, _BLOCK_NUMBERS // per_edge.shape[1])
    first = 0
    while first < answers.n_workers:
        last = max(first + 1, int(np.searchsorted(ptr, ptr[first] + most, "right")) - 1)
        some = per_edge[answers.by_worker[ptr[first] : ptr[last]]]
        total[first:last] = np.add.reduceat(some, ptr[first:last] - ptr[first], axis=0)
        first = last
    return total


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


def _all_groups(
    answers: Answers,
    unit: Floats,
    model: Model,
    inference: Inference,
    accuracy: float,
    kernels: KernelSet,
    learned: bool,
    bounds: Floats | None,
    has_bias: bool,
) -> Iterator[Group | RowGroup]:
    """Sort the tasks into groups by degree and kernel; refuse what cannot be enumerated."""
    degree = answers.task_degree
    room, per_worker = _CACHE_NUMBERS, float(np.median(answers.worker_degree))
    none = np.full((answers.n_tasks, answers.dimension), np.nan)
    gold = none if answers.gold is None else answers.gold / unit
    for size in np.flatnonzero(np.bincount(degree)).tolist():
        for is_gold in (False, True):
            tasks = np.flatnonzero((degree == size) & (answers.is_gold == is_gold))
            if not len(tasks):
                continue
            name: KernelName = "integrate"
            if not (learned or is_gold):
                d = answers.dimension
                name = choose_kernel(inference, model.levels, size, d, accuracy, per_worker)
            for group in make_groups(
                kernels, name, tasks, *_gather(answers, tasks, size), gold[tasks], unit, model,
                accuracy, room, bounds, has_bias,
            ):  # fmt: skip
                room -= group.kernel.kept if group.kernel is not None else 0
                yield group


def make_groups(
    kernels: KernelSet,
    name: KernelName,
    tasks: Index,
    worker: Workers,
    value: Floats,
    gold: Floats,
    unit: Floats,
    model: Model,
    accuracy: float,
    room: int = 0,
    bounds: Floats | None = None,
    has_bias: bool = False,
) -> Iterator[Group | RowGroup]:
    """Group tasks of equal degree: one group, or one per coordinate where these are apart.

    ``worker`` is (n, l), ``value`` (n, l, d) and ``gold`` (n, d), NaN where unknown, in the order of
    ``tasks``; all but the values are in multiples of ``unit`` (d,).
    """
    n_levels, dimension = len(model.support), value.shape[2]
    if (unit == unit[0]).all() and np.log2(unit[0]) % 1 == 0:
        value, origin = kernels.centre(value, float(unit[0]))
    else:
        value, origin = kernels.centre(value, 1.0)
        value, origin = value / unit, origin / unit
    if name != "integrate":
        prior_mean = model.prior_means(int(tasks.max()) + 1)[tasks] - origin
        if name == "active":
            kernel: TaskKernel = kernels.pruned_enumeration(value, prior_mean, model, accuracy)
        else:
            kernel = kernels.enumeration(value, prior_mean, model, room)
        yield Group(kernel, tasks, worker, origin, n_levels)
        return
    for j in range(dimension):
        # Rows of similar spread side by side need similarly many nodes.
        order = np.argsort(np.ptp(value[:, :, j], axis=1), kind="stable")
        low, high = np.full(len(order), -np.inf), np.full(len(order), np.inf)
        if bounds is not None:
            low, high = (bound[j] / unit[j] - origin[order, j] for bound in bounds)
        yield RowGroup(
            kernels, tasks[order], j, worker[order], np.ascontiguousarray(value[order, :, j]),
            origin[order, j : j + 1], (low, high), gold[order, j] - origin[order, j],
            n_levels, has_bias,
        )  # fmt: skip


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
