"""What an honest worker of this crowd would show: three tests of every worker, by coordinate.

Each compares a worker with the others on the same tasks, and allows for two things: the noise of
its answers, and how much honest workers differ among themselves. The second is learned from the
crowd, so that only who stands apart from it is found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, ndtri, stdtr, stdtrit

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers

# Bias and noise often come in clumps (a tenth of the crowd is worse, and no offender): the spread
# must also explain all but a fifth of those on the side in question, a tenth of the crowd.
_OUTER = 0.8
# What a spread taken from medians is worth, against one taken from squares, for Gaussians.
_EFFICIENCY = 0.37
# Ways of dealing a worker's distances out over its tasks: the error of the mean over them is small
# beside that of the worker's own answers, which are dealt one way.
_DEALS = 8
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
        total = np.bincount(self.worker, per_edge, minlength=self.answers.n_workers)
        return total.astype(np.float64)

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

    Answers are replaced by their ranks among all answers of the table, from -1/2 to 1/2, so that
    neither the units nor a wild answer counts. With the worker's ranks ``y`` and the mean ranks
    ``c`` of the others on the same tasks, both centred over the worker's tasks (a bias does not
    count), the figure is a ratio of slopes::

        g = (sum c y / sum c^2) / (sum c h / sum c^2)

    where ``h`` are the ranks an honest worker of this noise would give: the others' medians plus
    the worker's own distances from them, dealt out over its tasks anew. An honest worker's
    figure is the crowd's, times a factor of its own (some use less of a scale), plus noise. That
    of a noisy worker is uncertain, that of one who gives one value always is certainly 0: the
    first is not found by this, the second is.
    """
    answers = crowd.answers
    rank = _ranks(answers.value[:, j]) / answers.n_edges - 0.5
    total = np.bincount(answers.task, rank, minlength=answers.n_tasks)[answers.task]
    others = (total - rank) / np.maximum(answers.task_degree[answers.task] - 1, 1)
    own, other = rank[crowd.edge], others[crowd.edge]
    c = other - crowd.mean(other)[crowd.worker]
    y = own - crowd.mean(own)[crowd.worker]
    honest = crowd.sum(c * _dealt_anew(crowd, j, c))
    judged = (crowd.count >= needed) & (honest > 1e-9 * crowd.count)
    safe = np.where(judged, honest, 1.0)
    ratio = np.where(judged, crowd.sum(c * y) / safe, np.nan)
    usual = float(np.median(ratio[judged])) if judged.any() else 0.0
    if usual <= 0:  # the crowd itself follows nothing
        return Standing(found=ratio, usual=usual, p=np.ones(len(ratio)))
    slope = usual * safe / np.where(judged, crowd.sum(c**2), 1.0)
    x = c * (y - slope[crowd.worker] * c)
    by_chance = crowd.sum(c**2 * _variance_in_task(answers, rank)[crowd.edge])
    se = np.sqrt(np.maximum(_square_error(crowd, x), by_chance)) / (usual * safe)
    relative = ratio / usual
    tau = _spread(relative[judged] - 1.0, se[judged])
    p = np.ones(len(ratio))
    p[judged] = _tail(
        relative[judged], se[judged], crowd.count[judged], tau, int(judged.sum()), factor=True
    )
    return Standing(found=ratio, usual=usual, p=p)


