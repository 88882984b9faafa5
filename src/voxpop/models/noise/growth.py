"""Growth: answers to tasks of large values are noisier than those to tasks of small ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.models.noise.component import Component, StartingPoint


@dataclass(frozen=True, eq=False)
class Growth(Component):
    """Sd of the noise at the highest task as a multiple of that at the lowest, ``ratio`` (d,).

    Empty without growth. It is learned before the messages (:mod:`voxpop.estimators.bi.growth`).
    """

    name = "growth"
    about = (
        "Noise may grow with the value of the task, or shrink: its sd is a straight line from the\n"
        "lowest task to the highest, whose slope is learned. For prices and counts on the linear\n"
        "scale; ``scale`` is the alternative."
    )
    words = "noise that grows with the value"
    compared_with = ((), ("truths",), ("tails",), ("tails", "truths"))
    compared_alike = ((),)

    ratio: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Growth:
        """Nothing yet: growth is learned before the messages."""
        return cls()

    def facts(self, scale: Floats) -> dict[str, Any]:
        """Ratio of the sds at the two ends."""
        return {"growth": tuple(self.ratio.tolist())}
