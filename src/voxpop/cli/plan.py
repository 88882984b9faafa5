"""`voxpop plan`: the accuracy that a budget buys, and the budget that an accuracy needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli.common import (
    console,
    crowd_options,
    json_option,
    output_option,
    print_data,
    say,
    seed_option,
    stated_levels,
    take_answers,
    write_data,
)


@click.command()
@click.argument("pilot", required=False, type=click.Path(allow_dash=True))
@click.option("--tasks", "n_tasks", type=int, required=True, help="Number of tasks to be answered.")
@click.option("--dimension", default=1, show_default=True, help="Coordinates, without a PILOT.")
@crowd_options
@click.option("--rmse", type=float, help="Target: root mean squared error of a coordinate.")
@click.option("--half-width", type=float, help="Target: mean half-width of the 95 % intervals.")
@click.option("--budget", type=float, help="Money there is, instead of a target.")
@click.option("--capacity", default=20, show_default=True, help="Maximum answers per worker.")
@click.option(
    "--gold-questions", default=0, show_default=True, help="Maximum gold questions per worker."
)
@click.option("--price", default=1.0, show_default=True, help="Price of one answer.")
@click.option("--price-worker", default=0.0, show_default=True, help="Price of one worker.")
@click.option("--price-gold", default=0.0, show_default=True, help="Price of a gold question.")
@seed_option
@output_option("Table: CSV or Parquet file.")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture: PNG, SVG or PDF file.")
@json_option
def plan(
    pilot: str | None,
    n_tasks: int,
    rmse: float | None,
    half_width: float | None,
    budget: float | None,
    capacity: int,
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
    """Find the smallest budget for a target, or the best accuracy for a budget.

    State the crowd (--support, --weights), or have it learned from the answers in the file PILOT.

    \b
        voxpop plan --support 10,100,1000 --tasks 1000 --rmse 3 --price 0.05
        voxpop plan pilot.csv --tasks 5000 --budget 2000 --price 0.05 --price-worker 0.5
        voxpop plan pilot.csv --tasks 5000 --half-width 2 --plot plan.png
    """
    import numpy as np

    from voxpop.collect.planning.frontier import Prices
    from voxpop.collect.planning.plan import make_plan
    from voxpop.present.terminal import planning, show_plan

    gold = settings["gold"]
    if len(gold) == 1 and gold[0].isdecimal() and not Path(gold[0]).exists():
        say("note: --gold is for known truths; the number of gold questions is --gold-questions")
        gold_questions, settings["gold"] = int(gold[0]), ()
    crowd = _crowd(pilot, settings)
    with planning(console(stderr=True)) as on_option:
        found = make_plan(
            crowd,
            np.random.default_rng(seed),
            n_tasks=n_tasks,
            rmse=rmse,
            half_width=half_width,
            budget=budget,
            capacity=capacity,
            max_gold=gold_questions,
            prices=Prices(answer=price, worker=price_worker, gold=price_gold),
            on_option=on_option,
        )
    say(found.summary())
    if output is not None:
        write_data(found.columns(), output)
    if plot is not None:
        say(f"wrote {found.plot(plot)}")
    document = found.to_dict() if as_json else None
    print_data(found.columns(), lambda screen: show_plan(found, screen), document)


def _crowd(pilot: str | None, settings: dict[str, Any]) -> Any:
    """Return the crowd as stated, or learned from the pilot."""
    from dataclasses import replace

    from voxpop.collect.planning.learn_crowd import learn_crowd
    from voxpop.errors import require
    from voxpop.models.model import Model

    read = take_answers(settings)
    support, weights = stated_levels(settings["support"]), settings["weights"]
    require((pilot is None) != (support is None), "give a pilot file, or --support; one of the two")
    require(support is not None or not weights, "--weights goes with --support")
    mean, variance = settings["prior_mean"], settings["prior_variance"]
    require(
        variance is not None or mean is None,
        "--prior-mean does nothing without --prior-variance; give both",
    )
    prior = {} if variance is None else {"prior_mean": mean or 0.0, "prior_variance": variance}
    if support is not None:
        return Model(support=support, weights=weights, dimension=settings["dimension"], **prior)
    learned = learn_crowd(read(pilot)[0])
    say(learned.summary())
    return replace(learned, model=replace(learned.model, **prior))
