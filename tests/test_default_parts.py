"""The default over parts: the same bits as in memory, whatever is chosen, cut, or killed."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.special import expit

import voxpop as vp
from tests.test_noise import crowd as draw
from tests.test_partitions import Killed, assert_same_bits
from voxpop.arrays import Floats
from voxpop.cli import main
from voxpop.estimators.auto import screen
from voxpop.estimators.auto.subset import connected_part, neighbourhood
from voxpop.estimators.bi import large_fit
from voxpop.inference.engine import native_is_installed
from voxpop.models.noise import COMPONENTS
from voxpop.partitions import cluster, contest, default
from voxpop.partitions.cut import Source, cut
from voxpop.partitions.nearby import CrowdInParts
from voxpop.partitions.run import Running, aggregate_parts
from voxpop.partitions.select import quantiles
from voxpop.partitions.steps import Call, Job, Log, OneByOne, Part, Steps, Totals

pytestmark = pytest.mark.skipif(
    not native_is_installed(), reason="comparisons of noise models take minutes without it"
)
# Few sweeps: bits are to be equal, whether messages have settled or not.
FEW = vp.Auto(contest_answers=400, max_iter=6)


def write(path: Path, answers: vp.Answers) -> Path:
    """Write answers in a shuffled order, with ids that are text."""
    names = ("value",) if answers.dimension == 1 else ("x", "y")
    rows = {"task": [f"t{i}" for i in answers.task], "worker": [f"w{u}" for u in answers.worker]}
    rows |= dict(zip(names, answers.value.T, strict=True))
    pd.DataFrame(rows).sample(frac=1, random_state=1).to_parquet(path, index=False)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crowd whose tasks are not equally hard."""
    answers = draw(3, n_tasks=160, difficulty=(0.1, 1.0, 9.0))[0]
    return write(tmp_path_factory.mktemp("crowd") / "answers.parquet", answers)


@pytest.fixture(scope="module")
def known(path: Path) -> vp.Result:
    return FEW.fit(vp.read_answers(path))


def in_parts(
    path: Path, out: Path, auto: vp.Auto = FEW, gold: Path | None = None, **how: Any
) -> vp.Result:
    source = Source(path=str(path), gold=None if gold is None else str(gold))
    return aggregate_parts(source, auto, out, Running(**how)).result


def write_gold(path: Path, answers: vp.Answers, truth: Floats, every: int) -> Path:
    """Write the truths of some tasks, in a file of their own."""
    known = np.flatnonzero(np.arange(len(truth)) % every == 0)
    names = ("value",) if answers.dimension == 1 else ("x", "y")
    rows = dict(zip(names, truth[known].T, strict=True))
    pd.DataFrame({"task": [f"t{i}" for i in known], **rows}).to_csv(path, index=False)
    return path


