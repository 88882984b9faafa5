"""Metrics: how near a result comes to a known truth, and whether its intervals keep their word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from voxpop.arrays import Floats
from voxpop.errors import DataError
from voxpop.io import read_truth
from voxpop.result import Result


@dataclass(frozen=True, kw_only=True)
class Score:
    """A result against a truth (M24).

    Attributes
    ----------
    n_tasks
        Tasks whose truth is known.
    mse
        Squared distance from the truth, over all coordinates, averaged over tasks: the paper's.
    rmse
        Root of the mean squared error of one coordinate, ``sqrt(mse / dimension)``.
    mae
        Mean absolute error of one coordinate.
    coverage_90, coverage_95
        Share of coordinates inside their 90 and 95 % intervals.
    rank_correlation
        Spearman's correlation of found and true worker variances; None without the latter.
    """

    n_tasks: int
    mse: float
    rmse: float
    mae: float
    coverage_90: float
    coverage_95: float
    rank_correlation: float | None = None

    def as_dict(self) -> dict[str, float | int | None]:
        """Plain numbers by name."""
        return asdict(self)


def score(
    result: Result,
    truth: object,
    worker_variance: Mapping[object, float] | ArrayLike | None = None,
) -> Score:
    """Compare a result with the truth, and optionally with the workers' true variances.

    ``truth`` is an array in the order of ``result.task_ids``, or a mapping, data frame or path
    with one vector per task; tasks without a truth are left out.
    """
    if isinstance(truth, np.ndarray):
        true = truth.reshape(len(result.task_ids), -1)
    else:
        true = read_truth(truth, result.task_ids, result.value_names)
    if true.shape != result.estimate.shape:
        raise DataError(f"truth must have shape {result.estimate.shape}, got {true.shape}")
    known = np.isfinite(true).all(axis=1)
    if not known.any():
        raise DataError("truth: no task has a finite one")
    error = (result.estimate - true)[known]
    mse = float((error**2).sum(axis=1).mean())
    correlation = None
    if worker_variance is not None:
        if isinstance(worker_variance, Mapping):
            worker_variance = [worker_variance[u] for u in result.worker_ids.tolist()]
        correlation = rank_correlation(result.worker_variance, np.asarray(worker_variance))
    return Score(
        n_tasks=int(known.sum()),
        mse=mse,
        rmse=float(np.sqrt(mse / error.shape[1])),
        mae=float(np.abs(error).mean()),
        coverage_90=coverage(*result.interval(0.90), true),
        coverage_95=coverage(*result.interval(0.95), true),
        rank_correlation=correlation,
    )


def coverage(lower: Floats, upper: Floats, truth: Floats) -> float:
    """Share of known truths between their bounds."""
    known = np.isfinite(truth)
    return float(((lower <= truth) & (truth <= upper))[known].mean())


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's rank correlation; 0 where one of the two does not vary."""
    from scipy.stats import rankdata

    x, y = rankdata(a) - (len(a) + 1) / 2, rankdata(b) - (len(b) + 1) / 2
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else 0.0
