"""From estimates and worker variances to a ``Result``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import chdtri, ndtri

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.data.sums import mean_by_worker, squared_residual, with_gold
from voxpop.data.truths import read_truth
from voxpop.errors import DataError, require, shorten
from voxpop.estimators.base import Estimator, plain_settings
from voxpop.estimators.plug_in import plug_in_audit
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model
from voxpop.results.audit import Audit
from voxpop.results.intervals import quantiles_by_row
from voxpop.results.result import PROBABILITIES, Result, Trace

# Half the step of a grid of levels, in logarithms, for a level without neighbours.
_HALF_STEP = 0.5 * np.log(2.5)


@dataclass(frozen=True)
class WorkerNoise:
    """What an estimator infers about the workers; the level arrays are empty without levels."""

    variance: Floats
    interval: Floats
    weight: Floats
    levels: Floats = field(default_factory=lambda: np.empty(0))
    level_weights: Floats = field(default_factory=lambda: np.empty(0))
    posterior: Floats = field(default_factory=lambda: np.empty((0, 0)))


def make_result(
    answers: Answers,
    settings: dict[str, Any],
    found: Posterior,
    workers: WorkerNoise,
    trace: Trace | None = None,
    notes: tuple[str, ...] = (),
    audit: Audit | None = None,
) -> Result:
    """Combine what was inferred about tasks and workers with the ids and names of the answers.

    Without an audit of its own, a method gets the plug-in audit.
    """
    found = _holding_estimates(found)
    if audit is None:
        audit = plug_in_audit(
            answers, found.estimate, workers.variance, workers.levels, workers.posterior
        )
    return Result(
        task_ids=answers.task_ids,
        worker_ids=answers.worker_ids,
        value_names=answers.value_names,
        task_answers=answers.task_degree,
        worker_answers=answers.worker_degree,
        frame_kind=answers.frame_kind,
        estimate=found.estimate,
        variance=found.variance,
        quantile=found.quantile,
        worker_variance=workers.variance,
        worker_interval=workers.interval,
        worker_weight=workers.weight,
        levels=workers.levels,
        level_weights=workers.level_weights,
        worker_posterior=workers.posterior,
        audit=audit,
        settings=settings | ({"columns": answers.columns} if answers.columns else {}),
        trace=trace or Trace(),
        notes=(*answers.notes, *notes),
        _answers=answers,
    )


def _holding_estimates(found: Posterior) -> Posterior:
    """Widen the intervals that do not hold their own estimate.

    Where a small share of the posterior is far away, the mean may lie beyond a quantile. Where
    values are huge beside their noise, rounding may bring neighbouring quantiles out of order.
    """
    below = np.asarray(PROBABILITIES) < 0.5
    held = found.estimate[:, :, None]
    quantile = np.where(below, np.fmin(found.quantile, held), np.fmax(found.quantile, held))
    quantile = np.maximum.accumulate(quantile, axis=2)
    return replace(found, quantile=np.where(np.isnan(found.quantile), np.nan, quantile))


def gaussian_result(
    estimator: Estimator | None,
    answers: Answers,
    estimate: Floats,
    variance: Floats,
    worker_variance: Floats | None = None,
    worker_weight: Floats | None = None,
    *,
    worker_interval: Floats | None = None,
    trace: Trace | None = None,
    notes: tuple[str, ...] = (),
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Make the result of a method whose posteriors are Gaussian; gold tasks get their truth.

    Parameters
    ----------
    estimate, variance
        Of every task and coordinate, (n, d); a variance (n, 1) holds for all coordinates.
    worker_variance, worker_interval
        Of every worker, per coordinate. By default the mean squared residual of the worker's
        answers, and the 95 % interval of a variance estimated from as many Gaussian residuals.
    worker_weight
        Weight of an answer of each worker, in any unit; equal by default.
    trace, notes, settings
        How the iteration went, sentences for the user, and what to keep beside the arguments of
        the estimator, if there is one.
    """
    estimate = with_gold(answers, estimate)
    variance = np.where(answers.is_gold[:, None], 0.0, np.broadcast_to(variance, estimate.shape))
    spread = np.sqrt(variance)[:, :, None] * ndtri(PROBABILITIES)
    found = Posterior(estimate, variance, estimate[:, :, None] + spread)
    if worker_variance is None:
        residual = squared_residual(answers, estimate) / answers.dimension
        worker_variance = mean_by_worker(answers, residual)
    if worker_interval is None:
        worker_interval = variance_interval(answers, worker_variance)
    weight = np.ones(answers.n_workers) if worker_weight is None else worker_weight
    workers = WorkerNoise(worker_variance, worker_interval, relative_weight(weight))
    kept = {} if estimator is None else plain_settings(estimator)
    return make_result(answers, kept | dict(settings or {}), found, workers, trace, notes)


