"""Truths: the distribution that they are drawn from, flat or learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.errors import require
from voxpop.models.noise.component import Component, StartingPoint

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

# Variances of the prior, narrow to wide, as multiples of the variance of the tasks' means.
_VARIANCES = 4.0 ** np.arange(-3, 2)


@dataclass(frozen=True, eq=False)
class Truths(Component):
    """Prior of the truths: per coordinate a mixture of Gaussians about one mean; none if flat.

    ``mean`` is (d,), ``variance`` and ``weight`` are (d, H).
    """

    name = "truths"
    about = (
        "``'flat'``: every truth is as likely as any other. ``'learn'``: truths have a\n"
        "distribution, learned from the answers, and estimates from few or noisy answers are\n"
        "pulled towards its mean."
    )
    words = "estimates pulled towards the overall average"
    off = "flat"
    learned = "learn"
    compared_with = ((),)
    compared_alike = ((),)

    mean: Floats
    variance: Floats
    weight: Floats

    @classmethod
    def check(cls, value: Any) -> Any:
        """Refuse anything but 'flat' and 'learn'."""
        require(value in ("flat", "learn"), f"truths must be 'flat' or 'learn', got {value!r}")
        return value

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Truths:
        """Place the prior by the tasks' means."""
        means = start.task_means
        variances = _VARIANCES if value == "learn" else np.empty(0)
        spread = np.maximum(means.var(axis=0), start.levels[0])[:, None] * variances
        weight = np.full(spread.shape, 1.0 / max(len(variances), 1))
        centre = np.median(means, axis=0) if value == "learn" else np.zeros(means.shape[1])
        return cls(centre, spread, weight)

    @property
    def is_flat(self) -> bool:
        """Return whether any truth is as likely as any other."""
        return self.weight.size == 0

    def shifted(self, shift: Floats) -> Truths:
        """Move the prior by the ``shift`` (d,) that is subtracted from all workers' biases."""
        return self if self.is_flat else replace(self, mean=self.mean + shift)

    def learn_from_counts(self, counts: ExpectedCounts, steps: Floats) -> Truths:
        """Mean and shares of the prior, with a pseudo-count of one truth (M35)."""
        if self.is_flat:
            return self
        weight = counts.components + 1.0 / self.weight.shape[1]
        weight /= weight.sum(axis=1, keepdims=True)
        return replace(self, mean=self.mean + counts.pull / counts.precision, weight=weight)

    def position(self) -> Floats:
        """Shares of the mixture."""
        return self.weight.ravel()
