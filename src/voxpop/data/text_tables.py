"""Text tables: the rows of a CSV and of JSON lines, exactly as Python's own readers see them."""

from __future__ import annotations

import csv
import io
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from voxpop.data.library_errors import naming
from voxpop.data.unpack import refuse_sparse, refuse_swelling
from voxpop.errors import DataError, shorten

Row = Sequence[str | None]
# Columns of some rows that follow each other.
Batch = Sequence[Sequence[str | None]]
# How far into a file its header may stand below titles and notes.
_TITLES = 20
_LARGEST_CELL = 2**31 - 1
_BATCH = 100_000
MOST_COLUMNS = 1 << 14


@dataclass
class Rows:
    """The rows of a table, checked and counted.

    Attributes
    ----------
    n
        How many rows there are below the header.
    batches
        Gives the cells, column by column, some rows at a time.
    numbers
        The number of every row as a spreadsheet or an editor counts them; empty if they follow
        ``first`` without a gap.
    is_plain
        Whether nothing stands above the header, and no row is empty.
    is_text
        Columns of JSON that hold text: their ids are text even where they look like numbers.
    """

    names: list[str]
    n: int
    batches: Callable[[], Iterator[Batch]]
    first: int = 1
    numbers: Sequence[int] | NDArray[np.int64] = ()
    is_plain: bool = False
    is_text: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)


def column_names(header: Row) -> tuple[list[str], list[str]]:
    """Give every column a name of its own, and note which had to be renamed."""
    names: dict[str, None] = {}
    others: dict[str, list[str]] = {}
    for place, text in enumerate(header, start=1):
        name = plain = (text or "").strip() or f"column_{place}"
        count = len(others.get(plain, ()))
        while name in names:
            count += 1
            name = f"{plain}_{count}"
        if name != plain:
            others.setdefault(plain, []).append(name)
        names[name] = None
    notes = [
        f"several columns are called {shorten([plain])}; "
        f"{'another is' if len(more) == 1 else 'others are'} {shorten(more)} here"
        for plain, more in others.items()
    ]
    return list(names), notes


def refuse_columns(n: int, where: object) -> None:
    """Refuse a header that no table of answers has, and that no database takes in good time."""
    if n > MOST_COLUMNS:
        raise DataError(
            f"{where}: has {n:,} columns; expected at most {MOST_COLUMNS:,}, as spreadsheets have; "
            "write one answer per row, with columns task, worker and value"
        )


def find_header(beginning: Sequence[Row]) -> int:
    """Find the header below titles and notes: its position among the first rows."""
    filled = [place for place, row in enumerate(beginning) if any(row)]
    for place in filled:
        widest = max(
            (beginning[later] for later in filled if later > place), key=_n_filled, default=()
        )
        if not _is_title(beginning[place], widest):
            return place
    return 0


def _n_filled(row: Row) -> int:
    return sum(map(bool, row))


def _is_title(row: Row, widest: Row) -> bool:
    """Return whether a row is a title, alone in its first cell, or a note beginning with ``#``."""
    if _n_filled(row) == 1:
        return bool(row[0]) and _n_filled(widest) > 1
    return (row[0] or "").startswith("#") and len(row) != len(widest) > 1


def above_header(n: int) -> list[str]:
    """Note how many rows above the header were skipped."""
    return [f"skipped {n} row{'s' * (n > 1)} above the header"] if n else []


