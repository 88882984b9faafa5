"""The square root scale: noise whose variance is in proportion to the value, as with counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.errors import require
from voxpop.models.scale.base import Range, Scale


@dataclass(frozen=True)
class Sqrt(Scale):
    """f(v) = √v, for counts: the noise variance is in proportion to the value.

    ``step`` is half of the smallest value above 0: the density of an answer of 0 is that at this
    value, as √v is infinitely steep at 0.
    """

    step: float = 0.0
    name = "sqrt"
    noise_unit = "in square roots of the answers' unit"
    domain = "values of at least 0"
    advice = "drop or correct them, or leave scale='linear'"

    @classmethod
    def fitting(cls, values: Floats, _bounds: Range | None) -> Self:
        """Make the scale for values."""
        above = values[values > 0]
        return cls(0.5 * float(above.min()) if above.size else 1.0)

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Below zero."""
        return value < 0

    def forward(self, value: Floats) -> Floats:
        """Square root."""
        return np.sqrt(value)

    def back(self, at: Floats) -> Floats:
        """Square; below 0 there is nothing."""
        return np.square(np.maximum(at, 0.0))

    def log_slope(self, value: Floats) -> Floats:
        """F' = 1 / (2 √v)."""
        return np.asarray(-np.log(2.0) - 0.5 * np.log(np.maximum(value, self.step)))

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """The sd s of 2 t s, or of (t + s)² / 2 where it reaches below 0."""
        inside = spread < 2 * at**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(inside, spread / (2 * at), np.sqrt(2 * spread) - at))

    def bounds(self, given: Range | None) -> Range | None:
        """A bound below 0 is one at 0."""
        if given is None:
            return None
        require(given[1] > 0, f"scale 'sqrt' needs bounds that reach above 0, got {given}")
        return float(np.sqrt(max(given[0], 0.0))), float(np.sqrt(given[1]))
