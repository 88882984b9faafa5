"""What a reproduction shows: tables of measured and published figures, and figure 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from voxpop.data.output import replacing
from voxpop.paper.experiments.cells import PAPER_TABLE3
from voxpop.paper.experiments.claims import Frames, Verdict
from voxpop.paper.experiments.crowds import (
    FORMULAS,
    METHODS,
    PANELS,
    PAPER_TABLE1,
    PAPER_TABLE2,
    VOC_PER_TASK,
    paper_model,
    voc_model,
)
from voxpop.paper.experiments.learning import WEIGHTINGS

# How figure 1 shows a method: colours that colour-blind readers can tell apart, markers that differ
# in grey, and lines wide enough to be seen below those drawn over them. In the order of drawing.
_STYLES = {
    "average": ("Average", "#999999", "s", 1.2),
    "nbi": ("NBI", "#e69f00", "^", 1.2),
    "weak-oracle": ("Weak-Oracle", "#56b4e9", "x", 4.0),
    "bi": ("BI", "#d55e00", "o", 1.2),
    "strong-oracle": ("Strong-Oracle", "#000000", "v", 1.2),
}
_DEGREES = {"per_worker": "$r$, answers per worker", "per_task": "$\\ell$, answers per task"}
_FIXED = {"per_worker": "$\\ell = 5$", "per_task": "$r = 5$"}


Sheet = tuple[str, str, dict[str, pd.Series]]
"""The title of a table, the heading of its rows, and its columns of texts."""


def sheets(frames: Frames) -> dict[str, pd.DataFrame]:
    """Tables of texts by their titles, one per experiment that was run, in the same order."""
    found = {}
    for name, rows in frames.items():
        if name in _SHEETS:
            title, heading, columns = _SHEETS[name](name, rows)
            order = rows[PANELS[name].varies if name in PANELS else "method"].unique()
            # A method without a figure in a column has an empty cell there.
            found[title] = pd.DataFrame(columns, index=order).fillna("")
            found[title].insert(0, heading, found[title].index.map(str))
    return found


def claims_sheet(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """The claims, one line each."""
    lines = [(v.word, v.claim, v.margin, v.measured) for v in verdicts]
    return pd.DataFrame(lines, columns=["", "claim", "margin", "measured"])


def markdown(title: str, table: pd.DataFrame) -> str:
    """A table of texts as Markdown."""
    rows: list[list[str]] = [[*map(str, table)], ["---"] * table.shape[1]]
    rows += table.to_numpy().tolist()
    return f"### {title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _curves(name: str, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Mean errors over a degree, method by method; standard errors; formulas of section 3.2."""
    panel = PANELS[name]
    errors = rows.groupby([panel.varies, "method"])["mse"]
    model = paper_model(panel.support)
    per_task = rows.groupby(panel.varies)["per_task"].first()
    expected = {m: per_task.map(partial(formula, model)) for m, formula in FORMULAS.items()}
    return errors.mean().unstack(), errors.sem().unstack(), pd.DataFrame(expected)


def _figure(name: str, rows: pd.DataFrame) -> Sheet:
    panel, (mean, se, expected) = PANELS[name], _curves(name, rows)
    columns = {"instances": rows.groupby(panel.varies)["instance"].nunique().map(str)}
    columns |= {method: _plus_minus(mean[method], se[method]) for method in METHODS}
    for method, title in (("average", "average"), ("strong-oracle", "strong")):
        columns[f"{title}, formula"] = expected[method].map("{:.4g}".format)
    return f"Figure 1{name[-1]}: MSE ± standard error of the mean", panel.symbol, columns


def _ages(_name: str, rows: pd.DataFrame) -> Sheet:
    columns = {f"MSE, {crowd}": _mean_sd(some, "mse") for crowd, some in rows.groupby("crowd")}
    columns["paper (real crowd)"] = _published(PAPER_TABLE1)
    levels = f"S_est {rows['level_low'].mean():.3g}, {rows['level_high'].mean():.3g}"
    return f"Table 1, FG-NET: {_draws(rows)}; {levels}", "method", columns


def _voc(_name: str, rows: pd.DataFrame) -> Sheet:
    columns = {}
    for share, some in rows.groupby("share", sort=False):
        columns[f"MSE, share {share}"] = _mean_sd(some, "mse")
        model = voc_model(float(str(share)))
        expected = {m: formula(model, VOC_PER_TASK) for m, formula in FORMULAS.items()}
        columns[f"formula, {share}"] = _published(expected)
    columns["paper"] = _published(PAPER_TABLE2)
    title = f"Table 2, VOC-07/12: {_draws(rows)}, by share of good workers"
    return title, "method", columns


