"""Label Studio: its JSON export in, predictions to import out.

Coordinates are percent of the image, a box is given by its upper left corner and size. An
annotation that was cancelled is skipped, one marked as ground truth is gold. ``predictions`` of an
export are a model's, not a person's, and are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import corners, get, identity, load_json, number, numbers
from voxpop.data.formats.writing import confidence, estimates_by_image, refuse_strangers, write_json
from voxpop.errors import DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

NAME = "label-studio"
_BOXES = ("rectanglelabels", "rectangle")
_POINTS = ("keypointlabels", "keypoint")
_NUMBERS = ("number", "rating")
_SIZE = ("original_width", "original_height")


def fits(document: object) -> bool:
    """Return whether a JSON document looks like an export: a list of tasks with annotations."""
    return (
        isinstance(document, list)
        and bool(document)
        and isinstance(document[0], Mapping)
        and "data" in document[0]
        and ("annotations" in document[0] or "completions" in document[0])
    )


def collect(path: Path, task: str | None, names: bool = False) -> Export:
    """Read every annotation of an export; ``names`` calls people by their e-mail addresses."""
    return _collect(load_json(path), path, task, names)


def _collect(document: object, path: Path, asked: str | None, names: bool = False) -> Export:
    found = Export(format=NAME, path=path, fields={"task": asked or "id", "worker": "completed_by"})
    if not isinstance(document, list):
        raise DataError(f"{path}: expected a list of tasks, got another JSON document")
    people = _People(names)
    for position, task in enumerate(document, start=1):
        where = f"{path}: task {position}"
        name = _task_id(task, asked, where)
        shown = task.get("data")
        found.show(name, shown if isinstance(shown, dict) else {})
        listed = task.get("annotations", task.get("completions"))
        if not isinstance(listed, list):
            raise DataError(f"{where}: has no list of annotations")
        for count, annotation in enumerate(listed, start=1):
            if not isinstance(annotation, dict):
                raise DataError(f"{where}: annotation {count} is not an object")
            _take_annotation(found, name, annotation, people, f"{where}, annotation {count}")
    found.notes += people.notes()
    return found


@dataclass
class _People:
    """What the annotators are called: by their ids, or by their e-mail addresses on request.

    Results and reports are passed on, and addresses are private.
    """

    names: bool
    hidden: dict[str, str] = field(default_factory=dict)
    n_named: int = 0

    def call(self, annotation: Mapping[str, Any], where: str) -> Any:
        """Name who made an annotation: ``completed_by`` is an id, an address or an object."""
        person = get(annotation, "completed_by", object, where)
        known: Mapping[str, Any] = person if isinstance(person, Mapping) else {"id": person}
        key, address = known.get("id"), known.get("email")
        if isinstance(key, str) and "@" in key:
            key, address = None, key
        if address and not isinstance(address, str):
            raise DataError(f"{where}: the e-mail address of the annotator is not text")
        if not address or (key is not None and not self.names):
            self.n_named += bool(address)
            return identity(get(known, "id", object, where), where)
        if self.names:
            self.n_named += 1
            return identity(address, where)
        return self.hidden.setdefault(address, f"annotator {len(self.hidden) + 1}")

    def notes(self) -> list[str]:
        """Say what people are called here."""
        if self.names and self.n_named:
            return ["workers are named by their e-mail addresses (--names)"]
        ids = "made-up names" if self.hidden else "their ids"
        shown = "names=True (command line: --names) shows their e-mail addresses"
        known = self.n_named or self.hidden
        return [f"workers are named by {ids}; {shown}"] if known else []


def _take_annotation(
    found: Export, task: Any, annotation: Mapping[str, Any], people: _People, where: str
) -> None:
    if annotation.get("was_cancelled"):
        found.skip("cancelled annotations")
        return
    worker = people.call(annotation, where)
    gold = bool(annotation.get("ground_truth"))
    mark = Mark(task, worker) if gold else found.look(task, worker)
    results = get(annotation, "result", list, where)
    labels = _labels(results)
    shapes = {str(r.get("id")) for r in results if isinstance(r, dict) and _is_shape(r)}
    for region in results:
        key = str(region.get("id")) if isinstance(region, Mapping) else ""
        if key in shapes and region.get("type") in _NUMBERS:
            found.skip("numbers that belong to a region")
        else:
            _take(found, region, mark, labels.get(key, ""), gold, where)


def _task_id(task: object, asked: str | None, where: str) -> Any:
    fields = task if asked is None else get(task, "data", dict, where)
    return identity(get(fields, asked or "id", object, where), where)


def _is_shape(region: Mapping[str, Any]) -> bool:
    return region.get("type") in (*_BOXES, *_POINTS)


def _labels(results: list[Any]) -> dict[str, str]:
    """Find the label of every region, which may be in any of its parts."""
    found: dict[str, str] = {}
    for region in results:
        value = region.get("value") if isinstance(region, dict) else None
        for key in ("labels", "rectanglelabels", "keypointlabels"):
            listed = value.get(key) if isinstance(value, dict) else None
            if isinstance(listed, list) and listed:
                found[str(region.get("id"))] = str(listed[0])
    return found


def _take(found: Export, region: Any, mark: Mark, label: str, gold: bool, where: str) -> None:
    kind = get(region, "type", str, where)
    name = str(region.get("from_name", kind))
    here = f"{where}, {name!r}"
    if kind in _NUMBERS:
        found.add(name, numbers(get(region, "value", dict, here), [kind], here), mark, gold=gold)
    elif _is_shape(region):
        value = get(region, "value", dict, here)
        if kind in _BOXES and number(value.get("rotation", 0), here) % 360:
            raise DataError(f"{here}: a rectangle is rotated; only upright ones can be averaged")
        keys = ("x", "y", "width", "height") if kind in _BOXES else ("x", "y")
        scale = [side / 100 for side in numbers(region, _SIZE, here)] * 2
        sides = zip(numbers(value, keys, here), scale, strict=False)
        found.add(name, corners([side * unit for side, unit in sides]), mark, label, gold=gold)
    elif kind not in ("labels", "choices", "textarea"):
        found.skip(f"regions of type {kind!r}")


def write(result: Result, source: Path, out: Path, asked: str | None, question: str | None) -> str:
    """Write the tasks of an export with the estimates as predictions, to import again.

    ``score`` orders the tasks by the certainty of the estimates: one half for the median sd, more
    for a smaller one.
    """
    from voxpop import __version__

    kind, by_image = estimates_by_image(result)
    if kind == "number":
        question = question or result.value_names[0]
    document = load_json(source)
    pattern = _pattern(document, _collect(document, source, asked).pick(question, kind), source)
    sure = confidence(result)
    tasks: list[dict[str, Any]] = []
    n = 0
    for position, task in enumerate(document, start=1):
        where = f"{source}: task {position}"
        mine = by_image.get(str(_task_id(task, asked, where)), [])
        n += len(mine)
        size = _size(task, where) if mine and kind != "number" else {}
        regions: list[dict[str, Any]] = []
        for i, label, value in mine:
            shape = _region(kind, value, label, size, pattern)
            named = {"id": f"voxpop-{len(regions) + 1}", "score": sure[i]}
            regions.append({**pattern, **size, **shape, **named})
        prediction = {
            "model_version": f"voxpop-{__version__}",
            "score": min((region["score"] for region in regions), default=0.0),
            "result": regions,
        }
        kept = {key: task[key] for key in ("id", "data", "meta") if key in task}
        tasks.append({**kept, "predictions": [prediction] if regions else []})
    refuse_strangers(n, result, source)
    write_json(tasks, out)
    return f"{n} estimates as predictions of {len(tasks)} tasks"


def _pattern(document: Any, question: str, source: Path) -> dict[str, str]:
    """Take the names of the control from the annotations: an import must match the project."""
    for region in (region for task in document for region in _regions(task)):
        if region.get("from_name", region.get("type")) == question:
            return {k: region[k] for k in ("from_name", "to_name", "type") if k in region}
    raise DataError(f"{source}: has no region of {question!r}")


def _regions(task: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for annotation in task.get("annotations", task.get("completions", [])):
        yield from annotation.get("result", [])


def _size(task: Mapping[str, Any], where: str) -> dict[str, float]:
    for region in _regions(task):
        if all(key in region for key in _SIZE):
            return {key: region[key] for key in _SIZE}
    raise DataError(f"{where}: no annotation says how large the image is")


def _region(
    kind: str,
    value: list[float],
    label: str,
    size: Mapping[str, float],
    pattern: Mapping[str, str],
) -> dict[str, Any]:
    if kind == "number":
        # Stars are whole numbers; the text holds the estimate itself.
        shown = round(value[0]) if pattern["type"] == "rating" else value[0]
        return {"value": {pattern["type"]: shown}, "meta": {"text": [f"estimate {value[0]:.6g}"]}}
    wide, high = (100 / size[key] for key in _SIZE)
    named = {pattern["type"]: [label]} if label and pattern["type"].endswith("labels") else {}
    if kind == "point":
        return {"value": {"x": value[0] * wide, "y": value[1] * high, "width": 0.5, **named}}
    xmin, ymin, xmax, ymax = value
    box = {"x": xmin * wide, "y": ymin * high}
    box |= {"width": (xmax - xmin) * wide, "height": (ymax - ymin) * high, "rotation": 0}
    return {"value": {**box, **named}, "image_rotation": 0}
