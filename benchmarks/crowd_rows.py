"""A row of ``benchmarks.crowds``: what is measured on a crowd for one seed, and the targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import voxpop as vp
from benchmarks import bars
from benchmarks import everyday_crowds as crowds
from benchmarks.drawn_crowds import Rng
from benchmarks.engines import CannotRun
from benchmarks.everyday_crowds import Case
from benchmarks.measure import read
from voxpop.arrays import Floats
from voxpop.estimators.benchmark import find_data_sets

# What was measured for one seed, by name.
Figures = dict[str, float]
Measure = Callable[[int, Path], Figures]


@dataclass(frozen=True)
class Target:
    """A figure's mean over seeds, or its worst, lies between two bounds."""

    figure: str = "ratio"
    high: float = np.inf
    low: float = -np.inf
    worst: bool = False

    def __str__(self) -> str:
        said = "" if self.figure == "ratio" else f"{self.figure} "
        said += "worst " if self.worst else ""
        if np.isfinite(self.low) and np.isfinite(self.high):
            return f"{said}{self.low:.4g} to {self.high:.4g}"
        return said + (f"≤ {self.high:.4g}" if np.isfinite(self.high) else f"≥ {self.low:.4g}")

    def met(self, row: Row, found: Sequence[Figures]) -> bool | None:
        """Return whether it holds; None if it was not measured."""
        values = [figures[self.figure] for figures in row.with_ratios(found)]
        if not values or not np.isfinite(values).all():
            return None
        value = row.middle(found, self.figure)
        if self.worst:
            value = max(values) if np.isfinite(self.high) else min(values)
        return bool(self.low <= value <= self.high)


@dataclass(frozen=True)
class Row:
    """A crowd, what its RMSE is divided by, and what is wanted.

    ``over`` names the figure to divide by: ``median``, ``mean``, ``better`` of the two, ``best``,
    ``spread`` of the truths, or ``one`` for the RMSE itself. ``bar`` says what ``best`` is. The
    ratio of a pooled row is that of mean squares over all seeds: a crowd is too small for its own.
    """

    name: str
    section: str
    about: str
    measure: Measure
    over: str = "better"
    targets: tuple[Target, ...] = ()
    bar: str = ""
    pooled: bool = False
    once: bool = False

    def with_ratios(self, found: Sequence[Figures]) -> list[Figures]:
        """Add the ratio, and that of the bar, to the figures of every seed."""
        out = []
        for figures in found:
            under = _reference(figures, self.over)
            ratios = {"ratio": figures["rmse"] / under, "bar": figures.get("best", np.nan) / under}
            out.append(figures | ratios)
        return out

    def middle(self, found: Sequence[Figures], figure: str = "ratio") -> float:
        """Mean of a figure over the seeds; the ratio of a pooled row is that of mean squares."""
        if self.pooled and figure == "ratio":
            names = ("rmse", "mean", "median", "one")
            total = {n: float(np.sqrt(np.mean([f[n] ** 2 for f in found]))) for n in names}
            return total["rmse"] / _reference(total, self.over)
        return float(np.mean([figures[figure] for figures in self.with_ratios(found)]))


def _reference(figures: Mapping[str, float], over: str) -> float:
    return min(figures["mean"], figures["median"]) if over == "better" else figures[over]


# Measuring


def fit(answers: vp.Answers, **options: object) -> vp.Result:
    """Fit the default with an option that it may not have yet."""
    try:
        return vp.aggregate(answers, **options)  # type: ignore[arg-type]
    except (TypeError, vp.VoxpopError) as error:
        if options:
            raise CannotRun(f"no such option: {error}") from None
        raise


def measure_case(
    case: Case, result: vp.Result, seconds: float, period: float | None = None
) -> Figures:
    """Hold a result, the mean and the median against the truths of tasks without gold."""
    answers, truth = case.answers, case.truth
    counted = np.isfinite(truth).all(axis=1) & ~answers.is_gold

    def rmse(estimate: Floats) -> float:
        error = (estimate.reshape(truth.shape) - truth)[counted]
        if period is not None:
            error = (error + period / 2) % period - period / 2
        return float(np.sqrt((error**2).mean()))

    low, high = result.interval(0.95)
    inside = (low <= truth) & (truth <= high)
    if period is not None:
        for turned in (truth - period, truth + period):
            inside |= (low <= turned) & (turned <= high)
    found = {
        "rmse": rmse(result.estimate),
        "mean": rmse(vp.Average().fit(answers).estimate),
        "median": rmse(vp.Median().fit(answers).estimate),
        "one": 1.0,
        "spread": float(truth[counted].std()),
        "covered": float(inside[counted].mean()),
        "seconds": seconds,
    }
    if case.best is not None:
        found["best"] = rmse(case.best)
    if case.copied is not None:
        found["copied tasks covered"] = float(inside[counted & case.copied].mean())
    if case.accounts:
        flagged = {str(flag.worker) for flag in vp.diagnose(answers, result).flags}
        found["flagged"] = float(bool(flagged & set(case.accounts)))
    return found


