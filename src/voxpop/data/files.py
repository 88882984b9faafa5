"""Files as tables: read by DuckDB, written under a temporary name and moved into place.

DuckDB also gives the ids their dense numbers, so that a million text ids never become a million
Python strings. A CSV is opened in spreadsheets, where a cell that begins with ``=`` is run: text
that could be taken for a formula is written with an apostrophe before it, and read without.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Ids
from voxpop.errors import DataError, shorten

if TYPE_CHECKING:
    import duckdb


# The column of row numbers.
_ROW = "voxpop_row"
_NUMBERED = f"row_number() OVER () AS {_ROW}"


class FileTable:
    """A CSV, TSV, Parquet or JSON-lines file, plain or gzipped; or several, see `several_files`.

    ``beginning`` is what :func:`peek` read of it, where that was done already.
    """

    kind = "pandas"

    def __init__(
        self,
        source: Path | str,
        beginning: bytes = b"",
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        """Read the rows; with a ``connection`` of their own they stay in the files, as ``raw``."""
        import duckdb

        streamed, path, pattern = connection is not None, Path(source), several_files(source)
        self.name = str(source)
        self._where = f"{self.name}: "
        self._connection = connection or duckdb.connect()
        if pattern is not None:
            _register_store(self._connection, pattern)
            self._open(_reader(Path(pattern), b""), pattern, streamed)
        else:
            if not path.exists():
                raise DataError(f"{path}: no such file")
            if path.is_dir():
                raise DataError(f"{path}: is a directory without Parquet files; name a table")
            beginning = beginning or peek(path)
            with _in_utf8(path, beginning) as readable:
                if streamed and readable != path:
                    raise DataError(f"{path}: is UTF-16; save it as UTF-8, or use --engine local")
                reader = _reader(readable, beginning if readable == path else peek(readable))
                self._open(reader, _literal(readable), streamed)
        names = [str(row[0]) for row in self._connection.execute("DESCRIBE raw").fetchall()]
        names = [name for name in names if name != _ROW]
        plain = [without_apostrophe(name) for name in names] if self._is_csv else names
        self.columns = plain if len(set(plain)) == len(names) else names
        self._written = dict(zip(self.columns, names, strict=True))
        if not self._value("SELECT count(*) FROM (SELECT 1 FROM raw LIMIT 1)"):
            raise DataError(f"{self._where}has no rows; expected a header and one row per answer")

    def _open(self, reader: str, literal: str, streamed: bool) -> None:
        """Make the rows known to DuckDB as ``raw``: a table in memory, or a view of the files."""
        import duckdb

        self._is_csv = reader.startswith("read_csv")
        self._is_json = reader.startswith("read_json")
        rows = reader.replace("?", "'" + literal.replace("'", "''") + "'", 1)
        # Row numbers keep the file's order through joins; ids and values stay text in a CSV so
        # that "007" is not 7 and a bad number can be shown as it was written.
        what = "VIEW raw AS SELECT *" if streamed else f"TABLE raw AS SELECT {_NUMBERED}, *"
        try:
            self._connection.execute(f"CREATE TEMP {what} FROM {rows}")
        except (duckdb.Error, OSError) as error:
            told = _explain(error).replace(literal, self.name)
            raise DataError(f"{self._where}cannot be read: {told}") from None

    def ids(self, column: str) -> tuple[Codes, Ids]:
        """Number the ids inside DuckDB; whole numbers written plainly become integers."""
        spelled = self.spelled(column)
        refuse_missing(self._flags(f"{spelled} IS NULL"), column, self._where)
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE ids AS SELECT id, "
            "(row_number() OVER (ORDER BY first_row) - 1)::INTEGER AS code FROM "
            f"(SELECT {spelled} AS id, min(voxpop_row) AS first_row FROM raw GROUP BY 1)"
        )
        row, code = self._fetch(
            f"SELECT voxpop_row - 1, ids.code FROM raw JOIN ids ON {spelled} = ids.id"
        )
        codes = np.empty(len(row), dtype=np.int32)
        codes[row] = code
        (distinct,) = self._fetch("SELECT id FROM ids ORDER BY code")
        if self.may_be_integers(column):
            distinct = self._as_integers(distinct)
        return codes, self._without_apostrophes(distinct) if self._is_csv else distinct

    def texts(self, column: str) -> list[str | None]:
        """Return the column as it is written, None where a cell is empty."""
        query = f"SELECT {self.spelled(column)}::VARCHAR FROM raw"
        return [row[0] for row in self._connection.execute(query).fetchall()]

    def spelled(self, column: str) -> str:
        """Return the column as SQL; as text in JSON too, which is a text file like CSV."""
        name = f"raw.{_quoted(self._written[column])}"
        return f"({name}->>'$')" if self._is_json else name

    def may_be_integers(self, column: str) -> bool:
        """Tell whether ids are text only because the file is text: JSON may have quoted them."""
        if not self._is_json:
            return self._is_csv
        name = _quoted(self._written[column])
        return not self._flags(f"json_type(raw.{name}) = 'VARCHAR'").any()

    def _value(self, query: str) -> Any:
        """Return the only value that a query finds."""
        found = self._connection.execute(query).fetchone()
        return None if found is None else found[0]

    def _fetch(self, query: str) -> list[NDArray[Any]]:
        found = self._connection.execute(query).fetchnumpy()
        return [np.asarray(column) for column in found.values()]

    def _as_integers(self, distinct: Ids) -> Ids:
        """Return integers where every text is the plain spelling of one ("7", never "007")."""
        query = "SELECT count(*) FROM ids WHERE TRY_CAST(id AS BIGINT)::VARCHAR IS DISTINCT FROM id"
        return distinct if self._value(query) else distinct.astype(np.int64)

    def _without_apostrophes(self, distinct: Ids) -> Ids:
        """Undo :func:`with_apostrophe`, unless two ids of a foreign file would become one."""
        if not self._value("SELECT count(*) FROM ids WHERE starts_with(id, chr(39))"):
            return distinct
        plain = [without_apostrophe(identity) for identity in distinct]
        return np.array(plain, dtype=object) if len(set(plain)) == len(plain) else distinct

    def numbers(self, column: str, missing_ok: bool = False) -> Floats:
        """Cast the column in DuckDB, then look for what the cast could not read."""
        spelled = self.spelled(column)
        query = f"SELECT TRY_CAST({spelled} AS DOUBLE) AS number, {spelled} IS NULL AS absent"
        cells: dict[str, Any] = self._connection.execute(f"{query} FROM raw").fetchnumpy()
        number, absent = np.ma.asarray(cells["number"]), np.asarray(cells["absent"])
        unread = np.ma.getmaskarray(number) & ~absent
        shown = f"SELECT {spelled} FROM raw WHERE voxpop_row = "
        refuse_text(unread, lambda row: self._value(f"{shown}{row + 1}"), column, self._where)
        if not missing_ok:
            refuse_missing(absent, column, self._where)
        return number.filled(np.nan)

    def _flags(self, condition: str) -> NDArray[np.bool_]:
        """Return, row by row, where the condition holds."""
        found = self._connection.execute(f"SELECT coalesce({condition}, false) AS flag FROM raw")
        return np.asarray(found.fetchnumpy()["flag"])


def several_files(source: Path | str) -> str | None:
    """Return the pattern of several files, or of any in an object store; None for a single one.

    A folder stands for the Parquet files in it. ``s3://bucket/answers/*.parquet`` is read through
    fsspec, as is every address that it knows.
    """
    text, path = str(source), Path(source)
    if "://" in text:
        return text if Path(text).suffix else f"{text.rstrip('/')}/**/*.parquet"
    if path.is_dir():
        return f"{_literal(path)}/**/*.parquet" if any(path.rglob("*.parquet")) else None
    return text if re.search(r"[*?\[]", text) and not path.exists() else None


def _register_store(connection: duckdb.DuckDBPyConnection, pattern: str) -> None:
    """Let DuckDB read an object store through fsspec."""
    scheme = pattern.partition("://")[0]
    if scheme == pattern:
        return
    try:
        import fsspec

        connection.register_filesystem(fsspec.filesystem(scheme))
    except (ImportError, ValueError) as error:
        raise DataError(
            f"{pattern}: cannot be read: {error}; install 'voxpop[cluster]' and what fsspec needs "
            f"for {scheme}"
        ) from None


# What a spreadsheet takes for the beginning of a formula, or skips in search of one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
# First characters of all text that with_apostrophe may change.
SUSPECT = frozenset((*_FORMULA, "'", ""))


def with_apostrophe(text: str) -> str:
    """Mark text that a spreadsheet would run as a formula, or a reader take for an empty cell.

    An apostrophe goes before ``=``, ``+``, ``-``, ``@``, a tab, a line break or an empty text, and
    before text that already looks marked.
    """
    bare = text.lstrip("'")
    return f"'{text}" if not bare or bare.startswith(_FORMULA) else text


def without_apostrophe(text: str) -> str:
    """Undo :func:`with_apostrophe`."""
    bare = text.lstrip("'")
    marked = text.startswith("'") and (not bare or bare.startswith(_FORMULA))
    return text[1:] if marked else text


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, unpacked where it is gzipped."""
    if path.suffix.lower() == ".gz":
        return cast("IO[bytes]", gzip.open(path))
    return path.open("rb")


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file like :func:`open_bytes`; tell in one line what goes wrong meanwhile."""
    if not path.exists():
        raise DataError(f"{path}: no such file")
    try:
        with open_bytes(path) as file:
            yield file
    except _UNREADABLE as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


# What reading a file, plain or gzipped, may raise.
_UNREADABLE = (OSError, EOFError, zlib.error)
UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BEGINNING = 1 << 16


def is_text(path: Path) -> bool:
    """Tell whether a path is a file of text other than JSON, by its name."""
    suffixes = {suffix.lower() for suffix in path.suffixes}
    return path.is_file() and not suffixes & {".parquet", ".pq", ".json", ".jsonl", ".ndjson"}


def peek(path: Path) -> bytes:
    """Read the first 64 KB of a file, enough to know its kind, encoding and separator.

    Empty for a pipe, which can be read only once, and for a file that cannot be read: reading all
    of it raises the error.
    """
    if not path.is_file() or path.suffix.lower() == ".zst":
        return b""
    try:
        with open_bytes(path) as file:
            return file.read(_BEGINNING)
    except _UNREADABLE:
        return b""


@contextmanager
def _in_utf8(path: Path, beginning: bytes) -> Iterator[Path]:
    """Give the file, or a copy of it in UTF-8 where its first bytes say that it is UTF-16."""
    if beginning[:2] not in UTF16:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name.removesuffix(".gz")
        try:
            with (
                reading(path) as raw,
                io.TextIOWrapper(raw, encoding="utf-16", newline="") as text,
                copy.open("w", encoding="utf-8", newline="") as out,
            ):
                shutil.copyfileobj(text, out)
        except UnicodeError:
            raise DataError(f"{path}: begins like UTF-16 but is not; save it as UTF-8") from None
        yield copy


def read_text(path: Path, largest: int = 2**31) -> str:
    """Read a whole text file, UTF-8 or UTF-16, plain or gzipped, of at most ``largest`` bytes."""
    with reading(path) as file:
        # One byte more than allowed is enough to know: a small gzip can hold a huge text.
        content = file.read(largest + 1)
    if len(content) > largest:
        raise DataError(f"{path}: is larger than {largest >> 20} MB, the limit")
    try:
        return content.decode("utf-16" if content[:2] in UTF16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected UTF-8 text; byte {error.start} is not") from None


def _reader(path: Path, beginning: bytes) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s not in {".gz", ".zst"}), ".csv")
    if kind in {".parquet", ".pq"}:
        return "read_parquet(?)"
    if kind in {".jsonl", ".ndjson", ".json"}:
        layout = "auto" if kind == ".json" else "newline_delimited"
        # Depth 1: everything stays as it is spelled, and long numbers keep their digits.
        return f"read_json(?, format = '{layout}', maximum_depth = 1)"
    delimiter = "\t" if kind in {".tsv", ".tab"} else _delimiter(beginning)
    stated = f", delim = '{delimiter}'" if delimiter else ""
    # Quotes are stated, or the first one past the sample would be taken for a character; and no
    # line is skipped, or a row with a cell too many would be taken for the header.
    quotes = "quote = '\"', escape = '\"'"
    return f"read_csv(?, all_varchar = true, header = true, skip = 0, {quotes}{stated})"


def _delimiter(beginning: bytes) -> str | None:
    """Find the separator of a CSV in its header, where names hardly ever contain one.

    DuckDB would look at the rows too, and take one with a cell too many for another dialect.
    None where the beginning is not known (a pipe, another compression).
    """
    lines = beginning.splitlines()
    header = next((line for line in lines if line.strip() and line[:1] != b"#"), b"")
    counts = {mark: header.count(mark.encode()) for mark in (",", "\t", ";", "|")}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else None


def _literal(path: Path) -> str:
    """Spell a path so that DuckDB does not take its ``*``, ``?`` and ``[`` for wildcards."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _explain(error: Exception) -> str:
    """Keep what a user can act on of DuckDB's report: the error, the line, what was expected."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if "sniffing" in lines[0]:
        return "expected UTF-8 text with as many cells in every row as in the header"
    useful = ("Original Line:", "Expected Number of Columns:")
    told = [lines[0], *(line for line in lines[1:] if line.startswith(useful))]
    return "; ".join(line if len(line) <= 120 else f"{line[:120]}..." for line in told)


def refuse_missing(absent: NDArray[np.bool_], column: str, where: str = "") -> None:
    """Raise an error that names the rows without an entry, if there are any."""
    rows = np.flatnonzero(absent)
    if rows.size:
        raise DataError(
            f"{where}column {column!r} is empty in row {shorten(rows + 1)}; "
            "drop those rows or fill them in"
        )


def refuse_text(
    unread: NDArray[np.bool_],
    written: Callable[[int], object],
    column: str,
    where: str = "",
) -> None:
    """Raise an error that shows the first cell that is not a number, if there is one."""
    rows = np.flatnonzero(unread)
    if rows.size:
        more = f" (and {rows.size - 1} more rows)" if rows.size > 1 else ""
        raise DataError(
            f"{where}row {rows[0] + 1}: {shorten([written(int(rows[0]))])} in column "
            f"{column!r} is not a number{more}"
        )


def require_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before any work is done; create nothing."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file; name a directory to write to")
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise DataError(f"{folder}: cannot be written to: no permission for {there}")


def make_folder(folder: Path) -> None:
    """Make a folder for output, or say why it cannot be made."""
    require_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path`` to write to, and move it there if all went well."""
    if not path.parent.is_dir():
        raise DataError(f"{path}: cannot be written: no folder {path.parent}")
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
