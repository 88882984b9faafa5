"""What a reproduction shows: tables with the measured beside the published, and figure 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from voxpop.data.tables import replacing
from voxpop.paper.experiments.cells import PAPER_TABLE3
from voxpop.paper.experiments.learning import WEIGHTINGS
from voxpop.paper.experiments.synthetic import FORMULAS, METHODS, PANELS, paper_model
from voxpop.paper.experiments.tables import PAPER_TABLE1, PAPER_TABLE2, VOC_PER_TASK, voc_model
from voxpop.paper.experiments.verdicts import Frames, Verdict

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


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A titled table of texts, column by column."""

    title: str
    columns: Mapping[str, Sequence[str]]

    def markdown(self) -> str:
        """The table as Markdown."""
        rows = [list(self.columns), ["---"] * len(self.columns)]
        rows += [list(cells) for cells in zip(*self.columns.values(), strict=True)]
        return f"### {self.title}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def sheets(frames: Frames) -> list[Sheet]:
    """One sheet per experiment that was run, in the order they were."""
    return [_SHEETS[name](name, rows) for name, rows in frames.items() if name in _SHEETS]


def claims_sheet(verdicts: Sequence[Verdict]) -> Sheet:
    """The claims, one line each."""
    columns = {"": "word", "claim": "claim", "margin": "margin", "measured": "measured"}
    return Sheet(
        title="Claims of the paper",
        columns={title: [getattr(v, name) for v in verdicts] for title, name in columns.items()},
    )


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
    columns = {
        panel.symbol: [str(degree) for degree in mean.index],
        "instances": [str(n) for n in rows.groupby(panel.varies)["instance"].nunique()],
    }
    for method in METHODS:
        columns[method] = _plus_minus(mean[method], se[method])
    for method, title in (("average", "average"), ("strong-oracle", "strong")):
        columns[f"{title}, formula"] = [f"{error:.4g}" for error in expected[method]]
    title = f"Figure 1{name[-1]}: MSE ± standard error of the mean"
    return Sheet(title=title, columns=columns)


def _ages(_name: str, rows: pd.DataFrame) -> Sheet:
    methods = _methods(rows)
    columns = {"method": methods}
    for crowd, some in rows.groupby("crowd"):
        columns[f"MSE, {crowd}"] = _mean_sd(some, "mse", methods)
    columns["paper (real crowd)"] = _published(PAPER_TABLE1, methods)
    low, high = rows["level_low"].mean(), rows["level_high"].mean()
    draws = rows["instance"].nunique()
    title = f"Table 1, FG-NET: mean of {draws} draws ± their sd; S_est {low:.3g}, {high:.3g}"
    return Sheet(title=title, columns=columns)


def _voc(_name: str, rows: pd.DataFrame) -> Sheet:
    methods = _methods(rows)
    columns = {"method": methods}
    for share, some in rows.groupby("share", sort=False):
        columns[f"MSE, share {share}"] = _mean_sd(some, "mse", methods)
        model = voc_model(float(str(share)))
        expected = {m: formula(model, VOC_PER_TASK) for m, formula in FORMULAS.items()}
        columns[f"formula, {share}"] = _published(expected, methods)
    columns["paper"] = _published(PAPER_TABLE2, methods)
    draws = rows["instance"].nunique()
    title = f"Table 2, VOC-07/12: mean of {draws} draws ± their sd, by share of good workers"
    return Sheet(title=title, columns=columns)


def _detector(_name: str, rows: pd.DataFrame) -> Sheet:
    methods = _methods(rows)
    columns = {"labels": methods}
    shown = {"label MSE": ("label_mse", 1), "mAP": ("map50", 100), "mAP at 0.75": ("map75", 100)}
    shown |= {"mAP, 0.5 to 0.95": ("map", 100), "overlap": ("overlap", 1)}
    for title, (column, factor) in shown.items():
        columns[title] = _mean_sd(rows, column, methods, factor)
    # The crowd differs from draw to draw, so a method's gain is taken draw by draw.
    draws = rows.pivot(index="instance", columns="method", values="map50")
    gain = 100 * draws.sub(draws["average"], axis=0)[methods]
    columns["mAP over Average's"] = _plus_minus(gain.mean(), gain.sem())
    for place, title in enumerate(("paper: mAP", "paper: overlap")):
        columns[title] = _published({m: both[place] for m, both in PAPER_TABLE3.items()}, methods)
    title = f"Table 3, blood cells (emulated crowd): mean of {len(gain)} draws ± their sd"
    return Sheet(title=f"{title}; gains ± standard error", columns=columns)


def _learning(name: str, rows: pd.DataFrame) -> Sheet:
    methods, whole = _methods(rows), None
    crowd, tested, draws = "emulated", "the other images", f"{rows['instance'].nunique()} draws"
    if name == "reviews":
        whole, rows = rows[rows["resample"] == 0], rows[rows["resample"] > 0]
        crowd, tested, draws = "real", "3,506 reviews", f"{rows['resample'].nunique()} resamples"

    def figures(figure: pd.Series) -> list[str]:
        """One figure per method, empty for a method that has none."""
        return [f"{figure[m]:.4f}" if m in figure else "" for m in methods]

    label_rmse = rows.groupby("method")["label_rmse"].mean()
    columns = {"labels": methods, "label RMSE": figures(label_rmse)}
    if whole is not None:
        columns["R², all reviews"] = figures(
            whole[whole["weighting"] == "none"].set_index("method")["r2"]
        )
    by = {weighting: some.groupby("method") for weighting, some in rows.groupby("weighting")}
    plain = by["none"]
    columns["R²"] = figures(plain["r2"].mean())
    columns["±"] = figures(plain["r2"].std())  # apart, so that no cell is broken
    columns["RMSE"] = figures(plain["rmse"].mean())
    columns["mean error"] = figures(plain["shift"].mean())
    columns["R², mean error off"] = figures(plain["r2_centred"].mean())
    for weighting in WEIGHTINGS[1:]:
        shown = f"R², {weighting}".replace("+", " + ")
        columns[shown] = figures(by[weighting]["r2"].mean())
    title = f"Table 3, {name} ({crowd} crowd): on {tested}, mean of {draws} ± their sd"
    return Sheet(title=title, columns=columns)


_SHEETS: dict[str, Callable[[str, pd.DataFrame], Sheet]] = {
    **dict.fromkeys(PANELS, _figure),
    **{"table1": _ages, "table2": _voc, "detector": _detector},
    **dict.fromkeys(("reviews", "digits"), _learning),
}


def _methods(rows: pd.DataFrame) -> list[str]:
    """Methods in the order of the rows."""
    return list(dict.fromkeys(rows["method"]))


def _mean_sd(rows: pd.DataFrame, column: str, methods: list[str], factor: float = 1) -> list[str]:
    """Mean ± standard deviation over the draws, method by method."""
    figures = (factor * rows[column]).groupby(rows["method"])
    return _plus_minus(figures.mean()[methods], figures.std()[methods])


def _plus_minus(mean: pd.Series, spread: pd.Series) -> list[str]:
    pairs = zip(mean, spread, strict=True)
    # Two digits of the spread, but 110 rather than 1.1e+02.
    return [f"{m:.4g} ± {float(f'{s:.2g}'):g}" if np.isfinite(s) else f"{m:.4g}" for m, s in pairs]


def _published(figures: Mapping[str, float], methods: Sequence[str]) -> list[str]:
    return [f"{figures[m]:.4g}" if m in figures else "" for m in methods]


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
