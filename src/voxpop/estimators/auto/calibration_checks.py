"""Calibration checks: each worker's answers against truths estimated without that worker.

A model that knows a worker's habits predicts his answers, whatever it makes of the truths; and a
worker who gives small answers to everything is near to all that is near zero. So the truths alone
are checked, with an offset for each worker, or with an offset and a slope.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Codes, Floats

MIN_ANSWERS = 5
"""Three equal answers may be three equal tasks; five are a habit."""
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class ScatterLeft:
    """What truths leave unexplained of each worker's answers (m,); 0 for workers with too few.

    ``line`` is the share left by a straight line through his answers, times their number;
    ``offset`` the sum of squares about the truths, shifted.
    """

    line: Floats
    offset: Floats


def scatter_left(
    owner: Codes, n_workers: int, answer: Floats, truth: Floats, weight: Floats
) -> ScatterLeft:
    """Compare truths with answers, both (E, d), of the worker ``owner`` (E,); weights (E, d)."""
    n = np.bincount(owner, minlength=n_workers)

    def sums(per_answer: Floats) -> Floats:
        columns = [np.bincount(owner, column, n_workers) for column in (weight * per_answer).T]
        return np.stack(columns, axis=1)

    total = np.maximum(sums(np.ones_like(weight)), 1e-300)

    def centred(values: Floats) -> Floats:
        found = values - (sums(values) / total)[owner]
        # The residuals of equal answers are rounding, which must not count as agreement.
        return np.where(np.abs(found) > _ROUNDING * np.abs(values).max(axis=0), found, 0.0)

    x, y = centred(truth), centred(answer)
    # Numbers may be so large that their squares overflow.
    largest = max(float(np.abs(x).max()), float(np.abs(y).max())) or 1.0
    xx, xy, yy = (sums((u / largest) * (v / largest)) for u, v in ((x, x), (x, y), (y, y)))
    explained = np.divide(xy**2, xx * yy, out=np.zeros_like(xx), where=xx * yy > 0)
    enough = n >= MIN_ANSWERS
    return ScatterLeft(
        np.where(enough, n * (1.0 - explained.mean(axis=1)), 0.0),
        np.where(enough, (xx - 2.0 * xy + yy).sum(axis=1), 0.0) * largest**2,
    )


def no_worse(ours: Floats, simple: Floats, rounding: float, allowed: float = 0.0) -> bool:
    """Compare errors in total and worker by worker, over the workers who have any.

    They may be worse by this many standard errors: those of the sum, and of a fair coin by worker.
    """
    present = (ours > 0) | (simple > 0)
    worse = ours[present] - simple[present] * (1.0 + rounding)
    if not len(worse):
        return True
    fewest = 0.5 * len(worse) - allowed * 0.5 * np.sqrt(len(worse))
    return bool(
        (worse <= 0).sum() >= fewest
        and worse.sum() <= (allowed * error_of_sum(worse) if allowed else 0.0)
    )


def significantly_better(ours: Floats, simple: Floats, level: float) -> bool:
    """Return whether errors per worker are lower by more than chance explains between workers."""
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
