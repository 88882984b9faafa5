"""What a noise model learns beside the messages: one EM step for each of its parts.

Levels' weights, degrees of freedom, classes of difficulty, spread of the biases, prior of the
truths: each is updated from what the last sweep counted (M33)-(M37).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from voxpop.arrays import Codes, Floats, Index
from voxpop.inference.kernel_set import ExpectedCounts
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.message_passing import SweepParameters, TruthPrior
from voxpop.models.noise import STEP, TAIL_STEPS, Noise, tail_shares

_MOST_FREEDOM = 128.0
FREEDOMS = np.geomspace(2.0, _MOST_FREEDOM, 73)
_FIRST_FREEDOM = 4.0
# Most of what tells the tails is hidden, and EM creeps; this many of its steps are taken at once.
_FREEDOM_STEPS = 4
# Harder and easier tasks: noise variance times 1/39, 1/6.25, 1, 6.25, 39.
_CLASS_STEPS = np.arange(-4, 5, 2)
# The prior of the truths, narrow to wide, as multiples of the spread of the tasks' means.
_TRUTH_VARIANCES = 4.0 ** np.arange(-3, 2)
_EXPONENTS = np.linspace(0.0, 1.0, 11)
_SPREAD_STEPS = 5


@dataclass(frozen=True, eq=False)
class Learned:
    """The parameters of a noise model, as far as they are learned.

    ``bias_variance`` (d,) is that of a worker of middle noise; a worker whose log level is z above
    it has exp(``exponent`` z) times as much.
    """

    levels: Floats
    log_weights: Floats
    freedom: float
    log_class: Floats
    bias_variance: Floats
    exponent: float
    truths: TruthPrior

    def law(self, accuracy: float) -> SweepParameters:
        """What a sweep takes as given."""
        grid = make_grid(tuple(self.levels.tolist()), self.freedom, len(self.log_class))
        return SweepParameters(grid, self.log_class, self.truths, accuracy)

    def distance(self, other: Learned) -> float:
        """How far apart two sets of parameters are: largest change of a share or a log size."""
        changes = [
            np.abs(np.exp(self.log_weights) - np.exp(other.log_weights)).max(),
            np.abs(np.exp(self.log_class) - np.exp(other.log_class)).max(),
            0.1 * abs(np.log(min(self.freedom, _MOST_FREEDOM) / min(other.freedom, _MOST_FREEDOM))),
            abs(self.exponent - other.exponent),
            np.abs(np.log(self.levels / other.levels)).max(),
        ]
        if self.bias_variance.size:
            changes.append(np.abs(np.log(self.bias_variance / other.bias_variance)).max())
        if not self.truths.is_flat:
            changes.append(np.abs(self.truths.weight - other.truths.weight).max())
        return float(max(changes))


def begin(noise: Noise, levels: Floats, log_weights: Floats, task_means: Floats) -> Learned:
    """Parameters to start from; ``task_means`` (n, d) place the prior of the truths."""
    d = task_means.shape[1]
    freedom = _FIRST_FREEDOM if noise.tails == "learn" else float(noise.tails)
    n_classes = len(_CLASS_STEPS) if noise.difficulty else 1
    middle = float(np.exp(np.exp(log_weights) @ np.log(levels)))
    truths = TruthPrior(np.zeros(d), np.empty((d, 0)), np.empty((d, 0)))
    if noise.truths == "learn":
        n_components = len(_TRUTH_VARIANCES)
        spread = np.maximum(task_means.var(axis=0), levels[0])
        truths = TruthPrior(
            np.median(task_means, axis=0),
            spread[:, None] * _TRUTH_VARIANCES,
            np.full((d, n_components), 1.0 / n_components),
        )
    return Learned(
        levels=levels,
        log_weights=log_weights,
        freedom=freedom,
        log_class=np.full(n_classes, -np.log(n_classes)),
        bias_variance=np.full(d if noise.bias else 0, 0.1 * middle),
        exponent=0.5,
        truths=truths,
    )


@lru_cache(maxsize=64)
def make_grid(levels: tuple[float, ...], freedom: float, n_classes: int) -> NoiseGrid:
    """Lay levels, tails and classes of difficulty out over one grid of variances (M28).

    No variance is below the lowest level: rounding, which bounds that, bounds all.
    """
    where, log_variance = _layout(levels, np.isfinite(freedom), n_classes)
    mixing = np.zeros((n_classes, len(levels), len(log_variance)))
    share = tail_shares(freedom)
    for c in range(n_classes):
        for k in range(len(levels)):
            np.add.at(mixing[c, k], where[c, k], share)
    return NoiseGrid(np.exp(log_variance), mixing)


@lru_cache(maxsize=64)
def _layout(levels: tuple[float, ...], heavy: bool, n_classes: int) -> tuple[Index, Floats]:
    """Position in the grid of every class, level and tail step, and the grid's log variances."""
    tail = TAIL_STEPS if heavy else np.zeros(1, dtype=int)
    steps = class_steps(n_classes)[:, None, None] + tail
    log_level = np.log(np.array(levels))
    exponent = np.maximum(log_level[:, None] + steps * np.log(STEP), log_level[0])
    # Levels a step apart share their variances; rounding finds them equal.
    rounded = np.round(exponent, 6)
    log_variance, where = np.unique(rounded, return_inverse=True)
    return where.reshape(exponent.shape), log_variance


