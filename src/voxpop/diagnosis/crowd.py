"""What an honest worker of this crowd would show: three tests of every worker, by coordinate.

Each compares a worker with the others on the same tasks, and allows for two things: the noise of
its answers, and how much honest workers differ among themselves. The second is learned from the
crowd, so that only who stands apart from it is found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, stdtr, stdtrit

from voxpop.answers import Answers
from voxpop.arrays import Floats, Index

# Median of the square of a standard Gaussian: what robust spreads are measured against.
_MEDIAN_CHI2 = 0.454936423119573
# What a spread taken from medians is worth, against one taken from squares, for Gaussians.
_EFFICIENCY = 0.37
# Where workers differ, the tail is an integral over how they do; this grid reaches past 1e-15.
_GRID = np.linspace(-8.0, 8.0, 321)
_GRID_WEIGHT = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where every worker stands in one respect, and how likely an honest one stands so far out.

    Attributes
    ----------
    found
        The worker's figure, NaN where it cannot be told.
    usual
        The median of the crowd's.
    p
        Probability that an honest worker's is at least as extreme; 1 where it cannot be told.
    """

    found: Floats
    usual: float
    p: Floats


@dataclass(frozen=True, eq=False)
class Comparison:
    """The edges whose task has at least two other answers, and what those others said.

    ``edge`` runs worker by worker. ``other`` is the median of the others' answers (edges,
    dimension): a single wild one does not make the rest look wrong.
    """

    answers: Answers
    edge: Index
    worker: Index
    other: Floats
    count: Index

    @property
    def value(self) -> Floats:
        """The workers' own answers, in the order of ``edge``."""
        return np.asarray(self.answers.value[self.edge])

    def sum(self, per_edge: Floats) -> Floats:
        """Add up by worker."""
        return np.bincount(self.worker, per_edge, minlength=self.answers.n_workers)

    def mean(self, per_edge: Floats) -> Floats:
        """Average by worker; 0 where a worker has no edge here."""
        return np.asarray(self.sum(per_edge) / np.maximum(self.count, 1))


def compare(answers: Answers) -> Comparison:
    """Put beside every answer the median of the others' to the same task."""
    by_worker = answers.by_worker
    edge = by_worker[answers.task_degree[answers.task[by_worker]] >= 3]
    worker = answers.worker[edge].astype(np.int64)
    other = np.stack(
        [_median_of_others(answers, answers.value[:, j])[edge] for j in range(answers.dimension)],
        axis=1,
    )
    return Comparison(
        answers, edge, worker, other, np.bincount(worker, minlength=answers.n_workers)
    )