def result_from_estimates(
    source: object,
    estimate: object,
    variance: object,
    worker_variance: Floats | None,
    worker_weight: Floats | None,
    method: str | None,
    notes: tuple[str, ...],
) -> Result:
    """Make the result of a method from its estimates alone; see :meth:`Result.from_estimates`."""
    answers = read_answers(source)
    found = _by_task(answers, estimate, "estimate")
    if variance is None:
        # The estimate of a task uses up one degree of freedom of its n answers.
        residual = (answers.value - found[answers.task]) ** 2
        freedom = max(answers.n_edges - answers.n_tasks, 1)
        spread = residual.sum(axis=0) / freedom / answers.task_degree[:, None]
    else:
        spread = _by_task(answers, variance, "variance")
        require(bool((spread >= 0).all()), "variance must not be negative")
    settings = {"method": method} if method is not None else {}
    given = answers, found, spread, worker_variance, worker_weight
    result = gaussian_result(None, *given, notes=notes, settings=settings)
    if variance is None and answers.n_edges == answers.n_tasks:
        return without_intervals(result, "every task has one answer; give the variances")
    return result


def _by_task(answers: Answers, given: object, what: str) -> Floats:
    """Take numbers or vectors by task as an array (n_tasks, dimension)."""
    import pandas as pd

    shape = (answers.n_tasks, answers.dimension)
    if isinstance(given, pd.Series):
        given = given.to_dict()
    if isinstance(given, np.ndarray | list | tuple | float | int):
        array = np.array(given, dtype=np.float64)
        array = array[:, None] if array.ndim == 1 else array
        if array.shape not in ((), shape, (shape[0], 1)):
            raise DataError(
                f"{what} must have shape {shape} (tasks, coordinates), got {array.shape}"
            )
        found = np.broadcast_to(array, shape)
    else:
        found = read_truth(given, answers.task_ids, answers.value_names, needed=what)
    bad = ~np.isfinite(found).all(axis=1)
    if bad.any():
        raise DataError(f"{what}: none given for task {shorten(answers.task_ids[bad])}")
    return found


def variance_interval(answers: Answers, variance: Floats) -> Floats:
    """95 % intervals (m, 2) of variances estimated from as many Gaussian residuals as answers."""
    # Many workers have equally many answers.
    freedom, at = np.unique(answers.worker_degree * answers.dimension, return_inverse=True)
    ends = [(freedom / chdtri(freedom, p))[at] * variance for p in (0.025, 0.975)]
    return np.stack(ends, axis=1)


def relative_weight(precision: Floats) -> Floats:
    """Scale precisions so that the average worker weighs one."""
    # Against the largest first: a precision may be as large as float64 goes.
    weight = precision / precision.max()
    return np.asarray(weight / np.sort(weight).mean())  # sorted: the same in any order of workers


def worker_noise(posterior: Floats, model: Model, between: bool = False) -> WorkerNoise:
    """Summarise each worker's posterior over the levels: expected variance, interval, weight.

    With ``between`` a level stands for all variances near it, as on a grid; otherwise for itself.
    """
    levels = model.levels

    def expected(per_level: Floats) -> Floats:
        # Not a matrix product, which rounds by the place of a worker among the others.
        return np.asarray((posterior * per_level).sum(axis=1))

    return WorkerNoise(
        variance=expected(levels),
        interval=_between(posterior, levels) if between else _among(posterior, levels),
        weight=relative_weight(expected(levels[0] / levels)),
        levels=levels,
        level_weights=np.array(model.weights),
        posterior=posterior,
    )


def _among(posterior: Floats, levels: Floats) -> Floats:
    """95 % intervals (m, 2) that end at levels; of one level alone, at its edges."""
    cumulated = np.cumsum(posterior, axis=1)
    ends = np.stack([(cumulated < share).sum(axis=1) for share in (0.025, 0.975)], axis=1)
    ends = np.minimum(ends, len(levels) - 1)
    # No variance is known exactly, and an interval without width would say so.
    edge = np.exp(_log_edges(levels))
    alone = ends[:, :1] == ends[:, 1:]
    return np.asarray(np.where(alone, edge[ends + np.arange(2)], levels[ends]))


def _between(posterior: Floats, levels: Floats) -> Floats:
    """95 % intervals (m, 2); a level covers half the way to its neighbours, in logarithms."""
    edge = _log_edges(levels)
    cumulated = np.insert(np.cumsum(posterior, axis=1), 0, 0.0, axis=1)
    edges = np.broadcast_to(edge, cumulated.shape)
    return np.asarray(np.exp(quantiles_by_row((0.025, 0.975), cumulated, edges)))


def _log_edges(levels: Floats) -> Floats:
    """Where levels meet, half the way between them in logarithms; as far on the outer sides."""
    log_level = np.log(levels)
    if len(levels) == 1:
        return np.array([log_level[0] - _HALF_STEP, log_level[0] + _HALF_STEP])
    middle = 0.5 * (log_level[1:] + log_level[:-1])
    return np.array([2 * log_level[0] - middle[0], *middle, 2 * log_level[-1] - middle[-1]])


def without_intervals(result: Result, why: str) -> Result:
    """Leave out sds, intervals and noise where no answer shows them."""
    return replace(
        result,
        variance=np.full_like(result.variance, np.nan),
        quantile=np.full_like(result.quantile, np.nan),
        worker_variance=np.full_like(result.worker_variance, np.nan),
        worker_interval=np.full_like(result.worker_interval, np.nan),
        notes=(*result.notes, f"no sds and no intervals: {why}"),
    )
