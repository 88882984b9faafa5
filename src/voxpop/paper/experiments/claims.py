"""The paper's claims: statements, and the margins within which they count as confirmed.

Margins are drawn from the paper's words and were written down before the figures were seen (for
tables 1 and 2, after a single draw; that of the reviews was changed later: see the page "The
paper, reproduced"). A claim about data or machines that are not here stays open, with what was
measured on a stand-in beside it: neither confirmed by an emulation, nor refuted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from voxpop.paper.experiments import measures
from voxpop.paper.experiments.measures import FIGURES, Frames

Test = Callable[[Frames], tuple[bool | None, str]]


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the paper says, what is taken as its confirmation, and how that is found out."""

    name: str
    claim: str
    margin: str
    needs: tuple[str, ...]
    test: Test

    def judge(self, frames: Frames) -> Verdict:
        """Judge by the tables at hand."""
        absent = [name for name in self.needs if name not in frames]
        passed: bool | None = None
        if absent:
            measured = f"not run: needs {', '.join(absent)}"
        else:
            passed, measured = self.test(frames)
        return Verdict(
            name=self.name,
            claim=self.claim,
            margin=self.margin,
            measured=measured,
            passed=None if passed is None else bool(passed),
        )


def judge(frames: Frames, asked: Collection[str]) -> list[Verdict]:
    """Judge the claims that need nothing but the experiments that were asked for."""
    return [claim.judge(frames) for claim in CLAIMS if set(claim.needs) <= set(asked)]


def count(verdicts: Collection[Verdict]) -> str:
    """Say how many claims passed, failed and are open."""
    words = [verdict.word for verdict in verdicts]
    numbers = ", ".join(f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "OPEN"))
    return f"{len(words)} claims: {numbers}"


def _claim(name: str, claim: str, margin: str, needs: tuple[str, ...], test: Test) -> Claim:
    return Claim(name=name, claim=claim, margin=margin, needs=needs, test=test)


CLAIMS = [
    _claim(
        "bi-near-weak-oracle",
        "for all (l, r) BI closely achieves the fundamental limit of Weak-Oracle",
        "BI / Weak-Oracle <= 1.05 (+ 2 se) in every setting",
        FIGURES,
        measures.near_weak,
    ),
    _claim(
        "weak-oracle-between",
        "Weak-Oracle lies between BI and Strong-Oracle",
        "both differences >= 0 (- 3 se) in every setting",
        FIGURES,
        measures.between,
    ),
    _claim(
        "weak-oracle-tighter",
        "Weak-Oracle is a tighter limit than Strong-Oracle where workers are hard to identify",
        "Weak - Strong > 3 se for r <= 3",
        ("fig1a", "fig1b"),
        measures.tighter,
    ),
    _claim(
        "gap-exponential-in-r",
        "the gap between BI and Strong-Oracle diminishes exponentially with r",
        "log gap falls on a line in r, R² >= 0.9, over all r with a gap above 2 se",
        ("fig1a", "fig1b"),
        measures.exponential,
    ),
    _claim(
        "strong-oracle-without-r",
        "the limit of Strong-Oracle does not change with r",
        "within 4 se of the formula at every r",
        ("fig1a", "fig1b"),
        measures.strong_constant,
    ),
    _claim(
        "nbi-constant-gap",
        "NBI has a small constant gap to BI",
        "1 <= NBI / BI <= 2 (± 2 se) wherever l >= 3, r >= 3",
        FIGURES,
        measures.nbi_factor,
    ),
    _claim(
        "average-far-off",
        "Average shows a significant loss compared to BI or even NBI",
        "Average / BI >= 2 wherever l >= 3, r >= 3",
        FIGURES,
        measures.average_far,
    ),
    _claim(
        "below-100",
        "MSE < 100 with S_small, r = 5: BI and NBI need l >= 3, Average l >= 9",
        "exactly these l among odd ones",
        ("fig1c",),
        measures.below_100,
    ),
    _claim(
        "robust-to-spammers",
        "BI and NBI sustain good performance with S_large, Average degenerates",
        "MSE grows at most 2-fold for BI and NBI, at least 4-fold for Average, l >= 5",
        ("fig1c", "fig1d"),
        measures.spammers,
    ),
    _claim(
        "falls-with-l",
        "increasing l reduces the MSE of all algorithms, with exponents of their own",
        "falls at every step of l for all five, faster for BI than for Average",
        ("fig1c", "fig1d"),
        measures.falls_with_l,
    ),
    _claim(
        "formulas",
        "MSE of Average and of the oracle as in section 3.2 (arithmetic, harmonic mean)",
        "within 4 se in every setting",
        FIGURES,
        measures.formulas,
    ),
    _claim(
        "one-precise-worker",
        "with one precise worker per task Average has about d x / l, BI about 0",
        "Average within 10 % of its formula, BI below 5 % of Average",
        ("example",),
        measures.one_precise,
    ),
    _claim(
        "voc-order",
        "VOC-07/12: Average far off, NBI near, BI at the Strong-Oracle (3.24, 1.057, 1.000)",
        "BI / Strong <= 1.01, 1 < NBI / BI <= 1.15, Average / BI >= 2.5",
        ("table2",),
        measures.voc_order,
    ),
    _claim(
        "voc-level",
        "VOC-07/12: 355.6, 116.1, 109.8, 109.8, with the share of good workers at 0.472",
        "each within 5 %",
        ("table2",),
        measures.voc_level,
    ),
    _claim(
        "fgnet-close-to-oracle",
        "FG-NET: BI with S_est is close to the oracles, others have gaps (BI 96 %, NBI 33 %)",
        "on the real crowd, BI goes >= 75 % of the way from Average to Strong-Oracle, and further "
        "than NBI",
        ("table1",),
        measures.ages_close,
    ),
    _claim(
        "fgnet-pg1-worse",
        "FG-NET: PG1 performs worse than BI (33.54 against 28.72)",
        "on the real crowd, MSE of PG1 above BI's",
        ("table1",),
        measures.ages_pg1,
    ),
    _claim(
        "better-labels-detector",
        "detectors trained on labels of BI and NBI beat those trained on averages, and BI's are "
        "close to the oracle's (mAP 71.80, 75.62, 75.94, 76.05)",
        "blood cells, emulated crowd: mAP of BI and NBI above Average's by > 2 se over the draws; "
        "BI goes >= 75 % (+ 2 se) of the way to Strong-Oracle",
        ("detector",),
        measures.detectors,
    ),
    _claim(
        "better-labels-ages",
        "age predictors (FG-NET) trained on labels of BI beat those trained on averages",
        "median absolute error below Average's",
        ("table1",),
        measures.no_age_predictor,
    ),
    _claim(
        "better-labels-digits",
        "models trained on labels of BI and NBI beat those trained on averages: digits, emulated "
        "crowd",
        "test R² above Average's in 90 % of the draws",
        ("digits",),
        measures.beyond_average,
    ),
    _claim(
        "better-labels-reviews",
        "labels nearer to the truth train better models: reviews, a real crowd",
        "rank correlation of label error and test error above 0 in 90 % of the resamples",
        ("reviews",),
        measures.label_order,
    ),
]
