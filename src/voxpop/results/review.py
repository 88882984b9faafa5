"""Review: which labels are ready, which need a look and why, and which workers to talk to.

This is the only place that decides it; the terminal, notebooks, tables and the report use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.results.answer_weights import answer_weights
from voxpop.results.camps import Camps, find_camps
from voxpop.results.diagnosis.flags import Diagnosis, diagnose
from voxpop.results.result import Result
from voxpop.results.scaled import on_scale
from voxpop.words import counted

REASONS = ("two camps", "few answers", "wide interval", "flagged worker")
"""Why a label needs a look."""

# A task has few answers below this share of the median task's; a single answer is always few.
_FEW = 0.5
# An interval is wide above this multiple of the median one's width.
_WIDE = 2.0
# Share of the weight of a task's answers from which flagged workers decide it.
_DECIDED = 1 / 3
# With more numbers than this, answers are not examined: testing workers would take minutes.
MOST_REVIEWED = 2_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Review:
    """What to do with a result.

    Attributes
    ----------
    tasks
        Positions of the tasks that need a look, those that most need it first.
    reasons
        Why each of them does: some of ``REASONS``.
    n_ready
        Number of tasks that need no look.
    workers
        Ids of the workers to talk to, strongest evidence first; None where they were not tested.
    kinds
        Kinds of the flags of each of them, in words.
    diagnosis, camps
        The evidence; None where the answers are not at hand, or too many to be tested.
    """

    tasks: Index
    reasons: tuple[tuple[str, ...], ...]
    n_ready: int
    workers: tuple[Any, ...] | None
    diagnosis: Diagnosis | None = None
    camps: Camps | None = None
    kinds: Mapping[Any, str] = field(default_factory=dict)

    def summary(self) -> str:
        """Return one line: what is ready, what needs a look, whom to talk to."""
        n = len(self.tasks)
        sentence = (
            f"{counted(self.n_ready, 'label')} ready, {n:,} {'needs' if n == 1 else 'need'} a look"
        )
        if self.workers is None:
            return sentence
        return f"{sentence}, {counted(len(self.workers), 'worker')} to talk to"

    def counts(self) -> dict[str, int]:
        """Number of tasks for each reason, the most frequent first; a task may have several."""
        listed = [reason for reasons in self.reasons for reason in reasons]
        found = {reason: listed.count(reason) for reason in REASONS if reason in listed}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def column(self, n_tasks: int) -> list[str | None]:
        """Reasons in words for every task; None for those that are ready."""
        found: list[str | None] = [None] * n_tasks
        for i, reasons in zip(self.tasks.tolist(), self.reasons, strict=True):
            found[i] = ", ".join(reasons)
        return found

    def flags_of(self, worker_ids: Ids) -> list[str | None]:
        """Kinds of flags in words for every worker; None for those without."""
        return [self.kinds.get(worker) for worker in worker_ids.tolist()]


def review(result: Result) -> Review:
    """Decide which labels are ready, which need a look, and which workers to talk to.

    A label needs a look for one or more of these reasons:

    - few answers: one, or fewer than half of the median task's;
    - two camps: its answers fall into two groups that noise does not explain
      (:func:`~voxpop.results.camps.find_camps`);
    - wide interval: its sd is more than twice that of the median task, on the model's scale;
    - flagged worker: workers to talk to have a third of the weight of its answers, or more.

    Known truths are ready. Those with most reasons come first, and of them the most uncertain. The
    workers to talk to are those whom :func:`voxpop.diagnose` flags. Where the answers are not at
    hand (a result of version 0.1 that was loaded), or are more than 2 million numbers, only the
    number of answers and the intervals are looked at.
    """
    answers, n = result._answers, len(result.task_ids)
    sd = sd_on_scale(result)
    gold = np.zeros(n, dtype=bool) if answers is None else answers.is_gold
    found = _plain_reasons(result.task_answers, sd, Usual.of(result.task_answers, sd[~gold]))
    diagnosis = camps = None
    if answers is not None and answers.value.size <= MOST_REVIEWED:
        diagnosis, camps = diagnose(answers, result), find_camps(answers, result)
        found["two camps"] = camps.tasks
        found["flagged worker"] = _decided_by(answers, result, diagnosis)
    return Review(
        **_ordered(_held(found, gold), np.nan_to_num(sd)),
        workers=None if diagnosis is None else tuple(diagnosis.workers),
        kinds={} if diagnosis is None else diagnosis.kinds(),
        diagnosis=diagnosis,
        camps=camps,
    )


class Usual(NamedTuple):
    """The number of answers and the sd of the median task."""

    answers: float
    sd: float

    @classmethod
    def of(cls, task_answers: Index, open_sd: Floats) -> Usual:
        """Find them, from the answers to all tasks and the sds of those that are not gold."""
        known = open_sd[np.isfinite(open_sd)]
        return cls(
            float(np.median(task_answers)), float(np.median(known)) if known.size else np.nan
        )


def review_part(answers: Answers, result: Result, usual: Usual) -> Review:
    """Review a part of the tasks as all of them are where answers are too many to be tested."""
    sd = sd_on_scale(result)
    found = _plain_reasons(result.task_answers, sd, usual)
    return Review(**_ordered(_held(found, answers.is_gold), np.nan_to_num(sd)), workers=None)


def _plain_reasons(task_answers: Index, sd: Floats, usual: Usual) -> dict[str, NDArray[np.bool_]]:
    """Find the reasons that the number of answers and the interval of a task give."""
    few = task_answers < max(2.0, _FEW * usual.answers)
    with np.errstate(invalid="ignore"):
        return {"few answers": few, "wide interval": sd > _WIDE * usual.sd}


def _held(found: Mapping[str, NDArray[np.bool_]], gold: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Stack all reasons (R, n_tasks); known truths have none."""
    none = np.zeros(len(gold), dtype=bool)
    return np.stack([found.get(reason, none) & ~gold for reason in REASONS])


