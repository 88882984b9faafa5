"""Result: estimates with their uncertainty, workers with their noise, and how both were made."""

from __future__ import annotations

import html
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import Answers, columns_taken
from voxpop.data.ids import id_kind, restore_ids
from voxpop.data.tables import (
    frame,
    make_folder,
    matrix,
    open_table,
    replacing,
    write_table,
)
from voxpop.errors import DataError, require
from voxpop.results.audit import Audit

if TYPE_CHECKING:
    from voxpop.results.explain import Explanation
    from voxpop.results.prediction import Prediction

# The quantiles every result carries, and the intervals that they bound, by position.
PROBABILITIES = np.array([0.025, 0.05, 0.95, 0.975])
INTERVALS = {0.90: (1, 2), 0.95: (0, 3)}
_FORMATS = ("csv", "parquet")


@dataclass(frozen=True, kw_only=True)
class Trace:
    """How an iteration went: the largest change of every sweep, its damping, and the end."""

    changes: tuple[float, ...] = ()
    dampings: tuple[float, ...] = ()
    converged: bool = True

    @property
    def n_sweeps(self) -> int:
        """Number of sweeps made."""
        return len(self.changes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What an estimator found.

    Arrays follow ``task_ids`` and ``worker_ids``; the tables :attr:`tasks` and :attr:`workers`
    carry the same with ids, as data frames of the kind the answers came in.

    Attributes
    ----------
    estimate
        Posterior mean of every truth, shape (n_tasks, dimension).
    variance
        Its posterior variance, of the same shape.
    quantile
        Quantiles at 2.5, 5, 95 and 97.5 %, shape (n_tasks, dimension, 4).
    worker_variance
        Expected noise variance of every worker, per coordinate.
    worker_interval
        Bounds of a 95 % interval of it, shape (n_workers, 2).
    worker_weight
        What an answer of the worker counts, relative to the average worker's.
    levels
        The noise levels; empty, like the next two, for methods without levels.
    level_weights
        The share of workers at each level.
    worker_posterior
        Each worker's probabilities of the levels, shape (n_workers, n_levels).
    worker_bias, worker_bias_sd
        How far each worker is off on average, and the sd of that, shape (n_workers, dimension);
        empty for methods without worker bias.
    task_difficulty
        Noise variance on each task as a multiple of the usual, shape (n_tasks,): the ambiguity of
        the task beside the noise of its workers; empty for methods without task difficulty.
    audit
        How well left-out answers are predicted from the others; None where not worked out.
    settings
        The estimator's name and arguments, and what it chose from the data.
    notes
        Sentences for the user.
    """

    task_ids: Ids
    worker_ids: Ids
    value_names: tuple[str, ...]
    task_answers: np.ndarray[tuple[int], np.dtype[np.int64]]
    worker_answers: np.ndarray[tuple[int], np.dtype[np.int64]]
    estimate: Floats
    variance: Floats
    quantile: Floats
    worker_variance: Floats
    worker_interval: Floats
    worker_weight: Floats
    levels: Floats = field(default_factory=lambda: np.empty(0))
    level_weights: Floats = field(default_factory=lambda: np.empty(0))
    worker_posterior: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_bias: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_bias_sd: Floats = field(default_factory=lambda: np.empty((0, 0)))
    task_difficulty: Floats = field(default_factory=lambda: np.empty(0))
    audit: Audit | None = None
    trace: Trace = field(default_factory=Trace)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    frame_kind: str = "pandas"

    @property
    def sd(self) -> Floats:
        """Standard deviation of every truth, shape (n_tasks, dimension)."""
        return np.sqrt(self.variance)

    def interval(self, coverage: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds, each (n_tasks, dimension), at 90 or 95 % coverage."""
        require(coverage in INTERVALS, f"coverage must be one of {[*INTERVALS]}, got {coverage}")
        low, high = INTERVALS[coverage]
        return self.quantile[:, :, low], self.quantile[:, :, high]

    def explain(self, answers: Answers, task: object, estimator: Any = None) -> Explanation:
        """Say who said what of a task and with what weight; see :func:`voxpop.explain`."""
        from voxpop.results.explain import explain

        return explain(answers, self, task, estimator)

    def predict_answer(self, worker: object, task: object) -> Prediction:
        """Predict what a worker would answer on a task; see :func:`voxpop.predict_answer`."""
        from voxpop.results.prediction import predict_answer

        return predict_answer(self, worker, task)

    @cached_property
    def tasks(self) -> Any:
        """Data frame: task, the value columns, sd, 90 and 95 % intervals, number of answers."""
        return frame(self.task_columns(), self.frame_kind)

    @cached_property
    def workers(self) -> Any:
        """Data frame: worker, number of answers, variance with interval, weight, level shares."""
        return frame(self.worker_columns(), self.frame_kind)

    def task_columns(self) -> dict[str, Any]:
        """Return the columns of :attr:`tasks` as arrays."""
        columns: dict[str, Any] = {"task": self.task_ids}
        one = len(self.value_names) == 1
        for j, name in enumerate(self.value_names):
            columns[_estimate_column(name)] = self.estimate[:, j]
        # For vectors, sd sums up the coordinates: the root of their mean variance.
        columns["sd"] = np.sqrt(self.variance.mean(axis=1))
        for j, name in enumerate(self.value_names):
            of = "" if one else f"_{name}"
            if not one:
                columns[f"sd{of}"] = self.sd[:, j]
            for coverage in INTERVALS:
                low, high = self.interval(coverage)
                columns[f"lower_{coverage * 100:.0f}{of}"] = low[:, j]
                columns[f"upper_{coverage * 100:.0f}{of}"] = high[:, j]
        if self.task_difficulty.size:
            columns["difficulty"] = self.task_difficulty
        columns["n_answers"] = self.task_answers
        return columns

    def worker_columns(self) -> dict[str, Any]:
        """Return the columns of :attr:`workers` as arrays."""
        columns: dict[str, Any] = {
            "worker": self.worker_ids,
            "n_answers": self.worker_answers,
            "variance": self.worker_variance,
            "variance_lower_95": self.worker_interval[:, 0],
            "variance_upper_95": self.worker_interval[:, 1],
            "weight": self.worker_weight,
        }
        if self.worker_bias.size:
            for j, of in enumerate(_suffixes(self.value_names)):
                columns[f"bias{of}"] = self.worker_bias[:, j]
                columns[f"bias_sd{of}"] = self.worker_bias_sd[:, j]
        for k, name in enumerate(_level_columns(self.levels)):
            columns[name] = self.worker_posterior[:, k]
        return columns

    def save(self, directory: str | Path, format: str = "csv") -> Path:
        """Write ``tasks`` and ``workers`` as CSV or Parquet, and ``result.json``.

        Each file is written under a temporary name and put in place when complete.
        """
        require(format in _FORMATS, f"format must be one of {_FORMATS}, got {format!r}")
        folder = Path(directory)
        make_folder(folder)
        write_table(self.task_columns(), folder / f"tasks.{format}")
        write_table(self.worker_columns(), folder / f"workers.{format}")
        with replacing(folder / "result.json") as temporary:
            temporary.write_text(json.dumps(self._facts(format), indent=2) + "\n")
        # An earlier result in the other format would stand there as if it belonged to this one.
        for other in set(_FORMATS) - {format}:
            for name in ("tasks", "workers"):
                (folder / f"{name}.{other}").unlink(missing_ok=True)
        return folder

    @classmethod
    def load(cls, directory: str | Path) -> Result:
        """Read what :meth:`save` wrote."""
        folder = Path(directory)
        path = folder / "result.json"
        if not path.exists():
            raise DataError(f"{folder}: has no result.json; expected a directory that save() wrote")
        try:
            facts = json.loads(path.read_text())
            names = tuple(facts["value_names"])
            levels = np.array(facts["levels"])
            task_format = facts["format"]
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: is not a result that save() wrote") from None
        tasks = open_table(folder / f"tasks.{task_format}")
        workers = open_table(folder / f"workers.{task_format}")

        of = _suffixes(names)
        biased, hard = facts.get("has_bias", False), facts.get("has_difficulty", False)
        audit = facts.get("audit")
        none = np.empty((0, 0))
        bounds = ("lower_95", "lower_90", "upper_90", "upper_95")  # as PROBABILITIES
        posterior = _level_columns(levels)
        return cls(
            task_ids=restore_ids(tasks.ids("task")[1], facts["id_kinds"]["task"]),
            worker_ids=restore_ids(workers.ids("worker")[1], facts["id_kinds"]["worker"]),
            value_names=names,
            task_answers=tasks.numbers("n_answers").astype(np.int64),
            worker_answers=workers.numbers("n_answers").astype(np.int64),
            estimate=matrix(tasks, [*map(_estimate_column, names)]),
            variance=matrix(tasks, [f"sd{suffix}" for suffix in of]) ** 2,
            quantile=np.stack(
                [matrix(tasks, [bound + suffix for bound in bounds]) for suffix in of], axis=1
            ),
            worker_variance=workers.numbers("variance"),
            worker_interval=matrix(workers, ["variance_lower_95", "variance_upper_95"]),
            worker_weight=workers.numbers("weight"),
            levels=levels,
            level_weights=np.array(facts["level_weights"]),
            worker_posterior=matrix(workers, posterior) if posterior else np.empty((0, 0)),
            worker_bias=matrix(workers, [f"bias{s}" for s in of]) if biased else none,
            worker_bias_sd=matrix(workers, [f"bias_sd{s}" for s in of]) if biased else none,
            task_difficulty=tasks.numbers("difficulty") if hard else np.empty(0),
            audit=None if audit is None else Audit.from_dict(audit),
            trace=Trace(
                changes=tuple(facts["trace"]["changes"]),
                dampings=tuple(facts["trace"]["dampings"]),
                converged=facts["trace"]["converged"],
            ),
            settings=facts["settings"],
            notes=tuple(facts["notes"]),
        )

    def _facts(self, format: str) -> dict[str, Any]:
        return {
            "format": format,
            "value_names": list(self.value_names),
            "id_kinds": {"task": id_kind(self.task_ids), "worker": id_kind(self.worker_ids)},
            "levels": self.levels.tolist(),
            "level_weights": self.level_weights.tolist(),
            "has_bias": bool(self.worker_bias.size),
            "has_difficulty": bool(self.task_difficulty.size),
            "audit": None if self.audit is None else self.audit.to_dict(),
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "trace": {
                "changes": list(self.trace.changes),
                "dampings": list(self.trace.dampings),
                "converged": self.trace.converged,
            },
            "versions": versions(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything in one document of plain lists, for a program on the other end of a pipe."""
        facts = self._facts("json")
        for name in ("format", "id_kinds", "has_bias", "has_difficulty"):
            del facts[name]
        return {
            "tasks": _records(self.task_columns()),
            "workers": _records(self.worker_columns()),
            **facts,
        }

    def summary(self) -> str:
        """Say in one line what was done and how it ended."""
        sweeps = ""
        if self.trace.n_sweeps:
            end = "settled" if self.trace.converged else "not settled"
            sweeps = f", {end} after {self.trace.n_sweeps} sweeps"
        return (
            f"{self.settings.get('method', 'unknown')}: {len(self.task_ids)} tasks from "
            f"{int(self.worker_answers.sum())} answers of {len(self.worker_ids)} workers{sweeps}"
        )

    def all_notes(self) -> list[str]:
        """Say which columns were taken for what, and what was decided from the data."""
        taken = columns_taken(self.settings.get("columns", {}))
        audit = [self.audit.summary()] if self.audit is not None else []
        return [*([f"read {taken}"] if taken else []), *self.notes, *audit]

    def __repr__(self) -> str:
        lines = [f"Result of {self.summary()}", *(f"note: {note}" for note in self.all_notes())]
        lines += ["tasks:", _preview(self.task_columns(), 5)]
        lines += ["workers, most trusted first:", _preview(self.trusted_workers(), 5)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.all_notes())
        return (
            f"<p><b>{html.escape(self.summary())}</b></p><ul>{notes}</ul>"
            f"<p>Tasks</p>{_preview_frame(self.task_columns(), 10).to_html(index=False)}"
            "<p>Workers, most trusted first</p>"
            f"{_preview_frame(self.trusted_workers(), 10).to_html(index=False)}"
        )

    def trusted_workers(self) -> dict[str, Any]:
        """Return the worker columns, heaviest weight first."""
        order = np.argsort(-self.worker_weight, kind="stable")
        return {name: np.asarray(column)[order] for name, column in self.worker_columns().items()}


def _suffixes(names: tuple[str, ...]) -> list[str]:
    """What tells the columns of a coordinate from those of another: nothing if there is one."""
    return [""] if len(names) == 1 else [f"_{name}" for name in names]


def _estimate_column(name: str) -> str:
    """Name the column of an estimate like the value, unless the table needs that name itself."""
    ours = name in ("task", "sd", "difficulty", "n_answers") or name.startswith(
        ("sd_", "lower_9", "upper_9")
    )
    return f"{name}_estimate" if ours else name


def _level_columns(levels: Floats) -> list[str]:
    """Name the columns of the levels by their first digits, or by all where those do not do."""
    short = [f"p_{level:.6g}" for level in levels]
    return short if len(set(short)) == len(short) else [f"p_{level!r}" for level in levels.tolist()]


def versions() -> dict[str, str]:
    """Versions of what takes part in a result."""
    packages = ("voxpop", "numpy", "scipy", "pandas", "duckdb", "narwhals")
    found = {"python": platform.python_version()}
    return found | {name: metadata.version(name) for name in packages}


def _records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    plain = {
        name: [item if isinstance(item, int | float | str) else str(item) for item in column]
        for name, column in ((name, np.asarray(c).tolist()) for name, c in columns.items())
    }
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def _preview_frame(columns: Mapping[str, Any], n_rows: int) -> Any:
    return frame({name: np.asarray(column)[:n_rows] for name, column in columns.items()}, "pandas")


def _preview(columns: Mapping[str, Any], n_rows: int) -> str:
    shown = _preview_frame(columns, n_rows)
    more = len(next(iter(columns.values()))) - n_rows
    text = str(shown.to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    return text + (f"\n... and {more} more" if more > 0 else "")
