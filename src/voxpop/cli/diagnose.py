"""`voxpop diagnose`: how far the workers agree, and which of them to look at."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from voxpop.cli.common import (
    build_estimator,
    console,
    estimator_options,
    read_table,
    reading_options,
    say,
    take_reading,
)


@click.command()
@click.argument("answers", type=click.Path(allow_dash=True))
@reading_options
@estimator_options
@click.option(
    "--error-rate",
    type=float,
    default=0.05,
    show_default=True,
    help="Expected number of honest workers flagged per crowd, at most.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory for flags.csv.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
def diagnose(
    answers: str,
    method: str,
    error_rate: float,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Measure agreement in ANSWERS, and flag workers whom chance does not explain.

    Flags straight-liners, constant and unrelated answers, copies, bias and noise, each with the
    evidence in words. Nobody is removed: what the estimates would be without the flagged workers
    is told. Prints tables on a terminal, the flags as CSV in a pipe.

    \b
        voxpop diagnose answers.csv
        voxpop diagnose answers.csv --error-rate 1 -o suspects
        voxpop diagnose ratings.parquet --method average --json
    """
    from voxpop.data.tables import make_folder, print_table, require_folder, write_table
    from voxpop.present.terminal import progress, show_diagnosis
    from voxpop.results.agreement import agreement
    from voxpop.results.diagnosis import diagnose as find_flags
    from voxpop.results.diagnosis import effect_of_removing

    reading = take_reading(settings)
    estimator = build_estimator(method, settings)
    if output is not None:
        require_folder(output)
    table = read_table(answers, reading)
    with progress(console(stderr=True)) as on_sweep:
        result = estimator.fit(table, on_sweep)
    agreed, found = agreement(table), find_flags(table, result, error_rate=error_rate)
    effect = None
    if 0 < len(found.workers) < table.n_workers:
        effect = effect_of_removing(table, estimator, found.workers, before=result)
    say(agreed.summary())
    say(found.summary())
    if effect is not None:
        say(effect.summary())
    if output is not None:
        make_folder(output)
        write_table(found.columns(), output / "flags.csv")
        say(f"wrote flags.csv to {output}")
    if as_json:
        document = {"agreement": agreed.to_dict(), **found.to_dict()}
        if effect is not None:
            document["effect_of_removing"] = effect.to_dict()
        click.echo(json.dumps(document, indent=2))
    elif sys.stdout.isatty():
        show_diagnosis(agreed, found, console())
    else:
        print_table(found.columns(), sys.stdout)
