"""Unpack: the bytes of a file, unpacked and checked, and its text in whatever encoding it has.

A packed file may grow a thousandfold. It is read as far as a limit that the user can raise, and to
its end, where its checksum stands.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from voxpop.data.library_errors import naming
from voxpop.errors import ConfigError, DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP = b"\x1f\x8b"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
LIMIT = "VOXPOP_UNPACK_LIMIT"
"""Environment variable: how many times its own size a packed file may grow."""

_USUAL_LIMIT = 100.0
# Up to this size a file is unpacked without a check: it can do no harm.
_ALWAYS, _ALWAYS_MEMORY = 16 << 20, 1 << 30
_SAVE = "save it as CSV in UTF-8, as Parquet or as a workbook"
_BEGINNING, _CHUNK = 1 << 16, 1 << 20
# Memory of an empty cell of a table.
_CELL = 40


def growth_limit() -> float:
    """Return by what factor a packed file may grow."""
    text = os.environ.get(LIMIT, str(_USUAL_LIMIT))
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise ConfigError(f"{LIMIT} must be a positive number like 100, got {text!r}")
    return limit


def refuse_growth(
    path: object,
    packed: int,
    unpacked: float,
    least: int = _ALWAYS,
    instead: str = "unpack it first",
) -> None:
    """Refuse a packed file that grows beyond the limit; ``instead`` is what else can be done."""
    limit = growth_limit()
    if unpacked > max(least * max(limit / _USUAL_LIMIT, 1.0), limit * packed):
        raise DataError(
            f"{path}: grows from {packed:,} bytes to more than {int(unpacked):,}, which is more "
            f"than {limit:g} times and looks like a decompression bomb; if you trust it, raise the "
            f"limit: {LIMIT}={max(1000, int(10 * limit))}, or {instead}"
        )


def refuse_sparse(path: Path, n_rows: int, n_columns: int) -> None:
    """Refuse rows whose keys differ so much that most of their table would be empty."""
    if path.is_file():
        cells = float(_CELL * n_rows * n_columns)
        same = "give all rows the same keys"
        refuse_growth(path, path.stat().st_size, cells, _ALWAYS_MEMORY, same)


def refuse_swelling(path: Path, text: str) -> None:
    """Refuse packed JSON that would take far more memory than the file is large."""
    if is_packed(path):
        parts = sum(text.count(mark) for mark in "{[,")
        refuse_growth(path, path.stat().st_size, 80.0 * parts, _ALWAYS_MEMORY)


class _Unpacked(io.RawIOBase):
    """Bytes of a gzip file, as many as the limit allows."""

    def __init__(self, path: Path) -> None:
        self._path, self._packed, self._n = path, path.stat().st_size, 0
        self._file = gzip.open(path)  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        # Some at a time, however much was asked for: the limit holds before memory is taken.
        block = self._file.read(min(len(view), _CHUNK))
        view[: len(block)] = block
        self._n += len(block)
        refuse_growth(self._path, self._packed, self._n)
        return len(block)

    def close(self) -> None:
        self._file.close()
        super().close()


def is_packed(path: Path) -> bool:
    """Return whether a file is gzipped, by its first bytes; a pipe is not looked into."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(2) == GZIP


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, unpacked where it is gzipped."""
    if is_packed(path):
        return cast("IO[bytes]", io.BufferedReader(_Unpacked(path), _CHUNK))
    if path.suffix.lower() == ".gz" and path.is_file() and path.stat().st_size:
        raise gzip.BadGzipFile("its name says gzip, but it is not")
    return path.open("rb")


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file like :func:`open_bytes`; report any error in one line."""
    if not path.exists():
        raise DataError(f"{path}: no such file")
    with naming(path), open_bytes(path) as file:
        yield file


def peek(path: Path) -> bytes:
    """Read the first 64 KB of a file, enough to know its kind, encoding and separator.

    Empty for a pipe, which can be read only once, and for a file that cannot be read: reading all
    of it raises the error.
    """
    if not path.is_file():
        return b""
    try:
        with reading(path) as file:
            return file.read(_BEGINNING)
    except DataError:
        return b""


