"""Ledger: the answers of a campaign so far, in growing arrays and lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Codes, Floats, Ids, Index
from voxpop.data.answers import Answers, check_values, edge_order
from voxpop.errors import DataError, shorten


class Growing:
    """An array to append to; ``rows`` are those in use."""

    def __init__(self, dtype: type, shape: tuple[int, ...] = (), fill: float = 0) -> None:
        self._room: NDArray[Any] = np.full((16, *shape), fill, dtype=dtype)
        self._fill, self.n = fill, 0

    @property
    def rows(self) -> NDArray[Any]:
        """The rows in use, as a view that is valid until the array grows."""
        return self._room[: self.n]

    def grow(self, n: int) -> None:
        """Extend to n rows, new ones set to the fill value."""
        if n > len(self._room):
            shape = (max(n, 2 * len(self._room)), *self._room.shape[1:])
            larger = np.full(shape, self._fill, dtype=self._room.dtype)
            larger[: self.n] = self.rows
            self._room = larger
        self.n = max(self.n, n)

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        start = self.n
        self.grow(start + len(rows))
        self._room[start : self.n] = rows


class Lists:
    """One growing list of numbers per owner, all in one pool.

    A full list moves to the end of the pool and gets twice the room: appending takes amortised
    constant time, and at most half of the pool is unused.
    """

    def __init__(self) -> None:
        self._pool = Growing(np.int64)
        self._start, self._size = Growing(np.int64), Growing(np.int64)
        self._room = Growing(np.int64)

    @property
    def size(self) -> Index:
        """Length of every list."""
        return np.asarray(self._size.rows)

    def grow(self, n_owners: int) -> None:
        """Add owners with empty lists."""
        for column in (self._start, self._size, self._room):
            column.grow(n_owners)

    def append(self, owner: Index, item: Index) -> None:
        """Append an item to the list of each owner; an owner may occur more than once."""
        order = np.argsort(owner, kind="stable")
        owner, item = owner[order], item[order]
        who, first, count = np.unique(owner, return_index=True, return_counts=True)
        needed = self._size.rows[who] + count
        full = needed > self._room.rows[who]
        self._move(who[full], needed[full])
        at = self._start.rows[owner] + self._size.rows[owner]
        at += np.arange(len(owner)) - np.repeat(first, count)
        self._pool.rows[at] = item
        self._size.rows[who] = needed

    def _move(self, who: Index, needed: Index) -> None:
        room = 2 ** np.ceil(np.log2(np.maximum(needed, 4))).astype(np.int64)
        start = self._pool.n + np.cumsum(room) - room
        kept, old_size = self.gather(who)
        self._pool.grow(self._pool.n + int(room.sum()))
        self._pool.rows[spans(start, old_size)] = kept
        self._start.rows[who], self._room.rows[who] = start, room

    def gather(self, owner: Index) -> tuple[Index, Index]:
        """Return the concatenated lists of some owners, and their lengths."""
        size = self._size.rows[owner]
        return self._pool.rows[spans(self._start.rows[owner], size)], size


def spans(start: Index, size: Index) -> Index:
    """Concatenate the ranges that begin at every start and have these sizes."""
    end = np.cumsum(size)
    return np.asarray(np.arange(end[-1] if len(end) else 0) + np.repeat(start - end + size, size))


class Numbering:
    """Ids of tasks or workers, numbered in order of arrival; an id is anything hashable."""

    def __init__(self) -> None:
        self._number: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._number)

    @property
    def ids(self) -> list[Any]:
        """All ids, in the order of their numbers."""
        return list(self._number)

    def find(self, identity: object) -> int | None:
        """Return the number of an id, or None."""
        return self._number.get(plain(identity))

    def numbers(self, ids: Iterable[Any]) -> Index:
        """Return the numbers of ids; new ids get the next ones."""
        known = self._number
        return np.array([known.setdefault(plain(i), len(known)) for i in ids], dtype=np.int64)


def plain(identity: Any) -> Any:
    """Unwrap a numpy scalar: 1 and np.int64(1) are one id."""
    return identity.item() if isinstance(identity, np.generic) else identity


class Ledger:
    """Tasks, workers and answers so far; every (task, worker) at most once."""

    def __init__(self, dimension: int, value_names: tuple[str, ...]) -> None:
        self.dimension, self.value_names = dimension, value_names
        self.tasks, self.workers = Numbering(), Numbering()
        self._task, self._worker = Growing(np.int32), Growing(np.int32)
        self._value = Growing(np.float64, (dimension,))
        self._gold = Growing(np.float64, (dimension,), np.nan)
        self.of_task, self.of_worker = Lists(), Lists()

    @property
    def n_edges(self) -> int:
        """Number of answers."""
        return self._task.n

    @property
    def task(self) -> Codes:
        """Task of every edge."""
        return np.asarray(self._task.rows)

    @property
    def worker(self) -> Codes:
        """Worker of every edge."""
        return np.asarray(self._worker.rows)

    @property
    def value(self) -> Floats:
        """Value of every edge, (n_edges, dimension)."""
        return np.asarray(self._value.rows)

    @property
    def gold(self) -> Floats:
        """Known truths, (n_tasks, dimension); NaN where unknown."""
        return np.asarray(self._gold.rows)

    def add_tasks(self, ids: Sequence[Any]) -> None:
        """Add tasks that have no answer yet."""
        self.tasks.numbers(ids)
        self._make_room()

    def set_gold(self, ids: Sequence[Any], gold: Floats) -> None:
        """Set the truth of some tasks."""
        self.add_tasks(ids)
        self._gold.rows[self.tasks.numbers(ids)] = gold

    def _make_room(self) -> None:
        self._gold.grow(len(self.tasks))
        self.of_task.grow(len(self.tasks))
        self.of_worker.grow(len(self.workers))

    def new_rows(
        self, task: Sequence[Any], worker: Sequence[Any], value: ArrayLike
    ) -> tuple[list[Any], list[Any], Floats]:
        """Check answers to be added, and return those that are new.

        An answer may be sent again with the same value, by a sender who does not know whether it
        arrived. With another value it is an error.
        """
        try:
            values = np.array(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("values must be numbers, or vectors of equally many numbers") from None
        values = values[:, None] if values.ndim == 1 else values
        tasks, workers = [plain(i) for i in task], [plain(u) for u in worker]
        if not len(tasks) == len(workers) == len(values):
            raise DataError(
                f"task, worker and value must be equally long, got {len(tasks)}, {len(workers)} "
                f"and {len(values)}"
            )
        if values.ndim != 2 or values.shape[1] != self.dimension:
            raise DataError(
                f"values must have {self.dimension} coordinates ({', '.join(self.value_names)}), "
                f"got shape {values.shape}"
            )
        check_values(values, self.value_names)
        pairs = list(zip(tasks, workers, strict=True))
        for row, pair in enumerate(pairs):
            if any(identity is None or identity != identity for identity in pair):
                raise DataError(f"row {row + 1}: an answer needs a task and a worker, got {pair}")
        first: dict[tuple[Any, Any], int] = {}
        try:
            earlier = [first.setdefault(pair, row) for row, pair in enumerate(pairs)]
        except TypeError:
            raise DataError("ids of tasks and workers must be hashable") from None
        is_new = np.array(earlier, dtype=np.int64) == np.arange(len(pairs))
        known = {row: values[earlier[row]] for row in np.flatnonzero(~is_new).tolist()}
        for row, there in [*known.items(), *self._known(pairs)]:
            if not (there == values[row]).all():
                raise DataError(
                    f"worker {shorten(pairs[row][1:])} has answered task {shorten(pairs[row][:1])} "
                    f"with {there.tolist()} and now with {values[row].tolist()}; "
                    "a worker answers a task once"
                )
            is_new[row] = False
        rows = np.flatnonzero(is_new)
        return [tasks[row] for row in rows], [workers[row] for row in rows], values[rows]

    def _known(self, pairs: Sequence[tuple[Any, Any]]) -> Iterator[tuple[int, Floats]]:
        """Find the rows whose task and worker have an answer already, and its value."""
        numbers = [(self.tasks.find(i), self.workers.find(u)) for i, u in pairs]
        rows = np.array([row for row, pair in enumerate(numbers) if None not in pair], dtype=int)
        if len(rows):
            task, worker = np.array([numbers[row] for row in rows], dtype=np.int64).T
            edge, size = self.of_task.gather(task)
            same = self.worker[edge] == np.repeat(worker, size)
            found = np.repeat(rows, size)[same].tolist()
            yield from zip(found, self.value[edge[same]], strict=True)

    def append(self, tasks: Sequence[Any], workers: Sequence[Any], value: Floats) -> Index:
        """Append rows that were checked; return the numbers of their tasks."""
        task, worker = self.tasks.numbers(tasks), self.workers.numbers(workers)
        self._make_room()
        edge = np.arange(self.n_edges, self.n_edges + len(task))
        self._task.extend(task)
        self._worker.extend(worker)
        self._value.extend(value)
        self.of_task.append(task, edge)
        self.of_worker.append(worker, edge)
        return task

    def answers(self) -> Answers:
        """Return all answers as any estimator takes them: tasks without an answer are left out."""
        numbered, _ = self.by_task()
        return Answers.from_codes(
            numbered.task,
            id_array(self.tasks.ids)[numbered.task_ids],
            numbered.worker,
            id_array(self.workers.ids)[numbered.worker_ids],
            numbered.value,
            value_names=self.value_names,
            gold=numbered.gold,
        )

    def by_task(self, tasks: Index | None = None) -> tuple[Answers, Index]:
        """Return the answers to some tasks, and the edge that each is; ids are the numbers here.

        By default all answers are returned, sorted as :class:`Answers` are, so that rounding errors
        are the same as in a fit; those of some tasks are in their order of arrival.
        """
        if tasks is None:
            tasks = np.flatnonzero(self.of_task.size > 0)
            edge, _ = edge_order(self.task, self.worker, id_array(self.workers.ids))
        else:
            edge, _ = self.of_task.gather(tasks)
        workers, worker = np.unique(self.worker[edge], return_inverse=True)
        gold = self.gold[tasks]
        answers = Answers(
            task_ids=tasks,
            worker_ids=workers,
            task=np.repeat(np.arange(len(tasks), dtype=np.int32), self.of_task.size[tasks]),
            worker=worker.astype(np.int32),
            value=self.value[edge],
            value_names=self.value_names,
            gold=None if np.isnan(gold).all() else gold,
        )
        return answers, edge


def id_array(ids: Sequence[Any]) -> Ids:
    """Return ids as an array that keeps their types."""
    if ids and all(type(identity) is int for identity in ids):
        return np.array(ids)
    array = np.empty(len(ids), dtype=object)
    for i, identity in enumerate(ids):  # one by one: a list of tuples would become a matrix
        array[i] = identity
    return array
