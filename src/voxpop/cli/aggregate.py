"""`voxpop aggregate`: estimates from a table of answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.cli.common import (
    build_estimator,
    console,
    default_folder,
    estimator_options,
    read_table,
    reading_options,
    say,
    source_name,
    take_reading,
)

if TYPE_CHECKING:
    from voxpop.results.result import Result


@click.command()
@click.argument("answers", type=click.Path(allow_dash=True))
@reading_options
@estimator_options
@click.option(
    "--variances", help="File with the workers' true variances: for the oracles, and to score."
)
@click.option("--truth", help="File with task and true value, to score the estimates.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Directory for the files.  [default: NAME.voxpop]",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Format of the files.",
)
@click.option(
    "--no-report", is_flag=True, help="Do not write report.html, which holds the answers."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
def aggregate(
    answers: str,
    method: str,
    output: Path | None,
    file_format: str,
    no_report: bool,
    as_json: bool,
    truth: str | None,
    **settings: Any,
) -> None:
    """Estimate the truth of every task from ANSWERS: a table or a tool's export ("-" is stdin).

    Reads CSV, TSV, Parquet and JSON lines with one answer per row, also gzipped, and the exports
    of tools (`voxpop formats`). Writes tasks, workers, result.json and report.html, a page to look
    at them in a browser, to a directory, and prints the estimates: as tables on a terminal, as CSV
    in a pipe.

    \b
        voxpop aggregate answers.csv
        voxpop aggregate export.json --question age
        voxpop aggregate sqlite:///crowd.db --query answers
        voxpop aggregate clicks.parquet --value x --value y -o clicks
        voxpop aggregate answers.csv --method bi --support 10,100,1000 --json
        cat answers.csv | voxpop aggregate - > truth.csv
    """
    from voxpop.data.read import read_truth, read_variances
    from voxpop.data.tables import require_folder
    from voxpop.estimators.bounds.oracles import StrongOracle
    from voxpop.estimators.bounds.weak_oracle import WeakOracle
    from voxpop.present.terminal import progress, show_score
    from voxpop.results.metrics import score

    reading = take_reading(settings)
    variances = settings.pop("variances")
    if method in (StrongOracle.name, WeakOracle.name):
        settings["variances"] = variances
    estimator = build_estimator(method, settings)
    folder = output or default_folder(answers)
    require_folder(folder)
    table = read_table(answers, reading)
    # Whatever can be wrong is found out before the work, not after it.
    true = None if truth is None else read_truth(truth, table.task_ids, table.value_names)
    true_variance = None if variances is None else read_variances(variances, table.worker_ids)
    talk = console(stderr=True)
    with progress(talk) as on_sweep:
        result = estimator.fit(table, on_sweep)
    scored = None if true is None else score(result, true, true_variance)
    say(result.summary())
    for note in result.notes:
        say(note)
    if result.audit is not None:
        say(result.audit.summary())
    # Files first: whoever reads the output may hang up on us.
    result.save(folder, file_format)
    report = folder / "report.html"
    if no_report:
        report.unlink(missing_ok=True)  # of an earlier result, and not of this one
    else:
        from voxpop.present.report import write_report

        write_report(table, result, report, truth=true, title=source_name(answers))
    names = f"tasks.{file_format}, workers.{file_format}"
    names += " and result.json" if no_report else ", result.json and report.html"
    say(f"wrote {names} to {folder}")
    _print_result(result, scored.to_dict() if scored else None, as_json)
    if scored and not as_json:
        show_score(scored, talk)


def _print_result(result: Result, scored: dict[str, Any] | None, as_json: bool) -> None:
    from voxpop.data.tables import print_table
    from voxpop.present.terminal import show_result

    if as_json:
        document = result.to_dict()
        if scored:
            document["score"] = scored
        click.echo(json.dumps(document, indent=2))
    elif sys.stdout.isatty():
        show_result(result, console())
    else:
        print_table(result.task_columns(), sys.stdout)
