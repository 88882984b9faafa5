"""From tables of tasks and workers to an assignment: ids, groups, capacities, given answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from voxpop.arrays import Ids
from voxpop.collect.assignment.balanced import assign_balanced
from voxpop.collect.assignment.random_graphs import Mixing, Numbers
from voxpop.collect.tables import read_capacity, read_distinct_ids, read_pairs
from voxpop.data.ids import Positions, number_ids
from voxpop.data.tables import frame, open_table
from voxpop.errors import ConfigError, DataError, require, shorten
from voxpop.models.simulation import made_up_ids


@dataclass(frozen=True, eq=False)
class _Side:
    """Tasks or workers: ids, groups, and capacities of workers."""

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
    """Assign tasks to workers, at random and in equal shares; return a data frame of pairs.

    Rows are sorted by worker, and the tasks of a worker are in random order. The numbers of answers
    of tasks differ by at most one, those of workers by no more than the constraints require.

    Parameters
    ----------
    tasks
        A number, or a table (or a path to one) with a column of task ids.
    workers
        A number, or a table with a column of worker ids and an optional column ``capacity``.
        None: the workers of ``given``, or else as few as the capacity allows.
    per_task
        Answers per task, including those given; a fraction is an average over tasks.
    capacity
        Maximum number of answers per worker, including those given.
    given
        A table of existing answers: they count, and are not asked for again.
    forbidden
        A table of (task, worker) pairs that are not allowed.
    group
        Column of groups in both tables. ``mixing`` says what they mean: ``"different"``, nobody
        gets tasks from their own group; ``"same"``, everybody gets tasks from their own group only.
    """
    task_side = _read(tasks, "task", group)
    done = None if given is None else read_pairs(given)
    worker_side = _workers(workers, done, group, len(task_side.ids), per_task, capacity)
    task_ids, worker_ids = task_side.ids, worker_side.ids
    positions = Positions(task_ids), Positions(worker_ids)
    task_group, worker_group = _groups(task_side, worker_side)
    found = assign_balanced(
        len(task_ids),
        len(worker_ids),
        rng,
        per_task=per_task,
        capacity=worker_side.capacity,
        given=None if done is None else _numbered(done, *positions),
        forbidden=None if forbidden is None else _forbidden(forbidden, *positions),
        task_group=task_group,
        worker_group=worker_group,
        mixing=mixing,
        task_names=task_ids.tolist(),
    )
    order = np.lexsort((rng.random(len(found.task)), found.worker))
    columns = {"task": task_ids[found.task[order]], "worker": worker_ids[found.worker[order]]}
    return frame(columns, "pandas")


def _read(source: object, role: str, group: str | None) -> _Side:
    """Read tasks or workers from a number or a table."""
    if isinstance(source, int | np.integer):
        require(bool(source >= 1), f"there must be at least one {role}, got {source}")
        require(group is None, f"groups need a table of the {role}s, not their number")
        return _Side(made_up_ids(role[0], int(source)))
    table = open_table(source)
    ids = read_distinct_ids(table, role)
    groups = None
    if group is not None:
        if group not in table.columns:
            listed = shorten(table.columns, 12)
            raise DataError(f"no column {group!r} among the {role}s; the columns are {listed}")
        code, names = table.ids(group)
        groups = [str(names[k]) for k in code]
    return _Side(ids, groups, read_capacity(table) if role == "worker" else None)


def _workers(
    source: object,
    done: tuple[list[Any], list[Any]] | None,
    group: str | None,
    n_tasks: int,
    per_task: float,
    capacity: int | None,
) -> _Side:
    """Read the workers and their capacities; by default those who have answered, or few enough."""
    answered = [*dict.fromkeys(done[1])] if done else []
    if source is not None:
        side = _read(source, "worker", group)
    else:
        require(group is None, "groups need a table of the workers")
        if done is not None:
            side = _Side(np.array(answered, dtype=object))
        elif capacity is not None:
            require(capacity >= 1, f"capacity must be at least 1, got {capacity}")
            enough = -(-round(n_tasks * per_task) // capacity)
            side = _Side(made_up_ids("w", max(enough, int(np.ceil(per_task)))))
        else:
            raise ConfigError(
                "give the workers, or the maximum number of answers per worker (capacity)"
            )
    most = np.full(len(side.ids), n_tasks if capacity is None else capacity)
    most = most if side.capacity is None else np.minimum(most, side.capacity)
    # Workers who are no longer available keep their answers, and get no new ones.
    known = Positions(side.ids)
    gone = [u for u in answered if known.get(u) is None]
    ids = np.array([*side.ids.tolist(), *gone], dtype=object) if gone else side.ids
    return _Side(ids, side.group, np.append(most, np.zeros(len(gone), dtype=np.int64)))


def _groups(tasks: _Side, workers: _Side) -> tuple[Numbers | None, Numbers | None]:
    """Number the groups of both sides; workers who are no longer available have none."""
    if tasks.group is None or workers.group is None:
        return None, None
    code = number_ids([*tasks.group, *workers.group], "group")[0].astype(np.int64)
    n_tasks, n_gone = len(tasks.ids), len(workers.ids) - len(workers.group)
    return code[:n_tasks], np.append(code[n_tasks:], np.full(n_gone, -1))


def _forbidden(source: object, place: Positions, person: Positions) -> tuple[Numbers, Numbers]:
    """Read forbidden pairs; an unknown id is an error, as the rule would have no effect."""
    pairs = read_pairs(source)
    for role, ids, known in zip(("task", "worker"), pairs, (place, person), strict=True):
        unknown = [name for name in dict.fromkeys(ids) if known.get(name) is None]
        if unknown:
            raise DataError(f"forbidden: {role} {shorten(unknown)} is not among the {role}s")
    return _numbered(pairs, place, person)


def _numbered(
    pairs: tuple[list[Any], list[Any]], place: Positions, person: Positions
) -> tuple[Numbers, Numbers]:
    """Number tasks and workers of pairs; pairs of other tasks are left out."""
    numbers = [(place.get(i), person.get(u)) for i, u in zip(*pairs, strict=True)]
    known = [pair for pair in numbers if pair[0] is not None]
    task, worker = np.array(known, dtype=np.int64).reshape(-1, 2).T
    return task, worker
