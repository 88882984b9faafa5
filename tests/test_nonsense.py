"""Options given nonsense: done, or refused in a line (`python -m tests.nonsense`: all of it)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.nonsense import BASES, NONSENSE, READY, cases, write_files
from voxpop.cli import main


def test_every_command_is_tried() -> None:
    assert {name.split()[0] for name in BASES} | READY == main.commands.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_nonsense_is_done_or_refused_in_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("only the main thread gets an alarm")
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    # A seventh of the values, others for each command.
    start = list(BASES).index(name) % 7
    wrong = [case for case in cases([name], slice(start, len(NONSENSE), 7)) if case[1]]
    assert not wrong
