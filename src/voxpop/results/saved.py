"""Saved results: a result as two tables and a JSON file in a directory, and back.

Every file holds the id of the run that wrote it: files of two runs are never read as one result.
"""

from __future__ import annotations

import hashlib
import json
import platform
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.ids import id_kind, restore_ids
from voxpop.data.output import replacing, replacing_folder
from voxpop.data.tables import Table, finite, matrix, open_table, write_table
from voxpop.errors import DataError, VoxpopError, require
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.noise_facts import NoiseFacts
from voxpop.models.scale import LINEAR, scale_from_dict
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration, GoldCheck, agreement_of
from voxpop.results.gold_map import GoldMap
from voxpop.results.result import Result, Trace
from voxpop.results.review import review_from
from voxpop.results.scaled import in_units, on_scale
from voxpop.results.shared_error import SharedError
from voxpop.results.tables import (
    BOUNDS,
    estimate_column,
    level_columns,
    level_table,
    records,
    suffixes,
)

_FORMATS = ("csv", "parquet")
FILES = {f"{name}.{format}" for name in ("tasks", "workers", "levels") for format in _FORMATS} | {
    *("result.json", "report.html")
}
"""Names of all files that a saved result may have."""


def save(result: Result, directory: str | Path, format: str) -> Path:
    """Write a result; see :meth:`voxpop.Result.save`."""
    require(format in _FORMATS, f"format must be one of {_FORMATS}, got {format!r}")
    with replacing_folder(Path(directory), FILES) as new:
        write(result, new, format)
    return Path(directory)


def write(result: Result, folder: Path, format: str, source: str | None = None) -> list[str]:
    """Write the files of a result to an empty folder, and return their names.

    ``source`` says what the answers came from. An earlier result there is not replaced as a whole:
    :func:`save` does that.
    """
    run = run_id(result)
    write_tasks(result, folder / f"tasks.{format}", run)
    others = write_others(result, folder, format, source, run, result.task_ids)
    return [f"tasks.{format}", *others]


def write_tasks(result: Result, path: Path, run: str) -> None:
    """Write the table of the tasks, or of some of them."""
    _write_table(result.task_columns(), path, run)


def _write_table(columns: dict[str, Any], path: Path, run: str) -> None:
    n = len(next(iter(columns.values())))
    write_table({**columns, "run": np.full(n, run)}, path)


def write_others(
    result: Result, folder: Path, format: str, source: str | None, run: str, task_ids: Ids
) -> list[str]:
    """Write all but the tasks, and return the names; ``task_ids`` give the type of their ids."""
    tables = {"workers": result.worker_columns()}
    if result.levels.size:
        tables["levels"] = level_table(result)
    for name, columns in tables.items():
        _write_table(columns, folder / f"{name}.{format}", run)
    facts = {
        "run": run,
        **({} if source is None else {"source": source}),
        "format": format,
        "id_kinds": {"task": id_kind(task_ids), "worker": id_kind(result.worker_ids)},
        "has_bias": bool(result.worker_bias.size),
        "has_gain": bool(result.worker_gain.size),
        "has_slips": bool(result.worker_slips.size),
        "has_difficulty": bool(result.task_difficulty.size),
        **facts_of(result),
    }
    with replacing(folder / "result.json") as temporary:
        temporary.write_text(json.dumps(facts, indent=2) + "\n")
    return [*(f"{name}.{format}" for name in tables), "result.json"]


def run_id(result: Result) -> str:
    """Return the id of the run that made a result: equal results have equal ids, others do not."""
    digest = hashlib.sha256(json.dumps(facts_of(result)).encode())
    for columns in (result.task_columns(), result.worker_columns()):
        for name, column in columns.items():
            digest.update(f"\0{name}\0".encode("utf-8", "surrogatepass"))
            array = np.asarray(column)
            digest.update(
                array.tobytes()
                if array.dtype.kind in "iufb"
                else "\0".join(map(str, array)).encode("utf-8", "surrogatepass")
            )
    # A letter first, so that no reader takes it for a number.
    return f"r{digest.hexdigest()[:11]}"


