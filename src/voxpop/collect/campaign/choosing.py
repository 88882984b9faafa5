"""Which answers to ask for next: those that take off most expected variance per price.

The choice is greedy. After each choice the task is taken to have the variance that the answer is
expected to leave, so a batch spreads over tasks by itself. A worker takes more off a task of larger
variance, whoever he is, so for every worker it is the first task in order of variance that he has
not answered which counts.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.collect.campaign.gain import Gains


@dataclass
class Asked:
    """One who may be asked: by place in the gains, at a price, for so many answers at most.

    ``barred`` are the tasks that he must not get. Anyone at all may be asked of a task again and
    again: it will be somebody else each time.
    """

    gain: int
    price: float
    room: int
    barred: set[int] = field(default_factory=set)
    repeats: bool = False


@dataclass(frozen=True)
class Choice:
    """One answer to ask for: place of the task, of the asked, variance before and after."""

    task: int
    asked: int
    before: float
    left: float


def choose(
    variance: Floats,
    may: NDArray[np.bool_],
    gains: Gains,
    asked: list[Asked],
    k: int,
    rng: np.random.Generator,
    *,
    budget: float = np.inf,
    least_gain: float = 0.0,
) -> list[Choice]:
    """Choose up to k answers among the tasks that ``may`` be asked for.

    ``variance`` (n,) is what is known of each truth, infinite where nothing is; a gain of less
    than ``least_gain`` per price is not bought.
    """
    most = max((len(one.barred) for one in asked), default=0)
    pool = _largest(variance, may, k + most, rng)
    # Largest variance first; equal ones in random order.
    order = [(-float(variance[i]), float(tie), int(i)) for i, tie in zip(*pool, strict=True)]
    order.sort()
    chosen: list[Choice] = []
    tie = rng.permutation(len(asked)).tolist()
    # Best offers, found when others were better; nothing that is chosen makes one better.
    heap: list[Entry] = []

    def push(u: int) -> None:
        offer = _offer(order, gains, asked[u])
        if offer is not None:
            heappush(heap, (offer[0], tie[u], u, offer[1]))

    for u in range(len(asked)):
        push(u)
    while heap and len(chosen) < k:
        u = heappop(heap)[2]
        offer = _offer(order, gains, asked[u])
        if offer is None:
            continue
        score, place = offer
        if heap and score > heap[0][0]:
            heappush(heap, (score, tie[u], u, place))
            continue
        if -score[0] < least_gain or asked[u].price > budget:
            continue  # no later offer to this one gains more; someone cheaper may do
        key = order.pop(place)
        left = float(gains.left(asked[u].gain, np.array([-key[0]]))[0])
        chosen.append(Choice(key[2], u, -key[0], left))
        insort(order, (-left, key[1], key[2]))
        budget -= asked[u].price
        asked[u].room -= 1
        if not asked[u].repeats:
            asked[u].barred.add(key[2])
        push(u)
    return chosen


Score = tuple[float, float]
Entry = tuple[Score, int, int, int]


def _offer(
    order: list[tuple[float, float, int]], gains: Gains, one: Asked
) -> tuple[Score, int] | None:
    """Find the best task for one who may be asked: its score (less is better), and its place."""
    if one.room <= 0:
        return None
    for place, (negative, _, i) in enumerate(order):
        if i not in one.barred:
            before = -negative
            left = float(gains.left(one.gain, np.array([before]))[0])
            # Against nothing known every answer gains without end: then the one that leaves less.
            if np.isinf(before):
                return (-np.inf, left * one.price), place
            return (-(before - left) / one.price, 0.0), place
    return None


def _largest(
    variance: Floats, may: NDArray[np.bool_], n: int, rng: np.random.Generator
) -> tuple[Index, Floats]:
    """Places of the n largest variances that may be asked for; of equal ones a random choice."""
    place = np.flatnonzero(may)
    if len(place) > n:
        value = variance[place]
        last = np.partition(value, len(value) - n)[len(value) - n]
        above, equal = place[value > last], place[value == last]
        place = np.concatenate([above, rng.choice(equal, n - len(above), replace=False)])
    return place, rng.random(len(place))
