"""Wide tables: a row per task, a column per worker; a bare matrix of numbers too."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from voxpop.data.files import read_text
from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import column_ids, need_columns, number
from voxpop.data.tables import SYNONYMS, VECTORS, Table, find_column
from voxpop.errors import DataError

NAME = "wide"
_MISSING = {"", "nan", "na", "n/a", "null", "none"}
# Columns of statistics that such tables carry beside the people.
_STATISTICS = {"mos", "ci", "ci95", "n", "sos", "std", "sd", "mean", "median", "stddev", "dmos"}


def fits(table: Table) -> bool:
    """Tell whether a table is wide beyond doubt.

    It must have no column that looks like a worker or a value, a first column that looks like the
    task with no id twice, and at least three more columns that hold nothing but numbers.
    """
    first, *others = (name.lower() for name in table.columns)
    known = {*SYNONYMS["worker"], *SYNONYMS["value"]} | {n for names in VECTORS for n in names}
    if known & {first, *others} or any(name.startswith("value_") for name in (first, *others)):
        return False
    people = [name for name in table.columns[1:] if name.lower() not in _STATISTICS]
    if first not in SYNONYMS["task"] or len(people) < 3:
        return False
    tasks = table.texts(table.columns[0])
    return len(set(tasks)) == len(tasks) and all(
        _is_number_or_missing(text) for name in people for text in table.texts(name)
    )


def _is_number_or_missing(text: str | None) -> bool:
    try:
        return text is None or text.strip().lower() in _MISSING or number(text, "") is not None
    except DataError:
        return False


def collect_bare(path: Path, missing: Sequence[float]) -> Export | None:
    """Read a matrix without names, tasks and workers numbered from 1; None if it has names."""
    text = read_text(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    cells = [cell.strip() for cell in first.replace("\t", ",").replace(";", ",").split(",")]
    # Consecutive numbers after an empty cell are names of workers, not answers.
    counted = not cells[0] and any(
        cells[1:] == [str(k) for k in range(start, start + len(cells) - 1)] for start in (0, 1)
    )
    if len(cells) == 1 or counted or not all(map(_is_number_or_missing, cells)):
        return None
    delimiter = max(",\t;", key=text.partition("\n")[0].count)
    found = Export(format=NAME, path=path, fields={"task": "row", "worker": "column"})
    try:
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    for i, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise DataError(f"{path}: row {i} has {len(row)} cells, the first has {len(rows[0])}")
        for u, cell in enumerate(row, start=1):
            _take(found, Mark(i, u), cell, missing, f"{path}: row {i}, column {u}")
    return found


def collect(table: Table, task: str | None, missing: Sequence[float]) -> Export:
    """Read a column per worker; columns of statistics like MOS are left out."""
    column = task or find_column(table.columns, SYNONYMS["task"]) or table.columns[0]
    need_columns(table, [column])
    found = Export(format=NAME, path=table.name, fields={"task": column, "worker": "header"})
    tasks = column_ids(table.texts(column))
    for name in sorted(table.columns):
        if name != column and name.lower() in _STATISTICS:
            found.skip(f"column {name!r}")
    for name in table.columns:
        if name == column or name.lower() in _STATISTICS:
            continue
        for row, (item, cell) in enumerate(zip(tasks, table.texts(name), strict=True), start=1):
            if item is None:
                raise DataError(f"{table.name}: column {column!r} is empty in row {row}")
            _take(
                found, Mark(item, name), cell, missing, f"{table.name}: row {row}, column {name!r}"
            )
    return found


def _take(
    found: Export, mark: Mark, cell: str | None, missing: Sequence[float], where: str
) -> None:
    if cell is None or cell.strip().lower() in _MISSING:
        return
    value = number(cell.strip(), where)
    if value not in missing:
        found.add("value", (value,), mark)