def _dealt_anew(crowd: Comparison, j: int, c: Floats) -> Floats:
    """Ranks of the others' medians plus the worker's distances from them, from other tasks.

    Averaged over several ways of dealing: steps of the golden section through the worker's sorted
    distances spread them evenly over its tasks sorted by the others' answers. No chance is needed,
    and the order of the rows does not show.
    """
    own, other = crowd.value[:, j], crowd.other[:, j]
    residual = own - other
    by_task = np.lexsort((residual, c, other, crowd.worker))
    by_size = np.lexsort((residual, crowd.worker))
    first = np.concatenate([[0], np.cumsum(crowd.count)[:-1]])[crowd.worker]
    place, n = np.arange(len(own)) - first, crowd.count[crowd.worker]
    ordered = np.sort(crowd.answers.value[:, j])
    # 0.7 + 0.1 is the step 0.8 of a scale, whatever its last bit.
    same = 1e-9 * (ordered[-1] - ordered[0])
    mean = np.zeros(len(own))
    golden = (np.sqrt(5.0) - 1) / 2
    for k in range(_DEALS):
        taken = ((place * golden + (k + 0.5) / _DEALS) % 1.0 * n).astype(np.int64)
        made = other[by_task] + residual[by_size[first + np.minimum(taken, n - 1)]]
        # Nobody answers beyond the ends of the scale, and there many do.
        made = np.clip(made, ordered[0], ordered[-1])
        # In order, the search through a long table stays within the processor's cache.
        rising = np.argsort(made)
        low = np.searchsorted(ordered, made[rising] - same, side="left")
        high = np.searchsorted(ordered, made[rising] + same, side="right")
        mean[by_task[rising]] += (low + high) / (2 * len(ordered) * _DEALS) - 0.5 / _DEALS
    return mean


def bias(crowd: Comparison, j: int, needed: int) -> Standing:
    """Test the mean distance from the others' medians: far from the crowd's, up or down, is bad."""
    residual = crowd.value[:, j] - crowd.other[:, j]
    found = crowd.mean(residual)
    by_chance = crowd.sum(_variance_in_task(crowd.answers, crowd.answers.value[:, j])[crowd.edge])
    variance = np.maximum(_square_error(crowd, residual), by_chance)
    se = np.sqrt(variance) / np.maximum(crowd.count, 1)
    return _stand(crowd, found, se, needed, both=True)


def noise(crowd: Comparison, j: int, needed: int) -> Standing:
    """Test the size of the distances from the others' medians: large is bad.

    A bias and a use of the scale, which a line through the worker's answers shows, do not count.
    With ``a`` an answer's distance and ``b`` the mean distance of the others on the same task,
    the figure is the logit of the mean of ``a / (a + b)``: about the log of how many times as far
    off the worker is, yet one slip, however large, counts as one.
    """
    answers = crowd.answers
    own, other = crowd.value[:, j], crowd.other[:, j]
    choices = [
        _about_median(crowd, part) for part in (own - other, _about_own_line(crowd, own, other))
    ]
    # One wild answer turns a line: whichever fits the worker's answers better in the middle.
    middles = [_median_by_worker(part, crowd.worker, crowd.count) for part in choices]
    distance = np.where((middles[1] < middles[0])[crowd.worker], choices[1], choices[0])
    size = np.zeros(answers.n_edges)
    size[crowd.edge] = distance
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
    judged = crowd.count >= needed
    usual = float(np.median(mean[judged])) if judged.any() else 0.5
    chance = crowd.sum(_variance_in_task(answers, by_chance)[crowd.edge])
    away = mean - usual
    # Shares are bounded, not Gaussian, and few large ones make a long tail: by Bernstein's
    # inequality a third of the excess comes on top of the variance of the sum.
    excess = np.maximum(n * away, 0.0)
    error = np.sqrt(np.maximum(_square_error(crowd, share), chance) + excess / 3) / n
    # From the usual share to the worker's, the error grows as the logit does.
    logit, steep = np.log(mean / (1 - mean)), 1 / (mean * (1 - mean))
    rise = logit - np.log(usual / (1 - usual))
    se = error * np.divide(rise, away, out=steep, where=np.abs(away) > 1e-6)
    return _stand(crowd, logit, se, needed, both=False)


def _ranks(x: Floats) -> Floats:
    """Ranks from 1, equal ones sharing theirs; scipy.stats, which has this, takes long to load."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])


def _about_median(crowd: Comparison, x: Floats) -> Floats:
    """Distances from the median of the worker's own."""
    return np.asarray(np.abs(x - _median_by_worker(x, crowd.worker, crowd.count)[crowd.worker]))


