"""Numerals: numbers as people write them, with decimal commas, thousands, units and gaps.

All cells together decide how a column is read, and a note says how. What could be read in two ways
is not read: the user says which.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.errors import DataError, require, shorten

Decimal = Literal[".", ","]
Thousands = Literal[",", ".", " ", "'"]

# Words for no answer, in upper or lower case and with any apostrophe.
MISSING = frozenset(
    {
        *("", "-", "--", "?", "n/a", "na", "#n/a", "n.a.", "nan", "null", "none", "nil", "missing"),
        *("unknown", "no answer", "not applicable", "not available", "don't know", "dont know"),
        *("do not know", "skip", "skipped", "refused", "prefer not to say"),
    }
)
# All spaces that separate groups of three digits.
_SPACES = " \u00a0\u2007\u2009\u202f"
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# A number with any marks, between possible units.
_AROUND = re.compile(
    rf"(?P<sign>[+\-\u2212]?)(?P<before>[^\d.,+\-\u2212]*)"
    rf"(?P<number>[+\-\u2212]?[\d.,'\u2019{_SPACES}]*\d[.,]?(?:[eE][+-]?\d+)?)(?P<after>[^\d]*)",
    re.ASCII,
)
_CONVENTIONS: tuple[tuple[Decimal, Thousands | None], ...] = (
    (".", None),
    (",", None),
    (".", ","),
    (",", "."),
    (".", " "),
    (",", " "),
    (".", "'"),
)
_NAMES = {",": "comma", ".": "point", " ": "space", "'": "apostrophe"}
# Possible separators of thousands, by the mark that represents them.
_MARKS = {",": ",", ".": ".", " ": _SPACES, "'": "'\u2019"}
# Characters of units beside letters and signs of currencies.
_UNITS = "%\u2030\u00b0\u2032\u2033/.\u00b2\u00b3\u00b7" + _SPACES
# No number is as long as this.
_LONGEST = 100


@dataclass(frozen=True)
class Numbers:
    """The content of a column: numbers, NaN where there is none; and how they were read.

    ``word`` is one of the words that stand for no answer.
    """

    value: Floats
    absent: NDArray[np.bool_]
    note: str = ""
    word: str = ""


@dataclass(frozen=True)
class Spelling:
    """How a table writes its numbers; None is for what the cells show.

    Attributes
    ----------
    missing
        Numbers and words that stand for no answer beside empty cells and the usual words. With any
        entry, rows without an answer are left out; ``"drop"`` has no other effect.
    sheet
        Name of the sheet of a workbook.
    """

    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[float | str, ...] = ()
    sheet: str | None = None

    def __post_init__(self) -> None:
        decimal, thousands = self.decimal, self.thousands
        require(decimal in (None, ".", ","), f"decimal must be '.' or ',', got {decimal!r}")
        require(
            thousands in (None, ",", ".", " ", "'"),
            f"thousands must be ',', '.', ' ' or \"'\", got {thousands!r}",
        )
        require(
            thousands is None or thousands != decimal,
            f"decimal and thousands cannot both be {decimal!r}",
        )

    @property
    def drops(self) -> bool:
        """Whether rows without an answer are left out."""
        return bool(self.missing)

    @property
    def is_stated(self) -> bool:
        """Whether the user says how numbers are written."""
        return self.decimal is not None or self.thousands is not None

    def is_missing(self, text: str | None) -> bool:
        """Return whether a cell holds no answer."""
        if text is None:
            return True
        plain = " ".join(text.replace("\u2019", "'").lower().split())
        return plain in MISSING or plain in self._words

    @property
    def _words(self) -> set[str]:
        return {" ".join(word.lower().split()) for word in self.missing if isinstance(word, str)}

    def is_number(self, text: str | None) -> bool:
        """Return whether a cell looks like a number, in whatever spelling, or holds no answer."""
        return text is None or self.is_missing(text) or _parts(text) is not None

    def without_codes(self, found: Numbers) -> Numbers:
        """Mark the numbers that stand for no answer as absent."""
        codes = [code for code in self.missing if not isinstance(code, str)]
        if not codes:
            return found
        gone = np.isin(found.value, codes)
        return replace(found, value=np.where(gone, np.nan, found.value), absent=found.absent | gone)

    def read(self, texts: Sequence[str | None], column: str, row: Callable[[int], str]) -> Numbers:
        """Read the cells of a column; ``row`` names one in an error."""
        cells = _Cells(texts, column, row)
        written = [text for text in dict.fromkeys(texts) if not self.is_missing(text)]
        kept = [text for text in written if text is not None]
        if not self.is_stated and all(_PLAIN.fullmatch(text.strip()) for text in kept):
            # `strip` takes off separators (U+001C to U+001F) that `float` does not.
            known, note = {text: float(text.strip()) for text in kept}, ""
        else:
            known, note = self._decide(kept, cells)
        value = np.array([known.get(text or "", np.nan) for text in texts], dtype=np.float64)
        absent = np.array([(text or "") not in known for text in texts], dtype=bool)
        word = next((text for text in dict.fromkeys(texts) if text and text not in known), "")
        return Numbers(value, absent, note, word.strip())

    def _decide(self, texts: list[str], cells: _Cells) -> tuple[dict[str, float], str]:
        """Find the only way to read all cells, or name the cell that prevents it."""
        parts = {text: part for text in texts if (part := _parts(text)) is not None}
        if others := [text for text in texts if text not in parts]:
            cells.refuse_text(others)
        by_unit: dict[tuple[str, str], str] = {}
        for text, part in parts.items():
            by_unit.setdefault((part["before"].strip(), part["after"].strip()), text)
        if len(by_unit) > 1:
            cells.refuse_units(by_unit)
        bare = {text: part["sign"] + part["number"].strip() for text, part in parts.items()}
        ways = [
            way
            for way in _CONVENTIONS
            if self.decimal in (None, way[0]) and self.thousands in (None, way[1])
        ]
        readings: dict[tuple[float, ...], tuple[str, str | None]] = {}
        for way in ways:
            if all(_grammar(*way).fullmatch(number) for number in bare.values()):
                found = tuple(_convert(number, *way) for number in bare.values())
                readings.setdefault(found, way)
        if not readings:
            fits = [{t for t in texts if _grammar(*way).fullmatch(bare[t])} for way in ways]
            most = max(fits, key=len)
            cells.refuse_text([t for t in texts if t not in most], " written as in the other rows")
        if len(readings) > 1:
            cells.refuse_both(texts, *list(readings)[:2])
        ((values, chosen),) = readings.items()
        read = dict(zip(bare, values, strict=True))
        return read, _told(cells.column, read, chosen, next(iter(by_unit)))


@dataclass(frozen=True)
class _Cells:
    """The cells of a column, to be named in errors."""

    texts: Sequence[str | None]
    column: str
    row: Callable[[int], str]

    def _at(self, text: str) -> str:
        where = self.row(list(self.texts).index(text))
        return f"{where}: {shorten([text])} in column {self.column!r}"

    def refuse_text(self, texts: list[str], how: str = "") -> NoReturn:
        """Refuse cells that are not numbers."""
        of = {*texts}
        n = sum(text in of for text in self.texts)
        more = f" (and {n - 1} more rows)" if n > 1 else ""
        raise DataError(
            f"{self._at(texts[0])} is not a number{how}{more}; if it means no answer, say so with "
            "missing= (command line: --missing)"
        )

    def refuse_units(self, by_unit: dict[tuple[str, str], str]) -> NoReturn:
        """Refuse a column in which not all numbers have the same unit."""
        usual = by_unit.get(("", ""), next(iter(by_unit.values())))
        odd = next(text for text in by_unit.values() if text != usual)
        raise DataError(
            f"{self._at(odd)} is not a number like {shorten([usual])} in other rows; a unit is "
            "left out only if all rows have the same"
        )

    def refuse_both(
        self, texts: list[str], one: tuple[float, ...], two: tuple[float, ...]
    ) -> NoReturn:
        """Refuse cells that could be either of two numbers."""
        place = next(k for k in range(len(texts)) if one[k] != two[k])
        raise DataError(
            f"{self._at(texts[place])} may be {one[place]:.12g} or {two[place]:.12g}; say which "
            "with decimal=',' or thousands=',' (command line: --decimal , or --thousands ,)"
        )


def _parts(text: str) -> re.Match[str] | None:
    """Split a number from its unit; None if the text is something else."""
    found = _AROUND.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    units = "" if found is None else found["before"] + found["after"]
    return found if all(_is_of_unit(mark) for mark in units) else None


def _is_of_unit(mark: str) -> bool:
    return mark.isalpha() or mark in _UNITS or unicodedata.category(mark) == "Sc"


@cache
def _grammar(decimal: str, thousands: str | None) -> re.Pattern[str]:
    point = re.escape(decimal)
    whole = r"\d+"
    if thousands is not None:
        whole = rf"(?:\d{{1,3}}(?:[{_MARKS[thousands]}]\d{{3}})+|\d+)"
    number = rf"(?:{whole}(?:{point}\d*)?|{point}\d+)"
    return re.compile(rf"[+\-\u2212]?{number}(?:[eE][+-]?\d+)?", re.ASCII)


def _convert(number: str, decimal: str, thousands: str | None) -> float:
    plain = number.replace("\u2212", "-")
    for mark in _MARKS[thousands] if thousands else "":
        plain = plain.replace(mark, "")
    return float(plain.replace(decimal, "."))


def _told(
    column: str, read: dict[str, float], way: tuple[str, str | None], unit: tuple[str, str]
) -> str:
    """Return an example of a cell as it was read, and the decisions."""
    decimal, thousands = way
    grouped = [text for text in read if thousands and any(m in text for m in _MARKS[thousands])]
    pointed = [text for text in read if decimal == "," and "," in text]
    reasons = ["decimal comma"] if pointed else []
    if thousands and grouped:
        reasons.append(f"{_NAMES[thousands]} between thousands")
    if any(unit):
        reasons.append(f"unit {' … '.join(part for part in unit if part)!r} left out")
    if not reasons:
        return ""
    example = next(iter(grouped or pointed or read))
    return f"column {column!r}: read {example.strip()} as {read[example]!r}: {', '.join(reasons)}"
