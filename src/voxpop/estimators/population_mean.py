"""Population means: the mean of the truths, with an interval calibrated by gold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.read import ReadingOptions, read_answers
from voxpop.data.tables import finite
from voxpop.data.truths import read_truth
from voxpop.errors import ConfigError, DataError, require
from voxpop.estimators.aggregate import aggregate
from voxpop.estimators.base import Estimator
from voxpop.estimators.conformal import FOLDS, in_folds
from voxpop.models.scale import ScaleName
from voxpop.words import percent

# The slope and the mean of the errors are learned from gold; this many more show their spread.
_FEWEST = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationMean:
    """The mean of the truths of a population, and its uncertainty; arrays have one entry per value.

    Attributes
    ----------
    mean, sd
        The mean, and its standard deviation over samples of tasks and of gold.
    gold_mean, gold_sd
        The same from gold alone.
    estimates_mean
        Mean of the estimates of the tasks without gold: what you would have without correction.
    power
        Weight of the estimates, from 0 (gold alone) to 1.
    n_gold, n_tasks
        Number of tasks with a known truth, and of all tasks.
    """

    value_names: tuple[str, ...]
    mean: Floats
    sd: Floats
    gold_mean: Floats
    gold_sd: Floats
    estimates_mean: Floats
    power: Floats
    n_gold: int
    n_tasks: int

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds that hold the mean with probability ``level``."""
        require(0 < level < 1, f"level must be between 0 and 1, got {level}")
        reach = stdtrit(self.n_gold - 2, 0.5 + 0.5 * level) * self.sd
        return self.mean - reach, self.mean + reach

    def columns(self) -> dict[str, Any]:
        """One row per value: the mean, its sd and intervals, and what it was made of."""
        (lower_90, upper_90), (lower_95, upper_95) = self.interval(0.9), self.interval(0.95)
        return {
            "value": list(self.value_names),
            "mean": self.mean,
            "sd": self.sd,
            "lower_90": lower_90,
            "upper_90": upper_90,
            "lower_95": lower_95,
            "upper_95": upper_95,
            "gold_mean": self.gold_mean,
            "gold_sd": self.gold_sd,
            "estimates_mean": self.estimates_mean,
            "power": self.power,
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, None for what is not a number."""
        rows = {name: np.asarray(column).tolist() for name, column in self.columns().items()}
        return {"n_gold": self.n_gold, "n_tasks": self.n_tasks, **finite(rows)}

    def summary(self) -> str:
        """Say it in a sentence for each value."""
        low, high = self.interval()
        sentences = []
        for j, name in enumerate(self.value_names):
            of = f" of {name}" if len(self.value_names) > 1 else ""
            others = self.n_tasks - self.n_gold
            wider = self.gold_sd[j] / self.sd[j] if self.sd[j] > 0 else 1.0
            sentences.append(
                f"the mean{of} is {self.mean[j]:.4g}, 95 % interval {low[j]:.4g} to {high[j]:.4g}: "
                f"{self.n_gold} known truths, and estimates of {others} other tasks that count "
                f"{percent(self.power[j])}; from known truths alone the interval would be "
                f"{wider:.2g} times as wide"
            )
        return "\n".join(sentences)

    def __repr__(self) -> str:
        return f"PopulationMean({self.summary()})"


def population_mean(
    source: object,
    method: str | Estimator = "auto",
    *,
    scale: ScaleName | None = None,
    **reading: Unpack[ReadingOptions],
) -> PopulationMean:
    """Estimate the mean of the truths of a population, by prediction-powered inference (M78)-(M79).

    Every task is estimated, and their average error, as gold shows it, is subtracted: the interval
    holds whatever the model missed, such as an error that all workers share. The estimate of a gold
    task is made with its own truth hidden. Where estimates say little about truths they have little
    weight, and the mean is that of gold.

    The tasks are a sample of the population, and gold tasks are drawn from them at random; there
    are no other assumptions. With fewer than five gold tasks nothing can be said.

    Parameters
    ----------
    source, method, scale, reading
        As in :func:`voxpop.aggregate`; ``gold`` may also be given beside ``Answers``.

    References
    ----------
    Angelopoulos, Duchi, Zrnic: PPI++: Efficient Prediction-Powered Inference, 2023. Zrnic, Candès:
    Cross-prediction-powered inference, PNAS 2024.
    """
    answers = _with_gold(source, reading)
    n_gold = int(answers.is_gold.sum())
    if n_gold < _FEWEST:
        raise DataError(
            f"the mean of a population needs at least {_FEWEST} tasks with a known truth, better "
            f"20, drawn at random, and there are {n_gold}; give gold (command line: --gold)"
        )
    assert answers.gold is not None
    known = answers.is_gold
    hidden, others = np.empty((n_gold, answers.dimension)), np.zeros(answers.gold[~known].shape)
    for fold, rest in in_folds(answers):
        found = aggregate(rest, method, scale=scale)
        if found.scale.name == "circular":
            raise ConfigError("angles have no mean on a line; take another scale than circular")
        hidden[fold[known]] = found.estimate[fold]
        others += found.estimate[~known] / FOLDS
    parts = [
        _combine(*each) for each in zip(answers.gold[known].T, hidden.T, others.T, strict=True)
    ]
    mean, sd, gold_sd, power = np.array(parts).T
    return PopulationMean(
        value_names=answers.value_names,
        mean=mean,
        sd=sd,
        gold_mean=answers.gold[known].mean(axis=0),
        gold_sd=gold_sd,
        estimates_mean=others.mean(axis=0) if len(others) else np.full(len(mean), np.nan),
        power=power,
        n_gold=n_gold,
        n_tasks=answers.n_tasks,
    )


def _with_gold(source: object, reading: ReadingOptions) -> Answers:
    gold = reading.get("gold")
    if not isinstance(source, Answers) or gold is None:
        return read_answers(source, **reading)
    return replace(
        source, gold=read_truth(gold, source.task_ids, source.value_names, needed="gold")
    )


def _combine(truth: Floats, hidden: Floats, others: Floats) -> tuple[float, float, float, float]:
    """Mean and sd (M79) with the best power (M78), the sd of gold alone, and the power."""
    n, n_others = len(truth), len(others)
    gold_sd = float(np.sqrt(truth.var(ddof=1) / n))
    # Both are from gold: their ratio is a slope, known far better than either alone.
    (_, together), (_, spread) = np.cov(truth, hidden)
    if not n_others or not spread or together <= 0:
        return float(truth.mean()), gold_sd, gold_sd, 0.0
    power = min(float(together / spread) / (1 + n / n_others), 1.0)
    rest = truth - power * hidden
    mean = float(rest.mean() + power * others.mean())
    # Two parameters are learned from gold: the mean of the residuals, and the power.
    square = float(((rest - rest.mean()) ** 2).sum()) / (n - 2)
    of_power = square / (spread * (n - 1)) / (1 + n / n_others) ** 2
    apart = others.mean() - hidden.mean()
    variance = square / n + power**2 * others.var() / n_others + apart**2 * of_power
    return mean, float(np.sqrt(variance)), gold_sd, power
