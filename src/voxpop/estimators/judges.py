"""Judges: a few workers who answer nearly every task, and truths regressed on their answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_worker, with_gold
from voxpop.errors import DataError
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.make_result import (
    WorkerNoise,
    make_result,
    relative_weight,
    variance_interval,
)
from voxpop.inference.kernels.posterior import Posterior
from voxpop.results.result import PROBABILITIES, Result

# With fewer known truths the spread of the errors, Student's with n - 1 degrees, has no variance.
_FEWEST_GOLD = 4
# Conditions: at least this many truths, at most this many workers, who answered this share of
# tasks.
_ENOUGH_GOLD, _MOST_JUDGES, _SHARE = 8, 20, 0.5
# Beyond this many workers their covariances, on which missing answers are filled in, mean nothing.
_MOST_WORKERS = 50
# Freedom of single judges, and of the slope, in units of the variance of the errors.
_FREEDOMS = (0.0, *(10.0 ** np.arange(-3.0, 1.6, 0.25)).tolist())
_SLOPE_FREEDOMS = (1.0, 1000.0)
# A judge's own noise is at least this share of the variance of its answers.
_LEAST_NOISE = 0.02
# A score this many robust sds from the prediction by the other judges is a slip. An sd is at least
# this share of the spread of the judge, or judges who copy each other would seem to slip.
_FAR, _LEAST_SPREAD = 8.0, 0.05
# Scores are cut at this many robust sds before they predict each other.
_DRAWN_IN = 3.0
# Sweeps of EM for missing answers, and for the factor; tasks at a time, which bounds the memory.
_SWEEPS, _FACTOR_SWEEPS, _AT_ONCE = 50, 300, 2000


@dataclass(frozen=True, kw_only=True)
class Judges(Estimator):
    """Regress known truths on the answers of a few workers who answer nearly every task.

    For LLM judges and other small panels with at least 8, preferably 20, known truths. The truth
    is a line over a weighted mean of the answers, plus what single judges deserve beyond it (M75).
    Weights are equal, or those of a common factor of all answers (M76), which tasks without a known
    truth show as well. How far single judges may depart from that is learned from gold: all
    settings are averaged by their marginal likelihood, in closed form. Offsets, gains and judges
    who go together are allowed for; a missing answer is filled in from the other judges (M77), and
    so is a slip, which is far from their prediction (M80).

    Intervals are those of the prediction: Student's, with the error of all that is learned.
    """

    name: ClassVar[str] = "judges"
    summary: ClassVar[str] = "regression of the truths on the answers of a few judges; needs gold"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        n_gold = int(answers.is_gold.sum())
        if n_gold < _FEWEST_GOLD:
            raise DataError(
                f"judges needs at least {_FEWEST_GOLD} tasks with a known truth, preferably 20, "
                f"but there are {n_gold}; give gold (command line: --gold), or use a method that "
                "needs none, such as bi"
            )
        if answers.n_workers > _MOST_WORKERS:
            raise DataError(
                f"judges is for at most {_MOST_WORKERS} workers who answer most tasks, and there "
                f"are {answers.n_workers}; use a method for crowds, such as bi"
            )
        return _fit(self, answers)


def fits_judges(answers: Answers) -> bool:
    """Whether 2 to 20 workers answered half of the tasks each, and 8 truths are known."""
    return are_judges(answers.worker_degree, answers.n_tasks, int(answers.is_gold.sum()))


def are_judges(worker_degree: Index, n_tasks: int, n_gold: int) -> bool:
    """As :func:`fits_judges`, from the number of answers of each worker."""
    return bool(
        n_gold >= _ENOUGH_GOLD
        and 2 <= len(worker_degree) <= _MOST_JUDGES
        and worker_degree.min() >= _SHARE * n_tasks
    )


def _fit(estimator: Judges, answers: Answers) -> Result:
    assert answers.gold is not None
    shape = (answers.n_tasks, answers.dimension)
    estimate, variance, weight = np.empty(shape), np.empty(shape), np.zeros(answers.n_workers)
    spread = np.empty((*shape, len(PROBABILITIES)))
    n_gold = int(answers.is_gold.sum())
    for j in range(answers.dimension):
        scores = _Scores(answers, j)
        truth = answers.gold[answers.is_gold, j]
        found = _average(scores, answers.is_gold, truth)
        estimate[:, j], variance[:, j] = found.mean, found.square * (n_gold - 1) / (n_gold - 3)
        spread[:, j] = np.sqrt(found.square)[:, None] * stdtrit(n_gold - 1, PROBABILITIES)
        weight += np.maximum(found.weight, 0.0)
    estimate = with_gold(answers, estimate)
    known = answers.is_gold[:, None]
    quantile = estimate[:, :, None] + np.where(known[:, :, None], 0.0, spread)
    posterior = Posterior(estimate, np.where(known, 0.0, variance), quantile)
    weight = relative_weight(weight) if weight.any() else np.ones(answers.n_workers)
    workers = _noise(answers, estimate, weight)
    return make_result(answers, plain_settings(estimator), posterior, workers)


class _Scores:
    """The answers as a table of tasks by judges, centred, in one coordinate; none is missing.

    A missing answer is predicted from the others, by the joint Gaussian of all judges (M77); a
    slip counts as missing.
    """

    def __init__(self, answers: Answers, j: int) -> None:
        table = np.full((answers.n_tasks, answers.n_workers), np.nan)
        table[answers.task, answers.worker] = answers.value[:, j]
        table[_slips(table)] = np.nan
        self._seen = ~np.isnan(table)
        centre = np.nanmean(table, axis=0)
        # In units of the whole table, so that no number is too large or too small to be squared.
        self.unit = float(np.abs(np.where(self._seen, table - centre, 0.0)).max()) or 1.0
        self.table = np.where(self._seen, (table - centre) / self.unit, 0.0)
        self.covariance, self._mean = _covariance(self.table), np.zeros(answers.n_workers)
        if self._seen.all():
            return
        for _ in range(_SWEEPS):
            doubt = np.zeros_like(self.covariance)
            for rows, expected, lack in self._fill_in():
                self.table[rows] = expected
                doubt += lack.sum(axis=0)
            old = self.covariance
            self._mean = self.table.mean(axis=0)
            self.covariance = _covariance(self.table) + doubt / len(table)
            if np.abs(self.covariance - old).max() <= 1e-6 * np.abs(self.covariance).max():
                break

    def _fill_in(self) -> Iterator[tuple[NDArray[np.int64], Floats, Floats]]:
        """Yield tasks that lack answers, with the gaps filled in, and the gaps' covariance."""
        lacking, eye = np.flatnonzero(~self._seen.all(axis=1)), np.eye(len(self._mean))
        for start in range(0, len(lacking), _AT_ONCE):
            rows = lacking[start : start + _AT_ONCE]
            here = self._seen[rows]
            both = here[:, :, None] & here[:, None, :]
            # A missing judge is a row of the unit matrix: it takes no part.
            inverse = np.linalg.inv(np.where(both, self.covariance, eye)) * both
            regression = self.covariance @ inverse
            off = np.where(here, self.table[rows] - self._mean, 0.0)
            expected = self._mean + np.einsum("njk,nk->nj", regression, off)
            neither = ~here[:, :, None] & ~here[:, None, :]
            lack = (self.covariance - regression @ self.covariance) * neither
            yield rows, np.where(here, self.table[rows], expected), lack

    def doubt(self, weight: Floats) -> Floats:
        """Variance of the weighted answers of each task for want of those that are missing."""
        found = np.zeros(len(self.table))
        for rows, _, lack in self._fill_in():
            found[rows] = np.einsum("j,njk,k->n", weight, lack, weight)
        return found

    def directions(self) -> list[Floats]:
        """Weights of the judges in the line: equal ones, and those of a common factor (M76)."""
        m = len(self._mean)
        equal = np.full(m, 1.0 / m)
        return [equal, _factor(self.covariance)] if m > 2 else [equal]


