"""Mechanical Turk: the batch results CSV in; approvals, rejections and bonuses out.

An answer is a column ``Answer.NAME``, or a name in the JSON of ``Answer.taskAnswers`` (forms made
of crowd-html-elements): a number, the number of the radio button chosen, boxes or keypoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import (
    corners,
    get,
    need_columns,
    number,
    numbers,
    rows_of,
    task_column,
)
from voxpop.data.tables import Table, write_table
from voxpop.data.text_tables import parse_json
from voxpop.errors import DataError, shorten

NAME = "mturk"
_FORM = "Answer.taskAnswers"
_LARGEST_BONUS = 100
# What a form's drawing tools list, and the sides of each.
_SHAPES = {"boundingBoxes": ("left", "top", "width", "height"), "keypoints": ("x", "y")}


def fits(columns: list[str]) -> bool:
    """Return whether a table with these columns looks like a batch."""
    needed = {"HITId", "WorkerId", "AssignmentStatus"}
    return needed <= set(columns) and any(name.startswith("Answer.") for name in columns)


def collect(table: Table, task: str | None) -> Export:
    """Read all assignments but the rejected ones."""
    need_columns(table, ["HITId", "WorkerId", "AssignmentStatus"])
    columns = [name for name in table.columns if name.startswith("Answer.")]
    column = task_column(table, task or "HITId", "Input.")
    found = Export(format=NAME, path=table.name, fields={"task": column, "worker": "WorkerId"})
    inputs = [name for name in table.columns if name.startswith("Input.")]
    texts = ["WorkerId", "AssignmentStatus", *columns, *inputs]
    for where, (item, worker, status, *cells) in rows_of(table, [column], texts):
        answers, shown = cells[: len(columns)], cells[len(columns) :]
        if status == "Rejected":
            found.skip("rejected assignments")
            continue
        if item is None or worker is None:
            raise DataError(f"{where}: has no {column if item is None else 'WorkerId'}")
        mark = found.look(item, worker)
        found.show(item, dict(zip(inputs, shown, strict=True)))
        for name, text in zip(columns, answers, strict=True):
            if text is not None and name == _FORM:
                _take_form(found, text, mark, where)
            elif text is not None:
                _take_value(found, name.removeprefix("Answer."), text, mark, where)
    return found


def _take_form(found: Export, text: str, mark: Mark, where: str) -> None:
    document = parse_json(text, f"{where}, {_FORM}")
    if not isinstance(document, list) or not all(isinstance(part, dict) for part in document):
        raise DataError(f"{where}, {_FORM}: expected a list of objects")
    for part in document:
        for name, value in part.items():
            _take_value(found, str(name), value, mark, where)


def _take_value(found: Export, name: str, value: Any, mark: Mark, where: str) -> None:
    """Tell boxes, points, chosen buttons and numbers apart."""
    here = f"{where}, {name!r}"
    known = value if isinstance(value, Mapping) else {}
    listed = next((key for key in _SHAPES if key in known), None)
    if listed is not None:
        for item in get(value, listed, list, here):
            at = corners(numbers(item, _SHAPES[listed], here))
            found.add(name, at, mark, str(item.get("label", "")))
    elif isinstance(value, Mapping):
        chosen = [key for key, on in value.items() if on is True]
        found.add_number(name, chosen[0] if len(chosen) == 1 else "", mark)
    else:
        found.add_number(name, value, mark)


def review(
    table: Table, out: Path, reasons: Mapping[str, str], bonuses: Mapping[str, float] | None = None
) -> str:
    """Write the batch with ``Approve`` and ``Reject`` filled in, to upload; and a bonus list.

    Parameters
    ----------
    reasons
        Why the work of a worker is rejected, by worker. Everybody else's is approved. A person is
        not paid for rejected work, and reads the reason.
    bonuses
        The bonus for every approved assignment, by worker; written beside ``out``
        as ``NAME_bonus.csv``.
    """
    need_columns(table, ["WorkerId", "AssignmentId", "AssignmentStatus"], "the batch")
    cells = {name: table.texts(name) for name in table.columns}
    workers = [worker or "" for worker in cells["WorkerId"]]
    strangers = {*reasons, *(bonuses or {})} - {*workers}
    if strangers:
        raise DataError(f"worker {shorten(sorted(strangers))} has no assignment in the batch")
    for worker, amount in (bonuses or {}).items():
        if not 0 <= number(amount, f"bonus of worker {worker!r}") <= _LARGEST_BONUS:
            raise DataError(
                f"bonus of worker {worker!r}: {amount} is out of range; Mechanical Turk pays "
                f"at most {_LARGEST_BONUS} dollars per bonus"
            )
    for worker, reason in reasons.items():
        if not reason.strip():
            raise DataError(f"worker {worker!r}: a rejection needs a reason, the worker reads it")
    submitted = [status == "Submitted" for status in cells["AssignmentStatus"]]
    rows = list(zip(workers, submitted, strict=True))
    cells["Approve"] = ["x" if new and w not in reasons else None for w, new in rows]
    cells["Reject"] = [reasons.get(w) if new else None for w, new in rows]
    write_table(cells, out)
    if bonuses:
        paid = [
            (worker, assignment, f"{bonuses[worker]:.2f}", "Careful work")
            for worker, assignment, approved in zip(
                workers, cells["AssignmentId"], cells["Approve"], strict=True
            )
            if approved and bonuses.get(worker, 0) > 0
        ]
        names = ("WorkerId", "AssignmentId", "BonusAmount", "Reason")
        listed = zip(*paid, strict=True) if paid else [()] * len(names)
        write_table(dict(zip(names, listed, strict=True)), out.with_name(f"{out.stem}_bonus.csv"))
    approved, rejected = (
        sum(text is not None for text in cells[name]) for name in ("Approve", "Reject")
    )
    return f"{approved} assignments to approve, {rejected} to reject"
