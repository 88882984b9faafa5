"""Gold first: estimate bias and variance of the workers on gold tasks, then weigh their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task, sum_by_worker, variance_within_tasks, weighted_means
from voxpop.errors import DataError
from voxpop.estimators.base import CheckedEstimator, OnSweep, positive
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result


@dataclass(frozen=True, kw_only=True)
class GoldFirst(CheckedEstimator):
    """Bias and variance of every worker from the gold tasks; then a weighted mean.

    With residuals e of a worker's n gold answers, and a pseudo-count of ``strength`` answers
    without bias and with the crowd's variance v on gold::

        bias = sum e / (n + strength),  s = (strength v + sum |e - bias|^2 / d) / (n + strength)

    A worker without gold answers counts as an average one; the result notes how many there are.
    Only gold tasks inform about the workers. The sd takes their variances as known, and adds the
    variance of the bias, s / (n + strength).

    References
    ----------
    Liu, Ihler, Steyvers: Scoring Workers in Crowdsourcing: How Many Control Questions are
    Enough?, NeurIPS 2013.
    """

    strength: float = positive(1.0)
    name: ClassVar[str] = "gold-first"
    summary: ClassVar[str] = "workers' bias and variance from gold tasks, then a weighted mean"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        if answers.gold is None or not answers.is_gold.any():
            raise DataError(
                "gold-first needs tasks with a known truth, and there are none; give gold "
                "(command line: --gold), or use a method that needs none, such as bi"
            )
        is_gold = answers.is_gold[answers.task]
        truth = np.where(answers.is_gold[:, None], answers.gold, 0.0)
        residual = np.where(is_gold[:, None], answers.value - truth[answers.task], 0.0)
        n_gold = sum_by_worker(answers, is_gold.astype(np.float64))
        count = n_gold + self.strength
        bias = sum_by_worker(answers, residual) / count[:, None]
        spread = np.where(is_gold[:, None], residual - bias[answers.worker], 0.0)
        squared = sum_by_worker(answers, (spread**2).sum(axis=1)) / answers.dimension
        # Of all workers; where gold was answered exactly, the variance within tasks.
        crowd = float(squared.sum() / n_gold.sum())
        crowd = crowd or float(variance_within_tasks(answers).mean())
        variance = (self.strength * crowd + squared) / count
        trust = 1.0 / variance if crowd else np.ones_like(variance)
        precision = trust[answers.worker]
        share = precision / sum_by_task(answers, precision)[answers.task]
        estimate = weighted_means(answers, precision, bias)
        uncertainty = variance + variance / count
        task_variance = sum_by_task(answers, share**2 * uncertainty[answers.worker])[:, None]
        unknown = int((n_gold == 0).sum())
        note = f"{unknown} of {answers.n_workers} workers answered no gold task"
        notes = (note,) if unknown else ()
        return gaussian_result(self, answers, estimate, task_variance, variance, trust, notes=notes)
