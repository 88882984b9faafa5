"""Answers in parts: the same bits as in memory, whatever is cut, killed, or full."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import voxpop as vp
from voxpop.cli import main
from voxpop.cli.result_folder import default_folder
from voxpop.data.exact import exact_sum, exact_value, largest_by_owner, owner_sums, owner_values
from voxpop.inference import engine
from voxpop.partitions import cluster, steps
from voxpop.partitions.cut import Source, cut
from voxpop.partitions.run import Running, aggregate_parts
from voxpop.partitions.steps import Call, Job, OneByOne, Totals, merge, merge_into
from voxpop.results import review

GIVEN = vp.BI(support=(1.0, 10.0, 100.0))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors, tasks of different degrees, ids that are text, and truths of every tenth task."""
    folder, rng = tmp_path_factory.mktemp("crowd"), np.random.default_rng(5)
    model = vp.Model(support=(1.0, 10.0, 100.0), dimension=2)
    drawn = vp.simulate(model, vp.assign_regular(120, 6, 20, rng), rng)
    a, kept = drawn.answers, rng.random(720) < 0.8
    task = np.array([f"t{i}" for i in a.task])
    worker = np.array([f"w{u}" for u in a.worker])
    rows = pd.DataFrame({"task": task, "worker": worker, "x": a.value[:, 0], "y": a.value[:, 1]})
    rows[kept].to_parquet(folder / "answers.parquet")
    known = {"task": [f"t{i}" for i in range(120)], "x": drawn.truth[:, 0], "y": drawn.truth[:, 1]}
    pd.DataFrame(known).iloc[::10].to_csv(folder / "gold.csv", index=False)
    return folder


def in_memory(crowd: Path, bi: vp.BI, gold: bool) -> vp.Result:
    truths = crowd / "gold.csv" if gold else None
    return bi.fit(vp.read_answers(crowd / "answers.parquet", gold=truths))


def in_parts(crowd: Path, bi: vp.BI, out: Path, gold: bool = False, **how: Any) -> vp.Result:
    source = Source(
        path=str(crowd / "answers.parquet"), gold=str(crowd / "gold.csv") if gold else None
    )
    return aggregate_parts(source, bi, out, Running(**how)).result


def tables(out: Path) -> dict[str, pd.DataFrame]:
    tasks = [pd.read_parquet(path) for path in sorted((out / "tasks.parquet").iterdir())]
    found = {"task": pd.concat(tasks), "worker": pd.read_parquet(out / "workers.parquet")}
    assert len({run for table in found.values() for run in table["run"]}) == 1
    return {
        name: table.set_index(name).sort_index().drop(columns="run")
        for name, table in found.items()
    }


def assert_same_bits(out: Path, known: vp.Result) -> None:
    with pytest.MonkeyPatch.context() as patched:
        # In parts, tasks are reviewed as those of answers that are too many to be tested.
        patched.setattr(review, "MOST_REVIEWED", 0)
        wanted = {"task": known.task_columns(), "worker": known.worker_columns()}
    levels = pd.read_parquet(out / "levels.parquet").set_index("worker").drop(columns="run")
    known_levels = known.worker_levels.set_index("worker").sort_index()
    pd.testing.assert_frame_equal(levels.sort_index(), known_levels, check_exact=True)
    for name, found in tables(out).items():
        pd.testing.assert_frame_equal(
            found, pd.DataFrame(wanted[name]).set_index(name).sort_index(), check_exact=True,
            check_index_type=False, check_dtype=False,
        )  # fmt: skip


@pytest.mark.parametrize("n_parts", [1, 2, 7])
@pytest.mark.parametrize(
    ("bi", "gold"),
    [
        (GIVEN, False),
        (vp.BI(support=(1.0, 10.0, 100.0), inference="enumerate"), True),
        (vp.BI(support=(1.0, 10.0, 100.0), inference="active"), False),
        (vp.BI(support=(1.0, 10.0, 100.0), inference="integrate", prior_variance=1e4), True),
        (vp.BI(), True),
    ],
    ids=["given", "enumerate", "active", "integrate", "learned"],
)
def test_parts_give_the_bits_of_a_fit_in_memory(
    crowd: Path, tmp_path: Path, bi: vp.BI, gold: bool, n_parts: int
) -> None:
    found = in_parts(crowd, bi, tmp_path, gold, n_parts=n_parts)
    known = in_memory(crowd, bi, gold)
    assert_same_bits(tmp_path, known)
    assert found.settings == known.settings
    assert found.trace == known.trace
    assert not (tmp_path.parent / f".{tmp_path.name}.run").exists()


