"""Leave-one-out: what the other answers to a task say, and standard errors by the jackknife."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import leave_one_out_medians as leave_one_out_medians

# Share of a task's weight below which a sum minus the answer itself is only rounding.
NO_WEIGHT = 1e-9


class LeftOut(NamedTuple):
    """The other answers to the task of each answer: mean (E, d), total weight (E,), if any.

    Where there are none, or none with a weight, the mean is that of the task's first answer and
    the weight is one.
    """

    mean: Floats
    weight: Floats
    usable: NDArray[np.bool_]


def weighted_left_out(value: Floats, weight: Floats, task: Codes, first: Index) -> LeftOut:
    """Average the other answers to the same task, with the weight (E,) of each.

    ``task`` (E,) is that of each answer, ``first`` (n,) the place of each task's first answer.
    """
    # From an answer of the task, so that small differences of large values are kept.
    origin = value[first][task]
    pull = weight[:, None] * (value - origin)
    total = np.add.reduceat(weight, first)[task]
    others = total - weight
    single = np.diff(first, append=len(value))[task] < 2
    usable = ~single & (others > NO_WEIGHT * total)
    others = np.where(usable, others, 1.0)
    mean = origin + (np.add.reduceat(pull, first)[task] - pull) / others[:, None]
    return LeftOut(np.where(usable[:, None], mean, origin), others, usable)


def leave_one_out_means(answers: Answers, weight: Floats | None = None) -> Floats:
    """Mean of the other answers to the same task, for every answer; its own without any."""
    weight = np.ones(answers.n_edges) if weight is None else weight
    return weighted_left_out(answers.value, weight, answers.task, answers.task_ptr[:-1]).mean


def sum_by_owner(owner: Codes, per_answer: Floats) -> Floats:
    """Sum over the answers of each owner who has any."""
    return np.bincount(owner, per_answer)[np.bincount(owner) > 0].astype(np.float64)


def jackknife_error(numerator: Floats, denominator: Floats, owners: Iterable[Codes]) -> float:
    """Standard error of a ratio of two sums over answers, as each owner's answers are left out.

    The largest over all kinds of ``owners``, such as workers and tasks; infinite if leaving one
    out leaves nothing. Where few tasks hold most of both sums, as with counts of very different
    size, the ratio fits those few, and residuals about it would show no error.
    """
    errors = []
    for owner in owners:
        rest = denominator.sum() - sum_by_owner(owner, denominator)
        n = len(rest)
        if n < 2 or rest.min() <= 0:
            return float("inf")
        ratio = (numerator.sum() - sum_by_owner(owner, numerator)) / rest
        errors.append(np.sqrt((n - 1) / n * ((ratio - ratio.mean()) ** 2).sum()))
    return float(max(errors))
