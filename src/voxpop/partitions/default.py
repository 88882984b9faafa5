"""The default over parts: models compared on tasks near each other, the best fitted to all."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from scipy.special import ndtri, softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import exact_sum
from voxpop.errors import ConfigError, ConvergenceWarning
from voxpop.estimators.auto.auto import UNSETTLED, Auto, contest_settings
from voxpop.estimators.auto.average import average
from voxpop.estimators.auto.compare import ModelComparison
from voxpop.estimators.auto.subset import connected_part, usable_answers
from voxpop.estimators.auto.suggest_scale import MOST_COMPARED, suggest_by_part
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.bi import Support
from voxpop.estimators.bi.large_fit import FINAL_ACCURACY
from voxpop.estimators.bi.noise_fit import (
    audit_of,
    find_posterior,
    integrated_sweeps,
    sweep_parameters,
    together,
)
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.estimators.plug_in import MOST_KEPT
from voxpop.estimators.shared import allow_for, residuals, worker_weights
from voxpop.inference.groups import SweepParameters, WorkerBias
from voxpop.models.noise import Noise, NoiseParameters
from voxpop.models.noise.difficulty import Difficulty
from voxpop.partitions.audit import audit_counts, audit_of_counts
from voxpop.partitions.finish import finish, found_result, keep_found, no_answers
from voxpop.partitions.nearby import CrowdInParts
from voxpop.partitions.noise import PartitionedFit, PartitionedNoise, parts_of_crowd
from voxpop.partitions.parts import array_bytes
from voxpop.partitions.passing import Heard
from voxpop.partitions.select import quantiles
from voxpop.partitions.steps import Part, Steps, Totals
from voxpop.partitions.store import Store
from voxpop.results.audit import Audit, stretch_of, stretch_rank
from voxpop.results.diagnosis.groups import find_groups
from voxpop.results.result import Result, Trace
from voxpop.results.shared_error import SharedError, mean_square, square_sums

_CONTEST = "contest.pickle"
_LEAST = 1e-12


@dataclass(frozen=True, eq=False)
class Contest:
    """What the comparison on a part of the answers has found, and what to tell of it."""

    noise: Noise
    support: Support
    parameters: NoiseParameters
    scale: Floats
    audit: Audit
    settings: dict[str, Any]
    alike_share: float
    notes: tuple[str, ...]
    last_notes: tuple[str, ...]


def fit_default(
    auto: Auto, steps: Steps, scratch: Path, on_sweep: OnSweep | None
) -> tuple[Result, str]:
    """Fit the default; the tables of the tasks are in the folder of the run then."""
    parts = steps.job.parts
    crowd = CrowdInParts(steps, scratch)
    contest = _contest(auto, crowd, Store(parts.where), parts.dimension, on_sweep)
    noise, parameters = contest.noise, contest.parameters
    engine = auto.engine(auto.accuracy)
    connected = parts_of_crowd(steps, parameters, noise)
    fit = PartitionedFit(steps, noise, engine, contest.support, connected)
    messages = PartitionedNoise(steps, engine, contest.scale, parameters)
    n_integrated = integrated_sweeps(crowd.typical_degree)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        trace = fit.settle_from(
            parameters, cast(Any, messages), n_integrated, auto.max_iter, on_sweep
        )
    known = _find_tasks(fit, messages, steps, contest)
    known = replace(known, fitted=replace(known.fitted, trace=trace))
    known = _allow_for_shared(auto, steps, crowd, known)
    none, found = no_answers(parts, parts.worker_ids(scratch))
    result = known.result(none, (found, np.empty((0, len(fit._parameters[Difficulty].steps)))))
    last = () if trace.converged else (UNSETTLED,)
    return finish(steps, known, result, True, (*last, *contest.last_notes))


def _contest(
    auto: Auto, crowd: CrowdInParts, store: Store, dimension: int, on_sweep: OnSweep | None
) -> Contest:
    """Compare noise models, unless that was done before the run was stopped."""
    limit = auto.contest_answers // dimension
    part = connected_part(crowd, limit)
    looked_at = part
    if dimension == 1 and limit != MOST_COMPARED:
        looked_at = connected_part(crowd, MOST_COMPARED)
    kept = store.read(_CONTEST)
    if kept is None:
        found = _compare(auto, part, _suggested(looked_at, crowd.ends), on_sweep)
        kept = pickle.dumps(found)
        store.write(_CONTEST, kept)
    contest: Contest = pickle.loads(kept)
    return contest


def _suggested(part: Answers, ends: Floats) -> tuple[str, ...]:
    """Suggest another scale, as for answers in memory."""
    if part.dimension > 1:
        return ()
    outermost = replace(part, task=part.task[:2] * 0, worker=part.worker[:2] * 0, value=ends)
    advice = suggest_by_part(part, outermost)
    return () if advice is None else (advice.summary(),)


def _compare(
    auto: Auto, part: Answers, last_notes: tuple[str, ...], on_sweep: OnSweep | None
) -> Contest:
    usable = usable_answers(part)
    if not usable.any():
        raise ConfigError(
            "no task has enough answers to compare any with the others; answers in parts take "
            "--method bi then, or --engine local"
        )
    comparison = auto.compare(part, usable, True, on_sweep)
    found = average(comparison)
    notes: tuple[str, ...] = ()
    if found.candidates and _needs_all(found.candidates[0].noise):
        left = found.name
        kept = [c for c in comparison.candidates if not _needs_all(c.noise)]
        found = average(_only(comparison, kept))
        notes = (
            f"{left} would have been chosen, and needs all answers in memory: it was left out; "
            "--engine local fits it",
        )
    if found.simple:
        raise ConfigError(
            f"the default would take the {found.simple} here ({found.reason}), which is not done "
            "in parts; use --engine local, or --method bi"
        )
    if find_groups(part):
        notes = (
            *notes,
            "some workers agree far more than the others explain, and answers in parts do not "
            "count them as one; --engine local does",
        )
    best = found.candidates[0]
    return Contest(
        best.noise,
        best.support,
        best.fitted.parameters,
        best.fitted.scale,
        Audit.from_dict(best.audit.to_dict()),
        contest_settings(auto, found, comparison),
        found.alike_share,
        (found.summary(), *notes),
        last_notes,
    )


def _needs_all(noise: Noise) -> bool:
    """Tell whether a model is not fitted in parts.

    Gains and growth are learned before any message, from all answers at once; the parts do not know
    the states of careless workers.
    """
    return noise.gain or noise.growth or noise.careless


def _only(comparison: ModelComparison, kept: list[Any]) -> ModelComparison:
    comparison.candidates = kept
    return comparison


@dataclass(frozen=True, eq=False)
class FindNoiseTasks:
    """Find what is known of the tasks of a part under a noise model, and keep it."""

    heard: Heard
    noise: Noise
    given: SweepParameters
    bias: WorkerBias | None
    shift_variance: Floats | None
    difficulty: Difficulty
    kind: ClassVar[str] = "reads"

    def run(self, part: Part) -> Totals:
        """Return sums of the tasks' difficulties."""
        self.heard.put(part)
        answers, messages = part.answers, part.messages
        found, classes = find_posterior(
            messages, answers, self.noise, self.given, self.bias, self.shift_variance
        )
        keep_found(part, (found, classes))
        return {"multiple": exact_sum(self.difficulty.log_multiple(classes))}


