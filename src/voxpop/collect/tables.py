"""Tables of tasks, workers and pairs: ids that occur once, capacities, task and worker by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Ids
from voxpop.data.columns import ids_of_rows, resolve_column
from voxpop.data.tables import Table, open_table
from voxpop.errors import DataError, shorten


def require_distinct(ids: Iterable[Any], role: str) -> None:
    """Refuse a list of tasks or workers with repeated ids."""
    repeated = [identity for identity, n in Counter(ids).items() if n > 1]
    if repeated:
        raise DataError(f"{role}s: {shorten(repeated)} occurs more than once")


def read_distinct_ids(table: Table, role: str) -> Ids:
    """Read the ids of tasks or workers from a table with one row for each."""
    code, ids = table.ids(resolve_column(table, role, None))
    if len(ids) < len(code):
        require_distinct(ids[code].tolist(), role)
    return ids


def read_capacity(table: Table) -> NDArray[np.int64] | None:
    """Read the maximum number of answers of each worker, where the table has such a column."""
    if "capacity" not in table.columns:
        return None
    capacity = table.numbers("capacity")
    if not bool(((capacity >= 0) & (capacity == np.floor(capacity))).all()):
        raise DataError("capacity of a worker must be a whole number, 0 or more")
    return capacity.astype(np.int64)


def read_pairs(source: object) -> tuple[list[Any], list[Any]]:
    """Read the task and the worker of every row."""
    table = open_table(source)
    return ids_of_rows(table, "task"), ids_of_rows(table, "worker")
