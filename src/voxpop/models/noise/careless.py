"""Careless: workers differ in how often they slip."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.models.noise.component import Component, StartingPoint
from voxpop.models.noise.slips import Slips

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

# Shares of slips to start from: of careful workers, of careless ones, and of those who slip in
# every third answer. Each is learned as if this many more answers had slipped at that rate.
_FIRST_SHARES = (0.01, 0.1, 0.35)
_PSEUDO_ANSWERS = 5.0


@dataclass(frozen=True, eq=False)
class Careless(Component):
    """Share of slips (S,) in each class of workers, and the class of each state of a worker.

    A state is a level in a class: all levels of the first class come first, then those of the
    next. How many workers are in which class is learned with the levels. Empty without.
    """

    name = "careless"
    about = (
        "Workers may differ in how often they slip: there are careful ones, careless ones, and\n"
        "some whose every third answer is a slip. The share of each kind and how often it slips\n"
        "are learned. Switches ``slips`` on."
    )
    words = "some workers slip more often"
    compared_with = (("slips",), ("slips", "bias"), ("slips", "bias", "truths"))

    share: Floats = field(default_factory=lambda: np.empty(0))
    of_state: Index = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    n_kinds: int = 0

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Careless:
        """Three classes, each with all levels."""
        if not value:
            return cls()
        share = np.array(_FIRST_SHARES)
        of_state = np.repeat(np.arange(len(share)), len(start.levels))
        return cls(share, of_state, len(Slips.initial(True, start).share))

    @property
    def is_on(self) -> bool:
        """Return whether workers differ in how often they slip."""
        return self.share.size > 0

    def keep(self, kept: Index) -> Careless:
        """Keep only some of the states."""
        return replace(self, of_state=self.of_state[kept]) if self.is_on else self

    def learn_from_counts(self, counts: ExpectedCounts, steps: Floats) -> Careless:
        """Share of slips in each class, from the answers of its workers (M40a)."""
        if not self.is_on:
            return self
        n_classes = len(self.share)
        per_state = counts.pairs.sum(axis=0)
        slips = np.bincount(self.of_state, per_state[:, -self.n_kinds :].sum(axis=1), n_classes)
        total = np.bincount(self.of_state, per_state.sum(axis=1), n_classes)
        more = _PSEUDO_ANSWERS * np.array(_FIRST_SHARES)
        return replace(self, share=(slips + more) / (total + _PSEUDO_ANSWERS))

    def columns(self, posterior: Floats) -> dict[str, Floats]:
        """The workers' column of a result: each one's share of slips, from the states (m, K)."""
        return {"worker_slips": posterior @ self.share[self.of_state]} if self.is_on else {}

    def position(self) -> Floats:
        """Shares of the slips."""
        return self.share
