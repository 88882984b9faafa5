"""Screening: which noise models are worth learning, and which of these are worth integrals."""

from __future__ import annotations

import numpy as np

from voxpop.arrays import Floats
from voxpop.estimators.auto.average import is_sound, log_score
from voxpop.estimators.auto.compare import WORTH, Candidate, ModelComparison
from voxpop.estimators.bi.noise_fit import FEW_ANSWERS, typical_degree
from voxpop.models.noise import Noise
from voxpop.models.noise.truths import Truths

# A model is not worth integrals if matched moments show it this far behind: so many nats an answer
# (more where tasks have few answers), and so many standard errors.
_FAR_BEHIND, _FAR_BEHIND_OF_FEW, _FAR_ERRORS = 0.02, 0.1, 2.0
# So many times the usual distance from the median of the others make an answer look like a slip.
_SLIP_REACH = 10.0


def is_promising(comparison: ModelComparison, noise: Noise) -> bool:
    """Tell whether a richer model is worth learning: if its components have shown any gain.

    Each by itself, by more than a parameter is worth; one of them will do where tasks have so few
    answers that matched moments do not show it well. Gains are never tried alone. Where gold
    judges, all models are learned.
    """
    if comparison.has_gold:
        return True
    plain = log_score(comparison.entered[0])
    shown = {
        c.noise.learned[0]: log_score(c) > plain + WORTH
        for c in comparison.entered
        if c.support == "auto" and len(c.noise.learned) == 1
    }
    # Gains always come with the distribution of the truths.
    asked = [c for c in noise.learned if not (noise.gain and c is Truths)]
    parts = [shown[component] for component in asked if component in shown]
    if not parts:
        return True
    return any(parts) if _has_few_answers(comparison) else all(parts)


def slips_differ(comparison: ModelComparison) -> bool:
    """Tell whether some workers give more wild answers than others, beyond chance.

    The counts of answers ten times as far off as usual are held against those that one share for
    all would give: their chi² against its mean and two of its sds.
    """
    distance = comparison.distance[comparison.usable]
    is_far = (distance > _SLIP_REACH * np.median(distance, axis=0)).any(axis=1)
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
    not shown that one to be unsound; and nothing where gold has a say, which matched moments do not
    hear.
    """
    entered, fits = comparison.entered, {c.fit: c for c in comparison.candidates}
    left = [c for c in entered if c.fit not in fits]
    if comparison.has_gold:
        return left
    sound = [c for c in entered if is_sound(comparison, fits.get(c.fit, c))]
    best = max(sound or entered, key=log_score)
    far = _FAR_BEHIND_OF_FEW if _has_few_answers(comparison) else _FAR_BEHIND

    def is_near(candidate: Candidate) -> bool:
        behind = best.log_density - candidate.log_density
        most = far * len(behind) + _FAR_ERRORS * comparison.standard_error(behind)
        return float(behind.sum()) <= most

    return [c for c in left if c is entered[0] or is_near(c)]


def _has_few_answers(comparison: ModelComparison) -> bool:
    """Tell whether tasks have so few answers that matched moments are a rough guide."""
    return typical_degree(comparison.data.answers) <= FEW_ANSWERS
