"""The public benchmark: every method on every data set of a folder, scored as it would be alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from voxpop import DataError, aggregate, score
from voxpop.cli import main
from voxpop.estimators.benchmark import find_data_sets, run_benchmark
from voxpop.estimators.peers import PEERS, Peer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets in one folder, one of them in Parquet, and things that are no set."""
    root = tmp_path_factory.mktemp("crowds")
    rng = np.random.default_rng(3)
    for name, n_tasks in (("ages", 30), ("ages/hard", 20)):
        truth = rng.uniform(20, 70, n_tasks)
        rows = [
            (f"t{i}", f"w{u}", truth[i] + (1, 3, 9, 2)[u] * rng.normal())
            for i in range(n_tasks)
            for u in range(4)
        ]
        answers = pd.DataFrame(rows, columns=["task", "worker", "value"])
        truths = pd.DataFrame({"task": [f"t{i}" for i in range(n_tasks)], "value": truth})
        (root / "ages").mkdir(exist_ok=True)
        if name == "ages":
            answers.to_csv(root / "ages/answers.csv.gz", index=False)
            truths.to_csv(root / "ages/truth.csv", index=False)
        else:
            answers.to_parquet(root / "ages/hard_answers.parquet")
            truths.to_parquet(root / "ages/hard_truth.parquet")
    (root / "unanswered").mkdir()
    truths.to_csv(root / "unanswered/truth.csv", index=False)
    (root / "untrue").mkdir()
    answers.to_csv(root / "untrue/answers.csv", index=False)
    (root / "README.md").write_text("answers.csv")
    return root


def test_sets_are_found_by_their_layout(folder: Path) -> None:
    found = find_data_sets(folder)
    assert {*found} == {"ages", "ages hard"}
    assert found["ages"].truth == folder / "ages/truth.csv"
    assert found["ages hard"].answers == folder / "ages/hard_answers.parquet"


def test_a_method_scores_as_it_does_alone(folder: Path) -> None:
    found = run_benchmark(folder, ["nbi", "average"])
    assert [run.method for run in found.runs] == ["average", "median", "nbi"] * 2
    for run in found.runs:
        files = find_data_sets(folder)[run.data_set]
        alone = score(aggregate(files.answers, run.method), files.truth)
        assert run.score == alone
    columns = found.columns()
    better = [min(columns["rmse"][k : k + 2]) for k in (0, 3)]
    assert columns["relative"][2::3] == [
        columns["rmse"][k] / b for k, b in zip((2, 5), better, strict=True)
    ]
    assert found.best() == {"ages": "nbi", "ages hard": "nbi"}  # one worker is far noisier
    assert found.summary() == "least error: nbi on ages, ages hard"


def test_what_stops_a_method_is_its_result(folder: Path) -> None:
    found = run_benchmark(folder, ["judges"], ["ages"])
    assert [run.method for run in found.runs if run.score] == ["average", "median"]
    assert "known truth" in found.not_run()["judges"]
    page = found.to_markdown()
    assert "| judges |" not in page
    assert "Not run: judges (judges needs at least" in page


def test_a_peer_that_is_not_installed_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> None:
        raise ImportError("No module named 'it'")

    for peer in PEERS:
        monkeypatch.setattr(type(peer), "estimate", missing)
    found = run_benchmark(folder, [], ["ages"], peers=True)
    assert {*found.not_run()} == {peer.name for peer in PEERS}
    assert found.not_run()["crowd-kit RASA"].startswith("not installed: pip install crowd-kit")


def test_a_peers_estimates_are_scored_and_claim_no_interval(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_answers(_: Peer, answers: object) -> np.ndarray:
        return answers.value[answers.task_ptr[:-1]]  # type: ignore[attr-defined, no-any-return]

    for peer in PEERS:
        monkeypatch.setattr(type(peer), "estimate", first_answers)
    last = run_benchmark(folder, [], ["ages"], peers=True).runs[-1]
    assert last.score is not None
    assert 0.5 < last.score.rmse < 2  # the first worker's noise is 1
    assert np.isnan(last.score.coverage_95)


def test_the_command_prints_and_writes(folder: Path, tmp_path: Path) -> None:
    page, table = tmp_path / "b.md", tmp_path / "b.csv"
    words = ["benchmark", "--data", str(folder), "--methods", "nbi", "--sets", "ages"]
    done = CliRunner().invoke(main, [*words, "-o", str(page)])
    assert done.exit_code == 0, done.output
    rows = [*csv.DictReader(done.stdout.splitlines())]
    assert [row["method"] for row in rows] == ["average", "median", "nbi"]
    least = min(rows, key=lambda row: float(row["rmse"]))
    assert f"| {least['method']} | **{float(least['rmse']):.4g}** |" in page.read_text()
    assert "ages, nbi: RMSE" in done.stderr
    done = CliRunner().invoke(main, [*words, "-o", str(table), "--json"])
    document = json.loads(done.stdout)
    assert document["sets"]["ages"] == {"tasks": 30, "workers": 4, "answers": 120, "dimension": 1}
    assert document["best"] == {"ages": least["method"]}
    assert pd.read_csv(table)["rmse"].tolist() == [run["rmse"] for run in document["runs"]]


def test_bad_input_is_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found no data set; expected folders with"):
        run_benchmark(tmp_path)
    for words, said in (
        (["--sets", "shoes"], "no data set 'shoes'"),
        (["--methods", "magic"], "no method 'magic'"),
    ):
        done = CliRunner().invoke(main, ["benchmark", "--data", str(folder), *words])
        assert done.exit_code == 1
        assert done.stderr.startswith("Error: ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