def timed_fit(answers: vp.Answers, **options: object) -> tuple[vp.Result, float]:
    """Fit, and return CPU seconds beside the result."""
    start = time.process_time()
    result = fit(answers, **options)
    return result, time.process_time() - start


def on_crowd(
    make: Callable[[Rng], Case],
    seed: int,
    _data: Path,
    *,
    period: float | None = None,
    **options: object,
) -> Figures:
    """Fit the default, with some options, to a crowd."""
    case = make(np.random.default_rng(seed))
    return measure_case(case, *timed_fit(case.answers, **options), period)


def on_judges(make: Callable[[Rng], Case], seed: int, _data: Path) -> Figures:
    """Hold the default with gold against ridge regression on the judges' scores."""
    case = make(np.random.default_rng(seed))
    case = case._replace(best=bars.ridge(case.answers))
    found = measure_case(case, *timed_fit(case.answers))
    return found | {
        "mean of judges": found["mean"] / found["spread"],
        "to ridge": found["rmse"] / found["best"],
    }


def with_bounds(make: Callable[[Rng], Case], seed: int, _data: Path) -> Figures:
    """Hold intervals with bounds against those without."""
    case = make(np.random.default_rng(seed))
    bounded, seconds = timed_fit(case.answers, method=vp.Auto(bounds=(1, 5)))
    found = measure_case(case, bounded, seconds)
    free = measure_case(case, *timed_fit(case.answers))
    return found | {"lost by bounds": free["covered"] - found["covered"]}


def on_several(
    make: Callable[[Rng], Case],
    draws: int,
    seed: int,
    _data: Path,
    *,
    levels: Sequence[float] = (),
    **options: object,
) -> Figures:
    """Measure several small crowds for a seed: squares are averaged, and so is the rest."""
    found = []
    for draw in range(draws):
        case = make(np.random.default_rng([seed, draw]))
        result, seconds = timed_fit(case.answers, **options)
        figures = measure_case(case, result, seconds)
        for level in levels:
            figures[f"{level:.0%} held"] = _held(result, case.truth, level)
        found.append(figures)
    squares = ("rmse", "mean", "median")
    return {
        name: float(np.sqrt(np.mean(np.square(values))) if name in squares else np.mean(values))
        for name in found[0]
        for values in [[figures[name] for figures in found]]
    }


def _held(result: vp.Result, truth: Floats, level: float) -> float:
    """Share of truths in the intervals of a level; NaN where there are none of that level."""
    try:
        low, high = result.interval(level)
    except vp.VoxpopError:
        return float("nan")
    return float(((low <= truth) & (truth <= high)).mean())


# Real sets


def _read(name: str, data: Path) -> Case:
    sets = find_data_sets(data)
    if name not in sets:
        raise CannotRun(f"no folder {name.split()[0]} in {data.name or data}")
    return Case(*read(sets[name]))


def on_real(name: str, _seed: int, data: Path) -> Figures:
    """Fit the default and the Gibbs sampler to a real set."""
    case = _read(name, data)
    case = case._replace(best=bars.gibbs(case.answers))
    return measure_case(case, *timed_fit(case.answers))


def on_real_with_gold(name: str, n_gold: int, seed: int, data: Path) -> Figures:
    """Tell the truths of some random tasks, and count the others."""
    case = _read(name, data)
    known = np.flatnonzero(np.isfinite(case.truth).all(axis=1))
    chosen = np.random.default_rng(seed).permutation(known)[:n_gold]
    answers = case.answers
    task, worker = np.asarray(answers.task_ids), np.asarray(answers.worker_ids)
    told = vp.Answers.from_arrays(
        task[answers.task],
        worker[answers.worker],
        answers.value,
        gold=crowds.hide_all_but(case.truth, chosen),
    )
    assert list(told.task_ids) == list(answers.task_ids)
    return measure_case(Case(told, case.truth), *timed_fit(told))
