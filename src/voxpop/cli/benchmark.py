"""`voxpop benchmark`: every method on every data set of a folder."""

from __future__ import annotations

from pathlib import Path

import click

from voxpop.cli import common


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder with one folder per data set, which holds answers.csv and truth.csv.",
)
@click.option("--methods", help="Methods to run, such as auto,bi.  [default: all]")
@click.option("--sets", help="Data sets to run, by name.  [default: all]")
@click.option(
    "--peers", is_flag=True, help="Also run crowd-kit, sureal and statsmodels, if installed."
)
@common.output_option("File for the table: Markdown (.md), CSV or Parquet.")
@common.json_option
def benchmark(
    data: Path,
    methods: str | None,
    sets: str | None,
    peers: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Score methods on data sets with known truths.

    Prints errors (RMSE) as a table on a terminal, and everything as CSV in a pipe.

    \b
        voxpop benchmark --data crowds
        voxpop benchmark --data crowds --methods auto,bi,pg1 --json
        voxpop benchmark --data crowds --peers -o benchmark.md
    """
    from voxpop.data.output import replacing
    from voxpop.data.tables import write_table
    from voxpop.estimators.benchmark import run_benchmark
    from voxpop.present.terminal import show_rows

    found = run_benchmark(
        data,
        methods.split(",") if methods else None,
        sets.split(",") if sets else None,
        peers=peers,
        on_run=lambda run: common.say(run.summary()),
    )
    common.say(found.summary())
    if output is not None:
        if output.suffix == ".md":
            with replacing(output) as temporary:
                temporary.write_text(found.to_markdown(), encoding="utf-8")
        else:
            write_table(found.columns(), output)
        common.say(f"wrote {output}")
    common.print_data(
        found.columns(),
        lambda screen: show_rows("RMSE", found.grid(), screen),
        found.to_dict() if as_json else None,
    )
