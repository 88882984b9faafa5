"""Files as tables: read by DuckDB.

DuckDB gives the ids their dense numbers, so that a million text ids never become a million Python
strings. Python's own readers decide what a text file holds; DuckDB reads a large plain one faster,
and the number of its rows must be the same. A CSV is opened in spreadsheets, where a cell that
begins with ``=`` is run: text that could be taken for a formula is written with an apostrophe
before it, and read without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Ids
from voxpop.data.duck import literal, open_memory, quoted, shut
from voxpop.data.library_errors import naming
from voxpop.data.numerals import Numbers, Spelling
from voxpop.data.sheets import is_workbook, read_sheet
from voxpop.data.text_tables import Rows, find_delimiter, read_csv, read_json
from voxpop.data.unpack import decode, peek, plain_text, refuse_growth, refuse_no_text
from voxpop.errors import DataError, shorten

# A number as both Python and DuckDB read it.
_PLAIN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# Columns that one query reads.
_AT_ONCE = 100
PARQUET, JSON_LINES, TABS = {".parquet", ".pq"}, {".jsonl", ".ndjson"}, {".tsv", ".tab"}


class FileTable:
    """A CSV, TSV, Parquet or JSON-lines file, plain or gzipped, or a sheet of a workbook.

    ``beginning`` is what :func:`peek` read of it, where that was done already. ``notes`` say how it
    was read.
    """

    kind = "pandas"

    def __init__(
        self, path: Path, beginning: bytes = b"", spelling: Spelling | None = None
    ) -> None:
        if not path.exists():
            raise DataError(f"{path}: no such file")
        if path.is_dir():
            raise DataError(f"{path}: is a directory; expected a CSV, TSV, Parquet or JSONL file")
        self.name, self._where = str(path), f"{path}: "
        self.spelling, self.notes = spelling or Spelling(), list[str]()
        self._connection = open_memory()
        self._is_text, self._first, self._numbers = True, 1, np.empty(0, dtype=np.int64)
        self._quoted_ids: frozenset[str] = frozenset()
        beginning = beginning or peek(path)
        kind = file_kind(path, beginning)
        with naming(path):
            if kind in PARQUET:
                names = self._load_parquet(path)
            else:
                names = self._load_text(path, kind, beginning)
            shut(self._connection)
        self._is_csv = self._is_text and kind != ".json" and kind not in JSON_LINES
        self.columns = plain_names(names, self._is_csv)
        written = names if not self._is_text else [f"c{k}" for k in range(len(names))]
        self._written = dict(zip(self.columns, written, strict=True))
        if not self._value("SELECT count(*) FROM raw"):
            raise DataError(f"{path}: has no rows; expected a header and one row per answer")

    def _load_parquet(self, path: Path) -> list[str]:
        """Read all columns with their types."""
        self._is_text = False
        source, run = [literal(path)], self._connection.execute
        rows = run("SELECT sum(num_rows) FROM parquet_file_metadata(?)", source).fetchone()
        described = run("DESCRIBE SELECT * FROM read_parquet(?)", source).fetchall()
        size = 8.0 * (rows[0] if rows and rows[0] else 0) * len(described)
        refuse_growth(path, path.stat().st_size, size)
        # Row numbers keep the file's order through joins.
        run(
            "CREATE TEMP TABLE raw AS SELECT row_number() OVER () AS voxpop_row, * "
            "FROM read_parquet(?)",
            source,
        )
        return [str(row[0]) for row in described]

    def _load_text(self, path: Path, kind: str, beginning: bytes) -> list[str]:
        """Read all cells as text, so that "007" is not 7 and a bad number can be shown."""
        if kind == "sheet":
            rows = read_sheet(path, self.spelling.sheet)
            self._insert(rows)
        else:
            if self.spelling.sheet is not None:
                raise DataError(f"{path}: is not a workbook, so it has no sheet to choose")
            refuse_no_text(path, beginning)
            with plain_text(path) as (readable, encoding):
                if kind == ".json" or kind in JSON_LINES:
                    rows = read_json(readable, path, lines=kind != ".json")
                    self._insert(rows)
                else:
                    delimiter = delimiter_of(kind, decode(peek(readable)))
                    rows = read_csv(readable, path, delimiter)
                    if not (rows.is_plain and self._load_plain(readable, rows, delimiter)):
                        self._insert(rows)
            if encoding == "Windows-1252":
                self.notes.append("read as Windows-1252 text, because it is not UTF-8")
        if self._value("SELECT count(*) FROM raw") != rows.n:
            raise DataError(
                f"{path}: changed while it was read: it had {rows.n} rows at first; read it again"
            )
        self._first, self._numbers = rows.first, np.array(rows.numbers, dtype=np.int64)
        self._quoted_ids = rows.is_text
        self.notes += rows.notes
        return rows.names

    def _load_plain(self, path: Path, rows: Rows, delimiter: str) -> bool:
        """Let DuckDB read a CSV without quotes, which all read alike; False if it cannot."""
        import duckdb

        if not _is_plain(path):
            return False
        columns = ", ".join(f"'c{k}': 'VARCHAR'" for k in range(len(rows.names)))
        dialect = (
            f"columns = {{{columns}}}, auto_detect = false, header = false, skip = 1, "
            f"delim = '{delimiter}', quote = '', escape = '', comment = ''"
        )
        try:
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE raw AS SELECT row_number() OVER () AS voxpop_row, * "
                f"FROM read_csv(?, {dialect})",
                [literal(path)],
            )
        except duckdb.Error:
            return False
        return bool(self._value("SELECT count(*) FROM raw") == rows.n)

    def _insert(self, rows: Rows) -> None:
        """Insert the cells of all rows, as Python's reader gives them."""
        names = [f"c{k}" for k in range(len(rows.names))]
        cells = ", ".join(f"{name} VARCHAR" for name in names)
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE raw (voxpop_row BIGINT{', ' * bool(names)}{cells})"
        )
        n = 0
        for batch in rows.batches() if names else ():
            # DuckDB reads the columns where they are, by the name of the variable.
            columns: dict[str, Any] = {"voxpop_row": np.arange(n + 1, n + 1 + len(batch[0]))}
            for name, column in zip(names, batch, strict=True):
                columns[name] = np.empty(len(column), dtype=object)
                columns[name][:] = column
            self._connection.execute("INSERT INTO raw SELECT * FROM columns")
            n += len(batch[0])

    def rows(self, positions: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
        """Number rows as a spreadsheet does, or an editor the lines: the header is one."""
        places = np.asarray(positions, dtype=np.int64)
        return self._numbers[places] if self._numbers.size else places + self._first

    def where(self, position: int) -> str:
        """Name a row in an error."""
        return f"{self._where}row {self.rows([position])[0]}"

    def ids(self, column: str, missing_ok: bool = False) -> tuple[Codes, Ids]:
        """Number the ids inside DuckDB; whole numbers written plainly become integers.

        Where ``missing_ok``, an empty cell has the number -1.
        """
        spelled = self._spelled(column)
        absent = self._flags(f"{spelled} IS NULL")
        if not missing_ok:
            refuse_missing(absent, column, self._where, self.rows)
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE ids AS SELECT id, "
            "(row_number() OVER (ORDER BY first_row) - 1)::INTEGER AS code FROM "
            f"(SELECT {spelled} AS id, min(voxpop_row) AS first_row FROM raw "
            f"WHERE {spelled} IS NOT NULL GROUP BY 1)"
        )
        row, code = self._fetch(
            f"SELECT voxpop_row - 1, ids.code FROM raw JOIN ids ON {spelled} = ids.id"
        )
        codes = np.full(len(absent), -1, dtype=np.int32)
        codes[row] = code
        (distinct,) = self._fetch("SELECT id FROM ids ORDER BY code")
        if self._is_text and column not in self._quoted_ids:
            distinct = self._as_integers(distinct)
        return codes, self._without_apostrophes(distinct) if self._is_csv else distinct

    def texts(self, column: str) -> list[str | None]:
        """Return the column as it is written, None where a cell is empty."""
        return next(self.all_texts([column]))

    def all_texts(self, columns: Sequence[str]) -> Iterator[list[str | None]]:
        """Give one column after the other as :meth:`texts` does."""
        for some in _some(columns):
            cells = ", ".join(f"{self._spelled(column)}::VARCHAR" for column in some)
            query = f"SELECT {cells} FROM raw ORDER BY voxpop_row"
            rows = self._connection.execute(query).fetchall()
            yield from map(list, zip(*rows, strict=True))

    def _spelled(self, column: str) -> str:
        """Return the column as SQL."""
        return f"raw.{quoted(self._written[column])}"

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
        """Cast the column in DuckDB; read what it cannot cast as numbers that people write."""
        return self.matrix([column], missing_ok)[:, 0]

    def matrix(self, columns: Sequence[str], missing_ok: bool = False) -> Floats:
        """Cast columns as :meth:`numbers` does, side by side."""
        value = []
        for some in _some(columns):
            cast = self._cast(some)
            odd = [column for column, found in cast.items() if found is None]
            texts = dict(zip(odd, self.all_texts(odd), strict=True))
            for column, plain in cast.items():
                found = plain or self.spelling.read(texts[column], column, self.where)
                found = self.spelling.without_codes(found)
                self.notes += [found.note] if found.note and found.note not in self.notes else []
                if not missing_ok:
                    refuse_missing(found.absent, column, self._where, self.rows, found.word)
                value.append(found.value)
        return np.stack(value, axis=1)

    def _cast(self, columns: Sequence[str]) -> dict[str, Numbers | None]:
        """Read columns of plain numbers; None for a column that holds anything else."""
        names = {column: self._spelled(column) for column in columns}
        kinds = self._connection.execute(
            f"SELECT {', '.join(f'any_value(typeof({name}))' for name in names.values())} FROM raw"
        ).fetchone()
        asked = []
        for k, (name, kind) in enumerate(zip(names.values(), kinds or (), strict=True)):
            plain = f"regexp_full_match(trim({name}), '{_PLAIN}')" if kind == "VARCHAR" else "true"
            number = f"CASE WHEN {plain} THEN TRY_CAST({name} AS DOUBLE) END"
            asked.append(f"{number} AS number{k}, {name} IS NULL AS absent{k}")
        cells: dict[str, Any] = self._connection.execute(
            f"SELECT {', '.join(asked)} FROM raw ORDER BY voxpop_row"
        ).fetchnumpy()
        found: dict[str, Numbers | None] = {}
        for k, (column, kind) in enumerate(zip(columns, kinds or (), strict=True)):
            value, absent = np.ma.asarray(cells[f"number{k}"]), np.asarray(cells[f"absent{k}"])
            is_odd = bool((np.ma.getmaskarray(value) & ~absent).any())
            is_odd |= kind == "VARCHAR" and self.spelling.is_stated
            found[column] = None if is_odd else Numbers(value.filled(np.nan), absent)
        return found

    def _flags(self, condition: str) -> NDArray[np.bool_]:
        """Return, row by row, where the condition holds."""
        query = f"SELECT coalesce({condition}, false) AS flag FROM raw ORDER BY voxpop_row"
        return np.asarray(self._connection.execute(query).fetchnumpy()["flag"])


