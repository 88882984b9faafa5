"""Exact: the Bayes-optimal estimate by variable elimination over the workers' levels."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp, softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.errors import ConfigError
from voxpop.estimators.base import Estimator, OnSweep, as_tuples, plain_settings
from voxpop.estimators.make_result import make_result, worker_noise
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
        order, cliques = _eliminate(_neighbours(answers), len(model.support))
        prior_mean = model.prior_means(answers.n_tasks)
        tasks = [_Task(answers, i, model, mean) for i, mean in enumerate(prior_mean)]
        tree = _BucketTree(order, cliques, len(model.support))
        for u in range(answers.n_workers):
            tree.multiply((u,), model.log_weights)
        for task in tasks:
            for workers, log_factor in task.log_factors:
                tree.multiply(workers, log_factor)
        tree.calibrate()
        parts = [astuple(task.posterior(tree, model)) for task in tasks]
        found = Posterior(*map(np.concatenate, zip(*parts, strict=True)))
        share = np.stack([tree.marginal((u,)) for u in range(answers.n_workers)])
        width = {"largest_clique": max(map(len, cliques.values()))}
        settings = plain_settings(self) | width
        return make_result(answers, settings, found, worker_noise(share, model))


class _Task:
    """One task: log factors over its workers' levels, and its posterior given their marginal."""

    def __init__(self, answers: Answers, i: int, model: Model, prior_mean: Floats) -> None:
        edges = slice(int(answers.task_ptr[i]), int(answers.task_ptr[i + 1]))
        self.workers = tuple(answers.worker[edges].tolist())
        self.origin = answers.value[edges.start]
        self.value = (answers.value[edges] - self.origin)[None]
        self.prior_mean = (prior_mean - self.origin)[None]
        self.gold: Floats | None = None
        self.log_factors: list[tuple[tuple[int, ...], Floats]]
        if answers.gold is not None and answers.is_gold[i]:
            # Given the truth, the workers are independent: one factor each.
            self.gold = answers.gold[i]
            factors = log_known(answers.value[edges][None], self.gold[None], model.levels)[0]
            self.log_factors = [((u,), f) for u, f in zip(self.workers, factors, strict=True)]
            return
        support, degree = tuple(model.support), len(self.workers)
        self.c = enumeration.configurations(support, degree, model.prior_precision)
        log_factor = enumeration.log_factor(self.value, self.prior_mean, self.c)[0]
        self.log_factors = [(self.workers, log_factor)]

    def posterior(self, tree: _BucketTree, model: Model) -> Posterior:
        if self.gold is not None:
            return known(self.gold[None], len(PROBABILITIES))
        table = tree.marginal(self.workers)[None]
        found = enumeration.posterior(
            table, self.value, self.prior_mean, model.prior_precision, self.c, PROBABILITIES
        )
        quantile = found.quantile + self.origin[None, :, None]
        return Posterior(found.estimate + self.origin, found.variance, quantile)


def _neighbours(answers: Answers) -> list[set[int]]:
    """Workers with whom each worker shares a task whose truth is unknown."""
    neighbours: list[set[int]] = [set() for _ in range(answers.n_workers)]
    for i in np.flatnonzero(~answers.is_gold):
        group = answers.worker[answers.task_ptr[i] : answers.task_ptr[i + 1]].tolist()
        for u in group:
            neighbours[u].update(group)
    for u, others in enumerate(neighbours):
        others.discard(u)
    return neighbours


