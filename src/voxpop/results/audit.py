"""Audit: every answer compared with its leave-one-out prediction, as a check on the intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from voxpop.arrays import Codes, Floats
from voxpop.data.tables import finite
from voxpop.words import percent

# PIT values are clipped to this distance from 0 and 1.
_LEAST = 1e-12
# A smaller stretch would be shown as 1.00.
_TOLD = 1.005


def _none() -> Floats:
    return np.empty((0, 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """How well every answer is predicted when it is left out (leave-one-out).

    Attributes
    ----------
    n_answers
        Number of answers that can be predicted: those of tasks with at least two.
    stretch
        Factor on the sd of predictions that puts 95 % of left-out answers inside their intervals.
        Where predictions are ``exact`` and this is above one, the intervals of the truths are
        stretched by as much: see :attr:`Calibration.stretch`.
    coverage_90, coverage_95
        Share of coordinates of left-out answers inside their 90 and 95 % prediction intervals,
        each half of the tasks stretched by what the other half calls for.
    unstretched_95
        The same without any stretch.
    rmse
        Root mean squared distance of an answer from its prediction, per coordinate.
    log_score
        Mean log density of an answer under its prediction; higher is better.
    exact
        Whether predictions come from the model's cavity messages; otherwise they come from the
        workers' weights.
    pit
        Probability integral transform of every answer, shape (n_edges, dimension): the share of its
        predictive distribution below it, uniform between 0 and 1 where predictions are calibrated.
        NaN for the only answer of a task; empty in a result that was loaded.
    predicted, predicted_sd
        Mean and standard deviation of the leave-one-out prediction of each answer, (n_edges,
        dimension), worker bias included.
    truth
        Leave-one-out estimate of the task: that without this answer.
    log_density
        Log density of every answer under its prediction.
    judged_by
        Stretch that every answer (n_edges,) was judged by: that of the other half of the tasks.
    """

    n_answers: int = 0
    stretch: float = 1.0
    coverage_90: float = np.nan
    coverage_95: float = np.nan
    unstretched_95: float = np.nan
    rmse: float = np.nan
    log_score: float = np.nan
    exact: bool = False
    pit: Floats = field(default_factory=_none)
    predicted: Floats = field(default_factory=_none)
    predicted_sd: Floats = field(default_factory=_none)
    truth: Floats = field(default_factory=_none)
    log_density: Floats = field(default_factory=_none)
    judged_by: Floats = field(default_factory=lambda: np.empty(0))

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
            return cls()
        distance = np.abs(ndtri(np.clip(pit[usable], _LEAST, 1.0 - _LEAST)))
        half = task[usable] % 2 == 1
        needed = {side: _stretch(distance[half == side]) for side in (False, True)}
        # Each half is stretched by the other, so that no answer affects its own interval.
        judged_by = np.where(task % 2 == 1, needed[False], needed[True])
        judged = distance / judged_by[usable, None]
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
            judged_by=judged_by,
        )

    @property
    def is_stretched(self) -> bool:
        """Whether intervals were stretched by enough to mention it."""
        return self.exact and self.stretch >= _TOLD

    @property
    def inside_95(self) -> float:
        """Share of left-out answers inside 95 %: the figure that all outputs show.

        Intervals of the truths are never narrowed, so a stretch below one is not applied.
        """
        return self.coverage_95 if self.is_stretched else self.unstretched_95

    @property
    def has_pit(self) -> bool:
        """Whether there are PIT values of single answers, and not only their summary."""
        return bool(np.isfinite(self.pit).any())

    def pit_shares(self, n_bins: int = 20) -> Floats:
        """Share of PIT values in each of some bins of equal width, times the number of bins."""
        counts, _ = np.histogram(self.pit[np.isfinite(self.pit)], n_bins, (0.0, 1.0))
        return np.asarray(counts * (n_bins / counts.sum()))

    def coverage_at(self, nominal: ArrayLike, stretched: bool = False) -> Floats:
        """Share of answers inside their central prediction intervals of ``nominal`` probability.

        Intervals are the model's, or ``stretched`` as for :attr:`coverage_95`.
        """
        known = np.isfinite(self.pit)
        pit = np.clip(self.pit, _LEAST, 1.0 - _LEAST)
        distance = np.abs(ndtri(pit)) / (self.judged_by[:, None] if stretched else 1.0)
        ordered = np.sort(distance[known])
        reach = ndtri(0.5 + 0.5 * np.asarray(nominal, dtype=np.float64))
        return np.asarray(np.searchsorted(ordered, reach, side="right") / len(ordered))

    def to_dict(self) -> dict[str, float | int | None]:
        """The figures as plain JSON values: None for NaN, no arrays."""
        names = ("n_answers", "exact", "stretch", "coverage_90", "coverage_95", "unstretched_95")
        figures = {name: getattr(self, name) for name in (*names, "rmse", "log_score")}
        return finite(figures)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, facts: dict[str, Any]) -> Audit:
        """Undo :meth:`to_dict`."""
        return cls(**{name: item for name, item in facts.items() if item is not None})

    def summary(self) -> str:
        """Return one sentence."""
        if not self.n_answers:
            return "no task has two answers, so the intervals cannot be checked"
        if not self.exact:
            return (
                f"audit: {percent(self.unstretched_95, 1)} of left-out answers fell inside the "
                "95 % interval predicted from the other answers"
            )
        before = f" ({percent(self.unstretched_95, 1)} before stretching it by {self.stretch:.2f})"
        return (
            f"audit: {percent(self.inside_95, 1)} of left-out answers fell inside their 95 % "
            f"prediction interval{before * self.is_stretched}"
        )


def _stretch(distance: Floats) -> float:
    """Factor on the sd that puts 95 % of answers inside: the (n + 1) 95 % smallest of n."""
    if not distance.size:
        return 1.0
    return stretch_of(float(np.quantile(distance, stretch_rank(distance.size))))


def stretch_rank(n: int) -> float:
    """Which quantile of n distances, in sds, the stretch is taken from."""
    return min(1.0, 0.95 * (1.0 + 1.0 / n))


def stretch_of(distance: float) -> float:
    """Factor on the sd that puts all within a distance inside 95 %."""
    return float(max(distance / ndtri(0.975), _LEAST))
