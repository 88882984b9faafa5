"""The error that density evolution predicts, and the error that crowds have.

    python -m benchmarks.density [--quick]

A z is the difference of the two over its standard error. Few crowds of many tasks do not tell
their own spread: it is that of the small ones, over the root of the ratio of the tasks. The last
tables are about plans: what a pilot of a tenth of the tasks predicts of the rest, and how long a
whole frontier takes.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import voxpop as vp
from benchmarks.workloads import parse, print_head, print_table

THREE = (10.0, 100.0, 1000.0)
EIGHT = tuple(np.geomspace(1.0, 1000.0, 8).tolist())
# Answers per task and per worker, levels, dimension, gold questions per worker.
GRID = [
    (2, 3, THREE, 1, 0),
    (3, 3, THREE, 1, 0),
    (3, 10, THREE, 1, 0),
    (5, 5, THREE, 1, 0),
    (5, 20, THREE, 1, 0),
    (10, 5, THREE, 1, 0),
    (2, 3, THREE, 2, 0),
    (5, 5, THREE, 2, 0),
    (4, 3, THREE, 4, 0),
    (3, 5, (1.0, 4.0), 1, 0),
    (4, 10, (1.0, 4.0), 2, 0),
    (3, 3, EIGHT, 1, 0),
    (6, 3, EIGHT, 1, 0),
    (5, 5, EIGHT, 2, 0),
    (3, 4, THREE, 1, 2),
    (2.5, 4, THREE, 1, 0),
]
CROWDS = [
    (THREE, 5, 20, 1),
    (THREE, 5, 20, 2),
    ((1.0, 4.0, 16.0, 64.0), 4, 10, 1),
    (EIGHT, 6, 20, 1),
]


def against_crowds(quick: bool) -> None:
    """Go through the grid, with few tasks and with many."""
    sizes = ((200, 6), (2000, 2)) if quick else ((200, 80), (20_000, 3))
    rows, z_of = [], []
    for per_task, per_worker, support, dimension, gold in GRID[:4] if quick else GRID:
        model = vp.Model(support=support, dimension=dimension)
        start = time.process_time()
        found = vp.predict_error(
            model,
            np.random.default_rng(1),
            per_task=per_task,
            per_worker=per_worker,
            gold=gold,
            size=2000 if quick else 20_000,
        )
        row: list[object] = [per_task, per_worker, len(support), dimension, gold]
        row += [_pair(found.mse, found.mse_error), f"{time.process_time() - start:.1f}"]
        spread = 0.0
        for n_tasks, crowds in sizes:
            start = time.process_time()
            measured = vp.measure_error(
                model,
                np.random.default_rng(2),
                n_tasks=n_tasks,
                per_task=per_task,
                per_worker=per_worker,
                gold=gold,
                crowds=crowds,
            )
            spread = spread or measured.mse_error * np.sqrt(crowds * n_tasks)
            error = spread / np.sqrt(crowds * n_tasks)
            z = (measured.mse - found.mse) / np.hypot(error, found.mse_error)
            z_of.append(z)
            row += [_pair(measured.mse, error), f"{z:+.1f}"]
        row.append(f"{time.process_time() - start:.1f}")
        rows.append(row)
        print(*row, file=sys.stderr, flush=True)
    few, many = (f"{n:,} tasks" for n, _ in sizes)
    head = ["l", "r", "levels", "d", "gold", "predicted MSE", "CPU s", few, "z", many, "z", "CPU s"]
    print("### MSE predicted and measured\n")
    print_table(head, rows)
    for (n_tasks, crowds), z in zip(sizes, (z_of[::2], z_of[1::2]), strict=True):
        largest, rms = max(map(abs, z)), np.sqrt(np.mean(np.square(z)))
        print(f"{n_tasks:,} tasks, {crowds} crowds: largest |z| {largest:.1f}, rms {rms:.2f}.")
    print()


def _pair(number: float, error: float) -> str:
    return f"{number:.4g} ± {error:.2g}"


def from_pilots(quick: bool) -> None:
    """Predict the RMSE of 2,000 tasks from the answers to the first 200 of them."""
    rows = []
    for support, per_task, per_worker, dimension in CROWDS[:1] if quick else CROWDS:
        model = vp.Model(support=support, dimension=dimension)
        ratio = []
        for seed in range(2 if quick else 8):
            rng = np.random.default_rng(seed)
            crowd = vp.simulate(model, vp.assign_regular(2000, per_task, per_worker, rng), rng)
            a = crowd.answers
            first = a.task < 200
            pilot = vp.Answers.from_arrays(a.task[first], a.worker[first], a.value[first])
            learned = vp.learn_crowd(pilot).model
            found = vp.predict_error(
                learned, rng, per_task=per_task, per_worker=per_worker, size=3000
            )
            ratio.append(found.rmse / vp.score(vp.BI().fit(a), crowd.truth).rmse)
        inside = sum(abs(r - 1) <= 0.2 for r in ratio)
        extremes = [f"{r:.2f}" for r in (min(ratio), np.median(ratio), max(ratio))]
        levels = ", ".join(f"{s:.3g}" for s in support) if len(support) < 5 else "8 levels"
        rows.append([levels, per_task, per_worker, dimension, *extremes, f"{inside}/{len(ratio)}"])
    print("### RMSE predicted from a pilot of 10 %, over that of the whole set\n")
    print_table(["levels", "l", "r", "d", "least", "median", "most", "within 20 %"], rows)


def whole_frontiers(quick: bool) -> None:
    """Time plans with nothing asked for: all options up to 20 answers per task."""
    rows = []
    for support, dimension, gold in [(THREE, 1, 0), (THREE, 2, 4), (EIGHT, 1, 4), (EIGHT, 2, 0)]:
        if quick and len(support) > 3:
            continue
        model = vp.Model(support=support, dimension=dimension)
        cpu, wall = time.process_time(), time.perf_counter()
        found = vp.make_plan(
            model, np.random.default_rng(0), n_tasks=1000, capacity=10, max_gold=gold
        )
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        rows.append(
            [len(support), dimension, gold, len(found.options), f"{wall:.1f}", f"{cpu:.1f}"]
        )
    print("### A whole frontier, 10 answers per worker\n")
    print_table(["levels", "d", "most gold", "options predicted", "wall s", "CPU s"], rows)


def main() -> None:
    """Print all tables."""
    options = parse(__doc__)
    print_head("Density evolution")
    against_crowds(options.quick)
    from_pilots(options.quick)
    whole_frontiers(options.quick)


if __name__ == "__main__":
    main()
