"""CVAT: XML 1.1 "for images", one file per job, in and out.

CVAT's consensus replicas are jobs, and an export of the task leaves them out: export every job and
put the files in one folder. The worker is the job's assignee, or else the job itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, TreeBuilder

from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import common_name, number, numbers
from voxpop.data.formats.writing import estimates_by_image, refuse_strangers
from voxpop.data.output import replacing
from voxpop.data.unpack import reading
from voxpop.data.xml import parse_xml
from voxpop.errors import DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

NAME = "cvat"
_SIDES = ("xtl", "ytl", "xbr", "ybr")


def fits(beginning: str) -> bool:
    """Return whether a text that begins so looks like an export."""
    return beginning.lstrip().startswith("<") and "<annotations" in beginning


def collect(paths: Sequence[Path]) -> Export:
    """Read the jobs."""
    fields = {"task": "image name", "worker": "assignee"}
    found = Export(format=NAME, path=common_name(paths), fields=fields)
    for path in paths:
        worker = path.stem
        for element in _elements(path):
            if element.tag == "meta":
                worker = _worker(element) or path.stem
            elif element.tag == "track":
                raise DataError(
                    f'{path}: is a video export (tracks); export the job as "CVAT for images 1.1"'
                )
            elif element.tag == "image":
                _take_image(found, element, worker, path)
    return found


def _worker(meta: Element) -> str | None:
    for names in ("job/assignee/username", "task/assignee/username"):
        if name := meta.findtext(names, "").strip():
            return name
    job = meta.findtext("job/id", "").strip()
    return f"job {job}" if job else None


def _take_image(found: Export, image: Element, worker: str, path: Path) -> None:
    name = image.get("name", "")
    if not name:
        raise DataError(f"{path}: an image has no name")
    where = f"{path}: image {name!r}"
    mark = found.look(name, worker)
    for shape in image:
        label = shape.get("label", "")
        if shape.tag == "box":
            if number(shape.get("rotation", "0"), where) % 360:
                raise DataError(f"{where}: a box is rotated; only upright boxes can be averaged")
            found.add("box", numbers(shape.attrib, _SIDES, where), mark, label)
        elif shape.tag == "points":
            _take_points(found, shape, mark, label, where)
        elif shape.tag == "skeleton":
            for joint in shape:
                if joint.tag == "points" and joint.get("outside") != "1":
                    _take_points(found, joint, mark, f"{label}/{joint.get('label', '')}", where)
        else:
            found.skip(f"shapes of type {shape.tag!r}")


def _take_points(found: Export, shape: Element, mark: Mark, label: str, where: str) -> None:
    for pair in shape.get("points", "").split(";"):
        x, comma, y = pair.partition(",")
        if not comma:
            raise DataError(f"{where}: expected points like 1.5,2.5;3,4, got {pair[:60]!r}")
        found.add("points", (number(x, where), number(y, where)), mark, label)


def _elements(path: Path) -> Iterator[Element]:
    """Yield the children of the root one after another, as the file is read."""
    builder = TreeBuilder()
    above: list[Element] = []
    ready: list[Element] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        above.append(builder.start(name, attributes))

    def end(name: str) -> None:
        element = builder.end(name)
        above.pop()
        if len(above) == 1:
            ready.append(element)
            above[0].clear()  # otherwise the whole file would stay in memory
        elif not above and name != "annotations":
            raise DataError(f"{path}: expected <annotations>, got <{name}>")

    with reading(path) as file:
        for _ in parse_xml(file, path, start, end, builder.data):
            yield from ready
            ready.clear()


def write(result: Result, sources: Sequence[Path], out: Path) -> str:
    """Write one annotations file with the estimates, to upload to the task.

    The images, their numbers and sizes are those of the jobs. CVAT has no field for the sd of a
    coordinate: it is in the table of tasks.
    """
    _, by_image = estimates_by_image(result, shapes_for="CVAT")
    images: dict[str, Mapping[str, str]] = {}
    for path in sources:
        for element in _elements(path):
            if element.tag == "image":
                images.setdefault(element.get("name", ""), element.attrib)
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<annotations>", "  <version>1.1</version>"]
    n = 0
    for name, attributes in images.items():
        known = ("id", "name", "width", "height")
        kept = {key: attributes[key] for key in known if key in attributes}
        lines.append(f"  <image{_spelled(kept)}>")
        for _, label, value in by_image.get(name, []):
            lines.append(f"    {_shape(label, [f'{item:.2f}' for item in value])}")
            n += 1
        lines.append("  </image>")
    refuse_strangers(n, result, common_name(sources))
    with replacing(out) as temporary:
        temporary.write_text("\n".join([*lines, "</annotations>", ""]), encoding="utf-8")
    return f"{n} shapes in {len(images)} images"


def _shape(label: str, value: Sequence[str]) -> str:
    name = "points" if len(value) == 2 else "box"
    place = (
        {"points": ",".join(value)} if len(value) == 2 else dict(zip(_SIDES, value, strict=True))
    )
    common = {"label": label, "source": "auto", "occluded": "0"}
    return f"<{name}{_spelled(common | place | {'z_order': '0'})}></{name}>"


def _spelled(attributes: Mapping[str, str]) -> str:
    from xml.sax.saxutils import quoteattr  # also loads all of the network code

    return "".join(f" {key}={quoteattr(text)}" for key, text in attributes.items())
