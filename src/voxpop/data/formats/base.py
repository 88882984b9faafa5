"""Exports: the answers in a tool's export, gathered by question, and the answers to one of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from voxpop.data.answers import Answers, Duplicates
from voxpop.data.formats.parsing import number
from voxpop.data.objects import SHAPE_NAMES, Matching, Objects, Place, Shape, match_objects
from voxpop.errors import DataError, shorten

Kind = Literal["number", "box", "point"]
# Every kind of answer by the number of its coordinates.
_KINDS: dict[int, Kind] = {1: "number", 2: "point", 4: "box"}
# Endings of pictures that browsers show.
PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".svg", ".bmp", ".avif")


def is_picture(text: str) -> bool:
    """Return whether a text is the name or address of a picture."""
    return text.lower().partition("?")[0].endswith(PICTURES) and "\n" not in text


def content_of(fields: Mapping[str, Any]) -> str | None:
    """Pick what to show of a task's fields: a picture, else an address, else the longest text."""
    texts = [item for item in fields.values() if isinstance(item, str) and item.strip()]
    pictures = [text for text in texts if is_picture(text)]
    addresses = [text for text in texts if text.startswith(("https://", "http://"))]
    words = sorted((text for text in texts if " " in text.strip()), key=len, reverse=True)
    return next(iter([*pictures, *addresses, *words]), None)