@dataclass(frozen=True, eq=False)
class AuditNoise:
    """Hold every answer against its prediction from the others."""

    heard: Heard
    given: SweepParameters
    bias: WorkerBias | None
    kind: ClassVar[str] = "reads"

    def run(self, part: Part) -> Totals:
        """Return counts for the audit; how far answers are off is kept."""
        self.heard.put(part)
        answers = part.answers
        audit = audit_of(answers, part.messages.predict(self.given, self.bias, True))
        pit = np.clip(audit.pit[np.isfinite(audit.pit).all(axis=1)], _LEAST, 1.0 - _LEAST)
        distance = array_bytes(np.abs(ndtri(pit)).reshape(-1, 1))
        Store(part.job.parts.where).write(_distance_name(part), distance)
        return audit_counts(answers, audit)


def _distance_name(part: Part) -> str:
    return f"tasks/{part.number:05d}.distance.npy"


@dataclass(frozen=True, eq=False)
class Distances:
    """How far answers are from their predictions, in sds."""

    def sizes(self, part: Part) -> Floats:
        """Return those of a part."""
        kept = Store(part.job.parts.where).read(_distance_name(part))
        return np.asarray(np.load(BytesIO(kept or b"")))


@dataclass(frozen=True, eq=False)
class KnownNoise:
    """What the default knows of all answers; ``fitted`` has neither answers nor posterior."""

    fitted: NoiseFitted
    usual: float
    settings: dict[str, Any]
    audit: Audit
    alike_share: float
    notes: tuple[str, ...]
    own: tuple[Floats, Floats] | None = None
    shared: tuple[SharedError, Floats, tuple[float, float] | None] | None = None

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
        if self.shared is not None:
            result = allow_for(result, *self.shared)
        if self.own is not None:
            result = replace(result, worker_variance=self.own[0], worker_interval=self.own[1])
        notes = (*self.notes, *result.notes)
        return replace(result, alike_share=self.alike_share, notes=notes)

    def with_noise(self, result: Result) -> KnownNoise:
        """Take the workers' noise from a result."""
        return replace(self, own=(result.worker_variance, result.worker_interval))


