"""From raw boxes to objects, end to end: against experts, beside the mean and what others do.

python -m benchmarks.objects --data ../shared/data
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import voxpop as vp
from benchmarks.workloads import ROOT, parse, print_head, print_table
from voxpop.data.objects import iou

SIDES = ["xmin", "ymin", "xmax", "ymax"]
# Every found box of an image, image by image.
Found = dict[str, np.ndarray]


class Crowd:
    """The raw boxes of every worker, who looked at what, and the experts' boxes."""

    def __init__(self, folder: Path) -> None:
        def table(name: str) -> pd.DataFrame:
            return pd.read_csv(folder / f"{name}.csv.gz", dtype={"image": str})

        self.raw, self.looked = table("raw_boxes"), table("raw_responses")
        truth = table("truth")
        sizes = table("raw_gold_images")
        self.size = (float(sizes["width"].iloc[0]), float(sizes["height"].iloc[0]))
        boxed = {str(image): rows[SIDES].to_numpy() for image, rows in truth.groupby("image")}
        # Of the images without a box the experts say that there is nothing.
        self.truth: Found = {i: boxed.get(i, np.empty((0, 4))) for i in sizes["image"]}
        self.viewers = self.looked.groupby("image")["worker"].nunique().to_dict()
        self.by_image = {str(i): rows for i, rows in self.raw.groupby("image")}


def ours(crowd: Crowd, matching: vp.Matching, method: str) -> Found:
    """Match into objects, then aggregate."""
    objects = vp.match_objects(
        crowd.raw["image"].tolist(),
        crowd.raw["worker"].tolist(),
        crowd.raw[SIDES].to_numpy(),
        "box",
        matching,
        looked=zip(crowd.looked["image"], crowd.looked["worker"], strict=True),
    )
    result = vp.aggregate(objects.answers(), method)
    return _grouped([place.image for place in objects.places], result.estimate)


def dbscan(crowd: Crowd, matching: vp.Matching) -> Found:
    """Cluster the boxes of an image by 1 - IoU, and take the mean of a cluster.

    Chains of neighbours within the threshold, half of the viewers at least: what the aggregation
    scripts of citizen science do. With this distance DBSCAN is connected components of core boxes.
    """
    from sklearn.cluster import DBSCAN

    found: Found = {}
    for image, rows in crowd.by_image.items():
        boxes = rows[SIDES].to_numpy()
        needed = max(1, int(np.ceil(matching.quorum * crowd.viewers[image])))
        clusters = DBSCAN(
            eps=1 - matching.iou_threshold, min_samples=needed, metric="precomputed"
        ).fit_predict(1 - iou(boxes, boxes))
        kept = [boxes[clusters == c].mean(axis=0) for c in range(clusters.max() + 1)]
        found[image] = np.array(kept).reshape(-1, 4)
    return found


def fusion(crowd: Crowd, matching: vp.Matching) -> Found:
    """Weighted boxes fusion (Solovyev et al. 2021), every worker a detector of score one."""
    from ensemble_boxes import weighted_boxes_fusion

    scale = np.array([*crowd.size, *crowd.size])
    found: Found = {}
    for image, rows in crowd.by_image.items():
        n = crowd.viewers[image]
        lists = [np.clip(r[SIDES].to_numpy() / scale, 0, 1) for _, r in rows.groupby("worker")]
        lists += [np.empty((0, 4))] * (n - len(lists))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it leaves out boxes without an area, and says so
            boxes, scores, _ = weighted_boxes_fusion(
                [part.tolist() for part in lists],
                [[1.0] * len(part) for part in lists],
                [[0] * len(part) for part in lists],
                iou_thr=matching.iou_threshold,
            )
        # A fused score is the share of workers in the cluster.
        found[image] = (boxes * scale)[scores >= matching.quorum - 1e-9].reshape(-1, 4)
    return found


def _grouped(images: list[str], boxes: np.ndarray) -> Found:
    found: dict[str, list[np.ndarray]] = {}
    for image, box in zip(images, boxes, strict=True):
        found.setdefault(image, []).append(box)
    return {image: np.array(listed) for image, listed in found.items()}


def judge(found: Found, truth: Found, threshold: float = 0.5) -> tuple[float, float, float, float]:
    """Precision, recall, F1 and mean IoU of the found, each expert's box matched once at most."""
    from scipy.optimize import linear_sum_assignment

    right, n_found, overlaps = 0, 0, []
    for image, boxes in truth.items():
        mine = found.get(image, np.empty((0, 4)))
        n_found += len(mine)
        near = iou(mine, boxes)
        near[near < threshold] = 0
        for i, j in zip(*linear_sum_assignment(near, maximize=True), strict=True):
            if near[i, j] > 0:
                right += 1
                overlaps.append(near[i, j])
    precision, recall = right / max(n_found, 1), right / sum(map(len, truth.values()))
    f1 = 2 * precision * recall / max(precision + recall, 1e-12)
    return precision, recall, f1, float(np.mean(overlaps))


def main() -> None:
    """Print the table for the default thresholds, and how much they matter."""
    options = parse(__doc__, ("--data", {"type": Path, "default": ROOT.parent / "shared/data"}))
    if not (options.data / "pedestrian_boxes").exists():
        sys.exit(f"{options.data}: has no pedestrian_boxes; name the folder with --data")
    crowd = Crowd(options.data / "pedestrian_boxes")
    print_head("Objects from raw boxes", ("scikit-learn", "ensemble-boxes"))
    n = sum(map(len, crowd.truth.values()))
    print(
        f"pedestrian_boxes: {len(crowd.raw):,} raw boxes of {crowd.raw['worker'].nunique()} workers"
        f" in {len(crowd.viewers):,} images, seven to an image; judged in the {len(crowd.truth)} "
        f"that experts boxed ({n:,} boxes; found is IoU of at least 0.5). Whoever drew nothing has "
        "looked too. Thresholds are the defaults for all, IoU 0.5 and quorum 0.5, not fitted.\n"
    )
    matching = vp.Matching()
    ways: dict[str, Callable[[], Found]] = {
        "matched, mean of the boxes": lambda: ours(crowd, matching, "average"),
        "matched, median": lambda: ours(crowd, matching, "median"),
        "matched, voxpop (bi)": lambda: ours(crowd, matching, "auto"),
        "DBSCAN on 1 - IoU, mean": lambda: dbscan(crowd, matching),
        "weighted boxes fusion": lambda: fusion(crowd, matching),
    }
    rows = []
    for name, way in ways.items():
        start = time.perf_counter()
        try:
            found = way()
        except ImportError as missing:
            print(f"{name}: not measured, {missing.name} is not installed\n")
            continue
        rows.append([name, *judge(found, crowd.truth), time.perf_counter() - start])
    print_table(["way", "precision", "recall", "F1", "mean IoU", "seconds"], rows)
    if options.quick:
        return
    rows = []
    for threshold in (0.3, 0.5, 0.7):
        for quorum in (0.3, 0.5, 0.7):
            other = vp.Matching(iou_threshold=threshold, quorum=quorum)
            for name, found in (
                ("matched, voxpop", ours(crowd, other, "auto")),
                ("fusion", fusion(crowd, other)),
            ):
                rows.append([name, threshold, quorum, *judge(found, crowd.truth)])
    print("How much the thresholds matter:\n")
    print_table(["way", "IoU", "quorum", "precision", "recall", "F1", "mean IoU"], rows)


if __name__ == "__main__":
    main()
