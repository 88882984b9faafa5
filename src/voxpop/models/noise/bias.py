"""Bias: every worker may be off by a constant in each coordinate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
# The zero of the biases is averaged over these shares of the learned exponent.
_ZEROS = np.linspace(0.0, 1.0, 5)
# The spread of the biases stays above this share of the lowest level.
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True, eq=False)
class BiasPosterior:
    """Mean and precision of the biases (m, d), and what sets their zero (m, d).

    ``shift``, the same for all workers of a connected part of the crowd, has been subtracted from
    the biases; its variance is shared by all estimates of that part.
    """

    mean: Floats
    precision: Floats
    shift: Floats
    shift_variance: Floats

    def columns(self, scale: Floats) -> dict[str, Floats]:
        """The workers' columns of a result; ``scale`` (d,) is the unit of each coordinate."""
        sd = scale / np.sqrt(self.precision)
        return {"worker_bias": self.mean * scale, "worker_bias_sd": sd}


@dataclass(frozen=True, eq=False)
class Bias(Component):
    """Spread of the biases: ``variance`` (d,), empty without bias, is that of a typical worker.

    A worker whose log level is z above the average has exp(``exponent`` z) times as much.
    """

    name = "bias"
    about = (
        "Every worker may be off by a constant in each coordinate. The spread of the biases is\n"
        "learned, and how far noisy workers are also the biased ones."
    )
    words = "worker bias"
    compared_with = ((),)
    compared_alike = ((),)

    variance: Floats
    exponent: float = 0.5

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Bias:
        """Biases of a tenth of the typical noise variance."""
        middle = float(np.exp(np.exp(start.log_weights) @ np.log(start.levels)))
        return cls(np.full(start.task_means.shape[1] if value else 0, 0.1 * middle))

    @property
    def is_on(self) -> bool:
        """Return whether workers have a bias."""
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

        Answers cannot show a shift common to all biases: the only information is that biases are
        drawn about zero. The exponent says whether those of noisy workers are drawn wider, but only
        for the part of a bias that is the worker's own; errors that workers of a kind share need
        not grow alike. So the zero is averaged over exponents from none to the one learned, and its
        variance includes how much it depends on them. ``part`` (m,) is the connected part of
        the crowd that a worker belongs to; in one with gold (``anchored``) nothing is shifted.
        """
        wider = np.exp(np.multiply.outer(self.exponent * _ZEROS, log_level))[:, :, None]
        wider = 1.0 + self.variance * wider * precision
        terms = np.stack([precision / wider, pull / wider]).transpose(2, 0, 1, 3)
        # All sums at once: on a small crowd a call takes longer than the additions.
        sums = _sum_by_part(terms.reshape(len(terms), -1), part)
        sums = sums.reshape(-1, *terms.shape[1:])
        variances = 1.0 / np.maximum(sums[:, 0], 1e-300)
        centres = sums[:, 1] / np.maximum(sums[:, 0], 1e-300)
        zero = centres.sum(axis=1) / len(_ZEROS)
        spread = ((centres - zero[:, None]) ** 2).sum(axis=1) / len(_ZEROS)
        variance = variances.sum(axis=1) / len(_ZEROS) + spread
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
        """Spread of the biases, and how it grows with noise, from the messages about them (M37).

        With the messages' mean b and variance e, b_u ~ N(c, omega² exp(exponent z_u) + e_u): for
        every exponent EM improves the spread, and exponents are averaged by likelihood.
        """
        # Workers without any message yet carry no information on the spread.
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
        share = np.exp(likelihood - likelihood.max())
        share /= share.sum()
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

    Spreads are those under each exponent. Workers are taken in blocks that stay in the cache, and
    sorted by their numbers: the same bits come out in any order of the workers.
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
        kept = [self._wider(block) for block in self._blocks[:1] if len(self._blocks) == 1]
        for _ in range(_EM_STEPS):
            # Relative to the previous step's centre, so that squares about the new one are not
            # lost.
            near = float(centre.sum()) / len(centre)
            wider = kept or map(self._wider, self._blocks)
            sums = sum(
                self._sums(block, spread, near, powers)
                for block, powers in zip(self._blocks, wider, strict=True)
            )
            per_variance, pull, kept_variance, square, moment, weight = np.asarray(sums)
            centre = near + pull / np.maximum(per_variance, 1e-300)
            away = centre - near
            second = square - 2.0 * away * moment + away**2 * weight + spread * kept_variance
            spread = np.minimum(np.maximum(second / len(self._mean), floor), most)
        wider = kept or map(self._wider, self._blocks)
        terms = [
            self._terms(block, spread, centre, powers)
            for block, powers in zip(self._blocks, wider, strict=True)
        ]
        return spread, -0.5 * order_free_sum(np.concatenate(terms, axis=1), axis=1)

    def _sums(self, block: slice, spread: Floats, near: float, powers: Floats) -> Floats:
        """Sums over some workers for a step, (6, exponents); w is wider, V = spread w + variance.

        Σ 1/V, Σ x/V, Σ variance/V, and with q = w (spread/V)² Σ q x², Σ q x, Σ q; x is from near.
        """
        variance, away = self._variance[block], self._mean[block] - near
        per_total = 1.0 / (spread[:, None] * powers + variance)
        own = spread[:, None] * per_total
        wider = powers * own
        wider *= own
        moments = np.empty((len(away), 4))
        moments[:, 0], moments[:, 1], moments[:, 2] = variance, 1.0, away
        np.multiply(away, away, out=moments[:, 3])
        once, twice = per_total @ moments[:, :3], wider @ moments[:, 1:]
        return np.concatenate([once[:, (1, 2, 0)], twice[:, ::-1]], axis=1).T

    def _terms(self, block: slice, spread: Floats, centre: Floats, powers: Floats) -> Floats:
        total = spread[:, None] * powers + self._variance[block]
        return np.asarray(np.log(total) + (self._mean[block] - centre[:, None]) ** 2 / total)


def _sum_by_part(per_worker: Floats, part: Codes) -> Floats:
    """Sum over the workers of each part: the same bits in any order of the workers."""
    n_parts = int(part.max()) + 1
    if n_parts == 1:
        return column_sums(per_worker)[None]
    n_columns = per_worker.shape[1]
    owner = np.add.outer(part.astype(np.int64) * n_columns, np.arange(n_columns)).ravel()
    terms, n_sums = per_worker.ravel(), n_parts * n_columns
    largest = largest_by_owner(owner, terms, n_sums)
    return owner_values(owner_sums(owner, terms, largest), largest).reshape(n_parts, n_columns)