@contextmanager
def _any_cell() -> Iterator[None]:
    """Let Python's reader read cells of any size."""
    usual = csv.field_size_limit(_LARGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(usual)


@contextmanager
def _csv_rows(path: Path, delimiter: str) -> Iterator[Iterator[list[str]]]:
    """Read as Python does, but refuse what it would repair: a quote that does not end."""
    with _any_cell(), path.open(encoding="utf-8-sig", newline="") as file:
        yield csv.reader(file, delimiter=delimiter, strict=True)


def find_delimiter(beginning: str) -> str:
    """Find the separator of a CSV in its header, where names hardly ever contain one.

    Titles have none, and notes, which begin with ``#``, come last.
    """
    lines = [line for line in beginning.splitlines()[:_TITLES] if line.strip()]
    for line in sorted(lines, key=lambda line: line.startswith("#")):
        counts = {mark: line.count(mark) for mark in ",\t;|"}
        if any(counts.values()):
            return max(counts, key=lambda mark: counts[mark])
    return ","


def read_csv(path: Path, shown: object, delimiter: str) -> Rows:
    """Compare every row of a CSV in UTF-8 with its header, and count the rows."""
    names: list[str] = []
    blank = array("q")
    number = 0
    with naming(shown), _csv_rows(path, delimiter) as rows:
        try:
            head = find_header(list(islice(rows, _TITLES)))
        except csv.Error as error:
            raise DataError(f"{shown}: one of the first rows cannot be read: {error}") from None
    with naming(shown), _csv_rows(path, delimiter) as rows:
        try:
            for number, row in enumerate(rows, start=1):
                if number <= head + 1:
                    names = row
                    refuse_columns(len(names), shown)
                elif not any(row):
                    blank.append(number)
                elif len(row) != len(names):
                    raise DataError(f"{shown}: row {number} {_ragged(row, names)}")
        except csv.Error as error:
            raise DataError(f"{shown}: row {number + 1} cannot be read: {error}") from None
    unique, notes = column_names(names)
    first, n = head + 2, max(number - head - 1, 0)
    numbers = np.delete(np.arange(first, first + n), np.array(blank) - first)
    return Rows(
        unique,
        n - len(blank),
        lambda: _csv_batches(path, delimiter, head + 1),
        first,
        numbers if len(blank) else (),
        is_plain=not head and not blank,
        notes=[*above_header(head), *notes],
    )


def count_rows(file: IO[bytes], delimiter: str) -> int:
    """Count the rows of a CSV below its header, or of JSON lines, which have no delimiter."""
    n = -1 if delimiter else 0
    while lines := file.readlines(1 << 20):
        block = b"".join(lines)
        if delimiter and (b'"' in block or block.count(b"\r") != block.count(b"\r\n")):
            # A row may have several lines, or a line several rows.
            with _any_cell():
                rows = csv.reader(_text_lines(chain(lines, file)), delimiter=delimiter, strict=True)
                n += sum(map(bool, rows))
        elif delimiter:
            n += len(lines) - lines.count(b"\n") - lines.count(b"\r\n")
        else:
            n += sum(map(bool, map(bytes.strip, lines)))
    return max(n, 0)


def _text_lines(lines: Iterable[bytes]) -> Iterator[str]:
    for line in lines:
        yield from io.StringIO(line.decode().replace("\r\n", "\n").replace("\r", "\n"), "\n")


def _ragged(row: Row, names: Row) -> str:
    pairs = pairwise(row)
    split = any(a and b and a.lstrip("-").isdigit() and b.isdigit() for a, b in pairs)
    hint = "; quote numbers with a decimal comma" if split and len(row) > len(names) else ""
    return (
        f"has {len(row)} cells, the header has {len(names)}; expected as many cells in every row "
        f"as in the header{hint}"
    )


def _csv_batches(path: Path, delimiter: str, header: int) -> Iterator[Batch]:
    with _csv_rows(path, delimiter) as rows:
        filled = (row for row in islice(rows, header, None) if any(row))
        while some := list(islice(filled, _BATCH)):
            yield [[cell or None for cell in column] for column in zip(*some, strict=True)]


class _Number(str):
    """A number as it is spelled, so that a long one keeps its digits."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str, where: object, decoder: json.JSONDecoder | None = None) -> Any:
    """Parse JSON; refuse nesting deeper than any tool's, and half characters, like any mistake."""
    try:
        document = json.loads(text) if decoder is None else decoder.decode(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except RecursionError:
        raise DataError(f"{where}: is nested too deeply to be an export") from None
    except UnicodeEncodeError:
        raise DataError(f"{where}: is not JSON: a text holds half a character (\\ud800)") from None
    except ValueError as error:
        raise DataError(f"{where}: is not JSON: {error}") from None
    return document


def read_json(path: Path, source: Path, lines: bool) -> Rows:
    """Read JSON lines, or one list of objects; ``path`` is the plain text of the ``source``."""
    columns: dict[str, list[str | None]] = {}
    numbers: list[int] = []
    is_text: set[str] = set()
    known: dict[str, str] = {}  # equal texts are stored once
    with naming(source):
        for number, item in _json_lines(path, source) if lines else _json_items(path, source):
            if not isinstance(item, dict):
                raise DataError(f"{source}: row {number}: expected an object with named cells")
            for name, cell in item.items():
                column = columns.setdefault(name, [])
                if not column:
                    refuse_columns(len(columns), source)
                    refuse_sparse(source, len(numbers), len(columns))
                column.extend([None] * (len(numbers) - len(column)))
                text = _spell(cell)
                column.append(None if text is None else known.setdefault(text, text))
                if type(cell) is str:
                    is_text.add(name)
            numbers.append(number)
    n = len(numbers)
    refuse_sparse(source, n, len(columns))
    for column in columns.values():
        column.extend([None] * (n - len(column)))
    first = numbers[0] if numbers else 1
    gapless = numbers == list(range(first, first + n))
    return Rows(
        list(columns),
        n,
        lambda: iter([list(columns.values())]),
        first,
        () if gapless else numbers,
        is_text=frozenset(is_text),
    )


def _json_lines(path: Path, source: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                refuse_swelling(source, line)
                yield number, parse_json(line.strip(), f"{source}: line {number}", _DECODER)


def _json_items(path: Path, source: Path) -> Iterator[tuple[int, Any]]:
    """Yield the objects of a list; without a list, those of the lines."""
    text = path.read_text(encoding="utf-8-sig")
    if not text.lstrip().startswith("["):
        yield from _json_lines(path, source)
        return
    refuse_swelling(source, text)
    yield from enumerate(parse_json(text, source, _DECODER), start=1)


def _spell(cell: Any) -> str | None:
    """Spell a cell as JSON does, and text as it is; nothing for null and an empty text."""
    if cell is None or isinstance(cell, str):
        return cell or None
    return json.dumps(cell)
