"""`voxpop next`: the answers to ask for next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from voxpop.cli import common
from voxpop.errors import require

if TYPE_CHECKING:
    from voxpop.collect.campaign.campaign import Campaign
    from voxpop.data.answers import Answers
    from voxpop.results.shared_error import SharedError


@click.command(name="next")
@common.answers_argument
@click.option("-k", "k", default=20, help="How many answers to ask for.")
@click.option("--tasks", help="File with a column of all task ids.  [default: those answered]")
@click.option("--workers", help="Available workers: a file (worker, price, capacity), or ann,bob.")
@click.option("--half-width", type=float, help="Half-width of the 95 % interval of a done task.")
@click.option("--capacity", type=int, help="Maximum answers per worker, counting those given.")
@click.option(
    "--per-worker", type=int, help="Maximum per worker in this batch.  [default: even shares]"
)
@click.option("--price", default=1.0, help="Price of one answer.")
@click.option("--budget", type=float, help="Remaining budget.")
@click.option(
    "--least-gain", default=0.0, help="Minimum reduction of the mean variance per unit of cost."
)
@click.option("--pending", help="File of task and worker: pairs already asked for.")
@click.option("--forbidden", help="File of task and worker: pairs never to ask for.")
@common.crowd_options
@common.scale_option
@common.bounds_option
@common.seed_option
@common.output_option("CSV or Parquet file.  [default: stdout]")
def next_command(
    answers: str,
    k: int,
    workers: str | None,
    seed: int,
    output: Path | None,
    **settings: Any,
) -> None:
    """List the answers to ask for next.

    Chooses those that reduce the expected error most per unit of cost. Writes one row per answer:
    task, worker (empty: anyone), the expected reduction of the variance, and why. Lists fewer if
    every task is done or the budget is spent. Learns the noise of the crowd as `voxpop aggregate`
    does, unless --support states it.

    \b
        voxpop next answers.csv -k 20 --tasks tasks.csv
        voxpop next answers.csv -k 1 --workers ann
        voxpop next answers.csv -k 50 --workers staff.csv --half-width 2 --budget 30 --price 0.05
    """
    import numpy as np

    from voxpop.collect.campaign import Rules
    from voxpop.collect.campaign.campaign import next_from_tables
    from voxpop.collect.campaign.next_batch import advice
    from voxpop.present.terminal import show_batch

    table = common.take_answers(settings)(answers)
    common.say_read(table)
    common.say_notes(table)
    campaign, shared = _open_campaign(settings, table)
    files = {name: settings.pop(name) for name in ("tasks", "pending", "forbidden")}
    batch = next_from_tables(
        campaign,
        k,
        np.random.default_rng(seed),
        workers=_who(workers),
        **files,
        rules=Rules(**settings),
    )
    common.say(batch.summary())
    if note := advice(batch, table, shared):
        common.say(note)
    if output is not None:
        common.write_data(batch.columns(), output)
    else:
        common.print_data(batch.columns(), lambda screen: show_batch(batch, screen))


def _open_campaign(settings: dict[str, Any], table: Answers) -> tuple[Campaign, SharedError | None]:
    """Start a campaign with the answers, and the error that all workers share."""
    from voxpop.collect.campaign.campaign import Campaign
    from voxpop.collect.planning.learn_crowd import LearnedCrowd, shared_error_of
    from voxpop.estimators.auto.auto import Auto
    from voxpop.models.model import Model

    of_default = {name: settings.pop(name) for name in ("scale", "bounds")}
    is_stated = common.stated_levels(settings["support"]) is not None
    if not is_stated and settings["prior_variance"] is None and settings["prior_mean"] is None:
        require(settings["weights"] is None, "--weights needs --support")
        for name in ("support", "weights", "prior_mean", "prior_variance"):
            del settings[name]
        of_default["shared_error"] = settings.pop("shared_error")
        estimator = common.build_estimator("auto", of_default)
        assert isinstance(estimator, Auto)
        campaign = Campaign.from_answers(table, estimator=estimator)
        result = campaign.result()
        for line in (result.summary(), *result.notes):
            common.say(line)
        if table.task_degree.max() == 1 and not table.is_gold.any():
            common.say("no noise could be learned: errors are those of noise variance 1")
        return campaign, result.calibration.shared
    for name, given in of_default.items():
        require(given is None, f"--{name} is for noise that is learned without a prior")
    shared = common.take_shared_error(settings, table)
    crowd = common.take_crowd(settings, table, table.dimension)
    if isinstance(crowd, Model):
        common.say(f"noise variances as given: {', '.join(f'{s:g}' for s in crowd.support)}")
    campaign = Campaign(crowd, value_names=table.value_names)
    campaign.add_table(table)
    return campaign, shared_error_of(LearnedCrowd.of(crowd).model, shared)


def _who(text: str | None) -> list[str] | str | None:
    """Return a file of workers as it is, and ids as a list."""
    is_file = text is not None and (Path(text).exists() or Path(text).suffix != "")
    return text if text is None or is_file else text.split(",")
