"""Marks become objects: one per worker at most, optimally, whatever the order and the units."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxpop import ConfigError, DataError, Matching, aggregate, match_objects
from voxpop.arrays import Floats
from voxpop.data.objects import Objects, Place, iou, parse_object_id

DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "pedestrian_boxes"


def boxes(rng: np.random.Generator, n: int) -> Floats:
    low = rng.uniform(0, 60, (n, 2))
    return np.concatenate([low, low + rng.uniform(5, 40, (n, 2))], axis=1)


def scene(seed: int) -> tuple[list[str], list[str], Floats, list[tuple[str, int]]]:
    """Three images on a grid of boxes far apart; five workers see most of them, a little off."""
    rng = np.random.default_rng(seed)
    rows = []
    for image in "abc":
        for k in range(int(rng.integers(1, 6))):
            truth = np.array([100 * k, 50, 100 * k + 60, 130], dtype=float)
            for u in range(5):
                if u < 3 or rng.random() < 0.7:
                    rows.append((image, f"w{u}", truth + rng.normal(0, 3, 4), (image, k)))
    rows = [rows[i] for i in rng.permutation(len(rows))]
    return (
        [row[0] for row in rows],
        [row[1] for row in rows],
        np.array([row[2] for row in rows]),
        [row[3] for row in rows],
    )


def partition(objects: Objects) -> set[frozenset[int]]:
    return {
        frozenset(np.flatnonzero(objects.object == c).tolist()) for c in range(len(objects.places))
    }


@given(seed=st.integers(0, 30))
def test_known_objects_are_found_again(seed: int) -> None:
    image, worker, value, truth = scene(seed)
    objects = match_objects(image, worker, value, "box", Matching())
    expected = {frozenset(i for i, other in enumerate(truth) if other == one) for one in set(truth)}
    assert partition(objects) == expected


@given(seed=st.integers(0, 40), n_workers=st.integers(1, 6), threshold=st.sampled_from([0.1, 0.5]))
def test_a_worker_has_one_mark_of_an_object_at_most(
    seed: int, n_workers: int, threshold: float
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 25))
    worker = rng.integers(n_workers, size=n).tolist()
    image = rng.integers(2, size=n).tolist()
    value = boxes(rng, n)
    matching = Matching(iou_threshold=threshold, quorum=0)
    objects = match_objects(image, worker, value, "box", matching)
    assert (objects.object >= 0).all()
    for members in partition(objects):
        assert len({worker[i] for i in members}) == len(members)
        assert len({image[i] for i in members}) == 1
    # The same rows in another order are the same objects under the same names.
    order = rng.permutation(n)
    other = match_objects(
        [image[i] for i in order], [worker[i] for i in order], value[order], "box", matching
    )
    names = np.array(objects.task_ids)[objects.object]
    assert (np.array(other.task_ids)[other.object] == names[order]).all()
    # Units and origin do not matter either.
    moved = match_objects(image, worker, 4 * value + 1024, "box", matching)
    assert (moved.object == objects.object).all()


@given(seed=st.integers(0, 40))
def test_two_workers_are_matched_as_brute_force_would(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mine, others = boxes(rng, 4), boxes(rng, 4)
    near = iou(mine, others)
    near[near < 0.2] = 0
    best = max(
        sum(near[i, j] for i, j in enumerate(order)) for order in itertools.permutations(range(4))
    )
    objects = match_objects(
        ["a"] * 8, ["u"] * 4 + ["v"] * 4, np.concatenate([mine, others]), "box",
        Matching(iou_threshold=0.2, quorum=0),
    )  # fmt: skip
    found = sum(near[min(m), max(m) - 4] for m in partition(objects) if len(m) == 2)
    assert found == pytest.approx(best)


def test_overlap_is_area_in_common_over_area_in_all() -> None:
    one = np.array([[0.0, 0, 2, 2]])
    others = np.array([[0.0, 0, 2, 2], [1, 0, 3, 2], [2, 2, 3, 3], [0.5, 0.5, 1.5, 1.5]])
    np.testing.assert_allclose(iou(one, others), [[1, 2 / 6, 0, 1 / 4]])
    empty = np.array([[1.0, 1, 1, 1]])
    assert iou(empty, empty) == 0


def test_a_quorum_counts_those_who_looked() -> None:
    box = [0.0, 0, 10, 10]
    seen = [("a", "u"), ("a", "v"), ("b", "u")]
    image, worker = zip(*seen, strict=True)
    value = np.array([box] * 3)
    looked = [(picture, person) for picture in "ab" for person in "uvwxy"]

    def found(quorum: float) -> list[str]:
        matching = Matching(quorum=quorum)
        return match_objects(image, worker, value, "box", matching, looked=looked).task_ids

    assert found(0) == found(0.2) == ["a#1", "b#1"]
    assert found(0.4) == ["a#1"]
    assert found(0.5) == []
    objects = match_objects(image, worker, value, "box", Matching(quorum=0.4), looked=looked)
    report = objects.workers()
    rows = dict(zip(report["worker"], zip(*[*report.values()][1:], strict=True), strict=True))
    assert rows["u"] == (2, 1, 0, 1)  # marks, found, missed, extra
    assert rows["w"] == (0, 0, 1, 0)
    assert (report["marks"] == report["found"] + report["extra"]).all()
    assert "(marks without an object: 1, missed objects: 3)" in objects.summary()
    with pytest.raises(DataError, match="no object was marked by enough workers"):
        match_objects(image, worker, value, "box", Matching(quorum=1), looked=looked).answers()


def test_labels_never_mix_and_gold_finds_its_object() -> None:
    value = np.array([[0.0, 0, 10, 10]] * 4 + [[50.0, 50, 60, 60]] * 2)
    label = ["cat", "cat", "dog", "dog", "cat", "cat"]
    gold: list[tuple[str, str, list[float]]] = [
        ("a", "cat", [1, 1, 10, 10]), ("a", "cat", [90, 90, 99, 99]), ("z", "cat", [0, 0, 1, 1])
    ]  # fmt: skip
    objects = match_objects(
        ["a"] * 6, list("uvuvuv"), value, "box", Matching(), label=label, gold=gold
    )
    assert sorted(objects.task_ids) == ["a#cat#1", "a#cat#2", "a#dog#1"]
    answers = objects.answers()
    known = dict(zip(answers.task_ids, answers.is_gold, strict=True))
    assert known == {"a#cat#1": True, "a#cat#2": False, "a#dog#1": False}
    assert objects.gold_missed == 2


def test_points_are_matched_by_distance() -> None:
    value = np.array([[0.0, 0], [10, 0], [0, 3], [10, 4], [100, 100]])
    worker = ["u", "u", "v", "v", "v"]
    objects = match_objects(
        ["a"] * 5, worker, value, "point", Matching(distance_threshold=5, quorum=1)
    )
    assert objects.object.tolist() == [0, 1, 0, 1, -1]
    with pytest.raises(ConfigError, match="give distance_threshold"):
        match_objects(["a"] * 5, worker, value, "point", Matching())


@given(image=st.text(max_size=8), label=st.text(max_size=8), number=st.integers(1, 99))
def test_object_ids_can_be_taken_apart_again(image: str, label: str, number: int) -> None:
    place = Place(image, label, number)
    found = parse_object_id(place.task_id)
    # Without a label, an image that is itself spelled like an object's cannot be: # is escaped.
    assert found == place


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"iou_threshold": 0}, "iou_threshold must be in"),
        ({"quorum": 1.5}, "quorum must be in"),
        ({"distance_threshold": -1}, "distance_threshold must be positive"),
    ],
)
def test_parameters_are_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Matching(**wrong)
    with pytest.raises(DataError, match="ends before it begins"):
        match_objects(["a"], ["u"], np.array([[5.0, 0, 1, 1]]), "box", Matching())


@pytest.mark.skipif(not DATA.exists(), reason="the real data sets are not part of the project")
def test_real_boxes_become_the_experts_objects() -> None:
    """On part of the images: few wrong objects, and ours overlap more than the mean of them."""
    ids = {"image": str}
    raw = pd.read_csv(DATA / "raw_boxes.csv.gz", dtype=ids)
    looked = pd.read_csv(DATA / "raw_responses.csv.gz", dtype=ids)
    experts = pd.read_csv(DATA / "truth.csv.gz", dtype=ids)
    boxed = set(pd.read_csv(DATA / "raw_gold_images.csv.gz", dtype=ids)["image"][:400])
    raw = raw[raw["image"].isin(boxed)]
    looked = looked[looked["image"].isin(boxed)]
    sides = ["xmin", "ymin", "xmax", "ymax"]
    objects = match_objects(
        raw["image"].tolist(), raw["worker"].tolist(), raw[sides].to_numpy(), "box", Matching(),
        looked=zip(looked["image"], looked["worker"], strict=True),
    )  # fmt: skip
    mean, ours = (aggregate(objects.answers(), method).estimate for method in ("average", "bi"))
    overlap: dict[str, list[float]] = {"mean": [], "ours": []}
    for image, rows in experts[experts["image"].isin(boxed)].groupby("image"):
        here = [i for i, place in enumerate(objects.places) if place.image == image]
        for name, estimate in (("mean", mean), ("ours", ours)):
            if here:
                overlap[name] += iou(estimate[here], rows[sides].to_numpy()).max(axis=1).tolist()
    found = np.array(overlap["ours"]) >= 0.5
    assert found.mean() > 0.95
    assert np.array(overlap["ours"])[found].mean() > np.array(overlap["mean"])[found].mean()
