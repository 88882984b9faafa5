"""Tables in and out: a file or a data frame as named columns of ids and numbers.

Files are read by DuckDB (:mod:`voxpop.data.files`), data frames of any library through narwhals.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Ids
from voxpop.data.files import SUSPECT, FileTable, refuse_missing, refuse_text, with_apostrophe
from voxpop.data.files import make_folder as make_folder
from voxpop.data.files import replacing as replacing
from voxpop.data.files import require_folder as require_folder
from voxpop.data.ids import number_ids
from voxpop.errors import DataError, shorten

FrameKind = Literal["pandas", "polars", "pyarrow"]

# Names seen in users' files, in order of preference; matched without regard to case.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "task": (
        *("task", "task_id", "item", "item_id", "question", "hitid", "subject_ids"),
        *("image", "file_url", "orig_id", "record_id", "pvs_id", "video_name", "submission"),
    ),
    "worker": (
        *("worker", "worker_id", "performer", "annotator", "annotator_id", "workerid", "user_id"),
        *("user_name", "uid", "completed_by", "rater", "judge", "observer", "source", "forecaster"),
        *("grader", "assignment:worker_id", "!amt_worker_ids"),
    ),
    "value": ("value", "label", "answer", "rating", "score", "response", "vote"),
}
# Sets of columns that together are one vector: boxes and points.
VECTORS: tuple[tuple[str, ...], ...] = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "width", "height"),
    ("x", "y", "width", "height"),
    ("x", "y", "z"),
    ("x", "y"),
)
# Columns of the canonical long table that are never the answer itself.
_NEVER_VALUES = {
    *("time", "duration", "gold", "truth", "cost", "group", "run", "conf", "dim", "object"),
}


def open_table(source: object, beginning: bytes = b"") -> Table:
    """Open a path or a data frame as a table; ``beginning`` as for :class:`FileTable`."""
    if isinstance(source, FileTable | FrameTable):
        return source
    if isinstance(source, str | os.PathLike):
        return FileTable(os.fspath(source), beginning)
    return FrameTable(source)


def matrix(table: Table, columns: Sequence[str], missing_ok: bool = False) -> Floats:
    """Return several columns of numbers side by side, one row per row."""
    return np.stack([table.numbers(column, missing_ok) for column in columns], axis=1)


def ids_of_rows(table: Table, role: str, column: str | None = None) -> list[Any]:
    """Return the id that each row has in the column of a role: ``task`` or ``worker``."""
    codes, ids = table.ids(resolve_column(table, role, column))
    return ids[codes].tolist()  # type: ignore[no-any-return]


def frame(columns: Mapping[str, Any], kind: str) -> Any:
    """Build a data frame of the kind asked for: ``pandas``, ``polars`` or ``pyarrow``."""
    import narwhals as nw

    return nw.from_dict(dict(columns), backend=cast("FrameKind", kind)).to_native()


class FrameTable:
    """A data frame that is already in memory."""

    name = "the table"

    def __init__(self, source: object) -> None:
        import narwhals as nw

        try:
            native = nw.from_native(source)  # type: ignore[call-overload]
        except TypeError:
            raise DataError(
                f"expected a path or a data frame (pandas, polars, pyarrow), "
                f"got {type(source).__name__}; wrap it in pandas.DataFrame"
            ) from None
        except nw.exceptions.DuplicateError:
            raise DataError("the table has two columns of the same name; rename one") from None
        self._frame: Any = native.collect() if isinstance(native, nw.LazyFrame) else native
        self.kind = self._frame.implementation.value
        self.columns = list(self._frame.columns)
        if not all(isinstance(name, str) for name in self.columns):
            raise DataError(f"column names must be text, got {shorten(self.columns)}")
        if len(self._frame) == 0:
            raise DataError("the table has no rows; expected one row per answer")

    def ids(self, column: str) -> tuple[Codes, Ids]:
        """Number the ids by hashing them, so that anything hashable will do."""
        series = self._frame[column]
        # As a list where it is not numbers: an array of text is as wide as its longest entry.
        return number_ids(
            series.to_numpy() if series.dtype.is_numeric() else series.to_list(), column
        )

    def numbers(self, column: str, missing_ok: bool = False) -> Floats:
        """Convert the column, taking text that spells a number as that number."""
        import pandas as pd

        series = self._frame[column]
        raw = series.to_numpy()
        if series.dtype.is_numeric():
            number = np.asarray(raw, dtype=np.float64)
            absent = series.is_null().to_numpy()
        else:
            coerced = pd.to_numeric(pd.Series(raw, dtype=object), errors="coerce")
            number = np.asarray(coerced, dtype=np.float64)
            absent = np.asarray(pd.isna(raw))
        refuse_text(np.isnan(number) & ~absent, lambda row: raw[row], column)
        if not missing_ok:
            refuse_missing(absent, column)
        return number

    def texts(self, column: str) -> list[str | None]:
        """Spell every cell; whole numbers that a frame had to make floats lose their ``.0``."""
        import pandas as pd

        cells = self._frame[column].to_list()
        return [
            None if item is None or item is pd.NA or item != item or item == "" else _spell(item)
            for item in cells
        ]


# A table of either kind: its columns can be read as ids, as numbers or as text.
Table = FileTable | FrameTable


def find_column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Find the first of some names among the columns, without regard to case."""
    by_lower = {name.lower(): name for name in reversed(columns)}
    return next((by_lower[name] for name in names if name in by_lower), None)


