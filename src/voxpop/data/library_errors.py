"""Library errors: exceptions of libraries about files, as one line; the only place that knows them.

Readers and writers wrap what touches a file in :func:`naming`. What is not listed here is a mistake
of voxpop's own, and stays a traceback.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from xml.parsers import expat

from voxpop.errors import DataError, VoxpopError

# Packages whose errors are about the file or the database, by the first part of their module.
_OF_PACKAGES = ("duckdb", "_duckdb", "adbc_driver_manager", "pyarrow")
# Lines of DuckDB's reports that a user can act on, beside the first.
_USEFUL = ("Original Line:", "Expected Number of Columns:")


@contextmanager
def naming(where: object, done: str = "read") -> Iterator[None]:
    """Turn exceptions of libraries into ``WHERE: cannot be DONE: why``, in one line."""
    try:
        yield
    except VoxpopError:
        raise
    except Exception as error:
        why = reason(error)
        if why is None:
            raise
        raise DataError(f"{where}: cannot be {done}: {why}") from None


def reason(error: Exception) -> str | None:
    """Return in one line why a library failed; None if the error is not a library's."""
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, zlib.error):
        return "its compressed data are damaged"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    # Raised by zipfile for members that are compressed in an unknown way.
    if isinstance(error, NotImplementedError):
        return f"its parts cannot be unpacked: {_short(error)}"
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    if isinstance(error, UnicodeError):
        return f"its text is damaged: {_short(error)}"
    if isinstance(error, OSError):
        return error.strerror or _short(error)
    listed = isinstance(error, zipfile.BadZipFile | csv.Error | expat.ExpatError)
    return _short(error) if listed or _is_of_a_package(error) else None


def _is_of_a_package(error: Exception) -> bool:
    return any(kind.__module__.partition(".")[0] in _OF_PACKAGES for kind in type(error).__mro__)


def _short(error: Exception) -> str:
    """Keep the first line of a report, and those others that help."""
    first, *others = [line.strip() for line in str(error).strip().splitlines()] or [""]
    lines = [first, *(line for line in others if line.startswith(_USEFUL))]
    return "; ".join(line if len(line) <= 200 else f"{line[:200]}..." for line in lines if line)
