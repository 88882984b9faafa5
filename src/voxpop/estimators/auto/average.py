"""Average of noise models: which of a comparison are sound, their weights, and their mixture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax, stdtrit

from voxpop.arrays import Floats
from voxpop.estimators.auto.calibration_checks import no_worse, significantly_better
from voxpop.estimators.auto.compare import SIGNIFICANCE, WORTH, Candidate, ModelComparison
from voxpop.estimators.auto.gold_checks import (
    gold_scores,
    share_of_answers,
    standard_errors_worse,
)
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.models.noise.slips import Slips
from voxpop.models.noise.tails import Tails
from voxpop.results.audit import Audit
from voxpop.words import counted, percent

# On a part of a large crowd almost any difference is significant. A richer model, which has to be
# fitted to all of it, is worth this share of the squared error, or this many nats per answer: an sd
# off by 9 %, which the audit corrects.
_WORTH_ERROR, _WORTH_NATS = 0.0025, 0.0075
# With equal workers a model gives the mean itself, up to the accuracy of an integral.
_ROUNDING = 1e-4
# Differences between errors beyond what this share of the answers show are cut off.
_MOST_DECIDING = 0.99
# Strays are evident if they explain so many nats per number.
_EVIDENT_STRAYS = 0.15
# An answer this many times the usual distance from the median of the others looks like a slip.
SLIP_REACH = 10.0
# Draws of the total scores, and the weight below which a model is left out.
_N_DRAWS, _LEAST_WEIGHT = 256, 0.03


@dataclass(frozen=True, eq=False)
class Average:
    """Noise models with their weights, highest weight first, and the reason in one sentence.

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
        """Weight of all models in which workers have the same noise."""
        alike = [candidate.support == "common" for candidate in self.candidates]
        return float(self.weights @ np.array(alike, dtype=np.float64)) if alike else 1.0

    def summary(self) -> str:
        """Return how many models were compared, how many were averaged, and which weighs most."""
        if len(self.candidates) == 1:
            return f"{self.reason}; kept the best: {self.name}"
        most = f"most weight on: {self.name} ({percent(self.weights[0])})"
        return f"{self.reason}; averaged {len(self.candidates)}, {most}"

    def mixed_audit(self, comparison: ModelComparison) -> Audit:
        """Every answer as the models together predict it from the others."""
        audits = [c.audit for c in self.candidates]
        answers = comparison.data.answers
        log_weight = np.log(self.weights)

        predicted = _mix(self.weights, [a.predicted for a in audits])
        second = [a.predicted_sd**2 + (a.predicted - predicted) ** 2 for a in audits]
        densities = [w + a.log_density for w, a in zip(log_weight, audits, strict=True)]
        return Audit.of(
            answers.value,
            answers.task,
            answers.task_degree[answers.task] > 1,
            pit=_mix(self.weights, [np.nan_to_num(a.pit, nan=0.5) for a in audits]),
            predicted=predicted,
            predicted_sd=np.sqrt(_mix(self.weights, second)),
            truth=_mix(self.weights, [a.truth for a in audits]),
            log_density=np.asarray(np.logaddexp.reduce(densities)),
            exact=True,
        )


