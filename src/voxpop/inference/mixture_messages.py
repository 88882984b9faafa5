"""Messages under a rich noise model: the state of every edge, and one sweep over all tasks.

Workers tell tasks about their level and bias, tasks tell workers, coordinates of a task tell each
other how hard it is. All tasks are integrated, coordinate by coordinate (M28)-(M32).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.inference.kernels.integrate import node_quantiles
from voxpop.inference.kernels.mixture import Block, Grid, Heard
from voxpop.inference.kernels.nodes import Nodes
from voxpop.inference.kernels.posterior import Posterior
from voxpop.inference.mixture_kernels import MixtureKernels

# Numbers in flight in one block: 16 MB.
_BLOCK_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class Truths:
    """Prior of the truths: per coordinate a mixture of Gaussians about one mean; or flat."""

    mean: Floats
    variance: Floats
    weight: Floats

    @property
    def is_flat(self) -> bool:
        """Tell whether any truth is as likely as any other."""
        return self.weight.size == 0


@dataclass(frozen=True, eq=False)
class Law:
    """What is taken as given in a sweep: the mixture, the shares of the classes, the prior."""

    grid: Grid
    log_class: Floats
    truths: Truths
    accuracy: float


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of the workers: log levels (m, K), mean and precision of the bias (m, d).

    Without bias the last two are empty.
    """

    log_level: Floats
    bias: Floats
    bias_precision: Floats

    def distance(self, other: Beliefs) -> Floats:
        """How far each worker's are from others: in probability, and in sds of the bias (m,)."""
        found = np.abs(softmax(self.log_level, axis=1) - softmax(other.log_level, axis=1))
        if not self.bias.size:
            return np.asarray(found.max(axis=1))
        bias = np.abs(self.bias - other.bias) * np.sqrt(self.bias_precision)
        sure = np.abs(np.log(self.bias_precision / other.bias_precision))
        return np.asarray(found.max(axis=1) + (bias + sure).max(axis=1))


@dataclass(frozen=True, eq=False)
class Counts:
    """Sums over all rows that learning needs."""

    pairs: Floats
    classes: Floats
    truth_component: Floats
    truth_pull: Floats
    truth_precision: Floats


@dataclass(frozen=True, eq=False)
class Audit:
    """Every answer (E, d) as predicted by the others: log density, PIT, and moments.

    ``truth_mean`` and ``truth_variance`` are what the others say of the truth, ``bias`` what is
    believed of the worker's without this answer, ``variance`` that of the prediction.
    """

    log_density: Floats
    pit: Floats
    truth_mean: Floats
    truth_variance: Floats
    bias: Floats
    variance: Floats


