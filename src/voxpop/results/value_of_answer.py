"""The value of one more answer: how far it is expected to reduce the variance of a truth."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from voxpop.arrays import Floats

# Quadrature nodes, evenly spaced in the log of the squared distance, and how far they reach below
# the least and above the largest variance of an answer: the error is about a millionth.
_NODES, _BELOW, _ABOVE = 128, 9.0, 4.5
# Mixtures evaluated at once.
_BLOCK = 64


def value_of_answer(
    variance: Floats, share: Floats, noise: Floats, dimension: int = 1
) -> tuple[Floats, Floats]:
    """Expected reduction of a variance by one more answer, and the variance expected to remain.

    The truth is Gaussian with variance v per coordinate. The answer A has noise variance s_k with
    probability q_k, so its squared distance ρ = |A - mean|² has the density Σ q_k f_k(ρ), where f_k
    is that of (v + s_k) χ²_d. Bayes' rule gives the noise and the truth::

        r_k(ρ) ∝ q_k f_k(ρ),   E[truth | A] = mean + (A - mean) Σ r_k(ρ) v / (v + s_k)

    The expected posterior variance is, with h_k = s_k / (v + s_k)::

        L(v) = Σ q_k v h_k + 1/d ∫ ρ [Σ q_k f_k h_k² - (Σ q_k f_k h_k)² / Σ q_k f_k] dρ         (N1)

    It is v s / (v + s) if the noise is known. The integral adds the variance of the posterior mean
    over the noise levels that remain possible after the answer.

    Parameters
    ----------
    variance
        Variances v > 0, shape (V,).
    share, noise
        Probabilities q, one row per worker (W, K), and their noise variances s > 0 (K,).

    Returns
    -------
    Reduction v - L(v) and remaining variance L(v), both (V, W).
    """
    v = variance[:, None]
    total = v + noise
    first = np.log(total.min(axis=1)) - _BELOW
    step = (np.log(total.max(axis=1)) + _ABOVE - first) / (_NODES - 1)
    log_rho = first[:, None] + step[:, None] * np.arange(_NODES)
    # ρ f_k(ρ) by v, node and k; half a χ²_d is a Gamma with shape d/2.
    half = np.exp(log_rho)[:, :, None] / (2.0 * total[:, None, :])
    shape = 0.5 * dimension
    density = np.exp(shape * np.log(half) - half - gammaln(shape))
    h = noise / total
    node_weight = np.exp(log_rho) * step[:, None] / dimension
    parts = []
    for start in range(0, len(share), _BLOCK):
        q = share[start : start + _BLOCK].T
        mean = (density * h[:, None, :]) @ q
        # The floor only matters where the density is negligible.
        spread = (density * h[:, None, :] ** 2) @ q - mean**2 / np.maximum(density @ q, 1e-200)
        unknown = np.maximum(np.einsum("gn,gnw->gw", node_weight, spread), 0.0)
        known = (v * v / total) @ q
        parts.append((np.maximum(known - unknown, 1e-9 * known), (v * h) @ q + unknown))
    reduction, remaining = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    return reduction, remaining