def _find_tasks(
    fit: PartitionedFit, messages: PartitionedNoise, steps: Steps, contest: Contest
) -> KnownNoise:
    """Do as :meth:`NoiseFit.fitted` does, part by part."""
    parts, scale = steps.job.parts, contest.scale
    given = sweep_parameters(fit._parameters, FINAL_ACCURACY)
    beliefs, bias = fit._beliefs()
    messages.settle_shift()
    parameters = fit._parameters
    difficulty = parameters[Difficulty]
    zero = None if bias is None else bias.shift_variance * scale**2
    about = given, beliefs.bias(0.0), zero, difficulty
    totals = steps.total(FindNoiseTasks(messages.heard, fit._noise, *about))
    audit = contest.audit
    if parts.n_answers * parts.dimension <= MOST_KEPT:
        audit = _audit(fit, messages, steps)
    usual = difficulty.usual_of(totals["multiple"], parts.n_tasks)
    variance = parameters.answer_variance * float((scale**2).mean())
    none, nothing = no_answers(parts, np.empty(0, dtype=object))
    fitted = NoiseFitted(
        answers=none,
        posterior=nothing,
        level_posterior=softmax(beliefs.log_level, axis=1),
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
    fitted = replace(fitted, workers=fitted.sum_up_workers())
    told = contest.settings, audit, contest.alike_share, contest.notes
    return KnownNoise(fitted, usual, *told)


def _audit(fit: PartitionedFit, messages: PartitionedNoise, steps: Steps) -> Audit:
    """Do as :meth:`NoiseFit.audit` does: the stretch is exact, other figures are from counts."""
    given = sweep_parameters(fit._parameters, FINAL_ACCURACY)
    bias = fit._beliefs()[0].bias(0.0)
    messages.settle_shift()
    totals = steps.total(AuditNoise(messages.heard, given, bias))
    audit = audit_of_counts(totals, exact=True)
    if not audit.n_answers:
        return audit
    rank = stretch_rank(int(totals["audit"].sum()))
    return replace(audit, stretch=stretch_of(quantiles(steps, Distances(), rank)[0]))


@dataclass(frozen=True, eq=False)
class Residuals:
    """Answers to tasks that have several, less their estimates."""

    known: KnownNoise

    def terms(self, part: Part, weight: Floats) -> tuple[Floats, Floats, Floats]:
        """Return them with their variances and weights."""
        answers = part.answers
        result = found_result(part, answers, self.known)
        edges = np.flatnonzero((answers.task_degree > 1)[answers.task])
        return residuals(answers, result, edges, weight)

    def sizes(self, part: Part) -> Floats:
        """Return how large those of a part are."""
        return np.abs(self.terms(part, np.ones(part.answers.n_workers))[0])


@dataclass(frozen=True, eq=False)
class SumSquares:
    """Sum up the squares of residuals, as far as a multiple of their upper quartile counts."""

    of: Residuals
    weight: Floats
    quartile: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the sums of a part."""
        return {"squares": square_sums(*self.of.terms(part, self.weight), self.quartile)}


def _allow_for_shared(
    auto: Auto, steps: Steps, crowd: CrowdInParts, known: KnownNoise
) -> KnownNoise:
    """Do as :func:`voxpop.estimators.shared.with_shared_error` does."""
    shared = SharedError.option(auto.shared_error)
    if shared is None or not crowd.several_answers:
        return known
    parts = steps.job.parts
    # The share of models in which workers are alike is known only after this, as in memory.
    of = Residuals(replace(known, alike_share=0.0))
    none, found = no_answers(parts, np.empty(0, dtype=object))
    n_classes = len(known.fitted.parameters[Difficulty].steps)
    result = of.known.result(none, (found, np.empty((0, n_classes))))
    weight = worker_weights(result, parts.worker_degree)
    quartile = quantiles(steps, of, 0.75)
    sums = steps.total(SumSquares(of, weight, quartile))["squares"]
    return replace(known, shared=(shared, mean_square(sums), auto.bounds))
