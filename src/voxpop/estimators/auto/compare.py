"""The contest between noise models: every answer predicted from the others, under each model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from voxpop.arrays import Codes, Floats
from voxpop.data.answers import Answers
from voxpop.estimators.auto.calibration_checks import (
    FEWEST_TO_TELL,
    Judgement,
    error_of_sum,
    judge,
    no_worse,
    shown_better,
)
from voxpop.estimators.base import OnSweep
from voxpop.estimators.baselines.averages import Average, Median
from voxpop.estimators.bi.bi import Support
from voxpop.estimators.bi.fitted import noisy_result
from voxpop.estimators.bi.initialise import starting_levels
from voxpop.estimators.bi.noise_fit import NoisyFit
from voxpop.estimators.leave_one_out import others_mean, others_median
from voxpop.inference.engine import Engine
from voxpop.models.noise import Noise, tail_variance
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result

Mask = NDArray[np.bool_]

# Sweeps and change at which a candidate is good enough to be compared.
_CONTEST_SWEEPS, _CONTEST_TOL = 12, 5e-3
# Workers count in the comparison by this power of their precision: halfway between all alike, which
# lets the noisiest decide, and full trust in what is learned, which lets those decide who agree.
_TRUST = 0.5
_LEVEL = 0.05
# On a part of a large crowd chance can tell almost anything. A richer model, which has to be fitted
# to all of it, is worth this share of the squared error, or so many nats an answer: an sd off by
# 9 %, which the audit puts right.
_WORTH_ERROR, _WORTH_NATS = 0.0025, 0.0075
# Workers taken alike give the mean itself, up to the accuracy of an integral.
_ROUNDING = 1e-4


@dataclass(frozen=True, eq=False)
class Candidate:
    """A noise model in the contest: its name, what it is, and its scores on left-out answers.

    ``squared`` (E,) is the weighted squared error of predicting each answer, ``plain`` (E,) that
    with workers alike, ``log_density`` (E,) that of the prediction; over all coordinates.
    ``judged`` says what the truths found leave of each worker's scatter.
    """

    name: str
    noise: Noise
    support: Support
    result: Result
    squared: Floats
    plain: Floats
    judged: Judgement
    log_density: Floats

    @property
    def complexity(self) -> int:
        """How many things are learned that a simpler model does without."""
        noise = self.noise
        on = (noise.tails == "learn", noise.bias, noise.difficulty, noise.truths == "learn")
        return sum(on) + (self.support == "auto")


@dataclass(frozen=True)
class Hedge:
    """How far to move estimates towards a simple method, and towards which."""

    name: str
    share: float

    def apply(self, answers: Answers, result: Result) -> Result:
        """Mix the posteriors of the model and of the simple method (M39)."""
        if not self.share:
            return result
        simple = (Average() if self.name == "mean" else Median()).fit(answers)
        return result.calibrated(Calibration(shrinkage=self.share, towards=self.name), simple)


@dataclass(eq=False)
class Contest:
    """All candidates fitted to the same answers.

    If workers err independently, any weighting of them ranks the models alike, on average. So a
    model that predicts answers worse than mean or median do, once all workers count alike, or that
    predicts most workers worse, is out, however well it predicts those it trusts: they agree for
    some other reason than being right. And so is one that weighs workers and finds truths that
    follow the workers' answers less well than mean or median do.
    """

    answers: Answers
    usable: Mask
    bounds: tuple[float, float] | None
    engine: Engine
    on_sweep: OnSweep | None
    is_part: bool = False
    candidates: list[Candidate] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._owners = self._find_owners()
        self.fewest = FEWEST_TO_TELL if self.is_part else 1
        start = starting_levels(self.answers, self.engine, self.on_sweep, self.fewest)
        self.plain, self.levels = start.plain, start.levels
        flat, drawn = Noise(bounds=self.bounds), Noise(truths="learn", bounds=self.bounds)
        reference = self._fit(flat, "auto")
        self._scale = np.array(reference.noise.coordinate_scale)
        self._weight = self._weigh(reference)
        self._others = {"mean": others_mean(self.answers), "median": others_median(self.answers)}
        self._simple = min((self._plain(truth) for truth in self._others.values()), key=np.sum)
        judged = [self._judged(truth) for truth in self._others.values()]
        self._line = min((found.line for found in judged), key=np.sum)
        self._offset = min((found.offset for found in judged), key=np.sum)
        self.candidates = [self._scored(flat, "auto", reference)]
        self._enter(drawn, "auto")
        # Whether truths have a distribution worth knowing is decided first, for all that follow.
        first, second = self.candidates
        base = min(first, second, key=lambda c: float(c.squared.sum())).noise
        self._enter(flat, "common")
        self._enter(replace(base, bias=True), "common")
        for noise in (
            replace(base, bias=True),
            replace(base, tails="learn"),
            replace(base, tails="learn", bias=True),
            replace(base, bias=True, difficulty=True),
        ):
            self._enter(noise, "auto")
        # Where workers are best taken alike, tasks may still differ: a mean of unequal sureness.
        if self.decide()[0].support == "common":
            self._enter(replace(flat, difficulty=True), "common")
        # And the truths' distribution once more, for the winner alone.
        winner = self.decide()[0]
        self._enter(
            replace(winner.noise, truths="flat" if winner.noise.truths == "learn" else "learn"),
            winner.support,
        )

    def _enter(self, noise: Noise, support: Support) -> None:
        if any(c.noise == noise and c.support == support for c in self.candidates):
            return
        self.candidates.append(self._scored(noise, support, self._fit(noise, support)))

    def _fit(self, noise: Noise, support: Support) -> Result:
        fit = NoisyFit(self.answers, noise, self.engine, support, fewest=self.fewest)
        found = fit.run(
            _CONTEST_TOL, _CONTEST_SWEEPS, self.on_sweep, levels=self.levels, warn=False
        )
        return noisy_result(self.answers, {}, found)

    def _weigh(self, reference: Result) -> Floats:
        """Weight of each usable coordinate of an answer (E, d) in the comparison."""
        log_level = reference.worker_posterior @ np.log(reference.levels)
        trust = np.exp(-_TRUST * (log_level - log_level.min()))[self.answers.worker]
        return np.asarray(trust[:, None] / self._scale**2)[self.usable]

    def _plain(self, predicted: Floats) -> Floats:
        """Squared error of predicting each answer, all workers alike."""
        residual = ((self.answers.value - predicted) / self._scale)[self.usable]
        return np.asarray((residual**2).sum(axis=1))

    def _judged(self, truth: Floats) -> Judgement:
        return judge(self.answers, self.usable, truth, self._scale)

    def _is_sound(self, candidate: Candidate) -> bool:
        """Tell whether all workers together, and most of them, are predicted as well as simply."""
        owner = self.answers.worker[self.usable]
        ours, simple = _sums(owner, candidate.plain), _sums(owner, self._simple)
        if not no_worse(ours, simple, _ROUNDING):
            return False
        # One level for all weighs answers as the mean does; who weighs workers has more to show.
        return candidate.support == "common" or (
            no_worse(candidate.judged.line, self._line, _ROUNDING)
            or shown_better(candidate.judged.offset, self._offset, _LEVEL)
        )

    def _scored(self, noise: Noise, support: Support, result: Result) -> Candidate:
        audit = result.audit
        assert audit is not None
        residual = (self.answers.value - audit.predicted)[self.usable]
        return Candidate(
            name=describe(noise, support),
            noise=noise,
            support=support,
            result=result,
            squared=(self._weight * residual**2).sum(axis=1),
            plain=self._plain(audit.predicted),
            judged=self._judged(audit.truth),
            log_density=audit.log_density[self.usable].sum(axis=1),
        )

    def decide(self) -> tuple[Candidate, str]:
        """The winner so far, and why, in one sentence."""
        sound = [c for c in self.candidates if self._is_sound(c)]
        # Where none is, the mean is left, and it falls back on the median as far as needed.
        mean = Noise(bounds=self.bounds)
        sound = sound or [c for c in self.candidates if c.noise == mean and c.support == "common"]
        # What a model shows to be missing in others is missing, even if it is out itself.
        for entered in (self.candidates, sound):
            best = min(entered, key=lambda c: float(c.squared.sum()))
            critical = self._critical_value(len(self.candidates) - 1)
            most = (1.0 + _WORTH_ERROR * self.is_part) * float(best.squared.sum())
            allowed = [
                c
                for c in sound
                if self._worse(c, best) <= critical or float(c.squared.sum()) < most
            ]
            if allowed:
                break
        likeliest = max(allowed, key=lambda c: float(c.log_density.sum()))

        def within(c: Candidate) -> bool:
            difference = likeliest.log_density - c.log_density
            chance = self._critical_value(1) * self._error(difference)
            return float(difference.sum()) <= max(
                chance, _WORTH_NATS * len(difference) * self.is_part
            )

        near = [c for c in allowed if within(c)]
        winner = min(near, key=lambda c: (c.complexity, -float(c.log_density.sum())))
        n, unsound = len(self.candidates), len(self.candidates) - len(sound)
        reason = f"of {n} models {len(sound) - len(allowed)} predict left-out answers worse than "
        reason += "the best by more than chance"
        if unsound:
            reason += f" and {unsound} worse than mean or median, all workers counted alike"
        reason += "; of the others it "
        if winner is likeliest:
            reason += "predicts them best"
        else:
            reason += f"is the simplest that chance cannot tell from the best ({likeliest.name})"
        return winner, reason

    def _worse(self, one: Candidate, other: Candidate) -> float:
        """By how many standard errors one predicts worse than the other, in squared error."""
        difference = one.squared - other.squared
        error = self._error(difference)
        return float(difference.sum()) / error if error > 0 else 0.0

    def _critical_value(self, n_comparisons: int) -> float:
        """Student's t at the level that keeps the chance of a wrong exclusion, of any, small."""
        freedom = max(min(len(np.unique(owner)) for owner in self._owners) - 1, 1)
        return float(stdtrit(freedom, 1.0 - _LEVEL / max(n_comparisons, 1)))

    def _error(self, per_answer: Floats) -> float:
        """Standard error of a sum over answers: those of a worker go together, and of a task."""
        return max(error_of_sum(_sums(owner, per_answer)) for owner in self._owners)

    def _find_owners(self) -> list[Codes]:
        """What answers may have errors in common by: their task, and their worker.

        How workers differ cannot be told from fewer than five. Where some truths are known, so
        that no average of theirs is taken for true, it is these workers alone that matter.
        """
        task, worker = self.answers.task[self.usable], self.answers.worker[self.usable]
        few = len(np.unique(worker)) < FEWEST_TO_TELL
        return [task] if few and self.answers.is_gold.any() else [task, worker]

    def hedge(self, audit: Audit, freedom: float | None) -> Hedge:
        """How far moving to mean or median improves a model's predictions for certain (M39).

        Under tails of so many degrees of ``freedom`` an answer that is far off counts less.

        The share lambda of the simple method minimises the weighted squared error of the mixed
        prediction; what is below the error of chance is what is shown.
        """
        residual = (self.answers.value - audit.predicted)[self.usable]
        tails = np.ones_like(residual)
        if freedom is not None:
            spread = audit.predicted_sd[self.usable] ** 2 / tail_variance(freedom)
            tails = (freedom + 1.0) / (freedom + residual**2 / spread)
        best = Hedge("mean", 0.0)
        for name, simple in self._others.items():
            move = (simple - audit.truth)[self.usable]
            # It must show whichever way the workers count.
            shown = min(
                self._shown(weight * tails, residual, move)
                for weight in (self._weight, 1.0 / self._scale**2)
            )
            if shown > best.share:
                best = Hedge(name, float(min(shown, 1.0)))
        return best

    def _shown(self, weight: Floats, residual: Floats, move: Floats) -> float:
        """The share of a move that lowers the squared error most, less what chance may do."""
        gain = (weight * residual * move).sum(axis=1)
        size = (weight * move**2).sum(axis=1)
        if size.sum() <= _ROUNDING * (weight * residual**2).sum():
            return 0.0
        chance = self._critical_value(1) * self._jackknife(gain, size)
        return float(gain.sum() / size.sum()) - chance

    def _jackknife(self, gain: Floats, size: Floats) -> float:
        """Standard error of a ratio of sums: how it moves as each worker, or task, is left out.

        Where few tasks hold most of both sums, as with counts of very different size, the ratio
        fits those few, and residuals about it would show no error.
        """
        errors = []
        for owner in self._owners:
            rest = size.sum() - _sums(owner, size)
            n = len(rest)
            if n < 2 or rest.min() <= 0:
                return float("inf")
            ratio = (gain.sum() - _sums(owner, gain)) / rest
            errors.append(np.sqrt((n - 1) / n * ((ratio - ratio.mean()) ** 2).sum()))
        return float(max(errors))

    def table(self) -> list[dict[str, Any]]:
        """The scores of all, as JSON can hold them."""
        best = min(self.candidates, key=lambda c: float(c.squared.sum()))
        return [
            {
                "model": c.name,
                "log_score": float(c.log_density.mean()),
                "squared_error": float(c.squared.mean() / best.squared.mean())
                if best.squared.mean() > 0
                else 1.0,
                "standard_errors_worse": self._worse(c, best),
                "to_mean_or_median": float(c.plain.sum() / (self._simple.sum() or 1.0)),
                "scatter_left": float(c.judged.line.sum() / (self._line.sum() or 1.0)),
                "coverage_95": c.result.audit.coverage_95 if c.result.audit else None,
            }
            for c in self.candidates
        ]


