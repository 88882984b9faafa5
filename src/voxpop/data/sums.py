"""Sums, means and medians of the answers by task and by worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.exact import exact_sum, exact_value

# Numbers in flight in one block: 8 MB.
_BLOCK_NUMBERS = 1_000_000


def sum_by_task(answers: Answers, per_edge: Floats) -> Floats:
    """Sum over the answers of each task."""
    return np.add.reduceat(per_edge, answers.task_ptr[:-1], axis=0)


def sum_by_worker(answers: Answers, per_edge: Floats) -> Floats:
    """Sum over the answers of each worker."""
    return np.add.reduceat(per_edge[answers.by_worker], answers.worker_ptr[:-1], axis=0)


def mean_by_task(answers: Answers, per_edge: Floats) -> Floats:
    """Average over the answers of each task."""
    return np.asarray((sum_by_task(answers, per_edge).T / answers.task_degree).T)


def mean_by_worker(answers: Answers, per_edge: Floats) -> Floats:
    """Average over the answers of each worker."""
    return np.asarray((sum_by_worker(answers, per_edge).T / answers.worker_degree).T)


def median_by_worker(answers: Answers, per_edge: Floats) -> Floats:
    """Median over the answers of each worker (m, d), coordinate by coordinate."""
    return run_medians(per_edge[answers.by_worker], answers.worker_ptr[:-1], answers.worker_degree)


def run_medians(x: Floats, first: Index, size: Index) -> Floats:
    """Median of each run of x, from ``first`` on and of this ``size``; 0 of an empty run.

    Runs of one size are taken together: finding the middle of short rows takes a tenth of the time
    of sorting all.
    """
    found = np.zeros((len(size), *x.shape[1:]))
    for n in np.unique(size[size > 0]).tolist():
        runs = np.flatnonzero(size == n)
        rows = x[first[runs][:, None] + np.arange(n)]
        low, high = (n - 1) // 2, n // 2
        rows = np.partition(rows, (low, high), axis=1)
        found[runs] = 0.5 * (rows[:, low] + rows[:, high])
    return found


def weighted_means(
    answers: Answers, weight: Floats | None = None, bias: Floats | None = None
) -> Floats:
    """Mean answer of every task, with one weight per answer; without weights, the plain mean.

    ``bias`` (workers, dimension) is subtracted from the answers of each worker.
    """
    weight = np.ones(answers.n_edges) if weight is None else weight
    # Relative to one answer of the task, so that small differences of large values are kept.
    origin = answers.value[answers.task_ptr[:-1]]
    deviation = answers.value - origin[answers.task]
    if bias is not None:
        deviation = deviation - bias[answers.worker]
    top = np.maximum.reduceat(weight, answers.task_ptr[:-1])
    share = (weight / top[answers.task])[:, None]
    return np.asarray(
        origin + sum_by_task(answers, share * deviation) / sum_by_task(answers, share)
    )


def medians(answers: Answers, weight: Floats | None = None) -> Floats:
    """Median answer of every task, coordinate by coordinate, with one weight per answer.

    Where exactly half the weight lies on either side, the middle between the two answers.
    """
    weight = np.ones(answers.n_edges) if weight is None else weight
    first, last = answers.task_ptr[:-1], answers.task_ptr[1:] - 1
    estimate = np.empty((answers.n_tasks, answers.dimension))
    for j in range(answers.dimension):
        order = np.lexsort((answers.value[:, j], answers.task))
        value = answers.value[order, j]
        so_far = np.cumsum(weight[order])
        before = so_far[first] - weight[order][first]
        half = before + (so_far[last] - before) / 2
        slack = 1e-12 * so_far[last]
        low = np.clip(np.searchsorted(so_far, half - slack), first, last)
        high = np.clip(np.searchsorted(so_far, half + slack), first, last)
        estimate[:, j] = value[low] + (value[high] - value[low]) / 2
    return estimate


def middle_answers(answers: Answers) -> Floats:
    """The middle answer of each task (n, d), coordinate by coordinate, or the higher of two."""
    return both_middle_answers(answers)[1]


def both_middle_answers(answers: Answers) -> tuple[Floats, Floats]:
    """The lower and the higher middle answer of each task (n, d), by coordinate."""
    low, high = (np.empty((answers.n_tasks, answers.dimension)) for _ in range(2))
    for tasks, edges in by_degree(answers, lambda size: size):
        lower, higher = (edges.shape[1] - 1) // 2, edges.shape[1] // 2
        rows = np.partition(answers.value[edges], (lower, higher), axis=1)
        low[tasks], high[tasks] = rows[:, lower], rows[:, higher]
    return low, high


def leave_one_out_medians(answers: Answers) -> Floats:
    """Median of the other answers to the same task, for every answer; its own without any."""
    found = answers.value.copy()
    for _, edges in by_degree(answers, lambda size: size):
        n_others = edges.shape[1] - 1
        if n_others == 0:
            continue
        own = answers.value[edges]
        low, high = (n_others - 1) // 2, n_others // 2
        rows = np.partition(own, sorted({low, high, high + 1}), axis=1)
        # A place among the others moves up by one past the answer left out.
        low_value, high_value = (
            np.where(own <= rows[:, [place]], rows[:, [place + 1]], rows[:, [place]])
            for place in (low, high)
        )
        found[edges] = low_value + (high_value - low_value) / 2
    return found


def with_gold(answers: Answers, estimate: Floats) -> Floats:
    """Replace the estimates of gold tasks by their truths."""
    if answers.gold is None:
        return estimate
    return np.where(answers.is_gold[:, None], answers.gold, estimate)


def means_or_gold(
    answers: Answers, weight: Floats | None = None, bias: Floats | None = None
) -> Floats:
    """Weighted mean of every task's answers, less the biases; of gold tasks, the truth."""
    return with_gold(answers, weighted_means(answers, weight, bias))


