"""CVAT: XML 1.1 "for images", one file per job, in and out.

CVAT's consensus replicas are jobs, and an export of the task leaves them out: export every job and
put the files in one folder. The worker is the job's assignee, or else the job itself. The parser
refuses any document type: no export has one, and entities are the way XML does harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from voxpop.data.files import open_bytes
from voxpop.data.formats.back import of_images, refuse_strangers
from voxpop.data.formats.base import Collector, Mark, Wishes, number
from voxpop.data.tables import replacing
from voxpop.errors import DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

NAME = "cvat"
# Longer than the name of anybody, and short enough to add to piece by piece.
_LONGEST_TEXT = 10_000


@dataclass(kw_only=True)
class _Element:
    name: str
    attributes: dict[str, str]
    text: str = ""
    children: list[_Element] = field(default_factory=list)


def fits(beginning: str) -> bool:
    """Tell whether a text that begins so looks like an export."""
    return beginning.lstrip().startswith("<") and "<annotations" in beginning


def collect(paths: Sequence[Path], wishes: Wishes) -> Collector:
    """Read the jobs."""
    del wishes
    found = Collector(format=NAME, path=paths[0] if len(paths) == 1 else paths[0].parent)
    found.fields = {"task": "image name", "worker": "assignee"}
    for path in paths:
        worker = ""
        for element in _elements(path):
            if element.name == "meta":
                worker = _worker(element, path)
            elif element.name == "track":
                raise DataError(
                    f'{path}: is a video export (tracks); export the job as "CVAT for images 1.1"'
                )
            elif element.name == "image":
                _take_image(found, element, worker or path.stem, path)
    return found


def _worker(meta: _Element, path: Path) -> str:
    jobs = [child for child in meta.children if child.name in ("job", "task")]
    for job in jobs:
        for assignee in (child for child in job.children if child.name == "assignee"):
            for child in assignee.children:
                if child.name == "username" and child.text.strip():
                    return child.text.strip()
    for job in jobs:
        for child in job.children:
            if job.name == "job" and child.name == "id" and child.text.strip():
                return f"job {child.text.strip()}"
    return path.stem


def _take_image(found: Collector, image: _Element, worker: str, path: Path) -> None:
    name = image.attributes.get("name", "")
    if not name:
        raise DataError(f"{path}: an image has no name")
    where = f"{path}: image {name!r}"
    found.looked.add((name, worker))
    for shape in image.children:
        label = shape.attributes.get("label", "")
        if shape.name == "box":
            if number(shape.attributes.get("rotation", "0"), where) % 360:
                raise DataError(
                    f"{where}: a box is rotated; only upright ones can be averaged, straighten it"
                )
            box = tuple(
                number(shape.attributes.get(side), f"{where}, {side}")
                for side in ("xtl", "ytl", "xbr", "ybr")
            )
            found.add("box", "box", Mark(name, worker, box, label))
        elif shape.name == "points":
            _take_points(found, shape, Mark(name, worker, (), label), where)
        elif shape.name == "skeleton":
            for joint in shape.children:
                if joint.name == "points" and joint.attributes.get("outside") != "1":
                    joined = f"{label}/{joint.attributes.get('label', '')}"
                    _take_points(found, joint, Mark(name, worker, (), joined), where)
        else:
            found.skip(f"shapes of type {shape.name!r}")


def _take_points(found: Collector, shape: _Element, mark: Mark, where: str) -> None:
    for pair in shape.attributes.get("points", "").split(";"):
        x, comma, y = pair.partition(",")
        if not comma:
            raise DataError(f"{where}: expected points like 1.5,2.5;3,4, got {pair[:60]!r}")
        found.add("points", "point", mark._replace(value=(number(x, where), number(y, where))))


def _elements(path: Path, chunk: int = 1 << 20) -> Iterator[_Element]:
    """Give the children of the root one after another, as the file is read."""
    stack: list[_Element] = []
    ready: list[_Element] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > 50:
            raise DataError(f"{path}: is nested too deeply to be an export of CVAT")
        stack.append(_Element(name=name, attributes=attributes))

    def end(_: str) -> None:
        element = stack.pop()
        if len(stack) == 1:
            ready.append(element)
        elif stack:
            stack[-1].children.append(element)
        elif element.name != "annotations":
            raise DataError(f"{path}: expected <annotations>, got <{element.name}>")

    def data(text: str) -> None:
        if stack and len(stack[-1].text) < _LONGEST_TEXT:
            stack[-1].text += text

    def doctype(*_: object) -> None:
        raise DataError(
            f"{path}: declares a document type; no export of CVAT does, so it is refused"
        )

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = data
    parser.StartDoctypeDeclHandler = doctype
    parser.buffer_text = True
    if not path.exists():
        raise DataError(f"{path}: no such file")
    try:
        with open_bytes(path) as file:
            while block := file.read(chunk):
                parser.Parse(block, False)
                yield from ready
                ready.clear()
            parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise DataError(f"{path}: is not well-formed XML: {error}") from None
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None
    yield from ready


def write(result: Result, sources: Sequence[Path], out: Path, wishes: Wishes) -> str:
    """Write one annotations file with the estimates, to upload to the task.

    The images, their numbers and sizes are those of the jobs. CVAT has no place for the sd of a
    coordinate: it stands in the table of tasks.
    """
    del wishes
    estimates = of_images(result)
    if estimates.kind == "number":
        raise DataError("CVAT takes boxes and points; these estimates are numbers")
    images: dict[str, dict[str, str]] = {}
    for path in sources:
        for element in _elements(path):
            if element.name == "image":
                images.setdefault(element.attributes.get("name", ""), element.attributes)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<annotations>", "  <version>1.1</version>"]
    n = 0
    for name, attributes in images.items():
        known: tuple[str, ...] = ("id", "name", "width", "height")
        kept = {key: attributes[key] for key in known if key in attributes}
        lines.append(f"  <image{_spelled(kept)}>")
        for _, label, value in estimates.by_image.get(name, []):
            lines.append(f"    {_shape(estimates.kind, label, value)}")
            n += 1
        lines.append("  </image>")
    refuse_strangers(n, result, sources[0].parent if len(sources) > 1 else sources[0])
    with replacing(out) as temporary:
        temporary.write_text("\n".join([*lines, "</annotations>", ""]), encoding="utf-8")
    return f"{n} shapes in {len(images)} images"


def _shape(kind: str, label: str, value: list[float]) -> str:
    common = {"label": label, "source": "auto", "occluded": "0"}
    if kind == "point":
        at = {"points": ",".join(f"{item:.2f}" for item in value)}
        return f"<points{_spelled(common | at | {'z_order': '0'})}></points>"
    sides = zip(("xtl", "ytl", "xbr", "ybr"), (f"{item:.2f}" for item in value), strict=True)
    return f"<box{_spelled(common | dict(sides) | {'z_order': '0'})}></box>"


def _spelled(attributes: dict[str, str]) -> str:
    return "".join(f" {key}={quoteattr(text)}" for key, text in attributes.items())
