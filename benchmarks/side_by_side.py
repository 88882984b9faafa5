"""Speed of two commits in one run: the same fits by two installed packages, taking turns.

    python -m benchmarks.side_by_side OLD_PYTHON NEW_PYTHON [--quick] [--rounds 5] [--only TEXT]

OLD_PYTHON and NEW_PYTHON are the interpreters of two environments, with a commit installed in each.
Every measurement runs in a process of its own, outside the repository, so that the installed
package is what is measured: old, new, old, new, and so on. Times are the least CPU seconds of a
call. Crowds are drawn once, by whoever runs this, and both read the same arrays. Only public names
are used, so that older commits can be measured. The same interpreter twice shows how far ratios
vary by chance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import voxpop as vp

# A process repeats a call until it has spent so many seconds (with --quick the second number), but
# not more often than this: the least of the times counts.
SHORTEST, SHORTEST_QUICK, MOST_CALLS = 1.0, 0.2, 20

LEVELS = (10.0, 100.0, 1000.0)
EIGHT = tuple(np.geomspace(10.0, 1000.0, 8).tolist())
NOISES: dict[str, dict[str, Any]] = {
    "tails": {"tails": "learn"},
    "bias": {"bias": True},
    "difficulty": {"difficulty": True},
    "truths": {"truths": "learn"},
    "bounds": {"bounds": (0.0, 100.0)},
    "tails, bias, difficulty, truths": {
        "tails": "learn",
        "bias": True,
        "difficulty": True,
        "truths": "learn",
    },
}


@dataclass(frozen=True)
class Crowd:
    """A crowd of the paper's model."""

    n_tasks: int
    per_task: int
    per_worker: int
    dimension: int = 1
    levels: tuple[float, ...] = LEVELS

    def save(self, folder: Path, share: float = 1.0) -> None:
        """Draw so large a share of its tasks; write arrays and a CSV file."""
        rng = np.random.default_rng(1)
        model = vp.Model(support=self.levels, dimension=self.dimension)
        n_tasks = max(20, int(share * self.n_tasks))
        assignment = vp.assign_regular(n_tasks, self.per_task, self.per_worker, rng)
        crowd = vp.simulate(model, assignment, rng)
        crowd.save(folder)
        answers = crowd.answers
        arrays = {"task": answers.task, "worker": answers.worker, "value": answers.value}
        np.savez(folder / "answers.npz", **arrays)


@dataclass(frozen=True)
class Row:
    """A line of the table: a call, and the crowd that it is given."""

    crowd: Crowd
    make: Callable[[], vp.Estimator] | None
    """The estimator to fit; None: read the CSV file."""


def estimator(name: str) -> vp.Estimator:
    """Make an estimator with its defaults."""
    return vp.ESTIMATORS[name]()


def bi_with_noise(name: str) -> vp.Estimator:
    """Make BI with some components of the noise model."""
    return vp.BI(noise=vp.Noise(**NOISES[name]))


WIDE = Crowd(20_000, 5, 50, dimension=2)
LARGE = Crowd(20_000, 5, 20)
ROWS = {
    "BI, levels given, enumerate": Row(WIDE, partial(vp.BI, support=LEVELS, inference="enumerate")),
    "BI, levels given, integrate": Row(
        Crowd(600, 100, 50, levels=EIGHT), partial(vp.BI, support=EIGHT, inference="integrate")
    ),
    "BI, levels given, active": Row(
        Crowd(2_000, 10, 20, dimension=2), partial(vp.BI, support=LEVELS, inference="active")
    ),
    "BI, levels learned": Row(Crowd(4_000, 5, 20), partial(vp.BI, support="auto")),
    **{
        f"BI, noise: {name}": Row(Crowd(400, 5, 20), partial(bi_with_noise, name))
        for name in NOISES
    },
    "auto, few answers": Row(Crowd(200, 5, 20), partial(estimator, "auto")),
    "auto, many answers": Row(Crowd(2_000, 5, 20), partial(estimator, "auto")),
    **{name: Row(LARGE, partial(estimator, name)) for name in ("average", "nbi", "catd")},
    "read_answers of a CSV file": Row(LARGE, None),
}


