"""Whether time and memory per answer stay flat from a thousand answers to ten million.

    python -m benchmarks.scale [--quick]

Five answers per task, twenty per worker, three levels, one dimension. Every size runs in
processes of its own: one draws the crowd into files, one fits it from arrays by BI with the levels
given, and two are ``voxpop aggregate``, from a CSV file to files: by BI with the levels given, and
by the default method, which is told nothing. Times are of one run.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import voxpop as vp
from benchmarks.workloads import (
    LEVELS,
    Usage,
    Workload,
    parse,
    print_head,
    print_table,
    regular,
    run_module,
    run_process,
    timed,
)

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
SUPPORT = ",".join(f"{level:g}" for level in LEVELS)


def draw(n_answers: int, folder: Path) -> None:
    """Write a crowd as a CSV file, and as arrays."""
    rng = np.random.default_rng(1)
    crowd = vp.simulate(vp.Model(support=LEVELS), regular(n_answers // 5, 5, 20, rng), rng)
    crowd.save(folder)
    a = crowd.answers
    np.savez(folder / "crowd.npz", task=a.task, worker=a.worker, value=a.value)


def fit(folder: Path) -> None:
    """Fit the arrays; print the seconds, the sweeps, and the memory before."""
    data = np.load(folder / "crowd.npz")
    task, worker, value = data["task"], data["worker"], data["value"]
    ids = np.arange(task.max() + 1), np.arange(worker.max() + 1)
    answers = vp.Answers.from_codes(task, ids[0], worker, ids[1], value, value_names=("value",))
    bi = vp.BI(support=LEVELS)
    few = Workload("few", 20, 5, 5).draw(dimension=1).answers
    bi.fit(few)  # what it imports is counted in benchmarks.cold
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    swept: list[float] = []
    took = timed(lambda: bi.fit(answers, lambda *_: swept.append(time.process_time())))
    # The first sweep fills what is kept; its share is the rest's.
    sweep = (swept[-1] - swept[0]) / (len(swept) - 1)
    found = {"cpu": took.cpu, "sweeps": len(swept), "sweep": sweep, "before": before}
    print(json.dumps(found))


METHODS = {
    f"voxpop aggregate answers.csv --method bi --support {SUPPORT}": (
        *("--method", "bi", "--support", SUPPORT),
    ),
    "voxpop aggregate answers.csv": (),
}


@dataclass(frozen=True)
class Run:
    """One run of the command: what it took, the MSE, and what the method chose."""

    n_answers: int
    file_size: int
    usage: Usage
    mse: float
    chosen: str


def aggregate(folder: Path, n_answers: int, options: tuple[str, ...]) -> Run:
    """Run the command on the CSV file."""
    out = folder / "out"
    command = [sys.executable, "-m", "voxpop", "aggregate", folder / "answers.csv"]
    usage = run_process([*command, *options, "-o", out], keep_output=False)
    estimate, truth = (
        np.genfromtxt(path, delimiter=",", skip_header=1, usecols=1)
        for path in (out / "tasks.csv", folder / "truth.csv")
    )
    chosen = json.loads((out / "result.json").read_text())["settings"].get("chosen", "")
    size = (folder / "answers.csv").stat().st_size
    return Run(n_answers, size, usage, float(((estimate - truth) ** 2).mean()), chosen)


def main() -> None:
    """Print one row per size; a size in a process of its own calls this again."""
    steps = (("--draw", {"nargs": 2}), ("--fit", {}))
    options = parse(__doc__, *((name, kind | {"help": "internal"}) for name, kind in steps))
    if options.draw:
        return draw(int(options.draw[0]), Path(options.draw[1]))
    if options.fit:
        return fit(Path(options.fit))
    print_head("Scale", ("pandas", "duckdb"))
    fits: list[tuple[int, dict[str, float], int]] = []
    runs: dict[str, list[Run]] = {name: [] for name in METHODS}
    for n in SIZES[:3] if options.quick else SIZES:
        with TemporaryDirectory() as name:
            folder = Path(name)
            run_module("scale", "--draw", str(n), name)
            usage = run_module("scale", "--fit", name)
            inside = json.loads(usage.stdout)
            for name_of, options_of in METHODS.items():
                runs[name_of].append(aggregate(folder, n, options_of))
                print(runs[name_of][-1], file=sys.stderr, flush=True)  # the last ones take long
        fits.append((n, inside, usage.peak))
    _print_fits(fits)
    for name_of, found in runs.items():
        _print_runs(name_of, found)


def _print_fits(found: list[tuple[int, dict[str, float], int]]) -> None:
    smallest = found[0][2]
    print("### The fit, from arrays\n")
    head = ["answers", "sweeps", "CPU s", "µs per answer", "of it ns per sweep"]
    head += ["peak MB", "of it before the fit", "bytes per answer above the first row"]
    rows = []
    for n, inside, peak in found:
        cpu, sweeps = inside["cpu"], int(inside["sweeps"])
        row = [n, sweeps, cpu, 1e6 * cpu / n, 1e9 * inside["sweep"] / n]
        above = (peak - smallest) / n if peak > smallest else None
        rows.append([*row, peak / 1e6, inside["before"] / 1e6, above])
    print_table(head, rows)


def _print_runs(name: str, found: list[Run]) -> None:
    smallest = found[0].usage.peak
    print(f"### File to files: `{name}`\n")
    head = ["answers", "file MB", "wall s", "CPU s", "µs per answer", "peak MB"]
    head += ["bytes per answer above the first row", "MSE", "chosen"]
    rows = []
    for run in found:
        n, usage = run.n_answers, run.usage
        above = (usage.peak - smallest) / n if usage.peak > smallest else None
        row = [n, run.file_size / 1e6, usage.wall, usage.cpu, 1e6 * usage.cpu / n]
        rows.append([*row, usage.peak / 1e6, above, run.mse, run.chosen or "-"])
    print_table(head, rows)


if __name__ == "__main__":
    main()
