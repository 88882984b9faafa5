"""Density evolution: the error of BI on a large random assignment, predicted.

On a random assignment with ``l`` answers per task and ``r`` per worker, the neighbourhood of a task
becomes a tree as the number of tasks grows. The distribution of the messages can then be computed
instead of the messages: a population of messages is renewed, generation by generation, by fresh
tasks whose workers are random members of it. The tasks use the same kernels as a fit. The formulas
(D1)-(D6) cited here are in ``docs/plan.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri, softmax

from voxpop.arrays import Floats, Index
from voxpop.collect.assignment.random_graphs import assign_degrees, even_shares
from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task
from voxpop.errors import require
from voxpop.estimators.bi.bi import BI
from voxpop.inference.engine import Engine
from voxpop.inference.message_passing import MessagePassing
from voxpop.models.model import Model
from voxpop.models.simulation import simulate
from voxpop.models.theory import average_mse, oracle_mse, oracle_variance

# Messages per population, and independent populations, whose spread gives the standard error.
_SIZE, _POPULATIONS = 6000, 8
# A population has converged when the mean probability of the true level has not grown by _GROWTH
# for _PATIENCE generations. It grows monotonically, up to sampling noise of about 1/sqrt(size).
_GROWTH, _PATIENCE, _MAX_GENERATIONS = 1e-4, 3, 60
# Generations whose estimates are averaged: a few tasks with large errors dominate the mean.
_MEASURED = 4
# Sampling errors are some per mille, so messages need few digits.
_ENGINE = Engine(accuracy=1e-5)
# Inner sweeps within a task whose coordinates are integrated separately: one and three differ by
# 1e-4 of the error, none and one by 2e-3.
_INNER_SWEEPS = 1
# Lower bound of log messages relative to the largest; lower ones make no difference.
_LOWEST = -(2.0**18)
# Upper bound of a 95 % interval: intervals are symmetric on average.
_UPPER = np.array([0.975])
_NORMAL_95 = float(ndtri(0.975))


@dataclass(frozen=True, kw_only=True)
class PredictedError:
    """The expected error of an assignment, with a lower and an upper bound.

    Attributes
    ----------
    mse
        Expected squared distance of BI's estimates from the truth, summed over the coordinates, as
        in ``Score.mse``.
    half_width
        Half of a 95 % interval of one coordinate, averaged over tasks.
    mse_error, half_width_error
        Standard errors of the two, from independent populations (or crowds).
    oracle_mse, average_mse
        Expected squared error of the strong oracle, a lower bound, and of the plain average.
    spread
        Standard deviation of the MSE between crowds; only if crowds were simulated.
    """

    mse: float
    mse_error: float
    half_width: float
    half_width_error: float
    oracle_mse: float
    average_mse: float
    dimension: int
    spread: float | None = None

    @property
    def rmse(self) -> float:
        """Root of the mean squared error of one coordinate, ``sqrt(mse / dimension)``."""
        return float(np.sqrt(self.mse / self.dimension))

    @property
    def rmse_error(self) -> float:
        """Standard error of :attr:`rmse`."""
        return self.mse_error / (2.0 * self.rmse * self.dimension)


def predict_error(
    model: Model,
    rng: np.random.Generator,
    *,
    per_task: float,
    per_worker: int,
    gold: int = 0,
    size: int = _SIZE,
    populations: int = _POPULATIONS,
) -> PredictedError:
    """Predict the error of BI on a large random assignment.

    A fractional ``per_task`` is an average: some tasks get one answer more than others. Each worker
    also answers ``gold`` questions whose truth is known. The crowd follows the model, and BI knows
    its levels and weights. The standard errors are proportional to 1 / sqrt(size * populations).
    """
    _check(per_task, per_worker, gold)
    require(populations >= 2, f"populations must be at least 2, got {populations}")
    require(size >= 10 * per_task, f"size must be ten times per_task or more, got {size}")
    evolution = _Evolution(replace(model, prior_mean=0.0), per_task, per_worker, gold, size)
    excess = [evolution.run(child) for child in rng.spawn(populations)]
    return _predicted_error(model, per_task, np.array(excess))


def measure_error(
    model: Model,
    rng: np.random.Generator,
    *,
    n_tasks: int,
    per_task: float,
    per_worker: int,
    gold: int = 0,
    crowds: int = 10,
) -> PredictedError:
    """Measure the error of BI with finitely many tasks: simulate crowds, fit BI, and average.

    Every worker answers ``per_worker`` tasks and, besides, the same ``gold`` questions.
    """
    _check(per_task, per_worker, gold)
    require(crowds >= 2, f"crowds must be at least 2, got {crowds}")
    centred = replace(model, prior_mean=0.0)
    rows = [
        _fit_one_crowd(centred, n_tasks, per_task, per_worker, gold, child)
        for child in rng.spawn(crowds)
    ]
    measured = _predicted_error(model, per_task, np.array(rows)[:, :2])
    return replace(measured, spread=float(np.std(np.array(rows)[:, 2], ddof=1)))


def _check(per_task: float, per_worker: int, gold: int) -> None:
    require(per_task >= 1, f"per_task must be at least 1, got {per_task}")
    require(per_worker >= 1, f"per_worker must be at least 1, got {per_worker}")
    require(gold >= 0, f"gold must be at least 0, got {gold}")


def _predicted_error(model: Model, per_task: float, excess: Floats) -> PredictedError:
    """Summarise rows of (MSE, half-width) in excess of the oracle's, one per population."""
    mse, half_width = excess.mean(axis=0)
    errors = excess.std(axis=0, ddof=1) / np.sqrt(len(excess))
    oracle = oracle_mse(model, per_task)
    # With one answer per task the excess is only rounding.
    rounding = 1e-12 * oracle
    return PredictedError(
        mse=oracle + float(mse),
        mse_error=float(errors[0]) if errors[0] > rounding else 0.0,
        half_width=_NORMAL_95 * oracle_variance(model, per_task, 0.5) + float(half_width),
        half_width_error=float(errors[1]),
        oracle_mse=oracle,
        average_mse=average_mse(model, per_task),
        dimension=model.dimension,
    )


