"""Figure 1 as the paper lays it out: error on a logarithmic scale over r or l, with error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from voxpop.data.tables import replacing
from voxpop.models.theory import average_mse, oracle_mse
from voxpop.paper.experiments.synthetic import paper_model

# Colours that stay apart for colour-blind readers, markers that stay apart in grey, and lines wide
# enough to be seen below those that lie on them. In the order of drawing.
_STYLES = {
    "average": ("Average", "#999999", "s", 1.2),
    "nbi": ("NBI", "#e69f00", "^", 1.2),
    "weak-oracle": ("Weak-Oracle", "#56b4e9", "x", 4.0),
    "bi": ("BI", "#d55e00", "o", 1.2),
    "strong-oracle": ("Strong-Oracle", "#000000", "v", 1.2),
}
_PANELS = {
    "fig1a": ("(a) $S_{small}$ with $\\ell = 5$", "per_worker", "$r$, answers per worker"),
    "fig1b": ("(b) $S_{large}$ with $\\ell = 5$", "per_worker", "$r$, answers per worker"),
    "fig1c": ("(c) $S_{small}$ with $r = 5$", "per_task", "$\\ell$, answers per task"),
    "fig1d": ("(d) $S_{large}$ with $r = 5$", "per_task", "$\\ell$, answers per task"),
}


def draw_figures(
    frames: Mapping[str, pd.DataFrame], folder: Path, kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write every panel that was run, and all four side by side where all were."""
    names = [name for name in _PANELS if name in frames]
    written = []
    for name in names:
        written += _write([name], frames, folder / name, kinds)
    if len(names) == len(_PANELS):
        written += _write(names, frames, folder / "fig1", kinds)
    return written


def _write(
    names: list[str], frames: Mapping[str, pd.DataFrame], stem: Path, kinds: Sequence[str]
) -> list[Path]:
    # Figure and not pyplot: nothing global, no window, no backend chosen by the machine.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    height = 3.6 if len(names) > 1 else 4.1  # the legend of one panel has several lines
    figure = Figure(figsize=(3.4 * len(names) + 0.4, height), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        _panel(axis, name, frames[name])
    axes[0].set_ylabel("mean squared error")
    handles, labels = axes[0].get_legend_handles_labels()
    # Methods first, in the order of drawing; matplotlib begins with lines that have no bars.
    handles, labels = (
        part[len(labels) - len(_STYLES) :] + part[: -len(_STYLES)] for part in (handles, labels)
    )
    columns = len(labels) if len(names) > 1 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    paths = []
    for kind in kinds:
        path = stem.with_suffix(f".{kind}")
        # Letters as letters, no date and no random names inside: the same figures are the same
        # files.
        plain = rc_context({"svg.fonttype": "none", "svg.hashsalt": "voxpop"})
        with replacing(path) as temporary, plain:
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(temporary, format=kind, dpi=110, metadata=metadata)
        paths.append(path)
    return paths


def _panel(axis: Any, name: str, rows: pd.DataFrame) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    title, column, label = _PANELS[name]
    for method, (shown, colour, marker, width) in _STYLES.items():
        found = rows[rows["method"] == method].groupby(column)["mse"]
        mean = found.mean()
        se = np.nan_to_num(found.std().to_numpy()) / np.sqrt(found.count().to_numpy())
        axis.errorbar(
            mean.index,
            mean,
            yerr=se,
            label=shown,
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=width,
            elinewidth=1.2,
            capsize=2,
            markerfacecolor="none",
        )
    _theory(axis, column, rows)
    axis.set(yscale="log", title=title, xlabel=label)
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if column == "per_task":
        axis.set_xticks(sorted(set(rows[column])))
    axis.grid(True, which="both", color="#eeeeee", linewidth=0.6)
    axis.set_axisbelow(True)


def _theory(axis: Any, column: str, rows: pd.DataFrame) -> None:
    """Dotted: what the formulas of section 3.2 say of Average and Strong-Oracle."""
    model = paper_model(str(rows["support"].iloc[0]))
    per_task = rows.groupby(column)["per_task"].first()
    for formula, method in ((average_mse, "average"), (oracle_mse, "strong-oracle")):
        expected = [formula(model, int(size)) for size in per_task]
        shown = f"{_STYLES[method][0]}, formula"
        axis.plot(per_task.index, expected, ":", color=_STYLES[method][1], lw=2.5, label=shown)
