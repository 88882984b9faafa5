"""Noise: how answers depart from Gaussian scatter about the truth, as components to combine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.errors import require
from voxpop.models.noise.bias import Bias
from voxpop.models.noise.bounds import Bounds
from voxpop.models.noise.careless import Careless
from voxpop.models.noise.component import STEP, Component, StartingPoint, WorkerEvidence
from voxpop.models.noise.difficulty import Difficulty
from voxpop.models.noise.gain import Gain
from voxpop.models.noise.growth import Growth
from voxpop.models.noise.levels import Levels
from voxpop.models.noise.slips import Slips
from voxpop.models.noise.tails import Tails, tail_shares, tail_steps, tail_variance
from voxpop.models.noise.truths import Truths

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

__all__ = ["COMPONENTS", "Noise", "NoiseParameters", "tail_shares", "tail_steps", "tail_variance"]

C = TypeVar("C", bound=Component)
_NONE = np.empty(0)


def _option(component: type[Component]) -> Any:
    return field(default=component.off, metadata={"component": component})


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Which departures from the paper's Gaussian noise to allow for, each learned when on."""

    # The registry of components: whatever enumerates them enumerates these fields.
    tails: float | Literal["learn"] = _option(Tails)
    slips: bool = _option(Slips)
    careless: bool = _option(Careless)
    bias: bool = _option(Bias)
    gain: bool = _option(Gain)
    difficulty: bool = _option(Difficulty)
    growth: bool = _option(Growth)
    truths: Literal["flat", "learn"] = _option(Truths)
    bounds: tuple[float, float] | None = _option(Bounds)

    def __post_init__(self) -> None:
        for component in COMPONENTS:
            value = component.check(getattr(self, component.name))
            object.__setattr__(self, component.name, value)
        if self.careless:
            object.__setattr__(self, "slips", True)
        require(
            not (self.gain and self.growth),
            "gain and growth cannot be combined; drop one",
        )
        require(
            not self.growth or self.bounds is None,
            "growth and bounds cannot be combined; drop one, or use scale='log' or 'logit'",
        )

    @cached_property
    def is_plain(self) -> bool:
        """Return whether this is the paper's noise, and nothing else."""
        return self == Noise()

    @cached_property
    def learned(self) -> tuple[type[Component], ...]:
        """The components that are learned from the answers."""
        return tuple(c for c in LEARNABLE.values() if getattr(self, c.name) == c.learned)

    def learning(self, *names: str) -> Noise:
        """Return the same noise with some more components learned."""
        chosen: dict[str, Any] = {name: LEARNABLE[name].learned for name in names}
        return replace(self, **chosen)

    def summary(self) -> str:
        """Name what is on, in a few words."""
        parts = (component.summary(getattr(self, component.name)) for component in COMPONENTS)
        return ", ".join(filter(None, parts)) or "Gaussian noise"


COMPONENTS: tuple[type[Component], ...] = tuple(f.metadata["component"] for f in fields(Noise))
LEARNABLE = {c.name: c for c in COMPONENTS if c.learned is not None}
Noise.__doc__ = f"{Noise.__doc__}\n\nParameters\n----------\n" + "\n".join(
    f"{component.name}\n{indent(component.about, '    ')}" for component in COMPONENTS
)