@pytest.mark.slow
def test_the_numpy_kernels_give_the_same_bits_too(crowd: Path, tmp_path: Path) -> None:
    bi = vp.BI(support=(1.0, 100.0), backend="portable", inference="integrate")
    in_parts(crowd, bi, tmp_path, n_parts=3)
    assert_same_bits(tmp_path, in_memory(crowd, bi, False))


@pytest.mark.slow
def test_a_gpu_that_is_there_is_left_alone(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of parts are in files, which a GPU does not reach."""
    known = in_memory(crowd, GIVEN, False)
    monkeypatch.setattr(engine, "gpu_is_there", lambda: True)
    monkeypatch.setattr(engine, "GPU_PAYS_FROM", 0)
    in_parts(crowd, GIVEN, tmp_path, n_parts=2)
    assert_same_bits(tmp_path, known)


@pytest.mark.slow
def test_a_result_in_parts_loads_as_any_other(crowd: Path, tmp_path: Path) -> None:
    in_parts(crowd, GIVEN, tmp_path, n_parts=3)
    loaded, known = vp.Result.load(tmp_path), in_memory(crowd, GIVEN, False)
    assert sorted(loaded.task_ids) == sorted(known.task_ids)
    assert loaded.settings == known.settings
    by_task = dict(zip(known.task_ids.tolist(), known.estimate.tolist(), strict=True))
    assert loaded.estimate.tolist() == [by_task[task] for task in loaded.task_ids.tolist()]
    assert set(loaded.tasks["needs_a_look"].notna()) == {False, True}
    known.save(tmp_path, "parquet")
    assert (tmp_path / "tasks.parquet").is_file()
    assert [path.name for path in tmp_path.parent.iterdir() if ".part" in path.name] == []


@pytest.mark.slow
def test_tables_of_another_run_are_not_taken_for_its_own(crowd: Path, tmp_path: Path) -> None:
    in_parts(crowd, GIVEN, tmp_path / "one", n_parts=2)
    in_parts(crowd, vp.BI(support=(5.0, 50.0)), tmp_path / "other", n_parts=2)
    table = next((tmp_path / "other" / "tasks.parquet").iterdir())
    table.replace(tmp_path / "one" / "tasks.parquet" / table.name)
    with pytest.raises(vp.DataError, match="belongs to run"):
        vp.Result.load(tmp_path / "one")


def test_a_result_in_parts_replaces_another_beside_files_of_the_user(
    crowd: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for bi in (GIVEN, vp.BI(support=(5.0, 50.0))):
        in_parts(crowd, bi, tmp_path, n_parts=2)
        assert vp.Result.load(tmp_path).settings["support_used"] == list(bi.support)
        assert (tmp_path / "mine.txt").read_text() == "mine"


def test_ids_are_trimmed_as_in_memory(rows: pd.DataFrame, tmp_path: Path) -> None:
    rows.assign(worker=["a", " b", "a ", "b"]).to_csv(tmp_path / "rows.csv", index=False)
    parts = cut(Source(path=str(tmp_path / "rows.csv")), str(tmp_path / "run"), 1 << 28, 1)
    read = vp.read_answers(tmp_path / "rows.csv")
    assert parts.worker_ids(tmp_path).tolist() == sorted(read.worker_ids.tolist()) == ["a", "b"]


def test_the_audit_of_parts_is_that_of_all(crowd: Path, tmp_path: Path) -> None:
    found = in_parts(crowd, GIVEN, tmp_path, n_parts=5).audit
    known = in_memory(crowd, GIVEN, False).audit
    assert found is not None
    assert known is not None
    assert found.n_answers == known.n_answers
    assert found.rmse == pytest.approx(known.rmse, rel=1e-12)
    assert found.log_score == pytest.approx(known.log_score, rel=1e-12)
    assert found.unstretched_95 == pytest.approx(known.unstretched_95, abs=2e-3)
    # Halves are cut elsewhere, by which both are a little different.
    assert found.stretch == pytest.approx(known.stretch, abs=0.01)
    assert found.coverage_95 == pytest.approx(known.coverage_95, abs=0.01)


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.mark.parametrize("inside", [False, True], ids=["between steps", "within a part"])
def test_a_driver_that_was_killed_goes_on_where_it_was(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    asked: list[int] = []
    ask = OneByOne.total

    def stop(pool: OneByOne, job: Job, at: int, call: Call | None = None) -> Totals:
        asked.append(at)
        if at >= 8:
            if inside:
                # Two of four parts are at the step, one is in the middle of it.
                steps.answer_parts(job, [0, 1], at, pool._scratch)
                (Path(pool._scratch) / "00002.mark").unlink()
            raise Killed
        return ask(pool, job, at, call)

    with monkeypatch.context() as patched:
        patched.setattr(OneByOne, "total", stop)
        with pytest.raises(Killed):
            in_parts(crowd, vp.BI(), tmp_path, n_parts=4)
    again: list[int] = []

    def listen(pool: OneByOne, job: Job, at: int, call: Call | None = None) -> Totals:
        again.append(at)
        return ask(pool, job, at, call)

    monkeypatch.setattr(OneByOne, "total", listen)
    in_parts(crowd, vp.BI(), tmp_path, n_parts=4)
    assert again[0] == asked[-1]  # those before are in the log
    assert_same_bits(tmp_path, in_memory(crowd, vp.BI(), False))


def test_state_of_another_run_is_not_believed(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch is kept where a worker lives on: what lies there may be of another job."""
    scratch = tmp_path / "scratch"
    begin = OneByOne.__init__
    monkeypatch.setattr(OneByOne, "__init__", lambda pool, _: begin(pool, str(scratch)))
    in_parts(crowd, vp.BI(support=(5.0, 50.0)), tmp_path / "other", n_parts=2)
    assert any(scratch.iterdir())
    in_parts(crowd, GIVEN, tmp_path / "out", n_parts=2)
    assert_same_bits(tmp_path / "out", in_memory(crowd, GIVEN, False))


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_run_is_told_in_one_line(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    ask = OneByOne.total

    def stop(pool: OneByOne, job: Job, at: int, call: Call | None = None) -> Totals:
        if at >= 8:
            raise Killed
        return ask(pool, job, at, call)

    with monkeypatch.context() as patched:
        patched.setattr(OneByOne, "total", stop)
        with pytest.raises(Killed):
            in_parts(crowd, vp.BI(), tmp_path / "out", n_parts=2)
    (log,) = tmp_path.rglob("00003.totals")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        log.unlink()
    else:
        log.write_bytes(content if damage == "flipped" else content[:-1])
    if damage == "gone":
        in_parts(crowd, vp.BI(), tmp_path / "out", n_parts=2)
        assert_same_bits(tmp_path / "out", in_memory(crowd, vp.BI(), False))
        return
    with pytest.raises(vp.DataError, match=r"00003\.totals: is missing or damaged; remove"):
        in_parts(crowd, vp.BI(), tmp_path / "out", n_parts=2)


def test_a_full_disk_is_told_in_one_line_and_nothing_is_lost(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(crowd, vp.BI(support=(5.0, 50.0)), tmp_path, n_parts=2)
    before = tables(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(vp.DataError, match=r"the disk is full; .* resumes where it stopped"):
            in_parts(crowd, GIVEN, tmp_path, n_parts=2)
    assert all(table.equals(before[name]) for name, table in tables(tmp_path).items())
    in_parts(crowd, GIVEN, tmp_path, n_parts=2)
    assert_same_bits(tmp_path, in_memory(crowd, GIVEN, False))


@pytest.mark.slow
def test_dask_gives_the_same_bits_when_a_worker_is_killed(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    killed: list[int] = []
    ask = cluster.DaskPool.total

    def kill_first(pool: cluster.DaskPool, job: Job, at: int, call: Call | None = None) -> Totals:
        if at == 4:
            workers = pool._client.run(os.getpid)
            killed.append(min(workers.values()))
            os.kill(killed[0], signal.SIGKILL)
        return ask(pool, job, at, call)

    monkeypatch.setattr(cluster.DaskPool, "total", kill_first)
    in_parts(crowd, GIVEN, tmp_path, engine="dask", n_workers=2, n_parts=7)
    assert killed
    assert_same_bits(tmp_path, in_memory(crowd, GIVEN, False))


class DyingWorkers:
    """Stands for a client whose workers die over some parts, each so many times."""

    def __init__(self, deaths: dict[int, int]) -> None:
        self.deaths = deaths

    def scheduler_info(self, **_: Any) -> dict[str, Any]:
        return {"workers": {f"tcp://{number}": {} for number in range(3)}}

    def submit(self, *given: Any, **_: Any) -> Any:
        parts = given[2]
        dying = [part for part in parts if self.deaths.get(part, 0)]
        for part in dying:
            self.deaths[part] -= 1
        return Future("error" if dying else "finished", {"asked": np.bincount(parts, minlength=3)})


@dataclass(frozen=True, eq=False)
class Future:
    """Stands for what a worker was asked: it has found something, or has died."""

    status: str
    found: Totals

    def done(self) -> bool:
        return self.status == "finished"

    def cancel(self) -> None:
        assert self.status == "error"

    def result(self, **_: Any) -> Totals:
        return self.found


def test_a_step_stops_only_where_the_same_part_has_killed_too_many_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    monkeypatch.setattr(cluster.DaskPool, "_wait", lambda *_: None)
    job: Any = SimpleNamespace(parts=SimpleNamespace(n_parts=3))
    most = cluster._MOST_DEATHS
    found = cluster.DaskPool(DyingWorkers({0: most, 1: most, 2: most})).total(job, 5)
    assert found["asked"].tolist() == [1, 1, 1]
    with pytest.raises(vp.VoxpopError, match=f"died {most + 1} times over the same part"):
        cluster.DaskPool(DyingWorkers({1: most + 1})).total(job, 5)


@pytest.fixture
def rows() -> pd.DataFrame:
    return pd.DataFrame(
        {"task": [1, 1, 2, 2], "worker": ["a", "b", "a", "b"], "value": [1.0, 2.0, 3.0, 5.0]}
    )


@pytest.fixture
def store() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec", reason="needs the extra 'cluster'")
    files = fsspec.filesystem("memory")
    yield files
    files.rm("/crowd", recursive=True)


def test_folders_globs_and_object_stores_are_tables(
    rows: pd.DataFrame, tmp_path: Path, store: Any
) -> None:
    for part in (0, 1):
        path = tmp_path / "crowd" / f"{part}.parquet"
        path.parent.mkdir(exist_ok=True)
        rows[2 * part : 2 * part + 2].to_parquet(path)
        with store.open(f"/crowd/{part}.parquet", "wb") as file:
            file.write(path.read_bytes())
    folder = str(tmp_path / "crowd")
    for source in (folder, f"{folder}/*.parquet", "memory://crowd", "memory://crowd/?.parquet"):
        answers = vp.read_answers(source)
        assert answers.value[:, 0].tolist() == [1.0, 2.0, 3.0, 5.0]
        parts = cut(Source(path=source), str(tmp_path / "run"), 1 << 28, 2)
        assert (parts.n_answers, parts.n_tasks, parts.n_workers) == (4, 2, 2)
    with pytest.raises(vp.DataError, match="No files found"):
        vp.read_answers(f"{folder}/*.csv")


def test_a_run_may_be_in_an_object_store(crowd: Path, tmp_path: Path, store: Any) -> None:
    in_parts(crowd, GIVEN, tmp_path, n_parts=3, run="memory://crowd/run")
    assert_same_bits(tmp_path, in_memory(crowd, GIVEN, False))
    store.touch("/crowd/last")  # all else of the run is gone
    assert [entry["name"] for entry in store.ls("/crowd")] == ["/crowd/last"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"task": [1, 1, 2, None]}, "column 'task' is empty in 1 row"),
        ({"value": ["1", "2", "x", "5"]}, "1 row.* of column 'value' .*such as 'x'"),
        ({"worker": ["a", "a", "a", "b"]}, "worker 'a' answered task '?1'? 2 times"),
    ],
)
def test_what_cannot_be_cut_is_told_in_one_line(
    rows: pd.DataFrame, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    rows.assign(**change).to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(vp.DataError, match=told) as error:
        cut(Source(path=str(tmp_path / "bad.csv")), str(tmp_path / "run"), 1 << 28, 2)
    assert "\n" not in str(error.value)


@given(st.lists(st.floats(-1e100, 1e100), max_size=40), st.randoms())
def test_exact_sums_are_those_of_any_order_and_any_parts(numbers: list[float], luck: Any) -> None:
    shuffled = luck.sample(numbers, len(numbers))
    half = luck.randint(0, len(numbers))
    parts = exact_sum(np.array(shuffled[:half])) + exact_sum(np.array(shuffled[half:]))
    assert (parts == exact_sum(np.array(numbers))).all()
    assert exact_value(parts) == fsum(numbers)


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 1e100)), min_size=1), st.randoms())
def test_sums_by_owner_are_those_of_any_order(pairs: list[tuple[int, float]], luck: Any) -> None:
    def sums(listed: list[tuple[int, float]]) -> Any:
        owner, number = np.array([u for u, _ in listed]), np.array([x for _, x in listed])
        largest = largest_by_owner(owner, number, 4)
        return owner_values(owner_sums(owner, number, largest), largest), owner, number

    found, owner, number = sums(pairs)
    assert (found == sums(luck.sample(pairs, len(pairs)))[0]).all()
    assert found == pytest.approx(np.bincount(owner, number, 4), rel=1e-9)


