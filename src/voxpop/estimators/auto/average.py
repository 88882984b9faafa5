"""Average of noise models: which of a comparison are sound, how much each counts, and their mix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax, stdtrit

from voxpop.arrays import Floats
from voxpop.estimators.auto.calibration_checks import no_worse, significantly_better
from voxpop.estimators.auto.compare import SIGNIFICANCE, Candidate, ModelComparison
from voxpop.estimators.auto.gold_checks import (
    gold_scores,
    share_of_answers,
    standard_errors_worse,
)
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.results.audit import Audit

# On a part of a large crowd almost any difference is significant. A richer model, which has to be
# fitted to all of it, is worth this share of the squared error, or so many nats an answer: an sd
# off by 9 %, which the audit corrects.
_WORTH_ERROR, _WORTH_NATS = 0.0025, 0.0075
# With workers alike a model gives the mean itself, up to the accuracy of an integral.
_ROUNDING = 1e-4
# Resamples of the tasks and of the workers, and the weight below which a model is left out.
_N_RESAMPLES, _LEAST_WEIGHT = 200, 0.03


@dataclass(frozen=True, eq=False)
class Average:
    """Noise models with their weights, heaviest first, and the reason in one sentence.

    Without any model, because none was sound, ``simple`` is the "mean" or "median" to take.
    """

    candidates: tuple[Candidate, ...]
    weights: Floats
    reason: str
    simple: str = ""

    @property
    def name(self) -> str:
        """Name the heaviest model, or the simple method."""
        return self.simple or self.candidates[0].name

    @property
    def alike_share(self) -> float:
        """Weight of all models in which workers are alike."""
        alike = [candidate.support == "common" for candidate in self.candidates]
        return float(self.weights @ np.array(alike, dtype=np.float64)) if alike else 1.0

    def summary(self) -> str:
        """Say which models were averaged, with their weights, and why."""
        shares = [f"{c.name} ({w:.0%})" for c, w in zip(self.candidates, self.weights, strict=True)]
        verb = "averaged" if len(shares) > 1 else "chose"
        return f"{verb} {'; '.join(shares) if len(shares) > 1 else self.name}: {self.reason}"

    def mixed_audit(self, comparison: ModelComparison) -> Audit:
        """Every answer as the models together predict it from the others."""
        audits = [c.audit for c in self.candidates]
        answers = comparison.data.answers
        log_weight = np.log(self.weights)

        def mix(parts: Sequence[Floats]) -> Floats:
            return np.asarray(np.tensordot(self.weights, np.stack(parts), axes=1))

        predicted = mix([a.predicted for a in audits])
        second = mix([a.predicted_sd**2 + (a.predicted - predicted) ** 2 for a in audits])
        densities = [w + a.log_density for w, a in zip(log_weight, audits, strict=True)]
        return Audit.of(
            answers.value,
            answers.task,
            answers.task_degree[answers.task] > 1,
            pit=mix([np.nan_to_num(a.pit, nan=0.5) for a in audits]),
            predicted=predicted,
            predicted_sd=np.sqrt(second),
            truth=mix([a.truth for a in audits]),
            log_density=np.asarray(np.logaddexp.reduce(densities)),
            exact=True,
        )


def average(comparison: ModelComparison) -> Average:
    """Weigh the sound models by how well they predict left-out answers (M38), (M39).

    A weight is the share of resamples of tasks and workers in which the model predicts best: models
    that chance cannot tell apart share their weight, and the result changes little if a few answers
    do. Where no model is sound the mean is left, or the median if that predicts clearly better.
    Gold tasks hidden in turn take part in all of it, the more of them the more (M64).
    """
    candidates = comparison.candidates
    sound = _without_agreement([c for c in candidates if _is_sound(comparison, c)])
    reason = f"{len(candidates)} noise models compared by leave-one-out prediction"
    if n_gold := len(candidates[0].gold):
        reason += f" and on {n_gold} gold tasks hidden in turn"
    if not sound:
        return Average((), np.empty(0), f"{reason}; none is sound", _simple(comparison))
    # What a model shows to be missing in others is missing, even if it is rejected itself.
    allowed = _near_best(comparison, candidates, sound) or _near_best(comparison, sound, sound)
    weight = _weights(comparison, allowed)
    kept = np.flatnonzero(weight >= min(_LEAST_WEIGHT, weight.max()))
    # A large crowd has room for one model only, which is then fitted to all of it.
    kept = kept[np.argsort(-weight[kept], kind="stable")][: 1 if comparison.is_part else None]
    if n_unsound := len(candidates) - len(sound):
        reason += f"; {n_unsound} rejected (worse than the mean or median)"
    if n_worse := len(sound) - len(allowed):
        reason += f"; {n_worse} rejected (significantly worse than the best)"
    if len(kept) > 1:
        reason += f"; {len(kept)} averaged, weighted by how well they predict"
    else:
        reason += "; the one with the best predictions was kept"
    chosen = tuple(allowed[i] for i in kept.tolist())
    return Average(chosen, weight[kept] / weight[kept].sum(), reason)


def mixed(posteriors: Sequence[Posterior], weights: Floats) -> Posterior:
    """Mix posteriors: mean and variance of the mixture, quantiles by their average (M39)."""
    if len(posteriors) == 1:
        return posteriors[0]

    def mix(parts: Sequence[Floats]) -> Floats:
        return np.asarray(np.tensordot(weights, np.stack(parts), axes=1))

    mean, first = mix([p.estimate for p in posteriors]), posteriors[0].estimate
    # What all agree on, such as a known truth, is not to be rounded.
    mean = np.where(np.all([p.estimate == first for p in posteriors], axis=0), first, mean)
    within = mix([p.variance for p in posteriors])
    between = mix([(p.estimate - mean) ** 2 for p in posteriors])
    about = mix([p.quantile - p.estimate[:, :, None] for p in posteriors])
    return stretched(Posterior(mean, within, mean[:, :, None] + about), within + between)


def _weights(comparison: ModelComparison, candidates: list[Candidate]) -> Floats:
    """Share of resamples in which each candidate is the likeliest: pseudo-BMA+ (M39).

    Tasks and workers are resampled by the Bayesian bootstrap, each by itself; both deviations are
    added, since answers of a worker go together, and answers to a task.
    """
    score = np.stack([c.log_density for c in candidates], axis=1)
    gold = np.stack([c.gold for c in candidates], axis=1)
    score = share_of_answers(len(gold)) * (score - score.max(axis=1, keepdims=True))
    total = score.sum(axis=0)
    if comparison.is_part:
        total = total - _WORTH_NATS * len(score) * np.array([c.complexity for c in candidates])
    rng = np.random.default_rng(0)
    parts = comparison.by_owner(score)
    if gold.size:
        found = gold_scores(gold, comparison.data.answers.dimension)
        # In an order that does not depend on names or rows.
        parts.append(found[np.lexsort(found.T)])
        total = total + parts[-1].sum(axis=0)
    resampled = np.tile(total, (_N_RESAMPLES, 1))
    for sums in parts:
        share = rng.standard_exponential((_N_RESAMPLES, len(sums)))
        share *= len(sums) / share.sum(axis=1, keepdims=True)
        resampled += (share - 1.0) @ sums
    return np.asarray(softmax(resampled, axis=1).mean(axis=0))


def _simple(comparison: ModelComparison) -> str:
    """The mean, unless the median predicts better by more than a standard error."""
    gain = comparison.simple.errors["mean"] - comparison.simple.errors["median"]
    return "median" if float(gain.sum()) > comparison.standard_error(gain) else "mean"


def _is_sound(comparison: ModelComparison, candidate: Candidate) -> bool:
    """Tell whether all workers together, and most of them, are predicted no worse than simply.

    If workers err independently, any weighting of them ranks the models alike, on average. So a
    model that predicts answers worse than mean or median do, once all workers count alike, or
    that predicts most workers worse, is rejected, however well it predicts those it trusts: they
    agree for some other reason than being right. So is one whose truths follow the answers of the
    workers, each on a scale of his own, less well than mean or median do.

    Where hidden truths are estimated significantly better than by mean and median, or worse, that
    decides: they say who is right among workers who agree.
    """
    simple, by_worker = comparison.simple, comparison.by_worker
    worse = standard_errors_worse(candidate.gold, simple.gold)
    if abs(worse) > _critical_on_gold(candidate):
        return worse < 0
    if not no_worse(by_worker(candidate.plain), by_worker(simple.plain), _ROUNDING):
        return False
    ours, theirs = candidate.scatter, simple.scatter
    return no_worse(ours.line, theirs.line, _ROUNDING) or significantly_better(
        ours.offset, theirs.offset, SIGNIFICANCE
    )


def _near_best(
    comparison: ModelComparison, entered: list[Candidate], sound: list[Candidate]
) -> list[Candidate]:
    """Those sound candidates that predict not significantly worse than the best one entered.

    Nor may hidden truths be estimated significantly worse than by the best model for these. Those
    that are better there, by more than a standard error, need not predict answers best.
    """
    if entered[0].gold.size:
        sound = _near_best_on_gold(sound)
        entered = [c for c in entered if c in sound] or sound
    best = min(entered, key=squared_error)
    critical = comparison.critical_value(len(comparison.candidates) - 1)
    most = (1.0 + _WORTH_ERROR * comparison.is_part) * squared_error(best)
    return [
        c
        for c in sound
        if comparison.errors_worse(c, best) <= critical
        or squared_error(c) < most
        or standard_errors_worse(c.gold, best.gold) < -1.0
    ]


def _without_agreement(sound: list[Candidate]) -> list[Candidate]:
    """Leave out models that know workers by gold alone, unless gold shows that agreement misleads.

    That is so if the best of them is significantly better on hidden truths than all others.
    """
    others = [c for c in sound if not c.by_gold]
    alone = [c for c in sound if c.by_gold]
    if not (alone and others):
        return sound
    best, other = (min(group, key=gold_error) for group in (alone, others))
    worse = standard_errors_worse(other.gold, best.gold)
    return sound if worse > _critical_on_gold(best) else others


def _near_best_on_gold(sound: list[Candidate]) -> list[Candidate]:
    """Those that estimate hidden truths not significantly worse than the best for these."""
    best = min(sound, key=gold_error)
    critical = _critical_on_gold(best)
    return [c for c in sound if standard_errors_worse(c.gold, best.gold) <= critical]


def _critical_on_gold(candidate: Candidate) -> float:
    """Student's t at which the chance that gold rejects a model wrongly is 5 %.

    Of each: a model that is rejected wrongly leaves one that is as good on gold.
    """
    return float(stdtrit(max(len(candidate.gold) - 1, 1), 1.0 - SIGNIFICANCE))


def squared_error(candidate: Candidate) -> float:
    """Weighted squared error of all predictions."""
    return float(candidate.squared.sum())


def gold_error(candidate: Candidate) -> float:
    """Squared error on all gold tasks, each hidden."""
    return float(candidate.gold.sum())
