"""The paper's experiments, in small: seeded, resumable, and able to fail."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from voxpop import experiments
from voxpop.cli import main
from voxpop.cli.reproduce import _PARTS
from voxpop.experiments import PARTS, Effort, Reproduction, reproduce
from voxpop.experiments.claims import CLAIMS, judge
from voxpop.experiments.learning import train
from voxpop.experiments.runner import Job, open_pool, rng_of, run_experiment
from voxpop.experiments.synthetic import EXAMPLE_RUN, FIGURES
from voxpop.experiments.tables import (
    deal_images,
    emulate_ages,
    read_age_crowd,
    read_ages,
    read_voc,
    worker_degrees,
)

TINY = Effort(name="tiny", instances=1, heavy=1, draws=2, resamples=2, n_tasks=20)
DATA = Path(__file__).parent.parent.parent / "shared" / "data"


def write_data(folder: Path) -> Path:
    """Data sets of the documented layout, made up and small."""
    rng = np.random.default_rng(0)
    for name in ("voc0712", "fgnet_truth", "moviereviews"):
        (folder / name).mkdir(parents=True)
    image = np.repeat(np.arange(40), rng.integers(1, 4, 40))
    low, size = rng.integers(0, 200, (len(image), 2)), rng.integers(20, 90, (len(image), 2))
    corners = np.hstack([low, low + size])
    boxes = pd.DataFrame(corners, columns=["xmin", "ymin", "xmax", "ymax"])
    boxes = boxes.assign(image=[f"{i:06d}" for i in image], difficult=0)
    boxes.loc[0, "difficult"] = 1
    boxes.to_csv(folder / "voc0712/voc0712_trainval.csv.gz", index=False)
    ages = pd.DataFrame(
        {"task": [f"{i:03d}A" for i in range(40)], "value": rng.integers(0, 70, 40)}
    )
    ages.to_csv(folder / "fgnet_truth/truth.csv", index=False)
    reviews, truth = folder / "moviereviews", rng.random(30)
    tasks = np.repeat(np.arange(30), 4)
    answers = pd.DataFrame({"task": [f"r{i:04d}" for i in tasks]})
    answers["worker"] = [f"w{u}" for u in np.tile(np.arange(4), 30)]
    answers["value"] = truth[tasks] + rng.normal(0, 0.1, 120)
    answers.to_csv(reviews / "answers.csv.gz", index=False)
    names = [f"r{i:04d}" for i in range(30)]
    pd.DataFrame({"task": names, "value": truth}).to_csv(reviews / "truth.csv.gz", index=False)
    for name, number in (("data_train_amt", 30), ("data_test", 12)):
        lines = [" ".join(f"{w}:{rng.integers(1, 4)}" for w in range(6)) for _ in range(number)]
        with gzip.open(reviews / f"{name}.txt.gz", "wt") as file:
            file.writelines(f"6 {line}\n" for line in lines)
    with gzip.open(reviews / "labels_test.txt.gz", "wt") as file:
        file.writelines(f"{rating:.2f}\n" for rating in rng.random(12))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Reproduction, Path]:
    folder = tmp_path_factory.mktemp("paper")
    return reproduce(["all"], TINY, folder, data), folder


def test_everything_runs_and_every_claim_is_judged(whole: tuple[Reproduction, Path]) -> None:
    found, folder = whole
    assert not found.notes
    assert [v.name for v in found.verdicts] == [claim.name for claim in CLAIMS]
    assert all(v.passed is not None and v.measured for v in found.verdicts)
    pictures = {f"fig1{panel}.{kind}" for panel in ("", *"abcd") for kind in ("png", "svg")}
    tables = {f"{experiment.name}.csv" for experiment in PARTS["all"]}
    assert {path.name for path in found.files} == pictures | tables | {"summary.md"}
    assert all(path.stat().st_size for path in found.files)
    table = pd.read_csv(folder / "fig1a.csv")
    assert len(table) == 10 * 5  # settings, methods; one instance
    assert table["mse"].gt(0).all()
    summary = (folder / "summary.md").read_text()
    assert all(sheet.title in summary for sheet in found.sheets)


def test_what_is_there_is_not_run_again(
    whole: tuple[Reproduction, Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Job) -> list[object]:
        raise AssertionError("ran again")

    monkeypatch.setattr(Job, "do", refuse)
    assert reproduce(["claims"], TINY, whole[1], data).verdicts == whole[0].verdicts


def test_a_part_gives_the_numbers_of_the_whole(
    whole: tuple[Reproduction, Path], data: Path, tmp_path: Path
) -> None:
    more = Effort(name="more", instances=1, heavy=1, draws=1, resamples=2, n_tasks=20)
    for name in ("table2", "example"):
        (experiment,) = (e for e in PARTS["all"] if e.name == name)
        rows = pd.DataFrame(run_experiment(experiment, more, tmp_path, data))
        all_rows = pd.read_csv(whole[1] / f"{name}.csv")
        first = all_rows[all_rows["instance"] == 0].reset_index(drop=True)
        pd.testing.assert_frame_equal(rows, first, check_exact=False, rtol=1e-12)


def test_processes_do_not_change_the_numbers(
    whole: tuple[Reproduction, Path], data: Path, tmp_path: Path
) -> None:
    with open_pool(2) as pool:
        rows = run_experiment(EXAMPLE_RUN, TINY, tmp_path, data, pool)
    again = run_experiment(EXAMPLE_RUN, TINY, whole[1], data)
    assert rows == again


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Kill it outright once something is finished; what was kept stays, the rest is added."""
    code = (
        "from pathlib import Path; from voxpop.experiments import Effort, reproduce\n"
        "e = Effort(name='t', instances=40, heavy=1, draws=1, resamples=1, n_tasks=40)\n"
        f"reproduce(['fig1a'], e, Path({str(tmp_path / 'cut')!r}), Path('.'))"
    )
    run = subprocess.Popen([sys.executable, "-c", code])
    instances = tmp_path / "cut" / "instances"
    deadline = time.monotonic() + 60
    while not list(instances.glob("*/*/*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in instances.glob("*/*/*.json")}
    assert 0 < len(kept) < 400
    effort = Effort(name="t", instances=2, heavy=1, draws=1, resamples=1, n_tasks=40)
    broken = next(iter(kept))
    broken.write_text(broken.read_text()[:20])  # as a full disk might leave it
    del kept[broken]
    (experiment,) = PARTS["fig1a"]
    rows = run_experiment(experiment, effort, tmp_path / "cut", tmp_path)
    assert rows == run_experiment(experiment, effort, tmp_path / "whole", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_absent_data_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = reproduce(["table1", "table2", "fig1a"], TINY, tmp_path / "out", tmp_path / "none")
    assert len(found.notes) == 2
    assert all("absent" in note and "--data" in note for note in found.notes)
    assert (tmp_path / "out" / "fig1a.png").exists()
    # Only claims that this run can judge are spoken of.
    assert not found.verdicts


def test_absent_packages_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "find_spec", lambda _: None)
    found = reproduce(["table3", "fig1a"], TINY, tmp_path / "out", tmp_path)
    assert [note.rsplit("pip install ")[1] for note in found.notes] == [
        "'voxpop[learn]'",
        "'voxpop[learn]'",
        "'voxpop[plots]'",
    ]


def test_the_command_prints_verdicts(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "QUICK", TINY)
    command = ["reproduce", "table2", "--data", str(data), "-o", str(tmp_path), "--jobs", "1"]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert [line.split("\t")[1] for line in shown.stdout.splitlines()] == ["voc-order", "voc-level"]
    lines = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert {line["verdict"] for line in lines} <= {"PASS", "FAIL"}


def test_the_command_offers_every_part() -> None:
    assert set(_PARTS) == set(PARTS)


def test_claims_can_fail(whole: tuple[Reproduction, Path]) -> None:
    """With the names of the methods exchanged, nothing that compares them may pass."""
    with_oracle = [e.name for e in PARTS["all"] if e.name != "reviews"]
    frames = {name: pd.read_csv(whole[1] / f"{name}.csv") for name in with_oracle}
    names = {"bi": "average", "average": "bi", "nbi": "strong-oracle", "strong-oracle": "nbi"}
    for rows in frames.values():
        rows["method"] = rows["method"].replace(names)
    passed = {v.name for v in judge(frames) if v.passed}
    comparing = {"average-far-off", "below-100", "robust-to-spammers", "one-precise-worker"}
    comparing |= {"voc-order", "voc-level", "fgnet-close-to-oracle", "bi-near-weak-oracle"}
    assert not passed & comparing


def test_a_claim_without_its_experiment_is_not_judged() -> None:
    assert {v.word for v in judge({})} == {"NOT RUN"}


def test_names_alone_seed() -> None:
    a, b, c = (rng_of("fig1a", setting, 0).random() for setting in ("r=1", "r=1", "r=2"))
    assert a == b != c
    assert len({experiment.name for experiment in FIGURES}) == 4


@given(st.integers(2, 200), st.integers(2, 60), st.integers(20, 500))
def test_degrees_are_what_was_asked_for(n_workers: int, mean: int, most: int) -> None:
    n_answers = n_workers * mean
    if most * n_workers < 2 * n_answers:
        return  # everybody would have to be about the busiest
    degree = worker_degrees(n_answers, n_workers, most)
    assert degree.sum() == n_answers
    assert 1 <= degree.min() <= degree.max() <= most


def test_whoever_has_an_image_answers_all_its_corners(data: Path) -> None:
    image, box = read_voc(data)
    assert len(image) == len(box) == len(pd.read_csv(next(data.glob("voc*/*")))) - 1
    dealt = deal_images(image, np.random.default_rng(1))
    crew: dict[int, set[frozenset[int]]] = {}
    for point in range(dealt.n_tasks):
        workers = frozenset(dealt.worker[dealt.task == point].tolist())
        assert len(workers) == 3
        crew.setdefault(int(image[point // 2]), set()).add(workers)
    assert all(len(sets) == 1 for sets in crew.values())
    per_worker = np.bincount([u for sets in crew.values() for u in next(iter(sets))])
    assert per_worker.max() == 10


def test_emulated_ages_are_whole_years_of_the_right_shape() -> None:
    age = np.tile(np.arange(0.0, 70.0), 5)
    crowd = emulate_ages(age, True, np.random.default_rng(0))
    assert set(crowd.answers.task_degree) == {10}
    assert crowd.answers.value.min() >= 0
    assert (crowd.answers.value % 1 == 0).all()
    assert crowd.answers.worker_degree.min() == 1


def test_a_users_own_age_crowd_is_read(tmp_path: Path) -> None:
    data = write_data(tmp_path / "d")
    photos, age = read_ages(data)
    (data / "fgnet").mkdir()
    rows = [
        (p, w, a + d) for p, a in zip(photos, age, strict=True) for w, d in (("u", 0), ("v", 3))
    ]
    table = pd.DataFrame(rows, columns=["task", "worker", "value"])
    table.to_csv(data / "fgnet/answers.csv", index=False)
    crowd = read_age_crowd(data)
    assert crowd.variances == pytest.approx({"u": 1 / 12, "v": 9.0})
    (experiment,) = PARTS["table1"]
    assert ({"crowd": "real"}, 1) in experiment.plan(TINY, data)


def test_equal_sds_weigh_nothing() -> None:
    def fit(label: np.ndarray, weight: np.ndarray | None, rows: np.ndarray) -> np.ndarray:
        return np.full(3, np.average(label[rows], weights=None if weight is None else weight[rows]))

    labels, truth = np.arange(4.0), np.array([1.0, 2.0, 4.0])
    found = train(fit, labels, np.full(4, 0.3), truth, np.arange(4))
    assert found[1][1] == pytest.approx(found[0][1])
    assert found[2][1] == pytest.approx(found[0][1])


@pytest.mark.skipif(not DATA.exists(), reason="the data sets are not part of the project")
def test_the_papers_counts_come_out() -> None:
    image, box = read_voc(DATA)
    assert (len(box), image.max() + 1) == (40_058, 16_551)
    photos, _ = read_ages(DATA)
    assert len(photos) == 1002
