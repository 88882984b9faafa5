"""Shrinkage: how far to move a model's estimates towards the mean or the median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.auto.choose import ROUNDING
from voxpop.estimators.auto.compare import ModelComparison
from voxpop.estimators.baselines.averages import Average, Median
from voxpop.estimators.leave_one_out import jackknife_error
from voxpop.models.noise.tails import tail_variance
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result


@dataclass(frozen=True)
class Shrinkage:
    """Which simple method to move estimates towards, and what share of the way."""

    towards: str
    share: float

    def apply(self, answers: Answers, result: Result) -> Result:
        """Mix the posteriors of the model and of the mean or median (M39)."""
        if not self.share:
            return result
        simple = (Average() if self.towards == "mean" else Median()).fit(answers)
        return result.calibrated(Calibration(shrinkage=self.share, towards=self.towards), simple)


def find_shrinkage(comparison: ModelComparison, audit: Audit, freedom: float | None) -> Shrinkage:
    """How far moving to mean or median significantly improves a model's predictions (M39).

    The share of the simple method minimises the weighted squared error of the mixed prediction;
    what it exceeds its sampling error by is taken. Under tails of ``freedom`` degrees an answer
    that is far off counts less.
    """
    answers, usable = comparison.data.answers, comparison.usable
    residual = (answers.value - audit.predicted)[usable]
    tails = np.ones_like(residual)
    if freedom is not None:
        spread = audit.predicted_sd[usable] ** 2 / tail_variance(freedom)
        tails = (freedom + 1.0) / (freedom + residual**2 / spread)
    best = Shrinkage("mean", 0.0)
    for name, simple in comparison.simple.predicted.items():
        move = (simple - audit.truth)[usable]
        # It must be an improvement with workers weighted and with all workers alike.
        share = min(
            _least_share(comparison, weight * tails, residual, move)
            for weight in (comparison.weight, 1.0 / comparison.data.scale**2)
        )
        if share > best.share:
            best = Shrinkage(name, float(min(share, 1.0)))
    return best


def _least_share(
    comparison: ModelComparison, weight: Floats, residual: Floats, move: Floats
) -> float:
    """Lower confidence limit of the share of a move that lowers the squared error most."""
    gain = (weight * residual * move).sum(axis=1)
    size = (weight * move**2).sum(axis=1)
    if size.sum() <= ROUNDING * (weight * residual**2).sum():
        return 0.0
    chance = comparison.critical_value(1) * jackknife_error(gain, size, comparison.owners)
    return float(gain.sum() / size.sum()) - chance
