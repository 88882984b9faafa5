"""DuckDB, opened without access to anything but the files it must read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_NO_EXTENSIONS: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def open_memory() -> duckdb.DuckDBPyConnection:
    """Open a database in memory, which may read files until :func:`shut`."""
    import duckdb

    return duckdb.connect(config=dict(_NO_EXTENSIONS))


def shut(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a database read no more files."""
    connection.execute("SET enable_external_access = false")


def open_database(path: str, read_only: bool) -> Any:
    """Open somebody's database: a view in it that names a file or a URL fails."""
    import duckdb

    return duckdb.connect(path, read_only, _NO_EXTENSIONS | {"enable_external_access": False})


def literal(path: Path) -> str:
    """Spell a path so that DuckDB does not take its ``*``, ``?`` and ``[`` for wildcards."""
    return re.sub(r"([\[*?])", r"[\1]", str(path))


def in_quotes(path: object) -> str:
    """Spell a path as text of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def quoted(column: str) -> str:
    """Spell the name of a column in SQL."""
    return '"' + column.replace('"', '""') + '"'