def source_of(directory: Path) -> str | None:
    """Return the source of the answers of a saved result; None where it is not known."""
    with suppress(OSError, ValueError, AttributeError):
        source = json.loads((directory / "result.json").read_text()).get("source")
        return source if isinstance(source, str) else None
    return None


def load(directory: str | Path) -> Result:
    """Read what :func:`save` wrote."""
    folder = Path(directory)
    path = folder / "result.json"
    if not path.exists():
        raise DataError(f"{folder}: has no result.json; expected a directory that save() wrote")
    try:
        facts = json.loads(path.read_text())
        _check_kinds(facts)
        tables = [folder / f"{name}.{facts['format']}" for name in ("tasks", "workers", "levels")]
        # Version 0.1 had the probabilities of the levels among the workers.
        by_level = bool(facts["levels"]) and tables[2].exists()
        opened = [open_table(table) for table in (tables if by_level else tables[:2])]
        for table in opened:
            _check_run(table, facts.get("run"), path)
        return _restored(facts, *opened)
    except VoxpopError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:100]
        again = "aggregate the answers again"
        raise DataError(f"{path}: is not a result that save() wrote: {why}; {again}") from None


# What the facts of a result are, in files of every version.
_KINDS: dict[str, type | tuple[type, ...]] = {
    "value_names": list, "levels": list, "level_weights": list, "notes": list,
    "settings": dict, "noise": dict, "trace": dict, "id_kinds": dict, "calibration": dict,
    "format": str, "alike_share": (int, float), "audit": (dict, type(None)),
}  # fmt: skip


def _check_kinds(facts: Any) -> None:
    """Refuse facts of another kind than those that were saved."""
    if not isinstance(facts, dict):
        raise TypeError(f"expected an object, got {type(facts).__name__}")
    for name, kind in _KINDS.items():
        if name in facts and not isinstance(facts[name], kind):
            raise TypeError(f"{name!r} is {json.dumps(facts[name])[:30]}")
    for name in ("levels", "level_weights"):
        if not np.isfinite(np.array(facts[name], dtype=float).sum()):
            raise ValueError(f"{name!r} has a number that is not finite")
    if len(facts["levels"]) != len(facts["level_weights"]):
        raise ValueError("'levels' and 'level_weights' differ in length")
    if not all(isinstance(note, str) for note in facts["notes"]):
        raise TypeError("'notes' has one that is no text")
    if not np.isfinite(facts.get("alike_share", 0.0)):
        raise ValueError("'alike_share' is not finite")


def _check_run(table: Table, run: str | None, path: Path) -> None:
    """Refuse a table of another run; results up to 0.1 do not name theirs."""
    found = table.ids("run")[1].tolist() if "run" in table.columns else []
    if run is not None and found != [run]:
        others = f"run {', '.join(map(str, found[:3]))}" if found else "no run"
        raise DataError(
            f"{table.name}: belongs to {others}, but {path.name} to run {run}; aggregate the "
            "answers again"
        )


def _restored(
    facts: dict[str, Any], tasks: Table, workers: Table, by_level: Table | None = None
) -> Result:
    """Make a result from the contents of its files."""
    model = by_level or workers
    names, levels = tuple(facts["value_names"]), np.array(facts["levels"])
    if "calibration" not in facts:
        _move_settings(facts)
    calibration = calibration_from(facts["calibration"])
    of, posterior, none = suffixes(names), level_columns(levels), np.empty((0, 0))
    # Where the size of errors is unknown, there are no sds and no intervals.
    variance = matrix(tasks, [f"sd{suffix}" for suffix in of], missing_ok=True) ** 2
    noise = _worker_noise(workers)
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
        worker_variance=noise[:, 0],
        worker_interval=noise[:, 1:],
        worker_weight=workers.numbers("weight"),
        levels=levels,
        level_weights=np.array(facts["level_weights"]),
        worker_posterior=matrix(model, posterior) if posterior else none,
        worker_bias=matrix(workers, [f"bias{s}" for s in of]) if biased else none,
        worker_bias_sd=matrix(workers, [f"bias_sd{s}" for s in of]) if biased else none,
        worker_gain=matrix(workers, [f"gain{s}" for s in of]) if gains else none,
        worker_gain_sd=matrix(workers, [f"gain_sd{s}" for s in of]) if gains else none,
        worker_slips=workers.numbers("slip_share") if facts.get("has_slips") else np.empty(0),
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
    return _with_review(_with_agreement(result, facts.get("agreement")), tasks, workers)


