"""Saved results: a result as two tables and a JSON file in a directory, and back."""

from __future__ import annotations

import json
import platform
import shutil
from dataclasses import asdict, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.arrays import Ids
from voxpop.data.ids import id_kind, restore_ids
from voxpop.data.tables import finite, make_folder, matrix, open_table, replacing, write_table
from voxpop.errors import DataError, require
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.noise_facts import NoiseFacts
from voxpop.models.scale import LINEAR, scale_from_dict
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration, GoldCheck, agreement_of
from voxpop.results.gold_map import GoldMap
from voxpop.results.result import Result, Trace
from voxpop.results.scaled import in_units, on_scale
from voxpop.results.shared_error import SharedError
from voxpop.results.tables import BOUNDS, estimate_column, level_columns, records, suffixes

_FORMATS = ("csv", "parquet")


def save(result: Result, directory: str | Path, format: str) -> Path:
    """Write a result; see :meth:`voxpop.Result.save`."""
    require(format in _FORMATS, f"format must be one of {_FORMATS}, got {format!r}")
    folder = Path(directory)
    make_folder(folder)
    tables = [folder / f"{name}.{each}" for name in ("tasks", "workers") for each in _FORMATS]
    for table in tables:
        if table.is_dir():  # that of a result in parts
            shutil.rmtree(table)
    write_table(result.task_columns(), folder / f"tasks.{format}")
    write_table(result.worker_columns(), folder / f"workers.{format}")
    _write_facts(result, folder, format, result.task_ids)
    # An earlier result in the other format would stand there as if it belonged to this one.
    for table in tables:
        if table.suffix != f".{format}":
            table.unlink(missing_ok=True)
    return folder


def save_beside(result: Result, folder: Path, task_ids: Ids) -> None:
    """Write all but the tasks, which are in a folder of Parquet files already.

    ``task_ids`` are some of theirs, to tell their type by.
    """
    write_table(result.worker_columns(), folder / "workers.parquet")
    _write_facts(result, folder, "parquet", task_ids)
    for name in ("tasks", "workers"):
        (folder / f"{name}.csv").unlink(missing_ok=True)


def _write_facts(result: Result, folder: Path, format: str, task_ids: Ids) -> None:
    facts = {
        "format": format,
        "id_kinds": {"task": id_kind(task_ids), "worker": id_kind(result.worker_ids)},
        "has_bias": bool(result.worker_bias.size),
        "has_gain": bool(result.worker_gain.size),
        "has_difficulty": bool(result.task_difficulty.size),
        **facts_of(result),
    }
    with replacing(folder / "result.json") as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n")


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

    if "calibration" not in facts:
        _move_settings(facts)
    calibration = _calibration(facts["calibration"])
    of, posterior, none = suffixes(names), level_columns(levels), np.empty((0, 0))
    # Where nothing shows how far off answers are, there are no sds and no intervals.
    variance = matrix(tasks, [f"sd{suffix}" for suffix in of], missing_ok=True) ** 2
    biased, gains, hard, audit = (
        facts.get(name) for name in ("has_bias", "has_gain", "has_difficulty", "audit")
    )
    result = Result(
        task_ids=restore_ids(tasks.ids("task")[1], facts["id_kinds"]["task"]),
        worker_ids=restore_ids(workers.ids("worker")[1], facts["id_kinds"]["worker"]),
        value_names=names,
        task_answers=tasks.numbers("n_answers").astype(np.int64),
        worker_answers=workers.numbers("n_answers").astype(np.int64),
        estimate=matrix(tasks, [*map(estimate_column, names)]),
        variance=variance,
        quantile=np.stack(
            [matrix(tasks, [bound + suffix for bound in BOUNDS], missing_ok=True) for suffix in of],
            axis=1,
        ),
        worker_variance=workers.numbers("variance", missing_ok=True),
        worker_interval=matrix(
            workers, ["variance_lower_95", "variance_upper_95"], missing_ok=True
        ),
        worker_weight=workers.numbers("weight"),
        levels=levels,
        level_weights=np.array(facts["level_weights"]),
        worker_posterior=matrix(workers, posterior) if posterior else none,
        worker_bias=matrix(workers, [f"bias{s}" for s in of]) if biased else none,
        worker_bias_sd=matrix(workers, [f"bias_sd{s}" for s in of]) if biased else none,
        worker_gain=matrix(workers, [f"gain{s}" for s in of]) if gains else none,
        worker_gain_sd=matrix(workers, [f"gain_sd{s}" for s in of]) if gains else none,
        task_difficulty=tasks.numbers("difficulty") if hard else np.empty(0),
        alike_share=facts.get("alike_share", 0.0),
        audit=audit and Audit.from_dict(audit),
        calibration=calibration,
        noise=NoiseFacts(**_tuples(facts["noise"])),
        scale=scale_from_dict(facts.get("scale")),
        trace=Trace(**_tuples(facts["trace"])),
        settings=facts["settings"],
        notes=tuple(facts["notes"]),
    )
    return _with_agreement(result, facts.get("agreement"))


