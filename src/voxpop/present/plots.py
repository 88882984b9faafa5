"""Plots: one function per question, on your axes or on new ones (``pip install 'voxpop[plots]'``).

Every function returns the matplotlib Axes it drew on. New axes belong to a figure of their own:
``ax.figure.savefig("noise.png")``, or ``ax.figure`` as the last line of a notebook's cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.collect.planning.plan import CRITERION_NAMES, Option, Plan
from voxpop.data.answers import Answers
from voxpop.data.objects import SHAPE_NAMES
from voxpop.data.output import replacing
from voxpop.errors import ConfigError, DataError, require
from voxpop.estimators.comparison import Comparison
from voxpop.models.scale import LINEAR
from voxpop.results.answer_weights import answer_weights, require_match
from voxpop.results.audit import Audit
from voxpop.results.prediction import find_id
from voxpop.results.result import Result
from voxpop.words import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Results, highlights, and references to compare with.
BLUE, ORANGE, GREY = "#1f5fa8", "#d9480f", "0.55"
# The most rows whose names are readable, and the number of tasks shown by default.
_MOST_NAMES = 40
_FEW_TASKS = 25
# Area of a dot of weight 0 and of weight 1, in points squared.
_LEAST_DOT, _LARGEST_DOT = 12.0, 120.0
_NORMAL_95 = 1.959964


def plot_task(
    answers: Answers,
    result: Result,
    task: object,
    ax: Axes | None = None,
    *,
    coordinate: str | None = None,
) -> Axes:
    """Who answered what on a task: answers, highest weight first, with estimate, interval and mean.

    Dots are larger with more weight. For vectors, the first coordinate or the one named.
    """
    require_match(answers, result)
    i, j = find_id(result.task_ids, task, "task"), _coordinate(result, coordinate)
    weight, _ = answer_weights(answers, result, np.array([i]))
    edges = np.arange(answers.task_ptr[i], answers.task_ptr[i + 1])
    order = np.argsort(-weight, kind="stable")
    # On a circle answers are drawn where they are nearest to the estimate.
    near = result.scale.nearest(answers.value[edges[order]], result.estimate[i])
    value, row = near[:, j], np.arange(len(edges))
    ax = _rows(ax, 0.25, answers.worker_ids[answers.worker[edges[order]]].tolist(), margin=1.4)
    low, high = result.interval(0.95)
    ax.axvspan(low[i, j], high[i, j], color=BLUE, alpha=0.15, linewidth=0, label="95 % interval")
    ax.axvline(result.estimate[i, j], color=BLUE, label="estimate")
    ax.axvline(value.mean(), color=GREY, linestyle="--", label="mean of the answers")
    ax.scatter(value, row, _dot(weight[order]), color=BLUE, alpha=0.7, zorder=3, label="answers")
    ax.set(xlabel=result.value_names[j], title=f"task {_text(result.task_ids[i])}")
    return _legend(ax, beside=True)


def plot_tasks(
    answers: Answers,
    result: Result,
    tasks: Sequence[object] | None = None,
    ax: Axes | None = None,
    *,
    coordinate: str | None = None,
) -> Axes:
    """Estimates of several tasks with 95 % intervals, over their answers and the answers' means.

    Without ``tasks``, the most uncertain ones. Dots are larger with more weight.
    """
    require_match(answers, result)
    j = _coordinate(result, coordinate)
    if tasks is None:
        chosen = np.argsort(-result.variance[:, j], kind="stable")[:_FEW_TASKS]
    else:
        require(len(tasks) > 0, "tasks must name at least one task")
        chosen = np.array([find_id(result.task_ids, task, "task") for task in tasks])
    weight, _ = answer_weights(answers, result, chosen)
    spans = [np.arange(*answers.task_ptr[i : i + 2]) for i in chosen.tolist()]
    near = result.scale.nearest(answers.value, result.estimate[answers.task])[:, j]
    value = near[np.concatenate(spans)]
    row = np.repeat(np.arange(len(chosen)), answers.task_degree[chosen])
    mean = [near[span].mean() for span in spans]
    ax = _rows(ax, 0.25, result.task_ids[chosen].tolist())
    ax.scatter(value, row, _dot(weight), color=GREY, alpha=0.5, linewidth=0, label="answers")
    ax.plot(mean, np.arange(len(chosen)), "D", color="0.3", fillstyle="none", ms=5, label="mean")
    low, high = (bound[chosen, j] for bound in result.interval(0.95))
    _intervals(ax, result.estimate[chosen, j], low, high, "estimate, 95 % interval")
    ax.set(xlabel=result.value_names[j])
    return _legend(ax, beside=True)


def plot_noise(result: Result, ax: Axes | None = None) -> Axes:
    """Noise sd of every worker with its 95 % interval, least noisy first."""
    order = np.argsort(result.worker_variance, kind="stable")
    sd, bounds = np.sqrt(result.worker_variance), np.sqrt(np.maximum(result.worker_interval, 0.0))
    ax = _rows(ax, 0.2, result.worker_ids[order].tolist())
    _intervals(ax, sd[order], bounds[order, 0], bounds[order, 1], "noise sd, 95 % interval")
    ax.set(xlabel=f"noise sd of the worker{_on_scale(result)}")
    if (sd > 0).all() and (bounds > 0).all() and np.isfinite(bounds).all():
        from matplotlib.ticker import LogLocator, NullFormatter

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    return ax


def plot_bias(result: Result, ax: Axes | None = None, *, coordinate: str | None = None) -> Axes:
    """Bias of every worker with its 95 % interval, lowest first."""
    j = _coordinate(result, coordinate)
    if not result.worker_bias.size:
        raise DataError(
            f"the result has no worker bias: {_method(result)} does not learn it; try "
            "BI(noise=Noise(bias=True))"
        )
    bias, reach = result.worker_bias[:, j], _NORMAL_95 * result.worker_bias_sd[:, j]
    order = np.argsort(bias, kind="stable")
    ax = _rows(ax, 0.2, result.worker_ids[order].tolist())
    ax.axvline(0.0, color=GREY, linewidth=0.8)
    _intervals(ax, bias[order], (bias - reach)[order], (bias + reach)[order], "bias")
    ax.set(xlabel=f"bias of the worker in {result.value_names[j]}{_on_scale(result)}")
    return ax


def plot_pit(result: Result, ax: Axes | None = None, *, bins: int = 20) -> Axes:
    """PIT histogram of left-out answers: uniform where predictions are calibrated.

    It is high at both ends where predictions are too narrow, in the middle where they are too wide,
    and on one side where they are biased.
    """
    require(bins >= 2, f"bins must be at least 2, got {bins}")
    shares = _audit(result).pit_shares(bins)
    ax = ax or new_axes(5.0, 3.5)
    ax.bar(np.arange(bins) / bins, shares, 1 / bins, align="edge", color=BLUE, edgecolor="white")
    ax.axhline(1.0, color=GREY, linestyle=":", label="calibrated")
    ax.set(xlabel="PIT of left-out answers", ylabel="answers / expected", xlim=(0, 1))
    return _legend(ax)


def plot_coverage(result: Result, ax: Axes | None = None) -> Axes:
    """Coverage of prediction intervals: share of left-out answers inside, against the nominal one.

    If the intervals were stretched, also the coverage before that.
    """
    audit = _audit(result)
    nominal = np.arange(1, 20) / 20
    ax = ax or new_axes(4.2, 4.0)
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", label="nominal")
    stretched = audit.is_stretched
    if stretched:
        before = audit.coverage_at(nominal)
        ax.plot(nominal, before, color=ORANGE, linestyle="--", label="before stretching")
    observed = audit.coverage_at(nominal, stretched)
    ax.plot(nominal, observed, color=BLUE, marker="o", ms=4, label="left-out answers inside")
    limits: dict[str, Any] = {"xlim": (0, 1), "ylim": (0, 1), "aspect": "equal"}
    ax.set(xlabel="nominal coverage", ylabel="observed coverage", **limits)
    return _legend(ax)


def plot_convergence(result: Result, ax: Axes | None = None) -> Axes:
    """Largest change in every sweep; rings mark damped sweeps."""
    trace = result.trace
    if not trace.n_sweeps:
        raise DataError(f"the result has no sweeps: {_method(result)} does not iterate")
    sweep, change = np.arange(1, trace.n_sweeps + 1), np.array(trace.changes)
    ax = ax or new_axes(5.0, 3.5)
    end = "converged" if trace.converged else "not converged"
    ax.plot(sweep, change, color=BLUE, marker=".", label=f"{end} after {trace.n_sweeps} sweeps")
    damped = np.array(trace.dampings) > 0
    if damped.any():
        ax.plot(sweep[damped], change[damped], "o", color=ORANGE, fillstyle="none", label="damped")
    ax.set(xlabel="sweep", ylabel="largest change")
    ax.set_yscale("log" if (change > 0).all() else "linear")
    return _legend(ax)


def plot_comparison(found: Comparison, ax: Axes | None = None) -> Axes:
    """Error of every method, least first, and the share inside its 95 % intervals.

    Both are of the truths where they are known, else of left-out answers.
    """
    rows = found.columns()
    names = ("rmse", "coverage_95") if found.scores else ("left_out_rmse", "left_out_95")
    error, inside = (np.array(rows[name]) for name in names)
    order = np.argsort(error, kind="stable")
    ax = _rows(ax, 0.35, [rows["method"][k] for k in order])
    best = [BLUE if k == order[0] else GREY for k in order]
    ax.barh(np.arange(len(order)), error[order], 0.6, color=best, alpha=0.8)
    for row, k in enumerate(order.tolist()):
        text = f" {error[k]:.3g}" + (
            f" ({percent(inside[k])} inside)" if np.isfinite(inside[k]) else ""
        )
        ax.text(float(error[k]), row, text, va="center", fontsize=8)
    ax.margins(x=0.3)
    of = "truths" if found.scores else "left-out answers"
    ax.set(xlabel=f"RMSE of {of} (share inside 95 % intervals)", xlim=(0, None))
    return ax


def plot_budget(plan: Plan, ax: Axes | None = None) -> Axes:
    """Predicted error against budget, with the plain average and the oracle."""
    ax = ax or new_axes()
    rows, name = plan.frontier, plan.criterion
    cost = np.array([o.cost for o in rows])
    accuracy = np.array([o.accuracy(name) for o in rows])
    error = np.array([o.error(name) for o in rows])
    if name == "rmse":
        # Neither of the two has any use for gold questions.
        plain = sorted((o for o in plan.options if not o.gold), key=lambda o: o.cost)
        squares = [(o.prediction.average_mse, o.prediction.oracle_mse) for o in plain]
        average, oracle = np.sqrt(squares).T / np.sqrt(plan.model.dimension)
        money = [o.cost for o in plain]
        ax.plot(money, average, color=GREY, linestyle="--", label="plain average")
        ax.plot(money, oracle, color=GREY, linestyle=":", label="oracle: all noise known")
    ax.fill_between(cost, accuracy - 2 * error, accuracy + 2 * error, color=BLUE, alpha=0.15)
    ax.plot(
        cost, accuracy, color=BLUE, marker="o", markersize=4, label="voxpop (± 2 standard errors)"
    )
    for option in _labelled(rows):
        gold = f" + {option.gold} gold" if option.gold else ""
        text, at = f"{option.per_task:.3g}{gold}", (option.cost, option.accuracy(name))
        ax.annotate(text, at, (3, 5), textcoords="offset points", fontsize=8, color=BLUE)
    if plan.chosen is not None:
        at = (plan.chosen.cost, plan.chosen.accuracy(name))
        ax.plot(*at, marker="o", markersize=11, color=ORANGE, fillstyle="none", zorder=5)
    if plan.target is not None:
        ax.axhline(plan.target, color=ORANGE, linewidth=0.8)
    if plan.budget is not None:
        ax.axvline(plan.budget, color=ORANGE, linewidth=0.8)
    ax.set(xlabel="cost", ylabel=CRITERION_NAMES[name], yscale="log")
    ax.set_title(f"{plan.n_tasks:,} tasks; numbers are answers per task", fontsize=10)
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("{x:g}")
    ax.tick_params(labelsize=8)
    ax.tick_params(which="minor", labelsize=7)
    ax.grid(which="both", alpha=0.2)
    return _legend(ax)


def _labelled(rows: tuple[Option, ...]) -> list[Option]:
    """Leave out labels where points crowd: a point needs a twenty-fifth of the width."""
    kept = list(rows[:1])
    for option in rows[1:]:
        if option.cost - kept[-1].cost >= (rows[-1].cost - rows[0].cost) / 25:
            kept.append(option)
    return kept


def plot_box(answers: Answers, result: Result, task: object, ax: Axes | None = None) -> Axes:
    """A box or point in the image: the answers, their mean and the estimate.

    Values must be named ``xmin, ymin, xmax, ymax``, or ``x, y`` for a point. Answers are bolder
    with more weight, and y runs downwards as in an image.
    """
    from matplotlib.patches import Rectangle

    require_match(answers, result)
    kind = next((k for k, names in SHAPE_NAMES.items() if names == result.value_names), None)
    if kind is None:
        known = " or ".join(", ".join(names) for names in SHAPE_NAMES.values())
        raise DataError(
            f"expected the values {known}, got {', '.join(result.value_names)}; rename the columns"
        )
    i = find_id(result.task_ids, task, "task")
    weight, _ = answer_weights(answers, result, np.array([i]))
    value = answers.value[answers.task_ptr[i] : answers.task_ptr[i + 1]]
    ax = ax or new_axes(6.0, 4.0)

    def draw(place: Floats, label: str | None, color: str, style: str, alpha: float) -> None:
        if kind == "point":
            marker = {"-": "o", "--": "D"}[style]
            face = color if label in ("answers", None) else "none"
            ax.plot(*place, marker, color=color, mfc=face, alpha=alpha, label=label)
            return
        corner, size = place[:2], place[2:] - place[:2]
        look = {"fill": False, "edgecolor": color, "linestyle": style, "alpha": alpha}
        ax.add_patch(Rectangle(corner, *size, label=label, **look))  # type: ignore[arg-type]

    for row, share in enumerate(weight):
        draw(value[row], "answers" if row == 0 else None, GREY, "-", 0.3 + 0.7 * float(share))
    draw(value.mean(axis=0), "mean of the answers", ORANGE, "--", 1.0)
    draw(result.estimate[i], "estimate", BLUE, "-", 1.0)
    ax.autoscale_view()
    ax.set(xlabel="x", ylabel="y", aspect="equal", title=f"task {_text(result.task_ids[i])}")
    if not ax.yaxis_inverted():
        ax.invert_yaxis()
    return _legend(ax, beside=True)


def new_axes(width: float = 7.0, height: float = 4.5) -> Axes:
    """Axes in a new figure.

    Made by Figure, not pyplot: there is no window, no backend to choose, nothing to close.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("a plot needs matplotlib: pip install 'voxpop[plots]'") from None
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def save_figure(figure: Figure | Any, path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF; an older file is replaced only when it is complete."""
    place = Path(path)
    require(
        place.suffix in (".png", ".svg", ".pdf"),
        f"a plot is a .png, .svg or .pdf file, got {place.name!r}",
    )
    with replacing(place) as temporary:
        figure.savefig(temporary, dpi=150)
    return place


def _coordinate(result: Result, name: str | None) -> int:
    if name is None:
        return 0
    names = list(result.value_names)
    require(name in names, f"coordinate must be one of {', '.join(names)}, got {name!r}")
    return names.index(name)


def _audit(result: Result) -> Audit:
    if result.audit is None or not result.audit.has_pit:
        raise DataError(
            "the result has no PIT values: no task has two answers, or it was loaded from files, "
            "which contain only a summary; aggregate the answers again"
        )
    return result.audit


def _on_scale(result: Result) -> str:
    """Say which scale workers are measured on, unless it is that of the answers."""
    return "" if result.scale == LINEAR else f" ({result.scale.name} scale)"


def _method(result: Result) -> str:
    return f"method {result.settings.get('method', 'unknown')!r}"


def _dot(weight: Floats) -> Floats:
    return np.asarray(_LEAST_DOT + (_LARGEST_DOT - _LEAST_DOT) * weight)


def _intervals(ax: Axes, middle: Floats, low: Floats, high: Floats, label: str) -> None:
    """A dot in each row and a line from low to high, which need not contain the dot."""
    row: Index = np.arange(len(middle))
    ax.hlines(row, low, high, color=BLUE, linewidth=1.5, alpha=0.6)
    ax.plot(middle, row, "o", color=BLUE, markersize=4, label=label)


def _rows(ax: Axes | None, height: float, names: list[object], margin: float = 1.2) -> Axes:
    """Axes with named rows from the top down; too many names to read are only counted."""
    ax = ax or new_axes(6.0, margin + height * min(len(names), _MOST_NAMES))
    ax.set_ylim(len(names) - 0.5, -0.5)
    if len(names) <= _MOST_NAMES:
        ax.set_yticks(range(len(names)), [_text(name) for name in names], fontsize=8)
    else:
        ax.set_ylabel(f"{len(names):,} rows")
    return ax


def _legend(ax: Axes, beside: bool = False) -> Axes:
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)} if beside else {}
    ax.legend(fontsize=8, frameon=False, **place)
    return ax


def _text(identity: object) -> str:
    """An id as text: a dollar does not start a formula, and a long id is cut."""
    text = str(identity).replace("$", r"\$")
    return text if len(text) <= 40 else f"{text[:40]}…"
