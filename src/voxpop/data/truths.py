"""Truths: tables beside the answers, one row per task or worker, aligned with their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import VARIANCES, check_gold
from voxpop.data.columns import (
    SYNONYMS,
    find_column,
    ids_of_rows,
    resolve_aside,
    resolve_column,
    resolve_values,
    tidy_ids,
)
from voxpop.data.ids import Positions
from voxpop.data.numerals import Spelling
from voxpop.data.tables import Table, matrix, open_table
from voxpop.errors import DataError, shorten


def beside(source: object, spelling: Spelling | None) -> Table:
    """Open a table that goes with the answers, and is written like them."""
    return open_table(source, spelling=spelling and replace(spelling, sheet=None))


def read_truth(
    source: object,
    task_ids: Ids,
    value_names: tuple[str, ...],
    needed: str = "truth",
    *,
    task: str | None = None,
    spelling: Spelling | None = None,
) -> Floats:
    """Read one vector per task and align it with ``task_ids``; NaN where there is none.

    ``source`` is a mapping, a path, or a data frame with a task column (``task``, if it has that,
    or one that looks like it) and the value columns of the answers (or, for numbers, a column
    named like one).
    """
    where = needed
    if isinstance(source, Mapping):
        if not source:
            raise DataError(f"{needed}: is empty")
        ids, rows = [*source], [np.atleast_1d(item) for item in source.values()]
        try:
            value = np.array(rows, dtype=np.float64).reshape(len(rows), -1)
        except (TypeError, ValueError):
            raise DataError(f"{needed}: expected numbers, got {shorten(source.values())}") from None
    else:
        table = beside(source, spelling)
        where = needed if table.name == "the table" else f"{needed} {table.name}"
        column = resolve_aside(table, "task", task)
        columns = truth_columns(table, value_names, column)
        codes, distinct, _ = tidy_ids(*table.ids(column))
        if len(distinct) < len(codes):
            twice = distinct[np.bincount(codes) > 1]
            raise DataError(f"{where}: task {shorten(twice)} occurs more than once")
        # A truth may be missing for some tasks.
        ids, value = list(distinct[codes]), matrix(table, columns, missing_ok=True)
    if value.shape[1] != len(value_names):
        raise DataError(
            f"{where}: expected {len(value_names)} coordinates ({', '.join(value_names)}), "
            f"got {value.shape[1]}"
        )
    aligned, n_found = _align(ids, value, task_ids)
    if n_found == 0:
        raise DataError(
            f"{where}: none of its tasks ({shorten(ids)}) is among the answers' tasks "
            f"({shorten(task_ids)})"
        )
    check_gold(aligned, aligned.shape, task_ids, where)
    return aligned


def read_variances(source: object, worker_ids: Ids) -> Floats:
    """Read one positive variance for every worker, from a mapping or a table, in order of ids."""
    if isinstance(source, Mapping):
        ids, number = [*source], [*source.values()]
    else:
        table = open_table(source)
        column = resolve_column(table, "variance", None)
        ids, number = ids_of_rows(table, "worker"), table.numbers(column).tolist()
    variance, _ = _align(ids, np.array(number, dtype=np.float64), worker_ids)
    if np.isnan(variance).any():
        missing = worker_ids[np.isnan(variance)]
        raise DataError(f"variances: none given for worker {shorten(missing)}")
    least, most = VARIANCES
    if not ((variance >= least) & (variance <= most)).all():
        raise DataError(f"variances: expected positive finite numbers, {least:g} to {most:g}")
    return variance


def read_by_worker(source: object, column: str) -> dict[str, str]:
    """Read one text per worker from a table with that column."""
    table = open_table(source)
    workers = table.texts(resolve_column(table, "worker", None))
    texts = table.texts(resolve_column(table, column, column))
    return {str(w): t or "" for w, t in zip(workers, texts, strict=True) if w is not None}


def truth_columns(table: Table, value_names: tuple[str, ...], task: str) -> list[str]:
    """Find the truth by the answers' own names, as ``truth`` or ``gold``, or like an answer."""
    if set(value_names) <= set(table.columns):
        return list(value_names)
    named = find_column(table.columns, SYNONYMS["truth"]) if len(value_names) == 1 else None
    return resolve_values(table, None, {task}) if named is None else [named]


def _align(ids: Sequence[Any], value: Floats, known: Ids) -> tuple[Floats, int]:
    """Put values in the order of the known ids, NaN where there is none; count those found."""
    positions = Positions(known)
    places = [(positions.get(identity), row) for row, identity in enumerate(ids)]
    found = [(place, row) for place, row in places if place is not None]
    aligned = np.full((len(known), *value.shape[1:]), np.nan)
    for place, row in found:
        aligned[place] = value[row]
    return aligned, len(found)
