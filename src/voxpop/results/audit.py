"""Audit: every answer held against what the others predict for it, as a check on the intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from voxpop.arrays import Codes, Floats

# A PIT value is known to be no nearer to 0 or 1 than this.
_LEAST = 1e-12


def _none() -> Floats:
    return np.empty((0, 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """How well left-out answers are predicted from the others.

    Attributes
    ----------
    n_answers
        Answers that could be predicted: those of tasks with at least two.
    stretch
        What prediction intervals have to be stretched by, in sds, for 95 % of left-out answers to
        fall inside. Where predictions are ``exact`` and this is above one, the intervals of the
        truths are stretched by as much.
    coverage_90, coverage_95
        Share of coordinates of left-out answers inside their 90 and 95 % prediction intervals,
        stretched by what the other half of the tasks called for.
    unstretched_95
        The same as the model has it.
    rmse
        Root mean squared distance of an answer from its prediction, per coordinate.
    log_score
        Mean log density of an answer under its prediction; higher is better.
    exact
        Whether predictions come from the model's own messages; otherwise from the workers' weights.
    pit
        Probability integral transform of every answer, shape (n_edges, dimension): the share of its
        predictive distribution below it, even between 0 and 1 where predictions are honest. NaN
        for the only answer of a task; empty in a result that was loaded.
    predicted, predicted_sd
        Mean and standard deviation of what the others predict for each answer, (n_edges,
        dimension), worker bias included.
    truth
        What the others say of the task itself: the estimate without this answer.
    log_density
        Log density of every answer under its prediction.
    """

    n_answers: int
    stretch: float
    coverage_90: float
    coverage_95: float
    unstretched_95: float
    rmse: float
    log_score: float
    exact: bool = False
    pit: Floats = field(default_factory=_none)
    predicted: Floats = field(default_factory=_none)
    predicted_sd: Floats = field(default_factory=_none)
    truth: Floats = field(default_factory=_none)
    log_density: Floats = field(default_factory=_none)

    @classmethod
    def of(
        cls,
        value: Floats,
        task: Codes,
        usable: NDArray[np.bool_],
        *,
        pit: Floats,
        predicted: Floats,
        predicted_sd: Floats,
        truth: Floats,
        log_density: Floats,
        exact: bool = False,
    ) -> Audit:
        """Sum up predictions of answers ``value`` (E, d), of which some are ``usable`` (E,)."""
        if not usable.any():
            return cls(
                n_answers=0,
                stretch=1.0,
                coverage_90=np.nan,
                coverage_95=np.nan,
                unstretched_95=np.nan,
                rmse=np.nan,
                log_score=np.nan,
            )
        distance = np.abs(ndtri(np.clip(pit[usable], _LEAST, 1.0 - _LEAST)))
        half = task[usable] % 2 == 1
        needed = {side: _stretch(distance[half == side]) for side in (False, True)}
        # Each half is judged by the other, so that no answer has a say in its own interval.
        judged = distance / np.where(half, needed[False], needed[True])[:, None]
        residual = value[usable] - predicted[usable]
        largest = float(np.abs(residual).max()) or 1.0
        return cls(
            n_answers=int(usable.sum()),
            stretch=_stretch(distance),
            coverage_90=float((judged <= ndtri(0.95)).mean()),
            coverage_95=float((judged <= ndtri(0.975)).mean()),
            unstretched_95=float((distance <= ndtri(0.975)).mean()),
            rmse=largest * float(np.sqrt(((residual / largest) ** 2).mean())),
            log_score=float(log_density[usable].sum(axis=1).mean()),
            exact=exact,
            pit=np.where(usable[:, None], pit, np.nan),
            predicted=predicted,
            predicted_sd=predicted_sd,
            truth=truth,
            log_density=log_density,
        )

    @property
    def has_pit(self) -> bool:
        """Tell whether there is a PIT value of every answer, not only their summary."""
        return bool(np.isfinite(self.pit).any())

    def pit_shares(self, n_bins: int = 20) -> Floats:
        """Share of PIT values in bins of equal width, as a multiple of an even one."""
        counts, _ = np.histogram(self.pit[np.isfinite(self.pit)], n_bins, (0.0, 1.0))
        return np.asarray(counts * (n_bins / counts.sum()))

    def coverage_at(self, nominal: ArrayLike, stretched: bool = False) -> Floats:
        """Share of answers inside the middle ``nominal`` part of what is predicted for them.

        As the model has it, or with predictions stretched by :attr:`stretch` if that is above one.
        """
        pit = np.clip(self.pit[np.isfinite(self.pit)], _LEAST, 1.0 - _LEAST)
        distance = np.sort(np.abs(ndtri(pit))) / (max(self.stretch, 1.0) if stretched else 1.0)
        reach = ndtri(0.5 + 0.5 * np.asarray(nominal, dtype=np.float64))
        return np.asarray(np.searchsorted(distance, reach, side="right") / len(distance))

    def to_dict(self) -> dict[str, float | int | None]:
        """The figures, as JSON can hold them."""
        names = ("stretch", "coverage_90", "coverage_95", "unstretched_95", "rmse", "log_score")
        found = {name: float(getattr(self, name)) for name in names}
        plain = {name: item if np.isfinite(item) else None for name, item in found.items()}
        return {"n_answers": self.n_answers, "exact": self.exact, **plain}

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Audit:
        """Undo :meth:`to_dict`."""
        found: dict[str, Any] = {
            name: np.nan if item is None else item for name, item in facts.items()
        }
        return cls(**found)

    def summary(self) -> str:
        """Say it in one sentence."""
        if not self.n_answers:
            return "no task has two answers: nothing can be said of how well intervals hold"
        if not self.exact:
            return (
                f"audit: {self.unstretched_95:.1%} of left-out answers fell inside the 95 % "
                "interval that the weights of the others predict"
            )
        # Intervals of the truths are never narrowed, so that is not what to tell of.
        wider = self.stretch > 1
        return (
            f"audit: {self.coverage_95 if wider else self.unstretched_95:.1%} of left-out answers "
            "fell inside their 95 % prediction interval"
        ) + (
            f" ({self.unstretched_95:.1%} before stretching it by {self.stretch:.2f})"
            if wider
            else ""
        )


def _stretch(distance: Floats) -> float:
    """Factor on the sd at which 95 % of answers lie inside: the share (n + 1) 95 % of n."""
    if not distance.size:
        return 1.0
    rank = min(1.0, 0.95 * (1.0 + 1.0 / distance.size))
    return float(max(np.quantile(distance, rank) / ndtri(0.975), _LEAST))