def test_whole_numbers_are_added_and_others_compared() -> None:
    one: Totals = {"sums": np.array([1, 2]), "change": np.array([0.5])}
    found = merge([one, {"sums": np.array([3, 4]), "change": np.array([0.25])}])
    assert found["sums"].tolist() == [4, 6]
    assert found["change"].tolist() == [0.5]
    assert one["sums"].tolist() == [1, 2]


def test_what_was_added_to_the_sums_is_not_added_again() -> None:
    sums = np.array([1, 2])
    merged: Totals = {}
    merge_into(merged, {"sums": sums})
    sums += np.array([3, 4])  # the next part adds its messages itself
    merge_into(merged, {"sums": sums})
    merge_into(merged, {"sums": np.array([5, 6])})
    assert merged["sums"].tolist() == [9, 12]


def test_the_command_writes_tables_and_a_report(crowd: Path, tmp_path: Path) -> None:
    command = ["aggregate", str(crowd / "answers.parquet"), "--engine", "outofcore"]
    command += ["--method", "bi", "--support", "1,10,100", "--memory", "100MB"]
    done = CliRunner().invoke(main, [*command, "--partitions", "3", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "120 tasks in 3 parts" in done.stderr
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000
    assert_same_bits(tmp_path / "out", in_memory(crowd, GIVEN, False))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--method", "median"], "not by median"),
        (["--method", "bi", "--noise", "bias"], "use --engine local"),
        (["--method", "bi", "--memory", "much"], "like 600MB"),
        (["--method", "bi", "--objects"], "--objects needs --engine local"),
        (["--method", "bi", "--scheduler", "tcp://127.0.0.1:1"], "needs --engine dask"),
    ],
)
def test_what_parts_cannot_do_is_refused_before_any_work(
    crowd: Path, tmp_path: Path, options: list[str], told: str
) -> None:
    command = ["aggregate", str(crowd / "answers.parquet"), "--engine", "outofcore"]
    done = CliRunner().invoke(main, [*command, *options, "-o", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert told in done.stderr
    assert not (tmp_path / "out" / "tasks.parquet").exists()


def test_a_cluster_that_does_not_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    tried: list[dict[str, Any]] = []

    def fail(**how: Any) -> None:
        tried.append(how)
        raise RuntimeError("Nanny failed to start")

    monkeypatch.setattr(distributed, "LocalCluster", fail)
    with (
        pytest.raises(vp.VoxpopError, match="could not be started here: Nanny failed"),
        cluster.dask_pool(None, 2, "scratch"),
    ):
        pass
    assert len(tried) == 3
    assert {how["host"] for how in tried} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ("crowd/*.parquet", "crowd.voxpop"),
        ("s3://bucket/crowd/**/*.parquet", "crowd.voxpop"),
        ("*.parquet", "answers.voxpop"),
        ("days/crowd", "days/crowd.voxpop"),
    ],
)
def test_a_result_is_beside_the_folder_of_its_files(source: str, folder: str) -> None:
    assert default_folder(source) == Path(folder)
