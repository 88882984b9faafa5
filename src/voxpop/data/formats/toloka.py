"""Toloka: the TSV of results; ``OUTPUT:`` columns are answers, ``GOLDEN:`` ones known truths."""

from __future__ import annotations

from voxpop.data.formats.base import Collector, Mark, need_columns, prefixed_column, rows_of
from voxpop.data.tables import Table
from voxpop.errors import DataError, shorten

NAME = "toloka"
_TASK, _WORKER, _STATUS = (f"ASSIGNMENT:{part}" for part in ("task_id", "worker_id", "status"))
# Any other status means unfinished or rejected.
_DONE = {None, "", "SUBMITTED", "APPROVED", "ACCEPTED"}


def fits(columns: list[str]) -> bool:
    """Tell whether a table with these columns looks like Toloka's."""
    return _WORKER in columns and any(name.startswith("OUTPUT:") for name in columns)


def collect(table: Table, path: object, task: str | None) -> Collector:
    """Read all submitted and accepted answers that are numbers."""
    need_columns(table, [_WORKER], path)
    names = [n.removeprefix("OUTPUT:") for n in table.columns if n.startswith("OUTPUT:")]
    column = _task_column(table, task)
    found = Collector(format=NAME, path=path, fields={"task": column, "worker": _WORKER})
    texts = [f"{kind}:{name}" for name in names for kind in ("OUTPUT", "GOLDEN")]
    for where, (item, worker, status, *cells) in rows_of(
        table, path, [column, _WORKER], [_STATUS, *texts]
    ):
        if item is None and worker is None:
            continue  # an empty line between two pages of tasks
        if item is None or worker is None:
            raise DataError(f"{where}: has no {column if item is None else _WORKER}")
        if status not in _DONE:
            found.skip(f"answers with status {status}")
            continue
        found.looked.add((item, worker))
        for text, cell in zip(texts, cells, strict=True):
            kind, _, name = text.partition(":")
            if cell is not None:
                found.add_number(name, cell, Mark(item, worker), gold=kind == "GOLDEN")
    return found


def _task_column(table: Table, asked: str | None) -> str:
    if asked is not None:
        return prefixed_column(table, asked, "INPUT:")
    inputs = [name for name in table.columns if name.startswith("INPUT:")]
    if _TASK in table.columns:
        return _TASK
    if len(inputs) == 1:
        return inputs[0]
    raise DataError(
        f"no column {_TASK!r}, and {len(inputs)} INPUT columns; name one with task= "
        f"(command line: --task): {shorten(inputs, 8)}"
    )
