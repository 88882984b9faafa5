"""From marks to objects: which boxes or points of an image are the same thing.

Several workers draw what they see in an image, each in an order of their own. Before anything can
be averaged one must know which marks belong together. A worker draws an object once at most, so
the marks of a worker are matched to the objects by an optimal assignment, worker after worker, and
again until nothing changes.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from voxpop.arrays import Codes, Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.tables import number_ids
from voxpop.errors import ConfigError, DataError, require

Shape = Literal["box", "point"]
SHAPE_NAMES: dict[str, tuple[str, ...]] = {
    "box": ("xmin", "ymin", "xmax", "ymax"),
    "point": ("x", "y"),
}
# Rounds of matching every worker again; most images need two, and a swing must end.
_ROUNDS = 10


@dataclass(frozen=True, kw_only=True)
class Matching:
    """When two marks are of the same object, and how many must see it.

    Parameters
    ----------
    iou_threshold
        Least overlap of a box with the box of the others: area in common over area in all.
    distance_threshold
        Farthest distance of a point from that of the others, in the unit of the coordinates.
    quorum
        Least share of those who looked at the image that must have marked an object.
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
        """The place as the id of a task."""
        return object_id(self)


def object_id(place: Place) -> str:
    """Spell the task id of an object: ``image#label#number``, or ``image#number`` unlabelled.

    A ``#`` or ``%`` of the image or label is spelled ``%23`` or ``%25``, so that
    :func:`parse_object_id` finds its way back.
    """
    parts = [place.image, *([place.label] if place.label else []), str(place.number)]
    return "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)


