"""Tables in and out: a file or a data frame as named columns of ids and numbers.

Files are read by DuckDB, which also gives the ids their dense numbers, so that a million text
ids never become a million Python strings. Data frames of any library come through narwhals.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Codes, Floats, Ids
from voxpop.errors import DataError, shorten

if TYPE_CHECKING:
    import duckdb

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


def matrix(table: Table, columns: Sequence[str], missing_ok: bool = False) -> Floats:
    """Return several columns of numbers side by side, one row per row."""
    return np.stack([table.numbers(column, missing_ok) for column in columns], axis=1)


def frame(columns: Mapping[str, Any], kind: str) -> Any:
    """Build a data frame of the kind asked for: ``pandas``, ``polars`` or ``pyarrow``."""
    import narwhals as nw

    return nw.from_dict(dict(columns), backend=cast("FrameKind", kind)).to_native()


def number_ids(ids: ArrayLike, column: str) -> tuple[Codes, Ids]:
    """Give ids dense numbers in order of first appearance; any hashable thing is an id."""
    import pandas as pd

    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iuf":
        array = ids
    else:
        # Filled one by one: as an array, a list of 1 and "1" would become text, and a list of
        # tuples a matrix.
        listed = list(ids)  # type: ignore[arg-type]
        array = np.empty(len(listed), dtype=object)
        array[:] = listed
        if listed and all(type(item) is int for item in listed):
            array = np.array(listed)
    try:
        codes, distinct = pd.factorize(array)
    except TypeError:
        raise DataError(f"column {column!r} holds ids that cannot be hashed") from None
    _refuse_missing(codes < 0, column)
    return codes.astype(np.int32), np.asarray(distinct)


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
        reader = _reader(path)
        self._is_csv, self._is_json = (
            reader.startswith(f"read_{kind}") for kind in ("csv", "json")
        )
        self._connection = duckdb.connect()
        try:
            # Row numbers keep the file's order through joins; ids and values stay text in a CSV
            # so that "007" is not 7 and a bad number can be shown as it was written.
            self._connection.execute(
                "CREATE TEMP TABLE raw AS SELECT row_number() OVER () AS voxpop_row, * "
                f"FROM {reader}",
                [_literal(path)],
            )
        except duckdb.Error as error:
            raise DataError(f"{path}: cannot be read: {_explain(error)}") from None
        described = self._connection.execute("DESCRIBE raw").fetchall()[1:]
        self.columns = [str(name) for name, *_ in described]
        counted = self._connection.execute("SELECT count(*) FROM raw").fetchone()
        self._n_rows = int(counted[0]) if counted else 0
        if self._n_rows == 0:
            raise DataError(f"{path}: has no rows; expected a header and one row per answer")

    def ids(self, column: str) -> tuple[Codes, Ids]:
        """Number the ids inside DuckDB; whole numbers written plainly become integers."""
        spelled = self._spelled(column)
        _refuse_missing(self._flags(f"{spelled} IS NULL"), column, self.path)
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE ids AS SELECT id, "
            "(row_number() OVER (ORDER BY first_row) - 1)::INTEGER AS code FROM "
            f"(SELECT {spelled} AS id, min(voxpop_row) AS first_row FROM raw GROUP BY 1)"
        )
        rows = self._fetch(
            f"SELECT raw.voxpop_row AS r, ids.code AS c FROM raw JOIN ids ON {spelled} = ids.id"
        )
        codes = np.empty(self._n_rows, dtype=np.int32)
        codes[rows["r"] - 1] = rows["c"]
        distinct = self._fetch("SELECT id AS i FROM ids ORDER BY code")["i"]
        return codes, self._as_integers(distinct) if self._may_be_integers(column) else distinct

    def _spelled(self, column: str) -> str:
        """Return the column as SQL, as text where the file is text: JSON, like CSV, is."""
        name = f"raw.{_quoted(column)}"
        return f"({name}->>'$')" if self._is_json else name

    def _may_be_integers(self, column: str) -> bool:
        """Tell whether ids are text only because the file is: not where JSON has quoted them."""
        if not self._is_json:
            return self._is_csv
        return not self._flags(f"json_type(raw.{_quoted(column)}) = 'VARCHAR'").any()

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
        spelled = self._spelled(column)

        def written(row: int) -> object:
            found = self._connection.execute(
                f"SELECT {spelled} FROM raw WHERE voxpop_row = ?", [row + 1]
            ).fetchone()
            return found[0] if found else None

        unread = self._flags(f"{spelled} IS NOT NULL AND TRY_CAST({spelled} AS DOUBLE) IS NULL")
        _refuse_text(unread, written, column, self.path)
        if not missing_ok:
            _refuse_missing(self._flags(f"{spelled} IS NULL"), column, self.path)
        rows = self._fetch(
            f"SELECT voxpop_row, coalesce(TRY_CAST({spelled} AS DOUBLE), 'nan'::DOUBLE) AS number "
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
        # Depth 1: everything stays as it is spelled, and long numbers keep their digits.
        return f"read_json(?, format = '{layout}', maximum_depth = 1)"
    delimiter = "\t" if kind in {".tsv", ".tab"} else _delimiter(path)
    stated = f", delim = '{delimiter}'" if delimiter else ""
    # Quotes are stated, or the first one past the sample would be taken for a character; and no
    # line is skipped, or a row with a cell too many would be taken for the header.
    quotes = "quote = '\"', escape = '\"'"
    return f"read_csv(?, all_varchar = true, header = true, skip = 0, {quotes}{stated})"


def _delimiter(path: Path) -> str | None:
    """Find the separator of a CSV in its header, which holds names and hardly any of them.

    DuckDB would look at the rows too, and take one with a cell too many for another dialect.
    None where the file cannot be looked into beforehand (a pipe, another compression).
    """
    if not path.is_file() or path.suffix.lower() == ".zst":
        return None
    zipped = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file:
            lines = (file.readline(1_000_000) for _ in range(100))
            header = next((line for line in lines if line.strip() and line[:1] != b"#"), b"")
    except (OSError, EOFError):
        return None
    counts = {mark: header.count(mark.encode()) for mark in (",", "\t", ";", "|")}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else None


def _literal(path: Path) -> str:
    """Spell a path so that DuckDB does not take its ``*``, ``?`` and ``[`` for wildcards."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _explain(error: duckdb.Error) -> str:
    """Take what a user can act on from DuckDB's report: the error, the line, what was expected."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if "sniffing" in lines[0]:
        return "expected UTF-8 text with as many cells in every row as in the header"
    useful = ("Original Line:", "Expected Number of Columns:")
    return "; ".join([lines[0], *(line for line in lines[1:] if line.startswith(useful))])


def _refuse_missing(absent: NDArray[np.bool_], column: str, path: Path | None = None) -> None:
    rows = np.flatnonzero(absent)
    if rows.size:
        raise DataError(
            f"{_prefix(path)}column {column!r} is empty in row {shorten(rows + 1)}; "
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
    """Find the value columns: as asked, a synonym, ``value_*``, a known vector, or what is left."""
    if asked is not None:
        names = [resolve_column(table, "value", name) for name in asked]
        if not names or len(set(names)) < len(names):
            raise DataError(f"value columns must be one or more different names, got {asked!r}")
        return names
    left = [name for name in table.columns if name not in taken]
    by_lower = {name.lower(): name for name in reversed(left)}
    for synonym in SYNONYMS["value"]:
        if synonym in by_lower:
            return [by_lower[synonym]]
    numbered = [name for name in left if name.lower().startswith("value_")]
    if numbered:
        return numbered
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


def require_folder(folder: Path) -> None:
    """Refuse a place that cannot be written to, before any work is done; leave no trace."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a directory to write to")
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise DataError(f"{folder}: cannot be written to: {there} does not allow it")


def make_folder(folder: Path) -> None:
    """Make a folder for output, or say why that cannot be."""
    require_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path`` to write to; move it there only when all went well."""
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
