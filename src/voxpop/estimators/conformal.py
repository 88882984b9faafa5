"""Conformal: hide known truths in turn, and stretch intervals that they fall outside of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.results.result import Result

_COVERAGE = 0.95
# Below this the (n + 1) 95 % largest of n errors does not exist.
_FEWEST = 19
_FOLDS = 2


@dataclass(frozen=True)
class GoldCheck:
    """How gold tasks came out when hidden: their number, the share inside 95 %, the stretch."""

    n_tasks: int
    coverage_95: float
    stretch: float

    def summary(self) -> str:
        """Say what was found, and what follows."""
        found = f"on {self.n_tasks} gold tasks hidden in turn, {self.coverage_95:.0%} fell inside "
        if not np.isfinite(self.stretch):
            return found + "95 %: no stretch of intervals without width would help"
        if self.stretch > 1:
            return found + f"95 %: intervals stretched by {self.stretch:.2g}"
        return found + "95 %: intervals kept"


def widen_by_gold(fit: Callable[[Answers], Result], answers: Answers, result: Result) -> Result:
    """Stretch a result's intervals by what known truths show to be missing.

    Gold tasks are hidden, half at a time, and estimated like any other. The score of a hidden truth
    is what the 95 % interval has to be stretched by, about the estimate, to reach it; intervals
    and sds of all other tasks are stretched by the (n + 1) 95 % largest of n scores (for vectors,
    of the scores of all coordinates). If gold tasks are drawn like the others, 95 % of these are
    then inside whatever the model missed, such as an error that all workers share.

    Intervals are never made narrower: a factor below one may be chance, or gold tasks easier than
    the rest, and an interval too wide misleads nobody. With fewer than 19 gold tasks no 95 %
    statement is possible, and a note says so.

    Parameters
    ----------
    fit
        What made the result, such as ``BI().fit``; called twice.
    answers, result
        The answers with gold, and what ``fit`` found in them.
    """
    n_gold = int(answers.is_gold.sum())
    if n_gold == 0 or n_gold == answers.n_tasks:
        return result
    if n_gold < _FEWEST:
        note = (
            f"{n_gold} gold tasks are too few to check 95 % intervals by hiding them: that takes "
            f"{_FEWEST}"
        )
        return replace(result, notes=(*result.notes, note))
    check = check_by_gold(fit, answers)
    facts = {"gold_hidden": check.n_tasks, "gold_coverage_95": check.coverage_95}
    factor = check.stretch if check.stretch > 1 and np.isfinite(check.stretch) else 1.0
    # Gold tasks have no width to stretch.
    wider = stretched(
        Posterior(result.estimate, result.variance, result.quantile), factor**2 * result.variance
    )
    return replace(
        result,
        variance=wider.variance,
        quantile=wider.quantile,
        settings={**result.settings, **facts, "gold_stretch": factor},
        notes=(*result.notes, check.summary()),
    )


def check_by_gold(fit: Callable[[Answers], Result], answers: Answers) -> GoldCheck:
    """Hide gold tasks fold by fold, fit again, and score their truths."""
    assert answers.gold is not None
    fold = gold_folds(answers)
    score = np.full(answers.gold.shape, np.nan)
    for number in range(_FOLDS):
        hidden = fold == number
        again = fit(replace(answers, gold=np.where(hidden[:, None], np.nan, answers.gold)))
        low, high = again.interval(_COVERAGE)
        score[hidden] = _scores(answers.gold, again.estimate, low, high)[hidden]
    found = np.sort(score[answers.is_gold], axis=None)
    n = int(answers.is_gold.sum())
    # The coordinates of a task go together: it is tasks that the one to come is ranked among.
    rank = int(np.ceil(round(_COVERAGE * (1.0 + 1.0 / n) * len(found), 9)))
    return GoldCheck(n, float((found <= 1.0).mean()), float(found[min(rank, len(found)) - 1]))


def gold_folds(answers: Answers) -> NDArray[np.int64]:
    """Fold of every gold task, -1 of others: by turns in the order of their truths.

    So that the folds are alike, and neither row order, nor names, nor units make a difference; only
    where truths and answers are equal does the name decide.
    """
    assert answers.gold is not None
    gold = np.flatnonzero(answers.is_gold)
    mean = sum_by_task(answers, answers.value) / answers.task_degree[:, None]
    digest = [
        hashlib.blake2b(str(answers.task_ids[i]).encode(), digest_size=8).hexdigest() for i in gold
    ]
    keys = [np.array(digest), *mean[gold].T[::-1], *answers.gold[gold].T[::-1]]
    fold = np.full(answers.n_tasks, -1)
    fold[gold[np.lexsort(keys)]] = np.arange(len(gold)) % _FOLDS
    return fold


def _scores(truth: Floats, estimate: Floats, low: Floats, high: Floats) -> Floats:
    """What intervals have to be stretched by, about the estimate, to reach the truths."""
    away = np.abs(truth - estimate)
    reach = np.where(truth > estimate, high - estimate, estimate - low)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(away == 0, 0.0, away / np.maximum(reach, 0.0)))
