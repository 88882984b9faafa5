"""What one more answer is worth: the variance of a truth that it is expected to leave.

The truth is taken as Gaussian with the variance v per coordinate that its answers so far leave,
and the answer A as coming from a worker whose level is s_k with probability q_k. Its squared
distance ρ = |A - mean|² has the density Σ q_k f_k(ρ), f_k that of (v + s_k) χ²_d. What the answer
says of the level and so of the truth is

    r_k(ρ) ∝ q_k f_k(ρ),   E[truth | A] = mean + G(ρ) (A - mean),   G(ρ) = Σ r_k(ρ) v / (v + s_k),

and it is expected to leave, with h_k = s_k / (v + s_k),

    L(v) = Σ q_k v h_k + 1/d ∫ ρ [Σ q_k f_k h_k² - (Σ q_k f_k h_k)² / Σ q_k f_k] dρ:

v s / (v + s) where the level is known, and more where it is not: the integral is the variance of
the truth's mean over the levels that the answer leaves possible. The log of (v - L) / L is nearly
straight in log v, with slope one at both ends, so L is worked out for few v and read off between.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from voxpop.arrays import Floats, Index

# Values of v per factor 10 and how far they reach past the levels; nodes for ρ, evenly in its
# logarithm, and how far these reach: the variance left comes within 0.1 % of itself.
_PER_DECADE, _REACH = 6, 1e3
_NODES, _BELOW, _ABOVE = 128, 9.0, 4.5
# Beliefs worked out at once.
_BLOCK = 64


class Gains:
    """Expected variance left after an answer, by worker: beliefs (w, K) about their levels."""

    def __init__(self, levels: Floats, belief: Floats, dimension: int) -> None:
        low, high = levels.min() / _REACH, levels.max() * _REACH
        n_grid = int(np.ceil(_PER_DECADE * np.log10(high / low))) + 1
        self._log_v = np.linspace(np.log(low), np.log(high), n_grid)
        v = np.exp(self._log_v)[:, None]
        total = v + levels
        first = np.log(total[:, 0]) - _BELOW
        step = (np.log(total[:, -1]) + _ABOVE - first) / (_NODES - 1)
        log_rho = first[:, None] + step[:, None] * np.arange(_NODES)
        # ρ f_k(ρ) by v, node and level; half a χ²_d is a Gamma with shape d/2.
        half = np.exp(log_rho)[:, :, None] / (2.0 * total[:, None, :])
        shape = 0.5 * dimension
        density = np.exp(shape * np.log(half) - half - gammaln(shape))
        h = levels / total
        share = np.exp(log_rho) * step[:, None] / dimension
        rows = []
        for start in range(0, len(belief), _BLOCK):
            q = belief[start : start + _BLOCK].T
            # Where the density is next to nothing, so is its share of the whole.
            mean = (density * h[:, None, :]) @ q
            spread = (density * h[:, None, :] ** 2) @ q - mean**2 / np.maximum(density @ q, 1e-200)
            unsure = np.maximum(np.einsum("gn,gnw->gw", share, spread), 0.0)
            known = (v * v / total) @ q
            gain = np.maximum(known - unsure, 1e-9 * known)
            rows.append(np.log(gain / ((v * h) @ q + unsure)).T)
        self._log_ratio = np.concatenate(rows)
        self._expected = belief @ levels

    def left(self, worker: int, variance: Floats) -> Floats:
        """Return the variance expected to be left of truths, after an answer by this worker."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_v = np.log(variance)
            inside = np.clip(log_v, self._log_v[0], self._log_v[-1])
            log_ratio = np.interp(inside, self._log_v, self._log_ratio[worker])
            left = variance / (1.0 + np.exp(log_ratio + (log_v - inside)))
        return np.asarray(np.where(np.isinf(variance), self._expected[worker], left))


def hedged(variance: Floats, n_answers: Index, trust: float) -> Floats:
    """Draw the variances of tasks towards what their numbers of answers alone would say.

    If workers are not as different as they seem, tasks whose workers seem precise are not known as
    well as that. With all workers alike a task of c answers has a variance in proportion to 1 / c.
    Both are weighed by the ``trust`` in the former; the total stays (N3). At no trust, tasks with
    the fewest answers come first.
    """
    some = np.isfinite(variance) & (variance > 0) & (n_answers > 0)
    if trust >= 1.0 or not some.any():
        return variance
    alike = 1.0 / n_answers[some]
    found = variance.copy()
    found[some] = trust * found[some] + (1.0 - trust) * alike * (found[some].sum() / alike.sum())
    return found
