"""What a terminal shows: tables for people and progress bars, both by rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from voxpop.estimators.progress import Fraction
from voxpop.results.tables import look_columns, talk_columns
from voxpop.words import percent

if TYPE_CHECKING:  # a table of estimates needs none of these at run time
    from rich.progress import Progress

    from voxpop.collect.campaign import Batch
    from voxpop.collect.planning.plan import Option, Plan
    from voxpop.estimators.base import OnSweep
    from voxpop.paper.demo import MethodRun
    from voxpop.results.agreement import Agreement
    from voxpop.results.diagnosis.flags import Diagnosis
    from voxpop.results.explain import Explanation
    from voxpop.results.metrics import Score
    from voxpop.results.result import Result

_FEW, _MANY = 8, 20


def show_result(result: Result, console: Console) -> None:
    """Print what needs a look, the first tasks, and the workers with most and least weight."""
    found = result.review
    if len(found.tasks):
        columns = look_columns(result, _FEW)
        show_rows("Tasks that need a look", _without(columns, _too_wide(result)), console)
        _say_more(console, len(found.tasks) - _FEW, "tasks that need a look")
    if found.workers:
        show_rows("Workers to talk to", talk_columns(result, _FEW), console)
        _say_more(console, len(found.workers) - _FEW, "workers to talk to")
    hidden = ("sd_", "lower_90", "upper_90", "needs_a_look", *_too_wide(result))
    n_tasks, n = len(result.task_ids), len(result.worker_ids)
    show_rows("Tasks", _without(result.task_columns(), hidden), console, range(min(n_tasks, _FEW)))
    _say_more(console, n_tasks - _FEW, "tasks")
    ends = range(n) if n <= _FEW else [*range(_FEW // 2), *range(n - _FEW // 2, n)]
    workers = _without(result.trusted_workers(), ("gain", "flags"))
    bounds = (workers.pop(f"noise_sd_{end}_95") for end in ("lower", "upper"))
    between = [f"{_cell(low)} to {_cell(high)}" for low, high in zip(*bounds, strict=True)]
    columns = {}
    for name, column in workers.items():
        columns |= {name: column} | ({"95 % interval": between} if name == "noise_sd" else {})
    show_rows("Workers, most trusted first", columns, console, ends)
    _say_more(console, n - len(ends), "workers in between")


def _too_wide(result: Result) -> tuple[str, ...]:
    """Columns for which a terminal is too narrow: the bounds of a box."""
    return ("lower_95", "upper_95") if len(result.value_names) > 2 else ()


def show_diagnosis(agreed: Agreement, found: Diagnosis, console: Console) -> None:
    """Print the coefficients of agreement and, where there are any, the flags and the typos."""
    show_rows("Agreement", agreed.columns(), console)
    if found.flags:
        show_rows("Flags", _without(found.columns(), ("n_answers", "other")), console)
    if found.typos:
        one = len({typo.name for typo in found.typos}) == 1
        hidden = ("chance", *(["name"] if one else []))
        rows = range(min(len(found.typos), _MANY))
        show_rows("Typos", _without(found.typo_columns(), hidden), console, rows)
        _say_more(console, len(found.typos) - _MANY, "typos")


def show_score(score: Score, console: Console) -> None:
    """Print the error of a result against the truth."""
    known = {name: value for name, value in score.to_dict().items() if value is not None}
    title = f"Against the truth of {known.pop('n_tasks')} tasks"
    # Coverage of the truth comes first.
    known = {name: known[name] for name in ("coverage_95", "coverage_90")} | known
    show_rows(title, {name.replace("_", " "): [value] for name, value in known.items()}, console)


def show_methods(runs: Sequence[MethodRun], console: Console) -> None:
    """Print every method's error, with a bar in proportion to the largest."""
    worst = max(c.score.mse for c in runs)
    oracle = runs[-1].score.mse
    table = Table(title_justify="left")
    table.add_column("method", no_wrap=True)
    for title in ("MSE", "/ oracle's", "coverage", "seconds"):
        table.add_column(title, justify="right")
    table.add_column("error")
    for c in runs:
        table.add_row(
            c.label,
            f"{c.score.mse:.1f}",
            f"{c.score.mse / oracle:.2f}",
            percent(c.score.coverage_95),
            f"{c.seconds:.2f}",
            "█" * max(1, round(10 * c.score.mse / worst)),
        )
    console.print(table)


