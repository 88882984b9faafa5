"""The default over parts: models compared on tasks near each other, the best fitted to all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import exact_sum
from voxpop.errors import ConvergenceWarning, DataError
from voxpop.estimators.auto.auto import UNSETTLED, Auto
from voxpop.estimators.auto.choose_scale import ScaleChoice, confirmed_by_gold
from voxpop.estimators.auto.compare import ACCURACY
from voxpop.estimators.auto.gold_checks import judges
from voxpop.estimators.auto.suggest_scale import MOST_COMPARED, suggest_by_part
from voxpop.estimators.base import OnSweep, plain_settings
from voxpop.estimators.bi.beliefs import log_levels, softmax
from voxpop.estimators.bi.large_fit import FINAL_ACCURACY
from voxpop.estimators.bi.noise_fit import (
    audit_of,
    find_posterior,
    integrated_sweeps,
    sweep_parameters,
)
from voxpop.estimators.bi.noise_fitted import NoiseFitted, together
from voxpop.estimators.conformal import calibration_by_gold
from voxpop.estimators.judges import are_judges
from voxpop.estimators.learn_map import learn_map
from voxpop.estimators.plug_in import MOST_KEPT
from voxpop.estimators.shared import residuals, worker_weights
from voxpop.inference.groups import SweepParameters, WorkerBias
from voxpop.models.noise import Noise
from voxpop.models.noise.difficulty import Difficulty
from voxpop.models.scale import LINEAR, Scale
from voxpop.partitions.audit import audit_counts, audit_of_counts, distances
from voxpop.partitions.contest import Contest, hold_contest
from voxpop.partitions.finish import finish, found_result, keep_found, no_answers
from voxpop.partitions.hidden import count_gold, hide_gold_in_parts
from voxpop.partitions.nearby import CrowdInParts
from voxpop.partitions.noise import (
    PartitionedFit,
    PartitionedNoise,
    anchored_parts,
    parts_of_crowd,
)
from voxpop.partitions.passing import Incoming
from voxpop.partitions.select import quantiles
from voxpop.partitions.steps import Part, Steps, Totals, joined
from voxpop.partitions.units import Units, Values, put_on_scale
from voxpop.results.audit import Audit, stretch_of, stretch_rank
from voxpop.results.calibration import PROBABILITIES, Calibration
from voxpop.results.gold_map import GoldMap
from voxpop.results.result import Result, Trace
from voxpop.results.scaled import audit_in_units
from voxpop.results.shared_error import SharedError, mean_square, square_sums

_DISTANCE = "distance.npy"
_NO_JUDGES = (
    "a few workers answered most tasks: --engine local also tries to regress the known truths on "
    "their answers"
)


def fit_default(
    auto: Auto, steps: Steps, scratch: Path, on_sweep: OnSweep | None
) -> tuple[Result, str]:
    """Fit the default; the tables of the tasks are in the folder of the run then."""
    parts = steps.job.parts
    values, crowd = Values(steps, scratch), CrowdInParts(steps, scratch)
    choice = _choose_scale(auto, values, crowd)
    scale = values.scale(choice.scale, auto.bounds)
    there = auto.for_scale(scale)
    # A scale with its own range keeps to it.
    bounds = None if there.bounds is None else auto.bounds
    outside = values.within(bounds)
    if scale != LINEAR:
        put_on_scale(steps, scale)
        crowd = CrowdInParts(steps, scratch)
    near = crowd.near(auto.contest_answers // parts.dimension)
    contest = hold_contest(there, near, parts.store, on_sweep)
    fit = WholeFit(there, steps, contest, Units(scale, bounds, plain_settings(auto)), on_sweep)
    known = fit.run(crowd.typical_degree)
    known = _checked_by_gold(known, fit, crowd)
    none, found = no_answers(parts, parts.worker_ids(scratch))
    classes = np.empty((0, len(known.fitted.parameters[Difficulty].steps)))
    unsettled = () if known.fitted.trace.converged else (UNSETTLED,)
    notes = (*unsettled, *choice.notes, *outside)
    return finish(steps, known, known.result(none, (found, classes)), True, fit.units, notes)


def _choose_scale(auto: Auto, values: Values, crowd: CrowdInParts) -> ScaleChoice:
    """Choose a scale, as for answers in memory."""
    if auto.scale not in ("auto", "linear") or len(crowd.ends[0]) > 1:
        return ScaleChoice("linear" if auto.scale == "auto" else auto.scale)
    part = crowd.near(MOST_COMPARED)
    outermost = replace(part, task=part.task[:2] * 0, worker=part.worker[:2] * 0, value=crowd.ends)
    advice = suggest_by_part(part, outermost)
    if advice is None:
        return ScaleChoice("linear")
    part = crowd.near(auto.contest_answers)
    if auto.scale == "linear" or not judges(part):
        return ScaleChoice("linear", (advice.summary(),))
    try:
        is_turn = auto.bounds is not None and advice.scale == "circular"
        scale = None if is_turn else values.scale(advice.scale, auto.bounds)
    except DataError:
        scale = None
    return confirmed_by_gold(advice, scale, part, auto.engine(ACCURACY, of_part=True))


@dataclass(frozen=True, eq=False)
class WholeFit:
    """The best model of the contest, fitted to all answers as the job shows them."""

    auto: Auto
    steps: Steps
    contest: Contest
    units: Units
    on_sweep: OnSweep | None

    def run(self, typical_degree: float) -> KnownNoise:
        """Fit it, as :meth:`LargeFit.fit_from_subset` does."""
        steps, parameters, noise = self.steps, self.contest.parameters, self.contest.noise
        counts = steps.total(count_gold)
        engine = self.auto.engine(self.auto.accuracy)
        connected = parts_of_crowd(steps, parameters, noise)
        anchored = anchored_parts(connected, counts.get("anchored"))
        fit = PartitionedFit(noise, engine, self.contest.support, connected, anchored)
        n_open = steps.job.parts.n_tasks - int(counts["gold"][0])
        messages = PartitionedNoise(steps, engine, self.contest.scale, parameters, n_open)
        n_integrated = integrated_sweeps(typical_degree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            trace = fit.settle_from(
                parameters, cast(Any, messages), n_integrated, self.auto.max_iter, self.on_sweep
            )
        known, gold_map = _find_tasks(fit, messages, self)
        known = replace(known, fitted=replace(known.fitted, trace=trace))
        shared = _shared_error(self.auto, steps, known, counts)
        if gold_map is not None:
            names = steps.job.parts.value_names
            known = replace(known, notes=(*known.notes, gold_map.summary(names)))
        return replace(known, calibration=Calibration(shared=shared, gold_map=gold_map))


def _checked_by_gold(known: KnownNoise, fit: WholeFit, crowd: CrowdInParts) -> KnownNoise:
    """Do as :func:`voxpop.estimators.auto.panel.checked_by_gold`, but for its judges."""
    parts, steps = fit.steps.job.parts, fit.steps
    n_gold = int(steps.total(count_gold)["gold"][0]) if parts.whole.has_gold else 0
    if n_gold in (0, parts.n_tasks):
        return known
    notes = known.notes
    if are_judges(parts.worker_degree, parts.n_tasks, n_gold):
        notes = (*notes, _NO_JUDGES)
    by_gold, note = calibration_by_gold(
        n_gold,
        known.calibration.shared,
        lambda: hide_gold_in_parts(steps, lambda: fit.run(crowd.typical_degree)),
    )
    calibration = known.calibration if by_gold is None else known.calibration.then(by_gold)
    return replace(known, calibration=calibration, notes=(*notes, note))


def find_noise_tasks(
    part: Part,
    incoming: Incoming,
    noise: Noise,
    given: SweepParameters,
    bias: WorkerBias | None,
    shift_variance: Floats | None,
    difficulty: Difficulty,
) -> Totals:
    """Store the posterior of the tasks of a part under a noise model.

    Return sums of the tasks' difficulties, and estimates of gold tasks beside the truths.
    """
    incoming.put(part)
    answers, messages = part.answers, part.messages
    found, classes = find_posterior(messages, answers, noise, given, bias, shift_variance)
    keep_found(part, (found, classes))
    totals: Totals = {"multiple": exact_sum(difficulty.log_multiple(classes))}
    if answers.gold is not None:
        gold = answers.is_gold
        hidden = messages.posterior_and_classes(PROBABILITIES, given, bias, hidden=True)[0]
        totals |= part.own(hidden=hidden.estimate[gold], truth=answers.gold[gold])
    return totals


def audit_noise(
    part: Part, incoming: Incoming, given: SweepParameters, bias: WorkerBias | None, scale: Scale
) -> Totals:
    """Compare every answer of a part with its prediction from the others, and store how far it is.

    Return counts for the audit.
    """
    incoming.put(part)
    answers = part.answers
    audit = audit_of(answers, part.messages.predict(given, bias, True))
    part.store.write_array(part.kept(_DISTANCE), distances(audit).reshape(-1, 1))
    if scale != LINEAR:
        answers = part.given
        audit = audit_in_units(answers, scale, audit)
    return audit_counts(answers, audit, scale)


def stored_distances(part: Part) -> Floats:
    """Return how far the answers of a part are from their predictions, in sds."""
    return part.store.read_array(part.kept(_DISTANCE))


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """What the default knows about all answers; ``fitted`` has neither answers nor posterior."""

    fitted: NoiseFitted
    usual: float
    settings: dict[str, Any]
    audit: Audit
    alike_share: float
    notes: tuple[str, ...]
    own: tuple[Floats, Floats] | None = None
    calibration: Calibration = field(default_factory=Calibration)

    def result(self, answers: Answers, found: Any) -> Result:
        """Make the result of a part."""
        posterior, classes = found[:2]
        difficulty = self.fitted.parameters[Difficulty]
        fitted = replace(
            self.fitted,
            answers=answers,
            posterior=posterior,
            columns=together(difficulty.columns(classes, self.usual), self.fitted.columns),
            hidden=posterior,
        )
        result = fitted.result(self.settings, self.audit)
        if self.calibration != Calibration():
            result = result.calibrated(self.calibration)
        if self.own is not None:
            result = replace(result, worker_variance=self.own[0], worker_interval=self.own[1])
        notes = (*self.notes, *result.notes)
        return replace(result, alike_share=self.alike_share, notes=notes)

    def with_noise(self, result: Result) -> KnownNoise:
        """Take the workers' noise from a result."""
        return replace(self, own=(result.worker_variance, result.worker_interval))