# One measurement


def measure(name: str, folder: Path, first: Path, shortest: float) -> None:
    """Print the least CPU seconds of a call; one on a small crowd before it is not counted."""
    warnings.simplefilter("ignore")
    row = ROWS[name]

    def call_on(crowd: Path) -> Callable[[], object]:
        if row.make is None:
            return lambda: vp.read_answers(crowd / "answers.csv")
        arrays, make = np.load(crowd / "answers.npz"), row.make()
        answers = vp.Answers.from_arrays(arrays["task"], arrays["worker"], arrays["value"])
        return lambda: make.fit(answers)

    call_on(first)()  # what it imports is not counted
    call = call_on(folder)
    times: list[float] = []
    while not times or (sum(times) < shortest and len(times) < MOST_CALLS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    print(json.dumps({"seconds": min(times)}))


def measure_in(python: str, *given: object, cwd: Path) -> dict[str, Any]:
    """Measure in a new process of an interpreter; isolated, so that its own package is imported."""
    # From another folder; not resolved, as an environment's interpreter is a link.
    command = [
        str(Path(python).absolute()),
        "-I",
        str(Path(__file__).resolve()),
        "--measure",
        *map(str, given),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": last}
    return dict(json.loads(done.stdout.splitlines()[-1]))


# The table


def compare(name: str, pythons: tuple[str, str], rounds: int, quick: bool) -> list[object]:
    """Return the row of one call: its size, both times, and their ratio."""
    row, best, failed = ROWS[name], [np.inf, np.inf], ["", ""]
    with TemporaryDirectory() as place:
        folder, first = Path(place) / "crowd", Path(place) / "first"
        row.crowd.save(folder, 0.1 if quick else 1.0)
        Crowd(40, 5, 10, row.crowd.dimension).save(first)
        n_answers = len(np.load(folder / "answers.npz")["task"])
        for _ in range(rounds):
            for which, python in enumerate(pythons):
                shortest = SHORTEST_QUICK if quick else SHORTEST
                found = measure_in(python, name, folder, first, shortest, cwd=folder)
                failed[which] = found.get("failed", "")
                best[which] = min(best[which], found.get("seconds", np.inf))
    for label, reason in zip(("old", "new"), failed, strict=True):
        if reason:
            print(f"{name}, {label}: {reason}", file=sys.stderr, flush=True)
    times = [None if np.isinf(seconds) else 1e3 * seconds for seconds in best]
    ratio = f"{best[1] / best[0]:.2f}" if np.isfinite(best).all() else None
    return [name, n_answers, *times, ratio]


def main() -> None:
    """Print the table; in a process of its own, measure one call."""
    if "--measure" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--measure", nargs=4)
        name, folder, first, shortest = parser.parse_args().measure
        return measure(name, Path(folder), Path(first), float(shortest))
    # Not at the top: an isolated interpreter does not find these.
    from benchmarks.workloads import parse, print_head, print_table

    options = parse(
        __doc__,
        ("old", {"metavar": "OLD_PYTHON", "help": "interpreter of the old commit"}),
        ("new", {"metavar": "NEW_PYTHON", "help": "interpreter of the new commit"}),
        ("--rounds", {"type": int, "help": "turns of each; 5, or 2 with --quick"}),
        ("--only", {"default": "", "metavar": "TEXT", "help": "rows whose name has this text"}),
    )
    print_head("Two commits side by side")
    rounds = options.rounds or (2 if options.quick else 5)
    rows = []
    for name in (name for name in ROWS if options.only in name):
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows.append(compare(name, (options.old, options.new), rounds, options.quick))
    print_table(["call", "answers", "old, CPU ms", "new, CPU ms", "new / old"], rows)


if __name__ == "__main__":
    main()
