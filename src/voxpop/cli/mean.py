"""`voxpop mean`: the mean of the truths of a population, with an interval from known truths."""

from __future__ import annotations

from typing import Any

import click

from voxpop.cli import common


@click.command()
@common.answers_argument
@common.estimator_options
@common.json_option
def mean(answers: str, method: str, as_json: bool, **settings: Any) -> None:
    """Estimate the mean of the truths of a population.

    The tasks in ANSWERS ("-" is stdin) are a sample of it. Needs known truths (--gold) of tasks
    drawn at random, at least 5 and preferably 20: they show how far estimates are off on
    average, and calibrate the interval (prediction-powered inference). Prints a table on a
    terminal, CSV in a pipe.

    \b
        voxpop mean answers.csv --gold truth.csv
        voxpop mean judges.jsonl --gold human.csv --method judges
        voxpop mean answers.csv --gold truth.csv --json
    """
    from voxpop.estimators.population_mean import population_mean
    from voxpop.present.terminal import show_rows

    table, estimator = common.prepare(answers, method, settings)
    common.say_notes(table)
    found = population_mean(table, estimator)
    common.say(found.summary())
    common.print_data(
        found.columns(),
        lambda screen: show_rows("Mean of the truths", found.columns(), screen),
        found.to_dict() if as_json else None,
    )
