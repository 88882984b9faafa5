"""Audit: every answer held against what the others predict for it, as a check on the intervals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxpop.arrays import Floats

_NOMINAL = (0.9, 0.95)


def _none() -> Floats:
    return np.empty((0, 0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Audit:
    """How well left-out answers are predicted from the others.

    Attributes
    ----------
    n_answers
        Answers that could be predicted: those of tasks with at least two.
    coverage_90, coverage_95
        Share of coordinates of left-out answers inside their 90 and 95 % prediction intervals.
    rmse
        Root mean squared distance of an answer from its prediction, per coordinate.
    log_score
        Mean log density of an answer under its prediction; higher is better.
    pit
        Probability integral transform of every answer, shape (n_edges, dimension): the share of its
        predictive distribution below it, even between 0 and 1 where predictions are honest. NaN
        for the only answer of a task; empty in a result that was loaded.
    predicted, predicted_sd
        Mean and standard deviation of what the others predict for each answer, (n_edges,
        dimension), worker bias included.
    truth
        What the others say of the task itself: the estimate without this answer.
    """

    n_answers: int
    coverage_90: float
    coverage_95: float
    rmse: float
    log_score: float
    pit: Floats = field(default_factory=_none)
    predicted: Floats = field(default_factory=_none)
    predicted_sd: Floats = field(default_factory=_none)
    truth: Floats = field(default_factory=_none)

    @classmethod
    def of(
        cls,
        value: Floats,
        usable: np.ndarray[Any, np.dtype[np.bool_]],
        *,
        pit: Floats,
        predicted: Floats,
        predicted_sd: Floats,
        truth: Floats,
        log_density: Floats,
    ) -> Audit:
        """Sum up predictions of answers ``value`` (E, d), of which some are ``usable`` (E,)."""
        if not usable.any():
            return cls(
                n_answers=0,
                coverage_90=np.nan,
                coverage_95=np.nan,
                rmse=np.nan,
                log_score=np.nan,
            )
        inside = [np.abs(pit[usable] - 0.5) <= 0.5 * nominal for nominal in _NOMINAL]
        residual = value[usable] - predicted[usable]
        largest = float(np.abs(residual).max()) or 1.0
        return cls(
            n_answers=int(usable.sum()),
            coverage_90=float(inside[0].mean()),
            coverage_95=float(inside[1].mean()),
            rmse=largest * float(np.sqrt(((residual / largest) ** 2).mean())),
            log_score=float(log_density[usable].sum(axis=1).mean()),
            pit=np.where(usable[:, None], pit, np.nan),
            predicted=predicted,
            predicted_sd=predicted_sd,
            truth=truth,
        )

    def summary(self) -> dict[str, float | int | None]:
        """The figures, as JSON can hold them."""
        names = ("coverage_90", "coverage_95", "rmse", "log_score")
        found = {name: float(getattr(self, name)) for name in names}
        plain = {name: item if np.isfinite(item) else None for name, item in found.items()}
        return {"n_answers": self.n_answers, **plain}

    @classmethod
    def from_summary(cls, summary: dict[str, Any]) -> Audit:
        """Undo :meth:`summary`."""
        found: dict[str, Any] = {
            name: np.nan if item is None else item for name, item in summary.items()
        }
        return cls(**found)

    def sentence(self) -> str:
        """Say it in one sentence."""
        if not self.n_answers:
            return "no task has two answers: nothing can be said of how well intervals hold"
        return (
            f"audit: {self.coverage_95:.1%} of left-out answers fell inside their 95 % prediction "
            f"interval, {self.coverage_90:.1%} inside 90 %"
        )
