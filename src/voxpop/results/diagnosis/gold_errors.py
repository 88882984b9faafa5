"""Gold errors: workers whose errors about known truths are correlated, and who are one opinion."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from voxpop.arrays import Floats, Index, Mask
from voxpop.data.answers import Answers
from voxpop.results.diagnosis.dependence import MIN_CORRELATION, Link, edge_pairs

# This many pairs of answers to gold tasks show whether errors go together, and this many answers of
# a worker how large they are; there are at least this many workers of each kind.
_MIN_GOLD, _LEAST_SIDE = 3, 2
# A worker's line on gold is learned as if this many more answers had been right.
_PRIOR_GOLD = 4.0


def sharing_links(answers: Answers, settled: set[int], level: float) -> list[Link]:
    """Find noisy workers whose errors about known truths are correlated (M45).

    They count as one opinion beside the more precise workers, who must not have the error,
    too: of one that all share no weights are free. The noisy ones are those on one side of the
    widest gap between the sizes of errors, as far as sums of squares of their logarithms tell.
    """
    errors = GoldErrors.of(answers)
    if errors is None:
        return []
    usable = np.flatnonzero((errors.answered >= _MIN_GOLD) & (errors.square > 0))
    if len(usable) < 2 * _LEAST_SIDE:
        return []
    size = np.log(errors.square[usable])
    order = np.argsort(size, kind="stable")
    n_precise = np.arange(_LEAST_SIDE, len(usable) - _LEAST_SIDE + 1)
    total = np.cumsum(size[order])
    low, high = total[n_precise - 1] / n_precise, total[-1] - total[n_precise - 1]
    n_noisy = len(usable) - n_precise
    between = n_precise * n_noisy * (high / n_noisy - low) ** 2
    noisy = usable[order[n_precise[np.argmax(between)] :]]
    among = errors.among(noisy)
    link, other = errors.link(among), errors.link(~among)
    if link is None or other is None or link.p > level:
        return []
    if link.correlation < MIN_CORRELATION or other.correlation >= MIN_CORRELATION:
        return []
    members = sorted(set(noisy.tolist()) - settled)
    return [replace(link, first=members[0], second=second) for second in members[1:]]


class GoldErrors(NamedTuple):
    """Errors about known truths of workers who share a few tasks, in pairs.

    ``first`` and ``second`` (P,) are the workers of each pair of answers to a gold task ``task``,
    ``x`` and ``y`` (P, d) their errors. Every worker has ``answered`` (m,) so many gold tasks, and
    ``square`` (m,) is the mean of the squared errors.
    """

    first: Index
    second: Index
    task: Index
    x: Floats
    y: Floats
    answered: Index
    square: Floats

    @classmethod
    def of(cls, answers: Answers) -> GoldErrors | None:
        """Pair the answers to gold tasks; None if there are none."""
        if answers.gold is None or not answers.is_gold.any():
            return None
        pairs = edge_pairs(answers)
        if pairs is None:
            return None
        known = np.flatnonzero(answers.is_gold[answers.task])
        who = answers.worker[known].astype(np.int64)
        answered = np.bincount(who)
        error = np.zeros_like(answers.value)
        error[known] = _about_lines(answers.value[known], answers.gold[answers.task[known]], who)
        square = np.bincount(who, (error[known] ** 2).sum(axis=1)) / np.maximum(answered, 1)
        paired = answers.is_gold[answers.task[pairs.e]]
        e, f = pairs.e[paired], pairs.f[paired]
        first, second = (answers.worker[edge].astype(np.int64) for edge in (e, f))
        task = answers.task[e].astype(np.int64)
        return cls(first, second, task, error[e], error[f], answered, square)

    def among(self, workers: Index) -> Mask:
        """Which pairs are of two of these workers."""
        return np.isin(self.first, workers) & np.isin(self.second, workers)

    def link(self, pairs: Mask) -> Link | None:
        """How the errors of some pairs are correlated; None if there are too few.

        Pairs of one task have its errors in common, so that it is tasks that are counted.
        """
        if pairs.sum() < _MIN_GOLD:
            return None
        x, y = self.x[pairs], self.y[pairs]
        # Two roots: the product of the sums may overflow.
        size = np.sqrt((x**2).sum(axis=0)) * np.sqrt((y**2).sum(axis=0))
        product = (x * y / np.where(size > 0, size, 1.0)).mean(axis=1)
        task = self.task[pairs]
        by_task = np.bincount(task, product)[np.unique(task)]
        spread = float(np.sqrt((by_task**2).sum())) or 1.0
        return Link(
            first=int(self.first[pairs][0]),
            second=int(self.second[pairs][0]),
            shared=len(by_task),
            correlation=float(product.sum()),
            equal=0,
            p=float(ndtr(-product.sum() / spread)),
        )


def _about_lines(value: Floats, truth: Floats, who: Index) -> Floats:
    """Errors (E, d) less an offset and a slope of each worker ``who`` (E,), both shrunk (M45).

    A worker's own habit is not an error that others share.
    """
    error, away = value - truth, truth - truth.mean(axis=0)
    n = np.bincount(who)[who][:, None]

    def sums(per_answer: Floats) -> Floats:
        return np.stack([np.bincount(who, column)[who] for column in per_answer.T], axis=1)

    steep = sums(away**2) * (1.0 + _PRIOR_GOLD / n)
    tilt = np.divide(sums(away * error), steep, out=np.zeros_like(steep), where=steep > 0)
    return np.asarray(error - sums(error) / (n + _PRIOR_GOLD) - tilt * away)
