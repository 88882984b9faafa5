"""Which scale to use: the linear one, unless answers suggest another and gold confirms it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import medians
from voxpop.errors import DataError
from voxpop.estimators.auto.compare import COMPARED, FIRST_LOOK
from voxpop.estimators.auto.gold_checks import judges
from voxpop.estimators.auto.subset import neighbourhood
from voxpop.estimators.auto.suggest_scale import ScaleAdvice, suggest_scale
from voxpop.estimators.bi.bi import Support
from voxpop.estimators.bi.initialise import prepare, starting_levels
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.learn_map import left_out_errors
from voxpop.inference.engine import Engine
from voxpop.models.noise import Noise
from voxpop.models.scale import LINEAR, SCALES, Range, Scale, ScaleName
from voxpop.words import percent

# No gold task counts for more than this many times the usual: a scale is steep near its ends.
_MOST_WEIGHT = 10.0
_SUPPORTS: tuple[Support, ...] = ("auto", "common")


@dataclass(frozen=True)
class ScaleChoice:
    """A scale, and the note for the user."""

    scale: ScaleName
    notes: tuple[str, ...] = ()


def choose_scale(
    answers: Answers, bounds: Range | None, engine: Engine, most_answers: int
) -> ScaleChoice:
    """Choose the scale that left-out answers suggest (M54), if gold is estimated better on it.

    Without enough gold the linear scale is kept, and a note suggests the other. ``most_answers``
    bounds the part of a large crowd that scales are compared on.
    """
    advice = suggest_scale(answers)
    if advice is None:
        return ScaleChoice("linear")
    part, scale = neighbourhood(answers, most_answers), _scale(advice.scale, answers, bounds)
    return confirmed_by_gold(advice, scale, part, engine)


def confirmed_by_gold(
    advice: ScaleAdvice, scale: Scale | None, part: Answers, engine: Engine
) -> ScaleChoice:
    """Choose the ``scale`` that was suggested if gold in ``part`` is estimated better on it.

    None stands for a scale that cannot be used.
    """
    if scale is None or not judges(part):
        return ScaleChoice("linear", (advice.summary(),))
    ratio = _error_ratio(part, scale, engine)
    n_gold = int(part.is_gold.sum())
    found = (
        f"left-out answers are clearly more likely on the {advice.scale} scale, and the error "
        f"on {n_gold} gold tasks, each left out in turn, is {percent(ratio)} of that "
        "on the linear scale"
    )
    if ratio < 1:
        return ScaleChoice(
            advice.scale,
            (f"{found}: scale='linear' (command line: --scale linear) would not use it",),
        )
    keep = f"{found}: the linear scale is kept; scale='{advice.scale}' would use the other"
    return ScaleChoice("linear", (keep.replace(", and the", ", but the"),))


def _scale(name: ScaleName, answers: Answers, bounds: Range | None) -> Scale | None:
    """The scale; None if a value is not on it, or bounds may be those of truths, not of a turn."""
    if bounds is not None and name == "circular":
        return None
    try:
        return SCALES[name].of(answers, bounds)
    except DataError:
        return None


def _error_ratio(answers: Answers, scale: Scale, engine: Engine) -> float:
    """Error on gold left out, on a scale, as a share of that on the linear scale (M82)."""
    middle = medians(answers)[answers.is_gold]
    weight = np.exp(scale.log_slope(middle))
    weight = np.minimum(weight, _MOST_WEIGHT * np.median(weight, axis=0))

    def least(on: Scale) -> float:
        return min(
            float(((weight * scale.difference(truth, estimate)) ** 2).sum())
            for truth, estimate in _left_out(answers, on, engine)
        )

    linear = least(LINEAR)
    return float(np.sqrt(least(scale) / linear)) if linear > 0 else 1.0


def _left_out(answers: Answers, scale: Scale, engine: Engine) -> Iterator[tuple[Floats, Floats]]:
    """Known truths, and estimates of them in the users' units, each left out, by simple models."""
    assert answers.gold is not None
    there, known = scale.answers(answers), answers.is_gold
    assert there.gold is not None
    data = prepare(there)
    levels = starting_levels(there, data.scale, engine)

    def hidden(support: Support) -> Floats:
        fit = NoiseFit(data, Noise(), engine, support)
        fit.learn(FIRST_LOOK, levels=levels)
        fit.refine()
        return fit.hidden_gold(COMPARED)

    for estimate in (medians(there)[known], *map(hidden, _SUPPORTS)):
        error = left_out_errors(estimate, there.gold[known])
        yield answers.gold[known], scale.back(there.gold[known] - error)
