"""The gold map: from estimates to truths, as gold tasks hidden in turn show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.inference.kernels.posterior import Posterior, stretched

# A shift or a slope below this, in sds of the errors of gold tasks, is not worth a note.
_WORTH_SAYING = 0.05


@dataclass(frozen=True, kw_only=True)
class GoldMap:
    """A line from estimate to truth in each coordinate, bent where gold shows it (M60)-(M63).

    An estimate x becomes centre + shift + slope (x - centre) + bend(x). Truths of gold stay.

    Attributes
    ----------
    n_tasks
        Gold tasks that it was learned from, each hidden in turn.
    off, off_sd
        How far their truths were above their estimates, on average, and the sd of that.
    centre, shift, slope
        The line. Shift and slope are shrunk towards 0 and 1.
    shift_sd, slope_sd
        How uncertain they are.
    knots, bend
        Where the map is bent, and how far it is above the line there: linear in between, constant
        beyond. Empty where the line is all that was tried.
    bend_sd
        How uncertain the bend is.
    bounds
        What mapped values stay between.
    """

    n_tasks: int
    off: tuple[float, ...]
    off_sd: tuple[float, ...]
    centre: tuple[float, ...]
    shift: tuple[float, ...]
    slope: tuple[float, ...]
    shift_sd: tuple[float, ...]
    slope_sd: tuple[float, ...]
    knots: tuple[tuple[float, ...], ...]
    bend: tuple[tuple[float, ...], ...]
    bend_sd: tuple[float, ...]
    bounds: tuple[float, float] | None = None

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> GoldMap:
        """Undo ``asdict`` after JSON, which turns tuples into lists."""
        return cls(**{name: _as_tuple(item) for name, item in facts.items()})

    def estimates(self, estimate: Floats) -> Floats:
        """Map estimates (n, d)."""
        centre, shift, slope = map(np.array, (self.centre, self.shift, self.slope))
        found = centre + shift + slope * (estimate - centre)
        for j, (knots, bend) in enumerate(zip(self.knots, self.bend, strict=True)):
            if knots:
                found[:, j] += np.interp(estimate[:, j], knots, bend)
        return np.asarray(found if self.bounds is None else np.clip(found, *self.bounds))

    def variances(self, estimate: Floats, variance: Floats) -> Floats:
        """Variance (n, d) after the map of estimates with a variance: its own is added.

        A slope above one widens; one below does not narrow, since it may be due to an error that
        all workers share, which no posterior knows of.
        """
        away = estimate - np.array(self.centre)
        own = np.array(self.shift_sd) ** 2 + (np.array(self.slope_sd) * away) ** 2
        return np.asarray(
            np.maximum(self._slopes(estimate), 1.0) ** 2 * variance
            + own
            + np.array(self.bend_sd) ** 2
        )

    def apply(self, found: Posterior) -> Posterior:
        """Map estimates and intervals; truths that are known, without any variance, stay."""
        free = found.variance > 0
        estimate = np.where(free, self.estimates(found.estimate), found.estimate)
        variance = np.where(free, self.variances(found.estimate, found.variance), found.variance)
        away = found.quantile - found.estimate[:, :, None]
        moved = Posterior(estimate, found.variance, estimate[:, :, None] + away)
        mapped = stretched(moved, variance)
        if self.bounds is None:
            return mapped
        clipped = np.clip(mapped.quantile, *self.bounds)
        quantile = np.where(free[:, :, None], clipped, found.quantile)
        return Posterior(estimate, variance, quantile)

    def _slopes(self, estimate: Floats) -> Floats:
        """Slope of the map at estimates (n, d)."""
        slope = np.tile(np.array(self.slope), (len(estimate), 1))
        for j, (knots, bend) in enumerate(zip(self.knots, self.bend, strict=True)):
            if knots:
                # One more piece at either end, in which the bend does not change.
                pieces = np.concatenate([[0.0], np.diff(bend) / np.diff(knots), [0.0]])
                slope[:, j] += pieces[np.searchsorted(knots, estimate[:, j])]
        return slope

    def summary(self, names: Sequence[str] = ("value",)) -> str:
        """Return what was found, and what follows from it."""
        several = len(self.shift) > 1
        changes = [
            (f"{name} " if several else "") + self._change(j)
            for j, name in zip(range(len(self.shift)), names, strict=False)
        ]
        return f"on {self.n_tasks} gold tasks hidden in turn, estimates were " + "; ".join(changes)

    def _change(self, j: int) -> str:
        off, shift, slope, unit = self.off[j], self.shift[j], self.slope[j], self.off_sd[j]
        found = f"{_short(abs(off))} too {'low' if off > 0 else 'high'} on average: "
        done = []
        if abs(shift) > _WORTH_SAYING * unit:
            done.append(f"{'raised' if shift > 0 else 'lowered'} by {_short(abs(shift))}")
        if abs(slope - 1.0) > _WORTH_SAYING:
            done.append(f"distances from {_short(self.centre[j])} multiplied by {slope:.2f}")
        if any(abs(bend) > _WORTH_SAYING * unit for bend in self.bend[j]):
            done.append("bent to fit the truths")
        return found + (", ".join(done) or "kept")


def _short(value: float) -> str:
    return f"{value:.3g}"


def _as_tuple(item: Any) -> Any:
    return tuple(map(_as_tuple, item)) if isinstance(item, list | tuple) else item
