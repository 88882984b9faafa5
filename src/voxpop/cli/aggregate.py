"""`voxpop aggregate`: estimates from a table of answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli import common
from voxpop.cli.parts import in_parts, parts_options


@click.command()
@common.answers_argument
@common.estimator_options
@click.option("--truth", help="File with task and true value, to score the estimates.")
@common.output_option("Directory for the files.  [default: NAME.voxpop]")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    help="Format of the files.",
)
@click.option("--no-report", is_flag=True, help="Write no report.html, which holds the answers.")
@common.json_option
@parts_options
def aggregate(
    answers: str,
    method: str,
    output: Path | None,
    file_format: str,
    no_report: bool,
    as_json: bool,
    truth: str | None,
    engine: str,
    **settings: Any,
) -> None:
    """Estimate the truth of every task from ANSWERS: a table or a tool's export ("-" is stdin).

    Reads CSV, TSV, Parquet and JSON lines with one answer per row, also gzipped, and the exports
    of tools (`voxpop formats`). Writes tasks, workers, result.json and report.html (a page for the
    browser) to a directory, and prints the estimates: as tables on a terminal, as CSV in a pipe.

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
    from voxpop.present.report import write_report
    from voxpop.present.terminal import show_result, show_score
    from voxpop.results.metrics import score

    folder = output or common.default_folder(answers)
    require_folder(folder)
    if in_parts(answers, method, settings, folder, engine, truth, no_report, as_json):
        return
    variances = settings["variances"]
    if method not in ("strong-oracle", "weak-oracle"):
        settings["variances"] = None  # to score the learned ones
    table, estimator = common.prepare(answers, method, settings)
    # Mistakes in these files show before the work, not after it.
    true = None if truth is None else read_truth(truth, table.task_ids, table.value_names)
    true_variance = None if variances is None else read_variances(variances, table.worker_ids)
    result = common.fit(estimator, table)
    scored = None if true is None else score(result, true, true_variance)
    common.say_result(result)
    # Files first: whoever reads the output may hang up on us.
    result.save(folder, file_format)
    written = [f"tasks.{file_format}", f"workers.{file_format}", "result.json"]
    (folder / "report.html").unlink(missing_ok=True)  # that of an earlier result
    if not no_report:
        title = common.source_name(answers)
        report = write_report(table, result, folder / "report.html", truth=true, title=title)
        written.append(report.name)
    common.say(f"wrote {', '.join(written[:-1])} and {written[-1]} to {folder}")
    score_of = {"score": scored.to_dict()} if scored else {}
    document = result.to_dict() | score_of if as_json else None
    common.print_data(result.task_columns(), lambda screen: show_result(result, screen), document)
    if scored and not as_json:
        show_score(scored, common.console(stderr=True))
