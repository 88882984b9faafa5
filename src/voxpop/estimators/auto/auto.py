"""Auto: compare noise models by leave-one-out prediction, choose one, refit it and calibrate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from voxpop.data.answers import Answers
from voxpop.estimators.auto.choose import Choice, choose, squared_error
from voxpop.estimators.auto.compare import Candidate, ModelComparison
from voxpop.estimators.auto.shrinkage import find_shrinkage
from voxpop.estimators.auto.subset import Mask, neighbourhood, usable_answers
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.baselines.averages import Average
from voxpop.estimators.bi.bi import BI, Support
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.conformal import widen_by_gold
from voxpop.inference.engine import Engine
from voxpop.models.noise import COMPONENTS, Noise
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration
from voxpop.results.diagnosis.groups import find_groups
from voxpop.results.result import Result

# Error of an integral that is good enough for a comparison.
_COMPARED_ACCURACY = 1e-4
# Settings of the winner that the result keeps.
_KEPT = ("support_used", "weights_used", "inference_used", "columns")


@dataclass(frozen=True, kw_only=True)
class Auto(Estimator):
    """Fit several noise models, and keep the one that the answers themselves show to be best.

    Each candidate predicts every answer from the others. It is rejected if its squared error is
    significantly above that of the best (over workers and tasks, for all comparisons together), or
    above that of the mean or median once all workers count alike: agreement is then no sign of
    being right. The simplest of the rest whose log density is not significantly below the highest
    is kept. Its estimates are shrunk towards the mean or median, as far as that significantly
    improves its predictions (M38)-(M39).

    Parameters
    ----------
    bounds
        Lowest and highest value a truth can have.
    contest_answers
        With more answers than this, times coordinates, models are compared on a part of the tasks,
        and a richer model has to be worth its cost. The winner takes over what it learned there: on
        all answers only the shares of the levels and the spread of biases are learned further, and
        messages settle to half a per cent, which moves no estimate by a hundredth of its sd.
    max_iter, tol, accuracy, backend, threads
        As in :class:`BI`.
    """

    bounds: tuple[float, float] | None = None
    contest_answers: int = 30_000
    max_iter: int = 300
    tol: float = 1e-7
    accuracy: float = 1e-9
    backend: str = "auto"
    threads: int = 1
    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "compares noise models by leave-one-out prediction and keeps the best"

    def __post_init__(self) -> None:
        self._bi(Noise(bounds=self.bounds), "auto")

    def _bi(self, noise: Noise, support: Support) -> BI:
        return BI(
            support=support,
            noise=noise,
            max_iter=self.max_iter,
            tol=self.tol,
            accuracy=self.accuracy,
            backend=self.backend,
            threads=self.threads,
        )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers, with those of workers who depend on each other counted once."""
        groups = find_groups(answers)
        if groups:
            return groups.restore(self._fit(groups.merged, on_sweep))
        return self._fit(answers, on_sweep)

    def _fit(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        """Aggregate answers of workers who are independent."""
        part = neighbourhood(answers, self.contest_answers // answers.dimension)
        usable = usable_answers(part)
        if not usable.any():
            return self._without_comparison(answers, on_sweep)
        comparison = self._compare(part, usable, part is not answers, on_sweep)
        choice = choose(comparison)
        refitted = self._refit(answers, comparison, choice.candidate, on_sweep)
        return self._calibrate(answers, comparison, choice, refitted)

    def _compare(
        self, answers: Answers, usable: Mask, is_part: bool, on_sweep: OnSweep | None
    ) -> ModelComparison:
        """Fit the noise models worth comparing to the same answers, and score their predictions.

        Whether truths have a distribution worth knowing is decided first, for all that follow, and
        once more for the winner alone.
        """
        engine = Engine(backend=self.backend, accuracy=_COMPARED_ACCURACY, threads=self.threads)
        comparison = ModelComparison(prepare(answers), usable, engine, is_part, on_sweep)
        flat = Noise(bounds=self.bounds)
        comparison.enter(flat, "auto")
        comparison.enter(flat.learning("truths"), "auto")
        base = min(comparison.candidates, key=squared_error).noise
        comparison.enter(flat, "common")
        for component in COMPONENTS:
            if component.compared_alike:
                comparison.enter(base.learning(component.name), "common")
        richer = [base.learning(c.name, *beside) for c in COMPONENTS for beside in c.compared_with]
        for noise in sorted(richer, key=lambda noise: len(noise.learned)):
            comparison.enter(noise, "auto")
        if choose(comparison).candidate.support == "common":
            for component in COMPONENTS:
                if component.refines_alike:
                    comparison.enter(flat.learning(component.name), "common")
        winner = choose(comparison).candidate
        truths: Literal["flat", "learn"] = "flat" if winner.noise.truths == "learn" else "learn"
        comparison.enter(replace(winner.noise, truths=truths), winner.support)
        return comparison

    def _refit(
        self,
        answers: Answers,
        comparison: ModelComparison,
        winner: Candidate,
        on_sweep: OnSweep | None,
    ) -> Refitted:
        """Fit the winner to all answers, from where its comparison stopped."""
        chosen = self._bi(winner.noise, winner.support)
        again = partial(chosen.fit, on_sweep=on_sweep)
        audit = winner.result.audit
        assert audit is not None
        if chosen.is_plain and not comparison.is_part:
            # In several coordinates the comparison has units of its own, and so have its levels.
            if answers.dimension > 1:
                return Refitted(again(answers), audit, again, stretch=True)
            result = chosen.fit_levels(answers, comparison.start[0], on_sweep)
            return Refitted(result, audit, again, stretch=True)
        known = winner.fit.fit(
            self.tol, self.max_iter, self.accuracy, on_sweep, warn=not comparison.is_part
        )
        if not comparison.is_part:
            result = known.result(plain_settings(chosen))
            return Refitted(result, result.audit or audit, again)
        engine = Engine(backend=self.backend, accuracy=self.accuracy, threads=self.threads)
        of_part = known.result({}).audit

        def fit(answers: Answers) -> Result:
            data = prepare(answers, known.scale)
            whole = NoiseFit(data, chosen.noise, engine, chosen.support)
            found = whole.fit_from_subset(known, self.tol, self.max_iter, on_sweep)
            return found.result(plain_settings(chosen), of_part)

        return Refitted(fit(answers), audit, fit)

    def _calibrate(
        self, answers: Answers, comparison: ModelComparison, choice: Choice, refitted: Refitted
    ) -> Result:
        """Shrink the estimates, stretch the intervals, and say what was chosen and why."""
        winner, audit = choice.candidate, refitted.audit
        shrinkage = find_shrinkage(comparison, audit, winner.result.noise.tails)
        result = shrinkage.apply(answers, refitted.result)
        if refitted.stretch:
            stretch = Calibration(stretch=max(audit.stretch, 1.0))
            result = replace(result.calibrated(stretch), audit=audit)
        settings = plain_settings(self) | {
            "chosen": winner.name,
            "reason": choice.reason,
            "contest": comparison.table(),
            "contest_answers_used": comparison.data.answers.n_edges,
            **{name: result.settings[name] for name in _KEPT if name in result.settings},
        }
        sentence = f"chose {winner.name}: {choice.reason}"
        if shrinkage.share:
            sentence += f"; {result.calibration.summary()}, which predicts left-out answers better"
        result = replace(result, settings=settings, notes=(sentence, *result.notes))
        return widen_by_gold(lambda a: shrinkage.apply(a, refitted.again(a)), answers, result)

    def _without_comparison(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        """Without a second answer to any task there is nothing to compare: take the mean."""
        result = Average().fit(answers, on_sweep)
        reason = "no task has enough answers to compare any with the others"
        settings = plain_settings(self) | {"chosen": "mean", "reason": reason}
        return replace(result, settings=settings, notes=(f"took the mean: {reason}",))


@dataclass(frozen=True, eq=False)
class Refitted:
    """The winner fitted to all answers: the result, its audit, and how to fit other answers alike.

    The intervals of the paper's BI, which has no audit of its own, are still to be stretched.
    """

    result: Result
    audit: Audit
    again: Callable[[Answers], Result]
    stretch: bool = False
