"""Files as people have them: each case is typed at the command line, and read or told."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from tests import exports
from tests.test_cli import MadePlan
from voxpop import read_answers
from voxpop.cli import main

HEADER = ["task", "worker", "value"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def voxpop(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


def ok(line: str) -> Result:
    done = voxpop(line)
    assert done.exit_code == 0, done.stderr
    return done


def refused(line: str) -> str:
    done = voxpop(line)
    assert done.exit_code == 1, done.output
    assert "Traceback" not in done.stderr
    return done.stderr[done.stderr.index("Error: ") :]


def write(name: str, rows: list[list[Any]], delimiter: str = ",", encoding: str = "utf-8") -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    Path(name).write_bytes(text.getvalue().encode(encoding))


def crowd(values: list[str]) -> list[list[Any]]:
    """Two workers who answer in turn, a task for every two values."""
    return [[f"t{k // 2}", f"w{k % 2}", value] for k, value in enumerate(values)]


def converted(line: str) -> tuple[list[list[str]], str]:
    done = ok(f"convert {line}")
    with Path("out.csv").open(newline="") as file:
        return list(csv.reader(file)), done.stderr


def test_columns_that_people_call_so_are_known() -> None:
    write("a.csv", [["Photo", "Labeller Name", "Estimated age"], *crowd(["30", "31", "40", "44"])])
    told = ok("aggregate a.csv --method average").stderr
    assert "task from 'Photo', worker from 'Labeller Name', value from 'Estimated age'" in told
    for names in (["doc", "user", "score"], ["item", "rater", "grade"], ["Clip ID", "Judge", "x9"]):
        write("b.csv", [names, *crowd(["30", "31", "40", "44"])])
        ok("aggregate b.csv --method average -o o")


def test_one_error_names_all_columns_that_could_not_be_told_and_a_command_that_works() -> None:
    rows = [["Bild", "Wer", "Alter", "Datum"]]
    rows += [[*row, "2024-01-01"] for row in crowd(["30", "31", "40", "44", "50", "51"])]
    write("a.csv", rows)
    told = refused("aggregate a.csv --method average")
    assert "a.csv: no column that looks like the task or the worker or the value" in told
    command = told.splitlines()[-1].strip()
    assert command == (
        "voxpop aggregate a.csv --method average --task Bild --worker Wer --value Alter"
    )
    assert "t0,30.5" in ok(command.removeprefix("voxpop ")).stdout


@pytest.mark.parametrize(
    ("values", "read", "told"),
    [
        (["63,0", "5", "7,25", "1"], [63, 5, 7.25, 1], "read 63,0 as 63.0: decimal comma"),
        (["1.234,5", "2.000", "3", "4"], [1234.5, 2000, 3, 4], "read 1.234,5 as 1234.5: decimal c"),
        (["62,989.78", "1,000", "3", "4"], [62989.78, 1000, 3, 4], "comma between thousands"),
        (["1 234,5", "3", "3", "4"], [1234.5, 3, 3, 4], "space between thousands"),
        (["34 years", "7 years", "8 years", "9years"], [34, 7, 8, 9], "unit 'years' left out"),
        (["$5", "$6.50", "$7", "$8"], [5, 6.5, 7, 8], "unit '$' left out"),
        (["63%", "5 %", "7%", "8%"], [63, 5, 7, 8], "unit '%' left out"),
    ],
)
def test_numbers_as_people_write_them(values: list[str], read: list[float], told: str) -> None:
    write("a.csv", [HEADER, *crowd(values)], delimiter=";")
    rows, said = converted("a.csv out.csv")
    assert [float(row[2]) for row in rows[1:]] == read
    assert told in said
    # Every command that reads answers says so.
    for command in ("aggregate a.csv --method average", "next a.csv -k 1 --support 4"):
        assert told in ok(command).stderr


def test_what_can_be_read_in_two_ways_is_asked_for() -> None:
    write("a.csv", [HEADER, *crowd(["1,234", "2,345", "3,456", "4,567"])], delimiter=";")
    told = refused("convert a.csv out.csv")
    assert "row 2: '1,234' in column 'value' may be 1.234 or 1234" in told
    assert "--decimal , or --thousands ," in told
    assert converted("a.csv out.csv --decimal ,")[0][1][2] == "1.234"
    assert converted("a.csv out.csv --thousands ,")[0][1][2] == "1234.0"


@pytest.mark.parametrize("odd", ["$6", "6 kg", "<6", "six", "5.6.7"])
def test_a_unit_is_left_out_only_if_all_rows_have_it(odd: str) -> None:
    write("a.csv", [HEADER, *crowd(["5", "7", "8"]), ["t9", "w9", odd]])
    assert f"a.csv: row 5: {odd!r} in column 'value' is not a number" in refused(
        "convert a.csv o.csv"
    )


def test_windows_text_is_read_and_told() -> None:
    write("a.csv", [HEADER, ["café", "Zoë", "1"], ["café", "José", "2"]], encoding="cp1252")
    rows, said = converted("a.csv out.csv")
    assert rows[1:] == [["café", "José", "2.0"], ["café", "Zoë", "1.0"]]
    assert "read as Windows-1252 text, because it is not UTF-8" in said
    # A damaged byte in UTF-8 is not another encoding.
    Path("b.csv").write_bytes("task,worker,value\ncafé,é,1\ncafé,u,2\n".encode()[:-4] + b"\xff2\n")
    assert "b.csv: is UTF-8 text, but byte" in refused("convert b.csv out.csv")


@pytest.mark.parametrize("name", ["book.xlsx", "inline.xlsx", "book.ods", "without-ending"])
def test_workbooks_are_read_by_the_name_of_their_sheet(name: str) -> None:
    rows: list[list[Any]] = [
        HEADER,
        ["t1", "ann", 34],
        ["t1", "bob", 31.5],
        ["t2", "ann", 60],
        ["t2", "bob", 58.25],
    ]
    sheets = {"first": rows, "other & last": [*rows[:4], ["t2", "bob", 1]]}
    make = exports.ods if name.endswith("ods") else exports.xlsx
    Path(name).write_bytes(
        exports.xlsx(sheets, shared=False) if name.startswith("inline") else make(sheets)
    )
    found, said = converted(f"{name} out.csv")
    assert found[1:] == [[t, w, str(float(v))] for t, w, v in rows[1:]]
    assert "read sheet 'first'; choose another with --sheet: 'other & last'" in said
    done = CliRunner().invoke(main, ["convert", name, "out.csv", "--sheet", "other & last"])
    assert done.exit_code == 0, done.stderr
    assert Path("out.csv").read_text().splitlines()[-1] == "t2,bob,1.0"
    assert "has no sheet 'x'; it has 'first', 'other & last'" in refused(
        f"convert {name} out.csv --sheet x"
    )


def test_a_workbook_is_read_as_it_is_stored() -> None:
    titled: list[list[Any]] = [["Ratings of March"], [], [" task ", "worker", "value", "note"]]
    titled += [["007", "ann", "#N/A", None], ["007", "bob", 2.50, "fine"], [None, None, None, None]]
    titled += [["008", "ann", 3, None], ["008", "bob", 4, None]]
    Path("a.xlsx").write_bytes(exports.xlsx({"s": titled}))
    told = refused("convert a.xlsx out.csv")
    assert "a.xlsx: column 'value' is empty or '#N/A' in row 4;" in told
    found, said = converted("a.xlsx out.csv --missing drop")
    assert found[1:] == [["007", "bob", "2.5"], ["008", "ann", "3.0"], ["008", "bob", "4.0"]]
    assert "skipped 1 row above the header" in said
    Path("old.xls").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(600))
    assert "is an old or encrypted workbook; save it as .xlsx" in refused("convert old.xls o.csv")


def test_rows_without_an_answer_stop_or_are_dropped_and_counted() -> None:
    rows = crowd(["1", "", "N/A", "don't know", "5", "no idea", "-1", "8"])
    write("a.csv", [HEADER, *rows])
    told = refused("aggregate a.csv --method average")
    assert "row 7: 'no idea' in column 'value' is not a number; if it means no answer" in told
    write("b.csv", [HEADER, *rows[:5]])
    told = refused("aggregate b.csv --method average")
    assert "b.csv: column 'value' is empty or 'N/A' in row 3, 4, 5;" in told
    assert "--missing drop" in told
    # Words go in one argument each, which a shell would quote.
    options = ["--missing", "drop", "--missing", "no idea", "--missing", "-1"]
    done = CliRunner().invoke(main, ["convert", "a.csv", "out.csv", *options])
    assert done.exit_code == 0, done.stderr
    assert [line.split(",")[2] for line in Path("out.csv").read_text().split()[1:]] == [
        *("1.0", "5.0", "8.0")
    ]
    assert "left out 5 rows without an answer: row 3, 4, 5 and 2 more" in done.stderr
    # In every command, and blank ids too.
    write("c.csv", [HEADER, *rows[:1], ["t0", "", "4"], ["", "w1", "5"], ["t0", "w1", "2"]])
    told = ok("aggregate c.csv --method average --missing drop").stderr
    assert "left out 2 rows without an answer: row 3, 4" in told


def test_identical_rows_are_dropped_and_told_and_different_answers_stop() -> None:
    rows = crowd([str(k) for k in range(7)])
    write("a.csv", [HEADER, *rows, *rows])
    found, said = converted("a.csv out.csv")
    assert len(found) == 8
    assert "left out 7 rows that repeat task, worker and answer of an earlier one: row 9" in said
    assert "more than once" in refused("convert a.csv out.csv --duplicates error")
    write("b.csv", [HEADER, *rows, *rows[:3], ["t0", "w0", "99"]])
    told = refused("convert b.csv out.csv")
    assert "worker 'w0' answered task 't0' more than once (rows 9 and 12)" in told


@pytest.mark.parametrize("first", ["Photo", "Bild", ""])
def test_a_wide_table_with_names_as_headers_is_detected_and_keeps_its_order(first: str) -> None:
    rows = [[first, "Anna Smith", "Ben", "Carla"], ["z.jpg", "", "4", "5"], ["a.jpg", "2", "1", ""]]
    rows += [["m.jpg", "", "", "9"], ["b.jpg", "3", "3", "4"]]
    write("a.csv", rows)
    told = ok("aggregate a.csv --method average -o o")
    assert "read as wide" in told.stderr
    order = ["z.jpg", "a.jpg", "m.jpg", "b.jpg"]
    assert [line.split(",")[0] for line in told.stdout.splitlines()[1:]] == order
    assert pd.read_csv("o/tasks.csv")["task"].tolist() == order
    found, _ = converted("a.csv out.csv")
    assert list(dict.fromkeys(row[0] for row in found[1:])) == order
    ok("export o labels.csv --to training")
    assert pd.read_csv("labels.csv")["task"].tolist() == order
    write(
        "b.csv", [rows[0], *[[row[0], *(c.replace(".", ",") for c in row[1:])] for row in rows[1:]]]
    )
    assert "read as wide" in ok("aggregate b.csv --method average -o o").stderr


def test_ids_are_trimmed_and_told_and_case_is_warned_of() -> None:
    rows = [["t1", "w4 ", "1"], ["t1", "w5", "2"], [" t2", "w4", "3"], ["t2", "w5", "4"]]
    write("a.csv", [HEADER, *rows])
    found, said = converted("a.csv out.csv")
    assert {(row[0], row[1]) for row in found[1:]} == {
        (t, w) for t in ("t1", "t2") for w in ("w4", "w5")
    }
    assert "trimmed white space around 1 worker id: 'w4 '" in said
    assert "trimmed white space around 1 task id: ' t2'" in said
    write("b.csv", [HEADER, ["t1", "W4", "1"], ["t1", "w5", "2"], ["t2", "w4", "3"]])
    told = ok("aggregate b.csv --method average").stderr
    assert "warning: worker ids 'W4' and 'w4' differ only by white space or case" in told


def test_rows_are_numbered_as_a_spreadsheet_does() -> None:
    lines = ["task,worker,value", "a,u,1", "", '"two', 'lines",v,2', ",,", "b,u,tall"]
    Path("a.csv").write_text("\n".join(lines) + "\n")
    assert "a.csv: row 6: 'tall'" in refused("aggregate a.csv")
    Path("b.csv").write_text("task,worker,value\na,u,1\nb,v,1,5\n")
    told = refused("aggregate b.csv")
    assert "b.csv: row 3 has 4 cells, the header has 3" in told
    assert "quote numbers with a decimal comma" in told
    Path("c.jsonl").write_text(
        '{"task": 1, "worker": 1, "value": 1}\n\n{"task": 1, "worker": 2, "value": "x"}'
    )
    assert "c.jsonl: row 3: 'x'" in refused("aggregate c.jsonl")
    Path("d.csv").write_text("task,worker,value\na,u,1\na,v,1e200\n")
    assert "row 3: 1e+200 in column 'value'" in refused("aggregate d.csv")


def test_options_of_reading_apply_to_truth_and_gold_and_errors_name_the_file() -> None:
    rows = [["what", "worker", "value"], *crowd(["1,5", "2,5", "3,5", "4,5"])]
    write("a.csv", rows, ";")
    write("t.csv", [["what", "value"], ["t0", "2,0"], ["t1", "4,0"]], ";")
    ok("aggregate a.csv --task what --truth t.csv --method average")
    ok("aggregate a.csv --task what --gold t.csv --method average")
    write("x.csv", [["when", "value"], ["t0", "2,0"]], ";")
    for option in ("--truth", "--gold"):
        told = refused(f"aggregate a.csv --task what {option} x.csv --method average")
        assert "Error: x.csv: no column that looks like the task; the columns are 'when'" in told
    write("n.csv", [["what", "value"], ["elsewhere", "2,0"]], ";")
    told = refused("aggregate a.csv --task what --truth n.csv --method average")
    assert "truth n.csv: none of its tasks ('elsewhere') is among the answers' tasks" in told
    write("big.csv", [["task", "truth"], ["t0", "1e300"]])
    for option in ("--truth", "--gold"):
        told = refused(f"aggregate a.csv --task what {option} big.csv --method average")
        assert "big.csv of task 't0' must give every coordinate as a finite number" in told


def test_bounds_are_kept_and_answers_outside_are_counted() -> None:
    write("a.csv", [HEADER, *crowd([str(v) for v in (10, 12, 40, 44, 97, 96, 30, 33, 99, 100)])])
    done = ok("aggregate a.csv --bounds 0,50 --no-report")
    assert "4 of 10 answers lie outside the bounds 0 to 50" in done.stderr
    tasks = pd.read_csv(io.StringIO(done.stdout))
    for column in ("value", "lower_95", "upper_95", "lower_90", "upper_90"):
        assert tasks[column].between(0, 50).all()
    assert "exclude all answers" in refused("aggregate a.csv --bounds 200,300")


@pytest.mark.slow
def test_a_plan_asks_for_no_more_workers_than_there_are() -> None:
    rows = [
        [f"t{i}", f"w{u}", 10 * i + (u + 1) * (i * u % 7 - 3)] for i in range(20) for u in range(6)
    ]
    write("pilot.csv", [HEADER, *rows])
    free = ok("plan pilot.csv --tasks 200 --budget 1000")
    needed = re.search(
        r"the plan needs (\d+) workers, and the pilot had 6; .*--workers 6", free.stderr
    )
    assert needed is not None
    assert int(needed[1]) == 50
    few = ok("plan pilot.csv --tasks 200 --budget 1000 --workers 6")
    assert "the plan needs" not in few.stderr
    plans = pd.read_csv(io.StringIO(few.stdout))
    assert plans["workers"].max() <= 6
    assert plans["per_task"].max() <= 6
    assert "6 workers with up to 20 answers each cannot give every one of 200 tasks" in refused(
        "plan pilot.csv --tasks 200 --budget 1000 --workers 6 --capacity 20"
    )


def test_plan_passes_the_number_of_workers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voxpop.collect.planning.plan.make_plan", MadePlan)
    ok("plan --support 4,400 --tasks 20 --workers 7")
    assert MadePlan.asked["n_workers"] == 7


def test_e_mail_addresses_stay_inside_unless_asked_for() -> None:
    exports.write_all(Path())
    done = ok("aggregate project-1.json --question age --method average -o o")
    told = "workers are named by their ids; names=True (command line: --names) shows their e-mail"
    assert told in done.stderr
    written = [path.read_text() for path in Path("o").iterdir()]
    assert not any("bob@example.org" in text for text in written)
    assert told in (Path("o") / "report.html").read_text()  # the report says which
    done = ok("aggregate project-1.json --question age --method average -o o --names")
    assert "workers are named by their e-mail addresses (--names)" in done.stderr
    assert "bob@example.org" in Path("o/workers.csv").read_text()
    assert "e-mail addresses (--names)" in Path("o/report.html").read_text()
    # Where an address is all there is, people get made-up names.
    text = Path("project-1.json").read_text().replace('"id": 11, "first_name"', '"first_name"')
    Path("p.json").write_text(text)
    answers = read_answers("p.json", question="age")
    assert answers.worker_ids.tolist() == [10, "annotator 1", 12]
    assert any("made-up names" in note for note in answers.notes)
