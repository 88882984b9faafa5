"""Noise facts: what a fit learned about a crowd's noise, beside the noise level of each worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NoiseFacts:
    """What a fit learned about the noise; None or empty where the noise model has no such part.

    Attributes
    ----------
    tails
        Degrees of freedom of Student-t noise; None where noise is Gaussian.
    slip_share
        Share of the answers that have nothing to do with the truth; None without slips.
    bias_sd
        Standard deviation of the biases of workers of middle noise, by coordinate.
    bias_exponent
        The variance of the bias is in proportion to the noise variance to this power.
    gain_sd
        Standard deviation of the workers' gains about their mean, by coordinate.
    gain_centre
        Value, by coordinate, at which the bias says how far off a worker is: with gains an answer
        is centre + bias + gain (truth - centre).
    growth
        Noise sd at the highest task as a multiple of that at the lowest, by coordinate.
    difficulty_shares
        Share of the tasks in each class of difficulty, easiest first.
    coordinate_scale
        Noise sd of each coordinate, as a multiple of their geometric mean.
    """

    tails: float | None = None
    slip_share: float | None = None
    bias_sd: tuple[float, ...] = ()
    bias_exponent: float | None = None
    gain_sd: tuple[float, ...] = ()
    gain_centre: tuple[float, ...] = ()
    growth: tuple[float, ...] = ()
    difficulty_shares: tuple[float, ...] = ()
    coordinate_scale: tuple[float, ...] = ()
