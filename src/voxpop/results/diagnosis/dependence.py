"""Dependence: pairs of workers whose errors go together, beyond what the others explain.

Two accounts of one person, workers who copy, judges of one family: they give fewer independent
answers than it seems. A pair is tested on the tasks that both answered, against the answers of the
*others*, so that the two do not confirm each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrc, chdtrc, ndtr

from voxpop.arrays import Floats, Index, Mask
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    by_degree,
    mean_by_worker,
    median_by_worker,
    sum_by_task,
    sum_by_worker,
)
from voxpop.results.diagnosis.copies import number_values

# With more pairs of answers to one task than this, times coordinates, no search is made: it would
# not be linear. Ten answers to each of 90,000 tasks make as many.
_MOST_PAIRS = 4_000_000
# With fewer common tasks no correlation can be seen.
MIN_SHARED = 5
# This many other answers are needed to see errors, each family counted once.
_MIN_OTHERS = 2
# A weight that a difference of sums cannot distinguish from zero; single answers have about one.
_NO_WEIGHT = 1e-9
# Errors that correlate less than this, beyond what is expected, are ignored.
MIN_CORRELATION = 0.5
# Chance of mistaking two precise workers, who share the error of the others' mean, for a pair.
_PRECISE = 0.001
# The variance of that error may be this many times what the noise of the others implies.
_DOUBT = 1.5
# A correlation of 1 has no transform.
_MOST_CORRELATION = 0.999
# A value is rare if it is given on no more than this share of the other tasks.
_RARE = 0.01
# So many equal rare answers are needed at least.
_MIN_EQUAL = 3
# Residuals are cut at this many sds: a slip is one answer, however large.
_CUT = 3.0
_MAD_OF_NORMAL = 0.6745
# Least noise variance of a worker: of that about the others' mean, and of the typical worker's.
_LEAST_SHARE, _LEAST_NOISE = 0.02, 0.003
# Lines, and the weights that follow from them, have settled after so many steps.
_STEPS = 5
# Workers whose lines are flatter than this count less in the means of the others.
_FLAT = 0.5
# Exponents at which the bound on the chance of being near is tried.
_EXPONENTS = np.geomspace(0.05, 60.0, 40)


@dataclass(frozen=True, kw_only=True)
class Link:
    """Two workers with correlated errors, and the chance ``p`` of that in an honest pair.

    ``correlation`` is that of their errors on ``shared`` tasks; ``equal`` the number of equal
    answers where these are the evidence, and the correlation their share, else 0.
    """

    first: int
    second: int
    shared: int
    correlation: float
    equal: int
    p: float


class EdgePairs(NamedTuple):
    """All pairs of answers to one task: the edges, and the number of the pair of workers.

    ``first`` and ``second`` (P,) are the two workers of each pair, the lower number first.
    """

    e: Index
    f: Index
    pair: Index
    first: Index
    second: Index

    def sums(self, per_edge_pair: Floats | Mask) -> Floats:
        """Sum over the common tasks of each pair of workers."""
        return np.bincount(self.pair, per_edge_pair, minlength=len(self.first)).astype(np.float64)


def has_pairs(answers: Answers) -> bool:
    """Return whether there are pairs of answers, and not too many."""
    degree = answers.task_degree
    return bool(0 < (degree * (degree - 1) // 2).sum() * answers.dimension <= _MOST_PAIRS)


def edge_pairs(answers: Answers) -> EdgePairs | None:
    """Pair the answers of workers who share a few tasks; None if none do, or too many."""
    if not has_pairs(answers):
        return None
    blocks = []
    for _, edges in by_degree(answers, lambda size: size * size):
        i, j = np.triu_indices(edges.shape[1], 1)
        blocks.append(np.stack([edges[:, i].ravel(), edges[:, j].ravel()]))
    e, f = np.concatenate(blocks, axis=1)
    worker, n = answers.worker.astype(np.int64), answers.n_workers
    swapped = worker[e] > worker[f]
    e, f = np.where(swapped, f, e), np.where(swapped, e, f)
    key = worker[e] * n + worker[f]
    # Most pairs of a large crowd share one task: they are dropped before keys are sorted.
    size = min(n * n, 2 * len(key) + 1)
    place = key % size
    often = np.bincount(place, minlength=size)[place] >= _MIN_EQUAL
    e, f = e[often], f[often]
    key, pair, shared = np.unique(key[often], return_inverse=True, return_counts=True)
    enough = shared >= _MIN_EQUAL
    if not enough.any():
        return None
    number, kept = np.cumsum(enough) - 1, enough[pair]
    key = key[enough]
    return EdgePairs(e[kept], f[kept], number[pair[kept]], key // n, key % n)


# Equal rare answers


def equal_links(answers: Answers, level: float) -> list[Link]:
    """Find pairs who give the same rare answers, even if on some tasks only (M43).

    A value is rare if hardly any other task has it, and not evident if at most half of the answers
    to its task are the same. On a fine scale two honest workers hardly ever agree on such a value.
    How often they do is learned from the half of the workers who do so least, and doubled.
    """
    pairs = edge_pairs(answers)
    if pairs is None:
        return []
    code = number_values(answers.value)
    n_codes = int(code.max()) + 1
    group = answers.task.astype(np.int64) * n_codes + code
    given, place, times = np.unique(group, return_inverse=True, return_counts=True)
    other_tasks = np.bincount(given % n_codes, minlength=n_codes)[code] - 1
    evident = 2 * times[place] > answers.task_degree[answers.task]
    rare = (other_tasks <= _RARE * answers.n_tasks) & ~evident
    shared = np.bincount(pairs.pair)
    same = code[pairs.e] == code[pairs.f]
    equal = pairs.sums(same & rare[pairs.e])
    if equal.max() < _MIN_EQUAL:
        return []
    m = answers.n_workers
    of_worker, tried = (
        np.bincount(pairs.first, x, m) + np.bincount(pairs.second, x, m) for x in (equal, shared)
    )
    least = np.argsort(of_worker / np.maximum(tried, 1), kind="stable")[: max(1, m // 2)]
    chance = min(0.5, 2 * (of_worker[least].sum() + 1) / (tried[least].sum() + 1))
    p = bdtrc(np.maximum(equal, 1) - 1, shared, chance) * len(shared)
    found = np.flatnonzero((equal >= _MIN_EQUAL) & (p <= level))
    times_same = np.bincount(pairs.pair, same)
    return [
        Link(
            first=int(pairs.first[k]),
            second=int(pairs.second[k]),
            shared=int(shared[k]),
            correlation=float(times_same[k] / shared[k]),
            equal=int(times_same[k]),
            p=float(p[k]),
        )
        for k in found
    ]


# Errors that go together


class WorkerLines(NamedTuple):
    """How each worker's answers follow the truth: offset, slope and noise variance, all (m, d).

    ``weight`` (E,) is that of each answer in the means of the others.
    """

    offset: Floats
    slope: Floats
    variance: Floats
    weight: Floats


class Families(NamedTuple):
    """Workers who may be dependent: the number of the family of each (m,).

    ``place`` (E,) numbers the answers of a family to one task, ``size`` (E,) counts them.
    """

    of_worker: Index
    place: Index
    size: Index

    @classmethod
    def of(cls, answers: Answers, of_worker: Index) -> Families:
        """Number the answers."""
        key = answers.task.astype(np.int64) * answers.n_workers + of_worker[answers.worker]
        _, place, size = np.unique(key, return_inverse=True, return_counts=True)
        return cls(of_worker, place, size[place])

    def sums(self, per_edge: Floats) -> Floats:
        """Sum over the answers of the family to the task, for every answer."""
        total = [np.bincount(self.place, column) for column in per_edge.T]
        return np.stack(total, axis=1)[self.place].astype(np.float64)


def worker_lines(answers: Answers, value: Floats, families: Families) -> WorkerLines:
    """Fit a line through each worker's answers over the mean of the others' to the same tasks.

    A bias, a narrow use of the scale and a large noise belong to one worker: they are no
    dependence. The weights in a mean are bounded, so that workers who merely agree do not dominate
    it, a family counts once, and a slip counts little.
    """
    task, worker = answers.task, answers.worker
    share = 1.0 / families.size
    weight = share

    def of_others(per_edge: Floats) -> Floats:
        return np.asarray(sum_by_task(answers, per_edge)[task] - families.sums(per_edge))

    variance = np.zeros((answers.n_workers, value.shape[1]))
    for step in range(_STEPS):
        others = of_others(weight[:, None])
        usable = others > _NO_WEIGHT
        others = np.where(usable, others, 1.0)
        mean = np.where(usable, of_others(weight[:, None] * value) / others, 0.0)
        counted = np.maximum(sum_by_worker(answers, usable.astype(np.float64)), 1.0)
        x_mean, y_mean = (sum_by_worker(answers, usable * z) / counted for z in (mean, value))
        x, y = usable * (mean - x_mean[worker]), usable * (value - y_mean[worker])
        # As much as two typical answers on a line of slope 1.
        prior = 2 * np.median((y - x) ** 2, axis=0) / _MAD_OF_NORMAL**2
        steep = sum_by_worker(answers, x * x) + prior
        slope = (sum_by_worker(answers, x * y) + prior) / np.where(steep > 0, steep, 1.0)
        residual = y - slope[worker] * x
        middle = median_by_worker(answers, residual)
        residual = residual - middle[worker]
        total = (median_by_worker(answers, np.abs(residual)) / _MAD_OF_NORMAL) ** 2
        of_mean = total / np.maximum(mean_by_worker(answers, others), 1.0)
        if step:
            each = (weight**2 / share)[:, None] * variance[worker]
            left = np.maximum(of_others(each), 0.0)
            of_mean = sum_by_worker(answers, usable * left / others**2) / counted
        variance = np.maximum(total - slope**2 * of_mean, _LEAST_SHARE * total)
        typical = _typical(variance)
        variance = np.maximum(variance, _LEAST_NOISE * typical)
        far = np.sqrt((residual**2 / np.maximum(total, _LEAST_NOISE * typical)[worker]).max(axis=1))
        cut = np.minimum(1.0, _CUT / np.maximum(far, 1e-9))
        # Who always answers the same is near to a line, and says nothing of the truth.
        follows = np.clip(slope.mean(axis=1) / _FLAT, 0.0, 1.0) ** 2
        weight = share * cut**2 * (follows / (1.0 + (variance / typical).mean(axis=1)))[worker]
    return WorkerLines(y_mean - slope * x_mean + middle, slope, variance, weight)


def _typical(variance: Floats) -> Floats:
    """Median noise variance of each coordinate, over the workers who have any noise."""
    middle = [np.median(v[v > 0]) if (v > 0).any() else 1.0 for v in variance.T]
    return np.array(middle)


class Correlations(NamedTuple):
    """Of each pair: common tasks with others, correlation of errors beyond the expected, its p.

    ``p`` is the chance of any such pair in the crowd, 1 where the correlation is too small.
    ``beyond`` says whether the two share more than the error of the others' mean.
    """

    shared: Floats
    correlation: Floats
    p: Floats
    beyond: Mask


def correlations(answers: Answers, pairs: EdgePairs, families: Families) -> Correlations:
    """Correlate the errors of all pairs, each about the mean of all but the two families (M41).

    Both errors hold that of the mean, so honest pairs correlate too: by what the noise of the
    others says, and as the crowd's other pairs do (M42).
    """
    value = (answers.value - answers.value.mean(axis=0)) / _spread(answers.value)
    lines = worker_lines(answers, value, families)
    e, f, weight = pairs.e, pairs.f, lines.weight[:, None]
    task, u, v = answers.task[e], answers.worker[e], answers.worker[f]
    two = (families.of_worker[u] != families.of_worker[v])[:, None]

    def of_others(per_edge: Floats) -> Floats:
        own = families.sums(per_edge)
        return np.asarray(sum_by_task(answers, per_edge)[task] - own[e] - two * own[f])

    enough = of_others((1.0 / families.size)[:, None])[:, 0] > _MIN_OTHERS - 0.5
    others = np.maximum(of_others(weight), _NO_WEIGHT)
    mean = of_others(weight * value) / others
    each = families.size[:, None] * weight**2 * lines.variance[answers.worker]
    of_mean = np.maximum(of_others(each), 0.0) / others**2
    expected = lines.slope[u] * lines.slope[v] * of_mean
    errors, variances = [], []
    for edge, who in ((e, u), (f, v)):
        error = value[edge] - lines.offset[who] - lines.slope[who] * mean
        variances.append(lines.variance[who] + lines.slope[who] ** 2 * of_mean)
        limit = _CUT * np.sqrt(variances[-1])
        errors.append(np.clip(error, -limit, limit))
    noise = np.sqrt(lines.variance[u] * lines.variance[v])
    # Tasks count less where the mean of the others is uncertain.
    counts = enough[:, None] / (noise + np.abs(expected) + 1e-300)

    def correlate(xy: Floats, xx: Floats, yy: Floats) -> Floats:
        top, left, right = (pairs.sums((counts * z).sum(axis=1)) for z in (xy, xx, yy))
        size = np.sqrt(left * right)
        found = top / np.where(size > 0, size, 1.0)
        return np.arctanh(np.clip(found, -_MOST_CORRELATION, _MOST_CORRELATION))

    x, y = errors
    shared = pairs.sums(enough)
    tested = shared >= MIN_SHARED
    if not tested.any():
        return Correlations(shared, 0.0 * shared, np.ones_like(shared), tested)
    away = correlate(x * y, x**2, y**2) - correlate(expected, *variances)
    away -= max(float(np.median(away[tested])), 0.0)
    z = away * np.sqrt(np.maximum(shared - 3, 1.0))
    # The spread of honest pairs is learned below the middle: those looked for lie above.
    middle, low = np.quantile(z[tested], (0.5, ndtr(-1.0)))
    z /= max(1.0, float(middle - low))
    # Two precise workers share the error of the others' mean, and nothing beyond it.
    beyond = pairs.sums(enough * (x * y / np.maximum(np.abs(expected), 1e-300)).mean(axis=1))
    precise = chdtrc(np.maximum(shared, 1.0), np.maximum(beyond, 0.0) / _DOUBT) > _PRECISE
    found = tested & (np.tanh(away) >= MIN_CORRELATION)
    p = np.where(found, np.minimum(1.0, ndtr(-z) * tested.sum()), 1.0)
    return Correlations(shared, np.tanh(away), p, ~precise)


def _spread(value: Floats) -> Floats:
    sd = value.std(axis=0)
    return np.where(sd > 0, sd, 1.0)


# Answers nearer to each other than to any third worker's


def log_chance_of_nearness(answers: Answers, u: int, v: int, family: Index) -> float:
    """Bound the log probability that two honest workers are as near to each other (M44).

    On each task: the share of third workers as near to the answer of one as the other is, and how
    often the other is as near whatever the task; whichever is larger, and whichever of the two
    workers it is larger for. This holds for any distribution of the answers, also on coarse scales
    and for workers of one habit. Workers of the ``family`` (m,) of one of the two are no third.
    """
    value = answers.value / _spread(answers.value)
    mine, theirs = (
        answers.by_worker[answers.worker_ptr[w] : answers.worker_ptr[w + 1]] for w in (u, v)
    )
    tasks, at_u, at_v = np.intersect1d(
        answers.task[mine], answers.task[theirs], assume_unique=True, return_indices=True
    )
    e, f = mine[at_u], theirs[at_v]
    degree = answers.task_degree[tasks]
    row = np.repeat(np.arange(len(tasks)), degree)
    first = np.repeat(answers.task_ptr[tasks] - np.cumsum(degree) + degree, degree)
    edges = first + np.arange(degree.sum())
    third = ~np.isin(family[answers.worker[edges]], family[[u, v]])
    edges, row = edges[third], row[third]
    n = np.bincount(row, minlength=len(tasks))
    # 0.7 + 0.1 is the step 0.8 of a scale, whatever its last bit.
    reach = _distance(value[e], value[f]) + 1e-9
    chances = []
    for one, others_own in ((e, theirs), (f, mine)):
        near = _distance(value[edges], value[one][row]) <= reach[row]
        share = (1 + np.bincount(row, near, minlength=len(tasks))) / (1 + n)
        habit = np.array(
            [
                (_distance(value[others_own], value[a]) <= r).mean()
                for a, r in zip(one, reach, strict=True)
            ]
        )
        chances.append(_log_tail(-np.log(np.maximum(share, habit)), n + 1))
    return max(chances)


def _distance(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.sqrt(((x - y) ** 2).sum(axis=-1)))


def _log_tail(surprise: Floats, places: Index) -> float:
    """Chernoff's bound for a sum of -log p, each p uniform over this many places."""
    bound = -_EXPONENTS * surprise.sum()
    for k, count in zip(*np.unique(places, return_counts=True), strict=True):
        moments = np.log(k / np.arange(1, k + 1)) * _EXPONENTS[:, None]
        top = moments.max(axis=1, keepdims=True)
        bound = bound + count * (top[:, 0] + np.log(np.exp(moments - top).mean(axis=1)))
    return min(0.0, float(bound.min()))
