"""Zooniverse: the classifications export; sliders and numbers, points and rectangles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxpop.data.formats.base import (
    Collector,
    Mark,
    Wishes,
    column_ids,
    corners,
    need_columns,
    number,
    parse_json,
    rows_of,
)
from voxpop.data.tables import Table
from voxpop.errors import DataError

NAME = "zooniverse"


def fits(columns: list[str]) -> bool:
    """Tell whether a table with these columns looks like a classifications export."""
    return {"classification_id", "annotations", "subject_ids"} <= set(columns)


def collect(table: Table, path: object, wishes: Wishes) -> Collector:
    """Read all classifications; a question is a task of the workflow, like ``T0``.

    Whoever was not logged in is known by ``user_name`` all the same, or else by ``user_ip``.
    """
    task_column = wishes.task or "subject_ids"
    need_columns(table, [task_column, "annotations"], path)
    names = [name for name in ("user_name", "user_ip") if name in table.columns]
    if not names:
        raise DataError(f"{path}: has neither a column user_name nor user_ip")
    found = Collector(
        format=NAME, path=path, fields={"task": task_column, "worker": " or ".join(names)}
    )
    tasks = column_ids(table.texts(task_column))
    flows = table.texts("workflow_id") if "workflow_id" in table.columns else [None] * len(tasks)
    several = len(set(flows)) > 1
    for row, (text, *people) in rows_of(table, ["annotations", *names]):
        where = f"{path}: row {row}"
        task, worker = tasks[row - 1], next((name for name in people if name), None)
        if task is None or worker is None or text is None:
            raise DataError(f"{where}: has no {task_column}, user or annotations")
        found.looked.add((task, worker))
        prefix = f"{flows[row - 1]}:" if several else ""
        _take_all(found, parse_json(text, where), Mark(task, worker, ()), prefix, where)
    return found


def _take_all(found: Collector, annotations: Any, mark: Mark, prefix: str, where: str) -> None:
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
            try:
                found.add(name, "number", mark._replace(value=(number(value, name),)))
            except DataError:
                found.skip(f"answers to {name!r} that are no number", question=name)


def _take_shape(found: Collector, name: str, part: Any, mark: Mark, where: str) -> None:
    if not isinstance(part, Mapping) or not {"x", "y"} <= set(part):
        found.skip(f"answers to {name!r} that are neither points nor rectangles", question=name)
        return
    if {"r", "angle", "rx"} & set(part):
        found.skip("circles, ellipses and rotated rectangles")
        return
    here = f"{where}, {name!r}"
    x, y = number(part["x"], here), number(part["y"], here)
    label = str(part.get("tool_label") or part.get("tool", ""))
    if part.get("frame"):
        label += f" (frame {part['frame']})"
    if {"width", "height"} <= set(part):
        size = (number(part[side], here) for side in ("width", "height"))
        found.add(name, "box", mark._replace(value=corners(x, y, *size), label=label))
    else:
        found.add(name, "point", mark._replace(value=(x, y), label=label))
