"""Message passing: tasks in groups of equal degree, the messages of every edge, and one sweep.

A sweep is: tasks send messages to their workers (local to a task), these are summed per worker,
and every task receives the sums minus its own part (local to an edge). Messages about levels are
kept as whole numbers of a small quantum (M16), so that the sums per worker come out the same to the
last bit in any order of addition. Only per-worker sums leave a task, so threads, a GPU or a cluster
fit behind the kernel set without touching an estimator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.data.answers import Answers
from voxpop.inference.cost_model import Inference, KernelName, choose_kernel
from voxpop.inference.groups import (
    Group,
    RowGroup,
    SweepParameters,
    WorkerBias,
    bias_sums,
    fixed_point,
    gather_tasks,
    make_groups,
    put_gold,
    put_posterior,
)
from voxpop.inference.kernel_set import (
    BiasEdges,
    Edges,
    ExpectedCounts,
    KernelSet,
    Predictions,
    SweepState,
    add_to_workers,
)
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.kernels.posterior import Posterior
from voxpop.inference.message_store import MessageStore, edges_of
from voxpop.inference.schedule import Asked, DeviceSums, Schedule, Sent, Whole
from voxpop.models.model import Model

# Numbers kept between sweeps: 256 MB.
_CACHE_NUMBERS = 32_000_000
# Lowest log message of a guess: it does not know which answer of a task is the odd one, so one
# task must not outweigh all others of a worker.
_GUESS_FLOOR = -10.0
# Under a learned noise model a level that explains an answer worse than another by this many nats
# is ruled out, by however much more.
LEARNED_FLOOR = -575.0


class MessagePassing(MessageStore, Schedule):
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
        The kernel of each task ("auto": the cheapest), its accuracy, and the kernel set.
    per_worker
        Typical number of answers of a worker, where ``answers`` are a part of a larger set:
        the kernels are then those of the whole, and nothing is kept for later sweeps.
    whole
        What all answers are like, where ``answers`` are a part of them that sends its messages
        among all: workers may have no answer in it.
    learned
        Whether parameters other than the model's are going to be given in every sweep: all tasks
        are then integrated over, with ``n_classes`` classes of difficulty, ``bounds`` (2, d) of the
        truths, and messages about the workers' biases if these are ``has_bias``.
    grid
        The noise at each of the model's levels, if it is a mixture and always the same.
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
        per_worker: float | None = None,
        whole: Whole | None = None,
        learned: bool = False,
        n_classes: int = 1,
        bounds: Floats | None = None,
        has_bias: bool = False,
        grid: NoiseGrid | None = None,
    ) -> None:
        self._answers, self._unit, self._kernels = answers, unit, kernels
        self._parameters = SweepParameters.of_model(model, answers.n_tasks, accuracy)
        if grid is not None:
            learned, self._parameters = True, replace(self._parameters, grid=grid)
        per_worker = per_worker if whole is None else whole.per_worker
        self._groups = list(
            _all_groups(
                answers, unit, model, inference, accuracy, kernels, per_worker, learned, bounds,
                has_bias,
            )
        )  # fmt: skip
        if whole is None:
            self._n_slots = 1 + max(group.slot for group in self._groups)
            most = int(answers.worker_degree.max())
        else:
            names = whole.kernels(inference, model.levels, accuracy)
            self._n_slots = whole.dimension if learned or "integrate" in names else 1
            most = whole.most_answers
        self.quantum, floor = fixed_point(most * self._n_slots)
        self._floor = max(floor, LEARNED_FLOOR) if learned else floor
        shape = answers.n_workers, len(model.support)
        self.sums: WorkerSums = np.zeros(shape, dtype=np.int64)
        self._device_sums = DeviceSums(kernels)
        self.evidence = np.zeros((answers.n_tasks, answers.dimension, n_classes))
        self.log_weights = model.log_weights
        self._begin(any(group.warm for group in self._groups), accuracy)

    @property
    def used(self) -> dict[str, int]:
        """How many tasks each kernel handles."""
        used: Counter[str] = Counter()
        for group in self._groups:
            used[_name(group)] += len(group.task) * (group.slot == 0)
        return dict(used)

    def send(self, asked: Asked) -> Sent:
        """Let tasks send their messages, or some (n,); see :meth:`Schedule.send`."""
        damping, moved, parameters, bias, tasks, is_counted = asked
        parameters = parameters or self._parameters
        # Where only some tasks send, the sums are changes of those of all tasks.
        state, new_sums = self._state(damping), self._device_sums.new(self.sums)
        counts = CountSums(parameters, self._answers.dimension) if is_counted else None
        evidence, change = self.evidence.copy(), 0.0
        for group in self._groups:
            if isinstance(group, Group):
                change = max(change, _sweep_tasks(group, state, moved, new_sums))
                continue
            group.receive_classes(parameters.log_class, self.evidence)
            part, rows = group, None
            if tasks is not None:
                rows = np.flatnonzero(tasks[group.task])
                if not len(rows):
                    continue
                part = group.rows(rows)
                self._kernels.add_messages(new_sums, part.edges, -1)
            found, by_class, counted = part.sweep(parameters, state, bias, new_sums, is_counted)
            change, evidence[part.task, group.slot] = max(change, found), by_class
            if rows is not None:
                group.put_back(rows, part)
            if counts is not None and counted is not None:
                counts.add(counted, group.slot)
        self.evidence[:] = evidence
        sums = self._device_sums.fetch(new_sums)
        return sums, change, None if counts is None else counts.result()

    def guess(self) -> WorkerSums:
        """Guess messages where flat ones would be slow to start from; others are sent."""
        new_sums = np.zeros_like(self.sums)
        state = replace(self._state(0.0), floor=_GUESS_FLOOR)
        for group in self._groups:
            if group.warm is not None:
                group.warm.guess(state, group.edges, new_sums)
            elif isinstance(group, Group):
                group.kernel.sweep(state, group.edges, new_sums)
            else:
                group.sweep(self._parameters, state, None, new_sums, False)
        return new_sums

    def posterior(self, probabilities: Floats) -> Posterior:
        """Posterior of all truths, in the units of the answers."""
        return self.posterior_and_classes(probabilities)[0]

    def posterior_and_classes(
        self,
        probabilities: Floats,
        parameters: SweepParameters | None = None,
        bias: WorkerBias | None = None,
        *,
        bounded: bool = True,
        hidden: bool = False,
    ) -> tuple[Posterior, Floats]:
        """Posterior of truths, cut if ``bounded``, or with gold ``hidden``, and of classes."""
        parameters, state = parameters or self._parameters, self._state(0.0)
        shape = (self._answers.n_tasks, self._answers.dimension)
        out = Posterior(np.empty(shape), np.empty(shape), np.empty((*shape, len(probabilities))))
        classes = np.zeros((shape[0], len(parameters.log_class)))
        for group in _hidden_gold(self._groups, self._answers) if hidden else self._groups:
            if isinstance(group, Group):
                found = group.kernel.posterior(state, group.edges, probabilities)
            else:
                group.receive_classes(parameters.log_class, self.evidence)
                about = parameters, state, probabilities, bias, bounded
                found, by_class = group.posterior_and_classes(*about)
                classes[group.task] += by_class / shape[1]
            put_posterior(out, group.task, group.coordinates, found, group.origin, self._unit)
        if self._answers.gold is not None and not hidden:
            put_gold(out, self._answers.is_gold, self._answers.gold[self._answers.is_gold])
        return out, classes

    def predict(
        self, parameters: SweepParameters, bias: WorkerBias | None, with_pit: bool = True
    ) -> Predictions:
        """Predict every answer (E, d) from the others, in the units of the answers."""
        state = self._state(0.0)
        out = [np.zeros(self._answers.value.shape) for _ in range(6)]
        for group in self._groups:
            assert isinstance(group, RowGroup)
            group.receive_classes(parameters.log_class, self.evidence)
            p, j = group.predict(parameters, state, bias, with_pit), group.slot
            edge = edges_of(self._answers, group)
            for array, part in zip(out, p.in_units(group.origin, self._unit[j]), strict=True):
                array[edge, j] = part
        return Predictions(*out)

    def bias_sums(self) -> tuple[Floats, Floats]:
        """Precision and precision times mean of all messages about each bias, (m, d)."""
        return bias_sums(self._kernels, self.about_biases(), len(self.sums))

    def about_biases(self) -> list[list[BiasEdges]]:
        """Messages about the biases of each coordinate, group by group, where the kernels are."""
        rows = [group for group in self._groups if isinstance(group, RowGroup)]
        slots = range(self._answers.dimension)
        return [[group.about_bias for group in rows if group.slot == j] for j in slots]

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all messages about it."""
        for group in self._groups:
            assert isinstance(group, RowGroup)
            group.recentre(shift)

    def sent(self) -> WorkerSums:
        """Sum up the messages to each worker."""
        sums = self._device_sums.new(self.sums)
        for group in self._groups:
            self._kernels.add_messages(sums, group.edges)
        return self._kernels.fetch(sums)

    def state(self) -> Iterator[tuple[Any, str]]:
        """Yield where all messages are: an object, and the name of an array in it."""
        for group in self._groups:
            names = ("message", "bias_precision", "bias_pull")
            yield from ((group, name) for name in names if hasattr(group, name))
        yield self, "evidence"

    def add_to(self, sums: WorkerSums) -> None:
        """Add the next messages to these sums of other parts, and not to new sums."""
        self._device_sums.others = sums

    def _state(self, damping: float) -> SweepState:
        weights, there = np.ascontiguousarray(self.log_weights), self._device_sums.of(self.sums)
        return SweepState(there, weights, self.quantum, self._floor, damping)


