"""Reading: every kind of file and frame, guesses, gold, and one clear line for what is wrong."""

from __future__ import annotations

import gzip
import inspect
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from voxpop import (
    BI,
    Answers,
    ConfigError,
    DataError,
    StrongOracle,
    aggregate,
    read_answers,
)
from voxpop.data.read import ReadingOptions

ROWS: dict[str, list[Any]] = {
    "task": ["img_1", "img_1", "img_2", "img_2"],
    "worker": ["ann", "bob", "ann", "bob"],
    "value": [34.0, 31.5, 60.0, 58.25],
}


def write(path: Path, rows: dict[str, list[Any]] = ROWS) -> Path:
    table = pd.DataFrame(rows)
    name = path.name
    if ".parquet" in name:
        table.to_parquet(path)
        return path
    if "json" in name:
        text = "\n".join(json.dumps(r) for r in table.to_dict("records"))
    else:
        text = table.to_csv(index=False, sep="\t" if ".tsv" in name else ",")
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def same(ours: Answers, theirs: Answers) -> bool:
    return (
        ours.task_ids.tolist() == theirs.task_ids.tolist()
        and ours.worker_ids.tolist() == theirs.worker_ids.tolist()
        and np.array_equal(ours.task, theirs.task)
        and np.array_equal(ours.worker, theirs.worker)
        and np.array_equal(ours.value, theirs.value)
    )


@pytest.mark.parametrize(
    "name",
    [
        *("a.csv", "a.tsv", "a.parquet", "a.jsonl", "a.ndjson", "a.csv.gz", "a.tsv.gz"),
        *("a.jsonl.gz", "a.CSV", "answers", "with 'quote' and space.csv", "a*[b]?.csv"),
    ],
)
def test_every_file_format_gives_the_same_answers(tmp_path: Path, name: str) -> None:
    reference = read_answers(pd.DataFrame(ROWS))
    (tmp_path / "a_b_.csv").write_text("bait for wildcards")
    assert same(read_answers(write(tmp_path / name)), reference)
    assert same(read_answers(str(tmp_path / name)), reference)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, pl.LazyFrame])
def test_every_frame_library_gives_the_same_answers_and_gets_its_own_back(make: Any) -> None:
    source = make(ROWS)
    assert same(read_answers(source), read_answers(pd.DataFrame(ROWS)))
    result = aggregate(source, "average")
    kind = pl.DataFrame if make is pl.LazyFrame else type(source)
    assert type(result.tasks) is kind
    assert type(result.workers) is kind


def test_a_file_gives_pandas(tmp_path: Path) -> None:
    result = aggregate(write(tmp_path / "a.csv"), "average")
    assert isinstance(result.tasks, pd.DataFrame)
    assert list(result.tasks.columns[:3]) == ["task", "value", "sd"]
    assert result.tasks["value"].tolist() == [32.75, 59.125]


@pytest.mark.parametrize(
    "names",
    [
        ("item", "annotator", "rating"),
        ("HITId", "WorkerId", "Answer"),
        ("question", "worker", "answer"),
        ("PVS_ID", "observer", "vote"),
        ("item_id", "judge", "score"),
        ("orig_id", "!amt_worker_ids", "response"),
        ("submission", "grader", "points"),  # the only column left
    ],
)
def test_columns_are_guessed_and_the_guess_is_told(names: tuple[str, str, str]) -> None:
    frame = pd.DataFrame(dict(zip(names, ROWS.values(), strict=True)))
    answers = read_answers(frame)
    assert same(answers, read_answers(pd.DataFrame(ROWS)))
    assert tuple(answers.columns.values()) == names
    assert f"task from {names[0]!r}" in repr(answers)


def test_a_guess_can_be_overruled() -> None:
    frame = pd.DataFrame(ROWS | {"rating": [1.0, 2.0, 3.0, 4.0], "rater": list("wxyz")})
    answers = read_answers(frame, worker="rater", values="rating")
    assert answers.worker_ids.tolist() == list("wxyz")
    assert answers.value[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("columns", "asked"),
    [
        (("x", "y"), None),
        (("xmin", "ymin", "xmax", "ymax"), None),
        (("value_a", "value_b", "value_c"), None),
        (("col", "row"), ["row", "col"]),
    ],
)
def test_vectors(columns: tuple[str, ...], asked: list[str] | None) -> None:
    values = {name: [float(i + 10 * j) for i in range(4)] for j, name in enumerate(columns)}
    frame = pd.DataFrame({"task": ROWS["task"], "worker": ROWS["worker"]} | values)
    answers = read_answers(frame, values=asked)
    assert answers.value_names == tuple(asked or columns)
    assert answers.dimension == len(columns)


