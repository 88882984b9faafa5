"""`voxpop simulate` and `voxpop demo`: crowds drawn from the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from voxpop.cli import common
from voxpop.words import counted


@click.command()
@click.option("--tasks", "n_tasks", default=200, help="Number of tasks.")
@click.option("--per-task", default=5, help="Answers per task.")
@click.option("--per-worker", default=5, help="Answers per worker.")
@click.option(
    "--support", default="10,100,1000", callback=common.numbers(), help="Noise variances."
)
@click.option(
    "--weights",
    callback=common.numbers(),
    help="Share of workers at each of them.  [default: equal]",
)
@click.option("--dimension", default=1, help="Number of coordinates of an answer.")
@click.option("--prior-mean", default=0.0, help="Prior mean of the truths.")
@click.option("--prior-variance", type=float, help="Prior variance.  [default: uniform in 0..100]")
@common.seed_option
@common.output_option("Directory for the files.", Path("crowd"))
def simulate(
    n_tasks: int, per_task: int, per_worker: int, seed: int, output: Path, **stated: Any
) -> None:
    """Draw a crowd from the model, with known truths.

    Writes answers.csv, truth.csv and workers.csv.

    \b
        voxpop simulate --tasks 1000 --per-task 5 --per-worker 20 -o crowd
        voxpop aggregate crowd/answers.csv --truth crowd/truth.csv
    """
    import numpy as np

    from voxpop.collect.assignment.random_graphs import assign_regular
    from voxpop.models.model import Model
    from voxpop.models.simulation import simulate as draw

    if stated["prior_variance"] is None:
        stated["prior_variance"] = np.inf
    rng = np.random.default_rng(seed)
    crowd = draw(Model(**stated), assign_regular(n_tasks, per_task, per_worker, rng), rng)
    folder, drawn = crowd.save(output), crowd.answers
    common.say(
        f"wrote {counted(drawn.n_edges, 'answer')} of {counted(drawn.n_workers, 'worker')} "
        f"to {folder}"
    )


@click.command()
@click.option("--tasks", "n_tasks", default=400, help="Number of tasks.")
@common.seed_option
@common.json_option
def demo(n_tasks: int, seed: int, as_json: bool) -> None:
    """Show the error of every method on a crowd with spammers.

    \b
        voxpop demo
        voxpop demo --tasks 1000 --seed 7
    """
    from voxpop.paper.demo import compare, demo_crowd, demo_methods
    from voxpop.present.terminal import show_methods

    crowd = demo_crowd(n_tasks, per_task=5, per_worker=10, seed=seed)
    common.say(
        f"{crowd.answers.n_workers} workers click on {n_tasks} targets in a 100 x 100 image, five "
        "on each.\n30 % are experts (sd 3), 50 % fair (sd 10), and 20 % spammers (sd 71). "
        "Nobody knows who is who."
    )
    runs = compare(crowd, demo_methods(crowd))
    if as_json:
        scores = {run.label: run.score.to_dict() | {"seconds": run.seconds} for run in runs}
        common.print_json(scores)
        return
    show_methods(runs, common.console())
    mse = {run.label: run.score.mse for run in runs}
    gain = mse["average"] / mse["auto"]
    common.say(
        f"Learning who to trust divides the error of the average by {gain:.1f}. "
        "The oracle knows every\nworker's noise, but not how targets are distributed. "
        "Try your own answers: voxpop aggregate answers.csv"
    )
