"""The paper's claims as tests: a statement, the margin that it leaves, and the figure measured.

Margins are drawn from the paper's words and were written down before the figures were seen. "se"
is the standard error over instances, pair by pair where two methods ran on the same instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from voxpop.arrays import Floats
from voxpop.experiments.synthetic import EXAMPLE, EXAMPLE_PER_TASK, paper_model
from voxpop.theory import average_mse, mse_given, oracle_mse

Frames = Mapping[str, pd.DataFrame]
"""The tidy table of each experiment that was run."""
_FIGURES = ("fig1a", "fig1b", "fig1c", "fig1d")
_FIVE = ("average", "nbi", "bi", "weak-oracle", "strong-oracle")
PAPER_TABLE1 = {
    **{"average": 34.99, "nbi": 32.80, "bi": 28.72},
    **{"pg1": 33.54, "weak-oracle": 28.68, "strong-oracle": 28.45},
}
PAPER_TABLE2 = {"average": 355.6, "nbi": 116.1, "bi": 109.8, "strong-oracle": 109.8}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One claim with what was measured; ``passed`` is None where it could not be run."""

    name: str
    claim: str
    margin: str
    measured: str
    passed: bool | None

    @property
    def word(self) -> str:
        """PASS, FAIL or NOT RUN."""
        return {True: "PASS", False: "FAIL", None: "NOT RUN"}[self.passed]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says, what is taken as its confirmation, and how that is found out."""

    name: str
    claim: str
    margin: str
    needs: tuple[str, ...]
    test: Callable[[Frames], tuple[bool, str]]

    def judge(self, frames: Frames) -> Verdict:
        """Judge by the tables at hand."""
        absent = [name for name in self.needs if name not in frames]
        if absent:
            passed, measured = None, f"needs {', '.join(absent)}"
        else:
            passed, measured = self.test(frames)
        return Verdict(
            name=self.name,
            claim=self.claim,
            margin=self.margin,
            measured=measured,
            passed=None if passed is None else bool(passed),
        )


def judge(frames: Frames) -> list[Verdict]:
    """Judge all claims."""
    return [claim.judge(frames) for claim in CLAIMS]


class _Setting:
    """Errors of the methods on the instances of one setting, side by side."""

    def __init__(self, figure: str, rows: pd.DataFrame) -> None:
        self.figure, self.support = figure, str(rows["support"].iloc[0])
        self.l, self.r = (int(rows[name].iloc[0]) for name in ("per_task", "per_worker"))
        self.mse = rows.pivot(index="instance", columns="method", values="mse")

    def __str__(self) -> str:
        return f"{self.figure}, l = {self.l}, r = {self.r}"

    def mean(self, method: str) -> float:
        return float(self.mse[method].mean())

    def se(self, method: str) -> float:
        return _se(self.mse[method].to_numpy())

    def gap(self, above: str, below: str) -> tuple[float, float]:
        """Mean difference of two methods, and its standard error."""
        difference = (self.mse[above] - self.mse[below]).to_numpy()
        return float(difference.mean()), _se(difference)

    def ratio(self, above: str, below: str) -> tuple[float, float]:
        """Ratio of two mean errors, and its standard error."""
        a, b = self.mse[above].to_numpy(), self.mse[below].to_numpy()
        ratio = float(a.mean() / b.mean())
        return ratio, _se(a - ratio * b) / float(b.mean())


def _se(values: Floats) -> float:
    """Standard error; next to nothing for a single value, which is granted no allowance."""
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    return max(float(spread / np.sqrt(len(values))), 1e-12)


def _settings(frames: Frames, *figures: str) -> list[_Setting]:
    return [
        _Setting(figure, rows)
        for figure in figures
        for _, rows in frames[figure].groupby(["support", "per_task", "per_worker"])
    ]


def _near_weak(frames: Frames) -> tuple[bool, str]:
    found = [(*s.ratio("bi", "weak-oracle"), s) for s in _settings(frames, *_FIGURES)]
    worst, _, where = max(found, key=lambda item: item[0])
    mean = np.mean([ratio for ratio, _, _ in found])
    text = f"BI / Weak-Oracle {mean:.3f} on average, at most {worst:.3f} ({where})"
    return all(ratio - 2 * se <= 1.05 for ratio, se, _ in found), text


def _between(frames: Frames) -> tuple[bool, str]:
    steps = [("bi", "weak-oracle"), ("weak-oracle", "strong-oracle")]
    found = [(*s.gap(*step), step, s) for s in _settings(frames, *_FIGURES) for step in steps]
    wrong = [item for item in found if item[0] < -3 * item[1] - 1e-9]
    lowest = min(found, key=lambda item: item[0] / item[1])
    text = f"{len(found) - len(wrong)} of {len(found)} differences not below 0; lowest "
    text += f"{lowest[0]:.2g} ± {lowest[1]:.2g} ({lowest[2][0]} less {lowest[2][1]}, {lowest[3]})"
    return not wrong, text


def _tighter(frames: Frames) -> tuple[bool, str]:
    few = [s for s in _settings(frames, "fig1a", "fig1b") if s.r <= 3]
    found = [(*s.gap("weak-oracle", "strong-oracle"), s) for s in few]
    ratios = [s.ratio("weak-oracle", "strong-oracle")[0] for s in few]
    text = f"Weak / Strong from {min(ratios):.2f} to {max(ratios):.2f} for r <= 3"
    return all(gap > 3 * se for gap, se, _ in found), text


def _exponential(frames: Frames) -> tuple[bool, str]:
    good, texts = True, []
    for figure in ("fig1a", "fig1b"):
        gaps = [(s.r, *s.gap("bi", "strong-oracle")) for s in _settings(frames, figure)]
        kept = np.array([(r, np.log(gap)) for r, gap, se in gaps if gap > 2 * se])
        if len(kept) < 4:
            return False, f"{figure}: only {len(kept)} gaps can be told from 0"
        slope, fit = _line(kept[:, 0], kept[:, 1])
        good &= slope < 0 and fit >= 0.9
        texts.append(f"{figure}: gap ~ exp({slope:.2f} r), R² {fit:.3f}, r = 1 to {kept[-1, 0]:g}")
    return good, "; ".join(texts)


def _strong_constant(frames: Frames) -> tuple[bool, str]:
    found = []
    for s in _settings(frames, "fig1a", "fig1b"):
        expected = oracle_mse(paper_model(s.support), s.l)
        found.append((abs(s.mean("strong-oracle") - expected) / s.se("strong-oracle"), s))
    worst, where = max(found, key=lambda item: item[0])
    return worst <= 4, f"at most {worst:.1f} se from the value without r ({where})"


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope of a straight line through the points, and R²."""
    slope, start = np.polyfit(x, y, 1)
    left = ((y - start - slope * x) ** 2).sum()
    return float(slope), float(1 - left / ((y - y.mean()) ** 2).sum())