class Mark(NamedTuple):
    """One answer to one question: a number, a box (xmin, ymin, xmax, ymax) or a point (x, y)."""

    task: Any
    worker: Any
    value: tuple[float, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class Question:
    """The marks of one question, and known truths; several of one label in an image are objects."""

    kind: Kind
    marks: list[Mark] = field(default_factory=list)
    gold: list[Mark] = field(default_factory=list)

    def has_several(self) -> bool:
        """Return whether a worker made two marks with one label in one image."""
        return len({(mark.task, mark.worker, mark.label) for mark in self.marks}) < len(self.marks)

    def objects(self, matching: Matching, looked: Iterable[tuple[Any, Any]]) -> Objects:
        """Match boxes or points into objects."""
        task, worker, value, label = zip(*self.marks, strict=True)
        gold = [(mark.task, mark.label, mark.value) for mark in self.gold]
        kind, at = cast("Shape", self.kind), np.array(value)
        return match_objects(
            task, worker, at, kind, matching, label=label, looked=looked, gold=gold
        )

    def by_label(self) -> Question:
        """Treat every label of an image as one object, and name the tasks accordingly."""
        marks, gold = (
            [mark._replace(task=Place(str(mark.task), mark.label, 1).task_id) for mark in listed]
            for listed in (self.marks, self.gold)
        )
        return Question(self.kind, marks, gold)

    def answers(self, value_names: tuple[str, ...], duplicates: Duplicates | None) -> Answers:
        """Build answers with one task per id."""
        task, worker, value, _ = zip(*self.marks, strict=True)
        truth: dict[Any, tuple[float, ...]] = {}
        for mark in self.gold:
            known = truth.get(mark.task, mark.value)
            if known != mark.value and self.kind == "number":
                raise DataError(
                    f"task {mark.task!r} has two known truths, {known[0]:g} and {mark.value[0]:g}"
                )
            truth[mark.task] = mark.value
        unknown = (math.nan,) * len(value_names)
        gold = [truth.get(i, unknown) for i in dict.fromkeys(task)] if truth else None
        return Answers.from_arrays(
            task, worker, value, value_names=value_names, gold=gold, duplicates=duplicates
        )


@dataclass(kw_only=True)
class Export:
    """What a tool exported, gathered while it is read; then :meth:`answers` picks a question.

    Attributes
    ----------
    fields
        The fields of the tool that give the task and the worker.
    repeats
        Default for repeated answers.
    looked
        Pairs of a task and a worker who saw it, even if they marked nothing.
    skipped
        How many entries were left out, by question (None for the whole export) and kind.
    notes
        Other decisions made while reading.
    contents
        What a task shows: the address or file name of its picture, a link or a text.
    """

    format: str
    path: object
    fields: dict[str, str]
    repeats: Duplicates | None = None
    questions: dict[str, Question] = field(default_factory=dict)
    looked: set[tuple[Any, Any]] = field(default_factory=set)
    skipped: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    contents: dict[Any, str] = field(default_factory=dict)

    def look(self, task: Any, worker: Any) -> Mark:
        """Note who saw a task, and return the beginning of their answers."""
        self.looked.add((task, worker))
        return Mark(task, worker)

    def add(
        self,
        name: str,
        value: tuple[float, ...],
        mark: Mark,
        label: str = "",
        *,
        gold: bool = False,
    ) -> None:
        """Add an answer or a known truth to a question; a name may hold one kind of answer."""
        kind = _KINDS[len(value)]
        question = self.questions.setdefault(name, Question(kind))
        if question.kind != kind:
            question = self.questions.setdefault(f"{name} ({kind})", Question(kind))
        listed = question.gold if gold else question.marks
        listed.append(Mark(mark.task, mark.worker, value, label))

    def add_number(self, name: str, item: object, mark: Mark, *, gold: bool = False) -> None:
        """Add an answer if it is a number; count it as left out if it is text."""
        try:
            value = number(item, name)
        except DataError:
            self.skip(f"answers to {name!r} that are not numbers", name)
        else:
            self.add(name, (value,), mark, gold=gold)

    def show(self, task: Any, fields: Mapping[str, Any]) -> None:
        """Note what a task shows: the field that is a picture, an address or a text."""
        if task not in self.contents:
            found = content_of(fields)
            if found is not None:
                self.contents[task] = found

    def skip(self, what: str, question: str | None = None) -> None:
        """Count something that is left out: of one question, or of the whole export."""
        self.skipped[question, what] += 1

    def pick(self, asked: str | None, kind: Kind | None = None) -> str:
        """Name the question asked for, or the only one there is (of a kind)."""
        there = {
            name: question
            for name, question in self.questions.items()
            if question.marks and kind in (None, question.kind)
        }
        if not there:
            left_out = f"; left out: {self._left_out()}" if self.skipped else ""
            raise DataError(f"{self.path}: has no numbers, boxes or points as answers{left_out}")
        if asked is None and len(there) > 1:
            listed = ", ".join(
                f"{name!r} ({len(question.marks)} of kind {question.kind})"
                for name, question in list(there.items())[:8]
            )
            raise DataError(
                f"{self.path}: holds several questions: {listed}; "
                "name one with question= (command line: --question)"
            )
        name = asked if asked is not None else next(iter(there))
        if name not in there:
            mine = [f"{n} {what}" for (of, what), n in self.skipped.items() if of == name]
            others = f" (left out: {', '.join(mine)})" if mine else ""
            raise DataError(
                f"{self.path}: has no question {name!r}{others}; it has {shorten(there, 8)}"
            )
        return name

    def _left_out(self, asked: str | None = None) -> str:
        """List what was left out; for a chosen question, nothing about the others."""
        return ", ".join(
            f"{n} {what}"
            for (question, what), n in self.skipped.items()
            if None in (asked, question) or asked == question
        )

    def answers(
        self, asked: str | None, matching: Matching | None, duplicates: Duplicates | None
    ) -> Answers:
        """Build the answers to one question: numbers as they are, shapes by object.

        Shapes are matched on request, or when somebody drew two with one label in one image.
        Otherwise every label of an image is one object.
        """
        name = self.pick(asked)
        question, left_out = self.questions[name], self._left_out(name)
        notes = [f"read as {self.format}", *self.notes]
        notes += [f"left out: {left_out}"] if left_out else []
        if question.kind == "number":
            answers = question.answers((name,), duplicates or self.repeats)
        elif matching is not None or (duplicates is None and question.has_several()):
            objects = question.objects(matching or Matching(), self.looked)
            notes.append(objects.summary())
            answers = replace(objects.answers(), objects=objects)
        else:
            if not question.has_several():
                notes.append("nobody marked a label twice in one image: each label is one object")
            names = SHAPE_NAMES[question.kind]
            answers = question.by_label().answers(names, duplicates or self.repeats)
        columns = {**self.fields, "value": name}
        notes += answers.notes
        return replace(answers, notes=tuple(notes), columns=columns, contents=self.contents)
