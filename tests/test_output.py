"""What is written: whole or not at all, one set, to the right place, and open to nobody new."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from voxpop import Answers, Result, aggregate
from voxpop.cli import main
from voxpop.data import output
from voxpop.data.output import replacing, replacing_folder
from voxpop.data.tables import write_table
from voxpop.errors import DataError

TABLE = {"task": ["a", "b"], "value": [1.0, 2.0]}
CSV = "task,value\na,1.0\nb,2.0\n"
ANSWERS = "task,worker,value\na,u,1\na,v,2\nb,u,3\nb,v,5\n"
POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and pipes are POSIX")


def small(shift: float = 0.0) -> Result:
    task, worker = ["a", "a", "b", "b"], ["u", "v", "u", "v"]
    return aggregate(Answers.from_arrays(task, worker, [shift + 1, 2.0, 3.0, 5.0]), "average")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def mask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@POSIX
@pytest.mark.usefixtures("mask")
def test_modes_are_kept_and_the_mask_of_the_process_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def toggled(_: int) -> int:
        raise AssertionError("another thread would write with this mask")

    monkeypatch.setattr(os, "umask", toggled)
    path, folder = tmp_path / "t.csv", tmp_path / "out"
    write_table(TABLE, path)
    assert mode(path) == 0o640  # as any new file under this mask
    small().save(folder)
    assert mode(folder) == 0o750
    for place in (path, *folder.iterdir()):
        place.chmod(0o600)
    folder.chmod(0o700)
    write_table(TABLE, path)
    small().save(folder, "parquet")  # names that were not there before
    assert {mode(place) for place in (path, *folder.iterdir())} == {0o600}
    assert mode(folder) == 0o700


@POSIX
def test_a_private_file_is_never_open_to_others_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.touch(mode=0o600)
    with replacing(path) as temporary:
        assert mode(temporary) == 0o600


@POSIX
def test_links_stay_and_what_they_lead_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("there.csv", "not_yet.csv"):
        link = tmp_path / f"link_to_{name}"
        link.symlink_to(Path("far") / name)
        write_table(TABLE, link)
        assert link.is_symlink()
        assert (tmp_path / "far" / name).read_text() == CSV
    (tmp_path / "folder").symlink_to("far")
    assert Result.load(small().save(tmp_path / "folder")).task_ids.tolist() == ["a", "b"]
    assert (tmp_path / "folder").is_symlink()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(DataError, match="in a circle"):
        write_table(TABLE, tmp_path / "round")


@POSIX
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe, heard = tmp_path / "pipe.csv", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    write_table(TABLE, pipe)
    reader.join(10)
    assert heard == [CSV]
    assert pipe.is_fifo()


@POSIX
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("piped", [True, False])
def test_standard_output_is_written_to_by_its_name(tmp_path: Path, name: str, piped: bool) -> None:
    if not Path(name).exists():
        pytest.skip(f"no {name} here")
    code = f"import sys; sys.path[:0] = {sys.path!r}\n" + (
        "from pathlib import Path; from voxpop.data.tables import write_table\n"
        f"print('before', flush=True); write_table({TABLE!r}, Path({name!r})); print('after')"
    )
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        where: Any = subprocess.PIPE if piped else file
        done = subprocess.run([sys.executable, "-c", code], stdout=where, check=True)
    assert (done.stdout if piped else out.read_bytes()).decode() == f"before\n{CSV}after\n"


@POSIX
def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a directory; name a file to write to"):
        write_table(TABLE, tmp_path / "folder.csv")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(DataError, match="is a socket"):
            write_table(TABLE, tmp_path / "s")
    assert stat.S_ISSOCK((tmp_path / "s").stat().st_mode)


def test_a_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"
    path.touch()
    monkeypatch.setattr(stat, "S_ISREG", lambda _: False)
    monkeypatch.setattr(stat, "S_ISBLK", lambda _: True)
    with pytest.raises(DataError, match="is a disk"):
        write_table(TABLE, path)


@pytest.mark.parametrize("ending", ["xlsx", "ods", "json", "csv.zst"])
def test_an_ending_of_another_kind_of_file_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"labels.{ending}"
    with pytest.raises(DataError, match=r"name a \.csv"):
        write_table(TABLE, path)
    assert not path.exists()


def test_a_set_replaces_the_earlier_one_in_one_step(tmp_path: Path) -> None:
    folder = small().save(tmp_path / "out", "parquet")
    (folder / "report.html").write_text("of the earlier result")
    before = folder.stat().st_ino
    small(1).save(folder)
    assert sorted(p.name for p in folder.iterdir()) == ["result.json", "tasks.csv", "workers.csv"]
    assert folder.stat().st_ino != before  # the folder itself was swapped
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_files_of_others_stay_where_they_are(tmp_path: Path) -> None:
    folder = small().save(tmp_path / "out", "parquet")
    (folder / "notes.txt").write_text("mine")
    (folder / "deep").mkdir()
    small(1).save(folder)
    found = sorted(p.name for p in folder.iterdir())
    assert found == ["deep", "notes.txt", "result.json", "tasks.csv", "workers.csv"]
    assert Result.load(folder).estimate[0, 0] == 2.0


def test_what_others_add_meanwhile_stays(tmp_path: Path) -> None:
    folder = small().save(tmp_path / "out")
    with replacing_folder(folder, {"new"} | {p.name for p in folder.iterdir()}) as new:
        (new / "new").touch()
        (folder / "notes.txt").write_text("mine")
    assert sorted(p.name for p in folder.iterdir()) == ["new", "notes.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_the_current_folder_stays_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for shift in (0, 1):
        small(shift).save(".")
    assert sorted(p.name for p in Path().iterdir()) == ["result.json", "tasks.csv", "workers.csv"]
    assert Result.load(tmp_path).estimate[0, 0] == 2.0


@pytest.mark.parametrize("swaps", [True, False])
def test_a_failure_leaves_the_earlier_set(
    tmp_path: Path, swaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small().save(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    if not swaps:
        monkeypatch.setattr(output, "_swap", lambda *_: False)

    def interrupted() -> None:
        with replacing_folder(folder, {*before}) as new:
            (new / "tasks.csv").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    small(1).save(folder)
    assert Result.load(folder).estimate[0, 0] == 2.0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_leftovers_of_a_killed_run_are_removed_and_those_of_a_living_one_are_not(
    tmp_path: Path,
) -> None:
    path, folder = tmp_path / "[t].csv", tmp_path / "out"
    (tmp_path / ".[t].csv.0000.part.csv").touch()
    left = tmp_path / ".out.0000.part"
    left.mkdir()
    for name in ("tasks.csv", ".workers.csv.0000.part.csv"):
        (left / name).touch()
    with replacing(path) as alive:
        alive.write_text("alive")
        write_table(TABLE, path)
        small().save(folder)
        assert alive.read_text() == "alive"
        assert {p.name for p in tmp_path.iterdir()} == {"[t].csv", "out", alive.name}
    assert path.read_text() == "alive"


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("taken", ["tasks", "workers", "result"])
def test_files_of_two_runs_are_not_one_result(tmp_path: Path, format: str, taken: str) -> None:
    one, two = (small(k).save(tmp_path / str(k), format) for k in (0, 1))
    name = "result.json" if taken == "result" else f"{taken}.{format}"
    (one / name).replace(two / name)
    with pytest.raises(DataError, match=r"belongs to run \w+, but result\.json to run \w+"):
        Result.load(two)


def test_the_same_result_has_the_same_run_and_every_file_holds_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(ANSWERS)
    for name in ("one", "two"):
        arguments = ["aggregate", str(tmp_path / "a.csv"), "-o", str(tmp_path / name)]
        assert CliRunner().invoke(main, [*arguments, "--method", "average"]).exit_code == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("one", "two")
    )
    assert one == two
    assert set(one) == {"tasks.csv", "workers.csv", "result.json", "report.html"}
    run = json.loads(one["result.json"])["run"].encode()
    assert all(run in content for content in one.values())


def test_a_result_without_what_it_needs_is_told_in_one_line(tmp_path: Path) -> None:
    folder = small().save(tmp_path / "out")
    facts = json.loads((folder / "result.json").read_text())
    optional = {"run", "audit", "alike_share", "calibration", "versions", "has_bias", "has_gain"}
    optional |= {"has_slips", "has_difficulty"}
    for name in [*facts, None]:
        damaged = {k: v for k, v in facts.items() if k != name} if name else [1, 2]
        (folder / "result.json").write_text(json.dumps(damaged))
        if name in optional:
            Result.load(folder)
            continue
        with pytest.raises(DataError, match=r"result\.json: is not a result that save") as told:
            Result.load(folder)
        assert "\n" not in str(told.value)


def test_results_are_beside_their_file_and_never_over_another(tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, [*arguments, "--method", "average", "--no-report"])

    for month in ("m1", "m2"):
        (tmp_path / month).mkdir()
        (tmp_path / month / "answers.csv").write_text(ANSWERS)
        assert run("aggregate", f"{tmp_path}/{month}/answers.csv").exit_code == 0
        assert (tmp_path / month / "answers.voxpop" / "tasks.csv").exists()
    # The same file again, with what has come since: its result is brought up to date.
    (tmp_path / "m1/answers.csv").write_text(ANSWERS + "c,u,1\nc,v,2\n")
    assert run("aggregate", f"{tmp_path}/m1/answers.csv").exit_code == 0
    folder = tmp_path / "m1/answers.voxpop"
    assert len(pd.read_csv(folder / "tasks.csv")) == 3
    # Another file that would have the same folder.
    (tmp_path / "m1/answers.tsv").write_text(ANSWERS.replace(",", "\t"))
    refused = run("aggregate", f"{tmp_path}/m1/answers.tsv")
    assert refused.exit_code == 1
    assert "holds the result of answers.csv; name a directory with -o" in refused.stderr
    assert len(pd.read_csv(folder / "tasks.csv")) == 3
    assert run("aggregate", f"{tmp_path}/m1/answers.tsv", "-o", str(folder)).exit_code == 0
    assert len(pd.read_csv(folder / "tasks.csv")) == 2


@POSIX
@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl", "t.csv.gz"])
def test_a_full_disk_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    code = f"import sys; sys.path[:0] = {sys.path!r}\n" + (
        "import resource, signal, numpy as np; from pathlib import Path\n"
        "from voxpop.data.tables import write_table; from voxpop.errors import DataError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "numbers = np.random.default_rng(0).normal(size=20_000)\n"
        f"try: write_table({{'task': np.arange(20_000), 'value': numbers}}, Path({str(path)!r}))\n"
        "except DataError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path}: cannot be written: ")
    assert done.stdout.count("\n") == 1
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_an_error_names_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    def fill() -> None:
        with replacing_folder(tmp_path / "out", ["a.csv"]) as new, replacing(new / "a.csv") as file:
            file.write_text("a")
            raise OSError(28, "No space left on device")

    with pytest.raises(DataError) as refused:
        fill()
    expected = f"{tmp_path / 'out' / 'a.csv'}: cannot be written: No space left on device"
    assert str(refused.value) == expected
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", ["aggregate", "diagnose", "explain"])
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_result_is_not_taken_for_answers(tmp_path: Path, command: str, format: str) -> None:
    small().save(tmp_path / "result", format=format)
    task = ["a"] if command == "explain" else []
    run = CliRunner().invoke(main, [command, str(tmp_path / "result"), *task])
    assert run.exit_code == 1
    assert "holds a result of `voxpop aggregate`, not answers" in run.stderr
