"""Prediction: what a worker would answer on a task, from what a result knows of both."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from voxpop.arrays import Codes, Floats, Ids, Index
from voxpop.errors import DataError, shorten
from voxpop.inference.kernels.posterior import mixture_quantiles
from voxpop.models.noise.tails import tail_shares, tail_steps
from voxpop.models.scale import LINEAR, Scale
from voxpop.results.result import Result
from voxpop.results.scaled import on_scale

# Components have at least this share of the variance of the widest: a point has no quantiles.
_POINT = 1e-12
SLIP = 30.0
"""A slip is taken to be this many times further off than noise."""
# Ids that an unknown one is compared with: comparing texts is slow.
_MOST_COMPARED = 20_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """An answer not given yet: a mixture of Gaussians about one mean, per coordinate.

    Attributes
    ----------
    mean, sd
        Mean and standard deviation, shape (dimension,).
    lower, upper
        Bounds of the 95 % interval, from the quantiles of the mixture.
    share, variance
        The Gaussians: their shares (C,) and variances (C, dimension), on the ``scale``.
    scale
        The scale that the Gaussians are on; the rest is in the users' units.
    """

    mean: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    share: Floats
    variance: Floats
    scale: Scale = LINEAR

    def cdf(self, value: ArrayLike) -> Floats:
        """Probability of an answer below ``value``, per coordinate: its PIT value."""
        mean = self.scale.forward(self.mean)
        at = self.scale.forward(np.asarray(value, dtype=np.float64))
        distance = self.scale.turn(at, mean) - mean
        floor = np.maximum(_POINT * self.variance.max(axis=0), np.finfo(np.float64).tiny)
        return np.asarray(self.share @ ndtr(distance / np.sqrt(np.maximum(self.variance, floor))))


@dataclass(frozen=True, eq=False)
class Scatter:
    """How answers scatter about a truth: Gaussians of ``share`` (C,) and ``variance`` (C, d).

    An answer is centre + ``bias`` + ``gain`` (truth - centre) plus noise, all (d,); ``gain_doubt``
    (d,) is the variance of the gain. Components are ordered by level, then by tail step; each
    variance includes that of the bias.
    """

    bias: Floats
    share: Floats
    variance: Floats
    centre: Floats
    gain: Floats
    gain_doubt: Floats

    def answer(self, truth: Floats) -> Floats:
        """The expected answer if this is the truth."""
        return np.asarray(self.centre + self.bias + self.gain * (truth - self.centre))

    def freed(self, answer: Floats) -> Floats:
        """The answer without the worker's bias, at a gain of one."""
        return np.asarray(self.centre + (answer - self.centre - self.bias) / self.gain)


def predict_answer(result: Result, worker: object, task: object) -> Prediction:
    """Predict what a worker would answer on a task, from the result alone.

    The truth is taken as Gaussian with the mean and variance of agreement: the next answer has the
    error that all workers share, too, which only gold shows. The worker's bias and noise are added,
    both with their uncertainty::

        a ~ Σ_k p_u(k) Σ_t tail(t) N(estimate_i + bias_u, variance_i + bias_sd_u² + v_kt delta_i)

    (with gains the mean is centre + bias_u + gain_u (estimate_i - centre), and variance_i and v_kt
    count gain_u² times)

    and the spread is stretched as left-out answers require. Truth and worker are taken as
    independent, which is right for a task that the worker has not answered. For one that the worker
    has answered, this predicts a second, independent answer; ``result.audit`` compares the given
    answer with its leave-one-out prediction. A result on a scale predicts there, and mean, sd and
    bounds come back in the users' units.

    Parameters
    ----------
    worker, task
        Their ids; ``worker=None`` is an unknown worker of this crowd.
    """
    i = find_id(result.task_ids, task, "task")
    u = None if worker is None else find_id(result.worker_ids, worker, "worker")
    there = on_scale(result.scale, result._agreed)
    answer = predicted(there.estimate[i], there.variance[i], scatter(result, u, i))
    return in_units(answer, result.scale)


def in_units(answer: Prediction, scale: Scale) -> Prediction:
    """Return a prediction made on a scale in the users' units."""
    if scale == LINEAR:
        return answer
    bounds = np.stack([answer.lower, answer.upper], axis=-1)
    lower, upper = np.moveaxis(scale.back_from(answer.mean, bounds), -1, 0)
    mean = scale.back(answer.mean)
    sd = scale.spread(scale.forward(mean), answer.sd)
    return replace(answer, mean=mean, sd=sd, lower=lower, upper=upper, scale=scale)


