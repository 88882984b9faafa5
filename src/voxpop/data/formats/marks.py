"""Boxes and points of a long table, several of a worker in one image, as marks to be matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.formats.base import Export, Mark, ReadingOptions
from voxpop.data.tables import VECTORS, Table, ids_of_rows, matrix, open_table, resolve_column
from voxpop.errors import DataError, shorten


def marks_of_table(table: Table, options: ReadingOptions) -> Export:
    """Read the rows of a long table as boxes or points, several of a worker in an image."""
    task = resolve_column(table, "task", options["task"])
    worker = resolve_column(table, "worker", options["worker"])
    columns = _shape_columns(table, options["values"])
    by_lower = {name.lower(): name for name in reversed(table.columns)}
    label = next((by_lower[n] for n in ("label", "category", "class") if n in by_lower), None)
    value = _as_corners(matrix(table, columns), columns).tolist()
    names = [""] * len(value) if label is None else [text or "" for text in table.texts(label)]
    known: list[tuple[Any, str, tuple[float, ...]]] = []
    if options["gold"] is not None:
        truths = open_table(options["gold"])
        boxes = _as_corners(matrix(truths, _shape_columns(truths, columns)), columns).tolist()
        images = ids_of_rows(truths, "task")
        known = [(image, "", tuple(box)) for image, box in zip(images, boxes, strict=True)]
    rows = zip(
        *(ids_of_rows(table, "task", task), ids_of_rows(table, "worker", worker), value, names),
        strict=True,
    )
    return Export(
        format="long",
        question=", ".join(columns),
        kind="box" if len(columns) == 4 else "point",
        marks=[Mark(image, person, tuple(at), name) for image, person, at, name in rows],
        looked=frozenset() if options["looked"] is None else pairs_of(options["looked"]),
        gold=known,
        fields={"task": task, "worker": worker},
    )


def _shape_columns(table: Table, asked: str | Sequence[str] | None) -> list[str]:
    if asked is not None:
        columns = [resolve_column(table, "value", name) for name in asked]
    else:
        by_lower = {name.lower(): name for name in reversed(table.columns)}
        columns = next(
            ([by_lower[n] for n in names] for names in VECTORS if set(names) <= set(by_lower)), []
        )
    if len(columns) not in (2, 4):
        raise DataError(
            f"objects are boxes (4 columns) or points (2), got {shorten(columns, 5) or 'none'}; "
            "name them with values= (command line: --value)"
        )
    return columns


def _as_corners(value: Floats, columns: Sequence[str]) -> Floats:
    if [name.lower() for name in columns[2:]] == ["width", "height"]:
        return np.concatenate([value[:, :2], value[:, :2] + value[:, 2:]], axis=1)
    return value


def pairs_of(looked: object) -> frozenset[tuple[Any, Any]]:
    """Read a table of task and worker: who looked at what."""
    table = open_table(looked)
    pairs = zip(ids_of_rows(table, "task"), ids_of_rows(table, "worker"), strict=True)
    return frozenset(pairs)