def _nbi_factor(frames: Frames) -> tuple[bool, str]:
    found = [s for s in _settings(frames, *_FIGURES) if s.l >= 3 and s.r >= 3]
    ratios = [(*s.ratio("nbi", "bi"), s) for s in found]
    least, most = min(r for r, _, _ in ratios), max(ratios, key=lambda item: item[0])
    text = f"NBI / BI from {least:.2f} to {most[0]:.2f} ({most[2]}), median "
    text += f"{np.median([r for r, _, _ in ratios]):.2f}"
    return all(r + 2 * se >= 1 and r - 2 * se <= 2 for r, se, _ in ratios), text


def _average_far(frames: Frames) -> tuple[bool, str]:
    found = [s for s in _settings(frames, *_FIGURES) if s.l >= 3 and s.r >= 3]
    ratios = [(s.ratio("average", "bi")[0], s) for s in found]
    least, where = min(ratios, key=lambda item: item[0])
    text = f"Average / BI from {least:.1f} ({where}) to {max(r for r, _ in ratios):.1f}"
    return least >= 2, text


def _below_100(frames: Frames) -> tuple[bool, str]:
    mean = {(s.l, m): s.mean(m) for s in _settings(frames, "fig1c") for m in _FIVE}
    sizes = sorted({size for size, _ in mean})
    first = {
        m: next((size for size in sizes if mean[size, m] < 100), None)
        for m in ("bi", "nbi", "average")
    }
    text = f"first l with MSE < 100: BI {first['bi']} ({mean[3, 'bi']:.1f} at 3), "
    text += f"NBI {first['nbi']} ({mean[3, 'nbi']:.1f} at 3), Average {first['average']} "
    text += f"({mean[7, 'average']:.1f} at 7, {mean[9, 'average']:.1f} at 9)"
    return first == {"bi": 3, "nbi": 3, "average": 9}, text


