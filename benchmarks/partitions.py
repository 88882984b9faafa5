"""Answers in parts: time, memory and bits of out of core and Dask against a fit in memory; faults.

    python -m benchmarks.partitions [--quick]          # 10^7 answers; quick: 10^6
    python -m benchmarks.partitions --learned --answers 3e5     # levels learned
    python -m benchmarks.partitions --default --answers 1e6     # the default
    python -m benchmarks.partitions --fits [--quick]   # the fit alone, by one and two processes
    python -m benchmarks.partitions --kills 100 --driver-kills 20 [--default]

Five answers per task, twenty per worker, three levels, one dimension. Every run is a process of
its own: from a Parquet file to files, without a report. CPU is that of all of its processes;
memory is the largest sum of their private pages (RssAnon), looked at ten times a second.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np

import voxpop as vp
from benchmarks.workloads import LEVELS, regular
from voxpop.partitions.cluster import dask_pool
from voxpop.partitions.cut import Source, cut
from voxpop.partitions.fit import fit_parts
from voxpop.partitions.steps import Job, Log, OneByOne, Pool, Steps

SUPPORT = ",".join(f"{level:g}" for level in LEVELS)
BI = ("--method", "bi", "--support", SUPPORT)


def draw(path: Path, n_answers: int, per_task: int = 5, per_worker: int = 20) -> None:
    """Write a crowd as a Parquet file."""
    rng, n_tasks = np.random.default_rng(1), n_answers // per_task
    n_workers = n_answers // per_worker
    assignment = regular(n_tasks, per_task, per_worker, rng)
    task, worker = assignment.task, assignment.worker
    sd = np.sqrt(rng.choice(LEVELS, n_workers))
    value = rng.normal(0.0, 100.0, n_tasks)[task] + sd[worker] * rng.normal(size=len(task))
    rows = {"task": task, "worker": worker, "value": value}  # noqa: F841
    duckdb.sql(f"COPY (FROM rows) TO '{path}' (FORMAT parquet)")


def run(arguments: Sequence[str]) -> dict[str, float]:
    """Run ``voxpop aggregate``; return its CPU and wall seconds, and its largest memory."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    began, before = time.monotonic(), os.times()
    command = [sys.executable, "-m", "voxpop", "aggregate", *arguments, "--no-report"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True
    ) as child:
        most = 0
        while child.poll() is None:
            most = max(most, sum(_private(pid) for pid in _family(child.pid)))
            time.sleep(0.1)
        assert child.stderr is not None
        told = child.stderr.read()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)}: {told}")
    after = os.times()
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return {"cpu": cpu, "wall": time.monotonic() - began, "memory": most}


def _family(pid: int) -> list[int]:
    """A process and all that it started."""
    found = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _family(int(child))
    except OSError:
        pass
    return found


