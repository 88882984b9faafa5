"""Which noise model of a comparison to take, and why."""

from __future__ import annotations

from dataclasses import dataclass

from voxpop.estimators.auto.calibration_checks import no_worse, significantly_better
from voxpop.estimators.auto.compare import SIGNIFICANCE, Candidate, ModelComparison

# On a part of a large crowd almost any difference is significant. A richer model, which has to be
# fitted to all of it, is worth this share of the squared error, or so many nats an answer: an sd
# off by 9 %, which the audit corrects.
_WORTH_ERROR, _WORTH_NATS = 0.0025, 0.0075
# With workers alike a model gives the mean itself, up to the accuracy of an integral.
ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Choice:
    """The candidate to take, and the reason in one sentence."""

    candidate: Candidate
    reason: str


def choose(comparison: ModelComparison) -> Choice:
    """Take the simplest of the sound models that are not significantly worse than the best."""
    candidates = comparison.candidates
    sound = [c for c in candidates if _is_sound(comparison, c)]
    # Where none is, the mean is left; shrinkage takes it towards the median as far as needed.
    sound = sound or [c for c in candidates if not c.noise.learned and c.support == "common"]
    # What a model shows to be missing in others is missing, even if it is rejected itself.
    allowed = _near_best(comparison, candidates, sound) or _near_best(comparison, sound, sound)
    likeliest = max(allowed, key=_log_score)

    def within(c: Candidate) -> bool:
        difference = likeliest.log_density - c.log_density
        chance = comparison.critical_value(1) * comparison.standard_error(difference)
        worth = _WORTH_NATS * len(difference) * comparison.is_part
        return float(difference.sum()) <= max(chance, worth)

    winner = min(filter(within, allowed), key=lambda c: (c.complexity, -_log_score(c)))
    reason = f"{len(candidates)} noise models compared by leave-one-out prediction"
    if n_unsound := len(candidates) - len(sound):
        reason += f"; {n_unsound} rejected (worse than the mean or median)"
    if n_worse := len(sound) - len(allowed):
        reason += f"; {n_worse} rejected (significantly worse than the best)"
    if winner is likeliest:
        return Choice(winner, f"{reason}; the one with the best predictions was kept")
    reason += "; the simplest of those not significantly worse than the best was kept"
    return Choice(winner, reason)


def _is_sound(comparison: ModelComparison, candidate: Candidate) -> bool:
    """Tell whether all workers together, and most of them, are predicted no worse than simply.

    If workers err independently, any weighting of them ranks the models alike, on average. So a
    model that predicts answers worse than mean or median do, once all workers count alike, or
    that predicts most workers worse, is rejected, however well it predicts those it trusts: they
    agree for some other reason than being right. So is one that weighs workers and finds truths
    that follow the workers' answers less well than mean or median do.
    """
    simple, by_worker = comparison.simple, comparison.by_worker
    if not no_worse(by_worker(candidate.plain), by_worker(simple.plain), ROUNDING):
        return False
    # One level for all weighs answers as the mean does; to weigh workers takes more evidence.
    ours, theirs = candidate.scatter, simple.scatter
    return candidate.support == "common" or (
        no_worse(ours.line, theirs.line, ROUNDING)
        or significantly_better(ours.offset, theirs.offset, SIGNIFICANCE)
    )


def _near_best(
    comparison: ModelComparison, entered: list[Candidate], sound: list[Candidate]
) -> list[Candidate]:
    """Those sound candidates that predict not significantly worse than the best one entered."""
    best = min(entered, key=squared_error)
    critical = comparison.critical_value(len(comparison.candidates) - 1)
    most = (1.0 + _WORTH_ERROR * comparison.is_part) * squared_error(best)
    return [
        c for c in sound if comparison.errors_worse(c, best) <= critical or squared_error(c) < most
    ]


def squared_error(candidate: Candidate) -> float:
    """Weighted squared error of all predictions."""
    return float(candidate.squared.sum())


def _log_score(candidate: Candidate) -> float:
    return float(candidate.log_density.sum())
