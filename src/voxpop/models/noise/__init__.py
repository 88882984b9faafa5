"""Noise: what answers do beside scattering about the truth at each worker's own level."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import chdtrc

from voxpop.arrays import Floats
from voxpop.errors import require

# Variances of the mixture are this factor apart, as the learned levels are.
STEP = 2.5
# Student-t noise is a Gaussian whose variance is drawn anew for each answer; multiples further off
# than these steps are so rare that leaving them out changes no estimate (below 1e-3 for 2 degrees).
TAIL_STEPS = np.arange(-2, 7)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Which departures from the paper's Gaussian noise to allow for, each learned when on.

    Parameters
    ----------
    tails
        Degrees of freedom of Student-t noise, infinite for Gaussian; ``"learn"`` chooses them from
        the answers. Heavy tails keep slips and outliers from moving an estimate.
    bias
        Every worker may be off by a constant in each coordinate. How far biases spread, and
        whether noisy workers are also the biased ones, is learned.
    difficulty
        Some tasks are harder for everybody: their noise variance is a multiple of what it is
        elsewhere. How common which multiple is, is learned.
    truths
        ``"flat"``: every truth is as likely as any other. ``"learn"``: truths have a distribution,
        learned from the answers, and estimates from few or noisy answers are drawn towards it.
    bounds
        Lowest and highest value a truth can have, the same for all coordinates; None if any.
    """

    tails: float | Literal["learn"] = np.inf
    bias: bool = False
    difficulty: bool = False
    truths: Literal["flat", "learn"] = "flat"
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        require(
            self.tails == "learn" or (isinstance(self.tails, float | int) and self.tails >= 1),
            f"tails must be 'learn' or degrees of freedom of at least 1, got {self.tails!r}",
        )
        require(
            self.truths in ("flat", "learn"),
            f"truths must be 'flat' or 'learn', got {self.truths!r}",
        )
        if self.bounds is not None:
            low, high = (float(bound) for bound in self.bounds)
            require(low < high, f"bounds must be a lower and a higher number, got {self.bounds}")
            object.__setattr__(self, "bounds", (low, high))

    @property
    def is_plain(self) -> bool:
        """Tell whether this is the paper's noise, and nothing else."""
        return self == Noise()

    def summary(self) -> str:
        """Name what is on, in a few words."""
        parts = []
        if self.tails == "learn" or np.isfinite(float(self.tails)):
            parts.append("heavy tails")
        parts += ["worker bias"] * self.bias + ["task difficulty"] * self.difficulty
        parts += ["learned truths"] * (self.truths == "learn")
        parts += [f"truths in {self.bounds}"] * (self.bounds is not None)
        return ", ".join(parts) or "Gaussian noise"


@lru_cache(maxsize=256)  # more than there are degrees of freedom to learn among
def tail_shares(freedom: float) -> Floats:
    """Shares of the variance steps in Student-t noise: of freedom / chi², in steps (M25)."""
    if not np.isfinite(freedom):
        return np.ones(1)
    edges = STEP ** (TAIL_STEPS[:-1] + 0.5)
    below = np.concatenate([[0.0], chdtrc(freedom, freedom / edges), [1.0]])
    return np.diff(below)


def tail_steps(freedom: float) -> Floats:
    """Multiples of the level's variance that :func:`tail_shares` are the shares of."""
    return np.asarray(STEP ** TAIL_STEPS.astype(float)) if np.isfinite(freedom) else np.ones(1)


def tail_variance(freedom: float) -> float:
    """Variance of Student-t noise as a multiple of its level."""
    return float(tail_shares(freedom) @ tail_steps(freedom))
