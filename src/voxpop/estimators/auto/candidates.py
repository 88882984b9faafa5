"""Which noise models are compared, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from voxpop.data.answers import Answers
from voxpop.estimators.auto.choose import choose, squared_error
from voxpop.estimators.auto.compare import ModelComparison, start_comparison
from voxpop.estimators.auto.subset import Mask
from voxpop.estimators.base import OnSweep
from voxpop.inference.engine import Engine
from voxpop.models.noise import COMPONENTS, Noise


def compare(
    answers: Answers,
    usable: Mask,
    bounds: tuple[float, float] | None,
    engine: Engine,
    on_sweep: OnSweep | None,
    is_part: bool,
) -> ModelComparison:
    """Fit the noise models worth comparing to the same answers, and score their predictions.

    Whether truths have a distribution worth knowing is decided first, for all that follow, and
    once more for the winner alone.
    """
    comparison = start_comparison(answers, usable, bounds, engine, on_sweep, is_part)
    flat = Noise(bounds=bounds)
    comparison.enter(flat.learning("truths"), "auto")
    base = min(comparison.candidates, key=squared_error).noise
    comparison.enter(flat, "common")
    for component in COMPONENTS:
        if component.compared_alike:
            comparison.enter(base.learning(component.name), "common")
    for noise in sorted(_combinations(base), key=lambda noise: len(noise.learned)):
        comparison.enter(noise, "auto")
    if choose(comparison).candidate.support == "common":
        for component in COMPONENTS:
            if component.refines_alike:
                comparison.enter(flat.learning(component.name), "common")
    winner = choose(comparison).candidate
    has_prior = winner.noise.truths == "learn"
    comparison.enter(replace(winner.noise, truths="flat" if has_prior else "learn"), winner.support)
    return comparison


def _combinations(base: Noise) -> Iterator[Noise]:
    for component in COMPONENTS:
        for others in component.compared_with:
            yield base.learning(component.name, *others)
