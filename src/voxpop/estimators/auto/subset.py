"""Which answers noise models are compared on: a connected part of a large crowd, and who counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids, Index, Mask
from voxpop.data.answers import Answers
from voxpop.data.ids import id_keys
from voxpop.data.sums import sum_by_task
from voxpop.estimators.auto.calibration_checks import MIN_ANSWERS
from voxpop.estimators.bi.noise_levels import thinned

Keys = NDArray[np.uint64]
# Positions between the lowest and the highest answer, as fine as any unit keeps them.
_PLACES = 2.0**20
# Scales and noise models are compared on the same part; it is forgotten with its answers.
_NEIGHBOURHOODS: WeakKeyDictionary[Answers, dict[int, Answers]] = WeakKeyDictionary()


class Reached(NamedTuple):
    """Tasks in the order of their keys (k,), and how many answers each has."""

    key: Keys
    degree: Index

    @classmethod
    def ordered(cls, key: Keys, degree: Index, budget: int) -> Reached:
        """Put tasks in order, up to a budget of answers, and one more."""
        order = np.argsort(key)
        before = np.cumsum(degree[order]) - degree[order]
        order = order[before <= budget]
        return cls(key[order], degree[order])


class Crowd(Protocol):
    """Answers to grow a connected part in, in memory or elsewhere. Tasks go by their keys."""

    def first(self) -> Reached:
        """Return the task whose workers have the most answers."""

    def workers(self, tasks: Keys) -> Mask:
        """Tell who has answered any of the tasks."""

    def reached(self, known: Mask, taken: Keys, budget: int) -> Reached:
        """Find the other tasks that workers have answered, as :meth:`Reached.ordered`."""

    def part(self, tasks: Keys) -> Answers:
        """Return the answers to some tasks."""


@dataclass(frozen=True, eq=False)
class Vicinity:
    """Answers with the keys (n,) of their tasks, and how many answers each worker (m,) has."""

    answers: Answers
    key: Keys
    worker_degree: Index

    def activity(self) -> Floats:
        """How many answers the workers of each task have, on average (n,)."""
        answers = self.answers
        degree = self.worker_degree[answers.worker].astype(float)[:, None]
        return np.asarray(sum_by_task(answers, degree)[:, 0] / answers.task_degree)

    def first(self) -> Reached:
        """Return the task whose workers have the most answers."""
        start = np.lexsort((self.key, -self.activity()))[:1]
        return Reached(self.key[start], self.answers.task_degree[start])

    def workers(self, tasks: Keys) -> Mask:
        """Tell who has answered any of the tasks."""
        known = np.zeros(len(self.worker_degree), dtype=bool)
        known[self.answers.worker[self.edges(tasks)]] = True
        return known

    def reached(self, known: Mask, taken: Keys, budget: int) -> Reached:
        """Find the other tasks that workers have answered."""
        tasks = np.unique(self.answers.task[known[self.answers.worker]])
        tasks = tasks[~np.isin(self.key[tasks], taken)]
        return Reached.ordered(self.key[tasks], self.answers.task_degree[tasks], budget)

    def edges(self, tasks: Keys) -> Mask:
        """Tell which answers are to some tasks."""
        return np.asarray(np.isin(self.key, tasks)[self.answers.task])

    def part(self, tasks: Keys) -> Answers:
        """Return the answers to some tasks."""
        return in_order_of_keys(self.answers.select(self.edges(tasks)))


def neighbourhood(answers: Answers, limit: int) -> Answers:
    """A connected part of at most about ``limit`` answers; all of them if they are no more.

    Tasks are taken breadth first from the task whose workers have the most answers, so that
    workers inside keep all of theirs; a random choice of tasks would leave them with one each.
    Ties are broken by a hash of the tasks' answers, relative to all: names, rows and units make no
    difference, and no task has the advantage.
    """
    if answers.n_edges <= limit:
        return answers
    known = _NEIGHBOURHOODS.setdefault(answers, {})
    if limit not in known:
        key = task_keys(answers, answers.task_ids, ends_of(answers))
        known[limit] = connected_part(Vicinity(answers, key, answers.worker_degree), limit)
    return known[limit]


def connected_part(crowd: Crowd, limit: int) -> Answers:
    """Do as :func:`neighbourhood` does, wherever the answers are."""
    frontier, budget = crowd.first(), limit
    start, taken = frontier.key, frontier.key[:0]
    while len(frontier.key) and budget > 0:
        kept = np.cumsum(frontier.degree) <= budget
        taken = np.append(taken, frontier.key[kept])
        budget -= int(frontier.degree[kept].sum())
        if not kept.all():
            break
        frontier = crowd.reached(crowd.workers(taken), taken, budget)
    # A task of its own may have more answers than it takes to compare models.
    return thinned(crowd.part(taken if len(taken) else start))


def ends_of(answers: Answers) -> Floats:
    """Lowest and highest value of each coordinate, (2, d)."""
    return np.stack([answers.value.min(axis=0), answers.value.max(axis=0)])


def task_keys(answers: Answers, ids: Ids, ends: Floats) -> Keys:
    """Hash the answers to each task (n,), by their places between the ``ends`` of all.

    Where the answers are the same, or a hash happens to be, ids decide: their hashes are the lower
    half of the keys.
    """
    width = ends[1] - ends[0]
    place = np.rint((answers.value - ends[0]) / np.where(width > 0, width, 1.0) * _PLACES)
    offset = np.arange(answers.dimension, dtype=np.uint64) << np.uint64(32)
    mixed = _mixed(place.astype(np.uint64) + offset).sum(axis=1, dtype=np.uint64)
    of_answers = _mixed(np.add.reduceat(mixed, answers.task_ptr[:-1]))
    half = np.uint64(32)
    return np.asarray((of_answers >> half << half) | (id_keys(ids) >> half))


def _mixed(number: Keys) -> Keys:
    """Mix the bits of numbers (splitmix64)."""
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(number ^ (number >> np.uint64(31)))


def in_order_of_keys(answers: Answers) -> Answers:
    """Number tasks by their keys and workers by a hash of their ids, in whatever order they came.

    Sums over them are then the same to the last bit.
    """
    tasks = np.argsort(task_keys(answers, answers.task_ids, ends_of(answers)))
    workers = np.argsort(id_keys(answers.worker_ids))
    new_task, new_worker = np.argsort(tasks), np.argsort(workers)
    edges = np.argsort(new_task[answers.task], kind="stable")
    return replace(
        answers,
        task_ids=answers.task_ids[tasks],
        worker_ids=answers.worker_ids[workers],
        task=new_task[answers.task[edges]].astype(np.int32),
        worker=new_worker[answers.worker[edges]].astype(np.int32),
        value=answers.value[edges],
        gold=None if answers.gold is None else answers.gold[tasks],
    )


def usable_answers(answers: Answers) -> Mask:
    """Answers that can be compared with at least two others, or with one if none can.

    Workers who give the same answer to every task carry no information: their answers do not count,
    unless there are no others.
    """
    degree = answers.task_degree[answers.task]
    open_task = ~answers.is_gold[answers.task]
    varied = _varied_workers(answers)[answers.worker]
    for enough in ((degree >= 3) & open_task, (degree == 2) & open_task):
        if (enough & varied).any():
            return np.asarray(enough & varied)
        if enough.any():
            return np.asarray(enough)
    return np.zeros(answers.n_edges, dtype=bool)


def _varied_workers(answers: Answers) -> Mask:
    """Workers who do not always give the same answer, or have given too few to tell."""
    ordered = answers.value[answers.by_worker]
    first = answers.worker_ptr[:-1]
    spread = np.maximum.reduceat(ordered, first) - np.minimum.reduceat(ordered, first)
    return np.asarray((spread > 0).any(axis=1) | (answers.worker_degree < MIN_ANSWERS))