def _some(columns: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide the columns over a few queries: a query for each of thousands would take minutes."""
    return (columns[k : k + _AT_ONCE] for k in range(0, len(columns), _AT_ONCE))


def file_kind(path: Path, beginning: bytes) -> str:
    """Name the kind of a file by its first bytes, or else by its ending."""
    if is_workbook(beginning):
        return "sheet"
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((s for s in reversed(suffixes) if s != ".gz"), ".csv")
    if beginning.startswith(b"PAR1"):
        return ".parquet"
    return kind


def delimiter_of(kind: str, beginning: str) -> str:
    """Find the separator of a text table by the kind of the file, or else in its first text."""
    return "\t" if kind in TABS else find_delimiter(beginning)


def _is_plain(path: Path) -> bool:
    """Return whether a CSV has no quotes, and line ends of one kind: then readers cannot differ."""
    n_feeds = n_returns = n_both = 0
    before = b""
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            if b'"' in block or b"\0" in block:
                return False
            n_feeds, n_returns = n_feeds + block.count(b"\n"), n_returns + block.count(b"\r")
            n_both += block.count(b"\r\n") + (before[-1:] + block[:1] == b"\r\n")
            before = block
    return n_returns == 0 or n_returns == n_both == n_feeds


def is_text(path: Path) -> bool:
    """Return whether a path is a file of text other than JSON."""
    kind = file_kind(path, peek(path))
    return path.is_file() and kind not in {"sheet", ".json", *JSON_LINES, *PARQUET}


# What a spreadsheet takes for the beginning of a formula, or skips in search of one.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
# First characters of all texts that with_apostrophe may change.
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


def plain_names(names: list[str], is_csv: bool) -> list[str]:
    """Undo :func:`with_apostrophe` in the header of a CSV, unless two columns would become one."""
    plain = [without_apostrophe(name) for name in names] if is_csv else names
    return plain if len(set(plain)) == len(names) else names


def refuse_missing(
    absent: NDArray[np.bool_],
    column: str,
    where: str = "",
    rows: Callable[[NDArray[np.int64]], Any] = lambda positions: positions + 1,
    word: str = "",
) -> None:
    """Raise an error that names the rows without an entry, if there are any."""
    places = np.flatnonzero(absent)
    if places.size:
        empty = f"empty or {word!r}" if word else "empty"
        raise DataError(
            f"{where}column {column!r} is {empty} in row {shorten(rows(places))}; fill in such "
            "rows, or leave them out with missing='drop' (command line: --missing drop)"
        )