def find_vector(columns: Sequence[str]) -> list[str]:
    """Find a set of columns that together are one vector; none where there is no such set."""
    for vector in VECTORS:
        found = [find_column(columns, [name]) for name in vector]
        if None not in found:
            return cast("list[str]", found)
    return []


def resolve_column(table: Table, role: str, asked: str | None) -> str:
    """Find the column that plays a role: the one asked for, or the best-known synonym."""
    there = shorten(table.columns, 12)
    if asked is not None and asked not in table.columns:
        raise DataError(f"no column {asked!r} for the {role}; the columns are {there}")
    found = find_column(table.columns, SYNONYMS[role]) if asked is None else asked
    if found is None:
        raise DataError(
            f"no column that looks like the {role}; the columns are {there}; "
            f"name it with {role}= (command line: --{role})"
        )
    return found


def resolve_values(table: Table, asked: Sequence[str] | None, taken: set[str]) -> list[str]:
    """Find the value columns: as asked, a synonym, ``value_*``, a known vector, or what is left."""
    if asked is not None:
        names = [resolve_column(table, "value", name) for name in asked]
        if not names or len(set(names)) < len(names):
            raise DataError(f"value columns must be one or more different names, got {asked!r}")
        return names
    left = [name for name in table.columns if name not in taken]
    synonym = find_column(left, SYNONYMS["value"])
    numbered = [name for name in left if name.lower().startswith("value_")]
    rest = [name for name in left if name.lower() not in _NEVER_VALUES]
    found = [synonym] if synonym is not None else numbered or find_vector(left) or rest
    if not found or (found is rest and len(rest) > 1):
        raise DataError(
            f"no column that looks like the value; the columns are {shorten(table.columns, 12)}; "
            "name one or more with values= (command line: --value)"
        )
    return found


def _spell(item: object) -> str:
    return str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def text_columns(columns: Mapping[str, Any], safe: bool = True) -> dict[str, NDArray[Any]]:
    """Return the columns as a file holds them: numbers as they are, ids as their text.

    ``safe`` marks what a spreadsheet would run as a formula (:func:`files.with_apostrophe`), in ids
    and headers; reading removes the mark.
    """
    return {
        with_apostrophe(name) if safe else name: _text_column(np.asarray(column), safe)
        for name, column in columns.items()
    }


def _text_column(column: NDArray[Any], safe: bool) -> NDArray[Any]:
    if column.dtype.kind in "iufb":
        return column
    # Ids may be any hashable thing; a file holds their text, and nothing for what is absent.
    items = column.tolist()
    texts = np.array([str(item) for item in items], dtype=object)
    if safe:
        # Few begin with a character that matters: only these are looked into.
        for row in [r for r, text in enumerate(texts) if text[:1] in SUSPECT]:
            texts[row] = with_apostrophe(texts[row])
    texts[[item is None or item != item for item in items]] = None
    return texts


def print_table(columns: Mapping[str, Any], stream: IO[str]) -> None:
    """Print columns as CSV, every digit of the numbers, nothing for what is absent."""
    table = text_columns(columns)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(_rows(table, absent=""))


def _rows(table: Mapping[str, NDArray[Any]], absent: object) -> Iterator[tuple[Any, ...]]:
    listed = (
        [absent if item is None or item != item else item for item in column.tolist()]
        for column in table.values()
    )
    return zip(*listed, strict=True)


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns to a CSV, TSV, Parquet or JSONL file, atomically; numbers keep every digit."""
    import duckdb

    packed = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    kind = {".parquet": "parquet", ".jsonl": "json", ".ndjson": "json"}.get(suffix, "csv")
    texts = text_columns(columns, safe=kind == "csv")
    with replacing(path) as temporary:
        # DuckDB reads the columns where they are, by the name of the variable.
        relation = duckdb.connect().sql("FROM texts")
        if kind == "parquet":
            relation.write_parquet(str(temporary))
        elif kind == "csv":
            relation.write_csv(
                str(temporary),
                sep="\t" if suffix == ".tsv" else ",",
                compression="gzip" if packed else "none",
            )
        else:
            text = "".join(
                json.dumps(dict(zip(texts, row, strict=True))) + "\n"
                for row in _rows(texts, absent=None)
            )
            temporary.write_bytes(gzip.compress(text.encode()) if packed else text.encode())


def finite(item: Any) -> Any:
    """Put None for every number of a document that JSON does not have."""
    if isinstance(item, dict):
        return {key: finite(part) for key, part in item.items()}
    if isinstance(item, list):
        return [finite(part) for part in item]
    return None if isinstance(item, float) and not np.isfinite(item) else item
