"""The part on which noise models are compared: tasks near to each other, found in all parts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from voxpop.arrays import Floats, Mask
from voxpop.data.answers import Answers
from voxpop.data.ids import id_array
from voxpop.estimators.auto.subset import (
    Keys,
    Reached,
    Vicinity,
    connected_part,
    ends_of,
    in_order_of_keys,
    task_keys,
)
from voxpop.partitions.steps import Part, Steps, Totals, joined
from voxpop.partitions.store import Store


def _vicinity(part: Part, ends: Floats) -> Vicinity:
    """Find the keys of the tasks, once: the same process asks for them several times."""
    parts, answers = part.job.parts, part.answers
    store = Store(str(part.scratch))
    name = f"{part.number:05d}{'.on-scale' if part.job.on_scale else ''}.keys.npy"
    if store.exists(name):
        key = store.read_array(name)
    else:
        key = task_keys(answers, parts.task_ids(part.number, part.scratch), ends)
        store.write_array(name, key)
    return Vicinity(answers, key, parts.worker_degree)


def measure_crowd(part: Part) -> Totals:
    """Return the ends of the values of a part, and sums over its tasks."""
    low, high = ends_of(part.answers)
    squared = part.answers.task_degree**2
    return {"highest": high, "lowest": -low, "squared_degree": np.array([squared.sum()])}


def find_first(part: Part, ends: Floats) -> Totals:
    """Find the task of a part whose workers have the most answers."""
    near = _vicinity(part, ends)
    first = near.first()
    activity = near.activity()[near.key == first.key][:1]
    return part.own(key=first.key, degree=first.degree, activity=activity)


def find_workers(part: Part, tasks: Keys, ends: Floats) -> Totals:
    """Return one for the workers who have answered some tasks of a part."""
    return {"known": _vicinity(part, ends).workers(tasks).astype(np.float64)}


def reach_tasks(part: Part, known: Mask, taken: Keys, budget: int, ends: Floats) -> Totals:
    """Find tasks of a part that some workers have answered, as far as a budget reaches."""
    found = _vicinity(part, ends).reached(known, taken, budget)
    return part.own(key=found.key, degree=found.degree)


def gather_answers(part: Part, tasks: Keys, ends: Floats) -> Totals:
    """Gather the answers to some tasks, with tasks by their place in the part."""
    answers, edges = part.answers, _vicinity(part, ends).edges(tasks)
    task = answers.task[edges]
    gold = {} if answers.gold is None else {"gold": answers.gold[np.unique(task)]}
    return part.own(task=task, worker=answers.worker[edges], value=answers.value[edges], **gold)


class CrowdInParts:
    """All parts, as :class:`voxpop.estimators.auto.subset.Crowd`."""

    def __init__(self, steps: Steps, scratch: Path) -> None:
        self._steps, self._scratch, self._n = steps, scratch, steps.job.parts.n_parts
        self._measured = steps.total(measure_crowd)
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
        found = self._steps.total(partial(find_first, ends=self.ends))
        key, degree, activity = joined(found, self._n, "key", "degree", "activity")
        start = np.lexsort((key, -activity))[:1]
        return Reached(key[start], degree[start])

    def workers(self, tasks: Keys) -> Mask:
        """Tell who has answered any of the tasks."""
        found = self._steps.total(partial(find_workers, tasks=tasks, ends=self.ends))
        return np.asarray(found["known"] > 0)

    def reached(self, known: Mask, taken: Keys, budget: int) -> Reached:
        """Find the other tasks that workers have answered."""
        asked = partial(reach_tasks, known=known, taken=taken, budget=budget, ends=self.ends)
        found = self._steps.total(asked)
        key, degree = joined(found, self._n, "key", "degree")
        return Reached.ordered(key, degree, budget)

    def part(self, tasks: Keys) -> Answers:
        """Return the answers to some tasks."""
        parts = self._steps.job.parts
        found = self._steps.total(partial(gather_answers, tasks=tasks, ends=self.ends))
        task, ids, n_tasks = [], [], 0
        for number in range(self._n):
            here, place = np.unique(found[f"task-{number}"], return_inverse=True)
            task.append(place + n_tasks)
            if len(here):  # a large crowd has many parts, and its neighbourhood is in a few
                ids += parts.task_ids(number, self._scratch)[here].tolist()
            n_tasks += len(here)
        worker, value = joined(found, self._n, "worker", "value")
        known, worker = np.unique(worker, return_inverse=True)
        gold = joined(found, self._n, "gold")[0] if parts.whole.has_gold else None
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
