"""Intervals: bounds of any coverage from a few quantiles, and what they were checked against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri, stdtrit

from voxpop.arrays import Floats
from voxpop.errors import require
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.scale import LINEAR, Scale
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration
from voxpop.results.scaled import on_scale

# Gold tasks needed: fewer cannot check 95 %.
_GOLD_NEEDED = 20
# Coverage of the quantiles that a result carries, and their positions.
_CARRIED = {0.90: (1, 2), 0.95: (0, 3)}
# Degrees of freedom of the shapes between which is interpolated, heavy tails first.
_FREEDOM = np.append(np.geomspace(1.0, 300.0, 60), 1e9)


def quantiles_by_row(shares: Sequence[float], cumulated: Floats, at: Floats) -> Floats:
    """Quantiles (n, q) of distributions, from their masses (n, points) up to points."""
    n, last = len(cumulated), cumulated.shape[1] - 2
    rows, found = np.arange(n), np.empty((n, len(shares)))
    up_to = cumulated / cumulated[:, -1:]
    for i, share in enumerate(shares):
        left = np.clip((up_to <= share).sum(axis=1) - 1, 0, last)
        low, high = up_to[rows, left], up_to[rows, left + 1]
        start, end = at[rows, left], at[rows, left + 1]
        found[:, i] = start + (end - start) / (high - low) * (share - low)
    return found


def interval_at(
    found: Posterior, coverage: float, scale: Scale, bounds: tuple[float, float] | None = None
) -> tuple[Floats, Floats]:
    """Lower and upper bounds (n, d) that hold ``coverage`` of a posterior; ``bounds`` are kept.

    The 90 and 95 % quantiles on each side say how heavy the tail is: a Student-t distribution about
    the estimate with that ratio of the two gives the others (M68).
    """
    require(0 < coverage < 1, f"coverage must be between 0 and 1, got {coverage}")
    if coverage in _CARRIED:
        low, high = _CARRIED[coverage]
        return found.quantile[:, :, low], found.quantile[:, :, high]
    there = on_scale(scale, found)
    about = there.quantile - there.estimate[:, :, None]
    sides = [_reach(-about[:, :, 1], -about[:, :, 0], coverage)]
    sides.append(_reach(about[:, :, 2], about[:, :, 3], coverage))
    ends = np.stack([there.estimate - sides[0], there.estimate + sides[1]], axis=2)
    back = ends if scale == LINEAR else scale.back_from(there.estimate, ends)
    back = back if bounds is None else np.clip(back, *bounds)
    return back[:, :, 0], back[:, :, 1]


def _reach(at_90: Floats, at_95: Floats, coverage: float) -> Floats:
    """Distance of a bound from the estimate, from those of the bounds of 90 and 95 %."""
    p, known = 0.5 + 0.5 * coverage, (0.95, 0.975)
    if 0.90 < coverage < 0.95:
        z = ndtri([p, *known])
        return np.asarray(at_90 + (at_95 - at_90) * (z[0] - z[1]) / (z[2] - z[1]))
    positive = (at_90 > 0) & (at_95 > 0)
    heavy = np.divide(at_95, at_90, out=np.ones_like(at_90), where=positive)
    shape = [stdtrit(_FREEDOM, q) for q in (p, *known)]
    from_end, base = (shape[1], at_90) if coverage < 0.90 else (shape[2], at_95)
    # From light to heavy tails: interpolation needs increasing abscissae.
    ratio, factor = (shape[2] / shape[1])[::-1], (shape[0] / from_end)[::-1]
    return np.asarray(base * np.interp(heavy, ratio, factor))


def notes_on_intervals(audit: Audit | None, calibration: Calibration, uncertain: bool) -> list[str]:
    """Return sentences: what intervals allow for, and what they were checked against."""
    notes = []
    if calibration.shared is not None and uncertain:
        notes.append(calibration.shared.summary())
    if audit is None:
        return notes
    sentence = audit.summary()
    if audit.n_answers and uncertain:
        sentence += f"; {truth_check(calibration)}"
    return [*notes, sentence]


def truth_check(calibration: Calibration) -> str:
    """Say how far intervals were checked against truths."""
    gold = calibration.gold
    if gold is None:
        known = 0 if calibration.shared is None else calibration.shared.n_gold
        more = f"{_GOLD_NEEDED - known} more" if 0 < known < _GOLD_NEEDED else str(_GOLD_NEEDED)
        return f"intervals were not checked against truths: add {more} gold tasks"
    held = round(gold.coverage_95 * gold.n_tasks)
    return f"95 % intervals of the truth covered {held} of {gold.n_tasks} hidden gold tasks"
