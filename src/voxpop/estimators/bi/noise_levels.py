"""Noise levels where they are not given: by the paper's rule, or a learned grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.exact import largest_by_owner, owner_sums, owner_values
from voxpop.data.sums import (
    medians,
    squared_residual,
    variance_within_tasks,
    with_gold,
)
from voxpop.estimators.base import OnSweep
from voxpop.estimators.baselines.nbi import NBI
from voxpop.estimators.bi.beliefs import Messages
from voxpop.estimators.iterate import iterate_until
from voxpop.inference.engine import Engine
from voxpop.inference.schedule import Schedule
from voxpop.models.model import Model
from voxpop.models.noise.component import STEP
from voxpop.models.noise.levels import FEWEST_WORKERS, learn_shares, shares_text

# Levels a factor 10 apart find the range that the workers use, then levels a STEP of 2.5 apart
# (1.6 in sd) fill it: a worker between two levels loses a few per cent of efficiency at most.
_COARSE = 10.0
_COARSE_SWEEPS, _FINE_SWEEPS = 8, 60
# EM is slow where levels are close: where messages are cheap, it takes this many steps at once.
_MATCHED_STEPS = 5
# Where the task of an answer has so many on average, truths hardly move with the weights, nor do
# messages, and a sweep of these is what costs: so many steps at once.
_LONG_TASK, _LONG_STEPS = 1_000, 50
# Weights need no more digits than this of the messages, and cost half as much with them. It is the
# same whatever the accuracy asked for, and so are the levels.
LEARNING_ACCURACY = 1e-5
# The weights are settled when none moves by more than this in a sweep.
_SETTLED = 2e-3
# Far below the noise of those beside them, workers look the same at every level. The lowest
# level worth having is one that somebody's answers prefer to the next by this much, in nats.
_PREFERENCE = 1.0
# Of a task with more answers, so many show how noisy workers are. More would tell finer levels
# apart, at most, and every sweep of the learning takes time and memory in proportion.
MOST_OF_TASK = 10_000
# No level is lower, whatever the units: its inverse and products with it must be numbers.
_LEAST_LEVEL = 1e-250


@dataclass(frozen=True)
class ChosenModel:
    """A model with the levels chosen, the notes for the user, and the number of sweeps."""

    model: Model
    notes: tuple[str, ...] = ()
    n_sweeps: int = 0


def support_from_nbi(answers: Answers, base: Model) -> ChosenModel:
    """Take the 10 % and 90 % quantiles of NBI's variances as a binary support (M22).

    Workers at NBI's floor are left out: the floor is not a finding about them.
    """
    found = NBI().fit(answers)
    variance = found.worker_variance
    free = variance > found.settings["floor_variance"] * (1 + 1e-9)
    low, high = np.quantile(variance[free], [0.1, 0.9]) if free.any() else (0.0, 0.0)
    levels = (low, high) if 0 < low < high else (_scale(answers),)
    note = f"support from NBI: {', '.join(f'{level:.4g}' for level in levels)}"
    return ChosenModel(base.with_levels(levels), (note,))


def learn_support(
    answers: Answers,
    base: Model,
    engine: Engine,
    max_iter: int = _FINE_SWEEPS,
    on_sweep: OnSweep | None = None,
    min_answers: int = 1,
    matched: bool = False,
) -> ChosenModel:
    """Learn levels and weights: EM on a coarse grid, then on a fine one within its range (M21).

    Only workers with ``min_answers`` are learned from: see :func:`informative_workers`. Where the
    levels are only to start from, moments may be ``matched``, which is near enough. Of a task with
    very many answers a part is enough: see :func:`thinned`.
    """
    engine = replace(engine, accuracy=LEARNING_ACCURACY)
    answers = thinned(answers)
    is_long = not matched and bool(answers.task_degree[answers.task].mean() >= _LONG_TASK)
    return learn_levels(
        Spread.of(answers),
        lambda model: (engine.match if matched else engine.open)(answers, model),
        base,
        max_iter,
        on_sweep,
        min_answers,
        _LONG_STEPS if is_long else _MATCHED_STEPS if matched else 1,
    )


def learn_levels(
    spread: Spread,
    open_messages: Callable[[Model], Messages | Schedule],
    base: Model,
    max_iter: int = _FINE_SWEEPS,
    on_sweep: OnSweep | None = None,
    min_answers: int = 1,
    n_steps: int = 1,
) -> ChosenModel:
    """Do as :func:`learn_support` does, wherever the answers are: ``open_messages`` knows.

    EM takes ``n_steps`` a sweep.
    """
    low, high = spread.bounds(min_answers)
    informative = informative_workers(spread, min_answers)

    def learn(levels: list[float], most: int) -> tuple[Model, int]:
        model, n_sweeps = base.with_levels(levels), min(max_iter, most)
        return _learn_weights(open_messages(model), model, n_sweeps, on_sweep, informative, n_steps)

    coarse, n_coarse = learn(_grid(low, high, _COARSE), _COARSE_SWEEPS)
    # Half a coarse step more on either side: the truth may lie between two levels. Between levels
    # far apart that are used (one wild answer is enough) nothing is filled in.
    margin = np.sqrt(_COARSE) * (1 + 1e-9)
    candidates = np.array(_grid(low, high, STEP))
    near = np.abs(np.log(candidates[:, None] / coarse.levels)).min(axis=1) <= np.log(margin)
    fine, n_fine = learn(candidates[near].tolist(), _FINE_SWEEPS)
    shown = shares_text(fine.levels, np.array(fine.weights))
    note = f"noise levels learned from the answers, with the share of workers: {shown}"
    return ChosenModel(fine, (note,), n_coarse + n_fine)


def thinned(answers: Answers) -> Answers:
    """Leave out answers of tasks that have more than :data:`MOST_OF_TASK`.

    Those kept are evenly spaced in the order of their distances from the task's median, and the
    furthest is one of them: they scatter as all do, and need no level less.
    """
    degree = answers.task_degree
    if degree.max() <= MOST_OF_TASK:
        return answers
    order = np.lexsort((median_distance(answers), answers.task))
    rank = np.arange(answers.n_edges) - answers.task_ptr[:-1][answers.task]
    size = degree[answers.task]
    most = np.minimum(size, MOST_OF_TASK)
    # The k-th of `most` shares of the ranks ends here.
    kept = (rank + 1) * most // size > rank * most // size
    chosen = np.zeros(answers.n_edges, dtype=bool)
    chosen[order[kept]] = True
    return answers.select(chosen)


def informative_workers(answers: Answers | Spread, min_answers: int) -> NDArray[np.bool_]:
    """Tell who has at least ``min_answers``, (m,); all workers where nobody has.

    A part cut out of a large crowd leaves most workers with a single answer. They carry no
    information on how workers differ, and slow EM down.
    """
    informative = answers.worker_degree >= min_answers
    return informative if informative.any() else np.ones_like(informative)


def _learn_weights(
    messages: Messages | Schedule,
    model: Model,
    max_iter: int,
    on_sweep: OnSweep | None,
    informative: NDArray[np.bool_],
    n_steps: int,
) -> tuple[Model, int]:
    """Run EM on the weights beside the messages, ``n_steps`` a sweep; drop levels nobody uses."""
    log_weights = model.log_weights
    n_levels = len(log_weights)
    likelihood, count = np.zeros(messages.sums.shape), np.zeros(n_levels)
    sweeps = 0

    def sweep(damping: float) -> float:
        nonlocal log_weights, likelihood, count, sweeps
        messages.sweep(damping)
        likelihood = np.asarray(messages.sums * messages.quantum)
        before = log_weights
        log_weights, count = learn_shares(
            messages.sums[informative], messages.quantum, before, n_steps
        )
        messages.log_weights = log_weights
        sweeps += 1
        # The first messages do not depend on each other: two more before EM may stop.
        return float(np.abs(np.exp(log_weights) - np.exp(before)).max()) if sweeps > 2 else np.inf

    trace = iterate_until(
        sweep,
        tol=_SETTLED,
        max_iter=max_iter,
        what="learning noise levels",
        on_sweep=on_sweep,
        dampings=(0.0,),
        warn=False,
    )
    preferred = np.flatnonzero((likelihood[:, :-1] - likelihood[:, 1:] > _PREFERENCE).any(axis=0))
    lowest = preferred[0] if len(preferred) else n_levels - 1
    lowest = min(lowest, int(count.argmax()))
    kept = np.flatnonzero((count >= FEWEST_WORKERS) & (np.arange(n_levels) >= lowest))
    learned = model.with_levels(model.levels[kept].tolist(), np.exp(log_weights)[kept].tolist())
    return learned, trace.n_sweeps


def _grid(low: float, high: float, factor: float) -> list[float]:
    n_levels = int(np.ceil(np.log(high / low) / np.log(factor) - 1e-9)) + 1
    return list(np.geomspace(low, high, n_levels)) if n_levels > 1 else [float(np.sqrt(low * high))]


@dataclass(frozen=True, eq=False)
class Spread:
    """Distances between answers, which bound the levels worth trying.

    ``distance`` (m,) is each worker's mean squared distance from the tasks' medians, ``usual`` the
    typical variance of an answer, ``rounding`` that of their rounding error; all per coordinate.
    """

    worker_degree: Index
    distance: Floats
    usual: float
    rounding: float

    @classmethod
    def of(cls, answers: Answers) -> Spread:
        """That of answers in memory."""
        squared, worker = median_distance(answers), answers.worker
        largest = largest_by_owner(worker, squared, answers.n_workers)
        distance = owner_values(owner_sums(worker, squared, largest), largest)
        return cls(
            answers.worker_degree,
            distance / answers.worker_degree / answers.dimension,
            _scale(answers),
            rounding_variance(answers),
        )

    def bounds(self, min_answers: int = 1) -> tuple[float, float]:
        """Bounds of the levels worth trying.

        How low they may be is taken from :func:`informative_workers`: of many workers with one
        answer someone is next to the median by chance.
        """
        distance, usual = self.distance, self.usual
        high = 4.0 * max(float(distance.max()), usual)
        informative = informative_workers(self, min_answers)
        # The nearest of m workers with one answer each is m² times as near as a typical one by
        # chance, with two answers m times: how near they are says nothing.
        positive = distance[(distance > 0) & informative & (self.worker_degree > 2)]
        nearest = float(positive.min()) if len(positive) else usual
        # A median of few answers is noisy itself, so the best workers may be far better than they
        # look against it; but nobody is better than the rounding of the answers.
        low = max(min(nearest, usual) * 1e-3, self.rounding, high * 1e-36, _LEAST_LEVEL)
        return low, max(high, low * STEP)


def median_distance(answers: Answers) -> Floats:
    """Squared distance (E,) of every answer from the median of its task, or its truth."""
    return squared_residual(answers, with_gold(answers, medians(answers)))


def level_bounds(answers: Answers, min_answers: int = 1) -> tuple[float, float]:
    """Bounds of the levels worth trying; see :meth:`Spread.bounds`."""
    return Spread.of(answers).bounds(min_answers)


def _scale(answers: Answers) -> float:
    """Typical variance of an answer; for equal answers, that of the last digit of a float."""
    return usual_variance(variance_within_tasks(answers), float(np.abs(answers.value).max()))


def usual_variance(within_tasks: Floats, largest: float) -> float:
    """Mean variance of the coordinates; for equal answers, that of the last digit of a float."""
    return float(within_tasks.mean()) or max(float(np.spacing(largest)) ** 2, 1e-200)


def rounding_variance(answers: Answers) -> float:
    """Variance of the rounding error of answers given on a scale of steps, such as 1 to 10.

    Where most answers share their value with another, the steps are the gaps between values that
    occur at least half as often as values do on average, so that a few answers between the steps
    do not hide them. Without this floor, workers who agree exactly because they all round would
    be taken for infinitely precise.
    """
    steps = []
    for j in range(answers.dimension):
        value, count = np.unique(answers.value[:, j], return_counts=True)
        if 2 * len(value) > answers.n_edges:
            return 0.0
        frequent = value[count >= 0.5 * count.mean()]
        if len(frequent) > 1:
            steps.append(float(np.median(np.diff(frequent))))
    return min(steps) ** 2 / 12.0 if steps else 0.0
