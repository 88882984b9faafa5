"""From lists of tasks and workers to who answers what: ids, groups, capacities, answers given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from voxpop.arrays import Ids
from voxpop.collect.assignment.balanced import assign_balanced
from voxpop.collect.assignment.random_graphs import Mixing, Numbers
from voxpop.data.ids import Positions
from voxpop.data.tables import Table, frame, open_table, resolve_column
from voxpop.errors import DataError, require, shorten


@dataclass(frozen=True, eq=False)
class _Side:
    """Tasks, or workers: their ids, and what is known of them."""

    ids: Ids
    group: list[str] | None = None
    capacity: Numbers | None = None


def assign_table(
    tasks: object,
    workers: object,
    rng: np.random.Generator,
    *,
    per_task: float,
    capacity: int | None = None,
    given: object = None,
    forbidden: object = None,
    group: str | None = None,
    mixing: Mixing = "different",
) -> Any:
    """Assign workers to tasks, at random and in equal shares; return a data frame of pairs.

    Rows stand worker by worker, a worker's tasks in random order: as they may be shown. Answers
    of tasks differ by at most one, those of workers by no more than the rules make necessary.

    Parameters
    ----------
    tasks
        A number, or a table (or a path to one) with a column of task ids.
    workers
        A number, or a table with a column of worker ids, and perhaps one named ``capacity``.
        None: the workers of ``given``, or else as few as the capacity allows.
    per_task
        Answers per task, those given included; between two whole numbers an average.
    capacity
        Most answers of one worker, those given included.
    given
        A table of answers that are there already: they count, and are not asked for again.
    forbidden
        A table of pairs, task and worker, that must not be.
    group
        Column of both tables with groups, and ``mixing`` what they mean: ``"different"``, a
        worker gets no task of the own group; ``"same"``, only tasks of the own group.
    """
    task_side = _side(tasks, "task", group)
    there = None if given is None else _pairs(given)
    worker_side = _workers(workers, there, group, len(task_side.ids), per_task, capacity)
    place, person = Positions(task_side.ids), Positions(worker_side.ids)
    ids, room = worker_side.ids, _capacities(worker_side, len(task_side.ids), capacity)
    done = None
    if there is not None:
        # Workers who are not asked again still have answered.
        gone = [u for u in dict.fromkeys(there[1]) if person.get(u) is None]
        if gone:
            ids = np.array([*ids.tolist(), *gone], dtype=object)
            room = np.concatenate([room, np.zeros(len(gone), dtype=np.int64)])
            person = Positions(ids)
        kept = [(place.get(i), person.get(u)) for i, u in zip(*there, strict=True)]
        done = _columns([pair for pair in kept if pair[0] is not None])
    task_group, worker_group = _groups(task_side, worker_side, len(ids))
    found = assign_balanced(
        len(task_side.ids),
        len(ids),
        rng,
        per_task=per_task,
        capacity=room,
        given=done,
        forbidden=None if forbidden is None else _forbidden(forbidden, place, person),
        task_group=task_group,
        worker_group=worker_group,
        mixing=mixing,
        task_names=task_side.ids.tolist(),
    )
    order = np.lexsort((rng.random(len(found.task)), found.worker))
    columns = {"task": task_side.ids[found.task[order]], "worker": ids[found.worker[order]]}
    return frame(columns, "pandas")


def _side(source: object, role: str, group: str | None) -> _Side:
    """Read tasks or workers from a number or a table."""
    if isinstance(source, int | np.integer):
        require(bool(source >= 1), f"there must be at least one {role}, got {source}")
        require(group is None, f"groups need a table of the {role}s, not their number")
        return _Side(_numbered(role[0], int(source)))
    table = open_table(source)
    column = resolve_column(table, role, None)
    code, ids = table.ids(column)
    if len(ids) < len(code):
        twice = ids[np.bincount(code) > 1]
        raise DataError(f"{role}s: {shorten(twice)} is there more than once")
    capacity = None
    if role == "worker" and "capacity" in table.columns:
        number = table.numbers("capacity")
        if not bool(((number >= 0) & (number == np.floor(number))).all()):
            raise DataError("capacity of a worker must be a whole number, 0 or more")
        capacity = number.astype(np.int64)
    return _Side(ids, _group_column(table, role, group), capacity)


def _group_column(table: Table, role: str, group: str | None) -> list[str] | None:
    if group is None:
        return None
    if group not in table.columns:
        raise DataError(
            f"no column {group!r} among the {role}s; the columns are {shorten(table.columns, 12)}"
        )
    code, names = table.ids(group)
    return [str(names[k]) for k in code]


def _workers(
    source: object,
    there: tuple[list[Any], list[Any]] | None,
    group: str | None,
    n_tasks: int,
    per_task: float,
    capacity: int | None,
) -> _Side:
    """Read the workers; without any, take those who answered, or make as few as will do."""
    if source is not None:
        return _side(source, "worker", group)
    require(group is None, "groups need a table of the workers")
    if there is not None:
        return _Side(np.array([*dict.fromkeys(there[1])], dtype=object))
    require(capacity is not None, "give the workers, or how many answers one may give (capacity)")
    assert capacity is not None
    require(capacity >= 1, f"capacity must be at least 1, got {capacity}")
    n_answers = round(n_tasks * per_task)
    return _Side(_numbered("w", max(-(-n_answers // capacity), int(np.ceil(per_task)))))


def _capacities(side: _Side, n_tasks: int, capacity: int | None) -> Numbers:
    """Most answers of every worker: the smaller of what the option and the table say."""
    most = np.full(len(side.ids), n_tasks if capacity is None else capacity)
    return most if side.capacity is None else np.minimum(most, side.capacity)


def _groups(tasks: _Side, workers: _Side, n_workers: int) -> tuple[Numbers | None, Numbers | None]:
    """Number the groups of both sides alike; workers who are not asked again have none."""
    if tasks.group is None or workers.group is None:
        return None, None
    names = {name: k for k, name in enumerate(dict.fromkeys([*tasks.group, *workers.group]))}
    of_worker = np.full(n_workers, -1)
    of_worker[: len(workers.group)] = [names[name] for name in workers.group]
    return np.array([names[name] for name in tasks.group]), of_worker


def _pairs(source: object) -> tuple[list[Any], list[Any]]:
    """Read the task and the worker of every row."""
    table = open_table(source)
    task, tasks = table.ids(resolve_column(table, "task", None))
    worker, workers = table.ids(resolve_column(table, "worker", None))
    return tasks[task].tolist(), workers[worker].tolist()


def _forbidden(source: object, place: Positions, person: Positions) -> tuple[Numbers, Numbers]:
    """Read pairs that must not be; a name that nobody has would be a rule that does nothing."""
    tasks, workers = _pairs(source)
    for role, names, known in (("task", tasks, place), ("worker", workers, person)):
        unknown = [name for name in dict.fromkeys(names) if known.get(name) is None]
        if unknown:
            raise DataError(f"forbidden: {role} {shorten(unknown)} is not among the {role}s")
    return _columns([(place.get(i), person.get(u)) for i, u in zip(tasks, workers, strict=True)])


def _columns(pairs: list[Any]) -> tuple[Numbers, Numbers]:
    task, worker = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return task, worker


def _numbered(letter: str, n: int) -> Ids:
    digits = len(str(n - 1))
    return np.array([f"{letter}{i:0{digits}d}" for i in range(n)], dtype=object)
