"""What the formats share: an export as a long table, its questions, and reading with care."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers, Duplicates
from voxpop.data.files import read_text
from voxpop.data.objects import SHAPE_NAMES, Matching, Objects, Place, match_objects, several_in_one
from voxpop.data.tables import Table
from voxpop.errors import ConfigError, DataError, shorten

Kind = Literal["number", "box", "point"]
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a user may say about how an export is to be read.

    Attributes
    ----------
    question
        Which of several questions, by the name it has in the tool.
    task
        The field that names the tasks, where the tool's own id is not wanted.
    missing
        Numbers that stand for no answer, like -1.
    """

    question: str | None = None
    task: str | None = None
    missing: tuple[float, ...] = ()


class Mark(NamedTuple):
    """One answer to one question: a number, a box or a point."""

    task: Any
    worker: Any
    value: tuple[float, ...]
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
        What to do with repeated answers where the user has not said.
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

    def objects(self, matching: Matching) -> Objects:
        """Match boxes or points into objects."""
        if self.kind == "number":
            raise ConfigError(f"the answers to {self.question!r} are numbers, not objects")
        return match_objects(
            [mark.task for mark in self.marks],
            [mark.worker for mark in self.marks],
            self.value,
            self.kind,
            matching,
            label=[mark.label for mark in self.marks],
            looked=self.looked,
            gold=self.gold,
        )

    def answers(
        self, matching: Matching | None, duplicates: Duplicates | None
    ) -> tuple[Answers, Objects | None]:
        """Build answers: of numbers as they are, of shapes by object.

        Shapes are matched when told to, or when somebody drew two with one label in one image.
        Otherwise every label of an image is one object.
        """
        fields = {**self.fields, "value": self.question}
        notes = (f"read as {self.format}", *self.notes)
        task = [mark.task for mark in self.marks]
        worker = [mark.worker for mark in self.marks]
        if self.kind == "number":
            truth = self._gold_by_task()
        else:
            label = [mark.label for mark in self.marks]
            several = several_in_one(task, worker, label)
            if matching is not None or (several and duplicates is None):
                objects = self.objects(matching or Matching())
                answers = objects.answers()
                notes = (*notes, objects.summary())
                return replace(answers, notes=notes, columns=fields), objects
            if not several:
                notes = (*notes, "nobody marked two of one label in one image: each is one object")
            task = [Place(str(mark.task), mark.label, 1).task_id for mark in self.marks]
            truth = {Place(str(t), name, 1).task_id: value for t, name, value in self.gold}
        gold = None
        if truth:
            nothing = (math.nan,) * len(self.value_names)
            gold = [truth.get(identity, nothing) for identity in dict.fromkeys(task)]
        answers = Answers.from_arrays(
            task,
            worker,
            self.value,
            value_names=self.value_names,
            gold=gold,
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
    """Gathers marks question by question while an export is read; then one is picked."""

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
        """Take one answer, or one known truth."""
        if self.kinds.setdefault(question, kind) != kind:
            question = f"{question} ({kind})"
            self.kinds[question] = kind
        self.marks.setdefault(question, [])
        if gold:
            self.gold.setdefault(question, []).append((mark.task, mark.label, mark.value))
        else:
            self.marks[question].append(mark)

    def skip(self, what: str, n: int = 1, question: str | None = None) -> None:
        """Count something that is left out: whatever is asked, or of one question only."""
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
            raise DataError(
                f"{self.path}: has no answers that are numbers, boxes or points{left_out}"
            )
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
        """Say what was left out; where a question was asked, nothing of the others."""
        return ", ".join(
            f"{n} {what}"
            for (question, what), n in self.skipped.items()
            if None in (asked, question) or asked == question
        )


def load_json(path: Path) -> Any:
    """Read a JSON document, or say in one line why that cannot be."""
    text = read_text(path)
    return parse_json(text, str(path))


def parse_json(text: str, where: str) -> Any:
    """Parse JSON; nesting deeper than any tool's is refused like any other mistake."""
    try:
        return json.loads(text)
    except RecursionError:
        raise DataError(f"{where}: is nested too deeply to be an export") from None
    except ValueError as error:
        raise DataError(f"{where}: is not JSON: {error}") from None


def get(mapping: object, key: str, kind: type[_T], where: str) -> _T:
    """Return a field of a JSON object, of the type expected."""
    if not isinstance(mapping, Mapping):
        raise DataError(f"{where}: expected an object with {key!r}, got {_type(mapping)}")
    if key not in mapping:
        raise DataError(f"{where}: has no {key!r}")
    item = mapping[key]
    if not isinstance(item, kind):
        raise DataError(f"{where}: {key!r} must be {_NAMES[kind]}, got {_type(item)}")
    return item


_NAMES: dict[type, str] = {list: "a list", dict: "an object", str: "text"}


def _type(item: object) -> str:
    return {list: "a list", dict: "an object", str: "text", type(None): "nothing"}.get(
        type(item), type(item).__name__
    )


def number(item: object, where: str) -> float:
    """Return a finite number, also when it is written as text."""
    try:
        found = float(item) if isinstance(item, int | float | str) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if isinstance(item, bool) or not math.isfinite(found):
        raise DataError(f"{where}: {str(item)[:60]!r} is not a finite number")
    return found


def numbers(items: object, n: int, where: str) -> tuple[float, ...]:
    """Return so many numbers of a list."""
    if not isinstance(items, list) or len(items) < n:
        raise DataError(f"{where}: expected {n} numbers, got {str(items)[:60]!r}")
    return tuple(number(item, where) for item in items[:n])


def identity(item: object, where: str) -> Any:
    """Return an id: text or a whole number."""
    if isinstance(item, bool) or not isinstance(item, str | int) or item == "":
        raise DataError(f"{where}: expected an id, got {str(item)[:60]!r}")
    return item


def corners(left: float, top: float, width: float, height: float) -> tuple[float, ...]:
    """Return a box given by its size as its corners."""
    return (left, top, left + width, top + height)


def need_columns(table: Table, needed: Sequence[str], path: object) -> None:
    """Refuse a table that lacks what every export of the tool has."""
    absent = [name for name in needed if name not in table.columns]
    if absent:
        raise DataError(
            f"{path}: has no column {shorten(absent)}; the columns are {shorten(table.columns, 12)}"
        )


def rows_of(table: Table, columns: Sequence[str]) -> Iterator[tuple[int, list[str | None]]]:
    """Give the rows of some columns as text, numbered from 1."""
    cells = zip(*(table.texts(column) for column in columns), strict=True)
    for row, found in enumerate(cells, start=1):
        yield row, list(found)


def column_ids(texts: Sequence[str | None]) -> list[Any]:
    """Return the ids of a column: whole numbers where all are plainly written as such."""
    plain = all(
        text is None or (text.isascii() and text.isdigit() and (text == "0" or text[0] != "0"))
        for text in texts
    )
    return [int(text) if plain and text is not None else text for text in texts]
