"""Whatever ends a run, files are those of one run (`python -m tests.kills --count 1000`: more)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs fork and SIGKILL")
def test_killed_at_random_moments_no_set_is_mixed_and_nothing_acknowledged_is_lost() -> None:
    command = [sys.executable, "-m", "tests.kills", "--count", "24", "--seed", "0"]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("24 kills, 0 failures\n"), done.stdout + done.stderr
