"""From marks to objects: which boxes or points of an image are the same thing.

Several workers draw what they see in an image, each in their own order. Before averaging, one must
know which marks belong together. A worker draws an object at most once, so an optimal assignment
matches the marks of a worker to the objects, worker after worker, and again until nothing changes.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from voxpop.arrays import Codes, Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.data.ids import number_ids
from voxpop.errors import ConfigError, DataError, require

Shape = Literal["box", "point"]
Near = Callable[[Floats, Floats], Floats]
_K = TypeVar("_K")
_V = TypeVar("_V")
SHAPE_NAMES: dict[str, tuple[str, ...]] = {
    "box": ("xmin", "ymin", "xmax", "ymax"),
    "point": ("x", "y"),
}
# Rounds of matching every worker again; most images need two, and an oscillation must end.
_ROUNDS = 10


@dataclass(frozen=True, kw_only=True)
class Matching:
    """When two marks are of the same object, and how many must see it.

    Parameters
    ----------
    iou_threshold
        Minimum overlap of a box with the box of the others: area in common over area in all.
    distance_threshold
        Maximum distance of a point from that of the others, in the unit of the coordinates.
    quorum
        Minimum share of those who looked at the image that must have marked an object.
    """

    iou_threshold: float = 0.5
    distance_threshold: float | None = None
    quorum: float = 0.5

    def __post_init__(self) -> None:
        require(
            0 < self.iou_threshold <= 1,
            f"iou_threshold must be in (0, 1], got {self.iou_threshold}",
        )
        require(
            self.distance_threshold is None or self.distance_threshold > 0,
            f"distance_threshold must be positive, got {self.distance_threshold}",
        )
        require(0 <= self.quorum <= 1, f"quorum must be in [0, 1], got {self.quorum}")


class Place(NamedTuple):
    """Where an object is: the id of the image, the label, and its number there."""

    image: str
    label: str
    number: int

    @property
    def task_id(self) -> str:
        """The place as the id of a task: ``image#label#number``, or ``image#number`` unlabelled.

        A ``#`` or ``%`` of the image or label is spelled ``%23`` or ``%25``, so that
        :func:`parse_object_id` finds its way back.
        """
        parts = [self.image, *([self.label] if self.label else []), str(self.number)]
        return "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)


def parse_object_id(text: str) -> Place | None:
    """Undo :attr:`Place.task_id`; None for an id of another kind."""
    found = re.fullmatch(r"([^#]*)(?:#([^#]+))?#(\d+)", text)
    if found is None:
        return None
    image, label = (
        part.replace("%23", "#").replace("%25", "%") for part in (found[1], found[2] or "")
    )
    return Place(image, label, int(found[3]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Objects:
    """Marks sorted into objects.

    Attributes
    ----------
    places
        Where every object is; its position here is its number in ``object``.
    object
        Object of every mark, -1 for an extra: a mark of something too few others saw.
    viewers
        Who looked at the image of each object, by their numbers.
    gold
        Known truths, shape (n_objects, dimension), NaN where unknown; None without gold.
    gold_missed
        Number of known objects that the crowd did not find.
    """

    places: list[Place]
    object: Index
    worker: Codes
    worker_ids: Any
    value: Floats
    value_names: tuple[str, ...]
    viewers: list[list[int]]
    gold: Floats | None = None
    gold_missed: int = 0

    @property
    def task_ids(self) -> list[str]:
        """The ids of the objects as tasks."""
        return [place.task_id for place in self.places]

    @property
    def missed(self) -> Index:
        """How many objects each worker looked at and did not mark."""
        return np.asarray(self.workers()["missed"])

    def workers(self) -> dict[str, Any]:
        """Columns: worker, marks, found (of objects), missed (objects), extra (marks of none)."""
        n = len(self.worker_ids)
        shown = np.array([u for there in self.viewers for u in there], dtype=np.int64)
        marks, found, seen = (
            np.bincount(listed, minlength=n)
            for listed in (self.worker, self.worker[self.object >= 0], shown)
        )
        return {
            "worker": self.worker_ids,
            "marks": marks,
            "found": found,
            "missed": seen - found,
            "extra": marks - found,
        }

    def answers(self) -> Answers:
        """Return the marks of objects as answers, one task per object."""
        kept = self.object >= 0
        if not kept.any():
            raise DataError(
                "no object was marked by enough workers; lower the quorum or the iou_threshold "
                "(for points, raise the distance_threshold)"
            )
        worker, present = np.unique(self.worker[kept], return_inverse=True)
        return Answers.from_codes(
            self.object[kept].astype(np.int32),
            np.array(self.task_ids, dtype=np.object_),
            present.astype(np.int32),
            np.asarray(self.worker_ids)[worker],
            self.value[kept],
            value_names=self.value_names,
            gold=self.gold,
        )

    def summary(self) -> str:
        """Summarise the matching in one line."""
        extra = int((self.object < 0).sum())
        gold = f"; {self.gold_missed} known objects were not found" if self.gold_missed else ""
        return (
            f"matched {len(self.object)} marks into {len(self.places)} objects (marks without an "
            f"object: {extra}, missed objects: {int(self.missed.sum())}){gold}"
        )


def match_objects(
    image: Sequence[Any],
    worker: Sequence[Any],
    value: Floats,
    shape: Shape,
    matching: Matching,
    *,
    label: Sequence[str] = (),
    looked: Iterable[tuple[Any, Any]] = (),
    gold: Iterable[tuple[Any, str, Sequence[float]]] = (),
) -> Objects:
    """Match the marks of every image into objects.

    Marks of different labels are never the same object. Objects are numbered from left to right,
    whatever the order of the rows.

    Parameters
    ----------
    value
        Boxes as xmin, ymin, xmax, ymax; points as x, y.
    looked
        Pairs of an image and a worker who saw it, even without marking anything; those who made a
        mark count anyway.
    gold
        Known objects: image, label, value.
    """
    near = _nearness(shape, matching)
    value = np.asarray(value, dtype=np.float64).reshape(len(worker), len(SHAPE_NAMES[shape]))
    if shape == "box":
        _refuse_inside_out(value, image)
    codes, worker_ids, looked_at = _number_viewers(image, worker, looked)
    labels = label or [""] * len(image)
    groups = _grouped(((image[row], labels[row]), row) for row in range(len(image)))
    known = _grouped(((picture, name), truth) for picture, name, truth in gold)
    found = np.full(len(worker), -1, dtype=np.int64)
    places: list[Place] = []
    viewers, truths = [], []
    for (picture, name), rows in groups.items():
        # By worker and then by place, so that the order of the rows does not matter.
        rows.sort(key=lambda row: (str(worker[row]), codes[row], value[row].tolist()))
        there = looked_at[picture]
        needed = max(1, math.ceil(matching.quorum * len(there) - 1e-9))
        objects = _find_objects(value[rows], codes[rows], near, needed)
        for number, members in enumerate(objects, start=1):
            found[np.array(rows)[members]] = len(places)
            places.append(Place(str(picture), name, number))
        viewers += [there] * len(objects)
        truths += _find_truths(value[rows], objects, known.get((picture, name), []), near)
    n_matched = sum(not math.isnan(truth[0]) for truth in truths)
    return Objects(
        places=places,
        object=found,
        worker=codes,
        worker_ids=worker_ids,
        value=value,
        value_names=SHAPE_NAMES[shape],
        viewers=viewers,
        gold=np.array(truths) if known else None,
        gold_missed=sum(map(len, known.values())) - n_matched,
    )


def _number_viewers(
    image: Sequence[Any], worker: Sequence[Any], looked: Iterable[tuple[Any, Any]]
) -> tuple[Codes, Ids, dict[Any, list[int]]]:
    """Number the workers; return that of every mark, the ids, and who looked at each image."""
    pairs = set(zip(image, worker, strict=True)) | set(looked)
    everyone = [*worker, *(person for _, person in pairs)]
    codes, worker_ids = number_ids(everyone, "worker")
    code_of = dict(zip(everyone, codes.tolist(), strict=True))
    return codes[: len(worker)], worker_ids, _grouped((at, code_of[who]) for at, who in pairs)


def _grouped(pairs: Iterable[tuple[_K, _V]]) -> dict[_K, list[_V]]:
    found: dict[_K, list[_V]] = defaultdict(list)
    for key, item in pairs:
        found[key].append(item)
    return found


def _nearness(shape: Shape, matching: Matching) -> Near:
    """Return a function: similarity of all marks of one list to all of another, 0 below the limit.

    Boxes: area in common over area in all (IoU). Points: 1 / (1 + distance / threshold), which is
    one half at the threshold.
    """
    threshold = matching.distance_threshold
    if shape == "point" and threshold is None:
        raise ConfigError(
            "points are matched by their distance: give distance_threshold "
            "(command line: --distance-threshold), the maximum for two marks of one object"
        )

    def near(mine: Floats, others: Floats) -> Floats:
        if threshold is None or shape == "box":
            found, least = iou(mine, others), matching.iou_threshold
        else:
            distance = np.linalg.norm(mine[:, None, :] - others[None, :, :], axis=2)
            found, least = np.asarray(1 / (1 + distance / threshold)), 0.5
        found[found < least] = 0
        return found

    return near


def _find_truths(
    value: Floats, objects: list[list[int]], known: list[Any], near: Near
) -> list[Floats]:
    """Return the known truth of every object, NaN where there is none."""
    truths = [np.full(value.shape[1], np.nan) for _ in objects]
    if objects and known:
        for i, j in _pairs(np.array(known), _middles(value, objects), near):
            truths[j] = np.array(known[i])
    return truths


def _middles(value: Floats, clusters: list[list[int]]) -> Floats:
    return np.array([np.median(value[members], axis=0) for members in clusters])


def _find_objects(value: Floats, people: Codes, near: Near, needed: int) -> list[list[int]]:
    """Cluster the marks of one image, at most one of each worker; keep those that enough saw.

    An object is the list of its marks. Objects are sorted from left to right.
    """
    marks = _grouped((u, row) for row, u in enumerate(people.tolist()))
    # Those who drew a typical number of marks come first: the rest are matched to theirs.
    usual = float(np.median([len(rows) for rows in marks.values()]))
    order = sorted(marks, key=lambda u: (abs(len(marks[u]) - usual), marks[u][0]))
    clusters: list[list[int]] = []
    now = [[*range(len(people))]]
    for _ in range(_ROUNDS):
        before = now
        for u in order:
            clusters = _assign(marks[u], value, clusters, near)
        _merge(value, people, clusters, near)
        now = sorted(map(sorted, clusters))
        if now == before:
            break
    kept = [members for members in now if len(members) >= needed]
    return [kept[k] for k in np.lexsort(_middles(value, kept).T[::-1])] if kept else []


def _assign(
    rows: list[int], value: Floats, clusters: list[list[int]], near: Near
) -> list[list[int]]:
    """Match one worker's marks to the clusters of the others; a mark that fits none starts one."""
    others = [[row for row in members if row not in rows] for members in clusters]
    others = [members for members in others if members]
    matched = dict(_pairs(value[rows], _middles(value, others), near)) if others else {}
    for i, j in matched.items():
        others[j].append(rows[i])
    return others + [[row] for i, row in enumerate(rows) if i not in matched]


