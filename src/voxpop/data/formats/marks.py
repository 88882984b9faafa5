"""Boxes and points of a long table, several of a worker in one image, as marks to be matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.formats.base import Export, Mark, Wishes
from voxpop.data.objects import Shape
from voxpop.data.tables import VECTORS, Table, matrix, open_table, resolve_column
from voxpop.errors import DataError, shorten


def marks_of_table(
    table: Table,
    wishes: Wishes,
    worker: str | None,
    values: str | Sequence[str] | None,
    gold: object,
    looked: object,
) -> Export:
    """Take the rows of a long table for boxes or points, several of a worker in an image."""
    task_column = resolve_column(table, "task", wishes.task)
    worker_column = resolve_column(table, "worker", worker)
    columns = _shape_columns(table, values)
    shape: Shape = "box" if len(columns) == 4 else "point"
    image, person = (
        ids[codes].tolist() for codes, ids in map(table.ids, (task_column, worker_column))
    )
    by_lower = {name.lower(): name for name in reversed(table.columns)}
    label = next((by_lower[n] for n in ("label", "category", "class") if n in by_lower), None)
    names = [""] * len(image) if label is None else [t or "" for t in table.texts(label)]
    known: list[tuple[Any, str, tuple[float, ...]]] = []
    if gold is not None:
        truths = open_table(gold)
        codes, ids = truths.ids(resolve_column(truths, "task", None))
        rows = _as_corners(matrix(truths, _shape_columns(truths, columns)), columns)
        known = [
            (t, "", tuple(row)) for t, row in zip(ids[codes].tolist(), rows.tolist(), strict=True)
        ]
    rows = _as_corners(matrix(table, columns), columns).tolist()
    return Export(
        format="long",
        question=", ".join(columns),
        kind=shape,
        marks=[
            Mark(i, w, tuple(v), n) for i, w, v, n in zip(image, person, rows, names, strict=True)
        ],
        looked=pairs_of(looked) if looked is not None else frozenset(),
        gold=known,
        fields={"task": task_column, "worker": worker_column},
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
    task, worker = (
        ids[codes].tolist()
        for codes, ids in (
            table.ids(resolve_column(table, role, None)) for role in ("task", "worker")
        )
    )
    return frozenset(zip(task, worker, strict=True))
