"""What the readers of all formats share: reading options, answers by question, careful parsing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers, Duplicates
from voxpop.data.files import read_text
from voxpop.data.objects import SHAPE_NAMES, Matching, Objects, Place, match_objects, several_in_one
from voxpop.data.tables import Table
from voxpop.errors import DataError, shorten

Kind = Literal["number", "box", "point"]
_T = TypeVar("_T")


class ReadingOptions(TypedDict, total=False):
    """How to read answers: the arguments of :func:`voxpop.read_answers`, which explains them.

    Callers of :func:`voxpop.aggregate` give some; :func:`voxpop.read_answers` fills in the rest.
    """

    task: str | None
    worker: str | None
    values: str | Sequence[str] | None
    gold: object
    duplicates: Duplicates | None
    format: str | None
    question: str | None
    missing: Sequence[float]
    objects: Matching | None
    looked: object
    query: str | None


class Mark(NamedTuple):
    """One answer to one question: a number, a box or a point."""

    task: Any
    worker: Any
    value: tuple[float, ...] = ()
    label: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Export:
    """The answers to one question, as a tool exported them.

    Attributes
    ----------
    kind
        ``number``, ``box`` (xmin, ymin, xmax, ymax in pixels) or ``point`` (x, y).
    looked
        Pairs of task and worker who saw it, whether they marked something or not.
    gold
        Known truths; several of one task and label are several objects.
    repeats
        What to do with repeated answers unless the user says otherwise.
    notes
        What was left out or decided, for the user.
    fields
        Which field of the tool was taken for the task and the worker.
    """

    format: str
    question: str
    kind: Kind
    marks: Sequence[Mark]
    looked: frozenset[tuple[Any, Any]] = frozenset()
    gold: Sequence[tuple[Any, str, tuple[float, ...]]] = ()
    repeats: Duplicates = "error"
    notes: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Names of the coordinates: of the shape, or the question itself for numbers."""
        return (self.question,) if self.kind == "number" else SHAPE_NAMES[self.kind]

    @property
    def value(self) -> Floats:
        """All values, shape (n_marks, dimension)."""
        rows = [mark.value for mark in self.marks]
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(self.value_names))

    def answers(
        self, matching: Matching | None, duplicates: Duplicates | None
    ) -> tuple[Answers, Objects | None]:
        """Build answers: numbers as they are, shapes by object.

        Shapes are matched on request, or when somebody drew two with one label in one image.
        Otherwise every label of an image is one object.
        """
        fields = {**self.fields, "value": self.question}
        notes = (f"read as {self.format}", *self.notes)
        task, worker, _, label = zip(*self.marks, strict=True)
        if self.kind == "number":
            truth = self._gold_by_task()
        else:
            several = several_in_one(task, worker, label)
            if matching is not None or (several and duplicates is None):
                objects = match_objects(
                    *(task, worker, self.value, self.kind, matching or Matching()),
                    label=label,
                    looked=self.looked,
                    gold=self.gold,
                )
                notes = (*notes, objects.summary())
                return replace(objects.answers(), notes=notes, columns=fields), objects
            if not several:
                notes = (*notes, "nobody marked two of one label in one image: each is one object")
            task = tuple(Place(str(mark.task), mark.label, 1).task_id for mark in self.marks)
            truth = {Place(str(t), name, 1).task_id: value for t, name, value in self.gold}
        unknown = (math.nan,) * len(self.value_names)
        answers = Answers.from_arrays(
            task,
            worker,
            self.value,
            value_names=self.value_names,
            gold=[truth.get(i, unknown) for i in dict.fromkeys(task)] if truth else None,
            duplicates=duplicates or self.repeats,
        )
        return replace(answers, notes=notes, columns=fields), None

    def _gold_by_task(self) -> dict[Any, tuple[float, ...]]:
        truth: dict[Any, tuple[float, ...]] = {}
        for task, _, value in self.gold:
            if truth.setdefault(task, value) != value:
                raise DataError(
                    f"task {task!r} has two known truths, {truth[task][0]:g} and {value[0]:g}"
                )
        return truth