def _detector(_name: str, rows: pd.DataFrame) -> Sheet:
    columns = {
        "label MSE": _mean_sd(rows, "label_mse"),
        "mAP": _mean_sd(rows, "map50", 100),
        "mAP at 0.75": _mean_sd(rows, "map75", 100),
        "mAP, 0.5 to 0.95": _mean_sd(rows, "map", 100),
        "overlap": _mean_sd(rows, "overlap"),
    }
    # The crowd differs from draw to draw, so a method's gain is taken draw by draw.
    draws = rows.pivot(index="instance", columns="method", values="map50")
    gain = 100 * draws.sub(draws["average"], axis=0)
    columns["mAP over Average's"] = _plus_minus(gain.mean(), gain.sem())
    for place, title in enumerate(("paper: mAP", "paper: overlap")):
        columns[title] = _published({m: both[place] for m, both in PAPER_TABLE3.items()})
    title = f"Table 3, blood cells (emulated crowd): {_draws(rows)}; gains ± standard error"
    return title, "labels", columns


def _learning(name: str, rows: pd.DataFrame) -> Sheet:
    about, draws = "(emulated crowd): on the other images", _draws(rows)
    label_rmse = {"label RMSE": rows.groupby("method")["label_rmse"].mean()}
    if name == "reviews":
        whole, rows = rows[rows["resample"] == 0], rows[rows["resample"] > 0]
        about, draws = "(real crowd): on 3,506 reviews", _draws(rows, "resample")
        whole = whole[whole["weighting"] == "none"].set_index("method")
        label_rmse["R², all reviews"] = whole["r2"]
    by = {weighting: some.groupby("method") for weighting, some in rows.groupby("weighting")}
    plain = by["none"]
    figures = label_rmse | {
        "R²": plain["r2"].mean(),
        "±": plain["r2"].std(),  # apart, so that no cell is broken
        "RMSE": plain["rmse"].mean(),
        "mean error": plain["shift"].mean(),
        "R², mean error off": plain["r2_centred"].mean(),
    }
    for weighting in WEIGHTINGS[1:]:
        figures[f"R², {weighting}".replace("+", " + ")] = by[weighting]["r2"].mean()
    columns = {title: figure.map("{:.4f}".format) for title, figure in figures.items()}
    return f"Table 3, {name} {about}, {draws}", "labels", columns


_SHEETS: dict[str, Callable[[str, pd.DataFrame], Sheet]] = {
    **dict.fromkeys(PANELS, _figure),
    **{"table1": _ages, "table2": _voc, "detector": _detector},
    **dict.fromkeys(("reviews", "digits"), _learning),
}


def _draws(rows: pd.DataFrame, draw: str = "instance") -> str:
    kind = "draws" if draw == "instance" else "resamples"
    return f"mean of {rows[draw].nunique()} {kind} ± their sd"


def _mean_sd(rows: pd.DataFrame, column: str, factor: float = 1) -> pd.Series:
    """Mean ± standard deviation over the draws, method by method."""
    figures = (factor * rows[column]).groupby(rows["method"])
    return _plus_minus(figures.mean(), figures.std())


def _plus_minus(mean: pd.Series, spread: pd.Series) -> pd.Series:
    pairs = zip(mean, spread, strict=True)
    # Two digits of the spread, but 110 rather than 1.1e+02.
    texts = [f"{m:.4g} ± {float(f'{s:.2g}'):g}" if np.isfinite(s) else f"{m:.4g}" for m, s in pairs]
    return pd.Series(texts, mean.index)


def _published(figures: Mapping[str, float]) -> pd.Series:
    return pd.Series(figures).map("{:.4g}".format)


# ---- Figure 1 as the paper lays it out: error on a logarithmic scale over r or l ----------------


def draw_figures(frames: Frames, folder: Path) -> list[Path]:
    """Write every panel that was run, and all four side by side where all were."""
    names = [name for name in PANELS if name in frames]
    pages = {name: [name] for name in names}
    if len(names) == len(PANELS):
        pages["fig1"] = names
    return [path for stem in pages for path in _write(pages[stem], frames, folder / stem)]


def _write(names: list[str], frames: Frames, stem: Path) -> list[Path]:
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

    panel, (mean, se, expected) = PANELS[name], _curves(name, rows)
    for method, (shown, colour, marker, width) in _STYLES.items():
        axis.errorbar(
            mean.index,
            mean[method],
            yerr=np.nan_to_num(se[method].to_numpy()),
            label=shown,
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=width,
            elinewidth=1.2,
            capsize=2,
            markerfacecolor="none",
        )
    for method in FORMULAS:
        shown, colour, *_ = _STYLES[method]
        label = f"{shown}, formula"
        axis.plot(mean.index, expected[method], ":", color=colour, lw=2.5, label=label)
    title = f"({name[-1]}) $S_{{{panel.support}}}$ with {_FIXED[panel.varies]}"
    axis.set(yscale="log", title=title, xlabel=_DEGREES[panel.varies])
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if panel.varies == "per_task":
        axis.set_xticks(mean.index)
    axis.grid(True, which="both", color="#eeeeee", linewidth=0.6)
    axis.set_axisbelow(True)
