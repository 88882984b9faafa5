"""Mechanical Turk: the batch results CSV in; approvals, rejections and bonuses out.

An answer is a column ``Answer.NAME``, or a name in the JSON of ``Answer.taskAnswers`` (forms made
of crowd-html-elements): a number, the number of the radio button chosen, boxes or keypoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxpop.data.formats.base import (
    Collector,
    Mark,
    Wishes,
    column_ids,
    corners,
    get,
    need_columns,
    number,
    parse_json,
    rows_of,
)
from voxpop.data.tables import Table, write_table
from voxpop.errors import DataError, shorten

NAME = "mturk"
_FORM = "Answer.taskAnswers"


def fits(columns: list[str]) -> bool:
    """Tell whether a table with these columns looks like a batch."""
    needed = {"HITId", "WorkerId", "AssignmentStatus"}
    return needed <= set(columns) and any(name.startswith("Answer.") for name in columns)


def collect(table: Table, path: object, wishes: Wishes) -> Collector:
    """Read all assignments but the rejected ones."""
    need_columns(table, ["HITId", "WorkerId", "AssignmentStatus"], path)
    columns = [name for name in table.columns if name.startswith("Answer.")]
    task_column = _task_column(table, wishes)
    found = Collector(format=NAME, path=path, fields={"task": task_column, "worker": "WorkerId"})
    tasks = column_ids(table.texts(task_column))
    for row, cells in rows_of(table, ["WorkerId", "AssignmentStatus", *columns]):
        worker, status, *answers = cells
        where = f"{path}: row {row}"
        task = tasks[row - 1]
        if status == "Rejected":
            found.skip("rejected assignments")
            continue
        if task is None or worker is None:
            raise DataError(f"{where}: has no {task_column if task is None else 'WorkerId'}")
        found.looked.add((task, worker))
        for column, text in zip(columns, answers, strict=True):
            if text is None:
                continue
            if column == _FORM:
                _take_form(found, text, task, worker, where)
            else:
                _take_value(found, column.removeprefix("Answer."), text, task, worker, where)
    return found


def _task_column(table: Table, wishes: Wishes) -> str:
    if wishes.task is None:
        return "HITId"
    for name in (wishes.task, f"Input.{wishes.task}"):
        if name in table.columns:
            return name
    inputs = [name for name in table.columns if name.startswith("Input.")]
    raise DataError(f"no column {wishes.task!r} for the task; try HITId or {shorten(inputs, 8)}")


def _take_form(found: Collector, text: str, task: Any, worker: Any, where: str) -> None:
    document = parse_json(text, f"{where}, {_FORM}")
    if not isinstance(document, list) or not all(isinstance(part, dict) for part in document):
        raise DataError(f"{where}, {_FORM}: expected a list of objects")
    for part in document:
        for name, value in part.items():
            _take_value(found, str(name), value, task, worker, where)


def _take_value(
    found: Collector, name: str, value: Any, task: Any, worker: Any, where: str
) -> None:
    """Sort out what a value is; text and what is left empty is no number."""
    here = f"{where}, {name!r}"
    if isinstance(value, Mapping) and "boundingBoxes" in value:
        for box in get(value, "boundingBoxes", list, here):
            sides = (
                number(get(box, side, object, here), here)
                for side in ("left", "top", "width", "height")
            )
            mark = Mark(task, worker, corners(*sides), str(box.get("label", "")))
            found.add(name, "box", mark)
    elif isinstance(value, Mapping) and "keypoints" in value:
        for point in get(value, "keypoints", list, here):
            at = tuple(number(get(point, axis, object, here), here) for axis in ("x", "y"))
            found.add(name, "point", Mark(task, worker, at, str(point.get("label", ""))))
    elif isinstance(value, Mapping):
        chosen = [key for key, on in value.items() if on is True]
        _take_number(found, name, chosen[0] if len(chosen) == 1 else "", task, worker)
    else:
        _take_number(found, name, value, task, worker)


def _take_number(found: Collector, name: str, value: Any, task: Any, worker: Any) -> None:
    try:
        found.add(name, "number", Mark(task, worker, (number(value, name),)))
    except DataError:
        found.skip(f"answers to {name!r} that are no number", question=name)


def review(
    table: Table,
    out: Path,
    reasons: Mapping[str, str],
    bonuses: Mapping[str, float] | None = None,
) -> str:
    """Write the batch with ``Approve`` and ``Reject`` filled in, to upload; and a bonus list.

    Parameters
    ----------
    reasons
        Why the work of a worker is rejected, by worker. Everybody else's is approved. A person
        is not paid for what is rejected: the reason is read by them.
    bonuses
        What a worker gets on top for every approved assignment, by worker; written beside ``out``
        as ``NAME_bonus.csv``.
    """
    need_columns(table, ["WorkerId", "AssignmentId", "AssignmentStatus"], "the batch")
    cells = {name: table.texts(name) for name in table.columns}
    strangers = (set(reasons) | set(bonuses or {})) - set(cells["WorkerId"])
    if strangers:
        raise DataError(f"worker {shorten(sorted(strangers))} has no assignment in the batch")
    for worker, reason in reasons.items():
        if not reason.strip():
            raise DataError(f"worker {worker!r}: a rejection needs a reason, the worker reads it")
    n = len(cells["WorkerId"])
    cells["Approve"], cells["Reject"] = [None] * n, [None] * n
    bonus: dict[str, list[Any]] = {
        name: [] for name in ("WorkerId", "AssignmentId", "BonusAmount", "Reason")
    }
    approved = rejected = 0
    for row, person in enumerate(cells["WorkerId"]):
        worker = person or ""
        if cells["AssignmentStatus"][row] != "Submitted":
            continue
        if worker in reasons:
            cells["Reject"][row] = reasons[worker]
            rejected += 1
            continue
        cells["Approve"][row] = "x"
        approved += 1
        if bonuses and bonuses.get(worker, 0) > 0:
            line = (worker, cells["AssignmentId"][row], f"{bonuses[worker]:.2f}", "Careful work")
            for name, item in zip(bonus, line, strict=True):
                bonus[name].append(item)
    write_table(cells, out)
    if bonuses:
        write_table(bonus, out.with_name(f"{out.stem}_bonus.csv"))
    return f"{approved} assignments to approve, {rejected} to reject"
