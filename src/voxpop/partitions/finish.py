"""The end of a fit in parts: the posterior of the tasks, the workers' own noise, and the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import Answers
from voxpop.data.exact import largest_by_owner, owner_sums, owner_values
from voxpop.estimators.bi.bi import Settled
from voxpop.estimators.make_result import make_result
from voxpop.estimators.plug_in import plug_in_audit
from voxpop.inference.kernels.posterior import Posterior
from voxpop.partitions.audit import audit_counts
from voxpop.partitions.parts import Parts
from voxpop.partitions.passing import Incoming
from voxpop.partitions.steps import Part, Steps, Totals
from voxpop.partitions.units import Units
from voxpop.results.audit import Audit
from voxpop.results.own_noise import from_own_sums, own_terms
from voxpop.results.result import PROBABILITIES, Result
from voxpop.results.review import Review, Usual, review_part, sd_on_scale
from voxpop.results.saved import run_id, write_tasks

_KERNELS = ("enumerate", "active", "integrate", "gold")
SAMPLE = "sample.pickle"
# Answers in a sample, which the report shows.
_SAMPLE_ANSWERS = 20_000
_OF_TASKS = ("task_ids", "task_answers", "estimate", "variance", "quantile", "task_difficulty")
_OF_WORKERS = (
    "worker_answers", "worker_variance", "worker_interval", "worker_weight", "worker_posterior",
    "worker_bias", "worker_bias_sd", "worker_gain", "worker_gain_sd", "worker_slips",
)  # fmt: skip
_NOBODY = np.empty(0, dtype=object)
_NO_LIMIT = np.iinfo(np.int64).max


def table_name(part: int) -> str:
    """Name the table of a part's tasks."""
    return f"tasks/part-{part:05d}.parquet"


def _usual_name(part: int) -> str:
    return f"tasks/{part:05d}.usual.npy"


class Known(Protocol):
    """What a fit knows of all answers; it makes the result of a part from its posterior."""

    def result(self, answers: Answers, found: Any) -> Result:
        """Make the result of a part."""

    def with_noise(self, result: Result) -> Known:
        """Take the workers' noise from a result."""


@dataclass(frozen=True, eq=False)
class KnownLevels:
    """What BI has learned: the workers, and the notes to report."""

    settled: Settled
    notes: tuple[str, ...]
    audit: Audit = field(default_factory=Audit)
    settings: dict[str, Any] = field(default_factory=dict)

    def result(self, answers: Answers, found: Posterior) -> Result:
        """Make the result of a part."""
        workers, trace, _ = self.settled
        return make_result(answers, self.settings, found, workers, trace, self.notes, self.audit)

    def with_noise(self, result: Result) -> KnownLevels:
        """Take the workers' noise from a result."""
        noise = {"variance": result.worker_variance, "interval": result.worker_interval}
        workers = replace(self.settled.workers, **noise)
        return replace(self, settled=self.settled._replace(workers=workers))


def find_tasks(part: Part, incoming: Incoming, settled: Settled) -> Totals:
    """Store the posterior of the tasks of a part; return the kernels used, and counts to audit."""
    incoming.put(part)
    answers, workers = part.answers, settled.workers
    found = part.messages.posterior(PROBABILITIES)
    about = workers.variance, workers.levels, workers.posterior
    audit = plug_in_audit(answers, found.estimate, *about, most_kept=_NO_LIMIT)
    keep_found(part, found)
    used = [part.messages.used.get(name, 0) for name in _KERNELS]
    totals: Totals = {"used": np.array(used)}
    return totals | (audit_counts(answers, audit) if audit.has_pit else {})


def measure_own_noise(part: Part, known: Known, units: Units) -> Totals:
    """Return the largest terms (3, m) of the workers' own noise; store the sds of the tasks."""
    answers, m = part.answers, part.answers.n_workers
    result = found_result(part, answers, known)
    sd = np.where(answers.is_gold, np.nan, sd_on_scale(units.result(part.given, result)))
    part.store.write_array(_usual_name(part.number), np.stack([answers.task_degree, sd]))
    terms = own_terms(answers, result)
    return {"own": np.stack([largest_by_owner(answers.worker, term, m) for term in terms])}


def sum_own_noise(part: Part, known: Known, largest: Floats) -> Totals:
    """Sum the terms of the workers' own noise, given the ``largest`` (3, m)."""
    answers = part.answers
    terms = own_terms(answers, found_result(part, answers, known))
    pairs = zip(terms, largest, strict=True)
    return {"own": np.stack([owner_sums(answers.worker, *pair) for pair in pairs])}


