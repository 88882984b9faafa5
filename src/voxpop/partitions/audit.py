"""The audit of answers in parts: counts on a fine grid, which add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import exact_sum, exact_value
from voxpop.models.scale import LINEAR, Scale
from voxpop.results.audit import Audit, stretch_of, stretch_rank

# Distances of answers from their predictions, in sds, are counted in bins of this width.
_WIDTH, _N_BINS = 1.0 / 4096, 30_000
_LEAST = 1e-12


def distances(audit: Audit) -> Floats:
    """Return how far answers are from their predictions, in sds; of those that are predicted."""
    pit = audit.pit[np.isfinite(audit.pit).all(axis=1)]
    return np.asarray(np.abs(ndtri(np.clip(pit, _LEAST, 1.0 - _LEAST))))


def audit_counts(answers: Answers, audit: Audit, scale: Scale = LINEAR) -> dict[str, NDArray[Any]]:
    """Count how far the answers of a part are from their predictions, by halves of the tasks.

    Of a fit on a ``scale``, answers and audit are in the users' units.
    """
    usable = np.isfinite(audit.pit).all(axis=1)
    place = np.minimum(distances(audit) / _WIDTH, _N_BINS - 1).astype(np.int64)
    half = answers.task[usable] % 2 == 1
    sides = [place[half == side].ravel() for side in (False, True)]
    residual = scale.difference(answers.value, audit.predicted)[usable]
    return {
        "audit": np.stack([np.bincount(side, minlength=_N_BINS) for side in sides]),
        "audit_squared": exact_sum(residual**2),
        "audit_log": exact_sum(audit.log_density[usable].sum(axis=1)),
        "audit_answers": np.array([usable.sum()]),
    }


def audit_of_counts(totals: Mapping[str, NDArray[Any]], exact: bool) -> Audit:
    """Make the audit of all parts, to a ten-thousandth of what it is in memory."""
    n, counts = int(totals["audit_answers"][0]), totals["audit"]
    if not n:
        return Audit()
    needed = [_stretch(side) for side in counts]

    def inside(probability: float, stretches: tuple[float, float]) -> float:
        sides = zip(counts, stretches, strict=True)
        below = sum(_below(side, stretch * ndtri(probability)) for side, stretch in sides)
        return float(below / counts.sum())

    # Each half is stretched by the other, so that no answer affects its own interval.
    crossed = (needed[1], needed[0])
    return Audit(
        n_answers=n,
        stretch=_stretch(counts.sum(axis=0)),
        coverage_90=inside(0.95, crossed),
        coverage_95=inside(0.975, crossed),
        unstretched_95=inside(0.975, (1.0, 1.0)),
        rmse=float(np.sqrt(exact_value(totals["audit_squared"]) / counts.sum())),
        log_score=exact_value(totals["audit_log"]) / n,
        exact=exact,
    )


def _stretch(counts: Floats) -> float:
    """Factor on the sd that puts 95 % of answers inside, as in :mod:`voxpop.results.audit`."""
    n = int(counts.sum())
    if not n:
        return 1.0
    rank = stretch_rank(n) * (n - 1)
    place = int(np.searchsorted(np.cumsum(counts), rank, side="right"))
    return stretch_of((min(place, _N_BINS - 1) + 0.5) * _WIDTH)


def _below(counts: Floats, distance: float) -> float:
    """How many are within a distance; of a bin that it cuts, its share."""
    place = min(max(distance / _WIDTH, 0.0), float(_N_BINS))
    whole = int(place)
    cut = counts[whole] * (place - whole) if whole < _N_BINS else 0.0
    return float(counts[:whole].sum() + cut)
