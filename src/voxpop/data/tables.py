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
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Ids
from voxpop.data.duck import in_quotes, quoted
from voxpop.data.files import (
    JSON_LINES,
    PARQUET,
    SUSPECT,
    TABS,
    FileTable,
    refuse_missing,
    with_apostrophe,
)
from voxpop.data.ids import number_ids
from voxpop.data.many_files import read_files, several_files
from voxpop.data.numerals import Numbers, Spelling
from voxpop.data.output import replacing
from voxpop.errors import DataError, shorten

FrameKind = Literal["pandas", "polars", "pyarrow"]

# Longer tables are spelled by DuckDB, four times as fast as by Python.
_FEW_ROWS = 10_000


def open_table(source: object, beginning: bytes = b"", spelling: Spelling | None = None) -> Table:
    """Open a path or a data frame as a table; ``beginning`` as for :class:`FileTable`."""
    if isinstance(source, FileTable | FrameTable):
        return source
    if isinstance(source, str | os.PathLike):
        if several_files(os.fspath(source)) is not None:
            table = FrameTable(read_files(os.fspath(source)), spelling)
            table.name = os.fspath(source)
            return table
        return FileTable(Path(source), beginning, spelling)
    return FrameTable(source, spelling)


def matrix(table: Table, columns: Sequence[str], missing_ok: bool = False) -> Floats:
    """Return several columns of numbers side by side, one row per row.

    A column of lists or arrays becomes a column for each of their items.
    """
    if isinstance(table, FileTable):
        return table.matrix(columns, missing_ok)
    parts = []
    for column in columns:
        vectors = table.vectors(column)
        parts.append(table.numbers(column, missing_ok)[:, None] if vectors is None else vectors)
    return np.concatenate(parts, axis=1)


def coordinate_names(columns: Sequence[str], value: Floats) -> tuple[str, ...]:
    """Name the coordinates that :func:`matrix` made of columns; those of a list are numbered."""
    if len(columns) == value.shape[1]:
        return tuple(columns)
    if len(columns) == 1:
        return tuple(f"{columns[0]}_{k + 1}" for k in range(value.shape[1]))
    raise DataError(f"value columns {shorten(columns)} hold lists; name one column of lists alone")


def frame(columns: Mapping[str, Any], kind: str) -> Any:
    """Build a data frame of the kind asked for: ``pandas``, ``polars`` or ``pyarrow``."""
    import narwhals as nw

    return nw.from_dict(dict(columns), backend=cast("FrameKind", kind)).to_native()


# Types of cells that are vectors.
_LISTS = (list, tuple, np.ndarray)


def _as_frame(source: object) -> object:
    """Make a frame of a mapping of columns, or of a data set such as those of Hugging Face."""
    import pandas as pd

    if not isinstance(source, Mapping):
        if hasattr(source, "to_pandas"):
            return source.to_pandas()
        raise DataError(
            "expected a path, a data frame (pandas, polars, pyarrow), a data set or a mapping of "
            f"columns, got {type(source).__name__}; wrap it in pandas.DataFrame"
        )
    splits = [name for name, part in source.items() if hasattr(part, "to_pandas")]
    if splits:
        raise DataError(f"expected one table, got several ({shorten(splits, 5)}); pass one of them")
    columns = {name: [*column] for name, column in source.items()}
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name!r}: {len(column)}" for name, column in columns.items())
        raise DataError(f"columns must be equally long, got {lengths}")
    return pd.DataFrame({name: pd.Series(column) for name, column in columns.items()})


