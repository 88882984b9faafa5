"""The end of a fit in parts: what is known of the tasks, the workers' own noise, and the tables."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import largest_by_owner, owner_sums
from voxpop.estimators.bi.bi import Settled
from voxpop.estimators.make_result import make_result
from voxpop.estimators.plug_in import plug_in_audit
from voxpop.inference.kernels.posterior import Posterior
from voxpop.partitions.audit import audit_counts
from voxpop.partitions.parts import Parts, array_bytes
from voxpop.partitions.steps import Part, Totals
from voxpop.partitions.store import Store
from voxpop.results.audit import Audit
from voxpop.results.own_noise import own_terms
from voxpop.results.result import PROBABILITIES, Result
from voxpop.results.review import Review, Usual, review_part
from voxpop.results.saved import write_tasks

_KERNELS = ("enumerate", "active", "integrate", "gold")
SAMPLE = "sample.pickle"
# Answers in a sample, which the report shows.
_SAMPLE_ANSWERS = 20_000
_OF_TASKS = ("task_ids", "task_answers", "estimate", "variance", "quantile", "task_difficulty")
_OF_WORKERS = (
    "worker_answers", "worker_variance", "worker_interval", "worker_weight", "worker_posterior",
    "worker_bias", "worker_bias_sd", "worker_gain", "worker_gain_sd", "worker_slips",
)  # fmt: skip
_NO_LIMIT = np.iinfo(np.int64).max


def table_name(part: int) -> str:
    """Name the table of a part's tasks."""
    return f"tasks/part-{part:05d}.parquet"


def _found_name(part: int) -> str:
    return f"tasks/{part:05d}.found"


def _usual_name(part: int) -> str:
    return f"tasks/{part:05d}.usual.npy"


@dataclass(frozen=True, eq=False)
class FindTasks:
    """Find what is known of the tasks of a part, and keep it in the folder of the run."""

    heard: Any
    settled: Settled
    kind: ClassVar[str] = "reads"

    def run(self, part: Part) -> Totals:
        """Return the kernels that were used, counts for the audit, and sizes of own noise."""
        self.heard.put(part)
        answers, workers = part.answers, self.settled.workers
        store, found = Store(part.job.parts.where), part.messages.posterior(PROBABILITIES)
        about = workers.variance, workers.levels, workers.posterior
        audit = plug_in_audit(answers, found.estimate, *about, most_kept=_NO_LIMIT)
        store.write(_found_name(part.number), pickle.dumps(found))
        sd = np.where(answers.is_gold, np.nan, np.sqrt(found.variance.mean(axis=1)))
        store.write(_usual_name(part.number), array_bytes(np.stack([answers.task_degree, sd])))
        used = [part.messages.used.get(name, 0) for name in _KERNELS]
        terms = own_terms(answers, make_result(answers, {}, found, workers, audit=audit))
        m = answers.n_workers
        largest = np.stack([largest_by_owner(answers.worker, term, m) for term in terms])
        totals: Totals = {"used": np.array(used), "own": largest}
        return totals | (audit_counts(answers, audit) if audit.has_pit else {})


@dataclass(frozen=True, eq=False)
class SumOwnNoise:
    """Sum up what shows the workers' own noise, given its ``largest`` (3, m) terms."""

    settled: Settled
    largest: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the sums of a part."""
        answers = part.answers
        terms = own_terms(answers, found_result(part, answers, self.settled))
        pairs = zip(terms, self.largest, strict=True)
        return {"own": np.stack([owner_sums(answers.worker, *pair) for pair in pairs])}


@dataclass(frozen=True, eq=False)
class WriteTasks:
    """Write the table of a part's tasks into the folder of the run, and a sample of the first."""

    settled: Settled
    notes: tuple[str, ...]
    run_id: str
    usual: Usual
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return how many tasks need a look."""
        parts = part.job.parts
        ids = parts.task_ids(part.number, part.scratch)
        answers = replace(part.answers, task_ids=ids)
        result = found_result(part, answers, self.settled, self.notes)
        review = review_part(answers, result, self.usual)
        local = part.scratch / f"{part.number:05d}.parquet"
        write_tasks(replace(result, _review=review), local, self.run_id)
        Store(parts.where).put(local, table_name(part.number))
        local.unlink()
        if part.number == 0:
            shown = sample(answers, result, parts, part.scratch)
            Store(parts.where).write(SAMPLE, pickle.dumps(shown))
        return {"looks": np.array([len(review.tasks)])}


def found_result(
    part: Part, answers: Answers, settled: Settled, notes: tuple[str, ...] = ()
) -> Result:
    """Make the result of a part from what :class:`FindTasks` kept."""
    kept = Store(part.job.parts.where).read(_found_name(part.number))
    found: Posterior = pickle.loads(kept or b"")
    return make_result(answers, {}, found, settled.workers, settled.trace, notes, Audit())


def usual_task(parts: Parts) -> Usual:
    """Find the median task of all parts; 16 bytes for each task are in memory meanwhile."""
    store = Store(parts.where)
    kept = (store.read(_usual_name(part)) or b"" for part in range(parts.n_parts))
    answers, sd = np.concatenate([np.load(BytesIO(content)) for content in kept], axis=1)
    return Usual.of(answers, sd)


def sample(answers: Answers, result: Result, parts: Parts, scratch: Path) -> tuple[Answers, Result]:
    """Answers to the first tasks of a part, and what is known of these and of their workers."""
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


def kernels_used(totals: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """How many tasks each kernel handled."""
    used = zip(_KERNELS, totals["used"].tolist(), strict=True)
    return {name: n for name, n in used if n}


def whole_result(
    parts: Parts, ids: Any, settled: Settled, notes: tuple[str, ...], audit: Audit
) -> Result:
    """The result of all parts without its tasks, which are in their tables."""
    d = parts.dimension
    none = np.empty((0, d))
    answers = Answers(
        task_ids=np.empty(0, dtype=object),
        worker_ids=ids,
        task=np.empty(0, dtype=np.int32),
        worker=np.empty(0, dtype=np.int32),
        value=none,
        value_names=parts.value_names,
        columns=parts.columns,
    )
    found = Posterior(none, none, np.empty((0, d, len(PROBABILITIES))))
    workers, trace, settings = settled
    result = make_result(answers, settings, found, workers, trace, notes, audit)
    # Its tasks are reviewed where they are.
    review = Review(tasks=np.empty(0, np.int64), reasons=(), n_ready=0, workers=None)
    degree = parts.worker_degree
    return replace(result, worker_answers=degree, _answers=None, _review=review)
