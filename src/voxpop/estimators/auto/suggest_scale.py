"""Which scale to suggest: where left-out answers are clearly more likely than on the linear one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from voxpop.arrays import Floats, Mask
from voxpop.data.answers import Answers
from voxpop.errors import DataError
from voxpop.estimators.auto.subset import neighbourhood, usable_answers
from voxpop.estimators.leave_one_out import leave_one_out_medians, sum_by_owner
from voxpop.models.scale import LINEAR, SCALES, Circular, Logit, Scale, ScaleName

# Scales are compared on about this many answers, times coordinates.
MOST_COMPARED = 30_000
# A scale is suggested if it gains this many standard errors, and this many nats an answer. For a
# circle, answers that wrap are separate evidence.
_CLEARLY, _CLEARLY_WRAPPED, _WORTH_NATS = 3.0, 2.0, 0.02
# Fewer distinct values than this are ratings, and one value in so large a share of the answers is
# no measurement: a density says nothing of either.
_FEWEST_VALUES, _MOST_EQUAL = 20, 0.1
# Noise below this share of the values: over such differences every scale is a straight line.
_LEAST_NOISE = 1e-6
# Answers fill a range if they come this near to both ends of it.
_NEAR_END = 0.1
# Tasks that have to wrap, with this many answers on either end of the range: one could be a slip.
_FEWEST_WRAPPED, _FEWEST_BEYOND = 2, 2
_FREEDOM = (1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
_STEPS = 20


@dataclass(frozen=True)
class ScaleAdvice:
    """A scale on which left-out answers are clearly more likely.

    Attributes
    ----------
    scale
        Its name.
    gain, error
        Nats that an answer gains in log density, and the standard error of that.
    """

    scale: ScaleName
    gain: float
    error: float

    def summary(self) -> str:
        """Return in plain words what was seen, and what to type."""
        seen = {
            "log": "errors grow in proportion to the value",
            "sqrt": "errors grow with the value, as those of counts do",
            "logit": "errors shrink towards both ends of the range",
            "circular": "answers to one task lie on both ends of the range, as angles do",
        }[self.scale]
        if self.scale == "circular":
            whether = ""
        else:
            whether = ", unless the truth you want is the mean of a very large number of answers"
        return (
            f"{seen}: left-out answers are clearly more likely on the {self.scale} scale; try "
            f"scale='{self.scale}' (command line: --scale {self.scale}){whether}"
        )


def suggest_scale(answers: Answers) -> ScaleAdvice | None:
    """Suggest the scale on which left-out answers are clearly more likely, if there is one.

    Every answer is predicted by the median of the others to its task, with Student-t noise of one
    spread on the scale; densities are in the users' units, so that scales can be compared (M54).
    A scale has to gain three standard errors, by tasks or workers, whichever is larger. Answers
    cannot show whether the truth is their mean or their median: hence no more than a suggestion.
    Nothing is suggested for ratings and for vectors.
    """
    if answers.dimension > 1:
        return None  # vectors are positions: errors do not grow with the distance from a corner
    return suggest_by_part(neighbourhood(answers, MOST_COMPARED), answers)


def suggest_by_part(part: Answers, answers: Answers) -> ScaleAdvice | None:
    """Do as :func:`suggest_scale` does, given the part that is looked at.

    Of ``answers`` the values alone matter, and only whether they are on a scale.
    """
    # Answers to gold tasks show the noise as others do.
    part = replace(part, gold=None)
    usable = usable_answers(part)
    if not usable.any() or not _is_measured(part, usable):
        return None
    best: ScaleAdvice | None = None
    for kind in SCALES.values():
        try:
            scale = kind.of(part)
            scale.refuse_outside(answers)
        except DataError:
            continue
        if scale == LINEAR or not _fits(scale, part):
            continue
        # An answer at an end is cut off there, or has a positive probability: it has no density.
        ends = (scale.low, scale.high) if isinstance(scale, Logit) else (0.0,)
        inside = usable & ~np.isin(part.value[:, 0], ends)
        if not inside.any():
            continue
        gain = _log_density(part, scale, inside) - _log_density(part, LINEAR, inside)
        error = _standard_error(part, inside, gain)
        found = ScaleAdvice(scale.name, float(gain.mean()), error)
        errors = _CLEARLY_WRAPPED if isinstance(scale, Circular) else _CLEARLY
        clear = found.gain > max(errors * error, _WORTH_NATS)
        if clear and (best is None or found.gain > best.gain):
            best = found
    return best


def _is_measured(answers: Answers, usable: Mask) -> bool:
    """Return whether answers are measurements with noise: not ratings, nor mostly one value."""
    _, counts = np.unique(answers.value, return_counts=True)
    away = np.abs(answers.value - leave_one_out_medians(answers))[usable]
    return bool(
        len(counts) >= _FEWEST_VALUES
        and counts.max() <= _MOST_EQUAL * answers.n_edges
        and np.median(away) > _LEAST_NOISE * np.median(np.abs(answers.value))
    )


def _fits(scale: Scale, answers: Answers) -> bool:
    """Return whether answers fill the range of a scale that has one, and wrap on a circle."""
    if not isinstance(scale, Logit | Circular):
        return True
    low, width = scale.low, scale.high - scale.low if isinstance(scale, Logit) else scale.period
    share = (answers.value - low) / width
    if share.min() > _NEAR_END or share.max() < 1 - _NEAR_END:
        return False
    if isinstance(scale, Logit):
        return True
    first = answers.task_ptr[:-1]
    turned = scale.unwrapped(answers).value
    arc = np.maximum.reduceat(turned, first) - np.minimum.reduceat(turned, first)
    sides = (np.add.reduceat(side.astype(int), first) for side in (share < 0.25, share > 0.75))
    wrapped = (arc < width / 4) & np.all([side >= _FEWEST_BEYOND for side in sides], axis=0)
    return int(wrapped.sum()) >= _FEWEST_WRAPPED


def _log_density(answers: Answers, scale: Scale, usable: Mask) -> Floats:
    """Log density of left-out answers in the users' units (M54)."""
    there = scale.answers(answers)
    residual = (there.value - leave_one_out_medians(there))[usable, 0]
    likeliest = max((_student(residual, freedom) for freedom in _FREEDOM), key=np.sum)
    return np.asarray(likeliest + scale.log_slope(answers.value[usable, 0]))


def _student(residual: Floats, freedom: float) -> Floats:
    """Log density of residuals under Student-t noise of the spread that fits them best, by EM."""
    square = residual**2
    spread = max(float(np.median(square)), _LEAST_NOISE**2 * float(square.mean()))
    for _ in range(_STEPS):
        spread = float(((freedom + 1) * square / (freedom + square / spread)).mean())
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2)
    constant -= 0.5 * np.log(freedom * np.pi * spread)
    return np.asarray(constant - 0.5 * (freedom + 1) * np.log1p(square / (freedom * spread)))


def _standard_error(answers: Answers, usable: Mask, gain: Floats) -> float:
    """Standard error of the mean gain, by tasks or by workers, whichever is larger."""
    away = gain - gain.mean()
    sums = [sum_by_owner(owner[usable], away) for owner in (answers.task, answers.worker)]
    return max(float(np.sqrt((s**2).sum() * len(s) / max(len(s) - 1, 1))) for s in sums) / len(gain)
