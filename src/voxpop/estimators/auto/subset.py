"""Which answers noise models are compared on: a connected part of a large crowd, and who counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task
from voxpop.estimators.auto.calibration_checks import MIN_ANSWERS

Mask = NDArray[np.bool_]


def neighbourhood(answers: Answers, limit: int) -> Answers:
    """A connected part of at most about ``limit`` answers.

    Tasks are taken breadth first from the task whose workers have the most answers, so that
    workers inside keep all of theirs; a random choice of tasks would leave them with one each.
    Ties are broken by a shuffle of the tasks in the order of their answers: names, rows and units
    make no difference, and no task has the advantage.
    """
    if answers.n_edges <= limit:
        return answers
    taken = np.zeros(answers.n_tasks, dtype=bool)
    activity = sum_by_task(answers, answers.worker_degree[answers.worker].astype(float)[:, None])
    first = answers.task_ptr[:-1]
    low, high = (f.reduceat(answers.value[:, 0], first) for f in (np.minimum, np.maximum))
    rank = np.empty(answers.n_tasks, dtype=np.int64)
    rank[np.lexsort((high, low))] = np.random.default_rng(0).permutation(len(rank))
    start = int(np.lexsort((rank, -activity[:, 0] / answers.task_degree))[0])
    frontier, budget = np.array([start]), limit
    while len(frontier) and budget > 0:
        kept = frontier[np.cumsum(answers.task_degree[frontier]) <= budget]
        taken[kept] = True
        budget -= int(answers.task_degree[kept].sum())
        if len(kept) < len(frontier):
            break
        known = np.zeros(answers.n_workers, dtype=bool)
        known[answers.worker[taken[answers.task]]] = True
        reached = np.unique(answers.task[known[answers.worker]])
        reached = reached[~taken[reached]]
        frontier = reached[np.argsort(rank[reached])]
    if not taken.any():
        taken[start] = True
    return answers.part(taken)


def usable_answers(answers: Answers) -> Mask:
    """Answers that can be compared with at least two others, or with one if none can.

    Workers who give the same answer to every task say nothing of any: their answers do not count,
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
