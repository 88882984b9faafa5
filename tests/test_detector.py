"""The detector of table 3: boxes and average precision in numpy, the network where torch is."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxpop import experiments
from voxpop.errors import ConfigError, DataError
from voxpop.experiments import QUICK, boxes, cells, detector, reproduce
from voxpop.experiments.boxes import Picture, labelled
from voxpop.experiments.claims import judge

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
KINDS = {0: "disc", 1: "square"}
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install 'voxpop[detect]'"
)


def draw_boxes(number: int, rng: np.random.Generator, size: float = 100.0) -> np.ndarray:
    low = rng.uniform(0, size, (number, 2))
    return np.hstack([low, low + rng.uniform(2, size / 2, (number, 2))])


def share(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union by the textbook."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    common = max(width, 0.0) * max(height, 0.0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return float(common / (sum(areas) - common))


@given(st.integers(0, 1000), st.integers(0, 6), st.integers(0, 6))
def test_overlap_is_intersection_over_union(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = draw_boxes(n, rng), draw_boxes(m, rng)
    expected = np.array([[share(x, y) for y in b] for x in a]).reshape(n, m)
    np.testing.assert_allclose(boxes.overlap(a, b), expected, atol=1e-12)
    np.testing.assert_allclose(boxes.overlap(a, a).diagonal(), 1)


@given(st.integers(0, 1000))
def test_offsets_lead_back_to_the_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box, anchor = draw_boxes(20, rng), draw_boxes(20, rng)
    np.testing.assert_allclose(boxes.decode(boxes.encode(box, anchor), anchor), box, atol=1e-9)
    np.testing.assert_allclose(boxes.encode(box, box), 0, atol=1e-12)


@given(st.integers(0, 1000), st.integers(0, 8))
def test_every_box_has_an_anchor_and_every_anchor_its_best_box(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    box, anchor = draw_boxes(n, rng), detector.anchors_of(64, 96)
    owner = boxes.match(box, anchor)
    shared = np.array([[share(b, a) for a in anchor] for b in box]).reshape(n, len(anchor))
    best_anchor = set(shared.argmax(axis=1).tolist()) if n else set()
    for place, found in enumerate(owner):
        most = shared[:, place].max(initial=0.0)
        if place in best_anchor:
            assert found >= 0
        elif most >= 0.5:
            assert shared[found, place] == pytest.approx(most)
        else:
            assert found == -1
    # Two boxes may share their best anchor: then one of them has it.
    assert len(set(owner.tolist()) - {-1}) >= len(best_anchor)


def test_anchors_lie_as_the_network_answers() -> None:
    """Grid by grid, row by row: the first are at the first cell, the next one stride to the right."""
    anchor = detector.anchors_of(64, 96)
    n_shapes = 4
    centre = (anchor[:, :2] + anchor[:, 2:]) / 2
    assert len(anchor) == n_shapes * (8 * 12 + 4 * 6 + 2 * 3)
    np.testing.assert_allclose(centre[:n_shapes], 4)
    np.testing.assert_allclose(centre[n_shapes : 2 * n_shapes], [[12, 4]] * n_shapes)
    np.testing.assert_allclose(centre[12 * n_shapes], [4, 12])
    np.testing.assert_allclose(centre[-1], [80, 48])


@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_what_is_kept_shares_little_and_what_is_dropped_was_covered(seed: int, most: float) -> None:
    rng = np.random.default_rng(seed)
    box, score = draw_boxes(12, rng), rng.random(12)
    kept = boxes.suppress(box, score, most).tolist()
    assert all(score[a] >= score[b] for a, b in pairwise(kept))
    assert all(share(box[a], box[b]) <= most for a in kept for b in kept if a != b)
    for out in set(range(12)) - set(kept):
        assert any(score[a] >= score[out] and share(box[a], box[out]) > most for a in kept)


@given(st.integers(0, 1000))
def test_corners_become_boxes_inside_the_picture(seed: int) -> None:
    rng = np.random.default_rng(seed)
    box = boxes.tidy(rng.uniform(-50, 150, (20, 4)), 100, 80)
    assert (box[:, 2:] - box[:, :2] >= 1 - 1e-9).all()
    assert box.min() >= 0
    assert box[:, 2].max() <= 100
    assert box[:, 3].max() <= 80
    good = draw_boxes(20, rng, 40.0)
    np.testing.assert_array_equal(boxes.tidy(good, 100, 80), good)
    np.testing.assert_array_equal(boxes.tidy(good[:, [2, 3, 0, 1]], 100, 80), good)


# ---- Average precision ------------------------------------------------------------------------


def test_average_precision_by_hand() -> None:
    """Right, wrong, right, of three objects: precision 1 to recall 1/3, then 2/3 to 2/3."""
    assert boxes.average_precision([True, False, True], 3) == pytest.approx((1 + 2 / 3) / 3)
    assert boxes.average_precision([], 3) == 0
    assert boxes.average_precision([True, True], 2) == 1


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 5))
def test_average_precision_is_the_area_under_the_curve(right: list[bool], missed: int) -> None:
    """Over many recalls, the best precision among all cuts of the list that reach the recall."""
    n_true = max(sum(right) + missed, 1)
    cuts = [(sum(right[:k]) / n_true, sum(right[:k]) / k) for k in range(1, len(right) + 1)]
    levels = (np.arange(60 * n_true) + 0.5) / (60 * n_true)
    best = [max((p for r, p in cuts if r >= level), default=0.0) for level in levels]
    assert boxes.average_precision(right, n_true) == pytest.approx(np.mean(best))


def picture(rows: list[tuple[float, float, float, float, int, float]]) -> Picture:
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    return Picture(box=table[:, :4], kind=table[:, 4].astype(np.int64), score=table[:, 5])


def test_scores_by_hand() -> None:
    """Two pictures, two kinds; each found object is right or wrong for a reason of its own."""
    truth = [
        picture([(0, 0, 10, 10, 0, 1), (20, 20, 30, 30, 0, 1), (50, 50, 70, 70, 1, 1)]),
        picture([(0, 0, 10, 10, 0, 1)]),
    ]
    found = [
        picture(
            [
                (0, 0, 10, 10, 0, 0.9),  # exact
                (0, 0, 10, 9, 0, 0.8),  # the same object again
                (20, 20, 30, 26, 0, 0.7),  # overlap 0.6
                (50, 50, 70, 70, 0, 0.6),  # the wrong kind
                (50, 50, 70, 70, 1, 0.5),  # exact
            ]
        ),
        picture([]),  # one object is missed
    ]
    scores = boxes.detection_scores(found, truth, KINDS)
    # Discs: right, wrong, right, wrong of three at 0.5; only the first at 0.75.
    disc = (1 + 2 / 3) / 3
    assert scores["ap50_disc"] == pytest.approx(disc)
    assert scores["ap50_square"] == 1
    assert scores["map50"] == pytest.approx((disc + 1) / 2)
    assert scores["map75"] == pytest.approx((1 / 3 + 1) / 2)
    # The second disc counts at 0.5, 0.55 and 0.6.
    assert scores["map"] == pytest.approx((0.3 * disc + 0.7 / 3 + 1) / 2)
    assert scores["overlap"] == pytest.approx((1 + 0.6 + 1) / 3)


@given(st.integers(0, 500))
def test_scores_of_the_truth_are_one_and_do_not_depend_on_order_or_units(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = [labelled(draw_boxes(n, rng), rng.integers(0, 2, n)) for n in (4, 0, 3)]
    perfect = boxes.detection_scores(truth, truth, KINDS)
    # An object that is (nearly) covered by another of its kind could be taken for it; none is here.
    assert perfect["map"] == pytest.approx(1)
    noisy = [
        Picture(
            box=p.box + rng.normal(0, 2, p.box.shape), kind=p.kind, score=rng.random(len(p.kind))
        )
        for p in truth
    ]
    plain = boxes.detection_scores(noisy, truth, KINDS)
    order = [rng.permutation(len(p.kind)) for p in noisy]
    other = [
        Picture(box=3 * p.box[o], kind=p.kind[o], score=p.score[o])
        for p, o in zip(noisy, order, strict=True)
    ]
    larger = [labelled(3 * p.box, p.kind) for p in truth]
    assert boxes.detection_scores(other[::-1], larger[::-1], KINDS) == pytest.approx(plain)
