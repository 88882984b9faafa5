"""The default over parts: the same bits as in memory, whatever is chosen, cut, or killed."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import voxpop as vp
from tests.test_noise import crowd as draw
from tests.test_partitions import Killed, assert_same_bits
from voxpop.cli import main
from voxpop.estimators.auto import screen
from voxpop.estimators.auto.subset import connected_part, neighbourhood
from voxpop.estimators.bi import large_fit
from voxpop.inference.engine import native_is_installed
from voxpop.models.noise import COMPONENTS
from voxpop.partitions import cluster, default
from voxpop.partitions.cut import Source, cut
from voxpop.partitions.nearby import CrowdInParts
from voxpop.partitions.run import Running, aggregate_parts
from voxpop.partitions.select import quantiles
from voxpop.partitions.steps import Job, Log, OneByOne, Part, Steps, Totals

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


def in_parts(path: Path, out: Path, auto: vp.Auto = FEW, **how: Any) -> vp.Result:
    return aggregate_parts(Source(path=str(path)), auto, out, Running(**how)).result


def assert_same(out: Path, found: vp.Result, known: vp.Result) -> None:
    assert_same_bits(out, known)
    assert found.settings == known.settings
    assert found.trace == known.trace
    assert found.notes == known.notes
    assert found.audit is not None
    assert known.audit is not None
    assert found.audit.stretch == known.audit.stretch
    assert found.audit.n_answers == known.audit.n_answers
    assert found.audit.rmse == pytest.approx(known.audit.rmse, rel=1e-12)
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


class Values:
    """Sizes of the answers."""

    def sizes(self, part: Part) -> Any:
        return np.abs(part.answers.value)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.75, 1.0])
def test_quantiles_over_parts_are_those_of_all(
    path: Path, tmp_path: Path, probability: float
) -> None:
    steps, _ = crowd_in_parts(path, tmp_path, 4)
    wanted = np.quantile(np.abs(vp.read_answers(path).value), probability, axis=0)
    assert quantiles(steps, Values(), probability).tolist() == wanted.tolist()


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

    def stop(pool: OneByOne, job: Job, step: int) -> Totals:
        nonlocal seen
        seen += job.log.call(step).kind == kind
        if seen == number:
            ask(pool, job, step)  # its messages have changed, and nobody has heard of it
            raise Killed
        return ask(pool, job, step)

    with monkeypatch.context() as patched:
        patched.setattr(OneByOne, "total", stop)
        with pytest.raises(Killed):
            in_parts(path, tmp_path, n_parts=2)
    with monkeypatch.context() as patched:
        patched.setattr(default, "_compare", None)  # models have been compared before
        found = in_parts(path, tmp_path, n_parts=2)
    assert_same(tmp_path, found, known)


@pytest.mark.slow
def test_dask_gives_the_same_bits_when_a_worker_is_killed(
    path: Path, known: vp.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    killed: list[int] = []
    ask = cluster.DaskPool.total

    def kill_first(pool: cluster.DaskPool, job: Job, at: int) -> Totals:
        if at == 20:
            killed.append(min(pool._client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)
        return ask(pool, job, at)

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
    assert "were fitted in memory, not in parts" in done.stderr
    found = vp.Result.load(tmp_path / "out")
    assert found.estimate.tolist() == vp.aggregate(path).estimate.tolist()


@pytest.mark.parametrize(
    ("settings", "gold", "told"),
    [
        ({"bounds": (0.0, 1.0)}, None, "for --scale and --bounds use --engine local"),
        ({"scale": "log"}, None, "for --scale and --bounds use --engine local"),
        ({"backend": "gpu"}, None, "worked on by the processor, got backend 'gpu'"),
        ({"contest_answers": 100}, "gold.csv", "leave --gold out, or use --method bi"),
    ],
)
def test_what_the_default_cannot_do_in_parts_is_told_in_one_line(
    path: Path, tmp_path: Path, settings: dict[str, Any], gold: str | None, told: str
) -> None:
    pd.DataFrame({"task": ["t1"], "value": [1.0]}).to_csv(tmp_path / "gold.csv", index=False)
    source = Source(path=str(path), gold=gold and str(tmp_path / gold))
    with pytest.raises(vp.ConfigError, match=told) as error:
        aggregate_parts(source, vp.Auto(**settings), tmp_path / "out", Running(n_parts=2))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_model_that_needs_all_answers_is_left_out_and_that_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "answers.parquet", draw(3, n_tasks=400, bias_sd=8.0)[0])
    auto = vp.Auto(contest_answers=700)
    assert "worker gain" in str(auto.fit(vp.read_answers(path)).settings["chosen"])
    found = in_parts(path, tmp_path / "out", auto, n_parts=2)
    assert "worker gain" not in str(found.settings["chosen"])
    assert any("needs all answers in memory: it was left out" in note for note in found.notes)
