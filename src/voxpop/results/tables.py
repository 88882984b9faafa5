"""Tables of a result: the columns of its tasks and workers, and how they are displayed."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import columns_taken
from voxpop.data.tables import frame
from voxpop.results.intervals import notes_on_intervals
from voxpop.words import counted

if TYPE_CHECKING:
    from voxpop.results.result import Result

# The types of JSON.
_PLAIN = (int, float, str, type(None))
# Rows that a notebook shows of a table, and those that text does.
_SHOWN, _FEW = 10, 5
# Columns of the quantiles that a result carries, in their order.
BOUNDS = ("lower_95", "lower_90", "upper_90", "upper_95")


def task_columns(result: Result) -> dict[str, Any]:
    """Return the columns of the tasks as arrays: estimates, intervals, and why to look at them."""
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
    columns["needs_a_look"] = _texts(result.review.column(len(result.task_ids)))
    return columns


def worker_columns(result: Result) -> dict[str, Any]:
    """Return the columns of the workers as arrays: noise sd, weight, bias, gain, slips, flags."""
    bounds = np.sqrt(np.maximum(result.worker_interval, 0.0))
    columns: dict[str, Any] = {
        "worker": result.worker_ids,
        "n_answers": result.worker_answers,
        "noise_sd": np.sqrt(result.worker_variance),
        "noise_sd_lower_95": bounds[:, 0],
        "noise_sd_upper_95": bounds[:, 1],
        "weight": result.worker_weight,
    }
    habits = {
        "bias": (result.worker_bias, result.worker_bias_sd),
        "gain": (result.worker_gain, result.worker_gain_sd),
    }
    for name, (value, sd) in habits.items():
        for j, of in enumerate(suffixes(result.value_names) if value.size else ()):
            columns |= {name + of: value[:, j], f"{name}_sd{of}": sd[:, j]}
    if result.worker_slips.size:
        columns["slip_share"] = result.worker_slips
    if result.review.workers is not None:
        columns["flags"] = _texts(result.review.flags_of(result.worker_ids))
    return columns


def level_table(result: Result) -> dict[str, Any]:
    """Return the workers' probabilities of the noise levels as columns; none without levels."""
    if not result.levels.size:
        return {}
    shares = zip(level_columns(result.levels), result.worker_posterior.T, strict=True)
    return {"worker": result.worker_ids, **dict(shares)}


def trusted_workers(result: Result) -> dict[str, Any]:
    """Return the worker columns, heaviest weight first."""
    order = np.argsort(-result.worker_weight, kind="stable")
    return {name: np.asarray(column)[order] for name, column in worker_columns(result).items()}


def _texts(listed: list[str | None]) -> Ids:
    """An array of texts, of which most are None."""
    array = np.empty(len(listed), dtype=object)
    array[:] = listed
    return array


def suffixes(names: tuple[str, ...]) -> list[str]:
    """The suffix of a coordinate's columns: empty if there is only one."""
    return [""] if len(names) == 1 else [f"_{name}" for name in names]


def estimate_column(name: str) -> str:
    """Name the column of an estimate like the value, unless the table needs that name itself."""
    ours = name in ("task", "sd", "difficulty", "n_answers", "needs_a_look") or name.startswith(
        ("sd_", "lower_9", "upper_9")
    )
    return f"{name}_estimate" if ours else name


def level_columns(levels: Floats) -> list[str]:
    """Name the columns of the levels by their first digits, or by all where those are ambiguous."""
    short = [f"p_{level:.6g}" for level in levels]
    return short if len(set(short)) == len(short) else [f"p_{level!r}" for level in levels.tolist()]


