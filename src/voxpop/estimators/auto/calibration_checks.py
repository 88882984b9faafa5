"""Workers as judges of truths that were found without them, whatever their habits.

A model that knows a worker's habits predicts his answers, whatever it makes of the truths; and who
says little of anything is near to all that is near zero. So workers judge truths alone, each with
an offset of his own, or with an offset and a scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from voxpop.arrays import Floats
from voxpop.data.answers import Answers

# Three equal answers may be three equal tasks; five are a habit.
FEWEST_TO_TELL = 5


@dataclass(frozen=True, eq=False)
class Judgement:
    """What truths leave of each worker's scatter (m,); nothing for workers too little is seen of.

    ``line`` is the share that a line through his answers leaves, times their number; ``offset`` the
    sum of squares about the truths themselves, shifted.
    """

    line: Floats
    offset: Floats


def judge(answers: Answers, usable: NDArray[np.bool_], truth: Floats, scale: Floats) -> Judgement:
    """Let workers judge truths (E, d) by their usable answers; ``scale`` (d,) is the unit."""
    owner, m = answers.worker[usable], answers.n_workers
    n = np.bincount(owner, minlength=m)

    def sums(per_answer: Floats) -> Floats:
        return np.stack([np.bincount(owner, column, m) for column in per_answer.T], axis=1)

    def centred(values: Floats) -> Floats:
        return np.asarray(values - (sums(values) / np.maximum(n, 1)[:, None])[owner])

    x, y = centred(truth[usable] / scale), centred(answers.value[usable] / scale)
    # Numbers may be so large that their squares overflow.
    largest = max(float(np.abs(x).max()), float(np.abs(y).max())) or 1.0
    xx, xy, yy = (sums((u / largest) * (v / largest)) for u, v in ((x, x), (x, y), (y, y)))
    explained = np.divide(xy**2, xx * yy, out=np.zeros_like(xx), where=xx * yy > 0)
    enough = n >= FEWEST_TO_TELL
    return Judgement(
        np.where(enough, n * (1.0 - explained.mean(axis=1)), 0.0),
        np.where(enough, (xx - 2.0 * xy + yy).sum(axis=1), 0.0) * largest**2,
    )


def no_worse(ours: Floats, simple: Floats, rounding: float) -> bool:
    """Compare errors per worker, in total and worker by worker; who has none does not count."""
    present = (ours > 0) | (simple > 0)
    ours, simple = ours[present], simple[present] * (1.0 + rounding)
    return bool(ours.sum() <= simple.sum() and (ours <= simple).sum() >= 0.5 * len(ours))


def shown_better(ours: Floats, simple: Floats, level: float) -> bool:
    """Tell whether errors per worker are lower by more than chance has between workers."""
    present = (ours > 0) | (simple > 0)
    gain = (simple - ours)[present]
    if len(gain) < 2:
        return False
    return bool(gain.sum() > stdtrit(len(gain) - 1, 1.0 - level) * error_of_sum(gain))


def error_of_sum(parts: Floats) -> float:
    """Standard error of the sum of parts that vary independently."""
    n = len(parts)
    spread = parts - parts.mean()
    # Over the largest, so that no square overflows.
    largest = float(np.abs(spread).max()) or 1.0
    return largest * float(np.sqrt(max(n, 2) / max(n - 1, 1) * ((spread / largest) ** 2).sum()))