def _name(group: Group | RowGroup) -> str:
    if isinstance(group, RowGroup):
        return "gold" if group.is_known else "integrate"
    return "active" if group.warm else "enumerate"


def _sweep_tasks(
    group: Group, state: SweepState, moved: NDArray[np.bool_] | None, new_sums: WorkerSums
) -> float:
    """Let a group send its messages; a warm one only where a worker has ``moved`` (None: all)."""
    if group.warm is None:
        return group.kernel.sweep(state, group.edges, new_sums)
    change = 0.0
    if moved is None:
        group.sent = np.zeros_like(new_sums)
        change = group.kernel.sweep(state, group.edges, group.sent)
    else:
        if group.sent is None:
            group.sent = np.zeros_like(new_sums)
            add_to_workers(group.sent, group.worker, group.message)
        rows = np.unique(np.flatnonzero(moved[group.worker]) // group.worker.shape[1])
        if len(rows):
            part = Edges(group.worker[rows], group.message[rows])
            add_to_workers(group.sent, part.worker, -part.message)
            change = group.warm.some(rows).sweep(state, part, group.sent)
            group.message[rows] = part.message
    new_sums += group.sent
    return change


class CountSums:
    """Adds up the counts for learning."""

    def __init__(self, parameters: SweepParameters, dimension: int) -> None:
        shape, n_prior = parameters.grid.mixing.shape, parameters.truths.weight.shape[1]
        self._sums = np.zeros((dimension, int(np.prod(shape)) + shape[0] + n_prior + 2))
        self._shape = shape

    def add(self, sums: Floats, j: int) -> None:
        """Add what a kernel counted in coordinate j."""
        self._sums[j] += sums

    def result(self) -> ExpectedCounts:
        """All counts."""
        n_pairs, n_classes, sums = int(np.prod(self._shape)), self._shape[0], self._sums
        first = n_pairs + n_classes
        return ExpectedCounts(
            sums[:, :n_pairs].sum(axis=0).reshape(self._shape),
            sums[:, n_pairs:first].sum(axis=0) / len(sums),
            sums[:, first:-2],
            sums[:, -2],
            sums[:, -1],
        )


def _hidden_gold(groups: list[Group | RowGroup], answers: Answers) -> list[Group | RowGroup]:
    """The groups of gold tasks as if no truth were known.

    Cavity messages leave out what a task itself has sent, so that its truth cannot confirm itself.
    """
    known = [group for group in groups if answers.is_gold[group.task[0]]]
    return [group.hidden() if isinstance(group, RowGroup) else group for group in known]


def _all_groups(
    answers: Answers,
    unit: Floats,
    model: Model,
    inference: Inference,
    accuracy: float,
    kernels: KernelSet,
    per_worker: float | None,
    learned: bool,
    bounds: Floats | None,
    has_bias: bool,
) -> Iterator[Group | RowGroup]:
    """Sort the tasks into groups by degree and kernel; refuse what cannot be enumerated."""
    degree = answers.task_degree
    room = _CACHE_NUMBERS if per_worker is None else 0
    per_worker = float(np.median(answers.worker_degree)) if per_worker is None else per_worker
    none = np.full((answers.n_tasks, answers.dimension), np.nan)
    gold = none if answers.gold is None else answers.gold / unit
    prior_mean = model.prior_means(answers.n_tasks)
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
                kernels,
                name,
                tasks,
                *gather_tasks(answers, tasks, size),
                gold[tasks],
                prior_mean[tasks],
                unit,
                model,
                accuracy,
                room,
                bounds,
                has_bias,
            ):
                room -= group.kernel.kept if group.kernel is not None else 0
                yield group
