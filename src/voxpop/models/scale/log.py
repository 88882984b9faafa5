"""The log scale: noise in proportion to the value, as with prices and sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.errors import require
from voxpop.models.scale.base import Range, Scale

# Values are limited to e to the power of this, so that their squares stay finite.
_LARGEST_LOG = 345.0


@dataclass(frozen=True)
class Log(Scale):
    """f(v) = log v, for prices, counts and sizes: noise is in proportion to the value."""

    name = "log"
    noise_unit = "in natural logarithms (an sd of 0.1 is a noise of about 10 %)"
    domain = "values above 0"
    advice = "drop or correct them, or try scale='sqrt', which takes 0"

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Zero and below."""
        return value <= 0

    def forward(self, value: Floats) -> Floats:
        """Natural logarithm."""
        return np.log(value)

    def back(self, at: Floats) -> Floats:
        """Exponential, kept finite."""
        return np.exp(np.clip(at, -_LARGEST_LOG, _LARGEST_LOG))

    def log_slope(self, value: Floats) -> Floats:
        """F' = 1 / v."""
        return -np.log(value)

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """The sd s of e^t sinh(s)."""
        return np.arcsinh(spread / self.back(at))

    def bounds(self, given: Range | None) -> Range | None:
        """A bound at or below 0 has no effect."""
        if given is None:
            return None
        require(given[1] > 0, f"scale 'log' needs bounds above 0, got {given}")
        low = float(np.log(given[0])) if given[0] > 0 else -np.inf
        return low, float(np.log(given[1]))