def parse_object_id(text: str) -> Place | None:
    """Undo :func:`object_id`; None for an id of another kind."""
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
    seen_by
        How many workers marked each object.
    shown_to
        How many looked at its image.
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
    seen_by: Index
    shown_to: Index
    missed: Index
    gold: Floats | None = None
    gold_missed: int = 0

    @property
    def task_ids(self) -> list[str]:
        """The ids of the objects as tasks."""
        return [place.task_id for place in self.places]

    def workers(self) -> dict[str, Any]:
        """Columns: worker, marks, found (of objects), missed (objects), extra (marks of none)."""
        n = len(self.worker_ids)
        found = np.bincount(self.worker[self.object >= 0], minlength=n)
        marks = np.bincount(self.worker, minlength=n)
        return {
            "worker": self.worker_ids,
            "marks": marks,
            "found": found,
            "missed": self.missed,
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
        ids = np.empty(len(self.places), dtype=np.object_)
        ids[:] = self.task_ids
        return Answers.from_codes(
            self.object[kept].astype(np.int32),
            ids,
            present.astype(np.int32),
            np.asarray(self.worker_ids)[worker],
            self.value[kept],
            value_names=self.value_names,
            gold=self.gold,
        )

    def summary(self) -> str:
        """Say in one line how it went."""
        extra = int((self.object < 0).sum())
        gold = f"; {self.gold_missed} known objects were not found" if self.gold_missed else ""
        return (
            f"matched {len(self.object)} marks into {len(self.places)} objects: {extra} marks are "
            f"of no object, {int(self.missed.sum())} times an object was missed{gold}"
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
        Pairs of image and worker who saw it, for those who marked nothing there; whoever made a
        mark has looked.
    gold
        Known objects: image, label, value.
    """
    if shape == "point" and matching.distance_threshold is None:
        raise ConfigError(
            "points are matched by their distance: give distance_threshold "
            "(command line: --distance-threshold), the farthest two marks of one object can be"
        )
    value = np.asarray(value, dtype=np.float64).reshape(len(worker), len(SHAPE_NAMES[shape]))
    if shape == "box":
        _refuse_inside_out(value, image)
    pairs = set(zip(image, worker, strict=True)) | set(looked)
    everyone = [*worker, *(person for _, person in pairs)]
    codes, worker_ids = number_ids(everyone, "worker")
    code_of = dict(zip(everyone, codes.tolist(), strict=True))
    viewers: dict[Any, set[int]] = defaultdict(set)
    for picture, person in pairs:
        viewers[picture].add(code_of[person])
    groups: dict[tuple[Any, str], list[int]] = defaultdict(list)
    for row, picture in enumerate(image):
        groups[picture, label[row] if label else ""].append(row)
    known: dict[tuple[Any, str], list[Sequence[float]]] = defaultdict(list)
    for picture, name, truth in gold:
        known[picture, name].append(truth)

    by_name = {u: (str(worker_ids[u]), u) for u in range(len(worker_ids))}
    found = np.full(len(worker), -1, dtype=np.int64)
    places: list[Place] = []
    seen_by, shown_to, truths = [], [], []
    missed = np.zeros(len(worker_ids), dtype=np.int64)
    gold_missed = sum(len(listed) for key, listed in known.items() if key not in groups)
    for (picture, name), rows in groups.items():
        # By worker and then by place, so that the order of the rows does not matter.
        rows.sort(key=lambda row: (by_name[int(codes[row])], value[row].tolist()))
        people = codes[rows]
        clusters = _cluster(value[rows], people, shape, matching)
        needed = max(1, math.ceil(matching.quorum * len(viewers[picture]) - 1e-9))
        kept = [members for members in clusters if len(members) >= needed]
        middles = np.array([np.median(value[rows][members], axis=0) for members in kept])
        order = np.lexsort(middles.T[::-1]) if kept else np.empty(0, dtype=np.int64)
        listed = known.get((picture, name), [])
        given = _give_gold(middles, np.array(listed), shape, matching) if listed else {}
        gold_missed += len(listed) - len(given)
        for number, position in enumerate(order.tolist(), start=1):
            members = kept[position]
            found[np.array(rows)[members]] = len(places)
            places.append(Place(str(picture), name, number))
            seen_by.append(len(members))
            shown_to.append(len(viewers[picture]))
            truths.append(given.get(position))
            for u in viewers[picture] - set(people[members].tolist()):
                missed[u] += 1
    nothing = np.full(value.shape[1], np.nan)
    return Objects(
        places=places,
        object=found,
        worker=codes[: len(worker)],
        worker_ids=worker_ids,
        value=value,
        value_names=SHAPE_NAMES[shape],
        seen_by=np.array(seen_by, dtype=np.int64),
        shown_to=np.array(shown_to, dtype=np.int64),
        missed=missed,
        gold=np.array([nothing if t is None else t for t in truths]) if known else None,
        gold_missed=gold_missed,
    )


def _cluster(value: Floats, people: Codes, shape: Shape, matching: Matching) -> list[list[int]]:
    """Sort the marks of one image into clusters with one mark of a worker at most."""
    marks: dict[int, list[int]] = defaultdict(list)
    for row, u in enumerate(people.tolist()):
        marks[u].append(row)
    # Those who drew a usual number of marks come first: the rest are matched to what they found.
    usual = float(np.median([len(rows) for rows in marks.values()]))
    order = sorted(marks, key=lambda u: (abs(len(marks[u]) - usual), marks[u][0]))
    cluster = np.full(len(people), -1, dtype=np.int64)
    for _ in range(_ROUNDS):
        before = _as_sets(cluster)
        for u in order:
            cluster[marks[u]] = -1
            _assign(marks[u], value, cluster, shape, matching)
        _merge(value, people, cluster, shape, matching)
        if _as_sets(cluster) == before:
            break
    return [np.flatnonzero(cluster == c).tolist() for c in np.unique(cluster)]


def _as_sets(cluster: Index) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(cluster == c).tolist()) for c in np.unique(cluster)}


def _assign(
    rows: list[int], value: Floats, cluster: Index, shape: Shape, matching: Matching
) -> None:
    """Match one worker's marks to the clusters of the others; what fits none begins its own."""
    present = [c for c in np.unique(cluster).tolist() if c >= 0]
    if present:
        middles = np.array([np.median(value[cluster == c], axis=0) for c in present])
        for i, j in _pairs(value[rows], middles, shape, matching):
            cluster[rows[i]] = present[j]
    fresh = max(present, default=-1) + 1
    for row in rows:
        if cluster[row] < 0:
            cluster[row] = fresh
            fresh += 1


def _merge(value: Floats, people: Codes, cluster: Index, shape: Shape, matching: Matching) -> None:
    """Join the nearest two clusters without a worker in common, until none are near enough."""
    while True:
        present = np.unique(cluster)
        middles = np.array([np.median(value[cluster == c], axis=0) for c in present])
        drawers = [set(people[cluster == c].tolist()) for c in present]
        near = np.triu(similarity(middles, middles, shape, matching), k=1)
        close = np.argwhere(near >= _least(shape, matching)).tolist()
        close.sort(key=lambda pair: -near[pair[0], pair[1]])
        best = next((pair for pair in close if not drawers[pair[0]] & drawers[pair[1]]), None)
        if best is None:
            return
        cluster[cluster == present[best[1]]] = present[best[0]]


def _give_gold(
    middles: Floats, gold: Floats, shape: Shape, matching: Matching
) -> dict[int, Floats]:
    if not len(middles):
        return {}
    return {j: gold[i] for i, j in _pairs(gold, middles, shape, matching)}


def _pairs(mine: Floats, others: Floats, shape: Shape, matching: Matching) -> list[tuple[int, int]]:
    """Match two lists of marks one to one, for the largest similarity in all."""
    from scipy.optimize import linear_sum_assignment

    near = similarity(mine, others, shape, matching)
    near[near < _least(shape, matching)] = 0
    first, second = linear_sum_assignment(near, maximize=True)
    return [(i, j) for i, j in zip(first.tolist(), second.tolist(), strict=True) if near[i, j] > 0]


def _least(shape: Shape, matching: Matching) -> float:
    return matching.iou_threshold if shape == "box" else 0.5


def similarity(mine: Floats, others: Floats, shape: Shape, matching: Matching) -> Floats:
    """Say how near every mark of one list is to every one of another, from 0 to 1.

    Boxes: area in common over area in all (IoU). Points: 1 / (1 + distance / threshold), which is
    one half at the threshold.
    """
    if shape == "box":
        return iou(mine, others)
    assert matching.distance_threshold is not None
    distance = np.linalg.norm(mine[:, None, :] - others[None, :, :], axis=2)
    return np.asarray(1 / (1 + distance / matching.distance_threshold))


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
            f"ymax, got {value[row].tolist()}; {wrong.size} boxes are like it"
        )


def several_in_one(image: Sequence[Any], worker: Sequence[Any], label: Sequence[str]) -> bool:
    """Tell whether a worker made two marks with one label in one image."""
    names = label or [""] * len(image)
    return any(n > 1 for n in Counter(zip(image, worker, names, strict=True)).values())