def assert_same(out: Path, found: vp.Result, known: vp.Result) -> None:
    assert_same_bits(out, known)
    assert found.settings == known.settings
    assert found.trace == known.trace
    assert found.notes == known.notes
    assert found.audit is not None
    assert known.audit is not None
    assert found.audit.stretch == known.audit.stretch
    assert found.audit.n_answers == known.audit.n_answers
    assert found.audit.rmse == pytest.approx(known.audit.rmse, rel=1e-12, nan_ok=True)
    assert found.audit.log_score == pytest.approx(known.audit.log_score, rel=1e-12)
    assert found.audit.unstretched_95 == pytest.approx(known.audit.unstretched_95, abs=2e-3)
    # Halves are cut elsewhere, by which this is as different as of other answers: three sds.
    chance = 3.0 * np.sqrt(0.05 * 0.95 / known.audit.n_answers)
    assert found.audit.coverage_95 == pytest.approx(known.audit.coverage_95, abs=chance)


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_parts_give_the_bits_of_the_default_in_memory(
    path: Path, known: vp.Result, tmp_path: Path, n_parts: int
) -> None:
    assert known.settings["contest_answers_used"] <= 400 < len(known.task_ids) * 6
    assert_same(tmp_path, in_parts(path, tmp_path, n_parts=n_parts), known)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("component", "drawn"),
    [
        ("bias", {"bias_sd": 8.0, "dimension": 2}),
        ("tails", {"freedom": 2.5}),
        ("truths", {}),
    ],
)
def test_bits_are_those_in_memory_whatever_model_is_best(
    tmp_path: Path, component: str, drawn: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = tuple(c for c in COMPONENTS if c.name == component)
    monkeypatch.setattr(screen, "COMPONENTS", tried)
    for module in (large_fit, default):  # as with more answers than predictions are kept of
        monkeypatch.setattr(module, "MOST_KEPT", 0 if component == "truths" else 4_000_000)
    answers = draw(3, n_tasks=160, **drawn)[0]
    path = write(tmp_path / "answers.parquet", answers)
    auto = vp.Auto(contest_answers=400 * answers.dimension, max_iter=6)
    known = auto.fit(vp.read_answers(path))
    assert_same(tmp_path / "out", in_parts(path, tmp_path / "out", auto, n_parts=2), known)


def on_other_scale(scale: str) -> vp.Answers:
    """A crowd whose noise is alike on a scale, a few answers at the ends of its range."""
    drawn = draw(5, n_tasks=160)[0]
    there = drawn.value / 100.0
    value = {
        "log": np.exp(there),
        "sqrt": np.round(np.maximum(4.0 * there, 0.0) ** 2),
        "logit": np.round(expit(4.0 * there - 2.0), 3),
        "circular": np.mod(700.0 * there, 360.0),
    }[scale]
    return replace(drawn, value=value)


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [1, 2, 7])
@pytest.mark.parametrize("scale", ["log", "sqrt", "logit", "circular"])
def test_bits_are_those_in_memory_on_every_scale(
    tmp_path: Path, scale: Any, n_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if n_parts == 7:  # as with more answers than predictions are kept of
        for module in (large_fit, default):
            monkeypatch.setattr(module, "MOST_KEPT", 0)
    path = write(tmp_path / "answers.parquet", on_other_scale(scale))
    auto = replace(FEW, scale=scale, bounds=(1.0, 2.72) if scale == "log" else None)
    known = auto.fit(vp.read_answers(path))
    assert known.scale.name == scale
    found = in_parts(path, tmp_path / "out", auto, n_parts=n_parts)
    assert found.scale == known.scale
    assert_same(tmp_path / "out", found, known)


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_bits_are_those_in_memory_within_bounds(path: Path, tmp_path: Path, n_parts: int) -> None:
    auto = replace(FEW, bounds=(0.0, 100.0))
    known = auto.fit(vp.read_answers(path))
    assert any("outside the bounds 0 to 100" in note for note in known.notes)
    found = in_parts(path, tmp_path / "out", auto, n_parts=n_parts)
    assert_same(tmp_path / "out", found, known)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "drawn", "settings", "n_parts"),
    [
        (4, {"bias_sd": 6.0}, {}, 1),
        (4, {"bias_sd": 6.0, "dimension": 2}, {"contest_answers": 800}, 2),
        (2, {"difficulty": (0.1, 1.0, 9.0)}, {"scale": "sqrt"}, 7),
        (16, {}, {"bounds": (-10.0, 110.0)}, 2),
        (40, {}, {"shared_error": 0.0}, 2),
    ],
    ids=["bias", "vectors", "on a scale", "too few to check", "no shared error"],
)
def test_bits_are_those_in_memory_with_known_truths(
    tmp_path: Path, every: int, drawn: dict[str, Any], settings: dict[str, Any], n_parts: int
) -> None:
    answers, truth, *_ = draw(3, n_tasks=160, **drawn)
    answers = replace(answers, value=np.maximum(answers.value + 3.0, 0.0))  # all workers are off
    path = write(tmp_path / "answers.parquet", answers)
    gold = write_gold(tmp_path / "gold.csv", answers, truth, every)
    auto = replace(FEW, **settings)
    known = auto.fit(vp.read_answers(path, gold=gold))
    found = in_parts(path, tmp_path / "out", auto, gold, n_parts=n_parts)
    assert found.calibration == known.calibration
    assert_same(tmp_path / "out", found, known)


