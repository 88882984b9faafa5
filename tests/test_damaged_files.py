"""Data are never silently wrong: damaged, swollen and hostile files are told in one line."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import exports
from tests.test_files_in_parts import streamed
from voxpop import DataError, Result, aggregate, export_result, read_answers
from voxpop.cli import main
from voxpop.data.files import FileTable
from voxpop.data.formats.sql import read_query
from voxpop.data.library_errors import naming, reason
from voxpop.data.numerals import Spelling
from voxpop.data.text_tables import find_delimiter
from voxpop.data.unpack import LIMIT, open_bytes

SMALL = "task,worker,value\na,u,1\na,v,2\nb,u,3\nb,v,5\n"


def told(line: list[str], stdin: bytes | None = None) -> str:
    """Run a command that must be refused in one line."""
    done = CliRunner().invoke(main, line, input=stdin)
    assert done.exit_code == 1, (done.output, done.exception)
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("note", ["", "# made by hand\n", "# one\n# two, with a comma\n"])
def test_a_number_sign_drops_no_row(tmp_path: Path, end: str, note: str) -> None:
    text = note + "task,worker,value\n#1,a,1\n#1,b,2\nimg_004,a,3\nimg_004,b,4\n# c,b,5\n"
    path = tmp_path / "a.csv"
    path.write_text(text.replace("\n", end), newline="")
    answers = read_answers(path)
    assert answers.task_ids.tolist() == ["#1", "img_004", "# c"]
    assert answers.n_edges == 5
    skipped = [text for text in answers.notes if "above the header" in text]
    assert len(skipped) == (1 if note else 0)  # lines are left out only if that is told


def test_a_header_may_begin_with_a_number_sign(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("#task,worker,value\n#1,a,1\n#1,b,2\n")
    assert read_answers(path).columns["task"] == "#task"


cells = st.text(st.sampled_from("ab1#\"', ;\t\\é\n\r"), max_size=4)


@settings(max_examples=20)
@given(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=2, max_size=8))
def test_a_csv_is_read_as_python_reads_it(rows: list[list[str]]) -> None:
    """Whatever cells hold, as many rows come in as are there, with these cells."""
    import csv
    import tempfile

    text = io.StringIO()
    csv.writer(text).writerows([["h", "i", "j"], *rows])
    expected = [r for r in csv.reader(io.StringIO(text.getvalue(), newline="")) if any(r)][1:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_text(text.getvalue(), newline="", encoding="utf-8")
        try:
            with suppress(DataError):
                read = [["" if cell is None else cell for cell in row] for row in streamed(path)]
                assert [row for row in read if any(row)] == expected
            table = FileTable(path)
        except DataError:
            assert not expected
            return
        found = list(zip(*(table.texts(name) for name in table.columns), strict=True))
    assert [[cell or "" for cell in row] for row in found] == expected


def test_both_ways_to_read_a_csv_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    lines = [f"#{i % 7},w {i % 3},{rng.normal()!r}" for i in range(500)]
    path = tmp_path / "a.csv"
    path.write_text("task,worker,value\n" + "\n".join(lines))
    fast = FileTable(path)
    monkeypatch.setattr(FileTable, "_load_plain", lambda *_: False)
    slow = FileTable(path)
    for name in fast.columns:
        assert fast.texts(name) == slow.texts(name)


def test_rows_that_go_missing_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SMALL.replace("a,u", '"a",u'))
    monkeypatch.setattr("voxpop.data.text_tables._csv_batches", lambda *_: iter([[["a"]] * 3]))
    with pytest.raises(DataError, match="changed while it was read: it had 4 rows at first"):
        read_answers(path)


@pytest.mark.slow
def test_every_flipped_bit_of_a_gzip_file_is_told_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    content = gzip.compress(SMALL.encode(), mtime=0)
    path.write_bytes(content)
    whole = read_answers(path).value.tolist()
    n_told = 0
    for bit in range(0, 8 * len(content), 13):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(bytes(flipped))
        try:
            assert read_answers(path).value.tolist() == whole
        except DataError:
            n_told += 1
    assert n_told > 4 * len(content) / 13


def test_corrupt_deflate_is_told_in_files_and_on_stdin(tmp_path: Path) -> None:
    for name, text in (("a.csv.gz", SMALL), ("a.json.gz", json.dumps(exports.coco()))):
        content = bytearray(gzip.compress(text.encode(), mtime=0))
        content[12:20] = b"\xff" * 8
        path = tmp_path / name
        path.write_bytes(content)
        assert "cannot be read: " in told(["convert", str(path), str(tmp_path / "o.csv")])
        out = ["convert", "-", str(tmp_path / "o.csv")]
        assert "stdin" in told(out, bytes(content))


# Bits 0 and 5 of a member's flags: encrypted, and patched data, which zipfile does not read.
@pytest.mark.parametrize(("flag", "why"), [(0x01, "is encrypted"), (0x20, "cannot be unpacked")])
def test_members_that_cannot_be_unpacked_are_told(tmp_path: Path, flag: int, why: str) -> None:
    rows: list[list[Any]] = [["task", "worker", "value"], ["a", "u", 1], ["a", "v", 2]]
    whole = bytearray(exports.xlsx({"s": rows}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = whole.find(signature)
        while place >= 0:
            whole[place + offset] |= flag
            place = whole.find(signature, place + 4)
    path = tmp_path / "a.xlsx"
    path.write_bytes(whole)
    assert why in told(["aggregate", str(path)])


@pytest.mark.parametrize("mark", ["\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2009"])
def test_separators_around_a_number_are_white_space(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SMALL.replace("5", f"{mark}5{mark}"))
    assert read_answers(path).value[:, 0].tolist() == [1, 2, 3, 5]


@pytest.mark.parametrize("encoding", ["utf-7", "rot13", "punycode", "idna", "base64", "no-such"])
def test_odd_encodings_of_xml_are_told(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(exports.cvat("bob").replace('encoding="utf-8"', f'encoding="{encoding}"'))
    assert "a.xml: is" in told(["convert", str(path), str(tmp_path / "o.csv")])


def test_half_a_character_in_json_is_told(tmp_path: Path) -> None:
    document = json.dumps(exports.coco()).replace('"a.jpg"', '"\\ud800.jpg"')
    lines = (
        '{"task": "\\udc00", "worker": "a", "value": 1}\n{"task": "b", "worker": "c", "value": 2}'
    )
    for name, text in (("a.json", document), ("a.jsonl", lines)):
        (tmp_path / name).write_text(text)
        error = told(["convert", str(tmp_path / name), str(tmp_path / "o.csv")])
        assert "half a character" in error
    # A pair of them is one character.
    (tmp_path / "b.jsonl").write_text(lines.replace("\\udc00", "\\ud83d\\ude00"))
    assert read_answers(tmp_path / "b.jsonl", duplicates="last").task_ids.tolist() == ["😀", "b"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"SQLite format 3\0" + bytes(4000), "name it as sqlite:///FILE"),
        (bytes(8) + b"DUCK" + bytes(4000), "name it as duckdb:///FILE"),
        (b"BZh91AY&SY" + bytes(range(256)), "pack it with gzip"),
        (SMALL.encode("utf-16-le"), "not text in UTF-8; save it as"),
        (SMALL.encode("cp500"), "not text in UTF-8 or Windows-1252; save it as"),
    ],
)
def test_files_that_are_no_text_are_told(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    assert why in told(["convert", str(path), str(tmp_path / "o.csv")])
    if b"\0" in content:
        with pytest.raises(DataError, match=why):
            streamed(path)


def test_text_of_sqlite_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_sqlite")
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE answers (task TEXT, worker TEXT, value REAL)")
        connection.execute("INSERT INTO answers VALUES (CAST(X'ff41' AS TEXT), 'a', 1)")
        connection.execute("INSERT INTO answers VALUES ('b', 'a', 1)")
    connection.close()
    out = ["convert", f"sqlite:///{path}", str(tmp_path / "o.csv"), "--query", "answers"]
    assert "a.db" in told(out)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
def test_a_saved_result_that_is_not_whole_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SMALL)
    folder = aggregate(path, "average").save(tmp_path / "r")
    facts = json.loads((folder / "result.json").read_text())
    needed = 0
    for place, key in enumerate(facts):
        wrong = facts | {key: 3} if place % 3 == 0 else {k: facts[k] for k in facts if k != key}
        (folder / "result.json").write_text(json.dumps(wrong))
        try:
            Result.load(folder)
        except DataError:
            needed += 1
    assert needed > 5
    (folder / "result.json").write_text(
        json.dumps({k: v for k, v in facts.items() if k != "noise"})
    )
    assert "is not a result that save() wrote" in told(
        ["export", str(folder), str(tmp_path / "o.csv"), "--to", "training"]
    )


@pytest.mark.parametrize("item", [None, "x", -1, float("nan"), [[1]], {"a": 1}])
@pytest.mark.parametrize("name", ["settings", "notes", "levels", "level_weights"])
def test_a_saved_result_with_facts_of_another_kind_is_told(
    tmp_path: Path, name: str, item: object
) -> None:
    source = tmp_path / "a.csv"
    source.write_text(SMALL)
    saved = aggregate(source, "bi").save(tmp_path / "r")
    facts = json.loads((saved / "result.json").read_text())
    (saved / "result.json").write_text(json.dumps({**facts, name: item}))
    if name == "settings" and item == {"a": 1}:
        assert Result.load(saved).settings == item
        return
    with pytest.raises(DataError, match="is not a result that save"):
        Result.load(saved)


@pytest.mark.parametrize(
    ("to", "spoil"),
    [
        ("coco", lambda d: d | {"categories": 3}),
        ("coco", lambda d: d | {"categories": [{"id": "x", "name": "car"}]}),
        ("coco", lambda d: d | {"categories": [{"name": "car"}]}),
        ("coco", lambda d: d | {"images": [{"id": None}]}),
        ("sureal", lambda d: d | {"dis_videos": [3]}),
        ("sureal", lambda d: d | {"dis_videos": [{"os": {}}, "x"]}),
        ("sureal", lambda d: [d]),
    ],
)
def test_writing_back_to_a_damaged_source_is_told(tmp_path: Path, to: str, spoil: Any) -> None:
    document = exports.coco() if to == "coco" else exports.SUREAL
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    result = aggregate(path, "average")
    path.write_text(json.dumps(spoil(document)))
    with pytest.raises(DataError, match=r"a\.json"):
        export_result(result, tmp_path / "out", to, path)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_packed_files_that_swell_are_refused_and_the_limit_can_be_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv.gz"
    rows = "".join(f"t{i},w{k},{i + k}\n" for i in range(3) for k in range(2))
    long = "x" * 17_000_000
    path.write_bytes(gzip.compress(f"task,worker,value\n{rows}{long},w0,1\n".encode()))
    error = told(["convert", str(path), str(tmp_path / "o.csv")])
    assert "more than 100 times" in error
    assert f"{LIMIT}=1000" in error
    hollow = tmp_path / "b.json.gz"
    hollow.write_bytes(gzip.compress(b"[" + b"{}," * 15_000_000 + b"{}]"))
    assert f"{LIMIT}=1000" in told(["convert", str(hollow), str(tmp_path / "o.csv")])
    monkeypatch.setenv(LIMIT, "2000")
    assert read_answers(path).n_edges == 7
    monkeypatch.setenv(LIMIT, "much")
    assert f"{LIMIT} must be a positive number" in told(["convert", str(path), str(tmp_path / "o")])


def test_no_more_is_unpacked_than_the_limit_allows(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    with open_bytes(path) as file, pytest.raises(DataError, match="more than 100 times") as refused:
        file.read(1 << 30)
    numbers = re.findall(r"[\d,]{5,}", str(refused.value))
    assert int(numbers[-1].replace(",", "")) <= 18 << 20


def test_headers_of_any_width_are_read_or_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("task,worker,value" + ",x" * 5000 + "\n" + "a,u,1" + ",1" * 5000 + "\n")
    table = FileTable(path)
    assert len(table.columns) == 5003
    (note,) = table.notes
    assert note.endswith("called 'x'; others are 'x_1', 'x_2', 'x_3' and 4996 more here")
    path.write_text("task,worker,value" + ",x" * 1_000_000 + "\na,u,1\n")
    assert "expected at most 16,384" in told(["convert", str(path), str(tmp_path / "o.csv")])


def test_rows_of_json_that_share_no_keys_make_no_huge_table(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = (f'{{"task":{i},"worker":1,"value":{i},"key{i}":1}}\n' for i in range(10_000))
    path.write_text("".join(rows))
    error = told(["convert", str(path), str(tmp_path / "o.csv")])
    assert "give all rows the same keys" in error
    path.write_text(json.dumps({f"key{i}": i for i in range(17_000)}))
    assert "expected at most" in told(["convert", str(path), str(tmp_path / "o.csv")])


def test_a_wide_table_takes_few_queries(tmp_path: Path) -> None:
    path, n = tmp_path / "a.csv", 350
    rows = [["task", *(f"w{k}" for k in range(n))]]
    rows += [[f"t{i}", *("n/a" if k == 7 else f"{i + k}.5" for k in range(n))] for i in range(3)]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    table = FileTable(path, spelling=Spelling(missing=("drop",)))
    asked = []

    class Counting:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def execute(self, query: str) -> Any:
            asked.append(query)
            return self._connection.execute(query)

    table._connection = cast("Any", Counting(table._connection))
    value = table.matrix([f"w{k}" for k in range(n)], missing_ok=True)
    assert len(asked) < 20
    expected = np.add.outer(np.arange(3.0), np.arange(n) + 0.5)
    expected[:, 7] = np.nan
    np.testing.assert_array_equal(value, expected)


def test_memory_of_a_workbook_depends_on_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    corners = exports.xlsx({"s": [["task", "worker", "value"], ["a", "u", 1], ["a", "v", 2]]})
    with zipfile.ZipFile(io.BytesIO(corners)) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    far = '<row r="1048576"><c r="XFD1048576"><v>9</v></c></row></sheetData>'
    members[sheet] = members[sheet].replace("</sheetData>", far)
    path.write_bytes(exports.zipped(members))
    assert "column 'task' is empty in row 1048576" in told(["convert", str(path), "o.csv"])
    repeated = exports.ods({"s": [["task", "worker", "value"], ["a", "u", 1]]})
    with zipfile.ZipFile(io.BytesIO(repeated)) as archive:
        content = archive.read("content.xml").decode()
    million = 'table:number-rows-repeated="1000000"'
    many = 'table:number-columns-repeated="16000" office:value-type="float" office:value="1"'
    value = f"<table:table-cell {many}/>"
    trap = f"<table:table-row {million}>{value}</table:table-row></table:table>"
    path = tmp_path / "a.ods"
    path.write_bytes(exports.zipped({"content.xml": content.replace("</table:table>", trap)}))
    assert "looks like a decompression bomb" in told(["convert", str(path), "o.csv"])


def test_a_hostile_database_reaches_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text(SMALL)
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW answers AS SELECT * FROM read_csv('{secret}')")
    out = ["convert", f"duckdb:///{path}", str(tmp_path / "o.csv"), "--query"]
    assert "file system operations are disabled" in told([*out, "answers"]).lower()
    # Nor is an extension installed to reach the network.
    error = told([*out, "SELECT * FROM read_csv('https://example.org/a.csv')"])
    assert "disabled" in error or "not" in error
    assert "install" not in error.lower() or "disabled" in error.lower()
    with duckdb.connect(str(tmp_path / "b.duckdb")) as connection:
        connection.execute("CREATE TABLE answers AS SELECT 1 AS task, 2 AS worker, 3.5 AS value")
    with pytest.warns(UserWarning, match="one worker"):
        read_answers(f"duckdb:///{tmp_path}/b.duckdb", query="answers")


def test_a_view_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        numbers = "SELECT range AS task, range % 7 AS worker, 1.0 AS value FROM range({})"
        connection.execute(f"CREATE VIEW few AS {numbers.format(2_500_000)}")
        connection.execute(f"CREATE VIEW all_of_them AS {numbers.format(10**12)}")
    few = read_query(f"duckdb:///{path}", "few")
    assert np.array_equal(few.numbers("task"), np.arange(2_500_000))
    line = ["convert", f"duckdb:///{path}", str(tmp_path / "o.csv"), "--query", "all_of_them"]
    assert "query fewer rows" in told(line)


def test_a_table_shuts_its_database_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SMALL)
    table = FileTable(path)
    with pytest.raises(duckdb.Error):
        table._connection.execute(f"SELECT * FROM read_csv('{path}')")


def test_what_is_no_librarys_error_stays_what_it_is() -> None:
    assert reason(KeyError("x")) is None
    with pytest.raises(KeyError), naming("a.csv"):
        raise KeyError("x")
    with (
        pytest.raises(DataError, match=r"a\.csv: cannot be written: No space left"),
        naming("a.csv", "written"),
    ):
        raise OSError(28, "No space left on device")
    assert find_delimiter("# a;b;c\ntask,worker,value\n") == ","
