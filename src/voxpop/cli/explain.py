"""`voxpop explain`: one task, answer by answer."""

from __future__ import annotations

from typing import Any

import click

from voxpop.cli import common


@click.command()
@common.answers_argument
@click.argument("task_id", metavar="TASK")
@common.estimator_options
@common.json_option
def explain(answers: str, task_id: str, method: str, as_json: bool, **settings: Any) -> None:
    """Explain the estimate of one task, answer by answer.

    Shows every answer to TASK in ANSWERS ("-" is stdin) with its weight, what the others
    predict for it, and what the estimate would be without it; then what one more answer would
    change. Prints a table on a terminal, CSV in a pipe.

    \b
        voxpop explain answers.csv img_001.jpg
        voxpop explain answers.csv img_001.jpg --method bi --noise tails,bias
        voxpop explain answers.csv img_001.jpg --method nbi --json
    """
    from voxpop.present.terminal import show_explanation
    from voxpop.results.explain import explain as explain_task
    from voxpop.results.prediction import find_id

    table, estimator = common.prepare(answers, method, settings)
    find_id(table.task_ids, task_id, "task")
    result = common.fit(estimator, table)
    common.say_result(result)
    found = explain_task(table, result, task_id, estimator)
    common.print_data(
        dict(found.answers.items()),
        lambda screen: show_explanation(found, screen),
        found.to_dict() if as_json else None,
    )
    if not as_json:
        for sentence in found.sentences():
            common.say(sentence)
