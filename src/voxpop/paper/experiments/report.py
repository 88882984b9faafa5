"""What an experiment comes to: tables for people, measured beside published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from voxpop.models.model import Model
from voxpop.models.theory import average_mse, oracle_mse
from voxpop.paper.experiments.claims import Verdict
from voxpop.paper.experiments.learning import WEIGHTINGS
from voxpop.paper.experiments.measures import PAPER_TABLE1, PAPER_TABLE2, PAPER_TABLE3, Frames
from voxpop.paper.experiments.synthetic import paper_model

_SHOWN = ("average", "nbi", "bi", "weak-oracle", "strong-oracle")


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
    makers = {"table1": _ages, "table2": _voc, "reviews": _reviews, "digits": _digits}
    makers["detector"] = _detector
    found = []
    for name, rows in frames.items():
        if name.startswith("fig1"):
            found.append(_figure(name, rows))
        elif name in makers:
            found.append(makers[name](rows))
    return found


def claims_sheet(verdicts: Sequence[Verdict]) -> Sheet:
    """The claims, one line each."""
    return Sheet(
        title="Claims of the paper",
        columns={
            "": [v.word for v in verdicts],
            "claim": [v.claim for v in verdicts],
            "margin": [v.margin for v in verdicts],
            "measured": [v.measured for v in verdicts],
        },
    )


def _figure(name: str, rows: pd.DataFrame) -> Sheet:
    column = "per_worker" if name in ("fig1a", "fig1b") else "per_task"
    settings = rows.groupby(column)
    model = paper_model(str(rows["support"].iloc[0]))
    per_task = settings["per_task"].first()
    columns: dict[str, list[str]] = {
        "r" if column == "per_worker" else "l": [str(key) for key in per_task.index],
        "instances": [str(n) for n in settings["instance"].nunique()],
    }
    for method in _SHOWN:
        errors = rows[rows["method"] == method].groupby(column)["mse"]
        columns[method] = _plus_minus(errors.mean(), errors.std() / np.sqrt(errors.count()))
    for title, formula in (("average, formula", average_mse), ("strong, formula", oracle_mse)):
        columns[title] = [f"{formula(model, int(size)):.4g}" for size in per_task]
    title = f"Figure 1{name[-1]}: MSE ± standard error of the mean"
    return Sheet(title=title, columns=columns)


def _ages(rows: pd.DataFrame) -> Sheet:
    columns: dict[str, list[str]] = {"method": list(dict.fromkeys(rows["method"]))}
    for crowd, some in rows.groupby("crowd"):
        errors = some.groupby("method")["mse"]
        mean = errors.mean()[columns["method"]]
        columns[f"MSE, {crowd}"] = _plus_minus(mean, errors.std()[columns["method"]])
    columns["paper (real crowd)"] = _published(PAPER_TABLE1, columns["method"])
    low, high = rows["level_low"].mean(), rows["level_high"].mean()
    draws = rows["instance"].nunique()
    title = f"Table 1, FG-NET: mean of {draws} draws ± their sd; S_est {low:.3g}, {high:.3g}"
    return Sheet(title=title, columns=columns)


def _voc(rows: pd.DataFrame) -> Sheet:
    columns: dict[str, list[str]] = {"method": list(dict.fromkeys(rows["method"]))}
    for share, some in rows.groupby("share", sort=False):
        errors = some.groupby("method")["mse"]
        mean, sd = (found[columns["method"]] for found in (errors.mean(), errors.std()))
        columns[f"MSE, share {share}"] = _plus_minus(mean, sd)
        probability = float(str(share))
        model = Model(support=(10, 1000), weights=(probability, 1 - probability), dimension=2)
        expected = {"average": average_mse(model, 3), "strong-oracle": oracle_mse(model, 3)}
        columns[f"formula, {share}"] = _published(expected, columns["method"])
    columns["paper"] = _published(PAPER_TABLE2, columns["method"])
    draws = rows["instance"].nunique()
    title = f"Table 2, VOC-07/12: mean of {draws} draws ± their sd, by share of good workers"
    return Sheet(title=title, columns=columns)


def _reviews(rows: pd.DataFrame) -> Sheet:
    return _learning(
        "Table 3, reviews (real crowd): on 3,506 reviews, mean of {n} resamples ± their sd",
        rows[rows["resample"] > 0],
        "resample",
        rows[rows["resample"] == 0],
    )


def _digits(rows: pd.DataFrame) -> Sheet:
    title = "Table 3, digits (emulated crowd): on the other images, mean of {n} draws ± their sd"
    return _learning(title, rows, "instance", None)


def _detector(rows: pd.DataFrame) -> Sheet:
    methods = list(dict.fromkeys(rows["method"]))
    columns: dict[str, list[str]] = {"labels": methods}
    shown = {"label MSE": ("label_mse", 1), "mAP": ("map50", 100), "mAP at 0.75": ("map75", 100)}
    shown |= {"mAP, 0.5 to 0.95": ("map", 100), "overlap": ("overlap", 1)}
    for title, (column, factor) in shown.items():
        figures = (factor * rows[column]).groupby(rows["method"])
        columns[title] = _plus_minus(figures.mean()[methods], figures.std()[methods])
    # The crowd differs from draw to draw; what a method gains is told from the same draws.
    draws = rows.pivot(index="instance", columns="method", values="map50")
    gain = 100 * draws.sub(draws["average"], axis=0)[methods]
    columns["mAP over Average's"] = _plus_minus(gain.mean(), gain.std() / np.sqrt(len(gain)))
    for place, title in enumerate(("paper: mAP", "paper: overlap")):
        columns[title] = _published({m: both[place] for m, both in PAPER_TABLE3.items()}, methods)
    title = f"Table 3, blood cells (emulated crowd): mean of {len(gain)} draws ± their sd"
    return Sheet(title=f"{title}; gains ± standard error", columns=columns)


def _learning(title: str, rows: pd.DataFrame, draw: str, whole: pd.DataFrame | None) -> Sheet:
    methods = list(dict.fromkeys(rows["method"]))
    columns: dict[str, list[str]] = {"labels": methods}
    label = rows.groupby("method")["label_rmse"].mean()
    columns["label RMSE"] = [f"{label[m]:.4f}" for m in methods]
    plain = rows[rows["weighting"] == "none"].groupby("method")
    if whole is not None:
        once = whole[whole["weighting"] == "none"].set_index("method")
        columns["R², all reviews"] = [f"{once['r2'][m]:.4f}" for m in methods]
    columns["R²"] = _each(plain["r2"], methods)
    spread = plain["r2"].std()
    columns["±"] = [f"{spread[m]:.4f}" for m in methods]  # apart, so that no cell is broken
    columns["RMSE"] = _each(plain["rmse"], methods)
    columns["mean error"] = _each(plain["shift"], methods)
    columns["R², mean error off"] = _each(plain["r2_centred"], methods)
    for weighting in WEIGHTINGS[1:]:
        weighted = rows[rows["weighting"] == weighting].groupby("method")["r2"]
        columns[f"R², {weighting}".replace("+", " + ")] = _each(weighted, methods)
    return Sheet(title=title.format(n=rows[draw].nunique()), columns=columns)


def _each(figures: Any, methods: Sequence[str]) -> list[str]:
    """Mean of each method's figures, empty for a method without."""
    mean = figures.mean()
    return [f"{mean[m]:.4f}" if m in mean else "" for m in methods]


def _plus_minus(mean: pd.Series, spread: pd.Series) -> list[str]:
    pairs = zip(mean, spread, strict=True)
    # Two digits of the spread, but 110 rather than 1.1e+02.
    return [f"{m:.4g} ± {float(f'{s:.2g}'):g}" if np.isfinite(s) else f"{m:.4g}" for m, s in pairs]


def _published(figures: Mapping[str, float], methods: Sequence[str]) -> list[str]:
    return [f"{figures[m]:.4g}" if m in figures else "" for m in methods]
