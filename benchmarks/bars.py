"""Bars: what plain methods reach, which the default should reach too.

A Gibbs sampler with workers' offsets, and ridge regression of known truths on judges' scores. Both
are a few dozen lines of numpy: nobody should do worse than that.
"""

from __future__ import annotations

import numpy as np

import voxpop as vp
from voxpop.arrays import Floats

PENALTIES = 10.0 ** np.arange(-3, 3.1, 0.25)


def gibbs(answers: vp.Answers, n_sweeps: int = 2000, seed: int = 1) -> Floats:
    """Posterior mean of truths under offsets and inverse-gamma noise, all priors learned.

    answer = truth + offset of the worker + noise; truths are N(m, t), offsets N(0, b), and the
    workers' variances inverse-gamma with shape 2 and a learned scale. The coordinates of a vector
    share a worker's variance. A fifth of the sweeps come before the average begins.
    """
    rng = np.random.default_rng(seed)
    task, worker, value = answers.task, answers.worker, answers.value
    n_tasks, n_workers, d = answers.n_tasks, answers.n_workers, answers.dimension
    answered = d * np.bincount(worker, minlength=n_workers)
    truth = _sum(task, value, n_tasks) / np.bincount(task, minlength=n_tasks)[:, None]
    offset, total = np.zeros((n_workers, d)), np.zeros((n_tasks, d))
    shape, scale, b = 2.0, float((value - truth[task]).var()), np.zeros(d)
    first = n_sweeps // 5
    for sweep in range(n_sweeps):
        rest = value - truth[task] - offset[worker]
        squares = np.bincount(worker, (rest**2).sum(axis=1), n_workers)
        variance = (scale + squares / 2) / rng.gamma(shape + answered / 2)
        scale = rng.gamma(shape * n_workers + 1) / (1 / variance).sum()
        weight = (1 / variance)[worker][:, None]
        m, t = truth.mean(axis=0), _draw_variance(truth - truth.mean(axis=0), rng)
        mean, sd = _posterior(task, weight, value - offset[worker] - m, 1 / t, n_tasks)
        truth = m + mean + sd * rng.standard_normal(mean.shape)
        if sweep >= first:
            total += m + mean
        b = _draw_variance(offset, rng) if sweep else variance.mean() / 10 * np.ones(d)
        mean, sd = _posterior(worker, weight, value - truth[task], 1 / b, n_workers)
        offset = mean + sd * rng.standard_normal(mean.shape)
    return np.asarray(total / (n_sweeps - first))


def _sum(place: np.ndarray, value: Floats, n: int) -> Floats:
    return np.stack([np.bincount(place, column, n) for column in value.T], axis=1)


def _posterior(
    place: np.ndarray, weight: Floats, value: Floats, prior: Floats, n: int
) -> tuple[Floats, Floats]:
    """Mean and sd of a Gaussian for each place, of answers and a prior about zero."""
    precision = _sum(place, weight, n) + prior
    return _sum(place, weight * value, n) / precision, precision**-0.5


def _draw_variance(effect: Floats, rng: np.random.Generator) -> Floats:
    """Draw the variance of effects, by coordinate, under a prior flat in the sd."""
    squares = (effect**2).sum(axis=0) / 2
    return np.asarray(squares / rng.gamma((len(effect) - 1) / 2, size=effect.shape[1]))


def ridge(answers: vp.Answers) -> Floats:
    """Regress gold on the judges' scores of its tasks, and predict all tasks.

    Every judge must have scored every task. The penalty is that with the smallest leave-one-out
    error on gold; slopes are pulled towards zero, the intercept is free.
    """
    score = np.empty((answers.n_tasks, answers.n_workers))
    score[answers.task, answers.worker] = answers.value[:, 0]
    known = answers.is_gold
    assert answers.gold is not None
    gold = answers.gold[known, 0]
    centre = score[known].mean(axis=0)
    x, y = score[known] - centre, gold - gold.mean()
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    tried = []
    for penalty in PENALTIES:
        kept = s**2 / (s**2 + penalty)
        leverage = (u**2) @ kept + 1 / len(y)
        rest = (y - u @ (kept * (u.T @ y))) / (1 - leverage)
        tried.append((float((rest**2).mean()), penalty))
    penalty = min(tried)[1]
    slope = vt.T @ (s / (s**2 + penalty) * (u.T @ y))
    return np.asarray(gold.mean() + (score - centre) @ slope)[:, None]
