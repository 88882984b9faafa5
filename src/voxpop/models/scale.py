"""Scales: answers seen on a scale on which noise is alike, and values on it back in users' units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, sum_by_task
from voxpop.errors import ConfigError, DataError, require, shorten

ScaleName = Literal["linear", "log", "sqrt", "logit", "circular"]
Range = tuple[float, float]

# Values on a log scale are kept to e to the power of this: their squares are still numbers.
_LARGEST_LOG = 345.0
# Answers at an end of a range are moved inwards by at least this share of it.
_LEAST_STEP = 1 / 2000
# Sweeps from the circular mean to the circular median of a task.
_TURNS = 3


@dataclass(frozen=True)
class Scale:
    """The linear scale, on which answers stay what they are; the others derive from it.

    A value v in the users' units is t = f(v) on the scale, with f increasing. Estimates come back
    as f⁻¹ of the posterior mean, quantiles as f⁻¹ of quantiles, and an sd as half the distance
    between the values one sd below and one sd above (M40)-(M42).
    """

    name: ClassVar[ScaleName] = "linear"
    noise_unit: ClassVar[str] = ""
    """What workers' noise and bias are measured in."""
    domain: ClassVar[str] = ""
    """Which values are on the scale, in words."""
    advice: ClassVar[str] = ""
    """What to try if some are not."""

    @classmethod
    def of(cls, answers: Answers, bounds: Range | None = None) -> Self:
        """Make the scale for these answers; ``bounds`` is the range that truths are known to be in.

        Refuses values that are not on the scale.
        """
        scale = cls()
        scale.refuse_outside(answers)
        return scale

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Tell which values are not on the scale."""
        return np.zeros(value.shape, dtype=bool)

    def forward(self, value: Floats) -> Floats:
        """Place of values on the scale."""
        return value

    def back(self, at: Floats) -> Floats:
        """Values at places of the scale, in the users' units."""
        return at

    def log_slope(self, value: Floats) -> Floats:
        """Log of f'(v): what a log density on the scale lacks to be one in the users' units."""
        return np.zeros_like(value)

    def spread(self, at: Floats, sd: Floats) -> Floats:
        """Sd in the users' units: half the distance between one sd below and one above (M42)."""
        return np.asarray(0.5 * (self.back(at + sd) - self.back(at - sd)))

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """Undo :meth:`spread` (M42)."""
        return spread

    def back_from(self, at: Floats, quantile: Floats) -> Floats:
        """Quantiles in the users' units, of posteriors with their mean at ``at``."""
        return self.back(quantile)

    def forward_from(self, value: Floats, quantile: Floats) -> Floats:
        """Undo :meth:`back_from`; ``value`` is the estimate."""
        return self.forward(quantile)

    def turn(self, at: Floats, centre: Floats) -> Floats:
        """Place on the scale nearest to ``centre`` of all that are the same value."""
        return at

    def difference(self, value: Floats, other: Floats) -> Floats:
        """How far ``value`` is from ``other``, in the users' units."""
        return np.asarray(value - other)

    def nearest(self, value: Floats, other: Floats) -> Floats:
        """The same values, whole turns added on a circle to come near ``other``."""
        return value

    def bounds(self, given: Range | None) -> Range | None:
        """Range of the truths on the scale, from that in the users' units."""
        return given

    def answers(self, answers: Answers) -> Answers:
        """Return the answers, and their gold, on the scale."""
        return self.with_centres(answers)[0]

    def with_centres(self, answers: Answers) -> tuple[Answers, Floats | None]:
        """Return also the place of each task that its answers are nearest to, on a circle."""
        if self.name == "linear":
            return answers, None
        gold = None if answers.gold is None else self.forward(answers.gold)
        return replace(answers, value=self.forward(answers.value), gold=gold), None

    def unwrapped(self, answers: Answers) -> Answers:
        """Return the answers in the users' units, those on a circle as numbers on a line."""
        return answers

    def refuse_outside(self, answers: Answers) -> None:
        """Refuse values that are not on the scale: how many, which is the first, what to try."""
        for what, values in (("answers", answers.value), ("gold truths", answers.gold)):
            if values is None or not (bad := self.outside(values).any(axis=1)).any():
                continue
            row = int(np.flatnonzero(bad)[0])
            task = row if values is answers.gold else int(answers.task[row])
            where = f"the gold of task {shorten([answers.task_ids[task]])}"
            if values is answers.value:
                worker = shorten([answers.worker_ids[answers.worker[row]]])
                where = f"that of worker {worker} to task {shorten([answers.task_ids[task]])}"
            raise DataError(
                f"scale {self.name!r} takes {self.domain}{self._details()}, but {int(bad.sum())} {what} are not: "
                f"the first is {where}, {shorten(values[row].tolist())}; {self.advice}"
            )

    def summary(self) -> str:
        """Say what is in which unit; nothing on the linear scale."""
        if self.name == "linear":
            return ""
        return (
            f"modelled on the {self.name} scale{self._details()}: estimates, sds and intervals are "
            f"in the answers' unit, noise and bias of workers {self.noise_unit}"
        )

    def _details(self) -> str:
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, as JSON has them."""
        return {"name": self.name, **asdict(self)}


LINEAR = Scale()


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
        """f' = 1 / v."""
        return -np.log(value)

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """The sd s of e^t sinh(s)."""
        return np.arcsinh(spread / self.back(at))

    def bounds(self, given: Range | None) -> Range | None:
        """A bound at or below 0 is none."""
        if given is None:
            return None
        require(given[1] > 0, f"scale 'log' needs bounds above 0, got {given}")
        low = float(np.log(given[0])) if given[0] > 0 else -np.inf
        return low, float(np.log(given[1]))