def squared_residual(answers: Answers, estimate: Floats) -> Floats:
    """Squared distance of every answer from the estimate of its task, over all coordinates."""
    return np.asarray(((answers.value - estimate[answers.task]) ** 2).sum(axis=1))


def variance_within_tasks(answers: Answers) -> Floats:
    """Variance of an answer about its task's mean, per coordinate, pooled over all tasks.

    If no task has two answers, this is the variance of all answers: an upper bound, since it
    includes the variance between tasks. For a single answer it is the answer squared.
    """
    freedom = answers.n_edges - answers.n_tasks
    if freedom == 0:
        mean = np.array([exact_value(exact_sum(column)) for column in answers.value.T])
        spread = _sum_of_squares(answers.value - mean / answers.n_edges) / answers.n_edges
        return np.asarray(np.where(spread > 0, spread, answers.value[0] ** 2))
    return np.asarray(_sum_of_squares(residuals(answers)) / freedom)


def residuals(answers: Answers) -> Floats:
    """Distance of every answer from the mean of its task."""
    return np.asarray(answers.value - weighted_means(answers)[answers.task])


def _sum_of_squares(columns: Floats) -> Floats:
    """Sum of squares of each column, the same in any order of its rows."""
    return np.array([exact_value(exact_sum(column**2)) for column in columns.T])


def by_degree(
    answers: Answers, numbers_per_task: Callable[[int], int]
) -> Iterator[tuple[Index, Index]]:
    """Tasks of equal degree l and their edges (n, l), in blocks of bounded memory.

    ``numbers_per_task`` says how many numbers a task of a given degree takes.
    """
    for size in np.unique(answers.task_degree).tolist():
        tasks = np.flatnonzero(answers.task_degree == size)
        block = max(1, _BLOCK_NUMBERS // max(1, numbers_per_task(size) * answers.dimension))
        for start in range(0, len(tasks), block):
            some = tasks[start : start + block]
            yield some, answers.task_ptr[some][:, None] + np.arange(size)
