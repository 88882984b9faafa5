"""`voxpop diagnose`: how far the workers agree, and which of them to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli.common import (
    answers_argument,
    build_estimator,
    estimator_options,
    fit,
    json_option,
    output_option,
    print_data,
    say,
    say_read,
    take_answers,
)


@click.command()
@answers_argument
@estimator_options
@click.option(
    "--error-rate",
    type=float,
    default=0.05,
    show_default=True,
    help="Expected false flags per crowd of honest workers, at most.",
)
@output_option("Directory for flags.csv.")
@json_option
def diagnose(
    answers: str,
    method: str,
    error_rate: float,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Measure agreement in ANSWERS, and flag workers whose answers chance does not explain.

    Flags straight-liners, constant and unrelated answers, copies, bias and noise, each with the
    evidence in words. Removes nobody, but tells how the estimates would change without the flagged
    workers. Prints tables on a terminal, the flags as CSV in a pipe.

    \b
        voxpop diagnose answers.csv
        voxpop diagnose answers.csv --error-rate 1 -o suspects
        voxpop diagnose ratings.parquet --method average --json
    """
    from voxpop.data.tables import make_folder, require_folder, write_table
    from voxpop.present.terminal import show_diagnosis
    from voxpop.results.agreement import agreement
    from voxpop.results.diagnosis import diagnose as find_flags
    from voxpop.results.diagnosis import effect_of_removing

    read = take_answers(settings)
    estimator = build_estimator(method, settings)
    if output is not None:
        require_folder(output)
    table, _ = read(answers)
    say_read(table)
    result = fit(estimator, table)
    agreed, found = agreement(table), find_flags(table, result, error_rate=error_rate)
    say(agreed.reading)
    say(found.summary())
    document = {"agreement": agreed.to_dict(), **found.to_dict()}
    if 0 < len(found.workers) < table.n_workers:
        effect = effect_of_removing(table, estimator, found.workers, before=result)
        say(effect.summary())
        document["effect_of_removing"] = effect.to_dict()
    if output is not None:
        make_folder(output)
        write_table(found.columns(), output / "flags.csv")
        say(f"wrote flags.csv to {output}")
    print_data(
        found.columns(),
        lambda screen: show_diagnosis(agreed, found, screen),
        document if as_json else None,
    )
