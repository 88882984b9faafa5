"""Conformal: hide known truths in turn, and stretch the intervals that fail to cover them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_task
from voxpop.inference.kernels.posterior import Posterior
from voxpop.results.calibration import Calibration, GoldCheck, calibrated
from voxpop.results.result import Result
from voxpop.results.scaled import on_scale
from voxpop.results.shared_error import SharedError

_COVERAGE = 0.95
# With fewer gold tasks than this the 95 % quantile of their scores, ranked among n + 1, is unknown.
_FEWEST = 19
FOLDS = 2


def widen_by_gold(
    fit: Callable[[Answers], Result],
    answers: Answers,
    result: Result,
    hidden: HiddenGold | None = None,
) -> Result:
    """Stretch the intervals of a result until they cover known truths (split conformal).

    Gold tasks are hidden, half at a time, and estimated like any other. The score of a hidden truth
    is the factor by which its 95 % interval must be stretched, about the estimate, to reach it.
    Intervals and sds of all other tasks are stretched by the (n + 1) 95 % smallest of n scores (for
    vectors, of the scores of all coordinates). If gold tasks are drawn like the others, 95 % of the
    truths are then inside, whatever the model missed, such as an error that all workers share.

    Intervals are never narrowed: a factor below one may be chance, or gold tasks may be easier than
    the rest. With fewer than 19 gold tasks no 95 % statement is possible, and a note says so.

    Where the result allows for an error that all workers share, and was not given its kappa, kappa
    is first learned from the errors of hidden truths (M69), however few they are.

    Parameters
    ----------
    fit
        What made the result, such as ``BI().fit``; called twice, unless ``hidden`` is given.
    answers, result
        The answers with gold, and what ``fit`` found in them.
    hidden
        The gold tasks as ``fit`` estimates them when they are hidden, if that is known.
    """
    n_gold = int(answers.is_gold.sum())
    if n_gold == 0 or n_gold == answers.n_tasks:
        return result
    by_gold, note = calibration_by_gold(
        n_gold, result.calibration.shared, lambda: hidden or hide_gold(fit, answers)
    )
    if by_gold is not None:
        result = result.calibrated(by_gold)
    return replace(result, notes=(*result.notes, note))


def calibration_by_gold(
    n_gold: int, shared: SharedError | None, hide: Callable[[], HiddenGold]
) -> tuple[Calibration | None, str]:
    """The calibration by hidden gold tasks, and a note; None if they are too few."""
    learns = shared is not None and not shared.is_told
    note = (
        f"{n_gold} gold tasks are too few to check 95 % intervals by hiding them: at least "
        f"{_FEWEST} are needed"
    )
    if n_gold < _FEWEST and not learns:
        return None, note
    hidden, learned = hide(), None
    if shared is not None and learns:
        learned = shared = hidden.learn(shared)
    if n_gold < _FEWEST:
        return Calibration(shared=learned), note
    check = check_by_gold(hidden, shared)
    return Calibration(shared=learned, gold=check), check.summary()


@dataclass(frozen=True, eq=False)
class HiddenGold:
    """Gold tasks as they were estimated when hidden, on the scale of the model.

    ``agreed`` is the posterior of agreement, mapped as the other gold tasks show; ``truth`` (N, d)
    is what was hidden.
    """

    agreed: Posterior
    truth: Floats

    def learn(self, shared: SharedError) -> SharedError:
        """Learn kappa from the errors, in an order that is not that of the tasks."""
        error, variance = self.truth - self.agreed.estimate, self.agreed.variance
        order = np.lexsort((*variance.T, *error.T))
        return shared.learned(error[order], variance[order])


def hide_gold(fit: Callable[[Answers], Result], answers: Answers) -> HiddenGold:
    """Hide gold tasks fold by fold, and fit again."""
    assert answers.gold is not None
    parts, truths = [], []
    for hidden, others in in_folds(answers):
        again = fit(others)
        there = on_scale(again.scale, again._agreed)
        there = calibrated(there, Calibration(gold_map=again.calibration.gold_map))
        parts.append(there.rows(hidden))
        truth = again.scale.turn(again.scale.forward(answers.gold), there.estimate)
        truths.append(truth[hidden])
    return HiddenGold(Posterior.join(parts), np.concatenate(truths))


def check_by_gold(hidden: HiddenGold, shared: SharedError | None = None) -> GoldCheck:
    """Score the truths of hidden gold tasks."""
    found = calibrated(hidden.agreed, Calibration(shared=shared))
    low, high = found.quantile[:, :, 0], found.quantile[:, :, -1]
    score = _scores(hidden.truth, found.estimate, low, high)
    n = len(score)
    found_scores = np.sort(score, axis=None)
    # Coordinates of a task are not independent: the rank is that of a new task among n tasks.
    rank = int(np.ceil(round(_COVERAGE * (1.0 + 1.0 / n) * len(found_scores), 9)))
    stretch = float(found_scores[min(rank, len(found_scores)) - 1])
    coverage = float((found_scores <= 1.0).mean())
    return GoldCheck(n, coverage, stretch if np.isfinite(stretch) else None)


def in_folds(answers: Answers) -> Iterator[tuple[NDArray[np.bool_], Answers]]:
    """Hide each fold of the gold tasks: yield which these are, and the answers without their gold.

    Gold tasks take turns in the order of their truths. So the folds are alike, and do not depend on
    row order, names or units; names only break ties of both truths and mean answers.
    """
    assert answers.gold is not None
    gold = np.flatnonzero(answers.is_gold)
    mean = mean_by_task(answers, answers.value)
    fold = folds_of(answers.task_ids[gold].tolist(), mean[gold], answers.gold[gold])
    for number in range(FOLDS):
        hidden = np.zeros(answers.n_tasks, dtype=bool)
        hidden[gold[fold == number]] = True
        yield hidden, replace(answers, gold=np.where(hidden[:, None], np.nan, answers.gold))


def folds_of(ids: Iterable[object], mean: Floats, truth: Floats) -> NDArray[np.int64]:
    """Fold (g,) of gold tasks, from their ids, mean answers (g, d) and truths (g, d)."""
    digest = [hashlib.blake2b(str(i).encode(), digest_size=8).hexdigest() for i in ids]
    fold = np.empty(len(truth), dtype=np.int64)
    order = np.lexsort([np.array(digest), *mean.T[::-1], *truth.T[::-1]])
    fold[order] = np.arange(len(truth)) % FOLDS
    return fold


def _scores(truth: Floats, estimate: Floats, low: Floats, high: Floats) -> Floats:
    """Factor by which intervals must be stretched, about the estimate, to reach the truths."""
    away = np.abs(truth - estimate)
    reach = np.where(truth > estimate, high - estimate, estimate - low)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(away == 0, 0.0, away / np.maximum(reach, 0.0)))
