"""Result: tables, saving and loading, and how it shows itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import make_crowd
from voxpop import BI, Answers, Average, ConfigError, DataError, Result, Simulation
from voxpop.tables import replacing


@pytest.fixture(scope="module")
def result() -> Result:
    return BI(support=(10, 100, 1000)).fit(make_crowd(0).answers)


def test_tables_carry_what_users_need(result: Result) -> None:
    assert list(result.tasks.columns) == [
        *("task", "x", "y", "sd"),
        *("sd_x", "lower_90_x", "upper_90_x", "lower_95_x", "upper_95_x"),
        *("sd_y", "lower_90_y", "upper_90_y", "lower_95_y", "upper_95_y"),
        "n_answers",
    ]
    assert list(result.workers.columns) == [
        *("worker", "n_answers", "variance", "variance_lower_95", "variance_upper_95"),
        *("weight", "p_10", "p_100", "p_1000"),
    ]
    shares = result.workers[["p_10", "p_100", "p_1000"]].sum(axis=1)
    np.testing.assert_allclose(shares, 1.0)
    assert result.workers["weight"].mean() == pytest.approx(1.0)


def test_intervals_nest(result: Result) -> None:
    low_95, high_95 = result.interval(0.95)
    low_90, high_90 = result.interval(0.90)
    inside = (low_95 < low_90) & (low_90 < result.estimate)
    assert (inside & (result.estimate < high_90) & (high_90 < high_95)).all()
    with pytest.raises(ConfigError, match="coverage must be one of"):
        result.interval(0.5)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_saved_and_loaded_to_the_last_bit(result: Result, tmp_path: Path, format: str) -> None:
    folder = result.save(tmp_path / "out", format)
    names = {f"tasks.{format}", f"workers.{format}", "result.json"}
    assert {path.name for path in folder.iterdir()} == names
    again = Result.load(folder)
    for name in (
        *("estimate", "quantile", "worker_variance", "worker_interval", "worker_weight"),
        *("levels", "level_weights", "worker_posterior", "task_answers", "worker_answers"),
        *("task_ids", "worker_ids"),
    ):
        np.testing.assert_array_equal(getattr(again, name), getattr(result, name), err_msg=name)
    np.testing.assert_allclose(again.variance, result.variance, rtol=1e-15)
    assert again.trace == result.trace
    assert again.settings == dict(result.settings)
    pd.testing.assert_frame_equal(again.workers, result.workers)


def test_number_like_text_ids_come_back_as_text(tmp_path: Path) -> None:
    ids = np.array(["1", "2", "1", "2"], dtype=object)
    answers = Answers.from_arrays(ids, [7, 7, 8, 8], [1.0, 2.0, 3.0, 5.0])
    again = Result.load(Average().fit(answers).save(tmp_path / "out"))
    assert again.task_ids.tolist() == ["1", "2"]
    assert again.worker_ids.tolist() == [7, 8]


def test_result_json_says_how_it_was_made(result: Result, tmp_path: Path) -> None:
    facts = json.loads((result.save(tmp_path) / "result.json").read_text())
    assert facts["settings"]["support"] == [10, 100, 1000]
    assert {"python", "voxpop", "numpy", "duckdb"} <= set(facts["versions"])
    assert len(facts["trace"]["changes"]) == result.trace.n_sweeps


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_wrong_places_are_told_in_one_line(result: Result, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no result\.json"):
        Result.load(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(DataError, match="is not a result that save"):
        Result.load(tmp_path)
    with pytest.raises(DataError, match="is a file"):
        result.save(tmp_path / "result.json")
    with pytest.raises(ConfigError, match="format must be one of"):
        result.save(tmp_path, "xlsx")


def test_it_shows_itself(result: Result) -> None:
    assert "Result of bi: 60 tasks from 240 answers of 30 workers, settled" in repr(result)
    assert "most trusted first" in repr(result)
    html = result._repr_html_()
    assert html.count("<table") == 2


def test_ids_are_escaped_in_html() -> None:
    answers = Answers.from_arrays(["<script>x</script>", "b"], ["u", "v"], [1.0, 2.0])
    assert "<script>" not in Average().fit(answers)._repr_html_()


def test_json_is_plain(crowd: Simulation) -> None:
    document = json.loads(json.dumps(Average().fit(crowd.answers).to_json()))
    assert document["tasks"][0]["task"] == "t00"
    assert isinstance(document["tasks"][0]["x"], float)
