"""Small crowds: a random search for crowds under a thousand answers that take long.

``python -m tests.small_crowds`` draws crowds of many shapes, fits each with ``auto`` and ``bi``,
and shows the slowest with the seed that draws them again (``--first SEED --count 1``). It fails if
a fit takes longer than ``--limit`` seconds of CPU, if an estimate is not finite, or if an interval
does not hold its estimate. Times depend on the machine and on what else runs there; so ``make
test`` looks at a few crowds without a limit (``tests/test_small_crowds.py``).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.degenerate import report, wrong_with
from voxpop import Answers, ConvergenceWarning, DataWarning, VoxpopError
from voxpop.arrays import Floats
from voxpop.estimators.on_scale import with_scale
from voxpop.estimators.registry import make_estimator
from voxpop.models.scale import ScaleName

MOST_ANSWERS = 999
METHODS = ("auto", "bi")
_SCALES: tuple[ScaleName, ...] = ("linear", "log", "sqrt")


def _table(rng: np.random.Generator) -> tuple[int, int]:
    """How many tasks and workers: few of one or of the other, or both alike."""
    n_workers = int(rng.choice([2, 3, 4, 5, 8, 20, 60]))
    return int(rng.integers(2, MOST_ANSWERS // n_workers + 1)), n_workers


def _noisy(rng: np.random.Generator, n: int, m: int, r: int = 1) -> Floats:
    """Truths, and answers whose noise differs from worker to worker."""
    truth = rng.normal(0, 10 ** rng.uniform(-1, 2), (n, 1, r))
    noise = 10 ** rng.uniform(-1.5, 1, (1, m, 1))
    return np.asarray(truth + noise * rng.normal(size=(n, m, r)))


def nearly_additive(rng: np.random.Generator) -> Floats:
    """Whole numbers: one of the task plus one of the worker, a few of them off by one."""
    n, m = int(rng.integers(2, 30)), int(rng.integers(2, 8))
    table = np.add.outer(rng.integers(0, 12, n), rng.integers(0, 5, m)).astype(float)
    off = rng.uniform(size=table.shape) < rng.choice([0.0, 0.05, 0.2])
    return np.asarray((table + off * rng.choice([-1.0, 1.0], table.shape))[..., None])


def rounded(rng: np.random.Generator) -> Floats:
    """Answers of few digits, so that many are equal."""
    return np.round(_noisy(rng, *_table(rng)), int(rng.integers(-1, 2)))


def one_task(rng: np.random.Generator) -> Floats:
    """Many answers to one task or to a few, rounded or not, with wild ones or without."""
    n = int(rng.integers(1, 4))
    m = int(rng.integers(2, MOST_ANSWERS // n + 1))
    value = 50 + 10 * rng.standard_t(rng.choice([1.0, 3.0, 100.0]), (n, m, 1))
    return np.round(value) if rng.uniform() < 0.5 else value


def pairs(rng: np.random.Generator) -> Floats:
    """Two answers to each of many tasks."""
    return _noisy(rng, int(rng.integers(20, MOST_ANSWERS // 2)), 2)


def ratings(rng: np.random.Generator) -> Floats:
    """Whole numbers of a short scale."""
    most = int(rng.choice([1, 4, 10, 100]))
    value = 0.5 * most + 0.02 * most * _noisy(rng, *_table(rng))
    return np.asarray(np.clip(np.round(value), 0, most), dtype=float)


def boxes(rng: np.random.Generator) -> Floats:
    """Points and boxes."""
    r = int(rng.choice([2, 4]))
    value = 50 + _noisy(rng, int(rng.integers(2, 60)), int(rng.integers(2, 7)), r)
    return np.round(value) if rng.uniform() < 0.5 else value


def constant_workers(rng: np.random.Generator) -> Floats:
    """Some workers answer the same each time, or copy the first one."""
    value = _noisy(rng, *_table(rng))
    some = rng.uniform(size=value.shape[1]) < 0.3
    value[:, some] = 5.0 if rng.uniform() < 0.5 else value[:, :1]
    return value


def wild(rng: np.random.Generator) -> Floats:
    """A few answers are off by many powers of ten."""
    value = _noisy(rng, *_table(rng))
    hit = rng.uniform(size=value.shape) < rng.choice([0.01, 0.1])
    return np.asarray(np.where(hit, value * 10 ** rng.uniform(1, 12, value.shape), value))


def positive(rng: np.random.Generator) -> Floats:
    """Prices and counts: noise in proportion to the value."""
    n, m = _table(rng)
    value: Floats = np.exp(rng.normal(3, 2, (n, 1, 1)) + 0.3 * rng.normal(size=(n, m, 1)))
    return np.round(value) if rng.uniform() < 0.5 else value


SHAPES: tuple[Callable[[np.random.Generator], Floats], ...] = (
    nearly_additive, rounded, one_task, pairs, ratings, boxes, constant_workers, wild, positive,
)  # fmt: skip


@dataclass(frozen=True)
class Crowd:
    """A drawn crowd, and what an estimator is told of it."""

    words: str
    answers: Answers
    bounds: tuple[float, float] | None = None
    scale: ScaleName | None = None


def draw(seed: int) -> Crowd:
    """Draw a crowd, often with answers missing, and at times with gold, bounds or a scale."""
    rng = np.random.default_rng(seed)
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    value = shape(rng)
    n, m, r = value.shape
    given = rng.uniform(size=(n, m)) < rng.choice([0.5, 0.8, 1.0, 1.0])
    given[:, 0] = True
    task, worker = np.nonzero(given)
    words = f"{shape.__name__}, {len(task)} answers to {n} tasks of {m} workers, r = {r}"
    gold, bounds, scale = None, None, None
    if rng.uniform() < 0.25 and n > 1:
        gold = np.median(value, axis=1) + rng.normal(0, 0.1, (n, r))
        gold[1:][rng.uniform(size=n - 1) < 0.6] = np.nan
        words += ", gold"
    if rng.uniform() < 0.15 and r == 1:
        bounds = float(value.min()) - 1.0, float(value.max()) + 1.0
        words += ", bounds"
    elif rng.uniform() < 0.2 and r == 1:
        scale = _SCALES[int(rng.integers(len(_SCALES)))]
        words += f", {scale}"
    answers = Answers.from_arrays(task.tolist(), worker.tolist(), value[given], gold=gold)
    return Crowd(words, answers, bounds, scale)


def fit(crowd: Crowd, method: str) -> str:
    """Fit a crowd, and say what is wrong with the result: ``held`` if nothing is."""
    told = {} if crowd.bounds is None or method != "auto" else {"bounds": crowd.bounds}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for ours in (ConvergenceWarning, DataWarning):
            warnings.simplefilter("ignore", ours)
        try:
            result = with_scale(make_estimator(method, told), crowd.scale).fit(crowd.answers)
        except VoxpopError as error:
            return f"refused: {error}"
    return wrong_with(result, crowd.answers) or "held"


def fits(seeds: range, methods: list[str]) -> Iterator[tuple[float, str, str]]:
    """Fit every crowd by every method: seconds of CPU, what was fitted, what is to be said."""
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            crowd = draw(seed)
        for method in methods:
            began = time.process_time()
            said = fit(crowd, method)
            yield time.process_time() - began, f"seed {seed}, {method}: {crowd.words}", said


def main() -> None:
    """Draw and fit; show the slowest, and what did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="crowds")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of CPU")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count)
    report(fits(seeds, given.methods.split(",")), given.limit)


if __name__ == "__main__":
    main()
