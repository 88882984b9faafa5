"""`voxpop assign`: who answers what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from voxpop.cli import common
from voxpop.words import counted


@click.command()
@click.option(
    "--tasks", required=True, help="File with a column of task ids, or the number of tasks."
)
@click.option("--workers", help="The same for workers.  [default: as few as --capacity allows]")
@click.option("--per-task", type=float, required=True, help="Answers per task, or their average.")
@click.option("--capacity", type=int, help="Maximum answers per worker.")
@click.option("--given", help="File of existing answers, which count and are not asked for again.")
@click.option("--forbidden", help="File of task and worker: pairs never to assign.")
@click.option("--group", help="Column in both files: workers get no tasks from their own group.")
@click.option("--same-group", is_flag=True, help="Workers get only tasks from their own group.")
@common.seed_option
@common.output_option("CSV or Parquet file.  [default: stdout]")
def assign(
    tasks: str,
    workers: str | None,
    same_group: bool,
    seed: int,
    output: Path | None,
    **rules: Any,
) -> None:
    """Assign workers to tasks, at random and in equal shares.

    Writes one row (task, worker) per answer to ask for, within the rules. The same seed gives the
    same rows.

    \b
        voxpop assign --tasks 1000 --per-task 5 --capacity 20 -o assignment.csv
        voxpop assign --tasks essays.csv --workers students.csv --per-task 4 --group team
        voxpop assign --tasks images.csv --workers staff.csv --per-task 5 --given answers.csv
    """
    import numpy as np

    from voxpop.collect.assignment.from_tables import assign_table
    from voxpop.data.tables import print_table

    table = assign_table(
        int(tasks) if tasks.isdecimal() else tasks,
        int(workers) if workers is not None and workers.isdecimal() else workers,
        np.random.default_rng(seed),
        mixing="same" if same_group else "different",
        **rules,
    )
    load = table["worker"].value_counts()
    if len(table):
        each = f"{load.min()}" if load.min() == load.max() else f"{load.min()} to {load.max()}"
        answers, tasks_of = counted(len(table), "answer"), counted(table["task"].nunique(), "task")
        common.say(f"{answers} to {tasks_of} by {counted(len(load), 'worker')}, {each} each")
    else:
        common.say("every task has its answers")
    columns = {name: table[name].to_numpy() for name in table.columns}
    if output is None:
        print_table(columns, sys.stdout)
    else:
        common.write_data(columns, output)