def _spammers(frames: Frames) -> tuple[bool, str]:
    small, large = ({s.l: s for s in _settings(frames, figure)} for figure in ("fig1c", "fig1d"))
    growth = {
        m: [large[size].mean(m) / small[size].mean(m) for size in small if size >= 5]
        for m in ("average", "nbi", "bi")
    }
    text = "S_large / S_small at l >= 5: " + ", ".join(
        f"{m} {min(g):.2f} to {max(g):.2f}" for m, g in growth.items()
    )
    good = min(growth["average"]) >= 4 and max(growth["bi"]) <= 2 and max(growth["nbi"]) <= 2
    return good, text


def _falls_with_l(frames: Frames) -> tuple[bool, str]:
    good, texts = True, []
    for figure in ("fig1c", "fig1d"):
        settings = sorted(_settings(frames, figure), key=lambda s: s.l)
        slope = {}
        for m in _FIVE:
            mean = np.array([s.mean(m) for s in settings])
            good &= bool((np.diff(mean) < 0).all())
            slope[m] = _line(np.array([s.l for s in settings]), np.log(mean))[0]
        good &= slope["bi"] < slope["average"]
        texts.append(f"{figure}: " + ", ".join(f"{m} {rate:.2f}" for m, rate in slope.items()))
    return good, "slopes of log MSE over l, " + "; ".join(texts)


def _formulas(frames: Frames) -> tuple[bool, str]:
    found = []
    for s in _settings(frames, *_FIGURES):
        model = paper_model(s.support)
        for m, expected in (
            ("average", average_mse(model, s.l)),
            ("strong-oracle", oracle_mse(model, s.l)),
        ):
            found.append((abs(s.mean(m) - expected) / s.se(m), m, s))
    worst, m, where = max(found, key=lambda item: item[0])
    return worst <= 4, f"at most {worst:.1f} se off in {len(found)} comparisons ({m}, {where})"


def _one_precise(frames: Frames) -> tuple[bool, str]:
    mean = frames["example"].groupby("method")["mse"].mean()
    others = [EXAMPLE.support[1]] * (EXAMPLE_PER_TASK - 1)
    expected, _ = mse_given([EXAMPLE.support[0], *others], EXAMPLE.dimension)
    text = f"Average {mean['average']:.1f} (formula {expected:.1f}), BI {mean['bi']:.3f}"
    near = abs(mean["average"] / expected - 1) <= 0.1
    return bool(near and mean["bi"] <= 0.05 * mean["average"]), text


def _voc_order(frames: Frames) -> tuple[bool, str]:
    good, texts = True, []
    for share, rows in frames["table2"].groupby("share"):
        mean = rows.groupby("method")["mse"].mean()
        strong, nbi, average = (
            mean[a] / mean[b]
            for a, b in (("bi", "strong-oracle"), ("nbi", "bi"), ("average", "bi"))
        )
        good &= strong <= 1.01 and 1 < nbi <= 1.15 and average >= 2.5
        texts.append(f"share {share}: {strong:.4f}, {nbi:.3f}, {average:.2f}")
    return bool(good), "BI / Strong, NBI / BI, Average / BI at " + "; ".join(texts)


