"""Small crowds: as good as the better of mean and median, and no interval from nothing."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.degenerate import is_fine
from tests.small_crowds import METHODS, MOST_ANSWERS, SHAPES, draw, fits
from voxpop import (
    BI,
    Answers,
    DataWarning,
    Result,
    aggregate,
    diagnose,
    score,
    training_columns,
    write_report,
)
from voxpop.cli import main
from voxpop.data.formats.writing import confidence


def one_answer_each(kind: str) -> Answers:
    rng = np.random.default_rng(0)
    workers = {"several workers": np.arange(20) % 5, "one worker": np.zeros(20, dtype=int)}
    dimension = 4 if kind == "vectors" else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return Answers.from_arrays(
            [f"t{i}" for i in range(20)],
            workers.get(kind, np.arange(20) % 5),
            rng.uniform(5, 100, (20, dimension)),
        )


@pytest.mark.slow
def test_small_crowds_are_no_worse_than_mean_or_median() -> None:
    squares: dict[str, list[float]] = {"auto": [], "average": [], "median": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = rng.normal(50, 20, 5)
        task, worker = np.indices((5, 3)).reshape(2, -1)
        noise = (10 * np.exp(rng.normal(0, 0.5, 3)))[worker] * rng.standard_normal(15)
        answers = Answers.from_arrays(task, worker, truth[task] + noise)
        for method, found in squares.items():
            error = aggregate(answers, method).estimate[:, 0] - truth
            found.append(float((error**2).mean()))
    rmse = {method: np.sqrt(np.mean(found)) for method, found in squares.items()}
    # The benchmark's 100 draws give .89; the ratio of 40 has an error of about .04.
    assert rmse["auto"] <= min(rmse["average"], rmse["median"])


@pytest.mark.parametrize("kind", ["several workers", "one worker", "vectors"])
def test_one_answer_a_task_gives_no_interval_and_says_why(kind: str, tmp_path: Path) -> None:
    answers = one_answer_each(kind)
    result = aggregate(answers)
    np.testing.assert_array_equal(result.estimate, answers.value)
    for array in (result.sd, result.quantile, result.worker_variance, result.worker_interval):
        assert np.isnan(array).all()
    assert any("nothing shows how far off an answer is" in note for note in result.notes)
    for file_format in ("csv", "parquet"):
        again = Result.load(result.save(tmp_path / file_format, file_format))
        np.testing.assert_array_equal(again.quantile, result.quantile)
        np.testing.assert_array_equal(again.worker_interval, result.worker_interval)
    document = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert {None} == {row[name] for row in document["tasks"] for name in row if "95" in name}
    page = write_report(answers, result, tmp_path / "report.html").read_text()
    assert "Nothing shows how far off an answer is." in page
    assert not diagnose(answers, result).flags
    assert "there is no interval" in result.explain(answers, "t0").sentences()[0]
    prediction = result.predict_answer(answers.worker_ids[0], "t0")
    assert np.isnan(prediction.lower).all()
    assert np.isfinite(prediction.mean).all()
    assert score(result, answers.value + 1).to_dict()["coverage_95"] is None
    assert (training_columns(result)["sample_weight"] == 1).all()
    assert set(confidence(result)) == {0.5}


def test_the_command_leaves_the_cells_empty(tmp_path: Path) -> None:
    rows = [f"t{i},w{i % 3},{i}" for i in range(9)]
    (tmp_path / "a.csv").write_text("\n".join(["task,worker,value", *rows]))
    run = ["aggregate", str(tmp_path / "a.csv"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, run)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1] == "t0,0.0,,,,,,1,few answers"
    assert "no sds and no intervals" in done.stderr


def test_there_are_intervals_where_something_shows_the_noise() -> None:
    answers = one_answer_each("several workers")
    stated = aggregate(answers, BI(support=(10.0, 100.0)))
    assert np.isfinite(stated.quantile).all()
    one_task = Answers.from_arrays(np.zeros(7), np.arange(7), np.arange(7.0))
    assert np.isfinite(aggregate(one_task).quantile).all()
    twice = Answers.from_arrays([0, 0, 1, 2], [0, 1, 0, 1], [1.0, 2.0, 5.0, 9.0])
    assert np.isfinite(aggregate(twice).quantile).all()


@pytest.mark.parametrize("method", [BI(support="common"), BI(support=(1.0, 1e4)), BI()])
def test_no_noise_is_known_exactly(method: BI) -> None:
    rng = np.random.default_rng(1)
    task, worker = np.indices((60, 5)).reshape(2, -1)
    answers = Answers.from_arrays(task, worker, 10 * task + rng.standard_normal(300))
    result = method.fit(answers)
    low, high = result.worker_interval.T
    assert (high > 1.2 * low).all()
    assert ((low <= result.worker_variance) & (result.worker_variance <= high)).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
def test_small_crowds_of_every_shape_hold() -> None:
    first: dict[str, int] = {}
    for seed in range(60):
        crowd = draw(seed)
        assert crowd.answers.n_edges <= MOST_ANSWERS
        first.setdefault(crowd.words.partition(",")[0], seed)
    assert len(first) == len(SHAPES)
    for seed in first.values():
        for _, case, said in fits(range(seed, seed + 1), list(METHODS)):
            assert is_fine(said), f"{case}: {said}"
