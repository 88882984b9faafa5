"""The weak oracle: it knows the variances of distant workers only, and infers the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import by_degree
from voxpop.data.truths import read_variances
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.bounds.exact import enumerated, gold_posterior
from voxpop.estimators.make_result import WorkerNoise, make_result, relative_weight
from voxpop.inference.groups import model_in_units, noise_unit, put_posterior
from voxpop.inference.kernels import enumerate as enumeration
from voxpop.inference.kernels.posterior import Posterior, log_known
from voxpop.inference.numpy_kernels import blocks
from voxpop.models.model import Model
from voxpop.results.result import PROBABILITIES, Result

# Configurations of one task: 3 levels for 12 workers, 2 for 20.
_MOST_CONFIGURATIONS = 2**20
# Configurations less likely than this in all tasks of a block are left out of their moments.
_NEGLIGIBLE = 1e-16
# Pairs of answers of the same worker: a few hundred MB.
_MOST_PAIRS = 2 * 10**7


@dataclass(frozen=True, kw_only=True)
class WeakOracle(Estimator):
    """A lower bound of the error of any estimator: only distant workers' variances are revealed.

    For each root task i, let T be its breadth-first tree down to the workers at distance 2k + 1.
    These, the leaves, have their variances revealed, nobody else has::

        mu_i = E[ mu_i | answers, variances of the workers at distance 2k + 1 ],   tau -> infinity

    Given the leaves, the root is independent of everything beyond them. Where the tasks and the
    workers above the leaves form a tree, k rounds of belief propagation from the leaves give this
    mean exactly. The depth k of a root is the largest for which they do, up to ``depth``. At k = 1
    only the root's own workers are unknown, and where they share a second task their levels are
    summed over jointly. So the mean is exact for every root and every graph, and no estimator has
    a smaller expected error. It knows less than the strong oracle, so it is a tighter bound. A root
    without leaves gets the exact posterior.

    The workers' variances in the result are the given ones.

    Parameters
    ----------
    support, weights
        The levels that a worker may have, and their shares, as for ``BI``.
    variances
        The true variances, as for ``StrongOracle``; they need not be among the levels.
    depth
        The largest k tried.

    References
    ----------
    Ok, Oh, Jang, Shin, Yi: Iterative Bayesian Learning for Crowdsourced Regression, AISTATS 2019
    (Theorem 2 and its proof, where this is the oracle of depth k; Weak-Oracle in section 5).
    """

    support: Sequence[float]
    variances: object = field(repr=False)
    weights: Sequence[float] | None = None
    depth: int = 4
    name: ClassVar[str] = "weak-oracle"
    summary: ClassVar[str] = "knows the variances of distant workers only: a tighter bound"

    def __post_init__(self) -> None:
        model = Model(support=self.support, weights=self.weights)
        object.__setattr__(self, "support", model.support)
        object.__setattr__(self, "weights", None if self.weights is None else model.weights)
        require(self.depth >= 1, f"depth must be at least 1, got {self.depth}")

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        variance = read_variances(self.variances, answers.worker_ids)
        model = Model(support=self.support, weights=self.weights, dimension=answers.dimension)
        degree = int(answers.task_degree[~answers.is_gold].max(initial=1))
        require(
            degree * np.log(len(model.support)) <= np.log(_MOST_CONFIGURATIONS) + 1e-9,
            f"weak-oracle sums over {len(model.support)}^{degree} levels of a task's workers, "
            f"more than {_MOST_CONFIGURATIONS}; use fewer levels or answers per task",
        )
        pairs = int((answers.worker_degree**2).sum())
        require(
            pairs <= _MOST_PAIRS,
            f"weak-oracle compares all answers of a worker, {pairs} pairs, more than {_MOST_PAIRS}",
        )
        depth = tree_depth(answers, self.depth)
        unit = noise_unit(model)
        # In multiples of a unit, as in message passing.
        gold = None if answers.gold is None else answers.gold / unit
        scaled = replace(answers, value=answers.value / unit, gold=gold)
        messages = _Messages(scaled, model_in_units(model, unit), variance / unit**2)
        found = gold_posterior(answers)
        for k in range(1, int(depth.max()) + 1):
            if k > 1:
                messages.sweep()
            messages.write_posterior((depth == k) & ~answers.is_gold, found, unit)
            if on_sweep is not None:
                on_sweep("Weak-Oracle", k, float((depth > k).mean()), 0.5 / answers.n_tasks)
        interval = np.stack([variance, variance], axis=1)
        workers = WorkerNoise(variance, interval, relative_weight(1.0 / variance))
        reached = {"depth_used": np.bincount(depth, minlength=2)[1:].tolist()}
        return make_result(answers, plain_settings(self) | reached, found, workers)


def tree_depth(answers: Answers, most: int) -> Index:
    """The largest k, at least 1, for which tasks and workers within distance 2k form a tree.

    The neighbourhood holds all tasks of its workers, so it has as many edges as these workers have
    answers: it is a tree if that is one less than its nodes. Gold tasks, whose truth is known, make
    no cycles and are left out.
    """
    n, m = answers.n_tasks, answers.n_workers
    edges = ~answers.is_gold[answers.task]
    one = np.ones(int(edges.sum()), dtype=np.int32)
    table = csr_array((one, (answers.task[edges], answers.worker[edges])), shape=(n, m))
    answered = np.bincount(answers.worker[edges], minlength=m)
    depth = np.ones(n, dtype=np.int64)
    roots = np.flatnonzero(~answers.is_gold)
    workers = table[roots]
    for k in range(1, most + 1):
        tasks = workers @ table.T
        n_edges = _present(workers) @ answered
        is_tree = n_edges == np.diff(workers.indptr) + np.diff(tasks.indptr) - 1
        depth[roots[is_tree]] = k
        roots = roots[is_tree]
        if not len(roots):
            break
        workers = _present(tasks[is_tree]) @ table
    return depth


def _present(counts: csr_array) -> csr_array:
    """The same matrix with ones in place of all entries."""
    return csr_array((np.ones_like(counts.data), counts.indices, counts.indptr), counts.shape)


class _Messages:
    """Messages from tasks to workers, k rounds after the leaves were revealed."""

    def __init__(self, answers: Answers, model: Model, variance: Floats) -> None:
        self.answers, self.model = answers, model
        self.precision = 1.0 / variance[answers.worker]
        # Pairs of different answers of one worker: a message goes from edge `of` to edge `to`.
        edge = np.arange(answers.n_edges)
        of_worker = csr_array((np.ones(len(edge), dtype=np.int8), (edge, answers.worker)))
        to, of = (of_worker @ of_worker.T).nonzero()
        self.to, self.of = to[to != of], of[to != of]
        # Whether the worker of a pair is the only one who answered both tasks, or one is gold.
        key = answers.task[self.to].astype(np.int64) * answers.n_tasks + answers.task[self.of]
        _, place, count = np.unique(key, return_inverse=True, return_counts=True)
        self.alone = (count[place] < 2) | answers.is_gold[answers.task[self.of]]
        self.message = self._from_leaves()
        self.is_first = True

    def _from_leaves(self) -> Floats:
        """Messages to each worker if all other workers of the task are known."""
        a, levels = self.answers, self.model.levels
        message = np.zeros((a.n_edges, len(levels)))
        for tasks, edge in by_degree(a, lambda size: size * (size + len(levels))):
            gold, size = a.is_gold[tasks], edge.shape[1]
            if a.gold is not None and gold.any():
                message[edge[gold]] = log_known(a.value[edge[gold]], a.gold[tasks[gold]], levels)
            one = edge[~gold].reshape(-1, 1)
            message[one[:, 0]] = self._factor_given_others(one, edge[~gold].repeat(size, axis=0))
        return message

    def _cavity(self, pairs: NDArray[np.bool_] | slice = slice(None)) -> Floats:
        """Cavity belief of each edge's worker about its level, from its other answers in pairs."""
        to, message = self.to[pairs], self.message[self.of[pairs]]
        total = [np.bincount(to, part, self.answers.n_edges) for part in message.T]
        cavity = np.stack(total, axis=1) + self.model.log_weights
        return np.asarray(cavity - cavity.max(axis=1, keepdims=True))

    def sweep(self) -> None:
        """Pass messages one round on: from workers to tasks, and back to workers."""
        cavity, new = self._cavity(), self.message.copy()
        for _, edge, origin, value, c in enumerated(
            self.answers, self.model, ~self.answers.is_gold
        ):
            zero, out = np.zeros_like(origin), np.empty((*edge.shape, c.n_levels))
            factor = enumeration.scaled_factor(enumeration.log_factor(value, zero, c))
            enumeration.send(value, zero, cavity[edge], c, factor, out)
            new[edge] = out
        self.message, self.is_first = new, False

    def write_posterior(self, roots: NDArray[np.bool_], found: Posterior, unit: float) -> None:
        """Write the posterior of these roots, in the users' units."""
        # Workers who share a second task are summed over jointly. Beyond the first round only
        # roots of trees are left, where nobody does.
        cavity = self._cavity(self.alone) if self.is_first else self._cavity()
        joint = self._joint_factors(roots) if self.is_first else {}
        for tasks, edge, origin, value, c in enumerated(self.answers, self.model, roots):
            zero = np.zeros_like(origin)
            log_belief = enumeration.log_factor(value, zero, c)
            log_belief += enumeration.log_joint(cavity[edge])
            for row, i in enumerate(tasks.tolist()):
                whole = log_belief[row].reshape((c.n_levels,) * c.degree)
                for place, table in joint.get(i, {}).items():
                    whole += table.reshape(
                        [c.n_levels if u in place else 1 for u in range(c.degree)]
                    )
            belief = enumeration.scaled_factor(log_belief)
            belief /= belief.sum(axis=1, keepdims=True)
            likely = np.flatnonzero((belief > _NEGLIGIBLE).any(axis=0))
            few = replace(c, precision=c.precision[:, likely], total=c.total[likely])
            some = enumeration.posterior(belief[:, likely], value, zero, 0.0, few, PROBABILITIES)
            put_posterior(found, tasks, slice(None), some, origin, np.full(value.shape[2], unit))

    def _joint_factors(self, roots: NDArray[np.bool_]) -> dict[int, dict[tuple[int, ...], Floats]]:
        """By root: places of workers who share another task, and its factor over their levels."""
        a, n = self.answers, self.answers.n_tasks
        wanted = ~self.alone & roots[a.task[self.to]]
        to, of = self.to[wanted], self.of[wanted]
        key = a.task[to].astype(np.int64) * n + a.task[of]
        order = np.lexsort((to, key))
        to, of = to[order], of[order]
        _, start, size = np.unique(key[order], return_index=True, return_counts=True)
        degree = a.task_degree[a.task[of[start]]]
        tables: dict[int, dict[tuple[int, ...], Floats]] = {}
        for q, length in {*zip(size.tolist(), degree.tolist(), strict=True)}:
            group = start[(size == q) & (degree == length)][:, None] + np.arange(q)
            for rows in blocks(len(group), 2 * len(self.model.support) ** q):
                some = group[rows]
                root, other = a.task[to[some[:, 0]]], a.task[of[some[:, 0]]]
                edge = a.task_ptr[other][:, None] + np.arange(length)
                factor = self._factor_given_others(of[some], edge)
                place = to[some] - a.task_ptr[root][:, None]
                for i, where, entry in zip(root.tolist(), place.tolist(), factor, strict=True):
                    at = tables.setdefault(i, {})
                    at[tuple(where)] = at.get(tuple(where), 0.0) + entry
        return tables

    def _factor_given_others(self, shared: Index, edge: Index) -> Floats:
        """Log factor of a task over the levels of some of its edges (g, q), the others known.

        It is C_j (M2) with the others as a prior of mean M and precision P.
        """
        a, q = self.answers, shared.shape[1]
        c = enumeration.configurations(tuple(self.model.support), q, 0.0)
        others = ~(edge[:, :, None] == shared[:, None, :]).any(axis=2)
        precision = np.where(others, self.precision[edge], 0.0)
        total = precision.sum(axis=1, keepdims=True)
        # About the first answer, which is the mean where there are no others.
        origin = a.value[edge[:, 0]]
        part = precision / np.where(total > 0, total, 1.0)
        mean = origin + np.einsum("gl,gld->gd", part, a.value[edge] - origin[:, None])
        value = a.value[shared]
        left, right = np.triu_indices(q, 1)
        apart = ((value[:, left] - value[:, right]) ** 2).sum(axis=2)
        from_mean = ((value - mean[:, None]) ** 2).sum(axis=2) * total
        inner = (apart @ c.pair) * c.total + from_mean @ c.precision
        weight, log_s = total + c.total, -np.log(c.precision).sum(axis=0)
        return np.asarray(-0.5 * (a.dimension * (np.log(weight) + log_s) + inner / weight))
