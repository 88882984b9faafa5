"""Every tool's export comes in as it should, and a result goes back the way it came."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import voxpop as vp
from tests import exports
from voxpop import Answers, ConfigError, DataError, Matching, aggregate, read_answers, sniff
from voxpop.data.formats.mturk import review
from voxpop.data.tables import open_table


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def table_of(answers: Answers) -> dict[tuple[Any, Any], list[float]]:
    return {
        (answers.task_ids[i], answers.worker_ids[u]): value
        for i, u, value in zip(
            answers.task.tolist(), answers.worker.tolist(), answers.value.tolist(), strict=True
        )
    }


def means(answers: Answers) -> dict[str, list[float]]:
    return {
        str(task): answers.value[answers.task == i].mean(axis=0).tolist()
        for i, task in enumerate(answers.task_ids)
    }


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    for worker in exports.PEOPLE:
        write(tmp_path / "jobs" / worker / "annotations.xml", exports.cvat(worker))
    return tmp_path / "jobs"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    for worker in exports.PEOPLE:
        write(tmp_path / "people" / f"{worker}.json", exports.coco(worker))
    return tmp_path / "people"


@pytest.fixture
def studio(tmp_path: Path) -> Path:
    return write(tmp_path / "project-1.json", exports.label_studio())


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    return write(tmp_path / "Batch_1_batch_results.csv", exports.mturk())


def test_formats_are_found_out(tmp_path: Path, jobs: Path, people: Path, studio: Path) -> None:
    found = {
        sniff(jobs): "cvat",
        sniff(people): "coco",
        sniff(studio): "label-studio",
        sniff(write(tmp_path / "c.json", exports.coco())): "coco",
        sniff(write(tmp_path / "s.json", exports.SUREAL)): "sureal",
        sniff(write(tmp_path / "s.py", exports.sureal_program())): "sureal",
        sniff(write(tmp_path / "m.csv", exports.mturk())): "mturk",
        sniff(write(tmp_path / "t.tsv", exports.toloka())): "toloka",
        sniff(write(tmp_path / "z.csv", exports.zooniverse())): "zooniverse",
        sniff(write(tmp_path / "l.csv", "task,worker,value\na,u,1\n")): "long",
        sniff(write(tmp_path / "w.csv", "PVS_ID,S1,S2,S3\na,1,2,3\n")): "wide",
    }
    assert all(ours == theirs for ours, theirs in found.items())
    assert len(found) == 9
    zipped = tmp_path / "z.json.gz"
    zipped.write_bytes(gzip.compress(studio.read_bytes()))
    assert sniff(zipped) == "label-studio"


@pytest.mark.parametrize("kind", ["jobs", "people", "one", "studio", "mturk", "zooniverse"])
def test_boxes_of_every_tool_become_the_same_objects(
    kind: str, tmp_path: Path, jobs: Path, people: Path, studio: Path, batch: Path
) -> None:
    sources: dict[str, tuple[Any, dict[str, Any]]] = {
        "jobs": (jobs, {"question": "box"}),
        "people": (people, {}),
        # Where all are in one file, carol is not known to have looked at b.
        "one": (write(tmp_path / "c.json", exports.coco()), {"objects": Matching(quorum=0.6)}),
        "studio": (studio, {"question": "tag", "task": "image"}),
        "mturk": (batch, {"question": "annotatedResult", "objects": Matching(quorum=0.6)}),
        "zooniverse": (write(tmp_path / "z.csv", exports.zooniverse()), {"question": "T1"}),
    }
    source, options = sources[kind]
    answers = read_answers(source, **options)
    names = {
        "mturk": {"a.jpg": "3H0", "b.jpg": "3H1"},
        "zooniverse": {"a.jpg": "5000", "b.jpg": "5001"},
    }
    expected = exports.MEAN
    for image, other in names.get(kind, {}).items():
        expected = {task.replace(image, other): box for task, box in expected.items()}
    found = means(answers)
    assert found.keys() == expected.keys()
    for task, box in expected.items():
        np.testing.assert_allclose(found[task], box, rtol=1e-12)
    assert any("matched" in note for note in answers.notes)
    assert answers.objects is not None
    assert answers.objects.task_ids == answers.task_ids.tolist()
    assert answers.value_names == ("xmin", "ymin", "xmax", "ymax")


def test_label_studio_numbers_points_and_gold(studio: Path) -> None:
    ages = read_answers(studio, question="age")
    assert table_of(ages) == {
        (1, 10): [40], (1, 11): [41], (1, 12): [42],
        (2, 10): [41], (2, 11): [42], (2, 12): [43],
    }  # fmt: skip
    assert ages.gold is not None
    np.testing.assert_array_equal(ages.gold, [[40], [np.nan]])
    assert ages.value_names == ("age",)
    assert any("2 cancelled annotations" in note for note in ages.notes)
    noses = read_answers(studio, question="kp")
    assert noses.task_ids.tolist() == ["1#Nose#1", "2#Nose#1"]
    np.testing.assert_allclose(noses.value[0], [0.05 * 600, 0.025 * 400])
    boxes = read_answers(studio, question="tag")
    assert boxes.is_gold.tolist() == [True, True, False]
    with pytest.raises(DataError, match=r"several questions: 'tag' \(8 of kind box\)"):
        read_answers(studio)
    with pytest.raises(DataError, match="no question 'colour'; it has 'tag'"):
        read_answers(studio, question="colour")


def test_cvat_points_tags_and_a_job_without_assignee(tmp_path: Path, jobs: Path) -> None:
    points = read_answers(jobs, question="points")
    assert points.task_ids.tolist() == ["a.jpg#nose#1", "b.jpg#nose#1"]
    assert points.worker_ids.tolist() == ["alice", "bob", "carol"]
    assert any("6 shapes of type 'tag'" in note for note in points.notes)
    nobody = exports.cvat("bob").replace("<username>bob</username>", "")
    listed = [jobs / "alice" / "annotations.xml", write(tmp_path / "n.xml", nobody)]
    assert read_answers(listed, question="points").worker_ids.tolist() == ["alice", "job 11"]
    skeleton = (
        '<annotations><image id="0" name="a.jpg"><skeleton label="person">'
        '<points label="nose" outside="0" points="1.00,2.00"></points>'
        '<points label="ear" outside="1" points="9,9"></points></skeleton></image></annotations>'
    )
    paths = [write(tmp_path / f"{name}.xml", skeleton) for name in ("u", "v")]
    with pytest.warns(vp.DataWarning, match="all answers are equal"):
        assert read_answers(paths).task_ids.tolist() == ["a.jpg#person/nose#1"]


def test_coco_keypoints(tmp_path: Path) -> None:
    document = exports.coco()
    document["categories"][1]["keypoints"] = ["nose", "ear"]
    for k, annotation in enumerate(document["annotations"]):
        annotation["keypoints"] = [k, 2 * k, 2, 0, 0, 0] if annotation["category_id"] == 2 else []
    answers = read_answers(write(tmp_path / "k.json", document), question="keypoints")
    assert table_of(answers) == {
        ("b.jpg#nose#1", "alice"): [5, 10],
        ("b.jpg#nose#1", "bob"): [6, 12],
    }


def test_mturk_numbers(batch: Path) -> None:
    with pytest.raises(DataError, match=r"Batch_1_batch_results.csv: holds several questions"):
        read_answers(batch)
    ages = read_answers(batch, question="age")
    assert table_of(ages)["3H1", "BOB"] == [42]
    assert ("3H1", "CAROL") not in table_of(ages)
    assert any("1 rejected assignments" in note for note in ages.notes)
    assert read_answers(batch, question="mood").value[:, 0].tolist() == [2, 3, 1, 3, 1]
    named = read_answers(batch, question="years", task="image_url")
    assert named.task_ids.tolist() == ["https://x/a.jpg", "https://x/b.jpg"]
    quoted = batch.with_name("quoted.csv")  # as MTurk writes it: all cells, and CRLF
    rows = csv.reader(io.StringIO(exports.mturk()))
    with quoted.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    assert table_of(read_answers(quoted, question="age")) == table_of(ages)
    # Whoever names the columns gets a plain table.
    plain = read_answers(batch, task="HITId", worker="WorkerId", values="Answer.years")
    assert plain.n_edges == 6


def test_toloka(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", exports.toloka())
    answers = read_answers(path)
    assert answers.n_edges == 5
    assert answers.task_ids.tolist() == ["0000", "0001"]
    assert answers.gold is not None
    np.testing.assert_array_equal(answers.gold, [[np.nan], [4.5]])
    assert any("1 answers with status REJECTED" in note for note in answers.notes)
    assert read_answers(path, task="image").task_ids.tolist() == ["a.jpg", "b.jpg"]
    lines = path.read_text().splitlines()
    pages = write(tmp_path / "pages.tsv", "\n".join([*lines[:4], "", *lines[4:], ""]))
    assert table_of(read_answers(pages)) == table_of(answers)  # an empty line between pages
    frame = pd.read_csv(path, sep="\t", dtype=str)  # as toloka-kit gives it
    assert table_of(read_answers(frame)) == table_of(answers)


def test_zooniverse(tmp_path: Path) -> None:
    path = write(tmp_path / "z.csv", exports.zooniverse())
    numbers = read_answers(path, question="T0")
    assert table_of(numbers)[5001, "ip-carol"] == [13]
    assert not any("left out" in note for note in numbers.notes)  # words were not asked for
    with pytest.raises(
        DataError, match=r"'T3' \(left out: 6 answers to 'T3' that are not numbers\); it"
    ):
        read_answers(path, question="T3")
    points = read_answers(path, question="T2")
    assert points.task_ids.tolist() == ["5000#1#1", "5001#1#1"]


def test_sureal_is_parsed_and_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    trap = f"open({str(mark)!r}, 'w').write('x')"
    program = write(tmp_path / "s.py", exports.sureal_program(trap))
    answers = read_answers(program)
    assert not mark.exists()
    assert table_of(answers) == {
        ("baz1.png", "Tom"): [3], ("baz1.png", "Jerry"): [4.5],
        ("baz2.png", "Tom"): [2], ("baz2.png", "Jerry"): [2],
    }  # fmt: skip
    assert table_of(read_answers(write(tmp_path / "s.json", exports.SUREAL))) == table_of(answers)
    assert any("1 repetitions" in note for note in answers.notes)
    computed = write(tmp_path / "c.py", "dis_videos = [dict(os=__import__('os').listdir())]")
    with pytest.raises(DataError, match="voxpop does not run programs"):
        read_answers(computed)
    text = "import numpy as np\ndis_videos = [{'path': 'x', 'os': {'a': 1.0, 'b': np.nan, 'c': 2}}]"
    assert read_answers(write(tmp_path / "n.py", text)).worker_ids.tolist() == ["a", "c"]
    lists = {"dis_videos": [{"path": p, "os": [1, None, 3]} for p in "ab"]}
    answers = read_answers(write(tmp_path / "l.json", lists))
    assert answers.worker_ids.tolist() == [1, 3]


def test_wide_tables(tmp_path: Path) -> None:
    text = "PVS_ID,Ann,Bob,Eve,MOS,CI\nx,5,nan,-1,5,0\ny,4,3,,3.5,1\nz,1,2,3,2,1\n"
    path = write(tmp_path / "mos.csv", text)
    answers = read_answers(path, missing=[-1])
    assert table_of(answers) == {
        ("x", "Ann"): [5], ("y", "Ann"): [4], ("y", "Bob"): [3],
        ("z", "Ann"): [1], ("z", "Bob"): [2], ("z", "Eve"): [3],
    }  # fmt: skip
    assert read_answers(path).n_edges == 7  # -1 is a number unless told
    assert any("column 'MOS'" in note for note in answers.notes)
    frame = pd.read_csv(path)
    assert table_of(read_answers(frame, missing=[-1])) == table_of(answers)
    frame.to_parquet(tmp_path / "mos.parquet")
    assert table_of(read_answers(tmp_path / "mos.parquet", missing=[-1])) == table_of(answers)
    bare = write(tmp_path / "bare.csv", "5.0,5.0,nan\n1,2,3\n")
    answers = read_answers(bare, format="wide")
    assert table_of(answers) == {
        (1, 1): [5], (1, 2): [5], (2, 1): [1], (2, 2): [2], (2, 3): [3]
    }  # fmt: skip
    counted = write(tmp_path / "counted.csv", ",0,1,2\nx,5,4,3\ny,1,2,1\n")
    answers = read_answers(counted, format="wide")
    assert (answers.task_ids.tolist(), answers.worker_ids.tolist()) == (["x", "y"], ["0", "1", "2"])
    with pytest.raises(DataError, match="row 2 has 2 cells, the first has 3"):
        read_answers(write(tmp_path / "r.csv", "1,2,3\n1,2\n"), format="wide")


@pytest.mark.parametrize(
    "text",
    [
        "task,who,value,x1,x2\na,1,1,2,3\n",  # a value column
        "task,worker,p,q,r\na,1,1,2,3\n",  # a worker column
        "task,p,q,r\na,1,2,3\na,1,2,3\n",  # a task twice
        "task,p,q,r\na,1,2,three\n",  # not only numbers
        "task,value_a,value_b,value_c\na,1,2,3\n",
        "when,p,q,r\n2024,1,2,3\n",  # nothing that looks like a task
    ],
)
def test_a_table_is_wide_only_beyond_doubt(tmp_path: Path, text: str) -> None:
    assert sniff(write(tmp_path / "t.csv", text)) == "long"


def test_judges_with_runs_and_crowd_kit_frames(tmp_path: Path) -> None:
    rows = [
        {"item": i, "judge": j, "score": 5 + i + run, "run": run, "kind": "LLM"}
        for i in (1, 2) for j in ("gpt", "human") for run in (0, 1, 2)
    ]  # fmt: skip
    path = write(tmp_path / "j.jsonl", "\n".join(map(json.dumps, rows)))
    answers = read_answers(path)
    assert answers.value[:, 0].tolist() == [7, 7, 8, 8]
    assert answers.notes == ("12 runs are 4 answers: repeated runs are averaged",)
    with pytest.raises(DataError, match="more than once"):
        read_answers(path, duplicates="error")
    frame = pd.DataFrame({"task": [1, 1, 2], "worker": ["u", "v", "u"], "label": [3.0, 4, 5]})
    assert read_answers(frame).n_edges == 3
    older = frame.rename(columns={"worker": "performer"})
    assert table_of(read_answers(older)) == table_of(read_answers(frame))


def test_boxes_of_a_long_table(tmp_path: Path) -> None:
    rows = ["image,worker,label,left,top,width,height"]
    for (image, worker), drawn in exports.DRAWN.items():
        for label, left, top, right, bottom in drawn:
            rows.append(f"{image},{worker},{label},{left},{top},{right - left},{bottom - top}")
    path = write(tmp_path / "boxes.csv", "\n".join(rows))
    looked = pd.DataFrame(list(exports.DRAWN), columns=["image", "worker"])
    answers = read_answers(path, objects=Matching(), looked=looked)
    assert means(answers) == {t: pytest.approx(box) for t, box in exports.MEAN.items()}
    with pytest.raises(DataError, match=r"or match several in an image .*--objects"):
        read_answers(path, values=["left", "top", "width", "height"])
    with pytest.raises(DataError, match="objects are boxes"):
        read_answers(write(tmp_path / "v.csv", "task,worker,value\na,u,1\n"), objects=Matching())


# The way back


def test_label_studio_and_back(studio: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.json"
    for question, kind in (("tag", "rectanglelabels"), ("kp", "keypointlabels"), ("age", "number")):
        result = aggregate(read_answers(studio, question=question), "average")
        asked = question if kind != "number" else None
        told = vp.export_result(result, out, "label-studio", studio, question=asked)
        assert told.endswith("as predictions of 2 tasks")
        again = json.loads(out.read_text())
        assert [task["data"] for task in again] == [{"image": "a.jpg"}, {"image": "b.jpg"}]
        regions = [r for task in again for p in task["predictions"] for r in p["result"]]
        assert {region["type"] for region in regions} == {kind}
        assert all(0 <= task["predictions"][0]["score"] <= 1 for task in again)
        # A prediction that a person accepts is an annotation, and says what the result said.
        for task in again:
            accepted = [
                {"completed_by": w, "result": task["predictions"][0]["result"]} for w in (1, 2)
            ]
            task["annotations"] = accepted
        path = write(tmp_path / "again.json", again)
        for task, value in means(read_answers(path)).items():
            i = [str(t) for t in result.task_ids].index(task)
            np.testing.assert_allclose(value, result.estimate[i], rtol=1e-12)


def test_ratings_go_back_as_whole_stars(studio: Path, tmp_path: Path) -> None:
    result = aggregate(read_answers(studio, question="stars"), "average")
    vp.export_result(result, tmp_path / "p.json", "label-studio", studio)
    (region,) = json.loads((tmp_path / "p.json").read_text())[1]["predictions"][0]["result"]
    assert region["value"] == {"rating": 4}
    assert region["meta"]["text"] == ["estimate 3.66667"]


def test_cvat_and_coco_and_back(jobs: Path, people: Path, tmp_path: Path) -> None:
    for source, to, ending in ((jobs, "cvat", "xml"), (people, "coco", "json")):
        question = "box" if to == "cvat" else None
        result = aggregate(read_answers(source, question=question), "average")
        (tmp_path / to).mkdir()
        for name in ("first", "second"):
            vp.export_result(result, tmp_path / f"{to}/{name}.{ending}", to, source)
        again = read_answers(tmp_path / to)
        assert again.worker_ids.tolist() == ["first", "second"]
        for task, value in means(again).items():
            np.testing.assert_allclose(value, exports.MEAN[task], atol=0.005)
    document = json.loads((tmp_path / "coco/first.json").read_text())
    assert [image["width"] for image in document["images"]] == [600, 600]
    assert {"score", "sd", "area"} <= set(document["annotations"][0])
    points = aggregate(read_answers(jobs, question="points"), "average")
    vp.export_result(points, tmp_path / "p.json", "coco")
    assert json.loads((tmp_path / "p.json").read_text())["annotations"][0]["keypoints"] == [
        18,
        11,
        2,
    ]
    vp.export_result(points, tmp_path / "p.xml", "cvat", jobs)
    assert 'points="18.00,11.00"' in (tmp_path / "p.xml").read_text()


def test_mturk_reviews(batch: Path, tmp_path: Path) -> None:
    out = tmp_path / "reviewed.csv"
    told = review(open_table(batch), out, {"BOB": "Every box lies in a corner."}, {"ALICE": 0.1})
    assert told == "3 assignments to approve, 2 to reject"
    before, after = (pd.read_csv(path, dtype=str, keep_default_na=False) for path in (batch, out))
    same = [name for name in exports.MTURK if name not in ("Approve", "Reject")]
    pd.testing.assert_frame_equal(before[same], after[same])
    assert after["Approve"].tolist() == ["x", "", "x", "x", "", ""]
    assert set(after["Reject"]) == {"", "Every box lies in a corner."}
    bonus = pd.read_csv(tmp_path / "reviewed_bonus.csv")
    assert bonus["WorkerId"].tolist() == ["ALICE", "ALICE"]
    assert bonus["BonusAmount"].tolist() == [0.1, 0.1]
    with pytest.raises(DataError, match="a rejection needs a reason"):
        review(open_table(batch), out, {"BOB": " "})
    with pytest.raises(DataError, match="'DAN' has no assignment"):
        review(open_table(batch), out, {"DAN": "late"})


def test_sureal_and_back(tmp_path: Path) -> None:
    source = write(tmp_path / "s.py", exports.sureal_program())
    result = aggregate(read_answers(source))
    assert "read as sureal" in result.notes
    vp.export_result(result, tmp_path / "output.json", "sureal", source)
    document = json.loads((tmp_path / "output.json").read_text())
    assert document["dis_videos"]["1"]["dis_video_name"] == "baz2.png"
    model = document["dis_videos"]["0"]["models"]["voxpop"]
    assert model["quality_score"] == result.estimate[0, 0]
    assert min(model["quality_score_ci95"]) > 0
    assert document["observers"]["0"]["observer"] == "Tom"


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_labels_for_training(crowd: vp.Simulation, tmp_path: Path, ending: str) -> None:
    result = aggregate(crowd.answers)
    out = tmp_path / f"labels.{ending}"
    vp.export_result(result, out, "training")
    table = open_table(out)
    weight = table.numbers("sample_weight")
    assert weight.mean() == pytest.approx(1)
    # Surer labels count more, and none much more than the usual one.
    variance = table.numbers("sd_x") ** 2 + table.numbers("sd_y") ** 2
    assert (np.diff(weight[np.argsort(variance)]) <= 1e-9).all()
    assert weight.max() <= 2 * np.median(weight)
    np.testing.assert_allclose(table.numbers("x"), result.estimate[:, 0], rtol=1e-12)


def test_what_cannot_be_is_told(studio: Path, tmp_path: Path) -> None:
    result = aggregate(read_answers(studio, question="age"), "average")
    out = tmp_path / "o"
    for to, source, message in (
        ("xlsx", None, "no format 'xlsx' to write"),
        ("label-studio", None, "needs the export the answers came from"),
        ("cvat", studio, "CVAT takes boxes and points"),
        ("coco", None, "COCO takes boxes and points"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            vp.export_result(result, out, to, source)
    stranger = aggregate(read_answers(studio, question="tag", task="image"), "average")
    with pytest.raises(DataError, match="has none of the result's tasks"):
        vp.export_result(stranger, out, "label-studio", studio, question="tag")
    assert not out.exists()
    with pytest.raises(ConfigError, match="no format 'excel'"):
        read_answers(studio, format="excel")
    with pytest.raises(DataError, match="read from one file, got 2"):
        read_answers([studio, studio], format="label-studio")
    with pytest.raises(ConfigError, match="choose a question"):
        read_answers(studio, format="label-studio", values="age")


@pytest.mark.parametrize("amount", ["much", float("nan"), float("inf"), 1e9, -1, 100.01, None])
def test_a_bonus_that_nobody_can_pay_is_refused(batch: Path, tmp_path: Path, amount: Any) -> None:
    with pytest.raises(DataError, match="bonus of worker 'ALICE': ") as told:
        review(open_table(batch), tmp_path / "r.csv", {}, {"ALICE": amount})
    assert "\n" not in str(told.value)
    assert not (tmp_path / "r.csv").exists()


def test_what_a_task_shows_is_read_with_it(tmp_path: Path) -> None:
    """Pictures before addresses before words, whichever field of the tool holds them."""
    exports.write_all(tmp_path)
    questions = {
        "project-1.json": "age",
        "Batch_1_batch_results.csv": "years",
        "assignments.tsv": "score",
        "classifications.csv": "T0",
    }
    found = {
        name: set(read_answers(tmp_path / name, question=question).contents.values())
        for name, question in questions.items()
    }
    for name, contents in found.items():
        assert contents, name
        assert all(text.endswith(".jpg") for text in contents), name


def test_a_column_of_texts_or_addresses_is_what_tasks_show() -> None:
    rows = {"item": ["a", "a", "b"], "rater": ["u", "v", "u"], "score": [1.0, 2.0, 3.0]}
    for name in ("text", "url", "image_url"):
        answers = read_answers({**rows, name: [None, "first", "second"]})
        assert answers.contents == {"a": "first", "b": "second"}
        assert answers.value_names == ("score",)
    assert read_answers(rows).contents == {}
    # What is named as the value, or is the task, is nothing else.
    assert (
        read_answers(
            {"url": ["a", "b"], "worker": ["u", "v"], "value": [1, 2]}, task="url"
        ).contents
        == {}
    )