@dataclass(kw_only=True)
class Collector:
    """Gathers answers by question while an export is read; :meth:`export` then picks one."""

    format: str
    path: object
    kinds: dict[str, Kind] = field(default_factory=dict)
    marks: dict[str, list[Mark]] = field(default_factory=dict)
    gold: dict[str, list[tuple[Any, str, tuple[float, ...]]]] = field(default_factory=dict)
    looked: set[tuple[Any, Any]] = field(default_factory=set)
    skipped: dict[tuple[str | None, str], int] = field(default_factory=dict)
    repeats: Duplicates = "error"
    fields: dict[str, str] = field(default_factory=dict)

    def add(self, question: str, kind: Kind, mark: Mark, *, gold: bool = False) -> None:
        """Add one answer, or one known truth."""
        if self.kinds.setdefault(question, kind) != kind:
            question = f"{question} ({kind})"
            self.kinds[question] = kind
        self.marks.setdefault(question, [])
        if gold:
            self.gold.setdefault(question, []).append((mark.task, mark.label, mark.value))
        else:
            self.marks[question].append(mark)

    def add_number(self, question: str, item: object, mark: Mark, *, gold: bool = False) -> None:
        """Add an answer if it is a number; count it as left out if it is text."""
        try:
            value = number(item, question)
        except DataError:
            self.skip(f"answers to {question!r} that are no number", question=question)
        else:
            self.add(question, "number", mark._replace(value=(value,)), gold=gold)

    def skip(self, what: str, n: int = 1, question: str | None = None) -> None:
        """Count something that is left out: of one question, or of the whole export."""
        self.skipped[question, what] = self.skipped.get((question, what), 0) + n

    def export(self, asked: str | None, kind: Kind | None = None) -> Export:
        """Pick the question asked for, or the only one there is (of a kind)."""
        there = {
            name: listed
            for name, listed in self.marks.items()
            if listed and (kind is None or self.kinds[name] == kind)
        }
        if not there:
            left_out = f"; left out: {self._left_out()}" if self.skipped else ""
            raise DataError(f"{self.path}: has no numbers, boxes or points as answers{left_out}")
        if asked is None and len(there) > 1:
            listed = ", ".join(
                f"{name!r} ({len(marks)} of kind {self.kinds[name]})"
                for name, marks in list(there.items())[:8]
            )
            raise DataError(
                f"{self.path}: holds several questions: {listed}; "
                "name one with question= (command line: --question)"
            )
        name = asked if asked is not None else next(iter(there))
        if name not in there:
            mine = [f"{n} {what}" for (of, what), n in self.skipped.items() if of == name]
            told = f" (left out: {', '.join(mine)})" if mine else ""
            raise DataError(
                f"{self.path}: has no question {name!r}{told}; it has {shorten(there, 8)}"
            )
        return Export(
            format=self.format,
            question=name,
            kind=self.kinds[name],
            marks=there[name],
            looked=frozenset(self.looked),
            gold=self.gold.get(name, ()),
            repeats=self.repeats,
            fields=self.fields,
            notes=(f"left out: {told}",) if (told := self._left_out(name)) else (),
        )

    def _left_out(self, asked: str | None = None) -> str:
        """List what was left out; of a question that was asked for, nothing of the others."""
        return ", ".join(
            f"{n} {what}"
            for (question, what), n in self.skipped.items()
            if None in (asked, question) or asked == question
        )


def load_json(path: Path) -> Any:
    """Read a JSON document, or explain in one line why it cannot be read."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; refuse nesting deeper than any tool's like any other mistake."""
    try:
        return json.loads(text)
    except RecursionError:
        raise DataError(f"{where}: is nested too deeply to be an export") from None
    except ValueError as error:
        raise DataError(f"{where}: is not JSON: {error}") from None


def get(mapping: object, key: str, kind: type[_T], where: str) -> _T:
    """Return a field of a JSON object, of the type expected."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: expected an object with {key!r}, got {_type(type(mapping))}")
    if key not in mapping:
        raise DataError(f"{where}: has no {key!r}")
    item = mapping[key]
    if not isinstance(item, kind):
        raise DataError(f"{where}: {key!r} must be {_type(kind)}, got {_type(type(item))}")
    return item


def _type(kind: type) -> str:
    names = {list: "a list", dict: "an object", str: "text", type(None): "nothing"}
    return names.get(kind, kind.__name__)


def number(item: object, where: str) -> float:
    """Return a finite number, also when it is written as text."""
    try:
        found = float(item) if isinstance(item, int | float | str) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if isinstance(item, bool) or not math.isfinite(found):
        raise DataError(f"{where}: {str(item)[:60]!r} is not a finite number")
    return found


def numbers(item: object, keys: Sequence[str], where: str) -> tuple[float, ...]:
    """Return several fields of a JSON object as numbers."""
    return tuple(number(get(item, key, object, where), f"{where}, {key}") for key in keys)


def identity(item: object, where: str) -> Any:
    """Return an id: text or a whole number."""
    if isinstance(item, bool) or not isinstance(item, str | int) or item == "":
        raise DataError(f"{where}: expected an id, got {str(item)[:60]!r}")
    return item


def corners(left: float, top: float, width: float, height: float) -> tuple[float, ...]:
    """Return a box given by its size as its corners."""
    return (left, top, left + width, top + height)


def need_columns(table: Table, needed: Sequence[str], path: object) -> None:
    """Refuse a table that lacks a column that every export of the tool has."""
    absent = [name for name in needed if name not in table.columns]
    if absent:
        raise DataError(
            f"{path}: has no column {shorten(absent)}; the columns are {shorten(table.columns, 12)}"
        )


def prefixed_column(table: Table, asked: str, prefix: str) -> str:
    """Find the column of the task ids that was asked for, with or without the tool's prefix."""
    found = next((n for n in (asked, f"{prefix}{asked}") if n in table.columns), None)
    if found is None:
        inputs = [name for name in table.columns if name.startswith(prefix)]
        raise DataError(f"no column {asked!r} for the task; try {shorten(inputs, 8)}")
    return found


def rows_of(
    table: Table, path: object, ids: Sequence[str], texts: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield where each row stands and its cells: ids, then texts; None where there is nothing."""
    columns: list[Iterable[Any]] = [column_ids(table.texts(name)) for name in ids]
    columns += [table.texts(name) if name in table.columns else repeat(None) for name in texts]
    for row, cells in enumerate(zip(*columns, strict=False), start=1):
        yield f"{path}: row {row}", list(cells)


def column_ids(texts: Sequence[str | None]) -> list[Any]:
    """Return the ids of a column: whole numbers where all are plainly written as such."""
    plain = all(
        text is None or (text.isascii() and text.isdigit() and (text == "0" or text[0] != "0"))
        for text in texts
    )
    return [int(text) if plain and text is not None else text for text in texts]
