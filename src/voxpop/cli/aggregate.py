"""`voxpop aggregate`: estimates from a table of answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.cli import common
from voxpop.cli.parts import in_parts, parts_options, refuse_parts_options
from voxpop.cli.result_folder import folder_of, result_folder, source_name, source_of

if TYPE_CHECKING:
    from voxpop.results.metrics import Score
    from voxpop.results.result import Result


@click.command()
@common.answers_argument
@common.estimator_options
@click.option("--truth", help="File of task and true value, to score the estimates.")
@common.output_option("Directory for the files.  [default: NAME.voxpop beside ANSWERS]")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    help="Format of the files.",
)
@click.option("--no-report", is_flag=True, help="Write no report.html, which contains the answers.")
@click.option("--title", help="Title of the report.  [default: name of the input]")
@click.option("--pictures", type=click.Path(path_type=Path), help="Folder of the tasks' pictures.")
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
    title: str | None,
    pictures: Path | None,
    engine: str,
    **settings: Any,
) -> None:
    """Estimate the truth of every task, with intervals.

    ANSWERS ("-" is stdin) is a table with one answer per row or a column per worker, or a tool's
    export (`voxpop formats`). Writes tasks, workers, result.json and report.html (a page for the
    browser) to a directory, and prints tables, or CSV in a pipe.

    \b
        voxpop aggregate answers.csv
        voxpop aggregate export.json --question age --title "Ages, March"
        voxpop aggregate sqlite:///crowd.db --query answers
        voxpop aggregate answers.csv --method bi --support 10,100,1000 --json
        cat answers.csv | voxpop aggregate - > truth.csv
    """
    from voxpop.data.output import replacing_folder
    from voxpop.data.truths import read_variances
    from voxpop.present.report import write_report
    from voxpop.results import saved
    from voxpop.results.metrics import score

    source = source_of(answers, settings)
    folder = result_folder(output, answers, source)
    shown: dict[str, Any] | None = None
    if not no_report:
        shown = {"title": title or source_name(answers), "pictures": pictures or folder_of(answers)}
    if engine != "local":
        settings["truth"] = truth
        in_parts(answers, method, settings, folder, engine, source, shown, as_json)
        return
    refuse_parts_options(settings)
    variances = settings["variances"]
    if method not in ("strong-oracle", "weak-oracle"):
        settings["variances"] = None  # only used to score the learned ones
    read_truths = common.take_truths(settings)
    table, estimator = common.prepare(answers, method, settings)
    # Report mistakes in these files before the fit, not after it.
    true = None if truth is None else read_truths(truth, table)
    true_variance = None if variances is None else read_variances(variances, table.worker_ids)
    result = common.fit(estimator, table)
    scored = None if true is None else score(result, true, true_variance)
    common.say_result(result)
    # Files first: the reader of the output may close the pipe.
    with replacing_folder(folder, saved.FILES) as new:
        written = saved.write(result, new, file_format, source)
        if shown is not None:
            written += [write_report(table, result, new / "report.html", truth=true, **shown).name]
    common.say_written(written, folder)
    _print(result, scored, as_json)


def _print(result: Result, scored: Score | None, as_json: bool) -> None:
    """Print the estimates and the score: tables on a terminal, CSV in a pipe, or one document."""
    from voxpop.present.terminal import show_result, show_score

    if as_json:
        common.print_json(result.to_dict() | ({"score": scored.to_dict()} if scored else {}))
        return
    common.print_data(result.task_columns(), partial(show_result, result))
    if scored is not None:
        show_score(scored, common.console(stderr=True))
