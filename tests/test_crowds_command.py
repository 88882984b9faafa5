"""The benchmark of everyday crowds runs, says what it cannot run, and goes on from what it kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.crowds", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_two_cheap_rows_and_a_set_that_is_not_there(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    rows = "slips_none,small_5_3,real_peer_grading"
    given = ("--quick", "--rows", rows, "--data", str(tmp_path), "--keep", str(kept))
    first = run(*given)
    assert first.returncode == 0, first.stderr
    lines = {line.split("|")[1].strip(): line for line in first.stdout.splitlines() if "|" in line}
    assert "met" in lines["no slips"].lower()
    assert "≤ 1" in lines["5 tasks x 3 workers, 5 a seed"]
    assert "not run: no folder peer_grading" in lines["peer_grading, RMSE"]
    # Two seeds of two rows; what was not run is not kept. Nothing more is measured with no jobs.
    assert len(kept.read_text().splitlines()) == 4
    again = run(*given, "--jobs", "0")
    assert lines["no slips"] in again.stdout
    assert not again.stderr


def test_a_row_that_does_not_exist() -> None:
    refused = run("--rows", "nobody")
    assert refused.returncode == 1
    assert "no row 'nobody'" in refused.stderr
