"""Units: workers whose answers are a known factor away, as inches in place of centimetres are."""

from __future__ import annotations

import numpy as np

from voxpop.results.diagnosis.honest_spread import spread, tail
from voxpop.results.diagnosis.worker_tests import PeerMedians, WorkerTest

# Units that people mix up, by what lies between them. Where one factor belongs to several pairs, it
# is told as the commonest.
FACTORS = {
    2.54: "inches and centimetres",
    25.4: "inches and millimetres",
    3.2808: "feet and metres",
    30.48: "feet and centimetres",
    12.0: "inches and feet",
    1.6093: "miles and kilometres",
    2.2046: "pounds and kilograms",
    28.35: "ounces and grams",
    3.7854: "gallons and litres",
    7.0: "days and weeks",
    24.0: "hours and days",
    60.0: "minutes and hours",
    10.0: "millimetres and centimetres",
    100.0: "centimetres and metres, or shares and percentages",
    1000.0: "grams and kilograms",
}
_LOGS = np.log(list(FACTORS))
# A worker's typical ratio is at a factor within this, which rounding may change, or within so many
# standard errors: twice is not 2.2, as pounds are to kilograms.
_NEAR, _ERRORS = 0.03, 2.5
# Single ratios scatter at most so many times as much as is usual for the crowd.
_SCATTER = 2.0
# Fewer distinct values are ratings, which have no units.
_FEWEST_VALUES = 20
# Standard error of a median, in median absolute deviations, times the root of the number.
_OF_MEDIAN = 1.2533 * 1.4826


def nearest_factor(ratio: float) -> tuple[float, str]:
    """The factor between two units that a ratio, or its inverse, is nearest to, and their names."""
    factor = list(FACTORS)[int(np.abs(abs(np.log(ratio)) - _LOGS).argmin())]
    return factor, FACTORS[factor]


def units_test(crowd: PeerMedians, j: int, needed: int) -> WorkerTest:
    """Test whether the ratio of a worker's answers to the others' medians is one between units.

    Honest workers may use more or less of a scale, and some differ much from the rest, so the bias
    test has to allow for a fifth of the crowd. It need not where the typical ratio is just that
    between two units, on small values and on large ones: then the middle of the crowd tells how far
    honest workers differ.
    """
    m = len(crowd.count)
    p, typical = np.ones(m), np.full(m, np.nan)
    judged = crowd.count >= needed
    values = crowd.answers.value[:, j]
    if not judged.any() or values.min() <= 0 or len(np.unique(values)) < _FEWEST_VALUES:
        return WorkerTest(statistic=typical, median=1.0, p=p)
    ratio = np.log(crowd.value[:, j]) - np.log(crowd.other[:, j])
    middle = crowd.median(ratio)
    scatter = crowd.median(np.abs(ratio - middle[crowd.worker]))
    usual = float(np.median(scatter[judged]))
    median = float(np.median(middle[judged]))
    away = middle - median
    error = _OF_MEDIAN * np.maximum(scatter, usual) / np.sqrt(np.maximum(crowd.count, 1))
    off = np.abs(np.abs(away)[:, None] - _LOGS).min(axis=1)
    alike = judged & (off <= np.maximum(_NEAR, _ERRORS * error))
    alike &= scatter <= _SCATTER * usual + _NEAR
    tau = spread(away[judged], error[judged])
    n = int(judged.sum())
    p[alike] = 2 * tail(-np.abs(away[alike]), error[alike], crowd.count[alike], tau, n)
    typical[judged] = np.exp(middle[judged])
    return WorkerTest(statistic=typical, median=float(np.exp(median)), p=p)