def _voc_level(frames: Frames) -> tuple[bool, str]:
    rows = frames["table2"]
    mean = rows[rows["share"] == 0.472].groupby("method")["mse"].mean()
    off = {m: mean[m] / published - 1 for m, published in PAPER_TABLE2.items()}
    text = ", ".join(f"{m} {mean[m]:.1f} ({100 * o:+.1f} %)" for m, o in off.items())
    return all(abs(o) <= 0.05 for o in off.values()), text


def _closed(rows: pd.DataFrame) -> dict[str, float]:
    """Share of the way down from Average to Strong-Oracle that each method goes."""
    mean = rows.groupby("method")["mse"].mean()
    way = mean["average"] - mean["strong-oracle"]
    way = way if way > 0 else np.nan
    return {str(m): float((mean["average"] - mean[m]) / way) for m in mean.index}


def _ages_close(frames: Frames) -> tuple[bool, str]:
    good, texts = True, []
    for crowd, rows in frames["table1"].groupby("crowd"):
        closed = _closed(rows)
        good &= closed["bi"] >= 0.75 and closed["bi"] > closed["nbi"]
        texts.append(f"{crowd}: BI {closed['bi']:.0%}, NBI {closed['nbi']:.0%}")
    return bool(good), "of the way from Average to Strong-Oracle, " + "; ".join(texts)


def _ages_pg1(frames: Frames) -> tuple[bool, str]:
    good, texts = True, []
    for crowd, rows in frames["table1"].groupby("crowd"):
        mean = rows.groupby("method")["mse"].mean()
        good &= mean["pg1"] > mean["bi"]
        texts.append(f"{crowd}: PG1 {mean['pg1']:.2f}, BI {mean['bi']:.2f}")
    return bool(good), "; ".join(texts)


def _learning(name: str, draw: str) -> Callable[[Frames], tuple[bool, str]]:
    def test(frames: Frames) -> tuple[bool, str]:
        rows = frames[name]
        rows = rows[rows["weighting"] == "none"]
        r2 = rows.pivot(index=draw, columns="method", values="r2")
        better = {m: float((r2[m] > r2["average"]).mean()) for m in ("bi", "nbi")}
        text = "R² " + ", ".join(f"{m} {r2[m].mean():.4f}" for m in ("average", "nbi", "bi"))
        text += f", truth {r2['truth'].mean():.4f}; above Average in {better['bi']:.0%} (BI) and "
        text += f"{better['nbi']:.0%} (NBI) of draws"
        centred = rows.groupby("method")["r2_centred"].mean()
        text += "; mean error taken off: "
        text += ", ".join(f"{m} {centred[m]:.4f}" for m in ("average", "nbi", "bi", "truth"))
        return all(share >= 0.9 for share in better.values()), text

    return test


def _claim(name: str, claim: str, margin: str, needs: tuple[str, ...], test: object) -> Claim:
    return Claim(name=name, claim=claim, margin=margin, needs=needs, test=test)  # type: ignore[arg-type]


