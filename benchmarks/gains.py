"""Does an answer gain what is expected of it? Real sets, by how well a task seems to be known.

    python -m benchmarks.gains --data DIR [--sets a,b] [--quick] [--draws N]

Some answers to every task are drawn, the noise is learned from them, and two more answers to every
task are added. Tasks are sorted into fifths by the variance that the first answers leave; of each
fifth: that variance, the variance after trust, and what the two answers took off the squared error,
of BI and of the mean. The truth is used to score alone.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np

import voxpop as vp
from benchmarks.drawn_crowds import Crowd
from benchmarks.measure import read
from benchmarks.workloads import parse, print_head, print_table
from voxpop.arrays import Floats, Index
from voxpop.collect.campaign.selection import shrink_variances
from voxpop.estimators.benchmark import find_data_sets

_FIFTHS, _MORE = 5, 2


def known(crowd: Crowd, rows: Index, learned: vp.LearnedCrowd) -> tuple[Floats, Floats, Floats]:
    """Variance of each task after some answers, and squared errors of BI and of the mean."""
    answers = crowd.answers
    campaign = vp.Campaign(learned, range(answers.n_tasks))
    task, worker = answers.task[rows], answers.worker[rows]
    campaign.add_many(task.tolist(), worker.tolist(), answers.value[rows])
    found = campaign.result()
    place = np.array(found.task_ids, dtype=int)
    variance, error = (np.full(answers.n_tasks, np.nan) for _ in range(2))
    variance[place] = found.variance.mean(axis=1)
    error[place] = ((found.estimate - crowd.truth[place]) ** 2).mean(axis=1)
    total = np.zeros((answers.n_tasks, answers.dimension))
    np.add.at(total, task, answers.value[rows])
    mean = total / np.bincount(task, minlength=answers.n_tasks)[:, None]
    return variance, error, np.asarray(((mean - crowd.truth) ** 2).mean(axis=1))


def one_draw(crowd: Crowd, first: int, rng: np.random.Generator) -> Floats:
    """Draw answers and two more; return the figures of every fifth, (fifths, figures)."""
    answers = crowd.answers
    order = rng.permutation(answers.n_edges)
    order = order[np.argsort(answers.task[order], kind="stable")]
    rank = np.arange(answers.n_edges) - answers.task_ptr[answers.task[order]]
    begin, more = order[rank < first], order[rank < first + _MORE]
    part = (answers.task[begin], answers.worker[begin], answers.value[begin])
    learned = vp.learn_crowd(vp.Answers.from_arrays(*part))
    variance, error, plain = known(crowd, begin, learned)
    _, error_after, plain_after = known(crowd, more, learned)
    count = np.bincount(answers.task[begin], minlength=answers.n_tasks)
    trusted = shrink_variances(variance, count, learned.trust)
    fifth = np.argsort(np.argsort(variance)) * _FIFTHS // answers.n_tasks
    figures = (variance, trusted, error, error - error_after, plain - plain_after)
    return np.array([[np.nanmean(x[fifth == k]) for x in figures] for k in range(_FIFTHS)])


def main() -> None:
    """Print a table per set."""
    options = parse(
        __doc__,
        ("--data", {"type": Path, "required": True, "help": "folder of real sets"}),
        ("--sets", {"default": "n_emotion", "help": "names of real sets, comma-separated"}),
        ("--draws", {"type": int, "default": 12}),
    )
    print_head("Expected and true gains")
    for name in options.sets.split(","):
        crowd = read(find_data_sets(options.data)[name])
        print(f"### {name}\n")
        rows: list[list[object]] = []
        most = int(crowd.answers.task_degree.max())
        for first in (n for n in (3, 5) if n + _MORE <= most):
            start = time.perf_counter()
            rng = np.random.default_rng(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                n_draws = 3 if options.quick else options.draws
                found = np.array([one_draw(crowd, first, rng) for _ in range(n_draws)])
            mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(n_draws)
            for k in range(_FIFTHS):
                cells = [f"{m:.3g} ± {e:.2g}" for m, e in zip(mean[k], error[k], strict=True)]
                rows.append([f"{first} → {first + _MORE}", k + 1, *cells])
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        print_table(
            [
                "answers",
                "fifth",
                "variance",
                "with trust",
                "squared error",
                "BI gains",
                "mean gains",
            ],
            rows,
        )


if __name__ == "__main__":
    main()