def average(comparison: ModelComparison) -> Average:
    """Weigh the sound models by how well they predict left-out answers (M38), (M39).

    A weight is the chance that the model would predict best on other tasks and workers like these:
    models that do not differ significantly share their weight, so the result changes little if a
    few answers change. Where no model is sound the mean is left, or the median if it predicts
    clearly better. Gold tasks hidden in turn also count, more heavily the more of them there are
    (M64).
    """
    candidates = comparison.candidates
    sound = _without_agreement([c for c in candidates if is_sound(comparison, c)])
    compared = counted(len(comparison.entered), "noise model")
    reason = f"{compared} compared by leave-one-out prediction"
    if n_far := len(comparison.entered) - len(candidates):
        reason += f" ({n_far} dropped after a first screening)"
    if n_gold := len(candidates[0].gold):
        reason += f" and on {n_gold} gold tasks hidden in turn"
    if not sound:
        why = "all rejected (worse than the mean or median)"
        if comparison.prefers_median:
            why = (
                "errors grow with the value and are so large that the median is safer than the mean"
            )
        return Average((), np.empty(0), f"{reason}; {why}", _simple(comparison))
    # If a model shows that others lack something, they lack it, even if that model is rejected. Not
    # so with gains: with an own scale every worker is predicted better, whatever the truths.
    shown = [c for c in candidates if c in sound or not c.noise.gain]
    allowed = _near_best(comparison, shown, sound) or _near_best(comparison, sound, sound)
    weight = _weights(comparison, allowed)
    kept = np.flatnonzero(weight >= min(_LEAST_WEIGHT, weight.max()))
    # A large crowd has room for one model only, which is then fitted to all of it.
    kept = kept[np.argsort(-weight[kept], kind="stable")][: 1 if comparison.is_part else None]
    if n_unsound := len(candidates) - len(sound):
        reason += f"; {n_unsound} rejected (worse than the mean or median)"
    if n_worse := len(sound) - len(allowed):
        reason += f"; {n_worse} rejected (significantly worse than the best)"
    chosen = tuple(allowed[i] for i in kept.tolist())
    return Average(chosen, weight[kept] / weight[kept].sum(), reason)


def mixed(posteriors: Sequence[Posterior], weights: Floats) -> Posterior:
    """Mix posteriors: mean and variance of the mixture, quantiles by their average (M39)."""
    if len(posteriors) == 1:
        return posteriors[0]

    mean = _mix(weights, [p.estimate for p in posteriors])
    within = _mix(weights, [p.variance for p in posteriors])
    between = _mix(weights, [(p.estimate - mean) ** 2 for p in posteriors])
    sd = _mix(weights, [np.sqrt(p.variance) for p in posteriors])
    about = _mix(weights, [p.quantile - p.estimate[:, :, None] for p in posteriors])
    return stretched(Posterior(mean, sd**2, mean[:, :, None] + about), within + between)


def _mix(weights: Floats, parts: Sequence[Floats]) -> Floats:
    """Weighted mean; where all parts are equal, that value to the bit."""
    differences = np.stack([part - parts[0] for part in parts])
    return np.asarray(parts[0] + np.tensordot(weights, differences, axes=1))