def _private(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def digest(folder: Path) -> str:
    """Hash every bit of the numbers of tasks and workers, in the order of their ids."""
    tasks = folder / "tasks.parquet"
    where = f"{tasks}/*.parquet" if tasks.is_dir() else str(tasks)
    found = hashlib.sha256()
    for name, identity in ((where, "task"), (str(folder / "workers.parquet"), "worker")):
        query = f"SELECT * FROM read_parquet('{name}') ORDER BY {identity}"
        for column, numbers in duckdb.sql(query).fetchnumpy().items():
            if column not in ("run", "needs_a_look", "flags"):
                found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()[:12]


def compare(n_answers: int, method: Sequence[str], memory: str, folder: Path) -> None:
    """Print a table of all engines."""
    path = folder / "answers.parquet"
    draw(path, n_answers)
    engines = {
        "in memory": ("--format", "parquet"),
        f"outofcore --memory {memory}": ("--engine", "outofcore", "--memory", memory),
        "dask, 1 process": ("--engine", "dask", "--processes", "1", "--partitions", "32"),
        "dask, 2 processes": ("--engine", "dask", "--processes", "2", "--partitions", "32"),
    }
    print(f"\n{n_answers:.0e} answers, {' '.join(method)}")
    print(
        "| engine | CPU s | wall s | CPU, of in memory | private MB | bits |\n"
        "|---|---|---|---|---|---|"
    )
    first: dict[str, float] = {}
    for name, how in engines.items():
        out = folder / name.replace(" ", "_")
        found = run([str(path), *method, *how, "-o", str(out)])
        first = first or found | {"bits": digest(out)}  # type: ignore[dict-item]
        same = "equal" if digest(out) == first["bits"] else "DIFFER"
        print(
            f"| {name} | {found['cpu']:.1f} | {found['wall']:.1f} | "
            f"{found['cpu'] / first['cpu']:.2f} | {found['memory'] / 1e6:.0f} | {same} |",
            flush=True,
        )


def fits(n_answers: int, folder: Path) -> None:
    """Print the wall seconds of the fit alone, by one process and by Dask, on the same parts."""
    draw(folder / "answers.parquet", n_answers)
    parts = cut(Source(path=str(folder / "answers.parquet")), str(folder / "run"), 1 << 30, 32)
    bi, alone = vp.BI(support=LEVELS), 0.0
    print(
        f"\n{n_answers:.0e} answers, the fit alone\n| processes | wall s | faster |\n|---|---|---|"
    )
    for name, n_workers in (("one, parts one by one", 0), ("dask, 1", 1), ("dask, 2", 2)):
        job = Job(parts, Log.begin(str(folder / "run" / name.replace(" ", "_"))))
        scratch = str(folder / f"scratch{n_workers}")
        with ExitStack() as stack:
            pool: Pool = OneByOne(scratch)
            if n_workers:
                pool = stack.enter_context(dask_pool(None, n_workers, scratch))
            began = time.monotonic()
            fit_parts(bi, Steps(job, pool), folder, None)
        took = time.monotonic() - began
        alone = alone or took
        print(f"| {name} | {took:.1f} | {alone / took:.2f} |", flush=True)


def kill(
    method: Sequence[str], n_answers: int, n_kills: int, n_driver_kills: int, folder: Path
) -> None:
    """Kill workers, then drivers, at random moments; count runs with other bits, and hangs."""
    path, rng = folder / "answers.parquet", np.random.default_rng(2)
    draw(path, n_answers)
    options = [*method, "--engine", "dask", "--processes", "2", "--partitions", "8"]
    run([str(path), *method, "--format", "parquet", "-o", str(folder / "known")])
    known, done, runs, wrong = digest(folder / "known"), 0, 0, 0
    for what, wanted in (("workers", n_kills), ("driver", n_driver_kills)):
        done = runs = wrong = 0
        while done < wanted:
            runs += 1
            done += _run_and_kill(path, options, folder / "killed", what, rng)
            wrong += digest(folder / "killed") != known
            print(f"{what}: {done} kills in {runs} runs, {wrong} with other bits", flush=True)


def _run_and_kill(
    path: Path, options: Sequence[str], out: Path, what: str, rng: np.random.Generator
) -> int:
    """One run to its end, with a kill every few seconds; return how many there were."""
    command = [sys.executable, "-m", "voxpop", "aggregate", str(path), *options, "-o", str(out)]
    kills, limit = 0, time.monotonic() + 600
    while True:
        child = subprocess.Popen(
            [*command, "--no-report"], stdout=subprocess.DEVNULL,
            stderr=out.with_suffix(".log").open("w"), start_new_session=True,
        )  # fmt: skip
        most = int(rng.integers(1, 6))
        while child.poll() is None:
            time.sleep(float(rng.uniform(0.5, 4.0)))
            if time.monotonic() > limit:
                os.killpg(child.pid, signal.SIGKILL)
                raise SystemExit(f"hung after {kills} kills")
            if what == "driver" and kills < most and child.poll() is None:
                time.sleep(3.0)
                os.killpg(child.pid, signal.SIGKILL)
                kills += 1
            elif what == "workers" and kills < 8:
                victims = [pid for pid in _family(child.pid) if _is_worker(pid)]
                if victims:
                    os.kill(int(rng.choice(victims)), signal.SIGKILL)
                    kills += 1
        if child.returncode == 0:
            return kills
        if what == "workers":
            told = out.with_suffix(".log").read_text()[-3000:]
            raise SystemExit(f"ended with {child.returncode} after {kills} kills: {told}")


def _is_worker(pid: int) -> bool:
    """Tell a worker of Dask from its nanny's helpers: it has opened a scratch folder."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"spawn_main" in command and _private(pid) > 60_000_000
    except OSError:
        return False


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--answers", type=float, default=1e7)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--driver-kills", type=int, default=0)
    parser.add_argument("--fits", action="store_true")
    parser.add_argument("--learned", action="store_true")
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--memory", default="400MB")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory(dir=given.folder) as folder:
        if given.kills or given.driver_kills:
            # Just above what the default takes for a large crowd.
            few = (("--method", "auto"), 40_000) if given.default else (BI, 400_000)
            kill(*few, given.kills, given.driver_kills, Path(folder))
            return
        size = 10**6 if given.quick else int(given.answers)
        method = ("--method", "bi") if given.learned else BI
        method = ("--method", "auto") if given.default else method
        if given.fits:
            fits(size, Path(folder))
        else:
            compare(size, method, given.memory, Path(folder))


if __name__ == "__main__":
    main()
