"""Tests of every worker, by coordinate: slope, bias, noise and slips against an honest crowd.

Each compares a worker with the others on the same tasks and allows for two things: the noise of
the worker's answers, and how much honest workers differ among themselves. The second is learned
from the crowd, so only workers who differ from the rest of the crowd are found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from voxpop.arrays import Floats, Mask
from voxpop.data.answers import Answers
from voxpop.data.sums import leave_one_out_medians, mean_by_task, run_medians, sum_by_task
from voxpop.results.diagnosis.honest_spread import ENOUGH, FEW_DIFFER, OUTER, spread, tail

FAR = 10.0
"""Answers this many typical distances from the median of the others are far off."""
# Rearrangements of a worker's residuals over its tasks: with eight, their mean has a small error
# beside that of the worker's own answers.
_REARRANGEMENTS = 8
# Ranks are searched among so many answers, evenly spread over all: these stay in the cache.
_MOST_RANKED = 16_384


@dataclass(frozen=True, kw_only=True)
class WorkerTest:
    """One test of all workers.

    Attributes
    ----------
    statistic
        The statistic of each worker, NaN where it is undefined.
    median
        Its median over the crowd.
    p
        Probability that an honest worker's is at least as extreme; 1 where it is undefined.
    """

    statistic: Floats
    median: float
    p: Floats


class PeerMedians:
    """The answers to tasks with at least two other answers, and the median of those others.

    ``edge`` runs worker by worker, ``value`` are the workers' own answers in that order, ``count``
    is their number by worker. ``other`` is the median of the others' answers (edges, dimension): a
    single wild answer does not make the rest look wrong.
    """

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        by_worker = answers.by_worker
        self.edge = by_worker[answers.task_degree[answers.task[by_worker]] >= 3]
        self.worker = answers.worker[self.edge]
        self.value = answers.value[self.edge]
        self.other = leave_one_out_medians(answers)[self.edge]
        self.count = np.bincount(self.worker, minlength=answers.n_workers)

    def sum(self, x: Floats) -> Floats:
        """Add up by worker."""
        total = np.bincount(self.worker, x, minlength=self.answers.n_workers)
        return total.astype(np.float64)

    def mean(self, x: Floats) -> Floats:
        """Average by worker; 0 where a worker has no edge here."""
        return np.asarray(self.sum(x) / np.maximum(self.count, 1))

    def median(self, x: Floats) -> Floats:
        """Median by worker; 0 where a worker has no edge here."""
        return run_medians(x, np.cumsum(self.count) - self.count, self.count)

    def centred(self, x: Floats) -> Floats:
        """Subtract each worker's mean."""
        return np.asarray(x - self.mean(x)[self.worker])

    def variance_of_sum(self, x: Floats, by_chance: Floats) -> Floats:
        """Variance of each worker's sum of x: from the scatter of its terms, or the one given."""
        n = np.maximum(self.count, 2)
        scatter = self.sum(self.centred(x) ** 2)
        return np.asarray(np.maximum(scatter * n / (n - 1), self.sum(by_chance)))


def mean_of_others(answers: Answers, x: Floats) -> Floats:
    """Mean of x (E,) over the other answers to the task of each."""
    total = sum_by_task(answers, x)[answers.task]
    return np.asarray((total - x) / np.maximum(answers.task_degree[answers.task] - 1, 1))


def _variance_in_task(answers: Answers, x: Floats) -> Floats:
    """Variance of one answer drawn from those of the edge's task: what chance would change."""
    off = x - mean_by_task(answers, x)[answers.task]
    return mean_by_task(answers, off**2)[answers.task]


