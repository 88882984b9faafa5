"""Bias: every worker may be off by a constant in each coordinate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from voxpop.arrays import Codes, Floats
from voxpop.data.exact import (
    column_sums,
    largest_by_owner,
    order_free_sum,
    owner_sums,
    owner_values,
)
from voxpop.models.noise.component import Component, StartingPoint, WorkerEvidence

_EXPONENTS = np.linspace(0.0, 1.0, 11)
_EM_STEPS = 5
# Workers at once, for every exponent: half a megabyte.
_BLOCK = 5_000
# Exponents that the zero of the biases is averaged over.
_N_ZEROS = 5
# The spread of the biases stays above this share of the lowest level.
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True, eq=False)
class BiasPosterior:
    """Mean and precision of the biases (m, d), and what sets their zero (m, d).

    ``shift``, the same for all workers of a connected part of the crowd, is what has been taken
    off the biases; its variance is shared by all estimates of that part.
    """

    mean: Floats
    precision: Floats
    shift: Floats
    shift_variance: Floats

    def columns(self, scale: Floats) -> dict[str, Floats]:
        """What a result says of the workers; ``scale`` (d,) is the unit of each coordinate."""
        sd = scale / np.sqrt(self.precision)
        return {"worker_bias": self.mean * scale, "worker_bias_sd": sd}


@dataclass(frozen=True, eq=False)
class Bias(Component):
    """Spread of the biases: ``variance`` (d,), empty without bias, is that of a typical worker.

    A worker whose log level is z above the average has exp(``exponent`` z) times as much.
    """

    name = "bias"
    about = (
        "Every worker may be off by a constant in each coordinate. How far biases spread, and\n"
        "whether noisy workers are also the biased ones, is learned."
    )
    words = "worker bias"
    compared_with = ((),)
    compared_alike = True

    variance: Floats
    exponent: float = 0.5

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Bias:
        """Biases of a tenth of the typical noise variance."""
        middle = float(np.exp(np.exp(start.log_weights) @ np.log(start.levels)))
        return cls(np.full(start.task_means.shape[1] if value else 0, 0.1 * middle))

    @property
    def is_on(self) -> bool:
        """Tell whether workers have a bias."""
        return self.variance.size > 0

    def posterior(
        self,
        precision: Floats,
        pull: Floats,
        log_level: Floats,
        part: Codes,
        anchored: NDArray[np.bool_],
    ) -> BiasPosterior:
        """Combine the messages about each bias with its prior, and set the zero (M36).

        A shift common to all biases cannot be seen in the answers: the only hint is that biases
        are drawn about zero. The exponent says whether those of noisy workers are drawn wider,
        but only for the part of a bias that is the worker's own; errors that workers of a kind
        share need not grow alike. So the zero is the average over exponents from none to the one
        learned, and how much it depends on that is part of its variance. ``part`` (m,) is the
        connected part of the crowd that a worker belongs to; in one with gold (``anchored``)
        nothing is shifted.
        """
        terms = []
        for exponent in np.linspace(0.0, self.exponent, _N_ZEROS):
            wider = 1.0 + self.variance * np.exp(exponent * log_level)[:, None] * precision
            terms += [precision / wider, pull / wider]
        # All sums at once: on a small crowd a call takes longer than what it adds up.
        sums = _sum_by_part(np.concatenate(terms, axis=1), part)
        sums = sums.reshape(len(sums), _N_ZEROS, 2, precision.shape[1])
        variances = 1.0 / np.maximum(sums[:, :, 0], 1e-300)
        centres = sums[:, :, 1] / np.maximum(sums[:, :, 0], 1e-300)
        zero = np.mean(centres, axis=1)
        variance = np.mean(variances, axis=1) + np.var(centres, axis=1)
        # Before the first messages of a part nothing is known of its zero.
        variance = np.where(variance > 1e200, 0.0, variance)
        prior = 1.0 / (self.variance * np.exp(self.exponent * log_level)[:, None])
        bias = (pull + zero[part] * prior) / (precision + prior)
        free = ~anchored[:, None]
        shift = np.where(free, zero, 0.0)[part]
        return BiasPosterior(
            bias - shift, precision + prior, shift, np.where(free, variance, 0.0)[part]
        )

    def learn_from_workers(self, evidence: WorkerEvidence) -> Bias:
        """Spread of the biases, and how it goes with noise, from the messages about them (M37).

        With the messages' mean b and variance e, b_u ~ N(c, omega² exp(exponent z_u) + e_u): for
        every exponent EM improves the spread, and exponents are averaged by likelihood.
        """
        # Workers without any message yet say nothing of the spread.
        known = evidence.bias_precision > 0
        if not self.is_on or not known.any():
            return self
        floor, most = _LEAST_SPREAD * evidence.levels[0], evidence.levels[-1]
        spread = np.empty((len(_EXPONENTS), len(self.variance)))
        likelihood = np.zeros(len(_EXPONENTS))
        for j, there in enumerate(known.T):
            if not there.any():
                spread[:, j] = floor
                continue
            precision, pull = evidence.bias_precision[there, j], evidence.bias_pull[there, j]
            about = _Spread(evidence.log_level[there], 1.0 / precision, pull / precision)
            start = np.full(len(_EXPONENTS), max(self.variance[j], floor))
            spread[:, j], found = about.learn(start, floor, most)
            likelihood += found
        share = softmax(likelihood)
        return replace(
            self,
            variance=np.exp(share @ np.log(spread)),
            exponent=float(share @ _EXPONENTS),
        )

    def position(self) -> Floats:
        """The exponent, and the logarithm of the spread."""
        return np.append(np.log(self.variance), self.exponent)

    def facts(self, scale: Floats) -> dict[str, Any]:
        """Sd of the biases in each coordinate, and how it grows with a worker's noise."""
        return {
            "bias_sd": tuple((np.sqrt(self.variance) * scale).tolist()) if self.is_on else (),
            "bias_exponent": self.exponent if self.is_on else None,
        }


