"""What an answer teaches about its worker, by brute force, and whether it is worth counting.

    python -m benchmarks.teaching [--quick] [--crowds N]

Crowds so small that all levels of all workers can be summed over. For every pair of a task and a
worker who has not answered it, the next answer is drawn many times from what is known, and the
exact posterior worked out after each: what it takes off the variance of its own task, and what off
that of all others, by what it says of its worker and through him of his fellows. The largest total
is the best that looking one step ahead can do; ``next`` counts its own task alone.
"""

from __future__ import annotations

import warnings
from itertools import product
from typing import NamedTuple

import numpy as np

import voxpop as vp
from benchmarks.workloads import parse, print_head, print_table, regular
from voxpop.arrays import Floats

# Answers drawn for each pair.
_DRAWS = 200


class Setting(NamedTuple):
    """A kind of crowd: tasks, answers of each task and of each worker, levels."""

    n_tasks: int
    per_task: int
    per_worker: int
    support: tuple[float, ...]


SETTINGS = [
    Setting(6, 2, 2, (10.0, 100.0, 1000.0)),
    Setting(7, 3, 3, (10.0, 100.0, 1000.0)),
    Setting(14, 3, 6, (10.0, 100.0, 1000.0)),
    Setting(14, 2, 4, (10.0, 100.0, 1000.0)),
    Setting(7, 3, 3, (10.0, 100.0, 5000.0)),
    Setting(14, 3, 6, (10.0, 100.0, 5000.0)),
    Setting(12, 4, 4, (10.0, 100.0)),
]


class Exact(NamedTuple):
    """The posterior as a mixture over the levels of all workers, one state each."""

    levels: Floats  # (states, workers)
    log_p: Floats  # (states,)
    mean: Floats  # (states, tasks)
    variance: Floats  # (states, tasks)

    def left(self, p: Floats) -> Floats:
        """Variance of each task with states of these probabilities, (draws, tasks)."""
        return np.asarray(p @ (self.variance + self.mean**2) - (p @ self.mean) ** 2)


def exact(answers: vp.Answers, model: vp.Model) -> Exact:
    """Sum over all states; flat prior, one coordinate."""
    m = answers.n_workers
    state = np.array(list(product(range(len(model.support)), repeat=m)))
    levels = model.levels[state]
    log_p = model.log_weights[state].sum(axis=1)
    mean, variance = (np.empty((len(state), answers.n_tasks)) for _ in range(2))
    for i in range(answers.n_tasks):
        edges = answers.task == i
        s, value = levels[:, answers.worker[edges]], answers.value[edges, 0]
        variance[:, i] = 1.0 / (1.0 / s).sum(axis=1)
        mean[:, i] = variance[:, i] * (value / s).sum(axis=1)
        log_p = log_p - 0.5 * np.log(s).sum(axis=1) + 0.5 * np.log(variance[:, i])
        log_p -= 0.5 * ((value - mean[:, i : i + 1]) ** 2 / s).sum(axis=1)
    # Around its centre a task's mean squares without loss of digits.
    return Exact(levels, log_p - log_p.max(), mean - mean.mean(axis=0), variance)


def gains(known: Exact, task: int, worker: int, rng: np.random.Generator) -> tuple[float, float]:
    """Expected variance that an answer takes off its own task, and off all others together."""
    p = _probability(known.log_p[None])
    total = known.variance[:, task] + known.levels[:, worker]
    drawn = rng.choice(p.shape[1], _DRAWS, p=p[0])
    answer = known.mean[drawn, task] + np.sqrt(total[drawn]) * rng.normal(size=_DRAWS)
    distance = answer[:, None] - known.mean[:, task]
    after = _probability(known.log_p - 0.5 * np.log(total) - 0.5 * distance**2 / total)
    taken = known.left(p)[0] - known.left(after).mean(axis=0)
    # Its own task has other means and variances too.
    pull = known.variance[:, task] / total
    mean = known.mean[:, task] + pull * distance
    own = after @ (known.variance[:, task] * (1.0 - pull)) + (after * mean**2).sum(axis=1)
    own -= (after * mean).sum(axis=1) ** 2
    of_own = float(known.left(p)[0, task] - own.mean())
    return of_own, float(taken.sum() - taken[task])


def _probability(log_p: Floats) -> Floats:
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


class Found(NamedTuple):
    """Of one crowd: mean gains over pairs, and the total gain of several choices of a pair."""

    own: float
    others: float
    best: float
    by_own: float
    by_next: float
    by_chance: float


def look_ahead(setting: Setting, seed: int) -> Found:
    """Draw a crowd, look one step ahead for every pair, and see what each way of choosing gets."""
    rng = np.random.default_rng([seed, 7])
    model = vp.Model(support=setting.support)
    graph = regular(setting.n_tasks, setting.per_task, setting.per_worker, rng)
    answers = vp.simulate(model, graph, rng).answers
    known = exact(answers, model)
    given = set(zip(answers.task.tolist(), answers.worker.tolist(), strict=True))
    pairs = [
        (i, u)
        for i in range(answers.n_tasks)
        for u in range(answers.n_workers)
        if (i, u) not in given
    ]
    found = np.array([gains(known, i, u, rng) for i, u in pairs])
    campaign = vp.Campaign(model)
    campaign.add_many(answers.task.tolist(), answers.worker.tolist(), answers.value)
    chosen = campaign.next(1, list(range(answers.n_workers)), rng=rng).pairs[0]
    total = found.sum(axis=1)
    return Found(
        own=float(found[:, 0].mean()),
        others=float(found[:, 1].mean()),
        best=float(total.max()),
        by_own=float(total[found[:, 0].argmax()]),
        by_next=float(total[pairs.index(chosen)]),
        by_chance=float(total.mean()),
    )


def main() -> None:
    """Print a row per setting."""
    options = parse(__doc__, ("--crowds", {"type": int, "default": 20}))
    print_head("What an answer teaches about its worker")
    rows: list[list[object]] = []
    for setting in SETTINGS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            n_crowds = 4 if options.quick else options.crowds
            found = np.array([look_ahead(setting, seed) for seed in range(n_crowds)])
        own, others, best, by_own, by_next, chance = found.sum(axis=0)
        share = found[:, 1] - others / (own + others) * (found[:, 0] + found[:, 1])
        error = np.sqrt((share**2).sum()) / (own + others)
        lost = found[:, 4] - by_next / best * found[:, 2]
        rows.append(
            [
                f"{setting.n_tasks} tasks, {setting.per_task} answers, {setting.per_worker} each",
                ", ".join(f"{s:g}" for s in setting.support),
                f"{others / (own + others):.0%} ± {error:.0%}",
                f"{by_next / best:.1%} ± {np.sqrt((lost**2).sum()) / best:.1%}",
                f"{by_own / best:.1%}",
                f"{chance / best:.0%}",
            ]
        )
    print_table(
        ["crowd", "levels", "of it on other tasks", "next, of the best", "own task", "chance"], rows
    )


if __name__ == "__main__":
    main()
