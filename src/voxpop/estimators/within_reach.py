"""Within reach: bring in answers so far off that the digits of all others would be lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import both_middle_answers, with_gold
from voxpop.errors import shorten
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.noise.component import REACH
from voxpop.results.result import Result
from voxpop.words import counted

# Distances below this many times the spacing of numbers as large are rounding.
_ROUNDING = 8.0
# Squares of smaller distances are practically 0.
_LEAST_DISTANCE = 1e-150


def fit_within_reach(
    fit: Callable[[Answers], Result], answers: Answers, may_move: bool = True
) -> Result:
    """Fit answers with those that are far out of reach brought in, and restore the result.

    An answer more than :data:`REACH` times the usual distance from the middle of its task is moved
    to that distance: it is a slip there, too. A task that is as far from all others is moved into
    their midst, if it ``may_move``, and its estimates are moved back after the fit.
    """
    reached = _Reached.of(answers, may_move)
    return fit(answers) if reached is None else reached.restored(fit(reached.answers))


@dataclass(frozen=True, eq=False)
class _Reached:
    """Answers within reach, how far each task was moved (n, d), and what to say of it."""

    answers: Answers
    original: Answers
    shift: Floats
    notes: tuple[str, ...]

    @classmethod
    def of(cls, answers: Answers, may_move: bool) -> _Reached | None:
        """Bring answers within reach; None where all are."""
        value, task = answers.value, answers.task
        centre = np.partition(value, len(value) // 2, axis=0)[len(value) // 2]
        middle = with_gold(answers, _middles(answers, centre))
        away, between = value - middle[task], middle - centre
        usual = _usual(away, middle[task])
        reach = np.where(usual > 0, REACH * usual, np.inf)
        apart = np.maximum(_usual(between, centre), usual)
        far = np.abs(away) > reach
        lost = np.abs(between) > np.where(apart > 0, REACH * apart, np.inf)
        lost = lost.any(axis=1) & may_move
        if not (far.any() or lost.any()):
            return None
        shift = np.where(lost[:, None], between, 0.0)
        home = middle - shift
        near = home[task] + np.clip(away, -reach, reach)
        moved = np.where(far | lost[task][:, None], near, value)
        gold = None if answers.gold is None else np.where(lost[:, None], home, answers.gold)
        gold = None if gold is None else np.where(answers.is_gold[:, None], gold, np.nan)
        notes = (*_far_note(answers, far), *_lost_note(answers, lost))
        return cls(replace(answers, value=moved, gold=gold), answers, shift, notes)

    def restored(self, result: Result) -> Result:
        """Move the estimates of tasks that were moved back to their places."""
        result = replace(result, notes=(*result.notes, *self.notes))
        if not self.shift.any():
            return result
        audit, by_answer = result.audit, self.shift[self.answers.task]
        if audit is not None and audit.predicted.size:
            predicted, truth = audit.predicted + by_answer, audit.truth + by_answer
            audit = replace(audit, predicted=predicted, truth=truth)
        return result._changed(self._back, audit=audit)

    def _back(self, found: Posterior) -> Posterior:
        estimate, quantile = found.estimate + self.shift, found.quantile + self.shift[:, :, None]
        moved = replace(found, estimate=estimate, quantile=quantile)
        return moved.with_truths(self.original.gold)


def _middles(answers: Answers, centre: Floats) -> Floats:
    """The middle answer of each task (n, d); of two, that nearer to the centre of all answers."""
    low, high = both_middle_answers(answers)
    return np.where(np.abs(low - centre) <= np.abs(high - centre), low, high)


def _usual(distance: Floats, of: Floats) -> Floats:
    """Median (d,) of the distances that are more than rounding; 0 without any."""
    distance = np.abs(distance)
    counts = distance > _ROUNDING * np.spacing(np.abs(of))
    columns = zip(distance.T, counts.T, strict=True)
    return np.array(
        [max(float(np.median(d[c])), _LEAST_DISTANCE) if c.any() else 0.0 for d, c in columns]
    )


def _far_note(answers: Answers, far: NDArray[np.bool_]) -> tuple[str, ...]:
    """Say which answers were moved, in any coordinate (E, d)."""
    edges = np.flatnonzero(far.any(axis=1))
    if not len(edges):
        return ()
    first, n = int(edges[0]), len(edges)
    task = shorten([answers.task_ids[answers.task[first]]])
    worker = shorten([answers.worker_ids[answers.worker[first]]])
    which = f"worker {worker} to task {task}"
    which = f"by {which}" if n == 1 else f"the first is by {which}"
    return (
        f"{counted(n, 'answer')} more than a billion times as far from the middle of the task as "
        f"usual ({which}) counted as if at that distance: correct or drop what is an error",
    )


def _lost_note(answers: Answers, lost: NDArray[np.bool_]) -> tuple[str, ...]:
    """Say which tasks were fitted elsewhere."""
    if not lost.any():
        return ()
    tasks = shorten(answers.task_ids[lost])
    return (
        f"{counted(int(lost.sum()), 'task')} more than a billion times as far from all others as "
        f"usual ({tasks}): check the answers, and the truth if it is known",
    )