def records(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One record of plain values per row."""
    plain = {
        name: [item if isinstance(item, _PLAIN) else str(item) for item in column]
        for name, column in ((name, np.asarray(c).tolist()) for name, c in columns.items())
    }
    return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]


def summary(result: Result) -> str:
    """Return one line: what was done and how it ended."""
    sweeps = ""
    if result.trace.n_sweeps:
        end = "converged" if result.trace.converged else "not converged"
        sweeps = f", {end} after {result.trace.n_sweeps} sweeps"
    return (
        f"{result.settings.get('method', 'unknown')}: {counted(len(result.task_ids), 'task')} from "
        f"{counted(int(result.worker_answers.sum()), 'answer')} of "
        f"{counted(len(result.worker_ids), 'worker')}{sweeps}"
    )


def all_notes(result: Result) -> list[str]:
    """Return which columns were used, and what was decided from the data."""
    taken = columns_taken(result.settings.get("columns", {}))
    return [*([f"read {taken}"] if taken else []), *result.notes, *interval_notes(result)]


def interval_notes(result: Result) -> list[str]:
    """Return what intervals allow for, and what they were checked against."""
    return notes_on_intervals(result.audit, result.calibration, bool(result.variance.any()))


def look_columns(result: Result, most: int = _SHOWN) -> dict[str, Any]:
    """Return the tasks that most need a look as columns: estimate, 95 % interval, answers, why."""
    rows = result.review.tasks[:most]
    columns: dict[str, Any] = {"task": result.task_ids[rows]}
    low, high = result.interval(0.95)
    for j, (name, of) in enumerate(
        zip(result.value_names, suffixes(result.value_names), strict=True)
    ):
        columns[estimate_column(name)] = result.estimate[rows, j]
        columns |= {f"lower_95{of}": low[rows, j], f"upper_95{of}": high[rows, j]}
    columns["n_answers"] = result.task_answers[rows]
    columns["why"] = _texts([", ".join(reasons) for reasons in result.review.reasons[:most]])
    return columns


def talk_columns(result: Result, most: int = _SHOWN) -> dict[str, Any]:
    """Return the workers to talk to as columns: noise sd, weight, and the evidence in words."""
    found = result.review
    place = {identity: u for u, identity in enumerate(result.worker_ids.tolist())}
    listed = list(found.workers or ())[:most]
    rows = np.array([place[identity] for identity in listed], dtype=np.int64)
    evidence = {} if found.diagnosis is None else found.diagnosis.evidence()
    flags = found.flags_of(result.worker_ids)
    return {
        "worker": result.worker_ids[rows],
        "n_answers": result.worker_answers[rows],
        "noise_sd": np.sqrt(result.worker_variance[rows]),
        "weight": result.worker_weight[rows],
        "why": _texts([evidence.get(w) or flags[u] for w, u in zip(listed, rows, strict=True)]),
    }


def text_table(columns: Mapping[str, Any]) -> str:
    """Show columns as text."""
    table = frame(columns, "pandas")
    return str(table.to_string(index=False, float_format=_number, na_rep="-"))


def html_table(columns: Mapping[str, Any]) -> str:
    """Show columns in a notebook."""
    table = frame(columns, "pandas")
    return str(table.to_html(index=False, float_format=_number, na_rep="", border=0))


def _number(x: float) -> str:
    return f"{x:.4g}"


def as_text(result: Result) -> str:
    """Show a result as text: what is ready, what was done, what needs a look."""
    lines = [result.review.summary(), f"Result of {summary(result)}"]
    lines += [f"note: {note}" for note in result.all_notes()]
    for title, columns, of in _shown(result, _FEW):
        more = of - len(next(iter(columns.values())))
        lines += [f"{title}:", text_table(columns)] + [f"... and {more:,} more"] * (more > 0)
    return "\n".join(lines)


def as_html(result: Result) -> str:
    """Show a result in a notebook: one sentence, what needs a look, whom to talk to."""
    parts = [
        f"<p><b>{html.escape(result.review.summary())}</b><br>{html.escape(summary(result))}</p>"
    ]
    for title, columns, of in _shown(result, _SHOWN):
        n = len(next(iter(columns.values())))
        head = title.capitalize() + (f", the first {n} of {of:,}" if n < of else "")
        parts.append(f"<p>{html.escape(head)}</p>{html_table(columns)}")
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in result.all_notes())
    return f"{''.join(parts)}<details><summary>How it was made</summary><ul>{notes}</ul></details>"


def _shown(result: Result, most: int) -> list[tuple[str, dict[str, Any], int]]:
    """Tables to show, with their titles and how many rows there are in all."""
    found, shown = result.review, []
    if len(found.tasks):
        look = look_columns(result, most)
        if len(result.value_names) > 2:  # no screen is wide enough for the bounds of a box
            look = {n: c for n, c in look.items() if not n.startswith(("lower_", "upper_"))}
        shown.append(("tasks that need a look", look, len(found.tasks)))
    else:
        first = {name: np.asarray(column)[:most] for name, column in task_columns(result).items()}
        plain = ("sd_", "lower_90", "upper_90", "needs_a_look")
        kept = {n: c for n, c in first.items() if not n.startswith(plain)}
        shown.append(("tasks", kept, len(result.task_ids)))
    if found.workers:
        talk = talk_columns(result, most)
        shown.append(("workers to talk to", talk, len(found.workers)))
    return shown
