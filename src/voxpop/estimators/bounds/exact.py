"""Exact: the Bayes-optimal estimate by variable elimination over the workers' levels."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import by_degree, with_gold
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep, as_tuples, plain_settings
from voxpop.estimators.make_result import make_result, worker_noise
from voxpop.inference.groups import put_posterior
from voxpop.inference.kernels import enumerate as enumeration
from voxpop.inference.kernels.posterior import Posterior, known, log_known
from voxpop.models.model import Model
from voxpop.results.result import PROBABILITIES, Result

# States of one table: 3 levels for 12 workers, 2 for 20.
_MOST_STATES = 2**20
# States of all tables: 128 MB, and as much again for their messages.
_MOST_IN_ALL = 2**24


@dataclass(frozen=True, kw_only=True)
class Exact(Estimator):
    """The exact posterior (M23), where the graph allows a sum over all workers' levels.

    Workers are eliminated one by one in min-fill order: next the one that adds the fewest edges
    between its neighbours. Each leaves a table over those neighbours. The cost is levels **
    (treewidth + 1), whatever the number of workers: levels ** (answers per task) on a tree, and
    more with every cycle. BI approximates this, and equals it on trees. Crowds of large treewidth
    are refused.
    """

    support: Sequence[float]
    weights: Sequence[float] | None = None
    prior_mean: float | Sequence[float] = 0.0
    prior_variance: float = np.inf
    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "Bayes-optimal, by variable elimination; for graphs with few cycles"

    def __post_init__(self) -> None:
        model = Model(
            support=self.support, weights=self.weights, prior_variance=self.prior_variance
        )
        object.__setattr__(self, "support", model.support)
        object.__setattr__(self, "weights", None if self.weights is None else model.weights)
        object.__setattr__(self, "prior_mean", as_tuples(self.prior_mean))

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        model = Model(
            support=self.support,
            weights=self.weights,
            prior_mean=self.prior_mean,
            prior_variance=self.prior_variance,
            dimension=answers.dimension,
        )
        means, one = model.prior_means(answers.n_tasks), np.ones(answers.dimension)
        tree = _BucketTree(_neighbours(answers), len(model.support))  # refuses what is too large
        blocks = [*enumerated(answers, model, ~answers.is_gold)]
        for u in range(answers.n_workers):
            tree.multiply([u], model.log_weights)
        if answers.gold is not None:
            # Given the truth, the workers are independent: one factor each.
            for e in np.flatnonzero(answers.is_gold[answers.task]).tolist():
                truth = answers.gold[answers.task[[e]]]
                factor = log_known(answers.value[[e], None], truth, model.levels)
                tree.multiply([answers.worker[e]], factor)
        for tasks, edge, origin, value, c in blocks:
            factors = enumeration.log_factor(value, means[tasks] - origin, c)
            for workers, factor in zip(answers.worker[edge].tolist(), factors, strict=True):
                tree.multiply(workers, factor)
        tree.calibrate()
        found = gold_posterior(answers)
        for tasks, edge, origin, value, c in blocks:
            table = np.stack([tree.marginal(workers) for workers in answers.worker[edge].tolist()])
            prior = means[tasks] - origin, model.prior_precision
            some = enumeration.posterior(table, value, *prior, c, PROBABILITIES)
            put_posterior(found, tasks, slice(None), some, origin, one)
        share = np.stack([tree.marginal([u]) for u in range(answers.n_workers)])
        settings = plain_settings(self) | {"largest_clique": max(map(len, tree.clique.values()))}
        return make_result(answers, settings, found, worker_noise(share, model))


def gold_posterior(answers: Answers) -> Posterior:
    """Posterior of the gold tasks; that of the others is still to be written."""
    truth = with_gold(answers, np.zeros((answers.n_tasks, answers.dimension)))
    return known(truth, len(PROBABILITIES))


def enumerated(
    answers: Answers, model: Model, chosen: NDArray[np.bool_]
) -> Iterator[tuple[Index, Index, Floats, Floats, enumeration.Configurations]]:
    """Yield tasks of equal degree, edges, first answers, answers from these, and configurations."""
    support, room = tuple(model.support), 3 + answers.dimension
    for tasks, edge in by_degree(answers, lambda size: room * len(support) ** size):
        kept = chosen[tasks]
        if kept.any():
            value = answers.value[edge[kept]]
            c = enumeration.configurations(support, edge.shape[1], model.prior_precision)
            yield tasks[kept], edge[kept], value[:, 0], value - value[:, :1], c


def _neighbours(answers: Answers) -> list[set[int]]:
    """Workers with whom each worker shares a task whose truth is unknown."""
    open_task = (~answers.is_gold[answers.task]).astype(np.int32)
    table = csr_array((open_task, (answers.task, answers.worker)))
    shared = csr_array(table.T @ table)
    shared.eliminate_zeros()
    rows = np.split(shared.indices, shared.indptr[1:-1])
    return [set(row.tolist()) - {u} for u, row in enumerate(rows)]


def _eliminate(neighbours: list[set[int]], n_levels: int) -> Iterator[tuple[int, set[int]]]:
    """Yield the workers in min-fill order, each with its neighbours at that time."""
    left = set(range(len(neighbours)))
    scores = {u: _score(u, neighbours) for u in left}
    queue = [(score, u) for u, score in scores.items()]
    heapq.heapify(queue)
    in_all = 0
    while left:
        score, u = heapq.heappop(queue)
        if u not in left or score != scores[u]:
            continue
        around = neighbours[u]
        size = len(around) + 1
        require(
            size * np.log(n_levels) <= np.log(_MOST_STATES) + 1e-9,
            f"exact must sum over {n_levels}^{size} states of {size} workers jointly, more "
            f"than {_MOST_STATES}; use BI",
        )
        in_all += n_levels**size
        require(
            in_all <= _MOST_IN_ALL,
            f"exact needs tables of more than {_MOST_IN_ALL} states for these "
            f"{len(neighbours)} workers; use BI",
        )
        yield u, around
        left.discard(u)
        touched = set(around)
        for v in around:
            touched |= neighbours[v]
            neighbours[v] |= around
            neighbours[v] -= {u, v}
        for v in touched & left:
            scores[v] = _score(v, neighbours)
            heapq.heappush(queue, (scores[v], v))


def _score(u: int, neighbours: list[set[int]]) -> tuple[int, int]:
    """Edges that eliminating a worker would add between its neighbours, and their number."""
    around = neighbours[u]
    degree = len(around)
    if degree > 64:  # counting would take long, and such a worker comes late anyway
        return degree * degree, degree
    missing = sum(degree - 1 - len(neighbours[v] & around) for v in around)
    return missing // 2, degree


class _BucketTree:
    """A tree of buckets: one table for every worker and the clique it is eliminated in.

    Once the worker is summed out, its table goes to the bucket of the next of its clique.
    """

    def __init__(self, neighbours: list[set[int]], n_levels: int) -> None:
        cliques = dict(_eliminate(neighbours, n_levels))
        self.k, self.turn = n_levels, {u: t for t, u in enumerate(cliques)}
        # The worker itself first, the others in order of elimination.
        self.clique = {u: (u, *sorted(c, key=self.turn.__getitem__)) for u, c in cliques.items()}
        self.table = {u: np.zeros((n_levels,) * len(c)) for u, c in self.clique.items()}

    def multiply(self, workers: Sequence[int], log_factor: Floats) -> None:
        """Add a log factor over these workers, first worker slowest, to the bucket of the next."""
        by_turn = np.argsort([self.turn[u] for u in workers])
        bucket = workers[by_turn[0]]
        shape = [self.k if u in workers else 1 for u in self.clique[bucket]]
        table = log_factor.reshape((self.k,) * len(workers)).transpose(by_turn)
        self.table[bucket] += table.reshape(shape)

    def calibrate(self) -> None:
        """Pass messages down the order and back, so that every table is a log marginal."""
        sent: dict[int, Floats] = {}
        for u, (_, *rest) in self.clique.items():
            if rest:
                sent[u] = np.asarray(logsumexp(self.table[u], axis=0))
                self.multiply(rest, sent[u])
        for u, (_, *rest) in reversed(self.clique.items()):
            if rest:
                back = self._over(rest) - sent[u]
                self.table[u] += back - back.max()

    def _over(self, workers: Sequence[int]) -> Floats:
        """Log marginal of workers who share a task, axes by turn."""
        bucket = min(workers, key=self.turn.__getitem__)
        drop = tuple(axis for axis, v in enumerate(self.clique[bucket]) if v not in workers)
        return np.asarray(logsumexp(self.table[bucket], axis=drop)) if drop else self.table[bucket]

    def marginal(self, workers: Sequence[int]) -> Floats:
        """Probabilities of the levels of workers who share a task, first worker slowest."""
        by_turn = np.argsort([self.turn[u] for u in workers])
        table = self._over(workers).transpose(np.argsort(by_turn))
        return np.asarray(softmax(table.reshape(-1)))
