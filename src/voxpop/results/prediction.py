"""Prediction: what a worker would answer on a task, from what a result says of both."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from voxpop.arrays import Floats, Ids
from voxpop.errors import DataError, shorten
from voxpop.inference.kernels.posterior import mixture_quantiles
from voxpop.models.noise import tail_shares, tail_steps
from voxpop.results.result import Result

# A component narrower than this share of the widest is a point to anybody who asks for quantiles.
_POINT = 1e-12
# Near matches of an unknown id are looked for among so many ids: comparing texts is slow.
_MOST_COMPARED = 20_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """An answer that has not been given: a mixture of Gaussians about one mean, per coordinate.

    Attributes
    ----------
    mean, sd
        Mean and standard deviation, shape (dimension,).
    lower, upper
        Bounds of the 95 % interval, from the quantiles of the mixture.
    share, variance
        The Gaussians: their shares (C,) and variances (C, dimension).
    """

    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    share: Floats
    variance: Floats

    def cdf(self, value: ArrayLike) -> Floats:
        """Probability of an answer below ``value``, per coordinate: the PIT value of it."""
        distance = np.asarray(value, dtype=np.float64) - self.mean
        floor = np.maximum(_POINT * self.variance.max(axis=0), np.finfo(np.float64).tiny)
        return np.asarray(self.share @ ndtr(distance / np.sqrt(np.maximum(self.variance, floor))))


@dataclass(frozen=True, eq=False)
class Scatter:
    """How answers lie about a truth: Gaussians of ``share`` (C,) and ``variance`` (C, d).

    ``bias`` (d,) is their centre. Components go level by level, within these by tail step; what is
    not known of the bias is part of every variance.
    """

    bias: Floats
    share: Floats
    variance: Floats


def predict_answer(result: Result, worker: object, task: object) -> Prediction:
    """Predict what a worker would answer on a task, from the result alone.

    The truth is taken as Gaussian with the result's mean and variance; to it come the worker's bias
    and noise, both with what is not known of them::

        a ~ Σ_k p_u(k) Σ_t tail(t) N(estimate_i + bias_u, variance_i + bias_sd_u² + v_kt delta_i)

    and all is stretched by what left-out answers called for. Truth and worker are taken as
    independent: right for a task that the worker has not answered. Of one that he has, this is
    what he would say if asked afresh; his answer held against the others' is in ``result.audit``.

    Parameters
    ----------
    worker, task
        Their ids; ``worker=None`` stands for someone of this crowd of whom nothing is known.
    """
    i = find_id(result.task_ids, task, "task")
    u = None if worker is None else find_id(result.worker_ids, worker, "worker")
    return predicted(result.estimate[i], seen_variance(result)[i], scatter(result, u, i))


def predicted(centre: Floats, variance: Floats, noise: Scatter) -> Prediction:
    """Put noise about a Gaussian truth with this centre and variance (d,)."""
    total = noise.variance + variance
    mean = centre + noise.bias
    bounds = np.array([mean, mean])
    for j in np.flatnonzero(total.max(axis=0) > 0):
        wide = np.maximum(total[:, j], _POINT * total[:, j].max())
        middle = np.zeros((1, len(wide), 1))
        found = mixture_quantiles(noise.share[None], middle, wide, np.array([0.025, 0.975]))
        bounds[:, j] += found[0, 0]
    return Prediction(
        mean=mean,
        sd=np.sqrt(noise.share @ total),
        lower=bounds[0],
        upper=bounds[1],
        share=noise.share,
        variance=total,
    )


def scatter(result: Result, worker: int | None, task: int) -> Scatter:
    """How the worker at this place, or an unknown one, scatters on the task at that place."""
    d = result.estimate.shape[1]
    shares = np.ones(1)
    if result.levels.size:
        variance, shares = level_mixture(result)
        weight = result.level_weights if worker is None else result.worker_posterior[worker]
    elif worker is None:
        variance = result.worker_variance[:, None]
        weight = np.full(len(variance), 1.0 / len(variance))
    else:
        variance, weight = result.worker_variance[worker][None, None], np.ones(1)
    hard = float(result.task_difficulty[task]) if result.task_difficulty.size else 1.0
    per_coordinate = variance.reshape(-1, 1) * (hard * coordinate_factor(result))
    bias, doubt = np.zeros(d), np.zeros(d)
    if worker is not None and result.worker_bias.size:
        bias, doubt = result.worker_bias[worker], result.worker_bias_sd[worker]
    elif worker is None and result.settings.get("bias_sd"):
        doubt = np.array(result.settings["bias_sd"])
    return Scatter(
        bias=bias,
        share=np.outer(weight, shares).ravel() / weight.sum(),
        variance=stretch_of(result) ** 2 * (per_coordinate + doubt**2),
    )


def level_mixture(result: Result) -> tuple[Floats, Floats]:
    """Variances of the levels (n_levels, n_tails), tail step by tail step, and the steps' shares.

    Levels in a result are what answers scatter by on average, tails included.
    """
    tails = result.settings.get("tails_used")
    freedom = np.inf if tails is None else float(tails)
    shares, steps = tail_shares(freedom), tail_steps(freedom)
    level = result.levels / float(shares @ steps)
    # Rounding, which bounds the lowest level, bounds all.
    return np.maximum(level[:, None] * steps, level[0]), shares


def coordinate_factor(result: Result) -> Floats:
    """Noise variance of each coordinate as a multiple of their mean, (dimension,)."""
    scale = np.array(result.settings.get("coordinate_scale", np.ones(result.estimate.shape[1])))
    return np.asarray(scale**2 / (scale**2).mean())


def stretch_of(result: Result) -> float:
    """What left-out answers show that sds have to be stretched by; never below one."""
    audit = result.audit
    return max(audit.stretch, 1.0) if audit is not None and audit.exact else 1.0


def seen_variance(result: Result) -> Floats:
    """Variance of the truths as answers show it: less what only gold could (n_tasks, d).

    An error that all workers share is in the estimate and in the next answer alike.
    """
    return np.asarray(result.variance / float(result.settings.get("gold_stretch", 1.0)) ** 2)


def find_id(ids: Ids, wanted: object, role: str) -> int:
    """Place of an id, told by itself or by its text; of an unknown one, what comes near to it."""
    same = np.flatnonzero([identity == wanted for identity in ids.tolist()])
    texts = [] if len(same) else [str(identity) for identity in ids.tolist()]
    if not len(same):
        same = np.flatnonzero([text == str(wanted) for text in texts])
    if len(same):
        return int(same[0])
    near = difflib.get_close_matches(str(wanted), texts[:_MOST_COMPARED], n=20, cutoff=0.5)
    near = sorted(near, key=lambda text: (-_same_start(text, str(wanted)), text))[:3]
    hint = f"; near it are {shorten(near)}" if near else f"; there are {shorten(ids)}"
    raise DataError(f"no {role} {shorten([wanted])}{hint}")


def _same_start(one: str, other: str) -> int:
    """Number of letters that two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
