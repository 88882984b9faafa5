"""Greedy selection of answers: the largest expected reduction of variance per unit of cost first.

After each choice the task is assumed to have the variance expected after that answer, so a batch
spreads over tasks. The reduction grows with the variance of the task for every worker, so the best
task of a worker is the one of largest variance among those that the worker may answer.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.results.value_of_answer import value_of_answer

# Tabulated variances per factor 10, and how far they reach beyond the noise levels: interpolation
# is then accurate to 0.1 %.
_PER_DECADE, _REACH = 6, 1e3


class ExpectedVariance:
    """Variance expected after one more answer, tabulated for beliefs (W, K) about noise levels.

    The log of (reduction / remaining variance) is nearly linear in the log of the variance, with
    slope one at both ends, so interpolating between few variances is accurate.
    """

    def __init__(self, levels: Floats, belief: Floats, dimension: int) -> None:
        low, high = levels.min() / _REACH, levels.max() * _REACH
        n_grid = int(np.ceil(_PER_DECADE * np.log10(high / low))) + 1
        self._log_v = np.linspace(np.log(low), np.log(high), n_grid)
        reduction, remaining = value_of_answer(np.exp(self._log_v), belief, levels, dimension)
        self._log_ratio = np.log(reduction / remaining).T
        self._noise = belief @ levels

    def after(self, row: int, variance: float) -> float:
        """Variance expected after an answer by the worker whose belief is in this row."""
        return float(self.after_all(row, np.array([variance]))[0])

    def after_all(self, row: int, variance: Floats) -> Floats:
        """Variances (n,) expected after one such answer each."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_v = np.log(variance)
            inside = np.clip(log_v, self._log_v[0], self._log_v[-1])
            log_ratio = np.interp(inside, self._log_v, self._log_ratio[row])
            after = variance / (1.0 + np.exp(log_ratio + (log_v - inside)))
        return np.asarray(np.where(np.isinf(variance), self._noise[row], after))


def shrink_variances(variance: Floats, n_answers: Index, trust: float) -> Floats:
    """Shrink the variances of tasks towards values that depend on the number of answers only (N3).

    If workers differ less than they seem to, tasks of seemingly precise workers are less certain
    than their variances say. With equal workers the variance of a task is proportional to
    1 / (number of answers). ``trust`` weights the former, and the total is kept. With no trust,
    tasks with the fewest answers come first.
    """
    some = np.isfinite(variance) & (variance > 0) & (n_answers > 0)
    if trust >= 1.0 or not some.any():
        return variance
    equal = 1.0 / n_answers[some]
    shrunk = variance.copy()
    shrunk[some] = trust * shrunk[some] + (1.0 - trust) * equal * (shrunk[some].sum() / equal.sum())
    return shrunk


@dataclass
class Candidate:
    """A worker who can be asked for up to ``room`` answers at a price.

    ``row`` is the worker's row in :class:`ExpectedVariance`, ``excluded`` holds the tasks that the
    worker must not get. An ``anonymous`` candidate is a new worker each time, so a task can be
    given to it repeatedly.
    """

    row: int
    price: float
    room: int
    excluded: set[int] = field(default_factory=set)
    anonymous: bool = False
    # All tasks ranked before this are excluded: tasks only move down, so none comes in later.
    frontier: tuple[float, float, int] = (-np.inf, -1.0, -1)


@dataclass(frozen=True)
class Choice:
    """One answer to ask for: task, index of the candidate, variance before and expected after."""

    task: int
    candidate: int
    before: float
    after: float


# Task in order of decreasing variance: (-variance, random tie-break, task).
_Ranked = tuple[float, float, int]
# Smaller is better: (-reduction per price, expected variance times price).
_Priority = tuple[float, float]


def select_answers(
    variance: Floats,
    eligible: NDArray[np.bool_],
    expected: ExpectedVariance,
    candidates: list[Candidate],
    k: int,
    rng: np.random.Generator,
    budget: float = np.inf,
    least_gain: float = 0.0,
) -> list[Choice]:
    """Select up to k answers to the eligible tasks; updates the candidates.

    ``variance`` (n,) is that of each truth, infinite for unanswered tasks under a flat prior. An
    answer must reduce the variance by ``least_gain`` per unit of cost.
    """
    most = max((len(one.excluded) for one in candidates), default=0)
    tasks, ties = _largest(variance, eligible, k + most, rng)
    ranked = sorted(
        (-float(variance[i]), float(tie), int(i)) for i, tie in zip(tasks, ties, strict=True)
    )
    chosen: list[Choice] = []
    tie = rng.permutation(len(candidates)).tolist()
    # Lazy greedy: priorities in the heap may be outdated, but a choice only makes them worse.
    heap: list[tuple[_Priority, int, int]] = []

    def push(u: int) -> None:
        best = _best_task(ranked, expected, candidates[u])
        if best is not None:
            heappush(heap, (best[0], tie[u], u))

    for u in range(len(candidates)):
        push(u)
    while heap and len(chosen) < k:
        u = heappop(heap)[2]
        one = candidates[u]
        best = _best_task(ranked, expected, one)
        if best is None:
            continue
        priority, place = best
        if heap and priority > heap[0][0]:
            heappush(heap, (priority, tie[u], u))
            continue
        if -priority[0] < least_gain or one.price > budget:
            continue  # this candidate will not do better later; a cheaper one may
        before, task_tie, task = ranked.pop(place)
        after = expected.after(one.row, -before)
        chosen.append(Choice(task, u, -before, after))
        insort(ranked, (-after, task_tie, task))
        budget -= one.price
        one.room -= 1
        if not one.anonymous:
            one.excluded.add(task)
        push(u)
    return chosen


def _best_task(
    ranked: list[_Ranked], expected: ExpectedVariance, one: Candidate
) -> tuple[_Priority, int] | None:
    """Find the best task for a candidate: its priority, and its place in the ranking."""
    if one.room <= 0:
        return None
    for place in range(bisect_left(ranked, one.frontier), len(ranked)):
        negative, _, task = one.frontier = ranked[place]
        if task not in one.excluded:
            before, after = -negative, expected.after(one.row, -negative)
            # Every answer reduces an infinite variance without bound: compare what remains.
            if np.isinf(before):
                return (-np.inf, after * one.price), place
            return (-(before - after) / one.price, 0.0), place
    return None


def _largest(
    variance: Floats, eligible: NDArray[np.bool_], n: int, rng: np.random.Generator
) -> tuple[Index, Floats]:
    """Return the n eligible tasks of largest variance, ties at random, and random tie-breaks."""
    place = np.flatnonzero(eligible)
    if len(place) > n:
        value = variance[place]
        last = np.partition(value, len(value) - n)[len(value) - n]
        above, equal = place[value > last], place[value == last]
        place = np.concatenate([above, rng.choice(equal, n - len(above), replace=False)])
    return place, rng.random(len(place))
