"""Tables in and out: a file or a data frame as named columns of ids and numbers.

Files are read by DuckDB, which also gives the ids their dense numbers, so that a million text
ids never become a million Python strings. Data frames of any library come through narwhals.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from voxpop.errors import DataError, shorten

if TYPE_CHECKING:
    import duckdb

Codes = NDArray[np.int32]
Ids = NDArray[Any]
Floats = NDArray[np.float64]
FrameKind = Literal["pandas", "polars", "pyarrow"]

# Names seen in users' files, in order of preference; matched without regard to case.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "task": (
        *("task", "task_id", "item", "item_id", "question", "object", "hitid", "subject_ids"),
        *("image", "file_url", "orig_id", "record_id", "pvs_id", "video_name", "submission"),
    ),
    "worker": (
        *("worker", "worker_id", "performer", "annotator", "annotator_id", "workerid", "user_id"),
        *("user_name", "uid", "completed_by", "rater", "judge", "observer", "source", "forecaster"),
        *("grader", "assignment:worker_id", "!amt_worker_ids"),
    ),
    "value": ("value", "label", "answer", "rating", "score", "response", "vote", "truth"),
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
_NEVER_VALUES = {"time", "duration", "gold", "cost", "group", "run", "conf", "dim"}


class Table(Protocol):
    """A table whose columns can be asked for as ids or as numbers."""

    kind: str
    columns: list[str]

    def ids(self, column: str) -> tuple[Codes, Ids]:
        """Return a dense number per row, and the distinct ids in order of first appearance."""

    def numbers(self, column: str, missing_ok: bool = False) -> Floats:
        """Return the column as float64, or raise an error that names the first bad row."""


def open_table(source: object) -> Table:
    """Open a path or a data frame as a table."""
    if isinstance(source, str | os.PathLike):
        return FileTable(Path(source))
    return FrameTable(source)


def frame(columns: Mapping[str, Any], kind: str) -> Any:
    """Build a data frame of the kind asked for: ``pandas``, ``polars`` or ``pyarrow``."""
    import narwhals as nw

    return nw.from_dict(dict(columns), backend=cast("FrameKind", kind)).to_native()


class FrameTable:
    """A data frame that is already in memory."""

    def __init__(self, source: object) -> None:
        import narwhals as nw

        try:
            native = nw.from_native(source)  # type: ignore[call-overload]
        except TypeError:
            raise DataError(
                f"expected a path or a data frame (pandas, polars, pyarrow), "
                f"got {type(source).__name__}; wrap it in pandas.DataFrame"
            ) from None
        self._frame: Any = native.collect() if isinstance(native, nw.LazyFrame) else native
        self.kind = self._frame.implementation.value
        self.columns = [str(name) for name in self._frame.columns]
        if len(self._frame) == 0:
            raise DataError("the table has no rows; expected one row per answer")

    def ids(self, column: str) -> tuple[Codes, Ids]:
        """Number the ids by hashing them, so that anything hashable will do."""
        import pandas as pd

        raw = self._frame[column].to_numpy()
        try:
            codes, distinct = pd.factorize(raw)
        except TypeError:
            raise DataError(f"column {column!r} holds ids that cannot be hashed") from None
        _refuse_missing(codes < 0, column)
        return codes.astype(np.int32), np.asarray(distinct)

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
            absent = np.array([item is None or item is pd.NA or item != item for item in raw])
        _refuse_text(np.isnan(number) & ~absent, lambda row: raw[row], column)
        if not missing_ok:
            _refuse_missing(absent, column)
        return number


class FileTable:
    """A CSV, TSV, Parquet or JSON-lines file, plain or gzipped."""

    kind = "pandas"

    def __init__(self, path: Path) -> None:
        import duckdb

        if not path.exists():
            raise DataError(f"{path}: no such file")
        if path.is_dir():
            raise DataError(f"{path}: is a directory; expected a CSV, TSV, Parquet or JSONL file")
        self.path = path
        self._connection = duckdb.connect()
        try:
            # Row numbers keep the file's order through joins; ids and values stay text in a CSV
            # so that "007" is not 7 and a bad number can be shown as it was written.
            self._connection.execute(
                "CREATE TEMP TABLE raw AS SELECT row_number() OVER () AS voxpop_row, * "
                f"FROM {_reader(path)}",
                [_literal(path)],
            )
        except duckdb.Error as error:
            raise DataError(f"{path}: cannot be read: {_first_line(error)}") from None
        described = self._connection.execute("DESCRIBE raw").fetchall()[1:]
        self.columns = [str(name) for name, *_ in described]
        self._text = {str(name) for name, kind, *_ in described if kind == "VARCHAR"}
        counted = self._connection.execute("SELECT count(*) FROM raw").fetchone()
        self._n_rows = int(counted[0]) if counted else 0
        if self._n_rows == 0:
            raise DataError(f"{path}: has no rows; expected a header and one row per answer")

    def ids(self, column: str) -> tuple[Codes, Ids]:
        """Number the ids inside DuckDB; whole numbers written plainly become integers."""
        name = _quoted(column)
        _refuse_missing(self._flags(f"{name} IS NULL"), column, self.path)
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE ids AS SELECT id, "
            "(row_number() OVER (ORDER BY first_row) - 1)::INTEGER AS code FROM "
            f"(SELECT {name} AS id, min(voxpop_row) AS first_row FROM raw GROUP BY 1)"
        )
        rows = self._fetch(f"SELECT voxpop_row, code FROM raw JOIN ids ON raw.{name} = ids.id")
        codes = np.empty(self._n_rows, dtype=np.int32)
        codes[rows["voxpop_row"] - 1] = rows["code"]
        distinct = self._fetch("SELECT id FROM ids ORDER BY code")["id"]
        return codes, self._as_integers(distinct) if column in self._text else distinct

    def _fetch(self, query: str) -> dict[str, NDArray[Any]]:
        found = self._connection.execute(query).fetchnumpy()
        return {name: np.asarray(column) for name, column in found.items()}

    def _as_integers(self, distinct: Ids) -> Ids:
        """Return integers where every text is the plain spelling of one ("7", never "007")."""
        query = "SELECT count(*) FROM ids WHERE TRY_CAST(id AS BIGINT)::VARCHAR IS DISTINCT FROM id"
        exceptions = self._connection.execute(query).fetchone()
        plain = exceptions is not None and exceptions[0] == 0
        return distinct.astype(np.int64) if plain else distinct

    def numbers(self, column: str, missing_ok: bool = False) -> Floats:
        """Cast the column in DuckDB, then look for what the cast could not read."""
        name = _quoted(column)

        def written(row: int) -> object:
            found = self._connection.execute(
                f"SELECT {name} FROM raw WHERE voxpop_row = ?", [row + 1]
            ).fetchone()
            return found[0] if found else None

        unread = self._flags(f"{name} IS NOT NULL AND TRY_CAST({name} AS DOUBLE) IS NULL")
        _refuse_text(unread, written, column, self.path)
        if not missing_ok:
            _refuse_missing(self._flags(f"{name} IS NULL"), column, self.path)
        rows = self._fetch(
            f"SELECT voxpop_row, coalesce(TRY_CAST({name} AS DOUBLE), 'nan'::DOUBLE) AS number "
            "FROM raw"
        )
        number = np.empty(self._n_rows)
        number[rows["voxpop_row"] - 1] = rows["number"]
        return number

    def _flags(self, condition: str) -> NDArray[np.bool_]:
        """Return, row by row, where the condition holds (cheap when it holds nowhere)."""
        flags = np.zeros(self._n_rows, dtype=bool)
        found = self._fetch(f"SELECT voxpop_row FROM raw WHERE {condition}")
        flags[found["voxpop_row"] - 1] = True
        return flags


def _reader(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s not in {".gz", ".zst"}), ".csv")
    if kind in {".parquet", ".pq"}:
        return "read_parquet(?)"
    if kind in {".jsonl", ".ndjson", ".json"}:
        layout = "auto" if kind == ".json" else "newline_delimited"
        return f"read_json(?, format = '{layout}')"
    tab = ", delim = '\t'" if kind in {".tsv", ".tab"} else ""
    return f"read_csv(?, all_varchar = true, header = true{tab})"


def _literal(path: Path) -> str:
    """Spell a path so that DuckDB does not take its ``*``, ``?`` and ``[`` for wildcards."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _first_line(error: duckdb.Error) -> str:
    return str(error).strip().splitlines()[0]


def _refuse_missing(
    absent: NDArray[np.bool_], column: str, path: Path | None = None, limit: int = 3
) -> None:
    rows = np.flatnonzero(absent)
    if rows.size:
        where = ", ".join(str(row + 1) for row in rows[:limit])
        more = f" and {rows.size - limit} more" if rows.size > limit else ""
        raise DataError(
            f"{_prefix(path)}column {column!r} is empty in row {where}{more}; "
            "drop those rows or fill them in"
        )


def _refuse_text(
    unread: NDArray[np.bool_],
    written: Callable[[int], object],
    column: str,
    path: Path | None = None,
) -> None:
    rows = np.flatnonzero(unread)
    if rows.size:
        more = f" (and {rows.size - 1} more rows)" if rows.size > 1 else ""
        raise DataError(
            f"{_prefix(path)}row {rows[0] + 1}: {written(int(rows[0]))!r} in column {column!r} "
            f"is not a number{more}"
        )


def _prefix(path: Path | None) -> str:
    return "" if path is None else f"{path}: "


def resolve_column(table: Table, role: str, asked: str | None) -> str:
    """Find the column that plays a role: the one asked for, or the best-known synonym."""
    if asked is not None:
        if asked not in table.columns:
            raise DataError(
                f"no column {asked!r} for the {role}; the columns are {shorten(table.columns, 12)}"
            )
        return asked
    by_lower = {name.lower(): name for name in reversed(table.columns)}
    for synonym in SYNONYMS[role]:
        if synonym in by_lower:
            return by_lower[synonym]
    raise DataError(
        f"no column that looks like the {role}; the columns are {shorten(table.columns, 12)}; "
        f"name it with {role}= (command line: --{role})"
    )


def resolve_values(table: Table, asked: Sequence[str] | None, taken: set[str]) -> list[str]:
    """Find the value columns: as asked, ``value_*``, a synonym, a known vector, or what is left."""
    if asked is not None:
        names = [resolve_column(table, "value", name) for name in asked]
        if not names or len(set(names)) < len(names):
            raise DataError(f"value columns must be one or more different names, got {asked!r}")
        return names
    numbered = [name for name in table.columns if name.lower().startswith("value_")]
    if numbered:
        return numbered
    left = [name for name in table.columns if name not in taken]
    by_lower = {name.lower(): name for name in reversed(left)}
    for synonym in SYNONYMS["value"]:
        if synonym in by_lower:
            return [by_lower[synonym]]
    for vector in VECTORS:
        if all(name in by_lower for name in vector):
            return [by_lower[name] for name in vector]
    left = [name for name in left if name.lower() not in _NEVER_VALUES]
    if len(left) == 1:
        return left
    raise DataError(
        f"no column that looks like the value; the columns are {shorten(table.columns, 12)}; "
        "name one or more with values= (command line: --value)"
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path`` to write to; move it there only when all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        prefix=f".{path.name}.", suffix=".part" + path.suffix, dir=path.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns to a CSV or Parquet file, atomically; numbers keep every digit."""
    import duckdb

    table = frame(columns, "pandas")
    for name in table.columns:
        if table[name].dtype == object:
            # Ids may be any hashable thing; a file holds their text.
            table[name] = table[name].map(str).astype(str)
    with replacing(path) as temporary:
        relation = duckdb.connect().from_df(table)
        if path.suffix == ".parquet":
            relation.write_parquet(str(temporary))
        else:
            relation.write_csv(str(temporary))
