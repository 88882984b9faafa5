"""Boxes of a detector: anchors, their targets and how found boxes are scored, in numpy alone.

A box is (xmin, ymin, xmax, ymax) in pixels of the picture; kinds of objects are counted from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from voxpop.arrays import Floats, Index

# What SSD divides offsets by, so that all four are of about unit size.
_CENTRE, _SIZE = 0.1, 0.2
# An anchor stands for a box that it overlaps by half, as in SSD.
_STANDS_FOR = 0.5
# Least width and height of a box, in pixels: offsets take their logarithm.
_LEAST = 1.0
THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""Overlaps at which a found box counts as right: from loose, as in PASCAL VOC, to tight."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The objects of one picture: their boxes, kinds and, if a detector found them, scores."""

    box: Floats
    kind: Index
    score: Floats

    def of(self, kind: int) -> tuple[Floats, Floats]:
        """Boxes and scores of one kind."""
        some = self.kind == kind
        return self.box[some], self.score[some]


def labelled(box: Floats, kind: Index) -> Picture:
    """Objects that somebody labelled, all with the same score."""
    return Picture(box=box, kind=kind, score=np.ones(len(kind)))


def overlap(box: Floats, other: Floats) -> Floats:
    """Intersection over union of each box (rows) and each other box (columns).

    The same as ``objects.iou``, which cannot be had without the readers of tables.
    """
    common = np.ones((len(box), len(other)))
    for low, high in ((0, 2), (1, 3)):
        reach = np.minimum.outer(box[:, high], other[:, high])
        reach -= np.maximum.outer(box[:, low], other[:, low])
        common *= np.maximum(reach, 0, out=reach)
    union = np.add.outer(_area(box), _area(other)) - common
    return np.asarray(common / np.maximum(union, 1e-9))


def _area(box: Floats) -> Floats:
    return np.asarray((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]))


def tidy(corners: Floats, width: float, height: float) -> Floats:
    """Make boxes of any two opposite corners: ordered, inside the picture, of some extent.

    Noise may exchange the corners of a small object, or push one out of the picture.
    """
    low = np.minimum(corners[:, :2], corners[:, 2:])
    high = np.maximum(corners[:, :2], corners[:, 2:])
    size = np.array([width, height])
    low = np.clip(low, 0, size - _LEAST)
    return np.hstack([low, np.clip(high, low + _LEAST, size)])


# ---- Anchors and targets ----------------------------------------------------------------------


def make_anchors(grids: Sequence[tuple[int, int, int]], shapes: Sequence[Floats]) -> Floats:
    """Boxes of the given shapes (width, height) at the centre of each cell of each grid.

    A grid is (rows, columns, stride in pixels); anchors lie grid by grid, row by row, cell by
    cell, shape by shape, which is the order in which the network answers.
    """
    parts = []
    for (rows, columns, stride), some in zip(grids, shapes, strict=True):
        y, x = np.mgrid[:rows, :columns]
        centre = (np.stack([x, y], axis=2).reshape(-1, 1, 2) + 0.5) * stride
        parts.append(np.concatenate([centre - some / 2, centre + some / 2], axis=2).reshape(-1, 4))
    return np.concatenate(parts)


def encode(box: Floats, anchor: Floats) -> Floats:
    """Where a box lies as seen from its anchor: shift of the centre, logarithm of the size."""
    size, anchor_size = box[:, 2:] - box[:, :2], anchor[:, 2:] - anchor[:, :2]
    shift = (box[:, :2] + box[:, 2:] - anchor[:, :2] - anchor[:, 2:]) / 2 / anchor_size
    return np.hstack([shift / _CENTRE, np.log(size / anchor_size) / _SIZE])


def decode(offset: Floats, anchor: Floats) -> Floats:
    """The box that ``encode`` made these offsets of."""
    anchor_size = anchor[:, 2:] - anchor[:, :2]
    centre = (anchor[:, :2] + anchor[:, 2:]) / 2 + _CENTRE * offset[:, :2] * anchor_size
    half = np.exp(_SIZE * offset[:, 2:]) * anchor_size / 2
    return np.hstack([centre - half, centre + half])


