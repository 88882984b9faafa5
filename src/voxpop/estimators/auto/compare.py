"""Comparison of noise models: every answer predicted from the others, under each model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Codes, Floats, Mask
from voxpop.data.sums import medians, variance_within_tasks, weighted_means
from voxpop.estimators.auto.calibration_checks import (
    MIN_ANSWERS,
    ScatterLeft,
    error_of_sum,
    scatter_left,
)
from voxpop.estimators.auto.gold_checks import gold_errors, judges
from voxpop.estimators.auto.suggest_scale import ScaleAdvice, suggest_scale
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.bi import Support
from voxpop.estimators.bi.gains import Gains
from voxpop.estimators.bi.growth import Growing, learned_before
from voxpop.estimators.bi.initialise import PreparedAnswers, starting_levels
from voxpop.estimators.bi.noise_fit import ALL_INTEGRATED, NoiseFit
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.estimators.leave_one_out import (
    leave_one_out_means,
    leave_one_out_medians,
    sum_by_owner,
)
from voxpop.inference.engine import Engine
from voxpop.models.noise import Noise
from voxpop.results.audit import Audit

SIGNIFICANCE = 0.05
# Sweeps in which a candidate is learned before it is looked at for the first time, and error of an
# integral that is good enough to compare.
FIRST_LOOK, COMPARED = 6, 1e-3
# A candidate that goes on from another one is so many sweeps ahead.
_HEAD_START = 2
# On a part of a large crowd so many sweeps of integrals show which model is best: the fit to all
# answers integrates until it needs no more.
_SWEEPS_ON_PART = 2
# Error of an integral that is good enough for what is averaged.
ACCURACY = 1e-4
# Every additional parameter costs one nat, as in Akaike's criterion.
WORTH = 1.0
# Reach: this many times the distance from the median of the other answers that nine answers in
# ten keep. Predictions are compared within it, and an answer r times as far off counts r**-4: a
# few answers, however wild, cannot decide.
_REACH, _REACH_QUANTILE, _WILD_POWER = 10.0, 0.9, 4
# For the same reason every predictive density is mixed with this share of a Cauchy density.
_SLIP_SHARE = 0.01
# Errors are weighted by precision**0.5: 0 would let the noisiest workers dominate, 1 those who
# merely agree.
_WEIGHT_POWER = 0.5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A noise model of the comparison: its name, what it is, and its scores on left-out answers.

    ``squared`` (E,) is the weighted squared error of predicting each answer, ``plain`` (E,) that
    without weights, ``log_density`` (E,) that of the prediction; over all coordinates. All are
    bounded. ``scatter`` is what the truths leave unexplained of each worker's answers, ``gold``
    (g,) the squared error of each gold task hidden. ``by_gold`` models know workers from gold
    tasks alone.
    """

    name: str
    noise: Noise
    support: Support
    fit: NoiseFit
    squared: Floats
    plain: Floats
    scatter: ScatterLeft
    log_density: Floats
    gold: Floats
    by_gold: bool = False

    @cached_property
    def fitted(self) -> NoiseFitted:
        """Posterior of truths and workers, computed only for models that count."""
        return self.fit.fitted(ACCURACY, audited=False)

    @cached_property
    def audit(self) -> Audit:
        """Every answer compared with its prediction from the others."""
        return self.fit.audit(ACCURACY)

    @property
    def complexity(self) -> int:
        """Number of parameters beyond those of the simplest model."""
        return len(self.noise.learned) + (self.support == "auto")


@dataclass(frozen=True, eq=False)
class SimplePredictions:
    """Errors of the mean and median of the other answers as predictions, and those of the better.

    ``errors`` (E,) of each and ``plain`` (E,) are as :attr:`Candidate.plain`, ``scatter`` and
    ``gold`` as there.
    """

    errors: dict[str, Floats]
    plain: Floats
    scatter: ScatterLeft
    gold: Floats