class _Spread:
    """One coordinate of the biases: means and variances (m,) by the messages about them.

    Spreads are those under each exponent; workers are taken in blocks that stay in the cache, and
    in an order of their numbers' own: the same bits come out in any order of the workers.
    """

    def __init__(self, log_level: Floats, variance: Floats, mean: Floats) -> None:
        order = np.argsort(mean)
        if not np.diff(mean[order]).all():  # several keys take five times as long
            order = np.lexsort((log_level, variance, mean))
        self._log_level, self._variance = log_level[order], variance[order]
        self._mean = mean[order]
        self._blocks = [slice(at, at + _BLOCK) for at in range(0, len(mean), _BLOCK)]

    def _wider(self, block: slice) -> Floats:
        """Powers of one step: exponents are evenly spaced from 0."""
        step = np.exp(_EXPONENTS[1] * self._log_level[block])
        powers = np.ones((len(_EXPONENTS), len(step)))
        for one, next_one in pairwise(powers):
            np.multiply(one, step, out=next_one)
        return powers

    def learn(self, spread: Floats, floor: float, most: float) -> tuple[Floats, Floats]:
        """Return the spreads after steps of EM, and the log likelihood of each exponent."""
        centre = np.zeros_like(spread)
        # A small crowd keeps its powers from step to step; a large one has no room for them.
        kept_powers = self._wider(self._blocks[0]) if len(self._blocks) == 1 else None
        for _ in range(_EM_STEPS):
            # About the centre of the step before, so that squares about the new one are not lost.
            near = float(centre.mean())
            sums = np.sum(
                [self._sums(block, spread, near, kept_powers) for block in self._blocks], axis=0
            )
            per_variance, pull, kept, square, moment, weight = sums
            centre = near + pull / np.maximum(per_variance, 1e-300)
            away = centre - near
            second = square - 2.0 * away * moment + away**2 * weight + spread * kept
            spread = np.clip(second / len(self._mean), floor, most)
        terms = [self._terms(block, spread, centre) for block in self._blocks]
        return spread, -0.5 * order_free_sum(np.concatenate(terms, axis=1), axis=1)

    def _sums(
        self, block: slice, spread: Floats, near: float, kept_powers: Floats | None
    ) -> Floats:
        """What a step needs of some workers, (6, exponents); w is wider, V = spread w + variance.

        Σ 1/V, Σ x/V, Σ variance/V, and with q = w (spread/V)² Σ q x², Σ q x, Σ q; x is from near.
        """
        variance, away = self._variance[block], self._mean[block] - near
        wider = self._wider(block) if kept_powers is None else kept_powers
        per_total = 1.0 / (spread[:, None] * wider + variance)
        own = spread[:, None] * per_total
        wider = wider * own
        wider *= own
        once = np.stack([np.ones_like(away), away, variance], axis=1)
        twice = np.stack([away**2, away, np.ones_like(away)], axis=1)
        return np.concatenate([per_total @ once, wider @ twice], axis=1).T

    def _terms(self, block: slice, spread: Floats, centre: Floats) -> Floats:
        total = spread[:, None] * self._wider(block) + self._variance[block]
        return np.asarray(np.log(total) + (self._mean[block] - centre[:, None]) ** 2 / total)


def _sum_by_part(per_worker: Floats, part: Codes) -> Floats:
    """Sum over the workers of each part: the same bits in any order of the workers."""
    n_parts = int(part.max()) + 1
    if n_parts == 1:
        return column_sums(per_worker)[None]
    found = []
    for terms in per_worker.T:
        largest = largest_by_owner(part, terms, n_parts)
        found.append(owner_values(owner_sums(part, terms, largest), largest))
    return np.stack(found, axis=1)