# The first bytes of files that are not text, where they stand, and what to do with such files.
_NO_TEXT = (
    (0, b"SQLite format 3\0", "an SQLite database; name it as sqlite:///FILE, with a query"),
    (8, b"DUCK", "a DuckDB database; name it as duckdb:///FILE, with a query"),
    *(
        (0, mark, "packed in a way that is not read; unpack it, or pack it with gzip")
        for mark in (b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf")
    ),
)


def refuse_no_text(path: Path, beginning: bytes) -> None:
    """Refuse a database, a file packed by another program, and one in which zero bytes abound.

    ``beginning`` is what :func:`peek` read of it.
    """
    for at, mark, what in _NO_TEXT:
        if beginning[at:].startswith(mark):
            raise DataError(f"{path}: is {what}")
    if beginning[:2] not in UTF16 and beginning.count(b"\0") > len(beginning) / 8:
        raise DataError(f"{path}: is not text in UTF-8; {_SAVE}")


def decode(content: bytes, final: bool = False) -> str:
    """Decode the beginning of a text, or all of it; a wrong character is not an error."""
    return codecs.getincrementaldecoder(_codec(content))("replace").decode(content, final)


def _codec(content: bytes | bytearray) -> str:
    return "utf-16" if content[:2] in UTF16 else "utf-8-sig"


def read_text(path: Path, largest: int = 2**31) -> str:
    """Read a whole text file, UTF-8 or UTF-16, plain or gzipped, of at most ``largest`` bytes."""
    content = bytearray()
    with reading(path) as file:
        # Block by block, because memory for all that is allowed would be taken at once. A little
        # more than allowed is enough to know: a small gzip can hold a huge text.
        while len(content) <= largest and (block := file.read(_CHUNK)):
            content += block
    if len(content) > largest:
        raise DataError(f"{path}: is larger than {largest >> 20} MB, the limit")
    try:
        return content.decode(_codec(content))
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected UTF-8 text; byte {error.start} is not") from None


@contextmanager
def plain_text(path: Path) -> Iterator[tuple[Path, str]]:
    """Give a file in plain UTF-8, the file itself or a copy, and its original encoding.

    A file that is not UTF-8 throughout is read as Windows-1252, which spreadsheets still write,
    unless it began as UTF-8: then a byte of it is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="voxpop-") as folder:
        readable, copy = path, Path(folder) / "unpacked"
        with reading(path) as file:
            # A pipe can be read only once.
            if not path.is_file() or is_packed(path):
                readable = copy
                with copy.open("wb") as out:
                    shutil.copyfileobj(file, out, _CHUNK)
        with naming(path):
            encoding = _encoding(readable, path)
            try:
                if encoding != "UTF-8":
                    readable = _in_utf8(readable, Path(folder) / "utf8", encoding)
            except UnicodeDecodeError:
                if encoding == "UTF-16":
                    raise
                raise DataError(f"{path}: is not text in UTF-8 or Windows-1252; {_SAVE}") from None
        yield readable, encoding


def _encoding(plain: Path, path: Path) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    n, first_beyond_ascii = 0, None
    with plain.open("rb") as file:
        if file.read(2) in UTF16:
            return "UTF-16"
        file.seek(0)
        while block := file.read(_CHUNK):
            try:
                decoder.decode(block, final=len(block) < _CHUNK)
            except UnicodeDecodeError as error:
                # The decoder may have kept some bytes of the block before.
                at = n + len(block) - len(error.object) + error.start
                before = error.object[: error.start]
                if first_beyond_ascii is not None or not before.isascii():
                    raise DataError(
                        f"{path}: is UTF-8 text, but byte {at + 1:,} of it is damaged; "
                        "write or download it again"
                    ) from None
                return "Windows-1252"
            if first_beyond_ascii is None and not block.isascii():
                first_beyond_ascii = n
            n += len(block)
    return "UTF-8"


def _in_utf8(plain: Path, copy: Path, encoding: str) -> Path:
    with (
        plain.open(encoding=encoding, newline="") as text,
        copy.open("w", encoding="utf-8", newline="") as out,
    ):
        shutil.copyfileobj(text, out)
    return copy
