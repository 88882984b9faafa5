"""Difficulty: some tasks are harder for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.exact import Limbs, exact_sum, exact_value
from voxpop.models.noise.component import STEP, Component, StartingPoint

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

# Harder and easier tasks: noise variance times 1/39, 1/6.25, 1, 6.25, 39.
_STEPS = np.arange(-4, 5, 2)


@dataclass(frozen=True, eq=False)
class Difficulty(Component):
    """Log share (C,) of each class of difficulty."""

    name = "difficulty"
    about = (
        "Some tasks are harder for everybody: their noise variance is a multiple of the usual\n"
        "one. The share of tasks at each multiple is learned."
    )
    words = "task difficulty"
    compared_with = ((), ("truths",), ("bias",))
    # The mean of equally noisy workers may still be more certain on some tasks than on others.
    compared_alike = ((), ("truths",))

    log_share: Floats

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Difficulty:
        """All classes equally likely."""
        n_classes = len(_STEPS) if value else 1
        return cls(np.full(n_classes, -np.log(n_classes)))

    @property
    def is_on(self) -> bool:
        """Return whether tasks differ."""
        return len(self.log_share) > 1

    @property
    def steps(self) -> Index:
        """Steps (C,) that the noise variance of each class is above the usual."""
        return _STEPS if self.is_on else np.zeros(1, dtype=np.int64)

    def usual(self, classes: Floats) -> float:
        """Noise variance of the typical task, from the posterior (n, C) of each task's class."""
        return self.usual_of(exact_sum(self.log_multiple(classes)), len(classes))

    @staticmethod
    def usual_of(sums: Limbs, n_tasks: int) -> float:
        """Noise variance of the typical task, from exact sums of its logarithm."""
        return float(np.exp(exact_value(sums) / n_tasks))

    def columns(self, classes: Floats, usual: float) -> dict[str, Floats]:
        """The tasks' column of a result: noise variance over that of the typical task."""
        multiple = np.exp(self.log_multiple(classes)) / usual
        return {"task_difficulty": multiple} if self.is_on else {}

    def log_multiple(self, classes: Floats) -> Floats:
        """Log of the noise variance of each task (n,), over that of the middle class."""
        # Not a matrix product, which rounds by the place of a task among the others.
        return np.asarray((classes * self.steps).sum(axis=1) * np.log(STEP))

    def learn_from_counts(self, counts: ExpectedCounts, steps: Floats) -> Difficulty:
        """Shares of the classes, with a pseudo-count of one task of unknown class (M33)."""
        shares = counts.classes + 1.0 / len(counts.classes)
        return Difficulty(np.log(shares / shares.sum())) if self.is_on else self

    def position(self) -> Floats:
        """Shares of the classes."""
        return np.exp(self.log_share)

    def facts(self, scale: Floats) -> dict[str, Any]:
        """Shares of the classes."""
        return {"difficulty_shares": tuple(np.exp(self.log_share).tolist())}