def class_steps(n_classes: int) -> Index:
    """Steps of the noise variance that each class of difficulty is above the usual."""
    return _CLASS_STEPS if n_classes > 1 else np.zeros(1, dtype=np.int64)


def learn_shares(learned: Learned, level_posterior: Floats) -> Learned:
    """Weights of the levels from the workers' posteriors (m, K), one more of unknown level."""
    m, n_levels = level_posterior.shape
    # Sorted, so that the order of the workers changes no bit.
    expected = np.sort(level_posterior, axis=0).sum(axis=0)
    return replace(learned, log_weights=np.log((expected + 1.0 / n_levels) / (m + 1.0)))


def learn_common_level(learned: Learned, log_likelihood: Floats, lowest: float) -> Learned:
    """Move the levels so that the likeliest of them, for all workers alike, is the best there is.

    ``log_likelihood`` (K,) is that of all answers, each predicted from the others. Near the best
    level s it goes as -a log s - b / s, which three levels a step apart determine. It does not go
    below ``lowest``, which rounding allows.
    """
    best = int(np.argmax(log_likelihood))
    if best in (0, len(log_likelihood) - 1):
        return _moved(learned, 1.0 / STEP if best == 0 else STEP, best, lowest)
    below, above = np.diff(log_likelihood[best - 1 : best + 2])
    b = (below - above) / (STEP + 1.0 / STEP - 2.0)
    a = (b * (STEP - 1.0) - below) / np.log(STEP)
    if not (a > 0 and b > 0):
        return learned
    return _moved(learned, np.clip(b / a, 1.0 / STEP, STEP), best, lowest)


def _moved(learned: Learned, factor: float, best: int, lowest: float) -> Learned:
    factor = max(factor, lowest / learned.levels[best])
    return replace(learned, levels=learned.levels * factor)


def learn_counts(learned: Learned, noise: Noise, counts: ExpectedCounts, n_tasks: int) -> Learned:
    """Tails, classes (M33) and the truths' prior (M35) from what the last sweep counted."""
    if noise.tails == "learn":
        learned = replace(learned, freedom=_best_freedom(learned, counts))
    if noise.difficulty:
        n_classes = len(learned.log_class)
        shares = (counts.classes + 1.0 / n_classes) / (n_tasks + 1.0)
        learned = replace(learned, log_class=np.log(shares / shares.sum()))
    if noise.truths == "learn":
        truths = learned.truths
        weight = counts.components + 1.0 / truths.weight.shape[1]
        weight /= weight.sum(axis=1, keepdims=True)
        mean = truths.mean + counts.pull / counts.precision
        learned = replace(learned, truths=replace(truths, mean=mean, weight=weight))
    return learned


def _best_freedom(learned: Learned, counts: ExpectedCounts) -> float:
    """The degrees of freedom under which the tail steps that answers took are most likely (M34)."""
    n_classes = len(learned.log_class)
    where, _ = _layout(tuple(learned.levels.tolist()), True, n_classes)
    grid = make_grid(tuple(learned.levels.tolist()), learned.freedom, n_classes)
    per_share = np.divide(
        counts.pairs, grid.mixing, out=np.zeros_like(counts.pairs), where=grid.mixing > 0
    )
    steps = np.take_along_axis(per_share, where, axis=2).sum(axis=(0, 1))
    steps *= tail_shares(learned.freedom)
    likelihood = [steps @ np.log(np.maximum(tail_shares(f), 1e-12)) for f in FREEDOMS.tolist()]
    now = int(np.argmin(np.abs(np.log(FREEDOMS / learned.freedom))))
    step = int(np.argmax(likelihood)) - now
    return float(FREEDOMS[np.clip(now + _FREEDOM_STEPS * step, 0, len(FREEDOMS) - 1)])


@dataclass(frozen=True, eq=False)
class BiasBelief:
    """What is believed of the biases (m, d), and how sure one can be of their zero (m, d).

    ``shift`` (m, d), the same for all workers of a connected crowd, is what has been taken off the
    biases to set their zero; its variance is that of all estimates alike.
    """

    mean: Floats
    precision: Floats
    shift: Floats
    shift_variance: Floats