@dataclass(eq=False)
class ModelComparison:
    """Noise models fitted to the same answers, and everything needed to compare their predictions.

    ``usable`` (E,) are the answers that count. Of a part of a large crowd (``is_part``) only
    workers with several answers are learned from. Enter the paper's noise first: the weights
    (usable, d) of answers are taken from its levels.
    """

    data: PreparedAnswers
    usable: Mask
    engine: Engine
    is_part: bool = False
    on_sweep: OnSweep | None = None
    entered: list[Candidate] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    weight: Floats = field(default_factory=lambda: np.empty((0, 0)))
    known_sound: dict[tuple[Candidate, bool], bool] = field(default_factory=dict)
    known_strays: dict[int, bool] = field(default_factory=dict)
    _freeing: dict[bool, tuple[Gains | Growing, Floats]] = field(default_factory=dict)

    def enter(self, noise: Noise, support: Support, *, by_gold: bool = False) -> None:
        """Learn a noise model, unless it has been learned, and score it with moments matched."""
        what = noise, support, by_gold
        if any((c.noise, c.support, c.by_gold) == what for c in self.entered):
            return
        freeing, levels = self._learned_before(noise)
        few = self._min_answers
        fit = NoiseFit(self.data, noise, self.engine, support, few, by_gold, freeing)
        # Careless workers have their own states.
        afresh = freeing or by_gold or noise.careless
        start = None
        if self.entered and not afresh:
            # Rich models learn longer in this way: too long where a part decides on all answers.
            entered = self.entered[:1] if self.is_part else self.entered
            start = richest_simpler(entered, noise, support)
        ahead = 0 if start is None or self.is_part else _HEAD_START
        fit.learn(FIRST_LOOK, self.on_sweep, levels, start, ahead)
        if not self.entered:
            log_level = fit.expected_log_levels()
            weight = np.exp(-_WEIGHT_POWER * (log_level - log_level.min()))
            self.weight = weight[self.data.answers.worker, None][self.usable]
        self.entered.append(self._candidate(noise, support, by_gold, fit))

    def integrate(self, candidates: Sequence[Candidate]) -> None:
        """Go on with integrals in some of the models entered, and score their predictions."""
        for candidate in candidates:
            candidate.fit.refine(self.on_sweep, _SWEEPS_ON_PART if self.is_part else ALL_INTEGRATED)
            what = candidate.noise, candidate.support, candidate.by_gold
            self.candidates.append(self._candidate(*what, candidate.fit))

    def _candidate(self, noise: Noise, support: Support, by_gold: bool, fit: NoiseFit) -> Candidate:
        """Score a model as it has been fitted so far."""
        found = fit.predict(COMPARED)
        error = self._errors(found.truth_mean + found.bias)
        gold = np.empty(0)
        if not fit.is_matched:
            hidden = fit.hidden_gold(COMPARED)
            gold = gold_errors(self.data.answers, hidden, self.data.scale)
        return Candidate(
            name=describe(noise, support, by_gold),
            noise=noise,
            support=support,
            fit=fit,
            squared=(self.weight * error).sum(axis=1),
            plain=error.sum(axis=1),
            scatter=self._scatter(found.truth_mean),
            log_density=self._bounded(found.log_density),
            gold=gold,
            by_gold=by_gold,
        )

    @property
    def has_gold(self) -> bool:
        """Whether there is enough gold to judge models by."""
        return judges(self.data.answers)

    @property
    def _min_answers(self) -> int:
        return MIN_ANSWERS if self.is_part else 1

    @cached_property
    def levels(self) -> Floats:
        """The levels that all candidates start from."""
        answers, scale = self.data.answers, self.data.scale
        return starting_levels(answers, scale, self.engine, self.on_sweep, self._min_answers)

    def _learned_before(self, noise: Noise) -> tuple[Gains | Growing | None, Floats]:
        """Gains or growth, learned once for all candidates that have it, and starting levels."""
        if not (noise.gain or noise.growth):
            return None, self.levels
        if noise.gain not in self._freeing:
            answers, freeing = self.data.answers, learned_before(self.data.answers, noise)
            assert freeing is not None
            freed = freeing.freed(self.data)
            levels = freeing.levels(freed, answers, self.engine, self.on_sweep)
            self._freeing[noise.gain] = freeing, levels
        return self._freeing[noise.gain]

    @cached_property
    def simple(self) -> SimplePredictions:
        """Mean and median of the others as predictions, which a model must not fall behind."""
        found = {"mean": leave_one_out_means(self.data.answers), "median": self._centre}
        scatter = [self._scatter(truth) for truth in found.values()]
        line = min((left.line for left in scatter), key=np.sum)
        offset = min((left.offset for left in scatter), key=np.sum)
        errors = {name: self._errors(truth).sum(axis=1) for name, truth in found.items()}
        answers = self.data.answers
        hidden = [find(answers)[answers.is_gold] for find in (weighted_means, medians)]
        gold = [gold_errors(answers, estimate, self.data.scale) for estimate in hidden]
        return SimplePredictions(
            errors,
            errors["median"] if self.prefers_median else min(errors.values(), key=np.sum),
            ScatterLeft(line, offset),
            min(gold, key=np.sum),
        )

    @cached_property
    def _centre(self) -> Floats:
        """Median of the other answers to the task, (E, d)."""
        return leave_one_out_medians(self.data.answers)

    @cached_property
    def distance(self) -> Floats:
        """Distance of each answer from the median of the others, (E, d)."""
        return np.asarray(np.abs(self.data.answers.value - self._centre))

    @cached_property
    def _reach(self) -> Floats:
        """Distance from the median of the others up to which errors are compared, (d,)."""
        reach = _REACH * np.quantile(self.distance[self.usable], _REACH_QUANTILE, axis=0)
        return np.where(reach > 0, reach, np.inf)

    @cached_property
    def _credibility(self) -> Floats:
        """Weight of each usable answer, (usable, d): one within reach, little if it is wild."""
        wild = np.maximum(self.distance[self.usable] / self._reach, 1.0)
        return np.asarray(wild**-_WILD_POWER)

    def _within_reach(self, value: Floats) -> Floats:
        """Answers or predictions of them (E, d), moved to within reach; those that are usable."""
        centre, reach = self._centre, self._reach
        return np.asarray(np.clip(value, centre - reach, centre + reach)[self.usable])

    @cached_property
    def _answers(self) -> Floats:
        return self._within_reach(self.data.answers.value)

    def _errors(self, predicted: Floats) -> Floats:
        """Squared error of predicting each usable answer, by coordinate, in its unit.

        Where the median is the better of two unknowns, the absolute error in proportion (M56).
        """
        error = self._answers - self._within_reach(predicted)
        if self.prefers_median:
            return np.asarray(self._credibility * np.abs(error) / self._centre[self.usable])
        return np.asarray(self._credibility * (error / self.data.scale) ** 2)

    @cached_property
    def _advice(self) -> ScaleAdvice | None:
        return suggest_scale(self.data.answers)

    @property
    def noise_grows(self) -> bool:
        """Whether answers suggest that noise grows with the value.

        Not so by ratings: those cut off at an end of a range are less noisy there.
        """
        return self._advice is not None and self._advice.scale in ("log", "sqrt")

    @cached_property
    def prefers_median(self) -> bool:
        """Whether errors are in proportion, and so wide that medians vary less than means (M56).

        Answers cannot show whether the truth is the mean or the median of skewed noise. The one
        that varies less loses less where it is the wrong one.
        """
        answers = self.data.answers
        if self._advice is None or self._advice.scale != "log":
            return False
        variance = float(variance_within_tasks(replace(answers, value=np.log(answers.value)))[0])
        return variance > 1.0 or np.expm1(variance) * np.exp(variance) > 0.5 * np.pi * variance

    @cached_property
    def least_error_alike(self) -> Floats:
        """Weighted error (E,) of the best prediction with equal workers, from the median's (M57).

        No estimate from equally noisy answers has less than 2 / pi of the variance of their median:
        a model with a smaller error tells the workers apart.
        """
        others = self.data.answers.task_degree[self.data.answers.task[self.usable]] - 1
        least, of_median = ((1.0 + factor / others).mean() for factor in (1.0, 0.5 * np.pi))
        median = self.weight[:, 0] * self.simple.errors["median"]
        return np.asarray(np.sqrt(least / of_median) * median)

    def _scatter(self, truth: Floats) -> ScatterLeft:
        """Compare truths found without each answer with the answers."""
        owner, scale = self.data.answers.worker[self.usable], self.data.scale
        truth, answer = self._within_reach(truth) / scale, self._answers / scale
        return scatter_left(owner, self.data.answers.n_workers, answer, truth, self._credibility)

    def _bounded(self, log_density: Floats) -> Floats:
        """Log density of each usable answer mixed with that of a slip, over all coordinates (M39).

        A slip has a Cauchy density about the median of the others: no prediction can lose more by
        one answer than that leaves.
        """
        mixed = np.logaddexp(np.log1p(-_SLIP_SHARE) + log_density[self.usable], self._slip)
        return np.asarray(mixed.sum(axis=1))

    @cached_property
    def _slip(self) -> Floats:
        return log_slips(self.distance[self.usable])

    @cached_property
    def owners(self) -> list[Codes]:
        """The groups of answers that may share errors: by task, and by worker.

        Fewer than five workers cannot show how workers differ. Where some truths are known, so
        that no average of theirs is taken for true, it is these workers alone that matter.
        """
        answers = self.data.answers
        task, worker = answers.task[self.usable], answers.worker[self.usable]
        few = len(np.unique(worker)) < MIN_ANSWERS
        return [task] if few and answers.is_gold.any() else [task, worker]

    def by_owner(self, per_answer: Floats) -> list[Floats]:
        """Sums (owners, ...) over the usable answers to each task, and of each worker."""
        return [
            np.stack([sum_by_owner(owner, column) for column in per_answer.T], axis=1)
            for owner in self.owners
        ]

    def by_worker(self, per_answer: Floats) -> Floats:
        """Sum over the usable answers of each worker who has any."""
        return sum_by_owner(self.data.answers.worker[self.usable], per_answer)

    def standard_error(self, per_answer: Floats) -> float:
        """Standard error of a sum over answers, correlated within workers and within tasks."""
        return max(error_of_sum(sum_by_owner(owner, per_answer)) for owner in self.owners)

    def errors_worse(self, one: Candidate, other: Candidate) -> float:
        """By how many standard errors one predicts worse than the other, in squared error."""
        difference = one.squared - other.squared
        error = self.standard_error(difference)
        return float(difference.sum()) / error if error > 0 else 0.0

    def critical_value(self, n_comparisons: int) -> float:
        """Student's t at which the chance of any wrong rejection, among this many, is 5 %."""
        freedom = max(min(len(np.unique(owner)) for owner in self.owners) - 1, 1)
        return float(stdtrit(freedom, 1.0 - SIGNIFICANCE / max(n_comparisons, 1)))


