"""Boxes of a detector: targets of its anchors, and average precision, in numpy.

A box is (xmin, ymin, xmax, ymax) in pixels of the image; categories are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from voxpop.arrays import Floats, Index
from voxpop.data.objects import iou

# SSD divides offsets by these, so that all four are of about unit size.
_CENTRE, _SIZE = 0.1, 0.2
# An anchor is matched to a box at this IoU, as in SSD.
_MATCH_IOU = 0.5
# Minimum width and height of a box, in pixels: offsets take their logarithm.
_MIN_SIZE = 1.0
THRESHOLDS = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
"""IoUs at which a detection counts as correct: from loose, as in PASCAL VOC, to tight."""


@dataclass(frozen=True, kw_only=True)
class ImageObjects:
    """The objects of one image: their boxes, categories and, if detected, scores."""

    box: Floats
    category: Index
    score: Floats

    def of(self, category: int) -> tuple[Floats, Floats]:
        """Boxes and scores of one category."""
        some = self.category == category
        return self.box[some], self.score[some]


def labelled(box: Floats, category: Index) -> ImageObjects:
    """Labelled objects, all with score 1."""
    return ImageObjects(box=box, category=category, score=np.ones(len(category)))


def boxes_from_corners(corners: Floats, width: float, height: float) -> Floats:
    """Make boxes of any two opposite corners: ordered, inside the image, of some extent.

    Noise may exchange the corners of a small object, or push one out of the image.
    """
    low = np.minimum(corners[:, :2], corners[:, 2:])
    high = np.maximum(corners[:, :2], corners[:, 2:])
    size = np.array([width, height])
    low = np.clip(low, 0, size - _MIN_SIZE)
    return np.hstack([low, np.clip(high, low + _MIN_SIZE, size)])


# ---- Targets of the anchors -------------------------------------------------------------------


def encode(box: Floats, anchor: Floats) -> Floats:
    """Offsets of a box from its anchor: shift of the centre, logarithm of the size."""
    size, anchor_size = box[:, 2:] - box[:, :2], anchor[:, 2:] - anchor[:, :2]
    shift = (box[:, :2] + box[:, 2:] - anchor[:, :2] - anchor[:, 2:]) / 2 / anchor_size
    return np.hstack([shift / _CENTRE, np.log(size / anchor_size) / _SIZE])


def decode(offset: Floats, anchor: Floats) -> Floats:
    """Undo :func:`encode`."""
    anchor_size = anchor[:, 2:] - anchor[:, :2]
    centre = (anchor[:, :2] + anchor[:, 2:]) / 2 + _CENTRE * offset[:, :2] * anchor_size
    half = np.exp(_SIZE * offset[:, 2:]) * anchor_size / 2
    return np.hstack([centre - half, centre + half])


def match_anchors(box: Floats, anchor: Floats) -> Index:
    """Box that each anchor is matched to, -1 for background.

    An anchor gets the box of highest IoU, if that is at least one half; and every box gets the
    anchor of highest IoU, however low.
    """
    if not len(box):
        return np.full(len(anchor), -1, dtype=np.int64)
    shared = iou(box, anchor)
    matched = np.where(shared.max(axis=0) >= _MATCH_IOU, shared.argmax(axis=0), -1)
    matched[shared.argmax(axis=1)] = np.arange(len(box))
    return matched.astype(np.int64)


# ---- Detections and their scores ----------------------------------------------------------------


def non_maximum_suppression(box: Floats, score: Floats, max_iou: float) -> Index:
    """Indices of the boxes to keep, best first: none has a higher IoU with a better one kept."""
    order = np.argsort(-score, kind="stable")
    close = iou(box[order], box[order]) > max_iou
    dropped = np.zeros(len(order), dtype=bool)
    for place in range(len(order)):
        if not dropped[place]:
            dropped[place + 1 :] |= close[place, place + 1 :]
    return np.asarray(order[~dropped], dtype=np.int64)


def average_precision(correct: Sequence[bool], n_true: int) -> float:
    """Area under precision over recall, for detections in descending order of score.

    Precision at a recall is the best one at that recall or beyond, as in PASCAL VOC since 2010.
    """
    hits = np.cumsum(np.asarray(correct, dtype=np.float64))
    precision = hits / np.arange(1, len(hits) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(best[np.asarray(correct, dtype=bool)].sum() / n_true)


def match_detections(
    found: Sequence[ImageObjects], truth: Sequence[ImageObjects], category: int
) -> pd.DataFrame:
    """Image, true object and IoU of each detection of a category, by descending score.

    A detection claims the true object that it overlaps most; it has IoU 0 where there is none.
    """
    parts = []
    for image, (some, true) in enumerate(zip(found, truth, strict=True)):
        (box, score), (true_box, _) = some.of(category), true.of(category)
        shared = np.hstack([np.zeros((len(box), 1)), iou(box, true_box)])
        about = {"image": image, "object": shared.argmax(axis=1), "iou": shared.max(axis=1)}
        parts.append(pd.DataFrame({"score": score, **about}))
    claims = pd.concat(parts, ignore_index=True)
    return claims.sort_values("score", ascending=False, kind="stable")


def detection_scores(
    found: Sequence[ImageObjects], truth: Sequence[ImageObjects], categories: Mapping[int, str]
) -> dict[str, float]:
    """Mean average precision at IoU 0.5, at 0.75 and over all thresholds, and the mean overlap.

    A detection is correct if its IoU reaches the threshold and no such detection with a higher
    score has claimed the same object (the rule of PASCAL VOC). ``overlap`` is the mean IoU of the
    detections that are correct at 0.5, the paper's second measure. Categories without a true object
    are left out.
    """
    precision: dict[str, list[float]] = {}
    shares: list[float] = []
    for category, name in categories.items():
        n_true = sum(int((objects.category == category).sum()) for objects in truth)
        if not n_true:
            continue
        claims = match_detections(found, truth, category)
        precision[name] = []
        for threshold in THRESHOLDS:
            first = claims[claims["iou"] >= threshold].drop_duplicates(["image", "object"])
            correct = claims.index.isin(first.index)
            precision[name].append(average_precision(correct.tolist(), n_true))
            if threshold == 0.5:
                shares += first["iou"].tolist()
    table = np.array(list(precision.values()))
    mean = dict(zip(THRESHOLDS, table.mean(axis=0).tolist(), strict=True))
    scores = {"map50": mean[0.5], "map75": mean[0.75], "map": float(table.mean())}
    scores["overlap"] = float(np.mean(shares)) if shares else 0.0
    return scores | {f"ap50_{name}": row[0] for name, row in precision.items()}