def _find_tasks(
    fit: PartitionedFit, messages: PartitionedNoise, about: WholeFit
) -> tuple[KnownNoise, GoldMap | None]:
    """Do as :meth:`NoiseFit.fitted` does, part by part; return also the errors on gold."""
    contest, steps = about.contest, about.steps
    parts, scale = steps.job.parts, contest.scale
    given = sweep_parameters(fit._parameters, FINAL_ACCURACY)
    beliefs, bias = fit._beliefs()
    messages.settle_shift()
    parameters = fit._parameters
    difficulty = parameters[Difficulty]
    zero = None if bias is None else bias.shift_variance * scale**2
    call = partial(
        find_noise_tasks, incoming=messages.incoming, noise=fit._noise, given=given,
        bias=beliefs.bias(0.0), shift_variance=zero, difficulty=difficulty,
    )  # fmt: skip
    totals = steps.total(call, "reads")
    if parts.n_answers * parts.dimension <= MOST_KEPT:
        audit = _audit(fit, messages, steps, about.units.scale)
    else:
        audit = about.units.summary_of(steps, contest.audit)
    usual = difficulty.usual_of(totals["multiple"], parts.n_tasks)
    variance = parameters.answer_variance * float((scale**2).mean())
    none, nothing = no_answers(parts)
    fitted = NoiseFitted(
        answers=none,
        posterior=nothing,
        level_posterior=softmax(log_levels(fit._messages)),
        parameters=parameters,
        answer_variance=variance * usual,
        columns=bias.columns(scale) if bias else {},
        audit=None,
        trace=Trace(),
        learning_sweeps=fit._n_learned,
        scale=scale,
        on_grid=fit._on_grid,
        hidden=nothing,
    )
    # What the workers were summed up from is as large as all that is known of them.
    none_of_them = fitted.level_posterior[:0]
    fitted = replace(fitted, workers=fitted.sum_up_workers(), level_posterior=none_of_them)
    facts = contest.settings, audit, contest.alike_share, contest.notes
    gold_map = None
    if parts.whole.has_gold:
        hidden, truth = joined(totals, parts.n_parts, "hidden", "truth")
        gold_map = learn_map(hidden, truth, about.auto.bounds)
    return KnownNoise(fitted, usual, *facts), gold_map


