"""Moment matching: messages as in message passing, with each answer as one Gaussian.

No integral is left, so that a sweep takes a small part of the time, whatever the number of answers
to a task, and comes near enough to learn a noise model by (``kernels.match``). It has no
posterior, and no bounds of the truths: the final posterior is integrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.data.answers import Answers
from voxpop.data.sums import middle_answers
from voxpop.inference.groups import (
    SweepParameters,
    WorkerBias,
    bias_sums,
    class_messages,
    fixed_point,
)
from voxpop.inference.kernel_set import (
    BiasEdges,
    BiasMessages,
    Edges,
    ExpectedCounts,
    KernelSet,
    Matching,
    MatchInputs,
    Predictions,
    SweepState,
)
from voxpop.inference.message_passing import LEARNED_FLOOR, CountSums
from voxpop.inference.schedule import DeviceSums, Whole
from voxpop.models.model import Model


@dataclass(eq=False)
class _Coordinate:
    """One coordinate of all answers, with its messages, where the kernels are.

    ``value`` (E,) and ``known`` (n,) are from the origin of each task. ``message`` is (E, 1, K),
    those about biases (E, 1) or empty; ``site`` (C, E) and ``prior_site`` (C, n) are the precisions
    of the Gaussians that stand for answers and prior.
    """

    value: Any
    known: Any
    message: Any
    bias_precision: Any
    bias_pull: Any
    site: Any
    prior_site: Any


class MomentMatching:
    """All answers of a data set, coordinate by coordinate, with messages and the workers' sums.

    Parameters are as in :class:`voxpop.inference.message_passing.MessagePassing`.
    """

    def __init__(
        self,
        answers: Answers,
        model: Model,
        unit: Floats,
        kernels: KernelSet,
        n_classes: int = 1,
        has_bias: bool = False,
        whole: Whole | None = None,
    ) -> None:
        self._answers, self._unit, self._kernels = answers, unit, kernels
        self._parameters = SweepParameters.of_model(model, answers.n_tasks, 1.0)
        n, n_edges, d = answers.n_tasks, answers.n_edges, answers.dimension
        n_levels = len(model.support)
        self._origin, value = _centred(answers, unit)
        gold = np.full((n, d), np.nan) if answers.gold is None else answers.gold / unit
        known = np.ascontiguousarray(gold.T - self._origin)
        self._ptr = kernels.bring(answers.task_ptr)
        self._worker = kernels.bring(answers.worker[:, None])
        self._most = int(answers.task_degree.max())
        self._has_bias = has_bias
        about = (n_edges, 1) if has_bias else (0, 0)
        self._coordinates = [
            _Coordinate(
                kernels.bring(value[j]),
                kernels.bring(known[j]),
                kernels.zeros((n_edges, 1, n_levels), np.int64),
                kernels.zeros(about, np.float64),
                kernels.zeros(about, np.float64),
                kernels.zeros((n_classes, n_edges), np.float64),
                kernels.zeros((n_classes, n), np.float64),
            )
            for j in range(d)
        ]
        most = int(answers.worker_degree.max()) if whole is None else whole.most_answers
        self.quantum, floor = fixed_point(most * d)
        self._floor = max(floor, LEARNED_FLOOR)
        self.log_weights = model.log_weights
        self.sums: WorkerSums = np.zeros((answers.n_workers, n_levels), dtype=np.int64)
        self._device_sums = DeviceSums(kernels)
        self.evidence = np.zeros((n, d, n_classes))

    def sweep(
        self,
        damping: float = 0.0,
        *,
        parameters: SweepParameters | None = None,
        bias: WorkerBias | None = None,
        tasks: NDArray[np.bool_] | None = None,
        is_counted: bool = False,
    ) -> tuple[float, ExpectedCounts | None]:
        """Let tasks send their messages once, all or some (n,).

        Returns by how many sds the truths moved, root mean square, and counts to learn from.
        """
        new_sums, moved, counts = self.send(damping, parameters, bias, tasks, is_counted)
        self.sums = new_sums
        return rms_moved(moved, int((~self._answers.is_gold).sum())), counts

    def send(
        self,
        damping: float,
        parameters: SweepParameters | None,
        bias: WorkerBias | None,
        tasks: NDArray[np.bool_] | None,
        is_counted: bool,
    ) -> tuple[WorkerSums, Floats, ExpectedCounts | None]:
        """Let tasks send; return the sums, squares (d,) of how far truths moved, and counts."""
        parameters, state = parameters or self._parameters, self._state(damping)
        kernels, sent = self._kernels, np.empty(0, dtype=np.intp)
        if tasks is None:
            new_sums = self._device_sums.new(self.sums)
        else:
            new_sums = kernels.bring(self.sums.copy())
            sent = np.flatnonzero(tasks[self._answers.task])
        counts = CountSums(parameters, self._answers.dimension) if is_counted else None
        evidence, moved = self.evidence.copy(), np.zeros(self._answers.dimension)
        for j in range(self._answers.dimension):
            given = self._given(j, parameters, state, bias)
            if tasks is not None:
                part = (kernels.take(there, sent) for there in given.edges)
                kernels.add_messages(new_sums, Edges(*part), -1)
                given = given._replace(rows=replace(given.rows, sending=tasks))
            found, by_class, sums = kernels.match_sweep(given, new_sums, is_counted)
            sending = slice(None) if tasks is None else tasks
            evidence[sending, j], moved[j] = by_class[sending], found
            if counts is not None and sums is not None:
                counts.add(sums, j)
        self.evidence[:] = evidence
        return self._device_sums.fetch(new_sums), moved, None if counts is None else counts.result()

    def predict(
        self, parameters: SweepParameters, bias: WorkerBias | None, with_pit: bool = True
    ) -> Predictions:
        """Predict every answer (E, d) from the others, in the units of the answers."""
        state, found = self._state(0.0), []
        for j, unit in enumerate(self._unit.tolist()):
            p = self._kernels.match_predict(self._given(j, parameters, state, bias), with_pit)
            found.append(p.in_units(self._origin[j][self._answers.task, None], unit))
        return Predictions(*(np.concatenate(part, axis=1) for part in zip(*found, strict=True)))

    def bias_sums(self) -> tuple[Floats, Floats]:
        """Precision and precision times mean of all messages about each bias, (m, d)."""
        return bias_sums(self._kernels, self.about_biases(), self._answers.n_workers)

    def about_biases(self) -> list[list[BiasEdges]]:
        """Messages about the biases of each coordinate, in one group, where the kernels are."""
        return [
            [BiasEdges(self._worker, at.bias_precision, at.bias_pull)] for at in self._coordinates
        ]

    def bias_messages(self) -> list[tuple[Any, ...]]:
        """Messages (E, 1) about the biases of each coordinate, precision and pull; or nothing."""
        both = [(at.bias_precision, at.bias_pull) for at in self._coordinates]
        return [about if self._has_bias else () for about in both]

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all messages about it."""
        for at, of_bias in zip(self._coordinates, shift.T, strict=True):
            about = at.bias_precision, at.bias_pull, np.ascontiguousarray(of_bias)
            self._kernels.recentre(self._worker, *about)

    def sent(self) -> WorkerSums:
        """Sum up the messages to each worker."""
        sums = self._device_sums.new(self.sums)
        for at in self._coordinates:
            self._kernels.add_messages(sums, Edges(self._worker, at.message))
        return self._kernels.fetch(sums)

    def state(self) -> Iterator[tuple[Any, str]]:
        """Yield where all messages are: an object, and the name of an array in it."""
        names = ("message", "bias_precision", "bias_pull", "site", "prior_site")
        for at in self._coordinates:
            yield from ((at, name) for name in names)
        yield self, "evidence"

    def messages(self) -> list[Any]:
        """Return the messages (E, 1, K) of each coordinate, where the kernels have them."""
        return [at.message for at in self._coordinates]

    def resume(self, other: MomentMatching) -> None:
        """Continue from the messages of another noise model with the same levels."""
        edges = np.arange(len(self._answers.worker))
        for at, of_other in zip(self._coordinates, other._coordinates, strict=True):
            at.message = self._kernels.take(of_other.message, edges)
            if at.site.shape == of_other.site.shape:
                at.site = self._kernels.take(of_other.site, np.arange(at.site.shape[0]))
            if self._has_bias and other._has_bias:
                at.bias_precision = self._kernels.take(of_other.bias_precision, edges)
                at.bias_pull = self._kernels.take(of_other.bias_pull, edges)
        self.sums = other.sums

    def _given(
        self, j: int, parameters: SweepParameters, state: SweepState, bias: WorkerBias | None
    ) -> Matching:
        at, about, mean = self._coordinates[j], None, parameters.truths.mean
        if bias is not None:
            messages = at.bias_precision, at.bias_pull
            about = BiasMessages(bias.mean[:, j], bias.precision[:, j], *messages, bias.damping)
        log_class = np.zeros((self._answers.n_tasks, 1))
        if len(parameters.log_class) > 1:
            log_class = class_messages(parameters.log_class, self.evidence, j)
        rows = MatchInputs(
            self._ptr, self._most, at.value, mean.T[j] - self._origin[j], at.known,
            log_class, at.site, at.prior_site, about,
        )  # fmt: skip
        edges = Edges(self._worker, at.message)
        return Matching(parameters.law(j, state.floor), rows, state, edges)

    def add_to(self, sums: WorkerSums) -> None:
        """Add the next messages to these sums of other parts, and not to new sums."""
        self._device_sums.others = sums

    def _state(self, damping: float) -> SweepState:
        weights, there = np.ascontiguousarray(self.log_weights), self._device_sums.of(self.sums)
        return SweepState(there, weights, self.quantum, self._floor, damping)


def rms_moved(squares: Floats, n_open: int) -> float:
    """Return by how many sds truths moved, from squares (d,) over this many open tasks."""
    return float(np.sqrt(squares / max(n_open, 1)).max())


def _centred(answers: Answers, unit: Floats) -> tuple[Floats, Floats]:
    """The middle answer of every task (d, n), in units, and the answers (d, E) from there."""
    origin = middle_answers(answers).T
    away = (answers.value.T - origin[:, answers.task]) / unit[:, None]
    return origin / unit[:, None], np.ascontiguousarray(away)
