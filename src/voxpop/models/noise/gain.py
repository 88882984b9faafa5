"""Gain: workers use more or less of the scale than others, each by their own factor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.models.noise.component import Component, StartingPoint


def _none() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Gain(Component):
    """Spread of the gains and of the offsets, ``variance`` and ``offset_variance`` (d,).

    ``centre`` (d,) is the value at which the offset says how far off a worker is. All are in the
    users' units, and empty without gains. They are learned before the messages, with each worker's
    gain (:mod:`voxpop.estimators.bi.gains`).
    """

    name = "gain"
    about = (
        "Every worker may use more or less of the scale than others: an answer is an offset plus\n"
        "a gain times the truth. Gains spread about one and offsets about zero, by learned sds.\n"
        "Only known truths (gold) can show that all workers together use less of the scale.\n"
        "Offsets include the bias: ``bias`` adds nothing."
    )
    words = "worker gain"
    compared_with = (("truths",), ("slips", "truths"))

    variance: Floats = field(default_factory=_none)
    offset_variance: Floats = field(default_factory=_none)
    centre: Floats = field(default_factory=_none)

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Gain:
        """Nothing yet: gains are learned before the messages."""
        return cls()

    def facts(self, scale: Floats) -> dict[str, Any]:
        """Sds of the gains and of the offsets, and where the offsets are measured."""
        if not self.variance.size:
            return {"gain_sd": (), "gain_centre": ()}
        return {
            "gain_sd": tuple(np.sqrt(self.variance).tolist()),
            "gain_centre": tuple(self.centre.tolist()),
            "bias_sd": tuple(np.sqrt(self.offset_variance).tolist()),
        }
