"""Density evolution: the error of BI on a random assignment of very many tasks, predicted.

On a random assignment with ``l`` answers per task and ``r`` per worker, what a task hears of a
worker comes, as the number of tasks grows, from a tree that never closes. So the law of the
messages can be followed instead of the messages: a population of them is renewed, generation by
generation, by tasks drawn afresh that listen to random members of it. The tasks are worked out by
the same backend as a fit. ``docs/plan.md`` has the formulas, (D1)-(D6), that this module cites.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri, softmax

from voxpop.arrays import Floats, Index
from voxpop.collect.assignment.random_graphs import assign_degrees
from voxpop.data.answers import Answers
from voxpop.errors import require
from voxpop.estimators.bi.bi import BI
from voxpop.inference.engine import Backend, Engine
from voxpop.models.model import Model
from voxpop.models.simulation import simulate
from voxpop.models.theory import average_mse, oracle_mse, oracle_variance

# Messages of one population, and populations: independent, so that their spread is the error.
_SIZE, _POPULATIONS = 6000, 8
# A population has settled when its knowledge of the levels has not grown by this much in so many
# generations; it grows with every generation but for the noise, which makes about 1/sqrt(size).
_GROWTH, _PATIENCE, _MOST_GENERATIONS = 1e-4, 3, 60
# Generations whose estimates are averaged, the first of them being the one that ended the wait.
# Few tasks with large errors make much of the mean, so more than one of them is wanted.
_MEASURED = 4
# The error of a population is some per mille: messages need no more digits than this.
_ACCURACY = 1e-5
# Coordinates taken apart tell each other of their workers, within the task, so many times: once
# and three times differ by 1e-4 of the error, never and once by 2e-3.
_INNER_SWEEPS = 1
# Log messages further below the largest than this make no difference, and would overflow sums.
_LOWEST = -(2.0**18)
# One bound of a 95 % interval: the other lies as far on the other side, on average.
_UPPER = np.array([0.975])
_NORMAL_95 = float(ndtri(0.975))


@dataclass(frozen=True, kw_only=True)
class PredictedError:
    """The error to expect of an assignment, with what bounds it.

    Attributes
    ----------
    mse
        Squared distance from the truth over all coordinates, expected of BI, as in ``Score.mse``.
    half_width
        Half of a 95 % interval of one coordinate, averaged over tasks.
    mse_error, half_width_error
        Standard errors of the two, from independent populations (or crowds).
    oracle_mse, average_mse
        The same of the strong oracle, which nobody can beat, and of the plain average.
    spread
        Standard deviation of the MSE from crowd to crowd; only where crowds were drawn.
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
    """Predict the error of BI for many tasks, with so many answers per task and per worker.

    Between two whole numbers ``per_task`` is an average: some tasks get one answer more than the
    others. Each worker also answers ``gold`` questions whose truth is known. The crowd is the
    model's, and BI knows its levels and weights. ``size`` messages in each of ``populations``
    decide the error bars, which shrink with the root of both together.
    """
    _check(per_task, per_worker, gold)
    require(populations >= 2, f"populations must be at least 2, got {populations}")
    require(size >= 10 * per_task, f"size must be ten times per_task or more, got {size}")
    centred = replace(model, prior_mean=0.0)
    engine = engine or Engine(accuracy=_ACCURACY)
    evolve = _Evolution(centred, per_task, per_worker, gold, size, engine)
    found = [evolve.run(child) for child in rng.spawn(populations)]
    return _prediction(model, per_task, np.array(found))


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
    """Measure the same with finitely many tasks: draw crowds, fit BI, and average.

    Every worker answers ``per_worker`` tasks and, besides, the same ``gold`` questions.
    """
    _check(per_task, per_worker, gold)
    require(crowds >= 2, f"crowds must be at least 2, got {crowds}")
    centred = replace(model, prior_mean=0.0)
    found = [
        _fit_one_crowd(centred, n_tasks, per_task, per_worker, gold, child)
        for child in rng.spawn(crowds)
    ]
    measured = _prediction(model, per_task, np.array(found)[:, :2])
    return replace(measured, spread=float(np.std(np.array(found)[:, 2], ddof=1)))


def _degrees(n_tasks: int, per_task: float) -> Index:
    """Answers of each task, at most one apart, ``per_task`` on average."""
    low = int(per_task)
    degree = np.full(n_tasks, low, dtype=np.int64)
    degree[: round(n_tasks * per_task) - n_tasks * low] += 1
    return degree


