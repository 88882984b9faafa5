"""The logit scale: noise that is smaller near the ends of a range: shares and percentages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.models.scale.base import Range, Scale

# Answers at an end are moved inwards by at least this share of the range.
_LEAST_STEP = 0.0005
# Beyond this a logit is at an end of the range, to all digits.
_LARGEST = 345.0


@dataclass(frozen=True)
class Logit(Scale):
    """f(v) = log((v - low) / (high - v)), for shares and percentages: less noise near the ends.

    Answers at an end are moved inwards by half a step: half of the distance from that end to the
    answer nearest to it (``step_low``, ``step_high``), but at least 1/2000 of the range. Answers
    nearer to an end than that are moved as far, if any is at the end.
    """

    low: float = 0.0
    high: float = 1.0
    step_low: float = 0.0
    step_high: float = 0.0
    name = "logit"
    noise_unit = "in logits (an sd of 0.4 is about 10 % of the range in its middle)"
    domain = "values between two ends"
    advice = "give bounds=(LOW, HIGH) (command line: --bounds), or drop or correct them"

    @classmethod
    def fitting(cls, values: Floats, bounds: Range | None) -> Self:
        """Make the scale for values; without bounds their range is 0-1 or 0-100."""
        low, high = bounds or ((0.0, 1.0) if values.max() <= 1 else (0.0, 100.0))
        scale = cls(low, high)
        return cls(low, high, scale._step(values - low), scale._step(high - values))

    def _step(self, distance: Floats) -> float:
        """Half a step from an end, from the distances of all values to it; 0 if none is there."""
        if (distance > 0).all():
            return 0.0
        inside = distance[(distance > 0) & (distance < self.high - self.low)]
        least = _LEAST_STEP * (self.high - self.low)
        return max(0.5 * float(inside.min()), least) if inside.size else 10 * least

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Beyond the ends."""
        return np.asarray((value < self.low) | (value > self.high))

    def _inwards(self, value: Floats) -> Floats:
        """Move values at an end inwards."""
        least = _LEAST_STEP * (self.high - self.low)
        low, high = self.low + (self.step_low or least), self.high - (self.step_high or least)
        value = np.where(value <= self.low, low, value)
        return np.asarray(np.where(value >= self.high, high, value))

    def with_centres(self, answers: Answers) -> tuple[Answers, Floats | None]:
        """Return the answers on the scale, those nearest to an end that was hit moved as far."""
        low, high = self.low + self.step_low, self.high - self.step_high
        gold = None if answers.gold is None else np.clip(answers.gold, low, high)
        inside = replace(answers, value=np.clip(answers.value, low, high), gold=gold)
        return super().with_centres(inside)

    def forward(self, value: Floats) -> Floats:
        """Log odds."""
        return np.asarray(logit((self._inwards(value) - self.low) / (self.high - self.low)))

    def back(self, at: Floats) -> Floats:
        """Share of the range."""
        return np.asarray(self.low + (self.high - self.low) * expit(at))

    def log_slope(self, value: Floats) -> Floats:
        """F' = (high - low) / ((v - low) (high - v))."""
        inside = np.clip(value, self.low + self.step_low, self.high - self.step_high)
        width = np.log(self.high - self.low)
        return np.asarray(width - np.log(inside - self.low) - np.log(self.high - inside))

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """The sd s of (high - low) / 2 · sinh(s) / (cosh(t) + cosh(s))."""
        share = np.minimum(2 * spread / (self.high - self.low), 1 - 1e-15)
        c = np.cosh(np.clip(at, -_LARGEST, _LARGEST))
        tangent = share * (c + 1) / (1 + np.sqrt(1 + share**2 * (c**2 - 1)))
        return np.asarray(2 * np.arctanh(np.minimum(tangent, 1 - 1e-15)))

    def bounds(self, given: Range | None) -> Range | None:
        """The ends are the bounds."""
        return None

    def _details(self) -> str:
        return f" ({self.low:g} to {self.high:g})"
