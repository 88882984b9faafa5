"""Out of a tool, aggregated, and back: what is written is read here by the tool's documentation.

The readers below are not voxpop's, so that a mistake made both ways does not cancel out.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import voxpop as vp
from tests import exports
from voxpop.cli import main

Boxes = dict[tuple[str, str], list[list[float]]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    exports.write_all(tmp_path)
    return tmp_path


def run(*arguments: str) -> None:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 0, done.stderr


def there_and_back(source: str, out: str, to: str, *reading: str) -> vp.Result:
    """Aggregate an export by the mean, whose figures are known, and write it back."""
    run("aggregate", source, "-o", "r", "--method", "average", *reading)
    run("export", "r", out, "--to", to, "--source", source, *reading)
    return vp.Result.load("r")


# What the tools' documentation says of their imports


def read_label_studio(path: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Give image, region and value of every prediction, and check what an import requires."""
    for task in json.loads(path.read_text()):
        assert set(task["data"]) == {"image"}
        for prediction in task["predictions"]:
            assert 0 <= prediction["score"] <= 1
            assert prediction["model_version"].startswith("voxpop-")
            names = [region["id"] for region in prediction["result"]]
            assert len(set(names)) == len(names)
            for region in prediction["result"]:
                assert {"from_name", "to_name", "type", "value"} <= set(region)
                yield task["data"]["image"], region, region["value"]


def label_studio_boxes(path: Path) -> Boxes:
    found: Boxes = {}
    for image, region, value in read_label_studio(path):
        wide, high = region["original_width"] / 100, region["original_height"] / 100
        left, top = value["x"] * wide, value["y"] * high
        box = [left, top, left + value["width"] * wide, top + value["height"] * high]
        assert value["rotation"] == 0
        found.setdefault((image, value["rectanglelabels"][0]), []).append(box)
    return found


def cvat_boxes(path: Path) -> Boxes:
    root = ElementTree.fromstring(path.read_bytes())
    assert (root.tag, root.findtext("version")) == ("annotations", "1.1")
    found: Boxes = {}
    for image in root.iter("image"):
        assert {"id", "name", "width", "height"} <= set(image.attrib)
        for box in image.iter("box"):
            sides = [float(box.attrib[side]) for side in ("xtl", "ytl", "xbr", "ybr")]
            found.setdefault((image.attrib["name"], box.attrib["label"]), []).append(sides)
    return found


