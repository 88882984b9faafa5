"""The end of a fit in parts: every part writes the table of its tasks, and counts for the audit."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from voxpop.data.answers import Answers
from voxpop.data.tables import write_table
from voxpop.estimators.bi.bi import Settled
from voxpop.estimators.make_result import make_result
from voxpop.estimators.plug_in import plug_in_audit
from voxpop.inference.kernels.posterior import Posterior
from voxpop.partitions.audit import audit_counts
from voxpop.partitions.parts import Parts
from voxpop.partitions.steps import Part, Totals
from voxpop.partitions.store import Store
from voxpop.results.audit import Audit
from voxpop.results.result import PROBABILITIES, Result

_KERNELS = ("enumerate", "active", "integrate", "gold")
SAMPLE = "sample.pickle"
# Answers in a sample, which the report shows.
_SAMPLE_ANSWERS = 20_000
_OF_TASKS = ("task_ids", "task_answers", "estimate", "variance", "quantile", "task_difficulty")
_OF_WORKERS = (
    "worker_answers", "worker_variance", "worker_interval", "worker_weight", "worker_posterior",
    "worker_bias", "worker_bias_sd", "worker_gain", "worker_gain_sd",
)  # fmt: skip
_NO_LIMIT = np.iinfo(np.int64).max


def table_name(part: int) -> str:
    """Name the table of a part's tasks."""
    return f"tasks/part-{part:05d}.parquet"


@dataclass(frozen=True, eq=False)
class WriteTasks(ABC):
    """Write the table of a part's tasks into the folder of the run."""

    kind: ClassVar[str] = "reads"

    @abstractmethod
    def result(self, part: Part, answers: Answers) -> Result:
        """What is known of the tasks of a part, whose audit has PIT values."""

    def run(self, part: Part) -> Totals:
        """Write the table; return the kernels that were used, and counts for the audit."""
        parts = part.job.parts
        ids = parts.task_ids(part.number, part.scratch)
        answers = replace(part.answers, task_ids=ids)
        result = self.result(part, answers)
        local = part.scratch / f"{part.number:05d}.parquet"
        write_table(result.task_columns(), local)
        Store(parts.where).put(local, table_name(part.number))
        local.unlink()
        if part.number == 0:
            shown = sample(answers, result, parts, part.scratch)
            Store(parts.where).write(SAMPLE, pickle.dumps(shown))
        used = [part.messages.used.get(name, 0) for name in _KERNELS]
        totals: Totals = {"used": np.array(used)}
        if result.audit is not None and result.audit.has_pit:
            totals |= audit_counts(answers, result.audit)
        return totals


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
    return some, replace(found, worker_answers=some.worker_degree)


def kernels_used(totals: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """How many tasks each kernel handled."""
    used = zip(_KERNELS, totals["used"].tolist(), strict=True)
    return {name: n for name, n in used if n}


@dataclass(frozen=True, eq=False)
class WriteBI(WriteTasks):
    """The tasks of a part after BI, under the paper's noise."""

    heard: Any
    settled: Settled
    notes: tuple[str, ...]

    def result(self, part: Part, answers: Answers) -> Result:
        """Posteriors under the settled messages, and the plug-in audit."""
        self.heard.put(part)
        workers = self.settled.workers
        found = part.messages.posterior(PROBABILITIES)
        about = workers.variance, workers.levels, workers.posterior
        audit = plug_in_audit(answers, found.estimate, *about, most_kept=_NO_LIMIT)
        return make_result(answers, {}, found, workers, self.settled.trace, self.notes, audit)


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
    return replace(result, worker_answers=parts.worker_degree)
