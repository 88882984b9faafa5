"""Annotations of Label Studio as answers: which value, whose, to which task, and how new.

Coordinates there are percent of the image; here they are pixels. An annotation that was cancelled,
or that holds no value of the campaign's kind, is no answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from voxpop.errors import DataError
from voxpop.service.questions import LARGEST, VALUE_NAMES

SOURCE = "label_studio"
_TYPES = {
    "number": ("number", "rating"),
    "slider": ("number", "rating"),
    "rating": ("rating", "number"),
    "point": ("keypointlabels", "keypoint"),
    "box": ("rectanglelabels", "rectangle"),
}
_LONGEST_TEXT = 10_000


@dataclass(frozen=True)
class Annotation:
    """One annotation: ``value`` is None where it is no answer (any more)."""

    id: str
    task: str
    person: str
    value: list[float] | None
    version: int
    lead_ms: int | None


@dataclass(frozen=True)
class LabelTask:
    """A task of Label Studio: its id is the name here, its data what workers see."""

    name: str
    content: dict[str, Any]


def read_task(task: object) -> LabelTask:
    """Read a task: the first text and the first picture of its data are shown."""
    known = _mapping(task, "task")
    data = known.get("data")
    content: dict[str, Any] = {}
    for name, item in data.items() if isinstance(data, Mapping) else ():
        if not isinstance(item, str) or not item or "\0" in item:
            continue
        is_link = item.startswith(("http://", "https://", "/data/"))
        place = "image" if is_link and name.lower() in ("image", "img", "picture") else "text"
        content.setdefault("link" if is_link and place == "text" else place, item[:_LONGEST_TEXT])
    return LabelTask(_id(known.get("id"), "task"), content)


def read_annotation(annotation: object, task: object, kind: str) -> Annotation:
    """Read an annotation of a task as an answer to a question of a kind."""
    known = _mapping(annotation, "annotation")
    person = known.get("completed_by")
    if isinstance(person, Mapping):
        person = person.get("id")
    lead = known.get("lead_time")
    is_time = isinstance(lead, int | float) and 0 <= lead < 1e6
    return Annotation(
        id=_id(known.get("id"), "annotation"),
        task=_id(task, "task"),
        person=_id(person, "completed_by"),
        value=None if known.get("was_cancelled") else _value(known.get("result"), kind),
        version=_version(known.get("updated_at") or known.get("created_at")),
        lead_ms=int(1000 * lead) if is_time else None,  # type: ignore[operator]
    )


def read_deleted(payload: Mapping[str, Any]) -> list[str]:
    """Read the ids of deleted annotations: all that Label Studio tells of them."""
    listed = payload.get("annotations") or [payload.get("annotation")]
    if not isinstance(listed, list):
        raise DataError("annotations must be a list")
    ids = [one.get("id") if isinstance(one, Mapping) else one for one in listed]
    return [_id(one, "annotation") for one in ids if one is not None]


def read_export(document: object, kind: str) -> tuple[list[LabelTask], list[Annotation]]:
    """Read a project's export: all tasks, and all annotations of them."""
    if not isinstance(document, list):
        raise DataError("the export of Label Studio must be a list of tasks")
    tasks, annotations = [], []
    for task in document:
        tasks.append(read_task(task))
        listed = task.get("annotations")
        for one in listed if isinstance(listed, list) else ():
            annotations.append(read_annotation(one, task["id"], kind))
    return tasks, annotations


def _value(result: object, kind: str) -> list[float] | None:
    for region in _regions(result):
        found = region["value"]
        if region.get("type") not in _TYPES[kind]:
            continue
        if VALUE_NAMES[kind] == ("value",):
            numbers = [found.get("number", found.get("rating"))]
        else:
            size = (region.get("original_width"), region.get("original_height"))
            if found.get("rotation"):
                continue  # a box that is turned is no box of ours
            numbers = [
                _product(found.get(name), size[place % 2])
                for place, name in enumerate(VALUE_NAMES[kind])
            ]
        if all(_is_number(one) for one in numbers):
            return [float(one) for one in numbers]
    return None


def _regions(result: object) -> Iterator[Mapping[str, Any]]:
    for region in result if isinstance(result, list) else ():
        if isinstance(region, Mapping) and isinstance(region.get("value"), Mapping):
            yield region


def _product(percent: object, size: object) -> float | None:
    if not _is_number(percent) or not _is_number(size):
        return None
    return float(percent) * float(size) / 100  # type: ignore[arg-type]


def _is_number(one: object) -> bool:
    if isinstance(one, bool) or not isinstance(one, int | float):
        return False
    return abs(one) <= LARGEST and math.isfinite(one)


def _version(text: object) -> int:
    """Return when an annotation was changed, in microseconds: a later change is a newer version."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        raise DataError(f"updated_at must be a time, not {str(text)[:40]!r}") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1_000_000)


def _id(one: object, what: str) -> str:
    if isinstance(one, bool) or not isinstance(one, int | str) or not str(one).isprintable():
        raise DataError(f"{what}: expected an id, not {type(one).__name__}")
    text = str(one)
    if not 0 < len(text) <= 100:
        raise DataError(f"{what}: expected an id of at most 100 characters")
    return text


def _mapping(one: object, what: str) -> Mapping[str, Any]:
    if not isinstance(one, Mapping):
        raise DataError(f"{what}: expected an object, not {type(one).__name__}")
    return one
