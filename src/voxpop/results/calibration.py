"""Calibration: what left-out answers and gold show a posterior to miss, and how it is put right."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.results.gold_map import GoldMap


@dataclass(frozen=True)
class GoldCheck:
    """How gold tasks came out when hidden: their number, the share inside 95 %, the stretch.

    ``stretch`` is what intervals have to be stretched by for 95 % of hidden truths to be inside:
    below one where they are wider than needed, None where they have no width to stretch.
    """

    n_tasks: int
    coverage_95: float
    stretch: float | None

    def summary(self) -> str:
        """Say what was found, and what follows."""
        found = f"on {self.n_tasks} gold tasks hidden in turn, {self.coverage_95:.0%} fell inside "
        if self.stretch is None:
            return found + "95 %: no stretch of intervals without width would help"
        if self.stretch > 1:
            return found + f"95 %: intervals stretched by {self.stretch:.2g}"
        return found + "95 %: intervals kept"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was done to a posterior to make the estimates and intervals of a result, in this order.

    Attributes
    ----------
    stretch
        Factor on all sds that left-out answers called for; never below one.
    gold_map
        The map from estimates to truths that gold tasks showed; None where there were too few.
    gold
        What hiding gold tasks showed; None where that was not done.
    """

    stretch: float = 1.0
    gold_map: GoldMap | None = None
    gold: GoldCheck | None = None

    @property
    def gold_stretch(self) -> float:
        """Factor on all sds, after everything else, that gold called for; never below one."""
        return max(1.0, (self.gold and self.gold.stretch) or 1.0)

    def then(self, other: Calibration) -> Calibration:
        """Add the parts of another calibration that do something."""
        parts = ((part.name, getattr(other, part.name), part.default) for part in fields(other))
        return replace(self, **{name: value for name, value, none in parts if value != none})


def calibrated(posterior: Posterior, calibration: Calibration) -> Posterior:
    """Apply a calibration to a posterior; what it leaves as it is stays to the bit."""
    found = _stretched_by(posterior, calibration.stretch)
    if calibration.gold_map is not None:
        found = calibration.gold_map.apply(found)
    return _stretched_by(found, calibration.gold_stretch)


def _stretched_by(posterior: Posterior, factor: float) -> Posterior:
    return posterior if factor == 1 else stretched(posterior, factor**2 * posterior.variance)