def review_from(result: Result, looks: list[str | None], flags: list[str | None] | None) -> Review:
    """Restore a review from the tables of a saved result."""
    held = np.array([[reason in (look or "").split(", ") for look in looks] for reason in REASONS])
    listed = zip(result.worker_ids.tolist(), flags or (), strict=bool(flags))
    kinds = {worker: kind for worker, kind in listed if kind is not None}
    return Review(
        **_ordered(held, np.nan_to_num(sd_on_scale(result))),
        workers=None if flags is None else tuple(kinds),
        kinds=kinds,
    )


def _ordered(held: NDArray[np.bool_], sd: Floats) -> dict[str, Any]:
    """Sort the tasks that have some reason, of reasons (R, n_tasks) and sds (n_tasks,)."""
    number = held.sum(axis=0)
    order = np.lexsort((-sd, -number))[: int((number > 0).sum())]
    # Each combination is put into words once: a large crowd has many tasks, and few of these.
    code = (held * (1 << np.arange(len(REASONS)))[:, None]).sum(axis=0)[order].tolist()
    said = {
        mask: tuple(reason for k, reason in enumerate(REASONS) if mask >> k & 1)
        for mask in set(code)
    }
    reasons = tuple(said[mask] for mask in code)
    return {"tasks": order, "reasons": reasons, "n_ready": held.shape[1] - len(order)}


def sd_on_scale(result: Result) -> Floats:
    """Sd of every task over its coordinates, on the scale of the model, where all are alike."""
    variance = on_scale(result.scale, result._posterior).variance
    return np.asarray(np.sqrt(variance.mean(axis=1)))


def _decided_by(answers: Answers, result: Result, diagnosis: Diagnosis) -> NDArray[np.bool_]:
    """Return where flagged workers have a third of the weight, or more."""
    if not diagnosis.flags:
        return np.zeros(answers.n_tasks, dtype=bool)
    listed = set(diagnosis.workers)
    flagged = np.array([worker in listed for worker in answers.worker_ids.tolist()])
    weight = answer_weights(answers, result)[0] * flagged[answers.worker]
    return np.asarray(np.bincount(answers.task, weight, answers.n_tasks) >= _DECIDED)
