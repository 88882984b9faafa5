"""Zooniverse: the classifications export; sliders and numbers, points and rectangles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import corners, need_columns, numbers, rows_of
from voxpop.data.tables import Table
from voxpop.data.text_tables import parse_json
from voxpop.errors import DataError

NAME = "zooniverse"


def fits(columns: list[str]) -> bool:
    """Return whether a table with these columns looks like a classifications export."""
    return {"classification_id", "annotations", "subject_ids"} <= set(columns)


def collect(table: Table, task: str | None) -> Export:
    """Read all classifications; a question is a task of the workflow, like ``T0``.

    Volunteers who were not logged in are known by ``user_name`` too, or else by ``user_ip``.
    """
    column = task or "subject_ids"
    need_columns(table, [column, "annotations"])
    names = [name for name in ("user_name", "user_ip") if name in table.columns]
    if not names:
        raise DataError(f"{table.name}: has neither a column user_name nor user_ip")
    fields = {"task": column, "worker": " or ".join(names)}
    found = Export(format=NAME, path=table.name, fields=fields)
    texts = ["workflow_id", "annotations", "subject_data", *names]
    rows = list(rows_of(table, [column], texts))
    several = len({flow for _, (_, flow, *_) in rows}) > 1
    for where, (item, flow, text, shown, *people) in rows:
        worker = next((name for name in people if name), None)
        if item is None or worker is None or text is None:
            raise DataError(f"{where}: has no {column}, user or annotations")
        if shown is not None and item not in found.contents:
            subjects = parse_json(shown, f"{where}, subject_data")
            for subject in subjects.values() if isinstance(subjects, Mapping) else ():
                found.show(item, subject if isinstance(subject, Mapping) else {})
        prefix = f"{flow}:" if several else ""
        _take_all(found, parse_json(text, where), found.look(item, worker), prefix, where)
    return found


def _take_all(found: Export, annotations: Any, mark: Mark, prefix: str, where: str) -> None:
    if not isinstance(annotations, list):
        raise DataError(f"{where}: annotations must be a list")
    for annotation in annotations:
        if not isinstance(annotation, Mapping) or "task" not in annotation:
            raise DataError(f"{where}: expected annotations with a task and a value")
        name, value = f"{prefix}{annotation['task']}", annotation.get("value")
        parts = value if isinstance(value, list) else []
        if parts and all(isinstance(part, Mapping) and "task" in part for part in parts):
            _take_all(found, parts, mark, prefix, where)  # a combination of tasks
        elif isinstance(value, list):
            for part in parts:
                _take_shape(found, name, part, mark, where)
        elif value is not None:
            found.add_number(name, value, mark)


def _take_shape(found: Export, name: str, part: Any, mark: Mark, where: str) -> None:
    if not isinstance(part, Mapping) or not {"x", "y"} <= set(part):
        found.skip(f"answers to {name!r} that are neither points nor rectangles", name)
        return
    if {"r", "angle", "rx"} & set(part):
        found.skip("circles, ellipses and rotated rectangles")
        return
    label = str(part.get("tool_label") or part.get("tool", ""))
    if part.get("frame"):
        label += f" (frame {part['frame']})"
    sized = {"width", "height"} <= set(part)
    keys = ("x", "y", "width", "height") if sized else ("x", "y")
    found.add(name, corners(numbers(part, keys, f"{where}, {name!r}")), mark, label)
