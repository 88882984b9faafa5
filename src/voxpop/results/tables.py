"""Tables of a result: the columns of its tasks and workers, and how they show themselves."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.tables import frame

if TYPE_CHECKING:
    from voxpop.results.result import Result

# Columns of the quantiles that a result carries, in their order.
BOUNDS = ("lower_95", "lower_90", "upper_90", "upper_95")


def task_columns(result: Result) -> dict[str, Any]:
    """Columns of the tasks: task, the value columns, sd, intervals, number of answers."""
    columns: dict[str, Any] = {"task": result.task_ids}
    columns |= zip(map(estimate_column, result.value_names), result.estimate.T, strict=True)
    # For vectors, sd sums up the coordinates: the root of their mean variance.
    columns["sd"] = np.sqrt(result.variance.mean(axis=1))
    for j, of in enumerate(suffixes(result.value_names)):
        columns[f"sd{of}"] = result.sd[:, j]
        columns |= {BOUNDS[k] + of: result.quantile[:, j, k] for k in (1, 2, 0, 3)}
    if result.task_difficulty.size:
        columns["difficulty"] = result.task_difficulty
    columns["n_answers"] = result.task_answers
    return columns


def worker_columns(result: Result) -> dict[str, Any]:
    """Columns of the workers: id, number of answers, variance, weight, bias, gain, level shares."""
    columns: dict[str, Any] = {
        "worker": result.worker_ids,
        "n_answers": result.worker_answers,
        "variance": result.worker_variance,
        "variance_lower_95": result.worker_interval[:, 0],
        "variance_upper_95": result.worker_interval[:, 1],
        "weight": result.worker_weight,
    }
    if result.worker_bias.size:
        for j, of in enumerate(suffixes(result.value_names)):
            columns[f"bias{of}"] = result.worker_bias[:, j]
            columns[f"bias_sd{of}"] = result.worker_bias_sd[:, j]
    if result.worker_gain.size:
        for j, of in enumerate(suffixes(result.value_names)):
            columns[f"gain{of}"] = result.worker_gain[:, j]
            columns[f"gain_sd{of}"] = result.worker_gain_sd[:, j]
    return columns | dict(zip(level_columns(result.levels), result.worker_posterior.T, strict=True))


def suffixes(names: tuple[str, ...]) -> list[str]:
    """What tells the columns of a coordinate from those of another: nothing if there is one."""
    return [""] if len(names) == 1 else [f"_{name}" for name in names]


def estimate_column(name: str) -> str:
    """Name the column of an estimate like the value, unless the table needs that name itself."""
    ours = name in ("task", "sd", "difficulty", "n_answers") or name.startswith(
        ("sd_", "lower_9", "upper_9")
    )
    return f"{name}_estimate" if ours else name


def level_columns(levels: Floats) -> list[str]:
    """Name the columns of the levels by their first digits, or by all where those do not do."""
    short = [f"p_{level:.6g}" for level in levels]
    return short if len(set(short)) == len(short) else [f"p_{level!r}" for level in levels.tolist()]


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One record of plain values per row."""
    plain = {
        name: [item if isinstance(item, int | float | str) else str(item) for item in column]
        for name, column in ((name, np.asarray(c).tolist()) for name, c in columns.items())
    }
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def as_text(result: Result) -> str:
    """Show a result as text: what was done, the first tasks, the most trusted workers."""
    lines = [f"Result of {result.summary()}", *(f"note: {note}" for note in result.all_notes())]
    for title, columns in _shown(result):
        more = len(next(iter(columns.values()))) - 5
        table = _first_rows(columns, 5).to_string(index=False, float_format=lambda x: f"{x:.4g}")
        lines += [f"{title}:", str(table)] + [f"... and {more} more"] * (more > 0)
    return "\n".join(lines)


def as_html(result: Result) -> str:
    """Show the same in a notebook."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in result.all_notes())
    tables = (
        f"<p>{title.capitalize()}</p>{_first_rows(columns, 10).to_html(index=False)}"
        for title, columns in _shown(result)
    )
    return f"<p><b>{html.escape(result.summary())}</b></p><ul>{notes}</ul>{''.join(tables)}"


def _shown(result: Result) -> tuple[tuple[str, dict[str, Any]], ...]:
    trusted = ("workers, most trusted first", result.trusted_workers())
    return ("tasks", result.task_columns()), trusted


def _first_rows(columns: Mapping[str, Any], n_rows: int) -> Any:
    return frame({name: np.asarray(column)[:n_rows] for name, column in columns.items()}, "pandas")