def _audit(fit: PartitionedFit, messages: PartitionedNoise, steps: Steps, scale: Scale) -> Audit:
    """Do as :meth:`NoiseFit.audit` does: the stretch is exact, other figures are from counts."""
    given = sweep_parameters(fit._parameters, FINAL_ACCURACY)
    bias = fit._beliefs()[0].bias(0.0)
    messages.settle_shift()
    call = partial(audit_noise, incoming=messages.incoming, given=given, bias=bias, scale=scale)
    totals = steps.total(call, "reads")
    audit = audit_of_counts(totals, exact=True)
    if not audit.n_answers:
        return audit
    rank = stretch_rank(int(totals["audit"].sum()))
    return replace(audit, stretch=stretch_of(quantiles(steps, stored_distances, rank)[0]))


def residual_terms(
    part: Part, known: KnownNoise, with_gold: bool, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return answers to tasks that have several, minus their estimates, with variances and weights.

    Those to gold tasks count ``with_gold``.
    """
    answers = part.answers
    counted = (answers.task_degree > 1) & (with_gold | ~answers.is_gold)
    edges = np.flatnonzero(counted[answers.task])
    return residuals(answers, found_result(part, answers, known), edges, weight)


def residual_sizes(part: Part, known: KnownNoise, with_gold: bool) -> Floats:
    """Return the sizes of the residuals of a part."""
    return np.abs(residual_terms(part, known, with_gold, np.ones(part.answers.n_workers))[0])


def sum_squares(
    part: Part, known: KnownNoise, with_gold: bool, weight: Floats, quartile: Floats
) -> Totals:
    """Sum the squares of residuals, each cut at a multiple of their upper quartile."""
    terms = residual_terms(part, known, with_gold, weight)
    return {"squares": square_sums(*terms, quartile)}


def _shared_error(
    auto: Auto, steps: Steps, known: KnownNoise, counts: Mapping[str, Any]
) -> SharedError | None:
    """Do as :func:`voxpop.estimators.shared.with_shared_error` does."""
    shared = SharedError.option(auto.shared_error)
    if shared is None or not counts["several"][0] or steps.job.hidden is not None:
        return None
    parts = steps.job.parts
    # The share of models with equal workers is known only after this, as in memory.
    known, with_gold = replace(known, alike_share=0.0), not counts["open"][0]
    none, found = no_answers(parts)
    n_classes = len(known.fitted.parameters[Difficulty].steps)
    result = known.result(none, (found, np.empty((0, n_classes))))
    weight = worker_weights(result, parts.worker_degree)
    quartile = quantiles(steps, partial(residual_sizes, known=known, with_gold=with_gold), 0.75)
    call = partial(sum_squares, known=known, with_gold=with_gold, weight=weight, quartile=quartile)
    one = mean_square(steps.total(call)["squares"])
    return replace(shared, answer_variance=tuple(one.tolist()), bounds=auto.bounds)