def _check(per_task: float, per_worker: int, gold: int) -> None:
    require(per_task >= 1, f"per_task must be at least 1, got {per_task}")
    require(per_worker >= 1, f"per_worker must be at least 1, got {per_worker}")
    require(gold >= 0, f"gold must be at least 0, got {gold}")


def _prediction(model: Model, per_task: float, found: Floats) -> PredictedError:
    """Sum up rows of (excess MSE, excess half-width over the oracle's), one per population."""
    excess, wider = found.mean(axis=0)
    errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    oracle = oracle_mse(model, per_task)
    # With one answer per task there is no excess but rounding, and no error to speak of.
    rounding = 1e-12 * oracle
    return PredictedError(
        mse=oracle + float(excess),
        mse_error=float(errors[0]) if errors[0] > rounding else 0.0,
        half_width=_NORMAL_95 * oracle_variance(model, per_task, 0.5) + float(wider),
        half_width_error=float(errors[1]),
        oracle_mse=oracle,
        average_mse=average_mse(model, per_task),
        dimension=model.dimension,
    )


class _Evolution:
    """One ensemble of assignments, ready to renew populations."""

    def __init__(
        self, model: Model, per_task: float, per_worker: int, gold: int, size: int, engine: Engine
    ) -> None:
        self.model, self._engine = model, engine
        self._per_worker, self._gold = per_worker, gold
        degree = _degrees(int(np.ceil(size / per_task)), per_task)
        self.task = np.repeat(np.arange(len(degree), dtype=np.int32), degree)
        self.first = np.concatenate([[0], np.cumsum(degree)[:-1]])

    def run(self, rng: np.random.Generator) -> tuple[float, float]:
        """Renew a population until it settles; return what BI has over the oracle."""
        level = self._levels(rng)
        nothing = np.zeros((len(level), len(self.model.support)))
        said = self._gold_messages(level, rng) if self._gold else nothing
        best, waited = -np.inf, 0
        for _ in range(_MOST_GENERATIONS):
            known = softmax(said + self.model.log_weights, axis=1)
            knowledge = float(known[np.arange(len(level)), level].mean())
            waited = 0 if knowledge > best + _GROWTH else waited + 1
            best = max(best, knowledge)
            if waited >= _PATIENCE or self._per_worker == 1:
                break
            heard = _Tasks(self, level, said, rng).messages
            level, said = self._listen(level, heard, rng)
        measured = []
        for left in reversed(range(_MEASURED)):
            tasks = _Tasks(self, level, said, rng)
            measured.append(tasks.accuracy())
            if left:
                level, said = self._listen(level, tasks.messages, rng)
        return float(np.mean(measured, axis=0)[0]), float(np.mean(measured, axis=0)[1])

    def open(self, value: Floats) -> Backend:
        """Lay out fresh tasks, each answer by a worker of its own."""
        answers = Answers(
            task_ids=np.arange(len(self.first)),
            worker_ids=np.arange(len(value)),
            task=self.task,
            worker=np.arange(len(value), dtype=np.int32),
            value=value,
            value_names=tuple(f"value_{j}" for j in range(value.shape[1])),
        )
        return self._engine.open(answers, self.model)

    def _levels(self, rng: np.random.Generator) -> Index:
        """Draw true levels in the very shares of the weights, and at least two of each."""
        n = len(self.task)
        edges = np.floor(np.cumsum(np.array(self.model.weights)) * n + rng.random())
        count = np.diff(np.concatenate([[0.0], edges])).astype(np.int64)
        count = np.maximum(count, min(2, n // len(count)))
        count[count.argmax()] += n - count.sum()
        return rng.permutation(np.repeat(np.arange(len(count)), count))

    def _listen(
        self, level: Index, heard: Floats, rng: np.random.Generator
    ) -> tuple[Index, Floats]:
        """Make new workers: each sums what ``r - 1`` tasks said to workers of its level (D2).

        The sums run over windows of a random order of the messages of one level, so that every
        one is over different messages, at a cost that does not grow with r.
        """
        said = np.empty_like(heard)
        for k in range(heard.shape[1]):
            members = np.flatnonzero(level == k)
            said[members] = _window_sums(rng.permutation(heard[members]), self._per_worker - 1)
        if self._gold:
            said += self._gold_messages(level, rng)
        said -= said.max(axis=1, keepdims=True)
        order = rng.permutation(len(level))
        return level[order], np.maximum(said[order], _LOWEST)

    def _gold_messages(self, level: Index, rng: np.random.Generator) -> Floats:
        """What the gold questions of a worker say together, from a chi-square distance (D3)."""
        levels = self.model.levels
        freedom = self._gold * self.model.dimension
        distance = levels[level] * rng.chisquare(freedom, len(level))
        message = -0.5 * (distance[:, None] / levels + freedom * np.log(levels))
        return np.asarray(message - message.max(axis=1, keepdims=True))


class _Tasks:
    """Fresh tasks whose workers have been drawn from a population (D1), (D4)."""

    def __init__(
        self, evolution: _Evolution, level: Index, said: Floats, rng: np.random.Generator
    ) -> None:
        self._evolution, model = evolution, evolution.model
        variance = model.levels[level]
        # With a flat prior where the truth lies makes no difference, so it lies at the origin.
        spread = np.sqrt(model.prior_variance) if model.prior_precision > 0 else 0.0
        truth = spread * rng.normal(size=(len(evolution.first), model.dimension))
        noise = rng.normal(size=(len(level), model.dimension))
        self._value = truth[evolution.task] + np.sqrt(variance)[:, None] * noise
        self._precision = (1.0 / variance)[:, None]
        self._backend = backend = evolution.open(self._value)
        said_units = np.rint(said / backend.quantum).astype(np.int64)
        backend.to_tasks(said_units, model.log_weights)
        heard, _ = backend.to_workers(0.0)
        if model.dimension > 1 and "integrate" in backend.used:
            for _ in range(_INNER_SWEEPS):
                backend.to_tasks(said_units + heard, model.log_weights)
                heard, _ = backend.to_workers(0.0)
        backend.to_tasks(said_units + heard, model.log_weights)
        self.messages: Floats = np.asarray(heard * backend.quantum)

    def accuracy(self) -> tuple[float, float]:
        """Return what BI has over the strong oracle in squared error and in half-width."""
        found = self._backend.moments(_UPPER)
        first = self._evolution.first
        total = np.add.reduceat(self._precision, first) + self._evolution.model.prior_precision
        oracle = np.add.reduceat(self._precision * self._value, first) / total
        half_width = float((found.quantile[:, :, 0] - found.estimate).mean())
        return _excess(found.estimate, oracle), half_width - _oracle_half_width(total)


def _excess(estimate: Floats, oracle: Floats) -> float:
    """Mean squared distance from the oracle's estimates: what BI's MSE has over the oracle's.

    Given all answers and levels, the truth is Gaussian about the oracle's estimate, whatever BI
    makes of the answers: so the cross term vanishes, and with it most of the noise (D4).
    """
    return float(((estimate - oracle) ** 2).sum(axis=1).mean())


def _oracle_half_width(total_precision: Floats) -> float:
    """Mean half-width of the oracle's intervals; what luck does to it, it does to BI's."""
    return _NORMAL_95 * float((1.0 / np.sqrt(total_precision)).mean())


def _window_sums(rows: Floats, width: int) -> Floats:
    """Sum ``width`` rows from every row on, round and round."""
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
    """Return what one crowd has over the oracle in MSE and half-width, and its plain MSE."""
    degree = rng.permutation(_degrees(n_tasks, per_task))
    load = _degrees(-(-degree.sum() // per_worker), degree.sum() / -(-degree.sum() // per_worker))
    crowd = simulate(model, assign_degrees(degree, rng.permutation(load), rng), rng)
    answers = _with_gold(crowd.answers, crowd.worker_variance, gold, rng)
    bi = BI(support=model.support, weights=model.weights, prior_variance=model.prior_variance)
    found = bi.fit(answers)
    estimate = found.estimate[:n_tasks]
    precision = 1.0 / crowd.worker_variance[crowd.answers.worker]
    pulled = np.zeros((n_tasks, model.dimension))
    np.add.at(pulled, crowd.answers.task, precision[:, None] * crowd.answers.value)
    total: Floats = np.bincount(crowd.answers.task, precision, n_tasks).astype(np.float64)
    total += model.prior_precision
    low, high = found.interval(0.95)
    wider = float(0.5 * (high - low)[:n_tasks].mean()) - _oracle_half_width(total)
    mse = float(((estimate - crowd.truth) ** 2).sum(axis=1).mean())
    return _excess(estimate, pulled / total[:, None]), wider, mse


def _with_gold(
    answers: Answers, variance: Floats, n_gold: int, rng: np.random.Generator
) -> Answers:
    """Let every worker also answer the same gold questions, whose truth is 0."""
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