def _slips(table: Floats) -> NDArray[np.bool_]:
    """Return which scores are slips: far from the prediction by the other judges (M80)."""
    if table.shape[1] < 2:
        return np.zeros(table.shape, dtype=bool)
    seen = ~np.isnan(table)
    z = _robust(table)
    drawn = np.clip(z, -_DRAWN_IN, _DRAWN_IN)
    precision = np.linalg.inv(_covariance(drawn))
    expected = drawn - drawn @ precision / np.diag(precision)
    away = _robust(np.where(seen, z - expected, np.nan), _LEAST_SPREAD)
    return np.asarray(np.abs(away) > _FAR)


def _robust(table: Floats, least: float = 0.0) -> Floats:
    """Columns about their medians, in robust sds; 0 where missing, or where most are equal."""
    away = table - np.nanmedian(table, axis=0)
    sd = np.maximum(1.4826 * np.nanmedian(np.abs(away), axis=0), least)
    return np.nan_to_num(np.divide(away, sd, out=np.zeros_like(away), where=sd > 0))


def _covariance(table: Floats) -> Floats:
    """Covariances, a little apart from singular: judges may be copies of each other."""
    centred = table - table.mean(axis=0)
    found = centred.T @ centred / len(table)
    diagonal = np.diag(found)
    floor = 1e-6 * diagonal + 1e-12 * (diagonal.max() or 1.0)
    return np.asarray(found + np.diag(floor))


