"""Sweeps until the default is at rest on crowds of more than 30,000 answers, by their noise.

    python -m benchmarks.at_rest [--seed 5] [--answers 80000]

Models are compared on 20,000 of the answers; the best is fitted to all. Noise levels 10, 100 and
1,000, twenty answers per worker.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import voxpop as vp
from benchmarks.workloads import LEVELS, print_head, print_table, regular, timed

Rng = np.random.Generator
COMPARED, PER_WORKER, PER_TASK = 20_000, 20, (2, 3, 5, 8)


def gaussian(rng: Rng, task: np.ndarray, worker: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Errors of the paper's model."""
    return sd[worker] * rng.normal(size=len(task))


def tails(rng: Rng, task: np.ndarray, worker: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Student's t with three degrees of freedom."""
    return sd[worker] * rng.standard_t(3, len(task))


def bias(rng: Rng, task: np.ndarray, worker: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Every worker is off by a constant of sd 10."""
    return gaussian(rng, task, worker, sd) + rng.normal(0, 10, len(sd))[worker]


def difficulty(rng: Rng, task: np.ndarray, worker: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Errors about a task are larger or smaller together, by a log-normal factor."""
    factor = np.exp(rng.normal(0, 0.7, int(task.max()) + 1))
    return factor[task] * gaussian(rng, task, worker, sd)


def slips(rng: Rng, task: np.ndarray, worker: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """One answer in twenty is off by an sd of 300."""
    is_slip = rng.random(len(task)) < 0.05
    return np.where(is_slip, rng.normal(0, 300, len(task)), gaussian(rng, task, worker, sd))


KINDS: tuple[Callable[..., np.ndarray], ...] = (gaussian, tails, bias, difficulty, slips)


def row(kind: Callable[..., np.ndarray], per_task: int, n_answers: int, seed: int) -> list[object]:
    """Fit a crowd; say how many sweeps it took, and how well."""
    rng = np.random.default_rng(seed)
    n_tasks = n_answers // per_task // PER_WORKER * PER_WORKER
    graph = regular(n_tasks, per_task, PER_WORKER, rng)
    sd = np.sqrt(rng.choice(LEVELS, int(graph.worker.max()) + 1))
    truth = rng.normal(0, 100, n_tasks)
    value = truth[graph.task] + kind(rng, graph.task, graph.worker, sd)
    answers = vp.Answers.from_arrays(graph.task, graph.worker, value)
    found: list[vp.Result] = []
    spent = timed(lambda: found.append(vp.Auto(contest_answers=COMPARED).fit(answers)))
    result = found[0]
    rmse = float(np.sqrt(np.mean((result.estimate[:, 0] - truth) ** 2)))
    rested = "yes" if result.trace.converged else "NO"
    return [kind.__name__, per_task, result.trace.n_sweeps, rested, rmse, spent.cpu]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--answers", type=float, default=8e4)
    given = parser.parse_args()
    print_head("Large crowds at rest")
    rows = [row(kind, n, int(given.answers), given.seed) for kind in KINDS for n in PER_TASK]
    print_table(["noise", "answers per task", "sweeps", "at rest", "RMSE", "CPU s"], rows)


if __name__ == "__main__":
    main()
