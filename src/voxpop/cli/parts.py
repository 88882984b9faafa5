"""`voxpop aggregate --engine`: answers that do not fit into memory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from voxpop.cli import common
from voxpop.cli.reading import together

_UNITS = {"": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_OURS = ("memory", "partitions", "scheduler", "processes", "run")


def _memory(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """Parse ``600MB``."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,15}(?:\.\d*)?) ?([KMGT]B)?", text.strip().upper())
    if found is None or not float(found[1]):
        raise click.BadParameter(f"expected a size like 600MB or 2GB, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2] or ""])


parts_options = together(
    click.option(
        "--engine",
        type=click.Choice(["local", "outofcore", "dask"]),
        default="local",
        help="Where to compute: in memory, part by part from disk, or on a Dask cluster.",
    ),
    click.option(
        "--memory", callback=_memory, help="Memory limit of --engine outofcore.  [default: 1GB]"
    ),
    click.option("--partitions", type=int, help="Number of parts.  [default: chosen by --memory]"),
    click.option("--scheduler", help="Dask scheduler: tcp://HOST:PORT.  [default: a local one]"),
    click.option(
        "--processes", type=int, help="Processes of a local Dask cluster.  [default: all cores]"
    ),
    click.option(
        "--run", help="Folder or URL for the files of the run.  [default: beside --output]"
    ),
)
"""How to work on answers in parts."""


def refuse_parts_options(settings: dict[str, Any]) -> None:
    """Use up the options of parts; refuse them, since all is in memory."""
    given = [name for name in _OURS if settings.pop(name) is not None]
    if given:
        raise click.UsageError(f"--{given[0]} needs --engine outofcore or dask")


def in_parts(
    answers: str,
    method: str,
    settings: dict[str, Any],
    folder: Path,
    engine: Any,
    source: str,
    shown: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Aggregate in parts, write the result, and print its summary.

    ``source`` says what the answers are from; ``shown`` are options of the report, None without.
    """
    from voxpop.data.tables import finite
    from voxpop.partitions.cut import Source
    from voxpop.partitions.run import Finished, Running, aggregate_parts
    from voxpop.present.report import write_report
    from voxpop.present.terminal import progress
    from voxpop.results.saved import facts_of

    for name in ("truth", "variances"):
        if settings.pop(name) is not None:
            raise click.UsageError(f"--{name} needs --engine local")
    memory, partitions, scheduler, processes, run = (settings.pop(name) for name in _OURS)
    if processes is not None and (engine != "dask" or scheduler is not None):
        raise click.UsageError("--processes needs --engine dask without --scheduler")
    read = Source(path=answers, **_reading(settings))
    running = Running(
        engine=engine,
        memory=memory or 1 << 30,
        n_parts=partitions,
        scheduler=scheduler,
        n_workers=(os.cpu_count() or 1) if processes is None else processes,
        run=run,
    )
    estimator = common.build_estimator(method, settings)
    written = ["tasks.parquet", "workers.parquet", "levels.parquet", "result.json"]

    def report(done: Finished, new: Path) -> None:
        if shown is not None:
            title = f"{shown['title']}: {done.shown.n_tasks} of {done.parts.n_tasks} tasks"
            about = shown | {"title": title}
            path = write_report(done.shown, done.of_shown, new / "report.html", **about)
            written.append(path.name)

    with progress(common.console(stderr=True)) as on_sweep:
        try:
            done = aggregate_parts(read, estimator, folder, running, on_sweep, report, source)
        except KeyboardInterrupt:
            common.say("stopped; run the same command again to resume")
            raise
    for line in (done.summary(), *done.notes()):
        common.say(line)
    common.say_written(written, folder)
    if as_json:
        common.print_json(finite(facts_of(done.result)))


def _reading(settings: dict[str, Any]) -> dict[str, Any]:
    """Use up the options of reading a table; refuse those of tools' exports."""
    taken = {name: settings.pop(name) for name in ("task", "worker")}
    taken["values"], taken["gold"] = settings.pop("values") or None, settings.pop("gold") or None
    rest = (
        "format", "question", "missing", "match", "iou_threshold", "distance_threshold", "quorum",
        "looked", "query", "duplicates", "decimal", "thousands", "sheet", "names",
    )  # fmt: skip
    given = [name for name in rest if settings.pop(name) not in (None, (), False)]
    if given:
        option = {"format": "from", "match": "objects"}.get(given[0], given[0].replace("_", "-"))
        raise click.UsageError(
            f"--{option} needs --engine local; the other engines read plain tables, "
            "one answer per row"
        )
    return taken