def _median_of_others(answers: Answers, value: Floats) -> Floats:
    order = np.lexsort((value, answers.task))
    first = answers.task_ptr[:-1][answers.task]
    rank = np.arange(answers.n_edges) - first
    left = answers.task_degree[answers.task] - 1
    ordered, last = value[order], answers.n_edges - 1
    # The place of the median among the others moves up by one past the answer that is left out.
    places = [half + (half >= rank) for half in ((left - 1) // 2, left // 2)]
    low, high = (ordered[np.minimum(first + place, last)] for place in places)
    found = np.empty(answers.n_edges)
    found[order] = low + (high - low) / 2
    return found


def _variance_in_task(answers: Answers, value: Floats) -> Floats:
    """Variance of one answer drawn from those of the edge's task: what chance would change."""
    n = answers.task_degree
    mean = np.bincount(answers.task, value, minlength=answers.n_tasks) / n
    square = (value - mean[answers.task]) ** 2
    return np.asarray((np.bincount(answers.task, square, minlength=len(n)) / n)[answers.task])


def following(crowd: Comparison, j: int, needed: int) -> Standing:
    """Test whether a worker's answers rise and fall with the others': low is bad.

    The figure is the slope ``g`` of the worker's answers on the others' medians ``c`` (centred
    over the worker's tasks, so that a bias does not count)::

        g = sum c y / sum c^2

    An honest worker's is the crowd's, times a factor of its own (some use less of a scale), plus
    noise. A noisy worker's slope is uncertain, that of one who gives the same value always is
    certainly 0: the first is not found by this, the second is.
    """
    own, other = crowd.value[:, j], crowd.other[:, j]
    c = other - crowd.mean(other)[crowd.worker]
    y = own - crowd.mean(own)[crowd.worker]
    energy = crowd.sum(c**2)
    judged = (crowd.count >= needed) & (energy > 0)
    safe = np.where(judged, energy, 1.0)
    slope = np.where(judged, crowd.sum(c * y) / safe, np.nan)
    usual = float(np.median(slope[judged])) if judged.any() else 0.0
    if usual <= 0:  # the crowd itself follows nothing
        return Standing(found=slope, usual=usual, p=np.ones(len(slope)))
    x = c * (y - usual * c)
    by_chance = crowd.sum(c**2 * _variance_in_task(crowd.answers, crowd.answers.value[:, j])[crowd.edge])
    se = np.sqrt(np.maximum(_square_error(crowd, x), by_chance)) / safe
    ratio, se = slope / usual, se / usual
    tau = _spread(ratio[judged] - 1.0, se[judged])
    p = np.ones(len(slope))
    p[judged] = _tail(ratio[judged], se[judged], crowd.count[judged], tau, factor=True)
    return Standing(found=slope, usual=usual, p=p)


def bias(crowd: Comparison, j: int, needed: int) -> Standing:
    """Test the mean distance from the others' medians: far from the crowd's, up or down, is bad."""
    residual = crowd.value[:, j] - crowd.other[:, j]
    found = crowd.mean(residual)
    by_chance = crowd.sum(_variance_in_task(crowd.answers, crowd.answers.value[:, j])[crowd.edge])
    variance = np.maximum(_square_error(crowd, residual), by_chance)
    se = np.sqrt(variance) / np.maximum(crowd.count, 1)
    return _stand(crowd, found, se, needed, both=True)


def noise(crowd: Comparison, j: int, needed: int) -> Standing:
    """Test the size of the distances from the others' medians, the bias apart: large is bad.

    With ``a`` an answer's distance and ``b`` the mean distance of the others on the same task,
    the figure is the logit of the mean of ``a / (a + b)``: about the log of how many times as far
    off the worker is, yet one slip, however large, counts as one.
    """
    answers = crowd.answers
    residual = crowd.value[:, j] - crowd.other[:, j]
    middle = _median_by_worker(residual, crowd.worker, crowd.count)
    size = np.zeros(answers.n_edges)
    size[crowd.edge] = np.abs(residual - middle[crowd.worker])
    total = np.bincount(answers.task, size, minlength=answers.n_tasks)[answers.task]
    others = (total - size) / np.maximum(answers.task_degree[answers.task] - 1, 1)
    a, b = size[crowd.edge], np.maximum(others[crowd.edge], 0.0)
    share = np.where(a + b > 0, a / np.where(a + b > 0, a + b, 1.0), 0.5)
    mean = crowd.mean(share)
    n = np.maximum(crowd.count, 1)
    # Half an answer more on either side keeps the logit finite.
    mean = (n * mean + 0.5) / (n + 1)
    by_chance = np.zeros(answers.n_edges)
    by_chance[crowd.edge] = share
    variance = np.maximum(
        _square_error(crowd, share), crowd.sum(_variance_in_task(answers, by_chance)[crowd.edge])
    )
    se = np.sqrt(variance) / n / (mean * (1 - mean))
    return _stand(crowd, np.log(mean / (1 - mean)), se, needed, both=False)


def times_as_far(logit: float, usual: float) -> float:
    """Turn the figure of :func:`noise` into how many times as far off as usual."""
    share, of_all = expit(logit), expit(usual)
    return float(share / (1 - share) / (of_all / (1 - of_all)))


def _stand(crowd: Comparison, found: Floats, se: Floats, needed: int, both: bool) -> Standing:
    judged = crowd.count >= needed
    p = np.ones(len(found))
    usual = float(np.median(found[judged])) if judged.any() else 0.0
    if judged.any():
        away, error = (found - usual)[judged], se[judged]
        tau = _spread(away, error)
        above = _tail(-away, error, crowd.count[judged], tau)
        below = _tail(away, error, crowd.count[judged], tau) if both else np.ones(len(away))
        p[judged] = np.minimum(1.0, (2 if both else 1) * np.minimum(above, below))
    return Standing(found=np.where(judged, found, np.nan), usual=usual, p=p)


def _square_error(crowd: Comparison, x: Floats) -> Floats:
    """Variance of a worker's sum of x, from how its own terms scatter."""
    n = np.maximum(crowd.count, 2)
    scatter = crowd.sum((x - crowd.mean(x)[crowd.worker]) ** 2)
    return np.asarray(scatter * n / (n - 1))


def _median_by_worker(x: Floats, worker: Index, count: Index) -> Floats:
    order = np.lexsort((x, worker))
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    last = max(len(x) - 1, 0)
    low = x[order[np.minimum(first + np.maximum(count - 1, 0) // 2, last)]] if len(x) else 0.0
    high = x[order[np.minimum(first + count // 2, last)]] if len(x) else 0.0
    return np.where(count > 0, (low + high) / 2, 0.0)


def _spread(away: Floats, se: Floats) -> float:
    """Learn how much honest workers differ, beyond the error with which each is known.

    The spread at which the median of ``away^2 / (se^2 + spread^2)`` is a Gaussian's; medians, so
    that the workers who are looked for do not hide themselves by widening it.
    """
    square, error = away**2, se**2
    safe = np.maximum(error, 1e-300)
    if len(away) == 0 or np.median(square / safe) <= _MEDIAN_CHI2:
        return 0.0
    low, high = 0.0, float(square.max()) / _MEDIAN_CHI2
    for _ in range(60):
        middle = (low + high) / 2
        above = np.median(square / np.maximum(error + middle, 1e-300)) > _MEDIAN_CHI2
        low, high = (middle, high) if above else (low, middle)
    return float(np.sqrt(high))


def _tail(found: Floats, se: Floats, count: Index, tau: float, factor: bool = False) -> Floats:
    """Probability that an honest worker is at or below ``found``.

    Honest workers stand at 0 plus ``tau`` t, or, as a ``factor``, at exp(tau t): t is Student's,
    as the spread is only known from so many workers. The noise about that is Student's, too, as
    every error is known from so many answers.
    """
    p = np.ones(len(found))
    freedom = max(_EFFICIENCY * (len(found) - 1), 1.0)
    # Within two standard deviations nobody is flagged: spare the integral.
    near = 1.0 - 2 * se if factor else -2 * np.sqrt(se**2 + tau**2)
    where = found < near
    if not where.any():
        return p
    differ = tau * np.asarray(stdtrit(freedom, ndtr(_GRID)))
    honest = np.exp(np.minimum(differ, 700.0)) if factor else differ
    for u in np.flatnonzero(where):
        z = (found[u] - honest) / max(se[u], 1e-300)
        p[u] = min(1.0, float(_GRID_WEIGHT @ stdtr(count[u] - 1.0, z)))
    return p

