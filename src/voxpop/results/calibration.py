"""Calibration: corrections of a posterior by left-out answers, a shared error and gold."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from voxpop.arrays import Floats
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.results.gold_map import GoldMap
from voxpop.results.shared_error import SharedError
from voxpop.words import percent

# The quantiles every result carries.
PROBABILITIES = np.array([0.025, 0.05, 0.95, 0.975])


@dataclass(frozen=True)
class GoldCheck:
    """What hiding gold tasks showed: their number, the share of truths inside 95 %, the stretch.

    ``stretch`` is what intervals have to be stretched by for 95 % of hidden truths to be inside:
    below one where they are wider than needed, None where they have no width to stretch.
    """

    n_tasks: int
    coverage_95: float
    stretch: float | None

    def summary(self) -> str:
        """Return what was found, and what follows from it."""
        done = "kept"
        if self.stretch is None:
            done = "they have no width, so stretching does not help"
        elif self.stretch > 1:
            done = f"stretched by {self.stretch:.2g}"
        return (
            f"on {self.n_tasks} gold tasks hidden in turn, 95 % intervals covered "
            f"{percent(self.coverage_95)} of the truths: {done}"
        )


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The corrections that turn a posterior into the estimates and intervals of a result.

    They are applied in this order.

    Attributes
    ----------
    stretch
        Factor on all sds that left-out answers called for; never below one.
    gold_map
        The map from estimates to truths that gold tasks showed; None where there were too few.
    shared
        The error that all workers share, which no answer can show; None where none is allowed for.
    gold
        What hiding gold tasks showed; None where that was not done.
    bounds
        Range of the truths, in the users' units, that estimates and intervals are kept in; None if
        there is none.
    """

    stretch: float = 1.0
    gold_map: GoldMap | None = None
    shared: SharedError | None = None
    gold: GoldCheck | None = None
    bounds: tuple[float, float] | None = None

    @property
    def gold_stretch(self) -> float:
        """Factor on all sds, after everything else, that gold called for; never below one."""
        return max(1.0, (self.gold and self.gold.stretch) or 1.0)

    def then(self, other: Calibration) -> Calibration:
        """Add the parts of another calibration that have an effect."""
        parts = ((part.name, getattr(other, part.name), part.default) for part in fields(other))
        return replace(self, **{name: value for name, value, none in parts if value != none})

    @property
    def of_truth(self) -> Calibration:
        """The corrections that turn agreement (the mean of many more workers) into the truth."""
        return replace(self, stretch=1.0)

    def truth_variance(self, agreement: Floats) -> Floats:
        """Variance of truths (n, d) from that of agreement."""
        shared = self.shared
        added = 0.0 if shared is None else shared.added_variance(agreement)
        return np.asarray(self.gold_stretch**2 * (agreement + added))


def calibrated(posterior: Posterior, calibration: Calibration) -> Posterior:
    """Apply a calibration, except its bounds; the rest stays the same to the bit."""
    found, shared = _stretched_by(posterior, calibration.stretch), calibration.shared
    if calibration.gold_map is not None:
        found = calibration.gold_map.apply(found)
    if shared is not None:
        found = shared.applied(found, PROBABILITIES)
    return _stretched_by(found, calibration.gold_stretch)


def agreement_of(posterior: Posterior, calibration: Calibration) -> Posterior:
    """Posterior of agreement, from that of the truth: undo what :func:`calibrated` did for it.

    The map of gold cannot be undone; a result that has one keeps its agreement.
    """
    found = _stretched_by(posterior, 1.0 / calibration.gold_stretch)
    if calibration.shared is None:
        return found
    return calibration.shared.removed(found, PROBABILITIES)


def within(posterior: Posterior, bounds: tuple[float, float] | None) -> Posterior:
    """Move estimates and quantiles that lie outside the bounds to the nearer one.

    No truth within the bounds is further from the estimate then, or leaves the interval.
    """
    if bounds is None:
        return posterior
    return replace(
        posterior,
        estimate=np.clip(posterior.estimate, *bounds),
        quantile=np.clip(posterior.quantile, *bounds),
    )


def _stretched_by(posterior: Posterior, factor: float) -> Posterior:
    return posterior if factor == 1 else stretched(posterior, factor**2 * posterior.variance)
