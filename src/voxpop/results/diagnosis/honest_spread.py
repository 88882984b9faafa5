"""Honest differences: how much honest workers differ, and how likely one is as extreme as that."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from voxpop.arrays import Floats, Index

# A tenth of an honest crowd may be clearly noisier or more biased than the rest. So the spread is
# also fitted at this quantile of the workers on the side that is tested.
OUTER = 0.8
# So many workers on a side show by themselves how far honest ones differ there.
ENOUGH = 5
# Fewer may look alike by chance. They are held to differ in logarithms by this at least: honest
# judges use a scale by half or by twice as much.
FEW_DIFFER = 0.35
# Efficiency of a spread estimated from medians, relative to one from squares, for Gaussians.
_EFFICIENCY = 0.37
# The tail is an integral over how honest workers differ; this grid reaches past 1e-15.
_GRID = np.linspace(-8.0, 8.0, 321)
_GRID_WEIGHT = np.exp(-(_GRID**2) / 2) / np.exp(-(_GRID**2) / 2).sum()


def spread(away: Floats, se: Floats, share: float = 0.5) -> float:
    """Learn how much honest workers differ, beyond the error with which each is known.

    The spread at which the quantile ``share`` of ``away^2 / (se^2 + spread^2)`` is that of a
    Gaussian. Quantiles are robust: the workers who are looked for cannot hide by widening it.
    """
    if len(away) == 0:
        return 0.0
    # Each worker is within the Gaussian's quantile from this spread on.
    needed = away**2 / float(ndtri((1 + share) / 2)) ** 2 - se**2
    return float(np.sqrt(max(np.quantile(needed, share, method="lower"), 0.0)))


def tail(
    found: Floats,
    se: Floats,
    count: Index,
    tau: float,
    n_crowd: int,
    factor: bool = False,
    long_tail: bool = False,
) -> Floats:
    """Probability that an honest worker is at or below ``found``.

    Honest workers are at 0 plus ``tau`` t, or, as a ``factor``, at exp(tau t): t is Student's, as
    the spread is estimated from ``n_crowd`` workers. The noise about that is Student's, too, as
    each error is estimated from ``count`` answers. Where honest crowds have a ``long_tail``, as in
    their noise, t falls off no faster than an exponential.
    """
    p = np.ones(len(found))
    freedom = max(_EFFICIENCY * (n_crowd - 1), 1.0)
    # Within two standard deviations nobody is flagged: spare the integral.
    near = 1.0 - 2 * se if factor else -2 * np.sqrt(se**2 + tau**2)
    where = found < near
    if not where.any():
        return p
    differ = np.asarray(stdtrit(freedom, ndtr(_GRID)))
    if long_tail:
        # The double exponential with as much beyond the outer quantile as the Gaussian has.
        outer = ndtri((1 + OUTER) / 2) / -np.log(1 - OUTER)
        reach = outer * -np.log(2 * ndtr(-np.abs(_GRID)))
        differ = np.sign(differ) * np.maximum(np.abs(differ), reach)
    differ = tau * differ
    honest = np.exp(np.minimum(differ, 700.0)) if factor else differ
    for u in np.flatnonzero(where):
        z = (found[u] - honest) / max(se[u], 1e-300)
        p[u] = min(1.0, float(_GRID_WEIGHT @ stdtr(count[u] - 1.0, z)))
    return p
