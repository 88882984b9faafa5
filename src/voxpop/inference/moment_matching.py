"""Moment matching: messages as in message passing, with each answer as one Gaussian.

No integral is left, so that a sweep takes a small part of the time, whatever the number of answers
to a task, and comes near enough to learn a noise model by (``kernels.match``). It has no
posterior, and no bounds of the truths: what is made of the answers is integrated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, WorkerSums
from voxpop.data.answers import Answers
from voxpop.data.sums import middle_answers
from voxpop.inference.groups import SweepParameters, WorkerBias, classes_heard, fixed_point
from voxpop.inference.kernel_set import (
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
from voxpop.models.model import Model


class MomentMatching:
    """All answers of a data set, coordinate by coordinate, with messages and the workers' sums.

    Parameters are as in :class:`voxpop.inference.message_passing.MessagePassing`. Of each
    coordinate, messages are (E, 1, K), those about biases (E, 1) or empty; ``_site`` (C, E) and
    ``_prior_site`` (C, n) are the precisions of the Gaussians that stand for answers and prior.
    All of these, and the answers, are where the kernels are.
    """

    def __init__(
        self,
        answers: Answers,
        model: Model,
        unit: Floats,
        kernels: KernelSet,
        n_classes: int = 1,
        has_bias: bool = False,
    ) -> None:
        self._answers, self._unit, self._kernels = answers, unit, kernels
        self._parameters = SweepParameters.of_model(model, answers.n_tasks, 1.0)
        n, n_edges, d = answers.n_tasks, answers.n_edges, answers.dimension
        n_levels = len(model.support)
        self._origin, value = _centred(answers, unit)
        gold = np.full((n, d), np.nan) if answers.gold is None else answers.gold / unit
        known = np.ascontiguousarray(gold.T - self._origin)
        self._value = [kernels.bring(column) for column in value]
        self._known = [kernels.bring(column) for column in known]
        self._ptr = kernels.bring(answers.task_ptr)
        self._worker = kernels.bring(answers.worker[:, None])
        self._most = int(answers.task_degree.max())

        def zeros(shape: tuple[int, ...], dtype: Any = np.float64) -> list[Any]:
            return [kernels.zeros(shape, dtype) for _ in range(d)]

        self._message = zeros((n_edges, 1, n_levels), np.int64)
        self._has_bias = has_bias
        about = (n_edges, 1) if has_bias else (0, 0)
        self._bias_precision, self._bias_pull = zeros(about), zeros(about)
        self._site, self._prior_site = zeros((n_classes, n_edges)), zeros((n_classes, n))
        self.quantum, floor = fixed_point(int(answers.worker_degree.max()) * d)
        self._floor = max(floor, LEARNED_FLOOR)
        self.log_weights = model.log_weights
        self.sums: WorkerSums = np.zeros((answers.n_workers, n_levels), dtype=np.int64)
        self._sums_there: tuple[WorkerSums, Any] | None = None
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
        parameters, state = parameters or self._parameters, self._state(damping)
        kernels, sent = self._kernels, np.empty(0, dtype=np.intp)
        if tasks is None:
            new_sums = kernels.zeros(self.sums.shape, np.int64)
        else:
            new_sums = kernels.bring(self.sums.copy())
            sent = np.flatnonzero(tasks[self._answers.task])
        counts = CountSums(parameters, self._answers.dimension) if is_counted else None
        evidence, moved = self.evidence.copy(), 0.0
        for j in range(self._answers.dimension):
            given = self._given(j, parameters, state, bias)
            if tasks is not None:
                part = (kernels.take(there, sent) for there in given.edges)
                kernels.add_messages(new_sums, Edges(*part), -1)
                given = given._replace(rows=replace(given.rows, sending=tasks))
            found, said, sums = kernels.match_sweep(given, new_sums, is_counted)
            sending = slice(None) if tasks is None else tasks
            evidence[sending, j], moved = said[sending], max(moved, found)
            if counts is not None and sums is not None:
                counts.add(sums, j)
        self.sums, self.evidence = kernels.fetch(new_sums), evidence
        self._sums_there = self.sums, new_sums
        return moved, None if counts is None else counts.result()

    def predict(
        self, parameters: SweepParameters, bias: WorkerBias | None, with_pit: bool = True
    ) -> Predictions:
        """Predict every answer (E, d) from the others, in the answers' own units."""
        state, found = self._state(0.0), []
        for j, unit in enumerate(self._unit.tolist()):
            p = self._kernels.match_predict(self._given(j, parameters, state, bias), with_pit)
            mean = p.truth_mean + self._origin[j][self._answers.task, None]
            found.append(
                (
                    p.log_density - np.log(unit), p.pit, mean * unit, p.truth_variance * unit**2,
                    p.bias * unit, p.variance * unit**2,
                )
            )  # fmt: skip
        return Predictions(*(np.concatenate(part, axis=1) for part in zip(*found, strict=True)))

    def bias_sums(self) -> tuple[Floats, Floats]:
        """Precision and precision times mean of all messages about each bias, (m, d)."""
        add, m = self._kernels.sum_by_worker, self._answers.n_workers
        both = self._bias_precision, self._bias_pull
        precision, pull = (np.stack([add(self._worker, x, m) for x in about], 1) for about in both)
        return precision, pull

    def bias_messages(self) -> list[tuple[Any, ...]]:
        """Messages (E, 1) about the biases of each coordinate, precision and pull; or nothing."""
        both = zip(self._bias_precision, self._bias_pull, strict=True)
        return [about if self._has_bias else () for about in both]

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all messages about it."""
        for precision, pull, of_bias in zip(
            self._bias_precision, self._bias_pull, shift.T, strict=True
        ):
            about = precision, pull, np.ascontiguousarray(of_bias)
            self._kernels.recentre(self._worker, *about)

    def messages(self) -> list[Any]:
        """Return the messages (E, 1, K) of each coordinate, where the kernels have them."""
        return self._message

    def resume(self, other: MomentMatching) -> None:
        """Go on from the messages of another noise model, about the same levels."""
        self._message = [there.copy() for there in other._message]
        self.sums = other.sums
        if self._site[0].shape == other._site[0].shape:
            self._site = [there.copy() for there in other._site]

    def _given(
        self, j: int, parameters: SweepParameters, state: SweepState, bias: WorkerBias | None
    ) -> Matching:
        about, mean = None, parameters.truths.mean
        if bias is not None:
            messages = self._bias_precision[j], self._bias_pull[j]
            about = BiasMessages(bias.mean[:, j], bias.precision[:, j], *messages, bias.damping)
        log_class = np.zeros((self._answers.n_tasks, 1))
        if len(parameters.log_class) > 1:
            log_class = classes_heard(parameters.log_class, self.evidence, j)
        rows = MatchInputs(
            self._ptr, self._most, self._value[j], mean.T[j] - self._origin[j], self._known[j],
            log_class, self._site[j], self._prior_site[j], about,
        )  # fmt: skip
        edges = Edges(self._worker, self._message[j])
        return Matching(parameters.law(j, state.floor), rows, state, edges)

    def _state(self, damping: float) -> SweepState:
        weights = np.ascontiguousarray(self.log_weights)
        if self._sums_there is None or self._sums_there[0] is not self.sums:
            self._sums_there = self.sums, self._kernels.bring(self.sums)
        there = self._sums_there[1]
        return SweepState(there, weights, self.quantum, self._floor, damping)


def _centred(answers: Answers, unit: Floats) -> tuple[Floats, Floats]:
    """The middle answer of every task (d, n), in units, and the answers (d, E) from there."""
    origin = middle_answers(answers).T
    away = (answers.value.T - origin[:, answers.task]) / unit[:, None]
    return origin / unit[:, None], np.ascontiguousarray(away)