def richest_simpler(entered: Sequence[Candidate], noise: Noise, support: Support) -> NoiseFit:
    """The fit to continue from: of the models without any other component, the richest."""
    of_own = [c for c in entered if c.support == support] or entered[:1]
    simpler = [c for c in of_own if set(c.noise.learned) <= set(noise.learned)]
    # Gains and growth are of other answers, freed of what was learned before.
    simpler = [c for c in simpler if not (c.by_gold or c.noise.gain or c.noise.growth)]
    return max(simpler, key=lambda c: len(c.noise.learned)).fit


def log_slips(distance: Floats) -> Floats:
    """Log density (E, d) of answers as slips, times their share, by distance from the others."""
    usual = np.median(distance, axis=0)
    usual = np.where(usual > 0, usual, distance.mean(axis=0))
    # A coordinate in which all agree has no typical distance.
    usual = np.where(usual > 0, usual, min(usual[usual > 0], default=1.0))
    return np.asarray(np.log(_SLIP_SHARE / (np.pi * usual * (1.0 + (distance / usual) ** 2))))


def describe(noise: Noise, support: Support, by_gold: bool = False) -> str:
    """Name a noise model in words fit for a sentence."""
    levels = "workers alike" if support == "common" else "workers differ in noise"
    levels += " from gold alone" if by_gold else ""
    return ", ".join([levels, *(component.words for component in noise.learned)])


def scores_table(comparison: ModelComparison) -> list[dict[str, Any]]:
    """The scores of all models that were integrated, as JSON values."""
    best = min(comparison.candidates, key=lambda c: float(c.squared.sum()))
    simple = comparison.simple
    return [
        {
            "model": c.name,
            "log_score": float(c.log_density.mean()),
            "squared_error": float(c.squared.mean() / best.squared.mean())
            if best.squared.mean() > 0
            else 1.0,
            "standard_errors_worse": comparison.errors_worse(c, best),
            "to_mean_or_median": float(c.plain.sum() / (simple.plain.sum() or 1.0)),
            "scatter_left": float(c.scatter.line.sum() / (simple.scatter.line.sum() or 1.0)),
            **({"gold_error": float(np.sqrt(c.gold.mean()))} if c.gold.size else {}),
        }
        for c in comparison.candidates
    ]