def believe_bias(
    learned: Learned,
    precision: Floats,
    pull: Floats,
    log_level: Floats,
    crowd: Codes,
    anchored: NDArray[np.bool_],
) -> BiasBelief:
    """Put together the messages about each bias with its prior, and set the zero (M36).

    A common shift of all biases cannot be seen in the answers: all that tells of it is that biases
    are drawn about zero. Whether the noisy workers' are drawn wider shows in the spread of the
    biases (the exponent), but only of what each has for himself; errors that workers of a kind
    share need not grow alike. So the zero is the average over exponents from none to the one
    found, and how much it depends on that is part of its variance. Where gold tells the zero
    (``anchored``), nothing is shifted.
    """
    wider = np.exp(learned.exponent * log_level)[:, None]
    prior = 1.0 / (learned.bias_variance * wider)
    n_crowds = int(crowd.max()) + 1
    centres, variances = [], []
    for exponent in np.linspace(0.0, learned.exponent, 5):
        spread = learned.bias_variance * np.exp(exponent * log_level)[:, None]
        trust = precision / (1.0 + spread * precision)
        total = _by_crowd(trust, crowd, n_crowds)
        centre = _by_crowd(pull / (1.0 + spread * precision), crowd, n_crowds)
        centres.append(centre / np.maximum(total, 1e-300))
        variances.append(1.0 / np.maximum(total, 1e-300))
    mean = np.mean(centres, axis=0)
    variance = np.mean(variances, axis=0) + np.var(centres, axis=0)
    # Of a crowd of which nothing has been heard yet, nothing is known.
    variance = np.where(variance > 1e200, 0.0, variance)
    shift = mean[crowd]
    bias = (pull + shift * prior) / (precision + prior)
    taken = np.where(anchored[crowd][:, None], 0.0, shift)
    return BiasBelief(
        mean=bias - taken,
        precision=precision + prior,
        shift=taken,
        shift_variance=np.where(anchored[crowd][:, None], 0.0, variance[crowd]),
    )


def shift_truths(learned: Learned, bias: BiasBelief) -> Learned:
    """Move the prior of the truths along when a shift common to all is taken off the biases."""
    if learned.truths.is_flat:
        return learned
    mean = learned.truths.mean + bias.shift[0]
    return replace(learned, truths=replace(learned.truths, mean=mean))


def learn_bias(
    learned: Learned, precision: Floats, pull: Floats, log_level: Floats, floor: float
) -> Learned:
    """Spread of the biases, and how it goes with noise, from the messages about them (M37).

    With the messages' mean b and variance e, b_u ~ N(c, omega² exp(exponent z_u) + e_u): for every
    exponent the spread is improved by a step of EM, and exponents are averaged by likelihood.
    """
    heard = precision > 0
    if not heard.any():
        return learned
    variance = 1.0 / np.where(heard, precision, 1.0)
    mean = pull * variance
    count = np.maximum(heard.sum(axis=0), 1)
    # Arrays are (exponents, workers, coordinates).
    wider = np.exp(_EXPONENTS[:, None] * log_level)[:, :, None]
    spread = np.tile(np.maximum(learned.bias_variance, floor), (len(_EXPONENTS), 1, 1))
    for _ in range(_SPREAD_STEPS):
        wide = spread * wider
        # Workers not heard yet tell nothing of the spread.
        weight = np.where(heard, 1.0 / (wide + variance), 0.0)
        centre = (weight * mean).sum(axis=1, keepdims=True)
        centre /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        shrunk = wide * weight
        second = np.where(heard, (shrunk * (mean - centre)) ** 2 + wide * (1.0 - shrunk), 0.0)
        spread = (second / wider).sum(axis=1, keepdims=True) / count
        spread = np.clip(spread, floor, learned.levels[-1])
    total = spread * wider + variance
    terms = np.where(heard, np.log(total) + (mean - centre) ** 2 / total, 0.0)
    # Sorted: the same in any row order.
    likelihood = -0.5 * np.sort(terms.reshape(len(_EXPONENTS), -1), axis=1).sum(axis=1)
    share = softmax(likelihood)
    return replace(
        learned,
        bias_variance=np.exp(share @ np.log(spread[:, 0])),
        exponent=float(share @ _EXPONENTS),
    )


def _by_crowd(per_worker: Floats, crowd: Codes, n_crowds: int) -> Floats:
    total = np.zeros((n_crowds, per_worker.shape[1]))
    np.add.at(total, crowd, per_worker)
    return total
