"""Fuzzing of the readers: seeded mutations of a file of every kind, each read and judged.

``python -m tests.fuzz_readers --mutations 50000`` runs as many as asked for, in a process of its
own that a watcher kills if one mutation takes longer than ten seconds. A reader may read a file or
refuse it with a ``VoxpopError`` of one line. It may not raise anything else, hang, take more memory
than 1 GB, or read a text file differently from Python's own reader.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import math
import multiprocessing
import os
import resource
import sqlite3
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import duckdb
import numpy as np

from tests import exports
from voxpop import Answers, Result, VoxpopError, aggregate, export_result, read_answers
from voxpop.data.duck import open_memory
from voxpop.data.files import FileTable
from voxpop.data.many_files import FileStream
from voxpop.data.tables import finite
from voxpop.data.text_tables import find_delimiter

SLOWEST, MOST_MEMORY = 10.0, 1 << 30
# Seconds on the wall after which even a process that computes nothing is given up.
MOST_PATIENCE = 300.0
_ROWS = [["#1", "ann", "3.5"], ["#1", "bob", "4"], ["2", "ann", "5.25"], ["2", "é b", "1e2"]]
_NASTY: tuple[bytes, ...] = (
    *(b"#", b'"', b"'", b",", b";", b"\t", b"\r", b"\n", b"\r\n", b"\0", b"\xff", b"\xc3", b"NaN"),
    *(
        b"1e999",
        b"-",
        b"[",
        b"{",
        b"}",
        b"]",
        b"<",
        b"&x;",
        b"\\ud800",
        b"\\",
        b"99999999999999999999",
    ),
    *(
        b" ",
        b"\xe2\x80\xa8",
        b"null",
        b"true",
        b"=1",
        b"1_0",
        b"0x1",
        b"\xef\xbb\xbf",
        b"\x1a",
        b":",
    ),
)


def _csv(rows: list[list[str]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([["task", "worker", "value"], *rows])
    return text.getvalue().encode()


def _lines() -> bytes:
    names = ("task", "worker", "value")
    return "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in _ROWS).encode()


def _database(kind: str) -> bytes:
    rows = [("a", "ann", 3.5), ("a", "bé", 4.0), ("b", "ann", 5.0)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        connection: Any = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))
        text = "TEXT" if kind == "sqlite" else "VARCHAR"
        connection.execute(f"CREATE TABLE answers (task {text}, worker {text}, value DOUBLE)")
        connection.executemany("INSERT INTO answers VALUES (?, ?, ?)", rows)
        connection.commit()
        connection.close()
        return path.read_bytes()


def _parquet() -> bytes:
    import pandas as pd

    out = io.BytesIO()
    pd.DataFrame(_ROWS, columns=["task", "worker", "value"]).to_parquet(out)
    return out.getvalue()


def seeds() -> dict[str, tuple[str, bytes, dict[str, Any]]]:
    """Return a file of every kind: its name, its bytes, and how to read it."""
    sheet: list[list[Any]] = [["task", "worker", "value"], ["a", "u", 1], ["a", "v", 2.5]]
    studio, coco, sureal = (
        json.dumps(item).encode()
        for item in (exports.label_studio(), exports.coco(), exports.SUREAL)
    )
    return {
        "csv": ("a.csv", _csv(_ROWS), {}),
        "semicolons": ("a.csv", _csv(_ROWS, ";"), {"missing": "drop"}),
        "tsv": ("a.tsv", _csv(_ROWS, "\t"), {}),
        "windows": ("a.csv", _csv(_ROWS).decode().encode("cp1252"), {}),
        "utf-16": ("a.csv", _csv(_ROWS).decode().encode("utf-16"), {}),
        "csv.gz": ("a.csv.gz", gzip.compress(_csv(_ROWS), mtime=0), {}),
        "jsonl": ("a.jsonl", _lines(), {}),
        "jsonl.gz": ("a.jsonl.gz", gzip.compress(_lines(), mtime=0), {}),
        "json": ("a.json", b"[" + _lines().replace(b"\n", b",\n") + b"]", {}),
        "parquet": ("a.parquet", _parquet(), {}),
        "xlsx": ("a.xlsx", exports.xlsx({"s": sheet, "t": sheet}), {}),
        "ods": ("a.ods", exports.ods({"s": sheet}), {}),
        "wide": ("a.csv", exports.WIDE.encode(), {"format": "wide"}),
        "bare": ("a.csv", b"1,2,3\n4,5,6\n", {"format": "wide"}),
        "label-studio": ("a.json", studio, {"question": "age"}),
        "label-studio boxes": ("a.json", studio, {"question": "tag", "names": True}),
        "coco": ("a.json", coco, {"format": "coco"}),
        "cvat": ("a.xml", exports.cvat("bob").encode(), {"question": "box"}),
        "mturk": ("a.csv", exports.mturk().encode(), {"question": "age"}),
        "toloka": ("a.tsv", exports.toloka().encode(), {"question": "score"}),
        "zooniverse": ("a.csv", exports.zooniverse().encode(), {"question": "T1"}),
        "sureal": ("a.json", sureal, {"format": "sureal"}),
        "sureal program": ("a.py", exports.sureal_program().encode(), {}),
        "sqlite": ("a.db", _database("sqlite"), {"query": "answers"}),
        "duckdb": ("a.duckdb", _database("duckdb"), {"query": "answers"}),
        "csv in parts": ("a.csv", _csv(_ROWS), {}),
        "csv.gz in parts": ("a.csv.gz", gzip.compress(_csv(_ROWS), mtime=0), {}),
        "jsonl.gz in parts": ("a.jsonl.gz", gzip.compress(_lines(), mtime=0), {}),
        "json in parts": ("a.json", b"[" + _lines().replace(b"\n", b",\n") + b"]", {}),
        "parquet in parts": ("a.parquet", _parquet(), {}),
    }


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file: flip, cut, repeat, move or insert, up to four times."""
    for _ in range(int(rng.integers(1, 5))):
        n = len(content)
        a, b = sorted(int(k) for k in rng.integers(0, n + 1, 2))
        b = min(b, a + int(rng.integers(1, 40)))
        how = int(rng.integers(6))
        if how == 0 and n:
            place = int(rng.integers(n))
            flipped = content[place] ^ (1 << int(rng.integers(8)))
            content = content[:place] + bytes([flipped]) + content[place + 1 :]
        elif how == 1:
            content = content[:a] + content[b:]
        elif how == 2:
            content = content[:b] + content[a:b] * int(rng.integers(1, 20)) + content[b:]
        elif how == 3:
            content = content[:a] + _NASTY[int(rng.integers(len(_NASTY)))] + content[a:]
        elif how == 4:
            content = content[:a] + _NASTY[int(rng.integers(len(_NASTY)))] + content[b:]
        elif rng.random() < 0.3:
            content = content[:a]
    return content


