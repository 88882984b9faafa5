"""Metrics: the error of a result against a known truth, and the coverage of its intervals."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.tables import finite
from voxpop.data.truths import read_truth, read_variances
from voxpop.errors import DataError
from voxpop.results.result import Result


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
        Share of coordinates inside their 90 and 95 % intervals; NaN if there are none.
    rank_correlation
        Spearman's correlation of estimated and true worker variances; None without the latter.
    """

    n_tasks: int
    mse: float
    rmse: float
    mae: float
    coverage_90: float
    coverage_95: float
    rank_correlation: float | None = None

    def to_dict(self) -> dict[str, float | int | None]:
        """Plain numbers by name; None where there is none."""
        return finite(asdict(self))  # type: ignore[no-any-return]


def score(result: Result, truth: object, worker_variance: object = None) -> Score:
    """Compare a result with the truth, and optionally with the workers' true variances.

    ``truth`` is an array in the order of ``result.task_ids``, or a mapping, data frame or path
    with one vector per task; tasks without a truth are left out. ``worker_variance`` is likewise
    an array, or a mapping, data frame or path with columns ``worker`` and ``variance``.
    """
    true = align_truth(truth, result)
    known = np.isfinite(true).all(axis=1)
    if not known.any():
        raise DataError("truth: no task has a finite value")
    # On a circle the truth is taken where it is nearest to the estimate.
    true = result.scale.nearest(true, result.estimate)
    error = (result.estimate - true)[known]
    mse = float((error**2).sum(axis=1).mean())
    correlation = None
    if worker_variance is not None:
        if isinstance(worker_variance, np.ndarray | list | tuple):
            known_variance = np.array(worker_variance, dtype=np.float64)
        else:
            known_variance = read_variances(worker_variance, result.worker_ids)
        if known_variance.shape != result.worker_variance.shape:
            raise DataError(
                f"worker_variance must be one number for each of {len(result.worker_ids)} workers"
            )
        correlation = rank_correlation(result.worker_variance, known_variance)
    return Score(
        n_tasks=int(known.sum()),
        mse=mse,
        rmse=float(np.sqrt(mse / error.shape[1])),
        mae=float(np.abs(error).mean()),
        coverage_90=coverage(*result.interval(0.90), true),
        coverage_95=coverage(*result.interval(0.95), true),
        rank_correlation=correlation,
    )


def align_truth(truth: object, result: Result) -> Floats:
    """Truths as an array of the shape of the estimates, NaN where unknown; see :func:`score`."""
    if isinstance(truth, np.ndarray | list | tuple):
        true = np.array(truth, dtype=np.float64)
    else:
        true = read_truth(truth, result.task_ids, result.value_names)
    shape = true.shape
    true = true[:, None] if true.ndim == 1 else true
    if true.shape != result.estimate.shape:
        raise DataError(f"truth must have shape {result.estimate.shape}, got {shape}")
    return true


def coverage(lower: Floats, upper: Floats, truth: Floats) -> float:
    """Share of known truths between their bounds."""
    known = np.isfinite(truth) & np.isfinite(lower)
    if not known.any():
        return np.nan
    return float(((lower <= truth) & (truth <= upper))[known].mean())


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's rank correlation; 0 where one of the two does not vary."""
    from scipy.stats import rankdata

    x, y = rankdata(a) - (len(a) + 1) / 2, rankdata(b) - (len(b) + 1) / 2
    scale = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / scale) if scale > 0 else 0.0
