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

from voxpop.arrays import Codes, Floats, Index
from voxpop.collect.assignment.random_graphs import assign_degrees
from voxpop.data.answers import Answers
from voxpop.errors import require
from voxpop.estimators.bi.bi import BI
from voxpop.inference.engine import Engine
from voxpop.inference.kernels.posterior import Posterior
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
_ACCURACY = 1e-5
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
    engine: Engine | None = None,
) -> PredictedError:
    """Predict the error of BI on a large random assignment.

    A fractional ``per_task`` is an average: some tasks get one answer more than others. Each worker
    also answers ``gold`` questions whose truth is known. The crowd follows the model, and BI knows
    its levels and weights. The standard errors are proportional to 1 / sqrt(size * populations).
    """
    _check(per_task, per_worker, gold)
    require(populations >= 2, f"populations must be at least 2, got {populations}")
    require(size >= 10 * per_task, f"size must be ten times per_task or more, got {size}")
    centred = replace(model, prior_mean=0.0)
    engine = engine or Engine(accuracy=_ACCURACY)
    evolution = _Evolution(centred, per_task, per_worker, gold, size, engine)
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


def _degrees(n_tasks: int, per_task: float) -> Index:
    """Numbers of answers that differ by at most one and average ``per_task``."""
    low = int(per_task)
    degree = np.full(n_tasks, low, dtype=np.int64)
    degree[: round(n_tasks * per_task) - n_tasks * low] += 1
    return degree


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
    """Density evolution for one ensemble of assignments."""

    def __init__(
        self, model: Model, per_task: float, per_worker: int, gold: int, size: int, engine: Engine
    ) -> None:
        self._model, self._engine = model, engine
        self._per_worker, self._gold = per_worker, gold
        degree = _degrees(int(np.ceil(size / per_task)), per_task)
        self._task = np.repeat(np.arange(len(degree), dtype=np.int32), degree)
        self._first = np.concatenate([[0], np.cumsum(degree)[:-1]])

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
            tasks = self._draw_tasks(level, incoming, rng)
            level, incoming = self._renew(level, tasks.outgoing, rng)
        measured = []
        for left in reversed(range(_MEASURED)):
            tasks = self._draw_tasks(level, incoming, rng)
            measured.append(self._excess_of(tasks, level))
            if left:
                level, incoming = self._renew(level, tasks.outgoing, rng)
        return np.asarray(np.mean(measured, axis=0))

    def _draw_levels(self, rng: np.random.Generator) -> Index:
        """Draw true levels in the exact shares of the weights, with at least two of each."""
        n = len(self._task)
        edges = np.floor(np.cumsum(np.array(self._model.weights)) * n + rng.random())
        count = np.diff(np.concatenate([[0.0], edges])).astype(np.int64)
        count = np.maximum(count, min(2, n // len(count)))
        count[count.argmax()] += n - count.sum()
        return rng.permutation(np.repeat(np.arange(len(count)), count))

    def _draw_tasks(self, level: Index, incoming: Floats, rng: np.random.Generator) -> _FreshTasks:
        """Draw tasks and their answers by workers of the population (D1)."""
        model = self._model
        # Under a flat prior the location of the truth is irrelevant, so it is the origin.
        spread = np.sqrt(model.prior_variance) if model.prior_precision > 0 else 0.0
        truth = spread * rng.normal(size=(len(self._first), model.dimension))
        noise = rng.normal(size=(len(level), model.dimension))
        value = truth[self._task] + np.sqrt(model.levels[level])[:, None] * noise
        return _FreshTasks(self._engine, model, self._task, value, incoming)

    def _excess_of(self, tasks: _FreshTasks, level: Index) -> tuple[float, float]:
        """Return BI's excess over the strong oracle in squared error and in half-width (D4)."""
        found = tasks.posterior(_UPPER)
        precision = (1.0 / self._model.levels[level])[:, None]
        total = np.add.reduceat(precision, self._first) + self._model.prior_precision
        oracle = np.add.reduceat(precision * tasks.value, self._first) / total
        half_width = float((found.quantile[:, :, 0] - found.estimate).mean())
        return _excess(found.estimate, oracle), half_width - _oracle_half_width(total)

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


class _FreshTasks:
    """Messages and posteriors of tasks whose every answer is by a different worker.

    ``incoming`` and ``outgoing`` (n_edges, n_levels) are log messages from and to the workers. All
    of this module's message passing is here.
    """

    def __init__(
        self, engine: Engine, model: Model, task: Codes, value: Floats, incoming: Floats
    ) -> None:
        self.value = value
        answers = Answers(
            task_ids=np.arange(task[-1] + 1),
            worker_ids=np.arange(len(value)),
            task=task,
            worker=np.arange(len(value), dtype=np.int32),
            value=value,
            value_names=tuple(f"value_{j}" for j in range(value.shape[1])),
        )
        self._messages = messages = engine.open(answers, model)
        units = np.rint(incoming / messages.quantum).astype(np.int64)
        separate = model.dimension > 1 and "integrate" in messages.used
        sums = np.zeros_like(units)
        for _ in range(1 + _INNER_SWEEPS * separate):
            messages.sums = units + sums
            messages.sweep()
            sums = messages.sums
        messages.sums = units + sums
        self.outgoing: Floats = np.asarray(sums * messages.quantum)

    def posterior(self, probabilities: Floats) -> Posterior:
        """Return estimates and quantiles of the truths."""
        return self._messages.posterior(probabilities)


def _excess(estimate: Floats, oracle: Floats) -> float:
    """Mean squared distance from the oracle's estimates, which is the excess of BI's MSE (D4).

    Given all answers and levels, the truth is Gaussian about the oracle's estimate, so the cross
    term vanishes, and with it most of the sampling noise.
    """
    return float(((estimate - oracle) ** 2).sum(axis=1).mean())


def _oracle_half_width(total_precision: Floats) -> float:
    """Mean half-width of the oracle's intervals, a control variate for BI's."""
    return _NORMAL_95 * float((1.0 / np.sqrt(total_precision)).mean())


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
    degree = rng.permutation(_degrees(n_tasks, per_task))
    n_workers = -(-degree.sum() // per_worker)
    load = _degrees(n_workers, degree.sum() / n_workers)
    crowd = simulate(model, assign_degrees(degree, rng.permutation(load), rng), rng)
    answers = _with_gold(crowd.answers, crowd.worker_variance, gold, rng)
    bi = BI(support=model.support, weights=model.weights, prior_variance=model.prior_variance)
    found = bi.fit(answers)
    estimate = found.estimate[:n_tasks]
    task = crowd.answers.task
    precision = 1.0 / crowd.worker_variance[crowd.answers.worker]
    weighted = np.zeros((n_tasks, model.dimension))
    np.add.at(weighted, task, precision[:, None] * crowd.answers.value)
    total: Floats = np.bincount(task, precision, n_tasks).astype(np.float64)
    total += model.prior_precision
    low, high = found.interval(0.95)
    wider = float(0.5 * (high - low)[:n_tasks].mean()) - _oracle_half_width(total)
    mse = float(((estimate - crowd.truth) ** 2).sum(axis=1).mean())
    return _excess(estimate, weighted / total[:, None]), wider, mse


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