def read_coco(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    document = json.loads(path.read_text())
    images = {image["id"]: image["file_name"] for image in document["images"]}
    categories = {category["id"]: category["name"] for category in document["categories"]}
    assert len(images) == len(document["images"])
    assert len(categories) == len(document["categories"])
    ids = [annotation["id"] for annotation in document["annotations"]]
    assert len(set(ids)) == len(ids)
    for annotation in document["annotations"]:
        yield images[annotation["image_id"]], categories[annotation["category_id"]], annotation


def coco_boxes(path: Path) -> Boxes:
    found: Boxes = {}
    for image, label, annotation in read_coco(path):
        left, top, width, height = annotation["bbox"]
        assert annotation["area"] == pytest.approx(width * height)
        found.setdefault((image, label), []).append([left, top, left + width, top + height])
    return found


def means() -> Boxes:
    """Expected boxes: the mean of what was drawn, by image and label, from left to right."""
    found: Boxes = {}
    for task, box in exports.MEAN.items():
        image, label, _ = task.split("#")
        found.setdefault((image, label), []).append(box)
    return found


BOXES = [
    ("project-1.json", "label-studio", ("--question", "tag", "--task", "image")),
    ("jobs", "cvat", ("--question", "box")),
    ("people", "coco", ()),
    ("classifications.csv", "coco", ("--question", "T1")),
    ("Batch_1_batch_results.csv", "coco", ("--question", "annotatedResult", "--quorum", "0.6")),
]


@pytest.mark.parametrize(("source", "to", "reading"), BOXES, ids=lambda part: str(part)[:14])
@pytest.mark.usefixtures("folder")
def test_boxes_come_back(source: str, to: str, reading: tuple[str, ...]) -> None:
    readers = {"label-studio": label_studio_boxes, "cvat": cvat_boxes, "coco": coco_boxes}
    if source.endswith("csv"):  # the tool itself takes no boxes back
        run("aggregate", source, "-o", "r", "--method", "average", *reading)
        run("export", "r", "out", "--to", to)
    else:
        there_and_back(source, "out", to, *reading)
    found, expected = readers[to](Path("out")), means()
    if source == "project-1.json":  # alice's are the ground truth of the first image
        expected["a.jpg", "car"] = [[100, 50, 200, 150], [300, 60, 420, 160]]
    renamed = {"5000": "a.jpg", "5001": "b.jpg", "3H0": "a.jpg", "3H1": "b.jpg"}
    found = {(renamed.get(image, image), label): boxes for (image, label), boxes in found.items()}
    assert found.keys() == expected.keys()
    for key, boxes in expected.items():
        np.testing.assert_allclose(found[key], boxes, atol=0.005)  # CVAT writes two digits


@pytest.mark.usefixtures("folder")
def test_numbers_ratings_and_points_of_label_studio_come_back() -> None:
    there_and_back("project-1.json", "out", "label-studio", "--question", "age")
    ages = {image: value for image, _, value in read_label_studio(Path("out"))}
    assert ages == {"a.jpg": {"number": 40}, "b.jpg": {"number": 42}}  # the first is ground truth
    there_and_back("project-1.json", "out", "label-studio", "--question", "stars")
    assert [v for _, _, v in read_label_studio(Path("out"))] == [{"rating": 3}, {"rating": 4}]
    there_and_back("project-1.json", "out", "label-studio", "--question", "kp")
    for image, region, value in read_label_studio(Path("out")):
        assert region["type"] == "keypointlabels"
        assert value["keypointlabels"] == ["Nose"]
        assert value["x"] == pytest.approx(5 if image == "a.jpg" else 6)
        assert 0 <= value["y"] <= 100


@pytest.mark.usefixtures("folder")
def test_points_and_keypoints_come_back() -> None:
    there_and_back("jobs", "out.xml", "cvat", "--question", "points")
    root = ElementTree.fromstring(Path("out.xml").read_bytes())
    points = [(p.attrib["label"], p.attrib["points"]) for p in root.iter("points")]
    assert points == [("nose", "18.00,11.00"), ("nose", "19.00,11.00")]
    document = exports.coco()
    document["categories"][1]["keypoints"] = ["nose", "ear"]
    for annotation in document["annotations"]:
        x = len(annotation["annotator"])
        annotation["keypoints"] = [x, 7, 2, 0, 0, 0] if annotation["category_id"] == 2 else []
    Path("k.json").write_text(json.dumps(document))
    there_and_back("k.json", "out.json", "coco", "--question", "keypoints")
    ((image, joint, annotation),) = read_coco(Path("out.json"))
    assert (image, joint) == ("b.jpg", "nose")
    assert annotation["keypoints"] == [4, 7, 2]  # alice said 5, bob 3
    assert annotation["num_keypoints"] == 1


@pytest.mark.usefixtures("folder")
def test_a_reviewed_batch_is_the_batch_with_two_columns_filled_in() -> None:
    Path("reasons.csv").write_text("worker,reason\nBOB,=cmd: no boxes\n")
    batch = "Batch_1_batch_results.csv"
    run("aggregate", batch, "-o", "r", "--method", "average", "--question", "age")
    run("export", "r", "out.csv", "--to", "mturk", "--source", batch, "--reasons", "reasons.csv")
    before, after = (
        list(csv.DictReader(Path(p).read_text().splitlines())) for p in (batch, "out.csv")
    )
    assert list(before[0]) == list(after[0])
    for old, new in zip(before, after, strict=True):
        assert {k: v for k, v in new.items() if k not in ("Approve", "Reject")} == {
            k: v for k, v in old.items() if k not in ("Approve", "Reject")
        }
        decided = old["AssignmentStatus"] != "Submitted"
        assert (not new["Approve"] and not new["Reject"]) == decided
        if not decided:
            assert (new["Approve"] == "x") != bool(new["Reject"])
            assert bool(new["Reject"]) == (new["WorkerId"] == "BOB")
            assert not new["Reject"].startswith("=")  # a spreadsheet would run it
    answers = [vp.read_answers(Path(p), question="age").value.tolist() for p in (batch, "out.csv")]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("method", [["average"], ["bi", "--noise", "bias"]], ids=len)
@pytest.mark.usefixtures("folder")
def test_sureals_output_has_its_shape(method: list[str]) -> None:
    """The keys are those that sureal 0.9 writes; half-widths are of the 95 % intervals."""
    run("aggregate", "dataset.py", "-o", "r", "--method", *method)
    run("export", "r", "out.json", "--to", "sureal", "--source", "dataset.py")
    document, result = json.loads(Path("out.json").read_text()), vp.Result.load("r")
    assert list(document) == ["dis_videos", "observers"]
    low, high = result.interval(0.95)
    for i, video in enumerate(exports.SUREAL["dis_videos"]):
        written = document["dis_videos"][str(i)]
        assert written["dis_video_name"] == video["path"]
        model = written["models"]["voxpop"]
        below, above = model["quality_score_ci95"]
        assert model["quality_score"] - below == pytest.approx(low[i, 0])
        assert model["quality_score"] + above == pytest.approx(high[i, 0])
    assert {o["observer"] for o in document["observers"].values()} == {"Tom", "Jerry"}
    for u, observer in document["observers"].items():
        model = observer["models"]["voxpop"]
        assert model["observer_inconsistency"] >= 0
        assert ("observer_bias" in model) == ("bias" in method)
        if "bias" in method:
            assert model["observer_bias"] == result.worker_bias[int(u), 0]


def mean_of_runs() -> dict[str, float]:
    """Every judge counts once an item, however often it ran."""
    runs = pd.DataFrame(exports.JUDGED).groupby(["item", "judge"])["score"].mean()
    return {str(item): mean for item, mean in runs.groupby("item").mean().items()}


TABLES = [
    ("assignments.tsv", ("--task", "image"), {"a.jpg": 5.25, "b.jpg": 4.5}),  # b is a control task
    ("assignments.tsv", (), {"0000": 5.25, "0001": 4.5}),
    ("classifications.csv", ("--question", "T0"), {"5000": 11.0, "5001": 12.0}),
    ("mos.csv", ("--missing", "-1"), {"v1": 14 / 3, "v2": 2.25, "v3": 3.25, "v4": 13 / 3}),
    ("judges.jsonl", (), mean_of_runs()),
]


@pytest.mark.parametrize(("source", "reading", "expected"), TABLES, ids=lambda part: str(part)[:14])
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
@pytest.mark.usefixtures("folder")
def test_tables_come_back_by_the_tools_own_ids(
    source: str, reading: tuple[str, ...], expected: dict[str, float], ending: str
) -> None:
    """Tools that take no estimates get a table; so does whoever trains a model."""
    run("aggregate", source, "-o", "r", "--method", "average", *reading)
    run("export", "r", f"out.{ending}", "--to", "training")
    readers: dict[str, Callable[[str], pd.DataFrame]] = {
        "csv": lambda path: pd.read_csv(path, dtype={"task": str}),
        "parquet": pd.read_parquet,
        "jsonl": lambda path: pd.read_json(path, lines=True, dtype={"task": str}),
    }
    table = readers[ending](f"out.{ending}")
    found = dict(zip(table["task"].astype(str), table.iloc[:, 1], strict=True))
    assert found == pytest.approx(expected)
    assert table["sample_weight"].mean() == pytest.approx(1)


def test_crowd_kit_frames_come_back_as_crowd_kit_gives_them() -> None:
    frame = pd.DataFrame(exports.LONG, columns=["task", "worker", "label"])
    found = vp.Average().fit_predict(frame)
    assert isinstance(found, pd.Series)
    expected = frame.groupby("task")["label"].mean().rename("agg_label")
    pd.testing.assert_series_equal(found, expected)


names = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=8
).filter(lambda text: text.strip() == text)