def show_rows(
    title: str, columns: Mapping[Any, Any], console: Console, rows: Sequence[int] | None = None
) -> None:
    """Print some rows of a table, or all."""
    table = Table(title=title, title_justify="left")
    arrays = {name: np.asarray(column, dtype=object) for name, column in columns.items()}
    for name, array in arrays.items():
        numeric = len(array) > 0 and not isinstance(array[0], str)
        table.add_column(Text(name), justify="right" if numeric else "left")
    for row in range(len(next(iter(arrays.values())))) if rows is None else rows:
        # Text, not markup: an id may hold square brackets.
        table.add_row(*(Text(_cell(array[row])) for array in arrays.values()))
    console.print(table)


def show_plan(plan: Plan, console: Console) -> None:
    """Print what money buys, to the cent, with a mark at the option that was chosen."""
    rows = plan.columns()
    columns: dict[str, Sequence[Any]] = {"cost": [Decimal(f"{cost:.2f}") for cost in rows["cost"]]}
    columns |= {name.replace("_", " "): rows[name] for name in ("per_task", "per_worker")}
    if any(rows["gold"]):
        columns["gold each"] = rows["gold"]
    columns |= {"workers": rows["workers"], "RMSE": rows["rmse"]}
    for name in ("error", "luck"):
        columns[name] = [Decimal(f"{error:.2g}") for error in rows[f"rmse_{name}"]]
    columns |= {"half-width 95 %": rows["half_width_95"], "average's RMSE": rows["average_rmse"]}
    if plan.shared is not None:
        columns["RMSE with shared error"] = rows["truth_rmse"]
    if plan.chosen is not None:
        columns[""] = ["◀" if option == plan.chosen else "" for option in plan.frontier]
    show_rows(f"What money buys: {plan.n_tasks} tasks", columns, console)


def show_batch(batch: Batch, console: Console) -> None:
    """Print the answers to ask for next; without the workers where anybody may answer."""
    columns: dict[str, Sequence[Any]] = {"task": batch.task.tolist()}
    if any(worker is not None for worker in batch.worker):
        columns["worker"] = batch.worker.tolist()
    columns |= {"sd now": batch.sd.tolist(), "sd after": batch.sd_after.tolist()}
    columns["price"] = [Decimal(f"{price:.2f}") for price in batch.price]
    columns["why"] = batch.reason
    show_rows("Ask for next", columns, console)


def show_explanation(explanation: Explanation, console: Console) -> None:
    """Print the answers of an explained task."""
    columns = _without(explanation.columns(), ("predicted_sd",))
    show_rows("Answers, highest weight first", columns, console)


@contextmanager
def progress(console: Console) -> Iterator[OnSweep | None]:
    """Show sweeps, their change and the time left on a terminal, and nothing elsewhere."""
    if not console.is_terminal:
        yield None
        return
    with _bar(console) as bar:
        shown, fraction = bar.add_task("aggregating", total=1.0), Fraction()

        def on_sweep(what: str, number: int, change: float, tol: float) -> None:
            if number == 1:
                bar.reset(shown)
            done = fraction.after(number, change, tol)
            text = f", change {change:.1e}" if np.isfinite(change) else ""
            bar.update(shown, completed=done, description=f"{what}: sweep {number}{text}")

        yield on_sweep


@contextmanager
def planning(console: Console) -> Iterator[Callable[[Option], None]]:
    """Show on a terminal which option was predicted last, and nothing elsewhere."""
    with console.status("predicting errors") as status:
        yield lambda option: status.update(
            f"{option.per_task:.3g} answers per task: RMSE {option.prediction.rmse:.4g}"
        )


@contextmanager
def counting(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Show how many instances are done: a bar on a terminal, elsewhere one line at the end."""
    with _bar(console) as bar:
        shown = bar.add_task("starting", total=1)

        def update(what: str, done: int, total: int) -> None:
            bar.update(shown, completed=done, total=total, description=f"{what}: {done} of {total}")
            if done == total and bar.disable:
                console.print(f"{what}: {total} instances")

        yield update


@contextmanager
def _bar(console: Console) -> Iterator[Progress]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    quiet = not console.is_terminal
    bar = Progress(*columns, console=console, transient=True, disable=quiet)
    # Before rich 14, a bar that is started and stopped leaves an empty line, disabled or not.
    with nullcontext() if quiet else bar:
        yield bar


def _without(columns: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Leave out the columns whose names begin like this."""
    return {name: column for name, column in columns.items() if not name.startswith(prefixes)}


def _cell(item: object) -> str:
    text = f"{item:.4g}" if isinstance(item, float) else str(item)
    if text == "nan" or item is None:
        return "-"
    # Ids are the user's data: control characters would steer the terminal, so they are replaced.
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _say_more(console: Console, more: int, what: str) -> None:
    if more > 0:
        console.print(f"... and {more} more {what}", style="dim")