class Integrals:
    """One data set in units of its own, with the messages of every edge.

    ``value`` (E, d) and ``gold`` (n, d) are relative to ``origin`` (n, d), an answer of the task.
    """

    def __init__(
        self,
        answers: Answers,
        value: Floats,
        origin: Floats,
        gold: Floats,
        bounds: Floats,
        kernels: MixtureKernels,
    ) -> None:
        self._answers, self._value, self._origin = answers, value, origin
        self._kernels = kernels
        self._gold, self._bounds = gold, bounds
        self._rows = list(_rows(answers))

    def start(self, n_levels: int, n_classes: int) -> None:
        """Forget all messages."""
        shape = self._value.shape
        self.message = np.zeros((*shape, n_levels))
        self.bias_precision, self.bias_pull = np.zeros(shape), np.zeros(shape)
        self.evidence = np.zeros((self._answers.n_tasks, shape[1], n_classes))

    def level_sums(self) -> Floats:
        """Sum of all messages about its level to each worker, (m, K)."""
        return self._by_worker(self.message)

    def bias_sums(self) -> tuple[Floats, Floats]:
        """Precision and precision times mean of all messages about each bias, (m, d)."""
        return self._by_worker(self.bias_precision), self._by_worker(self.bias_pull)

    def recentre(self, shift: Floats) -> None:
        """Take ``shift`` (m, d) off every worker's bias, in all that was said of it."""
        self.bias_pull -= self.bias_precision * shift[self._answers.worker]

    def _by_worker(self, per_edge: Floats) -> Floats:
        """Add up numbers of each worker's edges, in bounded memory; of (E, d, K) also over d."""
        answers, ptr = self._answers, self._answers.worker_ptr
        total = np.empty((answers.n_workers, per_edge.shape[-1]))
        most = max(1, _BLOCK_NUMBERS // max(1, per_edge[0].size))
        first = 0
        while first < answers.n_workers:
            last = max(first + 1, int(np.searchsorted(ptr, ptr[first] + most, "right")) - 1)
            some = per_edge[answers.by_worker[ptr[first] : ptr[last]]]
            some = some.sum(axis=1) if some.ndim == 3 else some
            total[first:last] = np.add.reduceat(some, ptr[first:last] - ptr[first], axis=0)
            first = last
        return total

    def sweep(
        self,
        law: Law,
        beliefs: Beliefs,
        damping: float,
        bias_damping: float,
        among: NDArray[np.bool_] | None = None,
    ) -> tuple[float, Counts | None]:
        """Let all tasks speak once; return the largest change of a message, and what to learn.

        If only those ``among`` (n,) some are to speak, there is nothing to learn from it.
        """
        change, counts = 0.0, None if among is not None else _Sums(law, self._value.shape[1])
        for rows in self._rows:
            for (edge, task), block, j, prior in self._blocks(rows.of(among), law, beliefs):
                heard = self._kernels.send(block, law.grid)
                old = self.message[edge, j]
                change = max(change, float(np.abs(np.exp(heard.message) - np.exp(old)).max()))
                self.message[edge, j] = (1.0 - damping) * heard.message + damping * old
                self.evidence[task, j] = heard.evidence
                if counts is not None:
                    counts.add(heard, block.x + self._origin[task, j][:, None], prior, j)
                if beliefs.bias.size:
                    self._hear_bias(edge, j, block, heard, bias_damping)
        return change, None if counts is None else counts.result()

    def _hear_bias(
        self, edge: NDArray[np.int64], j: int, block: Block, heard: Heard, damping: float
    ) -> None:
        """Divide what is believed with the answer by what was believed without (M31)."""
        before = block.spread
        variance = np.clip(heard.shift_variance, 1e-12 * before, before)
        precision = np.maximum(1.0 / variance - 1.0 / before, 1e-9 / before)
        old = self._value[edge, j] - block.centre
        pull = (old + heard.shift) * (precision + 1.0 / before) - old / before
        for kept, new in ((self.bias_precision, precision), (self.bias_pull, pull)):
            kept[edge, j] = damping * kept[edge, j] + (1.0 - damping) * new

    def posterior(
        self, law: Law, beliefs: Beliefs, probabilities: Floats
    ) -> tuple[Posterior, Floats]:
        """Return what is known of the truths, relative to the origin, and of the classes."""
        n, d = self._origin.shape
        estimate, variance = np.empty((n, d)), np.empty((n, d))
        quantile = np.empty((n, d, len(probabilities)))
        classes = np.zeros((n, len(law.log_class)))
        for rows in self._rows:
            for (_, task), block, j, _ in self._blocks(rows, law, beliefs):
                joint = self._kernels.send(block, law.grid).mass
                mass = joint.sum(axis=1)
                classes[task] += joint.sum(axis=2) / d
                estimate[task, j] = mean = (mass * block.x).sum(axis=1)
                variance[task, j] = (mass * (block.x - mean[:, None]) ** 2).sum(axis=1)
                nodes = Nodes(block.x, _steps(block.x))
                quantile[task, j] = node_quantiles(mass, nodes, probabilities)
        return Posterior(estimate, variance, quantile), classes

    def audit(self, law: Law, beliefs: Beliefs) -> Audit:
        """Predict every answer from the others, in units of this data set (M32)."""
        found = [np.zeros(self._value.shape) for _ in range(6)]
        for rows in self._rows:
            for (edge, _), block, j, _ in self._blocks(rows, law, beliefs):
                p = self._kernels.predict(block, law.grid)
                bias = self._value[edge, j] - block.centre
                parts = (p.log_density, p.pit, p.mean, p.truth_variance, bias, p.variance)
                for array, part in zip(found, parts, strict=True):
                    array[edge, j] = part
        return Audit(*found)

    def _blocks(
        self, rows: _Rows, law: Law, beliefs: Beliefs
    ) -> Iterator[tuple[tuple[NDArray[np.int64], NDArray[np.int64]], Block, int, Floats | None]]:
        """Cut rows of equal degree into blocks, with all that they hear from elsewhere.

        Terms of the prior at the nodes come last, if there are any (:func:`_truth_terms`).
        """
        worker = self._answers.worker
        degree = rows.edge.shape[1]
        size = max(1, _BLOCK_NUMBERS // self._kernels.numbers_per_row(degree, law.grid))
        for start in range(0, len(rows.task), size):
            task, edge = rows.task[start : start + size], rows.edge[start : start + size]
            who = worker[edge]
            told = self.evidence[task].sum(axis=1)
            for j in range(self._value.shape[1]):
                incoming = beliefs.log_level[who] - self.message[edge, j]
                incoming = incoming - incoming.max(axis=2, keepdims=True)
                classes = law.log_class + told - self.evidence[task, j]
                if classes.shape[1] > 1:
                    classes = classes - logsumexp(classes, axis=1, keepdims=True)
                else:
                    classes = np.zeros_like(classes)
                value = self._value[edge, j]
                bias, spread = np.zeros_like(value), np.zeros_like(value)
                if beliefs.bias.size:
                    precision = beliefs.bias_precision[who, j] - self.bias_precision[edge, j]
                    pull = (
                        beliefs.bias[who, j] * beliefs.bias_precision[who, j]
                        - self.bias_pull[edge, j]
                    )
                    spread = 1.0 / np.maximum(precision, 1e-300)
                    bias = pull * spread
                centre = value - bias
                x, log_weight, prior = self._nodes(task, j, centre, spread, law)
                block = Block(centre, spread, incoming, classes, x, log_weight)
                yield (edge, task), block, j, prior

    def _nodes(
        self, task: NDArray[np.int64], j: int, centre: Floats, spread: Floats, law: Law
    ) -> tuple[Floats, Floats, Floats | None]:
        """Return nodes (n, Q), their log weights, and terms of the prior there, if there is one."""
        grid, truths = law.grid, law.truths
        gold, origin = self._gold[task, j], self._origin[task, j]
        if np.isfinite(gold).all():  # rows of gold stand together: one node, at the truth
            x = gold[:, None]
            terms = None if truths.is_flat else _truth_terms(x + origin[:, None], truths, j)[0]
            return x, np.zeros_like(x), terms
        prior = (np.zeros(len(task)), np.inf, np.inf)
        if not truths.is_flat:
            variance = truths.variance[j]
            prior = (truths.mean[j] - origin, float(variance.min()), float(variance.max()))
        low, high = self._bounds[:, j, None] - origin
        x, log_weight = self._kernels.place(
            centre,
            grid.variance.min() + spread,
            grid.variance.max() + spread.max(axis=1),
            prior,
            (low, high),
            law.accuracy,
        )
        if truths.is_flat:
            return x, log_weight, None
        terms, log_prior = _truth_terms(x + origin[:, None], truths, j)
        return x, log_weight + log_prior, terms


@dataclass(frozen=True, eq=False)
class _Rows:
    task: NDArray[np.int64]
    edge: NDArray[np.int64]

    def of(self, among: NDArray[np.bool_] | None) -> _Rows:
        """Those of some tasks, or all."""
        if among is None:
            return self
        kept = among[self.task]
        return _Rows(self.task[kept], self.edge[kept])


def _rows(answers: Answers) -> Iterator[_Rows]:
    """Tasks of equal degree together; of these, gold tasks apart."""
    degree = answers.task_degree
    for size in np.unique(degree).tolist():
        for is_gold in (False, True):
            task = np.flatnonzero((degree == size) & (answers.is_gold == is_gold))
            if len(task):
                yield _Rows(task, answers.task_ptr[task][:, None] + np.arange(size))


def _steps(x: Floats) -> Floats:
    """Derivative of x by node number."""
    return np.asarray(np.gradient(x, axis=1)) if x.shape[1] > 1 else np.ones_like(x)


def _truth_terms(x: Floats, truths: Truths, j: int) -> tuple[Floats, Floats]:
    """Terms of the prior at x (n, Q), and the log of their sum.

    Terms, (components, n, Q), are over the widest one's exponential, so that none overflows and
    their sum does not underflow.
    """
    variance = truths.variance[j]
    squared = (x - truths.mean[j]) ** 2
    widest = variance.max()
    excess = -0.5 * (1.0 / variance - 1.0 / widest)
    terms = np.exp(excess[:, None, None] * squared)
    terms *= (truths.weight[j] / np.sqrt(variance))[:, None, None]
    return terms, np.log(terms.sum(axis=0)) - 0.5 / widest * squared


class _Sums:
    """Adds up, block by block, what learning needs."""

    def __init__(self, law: Law, dimension: int) -> None:
        self.pairs = np.zeros_like(law.grid.mixing)
        self.classes = np.zeros(len(law.grid.mixing))
        self.component = np.zeros_like(law.truths.weight)
        self._truths = law.truths
        self.pull, self.precision = np.zeros(dimension), np.zeros(dimension)
        self._dimension = dimension

    def add(self, heard: Heard, x: Floats, prior: Floats | None, j: int) -> None:
        truths = self._truths
        self.pairs += heard.pairs
        self.classes += heard.mass.sum(axis=(0, 2)) / self._dimension
        if prior is not None:
            share = prior * (heard.mass.sum(axis=1) / prior.sum(axis=0))
            self.component[j] += share.sum(axis=(1, 2))
            weight = np.tensordot(1.0 / truths.variance[j], share, axes=1)
            self.pull[j] += float((weight * x).sum())
            self.precision[j] += float(weight.sum())

    def result(self) -> Counts:
        return Counts(self.pairs, self.classes, self.component, self.pull, self.precision)
