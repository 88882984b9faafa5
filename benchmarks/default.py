"""What the default costs: beside `BI` that learns its levels, a Gibbs sampler, and an older commit.

    python -m benchmarks.default --data DIR [--before PYTHON] [--quick]
    python -m benchmarks.default --drawn 4 --before PYTHON
    python -m benchmarks.default --shapes

CPU seconds of a second call in a process of its own, by the interpreter of this environment and,
with ``--before``, by that of another in which an older commit is installed; one after the other, so
that ratios hold on a busy machine. The sampler is compiled by numba, with workers' offsets and
noise, 2,000 sweeps. ``--quick`` leaves out all but two sets and the drawn crowds.

``--drawn`` holds the errors on the crowds of ``drawn_crowds`` against those of the older commit,
with so many seeds; ``--shapes`` are crowds of odd shapes, and what a second thread gains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import voxpop as vp
from benchmarks.workloads import print_head, print_table, timed
from voxpop.estimators.benchmark import find_data_sets

_FIT = """
import json, sys, time, warnings
import numpy as np, voxpop as vp
warnings.simplefilter("ignore")
arrays = np.load(sys.argv[1])
answers = vp.Answers.from_arrays(arrays["task"], arrays["worker"], arrays["value"])
found = {}
for name, make in (("auto", vp.Auto), ("bi", lambda: vp.BI(support="auto"))):
    for _ in range(2 if answers.value.size < 200_000 else 1):
        start = time.process_time()
        result = make().fit(answers)
        found[name] = time.process_time() - start
    found[name + "_estimate"] = result.estimate.tolist()
