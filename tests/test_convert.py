"""The commands for formats as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from tests import exports
from voxpop import FORMATS, WRITERS, read_answers
from voxpop.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for worker in exports.PEOPLE:
        path = tmp_path / "jobs" / f"{worker}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(exports.cvat(worker))
    (tmp_path / "project.json").write_text(json.dumps(exports.label_studio()))
    (tmp_path / "batch.csv").write_text(exports.mturk())
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def ok(*arguments: str) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.parametrize(
    "ending", ["csv", "tsv", "parquet", "jsonl", "csv.gz", "tsv.gz", "jsonl.gz"]
)
def test_convert_writes_a_table_that_reads_the_same(folder: Path, ending: str) -> None:
    said = ok("convert", "project.json", f"a.{ending}", "--question", "age").stderr
    assert "read as label-studio" in said
    assert "wrote 6 answers of 3 workers to 2 tasks" in said
    answers = read_answers(folder / f"a.{ending}", gold="gold")
    straight = read_answers(folder / "project.json", question="age")
    assert answers.task_ids.tolist() == straight.task_ids.tolist()
    assert answers.worker_ids.tolist() == straight.worker_ids.tolist()
    assert answers.value.tolist() == straight.value.tolist()
    assert answers.is_gold.tolist() == [True, False]


def test_convert_takes_several_files_and_tells_of_workers(folder: Path) -> None:
    jobs = [str(path) for path in sorted((folder / "jobs").iterdir())]
    said = ok("convert", *jobs, "o.csv", "--question", "box", "--workers", "w.csv").stderr
    assert "into 3 objects (marks without an object: 1, missed objects: 2)" in said
    assert set(pd.read_csv("o.csv")["task"]) == set(exports.OBJECTS)
    workers = {row[0]: row[1:] for row in pd.read_csv("w.csv").itertuples(index=False)}
    assert workers["bob"] == (4, 3, 0, 1)  # marks, found, missed, extra
    assert workers["carol"] == (1, 1, 2, 0)
    failed = run("convert", "project.json", "a.csv", "--question", "age", "--workers", "x.csv")
    assert failed.exit_code == 1
    assert "no marks were matched" in failed.stderr


@pytest.mark.usefixtures("folder")
def test_there_and_back_again() -> None:
    ok("aggregate", "jobs", "--question", "box", "--method", "average")
    said = ok("export", "jobs.voxpop", "annotations.xml", "--source", "jobs").stderr
    assert "wrote 3 shapes in 2 images to annotations.xml" in said
    said = ok("export", "jobs.voxpop", "labels.csv", "--to", "training").stderr
    assert "3 labels with sd and sample_weight" in said
    ok("aggregate", "project.json", "--question", "age", "--method", "average")
    said = ok("export", "project.voxpop", "p.json", "--source", "project.json").stderr
    assert "2 estimates as predictions of 2 tasks" in said
    failed = run("export", "project.voxpop", "p.json")
    assert (failed.exit_code, "name the format with --to" in failed.stderr) == (1, True)


def test_a_batch_is_reviewed(folder: Path) -> None:
    Path("reasons.csv").write_text("worker,reason\nBOB,Too fast\n")
    Path("bonuses.csv").write_text("worker,amount\nALICE,0.25\n")
    ok("aggregate", "batch.csv", "--question", "age", "--method", "average")
    review = ("--reasons", "reasons.csv", "--bonuses", "bonuses.csv")
    said = ok("export", "batch.voxpop", "r.csv", "--source", "batch.csv", *review).stderr
    assert "3 assignments to approve, 2 to reject" in said
    assert pd.read_csv(folder / "r_bonus.csv")["BonusAmount"].tolist() == [0.25, 0.25]
    Path("bonuses.csv").write_text("worker,amount\nALICE,much\n")
    failed = run("export", "batch.voxpop", "r.csv", "--source", "batch.csv", *review)
    assert (failed.exit_code, failed.stderr) == (
        1,
        "Error: bonuses.csv: ALICE: 'much' is not a finite number\n",
    )


def test_formats_are_listed() -> None:
    listed = ok("formats").stdout
    assert all(name in listed for name in {*FORMATS, *WRITERS})
    assert json.loads(ok("formats", "--json").stdout) == {"read": FORMATS, "written": WRITERS}


def test_a_wide_table_with_a_number_for_nothing(folder: Path) -> None:
    Path("mos.csv").write_text("PVS_ID,u,v,w\na,1,2,-1\nb,3,4,5\n")
    said = ok("aggregate", "mos.csv", "--missing", "-1", "--method", "average").stderr
    assert "read 5 answers: task from 'PVS_ID', worker from 'header'" in said
    assert folder.joinpath("mos.voxpop/tasks.csv").exists()
