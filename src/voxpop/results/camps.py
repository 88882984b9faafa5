"""Two camps: tasks whose answers fall into two groups that noise does not explain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.results.answer_weights import answer_weights
from voxpop.results.prediction import coordinate_factor, difficulty_of
from voxpop.results.result import Result
from voxpop.results.scaled import result_on_scale

# Fewest answers that can be a camp and another, and the least share of the weight of a camp, or of
# the answers: one of nine is an outlier.
_FEWEST, _LEAST_SHARE = 3, 0.2
_LEAST_HEADS = 1 / 3
# How far apart the camps are, in sds of the distance of their means under the workers' noise. In
# crowds of Gaussian noise about one task in 400 has camps by chance.
_APART = 3.5
# Camps of two or more that are so tight that the gap is this many times wider than either are camps
# too, if there are this many answers, and their means are this far apart: by chance about one task
# in five answers in 180 is like that, and fewer of more.
_TIGHT, _ENOUGH, _TIGHT_APART = 6.0, 5, 1.5


@dataclass(frozen=True, eq=False)
class Camps:
    """Which tasks have two camps, and which answers are in the upper one.

    Attributes
    ----------
    tasks
        Whether each task has two camps, (n_tasks,).
    upper
        Whether each answer (n_edges,) is in the upper camp; False where there are none.
    """

    tasks: NDArray[np.bool_]
    upper: NDArray[np.bool_]


def find_camps(answers: Answers, result: Result) -> Camps:
    """Find the tasks whose answers fall into two camps.

    The answers, corrected for the workers' biases, are split at their largest gap. They
    are two camps where each has a fifth of the weight or a third of the answers, the gap is wider
    than either camp, and their means are further apart than the noise of the workers explains; or
    where, of five answers or more, each camp is so tight that noise does not explain it. For
    vectors, any coordinate may split them.
    """
    weight = answer_weights(answers, result)[0]
    there, found = result_on_scale(answers, result)
    value = there.value
    if found.worker_bias.size:
        value = value - found.worker_bias[there.worker]
    noise = found.worker_variance[there.worker] * difficulty_of(found, there.task)
    tasks = np.zeros(answers.n_tasks, dtype=bool)
    upper = np.zeros(answers.n_edges, dtype=bool)
    for j, factor in enumerate(coordinate_factor(found).tolist()):
        parted, above = _part(there, value[:, j], factor * noise, weight)
        new = parted & ~tasks & ~answers.is_gold
        upper |= above & new[answers.task]
        tasks |= new
    return Camps(tasks, upper)


def _part(
    answers: Answers, value: Floats, noise: Floats, weight: Floats
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Split each task's answers at their largest gap: whether these are camps, and who is above."""
    order = np.lexsort((value, answers.task))
    task, at = answers.task[order], value[order]
    gap = np.append(np.diff(at), -1.0)
    last = answers.task_ptr[1:] - 1
    gap[last] = -1.0
    widest = np.maximum.reduceat(gap, answers.task_ptr[:-1])
    place = _first(gap == widest[task], answers)
    # Sums up to the gap, and beyond it.
    precision = 1.0 / np.maximum(noise[order], np.finfo(np.float64).tiny)
    below = np.arange(len(at)) <= place[task]
    n = answers.n_tasks
    share = np.bincount(task, weight[order] * below, n)
    parts = []
    for side in (below, ~below):
        # Precisions relative to the largest of the task: no sum overflows.
        most = np.maximum.reduceat(precision, answers.task_ptr[:-1])[task]
        part = side * precision / most
        total = np.bincount(task, part, n)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            mean = np.bincount(task, part * (at - at[place][task]), n) / total
            parts.append((mean, 1.0 / total / most[answers.task_ptr[:-1]]))
    with np.errstate(divide="ignore", invalid="ignore"):
        away = (parts[1][0] - parts[0][0]) / np.sqrt(parts[0][1] + parts[1][1])
    first, next_up = answers.task_ptr[:-1], np.minimum(place + 1, last)
    width = np.maximum(at[place] - at[first], at[last] - at[next_up])
    fewer = np.minimum(place - first + 1, last - place)
    # On a scale of few values, neighbours are no camps.
    values = np.unique(value)
    step = float(np.diff(values).min()) if len(values) > 1 else 0.0
    tight = (answers.task_degree >= _ENOUGH) & (fewer > 1) & (away > _TIGHT_APART)
    tight &= (widest > _TIGHT * width) & (widest > 2 * step)
    heads = fewer / answers.task_degree
    camps = (
        (answers.task_degree >= _FEWEST)
        & ((np.minimum(share, 1.0 - share) >= _LEAST_SHARE) | (heads >= _LEAST_HEADS))
        & (widest > width)
        & ((away > _APART) | tight)
    )
    above = np.zeros(len(at), dtype=bool)
    above[order] = ~below
    return camps, above


def _first(holds: NDArray[np.bool_], answers: Answers) -> Index:
    """Position of the first True of every task."""
    found = np.flatnonzero(holds)
    owner = np.repeat(np.arange(answers.n_tasks), answers.task_degree)[found]
    first = np.full(answers.n_tasks, -1, dtype=np.int64)
    first[owner[::-1]] = found[::-1]
    return first
