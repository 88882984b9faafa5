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
    corners,
    get,
    need_columns,
    numbers,
    parse_json,
    prefixed_column,
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


def collect(table: Table, path: object, task: str | None) -> Collector:
    """Read all assignments but the rejected ones."""
    need_columns(table, ["HITId", "WorkerId", "AssignmentStatus"], path)
    columns = [name for name in table.columns if name.startswith("Answer.")]
    column = prefixed_column(table, task or "HITId", "Input.")
    found = Collector(format=NAME, path=path, fields={"task": column, "worker": "WorkerId"})
    texts = ["WorkerId", "AssignmentStatus", *columns]
    for where, (item, worker, status, *answers) in rows_of(table, path, [column], texts):
        if status == "Rejected":
            found.skip("rejected assignments")
            continue
        if item is None or worker is None:
            raise DataError(f"{where}: has no {column if item is None else 'WorkerId'}")
        found.looked.add((item, worker))
        for name, text in zip(columns, answers, strict=True):
            if text is not None and name == _FORM:
                _take_form(found, text, Mark(item, worker), where)
            elif text is not None:
                _take_value(found, name.removeprefix("Answer."), text, Mark(item, worker), where)
    return found


def _take_form(found: Collector, text: str, mark: Mark, where: str) -> None:
    document = parse_json(text, f"{where}, {_FORM}")
    if not isinstance(document, list) or not all(isinstance(part, dict) for part in document):
        raise DataError(f"{where}, {_FORM}: expected a list of objects")
    for part in document:
        for name, value in part.items():
            _take_value(found, str(name), value, mark, where)


def _take_value(found: Collector, name: str, value: Any, mark: Mark, where: str) -> None:
    """Tell boxes, points, chosen buttons and numbers apart."""
    here = f"{where}, {name!r}"
    if isinstance(value, Mapping) and "boundingBoxes" in value:
        for item in get(value, "boundingBoxes", list, here):
            box = corners(*numbers(item, ("left", "top", "width", "height"), here))
            found.add(name, "box", mark._replace(value=box, label=str(item.get("label", ""))))
    elif isinstance(value, Mapping) and "keypoints" in value:
        for item in get(value, "keypoints", list, here):
            point = numbers(item, ("x", "y"), here)
            found.add(name, "point", mark._replace(value=point, label=str(item.get("label", ""))))
    elif isinstance(value, Mapping):
        chosen = [key for key, on in value.items() if on is True]
        found.add_number(name, chosen[0] if len(chosen) == 1 else "", mark)
    else:
        found.add_number(name, value, mark)


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