def _about_own_line(crowd: Comparison, own: Floats, other: Floats) -> Floats:
    """Differences of the answers from the worker's own line over the others' medians."""
    c = other - crowd.mean(other)[crowd.worker]
    y = own - crowd.mean(own)[crowd.worker]
    square = crowd.sum(c**2)
    slope = crowd.sum(c * y) / np.where(square > 0, square, 1.0)
    return np.asarray(y - slope[crowd.worker] * c)


def times_as_far(logit: float, usual: float) -> float:
    """Turn the figure of :func:`noise` into how many times as far off as usual."""
    share, of_all = expit(logit), expit(usual)
    return float(share / (1 - share) / (of_all / (1 - of_all)))


def _stand(crowd: Comparison, found: Floats, se: Floats, needed: int, both: bool) -> Standing:
    judged = crowd.count >= needed
    p = np.ones(len(found))
    usual = float(np.median(found[judged])) if judged.any() else 0.0
    away, error = (found - usual)[judged], se[judged]
    for sign in (1, -1) if both else (1,):
        # Crowds are lopsided: how far honest workers stand out is learned on the side in question.
        side = sign * away >= 0
        tau = max(_spread(away[side], error[side], share) for share in (0.5, _OUTER))
        tail = _tail(
            -sign * away, error, crowd.count[judged], tau, int(side.sum()), long_tail=not both
        )
        p[judged] = np.minimum(p[judged], (2 if both else 1) * tail)
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


def _spread(away: Floats, se: Floats, share: float = 0.5) -> float:
    """Learn how much honest workers differ, beyond the error with which each is known.

    The spread at which a ``share`` of ``away^2 / (se^2 + spread^2)`` lies below where it would for
    a Gaussian. Quantiles, so that the workers who are looked for do not hide by widening it.
    """
    if len(away) == 0:
        return 0.0
    square, error = away**2, se**2
    target = float(ndtri((1 + share) / 2)) ** 2

    def too_small(spread: float) -> bool:
        scaled = square / np.maximum(error + spread, 1e-300)
        return bool(np.quantile(scaled, share, method="lower") > target)

    low, high = 0.0, float(square.max()) / target
    if not too_small(low):
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return float(np.sqrt(high))


def _tail(
    found: Floats,
    se: Floats,
    count: Index,
    tau: float,
    n_crowd: int,
    factor: bool = False,
    long_tail: bool = False,
) -> Floats:
    """Probability that an honest worker is at or below ``found``.

    Honest workers stand at 0 plus ``tau`` t, or, as a ``factor``, at exp(tau t): t is Student's,
    as the spread is only known from ``n_crowd`` workers. The noise about that is Student's, too, as
    every error is known from so many answers. Where honest crowds have a ``long_tail``, as in their
    noise, t falls off no faster than an exponential.
    """
    p = np.ones(len(found))
    freedom = max(_EFFICIENCY * (n_crowd - 1), 1.0)
    # Within two standard deviations nobody is flagged: spare the integral.
    near = 1.0 - 2 * se if factor else -2 * np.sqrt(se**2 + tau**2)
    where = found < near
    if not where.any():
        return p
    differ = np.asarray(stdtrit(freedom, ndtr(_GRID)))
    if long_tail:
        # The double exponential with as much beyond the outer quantile as the Gaussian has.
        outer = ndtri((1 + _OUTER) / 2) / -np.log(1 - _OUTER)
        reach = outer * -np.log(2 * ndtr(-np.abs(_GRID)))
        differ = np.sign(differ) * np.maximum(np.abs(differ), reach)
    differ = tau * differ
    honest = np.exp(np.minimum(differ, 700.0)) if factor else differ
    for u in np.flatnonzero(where):
        z = (found[u] - honest) / max(se[u], 1e-300)
        p[u] = min(1.0, float(_GRID_WEIGHT @ stdtr(count[u] - 1.0, z)))
    return p