def slope_test(crowd: PeerMedians, j: int, needed: int) -> WorkerTest:
    """Test whether a worker's answers rise and fall with the others': low is bad.

    Answers are replaced by their ranks among all answers of the table, from -1/2 to 1/2, so that
    neither the units nor a wild answer matter. With the worker's ranks ``y`` and the mean ranks
    ``c`` of the others on the same tasks, both centred over the worker's tasks (so a bias does not
    matter), the statistic is a ratio of slopes::

        g = (sum c y / sum c^2) / (sum c h / sum c^2)

    where ``h`` are the ranks that an honest worker of this noise would give: the others' medians
    plus the worker's own residuals, rearranged over its tasks. An honest worker's statistic is the
    crowd's, times a factor of its own (some use less of a scale), plus noise. It is uncertain for a
    noisy worker and certainly 0 for one who always gives one value: this test finds the second,
    not the first. That somebody gives one value only is also evidence by itself.
    """
    answers = crowd.answers
    rank = ranks(answers.value[:, j]) / answers.n_edges - 0.5
    c = crowd.centred(mean_of_others(answers, rank)[crowd.edge])
    y = crowd.centred(rank[crowd.edge])
    honest = crowd.sum(c * _rearranged_ranks(crowd, j, c))
    judged = (crowd.count >= needed) & (honest > 1e-9 * crowd.count)
    safe = np.where(judged, honest, 1.0)
    ratio = np.where(judged, crowd.sum(c * y) / safe, np.nan)
    median = float(np.median(ratio[judged])) if judged.any() else 0.0
    p = np.ones(len(ratio))
    if median > 0:  # otherwise the crowd itself follows nothing
        slope = median * safe / np.where(judged, crowd.sum(c**2), 1.0)
        by_chance = c**2 * _variance_in_task(answers, rank)[crowd.edge]
        variance = crowd.variance_of_sum(c * (y - slope[crowd.worker] * c), by_chance)
        se = np.sqrt(variance) / (median * safe)
        relative, se, count = (ratio / median)[judged], se[judged], crowd.count[judged]
        tau = spread(relative - 1.0, se)
        if judged.sum() < 2 * ENOUGH:
            tau = max(tau, spread(relative - 1.0, se, OUTER), FEW_DIFFER)
        p[judged] = tail(relative, se, count, tau, int(judged.sum()), factor=True)
        p = np.minimum(p, _constant(crowd, j, needed))
    return WorkerTest(statistic=ratio, median=median, p=p)


def _constant(crowd: PeerMedians, j: int, needed: int) -> Floats:
    """Probability that an honest worker gives one value only; 1 for those who give several.

    Few workers cannot show how far honest slopes differ, but how often each gives that value. An
    honest worker is taken to give it as often as the one, of those who also give others, who gives
    it most often.
    """
    own, owner, count = crowd.value[:, j], crowd.worker, crowd.count
    order = np.lexsort((own, owner))
    last = np.cumsum(count)
    low, high = (np.zeros(len(count)) for _ in range(2))
    judged = count >= needed
    low[judged], high[judged] = own[order][(last - count)[judged]], own[order][last[judged] - 1]
    constant, p = judged & (low == high), np.ones(len(count))
    others = judged & ~constant
    if not (constant.any() and others.any()):
        return p
    # One more of that value for each: nobody is sure never to give it.
    least = 1.0 / (int(count[others].min()) + 1)
    by_value = np.argsort(own, kind="stable")
    ordered = own[by_value]
    for value in np.unique(low[constant]):
        ends = (np.searchsorted(ordered, value, side=side) for side in ("left", "right"))
        who, times = np.unique(owner[by_value[slice(*ends)]], return_counts=True)
        share = (times + 1) / (count[who] + 1)
        most = float(share[others[who]].max(initial=least))
        alike = constant & (low == value)
        p[alike] = most ** count[alike]
    return p


