"""Sheets: the rows of a workbook, ``.xlsx`` or ``.ods``, read with the standard library alone.

A workbook is a ZIP file of XML. Cells are read as they are stored, one after another, so that
memory depends on the cells that exist, and not on the last cell that the file declares.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from voxpop.data.library_errors import naming
from voxpop.data.text_tables import MOST_COLUMNS, Rows, above_header, column_names, find_header
from voxpop.data.unpack import refuse_growth
from voxpop.data.xml import parse_xml
from voxpop.errors import DataError, shorten

ZIP, OLD = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
# The rows of a sheet by number, and their cells by column.
_Cells = dict[int, dict[int, str]]
_MOST_ROWS = 1 << 20
# Memory of a cell.
_CELL = 100
# Formats of numbers that are dates, and letters that make a format one.
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
_DATE_LETTERS = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.|([ymdhs])', re.IGNORECASE)


def is_workbook(beginning: bytes) -> bool:
    """Return whether a file is a workbook, even an old unreadable one, by its first bytes."""
    return beginning.startswith((ZIP, OLD))


def read_sheet(path: Path, asked: str | None) -> Rows:
    """Read one sheet: the one asked for, or the first that is not hidden."""
    with path.open("rb") as file:
        if file.read(4) == OLD:
            raise DataError(
                f"{path}: is an old or encrypted workbook; save it as .xlsx without a password"
            )
    with naming(path), zipfile.ZipFile(path) as archive:
        book: _Book = (
            _Ods(path, archive) if "content.xml" in archive.NameToInfo else _Xlsx(path, archive)
        )
        names = book.sheets()
        if not names:
            raise DataError(f"{path}: is a workbook without sheets")
        if asked is not None and asked not in names:
            raise DataError(f"{path}: has no sheet {asked!r}; it has {shorten(names, 8)}")
        name = names[0] if asked is None else asked
        cells = book.cells(name)
    rows = _table(cells, path, name)
    if asked is None and len(names) > 1:
        others = shorten(names[1:], 8)
        rows.notes.insert(0, f"read sheet {name!r}; choose another with --sheet: {others}")
    return rows


def _table(cells: _Cells, path: Path, name: str) -> Rows:
    filled = {number: row for number, row in sorted(cells.items()) if any(row.values())}
    if not filled:
        raise DataError(f"{path}: sheet {name!r} is empty")
    first = list(filled)[:20]
    columns = sorted({column for row in filled.values() for column, text in row.items() if text})
    head = find_header([[filled[n].get(c) for c in columns] for n in first])
    header, numbers = filled[first[head]], list(filled)[head + 1 :]
    kept = [row for number, row in filled.items() if number > first[head]]
    # A column with a title but nothing below it does not count.
    columns = [c for c in columns if header.get(c) or any(row.get(c) for row in kept)]
    names, notes = column_names([header.get(c) for c in columns])
    return Rows(
        names,
        len(kept),
        lambda: iter([[[row.get(c) or None for row in kept] for c in columns]]),
        numbers=numbers,
        notes=[*above_header(head), *notes],
    )


@dataclass
class _Book:
    """A workbook: the names of its sheets, and the cells of one."""

    path: Path
    archive: zipfile.ZipFile
    n_cells: int = 0

    def sheets(self) -> list[str]:
        raise NotImplementedError

    def cells(self, name: str) -> _Cells:
        raise NotImplementedError

    def parse(self, member: str, reader: _Reader) -> None:
        """Read one member of the archive, whose size is checked before."""
        info = self.archive.NameToInfo.get(member)
        if info is None:
            raise DataError(f"{self.path}: is not a workbook: it has no {member}")
        if info.flag_bits & 1:
            raise DataError(f"{self.path}: is encrypted; save it without a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{self.path}: is packed in a way that no spreadsheet uses")
        refuse_growth(self.path, self.path.stat().st_size, info.file_size)
        with self.archive.open(info) as file:
            where = f"{self.path}: {member}"
            for _ in parse_xml(file, where, reader.start, reader.end, reader.text):
                pass

    def count(self, n: int) -> None:
        """Count cells, and refuse more than the file can sensibly hold."""
        self.n_cells += n
        refuse_growth(self.path, self.path.stat().st_size, float(self.n_cells * _CELL), 1 << 30)


class _Reader:
    """The callbacks while XML is read."""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element."""

    def end(self, name: str) -> None:
        """End an element."""

    def text(self, text: str) -> None:
        """Receive text."""