@settings(max_examples=25)
@given(image=names, label=names, box=st.tuples(*[st.integers(0, 90)] * 2))
def test_any_name_survives_the_round_trip(
    image: str, label: str, box: tuple[int, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever an image or a label is called: quotes, angle brackets, ``#``, ``%``, emoji."""
    folder = tmp_path_factory.mktemp("names")
    left, top = box
    for worker in ("u", "v"):
        lines = [
            f'<annotations><image id="0" name={_attribute(image)} width="100" height="100">',
            f'<box label={_attribute(label)} xtl="{left}" ytl="{top}" xbr="{left + 9}"',
            f' ybr="{top + 9 + (worker == "v")}"/></image></annotations>',
        ]
        (folder / f"{worker}.xml").write_text("".join(lines), encoding="utf-8")
    result = vp.aggregate(vp.read_answers(folder), "average")
    sides = [left, top, left + 9, top + 9.5]
    for to, reader in (("cvat", cvat_boxes), ("coco", coco_boxes)):
        out = folder.parent / f"{folder.name}.{to}"
        vp.export_result(result, out, to, folder if to == "cvat" else None)
        assert reader(out) == {(image, label): [pytest.approx(sides)]}


def _attribute(text: str) -> str:
    spelled = "".join(f"&#{ord(character)};" for character in text)
    return f'"{spelled}"'