def python_rows(name: str, content: bytes) -> list[list[str | None]] | None:
    """Return what Python's own reader finds in a text table; None where it cannot tell."""
    try:
        raw = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = raw.decode("utf-16" if utf16 else "utf-8-sig")
        if "json" in name:
            document = (
                json.loads(text)
                if text.lstrip()[:1] == "[" and ".jsonl" not in name
                else [json.loads(line) for line in io.StringIO(text, newline="") if line.strip()]
            )
            if not all(isinstance(item, dict) for item in document):
                return None
            return [[_spelled(item.get(k)) for k in _keys(document)] for item in document]
        delimiter = "\t" if ".tsv" in name else find_delimiter(text[: 1 << 16])
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
        return [[cell or None for cell in row] for row in rows if any(row)]
    except (ValueError, EOFError, OSError, csv.Error, zlib.error, AttributeError, RecursionError):
        return None


def _keys(document: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for item in document for key in item))


def _spelled(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell or None
    return json.dumps(cell)


def differs(path: Path, content: bytes) -> str:
    """Say how a table that was read differs from what Python's reader finds; empty if it does not.

    Rows that are skipped above the header are told, so they may be missing at the beginning.
    """
    theirs = python_rows(path.name, content)
    if theirs is None:
        return ""
    try:
        table = FileTable(path)
    except VoxpopError:
        return ""
    ours = [list(row) for row in zip(*(table.texts(c) for c in table.columns), strict=True)]
    told = [note for note in table.notes if note.startswith("skipped")]
    header = 0 if "json" in path.name else 1
    expected = theirs[header:] if not told else theirs[-len(ours) :]
    if "json" in path.name:  # numbers are kept as they are spelled
        ours, expected = ([[_number(c) for c in row] for row in rows] for rows in (ours, expected))
    return "" if ours == expected else f"read {ours[:3]} where Python has {expected[:3]}"


def _number(cell: str | None) -> str | None:
    try:
        return cell if cell is None else repr(float(cell))
    except ValueError:
        return cell


def judge(kind: str, path: Path, content: bytes, options: dict[str, Any]) -> str:
    """Read a mutated file, and write back to it; say what is wrong with how that went."""
    path.write_bytes(content)
    if kind.endswith("in parts"):
        return streamed_wrong(path)
    source: Any = path
    if kind in ("sqlite", "duckdb"):
        source = f"{kind}:///{path}"
    told = ""
    try:
        answers = read_answers(source, **options)
        assert isinstance(answers, Answers)
    except VoxpopError as error:
        told = "" if "\n" not in str(error) else f"an error of several lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if path.suffix in (".csv", ".tsv", ".jsonl", ".gz") or kind == "json":
        told = told or differs(path, content)
    return told or _written_back(kind, path)


def streamed_wrong(path: Path) -> str:
    """Read a file as `--engine outofcore` does; say how that differs from reading it at once."""
    try:
        with open_memory() as connection:
            table = FileStream(str(path), connection)
            columns = [name for name in table.columns if name]
            cells = ", ".join(table.spelled(name) for name in columns)
            rows = connection.execute(f"SELECT {cells} FROM raw").fetchall() if columns else []
    except (VoxpopError, duckdb.Error):  # cutting into parts reports both
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        whole = FileTable(path)
    except VoxpopError as error:
        # DuckDB takes an empty cell too many in a row, and a comma too many in an object.
        taken = ("cells, the header has", "Expecting property name")
        told = "" if any(text in str(error) for text in taken) else f"read in parts: {error}"
        return told if rows else ""
    # Names are trimmed, and made different from each other, in ways of their own.
    named = [name for name in whole.columns if name]
    expected = zip(*(whole.texts(name) for name in named), strict=True)
    ours, theirs = ([[cell or None for cell in row] for row in some] for some in (rows, expected))
    return "" if ours == theirs else f"read {ours[:3]} in parts, {theirs[:3]} at once"


_RESULTS: dict[str, Result] = {}


def _make_results(folder: Path) -> None:
    """Make a result of every kind that can be written back, from an export that is whole."""
    for kind, (name, content, options) in seeds().items():
        if kind.partition(" ")[0] in ("coco", "cvat", "sureal", "label-studio", "mturk"):
            whole = folder / f"whole-{name}"
            whole.write_bytes(content)
            _RESULTS[kind] = aggregate(read_answers(whole, **options), "average")
    answers = Answers.from_arrays([1, 1, 2, 2], [1, 2, 1, 2], [1.0, 2, 5, 7])
    _RESULTS["saved"] = aggregate(answers, "bi")


def _written_back(kind: str, path: Path) -> str:
    """Write a result back with a damaged export as its source."""
    to = kind.partition(" ")[0]
    if kind not in _RESULTS:
        return ""
    try:
        export_result(_RESULTS[kind], path.with_name("out"), to, path)
    except VoxpopError:
        return ""
    except Exception as error:
        return f"writing back: {type(error).__name__}: {error}"
    return ""


def damaged_results(rng: np.random.Generator, folder: Path) -> str:
    """Load a saved result whose facts are damaged."""
    saved = _RESULTS["saved"].save(folder / "saved.voxpop")
    path = saved / ("result.json" if rng.random() < 0.7 else "tasks.csv")
    content = path.read_bytes()
    if path.suffix == ".json" and rng.random() < 0.5:
        facts = json.loads(content)
        for key in rng.choice(sorted(facts), 2).tolist():
            other = (None, "x", -1, math.nan, [[1]], {"a": 1})[int(rng.integers(6))]
            facts.pop(key, None) if rng.random() < 0.3 else facts.update({key: other})
        path.write_text(json.dumps(facts))
    else:
        path.write_bytes(mutate(content, rng))
    try:
        loaded = Result.load(saved)
        json.dumps(finite(loaded.to_dict()), allow_nan=False)
        assert all((loaded.summary(), loaded.review.summary(), repr(loaded)))
    except VoxpopError:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fuzz(start: int, stop: int, report: Callable[[int, str], None]) -> Iterator[tuple[str, str]]:
    """Judge mutations of all kinds in turn, each from a seed of its own."""
    files = seeds()
    kinds = [*files, "saved result"]
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(place)
        _make_results(folder)
        for number in range(start, stop):
            kind = kinds[number % len(kinds)]
            report(number, kind)
            rng = np.random.default_rng(number)
            if kind == "saved result":
                told = damaged_results(rng, folder)
            else:
                name, content, options = files[kind]
                told = judge(kind, folder / name, mutate(content, rng), options)
            yield kind, told


def _work(start: int, stop: int, queue: Any) -> None:
    for number, (kind, told) in enumerate(
        fuzz(start, stop, lambda n, k: queue.put(("at", n, k))), start
    ):
        if told:
            queue.put(("wrong", number, f"{kind}: {told}"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    queue.put(("done", stop, str(peak)))


def _cpu_seconds(process: Any) -> float:
    """Time that a process has computed: on a busy machine a clock on the wall says little."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _watch(start: int, stop: int, wrong: Counter[str]) -> tuple[int, float, int]:
    """Run mutations in a process, and end it if one takes too long: what is next, slowest, peak."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    worker = context.Process(target=_work, args=(start, stop, queue))
    worker.start()
    at, kind, cpu, since, slowest, peak = start - 1, "start", 0.0, time.monotonic(), 0.0, 0
    following = stop
    while True:
        try:
            what, number, told = queue.get(timeout=1)
        except Empty:
            taken = _cpu_seconds(worker) - cpu
            hangs = at >= start and taken > SLOWEST
            if worker.is_alive() and not hangs and time.monotonic() - since < MOST_PATIENCE:
                continue
            wrong["hung" if worker.is_alive() else "died"] += 1
            print(f"mutation {at} ({kind}) hangs, or ended the process", flush=True)
            worker.kill()
            following = max(at, start) + 1
            break
        if what == "at":
            now = _cpu_seconds(worker)
            slowest = max(slowest, now - cpu) if at >= start else slowest
            at, kind, cpu, since = number, told, now, time.monotonic()
        elif what == "wrong":
            wrong[told.partition(":")[0]] += 1
            print(f"mutation {number}: {told[:300]}", flush=True)
        else:
            peak = int(told) * 1024
            break
    worker.join()
    return following, slowest, peak


def main() -> int:
    """Run as many mutations as asked for, and say what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first mutation")
    asked = parser.parse_args()
    wrong: Counter[str] = Counter()
    slowest, peak, began = 0.0, 0, time.monotonic()
    at, stop = asked.seed, asked.seed + asked.mutations
    while at < stop:
        # A process for some of them: what leaks in one does not count for all.
        at, slow, most = _watch(at, min(stop, at + 1000), wrong)
        slowest, peak = max(slow, slowest), max(most, peak)
        print(
            f"{at - asked.seed} mutations of {len(seeds()) + 1} kinds in "
            f"{time.monotonic() - began:.0f} s: {sum(wrong.values())} wrong {dict(wrong)}; slowest "
            f"{slowest:.1f} s of CPU, peak memory {peak >> 20} MB",
            flush=True,
        )
    return 1 if wrong or peak > MOST_MEMORY else 0


if __name__ == "__main__":
    sys.exit(main())
