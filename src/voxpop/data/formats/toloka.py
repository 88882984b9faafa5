"""Toloka: the TSV of results; ``OUTPUT:`` columns are answers, ``GOLDEN:`` ones known truths."""

from __future__ import annotations

from voxpop.data.formats.base import Export
from voxpop.data.formats.parsing import need_columns, rows_of, task_column
from voxpop.data.tables import Table
from voxpop.errors import DataError, shorten

NAME = "toloka"
_TASK, _WORKER, _STATUS = (f"ASSIGNMENT:{part}" for part in ("task_id", "worker_id", "status"))
# Any other status means unfinished or rejected.
_DONE = {None, "", "SUBMITTED", "APPROVED", "ACCEPTED"}


def fits(columns: list[str]) -> bool:
    """Return whether a table with these columns looks like Toloka's."""
    return _WORKER in columns and any(name.startswith("OUTPUT:") for name in columns)


def collect(table: Table, task: str | None) -> Export:
    """Read all submitted and accepted answers that are numbers."""
    need_columns(table, [_WORKER])
    column = _id_column(table, task)
    found = Export(format=NAME, path=table.name, fields={"task": column, "worker": _WORKER})
    names = [n.removeprefix("OUTPUT:") for n in table.columns if n.startswith("OUTPUT:")]
    texts = [f"{kind}:{name}" for name in names for kind in ("OUTPUT", "GOLDEN")]
    inputs = [name for name in table.columns if name.startswith("INPUT:") and name != column]
    for where, cells in rows_of(table, [column, _WORKER], [_STATUS, *texts, *inputs]):
        item, worker, status, *rest = cells
        answers, shown = rest[: len(texts)], rest[len(texts) :]
        if item is None and worker is None:
            continue  # an empty line between two pages of tasks
        if item is None or worker is None:
            raise DataError(f"{where}: has no {column if item is None else _WORKER}")
        if status not in _DONE:
            found.skip(f"answers with status {status}")
            continue
        mark = found.look(item, worker)
        found.show(item, {column: item, **dict(zip(inputs, shown, strict=True))})
        for text, answer in zip(texts, answers, strict=True):
            kind, _, name = text.partition(":")
            if answer is not None:
                found.add_number(name, answer, mark, gold=kind == "GOLDEN")
    return found


def _id_column(table: Table, asked: str | None) -> str:
    if asked is not None:
        return task_column(table, asked, "INPUT:")
    inputs = [name for name in table.columns if name.startswith("INPUT:")]
    if _TASK in table.columns:
        return _TASK
    if len(inputs) == 1:
        return inputs[0]
    raise DataError(
        f"no column {_TASK!r}, and {len(inputs)} INPUT columns; name one with task= "
        f"(command line: --task): {shorten(inputs, 8)}"
    )
