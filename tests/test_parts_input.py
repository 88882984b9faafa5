"""Input of a run in parts: mixed types, names and kinds, changes meanwhile, two runs at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import voxpop as vp
from voxpop.cli import main
from voxpop.data.duck import open_memory
from voxpop.data.many_files import FileStream
from voxpop.partitions import run
from voxpop.partitions.cut import Source, cut
from voxpop.partitions.run import Running, aggregate_parts
from voxpop.partitions.steps import Call, Job, OneByOne, Totals

BI = vp.BI(support=(1.0, 100.0))


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    task, worker = np.repeat(np.arange(40), 4), np.tile(np.arange(8), 20)
    return pd.DataFrame({"task": task, "worker": worker, "value": rng.normal(0.0, 9.0, 160)})


def folder_of(path: Path, *tables: pd.DataFrame, suffix: str = ".parquet") -> str:
    path.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        table.to_parquet(path / f"{number}{suffix}")
    return str(path)


def in_parts(path: str, tmp_path: Path) -> dict[Any, float]:
    """Estimates by id, of a fit in parts; those of a fit in memory must be the same."""
    out = tmp_path / "out"
    aggregate_parts(Source(path=path), BI, out, Running(n_parts=3))
    found, known = vp.Result.load(out), BI.fit(vp.read_answers(path))
    by_task = dict(zip(known.task_ids.tolist(), known.estimate[:, 0].tolist(), strict=True))
    assert dict(zip(found.task_ids.tolist(), found.estimate[:, 0].tolist(), strict=True)) == by_task
    return by_task


@pytest.mark.parametrize(
    "change",
    [{"value": "int64"}, {"value": "float32"}],
    ids=["whole numbers", "fewer digits"],
)
def test_the_first_file_does_not_round_the_others(
    rows: pd.DataFrame, tmp_path: Path, change: dict[str, str]
) -> None:
    first, rest = rows[:80].round().astype(change), rows[80:]
    path = folder_of(tmp_path / "mixed", first, rest)
    together = pd.concat([first.astype({"value": float}), rest])
    whole = folder_of(tmp_path / "whole", together)
    assert in_parts(path, tmp_path) == in_parts(whole, tmp_path)


def test_ids_with_decimals_are_not_cut_to_whole_numbers(rows: pd.DataFrame, tmp_path: Path) -> None:
    rest = rows[80:].assign(task=rows.task[80:] + 0.5)
    found = in_parts(folder_of(tmp_path / "mixed", rows[:80], rest), tmp_path)
    assert {0.0, 19.0, 20.5, 39.5} <= set(found)


def test_ids_that_are_numbers_and_text_are_text(rows: pd.DataFrame, tmp_path: Path) -> None:
    rest = rows[80:].assign(worker=[f"w{u}" for u in rows.worker[80:]])
    assert in_parts(folder_of(tmp_path / "mixed", rows[:80], rest), tmp_path)


@pytest.mark.parametrize(
    ("task", "told"),
    [(lambda i: i.astype(str), "and text in others"), (lambda i: i + 2**53, "long whole numbers")],
)
def test_ids_that_would_change_are_refused(
    rows: pd.DataFrame, tmp_path: Path, task: Any, told: str
) -> None:
    one, other = rows[:80].astype({"task": float}), rows[80:].assign(task=task(rows.task[80:]))
    path = folder_of(tmp_path / "mixed", one, other)
    for read in (vp.read_answers, lambda path: in_parts(path, tmp_path)):
        with pytest.raises(vp.DataError, match=rf"column 'task'.*{told}.*0.parquet and .*1.parq"):
            read(path)


def test_a_file_without_the_column_is_named(rows: pd.DataFrame, tmp_path: Path) -> None:
    other = rows[80:].rename(columns={"value": "wert"})
    path = folder_of(tmp_path / "mixed", rows[:80], other)
    with pytest.raises(vp.DataError, match=r"empty in 80 rows: .*/1\.parquet has no such column"):
        cut(Source(path=path), str(tmp_path / "run"), 1 << 28)
    assert in_parts(folder_of(tmp_path / "more", rows[:80].assign(note=1), rows[80:]), tmp_path)


@pytest.mark.parametrize("suffix", [".pq", ".PARQUET"])
def test_every_ending_of_parquet_is_read(rows: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    path = folder_of(tmp_path / "crowd", rows[:80], rows[80:], suffix=suffix)
    assert in_parts(path, tmp_path)
    rows[:40].to_parquet(tmp_path / "crowd" / "more.parquet")
    with pytest.raises(vp.DataError, match=r"end in \.(PARQUET and .parquet|parquet and .pq)"):
        vp.read_answers(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": True}, "column 'value' holds true and false, not numbers"),
        ({"worker": b"w"}, "column 'worker' holds bytes, which are no ids"),
        ({"worker": [None, *range(159)]}, "column 'worker' is empty in 1 row;"),
        ({"value": [np.nan, *range(159)]}, "column 'value' is empty in 1 row;"),
    ],
)
def test_what_a_cast_would_take_is_refused_as_in_memory(
    rows: pd.DataFrame, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    path = folder_of(tmp_path / "crowd", rows.assign(**change))
    with pytest.raises(vp.DataError):
        vp.read_answers(path)
    with pytest.raises(vp.DataError, match=told):
        aggregate_parts(Source(path=path), BI, tmp_path / "out", Running(n_parts=2))
    assert [entry.name for entry in tmp_path.iterdir()] == ["crowd"]


class Killed(BaseException):
    """Stands for the end of a process."""


@pytest.mark.parametrize("what", ["gold", "file:// address"])
def test_a_run_starts_over_where_its_input_has_changed(
    rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    gold, path = str(tmp_path / "gold.csv"), folder_of(tmp_path / "crowd", rows)
    truths = pd.DataFrame({"task": range(10), "value": 0.0})
    truths.to_csv(gold, index=False)
    address = path if what == "gold" else f"file://{path}"
    if what != "gold":
        pytest.importorskip("fsspec", reason="needs the extra 'cluster'")
    ask = OneByOne.total

    def stop(pool: OneByOne, job: Job, at: int, call: Call | None = None) -> Totals:
        if at >= 4:
            raise Killed
        return ask(pool, job, at, call)

    def start() -> vp.Result:
        source = Source(path=address, gold=gold)
        aggregate_parts(source, BI, tmp_path / "out", Running(n_parts=2))
        return vp.Result.load(tmp_path / "out")

    with monkeypatch.context() as patched:
        patched.setattr(OneByOne, "total", stop)
        with pytest.raises(Killed):
            start()
    truths.assign(value=50.0).to_csv(gold, index=False)
    if what != "gold":
        folder_of(tmp_path / "crowd", rows.assign(value=rows.value + 50.0))
    found, known = start(), BI.fit(vp.read_answers(path, gold=gold))
    by_task = dict(zip(known.task_ids.tolist(), known.estimate.tolist(), strict=True))
    assert found.estimate.tolist() == [by_task[task] for task in found.task_ids.tolist()]


def test_two_runs_in_one_folder_are_refused(
    rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = folder_of(tmp_path / "crowd", rows), list[str]()
    ask = OneByOne.total

    def intrude(pool: OneByOne, job: Job, at: int, call: Call | None = None) -> Totals:
        if at == 3:
            with pytest.raises(vp.ConfigError, match="another run is working here") as error:
                aggregate_parts(Source(path=path), vp.BI(), tmp_path / "out", Running(n_parts=3))
            told.append(str(error.value))
        return ask(pool, job, at, call)

    monkeypatch.setattr(OneByOne, "total", intrude)
    assert in_parts(path, tmp_path)
    assert len(told) == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["crowd", "out"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["outofcore", "--processes", "2"], "--processes needs --engine dask without --scheduler"),
        (["dask", "--processes", "2", "--scheduler", "tcp://127.0.0.1:1"], "without --scheduler"),
        (["dask", "--processes", "-1"], "processes must be at least 1, got -1"),
        (["dask", "--processes", "0"], "processes must be at least 1, got 0"),
    ],
)
def test_processes_that_would_be_ignored_are_refused(
    rows: pd.DataFrame, tmp_path: Path, options: list[str], told: str
) -> None:
    path = folder_of(tmp_path / "crowd", rows)
    command = ["aggregate", path, "--method", "bi", "-o", str(tmp_path / "out"), "--engine"]
    done = CliRunner().invoke(main, [*command, *options])
    assert done.exit_code != 0
    assert told in done.stderr


def test_a_scheduler_that_is_not_there_is_told_before_any_work(
    rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="needs the extra 'cluster'")
    monkeypatch.setattr(run, "cut", lambda *_: pytest.fail("answers were cut"))
    path = folder_of(tmp_path / "crowd", rows)
    how = Running(engine="dask", scheduler="no-port")
    with pytest.raises(vp.ConfigError, match="no-port: no Dask scheduler there"):
        aggregate_parts(Source(path=path), BI, tmp_path / "out", how)
    assert [entry.name for entry in tmp_path.iterdir()] == ["crowd"]


def test_ids_in_parts_have_the_kind_that_they_have_in_memory(tmp_path: Path) -> None:
    of_a_kind: list[list[Any]] = [[3, 1, 10], ["b", "a", "ä"], [1.5, -1.0, 3.0]]
    for number, ids in enumerate(of_a_kind):
        table = pd.DataFrame({"task": ids * 2, "worker": [1, 1, 1, 2, 2, 2], "value": range(6)})
        path = folder_of(tmp_path / str(number), table)
        parts = cut(Source(path=path), str(tmp_path / "run"), 1 << 28, 1)
        found, known = parts.task_ids(0, tmp_path), vp.read_answers(path).task_ids
        assert found.tolist() == sorted(known.tolist())
        assert found.dtype == known.dtype


def test_types_of_lists_within_columns_are_no_types_of_columns(tmp_path: Path) -> None:
    for number, kind in enumerate(("float32", "int64")):
        inner = [np.zeros(2, dtype=kind)]
        table = pd.DataFrame({"task": [number], "worker": [1], "value": [1.0], "more": inner})
        path = folder_of(tmp_path / "crowd", table)
        (tmp_path / "crowd" / "0.parquet").rename(tmp_path / "crowd" / f"{number + 1}.parquet")
    with open_memory() as connection:
        assert FileStream(path, connection).types["value"] == "DOUBLE"
