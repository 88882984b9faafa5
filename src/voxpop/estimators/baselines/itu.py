"""P.910 and P.913: the ITU's recommendations for opinion scores, which remove worker bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import (
    mean_by_task,
    mean_by_worker,
    means_or_gold,
    sum_by_task,
    sum_by_worker,
    variance_within_tasks,
)
from voxpop.estimators.base import CheckedEstimator, Estimator, OnSweep, at_least, positive
from voxpop.estimators.iterate import UNDAMPED, iterate_until
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result, Trace

# Lower bound of a worker's variance in P.910, as a share of the median worker's.
_FLOOR = 0.01
# BT.500: answers this many sd off are outliers, where a task's answers look Gaussian or do not.
_FAR_IF_GAUSSIAN, _FAR_OTHERWISE = 2.0, np.sqrt(20.0)
_MOST_OUTLIERS, _LEAST_SKEW = 0.05, 0.3


@dataclass(frozen=True, kw_only=True)
class P910(CheckedEstimator):
    """Bias and inconsistency of every worker by alternating projection (ITU-T P.910 Annex E).

    In turn: a worker's variance is that of its residuals about truth plus bias; the truths are
    means of the answers minus the biases, weighted by inverse variance; a worker's bias is its mean
    residual. The biases average to zero over the workers, unless gold determines them. This is
    also clause 12.6 of P.913, and sureal's ``P910``. Vectors have one bias per coordinate and one
    variance.

    Unlike there, a worker's variance is at least one hundredth of the median worker's, and a worker
    with one answer, which bias explains exactly, counts as an average one. The sd is that of the
    recommendation, from the residuals of the task itself: too small for tasks with few answers (a
    task with one gets the pooled variance).

    References
    ----------
    ITU-T P.910 (07/2022), Annex E. Li, Bampis: Recover Subjective Quality Scores from Noisy
    Measurements, DCC 2017.
    """

    tol: float = positive(1e-9)
    max_iter: int = at_least(1, 2000)
    name: ClassVar[str] = "p910"
    summary: ClassVar[str] = "ITU-T P.910: bias and inconsistency by alternating projection"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        estimate = means_or_gold(answers)
        bias, residual = _biases(answers, estimate)
        variance = mean_by_worker(answers, (residual**2).mean(axis=1))
        several = answers.worker_degree > 1
        least = _FLOOR * float(np.median(variance[several])) if several.any() else 0.0
        unit = float(np.sqrt(variance_within_tasks(answers).mean())) or 1.0

        def precision() -> Floats:
            if not least:
                return np.ones_like(variance)
            typical = float(np.sort(variance[several]).mean())
            return np.asarray(1.0 / np.maximum(np.where(several, variance, typical), least))

        def sweep(_: float) -> float:
            nonlocal estimate, bias, residual, variance
            variance = mean_by_worker(answers, (residual**2).mean(axis=1))
            old, estimate = estimate, means_or_gold(answers, precision()[answers.worker], bias)
            bias, residual = _biases(answers, estimate)
            return float(np.abs(estimate - old).max()) / unit

        trace = iterate_until(sweep, self.tol, self.max_iter, "P.910", on_sweep, UNDAMPED)
        if not answers.is_gold.any():
            # Sorted: the same mean in any order of the workers.
            estimate = estimate + np.sort(bias, axis=0).mean(axis=0)
        own = _mean_variance(answers, residual, np.ones(answers.n_edges), lost=0)
        return _subject_result(self, answers, estimate, variance, own, precision(), trace)


@dataclass(frozen=True, kw_only=True)
class P913(Estimator):
    """Remove every worker's bias, leave out erratic workers, and average (ITU-T P.913, 12.4).

    The bias is the mean residual about the tasks' means. A worker is left out by the rule of
    BT.500: outliers (2 sd where a task's kurtosis is between 2 and 4, else sqrt(20) sd) in more
    than 5 % of all tasks, and about as often above as below. As sureal's ``P913``, for vectors
    coordinate by coordinate; a task all of whose workers are left out keeps them, and a task whose
    answers agree has no outliers.

    References
    ----------
    ITU-T P.913 (06/2021), clause 12.4. ITU-R BT.500-14.
    """

    name: ClassVar[str] = "p913"
    summary: ClassVar[str] = "ITU-T P.913: mean without worker bias, erratic workers left out"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        bias, _ = _biases(answers, means_or_gold(answers))
        corrected = answers.value - bias[answers.worker]
        kept = ~_erratic(answers, corrected)
        per_edge = kept[answers.worker].astype(np.float64)
        lost = sum_by_task(answers, per_edge) == 0
        per_edge[lost[answers.task]] = 1.0
        estimate = means_or_gold(answers, per_edge, bias)
        residual = corrected - estimate[answers.task]
        variance = mean_by_worker(answers, (residual**2).mean(axis=1))
        own = _mean_variance(answers, residual, per_edge, lost=1)
        weight = kept.astype(np.float64)
        return _subject_result(self, answers, estimate, variance, own, weight, Trace())


def _biases(answers: Answers, estimate: Floats) -> tuple[Floats, Floats]:
    """Mean residual of every worker, and the residuals about it."""
    residual = answers.value - estimate[answers.task]
    bias = mean_by_worker(answers, residual)
    return bias, residual - bias[answers.worker]


def _mean_variance(answers: Answers, residual: Floats, used: Floats, lost: int) -> Floats:
    """Variance of the mean of each task's residuals, those used; NaN where there are too few."""
    count = sum_by_task(answers, used[:, None])
    mean = sum_by_task(answers, used[:, None] * residual) / count
    squares = sum_by_task(answers, used[:, None] * (residual - mean[answers.task]) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(count > 1, squares / (count - lost), np.nan) / count)


def _erratic(answers: Answers, value: Floats) -> NDArray[np.bool_]:
    """Workers whom BT.500 leaves out: outliers too often, and on both sides."""
    off = value - mean_by_task(answers, value)[answers.task]
    off = off / (np.abs(off).max() or 1.0)  # fourth powers of large numbers would overflow
    second, fourth = mean_by_task(answers, off**2), mean_by_task(answers, off**4)
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = fourth / second**2
    gaussian = (kurtosis >= 2) & (kurtosis <= 4)
    far = (np.where(gaussian, _FAR_IF_GAUSSIAN, _FAR_OTHERWISE) * np.sqrt(second))[answers.task]
    differs = (second > 0)[answers.task]
    above = sum_by_worker(answers, (differs & (off >= far)).sum(axis=1).astype(np.float64))
    below = sum_by_worker(answers, (differs & (off <= -far)).sum(axis=1).astype(np.float64))
    often = (above + below) / (answers.n_tasks * answers.dimension) > _MOST_OUTLIERS
    balanced = np.abs(above - below) < _LEAST_SKEW * (above + below)
    erratic = np.asarray(often & balanced)
    return np.zeros_like(erratic) if erratic.all() else erratic


def _subject_result(
    estimator: Estimator,
    answers: Answers,
    estimate: Floats,
    variance: Floats,
    own: Floats,
    weight: Floats,
    trace: Trace,
) -> Result:
    """Report truths and the workers' variances; a worker left out has weight zero.

    ``own`` is the variance of each task's mean. Where a task has too few answers, or they agree by
    chance, it is the pooled variance of the workers, or where bias explains every answer, the
    variance within tasks.
    """
    pooled = float((answers.worker_degree * variance).sum() / answers.n_edges)
    pooled = pooled or float(variance_within_tasks(answers).mean())
    of_task = np.where(np.nan_to_num(own) > 0, own, pooled / answers.task_degree[:, None])
    of_worker = np.where((answers.worker_degree > 1) & variance.any(), variance, pooled)
    out = int((weight == 0).sum())
    note = f"{out} of {answers.n_workers} workers were left out as erratic"
    notes = (note,) if out else ()
    return gaussian_result(
        estimator, answers, estimate, of_task, of_worker, weight, trace=trace, notes=notes
    )
