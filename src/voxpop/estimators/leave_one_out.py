"""What the other answers to the same task say, simply: their mean, their median."""

from __future__ import annotations

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task


def others_mean(answers: Answers, weight: Floats | None = None) -> Floats:
    """Mean of the other answers to the same task, for every answer, with the weight (E,) of each.

    An answer without others stands for itself.
    """
    weight = np.ones((answers.n_edges, 1)) if weight is None else weight[:, None]
    # From an answer of the task, so that the digits of large values do not count.
    origin = answers.value[answers.task_ptr[:-1]][answers.task]
    pull = weight * (answers.value - origin)
    pull = sum_by_task(answers, pull)[answers.task] - pull
    others = sum_by_task(answers, weight)[answers.task] - weight
    has_others = answers.task_degree[answers.task][:, None] > 1
    return np.asarray(origin + pull / np.where(has_others, others, 1.0))


def others_median(answers: Answers) -> Floats:
    """Median of the other answers to the same task, for every answer."""
    found = np.empty_like(answers.value)
    degree, first = answers.task_degree, answers.task_ptr[:-1]
    for j in range(answers.dimension):
        order = np.lexsort((answers.value[:, j], answers.task))
        ordered = answers.value[order, j]
        rank = np.empty(answers.n_edges, dtype=np.int64)
        rank[order] = np.arange(answers.n_edges)
        rank -= first[answers.task]
        n_others = degree[answers.task] - 1
        sides = []
        for place in ((n_others - 1) // 2, n_others // 2):
            # Taking an answer out moves those above it down by one.
            place = np.maximum(place, 0)
            place = place + (place >= rank)
            place = np.minimum(place, n_others)
            sides.append(ordered[first[answers.task] + place])
        found[:, j] = 0.5 * (sides[0] + sides[1])
    return found
