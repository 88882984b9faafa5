"""Slips: a small share of the answers has nothing to do with the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.models.noise.component import REACH, Component, StartingPoint

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

# The narrowest slip is this many times further off than a typical answer; each next one is a
# further factor of this away, up to the furthest answer. Slips then have about the density 1 / r at
# a distance r, whatever their scale.
_APART = 10.0
# Share of slips to start from, and a pseudo-count: one slip in a hundred answers more than seen.
_FIRST_SHARE = 0.01
_PSEUDO_SLIPS, _PSEUDO_ANSWERS = 0.05, 5.0


@dataclass(frozen=True, eq=False)
class Slips(Component):
    """Variances (J,) of slips about the truth, all far beyond noise, and the share of each."""

    name = "slips"
    about = (
        "A small share of the answers, typing errors for instance, has nothing to do with the\n"
        "truth; that share is learned."
    )
    words = "slips"
    compared_with = ((), ("bias",), ("bias", "truths"))

    variance: Floats
    share: Floats

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Slips:
        """A ladder of variances from ten times the usual distance to the furthest answer."""
        if not value:
            return cls(np.empty(0), np.empty(0))
        distance = np.abs(start.residual)
        furthest = float(distance.max(initial=0.0))
        usual = float(np.median(distance[distance > 0])) if distance.any() else 1.0
        # However near most answers are to the middle of their tasks, the ladder has few steps.
        usual = max(usual, furthest / REACH)
        n_apart = np.log(max(furthest / usual, 1.0)) / np.log(_APART)
        steps = np.arange(1, max(2, int(np.ceil(n_apart)) + 1))
        variance = np.asarray(usual**2 * _APART ** (2.0 * steps), dtype=np.float64)
        return cls(variance, np.full(len(steps), _FIRST_SHARE / len(steps)))

    def learn_from_counts(self, counts: ExpectedCounts, steps: Floats) -> Slips:
        """Shares of the slips, which are the last columns of the grid (M40)."""
        n_kinds = len(self.share)
        if not n_kinds:
            return self
        slips = counts.pairs[:, :, -n_kinds:].sum(axis=(0, 1))
        total = counts.pairs.sum() + _PSEUDO_ANSWERS
        return replace(self, share=(slips + _PSEUDO_SLIPS / n_kinds) / total)

    def position(self) -> Floats:
        """Shares of the slips."""
        return self.share

    def facts(self, scale: Floats) -> dict[str, Any]:
        """Share of all answers that are slips."""
        return {"slip_share": float(self.share.sum()) if self.share.size else None}
