"""Moment matching: messages as in message passing, with each answer as one Gaussian.

No integral is left, so that a sweep takes a small part of the time, whatever the number of answers
to a task, and comes near enough to learn a noise model by (``kernels.match``). It has no
posterior, and no bounds of the truths: what is made of the answers is integrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
    classes_heard,
    fixed_point,
)
from voxpop.inference.kernel_set import (
    BiasMessages,
    Edges,
    ExpectedCounts,
    KernelSet,
    Matching,
    MatchInputs,
    Predictions,
    SweepState,
    add_to_workers,
)
from voxpop.inference.message_passing import LEARNED_FLOOR, CountSums
from voxpop.inference.schedule import Whole
from voxpop.models.model import Model


class MomentMatching:
    """All answers of a data set, coordinate by coordinate, with messages and the workers' sums.

    Parameters are as in :class:`voxpop.inference.message_passing.MessagePassing`. Messages are
    (d, E, 1, K), those about biases (d, E, 1) or empty; ``_site`` (d, C, E) and ``_prior_site``
    (d, C, n) are the precisions of the Gaussians that stand for answers and prior.
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
        self._origin, self._value = _centred(answers, unit)
        gold = np.full((n, d), np.nan) if answers.gold is None else answers.gold / unit
        self._known = np.ascontiguousarray(gold.T - self._origin)
        self._worker = answers.worker[:, None]
        self._message = np.zeros((d, n_edges, 1, n_levels), dtype=np.int64)
        self.bias_precision = np.zeros((d, n_edges, 1) if has_bias else (d, 0, 0))
        self.bias_pull = np.zeros_like(self.bias_precision)
        self._site = np.zeros((d, n_classes, n_edges))
        self._prior_site = np.zeros((d, n_classes, n))
        most = int(answers.worker_degree.max()) if whole is None else whole.most_answers
        self.quantum, floor = fixed_point(most * d)
        self._floor = max(floor, LEARNED_FLOOR)
        self.log_weights = model.log_weights
        self.sums: WorkerSums = np.zeros((answers.n_workers, n_levels), dtype=np.int64)
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
        new_sums = np.zeros_like(self.sums) if tasks is None else self.sums.copy()
        counts = CountSums(parameters, self._answers.dimension) if is_counted else None
        evidence, moved = self.evidence.copy(), np.zeros(self._answers.dimension)
        for j in range(self._answers.dimension):
            given = self._given(j, parameters, state, bias)
            if tasks is not None:
                sent = tasks[self._answers.task]
                add_to_workers(new_sums, self._worker[sent], -self._message[j][sent])
                given = given._replace(rows=replace(given.rows, sending=tasks))
            found, said, sums = self._kernels.match_sweep(given, new_sums, is_counted)
            sending = slice(None) if tasks is None else tasks
            evidence[sending, j], moved[j] = said[sending], found
            if counts is not None and sums is not None:
                counts.add(sums, j)
        self.evidence[:] = evidence
        return new_sums, moved, None if counts is None else counts.result()

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
        precision, pull = self.bias_messages()
        return bias_sums(self._answers, precision), bias_sums(self._answers, pull)

    def bias_messages(self) -> tuple[Floats, ...]:
        """Messages (E, d) about the biases, precision and pull; nothing without."""
        both = self.bias_precision, self.bias_pull
        return tuple(part[:, :, 0].T for part in both) if self.bias_pull.size else ()

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all messages about it."""
        self.bias_pull -= self.bias_precision * shift[self._answers.worker].T[:, :, None]

    def sent(self) -> WorkerSums:
        """Sum up the messages to each worker."""
        sums = np.zeros_like(self.sums)
        for of_coordinate in self._message:
            add_to_workers(sums, self._worker, of_coordinate)
        return sums

    def state(self) -> Iterator[tuple[Any, str]]:
        """Where all messages are: objects, and the names of arrays in them."""
        names = ("_message", "bias_precision", "bias_pull", "_site", "_prior_site", "evidence")
        yield from ((self, name) for name in names)

    def messages(self) -> WorkerSums:
        """Return all messages by edge and coordinate, (n_edges, d, n_levels)."""
        return np.asarray(self._message[:, :, 0].transpose(1, 0, 2))

    def resume(self, other: MomentMatching) -> None:
        """Go on from the messages of another noise model, about the same levels."""
        self._message, self.sums = other._message.copy(), other.sums

    def _given(
        self, j: int, parameters: SweepParameters, state: SweepState, bias: WorkerBias | None
    ) -> Matching:
        about, mean = None, parameters.truths.mean
        if bias is not None:
            messages = self.bias_precision[j], self.bias_pull[j]
            about = BiasMessages(bias.mean[:, j], bias.precision[:, j], *messages, bias.damping)
        log_class = np.zeros((self._answers.n_tasks, 1))
        if len(parameters.log_class) > 1:
            log_class = classes_heard(parameters.log_class, self.evidence, j)
        rows = MatchInputs(
            self._answers.task_ptr, self._value[j], mean.T[j] - self._origin[j], self._known[j],
            log_class, self._site[j], self._prior_site[j], about,
        )  # fmt: skip
        edges = Edges(self._worker, self._message[j])
        return Matching(parameters.law(j, state.floor), rows, state, edges)

    def _state(self, damping: float) -> SweepState:
        weights = np.ascontiguousarray(self.log_weights)
        return SweepState(self.sums, weights, self.quantum, self._floor, damping)


def rms_moved(squares: Floats, n_open: int) -> float:
    """Return by how many sds truths moved, from squares (d,) over so many open tasks."""
    return float(np.sqrt(squares / max(n_open, 1)).max())


def _centred(answers: Answers, unit: Floats) -> tuple[Floats, Floats]:
    """The middle answer of every task (d, n), in units, and the answers (d, E) from there."""
    origin = middle_answers(answers).T
    away = (answers.value.T - origin[:, answers.task]) / unit[:, None]
    return origin / unit[:, None], np.ascontiguousarray(away)
