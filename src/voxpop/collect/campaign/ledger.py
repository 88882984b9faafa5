"""Ledger: the answers of a campaign so far, in growing arrays and lists."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers, as_values, check_lengths, check_values, id_order
from voxpop.data.ids import id_array, plain
from voxpop.errors import DataError, require, shorten


class Growing:
    """An array to append to; ``rows`` are those in use, and an index picks among them."""

    def __init__(self, dtype: type, shape: tuple[int, ...] = (), fill: float = 0) -> None:
        self._room: NDArray[Any] = np.full((16, *shape), fill, dtype=dtype)
        self.fill, self.n = fill, 0

    @property
    def rows(self) -> NDArray[Any]:
        """The rows in use, as a view that is valid until the array grows."""
        return self._room[: self.n]

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def grow(self, n: int) -> None:
        """Extend to n rows, new ones set to the fill value."""
        if n > len(self._room):
            shape = (max(n, 2 * len(self._room)), *self._room.shape[1:])
            larger = np.full(shape, self.fill, dtype=self._room.dtype)
            larger[: self.n] = self.rows
            self._room = larger
        self.n = max(self.n, n)

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        start = self.n
        self.grow(start + len(rows))
        self._room[start : self.n] = rows

    def drop(self, row: int) -> None:
        """Take a row out; the last one moves into its place."""
        self._room[row] = self._room[self.n - 1]
        self._room[self.n - 1] = self.fill
        self.n -= 1


class Lists:
    """One growing list of numbers per owner."""

    def __init__(self) -> None:
        self._items: list[array[int]] = []
        self._size = Growing(np.int64)

    @property
    def size(self) -> Index:
        """Length of every list."""
        return self._size.rows

    def grow(self, n_owners: int) -> None:
        """Add owners with empty lists."""
        self._items += [array("q") for _ in range(len(self._items), n_owners)]
        self._size.grow(n_owners)

    def append(self, owner: Index, item: Index) -> None:
        """Append an item to the list of each owner; an owner may occur more than once."""
        for i, number in zip(owner.tolist(), item.tolist(), strict=True):
            self._items[i].append(number)
        np.add.at(self.size, owner, 1)

    def remove(self, owner: int, item: int) -> None:
        """Take an item out of the list of an owner; the others keep their order."""
        self._items[owner].remove(item)
        self.size[owner] -= 1

    def rename(self, owner: int, item: int, new: int) -> None:
        """Replace an item by another number."""
        items = self._items[owner]
        items[items.index(item)] = new

    def gather(self, owner: Index) -> tuple[Index, Index]:
        """Return the concatenated lists of some owners, and their lengths."""
        items = b"".join([self._items[i] for i in owner.tolist()])
        return np.frombuffer(items, dtype=np.int64), self.size[owner]


class Numbering(dict[Any, int]):
    """Ids of tasks or workers, numbered in order of arrival; an id is anything hashable."""

    def __init__(self) -> None:
        super().__init__()
        self._order: Index = np.empty(0, dtype=np.int64)

    def find(self, identity: object) -> int | None:
        """Return the number of an id, or None."""
        return self.get(plain(identity))

    def numbers(self, ids: Iterable[Any]) -> Index:
        """Return the numbers of ids; new ids get the next ones."""
        return np.array([self.setdefault(plain(i), len(self)) for i in ids], dtype=np.int64)

    def in_order(self, chosen: NDArray[np.bool_]) -> Index:
        """Return the numbers that are chosen, sorted by their ids."""
        if len(self._order) != len(self):
            self._order = id_order(id_array([*self]))
        return self._order[chosen[self._order]]


class Ledger:
    """Tasks, workers and answers so far; every (task, worker) at most once."""

    def __init__(self, dimension: int, value_names: tuple[str, ...]) -> None:
        require(
            len(value_names) == dimension,
            f"value_names must name {dimension} coordinates, got {len(value_names)}",
        )
        self.dimension, self.value_names = dimension, value_names
        self.tasks, self.workers = Numbering(), Numbering()
        self.task, self.worker = Growing(np.int32), Growing(np.int32)
        self.value = Growing(np.float64, (dimension,))
        # Known truths by task, NaN where unknown; all else is by edge.
        self.gold = Growing(np.float64, (dimension,), np.nan)
        self.of_task, self.of_worker = Lists(), Lists()

    @property
    def n_edges(self) -> int:
        """Number of answers."""
        return self.task.n

    @property
    def is_gold(self) -> NDArray[np.bool_]:
        """Which tasks have a known truth."""
        return np.asarray(~np.isnan(self.gold.rows[:, 0]))

    def tasks_of(self, worker: object) -> list[int]:
        """Return the numbers of the tasks that a worker has answered."""
        u = self.workers.find(worker)
        return [] if u is None else self.task[self.of_worker.gather(np.array([u]))[0]].tolist()

    def add_tasks(self, ids: Sequence[Any]) -> Index:
        """Add tasks, where they are new; return the numbers of all of them."""
        task = self.tasks.numbers(ids)
        self.gold.grow(len(self.tasks))
        self.of_task.grow(len(self.tasks))
        return task

    def add_workers(self, ids: Iterable[Any]) -> Index:
        """Add workers, where they are new; return the numbers of all of them."""
        worker = self.workers.numbers(ids)
        self.of_worker.grow(len(self.workers))
        return worker

    def set_gold(self, ids: Sequence[Any], gold: Floats) -> Index:
        """Set the truth of some tasks; return their numbers."""
        task = self.add_tasks(ids)
        self.gold.rows[task] = gold
        return task

    def new_rows(
        self, task: Sequence[Any], worker: Sequence[Any], value: ArrayLike
    ) -> tuple[list[Any], list[Any], Floats]:
        """Check answers to be added, and return those that are new.

        An answer may be sent again with the same value, by a sender who does not know whether it
        arrived. With another value it is an error.
        """
        values = as_values(value)
        tasks, workers = [plain(i) for i in task], [plain(u) for u in worker]
        check_lengths(tasks, workers, values)
        if values.ndim != 2 or values.shape[1] != self.dimension:
            raise DataError(
                f"values must have {self.dimension} coordinates ({', '.join(self.value_names)}), "
                f"got shape {values.shape}"
            )
        check_values(values, self.value_names)
        pairs = list(zip(tasks, workers, strict=True))
        first: dict[tuple[Any, Any], int] = {}
        known: dict[int, Floats] = {}
        for row, pair in enumerate(pairs):
            if any(identity is None or identity != identity for identity in pair):
                raise DataError(f"row {row + 1}: an answer needs a task and a worker, got {pair}")
            try:
                if first.setdefault(pair, row) < row:
                    known[row] = values[first[pair]]
            except TypeError:
                raise DataError("ids of tasks and workers must be hashable") from None
        known |= self._known(pairs)
        for row, there in known.items():
            if not (there == values[row]).all():
                raise DataError(
                    f"worker {shorten(pairs[row][1:])} has answered task {shorten(pairs[row][:1])} "
                    f"with {there.tolist()} and now with {values[row].tolist()}; "
                    "a worker answers a task once"
                )
        rows = [row for row in range(len(pairs)) if row not in known]
        return [tasks[row] for row in rows], [workers[row] for row in rows], values[rows]

    def _known(self, pairs: Sequence[tuple[Any, Any]]) -> dict[int, Floats]:
        """Find the rows whose task and worker have an answer already, and its value."""
        numbers = [(self.tasks.find(i), self.workers.find(u)) for i, u in pairs]
        rows = np.array([row for row, pair in enumerate(numbers) if None not in pair], dtype=int)
        task, worker = np.array([numbers[row] for row in rows], dtype=np.int64).reshape(-1, 2).T
        edge, size = self.of_task.gather(task)
        same = self.worker[edge] == np.repeat(worker, size)
        found = np.repeat(rows, size)[same].tolist()
        return dict(zip(found, self.value[edge[same]], strict=True))

    def edge_of(self, task: object, worker: object) -> int:
        """Return the edge of an answer that is there."""
        i, u = self.tasks.find(task), self.workers.find(worker)
        if i is not None and u is not None:
            edge, _ = self.of_task.gather(np.array([i]))
            found = edge[self.worker[edge] == u]
            if len(found):
                return int(found[0])
        raise DataError(f"worker {shorten([worker])} has not answered task {shorten([task])}")

    def remove(self, edge: int) -> None:
        """Take an answer out; the last edge gets its number."""
        last = self.n_edges - 1
        for lists, owner in ((self.of_task, self.task), (self.of_worker, self.worker)):
            lists.remove(int(owner[edge]), edge)
            if edge < last:
                lists.rename(int(owner[last]), last, edge)
        for column in (self.task, self.worker, self.value):
            column.drop(edge)

    def append(self, tasks: Sequence[Any], workers: Sequence[Any], value: Floats) -> Index:
        """Append rows that were checked; return the numbers of their tasks."""
        task, worker = self.add_tasks(tasks), self.add_workers(workers)
        edge = np.arange(self.n_edges, self.n_edges + len(task))
        self.task.extend(task)
        self.worker.extend(worker)
        self.value.extend(value)
        self.of_task.append(task, edge)
        self.of_worker.append(worker, edge)
        return task

    def answers(self) -> Answers:
        """Return all answers as any estimator takes them: tasks without an answer are left out."""
        numbered, _ = self.by_task()
        return Answers.from_codes(
            numbered.task,
            id_array([*self.tasks])[numbered.task_ids],
            numbered.worker,
            id_array([*self.workers])[numbered.worker_ids],
            numbered.value,
            value_names=self.value_names,
            gold=numbered.gold,
        )

    def answered(self) -> Index:
        """Return the tasks that have answers, sorted by their ids."""
        return self.tasks.in_order(self.of_task.size > 0)

    def by_task(self, tasks: Index | None = None) -> tuple[Answers, Index]:
        """Return the answers to some tasks, and the edge that each is; ids are the numbers here.

        By default all answers are returned, with tasks and workers sorted by their ids, so that
        rounding errors do not depend on the order of arrival; those of some tasks are in that.
        """
        if tasks is None:
            tasks = self.answered()
            workers = self.workers.in_order(self.of_worker.size > 0)
            place, rank = (np.zeros(len(ids), dtype=np.int64) for ids in (self.tasks, self.workers))
            place[tasks], rank[workers] = np.arange(len(tasks)), np.arange(len(workers))
            worker = rank[self.worker.rows]
            edge = np.argsort(place[self.task.rows] * max(1, len(workers)) + worker, kind="stable")
            worker = worker[edge]
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
