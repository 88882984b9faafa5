"""Saved results: a result as two tables and a JSON file in a directory, and back."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.data.tables import (
    id_kind,
    make_folder,
    matrix,
    open_table,
    replacing,
    restore_ids,
    write_table,
)
from voxpop.errors import DataError, require
from voxpop.results.audit import Audit
from voxpop.results.result import Result, Trace
from voxpop.results.tables import BOUNDS, estimate_column, level_columns, suffixes

_FORMATS = ("csv", "parquet")


def save(result: Result, directory: str | Path, format: str) -> Path:
    """Write a result; see :meth:`voxpop.Result.save`."""
    require(format in _FORMATS, f"format must be one of {_FORMATS}, got {format!r}")
    folder = Path(directory)
    make_folder(folder)
    write_table(result.task_columns(), folder / f"tasks.{format}")
    write_table(result.worker_columns(), folder / f"workers.{format}")
    facts = {
        "format": format,
        "id_kinds": {"task": id_kind(result.task_ids), "worker": id_kind(result.worker_ids)},
        "has_bias": bool(result.worker_bias.size),
        "has_difficulty": bool(result.task_difficulty.size),
        **_facts(result),
    }
    with replacing(folder / "result.json") as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n")
    # An earlier result in the other format would stand there as if it belonged to this one.
    for other in set(_FORMATS) - {format}:
        for name in ("tasks", "workers"):
            (folder / f"{name}.{other}").unlink(missing_ok=True)
    return folder


def load(directory: str | Path) -> Result:
    """Read what :func:`save` wrote."""
    folder = Path(directory)
    path = folder / "result.json"
    if not path.exists():
        raise DataError(f"{folder}: has no result.json; expected a directory that save() wrote")
    try:
        facts = json.loads(path.read_text())
        names = tuple(facts["value_names"])
        levels = np.array(facts["levels"])
        table_format = facts["format"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: is not a result that save() wrote") from None
    tasks = open_table(folder / f"tasks.{table_format}")
    workers = open_table(folder / f"workers.{table_format}")

    of = suffixes(names)
    biased, hard = facts.get("has_bias", False), facts.get("has_difficulty", False)
    audit = facts.get("audit")
    none = np.empty((0, 0))
    posterior = level_columns(levels)
    return Result(
        task_ids=restore_ids(tasks.ids("task")[1], facts["id_kinds"]["task"]),
        worker_ids=restore_ids(workers.ids("worker")[1], facts["id_kinds"]["worker"]),
        value_names=names,
        task_answers=tasks.numbers("n_answers").astype(np.int64),
        worker_answers=workers.numbers("n_answers").astype(np.int64),
        estimate=matrix(tasks, [*map(estimate_column, names)]),
        variance=matrix(tasks, [f"sd{suffix}" for suffix in of]) ** 2,
        quantile=np.stack(
            [matrix(tasks, [bound + suffix for bound in BOUNDS]) for suffix in of], axis=1
        ),
        worker_variance=workers.numbers("variance"),
        worker_interval=matrix(workers, ["variance_lower_95", "variance_upper_95"]),
        worker_weight=workers.numbers("weight"),
        levels=levels,
        level_weights=np.array(facts["level_weights"]),
        worker_posterior=matrix(workers, posterior) if posterior else none,
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


def to_dict(result: Result) -> dict[str, Any]:
    """Everything in one document of plain lists."""
    return {
        "tasks": _records(result.task_columns()),
        "workers": _records(result.worker_columns()),
        **_facts(result),
    }


def _facts(result: Result) -> dict[str, Any]:
    """What the tables do not hold."""
    return {
        "value_names": list(result.value_names),
        "levels": result.levels.tolist(),
        "level_weights": result.level_weights.tolist(),
        "audit": None if result.audit is None else result.audit.to_dict(),
        "settings": dict(result.settings),
        "notes": list(result.notes),
        "trace": {
            "changes": list(result.trace.changes),
            "dampings": list(result.trace.dampings),
            "converged": result.trace.converged,
        },
        "versions": versions(),
    }


def _records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    plain = {
        name: [item if isinstance(item, int | float | str) else str(item) for item in column]
        for name, column in ((name, np.asarray(c).tolist()) for name, c in columns.items())
    }
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def versions() -> dict[str, str]:
    """Versions of what takes part in a result."""
    packages = ("voxpop", "numpy", "scipy", "pandas", "duckdb", "narwhals")
    found = {"python": platform.python_version()}
    return found | {name: metadata.version(name) for name in packages}
