"""Doubtful gold: known truths further from the answers to their tasks than the others explain."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import bdtrc

from voxpop.arrays import Floats, Mask
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, run_medians
from voxpop.models.scale import Scale
from voxpop.results.diagnosis.typos import mend, scale_of_noise
from voxpop.results.result import Result
from voxpop.words import counted

# Fewer gold tasks show too little of how far off the answers to one may be.
_FEWEST = 10
# A truth is doubtful this many typical distances away, about eight standard deviations.
_FAR = 12.0
# Nine in ten Gaussian distances are below 2.44 typical ones; long tails make more of these typical.
_OUTER, _OF_OUTER = 0.9, 2.44
# How many truths of a crowd may be as far from so many answers by chance.
_BY_CHANCE = 0.05
# A slip is told if a wild number would look as much like one at most this often.
_ACCIDENT = 0.3
_ROUNDING = 1e-12
# So many truths are told one by one.
_TOLD = 3


class Doubts(NamedTuple):
    """Which known truths are doubtful (n_tasks,), and notes that say why."""

    tasks: Mask
    notes: tuple[str, ...] = ()

    def without(self, answers: Answers) -> Answers:
        """The answers without the doubtful truths: one of 20 would stretch all intervals."""
        if not self.notes:
            return answers
        gold = np.asarray(answers.gold)
        return replace(answers, gold=np.where(self.tasks[:, None], np.nan, gold))

    def restored(self, found: Result, answers: Answers) -> Result:
        """The result with the truths as they were given, and with the notes."""
        if not self.notes:
            return found
        truth = np.where(self.tasks[:, None], np.asarray(answers.gold), np.nan)
        notes = (*found.notes, *self.notes)
        return found._changed(lambda each: each.with_truths(truth), notes=notes)


def doubts_about_gold(answers: Answers, scale: Scale) -> Doubts:
    """Find the known truths that the answers to their tasks contradict, and what they look like.

    The answers to a task say their median, moved by what the crowd is off on the median gold task.
    A truth is doubtful if it is more than 12 typical distances from that: those of the other known
    truths, and what the scatter of the answers explains. And more answers must be off in that
    direction, at least half as far, than chance explains in one crowd of 20, by how often single
    answers to the other gold tasks are as far off. Of a vector, the worst coordinate is told.
    """
    known = answers.is_gold & (answers.task_degree > 1)
    doubtful = np.zeros(answers.n_tasks, dtype=bool)
    if known.sum() < _FEWEST:
        return Doubts(doubtful)
    part, noise = answers.part(known), scale_of_noise(replace(answers, gold=None), scale)[0]
    gold = np.asarray(part.gold)
    scale = scale if noise.outside(gold).any() else noise
    there = scale.answers(replace(part, gold=None))
    middle = medians(there)
    said, truth = scale.back(middle), scale.turn(scale.forward(gold), middle)
    expected = middle + np.median(truth - middle, axis=0)
    columns = [_excess(there, middle, truth - expected, j) for j in range(part.dimension)]
    excess, usual = (np.stack(rows, axis=1) for rows in zip(*columns, strict=True))
    worst = excess.max(axis=1)
    order = np.argsort(-worst, kind="stable")[: (worst > 0).sum()]
    doubtful[np.flatnonzero(known)[order]] = True
    found = []
    for i in order[:_TOLD].tolist():
        j = int(excess[i].argmax())
        given, like = float(gold[i, j]), ""
        if scale.name != "circular":  # there, every number is an angle
            meant, kind, chance = mend(given, float(expected[i, j]), float(usual[i, j]), scale)
            like = f"; it looks like {meant:.6g} ({kind})" if chance <= _ACCIDENT else ""
        name = f"{part.value_names[j]} = " if part.dimension > 1 else ""
        found.append(
            f"the known truth of task {part.task_ids[i]}, {name}{given:.6g}, may be wrong: the "
            f"median of its {part.task_degree[i]} answers is {said[i, j]:.6g}, and other "
            f"known truths are much nearer to the answers{like}; nothing is learned from it"
        )
    more = len(order) - len(found)
    if more:
        found.append(
            f"{counted(more, 'more known truth')} may be wrong; nothing is learned from them"
        )
    return Doubts(doubtful, tuple(found))


def _excess(there: Answers, middle: Floats, error: Floats, j: int) -> tuple[Floats, Floats]:
    """Error in coordinate j over what is usual, 0 where not doubtful, and what is usual; (n,)."""
    value, task, n = there.value[:, j], there.task, there.task_degree
    side, away = np.sign(error[:, j]), np.abs(error[:, j])
    scatter = np.abs(value - middle[task, j])
    apart = scatter if np.median(scatter) or not scatter.any() else scatter[scatter > 0]
    own = run_medians(scatter, there.task_ptr[:-1], n)
    usual = np.hypot(_of_others(away), np.maximum(own, np.median(apart)) / np.sqrt(n))
    # Differences of equal numbers are rounding.
    usual = np.maximum(usual, _ROUNDING * (np.abs(value).max() + away.max() or 1.0))
    # Single answers, less what the crowd is off on all tasks.
    off, half = error[task, j] + middle[task, j] - value, 0.5 * away
    far = np.abs(off) >= half[task]
    alike = np.bincount(task, far & (off * side[task] > 0), len(n))
    of_others = len(off) - np.searchsorted(np.sort(np.abs(off)), half) - np.bincount(task, far)
    chance = bdtrc(alike - 1, n, (of_others + 1) / (len(off) - n + 1))
    doubtful = (away > _FAR * usual) & (chance * len(n) <= _BY_CHANCE)
    return np.where(doubtful, away / usual, 0.0), usual


def _of_others(away: Floats) -> Floats:
    """Typical distance of all others, for each distance."""
    ordered, rank = np.sort(away), np.argsort(np.argsort(away, kind="stable"), kind="stable")
    places = [int(share * (len(away) - 2)) for share in (0.5, _OUTER)]
    typical, outer = (ordered[place + (rank <= place)] for place in places)
    return np.asarray(np.maximum(typical, outer / _OF_OUTER))