@dataclass(frozen=True, eq=False)
class NoiseParameters:
    """The parameters of a noise model: its levels, and every component as learned so far."""

    parts: tuple[Component, ...]

    @classmethod
    def initial(cls, noise: Noise, start: StartingPoint) -> NoiseParameters:
        """Parameters to start from."""
        parts = tuple(c.initial(getattr(noise, c.name), start) for c in COMPONENTS)
        levels = Levels(start.levels, start.log_weights, float(start.levels[0]))
        n_classes = next((len(p.share) for p in parts if isinstance(p, Careless)), 0)
        return cls((levels.repeated(n_classes) if n_classes else levels, *parts))

    def keep(self, states: Index) -> NoiseParameters:
        """Keep only some of the states that a worker may have."""
        kept = self.replace(self[Levels].keep(states))
        return kept.replace(kept[Careless].keep(states))

    def __getitem__(self, kind: type[C]) -> C:
        """Return one of the components."""
        return self._by_kind[kind]  # type: ignore[return-value]

    @cached_property
    def _by_kind(self) -> dict[type[Component], Component]:
        return {type(part): part for part in self.parts}

    def replace(self, new: Component) -> NoiseParameters:
        """Put a component in the place of the one of its kind."""
        return self._with(new if type(part) is type(new) else part for part in self.parts)

    def resumed(
        self, other: NoiseParameters, learned: tuple[type[Component], ...]
    ) -> NoiseParameters:
        """Take over levels, and what was learned of some components, from another noise model."""
        kinds: tuple[type[Component], ...] = Levels, *learned
        return self._with(other[type(p)] if isinstance(p, kinds) else p for p in self.parts)

    def _with(self, parts: Iterable[Component]) -> NoiseParameters:
        """Parameters of the same noise model, which share a layout while the levels stay."""
        new = NoiseParameters(tuple(parts))
        if "_layout" in self.__dict__ and new[Levels].variance is self[Levels].variance:
            new.__dict__["_layout"] = self._layout
            if "_grid" in self.__dict__ and len(self._answer_steps[0]) == 1:
                new.__dict__["_grid"] = self._grid
        return new

    def learn_from_workers(self, evidence: WorkerEvidence) -> NoiseParameters:
        """EM steps from the messages to the workers."""
        return self._with(part.learn_from_workers(evidence) for part in self.parts)

    def learn_from_counts(self, counts: ExpectedCounts) -> NoiseParameters:
        """EM steps from the counts of a sweep."""
        # A component with a single step learns nothing from the number of answers at it.
        seen, sizes = [_NONE] * len(self.parts), [len(p.answer_steps()[1]) for p in self.parts]
        if max(sizes) > 1:
            steps = self._expected_steps(counts.pairs).reshape(sizes)
            for own, size in enumerate(sizes):
                if size > 1:
                    others = tuple(a for a in range(len(sizes)) if a != own)
                    seen[own] = np.asarray(steps.sum(axis=others))
        return self._with(
            p.learn_from_counts(counts, s) for p, s in zip(self.parts, seen, strict=True)
        )

    def distance(self, other: NoiseParameters) -> float:
        """Largest change of a share or of the logarithm of a size, for the stopping rule."""
        both = zip(self.parts, other.parts, strict=True)
        moved = (np.abs(a.position() - b.position()) for a, b in both if a is not b)
        return max((float(by.max(initial=0.0)) for by in moved), default=0.0)

    def facts(self, scale: Floats) -> dict[str, Any]:
        """The learned facts, by field of ``NoiseFacts``."""
        return {name: fact for part in self.parts for name, fact in part.facts(scale).items()}

    def grid(self) -> tuple[Floats, Floats]:
        """Lay levels, classes and steps out over the variances of one mixture (M28).

        Returns the variances (G,) and the share of each in an answer to a task of a class at a
        level, (C, K, G). No variance is below the lowest level: rounding, which bounds that, bounds
        all. Slips, which are the same for all classes of tasks and all levels, come last; their
        share may depend on the worker.
        """
        variance, mixing = self._grid
        slips, careless = self[Slips], self[Careless]
        if not slips.share.size:
            return variance, mixing
        shares = np.tile(slips.share, (mixing.shape[1], 1))
        if careless.is_on:
            shares *= (careless.share[careless.of_state] / slips.share.sum())[:, None]
        slipped = np.broadcast_to(shares, (len(mixing), *shares.shape))
        kept = 1.0 - shares.sum(axis=1, keepdims=True)
        mixing = np.concatenate([kept * mixing, slipped], axis=2)
        return np.append(variance, slips.variance), mixing

    @cached_property
    def _grid(self) -> tuple[Floats, Floats]:
        """Variances and shares as in :meth:`grid`, of answers that are not slips."""
        place, variance, shape = self._layout
        shares = np.tile(self._answer_steps[1], shape[0] * shape[1])
        mixing = np.bincount(place, shares, shape[0] * shape[1] * shape[2])
        return variance, np.asarray(mixing, dtype=np.float64).reshape(shape)

    def _expected_steps(self, pairs: Floats) -> Floats:
        """Answers expected at each step of all components together, from the grid's (C, K, G)."""
        place, _, shape = self._layout
        mixing = self._grid[1]
        pairs = pairs[:, :, : shape[2]]
        per_share = np.divide(pairs, mixing, out=np.zeros_like(mixing), where=mixing > 0)
        counts = per_share.take(place).reshape(-1, len(self._answer_steps[1])).sum(axis=0)
        return np.asarray(counts * self._answer_steps[1])

    @property
    def answer_variance(self) -> float:
        """Variance of an answer as a multiple of its level, on average over its steps."""
        steps, shares = self._answer_steps
        return float(shares @ STEP ** steps.astype(float))

    @property
    def lowest_step(self) -> int:
        """The step furthest below its level that the variance of an answer may be."""
        return int(self._answer_steps[0].min() + self[Difficulty].steps.min())

    @cached_property
    def _answer_steps(self) -> tuple[Index, Floats]:
        """Steps of an answer's variance and their shares, of all components together."""
        steps, shares = np.zeros(1, dtype=np.int64), np.ones(1)
        for part in self.parts:
            more, share = part.answer_steps()
            if len(more) > 1:
                steps, shares = np.add.outer(steps, more).ravel(), np.outer(shares, share).ravel()
        return steps, shares

    @cached_property
    def _layout(self) -> tuple[Index, Floats, tuple[int, int, int]]:
        """Place of each class, level and step in the (C, K, G) of the grid, its variances, C K G.

        Steps are those that the components have, whatever their shares.
        """
        steps = np.add.outer(self[Difficulty].steps, self._answer_steps[0])
        log_level = np.log(self[Levels].variance)
        log_variance = log_level[:, None] + steps[:, None, :] * np.log(STEP)
        # Levels a step apart share their variances; rounding makes them equal.
        rounded = np.round(np.maximum(log_variance, log_level.min()), 6)
        grid, where = np.unique(rounded, return_inverse=True)
        n_classes, n_levels, n_steps = rounded.shape
        row = np.repeat(np.arange(n_classes * n_levels), n_steps)
        place = row * len(grid) + where.ravel()
        return place, np.exp(grid), (n_classes, n_levels, len(grid))