def _rearranged_ranks(crowd: PeerMedians, j: int, c: Floats) -> Floats:
    """Ranks of the others' medians plus the worker's residuals from other tasks.

    Averaged over several rearrangements: steps of the golden section through the worker's sorted
    residuals spread them evenly over its tasks sorted by the others' answers. This needs no random
    numbers and does not depend on the order of the rows.
    """
    own, other = crowd.value[:, j], crowd.other[:, j]
    residual = own - other
    by_task = np.lexsort((residual, c, other, crowd.worker))
    by_size = np.lexsort((residual, crowd.worker))
    first = (np.cumsum(crowd.count) - crowd.count)[crowd.worker]
    place, n = np.arange(len(own)) - first, crowd.count[crowd.worker]
    ordered = np.sort(crowd.answers.value[:, j])
    ends = ordered[0], ordered[-1]
    step = -(-len(ordered) // _MOST_RANKED)
    ordered = ordered[step // 2 :: step]
    # 0.7 + 0.1 is the step 0.8 of a scale, whatever its last bit.
    same = 1e-9 * (ends[1] - ends[0])
    mean = np.zeros(len(own))
    golden = (np.sqrt(5.0) - 1) / 2
    for k in range(_REARRANGEMENTS):
        taken = ((place * golden + (k + 0.5) / _REARRANGEMENTS) % 1.0 * n).astype(np.int64)
        made = other[by_task] + residual[by_size[first + np.minimum(taken, n - 1)]]
        # Nobody answers beyond the ends of the scale, and many answer at the ends.
        made = np.clip(made, *ends)
        # The search is faster for values in order, sorting them included.
        rising = np.argsort(made)
        low = np.searchsorted(ordered, made[rising] - same, side="left")
        high = np.searchsorted(ordered, made[rising] + same, side="right")
        share = (low + high) / (2 * len(ordered) * _REARRANGEMENTS)
        mean[by_task[rising]] += share - 0.5 / _REARRANGEMENTS
    return mean


def bias_test(crowd: PeerMedians, j: int, needed: int) -> WorkerTest:
    """Test the mean residual about the others' medians: far from the crowd's is bad."""
    residual = crowd.value[:, j] - crowd.other[:, j]
    by_chance = _variance_in_task(crowd.answers, crowd.answers.value[:, j])[crowd.edge]
    se = np.sqrt(crowd.variance_of_sum(residual, by_chance)) / np.maximum(crowd.count, 1)
    return _compare_with_crowd(crowd, crowd.mean(residual), se, needed, two_sided=True)


def noise_test(crowd: PeerMedians, j: int, needed: int) -> WorkerTest:
    """Test the size of the residuals about the others' medians: large is bad.

    A bias and a use of the scale do not matter: a line through the worker's answers takes both out.
    With ``a`` the distance of an answer and ``b`` the mean distance of the others on the same task,
    the statistic is the logit of the mean of ``a / (a + b)``: about the log of how many times as
    far off the worker is, yet one slip, however large, counts as one.
    """
    answers = crowd.answers
    own, other = crowd.value[:, j], crowd.other[:, j]
    residuals = (own - other, _about_own_line(crowd, own, other))
    choices = [np.abs(x - crowd.median(x)[crowd.worker]) for x in residuals]
    # One wild answer turns a line: take whichever has the smaller median distance.
    medians = [crowd.median(x) for x in choices]
    distance = np.where((medians[1] < medians[0])[crowd.worker], choices[1], choices[0])
    size = np.zeros(answers.n_edges)
    size[crowd.edge] = distance
    a, b = distance, np.maximum(mean_of_others(answers, size)[crowd.edge], 0.0)
    share = np.where(a + b > 0, a / np.where(a + b > 0, a + b, 1.0), 0.5)
    n = np.maximum(crowd.count, 1)
    # Half a pseudo-count on either side keeps the logit finite.
    mean = (n * crowd.mean(share) + 0.5) / (n + 1)
    judged = crowd.count >= needed
    median = float(np.median(mean[judged])) if judged.any() else 0.5
    shares = np.zeros(answers.n_edges)
    shares[crowd.edge] = share
    variance = crowd.variance_of_sum(share, _variance_in_task(answers, shares)[crowd.edge])
    away = mean - median
    # Shares are bounded, not Gaussian, and a few large ones make a long tail: by Bernstein's
    # inequality a third of the excess is added to the variance of the sum.
    error = np.sqrt(variance + np.maximum(n * away, 0.0) / 3) / n
    # Between the crowd's share and the worker's, the error grows as the logit does.
    logit, steep = np.log(mean / (1 - mean)), 1 / (mean * (1 - mean))
    rise = logit - np.log(median / (1 - median))
    se = error * np.divide(rise, away, out=steep, where=np.abs(away) > 1e-6)
    return _compare_with_crowd(crowd, logit, se, needed, two_sided=False, least=FEW_DIFFER)


def slip_test(crowd: PeerMedians, j: int, needed: int) -> WorkerTest:
    """Test how many answers are far off, against the share of such answers in all others'.

    An answer is far off as a typo is: ten typical distances, of the crowd or of the worker, from
    the median of the others. One more far answer is added to those of the others, so that the first
    in a crowd is no evidence.
    """
    slips = crowd.sum(far_off(crowd, j)[0].astype(np.float64))
    others = (slips.sum() - slips + 1.0) / np.maximum(crowd.count.sum() - crowd.count + 1.0, 1.0)
    judged = (crowd.count >= needed) & (slips > 0)
    p = bdtrc(slips - 1.0, crowd.count, np.minimum(others, 1.0))
    median = float(np.median(slips[crowd.count >= needed])) if judged.any() else 0.0
    return WorkerTest(statistic=slips, median=median, p=np.where(judged, p, 1.0))


def far_off(crowd: PeerMedians, j: int) -> tuple[Mask, Floats]:
    """Return which answers are far from the others' median, and the typical distance for each.

    The typical distance is the median over the crowd or over the worker, whichever is larger.
    """
    away = np.abs(crowd.value[:, j] - crowd.other[:, j])
    if not away.any():
        return np.zeros(len(away), dtype=bool), away
    # Where most answers are equal, those that differ tell how far answers differ.
    of_crowd = float(np.median(away)) or float(np.median(away[away > 0]))
    typical = np.maximum(of_crowd, crowd.median(away))[crowd.worker]
    return away > FAR * typical, typical


def far_answers(answers: Answers) -> Mask:
    """Answers (E,) further from the others to their task than noise explains: most are slips."""
    crowd, far = PeerMedians(answers), np.zeros(answers.n_edges, dtype=bool)
    for j in range(answers.dimension):
        far[crowd.edge] |= far_off(crowd, j)[0]
    return far


def without_far_answers(answers: Answers) -> Answers:
    """Leave out :func:`far_answers`."""
    far = far_answers(answers)
    return answers.select(~far) if far.any() else answers


def ranks(x: Floats) -> Floats:
    """Ranks from 1, ties sharing theirs; scipy.stats, which has this, takes long to load."""
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])