def test_ids_of_a_csv_keep_their_spelling(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("task,worker,value\n007,1,1\n7,2,2\n10,10,3\n")
    answers = read_answers(path)
    assert answers.task_ids.tolist() == ["007", "7", "10"]
    assert answers.worker_ids.tolist() == [1, 2, 10]


def test_text_that_spells_a_number_is_one() -> None:
    frame = pd.DataFrame(ROWS | {"value": ["34", " 31.5", "6e1", "58.25"]})
    assert same(read_answers(frame), read_answers(pd.DataFrame(ROWS)))


def test_gold_from_a_column_a_table_and_a_mapping(tmp_path: Path) -> None:
    nan = float("nan")
    column = read_answers(pd.DataFrame(ROWS | {"gold": [33.0, 33.0, nan, nan]}), gold="gold")
    mapping = read_answers(pd.DataFrame(ROWS), gold={"img_1": 33.0, "elsewhere": 1.0})
    table = pd.DataFrame({"task": ["img_1"], "value": [33.0]})
    frame = read_answers(pd.DataFrame(ROWS), gold=table)
    table.to_csv(tmp_path / "gold.csv", index=False)
    file = read_answers(pd.DataFrame(ROWS), gold=str(tmp_path / "gold.csv"))
    for answers in (column, mapping, frame, file):
        assert answers.gold is not None
        np.testing.assert_array_equal(answers.gold, [[33.0], [nan]])
    csv = tmp_path / "a.csv"
    csv.write_text("task,worker,value,gold\na,u,1,5\na,v,2,5\nb,u,3,\nb,v,4,\n")
    assert read_answers(csv, gold="gold").is_gold.tolist() == [True, False]


def test_guesses_keep_off_what_is_no_answer(tmp_path: Path) -> None:
    base = {"task": ROWS["task"], "worker": ROWS["worker"]}
    near = pd.DataFrame(base | {"value": ROWS["value"], "value_std": [1.0] * 4})
    assert read_answers(near).value_names == ("value",)
    told = pd.DataFrame(base | {"age": ROWS["value"], "truth": [1.0] * 4})
    assert read_answers(told).value_names == ("age",)
    write(tmp_path / "code.csv", ROWS | {"code": [1, 2, 3, 4], "id": list("wxyz")})
    assert same(read_answers(tmp_path / "code.csv"), read_answers(pd.DataFrame(ROWS)))


def test_json_ids_keep_their_digits_and_spelling(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = ['{"task": 12345678901234567890123, "worker": "13:30", "value": 1}']
    rows += ['{"task": 12345678901234567890124, "worker": "2024-01-01T12:00:00Z", "value": "2"}']
    path.write_text("\n".join(rows))
    answers = read_answers(path)
    assert answers.task_ids.tolist() == ["12345678901234567890123", "12345678901234567890124"]
    assert answers.worker_ids.tolist() == ["13:30", "2024-01-01T12:00:00Z"]
    path.write_text(
        '{"task": 1, "worker": "1", "value": 1}\n{"task": 2, "worker": "2", "value": 2}'
    )
    answers = read_answers(path)
    assert (answers.task_ids.tolist(), answers.worker_ids.tolist()) == ([1, 2], ["1", "2"])


def test_quotes_after_thirty_thousand_rows_are_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    plain = [f"t{i // 3},w{i % 3},{i % 7}" for i in range(30_000)]
    path.write_text("\n".join(["task,worker,value", *plain, '"z",w1,3', "z,w2,4", '"a, b",w1,5']))
    answers = read_answers(path)
    assert answers.task_ids.tolist()[-2:] == ["z", "a, b"]


def test_tables_meet_by_the_text_of_their_ids(tmp_path: Path) -> None:
    mixed = pd.DataFrame({"task": ["1", "1", "q7", "q7"], "worker": [1, 2, 1, 2], "value": 1.5})
    mixed.loc[3, "value"] = 2.0
    (tmp_path / "gold.csv").write_text("task,gold\n1,1.5\n2,\n")
    assert read_answers(mixed, gold=tmp_path / "gold.csv").is_gold.tolist() == [True, False]
    (tmp_path / "variances.csv").write_text("worker,variance\n1,1\n2,2\nz,3\n")
    oracle = StrongOracle(variances=tmp_path / "variances.csv").fit(read_answers(mixed))
    assert oracle.worker_variance.tolist() == [1.0, 2.0]


def test_ids_keep_their_type(tmp_path: Path) -> None:
    table = pd.DataFrame(ROWS | {"task": ["1", "1", "2", "2"]})
    table.to_parquet(tmp_path / "a.parquet")
    assert read_answers(tmp_path / "a.parquet", gold={"1": 3.0}).task_ids.tolist() == ["1", "2"]
    dates = ROWS | {"task": ["2024-01-01", "2024-01-01", "2024-01-02", "2024-01-02"]}
    found = read_answers(write(tmp_path / "a.jsonl", dates))
    assert found.task_ids.tolist() == ["2024-01-01", "2024-01-02"]


BAD: dict[str, tuple[str, str]] = {
    "missing column": ("task,value\na,1\n", "no column that looks like the worker; the columns"),
    "no value column": ("task,worker,p,q\na,u,1,2\n", "no column that looks like the value"),
    "no rows": ("task,worker,value\n", "has no rows"),
    "empty file": ("", "a.csv: "),
    "text for a number": (
        "task,worker,value\na,u,1\nb,v,tall\n",
        "row 3: 'tall' in column 'value' is not a number",
    ),
    "two ways to read": (
        'task,worker,value\na,u,"1,500"\nb,v,2\n',
        "row 2: '1,500' in column 'value' may be 1.5 or 1500",
    ),
    "ragged row": ("task,worker,value\na,u,1\na,y,2,oops\n", "as many cells in every row"),
    "missing value": ("task,worker,value\na,u,\nb,v,2\n", "column 'value' is empty in row 2"),
    "missing worker": ("task,worker,value\na,,1\nb,v,2\n", "column 'worker' is empty in row 2"),
    "NaN": ("task,worker,value\na,u,nan\nb,v,2\n", "column 'value' is empty or 'nan' in row 2"),
    "infinity": ("task,worker,value\na,u,1\nb,v,inf\n", "row 3: 'inf' in column 'value' is not"),
    "twice": (
        "task,worker,value\na,u,1\nb,v,2\na,u,3\n",
        "worker 'u' answered task 'a' more than once (rows 2 and 4)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, case: str) -> None:
    text, message = BAD[case]
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_answers(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def _less(part: str | None) -> str:
    return str(int(part) - 1) if part and part.isdigit() else part or ""


@pytest.mark.parametrize(
    "case",
    sorted(set(BAD) - {"empty file", "ragged row", "missing value", "missing worker", "NaN"}),
)
def test_a_bad_frame_is_told_the_same(case: str, tmp_path: Path) -> None:
    text, message = BAD[case]
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_answers(pd.read_csv(path, dtype=str, keep_default_na=False))
    # A frame has no header that counts as a row.
    number = re.compile(r"(rows? )(\d+)( and )?(\d+)?")
    told = number.sub(lambda m: m[1] + "".join(_less(part) for part in m.groups()[1:]), message)
    assert told in str(error.value)


def test_other_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS)
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (tmp_path / "none.csv", {}, "no such file"),
        (tmp_path, {}, "is a directory"),
        (42, {}, "expected a path, a data frame"),
        ([1, 2], {}, "expected a path, a data frame"),
        (frame, {"task": "tusk"}, "no column 'tusk' for the task"),
        (pd.DataFrame([[1, 2, 3.0]]), {}, "column names must be text"),
        (pd.DataFrame([[1, 2, 3.0]], columns=["task", "task", "value"]), {}, "same name"),
        (frame, {"values": ["value", "value"]}, "one or more different names"),
        (frame, {"values": ["worker"]}, "cannot be both the value and a task"),
        (frame, {"gold": "gold"}, "neither a column"),
        (frame, {"gold": {"img_9": 1.0}}, "none of its tasks"),
        (frame, {"gold": {"img_1": "much"}}, "gold: expected numbers"),
        (frame, {"gold": {"img_1": [1.0, 2.0]}}, "gold: expected 1 coordinates (value), got 2"),
        (frame.assign(gold=[1.0, 2.0, 3.0, 3.0]), {"gold": "gold"}, "differs between its rows"),
        (
            pd.DataFrame(ROWS | {"value": [1.0, None, 2.0, 3.0]}),
            {},
            "column 'value' is empty in row 2",
        ),
        (
            pd.DataFrame(ROWS | {"worker": ["a", None, "a", "b"]}),
            {},
            "column 'worker' is empty in row 2",
        ),
    ]
    for source, arguments, message in cases:
        with pytest.raises(DataError) as error:
            read_answers(source, **arguments)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_answers_are_not_read_twice() -> None:
    answers = read_answers(pd.DataFrame(ROWS))
    assert read_answers(answers) is answers
    with pytest.raises(ConfigError, match="have been read already"):
        aggregate(answers, gold={"img_1": 33.0})
    with pytest.raises(ConfigError, match="method must be a name or an estimator"):
        aggregate(answers, BI)  # type: ignore[arg-type]


def test_a_broken_parquet_file_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read") as error:
        read_answers(path)
    assert "\n" not in str(error.value)


def test_a_hundred_thousand_rows_come_through_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    task = rng.permutation(np.repeat(np.arange(20_000), 5))
    worker = np.arange(100_000) % 1013
    value = rng.normal(size=100_000)
    frame = pd.DataFrame(
        {"task": [f"t{i}" for i in task], "worker": [f"w{u}" for u in worker], "value": value}
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    ours, theirs = (
        read_answers(tmp_path / "a.csv", duplicates="last"),
        read_answers(frame, duplicates="last"),
    )
    assert same(ours, theirs)


def test_aggregate_takes_every_argument_of_reading(tmp_path: Path) -> None:
    arguments = {*inspect.signature(read_answers).parameters} - {"source"}
    assert arguments == ReadingOptions.__annotations__.keys()
    table = pd.DataFrame({"PVS_ID": ["a", "b"], "u": [1, 3], "v": [2, 4], "w": [-1, 5]})
    path = tmp_path / "mos.csv"
    table.to_csv(path, index=False)
    found = aggregate(path, "average", format="wide", task="PVS_ID", missing=[-1])
    assert found.estimate[:, 0].tolist() == [1.5, 4]
    with pytest.raises(ConfigError, match="these answers have been read already"):
        aggregate(read_answers(path), question="value")
