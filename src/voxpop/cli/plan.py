"""`voxpop plan`: the accuracy that a budget buys, and the budget that an accuracy needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from voxpop.cli.common import console, numbers, open_input, say, seed_option

if TYPE_CHECKING:
    from voxpop.collect.planning.plan import Plan


@click.command()
@click.argument("pilot", required=False, type=click.Path(allow_dash=True))
@click.option("--tasks", "n_tasks", type=int, required=True, help="Number of tasks to be answered.")
@click.option("--support", callback=numbers, help="Noise variances of the workers, for no PILOT.")
@click.option("--weights", callback=numbers, help="Share of workers at each.  [default: equal]")
@click.option("--dimension", type=int, default=1, show_default=True, help="Coordinates, likewise.")
@click.option("--prior-variance", type=float, help="Of the truths, likewise.  [default: flat]")
@click.option("--task", help="Column of the pilot's task ids.  [default: guessed]")
@click.option("--worker", help="Column of its worker ids.  [default: guessed]")
@click.option("--value", "values", multiple=True, help="Column of its values; repeat for vectors.")
@click.option("--rmse", type=float, help="Target: root mean squared error of a coordinate.")
@click.option("--half-width", type=float, help="Target: half of a 95 % interval, on average.")
@click.option("--budget", type=float, help="Money there is, instead of a target.")
@click.option("--capacity", default=20, show_default=True, help="Most answers of one worker.")
@click.option("--gold", default=0, show_default=True, help="Most gold questions per worker.")
@click.option("--price", default=1.0, show_default=True, help="Price of one answer.")
@click.option("--price-worker", default=0.0, show_default=True, help="Price of one worker.")
@click.option("--price-gold", default=0.0, show_default=True, help="Price of a gold question.")
@seed_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Table: CSV or Parquet file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture: PNG, SVG or PDF file.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    pilot: str | None,
    n_tasks: int,
    support: tuple[float, ...] | None,
    weights: tuple[float, ...] | None,
    dimension: int,
    prior_variance: float | None,
    task: str | None,
    worker: str | None,
    values: tuple[str, ...],
    rmse: float | None,
    half_width: float | None,
    budget: float | None,
    capacity: int,
    gold: int,
    price: float,
    price_worker: float,
    price_gold: float,
    seed: int,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Find the smallest budget for a target, or the best accuracy for a budget.

    The crowd is stated (--support, --weights), or learned from the answers in the file PILOT.

    \b
        voxpop plan --support 10,100,1000 --tasks 1000 --rmse 3 --price 0.05
        voxpop plan pilot.csv --tasks 5000 --budget 2000 --price 0.05 --price-worker 0.5
        voxpop plan pilot.csv --tasks 5000 --half-width 2 --plot plan.png
    """
    import numpy as np

    from voxpop.collect.planning.learn_crowd import LearnedCrowd, learn_crowd
    from voxpop.collect.planning.plan import Prices, make_plan
    from voxpop.data.read import read_answers
    from voxpop.data.tables import write_table
    from voxpop.errors import require
    from voxpop.models.model import Model
    from voxpop.present.terminal import planning

    require((pilot is None) != (support is None), "give a pilot file, or --support; one of the two")
    require(support is not None or not weights, "--weights goes with --support")
    crowd: Model | LearnedCrowd
    if support is not None:
        prior = {} if prior_variance is None else {"prior_variance": prior_variance}
        crowd = Model(support=support, weights=weights, dimension=dimension, **prior)
    else:
        assert pilot is not None
        with open_input(pilot) as path:
            crowd = learn_crowd(read_answers(path, task, worker, values or None))
        say(crowd.summary())
    with planning(console(stderr=True)) as on_option:
        found = make_plan(
            crowd,
            np.random.default_rng(seed),
            n_tasks=n_tasks,
            rmse=rmse,
            half_width=half_width,
            budget=budget,
            capacity=capacity,
            max_gold=gold,
            prices=Prices(answer=price, worker=price_worker, gold=price_gold),
            on_option=on_option,
        )
    say(found.summary())
    if output is not None:
        write_table(found.columns(), output)
        say(f"wrote {output}")
    if plot is not None:
        say(f"wrote {found.plot(plot)}")
    _print_plan(found, as_json)


def _print_plan(found: Plan, as_json: bool) -> None:
    from voxpop.data.tables import print_table
    from voxpop.present.terminal import show_plan

    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    elif sys.stdout.isatty():
        show_plan(found, console())
    else:
        print_table(found.columns(), sys.stdout)
