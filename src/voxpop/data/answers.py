"""Answers: who answered what to which task, checked once and laid out for the algorithms."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Codes, Floats, Ids, Index
from voxpop.data.components import components
from voxpop.data.ids import number_ids
from voxpop.errors import DataError, DataWarning, require, shorten

if TYPE_CHECKING:
    from voxpop.data.objects import Objects

Duplicates = Literal["error", "mean", "last"]
_T = TypeVar("_T", bound=np.generic)

# Squared differences of larger values would overflow float64.
_LARGEST_VALUE = 1e100
# If no value is larger than this, the inverse of a squared difference would overflow.
_SMALLEST_UNIT = 1e-100
VARIANCES = (1e-250, 1e250)
"""The range of variances that answers in that range may have, and more."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """The answers of a crowd: edges between tasks and workers, each with a value in R^d.

    Edges are stored task by task, and within a task by worker, in an order that depends on the
    worker ids alone: shuffling the rows of the table changes nothing. Tasks and workers keep the
    order of their first appearance. Arrays are read-only.

    Build one with :func:`voxpop.read_answers` or :meth:`from_arrays`.

    Attributes
    ----------
    task_ids
        The users' own ids of the tasks; position here is the number used everywhere else.
    worker_ids
        The same of the workers.
    task
        Task of every edge.
    worker
        Worker of every edge.
    value
        Answer of every edge, shape (n_edges, dimension).
    gold
        Known truths, shape (n_tasks, dimension), NaN where unknown; None without gold.
    notes
        What reading decided or left out, in sentences for the user.
    objects
        How boxes or points were matched into the objects that are the tasks here, if they were.
    contents
        What a task shows, if the export has it, by the id of the task or its image: the URL or file
        name of a picture, a link or a text.
    """

    task_ids: Ids
    worker_ids: Ids
    task: Codes
    worker: Codes
    value: Floats
    value_names: tuple[str, ...] = ("value",)
    gold: Floats | None = None
    frame_kind: str = "pandas"
    columns: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    objects: Objects | None = None
    contents: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fixed = (self.task_ids, self.worker_ids, self.task, self.worker, self.value, self.gold)
        for array in fixed:
            if array is not None:
                array.flags.writeable = False

    @classmethod
    def from_arrays(
        cls,
        task: ArrayLike,
        worker: ArrayLike,
        value: ArrayLike,
        *,
        value_names: tuple[str, ...] | None = None,
        gold: ArrayLike | None = None,
        duplicates: Duplicates | None = None,
    ) -> Answers:
        """Build from three parallel arrays; ``gold`` is per task, in order of first appearance."""
        values = as_values(value)
        numbered = tuple(f"value_{j + 1}" for j in range(values.shape[1]))
        return cls.from_codes(
            *number_ids(task, "task"),
            *number_ids(worker, "worker"),
            values,
            value_names=value_names or (numbered if len(numbered) > 1 else ("value",)),
            gold=None if gold is None else _as_columns(np.array(gold, dtype=np.float64)),
            duplicates=duplicates,
        )

    @classmethod
    def from_codes(
        cls,
        task: Codes,
        task_ids: Ids,
        worker: Codes,
        worker_ids: Ids,
        value: Floats,
        *,
        value_names: tuple[str, ...],
        gold: Floats | None = None,
        duplicates: Duplicates | None = None,
        rows: Index | None = None,
    ) -> Answers:
        """Check the rows, combine or refuse repeated answers, and sort them into edges.

        ``rows`` numbers the rows as their user counts them.
        """
        rows = np.arange(1, len(value) + 1) if rows is None else rows
        require(
            duplicates in (None, "error", "mean", "last"),
            f"duplicates must be 'error', 'mean' or 'last', got {duplicates!r}",
        )
        if len(value) == 0:
            raise DataError("there are no answers")
        check_lengths(task, worker, value)
        if value.ndim != 2 or not value.shape[1] or len(value_names) != value.shape[1]:
            raise DataError(
                f"values must be one vector per answer with a name for each coordinate, got shape "
                f"{value.shape} and {len(value_names)} names"
            )
        for role, code, ids in (("task", task, task_ids), ("worker", worker, worker_ids)):
            unused = np.bincount(code, minlength=len(ids)) == 0
            if unused.any():
                raise DataError(f"{role} {shorten(ids[unused])} has no answer")
        check_values(value, value_names, rows)
        _check_unit(value, value_names)
        if gold is not None:
            check_gold(gold, (len(task_ids), value.shape[1]), task_ids)
        order, repeated = edge_order(task, worker, worker_ids)
        notes: tuple[str, ...] = ()
        if repeated.any() and duplicates in (None, "error"):
            different = repeated if duplicates == "error" else repeated & _differ(order, value)
            if different.any():
                _refuse_repeats(
                    order, different, task_ids[task], worker_ids[worker], rows, len(value_names)
                )
            notes = (_left_out(rows[order[repeated]]),)
        order, value = _combine(order, repeated, value, duplicates or "last")
        answers = cls(
            task_ids=task_ids,
            worker_ids=worker_ids,
            task=task[order],
            worker=worker[order],
            value=value,
            value_names=value_names,
            gold=gold,
            notes=notes,
        )
        answers._warn_of_weak_data()
        return answers

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.task_ids)

    @property
    def n_workers(self) -> int:
        """Number of workers."""
        return len(self.worker_ids)

    @property
    def n_edges(self) -> int:
        """Number of answers."""
        return len(self.value)

    @property
    def dimension(self) -> int:
        """Number of coordinates of an answer."""
        return int(self.value.shape[1])

    @cached_property
    def task_ptr(self) -> Index:
        """Edges of task i are ``task_ptr[i]`` up to ``task_ptr[i + 1]``."""
        return _pointers(self.task, self.n_tasks)

    @cached_property
    def worker_ptr(self) -> Index:
        """Edges of worker u are ``by_worker[worker_ptr[u] : worker_ptr[u + 1]]``."""
        return _pointers(self.worker, self.n_workers)

    @cached_property
    def by_worker(self) -> Index:
        """Edge numbers, worker by worker."""
        return _read_only(np.argsort(self.worker, kind="stable"))

    @cached_property
    def task_degree(self) -> Index:
        """Number of answers of each task."""
        return _read_only(np.diff(self.task_ptr))

    @cached_property
    def worker_degree(self) -> Index:
        """Number of answers of each worker."""
        return _read_only(np.diff(self.worker_ptr))

    @cached_property
    def worker_part(self) -> Codes:
        """Number of the connected part of the crowd that each worker is in."""
        n = self.n_tasks
        part = components(n + self.n_workers, self.task, self.worker + n)[n:]
        return _read_only(part.astype(np.int32))

    @cached_property
    def is_gold(self) -> NDArray[np.bool_]:
        """Which tasks have a known truth."""
        if self.gold is None:
            return np.zeros(self.n_tasks, dtype=bool)
        return ~np.isnan(self.gold[:, 0])

    def part(self, kept: NDArray[np.bool_]) -> Answers:
        """Return the answers to some of the tasks, with those workers who gave them."""
        return self.select(kept[self.task])

    def select(self, edges: NDArray[np.bool_]) -> Answers:
        """Return some of the answers, with their tasks and workers."""
        tasks, task = np.unique(self.task[edges], return_inverse=True)
        workers, worker = np.unique(self.worker[edges], return_inverse=True)
        return replace(
            self,
            task_ids=self.task_ids[tasks],
            worker_ids=self.worker_ids[workers],
            task=task.astype(np.int32),
            worker=worker.astype(np.int32),
            value=self.value[edges],
            gold=None if self.gold is None else self.gold[tasks],
            objects=None,
        )

    def __repr__(self) -> str:
        gold = f", {int(self.is_gold.sum())} gold" if self.is_gold.any() else ""
        read = columns_taken(self.columns)
        return (
            f"Answers({self.n_edges} answers of {self.n_workers} workers to {self.n_tasks} tasks, "
            f"dimension {self.dimension}{gold}{'; ' + read if read else ''})"
        )

    def _warn_of_weak_data(self) -> None:
        if self.n_workers == 1:
            _warn(
                f"all answers come from one worker, {shorten(self.worker_ids)}: the noise cannot "
                "be learned, and the estimates are the answers"
            )
        elif self.n_edges > 1 and (self.value == self.value[0]).all():
            _warn(f"all answers are equal ({self.value[0].tolist()}): there is nothing to weigh")
        for role, ids in (("task", self.task_ids), ("worker", self.worker_ids)):
            twins = _look_alike(ids)
            if twins:
                _warn(
                    f"{role} ids {twins[0]!r} and {twins[1]!r} differ only by white space or case "
                    f"and count as two {role}s; clean the column if they are one"
                )


def columns_taken(columns: Mapping[str, str]) -> str:
    """Name the column of each role."""
    return ", ".join(f"{role} from {name!r}" for role, name in columns.items())


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=5)


def _pointers(owner: Codes, n_owners: int) -> Index:
    pointers = np.zeros(n_owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n_owners), out=pointers[1:])
    return _read_only(pointers)


def _as_columns(array: Floats) -> Floats:
    return array[:, None] if array.ndim == 1 else array


def _read_only(array: NDArray[_T]) -> NDArray[_T]:
    array.flags.writeable = False
    return array


def as_values(value: ArrayLike) -> Floats:
    """Take answers as an array with a column for each coordinate."""
    try:
        return _as_columns(np.array(value, dtype=np.float64))
    except (TypeError, ValueError):
        raise DataError("values must be numbers, or vectors of the same length") from None


def check_lengths(task: Sized, worker: Sized, value: Sized) -> None:
    """Refuse columns that are not equally long."""
    if not len(task) == len(worker) == len(value):
        raise DataError(
            f"task, worker and value must be equally long, got {len(task)}, {len(worker)} "
            f"and {len(value)}"
        )


def check_values(value: Floats, value_names: tuple[str, ...], rows: Index | None = None) -> None:
    """Refuse values that are not finite numbers, or too large to be squared."""
    bad = ~np.isfinite(value) | (np.abs(value) > _LARGEST_VALUE)
    if not bad.any():
        return
    row, column = (int(found[0]) for found in np.nonzero(bad))
    number = row + 1 if rows is None else rows[row]
    raise DataError(
        f"row {number}: {value[row, column]} in column {value_names[column]!r} is not a finite "
        f"number of at most {_LARGEST_VALUE:g}; drop or fill in such rows, "
        f"{int(bad.any(axis=1).sum())} in all"
    )


def _check_unit(value: Floats, value_names: tuple[str, ...]) -> None:
    """Refuse a coordinate in units so large that all its squares vanish; zeros are fine."""
    for name, largest in zip(value_names, np.abs(value).max(axis=0).tolist(), strict=True):
        if 0 < largest < _SMALLEST_UNIT:
            raise DataError(
                f"the largest number in column {name!r} is {largest:g}, too small to be squared; "
                f"give the values in smaller units (multiply them by {1 / _SMALLEST_UNIT:g}, say)"
            )


def check_gold(gold: Floats, shape: tuple[int, ...], task_ids: Ids, where: str = "gold") -> None:
    """Refuse known truths that are not whole, not finite, or too large to be squared."""
    if gold.shape != shape:
        raise DataError(f"gold must have shape {shape} (tasks, coordinates), got {gold.shape}")
    known = np.isfinite(gold) & (np.abs(gold) <= _LARGEST_VALUE)
    wrong = ~(known | np.isnan(gold)).all(axis=1) | (known.any(axis=1) & ~known.all(axis=1))
    if wrong.any():
        raise DataError(
            f"{where} of task {shorten(task_ids[wrong])} must give every coordinate as a finite "
            f"number of at most {_LARGEST_VALUE:g}, or none"
        )


def edge_order(task: Codes, worker: Codes, worker_ids: Ids) -> tuple[Index, NDArray[np.bool_]]:
    """Sort rows by task, then by worker id; say which repeat the (task, worker) before them."""
    rank = np.empty(len(worker_ids), dtype=np.int64)
    rank[id_order(worker_ids)] = np.arange(len(worker_ids))
    key = task.astype(np.int64) * len(worker_ids) + rank[worker]
    order = np.argsort(key, kind="stable")
    repeated = np.zeros(len(order), dtype=bool)
    repeated[1:] = key[order[1:]] == key[order[:-1]]
    return order, repeated


def id_order(ids: Ids) -> Index:
    """Return the positions of ids in their sorted order."""
    if ids.dtype == object:
        # Ids need not be comparable with each other, but their texts are.
        listed = ids.tolist()
        by_id = sorted(range(len(listed)), key=lambda i: _sort_key(listed[i]))
        return np.array(by_id, dtype=np.int64)
    return np.argsort(ids, kind="stable")


def _sort_key(identity: object) -> tuple[str, str]:
    return (str(identity), type(identity).__name__)


# Two numbers may be a point, four a box.
_OBJECTS = "; or match several in an image into objects with objects=Matching() (--objects)"


def _left_out(rows: Index) -> str:
    are = "1 row that repeats" if len(rows) == 1 else f"{len(rows)} rows that repeat"
    return f"left out {are} task, worker and answer of an earlier one: row {shorten(np.sort(rows))}"


def _differ(order: Index, value: Floats) -> NDArray[np.bool_]:
    """Return which answers differ from the one before, in this order."""
    differ = np.ones(len(order), dtype=bool)
    differ[1:] = (value[order[1:]] != value[order[:-1]]).any(axis=1)
    return differ


def _refuse_repeats(
    order: Index,
    repeated: NDArray[np.bool_],
    task: Ids,
    worker: Ids,
    rows: Index,
    dimension: int,
) -> None:
    places = np.flatnonzero(repeated)
    first, second = order[places[0] - 1], order[places[0]]
    pairs = f"{len(places)} answers repeat" if len(places) > 1 else "1 answer repeats"
    raise DataError(
        f"worker {shorten([worker[first]])} answered task {shorten([task[first]])} more than once "
        f"(rows {rows[first]} and {rows[second]}); {pairs} an earlier one in all; combine "
        "them with duplicates='mean' or 'last' "
        f"(command line: --duplicates){_OBJECTS if dimension in (2, 4) else ''}"
    )


def _combine(
    order: Index, repeated: NDArray[np.bool_], value: Floats, duplicates: Duplicates
) -> tuple[Index, Floats]:
    if not repeated.any():
        return order, value[order]
    starts = np.flatnonzero(~repeated)
    if duplicates == "last":
        # The sort is stable, so the last of a run is the last in the table.
        ends = np.append(starts[1:], len(order)) - 1
        return order[ends], value[order[ends]]
    counts = np.diff(np.append(starts, len(order)))
    # Averages are taken relative to the first of each run, which keeps small differences of large
    # values.
    origin = value[order[starts]]
    deviation = value[order] - np.repeat(origin, counts, axis=0)
    mean = np.add.reduceat(deviation, starts, axis=0) / counts[:, None]
    return order[starts], origin + mean


def _look_alike(ids: Ids) -> tuple[str, str] | None:
    if ids.dtype.kind not in "OUT":
        return None
    seen: dict[str, str] = {}
    for identity in ids:
        if isinstance(identity, str):
            other = seen.setdefault(" ".join(identity.split()).casefold(), identity)
            if other != identity:
                return other, identity
    return None