def _eliminate(
    neighbours: list[set[int]], n_levels: int
) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Order the workers by min-fill; return the order, and the clique that each leaves in."""
    left = set(range(len(neighbours)))
    scores = {u: _score(u, neighbours) for u in left}
    queue = [(score, u) for u, score in scores.items()]
    heapq.heapify(queue)
    order, cliques, in_all = [], {}, 0
    while left:
        score, u = heapq.heappop(queue)
        if u not in left or score != scores[u]:
            continue
        around = neighbours[u]
        size = len(around) + 1
        if size * np.log(n_levels) > np.log(_MOST_STATES) + 1e-9:
            raise ConfigError(
                f"exact must sum over {n_levels}^{size} states of {size} workers jointly, more "
                f"than {_MOST_STATES}; use BI"
            )
        in_all += n_levels**size
        if in_all > _MOST_IN_ALL:
            raise ConfigError(
                f"exact needs tables of more than {_MOST_IN_ALL} states for these "
                f"{len(neighbours)} workers; use BI"
            )
        order.append(u)
        cliques[u] = (u, *around)
        left.discard(u)
        touched = set(around)
        for v in around:
            touched |= neighbours[v]
            neighbours[v] |= around
            neighbours[v] -= {u, v}
        for v in touched & left:
            scores[v] = _score(v, neighbours)
            heapq.heappush(queue, (scores[v], v))
    return order, cliques


def _score(u: int, neighbours: list[set[int]]) -> tuple[int, int]:
    """Edges that eliminating a worker would add between its neighbours, and their number."""
    around = neighbours[u]
    degree = len(around)
    if degree > 64:  # never the next unless all are like it; counting would take long
        return degree * degree, degree
    missing = sum(degree - 1 - len(neighbours[v] & around) for v in around)
    return missing // 2, degree


class _BucketTree:
    """A tree of buckets: one table for every worker and the clique it is eliminated in.

    Once the worker is summed out, its table goes to the bucket of the next of its clique.
    """

    def __init__(
        self, order: list[int], cliques: dict[int, tuple[int, ...]], n_levels: int
    ) -> None:
        self.order, self.k = order, n_levels
        self.turn = {u: t for t, u in enumerate(order)}
        # The worker itself first, the others in order of elimination.
        self.clique = {u: tuple(sorted(c, key=self.turn.__getitem__)) for u, c in cliques.items()}
        self.table = {u: np.zeros((n_levels,) * len(self.clique[u])) for u in order}

    def multiply(self, workers: tuple[int, ...], log_factor: Floats) -> None:
        """Add a log factor over these workers, first worker slowest, to its bucket."""
        bucket = min(workers, key=self.turn.__getitem__)
        self._add(bucket, workers, log_factor.reshape((self.k,) * len(workers)))

    def _add(self, bucket: int, workers: tuple[int, ...], table: Floats) -> None:
        by_turn = sorted(range(len(workers)), key=lambda axis: self.turn[workers[axis]])
        shape = [self.k if u in set(workers) else 1 for u in self.clique[bucket]]
        self.table[bucket] += table.transpose(by_turn).reshape(shape)

    def calibrate(self) -> None:
        """Pass messages down the order and back, so that every table is a log marginal."""
        sent: dict[int, Floats] = {}
        for u in self.order:
            rest = self.clique[u][1:]
            if rest:
                sent[u] = np.asarray(logsumexp(self.table[u], axis=0))
                self._add(rest[0], rest, sent[u])
        for u in reversed(self.order):
            rest = self.clique[u][1:]
            if rest:
                back = self._over(rest[0], rest) - sent[u]
                self.table[u] += back - back.max()

    def _over(self, bucket: int, workers: tuple[int, ...]) -> Floats:
        """Log marginal of some workers of a bucket, axes by turn."""
        drop = tuple(axis for axis, v in enumerate(self.clique[bucket]) if v not in workers)
        table = self.table[bucket]
        return np.asarray(logsumexp(table, axis=drop)) if drop else table

    def marginal(self, workers: tuple[int, ...]) -> Floats:
        """Probabilities of the levels of workers who share a task, first worker slowest."""
        bucket = min(workers, key=self.turn.__getitem__)
        by_turn = sorted(range(len(workers)), key=lambda axis: self.turn[workers[axis]])
        table = self._over(bucket, workers).transpose(np.argsort(by_turn))
        return np.asarray(softmax(table.reshape(-1)))
