"""Learning the gold map: which shift, line or bend leads from hidden estimates to known truths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from voxpop.arrays import Floats
from voxpop.results.gold_map import GoldMap

FEWEST_GOLD = 5
"""Minimum number of gold tasks to learn from: one or two may be odd."""
# Shift and slope are learned as if this many more gold tasks had come out right: a prior about 0
# and 1 whose sd is that of one gold task over the square root of this.
_TASKS_IN_PRIOR = 4.0
# Errors of gold tasks are cut at this many typical distances from the median: a typo among
# the truths must not move all estimates.
_REACH = 5.0
# A bend needs this many gold tasks, ten in each piece, and is judged by hiding tenths.
_FEWEST_TO_BEND, _PER_PIECE, _MOST_PIECES, _FOLDS = 40, 10, 8, 10


@dataclass(frozen=True, eq=False)
class _Line:
    """A line in one coordinate, and its error on each gold task left out (n,)."""

    centre: float
    shift: float
    slope: float
    shift_variance: float
    slope_variance: float
    left_out: Floats


def left_out_errors(hidden: Floats, truth: Floats) -> Floats:
    """Known truths minus hidden estimates (n, d), each mapped as the others show."""
    lines = [_line(h, t) for h, t in zip(hidden.T, truth.T, strict=True)]
    return np.stack([line.left_out for line in lines], axis=1)


def learn_map(
    hidden: Floats, truth: Floats, bounds: tuple[float, float] | None = None
) -> GoldMap | None:
    """Learn the map (M60)-(M63) from estimates (n, d) of gold tasks, each made without its truth.

    None with fewer gold tasks than five.
    """
    if len(hidden) < FEWEST_GOLD:
        return None
    # Sums are then the same to the last bit, in any order of the tasks.
    order = np.lexsort((*hidden.T, *truth.T))
    hidden, truth = hidden[order], truth[order]
    columns = [*zip(hidden.T, truth.T, strict=True)]
    lines = [_line(*column) for column in columns]
    bends = [_bend(*column, line) for column, line in zip(columns, lines, strict=True)]
    off = truth - hidden
    return GoldMap(
        n_tasks=len(hidden),
        off=tuple(off.mean(axis=0).tolist()),
        off_sd=tuple(off.std(axis=0).tolist()),
        centre=tuple(line.centre for line in lines),
        shift=tuple(line.shift for line in lines),
        slope=tuple(line.slope for line in lines),
        shift_sd=tuple(float(np.sqrt(line.shift_variance)) for line in lines),
        slope_sd=tuple(float(np.sqrt(line.slope_variance)) for line in lines),
        knots=tuple(tuple(knots.tolist()) for knots, _, _ in bends),
        bend=tuple(tuple(bend.tolist()) for _, bend, _ in bends),
        bend_sd=tuple(sd for _, _, sd in bends),
        bounds=bounds,
    )


def _line(estimate: Floats, truth: Floats) -> _Line:
    """Average of identity, shift, slope and both, each weighted as left-out truths ask.

    All four are ridge regressions about the centre (M60); their left-out errors have a closed form
    (M61).
    """
    n, more = len(estimate), _TASKS_IN_PRIOR
    off = _within_reach(truth - estimate)
    centre = float(estimate.mean())
    away = estimate - centre
    # In units of the largest, so that no square overflows.
    unit = max(float(np.abs(off).max()), float(np.abs(away).max())) or 1.0
    r, x = off / unit, away / unit
    spread = float(x @ x) * (1.0 + more / n)
    shift = float(r.sum()) / (n + more)
    tilt = float(x @ r) / spread if spread > 0 else 0.0
    by_shift = np.full(n, 1.0 / (n + more))
    by_tilt = x**2 / spread if spread > 0 else np.zeros(n)
    # Rows: neither, shift, slope, both.
    fitted = np.stack([0.0 * x, shift + 0.0 * x, tilt * x, shift + tilt * x])
    own = np.stack([0.0 * x, by_shift, by_tilt, by_shift + by_tilt])
    left_out = (r - fitted) / (1.0 - own)
    square = (left_out**2).mean(axis=1)
    weight = _weights(square, n)
    moved, tilted = float(weight[1] + weight[3]), float(weight[2] + weight[3])
    noise = float(weight @ square)
    return _Line(
        centre=centre,
        shift=moved * shift * unit,
        slope=1.0 + tilted * tilt,
        shift_variance=(moved * noise / (n + more) + moved * (1 - moved) * shift**2) * unit**2,
        slope_variance=tilted * noise / spread + tilted * (1 - tilted) * tilt**2 if spread else 0.0,
        left_out=np.asarray(weight @ left_out) * unit + (truth - estimate - off),
    )


def _weights(square: Floats, n: int) -> Floats:
    """Weights of forms by the Gaussian likelihood of left-out truths, (mean square)**(-n / 2)."""
    if square[0] == 0:
        return np.asarray(np.arange(len(square)) == 0, dtype=np.float64)
    least = np.finfo(np.float64).eps * square.max()
    return np.asarray(softmax(-0.5 * n * np.log(np.maximum(square, least))))


def _within_reach(off: Floats) -> Floats:
    """Cut distances that are far from the median at the reach."""
    middle = float(np.median(off))
    usual = float(np.median(np.abs(off - middle)))
    reach = _REACH * usual / 0.6745
    inside: Floats = np.clip(off, middle - reach, middle + reach)
    return inside if usual > 0 else off


def _bend(estimate: Floats, truth: Floats, line: _Line) -> tuple[Floats, Floats, float]:
    """Knots, how far a monotone map is above the line there, and the sd of that (M62).

    Its weight against the line is learned by hiding tenths of the gold.
    """
    from scipy.optimize import isotonic_regression  # takes as long to load as a small crowd

    none, n = np.empty(0), len(estimate)
    if n < _FEWEST_TO_BEND:
        return none, none, 0.0
    order = np.argsort(estimate, kind="stable")
    x, straight = estimate[order], line.centre + line.shift + line.slope * (estimate - line.centre)
    straight, off = straight[order], _within_reach((truth - straight)[order])
    n_pieces = min(n // _PER_PIECE, _MOST_PIECES)

    def learned(kept: np.ndarray) -> tuple[Floats, Floats]:
        pieces = np.array_split(np.flatnonzero(kept), n_pieces)
        knots, level = (np.array([v[p].mean() for p in pieces]) for v in (x, straight))
        size = np.array([len(p) for p in pieces])
        above = np.array([off[p].sum() for p in pieces]) / (size + _TASKS_IN_PRIOR)
        return knots, np.asarray(isotonic_regression(level + above, weights=size).x - level)

    knots, bend = learned(np.ones(n, dtype=bool))
    if (np.diff(knots) <= 0).any() or line.slope <= 0:
        return none, none, 0.0
    left_out = off.copy()
    for fold in range(_FOLDS):
        hidden = np.arange(n) % _FOLDS == fold
        left_out[hidden] -= np.interp(x[hidden], *learned(~hidden))
    before, after = float((off**2).mean()), float((left_out**2).mean())
    if before == 0:
        return none, none, 0.0
    weight = float(expit(0.5 * n * np.log(before / max(after, np.finfo(np.float64).eps * before))))
    variance = weight * after / (n / n_pieces + _TASKS_IN_PRIOR)
    return knots, weight * bend, float(np.sqrt(variance))
