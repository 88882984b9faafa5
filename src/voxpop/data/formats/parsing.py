"""Careful parsing for the readers of all formats: every error says where, and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, TypeVar

from voxpop.data.tables import Table
from voxpop.data.text_tables import parse_json
from voxpop.data.unpack import read_text, refuse_swelling
from voxpop.errors import DataError, shorten

_T = TypeVar("_T")


def common_name(paths: Sequence[Path]) -> Path:
    """Name several files by their folder, and one by itself."""
    return paths[0] if len(paths) == 1 else paths[0].parent


def load_json(path: Path) -> Any:
    """Read a JSON document, or explain in one line why it cannot be read."""
    text = read_text(path)
    refuse_swelling(path, text)
    return parse_json(text, path)


def get(mapping: object, key: str, kind: type[_T], where: str) -> _T:
    """Return a field of a JSON object, of the type expected."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: expected an object with {key!r}, got {_type(type(mapping))}")
    if key not in mapping:
        raise DataError(f"{where}: has no {key!r}")
    item = mapping[key]
    if not isinstance(item, kind):
        raise DataError(f"{where}: {key!r} must be {_type(kind)}, got {_type(type(item))}")
    return item


def _type(kind: type) -> str:
    names = {list: "a list", dict: "an object", str: "text", type(None): "nothing"}
    return names.get(kind, kind.__name__)


def number(item: object, where: str) -> float:
    """Return a finite number, also when it is written as text."""
    try:
        found = float(item) if isinstance(item, int | float | str) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if isinstance(item, bool) or not math.isfinite(found):
        raise DataError(f"{where}: {str(item)[:60]!r} is not a finite number")
    return found


def numbers(item: object, keys: Sequence[str], where: str) -> tuple[float, ...]:
    """Return several fields of a JSON object as numbers."""
    return tuple(number(get(item, key, object, where), f"{where}, {key}") for key in keys)


def identity(item: object, where: str) -> Any:
    """Return an id: text or a whole number."""
    if isinstance(item, bool) or not isinstance(item, str | int) or item == "":
        raise DataError(f"{where}: expected an id, got {str(item)[:60]!r}")
    return item


def corners(sides: Sequence[float]) -> tuple[float, ...]:
    """Return a box, given by upper left corner and size, as two corners; a point as it is."""
    if len(sides) == 2:
        return tuple(sides)
    left, top, width, height = sides
    return (left, top, left + width, top + height)


def need_columns(table: Table, needed: Sequence[str], name: object = None) -> None:
    """Refuse a table that lacks a column that every export of the tool has."""
    absent = [column for column in needed if column not in table.columns]
    if absent:
        raise DataError(
            f"{name or table.name}: has no column {shorten(absent)}; "
            f"the columns are {shorten(table.columns, 12)}"
        )


def task_column(table: Table, asked: str, prefix: str) -> str:
    """Find the column of the task ids that was asked for, with or without the tool's prefix."""
    found = next((n for n in (asked, f"{prefix}{asked}") if n in table.columns), None)
    if found is None:
        inputs = [name for name in table.columns if name.startswith(prefix)]
        raise DataError(f"no column {asked!r} for the task; try {shorten(inputs, 8)}")
    return found


def rows_of(
    table: Table, ids: Sequence[str], texts: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the place of each row and its cells: ids, then texts; None for an empty cell."""
    columns: list[Iterable[Any]] = [column_ids(table.texts(name)) for name in ids]
    columns += [table.texts(name) if name in table.columns else repeat(None) for name in texts]
    for row, cells in enumerate(zip(*columns, strict=False)):
        where = table.where(row)
        yield where if where.startswith(table.name) else f"{table.name}: {where}", list(cells)


def column_ids(texts: Sequence[str | None]) -> list[Any]:
    """Return the ids of a column: whole numbers where all are plainly written as such."""
    plain = all(
        text is None or (text.isascii() and text.isdigit() and (text == "0" or text[0] != "0"))
        for text in texts
    )
    return [int(text) if plain and text is not None else text for text in texts]