def _sums(owner: Codes, per_answer: Floats) -> Floats:
    """Sum over the answers of each owner who has any."""
    return np.bincount(owner, per_answer)[np.bincount(owner) > 0].astype(np.float64)


def describe(noise: Noise, support: Support) -> str:
    """Name a noise model in words fit for a sentence."""
    name = "workers alike" if support == "common" else "workers differ in noise"
    if noise.bias:
        name += " but for bias" if support == "common" else " and bias"
    name += ", heavy tails" * (noise.tails == "learn") + ", tasks in difficulty" * noise.difficulty
    return name + ", truths drawn to the usual" * (noise.truths == "learn")


def usable_answers(answers: Answers) -> Mask:
    """Answers that can be held against at least two others, or against one if none can.

    Who gives the same answer to every task says nothing of any, and is no judge of predictions.
    """
    degree = answers.task_degree[answers.task]
    open_task = ~answers.is_gold[answers.task]
    judges = _varied_workers(answers)[answers.worker]
    for enough in ((degree >= 3) & open_task, (degree == 2) & open_task):
        if (enough & judges).any():
            return np.asarray(enough & judges)
        if enough.any():
            return np.asarray(enough)
    return np.zeros(answers.n_edges, dtype=bool)


def _varied_workers(answers: Answers) -> Mask:
    """Workers who do not always say the same, or have said too little to tell."""
    ordered = answers.value[answers.by_worker]
    first = answers.worker_ptr[:-1]
    spread = np.maximum.reduceat(ordered, first) - np.minimum.reduceat(ordered, first)
    return np.asarray((spread > 0).any(axis=1) | (answers.worker_degree < FEWEST_TO_TELL))
