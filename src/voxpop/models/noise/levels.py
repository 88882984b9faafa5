"""Levels: how noisy workers are, and how many of them are how noisy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.exact import order_free_sum
from voxpop.models.noise.component import STEP, Component

# A level that fewer than this many workers use, in expectation, is left out.
FEWEST_WORKERS = 0.02


class Shares(NamedTuple):
    """Result of EM on the shares of the levels: log weights (K,), workers at each, posteriors."""

    log_weights: Floats
    n_workers: Floats
    posterior: Floats


def learn_shares(log_likelihood: Floats, log_weights: Floats, n_steps: int = 1) -> Shares:
    """EM steps on the shares of the levels, from each worker's log likelihood of them (M21).

    ::

        π_k ← (Σ_u b_u(k) + 1/K) / (m + 1),   b_u(k) ∝ π_k L_u(k)

    The pseudo-count, one more worker of unknown level, keeps every weight above zero. ``n_workers``
    (K,) and ``posterior`` (m, K) are those that the last step took its weights from.
    """
    m, n_levels = log_likelihood.shape
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    weights = np.exp(log_weights)
    for _ in range(n_steps):
        posterior = likelihood * weights
        posterior /= posterior.sum(axis=1, keepdims=True)
        count = order_free_sum(posterior, axis=0)
        weights = (count + 1.0 / n_levels) / (m + 1.0)
    return Shares(np.log(weights), count, posterior)


def shares_text(sizes: Floats, shares: Floats) -> str:
    """Name levels and the share of workers at each, leaving out those that hardly anybody has."""
    named = zip(sizes, shares, strict=True)
    return ", ".join(f"{size:.3g} ({share:.0%})" for size, share in named if share >= 0.005)


@dataclass(frozen=True, eq=False)
class Levels(Component):
    """Noise variances (K,) that a worker may have, and the log share of workers at each.

    No variance is below ``lowest``, which the rounding of answers allows.
    """

    variance: Floats
    log_weights: Floats
    lowest: float

    def moved_to_best(self, log_likelihood: Floats) -> Levels:
        """Move the levels so that the likeliest of them, for all workers alike, is the best one.

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
        """Leave out all levels but some."""
        log_weights = self.log_weights[kept]
        log_weights = log_weights - np.log(np.exp(log_weights).sum())
        return replace(self, variance=self.variance[kept], log_weights=log_weights)

    def position(self) -> Floats:
        """Shares, and logarithms of the levels."""
        return np.concatenate([np.exp(self.log_weights), np.log(self.variance)])

    def settings(self, scale: Floats) -> dict[str, Any]:
        """Levels and shares; a level is the variance on average over the coordinates."""
        return {
            "weights_used": np.exp(self.log_weights).tolist(),
            "support_used": (self.variance * float((scale**2).mean())).tolist(),
        }