@pytest.mark.slow
def test_gold_confirms_a_scale_in_parts_as_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    truth = np.exp(rng.normal(3.0, 1.5, 300))
    task, worker = np.repeat(np.arange(300), 5), rng.permuted(np.tile(np.arange(50), 30))
    rows = pd.DataFrame({"task": task, "worker": worker}).drop_duplicates()
    value = truth[rows["task"]] * np.exp(rng.normal(0.0, 0.4, len(rows)))
    path, gold = tmp_path / "answers.parquet", tmp_path / "gold.csv"
    rows.assign(value=value).to_parquet(path, index=False)
    pd.DataFrame({"task": np.arange(0, 300, 3), "value": truth[::3]}).to_csv(gold, index=False)
    known = FEW.fit(vp.read_answers(path, gold=gold))
    assert known.scale.name == "log"
    found = in_parts(path, tmp_path / "out", FEW, gold, n_parts=3)
    assert found.calibration == known.calibration
    assert_same(tmp_path / "out", found, known)


@pytest.mark.parametrize(
    ("settings", "gold", "told"),
    [
        ({"bounds": (200.0, 300.0)}, None, "exclude all answers, which range from"),
        ({"bounds": (0.0, 50.0)}, 60.0, "exclude 1 of 1 gold truths"),
        ({"scale": "log"}, None, "scale 'log' takes values above 0, but .* such values in all"),
        ({"scale": "logit"}, None, "scale 'logit' takes values between two ends"),
    ],
)
def test_values_outside_of_a_scale_or_bounds_are_refused(
    tmp_path: Path, settings: dict[str, Any], gold: float | None, told: str
) -> None:
    answers = draw(4, n_tasks=60)[0]
    path = write(tmp_path / "answers.parquet", replace(answers, value=answers.value - 20.0))
    if gold is not None:
        pd.DataFrame({"task": ["t1"], "value": [gold]}).to_csv(tmp_path / "gold.csv", index=False)
    auto, truths = replace(FEW, contest_answers=100, **settings), tmp_path / "gold.csv"
    with pytest.raises(vp.DataError, match=told):
        in_parts(path, tmp_path / "out", auto, truths if gold is not None else None, n_parts=2)


def crowd_in_parts(path: Path, tmp_path: Path, n_parts: int) -> tuple[Steps, CrowdInParts]:
    parts = cut(Source(path=str(path)), str(tmp_path / "run"), 1 << 28, n_parts)
    steps = Steps(Job(parts, Log.begin(str(tmp_path / "log"))), OneByOne(str(tmp_path / "s")))
    return steps, CrowdInParts(steps, tmp_path)


@pytest.mark.parametrize("limit", [1, 100, 600])
def test_the_part_to_compare_on_is_that_in_memory(path: Path, tmp_path: Path, limit: int) -> None:
    known = neighbourhood(vp.read_answers(path), limit)
    found = connected_part(crowd_in_parts(path, tmp_path, 5)[1], limit)
    for name in ("task_ids", "worker_ids", "task", "worker", "value"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))


def sizes(part: Part) -> Floats:
    return np.abs(part.answers.value)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.75, 1.0])
def test_quantiles_over_parts_are_those_of_all(
    path: Path, tmp_path: Path, probability: float
) -> None:
    steps, _ = crowd_in_parts(path, tmp_path, 4)
    wanted = np.quantile(np.abs(vp.read_answers(path).value), probability, axis=0)
    assert quantiles(steps, sizes, probability).tolist() == wanted.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "number"), [("changes", 3), ("reopens", 1), ("reads", 1)])
