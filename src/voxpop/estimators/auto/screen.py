"""Screening: which noise models are worth learning, and which of these are worth integrals."""

from __future__ import annotations

import numpy as np

from voxpop.arrays import Floats
from voxpop.estimators.auto.average import (
    SLIP_REACH,
    cost_of_component,
    has_long_tails,
    is_sound,
    log_score,
    strays_are_evident,
)
from voxpop.estimators.auto.calibration_checks import MIN_ANSWERS
from voxpop.estimators.auto.compare import Candidate, ModelComparison
from voxpop.estimators.bi.bi import Support
from voxpop.estimators.bi.noise_fit import FEW_ANSWERS, typical_degree
from voxpop.models.noise import COMPONENTS, Noise
from voxpop.models.noise.careless import Careless
from voxpop.models.noise.growth import Growth
from voxpop.models.noise.slips import Slips
from voxpop.models.noise.tails import Tails
from voxpop.models.noise.truths import Truths

# A model is not worth integrals if matched moments show it this far behind: this many nats per
# answer (more where tasks have few answers), and this many standard errors.
_FAR_BEHIND, _FAR_BEHIND_OF_FEW, _FAR_ERRORS = 0.02, 0.1, 2.0


def enter_models(comparison: ModelComparison, flat: Noise) -> None:
    """Learn all models richer than the plain one that are worth it."""
    shown = {
        Growth: flat.bounds is None and comparison.noise_grows,
        Careless: slips_differ(comparison),
    }
    tried = [component for component in COMPONENTS if shown.get(component, True)]
    richer = [flat.learning(c.name, *beside) for c in tried for beside in c.compared_with]
    if not has_long_tails(comparison):
        # Either of the two has tails that are long enough.
        richer = [noise for noise in richer if not {Slips, Tails} <= {*noise.learned}]
    slopes = (comparison.data.answers.worker_degree >= MIN_ANSWERS).any()
    for noise in sorted(richer, key=lambda noise: len(noise.learned)):
        # A handful of answers cannot show a worker's gain.
        if (slopes or not noise.gain) and is_promising(comparison, noise):
            comparison.enter(noise, "auto")
    alike = [flat.learning(c.name, *beside) for c in tried for beside in c.compared_alike]
    for noise in [flat, *sorted(alike, key=lambda noise: len(noise.learned))]:
        if is_promising(comparison, noise, "common"):
            comparison.enter(noise, "common")


def is_promising(comparison: ModelComparison, noise: Noise, support: Support = "auto") -> bool:
    """Return whether a richer model is worth learning: if its components have shown any gain.

    Each must gain more than it costs; one of them is enough where tasks have so few
    answers that matched moments do not show it well. Nor is it worth learning if it would be far
    behind the best sound model so far with what its components gained added up. Gains are never
    tried alone. Where gold judges, all models are learned.
    """
    if comparison.has_gold:
        return True
    plain = comparison.entered[0]
    alone = {
        c.noise.learned[0]: c
        for c in comparison.entered
        if c.support == "auto" and len(c.noise.learned) == 1
    }
    # Gains always come with the distribution of the truths.
    asked = [c for c in noise.learned if not (noise.gain and c is Truths)]
    parts = [alone[component] for component in asked if component in alone]
    if not parts:
        return True
    enough = log_score(plain) + cost_of_component(comparison)
    gains = [log_score(part) > enough for part in parts]
    shown = any(gains) if _has_few_answers(comparison) else all(gains)
    if not shown or len(parts) < len(noise.learned):
        return shown
    base = next(c for c in comparison.entered if not c.noise.learned and c.support == support)
    expected = base.log_density + sum(part.log_density - plain.log_density for part in parts)
    return _is_near(comparison, max(_sound(comparison), key=log_score), expected)


def slips_differ(comparison: ModelComparison) -> bool:
    """Return whether some workers give more wild answers than others, beyond chance.

    The counts of answers ten times as far off as usual are compared with those expected from one
    share for all, by a chi² test at two sds.
    """
    distance = comparison.distance[comparison.usable]
    is_far = (distance > SLIP_REACH * np.median(distance, axis=0)).any(axis=1)
    far: Floats = np.asarray(is_far, dtype=np.float64)
    count, wild = (comparison.by_worker(per_answer) for per_answer in (np.ones(len(far)), far))
    share = wild.sum() / count.sum()
    if not 0.0 < share < 1.0:
        return False
    chi2 = float(((wild - share * count) ** 2 / count).sum()) / (share * (1.0 - share))
    freedom = len(count) - 1
    return bool(chi2 > freedom + 2.0 * np.sqrt(2.0 * freedom))


def screen(comparison: ModelComparison) -> list[Candidate]:
    """The models entered that may be among the best once they are integrated, and are not yet.

    Matched moments make left-out answers look likelier than they are, and some models more than
    others. So only what is far behind the best sound model is left out, as far as integrals have
    not shown that one to be unsound; and what matched moments show to be unsound, which integrals
    confirm: of 236 models in drawn crowds all but five. Nothing is left out where gold counts,
    which matched moments do not use.
    """
    entered = comparison.entered
    left = [c for c in entered if c.fit not in {c.fit for c in comparison.candidates}]
    if comparison.has_gold:
        return left
    sound = _sound(comparison)
    best = max(sound, key=log_score)
    return [
        c
        for c in left
        if c is entered[0] or (c in sound and _is_near(comparison, best, c.log_density))
    ]


def _sound(comparison: ModelComparison) -> list[Candidate]:
    """The models entered that are sound, by integrals as far as there are any; all if none is."""
    fits, known = {c.fit: c for c in comparison.candidates}, comparison.known_sound
    has_strays = strays_are_evident(comparison)
    for candidate in (*comparison.entered, *comparison.candidates):
        if (candidate, has_strays) not in known:
            known[candidate, has_strays] = is_sound(comparison, candidate)
    sound = [c for c in comparison.entered if known[fits.get(c.fit, c), has_strays]]
    return sound or comparison.entered


def _is_near(comparison: ModelComparison, best: Candidate, log_density: Floats) -> bool:
    """Return whether log densities of left-out answers are not far behind those of a model."""
    far = _FAR_BEHIND_OF_FEW if _has_few_answers(comparison) else _FAR_BEHIND
    behind = best.log_density - log_density
    most = far * len(behind) + _FAR_ERRORS * comparison.standard_error(behind)
    return float(behind.sum()) <= most


def _has_few_answers(comparison: ModelComparison) -> bool:
    """Return whether tasks have so few answers that matched moments are a rough guide."""
    return typical_degree(comparison.data.answers) <= FEW_ANSWERS
