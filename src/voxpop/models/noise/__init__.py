"""Noise: what answers do beside scattering about the truth, as components that can be combined."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
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
            "gain and growth cannot both be on: answers are freed of one of them; drop the other",
        )
        require(
            not self.growth or self.bounds is None,
            "growth cannot be on with bounds in the model; drop one, or use scale='log' or 'logit'",
        )

    @property
    def is_plain(self) -> bool:
        """Tell whether this is the paper's noise, and nothing else."""
        return self == Noise()

    @property
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
        """Leave out all states of a worker but some."""
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
        return NoiseParameters(
            tuple(new if type(part) is type(new) else part for part in self.parts)
        )

    def learn_from_workers(self, evidence: WorkerEvidence) -> NoiseParameters:
        """EM steps from what messages say of the workers."""
        return NoiseParameters(tuple(part.learn_from_workers(evidence) for part in self.parts))

    def learn_from_counts(self, counts: ExpectedCounts) -> NoiseParameters:
        """EM steps from what was counted in a sweep."""
        steps = self._expected_steps(counts.pairs)
        axes = range(steps.ndim)
        # Whoever has one step alone learns nothing from how many answers took it.
        seen = [
            steps.sum(axis=tuple(a for a in axes if a != own)) if size > 1 else np.empty(0)
            for own, size in enumerate(steps.shape)
        ]
        learned = (p.learn_from_counts(counts, s) for p, s in zip(self.parts, seen, strict=True))
        return NoiseParameters(tuple(learned))

    def distance(self, other: NoiseParameters) -> float:
        """Largest change of a share or of the logarithm of a size, for the stopping rule."""
        here, there = (np.concatenate([p.position() for p in x.parts]) for x in (self, other))
        return float(np.abs(here - there).max())

    def facts(self, scale: Floats) -> dict[str, Any]:
        """What was learned, by field of ``NoiseFacts``."""
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
        """Variances and shares as in :meth:`grid`, of answers that are no slips."""
        where, variance = self._layout
        shares = np.broadcast_to(self._answer_steps[1], where.shape)
        n_classes, n_levels, n_variances = *where.shape[:2], len(variance)
        row = np.arange(n_classes * n_levels).reshape(n_classes, n_levels, 1) * n_variances
        size = n_classes * n_levels * n_variances
        mixing = np.bincount((row + where).ravel(), shares.ravel(), size).astype(np.float64)
        return variance, np.asarray(mixing.reshape(n_classes, n_levels, n_variances))

    def _expected_steps(self, pairs: Floats) -> Floats:
        """Answers expected at each step, an axis a component, from those (C, K, G) on the grid."""
        where, _ = self._layout
        mixing = self._grid[1]
        pairs = pairs[:, :, : mixing.shape[2]]
        per_share = np.divide(pairs, mixing, out=np.zeros_like(pairs), where=mixing > 0)
        counts = np.take_along_axis(per_share, where, axis=2).sum(axis=(0, 1))
        counts = counts * self._answer_steps[1]
        return np.asarray(counts.reshape([len(p.answer_steps()[1]) for p in self.parts]))

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
    def _layout(self) -> tuple[Index, Floats]:
        steps = np.add.outer(self[Difficulty].steps, self._answer_steps[0])
        return _layout(tuple(self[Levels].variance.tolist()), tuple(map(tuple, steps.tolist())))


@lru_cache(maxsize=64)
def _layout(levels: tuple[float, ...], steps: tuple[tuple[int, ...], ...]) -> tuple[Index, Floats]:
    """Place in the grid of every class, level and step (C, K, S), and the grid's variances."""
    log_level = np.log(np.array(levels))
    log_variance = log_level[:, None] + np.array(steps)[:, None, :] * np.log(STEP)
    # Levels a step apart share their variances; rounding makes them equal.
    rounded = np.round(np.maximum(log_variance, log_level.min()), 6)
    grid, where = np.unique(rounded, return_inverse=True)
    return where.reshape(rounded.shape), np.exp(grid)
