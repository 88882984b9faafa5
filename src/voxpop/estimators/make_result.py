"""From estimates and worker variances to a Result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import chdtri, ndtri

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import with_gold
from voxpop.estimators.plug_in import plug_in_audit
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model
from voxpop.results.audit import Audit
from voxpop.results.result import PROBABILITIES, Result, Trace


@dataclass(frozen=True)
class WorkerNoise:
    """What an estimator found of the workers; the level arrays are empty without levels."""

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
    """Put together what was found of tasks and workers with what the answers are.

    Without an audit of its own, a method is audited by what its weights predict.
    """
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
    )


def normal_posterior(answers: Answers, estimate: Floats, variance: Floats) -> Posterior:
    """Take the truths as Gaussian, and gold tasks as known."""
    estimate = with_gold(answers, estimate)
    variance = np.where(answers.is_gold[:, None], 0.0, variance)
    spread = np.sqrt(variance)[:, :, None] * ndtri(PROBABILITIES)
    return Posterior(estimate, variance, estimate[:, :, None] + spread)


def relative_weight(precision: Floats) -> Floats:
    """Scale precisions so that the average worker weighs one."""
    # Against the largest first: a precision may be as large as float64 goes.
    weight = precision / precision.max()
    return np.asarray(weight / weight.mean())


def variance_interval(answers: Answers, variance: Floats) -> Floats:
    """95 % interval of a variance that is a mean of squared Gaussian residuals."""
    freedom = answers.worker_degree * answers.dimension
    quantile = [freedom * variance / chdtri(freedom, p) for p in (0.025, 0.975)]
    return np.stack(quantile, axis=1)


def plain_noise(answers: Answers, variance: Floats, weight: Floats) -> WorkerNoise:
    """Say what was found of workers where their variance is a mean of squared residuals."""
    return WorkerNoise(variance, variance_interval(answers, variance), weight)


def worker_noise(posterior: Floats, model: Model, between: bool = False) -> WorkerNoise:
    """Sum up each worker's probabilities of the levels: expected variance, interval, weight.

    With ``between`` a level stands for all variances about it, as on a grid that was laid over the
    data; otherwise for itself.
    """
    levels = model.levels
    return WorkerNoise(
        variance=posterior @ levels,
        interval=_between(posterior, levels) if between else _among(posterior, levels),
        weight=relative_weight(posterior @ (levels[0] / levels)),
        levels=levels,
        level_weights=np.array(model.weights),
        posterior=posterior,
    )


def _among(posterior: Floats, levels: Floats) -> Floats:
    """95 % intervals (m, 2) that end at levels."""
    cumulated = np.cumsum(posterior, axis=1)
    ends = np.stack([(cumulated < share).sum(axis=1) for share in (0.025, 0.975)], axis=1)
    return np.asarray(levels[np.minimum(ends, len(levels) - 1)])


def _between(posterior: Floats, levels: Floats) -> Floats:
    """95 % intervals (m, 2) of levels that share what lies between them halfway, in logs."""
    log_level = np.log(levels)
    if len(levels) == 1:
        return _among(posterior, levels)
    middle = 0.5 * (log_level[1:] + log_level[:-1])
    edge = np.concatenate(
        [2 * log_level[:1] - middle[:1], middle, 2 * log_level[-1:] - middle[-1:]]
    )
    cumulated = np.concatenate(
        [np.zeros((len(posterior), 1)), np.cumsum(posterior, axis=1)], axis=1
    )
    ends = [np.interp((0.025, 0.975), row / row[-1], edge) for row in cumulated]
    return np.asarray(np.exp(np.array(ends).reshape(-1, 2)))
