"""Many files: Parquet in folders, by patterns and in object stores as one table; files as streams.

A stream stays in its files: DuckDB reads what a query asks for, so that answers may be larger than
memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from glob import glob
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from voxpop.data.duck import in_quotes, literal, open_memory, quoted, shut
from voxpop.data.files import JSON_LINES, PARQUET, delimiter_of, file_kind, plain_names
from voxpop.data.library_errors import naming
from voxpop.data.text_tables import count_rows
from voxpop.data.unpack import UTF16, decode, peek, reading, refuse_no_text
from voxpop.errors import DataError

if TYPE_CHECKING:
    import duckdb

# White space that is trimmed from ids.
_SPACE = "' ' || " + " || ".join(f"chr({code})" for code in (9, 10, 11, 12, 13, 160))


def several_files(source: Path | str) -> str | None:
    """Return the pattern of several files, or of any in an object store; None for a single one.

    A folder stands for the Parquet files in it. ``s3://bucket/answers/*.parquet`` is read through
    fsspec, as is every address that it knows.
    """
    text, path = str(source), Path(source)
    if "://" in text:
        return text if Path(text).suffix else f"{text.rstrip('/')}/**/*.parquet"
    if path.is_dir():
        if (path / "result.json").exists():
            raise DataError(
                f"{path}: holds a result of `voxpop aggregate`, not answers; name the answers that "
                "it was made from"
            )
        suffix = _suffix_in(path)
        return None if suffix is None else f"{literal(path)}/**/*{suffix}"
    return text if re.search(r"[*?\[]", text) and not path.exists() else None


def _suffix_in(folder: Path) -> str | None:
    """Return how the names of the Parquet files in a folder end; refuse several endings."""
    found = {path.suffix for path in folder.rglob("*") if path.suffix.lower() in PARQUET}
    if len(found) > 1:
        raise DataError(
            f"{folder}: holds Parquet files that end in {' and '.join(sorted(found))}; give all of "
            "them one ending, or name those to read by a pattern such as '*.parquet'"
        )
    return next(iter(found), None)


def stamps_of(source: str) -> list[tuple[str, str]]:
    """Return the files of a source, and for each a text that changes with its content."""
    pattern = several_files(source)
    if pattern is not None and "://" in pattern:
        found = _store_of(pattern).glob(pattern, detail=True)
        return sorted((name, repr(sorted(about.items()))) for name, about in found.items())
    paths = [source] if pattern is None else sorted(glob(pattern, recursive=True))  # noqa: PTH207
    stats = ((path, Path(path).stat()) for path in paths)
    return [(path, f"{facts.st_size} {facts.st_mtime_ns}") for path, facts in stats]


def read_files(source: str) -> Any:
    """Read several Parquet files as one data frame."""
    connection = open_memory()
    stream = FileStream(source, connection)
    if not stream.is_parquet:
        raise DataError(
            f"{source}: several files, and files in an object store, are read into memory if they "
            "are Parquet; name one file of this machine, or use --engine outofcore"
        )
    with naming(source):
        rows = connection.execute("SELECT * FROM raw").df()
    shut(connection)
    return rows


class FileStream:
    """A table that stays in its files: the view ``raw`` of a connection to DuckDB.

    A CSV, TSV, Parquet or JSON-lines file, plain or gzipped; or several, see `several_files`.
    """

    def __init__(self, source: str, connection: duckdb.DuckDBPyConnection) -> None:
        self.name, self._connection = source, connection
        pattern, beginning = several_files(source), ""
        if pattern is None:
            path = Path(source)
            beginning, pattern = _beginning(path), literal(path)
        else:
            path = Path(pattern)
            _register_store(connection, pattern)
        self._pattern, kind = pattern, file_kind(path, beginning.encode())
        self.is_parquet, self._is_json = kind in PARQUET, kind in {".json", *JSON_LINES}
        self._is_csv = not (self.is_parquet or self._is_json)
        rows = _reader(kind, beginning).replace("?", in_quotes(pattern), 1)
        with _naming_what_differs(source, self._is_csv):
            connection.execute(f"CREATE TEMP VIEW raw AS SELECT * FROM {rows}")
            described = connection.execute("DESCRIBE raw").fetchall()
            if self.is_parquet:
                self._refuse_mixed(pattern)
            else:
                self._check(pattern, None if kind == ".json" else delimiter_of(kind, beginning))
        names = [str(row[0]) for row in described]
        self.columns = plain_names(names, self._is_csv)
        self._written = dict(zip(self.columns, names, strict=True))
        self.types = {name: str(row[1]) for name, row in zip(self.columns, described, strict=True)}
        is_text = {name: self._is_json or kind == "VARCHAR" for name, kind in self.types.items()}
        self._texts = {name for name in self.columns if is_text[name]}

    def _refuse_mixed(self, pattern: str) -> None:
        """Refuse columns whose values would change if they had one type in all files."""
        mixed = self._connection.execute(
            "SELECT column_name, bool_or(type = 'BYTE_ARRAY'), min(file), max(file) FROM "
            "(SELECT lower(name) AS name, type, min(file_name) AS file FROM parquet_schema(?) "
            "GROUP BY 1, 2) JOIN (DESCRIBE raw) ON name = lower(column_name) GROUP BY 1 "
            "HAVING bool_or(type IN ('FLOAT', 'DOUBLE')) AND "
            "bool_or(type IN ('BYTE_ARRAY', 'INT32', 'INT64'))",
            [pattern],
        ).fetchall()
        for name, has_text, one, other in mixed:
            large = f"SELECT 1 FROM raw WHERE abs({quoted(name)}) >= 9007199254740992 LIMIT 1"
            if has_text or self._connection.execute(large).fetchone():
                raise DataError(
                    f"{self.name}: column {name!r} holds numbers with decimals in some files, and "
                    f"{'text' if has_text else 'long whole numbers'} in others, such as {one} and "
                    f"{other}; save it with one type in all files"
                )

    def refuse_types(self, ids: Sequence[str], numbers: Sequence[str]) -> None:
        """Refuse columns that a cast would accept, but that are refused when read into memory."""
        refused = [(name, "BLOB", "bytes, which are no ids", "text or numbers") for name in ids]
        refused += [(name, "BOOLEAN", "true and false, not numbers", "numbers") for name in numbers]
        for name, kind, what, instead in refused:
            if self.types[name] == kind:
                raise DataError(f"{self.name}: column {name!r} holds {what}; save it as {instead}")

    def without(self, column: str) -> str:
        """Name a file that lacks a column, for the end of a message; nothing if none does."""
        if not self.is_parquet:
            return ""
        found = self._connection.execute(
            "SELECT min(file_name) FROM (SELECT file_name FROM parquet_schema(?) GROUP BY 1 "
            "HAVING NOT bool_or(lower(name) = lower(?)))",
            [self._pattern, column],
        ).fetchone()
        return f": {found[0]} has no such column" if found and found[0] else ""

    def _check(self, pattern: str, delimiter: str | None) -> None:
        """Read text files once more, to their ends: DuckDB does not check what it unpacks.

        DuckDB must find as many rows as are counted here; lists in JSON are not counted.
        """
        counted = 0
        for opened in _opened(pattern):
            with opened as file:
                if delimiter is None:
                    _refuse_cut_list(file)
                else:
                    counted += count_rows(file, "" if self._is_json else delimiter)
        if delimiter is not None:
            found = self._connection.execute("SELECT count(*) FROM raw").fetchone() or (0,)
            if found[0] != counted:
                raise DataError(
                    f"{self.name}: has {counted} rows, of which {found[0]} can be read in parts; "
                    "use --engine local, or save it as Parquet"
                )

    def beginning(self) -> Any:
        """Return the first rows as a data frame."""
        cells = ", ".join(f"{self.spelled(name)} AS {quoted(name)}" for name in self.columns)
        with naming(self.name):
            return self._connection.execute(f"SELECT {cells} FROM raw LIMIT 1000").df()

    def spelled(self, column: str) -> str:
        """Return a column as SQL; as text in JSON too, which is a text file like CSV."""
        name = f"raw.{quoted(self._written[column])}"
        return f"({name}->>'$')" if self._is_json else name

    def spelled_id(self, column: str) -> str:
        """Return a column of ids as SQL, without white space around them; NULL for an empty one."""
        name = self.spelled(column)
        return f"nullif(trim({name}, {_SPACE}), '')" if column in self._texts else name

    def may_be_integers(self, column: str) -> bool:
        """Return whether ids are text only because the file is text: JSON may have quoted them."""
        if not self._is_json:
            return self._is_csv
        is_text = f"json_type(raw.{quoted(self._written[column])}) = 'VARCHAR'"
        found = self._connection.execute(f"SELECT 1 FROM raw WHERE {is_text} LIMIT 1").fetchone()
        return found is None


@contextmanager
def _naming_what_differs(source: str, is_csv: bool) -> Iterator[None]:
    """Turn exceptions into one line, and name what can be read in memory only."""
    try:
        with naming(source):
            yield
    except DataError as error:
        hint = "; --engine local also reads titles above the header and Windows-1252 text"
        raise DataError(f"{str(error).removesuffix('.')}{hint * is_csv}") from None


def _refuse_cut_list(file: IO[bytes]) -> None:
    """Refuse a list in JSON that lacks its end, which DuckDB does not notice."""
    first = last = b""
    while block := file.read(1 << 20):
        if text := block.strip():
            first, last = first or text[:1], text[-1:]
    if first == b"[" and last != b"]":
        raise EOFError


def _opened(pattern: str) -> Iterator[AbstractContextManager[IO[bytes]]]:
    """Open all files of a pattern one after the other, unpacked."""
    if "://" not in pattern:
        names = sorted(glob(pattern, recursive=True))  # noqa: PTH207 - it may be absolute
        yield from (reading(Path(name)) for name in names)
        return
    store = _store_of(pattern)
    for name in store.glob(pattern):
        packed = "gzip" if name.endswith(".gz") else None
        yield store.open(name, "rb", compression=packed)


def _beginning(path: Path) -> str:
    """Return the first text of a single file; refuse what DuckDB does not read."""
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.is_dir():
        raise DataError(f"{path}: is a directory without Parquet files; name a table")
    found = peek(path)
    if found[:2] in UTF16 or file_kind(path, found) == "sheet":
        kind = "UTF-16" if found[:2] in UTF16 else "a workbook"
        raise DataError(
            f"{path}: is {kind}, which is not read in parts; save it as CSV in UTF-8 or as "
            "Parquet, or use --engine local"
        )
    if found.startswith(b"PAR1"):
        return "PAR1"
    refuse_no_text(path, found)
    return decode(found)


def _reader(kind: str, beginning: str) -> str:
    """Call a reader of DuckDB, with ? for the files."""
    if kind in PARQUET:
        # By the first file alone, numbers with decimals in others would be rounded.
        return "read_parquet(?, union_by_name = true)"
    if kind == ".json" or kind in JSON_LINES:
        layout = "auto" if kind == ".json" else "newline_delimited"
        # With depth 1 cells stay as they are spelled, and long numbers keep their digits.
        return f"read_json(?, format = '{layout}', maximum_depth = 1)"
    delimiter = delimiter_of(kind, beginning)
    stated = f", delim = '{delimiter}'" if beginning or delimiter == "\t" else ""
    # Quotes are stated, or the first one past the sample would be taken for a character; and no
    # line is skipped, or a row with a cell too many would be taken for the header.
    quotes = "quote = '\"', escape = '\"', comment = ''"
    return f"read_csv(?, all_varchar = true, header = true, skip = 0, {quotes}{stated})"


def _register_store(connection: duckdb.DuckDBPyConnection, pattern: str) -> None:
    """Let DuckDB read an object store through fsspec."""
    if "://" in pattern:
        connection.register_filesystem(_store_of(pattern))


def _store_of(pattern: str) -> Any:
    """Open an object store, or say what is missing for that."""
    scheme = pattern.partition("://")[0]
    try:
        import fsspec

        return fsspec.filesystem(scheme)
    except (ImportError, ValueError) as error:
        raise DataError(
            f"{pattern}: cannot be read: {error}; install 'voxpop[cluster]' and what fsspec needs "
            f"for {scheme}"
        ) from None