def _about_own_line(crowd: PeerMedians, own: Floats, other: Floats) -> Floats:
    """Residuals of the answers about the worker's own line over the others' medians."""
    c, y = crowd.centred(other), crowd.centred(own)
    square = crowd.sum(c**2)
    slope = crowd.sum(c * y) / np.where(square > 0, square, 1.0)
    return np.asarray(y - slope[crowd.worker] * c)


def _compare_with_crowd(
    crowd: PeerMedians,
    statistic: Floats,
    se: Floats,
    needed: int,
    *,
    two_sided: bool,
    least: float = 0.0,
) -> WorkerTest:
    """Test statistics against the crowd's; few honest workers are held to differ by ``least``."""
    judged = crowd.count >= needed
    p = np.ones(len(statistic))
    median = float(np.median(statistic[judged])) if judged.any() else 0.0
    away, error, count = (statistic - median)[judged], se[judged], crowd.count[judged]
    for sign in (1, -1) if two_sided else (1,):
        # Crowds are skewed: the spread of honest workers is learned on the side that is tested,
        # without the median worker, who is on neither. Of three, one is left: no spread is known.
        side = sign * away > 0
        n_side = int(side.sum())
        # The one or two nearest of few may be near by chance: the other side tells more.
        learned = [side] if n_side >= ENOUGH else [side, away != 0]
        tau = max(spread(away[s], error[s], share) for s in learned for share in (0.5, OUTER))
        if n_side < ENOUGH:
            tau = max(tau, least)
        p_side = tail(-sign * away, error, count, tau, n_side, long_tail=not two_sided)
        p[judged] = np.minimum(p[judged], (2 if two_sided else 1) * p_side)
    return WorkerTest(statistic=np.where(judged, statistic, np.nan), median=median, p=p)
