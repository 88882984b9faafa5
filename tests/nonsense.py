"""Nonsense: every option of every command with values that make no sense.

``python -m tests.nonsense`` tries all (minutes); ``--commands plan,next`` some. A command may do
what it was asked for, or refuse it in a line (exit status 1 or 2). It may not end in a traceback,
print several lines of error, take longer than ten seconds, or leave a temporary file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from types import FrameType

import click
import numpy as np
from click.testing import CliRunner

from voxpop.cli import main as commands

_LONGEST = 10
NONSENSE = (
    *("", " ", "x", "-", ",", "é\u2028", "'; DROP TABLE x", "=1+1", "a" * 5000),
    *("nan", "inf", "-inf", "-1", "0", "1e-320", "1e308", "1e400", "9" * 30, "0x10", "1_0"),
    *("1,nan", "1,2,3", "2,1", "1:2", ".", "/dev/null", "no/such/file.csv", "empty.csv", "odd.csv"),
)
# Commands that tell what there is, draw instances of the paper for minutes, or wait for people.
READY = {"demo", "formats", "methods", "reproduce", "serve", "version"}
# What a command is run with beside the option that is tried.
BASES: dict[str, tuple[str, ...]] = {
    "aggregate": ("small.csv", "-o", "out", "--no-report", "--method", "average"),
    "aggregate by bi": ("small.csv", "-o", "out", "--no-report", "--method", "bi"),
    "aggregate in parts": (
        *("small.csv", "-o", "out", "--no-report", "--method", "bi"),
        *("--engine", "outofcore", "--run", "run"),
    ),
    "assign": ("--tasks", "6", "--workers", "4", "--per-task", "2"),
    "benchmark": ("--data", "sets", "--methods", "average"),
    "convert": ("small.csv", "out.csv"),
    "diagnose": ("small.csv", "--method", "bi"),
    "explain": ("small.csv", "t0", "--method", "bi"),
    "export": ("saved", "out.csv", "--to", "training"),
    "mean": ("small.csv", "--method", "bi", "--gold", "gold.csv"),
    "next": ("small.csv", "-k", "2"),
    "plan": ("--support", "4,400", "--tasks", "6", "--per-task", "3"),
    "simulate": ("--tasks", "6", "-o", "drawn"),
}


def write_files(folder: Path) -> None:
    """Write what the commands read: a small crowd, its truths, a result, and odd files."""
    rng = np.random.default_rng(0)
    rows = [f"t{i},w{u},{10 * i + rng.normal():.3f}" for i in range(6) for u in range(4)]
    answers = "\n".join(["task,worker,value", *rows, ""])
    (folder / "small.csv").write_text(answers)
    (folder / "gold.csv").write_text("task,value\nt0,0\nt1,10\n")
    (folder / "empty.csv").write_text("")
    (folder / "odd.csv").write_text("a,b\n1,nan\n1e300,x\n")
    (folder / "sets" / "one").mkdir(parents=True)
    (folder / "sets" / "one" / "answers.csv").write_text(answers)
    (folder / "sets" / "one" / "truth.csv").write_text("task,value\nt0,0\nt1,10\n")
    run("aggregate", "small.csv", "-o", "saved", "--no-report", "--method", "average")


def run(*given: str) -> str:
    """Run a command; say what is wrong with how it ended, or nothing."""

    def late(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"took longer than {_LONGEST} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(_LONGEST)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = CliRunner().invoke(commands, given)
    finally:
        signal.alarm(0)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"{type(done.exception).__name__}: {done.exception}"
    if done.exit_code not in (0, 1, 2):
        return f"exit status {done.exit_code}"
    said = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    if "Traceback" in done.output or (done.exit_code and len(said) != 1):
        return f"exit status {done.exit_code} and {done.stderr[-300:]!r}"
    # What follows the line of an error belongs to it.
    more = done.stderr.partition("Error: ")[2].splitlines()[1:]
    more = [line for line in more if not line.startswith("  voxpop ")]  # what to type instead
    return f"several lines: {more}" if done.exit_code and more else ""


def cases(names: list[str], taken: slice = slice(None)) -> Iterator[tuple[list[str], str]]:
    """Try nonsense for every option: what was run, and what is wrong with how it ended."""
    for name in names:
        command = name.split()[0]
        for option in commands.commands[command].params:
            if not isinstance(option, click.Option) or option.is_flag or option.name == "help":
                continue
            for value in NONSENSE[taken]:
                given = [command, *BASES[name], f"{option.opts[-1]}={value}"]
                if len(option.opts[-1]) == 2:
                    given[-1:] = [option.opts[-1], value]
                before = set(os.listdir())  # noqa: PTH208
                said = run(*given)
                left = [p for p in set(os.listdir()) - before if p.endswith(".part")]  # noqa: PTH208
                yield given, said or (f"left {left}" if left else "")


def main() -> None:
    """Try, and tell what did not end well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commands", default=",".join(BASES), help="comma-separated")
    asked = parser.parse_args()
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, chdir(name):
        write_files(Path(name))
        for given, said in cases(asked.commands.split(",")):
            tally["FAILED" if said else "held"] += 1
            if said:
                print("FAILED ", *(part[:60] for part in given), "->", said[:300], flush=True)
    print(", ".join(f"{n} {kind}" for kind, n in sorted(tally.items())))
    sys.exit("FAILED" in tally)


if __name__ == "__main__":
    main()
