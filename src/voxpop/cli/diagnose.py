"""`voxpop diagnose`: how well the workers agree, and which of them to check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli import common

# Typos printed one by one; all of them are in the table.
_MOST_PRINTED = 5


@click.command()
@common.answers_argument
@common.estimator_options
@click.option("--error-rate", default=0.05, help="Maximum expected number of false flags.")
@common.output_option("Directory for flags.csv and typos.csv.")
@common.json_option
def diagnose(
    answers: str,
    method: str,
    error_rate: float,
    output: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Measure agreement, and flag workers to check.

    Flags workers whose answers chance does not explain: straight-liners, constant and unrelated
    answers, other units, copies, bias and noise, each with the evidence in words. Removes nobody,
    but shows how the estimates would change without the flagged workers. Names answers that look
    mistyped, and what they look like. Prints tables on a terminal, the flags as CSV in a pipe.

    \b
        voxpop diagnose answers.csv
        voxpop diagnose answers.csv --error-rate 1 -o suspects
        voxpop diagnose ratings.parquet --method average --json
    """
    from voxpop.data.output import replacing_folder, require_folder
    from voxpop.data.tables import write_table
    from voxpop.present.terminal import show_diagnosis
    from voxpop.results.agreement import agreement
    from voxpop.results.diagnosis import diagnose as find_flags
    from voxpop.results.diagnosis.removing import effect_of_removing
    from voxpop.results.diagnosis.worker_tests import without_far_answers
    from voxpop.words import counted

    if output is not None:
        require_folder(output)
    table, estimator = common.prepare(answers, method, settings)
    common.say_notes(table)
    result = common.fit(estimator, table)
    agreed = agreement(without_far_answers(result.scale.answers(table)))
    found = find_flags(table, result, error_rate=error_rate)
    common.say(agreed.summary())
    if n_far := table.n_edges - agreed.n_answers:
        common.say(f"{counted(n_far, 'answer')} far from all others did not count for agreement")
    common.say(found.summary())
    for typo in found.typos[:_MOST_PRINTED]:
        common.say(typo.summary())
    document = {"agreement": agreed.to_dict(), **found.to_dict()}
    if 0 < len(found.workers) < table.n_workers:
        effect = effect_of_removing(table, estimator, found.workers, before=result)
        common.say(effect.summary())
        document["effect_of_removing"] = effect.to_dict()
    if output is not None:
        with replacing_folder(output, ("flags.csv", "typos.csv")) as new:
            write_table(found.columns(), new / "flags.csv")
            write_table(found.typo_columns(), new / "typos.csv")
        common.say(f"wrote flags.csv and typos.csv to {output}")
    common.print_data(
        found.columns(),
        lambda screen: show_diagnosis(agreed, found, screen),
        document if as_json else None,
    )