def _factor(covariance: Floats) -> Floats:
    """Weights of the answers in the factor that all judges share, by EM (M76).

    In units of the judges' mean gain, so that the weighted answers are on the scale of their mean.
    """
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sd, sd)
    values, vectors = np.linalg.eigh(correlation)
    gain = vectors[:, -1] * np.sqrt(values[-1])
    gain = gain * (1.0 if gain.sum() >= 0 else -1.0)
    noise = np.maximum(1.0 - gain**2, _LEAST_NOISE)
    for _ in range(_FACTOR_SWEEPS):
        tell = gain / noise / (1.0 + (gain**2 / noise).sum())
        with_factor = correlation @ tell
        gain = with_factor / (1.0 - tell @ gain + tell @ with_factor)
        noise = np.maximum(1.0 - gain * with_factor, _LEAST_NOISE)
    tell = gain / noise / (1.0 + (gain**2 / noise).sum())
    return np.asarray((gain * sd).mean() * tell / sd)


@dataclass(frozen=True)
class _Regression:
    """Prediction of every task: its mean, the square of its scale; weights of the judges."""

    mean: Floats
    square: Floats
    weight: Floats


def _average(scores: _Scores, known: NDArray[np.bool_], truth: Floats) -> _Regression:
    """Average the regressions of all settings by their marginal likelihood."""
    # In the unit of the scores, relative to the mean: then the slope of honest judges is one.
    centre = float(truth.mean())
    y = (truth - centre) / scores.unit
    found, log_likelihood = [], []
    for direction in scores.directions():
        for slope_freedom in _SLOPE_FREEDOMS:
            for freedom in _FREEDOMS:
                each, likely = _regress(scores, known, y, direction, slope_freedom, freedom)
                found.append(each)
                log_likelihood.append(likely)
    share = np.exp(np.array(log_likelihood) - max(log_likelihood))
    share /= share.sum()
    means = np.stack([each.mean for each in found])
    mean = share @ means
    square = share @ (np.stack([each.square for each in found]) + (means - mean) ** 2)
    weight = share @ np.stack([each.weight for each in found])
    square = scores.unit**2 * (square + scores.doubt(weight))
    return _Regression(centre + scores.unit * mean, square, weight)


def _regress(
    scores: _Scores,
    known: NDArray[np.bool_],
    y: Floats,
    direction: Floats,
    slope_freedom: float,
    freedom: float,
) -> tuple[_Regression, float]:
    """Predict all tasks under one setting (M75), and give its log marginal likelihood."""
    x = scores.table - scores.table[known].mean(axis=0)
    line = x @ direction
    spread = float(line.var()) or 1.0
    # Prior variances of the coefficients, in units of the variance of the errors.
    prior = freedom * np.diag(1.0 / np.diag(scores.covariance))
    prior = prior + slope_freedom / spread * np.outer(direction, direction)
    gold, n = x[known], len(y)
    inverse = np.linalg.inv(np.eye(n) + gold @ prior @ gold.T)
    total = float(inverse.sum())
    rest = y - line[known]
    intercept = float(inverse.sum(axis=0) @ rest) / total
    rest = rest - intercept
    pull = inverse @ rest
    square = max(float(rest @ pull) / (n - 1), 1e-24)
    weight = direction + prior @ gold.T @ pull
    reach = x @ prior
    across = reach @ gold.T
    doubt = 1.0 + (reach * x).sum(axis=1) - ((across @ inverse) * across).sum(axis=1)
    doubt += (1.0 - across @ inverse.sum(axis=0)) ** 2 / total
    likely = 0.5 * (np.linalg.slogdet(inverse)[1] - np.log(total) - (n - 1) * np.log(square))
    return _Regression(intercept + x @ weight, square * doubt, weight), float(likely)


def _noise(answers: Answers, estimate: Floats, weight: Floats) -> WorkerNoise:
    """Noise of every judge: the variance of its residuals about its own offset."""
    residual = answers.value - estimate[answers.task]
    off = residual - mean_by_worker(answers, residual)[answers.worker]
    variance = mean_by_worker(answers, (off**2).mean(axis=1))
    return WorkerNoise(variance, variance_interval(answers, variance), weight)
