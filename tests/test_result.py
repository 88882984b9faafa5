"""Result: tables, saving and loading, and how it shows itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.conftest import make_crowd
from voxpop import (
    BI,
    Answers,
    Average,
    Calibration,
    ConfigError,
    DataError,
    Exact,
    GoldCheck,
    NoiseFacts,
    Result,
    Simulation,
    StrongOracle,
    aggregate,
)
from voxpop.data.output import replacing


@pytest.fixture(scope="module")
def result() -> Result:
    return BI(support=(10, 100, 1000)).fit(make_crowd(0).answers)


def test_tables_carry_what_users_need(result: Result) -> None:
    assert list(result.tasks.columns) == [
        *("task", "x", "y", "sd"),
        *("sd_x", "lower_90_x", "upper_90_x", "lower_95_x", "upper_95_x"),
        *("sd_y", "lower_90_y", "upper_90_y", "lower_95_y", "upper_95_y"),
        *("n_answers", "needs_a_look"),
    ]
    assert list(result.workers.columns) == [
        *("worker", "n_answers", "noise_sd", "noise_sd_lower_95", "noise_sd_upper_95"),
        *("weight", "flags"),
    ]
    np.testing.assert_allclose(result.workers["noise_sd"] ** 2, result.worker_variance)
    assert list(result.worker_levels.columns) == ["worker", "p_10", "p_100", "p_1000"]
    shares = result.worker_levels[["p_10", "p_100", "p_1000"]].sum(axis=1)
    np.testing.assert_allclose(shares, 1.0)
    assert result.workers["weight"].mean() == pytest.approx(1.0)


def test_intervals_nest(result: Result) -> None:
    low_95, high_95 = result.interval(0.95)
    low_90, high_90 = result.interval(0.90)
    inside = (low_95 < low_90) & (low_90 < result.estimate)
    assert (inside & (result.estimate < high_90) & (high_90 < high_95)).all()
    low_50, high_50 = result.interval(0.5)
    assert ((low_90 < low_50) & (high_50 < high_90)).all()
    for coverage in (0.0, 1.0, 95):
        with pytest.raises(ConfigError, match="coverage must be between 0 and 1"):
            result.interval(coverage)


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_saved_and_loaded_to_the_last_bit(result: Result, tmp_path: Path, format: str) -> None:
    folder = result.save(tmp_path / "out", format)
    names = {*(f"{name}.{format}" for name in ("tasks", "workers", "levels")), "result.json"}
    assert {path.name for path in folder.iterdir()} == names
    again = Result.load(folder)
    for name in (
        *("estimate", "quantile", "worker_weight"),
        *("levels", "level_weights", "worker_posterior", "task_answers", "worker_answers"),
        *("task_ids", "worker_ids"),
    ):
        np.testing.assert_array_equal(getattr(again, name), getattr(result, name), err_msg=name)
    for name in ("variance", "worker_variance", "worker_interval"):  # written as sds
        np.testing.assert_allclose(getattr(again, name), getattr(result, name), rtol=1e-15)
    assert again.review.summary() == result.review.summary()
    assert again.review.reasons == result.review.reasons
    np.testing.assert_array_equal(again.review.tasks, result.review.tasks)
    assert again.trace == result.trace
    assert again.settings == dict(result.settings)
    pd.testing.assert_frame_equal(again.workers, result.workers)


def test_what_was_learned_and_applied_is_saved(tmp_path: Path) -> None:
    noise = NoiseFacts(
        tails=3.0, bias_sd=(1.5, 2.0), bias_exponent=0.5, coordinate_scale=(2.0, 0.5)
    )
    gold = GoldCheck(n_tasks=30, coverage_95=0.8, stretch=2.0)
    plain = replace(BI().fit(make_crowd(0).answers), noise=noise)
    ours = plain.calibrated(Calibration(stretch=1.25, gold=gold))
    for result in (ours, plain.calibrated(Calibration(gold=replace(gold, stretch=None)))):
        again = Result.load(result.save(tmp_path))
        assert (again.noise, again.calibration) == (result.noise, result.calibration)
        before = result.agreement_variance
        np.testing.assert_allclose(again.agreement_variance, before, rtol=1e-14)
        assert result.to_dict()["noise"]["bias_sd"] == [1.5, 2.0]


def test_results_of_version_0_1_are_read(tmp_path: Path) -> None:
    """The directory and the figures are by version 0.1, which kept all this in the settings."""
    result = Result.load(Path(__file__).parent / "saved_by_0_1")
    gold = GoldCheck(n_tasks=20, coverage_95=0.95, stretch=1.1032116546794957)
    assert result.calibration == Calibration(stretch=1.0, gold=gold)
    assert result.noise == NoiseFacts(coordinate_scale=(1.0,))
    old = {"fallback", "fallback_share", "tails_used", "bias_sd", "coordinate_scale"}
    assert not (old | {"gold_hidden", "gold_coverage_95", "gold_stretch"}) & set(result.settings)
    found = result.predict_answer("w03", "t30")
    told = np.concatenate([found.mean, found.sd, found.lower, found.upper])
    np.testing.assert_allclose(told, [23.61124022, 5.50002099, 12.83139716, 34.39108328])

    path = result.save(tmp_path) / "result.json"
    facts = json.loads(path.read_text())
    del facts["calibration"], facts["noise"]
    learned = {"tails_used": 4.0, "bias_sd": [2.0], "bias_exponent": 0.5}
    learned |= {"fallback": "mean", "fallback_share": 0.4}
    facts["settings"] |= learned | {"difficulty_shares": [0.5, 0.5], "coordinate_scale": [1.0]}
    facts["audit"] |= {"stretch": 1.2, "exact": True}
    path.write_text(json.dumps(facts))
    again = Result.load(tmp_path)
    assert again.calibration == Calibration(stretch=1.2)
    assert again.alike_share == 0.4
    assert again.settings == result.settings
    assert again.noise == NoiseFacts(
        tails=4.0,
        bias_sd=(2.0,),
        bias_exponent=0.5,
        difficulty_shares=(0.5, 0.5),
        coordinate_scale=(1.0,),
    )


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
    first, second = repr(result).splitlines()[:2]
    assert (
        first == result.review.summary() == "46 labels ready, 14 need a look, 0 workers to talk to"
    )
    assert "Result of bi: 60 tasks from 240 answers of 30 workers, converged" in second
    assert "tasks that need a look" in repr(result)
    html = result._repr_html_()
    assert html.startswith(f"<p><b>{first}</b>")
    assert html.count("<table") == 1
    assert html.count("<tr>") == 10


def test_ids_are_escaped_in_html() -> None:
    answers = Answers.from_arrays(["<script>x</script>", "b"], ["u", "v"], [1.0, 2.0])
    assert "<script>" not in Average().fit(answers)._repr_html_()


def test_no_column_hides_another(tmp_path: Path) -> None:
    value = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [5.0, 9.0]])
    answers = Answers.from_arrays(
        list("aabb"), list("uvuv"), value, value_names=("sd", "n_answers")
    )
    result = Average().fit(answers)
    assert list(result.tasks.columns[:4]) == ["task", "sd_estimate", "n_answers_estimate", "sd"]
    again = Result.load(result.save(tmp_path))
    np.testing.assert_array_equal(again.estimate, result.estimate)
    close = BI(support=(1000000.0, 1000001.0)).fit(answers)
    assert list(close.worker_levels.columns[-2:]) == ["p_1000000.0", "p_1000001.0"]


def test_the_columns_taken_are_told_in_a_notebook() -> None:
    frame = pd.DataFrame(
        {"item": list("aabb"), "rater": list("uvuv"), "score": [1.0, 2.0, 3.0, 5.0]}
    )
    assert "task from 'item', worker from 'rater', value from 'score'" in repr(aggregate(frame))


def test_settings_are_plain_and_complete(tmp_path: Path) -> None:
    crowd = make_crowd(0)
    prior: dict[str, Any] = {"prior_mean": np.array([50.0, 50.0]), "prior_variance": 900.0}
    estimators = (BI(support=(10, 100), **prior), StrongOracle(variances=crowd.variances))
    for estimator in estimators:
        result = estimator.fit(crowd.answers)
        assert Result.load(result.save(tmp_path)).settings == result.settings
    small = Answers.from_arrays(list("aab"), list("uvu"), crowd.answers.value[:3])
    exact = Exact(support=[1, 2], **prior).fit(small)
    assert Result.load(exact.save(tmp_path)).settings == exact.settings
    assert BI(**prior) == BI(**prior) != BI(prior_mean=1.0, prior_variance=900.0)
    assert hash(BI(**prior)) == hash(BI(**prior))


def test_json_is_plain(crowd: Simulation) -> None:
    document = json.loads(json.dumps(Average().fit(crowd.answers).to_dict()))
    assert document["tasks"][0]["task"] == "t00"
    assert isinstance(document["tasks"][0]["x"], float)
