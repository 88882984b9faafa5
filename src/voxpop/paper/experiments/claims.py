"""The tests of the paper's claims: what the tables of the experiments say of ``claims.toml``.

A claim about data or machines that are not here stays open, with what was measured on a stand-in
beside it: an emulation neither confirms nor refutes it.

"se" is the standard error over instances, of paired differences where two methods ran on the same
instance.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import linregress

from voxpop.models.theory import mse_given
from voxpop.paper.experiments.cells import PAPER_TABLE3
from voxpop.paper.experiments.crowds import (
    EXAMPLE,
    EXAMPLE_PER_TASK,
    FORMULAS,
    METHODS,
    PANELS,
    PAPER_TABLE2,
    paper_model,
)
from voxpop.paper.experiments.learning import WITH_TRUTH
from voxpop.words import percent

Frames = Mapping[str, pd.DataFrame]
"""The tidy table of each experiment that was run."""
Outcome = tuple[bool | None, str]
"""Whether the margin is kept (None: that cannot be settled here), and what was measured."""

CLAIMS: dict[str, dict[str, Any]] = tomllib.loads(
    files("voxpop.paper.experiments").joinpath("claims.toml").read_text("utf-8")
)
"""Statement, margin and needed experiments of each claim, in the order of the paper."""
_TESTS: dict[str, Callable[[Frames], Outcome]] = {}


@dataclass(frozen=True)
class Verdict:
    """One claim with what was measured; ``passed`` is None where that cannot settle it."""

    name: str
    claim: str
    margin: str
    measured: str
    passed: bool | None

    @property
    def word(self) -> str:
        """PASS, FAIL or OPEN."""
        return {True: "PASS", False: "FAIL", None: "OPEN"}[self.passed]


def judge(frames: Frames, asked: Collection[str]) -> list[Verdict]:
    """Judge the claims that need only the experiments that were asked for."""
    verdicts = []
    for name, about in CLAIMS.items():
        if not set(about["needs"]) <= set(asked):
            continue
        absent = [need for need in about["needs"] if need not in frames]
        passed, measured = None, f"not run: needs {', '.join(absent)}"
        if not absent:
            passed, measured = _TESTS[name]({need: frames[need] for need in about["needs"]})
        kept = None if passed is None else bool(passed)
        verdicts.append(Verdict(name, about["claim"], about["margin"], measured, kept))
    return verdicts


def count(verdicts: Collection[Verdict]) -> str:
    """Say how many claims passed, failed and are open."""
    words = [verdict.word for verdict in verdicts]
    numbers = ", ".join(f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "OPEN"))
    return f"{len(words)} claims: {numbers}"


def _test(name: str) -> Callable[..., Any]:
    """Make the function below the test of a claim; it gets the tables that the claim needs."""
    return lambda test: _TESTS.setdefault(name, test)


# ---- Figure 1 and section 3.2: errors by setting and instance, in a column per method -----------

_SETTING = ["experiment", "per_task", "per_worker"]


def _errors(frames: Frames, least: int = 1) -> Any:
    """Errors of all instances with at least these l and r."""
    rows = pd.concat(frames.values())
    rows = rows[(rows["per_task"] >= least) & (rows["per_worker"] >= least)]
    return rows.pivot(index=[*_SETTING, "instance"], columns="method", values="mse")


def _means(rows: pd.DataFrame) -> Any:
    """Mean error over l, in a column per method."""
    return rows.groupby(["per_task", "method"])["mse"].mean().unstack()


def _se(values: Any) -> Any:
    """Standard error; next to nothing for a single value, which gets no allowance."""
    return np.fmax(values.sem(), 1e-12)


def _gap(mse: Any, above: str, below: str) -> tuple[Any, Any]:
    """Mean difference of two methods in each setting, and its standard error."""
    difference = (mse[above] - mse[below]).groupby(_SETTING)
    return difference.mean(), _se(difference)


def _ratio(mse: Any, above: str, below: str) -> tuple[Any, Any]:
    """Ratio of two mean errors in each setting, and its standard error."""
    mean = mse.groupby(_SETTING).transform("mean")
    residual = mse[above] - mean[above] / mean[below] * mse[below]
    mean = mean.groupby(_SETTING).first()
    return mean[above] / mean[below], _se(residual.groupby(_SETTING)) / mean[below]


def _from_formula(mse: Any, method: str) -> Any:
    """Distance of the mean error from its formula in each setting, in standard errors."""
    errors = mse[method].groupby(_SETTING)
    expected = [
        FORMULAS[method](paper_model(PANELS[figure].support), per_task)
        for figure, per_task, _ in errors.mean().index
    ]
    return (errors.mean() - expected).abs() / _se(errors)


def _where(setting: Any) -> str:
    return "{}, l = {}, r = {}".format(*setting)


@_test("bi-near-weak-oracle")
def _near_weak(frames: Frames) -> Outcome:
    ratio, se = _ratio(_errors(frames), "bi", "weak-oracle")
    text = f"BI / Weak-Oracle {ratio.mean():.3f} on average, at most {ratio.max():.3f} "
    return (ratio - 2 * se <= 1.05).all(), f"{text}({_where(ratio.idxmax())})"


@_test("weak-oracle-between")
def _between(frames: Frames) -> Outcome:
    steps = {f"{a} less {b}": _gap(_errors(frames), a, b) for a, b in pairwise(METHODS[2:])}
    gap, se = (pd.concat({name: step[i] for name, step in steps.items()}) for i in (0, 1))
    right = gap >= -3 * se - 1e-9
    step, *setting = lowest = (gap / se).idxmin()
    text = f"{right.sum()} of {len(gap)} differences not below 0; lowest {gap[lowest]:.2g} ± "
    return right.all(), f"{text}{se[lowest]:.2g} ({step}, {_where(setting)})"


@_test("weak-oracle-tighter")
def _tighter(frames: Frames) -> Outcome:
    mse = _errors(frames).query("per_worker <= 3")
    gap, se = _gap(mse, "weak-oracle", "strong-oracle")
    ratio, _ = _ratio(mse, "weak-oracle", "strong-oracle")
    text = f"Weak / Strong from {ratio.min():.2f} to {ratio.max():.2f} for r <= 3"
    return (gap > 3 * se).all(), text


@_test("gap-exponential-in-r")
def _exponential(frames: Frames) -> Outcome:
    good, texts = True, []
    for figure in frames:
        gap, se = _gap(_errors({figure: frames[figure]}), "bi", "strong-oracle")
        kept = gap[gap > 2 * se]
        if len(kept) < 4:
            return False, f"{figure}: only {len(kept)} gaps above 2 se"
        r = kept.index.get_level_values("per_worker")
        line = linregress(r, np.log(kept))
        good &= line.slope < 0 and line.rvalue**2 >= 0.9
        fit = f"gap ~ exp({line.slope:.2f} r), R² {line.rvalue**2:.3f}"
        texts.append(f"{figure}: {fit}, r = 1 to {r[-1]}")
    return good, "; ".join(texts)


@_test("strong-oracle-without-r")
def _strong_constant(frames: Frames) -> Outcome:
    off = _from_formula(_errors(frames), "strong-oracle")
    text = f"at most {off.max():.1f} se from the value without r ({_where(off.idxmax())})"
    return off.max() <= 4, text


@_test("nbi-constant-gap")
def _nbi_factor(frames: Frames) -> Outcome:
    ratio, se = _ratio(_errors(frames, least=3), "nbi", "bi")
    text = f"NBI / BI from {ratio.min():.2f} to {ratio.max():.2f} ({_where(ratio.idxmax())}), "
    good = (ratio + 2 * se >= 1) & (ratio - 2 * se <= 2)
    return good.all(), f"{text}median {ratio.median():.2f}"


@_test("average-far-off")
def _average_far(frames: Frames) -> Outcome:
    ratio, _ = _ratio(_errors(frames, least=3), "average", "bi")
    text = f"Average / BI from {ratio.min():.1f} ({_where(ratio.idxmin())}) to {ratio.max():.1f}"
    return ratio.min() >= 2, text


@_test("below-100")
def _below_100(frames: Frames) -> Outcome:
    mean = _means(frames["fig1c"])
    bi, nbi, average = first = [
        next(iter(mean.index[mean[m] < 100]), None) for m in ("bi", "nbi", "average")
    ]
    text = f"first l with MSE < 100: BI {bi} ({mean['bi'][3]:.1f} at 3), "
    text += f"NBI {nbi} ({mean['nbi'][3]:.1f} at 3), Average {average} "
    text += f"({mean['average'][7]:.1f} at 7, {mean['average'][9]:.1f} at 9)"
    return first == [3, 3, 9], text


@_test("robust-to-spammers")
def _spammers(frames: Frames) -> Outcome:
    growth = _means(frames["fig1d"]) / _means(frames["fig1c"])
    growth = growth.loc[5:, ["average", "nbi", "bi"]]
    least, most = growth.min(), growth.max()
    texts = [f"{m} {least[m]:.2f} to {most[m]:.2f}" for m in growth]
    good = least["average"] >= 4 and max(most["bi"], most["nbi"]) <= 2
    return good, f"S_large / S_small at l >= 5: {', '.join(texts)}"


@_test("falls-with-l")
def _falls_with_l(frames: Frames) -> Outcome:
    good, texts = True, []
    for figure, rows in frames.items():
        mean = _means(rows)
        slope = {m: linregress(mean.index, np.log(mean[m])).slope for m in METHODS}
        good &= (mean.diff()[1:] < 0).all(axis=None) and slope["bi"] < slope["average"]
        texts.append(f"{figure}: " + ", ".join(f"{m} {rate:.2f}" for m, rate in slope.items()))
    return good, "slopes of log MSE over l, " + "; ".join(texts)


@_test("formulas")
def _formulas(frames: Frames) -> Outcome:
    mse = _errors(frames)
    off = pd.concat({m: _from_formula(mse, m) for m in FORMULAS})
    method, *setting = off.idxmax()
    text = f"at most {off.max():.1f} se off in {len(off)} comparisons ({method}, {_where(setting)})"
    return off.max() <= 4, text


@_test("one-precise-worker")
def _one_precise(frames: Frames) -> Outcome:
    mean = frames["example"].groupby("method")["mse"].mean()
    precise, poor = EXAMPLE.support
    expected, _ = mse_given([precise, *[poor] * (EXAMPLE_PER_TASK - 1)], EXAMPLE.dimension)
    text = f"Average {mean['average']:.1f} (formula {expected:.1f}), BI {mean['bi']:.3f}"
    near = abs(mean["average"] / expected - 1) <= 0.1
    return near and mean["bi"] <= 0.05 * mean["average"], text


# ---- Tables 1 and 2 -----------------------------------------------------------------------------


@_test("voc-order")
def _voc_order(frames: Frames) -> Outcome:
    mean = frames["table2"].groupby(["share", "method"])["mse"].mean().unstack()
    strong, nbi, average = (
        mean[a] / mean[b] for a, b in (("bi", "strong-oracle"), ("nbi", "bi"), ("average", "bi"))
    )
    good = (strong <= 1.01) & (nbi > 1) & (nbi <= 1.15) & (average >= 2.5)
    texts = [f"share {s}: {strong[s]:.4f}, {nbi[s]:.3f}, {average[s]:.2f}" for s in mean.index]
    return bool(good.all()), f"BI / Strong, NBI / BI, Average / BI at {'; '.join(texts)}"


@_test("voc-level")
def _voc_level(frames: Frames) -> Outcome:
    rows = frames["table2"]
    mean = rows[rows["share"] == 0.472].groupby("method")["mse"].mean()
    off = {m: mean[m] / published - 1 for m, published in PAPER_TABLE2.items()}
    text = ", ".join(f"{m} {mean[m]:.1f} ({100 * o:+.1f} %)" for m, o in off.items())
    return all(abs(o) <= 0.05 for o in off.values()), text


def _by_crowd(test: Callable[[pd.DataFrame], Outcome]) -> Callable[[Frames], Outcome]:
    """Judge by the real crowd, where a user has it, and show figures of the emulated ones."""

    def test_crowds(frames: Frames) -> Outcome:
        found = {
            str(crowd): test(rows.pivot(index="instance", columns="method", values="mse"))
            for crowd, rows in frames["table1"].groupby("crowd")
        }
        texts = "; ".join(f"{crowd}: {text}" for crowd, (_, text) in found.items())
        if "real" in found:
            return found["real"][0], texts
        return None, f"not run: the crowd's answers are not public; {texts}"

    return test_crowds


@_test("fgnet-close-to-oracle")
@_by_crowd
def _ages_close(mse: pd.DataFrame) -> Outcome:
    mean = mse.mean()
    way = mean["average"] - mean["strong-oracle"]
    way = way if way > 0 else np.nan
    bi, nbi = ((mean["average"] - mean[m]) / way for m in ("bi", "nbi"))
    return bi >= 0.75 and bi > nbi, f"BI goes {percent(bi)}, NBI {percent(nbi)} of the way"


@_test("fgnet-pg1-worse")
@_by_crowd
def _ages_pg1(mse: pd.DataFrame) -> Outcome:
    gap = mse["pg1"] - mse["bi"]
    text = f"PG1 {mse['pg1'].mean():.2f}, BI {mse['bi'].mean():.2f}"
    if len(gap) > 1:
        text += f" (difference {gap.mean():+.3f} ± {_se(gap):.3f})"
    return gap.mean() > 0, text


# ---- Table 3 ------------------------------------------------------------------------------------


@_test("better-labels-detector")
def _detectors(frames: Frames) -> Outcome:
    # Within a draw all detectors start from the same weights and see the same augmented images.
    found = frames["detector"].pivot(index="instance", columns="method", values="map50")
    means = ", ".join(f"{m} {100 * found[m].mean():.2f}" for m in PAPER_TABLE3)
    gain = {m: found[m] - found["average"] for m in ("nbi", "bi", "strong-oracle")}
    above = all(gain[m].mean() > 2 * _se(gain[m]) for m in ("nbi", "bi"))
    # How far BI stays behind three quarters of the oracle's gain, if it does.
    behind = 0.75 * gain["strong-oracle"] - gain["bi"]
    texts = [f"{m} {100 * g.mean():+.2f} ± {100 * _se(g):.2f}" for m, g in gain.items()]
    text = f"mAP over {len(found)} draws: {means}; over Average: {', '.join(texts)}"
    return above and behind.mean() <= 2 * _se(behind), text


@_test("better-labels-ages")
def _no_age_predictor(_frames: Frames) -> Outcome:
    return None, "not run: the photos of FG-NET and the network's first weights are not here"


def _r2(rows: pd.DataFrame, draw: str, column: str = "r2") -> pd.DataFrame:
    """R² of every draw (rows) and method (columns), with labels weighted equally."""
    plain = rows[rows["weighting"] == "none"]
    return plain.pivot(index=draw, columns="method", values=column)


@_test("better-labels-digits")
def _beyond_average(frames: Frames) -> Outcome:
    r2 = _r2(frames["digits"], "instance")
    bi, nbi = ((r2[m] > r2["average"]).mean() for m in ("bi", "nbi"))
    text = "R² " + ", ".join(f"{m} {r2[m].mean():.4f}" for m in ("average", "nbi", "bi", "truth"))
    text += f"; above Average in {percent(bi)} (BI) and {percent(nbi)} (NBI) of draws"
    return min(bi, nbi) >= 0.9, text


@_test("better-labels-reviews")
def _label_order(frames: Frames) -> Outcome:
    rows = frames["reviews"]
    # Resample 0 is the whole training set, not a draw; labels that use truths do not compete.
    rows = rows[(rows["resample"] > 0) & ~rows["method"].isin(WITH_TRUTH)]
    r2, centred = (_r2(rows, "resample", column) for column in ("r2", "r2_centred"))
    label_error = rows.groupby("method")["label_rmse"].first()[r2.columns]
    order = (-r2).rank(axis=1).corrwith(label_error.rank(), axis=1)
    share = (order > 0).mean()
    # How often BI, NBI and auto beat Average, with and without the labels' common shift.
    plain, shifted = (
        ", ".join(
            f"{percent((some[m] > some['average']).mean())} ({m})" for m in ("bi", "nbi", "auto")
        )
        for some in (r2, centred)
    )
    text = f"rank correlation {order.mean():.2f} ± {order.std():.2f} over {r2.shape[1]} methods, "
    text += (
        f"above 0 in {percent(share)} of resamples; but R² above Average's in {plain}, and with "
    )
    return share >= 0.9, f"{text}the mean error taken off in {shifted}"