print(json.dumps(found))
"""


def fit(python: str, path: Path) -> dict[str, Any]:
    """CPU seconds and estimates of the default and of `BI`."""
    done = subprocess.run(
        [python, "-c", _FIT, str(path)], capture_output=True, text=True, check=True, cwd=path.parent
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


@cache
def compiled_gibbs() -> Any:
    """A sampler of truths, workers' offsets and inverse-gamma noise, compiled."""
    from numba import njit

    @njit
    def gibbs(task, worker, value, n_tasks, n_workers, n_sweeps, rng):  # type: ignore[no-untyped-def]
        n, total = len(value), np.zeros(n_tasks)
        offset, variance = np.zeros(n_workers), np.full(n_workers, np.var(value))
        centre, spread, wide = np.mean(value), np.var(value), np.var(value) / 10
        for sweep in range(n_sweeps):
            precision, pull = np.full(n_tasks, 1 / spread), np.full(n_tasks, centre / spread)
            for e in range(n):
                precision[task[e]] += 1 / variance[worker[e]]
                pull[task[e]] += (value[e] - offset[worker[e]]) / variance[worker[e]]
            x = pull / precision + rng.standard_normal(n_tasks) / np.sqrt(precision)
            own, drawn = np.full(n_workers, 1 / wide), np.zeros(n_workers)
            for e in range(n):
                own[worker[e]] += 1 / variance[worker[e]]
                drawn[worker[e]] += (value[e] - x[task[e]]) / variance[worker[e]]
            offset = drawn / own + rng.standard_normal(n_workers) / np.sqrt(own)
            square, count = np.full(n_workers, np.var(value) / 50), np.full(n_workers, 2.0)
            for e in range(n):
                square[worker[e]] += (value[e] - x[task[e]] - offset[worker[e]]) ** 2
                count[worker[e]] += 1
            for u in range(n_workers):
                variance[u] = square[u] / 2 / rng.gamma(count[u] / 2, 1.0)
            centre = np.mean(x)
            spread = np.sum((x - centre) ** 2) / 2 / rng.gamma(n_tasks / 2, 1.0)
            wide = (np.sum(offset**2) + 1e-9) / 2 / rng.gamma(n_workers / 2 + 0.5, 1.0)
            if sweep >= n_sweeps // 4:
                total += x
        return total / (n_sweeps - n_sweeps // 4)

    return gibbs


def run_gibbs(answers: vp.Answers) -> tuple[float, np.ndarray]:
    """CPU seconds of 2,000 sweeps of every coordinate, compiled before, and the estimates."""
    import time

    sampler, task = compiled_gibbs(), answers.task.astype(np.int64)
    rng = np.random.default_rng(1)
    worker, sizes = answers.worker.astype(np.int64), (answers.n_tasks, answers.n_workers)
    sampler(task, worker, answers.value[:, 0].copy(), *sizes, 2, rng)
    start = time.process_time()
    columns = [sampler(task, worker, v.copy(), *sizes, 2000, rng) for v in answers.value.T]
    return time.process_time() - start, np.stack(columns, axis=1)


def rmse(estimate: Any, truth: np.ndarray | None) -> float | None:
    """Root mean squared error over the tasks whose truth is known."""
    if truth is None:
        return None
    known = np.isfinite(truth).all(axis=1)
    return float(np.sqrt(np.mean((np.asarray(estimate)[known] - truth[known]) ** 2)))


def crowds(data: Path | None, quick: bool) -> dict[str, tuple[vp.Answers, np.ndarray | None]]:
    """The sets of a folder, and drawn crowds of growing size."""
    from voxpop.data.truths import read_truth

    found: dict[str, tuple[vp.Answers, np.ndarray | None]] = {}
    for name, files in find_data_sets(data).items() if data else ():
        answers = vp.read_answers(files.answers)
        truth = read_truth(files.truth, answers.task_ids, answers.value_names)
        if not quick or answers.n_edges < 1000:
            found[name] = answers, truth
    for n in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        rng = np.random.default_rng(0)
        drawn = vp.simulate(
            vp.Model(support=[10.0, 100.0, 1000.0], dimension=1),
            vp.assign_regular(n // 5, 5, 20, rng),
            rng,
        )
        found[f"drawn, {n:,} answers"] = drawn.answers, drawn.truth
    return found


def drawn_errors(before: str, n_seeds: int) -> None:
    """Print how errors on the drawn crowds, and CPU seconds, compare with those before."""
    from benchmarks.drawn_crowds import CROWDS

    ratio, spent = {}, np.zeros(2)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "answers.npz"
        for name, make in CROWDS.items():
            for seed in range(200, 200 + n_seeds):
                crowd = make(np.random.default_rng(seed))
                a = crowd.answers
                np.savez(path, task=a.task, worker=a.worker, value=a.value)
                both = [fit(python, path) for python in (before, sys.executable)]
                spent += [found["auto"] for found in both]
                old, new = (rmse(found["auto_estimate"], crowd.truth) for found in both)
                ratio[f"{name}, seed {seed}"] = (new or 0.0) / (old or 1.0)
    found = np.array(list(ratio.values()))
    print_table(
        ["fits", "RMSE, now over before: geometric mean", "5 %", "95 %", "CPU, before over now"],
        [[len(found), np.exp(np.log(found).mean()), *np.quantile(found, (0.05, 0.95)),
          spent[0] / spent[1]]],
    )  # fmt: skip
    worst = sorted(ratio.items(), key=lambda item: -item[1])[:10]
    print_table(["worst", "RMSE, now over before"], [[name, value] for name, value in worst])


SHAPES = {
    "5 answers per task, 20 per worker": (2_000, 5, 20),
    "2 answers per worker": (2_000, 5, 2),
    "2 answers per task": (5_000, 2, 20),
    "20 tasks, 500 workers": (20, 500, 20),
    "20 tasks, 2,000 workers": (20, 2_000, 20),
    "one task, 10,000 answers": (1, 10_000, 1),
    "one task, 100,000 answers": (1, 100_000, 1),
}


def shapes(only: str) -> None:
    """Print what the default takes on crowds of odd shapes, by one thread and by two."""
    rows: list[list[object]] = []
    for name, (n, per_task, per_worker) in SHAPES.items():
        if only not in name:
            continue
        rng = np.random.default_rng(0)
        model = vp.Model(support=[10.0, 100.0, 1000.0])
        answers = vp.simulate(model, vp.assign_regular(n, per_task, per_worker, rng), rng).answers
        one, two = (timed(partial(vp.Auto(threads=t).fit, answers)) for t in (1, 2))
        bi = timed(partial(vp.BI(support="auto", threads=1).fit, answers))
        size = answers.value.size
        rows.append(
            [name, size, one.cpu, 1e3 * one.cpu / size, one.cpu / bi.cpu, one.wall / two.wall]
        )
    head = ["crowd", "answers", "CPU s", "ms an answer", "x BI", "two threads, wall, x faster"]
    print_table(head, rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--before", help="interpreter of an environment with an older commit")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="crowds whose name has this in it")
    parser.add_argument("--drawn", type=int, help="seeds of every drawn crowd")
    parser.add_argument("--shapes", action="store_true")
    given = parser.parse_args()
    print_head("The default: what it costs", ("numba",))
    if given.shapes:
        return shapes(given.only)
    if given.drawn:
        return drawn_errors(given.before, given.drawn)
    rows: list[list[object]] = []
    with TemporaryDirectory() as folder:
        for name, (answers, truth) in crowds(given.data, given.quick).items():
            if given.only not in name:
                continue
            path = Path(folder) / "answers.npz"
            np.savez(path, task=answers.task, worker=answers.worker, value=answers.value)
            now = fit(sys.executable, path)
            old = fit(given.before, path) if given.before and answers.n_edges <= 10_000 else None
            spent, sampled = run_gibbs(answers) if answers.n_edges <= 10_000 else (None, None)
            errors = [rmse(now["auto_estimate"], truth)]
            errors += [None if old is None else rmse(old["auto_estimate"], truth)]
            errors += [None if sampled is None else rmse(sampled, truth)]
            rows.append(
                [
                    name, f"{now['auto']:.3f}", f"{now['auto'] / now['bi']:.1f}",
                    f"{1e3 * now['auto'] / answers.value.size:.3f}",
                    None if old is None else f"{old['auto'] / now['auto']:.1f}",
                    None if spent is None else f"{spent:.3f}",
                    *(None if e is None else f"{e:.4g}" for e in errors),
                ]
            )  # fmt: skip
    head = ["crowd", "CPU s", "x BI", "ms an answer", "x faster than before", "Gibbs, CPU s"]
    print_table([*head, "RMSE", "RMSE before", "RMSE of Gibbs"], rows)


if __name__ == "__main__":
    main()
