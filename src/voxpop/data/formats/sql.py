"""Databases: answers by URL and query, results written back in one transaction.

``duckdb:///crowd.duckdb`` needs nothing; ``sqlite:///crowd.db`` and ``postgresql://...`` need the
extra ``sql`` (ADBC drivers). A relative path follows three slashes, an absolute one four.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from voxpop.data.duck import open_database
from voxpop.data.library_errors import naming
from voxpop.data.numerals import Spelling
from voxpop.data.tables import FrameTable, frame, text_columns
from voxpop.data.unpack import refuse_growth
from voxpop.errors import ConfigError, DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

Existing = Literal["error", "replace", "append"]
# Rows that are fetched at a time, in the vectors of DuckDB (2048 rows), and memory of a cell.
_VECTORS, _CELL = 500, 16
_SCHEMES = {name: name for name in ("duckdb", "sqlite", "postgresql")} | {"postgres": "postgresql"}


def is_url(source: object) -> bool:
    """Return whether a source names a database."""
    return isinstance(source, str) and source.partition("://")[0] in _SCHEMES and "://" in source


def safe_url(url: str) -> str:
    """Return the URL without its password, to be shown."""
    hidden = re.sub(r"(://[^/?#]*?:)[^@/]*@", r"\1***@", url)
    return re.sub(r"(password=)[^&\s]*", r"\1***", hidden)


def read_query(url: str, query: str, spelling: Spelling | None = None) -> FrameTable:
    """Run a query and return its rows as a table."""
    if not query.strip():
        raise ConfigError("query must be a SELECT, or the name of a table")
    plain = re.fullmatch(r"[\w.]+", query.strip())
    statement = f"SELECT * FROM {query.strip()}" if plain else query
    with _connect(url, read_only=True) as (kind, connection):
        if kind == "duckdb":
            rows = _fetched(connection.execute(statement), url)
        else:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                found = cursor.fetch_arrow_table()
                found.validate(full=True)  # SQLite stores any bytes as text
                rows = found.to_pandas()
    return FrameTable(rows, spelling)


def _fetched(found: Any, url: str) -> Any:
    """Fetch all rows as a frame, some at a time: a view in a small file may have any number."""
    import pandas as pd

    path, size = Path(_path_of(url, must_exist=True)), 0.0
    part = found.fetch_df_chunk(_VECTORS)
    parts = [part]
    while len(part):
        size += part.size * _CELL
        refuse_growth(path, path.stat().st_size, size, 1 << 30, "query fewer rows")
        part = found.fetch_df_chunk(_VECTORS)
        parts.append(part)
    return parts[0] if len(parts) < 3 else pd.concat(parts[:-1], ignore_index=True)


def write_result(
    result: Result, url: str, prefix: str = "voxpop", existing: Existing = "error"
) -> str:
    """Write the tables ``PREFIX_tasks`` and ``PREFIX_workers``, both or neither.

    Parameters
    ----------
    existing
        What to do if they exist: refuse, replace them, or append.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", prefix):
        raise ConfigError(f"prefix must be a plain name like voxpop, got {prefix!r}")
    parts = {"tasks": result.task_columns(), "workers": result.worker_columns()}
    tables = {
        f"{prefix}_{name}": frame(text_columns(columns, safe=False), "pandas")
        for name, columns in parts.items()
    }
    with _connect(url, read_only=False) as (kind, connection):
        if kind == "duckdb":
            _write_duckdb(connection, tables, existing)
        else:
            _write_adbc(connection, tables, existing)
    return f"{' and '.join(tables)} to {safe_url(url)}"


def _write_duckdb(connection: Any, tables: dict[str, Any], existing: Existing) -> None:
    connection.execute("BEGIN")
    for name, rows in tables.items():
        connection.register("voxpop_rows", rows)
        if existing == "replace":
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        there = connection.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = ?", [name]
        ).fetchone()[0]
        if there and existing == "append":
            connection.execute(f'INSERT INTO "{name}" BY NAME SELECT * FROM voxpop_rows')
        else:
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM voxpop_rows')
        connection.unregister("voxpop_rows")
    connection.execute("COMMIT")


def _write_adbc(connection: Any, tables: dict[str, Any], existing: Existing) -> None:
    import pyarrow as pa

    modes = {"error": "create", "replace": "replace", "append": "create_append"}
    with connection.cursor() as cursor:
        for name, rows in tables.items():
            arrow = pa.Table.from_pandas(rows, preserve_index=False)
            # A column without any value has no type of its own: older drivers refuse it.
            typed = (
                f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in arrow.schema
            )
            arrow = arrow.cast(pa.schema(list(typed)))
            cursor.adbc_ingest(name, arrow, mode=modes[existing])
    connection.commit()


@contextmanager
def _connect(url: str, read_only: bool) -> Iterator[tuple[str, Any]]:
    """Open a database; its errors become one line without the password."""
    kind = _SCHEMES[url.partition("://")[0]]
    target = url if kind == "postgresql" else _path_of(url, must_exist=read_only)
    driver: Any
    if kind == "duckdb":
        import duckdb as driver

        connect = partial(open_database, target, read_only)
    else:
        try:
            driver = import_module(f"adbc_driver_{kind}.dbapi")
            connect = partial(driver.connect, target)
        except ImportError:
            raise ConfigError(f"{kind} needs its driver: pip install 'voxpop[sql]'") from None
    with naming(safe_url(url), "read" if read_only else "written"):
        try:
            # Closing rolls back what was not committed.
            with closing(connect()) as connection:
                yield kind, connection
        except driver.Error as error:
            # SQLite's driver repeats the whole statement, which the user did not type.
            why = " ".join(str(error).split()).partition(" query was:")[0]
            why = why.replace(url, safe_url(url))[:300]
            if not read_only and (known := re.search(r'"(\w+)" already exists', why)):
                why = f"table {known[1]!r} already exists; say existing='replace' or 'append' "
                why += "(command line: --existing)"
            raise DataError(f"{safe_url(url)}: {why}") from None


def _path_of(url: str, must_exist: bool) -> str:
    path = Path(re.sub(r"^\w+:///?", "", url, count=1))
    if must_exist and not path.exists():
        # Both databases would create an empty file instead.
        raise DataError(f"{path}: no such file")
    return str(path)
