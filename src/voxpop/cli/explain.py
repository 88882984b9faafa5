"""`voxpop explain`: one task, answer by answer."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from voxpop.cli.common import (
    console,
    estimator_options,
    read_table,
    reading_options,
    say,
    take_reading,
)


@click.command()
@click.argument("answers", type=click.Path(allow_dash=True))
@click.argument("task_id", metavar="TASK")
@reading_options
@estimator_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON document.")
def explain(answers: str, task_id: str, method: str, as_json: bool, **settings: Any) -> None:
    """Say why the estimate of TASK is what it is, from ANSWERS ("-" is stdin).

    Every answer with its weight, what the others predict for it, and what the estimate would be
    without it; and what one more answer would change. A table on a terminal, CSV in a pipe.

    \b
        voxpop explain answers.csv img_001.jpg
        voxpop explain answers.csv img_001.jpg --method nbi --json
    """
    from voxpop.data.tables import print_table
    from voxpop.estimators.registry import make_estimator
    from voxpop.present.terminal import progress, show_explanation
    from voxpop.results.explaining import explain as explain_task
    from voxpop.results.prediction import find_id

    reading = take_reading(settings)
    given = {name: item for name, item in settings.items() if item is not None}
    estimator = make_estimator(method, given)
    table = read_table(answers, reading)
    find_id(table.task_ids, task_id, "task")
    with progress(console(stderr=True)) as on_sweep:
        result = estimator.fit(table, on_sweep)
    say(result.summary())
    for note in result.notes:
        say(note)
    found = explain_task(table, result, task_id, estimator)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
        return
    if sys.stdout.isatty():
        show_explanation(found, console())
    else:
        print_table(dict(found.answers.items()), sys.stdout)
    for sentence in found.sentences():
        say(sentence)
