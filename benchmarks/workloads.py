"""What the benchmarks share: crowds from fixed seeds, clocks, peak memory, and tables."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import voxpop as vp

ROOT = Path(__file__).resolve().parent.parent
LEVELS = (10.0, 100.0, 1000.0)
# Seconds a measurement should last at least.
SHORTEST = 0.02


@dataclass(frozen=True)
class Workload:
    """A crowd in the plane with a fixed number of answers per task and per worker."""

    name: str
    n_tasks: int
    per_task: int
    per_worker: int

    def draw(self, dimension: int = 2) -> vp.Simulation:
        """Draw the crowd; the same one every time."""
        rng = np.random.default_rng(1)
        model = vp.Model(support=LEVELS, dimension=dimension)
        assignment = vp.assign_regular(self.n_tasks, self.per_task, self.per_worker, rng)
        return vp.simulate(model, assignment, rng)

    def __str__(self) -> str:
        return f"{self.name} (n={self.n_tasks:,} l={self.per_task} r={self.per_worker})"


WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", 200, 5, 5),
        Workload("W2", 10_000, 5, 20),
        Workload("W3", 100_000, 5, 50),
        Workload("W4", 2_000, 10, 20),
        Workload("W5", 200, 15, 15),
    )
}


def regular(
    n_tasks: int, per_task: int, per_worker: int, rng: np.random.Generator
) -> vp.Assignment:
    """Deal out tasks like ``vp.assign_regular``, without its mixing: for millions of answers."""
    task = np.repeat(np.arange(n_tasks), per_task)
    n_workers = -(-len(task) // per_worker)
    worker = rng.permutation(np.arange(len(task)) % n_workers)
    while True:
        pair = task * n_workers + worker
        order = np.argsort(pair, kind="stable")
        repeated = order[1:][np.diff(pair[order]) == 0]
        if not len(repeated):
            return vp.Assignment(task[order], worker[order], n_tasks, n_workers)
        # One at a time: an edge may be in two exchanges.
        for edge, other in zip(repeated, rng.integers(len(task), size=len(repeated)), strict=True):
            worker[edge], worker[other] = worker[other], worker[edge]


def mse(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Squared distance from the truth, over all coordinates, averaged over tasks."""
    return float(((estimate.reshape(truth.shape) - truth) ** 2).sum(axis=1).mean())


# Clocks


@dataclass(frozen=True)
class Seconds:
    """What one run took."""

    wall: float
    cpu: float


def timed(run: Callable[[], object], calls: int = 1) -> Seconds:
    """Seconds of one of so many calls in a row, with no garbage collected meanwhile."""
    gc.collect()
    gc.disable()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    gc.enable()
    return Seconds(wall / calls, cpu / calls)


def take_turns(engines: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Minimum CPU seconds of every engine, all of them taking turns.

    The minimum, because whatever else the machine does can only add to it; in turns, so that a
    slow moment of the machine meets everybody.
    """
    best = {name: timed(run).cpu for name, run in engines.items()}
    # What is over in no time is called until the clock can tell, and once before: the first call
    # after another engine's pays for the memory that one has given back.
    calls = {name: 1 + int(SHORTEST / max(first, 1e-6)) for name, first in best.items()}
    for _ in range(rounds):
        for name, run in engines.items():
            if calls[name] > 1:
                run()
            best[name] = min(best[name], timed(run, calls[name]).cpu)
    return best


def use_one_core() -> None:
    """Stay on one core: what starts threads by the number of cores then starts one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


# Processes

# The peak of a process begins at that of the process which forked it: so a small one forks.
_LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
pid = os.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
_, status, used = os.wait4(pid, 0)
wall = time.perf_counter() - start
found = {"wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024}
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Usage:
    """What a process took and said; ``peak`` is its largest resident memory in bytes."""

    wall: float
    cpu: float
    peak: int
    stdout: str


def run_process(
    command: Sequence[str | Path], *, keep_output: bool = True, cwd: Path | None = None
) -> Usage:
    """Run a command in a fresh process; its wall and CPU seconds and its peak memory."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        report = Path(folder) / "usage.json"
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", _LAUNCHER, report, *command],
            stdout=subprocess.PIPE if keep_output else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"exit {done.returncode}: {last}")
        return Usage(**json.loads(report.read_text()), stdout=done.stdout or "")


def run_module(module: str, *arguments: str) -> Usage:
    """Run ``python -m benchmarks.MODULE`` from the root of the repository."""
    return run_process([sys.executable, "-m", f"benchmarks.{module}", *arguments], cwd=ROOT)


# Reports


def parse(doc: str | None, *extra: tuple[str, dict[str, object]]) -> argparse.Namespace:
    """Read ``--quick`` and what else a benchmark takes."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer rounds")
    for name, settings in extra:
        parser.add_argument(name, **settings)  # type: ignore[arg-type]
    return parser.parse_args()


def print_head(title: str, packages: Sequence[str] = ()) -> None:
    """Begin a section: its title, the command that made it, and who took part."""
    spec = sys.modules["__main__"].__spec__
    name = spec.name if spec else Path(sys.argv[0]).stem
    command = " ".join(["python -m", name, *sys.argv[1:]])
    print(f"## {title}\n\n`{command}`\n\n{took_part(packages)}\n", flush=True)


def took_part(packages: Sequence[str]) -> str:
    """Name the machine and the versions of what was measured."""
    from voxpop.inference.engine import backend_in_use

    names = ("voxpop", "numpy", "scipy", *packages)
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    # Load of others makes every number worse: whoever reads them should know.
    load = os.getloadavg()[0]
    return (
        f"Python {platform.python_version()}, {versions}; backend {backend_in_use()}; "
        f"{_processor()}, {os.cpu_count()} cores, load {load:.1f} at the start."
    )


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a markdown table; numbers to three digits."""
    cells = [[_cell(item) for item in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for row in (head, ["-" * width for width in widths], *cells):
        print("| " + " | ".join(map(str.ljust, row, widths)) + " |", flush=True)
    print()


def _cell(item: object) -> str:
    if item is None:
        return "-"
    if isinstance(item, float):
        return f"{item:,.0f}" if abs(item) >= 1000 else f"{item:.3g}"
    return f"{item:,}" if isinstance(item, int) else str(item)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
