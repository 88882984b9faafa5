"""A worker's own noise: the variance that the worker's residuals show, also between levels.

The levels of a noise model are a grid, and a worker with many answers ends up on one of its points
with all others near it. What a worker's answers show of the variance is continuous.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import wrightomega

from voxpop.arrays import Codes, Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import largest_by_owner, owner_sums, owner_values
from voxpop.results.intervals import quantiles_by_row
from voxpop.results.prediction import (
    SLIP,
    coordinate_factor,
    difficulty_of,
    freed_of_habits,
    tails_of,
    with_slips,
)
from voxpop.results.result import Result
from voxpop.results.scaled import result_on_scale

# Points at which the posterior of a log variance is evaluated, and how many sds they reach.
_POINTS, _REACH = 161, 9.0
# Workers at once: what is known of them stays in the cache.
_BLOCK = 1000
# The least variance, as a share of the lowest level: answers without any residual have none.
_LEAST = 1e-2


def with_own_noise(answers: Answers, result: Result) -> Result:
    """Give every worker the variance and 95 % interval that the worker's own answers show (M99).

    With w the weight of an answer, its residual r about the estimate has the variance (1 - w) s,
    where s is the worker's; such an answer carries as much information about s as (1 - w)² answers
    about a known truth. The posterior of log s is that of as many Gaussian residuals, with the
    crowd's log-normal prior: the mean and the variance of the log levels. Slips and tails are
    discounted as the noise model expects them.
    """
    there, found = result_on_scale(answers, result)
    m, sums = answers.n_workers, []
    for terms in own_terms(there, found):
        largest = largest_by_owner(there.worker, terms, m)
        sums.append(owner_values(owner_sums(there.worker, terms, largest), largest))
    return from_own_sums(result, np.stack(sums))


def own_terms(answers: Answers, result: Result) -> Floats:
    """Each answer's terms of the sums from which a worker's noise is learned, (3, E)."""
    square, weight = _residuals(answers, result)
    counted = _discount(square, answers.worker, result)
    rest = 1.0 - weight
    return np.stack([counted[:, 0] * square, counted[:, 1] * rest, counted[:, 1] * rest**2])


def from_own_sums(result: Result, sums: Floats) -> Result:
    """Give every worker the variance that the sums (3, m) of :func:`own_terms` show."""
    levels, share = result.levels, result.level_weights
    step = np.log(levels[1] / levels[0]) if len(levels) > 1 else np.log(2.5)
    centre = float(share @ np.log(levels)) / float(share.sum())
    prior = float(share @ (np.log(levels) - centre) ** 2) / float(share.sum()) + step**2 / 12
    total, known, freedom = len(result.value_names) * sums
    if result.noise.tails is not None:
        # Answers with tails carry less information about their scale (Fisher information).
        freedom = freedom * (result.noise.tails / (result.noise.tails + 3.0))
    seen = np.divide(total, known, out=np.full(len(known), np.exp(centre)), where=known > 1e-9)
    seen = np.maximum(seen, _LEAST * levels.min())
    quantiles = _quantiles(np.log(seen), np.maximum(freedom, 0.0), centre, prior)
    return replace(result, worker_variance=quantiles[:, 1], worker_interval=quantiles[:, [0, 2]])


def _residuals(answers: Answers, result: Result) -> tuple[Floats, Floats]:
    """Mean squared residual of every answer (E,), in units of usual tasks, and its weight (E,)."""
    task, worker = answers.task, answers.worker
    value, doubt = freed_of_habits(result, answers.value, worker)
    hard = difficulty_of(result, task)
    away = (value - result.estimate_before_gold[task]) ** 2 + doubt
    square = (away / coordinate_factor(result)).mean(axis=1) / hard
    # As the noise model has it: an estimate is a mean of answers by their precision.
    trust = (result.worker_posterior / result.levels).sum(axis=1)[worker] / hard
    total = np.bincount(task, trust, answers.n_tasks)[task]
    weight = (1 - result.alike_share) * trust / total
    weight += result.alike_share / answers.task_degree[task]
    # The truth of a gold task does not depend on the answer.
    return square, np.where(answers.is_gold[task], 0.0, weight)


def _discount(square: Floats, worker: Codes, result: Result) -> Floats:
    """Weights of a squared residual and of its answer (E, 2): less in a tail, zero for a slip."""
    share, step = tails_of(result)
    step = step / float(share @ step)
    share, step = with_slips(result, worker, share, step)
    if share.shape[1] == 1:
        return np.ones((len(square), 2))
    usual, variance = step < SLIP**2, result.worker_variance[worker]
    with np.errstate(divide="ignore"):
        share = np.log(share)
        z = square[:, None] / np.maximum(variance, np.finfo(np.float64).tiny)[:, None] / step
    log_part = share - 0.5 * np.log(step) - 0.5 * np.minimum(z, 1e300)
    part = np.exp(log_part - log_part.max(axis=1, keepdims=True))
    part /= part.sum(axis=1, keepdims=True)
    part = part * usual
    return np.stack([part @ (1.0 / step), part.sum(axis=1)], axis=1)


def _quantiles(seen: Floats, freedom: Floats, centre: float, prior: float) -> Floats:
    """Quantiles at 2.5, 50 and 97.5 % of variances (W, 3), from the log of what was seen (W,)."""
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(seen), _BLOCK))
    return np.concatenate([_of_block(seen[b], freedom[b], centre, prior) for b in blocks])


def _of_block(seen: Floats, freedom: Floats, centre: float, prior: float) -> Floats:
    half = 0.5 * freedom
    # At the mode of the posterior, half (exp(seen - mode) - 1) = (mode - centre) / prior.
    pull = half * prior
    with np.errstate(divide="ignore"):
        mode = centre + wrightomega(np.log(pull) + seen - centre + pull) - pull
    spread = 1.0 / np.sqrt(half * np.exp(np.minimum(seen - mode, 700.0)) + 1.0 / prior)
    reach = np.stack([_REACH * spread, np.minimum(_REACH * np.sqrt(prior), 1.5 * _REACH * spread)])
    at = (mode - reach[0])[:, None] + np.linspace(0.0, 1.0, _POINTS) * reach.sum(axis=0)[:, None]
    away = np.exp(np.minimum(seen[:, None] - at, 700.0))
    log_density = -half[:, None] * (at + away) - 0.5 * (at - centre) ** 2 / prior
    density = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    steps = 0.5 * (density[:, 1:] + density[:, :-1])
    cumulated = np.zeros_like(at)
    np.cumsum(steps, axis=1, out=cumulated[:, 1:])
    return np.asarray(np.exp(quantiles_by_row((0.025, 0.5, 0.975), cumulated, at)))
