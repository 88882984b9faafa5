"""Every reader is fuzzed: a few mutations here, any number by ``python -m tests.fuzz_readers``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz_readers import differs, fuzz, seeds
from voxpop import FORMATS, read_answers

# Each kind comes up several times; the seeds are fixed.
MUTATIONS = 93


@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
def test_there_is_a_seed_for_every_reader_and_it_can_be_read(tmp_path: Path) -> None:
    files = seeds()
    assert FORMATS.keys() - {"long"} <= {kind.partition(" ")[0] for kind in files}
    for kind, (name, content, options) in files.items():
        path = tmp_path / name
        path.write_bytes(content)
        source = f"{kind}:///{path}" if kind in ("sqlite", "duckdb") else path
        assert read_answers(source, **options).n_edges > 1, kind


@pytest.mark.slow
def test_mutations_of_every_kind_are_read_or_told() -> None:
    wrong = [(kind, told) for kind, told in fuzz(0, MUTATIONS, lambda *_: None) if told]
    assert not wrong


def test_the_judge_sees_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held against a reader that drops lines that begin with #, it tells."""
    path = tmp_path / "a.csv"
    content = b"task,worker,value\n#1,a,1\n2,b,2\n"
    path.write_bytes(content)
    assert differs(path, content) == ""
    monkeypatch.setattr(
        "tests.fuzz_readers.FileTable.texts",
        lambda _, column: [{"task": "2", "worker": "b", "value": "2"}[column]],
    )
    assert "where Python has" in differs(path, content)
    lines = tmp_path / "a.jsonl"
    lines.write_text(json.dumps({"task": "é"}) + "\n")
    monkeypatch.setattr("tests.fuzz_readers.FileTable.texts", lambda *_: ["e"])
    assert "where Python has" in differs(lines, lines.read_bytes())
