"""Auto: compare noise models by leave-one-out prediction, average the best, and calibrate."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from voxpop.arrays import Floats, Mask
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, weighted_means
from voxpop.errors import ConvergenceWarning
from voxpop.estimators.auto.average import Average, average, log_score, mixed
from voxpop.estimators.auto.choose_scale import ScaleChoice, choose_scale
from voxpop.estimators.auto.compare import ACCURACY, Candidate, ModelComparison, scores_table
from voxpop.estimators.auto.panel import checked_by_gold
from voxpop.estimators.auto.screen import enter_models, screen
from voxpop.estimators.auto.subset import neighbourhood, usable_answers
from voxpop.estimators.auto.suggest_scale import suggest_scale
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.baselines.averages import Average as Mean
from voxpop.estimators.baselines.averages import Median
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bi.groups_apart import fit_groups
from voxpop.estimators.bi.growth import learned_before
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.large_fit import LargeFit
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.estimators.learn_map import learn_map
from voxpop.estimators.make_result import without_intervals
from voxpop.estimators.on_scale import fit_on_scale, with_settings
from voxpop.estimators.shared import with_shared_error
from voxpop.estimators.within_bounds import keep_bounds, refuse_bounds
from voxpop.estimators.within_reach import fit_within_reach
from voxpop.inference.engine import Engine, host_backend
from voxpop.models.noise import Noise
from voxpop.models.scale import SCALES, Scale, ScaleName, check_scale
from voxpop.results.calibration import Calibration
from voxpop.results.diagnosis.doubtful_gold import doubts_about_gold
from voxpop.results.diagnosis.groups import find_groups
from voxpop.results.own_noise import with_own_noise
from voxpop.results.result import Result, Trace
from voxpop.results.shared_error import SharedError, SharedErrorOption

UNSETTLED = (
    "the iteration stopped before it converged; raise max_iter, or take the "
    "estimates as approximate"
)
_NOTHING = (
    "every task has one answer, and no truth is known, so nothing shows how far off an answer is; "
    "ask for second answers to some tasks, or give gold"
)


@dataclass(frozen=True, kw_only=True)
class Auto(Estimator):
    """Fit several noise models, and average those that the answers themselves show to be best.

    Each candidate predicts every answer from the others. It is rejected if its squared error is
    significantly above that of the best (over workers and tasks, for all comparisons together), or
    above that of the mean or median once all workers count alike: agreement is then no sign of
    being right. The others are averaged, each with the chance that it would give left-out answers
    of other tasks and workers the highest density (M38)-(M39). Scores are bounded, so that a few
    wild answers cannot decide. Where errors are in proportion to the value and wide, the median is
    left unless a model tells the workers apart (M56)-(M57).

    Parameters
    ----------
    bounds
        Lowest and highest value a truth can have; estimates and intervals stay between them.
    scale
        The scale on which all values have the same noise, as in :func:`voxpop.aggregate`.
        ``bounds`` are the range of a logit, or one turn of a circle. A note says if another scale
        than the linear one fits clearly better; "auto" takes it where gold confirms that (M82).
    shared_error
        Kappa: the variance of an error that all workers share, as a multiple of that of one
        answer. "auto" is a prior from public crowds, from which gold learns; 0 allows for no such
        error, and intervals are then those of agreement.
    contest_answers
        With more answers than this, times coordinates, models are compared on a part of the tasks,
        a richer model has to be worth its cost, and only the best is fitted to all answers. It
        takes over what it learned on the part: on all answers only the shares of the levels and
        the spread of biases are learned further, until a sweep moves estimates by half a per cent
        of their sds.
    max_iter, tol, accuracy, backend, threads
        As in :class:`BI`.
    """

    bounds: tuple[float, float] | None = None
    scale: ScaleName | Literal["auto"] = "auto"
    shared_error: SharedErrorOption = "auto"
    contest_answers: int = 30_000
    max_iter: int = 300
    tol: float = 1e-7
    accuracy: float = 1e-9
    backend: str = "auto"
    threads: int | None = None
    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "averages the noise models that predict left-out answers best"

    def __post_init__(self) -> None:
        if self.scale != "auto":
            check_scale(self.scale)
        SharedError.option(self.shared_error)
        BI(
            noise=Noise(bounds=self.bounds),
            max_iter=self.max_iter,
            tol=self.tol,
            accuracy=self.accuracy,
            backend=self.backend,
            threads=self.threads,
        )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers, with the answers of dependent workers counted once."""
        choice = self._choose_scale(answers)
        scale = SCALES[choice.scale].of(answers, self.bounds)
        there = self.for_scale(scale)
        # A scale with its own range keeps to it.
        bounds = None if there.bounds is None else self.bounds
        refuse_bounds(answers, bounds)
        doubts = doubts_about_gold(answers, scale)
        trusted = doubts.without(answers)

        def independent(answers: Answers) -> Result:
            return there._fit(answers, on_sweep)

        def fit(answers: Answers) -> Result:
            found = fit_on_scale(lambda a: fit_within_reach(independent, a), answers, scale)
            notes = () if found.trace.converged else (UNSETTLED,)
            found = replace(found, notes=(*found.notes, *notes, *choice.notes))
            return keep_bounds(with_settings(found, plain_settings(self)), answers, bounds)

        with warnings.catch_warnings():
            # Reported in a note: a warning from here would name lines that the user has not
            # written.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = fit_groups(fit, trusted, scale.answers(trusted))
        return doubts.restored(found, answers)

    def _choose_scale(self, answers: Answers) -> ScaleChoice:
        if self.scale == "auto":
            most = self.contest_answers // answers.dimension
            engine = self.engine(ACCURACY, answers.n_edges > most)
            return choose_scale(answers, self.bounds, engine, most)
        advice = suggest_scale(answers) if self.scale == "linear" else None
        return ScaleChoice(self.scale, () if advice is None else (advice.summary(),))

    def for_scale(self, scale: Scale) -> Auto:
        """The estimator to fit answers on a scale with."""
        return replace(self, scale="linear", bounds=scale.bounds(self.bounds))

    def _fit(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        groups = find_groups(answers)
        alone = groups.merged if groups else answers
        found = self._fit_independent(alone, on_sweep)
        found = with_own_noise(alone, found) if found.levels.size else found
        return groups.restore(found) if groups else found

    def _fit_independent(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        """Aggregate answers of workers who are independent."""
        part = neighbourhood(answers, self.contest_answers // answers.dimension)
        usable = usable_answers(part)
        if not usable.any():
            reason = "no task has enough answers for leave-one-out prediction"
            result = self._simply(answers, "mean", reason)
            nothing = answers.task_degree.max() == 1 and not answers.is_gold.any()
            return without_intervals(result, _NOTHING) if nothing else result
        comparison = self.compare(part, usable, part is not answers, on_sweep)
        found = average(comparison)
        if found.simple:
            return self._simply(answers, found.simple, found.reason, comparison)
        if comparison.is_part:
            return self._fit_whole(answers, comparison, found, on_sweep)
        return self._calibrate(answers, comparison, found)

    def engine(self, accuracy: float, of_part: bool = False) -> Engine:
        """The engine that computes messages, of all answers or of a part of them."""
        backend = self.backend
        if backend == "auto" or (backend == "gpu" and of_part):
            # For a part of a crowd, GPU kernels take longer to compile than to run.
            backend = host_backend()
        return Engine(backend=backend, accuracy=accuracy, threads=self.threads)

    def compare(
        self, answers: Answers, usable: Mask, is_part: bool, on_sweep: OnSweep | None
    ) -> ModelComparison:
        """Fit the noise models worth comparing to the same answers, and score their predictions."""
        comparison = ModelComparison(
            prepare(answers), usable, self.engine(ACCURACY, is_part), is_part, on_sweep
        )
        flat = Noise(bounds=self.bounds)
        comparison.enter(flat, "auto")
        comparison.enter(flat, "common")
        enter_models(comparison, flat)
        if comparison.has_gold and not is_part:
            # Where most workers share an error, only gold shows who does not.
            for noise in (flat, flat.learning("bias", "truths")):
                comparison.enter(noise, "auto", by_gold=True)
        while near := screen(comparison):
            comparison.integrate(near)
            # If integrals show that the best model is unsound, another may be the best.
            enter_models(comparison, flat)
        return comparison

    def _fit_whole(
        self,
        answers: Answers,
        comparison: ModelComparison,
        found: Average,
        on_sweep: OnSweep | None,
    ) -> Result:
        """Fit the best model of a part to all answers of a large crowd."""
        best = found.candidates[0]
        known = best.fitted
        settings = contest_settings(self, found, comparison)

        def fit(answers: Answers) -> Result:
            data = prepare(answers, known.scale)
            freeing = learned_before(answers, best.noise)
            engine = self.engine(self.accuracy)
            whole = LargeFit(data, best.noise, engine, best.support, freeing=freeing)
            fitted = whole.fit_from_subset(known, self.max_iter, on_sweep)
            result = self._shared(answers, fitted.result(settings, best.audit))
            return self._mapped(result, answers, fitted.hidden.estimate)

        result = fit(answers)
        result = replace(
            result, alike_share=found.alike_share, notes=(found.summary(), *result.notes)
        )
        return checked_by_gold(fit, answers, result)

    def _calibrate(self, answers: Answers, comparison: ModelComparison, found: Average) -> Result:
        """Mix the posteriors of the models, stretch the intervals, and say what was done."""
        settings = contest_settings(self, found, comparison)
        workers = _tells_workers_apart(comparison, found)
        audit = found.mixed_audit(comparison)
        stretch = Calibration(stretch=max(audit.stretch, 1.0))

        def combine(answers: Answers, fits: Sequence[NoiseFitted], workers: NoiseFitted) -> Result:
            posterior = mixed([fit.posterior for fit in fits], found.weights)
            hidden = mixed([fit.hidden for fit in fits], found.weights)
            result = workers.result(settings, posterior=posterior, audit=audit)
            # Each model has converged by itself: there is no single iteration to report.
            result = replace(result, alike_share=found.alike_share, trace=Trace())
            result = self._shared(answers, result.calibrated(stretch))
            return self._mapped(result, answers, hidden.estimate)

        def again(other: Answers) -> Result:
            data = prepare(other, comparison.data.scale)

            def fit(candidate: Candidate) -> NoiseFitted:
                freeing = learned_before(other, candidate.noise)
                model = candidate.noise, comparison.engine, candidate.support
                fit = NoiseFit(data, *model, by_gold=candidate.by_gold, freeing=freeing)
                fit.learn(self.max_iter, levels=None if freeing else comparison.levels)
                fit.refine()
                return fit.fitted(ACCURACY)

            fits = [fit(candidate) for candidate in found.candidates]
            return combine(other, fits, fits[0])

        fits = [candidate.fitted for candidate in found.candidates]
        result = combine(answers, fits, workers.fitted)
        result = replace(result, notes=(found.summary(), *result.notes))
        return checked_by_gold(again, answers, result)

    def _shared(self, answers: Answers, result: Result) -> Result:
        return with_shared_error(answers, result, self.shared_error, self.bounds)

    def _simply(
        self,
        answers: Answers,
        method: str,
        reason: str,
        comparison: ModelComparison | None = None,
    ) -> Result:
        """Take the mean or the median, where there is nothing to compare or nothing is sound."""
        is_median = method == "median"
        estimator = Median() if is_median else Mean()
        # What the estimates of gold tasks would be without their truths.
        hidden = medians(answers) if is_median else weighted_means(answers)

        def fit(answers: Answers) -> Result:
            result = self._shared(answers, estimator.fit(answers))
            return self._mapped(result, answers, hidden[answers.is_gold])

        result = fit(answers)
        found = Average((), np.empty(0), reason, method)
        settings = {**result.settings, **contest_settings(self, found, comparison)}
        notes = (f"used the {method}: {reason}", *result.notes)
        result = replace(result, settings=settings, notes=notes)
        return checked_by_gold(fit, answers, result)

    def _mapped(self, result: Result, answers: Answers, hidden: Floats) -> Result:
        """Map estimates as gold tasks show, given what their estimates would be without gold."""
        if answers.gold is None:
            return result
        gold_map = learn_map(hidden, answers.gold[answers.is_gold], self.bounds)
        if gold_map is None:
            return result
        result = result.calibrated(Calibration(gold_map=gold_map))
        return replace(result, notes=(*result.notes, gold_map.summary(answers.value_names)))


def contest_settings(
    auto: Auto, found: Average, comparison: ModelComparison | None
) -> dict[str, object]:
    """Arguments, and what was decided from the answers."""
    settings = plain_settings(auto) | {"chosen": found.name, "reason": found.reason}
    if comparison is not None:
        settings |= {
            "averaged": {
                candidate.name: round(weight, 3)
                for candidate, weight in zip(found.candidates, found.weights.tolist(), strict=True)
            },
            "contest": scores_table(comparison),
            "contest_answers_used": comparison.data.answers.n_edges,
        }
    return settings


def _tells_workers_apart(comparison: ModelComparison, found: Average) -> Candidate:
    """The model that describes the workers: the heaviest, or the likeliest, with noise levels.

    A model in which workers are equal would say the same about every worker, with certainty.
    """
    averaged = [c for c in found.candidates if c.support == "auto"]
    apart = [c for c in comparison.candidates if c.support == "auto"]
    return averaged[0] if averaged else max(apart, key=log_score)
