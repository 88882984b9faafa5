"""Kills: end `aggregate`, `convert` and a `Campaign` at random moments, and look at what is there.

``python -m tests.kills --count 1000`` takes about ten minutes. Every round forks a process that has
voxpop imported, lets it run the command as ``voxpop`` would, and sends SIGKILL, SIGTERM or SIGINT
after a random part of the time that the command takes. Then it checks:

- the files are, byte for byte, all of the earlier run or all of the later one;
- every answer that a campaign acknowledged is there, and a batch is there as a whole or not at all;
- SIGTERM and SIGINT leave no temporary file and no traceback; what SIGKILL leaves is removed by
  the next run.

Rounds that ended before the signal came do not count.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Everything that the commands use, imported once: the forks begin where work begins.
import voxpop as vp
import voxpop.cli.aggregate
import voxpop.cli.convert
import voxpop.data.formats
import voxpop.data.read
import voxpop.estimators.registry
import voxpop.present.report.page
import voxpop.present.terminal
import voxpop.results.saved
from voxpop.__main__ import main as command_line
from voxpop.results.metrics import score as _score  # noqa: F401

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
Contents = dict[str, bytes]


@dataclass
class Tally:
    """What happened, and what must not."""

    rounds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def contents(place: Path) -> Contents:
    """Read all files of a folder, or one file."""
    if place.is_file():
        return {place.name: place.read_bytes()}
    return {path.name: path.read_bytes() for path in place.iterdir()} if place.exists() else {}


def start(work: Callable[[], None], told: Path) -> int:
    """Fork; the child says what it says to a file."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        descriptor = os.open(told, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        status = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            os.write(2, ended.code.encode())
        status = ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        status = 130  # before the command line was entered
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        os._exit(status)


def run(*arguments: str) -> Callable[[], None]:
    """Make what runs a command as the console script does."""

    def work() -> None:
        sys.argv = ["voxpop", *arguments]
        command_line()

    return work


def finish(child: int) -> int:
    """Wait for a child; return how it ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def write_answers(path: Path, n_tasks: int, seed: int) -> None:
    """Write a small table of answers."""
    rng = random.Random(seed)
    rows = [f"t{i},w{u},{rng.gauss(i, 1)!r}" for i in range(n_tasks) for u in range(4)]
    path.write_text("\n".join(["task,worker,value", *rows, ""]))


def kill_commands(name: str, folder: Path, count: int, rng: random.Random, tally: Tally) -> None:
    """Kill a command that replaces one set of files by another, and check which set is there."""
    place = folder / name
    place.mkdir()
    out, told = place / ("out" if name == "aggregate" else "out.csv"), folder / "told"
    options = {"aggregate": ("-o", str(out), "--method", "bi"), "convert": (str(out),)}[name]
    commands, wanted, seconds = [], [], 0.0
    for k, n_tasks in enumerate((20, 30)):
        write_answers(place / f"{k}.csv", n_tasks, seed=k)
        commands.append(run(name, str(place / f"{k}.csv"), *options))
        for _ in range(2):  # the first run of all is slower
            began = time.monotonic()
            if finish(start(commands[k], told)):
                raise RuntimeError(told.read_text())
            seconds = time.monotonic() - began
        wanted.append(contents(out))
    present, kept, left = wanted[1], {"0.csv", "1.csv", out.name}, set[str]()
    landed = 0
    while landed < count:
        k, sent = int(present == wanted[0]), rng.choice(SIGNALS)  # the set that is not there
        child = start(commands[k], told)
        time.sleep(rng.uniform(0, 1.05 * seconds))
        os.kill(child, sent)
        status = finish(child)
        found, said = contents(out), told.read_text()
        where = f"{name}, {sent.name}, status {status}"
        if found not in (present, wanted[k]) or (status == 0 and found != wanted[k]):
            tally.failures.append(f"{where}: a mixed or torn set, {sorted(found)}")
        if "Traceback" in said:
            tally.failures.append(f"{where}: {said}")
        before, left = left, {path.name for path in place.iterdir()} - kept
        if left - before and sent != signal.SIGKILL:
            tally.failures.append(f"{where}: left {sorted(left)}")
        state = "old files" if found == present else "new files"
        tally.rounds[f"{name} {sent.name}: {'ended first' if status == 0 else state}"] += 1
        tally.rounds[f"{name} {sent.name}: left a temporary"] += len(left - before)
        landed += status != 0
        present = found
    if finish(start(commands[0], told)) or {p.name for p in place.iterdir()} != kept:
        tally.failures.append(f"{name}: the last run left {sorted(place.iterdir())}")


def kill_campaign(folder: Path, count: int, rng: random.Random, tally: Tally) -> None:
    """Kill a campaign that acknowledges every answer, and check that all of them are there."""
    path, told, model = folder / "c.campaign", folder / "told", vp.Model(support=(10.0, 100.0))
    expected: set[object] = set()
    vp.Campaign(model).add("a", "u", 1.0)  # all of it is imported

    def add() -> None:
        campaign = vp.Campaign.open(path, model)
        n = len(campaign.task_ids)
        while True:
            if n % 3:
                campaign.add_many([n, n], ["u", "v"], [float(n), 1.0])
            else:
                campaign.add(n, "w", 0.5)
            os.write(1, b"%d\n" % n)
            n += 1

    for round_ in range(count):
        if round_ % 100 == 0:  # a long journal takes long to read
            path.unlink(missing_ok=True)
            expected = set()
        child = start(add, told)
        time.sleep(rng.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        finish(child)
        said = told.read_text()
        acknowledged = {int(line) for line in said.split("\n")[:-1]}
        tally.rounds["campaign: answers acknowledged, and there"] += len(acknowledged)
        expected |= acknowledged
        if not path.exists():
            tally.rounds["campaign: killed before the file was made"] += 1
            if expected:
                tally.failures.append("campaign: the file is gone")
            continue
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            campaign = vp.Campaign.load(path)
        there = campaign.task_ids
        if not expected <= set(there) or len(there) > len(expected) + 1:
            tally.failures.append(f"campaign: {len(expected)} acknowledged, {len(there)} there")
        if campaign.n_answers != sum(2 if n % 3 else 1 for n in there):
            tally.failures.append("campaign: a batch is there in part")
        tally.rounds[f"campaign: {'a torn line, dropped' if warned else 'whole'}"] += 1
        expected = set(there)


def kill_all(count: int, seed: int) -> Tally:
    """Kill each of the three a third of the time."""
    tally, rng = Tally(), random.Random(seed)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a child that has not begun just ends
    shares = [count // 3 + (k < count % 3) for k in range(3)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kill_commands("aggregate", folder, shares[0], rng, tally)
        kill_commands("convert", folder, shares[1], rng, tally)
        kill_campaign(folder, shares[2], rng, tally)
    return tally


def main() -> None:
    """Kill, and tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="how many kills")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tally = kill_all(given.count, given.seed)
    for what, n in sorted(tally.rounds.items()):
        print(f"{n:6}  {what}")
    for failure in tally.failures:
        print(f"FAILED  {failure}")
    print(f"{given.count} kills, {len(tally.failures)} failures")
    sys.exit(bool(tally.failures))


if __name__ == "__main__":
    main()