class FrameTable:
    """A data frame that is already in memory."""

    name = "the table"

    def __init__(self, source: object, spelling: Spelling | None = None) -> None:
        import narwhals as nw

        try:
            native: Any = nw.from_native(source, pass_through=True)
            if native is source:
                native = nw.from_native(_as_frame(source))
        except nw.exceptions.DuplicateError:
            raise DataError("the table has two columns of the same name; rename one") from None
        self._frame: Any = native.collect() if isinstance(native, nw.LazyFrame) else native
        self.kind = self._frame.implementation.value
        self.spelling, self.notes = spelling or Spelling(), list[str]()
        self.columns = list(self._frame.columns)
        if not all(isinstance(name, str) for name in self.columns):
            raise DataError(f"column names must be text, got {shorten(self.columns)}")
        if len(self._frame) == 0:
            raise DataError("the table has no rows; expected one row per answer")

    def rows(self, positions: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
        """Number rows: the first is 1."""
        return np.asarray(positions, dtype=np.int64) + 1

    def where(self, position: int) -> str:
        """Name a row in an error."""
        return f"row {position + 1}"

    def ids(self, column: str, missing_ok: bool = False) -> tuple[Codes, Ids]:
        """Number the ids by hashing them, so that anything hashable will do.

        Where ``missing_ok``, a cell without one has the number -1.
        """
        series = self._frame[column]
        # As a list where it is not numbers: an array of text is as wide as its longest entry.
        listed = series.to_numpy() if series.dtype.is_numeric() else series.to_list()
        return number_ids(listed, column, missing_ok)

    def numbers(self, column: str, missing_ok: bool = False) -> Floats:
        """Convert the column, taking text that spells a number as that number."""
        series = self._frame[column]
        if series.dtype.is_numeric():
            value = np.asarray(series.to_numpy(), dtype=np.float64)
            found = Numbers(value, series.is_null().to_numpy())
        else:
            found = self.spelling.read(self.texts(column), column, self.where)
        found = self.spelling.without_codes(found)
        self.notes += [found.note] if found.note and found.note not in self.notes else []
        if not missing_ok:
            refuse_missing(found.absent, column, word=found.word)
        return found.value

    def all_texts(self, columns: Sequence[str]) -> Iterator[list[str | None]]:
        """Give one column after the other as :meth:`texts` does."""
        return map(self.texts, columns)

    def vectors(self, column: str) -> Floats | None:
        """Stack a column of lists or arrays, one row per row; None where cells hold no lists."""
        series = self._frame[column]
        if series.dtype.is_numeric() or not isinstance(series.to_list()[0], _LISTS):
            return None
        rows = [np.asarray(item, dtype=object) for item in series.to_list()]
        long = len(rows[0])
        for row, item in enumerate(rows, start=1):
            if item.ndim != 1 or len(item) != long or not long:
                found = "no list" if item.ndim != 1 else f"a list of {len(item)}"
                raise DataError(
                    f"row {row}: expected a list of {long} numbers in column {column!r}, as in the "
                    f"first row, got {found}"
                )
        try:
            return np.stack(rows).astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"column {column!r} holds lists of items that are not numbers"
            ) from None

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
        # Few begin with a character that matters: only these are examined.
        for row in [r for r, text in enumerate(texts) if text[:1] in SUSPECT]:
            texts[row] = with_apostrophe(texts[row])
    texts[[item is None or item != item for item in items]] = None
    return texts


def print_table(columns: Mapping[str, Any], stream: IO[str]) -> None:
    """Print columns as CSV, every digit of the numbers, nothing for what is absent."""
    if len(next(iter(columns.values()), ())) > _FEW_ROWS:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            write_table(columns, path)
            with path.open(encoding="utf-8", newline="") as written:
                copyfileobj(written, stream)
        return
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


_KINDS = dict.fromkeys(PARQUET, "parquet") | dict.fromkeys(JSON_LINES, "json")
# Endings of files that are not tables as text or Parquet.
_NOT_WRITTEN = {".xlsx", ".xls", ".ods", ".json", ".xml", ".html", ".zip", ".bz2", ".zst"}


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns to a CSV, TSV, Parquet or JSONL file, atomically; numbers keep every digit."""
    import duckdb

    packed = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    if suffix in _NOT_WRITTEN:
        raise DataError(
            f"{path}: no {suffix} file can be written; name a .csv (spreadsheets open it), .tsv, "
            ".parquet or .jsonl file"
        )
    kind = _KINDS.get(suffix, "csv")
    texts = text_columns(columns, safe=kind == "csv")
    with replacing(path) as temporary:
        if kind == "json":
            text = "".join(
                json.dumps(dict(zip(texts, row, strict=True))) + "\n"
                for row in _rows(texts, absent=None)
            )
            temporary.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
            return
        mark = "\t" if suffix in TABS else ","
        packing = "gzip" if packed else "none"
        options = f", HEADER, DELIMITER '{mark}', COMPRESSION {packing}" if kind == "csv" else ""
        try:
            # DuckDB reads the columns where they are, by the name of the variable. It writes to the
            # existing file, which has the right mode, and not to a new one beside it.
            duckdb.connect().execute(
                f"COPY ({_select(texts)}) TO {in_quotes(temporary)} "
                f"(FORMAT {kind}, USE_TMP_FILE false{options})"
            )
        except duckdb.Error as error:
            why = " ".join(str(error).replace(str(temporary), str(path)).split())
            raise DataError(f"{path}: cannot be written: {why}") from None


def _select(texts: Mapping[str, NDArray[Any]]) -> str:
    """Query all columns; an empty one is cast to text, which another part of the table may hold."""
    empty = [
        quoted(name)
        for name, column in texts.items()
        if column.dtype.kind == "O" and all(item is None for item in column)
    ]
    if not empty:
        return "FROM texts"
    replaced = ", ".join(f"{name}::VARCHAR AS {name}" for name in empty)
    return f"SELECT * REPLACE ({replaced}) FROM texts"


def finite(item: Any) -> Any:
    """Replace numbers of a document that JSON lacks, such as NaN, by None."""
    if isinstance(item, dict):
        return {key: finite(part) for key, part in item.items()}
    if isinstance(item, list):
        return [finite(part) for part in item]
    return None if isinstance(item, float) and not np.isfinite(item) else item
