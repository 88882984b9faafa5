"""Posterior of the truths of a block of tasks, and quantiles of Gaussian mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from voxpop.arrays import Floats


@dataclass(frozen=True)
class Posterior:
    """Mean and variance (n, d) of the truths, and quantiles (n, d, number of probabilities)."""

    estimate: Floats
    variance: Floats
    quantile: Floats

    def rows(self, chosen: NDArray[Any]) -> Posterior:
        """Those of some tasks."""
        return Posterior(self.estimate[chosen], self.variance[chosen], self.quantile[chosen])

    def with_truths(self, truth: Floats | None) -> Posterior:
        """Put known truths (n, d), NaN where unknown, in the place of what was found."""
        if truth is None:
            return self
        known = ~np.isnan(truth)
        return Posterior(
            np.where(known, truth, self.estimate),
            np.where(known, 0.0, self.variance),
            np.where(known[:, :, None], truth[:, :, None], self.quantile),
        )

    @classmethod
    def join(cls, parts: Sequence[Posterior]) -> Posterior:
        """Put those of several blocks together."""
        return cls(
            np.concatenate([part.estimate for part in parts]),
            np.concatenate([part.variance for part in parts]),
            np.concatenate([part.quantile for part in parts]),
        )


def stretched(found: Posterior, variance: Floats) -> Posterior:
    """Stretch the quantiles about the mean so that they go with another variance."""
    ratio = np.sqrt(
        np.divide(variance, found.variance, out=np.ones_like(variance), where=found.variance > 0)
    )
    centred = found.quantile - found.estimate[:, :, None]
    return Posterior(
        found.estimate, variance, found.estimate[:, :, None] + ratio[:, :, None] * centred
    )


def reaching(found: Posterior, free: Posterior, low: NDArray[np.bool_]) -> Posterior:
    """Let intervals reach a bound that they would cross without it (M55).

    ``found`` is cut at the bounds, ``free`` is not, and ``low`` (q,) tells which quantiles are
    lower ends. A posterior that is cut is densest at the bound, where many truths may lie: its own
    quantiles would leave out just these. The quantiles may lie beyond the bounds until all models
    are mixed and stretched.
    """
    lower, upper = (side(found.quantile, free.quantile) for side in (np.minimum, np.maximum))
    return Posterior(found.estimate, found.variance, np.where(low, lower, upper))


def known(truth: Floats, n_probabilities: int) -> Posterior:
    """The truths of gold tasks, (n, d): no variance, and every quantile at the truth."""
    quantile = np.repeat(truth[:, :, None], n_probabilities, axis=2)
    return Posterior(truth, np.zeros_like(truth), quantile)


def log_known(value: Floats, truth: Floats, levels: Floats) -> Floats:
    """Log likelihood of each answer (n, l, d) at each level, the truth (n, d) being known.

    Up to a constant::

    log N(A_iu | g_i, s_k I_d) + const = -|A_iu - g_i|² / (2 s_k) - d/2 log s_k          (M11)
    """
    squared = ((value - truth[:, None, :]) ** 2).sum(axis=2)
    return np.asarray(-0.5 * (squared[:, :, None] / levels + value.shape[2] * np.log(levels)))


# Components that hold less than this share of a mixture, taken together, are left out.
_DROPPED_MASS = 1e-9
# Quantiles are found to this share of the narrowest component's sd.
_QUANTILE_TOLERANCE = 1e-9
_MOST_STEPS = 200


def mixture_quantiles(
    weight: Floats, mean: Floats, variance: Floats, probabilities: Floats
) -> Floats:
    """Quantiles of one-dimensional Gaussian mixtures, coordinate by coordinate (M9).

    ``weight`` (n, C), ``mean`` (n, C, d), ``variance`` (C,); returns (n, d, q).
    A quantile of a mixture lies between the smallest and the largest of its components' own
    quantiles; Newton's method runs inside that bracket and halves it where it would leave.
    """
    kept, needed = _heaviest(weight)
    n, d, q = len(mean), mean.shape[2], len(probabilities)
    share = np.take_along_axis(weight, kept, axis=1)
    share[np.arange(share.shape[1]) >= needed[:, None]] = 0.0
    share /= sum_in_order(share)[:, None]
    centre = np.take_along_axis(mean, kept[:, :, None], axis=1).transpose(0, 2, 1)
    sd = np.sqrt(variance)[kept]
    # One problem per task, coordinate and probability, all in one row; solved ones drop out.
    task, coordinate = (part.repeat(q) for part in np.divmod(np.arange(n * d), d))
    p = np.tile(probabilities, n * d)
    component = centre[task, coordinate] + sd[task] * ndtri(p)[:, None]
    absent = share[task] == 0.0
    low = np.where(absent, np.inf, component).min(axis=1)
    high = np.where(absent, -np.inf, component).max(axis=1)
    average = sum_in_order(share[:, None, :] * centre)
    square = (centre - average[:, :, None]) ** 2 + sd[:, None, :] ** 2
    spread = sum_in_order(share[:, None, :] * square)
    x = average[task, coordinate] + np.sqrt(spread)[task, coordinate] * ndtri(p)
    x = np.clip(x, low, high)
    narrowest = np.where(share > 0.0, sd, np.inf).min(axis=1)
    tolerance = _QUANTILE_TOLERANCE * narrowest[task]
    active = np.arange(len(x))
    for _ in range(_MOST_STEPS):
        i, at = task[active], x[active]
        z = (at[:, None] - centre[i, coordinate[active]]) / sd[i]
        error = sum_in_order(share[i] * ndtr(z)) - p[active]
        density = sum_in_order(share[i] * np.exp(-0.5 * z * z) / sd[i]) / np.sqrt(2 * np.pi)
        low[active] = np.where(error < 0, at, low[active])
        high[active] = np.where(error < 0, high[active], at)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            ahead = at - error / density
        inside = (ahead > low[active]) & (ahead < high[active])
        x[active] = np.where(inside, ahead, 0.5 * (low + high)[active])
        active = active[np.abs(x[active] - at) > tolerance[active]]
        if not len(active):
            break
    return np.asarray(x.reshape(n, d, q))


def sum_in_order(terms: Floats) -> Floats:
    """Sum over the last axis, term by term: zeros at the end change no bit."""
    return np.asarray(np.add.accumulate(terms, axis=-1)[..., -1])


def _heaviest(weight: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the components that matter, highest weight first, and how many a task needs."""
    order = np.argsort(weight, axis=1, kind="stable")[:, ::-1]
    covered = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    needed = (covered < covered[:, -1:] * (1 - _DROPPED_MASS)).sum(axis=1) + 1
    return order[:, : needed.max()], needed