def _with_review(result: Result, tasks: Table, workers: Table) -> Result:
    """Restore which labels need a look; version 0.1 did not store it."""
    if "needs_a_look" not in tasks.columns:
        return result
    flags = workers.texts("flags") if "flags" in workers.columns else None
    return replace(result, _review=review_from(result, tasks.texts("needs_a_look"), flags))


def _worker_noise(workers: Table) -> Floats:
    """Noise variance of workers and the bounds of its interval (n_workers, 3)."""
    ends = ("", "_lower_95", "_upper_95")
    if "noise_sd" in workers.columns:
        return matrix(workers, [f"noise_sd{end}" for end in ends], missing_ok=True) ** 2
    # Version 0.1 wrote variances.
    return matrix(workers, [f"variance{end}" for end in ends], missing_ok=True)


def _with_agreement(result: Result, saved: dict[str, Any] | None) -> Result:
    """Recover agreement from the truth, on the scale of the result."""
    if saved is not None:
        agreed = Posterior(**{name: np.array(part) for name, part in saved.items()})
        return replace(result, _agreement=agreed)
    if result.calibration.of_truth == Calibration():
        return result
    agreed = agreement_of(on_scale(result.scale, result._posterior), result.calibration)
    return replace(result, _agreement=in_units(result.scale, agreed))


def calibration_facts(calibration: Calibration) -> dict[str, Any]:
    """A calibration as JSON values."""
    return asdict(calibration, dict_factory=_plain)


def calibration_from(facts: dict[str, Any]) -> Calibration:
    """Undo :func:`calibration_facts`."""
    gold, shared, mapped = (facts.get(name) for name in ("gold", "shared", "gold_map"))
    parts = {name: part for name, part in facts.items() if name in ("stretch", "bounds")}
    return Calibration(
        **_tuples(parts),
        gold_map=mapped and GoldMap.from_dict(mapped),
        shared=shared and SharedError(**_tuples(shared)),
        gold=gold and GoldCheck(**gold),
    )


def _move_settings(facts: dict[str, Any]) -> None:
    """Move what versions up to 0.1 kept in the settings to its place today."""
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
        "worker_levels": finite(records(level_table(result))),
        **facts_of(result),
    }


def _keeps_agreement(result: Result) -> bool:
    """Tell whether agreement cannot be found again: a map was used, or each group has its own."""
    return result.calibration.gold_map is not None or "groups_apart" in result.settings


def facts_of(result: Result) -> dict[str, Any]:
    """Everything that the tables do not hold."""
    return {
        "value_names": list(result.value_names),
        "levels": result.levels.tolist(),
        "level_weights": result.level_weights.tolist(),
        "audit": result.audit and result.audit.to_dict(),
        "settings": dict(result.settings),
        "notes": list(result.notes),
        "alike_share": result.alike_share,
        "calibration": calibration_facts(result.calibration),
        "noise": asdict(result.noise, dict_factory=_plain),
        "trace": asdict(result.trace, dict_factory=_plain),
        **({"agreement": _agreement(result)} if _keeps_agreement(result) else {}),
        **({} if result.scale == LINEAR else {"scale": _plain([*result.scale.to_dict().items()])}),
        "versions": versions(),
    }


def _agreement(result: Result) -> dict[str, Any]:
    """Posterior of agreement, which cannot be recovered from that of the truth after a gold map."""
    agreed = result._agreed
    parts = {"estimate": agreed.estimate, "variance": agreed.variance, "quantile": agreed.quantile}
    return {name: part.tolist() for name, part in parts.items()}


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a record as JSON values."""
    return {name: list(item) if isinstance(item, tuple) else item for name, item in items}


def _tuples(facts: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`_plain`."""
    return {name: tuple(item) if isinstance(item, list) else item for name, item in facts.items()}


@cache
def versions() -> dict[str, str]:
    """Versions of the packages that make a result."""
    packages = ("voxpop", "numpy", "scipy", "pandas", "duckdb", "narwhals")
    found = {"python": platform.python_version()}
    return found | {name: metadata.version(name) for name in packages}
