"""Figure 1 as the paper lays it out: error on a logarithmic scale over r or l, with error bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from voxpop.data.tables import replacing
from voxpop.models.theory import average_mse, oracle_mse
from voxpop.paper.experiments.synthetic import PANELS, Panel, paper_model

# Colours that colour-blind readers can tell apart, markers that differ in grey, and lines wide
# enough to be seen below those drawn over them. In the order of drawing.
_STYLES = {
    "average": ("Average", "#999999", "s", 1.2),
    "nbi": ("NBI", "#e69f00", "^", 1.2),
    "weak-oracle": ("Weak-Oracle", "#56b4e9", "x", 4.0),
    "bi": ("BI", "#d55e00", "o", 1.2),
    "strong-oracle": ("Strong-Oracle", "#000000", "v", 1.2),
}
_DEGREES = {"per_worker": "$r$, answers per worker", "per_task": "$\\ell$, answers per task"}
_FIXED = {"per_worker": "$\\ell = 5$", "per_task": "$r = 5$"}


def draw_figures(frames: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """Write every panel that was run, and all four side by side where all were."""
    names = [name for name in PANELS if name in frames]
    pages = {name: [name] for name in names}
    if len(names) == len(PANELS):
        pages["fig1"] = names
    return [path for stem in pages for path in _write(pages[stem], frames, folder / stem)]


def _write(names: list[str], frames: Mapping[str, pd.DataFrame], stem: Path) -> list[Path]:
    # Figure and not pyplot: nothing global, no window, no backend chosen by the machine.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    height = 3.6 if len(names) > 1 else 4.1  # the legend of one panel has several lines
    figure = Figure(figsize=(3.4 * len(names) + 0.4, height), layout="constrained")
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        _draw(axis, name, frames[name])
    axes[0].set_ylabel("mean squared error")
    handles, labels = axes[0].get_legend_handles_labels()
    # Methods first, in the order of drawing; matplotlib puts lines without error bars first.
    handles, labels = (
        part[len(labels) - len(_STYLES) :] + part[: -len(_STYLES)] for part in (handles, labels)
    )
    columns = len(labels) if len(names) > 1 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    paths = []
    for kind in ("png", "svg"):
        path = stem.with_suffix(f".{kind}")
        # Text as text, no date and no random ids inside: the same figures give the same files.
        plain = rc_context({"svg.fonttype": "none", "svg.hashsalt": "voxpop"})
        with replacing(path) as temporary, plain:
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(temporary, format=kind, dpi=110, metadata=metadata)
        paths.append(path)
    return paths


def _draw(axis: Any, name: str, rows: pd.DataFrame) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    panel = PANELS[name]
    for method, (shown, colour, marker, width) in _STYLES.items():
        found = rows[rows["method"] == method].groupby(panel.varies)["mse"]
        mean = found.mean()
        axis.errorbar(
            mean.index,
            mean,
            yerr=np.nan_to_num(found.sem().to_numpy()),
            label=shown,
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=width,
            elinewidth=1.2,
            capsize=2,
            markerfacecolor="none",
        )
    _draw_formulas(axis, panel, rows)
    title = f"({name[-1]}) $S_{{{panel.support}}}$ with {_FIXED[panel.varies]}"
    axis.set(yscale="log", title=title, xlabel=_DEGREES[panel.varies])
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if panel.varies == "per_task":
        axis.set_xticks(sorted(set(rows["per_task"])))
    axis.grid(True, which="both", color="#eeeeee", linewidth=0.6)
    axis.set_axisbelow(True)


def _draw_formulas(axis: Any, panel: Panel, rows: pd.DataFrame) -> None:
    """Dotted: the formulas of section 3.2 for Average and Strong-Oracle."""
    model = paper_model(panel.support)
    per_task = rows.groupby(panel.varies)["per_task"].first()
    for formula, method in ((average_mse, "average"), (oracle_mse, "strong-oracle")):
        expected = [formula(model, int(size)) for size in per_task]
        shown = f"{_STYLES[method][0]}, formula"
        axis.plot(per_task.index, expected, ":", color=_STYLES[method][1], lw=2.5, label=shown)
