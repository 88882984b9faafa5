"""Toloka: the TSV of results; ``OUTPUT:`` columns are answers, ``GOLDEN:`` ones known truths."""

from __future__ import annotations

from voxpop.data.formats.base import (
    Collector,
    Mark,
    Wishes,
    column_ids,
    need_columns,
    number,
    rows_of,
)
from voxpop.data.tables import Table
from voxpop.errors import DataError, shorten

NAME = "toloka"
_TASK, _WORKER, _STATUS = (f"ASSIGNMENT:{part}" for part in ("task_id", "worker_id", "status"))
# What is not among these was not finished, or was refused.
_DONE = {"", "SUBMITTED", "APPROVED", "ACCEPTED"}


def fits(columns: list[str]) -> bool:
    """Tell whether a table with these columns looks like Toloka's."""
    return _WORKER in columns and any(name.startswith("OUTPUT:") for name in columns)


def collect(table: Table, path: object, wishes: Wishes) -> Collector:
    """Read all submitted and accepted answers that are numbers."""
    need_columns(table, [_WORKER], path)
    outputs = [name for name in table.columns if name.startswith("OUTPUT:")]
    goldens = [name.replace("OUTPUT:", "GOLDEN:") for name in outputs]
    task_column = _task_column(table, wishes)
    found = Collector(format=NAME, path=path, fields={"task": task_column, "worker": _WORKER})
    tasks, workers = (column_ids(table.texts(name)) for name in (task_column, _WORKER))
    empty: list[str | None] = [None] * len(tasks)
    status = table.texts(_STATUS) if _STATUS in table.columns else empty
    known = [table.texts(name) if name in table.columns else empty for name in goldens]
    for row, answers in rows_of(table, outputs):
        task, worker = tasks[row - 1], workers[row - 1]
        if task is None and worker is None:
            continue  # an empty line between two pages of tasks
        if task is None or worker is None:
            raise DataError(f"{path}: row {row}: has no {task_column if task is None else _WORKER}")
        if (status[row - 1] or "") not in _DONE:
            found.skip(f"answers with status {status[row - 1]}")
            continue
        found.looked.add((task, worker))
        for column, text, truths in zip(outputs, answers, known, strict=True):
            name = column.removeprefix("OUTPUT:")
            for cell, is_gold in ((text, False), (truths[row - 1], True)):
                if cell is None:
                    continue
                try:
                    value = (number(cell, name),)
                except DataError:
                    found.skip(f"answers to {name!r} that are no number", question=name)
                    continue
                found.add(name, "number", Mark(task, worker, value), gold=is_gold)
    return found


def _task_column(table: Table, wishes: Wishes) -> str:
    inputs = [name for name in table.columns if name.startswith("INPUT:")]
    if wishes.task is not None:
        for name in (wishes.task, f"INPUT:{wishes.task}"):
            if name in table.columns:
                return name
        raise DataError(f"no column {wishes.task!r} for the task; try {shorten(inputs, 8)}")
    if _TASK in table.columns:
        return _TASK
    if len(inputs) == 1:
        return inputs[0]
    raise DataError(
        f"no column {_TASK!r}, and {len(inputs)} INPUT columns; name one with task= "
        f"(command line: --task): {shorten(inputs, 8)}"
    )