def predicted(centre: Floats, variance: Floats, noise: Scatter) -> Prediction:
    """Add noise to a Gaussian truth with this centre and variance (d,)."""
    doubt = noise.gain_doubt * (centre - noise.centre) ** 2
    total = noise.variance + noise.gain**2 * variance + doubt
    mean = noise.answer(centre)
    bounds = np.array([mean, mean])
    bounds[:, np.isnan(total).any(axis=0)] = np.nan
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
    """How a worker, by number, or an unknown one scatters on a task, by number."""
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
    hard = float(difficulty_of(result, np.array([task]))[0])
    per_coordinate = variance.reshape(-1, 1) * (hard * coordinate_factor(result))
    bias, doubt = np.zeros(d), np.zeros(d)
    if worker is not None and result.worker_bias.size:
        bias, doubt = result.worker_bias[worker], result.worker_bias_sd[worker]
    elif worker is None and result.noise.bias_sd:
        doubt = np.array(result.noise.bias_sd)
    centre, gain, gain_doubt = np.zeros(d), np.ones(d), np.zeros(d)
    if result.worker_gain.size:
        centre, gain_doubt = np.array(result.noise.gain_centre), np.array(result.noise.gain_sd)
        if worker is not None:
            gain, gain_doubt = result.worker_gain[worker], result.worker_gain_sd[worker]
    stretch = result.calibration.stretch**2
    return Scatter(
        bias=bias,
        share=np.outer(weight, shares).ravel() / weight.sum(),
        variance=stretch * (per_coordinate * gain**2 + doubt**2),
        centre=centre,
        gain=gain,
        gain_doubt=stretch * gain_doubt**2,
    )


def level_mixture(result: Result) -> tuple[Floats, Floats]:
    """Variance of each level at each tail step (n_levels, n_steps), and the shares of the steps.

    Levels in a result are mean variances of answers, tails included.
    """
    shares, steps = tails_of(result)
    level = result.levels / float(shares @ steps)
    # The lowest level is bounded by the rounding of answers, and so is every variance.
    return np.maximum(level[:, None] * steps, level[0]), shares


def tails_of(result: Result) -> tuple[Floats, Floats]:
    """Shares and variances of the tail steps; a single step without tails."""
    freedom = np.inf if result.noise.tails is None else result.noise.tails
    return tail_shares(freedom), tail_steps(freedom)


def with_slips(result: Result, worker: Codes, share: Floats, step: Floats) -> tuple[Floats, Floats]:
    """Shares (E, T) of the tail steps of answers by these workers (E,), with slips as the last.

    ``share`` and ``step`` (T,) are those without. A slip has the share of the worker, or of all.
    """
    none = result.noise.slip_share is None and not result.worker_slips.size
    if none:
        return np.tile(share, (len(worker), 1)), step
    everybody = np.full(len(worker), result.noise.slip_share or 0.0)
    slips = result.worker_slips[worker] if result.worker_slips.size else everybody
    kept = np.multiply.outer(1.0 - slips, share)
    return np.column_stack([kept, slips]), np.append(step, SLIP**2)


def coordinate_factor(result: Result) -> Floats:
    """Noise variance of each coordinate as a multiple of their mean, (dimension,)."""
    scale = np.array(result.noise.coordinate_scale or np.ones(result.estimate.shape[1]))
    return np.asarray(scale**2 / (scale**2).mean())


def difficulty_of(result: Result, task: Index | Codes) -> Floats:
    """Noise variance on tasks as a multiple of the usual; 1 where it was not learned."""
    return result.task_difficulty[task] if result.task_difficulty.size else np.ones(len(task))


def freed_of_habits(result: Result, value: Floats, worker: Codes) -> tuple[Floats, Floats]:
    """Answers (E, d) without their workers' biases, at a gain of one; and the biases' variances."""
    doubt = np.zeros_like(value)
    if result.worker_bias.size:
        value, doubt = value - result.worker_bias[worker], result.worker_bias_sd[worker] ** 2
    if result.worker_gain.size:
        centre = np.array(result.noise.gain_centre)
        value = centre + (value - centre) / result.worker_gain[worker]
    return value, doubt


def weighs_equally(result: Result) -> bool:
    """Whether all workers have the same weight, so that the next answer gains the same by any."""
    weight = result.worker_weight
    return not result.levels.size and bool((weight == weight[0]).all())


def find_id(ids: Ids, wanted: object, role: str) -> int:
    """Index of an id, given as it is or as text; the error for an unknown id names near ones."""
    listed: list[object] = ids.tolist()
    if wanted in listed:
        return listed.index(wanted)
    texts = [str(identity) for identity in listed]
    if str(wanted) in texts:
        return texts.index(str(wanted))
    near = difflib.get_close_matches(str(wanted), texts[:_MOST_COMPARED], n=20, cutoff=0.5)
    near = sorted(near, key=lambda text: (-_same_start(text, str(wanted)), text))[:3]
    hint = f"; near it are {shorten(near)}" if near else f"; there are {shorten(ids)}"
    raise DataError(f"no {role} {shorten([wanted])}{hint}")


def _same_start(one: str, other: str) -> int:
    """Length of the longest common prefix of two texts."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