def _weights(comparison: ModelComparison, candidates: list[Candidate]) -> Floats:
    """Chance that each candidate gives the answers the highest density: pseudo-BMA+ (M39).

    The total scores vary about those seen, as the scores of tasks and of workers do: answers of a
    worker are correlated, and so are answers to a task.
    """
    score = np.stack([c.log_density for c in candidates], axis=1)
    gold = np.stack([c.gold for c in candidates], axis=1)
    score = share_of_answers(len(gold)) * (score - score.max(axis=1, keepdims=True))
    cost = cost_of_component(comparison) * np.array([c.complexity for c in candidates])
    total = score.sum(axis=0) - cost
    parts = comparison.by_owner(score)
    if gold.size:
        parts.append(gold_scores(gold, comparison.data.answers.dimension))
        total = total + parts[-1].sum(axis=0)
    covariance = np.zeros((len(candidates), len(candidates)))
    for sums in parts:
        apart = sums - sums.mean(axis=0)
        covariance += apart.T @ apart
    size, direction = np.linalg.eigh(covariance)
    root = direction * np.sqrt(np.maximum(size, 0.0)) @ direction.T
    draws = np.random.default_rng(0).standard_normal((_N_DRAWS // 2, len(candidates))) @ root
    return np.asarray(softmax(total + np.concatenate([draws, -draws]), axis=1).mean(axis=0))


def cost_of_component(comparison: ModelComparison) -> float:
    """Log density by which left-out answers must gain from a component for it to be worth it."""
    return WORTH + _WORTH_NATS * int(comparison.usable.sum()) * comparison.is_part


def _simple(comparison: ModelComparison) -> str:
    """The mean, unless the median is safer (M56), predicts better, or strays are evident."""
    median = (
        comparison.prefers_median or has_long_tails(comparison) or strays_are_evident(comparison)
    )
    return "median" if median else "mean"


def strays_are_evident(comparison: ModelComparison) -> bool:
    """Whether models with slips or heavy tails make left-out answers far likelier than all others.

    So where some answers are about something else, such as a second object in the picture; not
    where most are just the median of the others, as many zeros are, since a spike is likely too.
    """
    # Every check of a model asks; the answer changes only as models are entered.
    known, n_entered = comparison.known_strays, len(comparison.entered)
    if n_entered not in known:
        known[n_entered] = _have_strays(comparison)
    return known[n_entered]


def _have_strays(comparison: ModelComparison) -> bool:
    strays = [c for c in comparison.entered if {Slips, Tails} & {*c.noise.learned}]
    others = [c for c in comparison.entered if c not in strays]
    typical = np.median(comparison.distance[comparison.usable], axis=0)
    if not strays or not others or (typical == 0).any():
        return False
    gain = max(strays, key=log_score).log_density - max(others, key=log_score).log_density
    least = _EVIDENT_STRAYS * comparison.data.answers.dimension * len(gain)
    return float(gain.sum()) > least + 2.0 * comparison.standard_error(gain)


def has_long_tails(comparison: ModelComparison) -> bool:
    """Whether the median of the others predicts better than their mean, by a standard error.

    Mean and median of skewed answers differ; then the mean predicts better, or no worse.
    """
    gain = comparison.simple.errors["mean"] - comparison.simple.errors["median"]
    return float(gain.sum()) > comparison.standard_error(gain)


def is_sound(comparison: ModelComparison, candidate: Candidate) -> bool:
    """Return whether all workers together, and most of them, are predicted no worse than simply.

    If workers err independently, any weighting of them ranks the models alike, on average. So a
    model that predicts answers worse than mean or median do, once all workers count alike, or
    that predicts most workers worse, is rejected, however well it predicts those it trusts: they
    agree for some other reason than being right. So is one whose truths follow the answers of the
    workers, each on their own scale, less well than mean or median do, unless it weighs all
    workers alike, whatever their habits. Where answers have long tails, absolute errors are
    compared, and a model is rejected if it is significantly worse. Where strays are evident, errors
    are cut off where these begin, since squares favour what lies between two objects, and lines are
    not drawn through them. Where the median is safer than any mean, a model has to tell the workers
    apart (M57).

    Where hidden truths are estimated significantly better than by mean and median, or worse, that
    decides: they say who is right among workers who agree.
    """
    simple, by_worker = comparison.simple, comparison.by_worker
    on_gold = standard_errors_worse(candidate.gold, simple.gold) if candidate.gold.size else 0.0
    if abs(on_gold) > _critical_on_gold(candidate):
        return on_gold < 0
    if comparison.prefers_median:
        gain = comparison.least_error_alike - candidate.squared
        return float(gain.sum()) > comparison.critical_value(1) * comparison.standard_error(gain)
    ours, theirs, allowed = candidate.plain, simple.plain, 0.0
    has_strays = strays_are_evident(comparison)
    if has_strays or has_long_tails(comparison):
        # Squares would then be decided by answers that nothing predicts, and by chance.
        ours, theirs = np.sqrt(ours), np.sqrt(simple.errors["median"])
        allowed = comparison.critical_value(1)
    if has_strays:
        far = SLIP_REACH * np.median(theirs)
        ours, theirs = np.minimum(ours, far), np.minimum(theirs, far)
        return no_worse(by_worker(ours), by_worker(theirs), _ROUNDING, allowed)
    # A few answers cannot decide: those beyond the 99 % quantile are cut there.
    worse = ours - theirs
    most = np.quantile(np.abs(worse), _MOST_DECIDING)
    bounded = theirs + np.clip(worse, -most, most)
    if not no_worse(by_worker(bounded), by_worker(theirs), _ROUNDING, allowed):
        return False
    if candidate.support == "common" and not candidate.noise.bias:
        return True
    by_line, simply = candidate.scatter, simple.scatter
    return no_worse(by_line.line, simply.line, _ROUNDING, allowed) or significantly_better(
        by_line.offset, simply.offset, SIGNIFICANCE
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


def log_score(candidate: Candidate) -> float:
    """Log density of all left-out answers."""
    return float(candidate.log_density.sum())


def squared_error(candidate: Candidate) -> float:
    """Weighted squared error of all predictions."""
    return float(candidate.squared.sum())


def gold_error(candidate: Candidate) -> float:
    """Squared error on all gold tasks, each hidden."""
    return float(candidate.gold.sum())