def _merge(value: Floats, people: Codes, clusters: list[list[int]], near: Near) -> None:
    """Join the nearest two clusters without a worker in common, until none are near enough."""
    while True:
        middles = _middles(value, clusters)
        drawers = [set(people[members].tolist()) for members in clusters]
        nearness = np.triu(near(middles, middles), k=1)
        close = np.argwhere(nearness > 0).tolist()
        close.sort(key=lambda pair: -nearness[pair[0], pair[1]])
        best = next((pair for pair in close if not drawers[pair[0]] & drawers[pair[1]]), None)
        if best is None:
            return
        clusters[best[0]] += clusters.pop(best[1])


def _pairs(mine: Floats, others: Floats, near: Near) -> list[tuple[int, int]]:
    """Match two lists of marks one to one, for the largest similarity in all."""
    from scipy.optimize import linear_sum_assignment

    nearness = near(mine, others)
    first, second = linear_sum_assignment(nearness, maximize=True)
    matched = zip(first.tolist(), second.tolist(), strict=True)
    return [(i, j) for i, j in matched if nearness[i, j] > 0]


def iou(mine: Floats, others: Floats) -> Floats:
    """Intersection over union of every box (rows) with every other box (columns)."""
    common = np.ones((len(mine), len(others)))
    for low, high in ((0, 2), (1, 3)):  # coordinate by coordinate: no array of three dimensions
        reach = np.minimum.outer(mine[:, high], others[:, high])
        reach -= np.maximum.outer(mine[:, low], others[:, low])
        common *= np.maximum(reach, 0, out=reach)
    area, other = (np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (mine, others))
    union = area[:, None] + other[None, :] - common
    return np.asarray(common / np.maximum(union, np.finfo(np.float64).tiny))


def _refuse_inside_out(value: Floats, image: Sequence[Any]) -> None:
    wrong = np.flatnonzero((value[:, :2] > value[:, 2:]).any(axis=1))
    if wrong.size:
        row = int(wrong[0])
        raise DataError(
            f"box {row + 1}, of {image[row]!r}, ends before it begins: expected xmin, ymin, xmax, "
            f"ymax, got {value[row].tolist()} ({wrong.size} such boxes)"
        )
