"""Benchmark: every method on every data set of a folder, scored against known truths."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.data.tables import finite
from voxpop.errors import DataError, VoxpopError, require
from voxpop.estimators.base import Estimator
from voxpop.estimators.peers import PEERS
from voxpop.estimators.registry import ESTIMATORS, make_estimator
from voxpop.results.metrics import Score, score
from voxpop.words import percent

# Every method is compared with these, so they always run.
_SIMPLE = ("average", "median")
# A data set is two files, [PREFIX_]answers.csv and [PREFIX_]truth.csv, or of another ending.
_ANSWERS = re.compile(r"(?P<prefix>.+_)?answers(?P<ending>\.(csv|tsv|parquet|jsonl|ndjson)(\.gz)?)")


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Answers with known truths, in two files."""

    name: str
    answers: Path
    truth: Path


def find_data_sets(folder: Path) -> dict[str, DataSet]:
    """Find the data sets of a folder by their layout, named by their folder and prefix."""
    found = {}
    for path in sorted(folder.glob("*/*")):
        if fits := _ANSWERS.fullmatch(path.name):
            prefix = fits["prefix"] or ""
            endings = (fits["ending"], ".csv.gz", ".csv")
            truths = [path.with_name(f"{prefix}truth{ending}") for ending in endings]
            if there := [truth for truth in truths if truth.exists()]:
                name = f"{path.parent.name} {prefix.rstrip('_')}".strip()
                found[name] = DataSet(name=name, answers=path, truth=there[0])
    return found


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method on one data set: its score, or in ``note`` why it failed."""

    data_set: str
    method: str
    score: Score | None = None
    seconds: float = np.nan
    note: str = ""

    @property
    def rmse(self) -> float:
        """Root of the mean squared error of one coordinate; NaN where the method did not run."""
        return np.nan if self.score is None else self.score.rmse

    def summary(self) -> str:
        """One line for a log."""
        found = self.note if self.score is None else f"RMSE {self.rmse:.4g}, {self.seconds:.1f} s"
        return f"{self.data_set}, {self.method}: {found}"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """All methods on all data sets.

    Attributes
    ----------
    sizes
        Tasks, workers, answers and dimension of every data set.
    runs
        One for every data set and method, set by set.
    """

    sizes: Mapping[str, tuple[int, int, int, int]]
    runs: Sequence[Run]

    def columns(self) -> dict[str, list[Any]]:
        """Return one row per data set and method.

        ``relative`` is the RMSE divided by that of the mean or of the median, whichever is better.
        """
        better = {
            name: min(
                run.rmse for run in self.runs if run.data_set == name and run.method in _SIMPLE
            )
            for name in self.sizes
        }
        scores = [run.score for run in self.runs]
        return {
            "set": [run.data_set for run in self.runs],
            "method": [run.method for run in self.runs],
            "rmse": [run.rmse for run in self.runs],
            "relative": [run.rmse / better[run.data_set] for run in self.runs],
            "mae": [np.nan if s is None else s.mae for s in scores],
            "coverage_95": [np.nan if s is None else s.coverage_95 for s in scores],
            "seconds": [run.seconds for run in self.runs],
            "note": [run.note or None for run in self.runs],
        }

    def by_method(self) -> dict[str, list[Run]]:
        """Runs of each method that ran at all, in the order of the sets."""
        rows: dict[str, list[Run]] = {}
        for run in self.runs:
            rows.setdefault(run.method, []).append(run)
        return {name: row for name, row in rows.items() if any(run.score for run in row)}

    def not_run(self) -> dict[str, str]:
        """Methods that ran on no set, with the reason on the first."""
        shown = self.by_method()
        return {run.method: run.note for run in reversed(self.runs) if run.method not in shown}

    def grid(self) -> dict[str, list[Any]]:
        """Return a row per method, a column per set: its RMSE, to four digits."""
        rows = self.by_method()
        grid: dict[str, list[Any]] = {"method": [*rows]}
        for k, name in enumerate(self.sizes):
            grid[name] = [f"{row[k].rmse:.4g}" if row[k].score else "-" for row in rows.values()]
        return grid

    def best(self) -> dict[str, str]:
        """Method with the least RMSE on each set."""
        return {
            name: min(
                (run for run in self.runs if run.data_set == name and run.score),
                key=lambda run: run.rmse,
            ).method
            for name in self.sizes
        }

    def summary(self) -> str:
        """Which method has the least error on which sets, those with most sets first."""
        sets: dict[str, list[str]] = {}
        for name, method in self.best().items():
            sets.setdefault(method, []).append(name)
        ranked = sorted(sets.items(), key=lambda item: -len(item[1]))
        return "least error: " + "; ".join(f"{m} on {', '.join(names)}" for m, names in ranked)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers by name; None where there is none."""
        names = ("tasks", "workers", "answers", "dimension")
        columns = self.columns()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        sizes = {name: dict(zip(names, size, strict=True)) for name, size in self.sizes.items()}
        return {"sets": sizes, "runs": finite(rows), "best": self.best()}

    def to_markdown(self) -> str:
        """Return tables of the sets, of errors (the least in bold) and of coverage."""
        sizes = [[name, *(f"{n:,}" for n in size)] for name, size in self.sizes.items()]
        parts = [_table(["set", "tasks", "workers", "answers", "dimension"], sizes)]
        best, errors, covered = self.best(), [], []
        for method, row in self.by_method().items():
            cells = [f"{run.rmse:.4g}" if run.score else "-" for run in row]
            for k, run in enumerate(row):
                if best[run.data_set] == method:
                    cells[k] = f"**{cells[k]}**"
            errors.append([method, *cells])
            inside = [np.nan if run.score is None else run.score.coverage_95 for run in row]
            if np.isfinite(inside).any():
                covered.append([method, *(percent(x) if x == x else "-" for x in inside)])
        parts += ["RMSE, the least in bold:", _table(["method", *self.sizes], errors)]
        parts += [
            "Share of truths inside 95 % intervals:",
            _table(["method", *self.sizes], covered),
        ]
        reasons = [f"{name} ({why.partition(';')[0]})" for name, why in self.not_run().items()]
        parts += [f"Not run: {', '.join(reasons)}."] if reasons else []
        return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def run_benchmark(
    folder: Path,
    methods: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    *,
    peers: bool = False,
    on_run: Callable[[Run], None] | None = None,
) -> Benchmark:
    """Run methods, or all that need nothing but answers, on the data sets of a folder, or some.

    ``peers`` adds the methods of other packages that are installed. An error of a method on a set
    is its result there. ``on_run`` is called after every run.
    """
    found = find_data_sets(folder)
    if not found:
        raise DataError(
            f"{folder}: found no data set; expected folders with answers.csv and truth.csv"
        )
    for name in sets or ():
        require(name in found, f"no data set {name!r} in {folder}; choose from {', '.join(found)}")
    estimators = [*_own_methods(methods), *(PEERS if peers else ())]
    sizes, runs = {}, []
    for name in sets or found:
        answers = read_answers(found[name].answers)
        sizes[name] = (answers.n_tasks, answers.n_workers, answers.n_edges, answers.dimension)
        for estimator in estimators:
            runs.append(_run(estimator, name, answers, found[name].truth))
            if on_run is not None:
                on_run(runs[-1])
    return Benchmark(sizes=sizes, runs=runs)


def _own_methods(names: Sequence[str] | None) -> list[Estimator]:
    """Make the methods of these names, or those that need no argument; the simple ones first."""
    if names is not None:
        return [make_estimator(name) for name in dict.fromkeys((*_SIMPLE, *names))]
    made = []
    for name in dict.fromkeys((*_SIMPLE, *ESTIMATORS)):
        try:
            made.append(make_estimator(name))
        except VoxpopError:  # an oracle, which needs the workers' variances
            continue
    return made


def _run(estimator: Estimator, name: str, answers: Answers, truth: Path) -> Run:
    start = time.process_time()
    try:
        with warnings.catch_warnings(record=True):  # some packages insist on theirs
            result = estimator.fit(answers)
    except VoxpopError as error:
        return Run(data_set=name, method=estimator.name, note=str(error))
    seconds = time.process_time() - start
    return Run(data_set=name, method=estimator.name, score=score(result, truth), seconds=seconds)
