"""What is read in parts is checked like what is read at once: checksums, rows, ends of files."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest

from voxpop import DataError
from voxpop.data import many_files
from voxpop.data.duck import open_memory
from voxpop.data.many_files import FileStream

SMALL = "task,worker,value\na,u,1\na,v,2\nb,u,3\nb,v,5\n"


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.json.gz"])
def test_flipped_bits_are_told_by_what_reads_in_parts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [
        {"task": f"t{i}", "worker": f"w{k}", "value": i + k} for i in range(9) for k in range(3)
    ]
    if name.startswith("a.csv"):
        text = SMALL
    elif name.startswith("a.jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        text = json.dumps(rows)
    whole = gzip.compress(text.encode(), mtime=0)
    path.write_bytes(whole)
    expected = streamed(path)
    for place in range(10, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(DataError):
            assert streamed(path) == expected, place


def streamed(path: Path) -> list[tuple[str, ...]]:
    """Read a file as `--engine outofcore` does."""
    with open_memory() as connection:
        table = FileStream(str(path), connection)
        cells = ", ".join(table.spelled(name) for name in table.columns)
        return connection.execute(f"SELECT {cells} FROM raw").fetchall()


@pytest.mark.parametrize("quote", ["", '"'])
def test_rows_that_are_lost_in_parts_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quote: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(SMALL.replace("b", f"{quote}b{quote}") + "\n\n")
    assert len(streamed(path)) == 4
    lossy = "(SELECT * FROM read_csv(?, all_varchar = true) LIMIT 3)"
    monkeypatch.setattr(many_files, "_reader", lambda *_: lossy)
    with pytest.raises(DataError, match="has 4 rows, of which 3 can be read in parts"):
        streamed(path)


def test_a_list_that_is_cut_is_told_by_what_reads_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    rows = [{"task": i, "worker": k, "value": i + k} for i in range(3) for k in range(2)]
    path.write_text(json.dumps(rows) + "\n")
    assert len(streamed(path)) == 6
    path.write_text(json.dumps(rows).removesuffix("]") + ",\n")
    with pytest.raises(DataError, match="ends too early"):
        streamed(path)


def test_what_is_read_in_memory_only_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("made by hand\n" + SMALL)
    with pytest.raises(DataError, match="--engine local also reads titles"):
        streamed(path)


def test_a_parquet_file_with_many_zeros_is_no_damaged_text(tmp_path: Path) -> None:
    path = tmp_path / "zeros.parquet"
    rows = pd.DataFrame({"task": range(500), "worker": 0, "value": 0.0})
    rows.to_parquet(path, engine="pyarrow", compression=None, use_dictionary=False)
    with open_memory() as connection:
        assert FileStream(str(path), connection).columns == ["task", "worker", "value"]
