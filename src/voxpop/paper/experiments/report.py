"""The sheets of a reproduction: tables for people, with the measured beside the published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from voxpop.models.theory import average_mse, oracle_mse
from voxpop.paper.experiments.cells import PAPER_TABLE3
from voxpop.paper.experiments.learning import WEIGHTINGS
from voxpop.paper.experiments.synthetic import METHODS, PANELS, paper_model
from voxpop.paper.experiments.tables import PAPER_TABLE1, PAPER_TABLE2, VOC_PER_TASK, voc_model
from voxpop.paper.experiments.verdicts import Frames, Verdict


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


def _figure(name: str, rows: pd.DataFrame) -> Sheet:
    panel = PANELS[name]
    settings, model = rows.groupby(panel.varies), paper_model(panel.support)
    per_task = settings["per_task"].first()
    columns = {
        panel.symbol: [str(key) for key in per_task.index],
        "instances": [str(n) for n in settings["instance"].nunique()],
    }
    for method in METHODS:
        errors = rows[rows["method"] == method].groupby(panel.varies)["mse"]
        columns[method] = _plus_minus(errors.mean(), errors.sem())
    for title, formula in (("average, formula", average_mse), ("strong, formula", oracle_mse)):
        columns[title] = [f"{formula(model, int(size)):.4g}" for size in per_task]
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
        formulas = {"average": average_mse, "strong-oracle": oracle_mse}
        expected = {m: formula(model, VOC_PER_TASK) for m, formula in formulas.items()}
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
