"""The next answers: how far some more, asked where they help most, would bring the error down."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.results.prediction import difficulty_of, scatter, weighs_equally
from voxpop.results.result import Result
from voxpop.results.scaled import result_on_scale
from voxpop.results.value_of_answer import value_of_answer
from voxpop.words import number_text

# More answers than this to one task are not considered.
_MOST_EACH = 10


@dataclass(frozen=True, kw_only=True)
class NextAnswers:
    """What more answers are expected to buy: the RMSE now and after them, and where they go."""

    n_answers: int
    n_tasks: int
    rmse: float
    rmse_after: float

    def summary(self) -> str:
        """Return one sentence."""
        now, after = number_text(self.rmse), number_text(self.rmse_after)
        where = "the task" if self.n_tasks == 1 else f"the {self.n_tasks:,} tasks"
        return (
            f"If they go to {where} where they help most, the expected RMSE of all labels falls "
            f"from {now} to {after}."
        )


def next_answers(answers: Answers, result: Result, n_answers: int = 100) -> NextAnswers | None:
    """Compute what the next answers would buy, from unknown workers of this crowd.

    Answer after answer goes to the task whose variance it reduces most. None where no variance is
    known, or nothing is uncertain.
    """
    found = result_on_scale(answers, result)[1]
    now = found.agreement_variance.mean(axis=1)
    usable = np.flatnonzero(~answers.is_gold & np.isfinite(now) & (now > 0))
    if not usable.size:
        return None
    first = now[usable] - _after(found, usable, now[usable], 1)
    # The answers cannot go to any other task.
    best = usable[np.argsort(-first, kind="stable")[:n_answers]]
    steps = [now[best]]
    for number in range(1, min(n_answers, _MOST_EACH) + 1):
        steps.append(_after(found, best, steps[-1], number))
    path = np.stack(steps)
    order = np.argsort(-(path[:-1] - path[1:]), axis=None, kind="stable")[:n_answers]
    asked = np.bincount(order % len(best), minlength=len(best))
    after = now.copy()
    after[best] = path[asked, np.arange(len(best))]
    shrunk = np.ones(len(now))
    truth = found.calibration.truth_variance
    shrunk[usable] = (truth(after[usable, None]) / truth(now[usable, None]))[:, 0]
    variance = result.variance.mean(axis=1)
    return NextAnswers(
        n_answers=len(order),
        n_tasks=int((asked > 0).sum()),
        rmse=float(np.sqrt(variance[usable].mean())),
        rmse_after=float(np.sqrt((variance * shrunk)[usable].mean())),
    )


def _after(result: Result, tasks: np.ndarray, variance: Floats, number: int) -> Floats:
    """Expected variance of tasks after one more answer, the ``number``-th to come."""
    if weighs_equally(result):
        before = result.task_answers[tasks] + number - 1.0
        return np.asarray(variance * before / (before + 1.0))
    hard = difficulty_of(result, tasks)
    noise = scatter(replace(result, task_difficulty=np.empty(0)), None, 0)
    level = np.maximum(noise.variance.mean(axis=1), np.finfo(np.float64).tiny)
    # On a task that is twice as hard, all variances are worth half. The unit keeps squares finite.
    unit = hard * float(level.max())
    after = value_of_answer(variance / unit, noise.share[None], level / level.max())[1][:, 0]
    return np.asarray(unit * after)
