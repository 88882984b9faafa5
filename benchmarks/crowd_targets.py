"""The targets of ``benchmarks.crowds``: every crowd, and what is wanted of the default on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import voxpop as vp
from benchmarks import everyday_crowds as crowds
from benchmarks.crowd_rows import (
    Row,
    Target,
    on_crowd,
    on_judges,
    on_real,
    on_real_with_gold,
    on_several,
    with_bounds,
)
from benchmarks.everyday_crowds import Case

# How a fit is told that workers share no error.
UNSHARED: dict[str, object] = {"method": vp.Auto(shared_error=0.0)}
LEVELS = (0.5, 0.8, 0.9, 0.95)


def _row(
    section: str,
    name: str,
    about: str,
    make: Callable[..., Case],
    *targets: Target,
    over: str = "better",
    bar: str = "",
    period: float | None = None,
    scale: str | None = None,
    **given: object,
) -> Row:
    options = {} if scale is None else {"scale": scale}
    measure = partial(on_crowd, partial(make, **given), period=period, **options)
    return Row(name, section, about, measure, over, targets, bar)


def _most(ratio: float) -> Target:
    return Target(high=ratio)


NO_WORSE = Target(high=1.05, worst=True)
SLIPS = "Slips"
GOLD = "Gold"
JUDGES = "Judges"
SCALES = "Scales"
GAINS = "Gains"
COPIES = "Copies"
REAL = "Real sets without gold"
HONEST = "Intervals and small crowds"


def _slip_rows() -> list[Row]:
    row = partial(_row, SLIPS, over="median")
    known = partial(row, bar="scales known")
    slips, wanted = crowds.slips, (_most(0.9), NO_WORSE)
    return [
        row("slips_none", "no slips", slips, *wanted),
        row("slips_one", "one slip of 1,000 noise units", slips, *wanted, count=1),
        row("slips_five", "5 slips of 1,000", slips, *wanted, count=5),
        row("slips_thirty", "30 slips (5 %) of 100", slips, *wanted, count=30, size=100.0),
        row("slips_up", "30 slips, all up by 1,000", slips, *wanted, count=30, upwards=True),
        row("typos", "decimal typo, x 10, in 3 %", crowds.decimal_typos, *wanted),
        row("second_object", "a second object in 10 %", crowds.second_object, *wanted),
        row("careless", "a fifth slip in 30 %", crowds.careless, *wanted),
        known("cauchy", "Cauchy noise", crowds.cauchy, *wanted),
    ]


def _gold_rows() -> list[Row]:
    row = partial(_row, GOLD, over="best")
    experts = crowds.experts
    rows = [
        row("experts_40_20", "40 % experts, 20 gold", experts, share=0.4, n_gold=20),
        row("experts_40_60", "40 % experts, 60 gold", experts, _most(1.1), share=0.4, n_gold=60),
        row("experts_20_60", "20 % experts, 60 gold", experts, _most(1.35), share=0.2, n_gold=60),
    ]
    for name, n_gold, most in (
        ("peer_grading", 40, 0.62),
        ("moviereviews", 40, 0.52),
        ("snow_wordsim", 10, 0.82),
    ):
        about, measure = f"{name}, {n_gold} gold", partial(on_real_with_gold, name, n_gold)
        rows.append(Row(f"gold_{name}", GOLD, about, measure, "mean", (_most(most),)))
    return rows


def _judge_rows() -> list[Row]:
    as_ridge = Target("to ridge", 1.0)

    def row(name: str, about: str, *targets: Target, **given: object) -> Row:
        measure = partial(on_judges, partial(crowds.judges, **given))
        return Row(name, JUDGES, about, measure, "spread", (*targets, as_ridge), bar="ridge")

    return [
        row("judges_5", "5 judges, 20 gold", _most(0.4)),
        row("judges_3", "3 judges, 20 gold", n_judges=3),
        row("judges_lenient", "5 judges, all lenient, 20 gold", lenient=True),
    ]


def _scale_rows() -> list[Row]:
    row, prices = partial(_row, SCALES), crowds.prices
    rows = []
    for name, sds, plain, logs in (
        ("0.6", (0.6,), 1.0, 0.8),
        ("1", (1.0,), 1.0, 0.7),
        ("mixed", (0.1, 0.3, 1.0), 0.75, 0.6),
    ):
        about = f"prices, log-normal noise {name}"
        rows += [
            row(f"prices_{name}", about, prices, _most(plain), NO_WORSE, sds=sds),
            row(f"prices_{name}_log", f"{about}, log", prices, _most(logs), scale="log", sds=sds),
        ]
    percentages, angles = crowds.percentages, crowds.angles
    return [
        *rows,
        row("counts", "counts", crowds.counts),
        row("counts_sqrt", "counts, sqrt", crowds.counts, scale="sqrt"),
        row("percentages", "percentages", percentages),
        row("percentages_logit", "percentages, logit", percentages, _most(0.72), scale="logit"),
        row("angles", "angles, RMSE in degrees", angles, over="one", period=360.0),
        row(
            "angles_circular",
            "angles, circular, RMSE in degrees",
            angles,
            _most(5.5),
            over="one",
            period=360.0,
            scale="circular",
        ),
        Row(
            "ratings_bounds",
            SCALES,
            "ratings 1 to 5 with bounds",
            partial(with_bounds, crowds.ratings),
            targets=(Target("lost by bounds", 0.01),),
        ),
    ]


def _gain_rows() -> list[Row]:
    row = partial(_row, GAINS, bar="gains known but for their mean")
    gains, covered = crowds.gains, Target("covered", low=0.93)
    return [
        row("gains_narrow", "gains .6 to 1.4", gains, _most(0.72), covered, low=0.6, high=1.4),
        row("gains_wide", "gains .3 to 1.7", gains, _most(0.55), covered, low=0.3, high=1.7),
        row(
            "gains_mixed",
            "gains .3 to 1.7, noise 1, 3, 9",
            gains,
            _most(0.45),
            covered,
            low=0.3,
            high=1.7,
            sds=(1.0, 3.0, 9.0),
        ),
        row("compress", "half compress to .4", crowds.compress),
    ]


def _copy_rows() -> list[Row]:
    row, copies = partial(_row, COPIES, bar="copies known"), crowds.copies
    honest = (
        Target(high=1.9),
        Target("copied tasks covered", low=0.9),
        Target("flagged", low=7 / 8),
    )
    return [
        row("copies", "8 of 30 copy one", copies, _most(0.94)),
        row("copies_noise", "8 of 30 copy one, with noise 1", copies, _most(0.94), noise=1.0),
        row("copies_half", "8 of 30 copy one, half of the time", copies, _most(0.94), often=0.5),
        row("copies_15", "15 of 30 copy one", copies, _most(0.86), count=15),
        row("second_account", "a second account, RMSE", crowds.second_account, *honest, over="one"),
    ]


# RMSE before part 2 of the work on the default, and what a plain Gibbs sampler was seen to reach.
BEFORE = {
    "peer_grading": 1.055,
    "moviereviews": 0.0582,
    "pedestrian_boxes": 5.86,
    "pedestrian_boxes single": 11.26,
    "n_emotion": 17.89,
    "snow_wordsim": 1.094,
}
REACHED = {"peer_grading": 1.04, "moviereviews": 0.052}


def real_row_name(name: str) -> str:
    """Name the row of a real set without gold."""
    return f"real_{name.replace(' ', '_')}"


def _real_rows() -> list[Row]:
    rows = []
    for name, before in BEFORE.items():
        most = min(round(1.01 * before, 4), REACHED.get(name, np.inf))
        targets = (Target(high=most), Target("covered", low=0.8))
        measure = partial(on_real, name)
        rows.append(
            Row(
                real_row_name(name),
                REAL,
                f"{name}, RMSE",
                measure,
                "one",
                targets,
                "Gibbs",
                once=True,
            )
        )
    return rows


def _honest_rows() -> list[Row]:
    rows = []
    within = tuple(
        Target(f"{level:.0%} held", round(level + 0.02, 2), round(level - 0.02, 2))
        for level in LEVELS
    )
    # 20 seeds are 300 broad crowds, and 100 of each small one.
    broad = partial(on_several, crowds.broad, 15, levels=LEVELS, **UNSHARED)
    rows.append(
        Row("broad", HONEST, "broad crowds, 15 a seed", broad, "better", within, pooled=True)
    )
    for n_tasks, n_workers in ((5, 3), (10, 4)):
        make = partial(crowds.small, n_tasks=n_tasks, n_workers=n_workers)
        name, about = (
            f"small_{n_tasks}_{n_workers}",
            f"{n_tasks} tasks x {n_workers} workers, 5 a seed",
        )
        measure = partial(on_several, make, 5)
        rows.append(Row(name, HONEST, about, measure, "better", (_most(1.0),), pooled=True))
    return rows


ROWS = {
    row.name: row
    for row in (
        *_slip_rows(),
        *_gold_rows(),
        *_judge_rows(),
        *_scale_rows(),
        *_gain_rows(),
        *_copy_rows(),
        *_real_rows(),
        *_honest_rows(),
    )
}
