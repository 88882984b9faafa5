"""`voxpop reproduce`: the paper's figures, tables and claims."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from voxpop.cli import common

_PARTS = ("fig1a", "fig1b", "fig1c", "fig1d", "table1", "table2", "table3", "claims", "all")


@click.command()
@click.argument("parts", nargs=-1, required=True, type=click.Choice(_PARTS), metavar="PARTS...")
@click.option("--quick/--full", default=True, help="Few instances, or as many as in the paper.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("data"),
    help="Folder with the data sets, one folder each.",
)
@common.output_option("Folder for tables, figures and finished instances.", Path("paper"))
@click.option("--jobs", type=click.IntRange(min=1), default=2, help="Number of processes.")
@common.json_option
def reproduce(
    parts: tuple[str, ...], quick: bool, data: Path, output: Path, jobs: int, as_json: bool
) -> None:
    """Reproduce the paper's figures, tables and claims.

    PARTS are fig1a to fig1d, table1 to table3, claims, or all. Every claim ends in PASS, FAIL, or
    OPEN if it needs data or machines that are absent. The exit status is 1 if a claim failed. Every
    instance has its own random numbers: a part gives the same figures as the whole. Finished
    instances are kept in the output folder: an interrupted run continues where it stopped, and
    --full continues from --quick.

    \b
        voxpop reproduce fig1a -o paper
        voxpop reproduce all --quick --data ../shared/data
        voxpop reproduce all --full --data ../shared/data --jobs 8
    """
    from voxpop.paper.experiments import FULL, QUICK, count
    from voxpop.paper.experiments import reproduce as run
    from voxpop.present.terminal import counting, show_rows

    talk = common.console(stderr=True)
    with counting(talk) as on_instance:
        found = run(parts, QUICK if quick else FULL, output, data, jobs, on_instance)
    for note in found.notes:
        common.say(note)
    common.say(f"wrote {', '.join(path.name for path in found.files)} to {output}")
    if as_json:
        common.print_json([vars(verdict) | {"verdict": verdict.word} for verdict in found.verdicts])
    else:
        if sys.stdout.isatty() and parts != ("claims",):
            for title, table in found.sheets.items():
                show_rows(title, table.to_dict("list"), common.console())
        for verdict in found.verdicts:
            click.echo(f"{verdict.word}\t{verdict.name}\t{verdict.measured}\t[{verdict.margin}]")
    if found.verdicts:
        common.say(count(found.verdicts))
    if any(verdict.passed is False for verdict in found.verdicts):
        sys.exit(1)