CLAIMS = [
    _claim(
        "bi-near-weak-oracle",
        "for all (l, r) BI closely achieves the fundamental limit of Weak-Oracle",
        "BI / Weak-Oracle <= 1.05 (+ 2 se) in every setting",
        _FIGURES,
        _near_weak,
    ),
    _claim(
        "weak-oracle-between",
        "Weak-Oracle lies between BI and Strong-Oracle",
        "both differences >= 0 (- 3 se) in every setting",
        _FIGURES,
        _between,
    ),
    _claim(
        "weak-oracle-tighter",
        "Weak-Oracle is a tighter limit than Strong-Oracle where workers are hard to identify",
        "Weak - Strong > 3 se for r <= 3",
        ("fig1a", "fig1b"),
        _tighter,
    ),
    _claim(
        "gap-exponential-in-r",
        "the gap between BI and Strong-Oracle diminishes exponentially with r",
        "log gap falls on a line in r, R² >= 0.9, over all r with a gap above 2 se",
        ("fig1a", "fig1b"),
        _exponential,
    ),
    _claim(
        "strong-oracle-without-r",
        "the limit of Strong-Oracle does not change with r",
        "within 4 se of the formula at every r",
        ("fig1a", "fig1b"),
        _strong_constant,
    ),
    _claim(
        "nbi-constant-gap",
        "NBI has a small constant gap to BI",
        "1 <= NBI / BI <= 2 (± 2 se) wherever l >= 3, r >= 3",
        _FIGURES,
        _nbi_factor,
    ),
    _claim(
        "average-far-off",
        "Average shows a significant loss compared to BI or even NBI",
        "Average / BI >= 2 wherever l >= 3, r >= 3",
        _FIGURES,
        _average_far,
    ),
    _claim(
        "below-100",
        "MSE < 100 with S_small, r = 5: BI and NBI need l >= 3, Average l >= 9",
        "exactly these l among odd ones",
        ("fig1c",),
        _below_100,
    ),
    _claim(
        "robust-to-spammers",
        "BI and NBI sustain good performance with S_large, Average degenerates",
        "MSE grows at most 2-fold for BI and NBI, at least 4-fold for Average, l >= 5",
        ("fig1c", "fig1d"),
        _spammers,
    ),
    _claim(
        "falls-with-l",
        "increasing l reduces the MSE of all algorithms, with exponents of their own",
        "falls at every step of l for all five, faster for BI than for Average",
        ("fig1c", "fig1d"),
        _falls_with_l,
    ),
    _claim(
        "formulas",
        "MSE of Average and of the oracle as in section 3.2 (arithmetic, harmonic mean)",
        "within 4 se in every setting",
        _FIGURES,
        _formulas,
    ),
    _claim(
        "one-precise-worker",
        "with one precise worker per task Average has about d x / l, BI about 0",
        "Average within 10 % of its formula, BI below 5 % of Average",
        ("example",),
        _one_precise,
    ),
    _claim(
        "voc-order",
        "VOC-07/12: Average far off, NBI near, BI at the Strong-Oracle (3.24, 1.057, 1.000)",
        "BI / Strong <= 1.01, 1 < NBI / BI <= 1.15, Average / BI >= 2.5",
        ("table2",),
        _voc_order,
    ),
    _claim(
        "voc-level",
        "VOC-07/12: 355.6, 116.1, 109.8, 109.8, with the share of good workers at 0.472",
        "each within 5 %",
        ("table2",),
        _voc_level,
    ),
    _claim(
        "fgnet-close-to-oracle",
        "FG-NET: BI with S_est is close to the oracles, others have gaps (BI 96 %, NBI 33 %)",
        "BI goes >= 75 % of the way from Average to Strong-Oracle, and further than NBI",
        ("table1",),
        _ages_close,
    ),
    _claim(
        "fgnet-pg1-worse",
        "FG-NET: PG1 performs worse than BI (33.54 against 28.72)",
        "MSE of PG1 above BI's",
        ("table1",),
        _ages_pg1,
    ),
    _claim(
        "better-labels-reviews",
        "models trained on labels of BI and NBI beat those trained on averages (text, real crowd)",
        "test R² above Average's in 90 % of the resamples",
        ("reviews",),
        _learning("reviews", "resample"),
    ),
    _claim(
        "better-labels-digits",
        "models trained on labels of BI and NBI beat those trained on averages (images, emulated)",
        "test R² above Average's in 90 % of the draws",
        ("digits",),
        _learning("digits", "instance"),
    ),
]
