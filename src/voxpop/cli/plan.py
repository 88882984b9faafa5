"""`voxpop plan`: the accuracy that a budget buys, and the budget that an accuracy needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli import common


@click.command()
@click.argument("pilot", required=False, type=click.Path(allow_dash=True))
@click.option("--tasks", "n_tasks", type=int, required=True, help="Number of tasks to be answered.")
@click.option("--dimension", default=1, help="Number of coordinates of an answer, without PILOT.")
@common.crowd_options
@click.option("--rmse", type=float, help="Target: root mean squared error of a coordinate.")
@click.option("--half-width", type=float, help="Target: mean half-width of the 95 % intervals.")
@click.option("--budget", type=float, help="Available budget, instead of a target.")
@click.option("--capacity", type=int, help="Maximum answers per worker.  [default: 20]")
@click.option("--workers", "n_workers", type=int, help="Number of available workers.")
@click.option("--gold-questions", default=0, help="Maximum gold questions per worker.")
@click.option("--price", default=1.0, help="Price of one answer.")
@click.option("--price-worker", default=0.0, help="Price of one worker.")
@click.option("--price-gold", default=0.0, help="Price of a gold question.")
@common.seed_option
@common.output_option("Table: CSV or Parquet file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture: PNG, SVG or PDF file.")
@common.json_option
def plan(
    pilot: str | None,
    gold_questions: int,
    price: float,
    price_worker: float,
    price_gold: float,
    seed: int,
    output: Path | None,
    plot: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the budget for a target, or the accuracy for a budget.

    State the crowd (--support, --weights), or let voxpop learn it from the answers in the file
    PILOT.

    \b
        voxpop plan --support 10,100,1000 --tasks 1000 --rmse 3 --price 0.05
        voxpop plan pilot.csv --tasks 5000 --budget 2000 --price 0.05 --price-worker 0.5
        voxpop plan pilot.csv --tasks 5000 --half-width 2 --plot plan.png
    """
    import numpy as np

    from voxpop.collect.planning.plan import Prices, make_plan
    from voxpop.errors import require
    from voxpop.present.terminal import planning, show_plan

    gold = settings["gold"]
    if len(gold) == 1 and gold[0].isdecimal() and not Path(gold[0]).exists():
        common.say(
            "note: --gold is for known truths; the number of gold questions is --gold-questions"
        )
        gold_questions, settings["gold"] = int(gold[0]), ()
    read, dimension = common.take_answers(settings), settings.pop("dimension")
    is_stated = common.stated_levels(settings["support"]) is not None
    require(is_stated == (pilot is None), "give either a pilot file or --support")
    table = None if pilot is None else read(pilot)
    if table is not None:
        common.say_notes(table)
    shared = common.take_shared_error(settings, table)
    crowd = common.take_crowd(settings, table, dimension)
    with planning(common.console(stderr=True)) as on_option:
        found = make_plan(
            crowd,
            np.random.default_rng(seed),
            max_gold=gold_questions,
            prices=Prices(answer=price, worker=price_worker, gold=price_gold),
            shared_error=shared,
            on_option=on_option,
            **settings,
        )
    for line in (found.summary(), *found.notes()):
        common.say(line)
    if output is not None:
        common.write_data(found.columns(), output)
    if plot is not None:
        common.say(f"wrote {found.plot(plot)}")
    document = found.to_dict() if as_json else None
    common.print_data(found.columns(), lambda screen: show_plan(found, screen), document)