class _Attributes(_Reader):
    """Collects the attributes of all elements, in order."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, str]]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.found.append((name, attributes))


class _Xlsx(_Book):
    """Excel's: names in one member, shared texts in another, cells in a third."""

    def sheets(self) -> list[str]:
        return list(self._targets())

    def _targets(self) -> dict[str, str]:
        """Find the member of every sheet that is not hidden, by its name."""
        book, related = _Attributes(), _Attributes()
        self.parse("xl/workbook.xml", book)
        self.parse("xl/_rels/workbook.xml.rels", related)
        targets = {a.get("Id"): a.get("Target", "") for name, a in related.found}
        listed = [a for name, a in book.found if name == "sheet"]
        shown = [a for a in listed if a.get("state", "visible") == "visible"] or listed
        self._base_year = (
            1904 if any(a.get("date1904") in ("1", "true") for _, a in book.found) else 1900
        )
        found = {}
        for sheet in shown:
            key = next((text for name, text in sheet.items() if name.endswith(":id")), None)
            target = targets.get(key, "")
            member = target[1:] if target.startswith("/") else posixpath.join("xl", target)
            found[sheet.get("name", "")] = posixpath.normpath(member)
        return found

    def cells(self, name: str) -> _Cells:
        members = self.archive.NameToInfo
        texts, styles = _Texts(), _Attributes()
        if "xl/sharedStrings.xml" in members:
            self.parse("xl/sharedStrings.xml", texts)
        if "xl/styles.xml" in members:
            self.parse("xl/styles.xml", styles)
        reader = _XlsxSheet(self, texts.found, _date_styles(styles.found), self._base_year)
        self.parse(self._targets()[name], reader)
        return reader.cells


class _Texts(_Reader):
    """Shared texts: all parts of each, without the phonetic ones."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._parts: list[str] = []
        self._inside = self._phonetic = False

    def start(self, name: str, attributes: dict[str, str]) -> None:  # noqa: ARG002
        if name == "si":
            self._parts = []
        self._phonetic = self._phonetic or name == "rPh"
        self._inside = name == "t" and not self._phonetic

    def end(self, name: str) -> None:
        self._inside = False
        if name == "rPh":
            self._phonetic = False
        if name == "si":
            self.found.append("".join(self._parts))

    def text(self, text: str) -> None:
        if self._inside:
            self._parts.append(text)


def _date_styles(found: list[tuple[str, dict[str, str]]]) -> set[str]:
    """Number the styles that show a number as a date."""
    dates = {str(code) for code in _DATES}
    for name, attributes in found:
        if name == "numFmt" and any(_DATE_LETTERS.findall(attributes.get("formatCode", ""))):
            dates.add(attributes.get("numFmtId", ""))
    inside, styles = False, []
    for name, attributes in found:
        if name in ("cellXfs", "cellStyles", "cellStyleXfs"):
            inside = name == "cellXfs"
        elif name == "xf" and inside:
            styles.append(attributes.get("numFmtId", "0"))
    return {str(k) for k, code in enumerate(styles) if code in dates}


@dataclass
class _XlsxSheet(_Reader):
    """The cells of one sheet."""

    book: _Book
    texts: list[str]
    dates: set[str]
    base_year: int
    cells: _Cells = field(default_factory=dict)
    _row: int = 0
    _column: int = -1
    _cell: dict[str, str] = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)
    _inside: bool = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "row":
            text = attributes.get("r", str(self._row + 1))
            row = _whole(text, 1, _MOST_ROWS)
            if row is None:
                raise DataError(f"{self.book.path}: has a row {text[:20]!r}")
            self._row, self._column = row, -1
        elif name == "c":
            letters = re.match(r"[A-Z]{1,3}(?=\d)", attributes.get("r", ""))
            self._column = self._column + 1 if letters is None else _column(letters[0])
            self._cell, self._parts = attributes, []
        self._inside = name in ("v", "t")

    def end(self, name: str) -> None:
        self._inside = False
        if name == "c" and self._parts:
            self.book.count(1)
            self.cells.setdefault(self._row, {})[self._column] = self._spell("".join(self._parts))

    def text(self, text: str) -> None:
        if self._inside:
            self._parts.append(text)

    def _spell(self, text: str) -> str:
        kind = self._cell.get("t", "n")
        if kind == "s":
            place = _whole(text, 0, len(self.texts) - 1)
            if place is None:
                raise DataError(f"{self.book.path}: row {self._row} names a text that is not there")
            return self.texts[place]
        if kind == "b":
            return "TRUE" if text == "1" else "FALSE"
        if kind != "n":
            return text
        number = spell_number(text)
        is_date = self._cell.get("s", "0") in self.dates
        return _date(number, self.base_year) if is_date else number


def _whole(text: str, least: int, most: int) -> int | None:
    """Read a whole number within limits; None for anything else."""
    fits = text.isascii() and text.isdigit() and least <= int(text[:9]) <= most
    return int(text) if fits else None


def _column(letters: str) -> int:
    found = 0
    for letter in letters:
        found = 26 * found + ord(letter) - ord("A") + 1
    return found - 1


def spell_number(text: str) -> str:
    """Spell a stored number as people would: a whole one without a point, any other in short."""
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def _date(number: str, base_year: int) -> str:
    """Spell a day that is stored as a count of days."""
    base = datetime(1904, 1, 1) if base_year == 1904 else datetime(1899, 12, 30)
    try:
        moment = base + timedelta(days=float(number))
    except (ValueError, OverflowError):
        return number
    seconds = moment.replace(microsecond=0)
    return seconds.date().isoformat() if float(number).is_integer() else seconds.isoformat(" ")


class _Ods(_Book):
    """OpenDocument's: all sheets in one member, with repeated cells written once."""

    def sheets(self) -> list[str]:
        found = _Attributes()
        self.parse("content.xml", found)
        return [_of(a, "name") for name, a in found.found if name == "table"]

    def cells(self, name: str) -> _Cells:
        reader = _OdsSheet(self, name)
        self.parse("content.xml", reader)
        return reader.cells


