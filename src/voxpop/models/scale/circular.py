"""The circular scale: values that wrap around, such as angles and hours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import Limbs, exact_sum, exact_value
from voxpop.data.sums import medians, sum_by_task
from voxpop.models.scale.base import Range, Scale

# Sweeps from the circular mean to the circular median of a task.
_TURNS = 3
# Rounding may put an angle beyond its range by this share of a turn.
_SLACK = 1e-5


@dataclass(frozen=True)
class Circular(Scale):
    """Angles, hours and other values that wrap around after ``period``, from ``low`` on.

    The answers to a task are unwrapped about their circular median, so that the model sees numbers
    on a line (M53). The line is cut opposite to ``origin``, the mean direction of all tasks in each
    coordinate: rotating all answers rotates all estimates. The ends of an interval are on either
    side of the estimate, and may lie beyond the range: 350 to 370 is 350 to 10.
    """

    low: float = 0.0
    period: float = 360.0
    origin: tuple[float, ...] = (0.0,)
    name = "circular"
    noise_unit = "as well"
    domain = "angles of 0 to 360, -180 to 180, or a turn in radians"
    advice = "give the range of one turn as bounds=(LOW, HIGH) (command line: --bounds)"

    RANGES: ClassVar[tuple[Range, ...]] = (
        *((0.0, 2 * np.pi), (-np.pi, np.pi)),
        *((0.0, 360.0), (-180.0, 180.0)),
    )
    """The ranges that are recognised: radians first, as they are the shorter."""

    @classmethod
    def fitting(cls, values: Floats, bounds: Range | None) -> Self:
        """Make the scale for values; without bounds their range is recognised."""
        low, high = bounds or cls.range_of(values) or (0.0, 360.0)
        return cls(low, high - low)

    def sums(self, answers: Answers) -> Limbs:
        """Sines and cosines of the tasks' centres in each coordinate."""
        angle = 2 * np.pi / self.period * self._centres(answers)
        return np.stack([exact_sum(column) for f in (np.sin, np.cos) for column in f(angle).T])

    def centred(self, sums: Limbs) -> Self:
        """Return the scale with the mean direction of all tasks as its origin."""
        sine, cosine = np.array([exact_value(limbs) for limbs in sums]).reshape(2, -1)
        mean = np.arctan2(sine, cosine) * self.period / (2 * np.pi)
        return replace(self, origin=tuple(mean.tolist()))

    @classmethod
    def range_of(cls, values: Floats) -> Range | None:
        """The first range that holds all values; rounding may have put some just outside."""
        least, most = float(values.min()), float(values.max())
        fits = (r for r in cls.RANGES if r[0] - _SLACK <= least and most <= r[1] + _SLACK)
        return next(fits, None)

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Beyond the turn."""
        slack = _SLACK * self.period
        return np.asarray((value < self.low - slack) | (value > self.low + self.period + slack))

    def _wrap(self, turned: Floats) -> Floats:
        """Angle between minus and plus half a turn."""
        return np.asarray(turned - self.period * np.round(turned / self.period))

    def forward(self, value: Floats) -> Floats:
        """Distance from the origin, at most half a turn either way."""
        return self._wrap(value - np.array(self.origin))

    def back(self, at: Floats) -> Floats:
        """The same angle, in the range that the answers use."""
        turned = np.mod(at + np.array(self.origin) - self.low, self.period)
        return np.asarray(self.low + np.where(turned >= self.period, 0.0, turned))

    def spread(self, at: Floats, sd: Floats) -> Floats:
        """Sds stay."""
        return sd

    def back_from(self, at: Floats, quantile: Floats) -> Floats:
        """As far from the estimate as on the line, at most half a turn."""
        half = 0.5 * self.period
        reach = np.clip(quantile - at[..., None], -half, half)
        return np.asarray(self.back(at)[..., None] + reach)

    def forward_from(self, value: Floats, quantile: Floats) -> Floats:
        """As far from the estimate as in the users' units."""
        return np.asarray(self.forward(value)[..., None] + quantile - value[..., None])

    def turn(self, at: Floats, centre: Floats) -> Floats:
        """The same angle, within half a turn of the centre."""
        return np.asarray(centre + self._wrap(at - centre))

    def difference(self, value: Floats, other: Floats) -> Floats:
        """The shorter way round."""
        return self._wrap(value - other)

    def nearest(self, value: Floats, other: Floats) -> Floats:
        """Within half a turn of the other."""
        return np.asarray(other + self._wrap(value - other))

    def bounds(self, given: Range | None) -> Range | None:
        """The bounds are one turn."""
        return None

    def with_centres(self, answers: Answers) -> tuple[Answers, Floats | None]:
        """Unwrap the answers to each task about its centre (M53)."""
        centre = self.forward(self._centres(answers))
        value = self.turn(self.forward(answers.value), centre[answers.task])
        gold = None if answers.gold is None else self.turn(self.forward(answers.gold), centre)
        return replace(answers, value=value, gold=gold), centre

    def unwrapped(self, answers: Answers) -> Answers:
        """Return the answers about the centres of their tasks: some may be beyond the range."""
        centre = self.back(self.forward(self._centres(answers)))
        return replace(answers, value=self.nearest(answers.value, centre[answers.task]))

    def _centres(self, answers: Answers) -> Floats:
        """Circular median of the answers to each task, or its gold.

        From the circular mean, the median of the answers unwrapped about it, a few times over.
        """
        angle = 2 * np.pi / self.period * answers.value
        sine, cosine = (sum_by_task(answers, f(angle)) for f in (np.sin, np.cos))
        centre = np.arctan2(sine, cosine) * (self.period / (2 * np.pi))
        for _ in range(_TURNS):
            away = self._wrap(answers.value - centre[answers.task])
            centre = centre + medians(replace(answers, value=away))
        if answers.gold is not None:
            centre = np.where(answers.is_gold[:, None], answers.gold, centre)
        return centre

    def _details(self) -> str:
        high = self.low + self.period
        beyond = f"{high + self.period / 36:.4g} is {self.low + self.period / 36:.4g}"
        return f" (one turn is {self.low:.4g} to {high:.4g}; {beyond})"
