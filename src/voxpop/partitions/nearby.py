"""The part that noise models are compared on: tasks near to each other, looked for in all parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.ids import id_array
from voxpop.estimators.auto.subset import (
    Keys,
    Mask,
    Reached,
    Vicinity,
    ends_of,
    in_order_of_keys,
    task_keys,
)
from voxpop.partitions.steps import Part, Steps, Totals


def _vicinity(part: Part, ends: Floats) -> Vicinity:
    parts, answers = part.job.parts, part.answers
    ids = parts.task_ids(part.number, part.scratch)
    return Vicinity(answers, task_keys(answers, ids, ends), parts.worker_degree)


@dataclass(frozen=True, eq=False)
class MeasureCrowd:
    """Measure what the default must know of all answers."""

    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the ends of the values, and sums over tasks."""
        low, high = ends_of(part.answers)
        degree = part.answers.task_degree
        return {
            "highest": high,
            "lowest": -low,
            "squared_degree": np.array([(degree**2).sum()]),
            "several": np.array([degree[degree > 1].sum()]),
        }


@dataclass(frozen=True, eq=False)
class FindFirst:
    """Find the task whose workers have the most answers."""

    ends: Floats
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return that of a part."""
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
        return {
            f"task-{part.number}": task,
            f"worker-{part.number}": answers.worker[edges],
            f"value-{part.number}": answers.value[edges],
        }


class CrowdInParts:
    """All parts, as :class:`voxpop.estimators.auto.subset.Crowd`."""

    def __init__(self, steps: Steps, scratch: Path) -> None:
        self._steps, self._scratch, self._n = steps, scratch, steps.job.parts.n_parts
        self._measured = steps.total(MeasureCrowd())

    @property
    def typical_degree(self) -> float:
        """How many answers the task of an answer has, on average."""
        return float(self._measured["squared_degree"][0] / self._steps.job.parts.n_answers)

    @property
    def several_answers(self) -> int:
        """How many answers are to tasks that have another."""
        return int(self._measured["several"][0])

    @property
    def ends(self) -> Floats:
        """Lowest and highest value in each coordinate, (2, d)."""
        return np.stack([-self._measured["lowest"], self._measured["highest"]])

    def first(self) -> Reached:
        """Return the task whose workers have the most answers."""
        found = self._steps.total(FindFirst(self.ends))
        key, degree, activity = (
            _joined(found, name, self._n) for name in ("key", "degree", "activity")
        )
        start = np.lexsort((key, -activity))[:1]
        return Reached(key[start], degree[start])

    def workers(self, tasks: Keys) -> Mask:
        """Tell who has answered any of the tasks."""
        return np.asarray(self._steps.total(FindWorkers(tasks, self.ends))["known"] > 0)

    def reached(self, known: Mask, taken: Keys, budget: int) -> Reached:
        """Find the other tasks that workers have answered."""
        found = self._steps.total(ReachTasks(known, taken, budget, self.ends))
        key, degree = (_joined(found, name, self._n) for name in ("key", "degree"))
        return Reached.ordered(key, degree, budget)

    def part(self, tasks: Keys) -> Answers:
        """Return the answers to some tasks."""
        parts, found = self._steps.job.parts, self._steps.total(GatherAnswers(tasks, self.ends))
        task, ids, n_tasks = [], [], 0
        for number in range(self._n):
            here, place = np.unique(found[f"task-{number}"], return_inverse=True)
            task.append(place + n_tasks)
            ids += parts.task_ids(number, self._scratch)[here].tolist()
            n_tasks += len(here)
        worker, value = (_joined(found, name, self._n) for name in ("worker", "value"))
        known, worker = np.unique(worker, return_inverse=True)
        return in_order_of_keys(
            Answers(
                task_ids=id_array(ids),
                worker_ids=parts.worker_ids(self._scratch)[known],
                task=np.concatenate(task).astype(np.int32),
                worker=worker.astype(np.int32),
                value=value,
                value_names=parts.value_names,
                columns=parts.columns,
            )
        )


def _joined(found: Mapping[str, NDArray[Any]], name: str, n_parts: int) -> NDArray[Any]:
    return np.concatenate([found[f"{name}-{part}"] for part in range(n_parts)])
