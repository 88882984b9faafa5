"""The part on which noise models are compared: tasks near to each other, found in all parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from voxpop.arrays import Floats, Mask
from voxpop.data.answers import Answers
from voxpop.data.ids import id_array
from voxpop.data.output import replacing
from voxpop.estimators.auto.subset import (
    Keys,
    Reached,
    Vicinity,
    connected_part,
    ends_of,
    in_order_of_keys,
    task_keys,
)
from voxpop.partitions.parts import array_bytes
from voxpop.partitions.steps import Part, Steps, Totals, joined


def _vicinity(part: Part, ends: Floats) -> Vicinity:
    """Find the keys of the tasks, once: the same process asks for them several times."""
    parts, answers = part.job.parts, part.answers
    path = part.scratch / f"{part.number:05d}{'.on-scale' if part.job.on_scale else ''}.keys.npy"
    if path.exists():
        key = np.load(path)
    else:
        key = task_keys(answers, parts.task_ids(part.number, part.scratch), ends)
        with replacing(path) as temporary:
            temporary.write_bytes(array_bytes(key))
    return Vicinity(answers, key, parts.worker_degree)


@dataclass(frozen=True, eq=False)
class MeasureCrowd:
    """Measure what the default needs about all answers."""

    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the ends of the values, and sums over tasks."""
        low, high = ends_of(part.answers)
        degree = part.answers.task_degree
        return {
            "highest": high,
            "lowest": -low,
            "squared_degree": np.array([(degree**2).sum()]),
        }


@dataclass(frozen=True, eq=False)
class FindFirst:
    """Find the task whose workers have the most answers."""

    ends: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the task of a part."""
        near = _vicinity(part, self.ends)
        first = near.first()
        return {
            f"key-{part.number}": first.key,
            f"degree-{part.number}": first.degree,
            f"activity-{part.number}": near.activity()[near.key == first.key][:1],
        }


@dataclass(frozen=True, eq=False)
class FindWorkers:
    """Find who has answered some tasks."""

    tasks: Keys
    ends: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return one for those who have in a part."""
        return {"known": _vicinity(part, self.ends).workers(self.tasks).astype(np.float64)}


@dataclass(frozen=True, eq=False)
class ReachTasks:
    """Find tasks that some workers have answered, as far as a budget reaches."""

    known: Mask
    taken: Keys
    budget: int
    ends: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return those of a part."""
        found = _vicinity(part, self.ends).reached(self.known, self.taken, self.budget)
        return {f"key-{part.number}": found.key, f"degree-{part.number}": found.degree}


@dataclass(frozen=True, eq=False)
class GatherAnswers:
    """Gather the answers to some tasks."""

    tasks: Keys
    ends: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return those of a part, with tasks by their place in the part."""
        answers, edges = part.answers, _vicinity(part, self.ends).edges(self.tasks)
        task = answers.task[edges]
        gold: Totals = {}
        if answers.gold is not None:
            gold[f"gold-{part.number}"] = answers.gold[np.unique(task)]
        return gold | {
            f"task-{part.number}": task,
            f"worker-{part.number}": answers.worker[edges],
            f"value-{part.number}": answers.value[edges],
        }


class CrowdInParts:
    """All parts, as :class:`voxpop.estimators.auto.subset.Crowd`."""

    def __init__(self, steps: Steps, scratch: Path) -> None:
        self._steps, self._scratch, self._n = steps, scratch, steps.job.parts.n_parts
        self._measured = steps.total(MeasureCrowd())
        self._near: dict[int, Answers] = {}

    @property
    def typical_degree(self) -> float:
        """Average number of answers of an answer's task."""
        return float(self._measured["squared_degree"][0] / self._steps.job.parts.n_answers)

    @property
    def ends(self) -> Floats:
        """Lowest and highest value in each coordinate, (2, d)."""
        return np.stack([-self._measured["lowest"], self._measured["highest"]])

    def first(self) -> Reached:
        """Return the task whose workers have the most answers."""
        found = self._steps.total(FindFirst(self.ends))
        key, degree, activity = (
            joined(found, name, self._n) for name in ("key", "degree", "activity")
        )
        start = np.lexsort((key, -activity))[:1]
        return Reached(key[start], degree[start])

    def workers(self, tasks: Keys) -> Mask:
        """Tell who has answered any of the tasks."""
        return np.asarray(self._steps.total(FindWorkers(tasks, self.ends))["known"] > 0)

    def reached(self, known: Mask, taken: Keys, budget: int) -> Reached:
        """Find the other tasks that workers have answered."""
        found = self._steps.total(ReachTasks(known, taken, budget, self.ends))
        key, degree = (joined(found, name, self._n) for name in ("key", "degree"))
        return Reached.ordered(key, degree, budget)

    def part(self, tasks: Keys) -> Answers:
        """Return the answers to some tasks."""
        parts, found = self._steps.job.parts, self._steps.total(GatherAnswers(tasks, self.ends))
        task, ids, n_tasks = [], [], 0
        for number in range(self._n):
            here, place = np.unique(found[f"task-{number}"], return_inverse=True)
            task.append(place + n_tasks)
            if len(here):  # a large crowd has many parts, and its neighbourhood is in a few
                ids += parts.task_ids(number, self._scratch)[here].tolist()
            n_tasks += len(here)
        worker, value = (joined(found, name, self._n) for name in ("worker", "value"))
        known, worker = np.unique(worker, return_inverse=True)
        gold = joined(found, "gold", self._n) if parts.whole.has_gold else None
        return in_order_of_keys(
            Answers(
                task_ids=id_array(ids),
                worker_ids=parts.worker_ids(self._scratch)[known],
                task=np.concatenate(task).astype(np.int32),
                worker=worker.astype(np.int32),
                value=value,
                value_names=parts.value_names,
                gold=gold,
                columns=parts.columns,
            )
        )

    def near(self, limit: int) -> Answers:
        """Return a connected part of about this many answers."""
        if limit not in self._near:
            self._near[limit] = connected_part(self, limit)
        return self._near[limit]
