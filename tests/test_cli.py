"""The command line as a user meets it: data on stdout, talk on stderr, one line for a mistake."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import click
import duckdb
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import voxpop as vp
from tests import exports
from voxpop import Simulation, __version__
from voxpop.cli import common, main
from voxpop.cli.result_folder import default_folder
from voxpop.data import tables
from voxpop.inference.engine import backend_in_use


@pytest.fixture
def files(crowd: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return crowd.save(tmp_path / "crowd")


def run(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def ok(*arguments: str | Path, stdin: str | None = None) -> Result:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def test_aggregate_prints_csv_and_writes_files(files: Path) -> None:
    result = ok("aggregate", files / "answers.csv")
    printed = pd.read_csv(io.StringIO(result.stdout))
    assert list(printed.columns[:4]) == ["task", "x", "y", "sd"]
    assert len(printed) == 60
    written = pd.read_csv(files / "answers.voxpop/tasks.csv")
    pd.testing.assert_frame_equal(printed, written.drop(columns="run"))
    assert (files / "answers.voxpop/workers.csv").exists()
    assert "task from 'task', worker from 'worker', value from 'x, y'" in result.stderr
    assert "noise models compared" in result.stderr
    assert "of left-out answers fell inside" in result.stderr
    listed = "tasks.csv, workers.csv, levels.csv, result.json and report.html"
    assert f"wrote {listed} to {files / 'answers.voxpop'}" in result.stderr


def test_long_tables_are_printed_as_short_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """By DuckDB in place of Python: every digit, nothing for what is absent, ids as in files."""
    rng = np.random.default_rng(1)
    number = rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200)
    number[:4] = np.nan, np.inf, -0.0, 1e16
    ids = np.array([None, "a,b", 'q"x', " s", "=1+1", "x\ny", *range(194)], dtype=object)
    columns = {"id": ids, "number": number, "n": np.arange(200)}
    short, long = io.StringIO(), io.StringIO()
    tables.print_table(columns, short)
    monkeypatch.setattr(tables, "_FEW_ROWS", 100)
    tables.print_table(columns, long)
    assert long.getvalue() == short.getvalue()


def test_no_document_is_made_that_nobody_asked_for(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vp.Result, "to_dict", None)
    ok("aggregate", files / "answers.csv", "--method", "average", "--no-report")


def test_aggregate_writes_a_report_unless_told_not_to(files: Path) -> None:
    report = Path("out/report.html")
    measured = ("--method", "average", "--truth", files / "truth.csv", "-o", "out")
    ok("aggregate", files / "answers.csv", *measured)
    text = report.read_text()
    assert "<title>answers.csv · voxpop report</title>" in text
    assert "against the truths of 60 tasks" in text
    said = ok("aggregate", files / "answers.csv", *measured, "--no-report").stderr
    assert "wrote tasks.csv, workers.csv and result.json to out" in said
    assert not report.exists()


def test_aggregate_reads_stdin(files: Path) -> None:
    text = (files / "answers.csv").read_text()
    piped = ok("aggregate", "-", "--method", "median", stdin=text)
    named = ok("aggregate", files / "answers.csv", "--method", "median")
    assert piped.stdout == named.stdout
    assert Path("stdin.voxpop/tasks.csv").exists()
    lines = "\n".join(
        json.dumps({"item": i, "judge": j, "score": i + j}) for i in (1, 2) for j in (3, 4)
    )
    assert "1," in ok("aggregate", "-", "--method", "average", stdin=lines).stdout


def test_aggregate_as_json_with_a_score(files: Path) -> None:
    result = ok(
        *("aggregate", files / "answers.csv", "--json", "--truth", files / "truth.csv"),
        *("--method", "bi", "--support", "10,100,1000", "-o", "out", "--format", "parquet"),
    )
    document = json.loads(result.stdout)
    assert len(document["tasks"]) == 60
    assert document["score"]["mse"] < 200
    assert document["levels"] == [10, 100, 1000]
    assert Path("out/tasks.parquet").exists()


@pytest.mark.slow
def test_every_method_that_fits_can_be_asked_for(files: Path) -> None:
    answers = files / "answers.csv"
    for method in ("auto", "average", "median", "nbi", "bi"):
        ok("aggregate", answers, "--method", method)
    ok("aggregate", answers, "--method", "strong-oracle", "--variances", files / "workers.csv")
    told = ("--support", "10,100,1000", "--variances", files / "workers.csv")
    ok("aggregate", answers, "--method", "weak-oracle", *told)
    ok("aggregate", answers, "--method", "bi", "--support", "nbi")
    ok("aggregate", answers, "--support", "10,1000", "--weights", "0.8,0.2")
    ok("aggregate", answers, "--prior-mean", "50", "--prior-variance", "900")
    ok("aggregate", answers, "--value", "x", "--gold", files / "truth.csv")
    small = "task,worker,value\na,u,1\na,v,2\nb,u,3\nb,v,5\n"
    ok("aggregate", "-", "--method", "exact", "--support", "1,10", stdin=small)


def test_diagnose_prints_flags_and_says_what_removing_them_would_do(files: Path) -> None:
    rows = [
        (i, u, 50 if u == 0 else 7 * (i * 7 % 30) + (i * u * 13 % 11) + i * i * u % 5)
        for i in range(40)
        for u in range(12)
    ]
    pd.DataFrame(rows, columns=["task", "worker", "value"]).to_csv("flat.csv", index=False)
    result = ok("diagnose", "flat.csv", "--method", "average", "-o", "out")
    printed = pd.read_csv(io.StringIO(result.stdout))
    assert printed["worker"].tolist() == [0]
    assert printed["kind"].tolist() == ["constant"]
    assert "answered 50 on all 40 tasks" in printed["evidence"][0]
    written = pd.read_csv("out/flags.csv")
    # A column without any entry has no type of its own.
    pd.testing.assert_frame_equal(printed, written, check_dtype=False)
    assert "of the variance of one answer comes from the tasks" in result.stderr
    assert "1 of 12 workers flagged" in result.stderr
    assert "without 0, half of the estimates move by" in result.stderr
    document = json.loads(ok("diagnose", "flat.csv", "--json").stdout)
    assert document["agreement"]["overall"]["icc1"]["value"] > 0.5
    assert document["flags"][0]["worker"] == 0
    assert document["effect_of_removing"]["removed"] == [0]
    quiet = ok("diagnose", files / "answers.csv", "--method", "median", "--error-rate", "0.01")
    assert quiet.stdout.splitlines() == ["worker,kind,evidence,false_alarms,n_answers,weight,other"]
    assert "too few answers to judge" in quiet.stderr


MISTAKES: list[tuple[list[str], str]] = [
    (["aggregate", "none.csv"], "Error: none.csv: no such file\n"),
    (["aggregate", "crowd/answers.csv", "--task", "tusk"], "no column 'tusk' for the task"),
    (
        ["aggregate", "crowd/answers.csv", "--method", "magic"],
        "no method 'magic'; choose one of auto",
    ),
    (["aggregate", "crowd/answers.csv", "--method", "median", "--tol", "1"], "takes no tol"),
    (["aggregate", "crowd/answers.csv", "--method", "exact"], "needs support"),
    (["aggregate", "crowd/answers.csv", "--method", "strong-oracle"], "needs variances"),
    (["aggregate", "crowd/answers.csv", "--support", "1,-1"], "positive finite variances"),
    (["aggregate", "crowd/answers.csv", "--truth", "none.csv"], "none.csv: no such file"),
    (["aggregate", "crowd/answers.csv", "-o", "crowd/truth.csv"], "is a file; name a directory"),
    (["simulate", "--per-task", "9", "--tasks", "2"], "9 answers per task need as many workers"),
    (["simulate", "-o", "crowd/truth.csv"], "is a file; name a directory"),
    (
        ["aggregate", "crowd/answers.csv", "-o", "crowd/truth.csv/x"],
        "crowd/truth.csv/x: cannot be written to",
    ),
    (["aggregate", "crowd/answers.csv", "--prior-mean", "5"], "give both"),
    (["diagnose", "crowd/answers.csv", "--error-rate", "2"], "above 0 and at most 1, got 2"),
    (["diagnose", "crowd/answers.csv", "--method", "median", "--tol", "1"], "takes no tol"),
    (["diagnose", "crowd/answers.csv", "-o", "crowd/truth.csv"], "is a file; name a directory"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_status_1(
    files: Path, arguments: list[str], message: str
) -> None:
    before = {path: path.read_bytes() for path in files.iterdir()}
    result = run(*arguments)
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert message.strip("\n") in result.stderr
    assert "Traceback" not in result.stderr
    assert {path: path.read_bytes() for path in files.iterdir()} == before
    assert [path.name for path in Path.cwd().iterdir()] == ["crowd"]  # and no litter


def test_a_bad_table_is_one_line_not_a_traceback(files: Path) -> None:  # noqa: ARG001
    result = run("aggregate", "-", stdin="task,worker,value\na,u,x\n")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: stdin: row 2: 'x' in column 'value' is not a number;")
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["aggregate", "a.csv", "--support", "10;100"], "expected auto, nbi or numbers like"),
        (["aggregate", "a.csv", "--support", "1,2", "--weights", "auto"], "expected numbers like"),
        (["simulate", "--support", "auto"], "expected numbers like 10,100,1000, got 'auto'"),
        (["simulate", "--seed", "-1"], "-1 is not in the range"),
    ],
)
def test_options_are_checked_before_anything_is_done(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_workers_can_be_scored_too(files: Path) -> None:
    known = ("--truth", files / "truth.csv", "--variances", files / "workers.csv")
    document = json.loads(ok("aggregate", files / "answers.csv", "--json", *known).stdout)
    assert document["score"]["rank_correlation"] > 0.5


def test_gold_of_vectors(files: Path) -> None:  # noqa: ARG001
    text = "task,worker,x,y,gx,gy\na,u,1,1,1,2\na,v,3,2,1,2\nb,u,3,4,,\nb,v,4,4,,\n"
    arguments = ("--value", "x", "--value", "y", "--gold", "gx", "--gold", "gy")
    printed = ok("aggregate", "-", "--method", "average", *arguments, stdin=text).stdout
    assert "a,1.0,2.0,0.0" in printed


@pytest.mark.parametrize(
    ("name", "folder"),
    [("data.2023.csv", "data.2023"), ("a.csv.gz", "a"), ("b.parquet", "b"), ("plain", "plain")],
)
def test_output_is_named_after_the_input(name: str, folder: str) -> None:
    assert default_folder(f"some/where/{name}") == Path(f"some/where/{folder}.voxpop")


def test_warnings_are_one_line_each(files: Path) -> None:  # noqa: ARG001
    text = "task,worker,value\na,u,1\nb,u,2\n"
    result = ok("aggregate", "-", "--method", "average", stdin=text)
    warned = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warned) == 1
    assert "all answers come from one worker" in warned[0]


def test_files_are_written_even_if_nobody_reads_the_output(files: Path) -> None:
    command = f"{sys.executable} -m voxpop aggregate {files / 'answers.csv'} --method average -o o"
    subprocess.run(f"{command} 2> err | true", shell=True, check=False)
    assert len(pd.read_csv("o/tasks.csv")) == 60
    assert "Traceback" not in Path("err").read_text()


def test_duplicates_by_policy(files: Path) -> None:  # noqa: ARG001
    text = "task,worker,value\na,u,1\na,u,3\na,v,5\nb,v,4\n"
    assert "--duplicates" in run("aggregate", "-", stdin=text).stderr
    for policy, expected in (("mean", "a,3.5"), ("last", "a,4.0")):
        arguments = ("--method", "average", "--duplicates", policy)
        assert expected in ok("aggregate", "-", *arguments, stdin=text).stdout


def test_simulate_then_aggregate(files: Path) -> None:  # noqa: ARG001
    ok("simulate", "--tasks", "50", "--dimension", "2", "--seed", "3", "-o", "a")
    ok("simulate", "--tasks", "50", "--dimension", "2", "--seed", "3", "-o", "b")
    assert Path("a/answers.csv").read_text() == Path("b/answers.csv").read_text()
    assert len(pd.read_csv("a/truth.csv")) == 50
    ok("aggregate", "a/answers.csv", "--truth", "a/truth.csv")


@pytest.mark.slow
def test_demo_shows_that_learning_pays(files: Path) -> None:  # noqa: ARG001
    scores = json.loads(ok("demo", "--tasks", "100", "--json").stdout)
    assert scores["strong oracle"]["mse"] <= scores["bi, levels learned"]["mse"]
    assert scores["bi, levels learned"]["mse"] < 0.3 * scores["average"]["mse"]
    screen = ok("demo", "--tasks", "60").stdout
    assert "strong oracle" in screen
    assert max(map(len, screen.splitlines())) <= 80


def test_methods_and_version() -> None:
    listed = ok("methods").stdout
    for name in ("average", "median", "nbi", "bi", "strong-oracle", "exact"):
        assert f"\n{name}\t" in f"\n{listed}"
    assert json.loads(ok("methods", "--json").stdout)["average"]
    assert f"backend {backend_in_use()}\n" in ok("version").stdout
    assert json.loads(ok("version", "--json").stdout)["voxpop"] == __version__
    assert __version__ in ok("--version").stdout


@pytest.mark.parametrize("command", ["aggregate", "simulate", "demo", "methods", "version"])
def test_every_help_ends_with_an_example(command: str) -> None:
    text = ok(command, "--help").stdout
    assert f"voxpop {command}" in text.split("\n", 2)[2]


def test_python_m_voxpop_is_voxpop() -> None:
    command = [sys.executable, "-m", "voxpop", "version", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["voxpop"] == __version__


def test_a_terminal_gets_tables(files: Path) -> None:
    """Run in a pseudo-terminal, as a person would."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "voxpop", "aggregate", str(files / "answers.csv")]
    command += ["--method", "bi", "--support", "10,100,1000"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        printed = b""
        while True:
            try:
                printed += os.read(ours, 4096)
            except OSError:  # the other side has hung up
                break
    os.close(ours)
    assert process.returncode == 0
    assert "Workers, most trusted first" in printed.decode()
    assert "... and 52 more tasks" in printed.decode()


# One set of options for every command that reads answers

SHARED: dict[str, Any] = {
    "reading": common.reading_options,
    "crowd": common.crowd_options,
    "estimator": common.estimator_options,
}
# What a command does with answers says which options it takes. Whoever adds a command that reads
# answers adds it here; commands that read none are listed beside them, so that none is forgotten.
TAKES = {
    **dict.fromkeys(("aggregate", "explain", "diagnose", "mean"), "estimator"),
    **dict.fromkeys(("plan", "next"), "crowd"),
    "convert": "reading",
}
READS_NONE = {
    *("assign", "export", "formats", "simulate", "demo", "reproduce", "methods", "version"),
    *("benchmark", "serve"),
}


def options_of(kind: str) -> dict[str, click.Option]:
    command = click.command()(SHARED[kind](lambda: None))
    return {option.opts[0]: option for option in command.params if isinstance(option, click.Option)}


def test_every_command_that_reads_answers_takes_every_option() -> None:
    assert TAKES.keys() | READS_NONE == main.commands.keys()
    for name, kind in TAKES.items():
        there = {option.opts[0]: option for option in main.commands[name].params}
        for flag, option in options_of(kind).items():
            assert flag in there, f"voxpop {name} does not take {flag}"
            assert there[flag].to_info_dict() == option.to_info_dict(), (name, flag)


# A value for every option, with which every command must end well on the answers of `small`.
VALUES: dict[str, list[str]] = {
    "--from": ["long"],
    "--task": ["task"],
    "--worker": ["worker"],
    "--value": ["x", "--value", "y"],
    "--gold": ["gold.csv"],
    "--duplicates": ["mean"],
    "--question": ["x"],
    "--missing": ["drop", "--missing", "-1"],
    "--decimal": ["."],
    "--thousands": [","],
    "--sheet": ["answers"],
    "--names": [],
    "--objects": ["--distance-threshold", "50"],
    "--iou-threshold": ["0.5", "--distance-threshold", "50"],
    "--distance-threshold": ["50"],
    "--quorum": ["0.1", "--distance-threshold", "50"],
    "--looked": ["small.csv"],
    "--query": ["answers"],
    "--support": ["1,100"],
    "--weights": ["0.5,0.5", "--support", "1,100"],
    "--prior-mean": ["50", "--prior-variance", "900"],
    "--prior-variance": ["900"],
    "--method": ["median"],
    "--noise": ["tails", "--method", "bi"],
    "--scale": ["logit", "--bounds=-100,200"],
    "--shared-error": ["0.3"],
    "--bounds": ["0,100"],
    "--variances": ["workers.csv", "--method", "strong-oracle"],
    "--threads": ["2", "--method", "bi"],
    "--max-iter": ["300", "--method", "bi"],
    "--tol": ["0.01", "--method", "bi"],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points that four workers mark in six images, in a file and in a database."""
    folder = tmp_path_factory.mktemp("small")
    rng = np.random.default_rng(0)
    rows = [
        (f"t{i}", f"w{u}", *np.round(10 * i + (1 + 2 * u) * rng.standard_normal(2), 3))
        for i in range(6)
        for u in range(4)
    ]
    answers = pd.DataFrame(rows, columns=["task", "worker", "x", "y"])
    answers.to_csv(folder / "small.csv", index=False)
    (folder / "gold.csv").write_text("task,x,y\nt0,0,0\nt1,10,10\n")
    (folder / "workers.csv").write_text("worker,variance\nw0,1\nw1,9\nw2,25\nw3,49\n")
    sheet = [list(answers.columns), *answers.to_numpy().tolist()]
    (folder / "small.xlsx").write_bytes(exports.xlsx({"notes": [["none"]], "answers": sheet}))
    with duckdb.connect(str(folder / "small.duckdb")) as connection:
        connection.execute("CREATE TABLE answers AS SELECT * FROM answers")
    return folder


class MadePlan:
    """Stands in for a plan, which takes seconds to make."""

    asked: ClassVar[dict[str, Any]] = {}

    def __init__(self, crowd: object, _: object, **asked: Any) -> None:
        assert crowd is not None
        MadePlan.asked = asked

    def summary(self) -> str:
        return "planned"

    def notes(self) -> list[str]:
        return []

    def columns(self) -> dict[str, list[float]]:
        return {"cost": [1.0]}


def test_every_option_has_a_value_to_be_tried_with() -> None:
    assert VALUES.keys() == options_of("estimator").keys()


@pytest.mark.parametrize(
    ("name", "flag"),
    # The mean of a population needs more gold than there is here: test_population_mean.py.
    [(name, flag) for name in TAKES if name != "mean" for flag in options_of(TAKES[name])],
)
def test_every_command_runs_with_every_option(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, flag: str
) -> None:
    monkeypatch.chdir(small)
    monkeypatch.setattr("voxpop.collect.planning.plan.make_plan", MadePlan)
    sources = {"--query": "duckdb:///small.duckdb", "--sheet": "small.xlsx"}
    source = sources.get(flag, "small.csv")
    matched = "t0#1" if "--distance-threshold" in (flag, *VALUES[flag]) else "t0"
    stated = "--support" in (flag, *VALUES[flag])  # instead of a pilot
    arguments: dict[str, list[str]] = {
        "aggregate": [source, "-o", str(tmp_path / "out"), "--no-report"],
        "explain": [source, matched],
        "plan": [*([] if stated else [source]), "--tasks", "5"],
        "next": [source, "-k", "2"],
        "convert": [source, str(tmp_path / "out.csv")],
    }
    quick = TAKES[name] == "estimator" and flag in options_of("reading")
    given = [name, *arguments.get(name, [source]), flag, *VALUES[flag]]
    done = run(*given, *(["--method", "average"] if quick else []))
    assert done.exit_code == 0, (given, done.output, done.exception)


def test_gold_is_a_file_of_truths_for_plan_too(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    monkeypatch.setattr("voxpop.collect.planning.plan.make_plan", MadePlan)
    stated = ("plan", "--support", "4,400", "--tasks", "20")
    for flags, told in (("--gold-questions", "planned"), ("--gold", "note: --gold is for known")):
        assert ok(*stated, flags, "2").stderr.startswith(told)
        assert MadePlan.asked["max_gold"] == 2
    ok("plan", "small.csv", "--tasks", "20", "--gold", "gold.csv")
    assert MadePlan.asked["max_gold"] == 0


def test_support_can_be_auto_where_a_crowd_is_learned(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    assert ok("next", "small.csv", "--support", "auto").stdout == ok("next", "small.csv").stdout
    wrong = run("next", "small.csv", "--support", "nbi")
    assert (wrong.exit_code, "give numbers, or auto" in wrong.stderr) == (1, True)


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell closes streams")
@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        ("aggregate {} --method average -o o >&-", 0, "wrote tasks.csv"),
        ("aggregate {} --method average -o o >&- 2>&-", 0, ""),
        ("aggregate - --method average -o o <&-", 1, "Error: there is no standard input to read"),
        ("aggregate {} --method average -o o > /dev/full", 1, "Error: No space left on device\n"),
        ("--help > /dev/full", 1, "Error: No space left on device\n"),
    ],
)
def test_closed_streams_and_full_devices_end_in_a_line(
    files: Path, command: str, status: int, told: str
) -> None:
    if "/dev/full" in command and not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    given = f"{sys.executable} -m voxpop {command.format(files / 'answers.csv')}"
    done = subprocess.run(given, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not command.startswith("aggregate {}") or len(pd.read_csv("o/tasks.csv")) == 60