class _Evolution:
    """Density evolution for one ensemble of assignments: tasks whose workers are all different."""

    def __init__(
        self, model: Model, per_task: float, per_worker: int, gold: int, size: int
    ) -> None:
        self._model, self._per_worker, self._gold = model, per_worker, gold
        n_tasks = int(np.ceil(size / per_task))
        degree = even_shares(round(n_tasks * per_task), n_tasks)
        self._task = np.repeat(np.arange(n_tasks, dtype=np.int32), degree)

    def run(self, rng: np.random.Generator) -> Floats:
        """Renew a population until it converges; return BI's excess over the oracle (2,)."""
        level = self._draw_levels(rng)
        flat = np.zeros((len(level), len(self._model.support)))
        incoming = self._gold_messages(level, rng) if self._gold else flat
        best, waited = -np.inf, 0
        for _ in range(_MAX_GENERATIONS):
            belief = softmax(incoming + self._model.log_weights, axis=1)
            knowledge = float(belief[np.arange(len(level)), level].mean())
            waited = 0 if knowledge > best + _GROWTH else waited + 1
            best = max(best, knowledge)
            if waited >= _PATIENCE or self._per_worker == 1:
                break
            outgoing = self._send(self._draw_tasks(level, rng), incoming)[1]
            level, incoming = self._renew(level, outgoing, rng)
        measured = []
        for left in reversed(range(_MEASURED)):
            answers = self._draw_tasks(level, rng)
            messages, outgoing = self._send(answers, incoming)
            found = messages.posterior(_UPPER)
            half_width = float((found.quantile[:, :, 0] - found.estimate).mean())
            variance = self._model.levels[level]
            measured.append(_excess(answers, variance, self._model, found.estimate, half_width))
            if left:
                level, incoming = self._renew(level, outgoing, rng)
        return np.asarray(np.mean(measured, axis=0))

    def _draw_levels(self, rng: np.random.Generator) -> Index:
        """Draw true levels in the exact shares of the weights, with at least two of each."""
        n = len(self._task)
        edges = np.floor(np.cumsum(np.array(self._model.weights)) * n + rng.random())
        count = np.diff(np.concatenate([[0.0], edges])).astype(np.int64)
        count = np.maximum(count, min(2, n // len(count)))
        count[count.argmax()] += n - count.sum()
        return rng.permutation(np.repeat(np.arange(len(count)), count))

    def _draw_tasks(self, level: Index, rng: np.random.Generator) -> Answers:
        """Draw tasks and their answers by workers of the population (D1)."""
        model, n_tasks, n_edges = self._model, int(self._task[-1]) + 1, len(level)
        # Under a flat prior the location of the truth is irrelevant, so it is the origin.
        spread = np.sqrt(model.prior_variance) if model.prior_precision > 0 else 0.0
        truth = spread * rng.normal(size=(n_tasks, model.dimension))
        noise = rng.normal(size=(n_edges, model.dimension))
        return Answers(
            task_ids=np.arange(n_tasks),
            worker_ids=np.arange(n_edges),
            task=self._task,
            worker=np.arange(n_edges, dtype=np.int32),
            value=truth[self._task] + np.sqrt(model.levels[level])[:, None] * noise,
        )

    def _send(self, answers: Answers, incoming: Floats) -> tuple[MessagePassing, Floats]:
        """Compute the messages of tasks from log messages (n_edges, n_levels) of their workers."""
        messages = _ENGINE.open(answers, self._model)
        units = np.rint(incoming / messages.quantum).astype(np.int64)
        separate = answers.dimension > 1 and "integrate" in messages.used
        sums = np.zeros_like(units)
        for _ in range(1 + _INNER_SWEEPS * separate):
            messages.sums = units + sums
            messages.sweep()
            sums = messages.sums
        messages.sums = units + sums
        return messages, np.asarray(sums * messages.quantum)

    def _renew(
        self, level: Index, outgoing: Floats, rng: np.random.Generator
    ) -> tuple[Index, Floats]:
        """Draw new workers: each sums ``r - 1`` messages to workers of the same level (D2).

        The sums are over windows of a random order of the messages of one level: all are over
        different messages, at a cost that does not depend on r.
        """
        incoming = np.empty_like(outgoing)
        for k in range(outgoing.shape[1]):
            members = np.flatnonzero(level == k)
            shuffled = rng.permutation(outgoing[members])
            incoming[members] = _window_sums(shuffled, self._per_worker - 1)
        if self._gold:
            incoming += self._gold_messages(level, rng)
        incoming -= incoming.max(axis=1, keepdims=True)
        order = rng.permutation(len(level))
        return level[order], np.maximum(incoming[order], _LOWEST)

    def _gold_messages(self, level: Index, rng: np.random.Generator) -> Floats:
        """Draw the sum of the messages of a worker's gold questions (D3)."""
        levels = self._model.levels
        freedom = self._gold * self._model.dimension
        distance = levels[level] * rng.chisquare(freedom, len(level))
        message = -0.5 * (distance[:, None] / levels + freedom * np.log(levels))
        return np.asarray(message - message.max(axis=1, keepdims=True))


def _excess(
    answers: Answers, variance: Floats, model: Model, estimate: Floats, half_width: float
) -> tuple[float, float]:
    """Return BI's excess over the strong oracle in squared error and in half-width (D4).

    Given all answers and their variances, the truth is Gaussian about the oracle's estimate. The
    excess of the MSE is therefore the mean squared distance from it, the cross term vanishes, and
    with it most of the sampling noise. The oracle's half-width is a control variate for BI's.
    """
    precision = (1.0 / variance)[:, None]
    total = sum_by_task(answers, precision) + model.prior_precision
    oracle = sum_by_task(answers, precision * answers.value) / total
    of_oracle = _NORMAL_95 * float((1.0 / np.sqrt(total)).mean())
    return float(((estimate - oracle) ** 2).sum(axis=1).mean()), half_width - of_oracle


def _window_sums(rows: Floats, width: int) -> Floats:
    """Sum ``width`` rows from every row on, cyclically."""
    turns, rest = divmod(width, len(rows))
    total = np.zeros((len(rows) + rest + 1, rows.shape[1]))
    np.cumsum(np.concatenate([rows, rows[:rest]]), axis=0, out=total[1:])
    window = total[rest : rest + len(rows)] - total[: len(rows)]
    return np.asarray(window + turns * rows.sum(axis=0))


def _fit_one_crowd(
    model: Model,
    n_tasks: int,
    per_task: float,
    per_worker: int,
    gold: int,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """Return the excess of one crowd over the oracle in MSE and half-width, and its MSE."""
    degree = rng.permutation(even_shares(round(n_tasks * per_task), n_tasks))
    load = even_shares(degree.sum(), -(-degree.sum() // per_worker))
    crowd = simulate(model, assign_degrees(degree, rng.permutation(load), rng), rng)
    answers = _with_gold(crowd.answers, crowd.worker_variance, gold, rng)
    bi = BI(support=model.support, weights=model.weights, prior_variance=model.prior_variance)
    found = bi.fit(answers)
    estimate = found.estimate[:n_tasks]
    low, high = found.interval(0.95)
    half_width = float(0.5 * (high - low)[:n_tasks].mean())
    variance = crowd.worker_variance[crowd.answers.worker]
    mse = float(((estimate - crowd.truth) ** 2).sum(axis=1).mean())
    return *_excess(crowd.answers, variance, model, estimate, half_width), mse


def _with_gold(
    answers: Answers, variance: Floats, n_gold: int, rng: np.random.Generator
) -> Answers:
    """Add answers of every worker to the same gold questions, whose truth is 0."""
    if not n_gold:
        return answers
    n, m, d = answers.n_tasks, answers.n_workers, answers.dimension
    noise = np.sqrt(variance)[None, :, None] * rng.normal(size=(n_gold, m, d))
    gold = np.full((n + n_gold, d), np.nan)
    gold[n:] = 0.0
    return Answers.from_codes(
        np.concatenate([answers.task, np.repeat(np.arange(n, n + n_gold), m)]).astype(np.int32),
        np.arange(n + n_gold),
        np.concatenate([answers.worker, np.tile(np.arange(m), n_gold)]).astype(np.int32),
        answers.worker_ids,
        np.concatenate([answers.value, noise.reshape(-1, d)]),
        value_names=answers.value_names,
        gold=gold,
    )
