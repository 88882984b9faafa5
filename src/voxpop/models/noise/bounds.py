"""Bounds: the lowest and the highest value that a truth can have."""

from __future__ import annotations

from typing import Any

import numpy as np

from voxpop.errors import require
from voxpop.models.noise.component import Component, StartingPoint


class Bounds(Component):
    """A range that truths are known to lie in, in the users' units: there is nothing to learn."""

    name = "bounds"
    about = "Lowest and highest value a truth can have, for all coordinates; None if unbounded."
    off = None
    learned = None

    @classmethod
    def check(cls, value: Any) -> Any:
        """Refuse bounds that leave no room between them."""
        if value is None:
            return None
        low, high = (float(bound) for bound in value)
        require(low < high, f"bounds must be a lower and a higher number, got {value}")
        return low, high

    @classmethod
    def summary(cls, value: object) -> str:
        """Name the range."""
        return "" if value is None else f"truths in {value}"

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Bounds:
        """Bounds have nothing to learn."""
        return cls()

    @staticmethod
    def interval(value: tuple[float, float] | None) -> tuple[float, float]:
        """Range of the truths, infinite without bounds."""
        return value or (-np.inf, np.inf)
