"""Tails: Student-t noise, so that slips and outliers do not move an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtrc

from voxpop.arrays import Floats, Index
from voxpop.errors import require
from voxpop.models.noise.component import STEP, Component, StartingPoint

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

# Student-t noise is a Gaussian whose variance is drawn anew for each answer; multiples further off
# than these steps are so rare that leaving them out changes no estimate (below 1e-3 for 2 degrees).
# Below two degrees they are not rare, but slips reach as far as any answer.
_STEPS = np.arange(-2, 7)
_MOST_FREEDOM = 128.0
FREEDOMS = np.geomspace(1.0, _MOST_FREEDOM, 85)
_FIRST_FREEDOM = 4.0
# The variance of an answer is hidden, so EM is slow; this many of its steps are taken at once.
_EM_STEPS = 4


@lru_cache(maxsize=256)  # more than the number of degrees of freedom to choose from
def tail_shares(freedom: float) -> Floats:
    """Shares of the variance steps in Student-t noise: of freedom / chi², in steps (M28)."""
    if not np.isfinite(freedom):
        return np.ones(1)
    edges = STEP ** (_STEPS[:-1] + 0.5)
    below = np.concatenate([[0.0], chdtrc(freedom, freedom / edges), [1.0]])
    return np.diff(below)


@lru_cache(maxsize=1)
def _log_shares() -> Floats:
    """Log shares of the steps, for all degrees of freedom to choose from (F, S)."""
    return np.log([np.maximum(tail_shares(f), 1e-12) for f in FREEDOMS.tolist()])


def tail_steps(freedom: float) -> Floats:
    """Multiples of the level's variance that :func:`tail_shares` are the shares of."""
    return np.asarray(STEP ** _STEPS.astype(float)) if np.isfinite(freedom) else np.ones(1)


def tail_variance(freedom: float) -> float:
    """Variance of Student-t noise as a multiple of its level."""
    return float(tail_shares(freedom) @ tail_steps(freedom))


@dataclass(frozen=True, eq=False)
class Tails(Component):
    """Degrees of freedom of the noise, infinite for Gaussian."""

    name = "tails"
    about = (
        "Degrees of freedom of Student-t noise, infinite for Gaussian; ``'learn'`` chooses them\n"
        "from the answers. Heavy tails keep slips and outliers from moving an estimate."
    )
    words = "heavy tails"
    off = np.inf
    learned = "learn"
    compared_with = ((), ("truths",), ("bias",), ("bias", "truths"), ("slips",))

    freedom: float
    is_learned: bool = False

    @classmethod
    def check(cls, value: Any) -> Any:
        """Refuse anything but 'learn' and numbers of at least one."""
        require(
            value == "learn" or (isinstance(value, float | int) and value >= 1),
            f"tails must be 'learn' or degrees of freedom of at least 1, got {value!r}",
        )
        return value

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Tails:
        """Rather heavy tails to learn from, or those given."""
        return cls(_FIRST_FREEDOM, True) if value == "learn" else cls(float(value))

    def answer_steps(self) -> tuple[Index, Floats]:
        """Variances of a t-distributed answer, and the probability of each."""
        heavy = np.isfinite(self.freedom)
        return _STEPS if heavy else super().answer_steps()[0], tail_shares(self.freedom)

    def learn_from_counts(self, counts: ExpectedCounts, steps: Floats) -> Tails:
        """Take the degrees of freedom that make the steps seen in the answers most likely (M34)."""
        if not self.is_learned:
            return self
        likelihood = _log_shares() @ steps
        old = int(np.argmin(np.abs(np.log(FREEDOMS / self.freedom))))
        new = old + _EM_STEPS * (int(np.argmax(likelihood)) - old)
        return Tails(float(FREEDOMS[np.clip(new, 0, len(FREEDOMS) - 1)]), True)

    def position(self) -> Floats:
        """A tenth of the logarithm: tails of similar degrees of freedom differ little."""
        return np.array([0.1 * np.log(min(self.freedom, _MOST_FREEDOM))])

    def facts(self, scale: Floats) -> dict[str, Any]:
        """Degrees of freedom, None for Gaussian noise."""
        return {"tails": None if np.isinf(self.freedom) else self.freedom}