def _of(attributes: dict[str, str], name: str, absent: str = "") -> str:
    """Return an attribute, whatever the prefix of its namespace."""
    return next((t for key, t in attributes.items() if key.rpartition(":")[2] == name), absent)


@dataclass
class _OdsSheet(_Reader):
    """The cells of one sheet."""

    book: _Book
    name: str
    cells: _Cells = field(default_factory=dict)
    _here: bool = False
    _row: int = 1
    _column: int = 0
    _times: tuple[int, int] = (1, 1)
    _cell: dict[str, str] = field(default_factory=dict)
    _current: dict[int, str] = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)
    _above: list[str] = field(default_factory=list)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._above.append(name)
        if name == "table":
            self._here = _of(attributes, "name") == self.name
        elif name == "table-row":
            self._column, self._current = 0, {}
            self._times = self._repeated(attributes, "number-rows-repeated"), 1
        elif name in ("table-cell", "covered-table-cell"):
            self._times = self._times[0], self._repeated(attributes, "number-columns-repeated")
            self._cell, self._parts = attributes, []
        elif name == "p" and self._parts:
            self._parts.append("\n")
        elif name == "s":
            self._parts.append(" ")

    def _repeated(self, attributes: dict[str, str], name: str) -> int:
        text = _of(attributes, name, "1")
        times = _whole(text, 1, _MOST_ROWS)
        if times is None:
            raise DataError(f"{self.book.path}: repeats a row or a cell {text[:20]!r} times")
        return times

    def end(self, name: str) -> None:
        self._above.pop()
        if name in ("table-cell", "covered-table-cell"):
            self._take()
        elif name == "table-row":
            rows, _ = self._times
            if self._here and self._current:
                self.book.count(rows * len(self._current))
                self.cells |= {self._row + k: self._current for k in range(rows)}
            self._row += rows
        elif name == "table":
            self._row, self._here = 1, False

    def _take(self) -> None:
        text, (_, times) = self._text(), self._times
        if text and self._here:
            if self._column + times > MOST_COLUMNS:
                raise DataError(f"{self.book.path}: row {self._row} has too many columns")
            self.book.count(times)
            self._current |= {self._column + k: text for k in range(times)}
        self._column += times

    def _text(self) -> str:
        kind = _of(self._cell, "value-type")
        if kind in ("float", "percentage", "currency"):
            return spell_number(_of(self._cell, "value"))
        if kind == "date":
            return _of(self._cell, "date-value").replace("T", " ").removesuffix(" 00:00:00")
        if kind == "boolean":
            return _of(self._cell, "boolean-value").upper()
        return "".join(self._parts)

    def text(self, text: str) -> None:
        if "p" in self._above and "annotation" not in self._above:
            self._parts.append(text)
