"""`voxpop next`: the answers to ask for next."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from voxpop.cli.common import (
    console,
    numbers,
    read_table,
    reading_options,
    say,
    seed_option,
    take_reading,
)


@click.command(name="next")
@click.argument("answers", type=click.Path(allow_dash=True))
@click.option("-k", "k", default=20, show_default=True, help="How many answers to ask for.")
@click.option("--tasks", help="File with a column of all task ids.  [default: those answered]")
@click.option("--workers", help="Who is there: a file (worker, price, capacity), or ann,bob.")
@click.option("--half-width", type=float, help="A task is done when its 95 % interval is ± this.")
@click.option("--capacity", type=int, help="Most answers of one worker, those given included.")
@click.option("--per-worker", type=int, help="Most of one worker now.  [default: even shares]")
@click.option("--price", default=1.0, show_default=True, help="Price of one answer.")
@click.option("--budget", type=float, help="Money that is left.")
@click.option("--least-gain", default=0.0, help="Least fall of the mean variance per money.")
@click.option("--pending", help="File of pairs, task and worker, that were asked for already.")
@click.option("--forbidden", help="File of pairs, task and worker, that must not be.")
@click.option("--support", callback=numbers, help="Noise variances.  [default: learned]")
@click.option("--weights", callback=numbers, help="Share of workers at each level of --support.")
@click.option("--prior-mean", type=float, default=0.0, help="Prior mean of the truths.")
@click.option("--prior-variance", type=float, help="Its variance.  [default: flat]")
@reading_options
@seed_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="CSV or Parquet file.  [default: stdout]",
)
def next_command(
    answers: str,
    k: int,
    tasks: str | None,
    workers: str | None,
    pending: str | None,
    forbidden: str | None,
    support: tuple[float, ...] | None,
    weights: tuple[float, ...] | None,
    prior_mean: float,
    prior_variance: float | None,
    seed: int,
    output: Path | None,
    **settings: Any,
) -> None:
    """Say which answers to ask for next: those that lower the expected error most per price.

    Writes one row per answer: task, worker (empty: anyone), the variance it is expected to take
    off, and why. Ends early when every task is done or the money is spent.

    \b
        voxpop next answers.csv -k 20 --tasks tasks.csv
        voxpop next answers.csv -k 1 --workers ann
        voxpop next answers.csv -k 50 --workers staff.csv --half-width 2 --budget 30 --price 0.05
    """
    import numpy as np

    from voxpop.collect.campaign import Rules
    from voxpop.collect.campaign.from_tables import next_answers, noise_model
    from voxpop.data.tables import print_table, write_table

    table = read_table(answers, take_reading(settings))
    crowd, found = noise_model(table, support, weights, prior_mean, prior_variance)
    say(found)
    batch = next_answers(
        table,
        crowd,
        k,
        np.random.default_rng(seed),
        tasks=tasks,
        workers=_who(workers),
        pending=pending,
        forbidden=forbidden,
        rules=Rules(**settings),
    )
    say(batch.summary())
    if output is not None:
        write_table(batch.columns(), output)
        say(f"wrote {output}")
    elif sys.stdout.isatty():
        from voxpop.present.terminal import show_batch

        show_batch(batch, console())
    else:
        print_table(batch.columns(), sys.stdout)


def _who(text: str | None) -> list[str] | str | None:
    """Tell a file of workers from a list of their ids."""
    is_file = text is not None and (Path(text).exists() or Path(text).suffix != "")
    return text if text is None or is_file else text.split(",")
