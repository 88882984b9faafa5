"""Wide tables: a row per task, a column per worker; a bare matrix of numbers too."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from voxpop.data.columns import SYNONYMS, VECTORS, find_column, simple
from voxpop.data.files import refuse_missing
from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import column_ids, need_columns, number
from voxpop.data.numerals import Spelling
from voxpop.data.tables import Table, matrix
from voxpop.data.unpack import read_text
from voxpop.errors import DataError

NAME = "wide"
# Columns of statistics that such tables carry beside the people.
_STATISTICS = {"mos", "ci", "ci95", "n", "sos", "std", "sd", "mean", "median", "stddev", "dmos"}


def fits(table: Table) -> bool:
    """Return whether a table is wide beyond doubt.

    It must have no column that looks like a worker or a value, a first column that looks like the
    task, by its name or because it holds text, with no id twice, and at least three more columns
    that hold nothing but numbers.
    """
    first, *others = table.columns
    known = {*SYNONYMS["worker"], *SYNONYMS["value"]} | {n for names in VECTORS for n in names}
    if {simple(name) for name in known} & {simple(name) for name in (first, *others)}:
        return False
    if any(name.lower().startswith("value_") for name in (first, *others)):
        return False
    people = [name for name in others if simple(name) not in _STATISTICS]
    tasks = table.texts(first)
    if len(people) < 3 or None in tasks or len(set(tasks)) < len(tasks):
        return False
    named = find_column([first], SYNONYMS["task"]) is not None
    is_number = table.spelling.is_number
    return (named or not any(map(is_number, tasks))) and all(
        is_number(text) for texts in table.all_texts(people) for text in texts
    )


def collect_bare(path: Path, spelling: Spelling) -> Export | None:
    """Read a matrix without names, tasks and workers numbered from 1; None if it has names."""
    text = read_text(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    cells = [cell.strip() for cell in first.replace("\t", ",").replace(";", ",").split(",")]
    # Consecutive numbers after an empty cell are names of workers, not answers.
    counted = not cells[0] and any(
        cells[1:] == [str(k) for k in range(start, start + len(cells) - 1)] for start in (0, 1)
    )
    if len(cells) == 1 or counted or not all(_is_plain(cell, spelling) for cell in cells):
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
            if not spelling.is_missing(cell):
                value = number(cell.strip(), f"{path}: row {i}, column {u}")
                if value not in spelling.missing:
                    found.add("value", (value,), Mark(i, u))
    return found


def _is_plain(text: str, spelling: Spelling) -> bool:
    try:
        return spelling.is_missing(text) or number(text, "") is not None
    except DataError:
        return False


def collect(table: Table, task: str | None) -> Export:
    """Read a column per worker, row by row; columns of statistics like MOS are left out."""
    column = task or find_column(table.columns, SYNONYMS["task"]) or table.columns[0]
    need_columns(table, [column])
    found = Export(format=NAME, path=table.name, fields={"task": column, "worker": "header"})
    tasks = _tasks(table, column)
    for name in sorted(table.columns):
        if name != column and simple(name) in _STATISTICS:
            found.skip(f"column {name!r}")
    people = [n for n in table.columns if n != column and simple(n) not in _STATISTICS]
    if not people:
        raise DataError(f"{table.name}: has no column of a worker beside {column!r}")
    value = matrix(table, people, missing_ok=True)
    for item, row in zip(tasks, value.tolist(), strict=True):
        given = [
            (name, answer) for name, answer in zip(people, row, strict=True) if answer == answer
        ]
        if not given:
            found.skip("tasks without an answer")
        for name, answer in given:
            found.add("value", (answer,), Mark(item, name))
    return found


def _tasks(table: Table, column: str) -> Sequence[object]:
    tasks = column_ids([text and text.strip() for text in table.texts(column)])
    absent = np.array([not task and task != 0 for task in tasks])
    refuse_missing(absent, column, f"{table.name}: ", table.rows)
    return tasks
