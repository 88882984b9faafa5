"""Levels: the noise variances of workers, and the share of workers at each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from voxpop.arrays import Floats, Index, WorkerSums
from voxpop.data.exact import OrderFreeSum
from voxpop.models.noise.component import STEP, Component
from voxpop.words import percent

# A level that fewer than this many workers use, in expectation, is left out.
FEWEST_WORKERS = 0.02
# Workers whose numbers stay in the cache, for about ten levels.
_AT_ONCE = 4096


class Shares(NamedTuple):
    """Result of EM on the shares of the levels: log weights and expected workers at each, (K,)."""

    log_weights: Floats
    n_workers: Floats


def learn_shares(sums: WorkerSums, quantum: float, log_weights: Floats, n_steps: int = 1) -> Shares:
    """EM steps on the shares of the levels, from the sums of the messages to each worker (M21).

    ::

        π_k ← (Σ_u b_u(k) + 1/K) / (m + 1),   b_u(k) ∝ π_k L_u(k),   log L = sums quantum

    The pseudo-count, one more worker of unknown level, keeps every weight above zero. ``n_workers``
    are those from which the last step took the weights.
    """
    m, n_levels = sums.shape
    # Level by level, some workers at once: numpy is slow along short axes, and out of the cache.
    likelihood = np.empty((n_levels, m))
    blocks = [slice(start, start + _AT_ONCE) for start in range(0, m, _AT_ONCE)]
    for some in blocks:
        own = sums[some].T * quantum
        np.exp(own - own.max(axis=0), out=likelihood[:, some])
    weights = np.exp(log_weights)
    for _ in range(n_steps):
        total = OrderFreeSum(1.0, m)
        for some in blocks:
            joint = likelihood[:, some] * weights[:, None]
            # One after the other, or the last worker of all might be summed in another order.
            joint /= sum(joint)
            total.add(joint, axis=1)
        weights = (total.value + 1.0 / n_levels) / (m + 1.0)
    return Shares(np.log(weights), total.value)


def shares_text(sizes: Floats, shares: Floats) -> str:
    """Name levels and the share of workers at each, without levels that hardly anybody has."""
    named = zip(sizes, shares, strict=True)
    return ", ".join(f"{size:.3g} ({percent(share)})" for size, share in named if share >= 0.005)


@dataclass(frozen=True, eq=False)
class Levels(Component):
    """Noise variances (K,) that a worker may have, and the log share of workers at each.

    No variance is below ``lowest``, which the rounding of answers allows. Where workers differ in
    more than noise, every level occurs once in each of their classes.
    """

    variance: Floats
    log_weights: Floats
    lowest: float

    def moved_to_best(self, log_likelihood: Floats) -> Levels:
        """Scale all levels so that the most likely one is optimal for workers who all have it.

        ``log_likelihood`` (K,) is that of all answers, each predicted from the others. Near the
        best level s it goes as -a log s - b / s, which three levels a step apart determine.
        """
        best = int(np.argmax(log_likelihood))
        if best == 0:
            factor = 1.0 / STEP
        elif best == len(log_likelihood) - 1:
            factor = STEP
        else:
            below, above = np.diff(log_likelihood[best - 1 : best + 2])
            b = (below - above) / (STEP + 1.0 / STEP - 2.0)
            a = (b * (STEP - 1.0) - below) / np.log(STEP)
            if not (a > 0 and b > 0):
                return self
            factor = np.clip(b / a, 1.0 / STEP, STEP)
        factor = max(factor, self.lowest / self.variance[best])
        return replace(self, variance=self.variance * factor)

    def keep(self, kept: Index) -> Levels:
        """Keep only some of the levels."""
        log_weights = self.log_weights[kept]
        log_weights = log_weights - np.log(np.exp(log_weights).sum())
        return replace(self, variance=self.variance[kept], log_weights=log_weights)

    def repeated(self, n_classes: int) -> Levels:
        """All levels repeated for each class of workers; most workers are in the first class."""
        share = 0.5 ** np.arange(1, n_classes + 1)
        log_share = np.log(share / share.sum())
        log_weights = np.add.outer(log_share, self.log_weights).ravel()
        return replace(self, variance=np.tile(self.variance, n_classes), log_weights=log_weights)

    def independent(self, of_state: Index) -> Levels:
        """The same shares of levels and of classes, with the two independent of each other."""
        weight = np.exp(self.log_weights)
        level = np.unique(self.variance, return_inverse=True)[1]
        joint = np.bincount(level, weight)[level] * np.bincount(of_state, weight)[of_state]
        return replace(self, log_weights=np.log(joint / joint.sum()))

    def merged(self, posterior: Floats) -> tuple[Levels, Floats]:
        """Levels without classes of workers, and the workers' posterior (m, K) of them."""
        variance, level = np.unique(self.variance, return_inverse=True)
        if len(variance) == len(level):
            return self, posterior
        of_level = (level[:, None] == np.arange(len(variance))).astype(np.float64)
        log_weights = np.log(np.exp(self.log_weights) @ of_level)
        return Levels(variance, log_weights, self.lowest), posterior @ of_level

    def position(self) -> Floats:
        """Shares, and logarithms of the levels."""
        return np.concatenate([np.exp(self.log_weights), np.log(self.variance)])

    def settings(self, scale: Floats) -> dict[str, Any]:
        """Levels and shares; a level is the variance on average over the coordinates."""
        return {
            "weights_used": np.exp(self.log_weights).tolist(),
            "support_used": (self.variance * float((scale**2).mean())).tolist(),
        }
