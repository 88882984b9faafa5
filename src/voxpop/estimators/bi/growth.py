"""Growth: how far noise grows with the value, learned before the messages, and answers without."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import medians
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.gains import Gains, learn_gains
from voxpop.estimators.bi.initialise import PreparedAnswers, prepare, starting_levels
from voxpop.estimators.leave_one_out import leave_one_out_medians
from voxpop.inference.engine import Engine
from voxpop.inference.kernel_set import Predictions
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.noise import Noise
from voxpop.models.noise.growth import Growth

# Logarithms of the ratio that are tried, and degrees of freedom of the noise meanwhile.
_LOG_RATIOS = np.linspace(-4.0, 4.0, 33)
_FREEDOM = 4.0
_STEPS = 10


@dataclass(frozen=True, eq=False)
class Growing:
    """Noise of every task as a multiple of the usual, ``spread`` (n, d), about ``centre`` (n, d).

    The centre is the median answer to the task; the geometric mean of the spreads is one.
    """

    component: Growth
    centre: Floats
    spread: Floats
    answers: Answers

    def freed(self, data: PreparedAnswers) -> PreparedAnswers:
        """Answers and gold drawn together about the centre of their task: noise is alike (M83)."""
        answers = data.answers
        centre, spread = self.centre[answers.task], self.spread[answers.task]
        gold = answers.gold
        if gold is not None:
            gold = self.centre + (gold - self.centre) / self.spread
        value = centre + (answers.value - centre) / spread
        return prepare(replace(answers, value=value, gold=gold), data.scale)

    def levels(
        self,
        freed: PreparedAnswers,
        given: Answers,  # noqa: ARG002
        engine: Engine,
        on_sweep: OnSweep | None,
    ) -> Floats:
        """Levels to start from, on tasks of the usual noise."""
        return starting_levels(freed.answers, freed.scale, engine, on_sweep)

    def predictions(self, found: Predictions) -> Predictions:
        """Predictions of the answers as they were given, from those of the freed ones (M83)."""
        task = self.answers.task
        centre, spread = self.centre[task], self.spread[task]
        return replace(
            found,
            log_density=found.log_density - np.log(spread),
            truth_mean=centre + spread * (found.truth_mean - centre),
            bias=found.bias * spread,
            variance=found.variance * spread**2,
        )

    def estimates(self, freed: Floats, tasks: NDArray[np.bool_]) -> Floats:
        """Estimates of some tasks in the users' units."""
        return np.asarray(self.centre[tasks] + self.spread[tasks] * (freed - self.centre[tasks]))

    def posterior(self, found: Posterior, known: NDArray[np.bool_] | None = None) -> Posterior:
        """Posterior in the users' units; tasks that are ``known`` have their gold."""
        centre, spread = self.centre[:, :, None], self.spread[:, :, None]
        estimate = self.centre + self.spread * (found.estimate - self.centre)
        quantile = centre + spread * (found.quantile - centre)
        if known is not None and self.answers.gold is not None:
            gold = self.answers.gold
            estimate = np.where(known[:, None], gold, estimate)
            quantile = np.where(known[:, None, None], gold[:, :, None], quantile)
        return Posterior(estimate, found.variance * self.spread**2, quantile)

    def columns(self) -> dict[str, Floats]:
        """The tasks' column of a result: their noise variance as a multiple of the usual."""
        return {"task_difficulty": np.asarray((self.spread**2).mean(axis=1))}


def learned_before(answers: Answers, noise: Noise) -> Gains | Growing | None:
    """Parameters learned before the messages, for which answers are then corrected."""
    if noise.gain:
        return learn_gains(answers)
    return learn_growth(answers) if noise.growth else None


def learn_growth(answers: Answers) -> Growing:
    """Learn the ratio at which left-out answers are likeliest, coordinate by coordinate (M84)."""
    centre, others = medians(answers), leave_one_out_medians(answers)
    usable = answers.task_degree[answers.task] > 1
    spread, ratio = np.ones_like(centre), np.ones(answers.dimension)
    for j in range(answers.dimension):
        ends = float(centre[:, j].min()), float(centre[:, j].max())
        residual = (answers.value - others)[usable, j]
        if ends[0] == ends[1] or not residual.any():
            continue
        place = _place(others[usable, j], ends)
        score = [_log_likelihood(residual, _line(place, float(r))) for r in np.exp(_LOG_RATIOS)]
        ratio[j] = float(np.exp(_LOG_RATIOS[int(np.argmax(score))]))
        line = _line(_place(centre[:, j], ends), ratio[j])
        spread[:, j] = line / np.exp(np.log(line).mean())
    return Growing(Growth(ratio), centre, spread, answers)


def _place(value: Floats, ends: tuple[float, float]) -> Floats:
    """Place between the lowest and the highest task, 0 to 1."""
    return np.clip((value - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)


def _line(place: Floats, ratio: float) -> Floats:
    """Sd of the noise at a place, from 1 at the lowest to ``ratio`` at the highest (M83)."""
    return np.asarray(1.0 + (ratio - 1.0) * place)


def _log_likelihood(residual: Floats, spread: Floats) -> float:
    """Of residuals under Student-t noise of such spreads, times the one that fits best (M84)."""
    square = (residual / spread) ** 2
    scale = float(np.median(square[square > 0]))
    for _ in range(_STEPS):
        scale = float(((_FREEDOM + 1.0) * square / (_FREEDOM + square / scale)).mean())
    far = np.log1p(square / (_FREEDOM * scale)).sum()
    wide = np.log(spread).sum() + 0.5 * len(square) * np.log(scale)
    return float(-0.5 * (_FREEDOM + 1.0) * far - wide)
