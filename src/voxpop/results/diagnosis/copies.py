"""Copies: pairs of workers who gave the same answers more often than two honest ones would."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, chdtri, ndtr

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task

# Pairs of equal answers examined, and edges of pairs tested, per answer of the table: this keeps
# the search linear. Ten answers to a task in which seven are equal make two pairs per answer.
_WORK_PER_ANSWER = 5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two workers, the number of tasks they share and on how many they gave equal answers.

    ``chance`` bounds the expected number of equal answers of two honest workers, ``p`` is the
    probability that they give as many as these did.
    """

    first: int
    second: int
    shared: int
    equal: int
    chance: float
    p: float


def find_copies(answers: Answers, level: float) -> list[Pair]:
    """Find pairs with ``p`` times the number of all pairs at most ``level``.

    Copies share rare answers. So the search goes through the groups of equal answers to one task
    from the smallest to the largest, skips pairs whose equal answers could not reach the level,
    and tests the others on all the tasks they share; the work of both is bounded.
    """
    search = _CopySearch(answers, level / max(answers.n_workers * (answers.n_workers - 1) / 2, 1.0))
    found = (search.test(u, v) for u, v in search.candidates())
    return sorted((pair for pair in found if pair.p <= search.threshold), key=lambda pair: pair.p)


class _CopySearch:
    """Quantities computed once for all pairs."""

    def __init__(self, answers: Answers, threshold: float) -> None:
        self.answers = answers
        self.threshold = threshold
        self.code = number_values(answers.value)
        self._n_codes = int(self.code.max()) + 1
        key = answers.worker.astype(np.int64) * self._n_codes + self.code
        self._habits, place, self._times = np.unique(key, return_inverse=True, return_counts=True)
        # How often the edge's worker gives this answer, whatever the task; as a probability.
        self._habit = self._times[place] / (answers.worker_degree[answers.worker] + 1)
        self._group = answers.task.astype(np.int64) * self._n_codes + self.code
        _, place, count = np.unique(self._group, return_inverse=True, return_counts=True)
        # How many gave the edge's answer to its task.
        self._alike = count[place]
        self._value = answers.value - answers.value.mean(axis=0)
        self._total = sum_by_task(answers, self._value)
        self._squares = sum_by_task(answers, self._value**2)

    def candidates(self) -> list[tuple[int, int]]:
        """Pairs whose equal answers are less likely than the threshold."""
        e, f, chance = self._equal_answers()
        worker, n = self.answers.worker.astype(np.int64), self.answers.n_workers
        u, v = np.minimum(worker[e], worker[f]), np.maximum(worker[e], worker[f])
        chance = np.maximum(chance, np.maximum(self._habit[e], self._habit[f]))
        key, pair = np.unique(u * n + v, return_inverse=True)
        evidence = np.bincount(pair, -np.log(chance), minlength=len(key))
        # Agreement on exactly these tasks is one case of the tail, which is at least as likely.
        rare = np.flatnonzero(evidence >= -np.log(self.threshold))
        rare = rare[np.argsort(-evidence[rare], kind="stable")]
        degree = self.answers.worker_degree
        work = np.cumsum(degree[key[rare] // n] + degree[key[rare] % n])
        rare = rare[work <= _WORK_PER_ANSWER * self.answers.n_edges]
        return [(int(k // n), int(k % n)) for k in key[rare]]

    def _equal_answers(self) -> tuple[Index, Index, Floats]:
        """Pairs of edges with equal answers to one task, and the share of third workers there."""
        order = np.argsort(self._group, kind="stable")
        _, starts, size = np.unique(self._group[order], return_index=True, return_counts=True)
        kept = np.flatnonzero(size > 1)
        kept = kept[np.argsort(size[kept], kind="stable")]
        work = np.cumsum(size[kept] * (size[kept] - 1) // 2)
        kept = kept[work <= _WORK_PER_ANSWER * self.answers.n_edges]
        pairs, chance = [np.empty((0, 2), dtype=np.int64)], [np.empty(0)]
        for s in np.unique(size[kept]):
            rows = order[starts[kept[size[kept] == s]][:, None] + np.arange(s)]
            two = np.stack(np.triu_indices(s, 1), axis=1)
            pairs.append(rows[:, two].reshape(-1, 2))
            degree = self.answers.task_degree[self.answers.task[rows[:, 0]]]
            chance.append(np.repeat((s - 1) / degree, len(two)))
        first, second = np.concatenate(pairs).T
        return first, second, np.concatenate(chance)

    def test(self, u: int, v: int) -> Pair:
        """Test all the tasks that two workers share.

        The probability that an honest pair agrees on a task is taken as the largest of: the share
        of third workers who gave the same answer, how often the other one gives it whatever the
        task (two straight-liners agree), and what the noise of the two allows.
        """
        answers = self.answers
        mine, theirs = self._edges(u), self._edges(v)
        tasks, at_u, at_v = np.intersect1d(
            answers.task[mine], answers.task[theirs], assume_unique=True, return_indices=True
        )
        e, f = mine[at_u], theirs[at_v]
        same = self.code[e] == self.code[f]
        chance = np.zeros(len(tasks))
        for one, who in ((e, v), (f, u)):
            # Laplace's pseudo-count of one, so that the unseen is not impossible.
            third = self._alike[one] - same
            times = self._times_given(who, self.code[one]) - same + 1
            chance = np.maximum(chance, third / answers.task_degree[tasks])
            chance = np.maximum(chance, times / (answers.worker_degree[who] + 1))
        p = _tail(same, chance)
        if p <= self.threshold:  # the noise takes longest to compute, and can only raise the chance
            chance = np.maximum(chance, self._by_noise(e, f))
            p = _tail(same, chance)
        equal, total = int(same.sum()), float(chance.sum())
        return Pair(first=u, second=v, shared=len(tasks), equal=equal, chance=total, p=p)

    def _edges(self, worker: int) -> Index:
        pointer = self.answers.worker_ptr
        return self.answers.by_worker[pointer[worker] : pointer[worker + 1]]

    def _times_given(self, worker: int, code: Index) -> Index:
        key = worker * self._n_codes + code
        at = np.minimum(np.searchsorted(self._habits, key), len(self._habits) - 1)
        return np.where(self._habits[at] == key, self._times[at], 0)

    def _by_noise(self, e: Index, f: Index) -> float:
        """Probability that two answers fall on one step of the scale, by the workers' own noise.

        Two precise workers agree more often than the crowd. Their noise is estimated from their
        residuals about the mean of third workers, so that agreeing with each other does not make
        them precise, and taken at its lower confidence bound; if that is not positive, any
        agreement is possible.
        """
        enough = self.answers.task_degree[self.answers.task[e]] >= 4
        e, f = e[enough], f[enough]
        task = self.answers.task[e]
        n = self.answers.task_degree[task] - 2
        if len(e) < 2:
            return 1.0
        mine, theirs, count = self._value[e], self._value[f], n[:, None]
        mean = (self._total[task] - mine - theirs) / count
        squares = self._squares[task] - mine**2 - theirs**2 - count * mean**2
        of_mean = (np.maximum(squares, 0.0) / (count - 1) / count).mean(axis=0)
        scatter = sum((len(e) * (value - mean).var(axis=0)) for value in (mine, theirs))
        highest = chdtri(2 * (len(e) - 1), self.threshold)
        lowest = 2 * scatter / highest - 2 * of_mean
        if (lowest <= 0).any():
            return 1.0
        workers = (int(self.answers.worker[edge[0]]) for edge in (e, f))
        step = np.max([_steps(self.answers.value[self._edges(w)]) for w in workers], axis=0)
        # The coordinates need not be independent: the least likely agreement bounds that of all.
        return float((1 - 2 * ndtr(-step / 2 / np.sqrt(lowest))).min())


def _tail(same: NDArray[np.bool_], chance: Floats) -> float:
    """Bound the probability of as many equal answers.

    Among all tasks with this mean probability, equal probabilities have the longest tail beyond
    the mean plus one (Hoeffding 1956).
    """
    n, equal, p = len(same), int(same.sum()), float(chance.mean())
    return float(bdtrc(equal - 1, n, p)) if equal > n * p + 1 else 1.0


def number_values(value: Floats) -> Index:
    """Number the distinct answers."""
    code = np.zeros(len(value), dtype=np.int64)
    for column in value.T:
        _, inverse = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(inverse.max()) + 1) + inverse, return_inverse=True)
    return code


def _steps(value: Floats) -> Floats:
    """The steps of a worker's scales: the median gap between the values it uses."""
    used = (np.unique(column) for column in value.T)
    return np.array([np.median(np.diff(u)) if len(u) > 1 else np.inf for u in used])