def test_a_driver_that_was_killed_goes_on_where_it_was(
    path: Path,
    known: vp.Result,
    tmp_path: Path,
    kind: str,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask, seen = OneByOne.total, 0

    def stop(pool: OneByOne, job: Job, step: int, call: Call | None = None) -> Totals:
        nonlocal seen
        seen += job.log.call(step).kind == kind
        if seen == number:
            ask(pool, job, step, call)  # its messages have changed, and nobody has heard of it
            raise Killed
        return ask(pool, job, step, call)

    with monkeypatch.context() as patched:
        patched.setattr(OneByOne, "total", stop)
        with pytest.raises(Killed):
            in_parts(path, tmp_path, n_parts=2)
    with monkeypatch.context() as patched:
        patched.setattr(contest, "_compare", None)  # models have been compared before
        found = in_parts(path, tmp_path, n_parts=2)
    assert_same(tmp_path, found, known)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["outofcore", "dask"])
def test_a_run_goes_on_where_gold_was_hidden(
    tmp_path: Path, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "dask":
        pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    answers, truth, *_ = draw(6, n_tasks=100)
    path = write(tmp_path / "answers.parquet", replace(answers, value=np.exp(answers.value / 50)))
    gold = write_gold(tmp_path / "gold.csv", answers, np.exp(truth / 50), 4)
    auto = replace(FEW, scale="log")
    pool = OneByOne if engine == "outofcore" else cluster.DaskPool
    ask: Any = pool.total
    how = {"engine": engine, "n_parts": 3}

    def stop(pool: Any, job: Job, step: int, call: Call | None = None) -> Totals:
        found: Totals = ask(pool, job, step, call)
        if job.hidden == 1 and job.log.call(step).kind == "changes":
            raise Killed
        return found

    with monkeypatch.context() as patched:
        patched.setattr(pool, "total", stop)
        with pytest.raises(Killed):
            in_parts(path, tmp_path / "out", auto, gold, **how)
    found = in_parts(path, tmp_path / "out", auto, gold, **how)
    known = auto.fit(vp.read_answers(path, gold=gold))
    assert found.calibration == known.calibration
    assert_same_bits(tmp_path / "out", known)


@pytest.mark.slow
def test_dask_gives_the_same_bits_when_a_worker_is_killed(
    path: Path, known: vp.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    killed: list[int] = []
    ask = cluster.DaskPool.total

    def kill_first(pool: cluster.DaskPool, job: Job, at: int, call: Call | None = None) -> Totals:
        if at == 20:
            killed.append(min(pool._client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)
        return ask(pool, job, at, call)

    monkeypatch.setattr(cluster.DaskPool, "total", kill_first)
    in_parts(path, tmp_path, engine="dask", n_workers=2, n_parts=4)
    assert killed
    assert_same_bits(tmp_path, known)


def test_few_answers_are_fitted_in_memory_and_that_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "answers.parquet", draw(4, n_tasks=24)[0])
    command = ["aggregate", str(path), "--engine", "outofcore", "-o", str(tmp_path / "out")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "fit into memory: they were not cut into parts" in done.stderr
    found = vp.Result.load(tmp_path / "out")
    assert found.estimate.tolist() == vp.aggregate(path).estimate.tolist()


def test_a_gpu_is_refused_in_parts_in_one_line(path: Path, tmp_path: Path) -> None:
    with pytest.raises(vp.ConfigError, match="computed on the CPU, got backend 'gpu'") as error:
        in_parts(path, tmp_path / "out", vp.Auto(backend="gpu"), n_parts=2)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_model_that_needs_all_answers_is_left_out_and_that_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "answers.parquet", draw(3, n_tasks=400, bias_sd=8.0)[0])
    auto = vp.Auto(contest_answers=700)
    assert "worker gain" in str(auto.fit(vp.read_answers(path)).settings["chosen"])
    found = in_parts(path, tmp_path / "out", auto, n_parts=2)
    assert "worker gain" not in str(found.settings["chosen"])
    assert any("needs all answers in memory, so it was left out" in note for note in found.notes)