def match(box: Floats, anchor: Floats) -> Index:
    """Box that each anchor stands for, -1 for background.

    An anchor stands for the box that it overlaps most, if by half; and every box has the anchor
    that overlaps it most, however little.
    """
    if not len(box):
        return np.full(len(anchor), -1, dtype=np.int64)
    shared = overlap(box, anchor)
    owner = shared.argmax(axis=0)
    found = np.where(shared.max(axis=0) >= _STANDS_FOR, owner, -1)
    found[shared.argmax(axis=1)] = np.arange(len(box))
    return found.astype(np.int64)


# ---- What was found, and how good it is ---------------------------------------------------------


def suppress(box: Floats, score: Floats, most_shared: float) -> Index:
    """Places of the boxes to keep, best first: none shares more than that with a better one."""
    order = np.argsort(-score, kind="stable")
    close = overlap(box[order], box[order]) > most_shared
    dropped = np.zeros(len(order), dtype=bool)
    for place in range(len(order)):
        if not dropped[place]:
            dropped[place + 1 :] |= close[place, place + 1 :]
    return np.asarray(order[~dropped], dtype=np.int64)


def average_precision(right: Sequence[bool], n_true: int) -> float:
    """Area under precision over recall, for found objects from the surest to the least sure.

    Precision at a recall is the best one at that recall or beyond, as in PASCAL VOC since 2010.
    """
    hits = np.cumsum(np.asarray(right, dtype=np.float64))
    precision = hits / np.arange(1, len(hits) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(best[np.asarray(right, dtype=bool)].sum() / n_true)


def judge_found(
    found: Sequence[Picture], truth: Sequence[Picture], kind: int, threshold: float
) -> tuple[list[bool], list[float]]:
    """Whether each found object of a kind is right, from the surest to the least, and its overlap.

    It is right if it shares enough with the object it shares most with, and no surer one has
    claimed that object (the rule of PASCAL VOC).
    """
    claims: list[tuple[float, int, int, float]] = []  # score, picture, object, overlap
    for number, (some, true) in enumerate(zip(found, truth, strict=True)):
        (box, score), (true_box, _) = some.of(kind), true.of(kind)
        if not len(true_box):
            claims += [(float(s), number, -1, 0.0) for s in score]
            continue
        shared = overlap(box, true_box)
        for s, row in zip(score.tolist(), shared, strict=True):
            claims.append((s, number, int(row.argmax()), float(row.max())))
    claims.sort(key=lambda claim: -claim[0])
    taken: set[tuple[int, int]] = set()
    right = []
    for _, number, target, share in claims:
        good = share >= threshold and (number, target) not in taken
        right.append(good)
        if good:
            taken.add((number, target))
    return right, [share for *_, share in claims]


def detection_scores(
    found: Sequence[Picture], truth: Sequence[Picture], kinds: Mapping[int, str]
) -> dict[str, float]:
    """Mean average precision at overlaps of 0.5, 0.75 and over all thresholds; the overlap itself.

    ``overlap`` is the mean overlap of the found objects that are right at 0.5, the paper's second
    measure. Kinds of which there is no true object are left out.
    """
    n_true = {kind: sum(int((p.kind == kind).sum()) for p in truth) for kind in kinds}
    there = [kind for kind in kinds if n_true[kind]]
    precision = np.zeros((len(there), len(THRESHOLDS)))
    shares: list[float] = []
    for row, kind in enumerate(there):
        for column, threshold in enumerate(THRESHOLDS):
            right, share = judge_found(found, truth, kind, threshold)
            precision[row, column] = average_precision(right, n_true[kind])
            if threshold == 0.5:
                shares += [s for s, good in zip(share, right, strict=True) if good]
    at = dict(zip(THRESHOLDS, precision.T, strict=True))
    scores = {
        "map50": float(at[0.5].mean()),
        "map75": float(at[0.75].mean()),
        "map": float(precision.mean()),
        "overlap": float(np.mean(shares)) if shares else 0.0,
    }
    found_of = zip(there, at[0.5].tolist(), strict=True)
    return scores | {f"ap50_{kinds[kind]}": score for kind, score in found_of}