def write_part(part: Part, known: Known, units: Units, run_id: str, usual: Usual) -> Totals:
    """Write the table of a part's tasks into the folder of the run, and a sample of the first."""
    parts, store = part.job.parts, part.store
    ids = parts.task_ids(part.number, part.scratch)
    answers = replace(part.given, task_ids=ids)
    found = found_result(part, replace(part.answers, task_ids=ids), known)
    result = units.result(answers, found)
    review = review_part(answers, result, usual)
    local = part.scratch / f"{part.number:05d}.parquet"
    write_tasks(replace(result, _review=review), local, run_id)
    store.put(local, table_name(part.number))
    local.unlink()
    if part.number == 0:
        store.keep(SAMPLE, sample(answers, result, parts, part.scratch))
    return {"looks": np.array([len(review.tasks)])}


def keep_found(part: Part, found: object) -> None:
    """Store the posterior of the tasks of a part in the folder of the run."""
    part.store.keep(part.kept("found"), found)


def found_result(part: Part, answers: Answers, known: Known) -> Result:
    """Make the result of a part from its stored posterior."""
    return known.result(answers, part.store.kept(part.kept("found")))


def usual_task(parts: Parts) -> Usual:
    """Find the median task of all parts; 16 bytes for each task are in memory meanwhile."""
    kept = [parts.store.read_array(_usual_name(part)) for part in range(parts.n_parts)]
    answers, sd = np.concatenate(kept, axis=1)
    return Usual.of(answers, sd)


def sample(answers: Answers, result: Result, parts: Parts, scratch: Path) -> tuple[Answers, Result]:
    """Answers to the first tasks of a part, and the result for these and their workers."""
    n_tasks = max(1, int((np.cumsum(answers.task_degree) <= _SAMPLE_ANSWERS).sum()))
    answers = replace(answers, worker_ids=parts.worker_ids(scratch))
    some = answers.part(np.arange(answers.n_tasks) < n_tasks)
    workers = np.unique(answers.worker[: some.n_edges])
    rows: dict[str, Any] = {name: getattr(result, name)[:n_tasks] for name in _OF_TASKS}
    rows |= {
        name: getattr(result, name)[workers] if getattr(result, name).size else np.empty((0, 0))
        for name in _OF_WORKERS
    }
    agreed = result._agreement and result._agreement.rows(np.arange(n_tasks))
    found = replace(result, worker_ids=some.worker_ids, _agreement=agreed, audit=None, **rows)
    return some, replace(found, worker_answers=some.worker_degree, _answers=some)


def finish(
    steps: Steps,
    known: Known,
    result: Result,
    has_levels: bool,
    units: Units | None = None,
    notes: tuple[str, ...] = (),
) -> tuple[Result, str]:
    """Give workers their own noise, if noise has levels, and write the tables of the tasks.

    ``result`` is that of all workers without any task; ``notes`` come after its own.
    """
    parts, units = steps.job.parts, units or Units()
    own = _sum_own_noise(steps, known, has_levels, units)
    if own is not None:
        result = from_own_sums(result, own)
        known = known.with_noise(result)
    result = units.result(no_answers(parts, result.worker_ids)[0], result)
    # Its tasks are in their tables, and reviewed where they are.
    review = Review(tasks=np.empty(0, np.int64), reasons=(), n_ready=0, workers=None)
    result = replace(
        result,
        worker_answers=parts.worker_degree,
        notes=(*result.notes, *notes),
        _answers=None,
        _review=review,
    )
    run, usual = run_id(result), usual_task(parts)
    steps.total(partial(write_part, known=known, units=units, run_id=run, usual=usual))
    return result, run


def _sum_own_noise(steps: Steps, known: Known, has_levels: bool, units: Units) -> Floats | None:
    """Sums (3, m) of the terms of the workers' own noise, if it has levels.

    The first look at these terms also stores the sds of the tasks.
    """
    largest = steps.total(partial(measure_own_noise, known=known, units=units))["own"]
    if not has_levels:
        return None
    found = steps.total(partial(sum_own_noise, known=known, largest=largest))["own"]
    return np.stack([owner_values(*pair) for pair in zip(found, largest, strict=True)])


def kernels_used(totals: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """How many tasks each kernel handled."""
    used = zip(_KERNELS, totals["used"].tolist(), strict=True)
    return {name: n for name, n in used if n}


def no_answers(parts: Parts, ids: Ids = _NOBODY) -> tuple[Answers, Posterior]:
    """All workers without any task."""
    none = np.empty((0, parts.dimension))
    answers = Answers(
        task_ids=_NOBODY,
        worker_ids=ids,
        task=np.empty(0, dtype=np.int32),
        worker=np.empty(0, dtype=np.int32),
        value=none,
        value_names=parts.value_names,
        columns=parts.columns,
    )
    return answers, Posterior(none, none, np.empty((*none.shape, len(PROBABILITIES))))
