"""COCO: boxes and keypoints, with a field for the annotator or one file per person; in and out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxpop.data.formats.base import Export, Mark
from voxpop.data.formats.parsing import common_name, corners, get, identity, load_json, number
from voxpop.data.formats.writing import confidence, estimates_by_image, refuse_strangers, write_json
from voxpop.errors import DataError

if TYPE_CHECKING:
    from voxpop.results.result import Result

NAME = "coco"
_ANNOTATOR = ("annotator", "annotator_id", "worker_id")


def fits(document: object) -> bool:
    """Return whether a JSON document looks like COCO."""
    return isinstance(document, Mapping) and {"images", "annotations"} <= set(document)


def collect(paths: Sequence[Path]) -> Export:
    """Read boxes (question ``bbox``) and visible keypoints (question ``keypoints``).

    An annotator of an image has looked at it; the owner of a personal file, at all its images.
    """
    fields = {"task": "file_name", "worker": "annotator"}
    found = Export(format=NAME, path=common_name(paths), fields=fields)
    for path in paths:
        document = load_json(path)
        images = _images(document, path)
        for image in document["images"]:
            found.show(images[str(image["id"])], image)
        listed = _categories(document, path)
        categories = {str(item.get("id")): item for item in listed}
        annotations = get(document, "annotations", list, str(path))
        personal = not any(_annotator(item) is not None for item in annotations)
        if personal:
            found.fields["worker"] = "file name"
            found.looked |= {(name, path.stem) for name in images.values()}
        for position, item in enumerate(annotations, start=1):
            where = f"{path}: annotation {position}"
            name = images.get(str(get(item, "image_id", object, where)))
            if name is None:
                found.skip("annotations of an image that is not listed")
                continue
            worker = path.stem if personal else identity(_annotator(item), f"{where}, annotator")
            category = categories.get(str(item.get("category_id")), {})
            _take(found, item, category, found.look(name, worker), where)
    return found


def _images(document: Any, path: Path) -> dict[str, Any]:
    listed = get(document, "images", list, str(path))
    names = {}
    for position, image in enumerate(listed, start=1):
        where = f"{path}: image {position}"
        key = identity(get(image, "id", object, where), where)
        names[str(key)] = identity(image.get("file_name", key), where)
    return names


def _categories(document: Any, path: Path) -> list[dict[str, Any]]:
    listed = get(document, "categories", list, str(path)) if "categories" in document else []
    return [item for item in listed if isinstance(item, dict)]


def _annotator(item: object) -> Any:
    if not isinstance(item, Mapping):
        return None
    attributes = item.get("attributes")
    inner = attributes if isinstance(attributes, Mapping) else {}
    return next((box[key] for box in (item, inner) for key in _ANNOTATOR if key in box), None)


def _take(
    found: Export, item: Mapping[str, Any], category: Mapping[str, Any], mark: Mark, where: str
) -> None:
    label = str(category.get("name", item.get("category_id", "")))
    sides = item.get("bbox")
    if sides:
        if not isinstance(sides, list) or len(sides) < 4:
            raise DataError(f"{where}, bbox: expected 4 numbers, got {str(sides)[:60]!r}")
        box = corners([number(side, f"{where}, bbox") for side in sides[:4]])
        found.add("bbox", box, mark, label)
    points = item.get("keypoints") or []
    listed = category.get("keypoints")
    names = listed if isinstance(listed, list) else []
    if not isinstance(points, list) or len(points) % 3:
        raise DataError(f"{where}: keypoints must be a list of x, y, visibility and so on")
    for k in range(0, len(points), 3):
        x, y, visible = (number(part, f"{where}, keypoints") for part in points[k : k + 3])
        if visible:
            joint = str(names[k // 3]) if k // 3 < len(names) else str(k // 3 + 1)
            found.add("keypoints", (x, y), mark, joint)
    if not sides and not points:
        found.skip("annotations without a box or keypoints")


def write(result: Result, sources: Sequence[Path], out: Path) -> str:
    """Write the estimates as COCO annotations with ``score``, and their ``sd`` per coordinate.

    A point becomes an annotation with one keypoint. Without a source, images are numbered and
    named by their ids.
    """
    kind, by_image = estimates_by_image(result, shapes_for="COCO")
    images: dict[str, dict[str, Any]] = {}
    categories: dict[str, dict[str, Any]] = {}
    for path in sources:
        document = load_json(path)
        names = _images(document, path)
        for image in document["images"]:
            images.setdefault(str(names[str(image["id"])]), image)
        for category in _categories(document, path):
            key = get(category, "id", object, f"{path}: category")
            if isinstance(key, bool) or not isinstance(key, int):
                raise DataError(f"{path}: category: its id must be a whole number, got {key!r:.60}")
            categories.setdefault(str(category.get("name")), category)
    if sources:
        refuse_strangers(len(images.keys() & by_image.keys()), result, sources[0])
    for name in by_image:
        images.setdefault(name, {"id": len(images) + 1, "file_name": name})
    if kind == "point":
        # The joints of a person are labels of their own here.
        categories = {}
    sure = confidence(result)
    annotations: list[dict[str, Any]] = []
    for name, listed in by_image.items():
        for i, label, value in listed:
            if label not in categories:
                taken = [category.get("id", 0) for category in categories.values()]
                joints = {"keypoints": [label], "skeleton": []} if len(value) == 2 else {}
                categories[label] = {"id": max(taken, default=0) + 1, "name": label, **joints}
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": images[name]["id"],
                    "category_id": categories[label]["id"],
                    **_shape(value),
                    "score": sure[i],
                    "sd": result.sd[i].tolist(),
                }
            )
    document = {
        "images": [*images.values()],
        "categories": [*categories.values()],
        "annotations": annotations,
    }
    write_json(document, out)
    return f"{len(annotations)} annotations of {len(images)} images"


def _shape(value: list[float]) -> dict[str, Any]:
    if len(value) == 2:
        return {"keypoints": [*value, 2], "num_keypoints": 1}
    xmin, ymin, xmax, ymax = value
    wide, high = xmax - xmin, ymax - ymin
    return {"bbox": [xmin, ymin, wide, high], "area": wide * high, "iscrowd": 0}
