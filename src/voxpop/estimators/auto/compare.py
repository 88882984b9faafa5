"""Comparison of noise models: every answer predicted from the others, under each model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Codes, Floats
from voxpop.estimators.auto.calibration_checks import (
    MIN_ANSWERS,
    ScatterLeft,
    error_of_sum,
    scatter_left,
)
from voxpop.estimators.auto.subset import Mask
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.bi import Support
from voxpop.estimators.bi.initialise import PreparedAnswers, starting_levels
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.bi.noise_levels import ChosenModel
from voxpop.estimators.leave_one_out import (
    leave_one_out_means,
    leave_one_out_medians,
    sum_by_owner,
)
from voxpop.inference.engine import Engine
from voxpop.models.noise import Noise
from voxpop.results.result import Result

SIGNIFICANCE = 0.05
# Sweeps and change at which a candidate is good enough to be compared.
_SWEEPS, _TOL = 12, 5e-3
# Errors are weighted by precision**0.5: 0 would let the noisiest workers dominate, 1 those who
# merely agree.
_WEIGHT_POWER = 0.5


@dataclass(frozen=True, eq=False)
class Candidate:
    """A noise model of the comparison: its name, what it is, and its scores on left-out answers.

    ``squared`` (E,) is the weighted squared error of predicting each answer, ``plain`` (E,) that
    without weights, ``log_density`` (E,) that of the prediction; over all coordinates. ``scatter``
    is what the truths leave unexplained of each worker's answers.
    """

    name: str
    noise: Noise
    support: Support
    fit: NoiseFit
    result: Result
    squared: Floats
    plain: Floats
    scatter: ScatterLeft
    log_density: Floats

    @property
    def complexity(self) -> int:
        """How many things are learned that a simpler model does without."""
        return len(self.noise.learned) + (self.support == "auto")


@dataclass(frozen=True, eq=False)
class SimplePredictions:
    """Mean and median of the other answers as predictions, and the errors of the better one.

    ``plain`` (E,) and ``scatter`` are as in :class:`Candidate`.
    """

    predicted: dict[str, Floats]
    plain: Floats
    scatter: ScatterLeft


@dataclass(eq=False)
class ModelComparison:
    """Noise models fitted to the same answers, and what it takes to compare their predictions.

    ``usable`` (E,) are the answers that count. Of a part of a large crowd (``is_part``) only
    workers with several answers are learned from. Enter the paper's noise first: the weights
    (usable, d) of answers are taken from its levels.
    """

    data: PreparedAnswers
    usable: Mask
    engine: Engine
    is_part: bool = False
    on_sweep: OnSweep | None = None
    candidates: list[Candidate] = field(default_factory=list)
    weight: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def enter(self, noise: Noise, support: Support) -> None:
        """Fit a noise model and score it, unless it has been."""
        if any(c.noise == noise and c.support == support for c in self.candidates):
            return
        fit = NoiseFit(self.data, noise, self.engine, support, self._min_answers)
        accuracy, levels = self.engine.accuracy, self.start[1]
        found = fit.fit(_TOL, _SWEEPS, accuracy, self.on_sweep, levels=levels, warn=False)
        result = found.result({})
        audit, answers, usable = result.audit, self.data.answers, self.usable
        assert audit is not None
        if not self.candidates:
            log_level = result.worker_posterior @ np.log(result.levels)
            weight = np.exp(-_WEIGHT_POWER * (log_level - log_level.min()))[answers.worker]
            self.weight = (weight[:, None] / self.data.scale**2)[usable]
        residual = (answers.value - audit.predicted)[usable]
        candidate = Candidate(
            name=describe(noise, support),
            noise=noise,
            support=support,
            fit=fit,
            result=result,
            squared=(self.weight * residual**2).sum(axis=1),
            plain=self._plain_error(audit.predicted),
            scatter=scatter_left(answers, usable, audit.truth, self.data.scale),
            log_density=audit.log_density[usable].sum(axis=1),
        )
        self.candidates.append(candidate)

    @property
    def _min_answers(self) -> int:
        return MIN_ANSWERS if self.is_part else 1

    @cached_property
    def start(self) -> tuple[ChosenModel, Floats]:
        """The levels of the paper's noise, and those that all candidates start from."""
        return starting_levels(
            self.data.answers, self.data.scale, self.engine, self.on_sweep, self._min_answers
        )

    @cached_property
    def simple(self) -> SimplePredictions:
        """Mean and median of the others as predictions, which a model must not fall behind."""
        answers, usable, scale = self.data.answers, self.usable, self.data.scale
        found = {"mean": leave_one_out_means(answers), "median": leave_one_out_medians(answers)}
        scatter = [scatter_left(answers, usable, truth, scale) for truth in found.values()]
        line = min((left.line for left in scatter), key=np.sum)
        offset = min((left.offset for left in scatter), key=np.sum)
        plain = min((self._plain_error(truth) for truth in found.values()), key=np.sum)
        return SimplePredictions(found, plain, ScatterLeft(line, offset))

    @cached_property
    def owners(self) -> list[Codes]:
        """What answers may have errors in common by: their task, and their worker.

        How workers differ cannot be told from fewer than five. Where some truths are known, so
        that no average of theirs is taken for true, it is these workers alone that matter.
        """
        answers = self.data.answers
        task, worker = answers.task[self.usable], answers.worker[self.usable]
        few = len(np.unique(worker)) < MIN_ANSWERS
        return [task] if few and answers.is_gold.any() else [task, worker]

    def _plain_error(self, predicted: Floats) -> Floats:
        """Squared error of predicting each answer, all workers alike."""
        residual = ((self.data.answers.value - predicted) / self.data.scale)[self.usable]
        return np.asarray((residual**2).sum(axis=1))

    def by_worker(self, per_answer: Floats) -> Floats:
        """Sum over the usable answers of each worker who has any."""
        return sum_by_owner(self.data.answers.worker[self.usable], per_answer)

    def standard_error(self, per_answer: Floats) -> float:
        """Standard error of a sum over answers: those of a worker go together, and of a task."""
        return max(error_of_sum(sum_by_owner(owner, per_answer)) for owner in self.owners)

    def errors_worse(self, one: Candidate, other: Candidate) -> float:
        """By how many standard errors one predicts worse than the other, in squared error."""
        difference = one.squared - other.squared
        error = self.standard_error(difference)
        return float(difference.sum()) / error if error > 0 else 0.0

    def critical_value(self, n_comparisons: int) -> float:
        """Student's t at which the chance of any wrong rejection, of so many, is 5 %."""
        freedom = max(min(len(np.unique(owner)) for owner in self.owners) - 1, 1)
        return float(stdtrit(freedom, 1.0 - SIGNIFICANCE / max(n_comparisons, 1)))

    def table(self) -> list[dict[str, Any]]:
        """The scores of all, as JSON can hold them."""
        best = min(self.candidates, key=lambda c: float(c.squared.sum()))
        simple = self.simple
        return [
            {
                "model": c.name,
                "log_score": float(c.log_density.mean()),
                "squared_error": float(c.squared.mean() / best.squared.mean())
                if best.squared.mean() > 0
                else 1.0,
                "standard_errors_worse": self.errors_worse(c, best),
                "to_mean_or_median": float(c.plain.sum() / (simple.plain.sum() or 1.0)),
                "scatter_left": float(c.scatter.line.sum() / (simple.scatter.line.sum() or 1.0)),
                "coverage_95": c.result.audit.coverage_95 if c.result.audit else None,
            }
            for c in self.candidates
        ]


def describe(noise: Noise, support: Support) -> str:
    """Name a noise model in words fit for a sentence."""
    levels = "workers alike" if support == "common" else "workers differ in noise"
    return ", ".join([levels, *(component.words for component in noise.learned)])