@dataclass(frozen=True)
class Sqrt(Scale):
    """f(v) = √v, for counts: the noise variance is in proportion to the value.

    ``step`` is half of the smallest answer above 0: the density of an answer of 0 is that at this
    value, as √v is infinitely steep at 0.
    """

    step: float = 0.0
    name = "sqrt"
    noise_unit = "in square roots of the answers' unit"
    domain = "values of at least 0"
    advice = "drop or correct them, or leave scale='linear'"

    @classmethod
    def of(cls, answers: Answers, bounds: Range | None = None) -> Self:
        """Make the scale for these answers."""
        cls().refuse_outside(answers)
        above = answers.value[answers.value > 0]
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
        """f' = 1 / (2 √v)."""
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


@dataclass(frozen=True)
class Logit(Scale):
    """f(v) = log((v - low) / (high - v)), for shares and percentages: noise is less near the ends.

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
    def of(cls, answers: Answers, bounds: Range | None = None) -> Self:
        """Make the scale for these answers; without bounds their range is 0-1 or 0-100."""
        known = _all_values(answers)
        low, high = bounds or ((0.0, 1.0) if known.max() <= 1 else (0.0, 100.0))
        scale = cls(low, high)
        scale.refuse_outside(answers)
        return cls(low, high, scale._step(known - low), scale._step(high - known))

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
        """f' = (high - low) / ((v - low) (high - v))."""
        inside = np.clip(value, self.low + self.step_low, self.high - self.step_high)
        width = np.log(self.high - self.low)
        return np.asarray(width - np.log(inside - self.low) - np.log(self.high - inside))

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """The sd s of (high - low) / 2 · sinh(s) / (cosh(t) + cosh(s))."""
        share = np.minimum(2 * spread / (self.high - self.low), 1 - 1e-15)
        c = np.cosh(np.clip(at, -_LARGEST_LOG, _LARGEST_LOG))
        tangent = share * (c + 1) / (1 + np.sqrt(1 + share**2 * (c**2 - 1)))
        return np.asarray(2 * np.arctanh(np.minimum(tangent, 1 - 1e-15)))

    def bounds(self, given: Range | None) -> Range | None:
        """The ends are the bounds."""
        return None

    def _details(self) -> str:
        return f" ({self.low:g} to {self.high:g})"


@dataclass(frozen=True)
class Circular(Scale):
    """Angles, hours and other values that come round again after ``period``, from ``low`` on.

    The answers to a task are unwrapped about their circular median, so that the model sees numbers
    on a line (M43). The line is cut opposite to ``origin``, the mean direction of all tasks in each
    coordinate: rotating all answers rotates all estimates. The ends of an interval are on either
    side of the estimate, and may lie beyond the range: 350 to 370 is 350 to 10.
    """

    low: float = 0.0
    period: float = 360.0
    origin: tuple[float, ...] = (0.0,)
    name = "circular"
    noise_unit = "too"
    domain = "angles of 0 to 360, -180 to 180, or a turn in radians"
    advice = "give the range of one turn as bounds=(LOW, HIGH) (command line: --bounds)"

    RANGES: ClassVar[tuple[Range, ...]] = (
        *((0.0, 2 * np.pi), (-np.pi, np.pi)),
        *((0.0, 360.0), (-180.0, 180.0)),
    )
    """The ranges that are recognised: radians first, as they are the shorter."""

    @classmethod
    def of(cls, answers: Answers, bounds: Range | None = None) -> Self:
        """Make the scale for these answers; without bounds their range is recognised."""
        low, high = bounds or cls.range_of(_all_values(answers)) or (0.0, 360.0)
        scale = cls(low, high - low, (0.0,) * answers.dimension)
        scale.refuse_outside(answers)
        angle = 2 * np.pi / scale.period * scale._centres(answers)
        mean = np.arctan2(np.sin(angle).sum(axis=0), np.cos(angle).sum(axis=0))
        return replace(scale, origin=tuple((mean * scale.period / (2 * np.pi)).tolist()))

    @classmethod
    def range_of(cls, values: Floats) -> Range | None:
        """The first range that holds all values; rounding may have put some just outside."""
        least, most = float(values.min()), float(values.max())
        slack = 1e-5
        fits = (r for r in cls.RANGES if r[0] - slack <= least and most <= r[1] + slack)
        return next(fits, None)

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Beyond the turn."""
        slack = 1e-5 * self.period
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
        """Unwrap the answers to each task about its centre (M43)."""
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
        return f" ({self.low:.4g} to {self.low + self.period:.4g} is one turn)"


SCALES: Mapping[str, type[Scale]] = {
    kind.name: kind for kind in (Scale, Log, Sqrt, Logit, Circular)
}
"""Every scale by its name."""


def check_scale(name: object) -> None:
    """Refuse a scale that there is not."""
    if name not in SCALES:
        raise ConfigError(f"scale must be one of {', '.join(SCALES)}, got {name!r}")


def scale_from_dict(facts: Mapping[str, Any] | None) -> Scale:
    """Undo :meth:`Scale.to_dict`; nothing is the linear scale."""
    if facts is None:
        return LINEAR
    given = {name: tuple(x) if isinstance(x, list) else x for name, x in facts.items()}
    return SCALES[given.pop("name")](**given)


def _all_values(answers: Answers) -> Floats:
    """All answers and known truths."""
    gold: ArrayLike = [] if answers.gold is None else answers.gold[answers.is_gold]
    return np.append(answers.value.ravel(), np.ravel(gold))
