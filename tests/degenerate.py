"""Degenerate crowds: every estimator on data that no textbook has, at every scale.

``python -m tests.degenerate`` runs every estimator on every crowd at scales from 1e-300 to 1e99 (an
hour); ``--methods bi,nbi``, ``--crowds 10`` and ``--scales 1,1e-160`` run a part. A case holds if

- it is refused by a ``VoxpopError`` of one line, or
- estimates are finite, every 95 % interval holds its estimate, or there is none (NaN) and a note
  says so, variances are not negative, and no warning but voxpop's own was raised;
- in units of the scale, estimates are those at scale one (`auto`: at scales from 1e-50 to 1e50;
  beyond, rounding decides which noise models it averages);
- it takes less than ten seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxpop import (
    ESTIMATORS,
    Answers,
    ConvergenceWarning,
    DataWarning,
    Estimator,
    Result,
    VoxpopError,
)
from voxpop.estimators.registry import make_estimator

Floats = NDArray[np.float64]
# Taken to the nearest power of two, by which floating point multiplies exactly.
SCALES = (1.0, 1e-300, 1e-200, 1e-160, 1e-120, 1e-80, 1e-40, 1e-12, 1e6, 1e30, 1e60, 1e99)
_LONGEST = 10.0
# Drawn at random: equal at another scale up to the error of the draws.
_DRAWN = {"pg1"}
# Scales at which auto finds the same noise models: fourth powers of values stay within float64.
_SAME_MODELS = (1e-50, 1e50)


@dataclass
class Crowd:
    """Answers as arrays, and known truths by task in order of appearance."""

    task: list[int]
    worker: list[int]
    value: Floats
    gold: Floats | None = None

    def at(self, scale: float) -> Answers:
        """The answers in other units."""
        gold = None if self.gold is None else scale * self.gold
        return Answers.from_arrays(self.task, self.worker, scale * self.value, gold=gold)


def full(values: object, gold: object = None) -> Crowd:
    """Every worker (column) answers every task (row)."""
    table = np.array(values, dtype=float)
    n, m = table.shape[:2]
    task, worker = np.repeat(np.arange(n), m).tolist(), np.tile(np.arange(m), n).tolist()
    known = None if gold is None else np.array(gold, dtype=float)
    return Crowd(task, worker, table.reshape(n * m, -1), known)


def sparse(task: object, worker: object, value: object) -> Crowd:
    """Answers one by one."""
    values = np.array(value, dtype=float)
    tasks, workers = (np.asarray(ids, dtype=int).tolist() for ids in (task, worker))
    return Crowd(tasks, workers, values.reshape(len(values), -1))


def crowds() -> dict[str, Crowd]:
    """All crowds, by what is odd about them."""
    rng = np.random.default_rng(0)
    normal = rng.normal
    truth = normal(0, 10, (12, 1))
    noisy = truth + normal(size=(12, 5))
    flat = np.full((4, 3), 5.0)
    spam = np.hstack([noisy, rng.uniform(-40, 40, (12, 3))])
    box = np.array([10.0, 20, 50, 90])
    two_by_two = sparse([0, 0, 1, 1], [0, 1, 1, 2], [1, 2, 5, 4])
    ids = np.arange(12)
    return {
        "one answer": full([[3]]),
        "one task, two workers": full([[3, 4]]),
        "one task, thirty workers": full(normal(size=(1, 30))),
        "one task, 250 rounded answers": full(np.round(normal(50, 10, (1, 250)))),
        "one worker": full(truth),
        "two tasks, three workers": two_by_two,
        "all equal": full(flat),
        "all zero": full(0 * flat),
        "all equal but one": full(np.where(np.arange(12).reshape(4, 3) == 5, 6, flat)),
        "one outlier": full(np.where(np.arange(60).reshape(12, 5) == 7, 1e6, noisy)),
        **wild(noisy),
        "additive whole numbers": full(np.add.outer([1, 4, 2, 8], [0, 3, 1])),
        "nearly additive whole numbers": full([[1, 4, 2], [4, 7, 6], [2, 5, 3], [8, 12, 9]]),
        "ratings": full(np.clip(np.round(3 + normal(size=(20, 5))), 1, 5)),
        "yes or no": full(rng.integers(0, 2, (20, 5))),
        "two camps": full([[8, 8.5, 14, 14.2], [3, 3.1, 9, 9.4], [5, 5.2, 11, 10.8]]),
        "a copyist": full(np.hstack([noisy, noisy[:, :1]])),
        "all copy one": full(np.repeat(truth, 5, axis=1)),
        "one answer each": sparse(ids, ids, normal(size=12)),
        "one worker for all, others once": sparse(
            [*ids, *ids],
            [*np.zeros(12), *(ids + 1)],
            [*truth[:, 0], *(truth[:, 0] + normal(0, 1, 12))],
        ),
        "a chain": sparse([*ids, *ids], [*ids, *(ids + 1)], normal(size=24)),
        "a ring": sparse([*ids, *ids], [*ids, *((ids + 1) % 12)], normal(size=24)),
        "two groups": apart(1.0, rng),
        "two groups, a thousand apart": apart(1000.0, rng),
        "far from zero": full(1e6 + 1e-6 * noisy),
        "very far from zero": full(1e12 + noisy),
        "twenty decades": full(10 ** rng.uniform(-10, 10, (12, 5))),
        "twenty decades of tasks": full(
            10 ** np.linspace(-10, 10, 12)[:, None] * (1 + 0.1 * noisy / 10)
        ),
        "one ulp": full(1 + np.finfo(float).eps * rng.integers(0, 3, (6, 4))),
        "a constant worker": full(np.hstack([noisy, np.full((12, 1), 5.0)])),
        "more spam than work": full(spam),
        "a worker upside down": full(np.hstack([noisy, -truth])),
        "a perfect worker": full(np.hstack([noisy, truth])),
        "exact gains": full(truth * [0.5, 1, 2, 1]),
        "exact biases": full(truth + np.array([-3.0, 0, 1, 7])),
        "heavy tails": full(truth + rng.standard_cauchy((12, 5))),
        "many workers once": sparse(np.repeat(np.arange(5), 15), np.arange(75), normal(size=75)),
        "one answer a task, some twice": sparse([*ids, 0], [*ids, 0 + 1], normal(size=13)),
        "points": full(normal(0, 10, (8, 1, 2)) + normal(size=(8, 4, 2))),
        "points on a line": full(
            np.concatenate([normal(size=(8, 4, 1)), np.full((8, 4, 1), 2.0)], axis=2)
        ),
        "the same box": full(np.tile(box, (3, 3, 1))),
        "seven boxes": full(box + normal(0, 30, (7, 1, 4)) + normal(0, 2, (7, 3, 4))),
        "coordinates a million apart": full(normal(size=(8, 4, 2)) * [1, 1e6]),
        "gold everywhere": full(noisy, truth),
        "gold of half": full(noisy, np.where(np.arange(12)[:, None] < 6, truth, np.nan)),
        "gold far away": full(noisy, np.where(np.arange(12)[:, None] < 2, 1e6, np.nan)),
        "gold and all equal": full(flat, np.full((4, 1), 5.0)),
    }


def wild(noisy: Floats) -> dict[str, Crowd]:
    """Answers, tasks and truths further off than anything that floating point can hold together."""
    rng = np.random.default_rng(1)
    place, points = np.arange(60).reshape(12, 5), np.stack([noisy, noisy.T.reshape(12, 5)], axis=2)
    is_wild = (place % 19 == 7)[:, :, None] & (np.arange(2) == place[:, :, None] % 2)
    truth = noisy.mean(axis=1, keepdims=True)
    some = np.where(np.arange(12)[:, None] < 6, truth, np.nan)
    far = truth * np.where(np.arange(12)[:, None] == 3, 1e29, 1.0)
    singles = [*np.repeat(np.arange(12), 5), 12], [*np.tile(np.arange(5), 12), 1]
    pair = [*singles[0], 12], [*singles[1], 2]
    decades = rng.normal(size=(10, 4)) * 10.0 ** rng.integers(-90, 1, (10, 4))
    crowds = {
        "one answer of 1e30": full(np.where(place == 7, 1e30, noisy)),
        "wild answers of many sizes": full(np.where(place % 13 == 7, -(10.0**place), noisy)),
        "wild points": full(np.where(is_wild, 1e25, points)),
        "wild answers and gold": full(np.where(place % 19 == 7, 1e30, noisy), some),
        "gold of 1e30": full(noisy, np.where(np.arange(12)[:, None] < 6, far, np.nan)),
        "a task of 1e30": sparse(*singles, [*noisy.ravel(), 1e30]),
        "a task of 5 and 1e30": sparse(*pair, [*noisy.ravel(), 5.0, 1e30]),
        "a worker of 1e30": full(noisy * np.where(np.arange(5) == 2, 1e29, 1.0)),
        "ninety decades": full(decades),
        "ninety decades and gold": full(decades, np.where(some[:10] < 99, decades[:, :1], np.nan)),
    }
    # Values of at most one, so that they may be multiplied as those of other crowds.
    return {
        name: Crowd(c.task, c.worker, c.value * unit, None if c.gold is None else c.gold * unit)
        for name, c in crowds.items()
        for unit in [2.0 ** -np.ceil(np.log2(np.abs(c.value).max()))]
    }


def apart(ratio: float, rng: np.random.Generator) -> Crowd:
    """Two groups without a worker or a task in common, the second ``ratio`` times as large."""
    one = full(rng.normal(0, 10, (10, 1)) + rng.normal(size=(10, 4)))
    value = np.concatenate([one.value, ratio * full(rng.normal(0, 10, (10, 4))).value])
    return Crowd(
        [*one.task, *(t + 10 for t in one.task)], [*one.worker, *(u + 4 for u in one.worker)], value
    )


def make(method: str, answers: Answers, scale: float) -> Estimator:
    """Make an estimator with what it must be told, in the units of the answers."""
    square = scale * scale
    told = {u: square * (1.0 + k) for k, u in enumerate(answers.worker_ids.tolist())}
    given: dict[str, dict[str, object]] = {
        "strong-oracle": {"variances": told},
        "weak-oracle": {"variances": told, "support": (square, 4 * square)},
        "exact": {"support": (square, 4 * square)},
    }
    return make_estimator(method, given.get(method, {}))


def wrong_with(result: Result, answers: Answers) -> str | None:
    """Say what a result must not be."""
    span = float(np.abs(answers.value).max()) or 1.0
    if not np.isfinite(result.estimate).all():
        return "an estimate is not finite"
    known = ~np.isnan(result.variance)
    if not known.all() and (known.any() or not result.notes):
        return "an sd is missing without a word"
    if not (np.isfinite(result.variance[known]) & (result.variance[known] >= 0)).all():
        return "a variance is negative or infinite"
    lower, upper = result.quantile[..., 0], result.quantile[..., -1]
    below, above = (result.estimate - lower)[known], (upper - result.estimate)[known]
    if known.any() and not (below.min() >= -1e-9 * span and above.min() >= -1e-9 * span):
        return "an interval does not hold its estimate"
    if np.isnan(result.worker_weight).any() or (result.worker_weight < 0).any():
        return "a worker's weight is no number"
    return None


def fit(method: str, crowd: Crowd, scale: float) -> tuple[str, Floats | None, float]:
    """Fit a case: what is to be said of it, its estimates in units of the scale, its seconds."""
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for ours in (ConvergenceWarning, DataWarning):
                warnings.simplefilter("ignore", ours)
            answers = crowd.at(scale)
            result = make(method, answers, scale).fit(answers)
            said = wrong_with(result, answers) or "held"
            found = None if said != "held" else result.estimate / scale
    except VoxpopError as error:
        said, found = "several lines" if "\n" in str(error) else f"refused: {error}", None
    except Exception as error:
        said, found = f"{type(error).__name__}: {' '.join(str(error).split())[:100]}", None
    seconds = time.perf_counter() - began
    return (said if seconds < _LONGEST else f"took {seconds:.1f} s ({said})"), found, seconds


def cases(
    methods: list[str], scales: list[float], taken: Callable[[int], bool] = lambda _: True
) -> Iterator[tuple[str, str, float, str, float]]:
    """Fit everything: method, crowd, scale, what is to be said of it, seconds."""
    for number, (name, crowd) in enumerate(crowds().items()):
        if not taken(number):
            continue
        for method in methods:
            first: Floats | None = None
            for scale in scales:
                said, found, seconds = fit(method, crowd, 2.0 ** round(np.log2(scale)))
                if scale == 1.0:
                    first = found
                elif found is not None and first is not None and is_compared(method, scale):
                    # Answers that differ in their last digits only are rounded.
                    span = max(float(np.ptp(crowd.value)), 1e-12 * float(np.abs(crowd.value).max()))
                    moved = float(np.abs(found - first).max()) / (span or 1.0)
                    said = said if moved < 1e-3 else f"moved by {moved:.2g} of the range"
                yield method, name, scale, said, seconds


def is_compared(method: str, scale: float) -> bool:
    """Return whether a method owes the same estimates at this scale as at scale one."""
    low, high = _SAME_MODELS
    return method not in _DRAWN and (method != "auto" or low < scale < high)


def is_fine(said: str) -> bool:
    """Return whether a case holds."""
    return said == "held" or said.startswith("refused: ")


def report(
    found: Iterable[tuple[float, str, str]],
    limit: float = np.inf,
    show: tuple[str, ...] = ("FAILED",),
) -> None:
    """Print cases of some kinds, the slowest, and a tally; exit with 1 if one failed.

    ``found`` are seconds, the name of a case and the verdict on it; ``limit`` is in seconds.
    """
    tally: Counter[str] = Counter()
    slowest: list[tuple[float, str]] = []
    for seconds, case, said in found:
        kind = said.partition(":")[0] if is_fine(said) and seconds <= limit else "FAILED"
        tally[kind] += 1
        slowest = sorted([*slowest, (seconds, case)], reverse=True)[:10]
        if kind in show:
            print(f"{kind}  {case}: {said} ({seconds:.2f} s)", flush=True)
    for seconds, case in slowest:
        print(f"{seconds:6.2f} s  {case}")
    print(", ".join(f"{n} {kind}" for kind, n in sorted(tally.items())))
    sys.exit("FAILED" in tally)


def main() -> None:
    """Fit, and tell what did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--methods", default=",".join(ESTIMATORS), help="comma-separated")
    parser.add_argument("--scales", default=",".join(map(str, SCALES)), help="comma-separated")
    parser.add_argument("--crowds", type=int, default=1000, help="only so many")
    parser.add_argument("--refused", action="store_true", help="also show what was refused")
    given = parser.parse_args()
    scales = [float(part) for part in given.scales.split(",")]
    methods = given.methods.split(",")
    found = (
        (seconds, f"{method}, {name}, {scale:g}", said)
        for method, name, scale, said, seconds in cases(methods, scales, given.crowds.__gt__)
    )
    report(found, show=("FAILED", "refused") if given.refused else ("FAILED",))


if __name__ == "__main__":
    main()