def _with_agreement(result: Result, saved: dict[str, Any] | None) -> Result:
    """Find agreement again, which was made the truth on the scale of the result."""
    if saved is not None:
        agreed = Posterior(**{name: np.array(part) for name, part in saved.items()})
        return replace(result, _agreement=agreed)
    if result.calibration.of_truth == Calibration():
        return result
    agreed = agreement_of(on_scale(result.scale, result._posterior), result.calibration)
    return replace(result, _agreement=in_units(result.scale, agreed))


def _calibration(facts: dict[str, Any]) -> Calibration:
    gold, shared, mapped = (facts.pop(name, None) for name in ("gold", "shared", "gold_map"))
    return Calibration(
        **_tuples(facts),
        gold_map=mapped and GoldMap.from_dict(mapped),
        shared=shared and SharedError(**_tuples(shared)),
        gold=gold and GoldCheck(**gold),
    )


def _move_settings(facts: dict[str, Any]) -> None:
    """Move what versions up to 0.1 kept among the settings to where it is now."""
    settings, audit = facts["settings"], facts.get("audit") or {}
    gold = {"n_tasks": "gold_hidden", "coverage_95": "gold_coverage_95", "stretch": "gold_stretch"}
    hidden = {new: settings.pop(old) for new, old in gold.items() if old in settings}
    share, towards = settings.pop("fallback_share", 0.0), settings.pop("fallback", "mean")
    facts["alike_share"] = share if towards == "mean" else 0.0
    facts["calibration"] = {
        "stretch": max(audit["stretch"], 1.0) if audit.get("exact") else 1.0,
        "gold": hidden or None,
    }
    learned = {part.name: part.name for part in fields(NoiseFacts)} | {"tails": "tails_used"}
    facts["noise"] = {new: settings.pop(old) for new, old in learned.items() if old in settings}


def to_dict(result: Result) -> dict[str, Any]:
    """Everything in one document of plain lists."""
    return {
        "tasks": finite(records(result.task_columns())),
        "workers": finite(records(result.worker_columns())),
        **facts_of(result),
    }


def facts_of(result: Result) -> dict[str, Any]:
    """What the tables do not hold."""
    return {
        "value_names": list(result.value_names),
        "levels": result.levels.tolist(),
        "level_weights": result.level_weights.tolist(),
        "audit": result.audit and result.audit.to_dict(),
        "settings": dict(result.settings),
        "notes": list(result.notes),
        "alike_share": result.alike_share,
        "calibration": asdict(result.calibration, dict_factory=_plain),
        "noise": asdict(result.noise, dict_factory=_plain),
        "trace": asdict(result.trace, dict_factory=_plain),
        **({} if result.calibration.gold_map is None else {"agreement": _agreement(result)}),
        **({} if result.scale == LINEAR else {"scale": _plain([*result.scale.to_dict().items()])}),
        "versions": versions(),
    }


def _agreement(result: Result) -> dict[str, Any]:
    """Posterior of agreement, which cannot be told from that of the truth behind a map."""
    agreed = result._agreed
    parts = {"estimate": agreed.estimate, "variance": agreed.variance, "quantile": agreed.quantile}
    return {name: part.tolist() for name, part in parts.items()}


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a record as JSON has them."""
    return {name: list(item) if isinstance(item, tuple) else item for name, item in items}


def _tuples(facts: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`_plain`."""
    return {name: tuple(item) if isinstance(item, list) else item for name, item in facts.items()}


def versions() -> dict[str, str]:
    """Versions of what takes part in a result."""
    packages = ("voxpop", "numpy", "scipy", "pandas", "duckdb", "narwhals")
    found = {"python": platform.python_version()}
    return found | {name: metadata.version(name) for name in packages}
