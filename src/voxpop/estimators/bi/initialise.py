"""Where a fit under a rich noise model starts: levels, units, origins, parts, first messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from voxpop.arrays import Codes, Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, sum_by_task
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.em_steps import Learned, class_steps, learn_shares
from voxpop.estimators.bi.noise_levels import ChosenModel, learn_support, level_bounds
from voxpop.estimators.plug_in import NO_WEIGHT
from voxpop.inference.engine import Engine
from voxpop.models.model import Model
from voxpop.models.noise import STEP, TAIL_STEPS, tail_variance

LEARNING_SWEEPS = 40  # of the parameters of a rich noise model
# With the bias or the slips taken out, the workers' own noise is lower than it looked: so many
# steps of the levels are added below those that Gaussian noise alone made use of, and above.
_MORE_BELOW, _MORE_ABOVE = 3, 1
# Rounds in which workers and tasks are set against each other before anything is integrated, and
# the share of workers that keeps a level nobody is likeliest at.
_ROUNDS, _SHARE_STEPS, _LEAST_SHARE = 4, 5, 1e-3


@dataclass(frozen=True, eq=False)
class StartingLevels:
    """Levels of the paper's noise, in units of :func:`coordinate_scale`, and levels to start from.

    Any noise model can make do with ``levels``.
    """

    plain: ChosenModel
    levels: Floats


def starting_levels(
    answers: Answers, engine: Engine, on_sweep: OnSweep | None = None, fewest: int = 1
) -> StartingLevels:
    """Learn the levels of the paper's noise, and go a little beyond them.

    ``fewest`` is as in :func:`level_bounds`.
    """
    scaled = replace(answers, value=answers.value / coordinate_scale(answers))
    base = Model(support=(1.0,), dimension=answers.dimension)
    plain = learn_support(scaled, base, engine, on_sweep=on_sweep, fewest=fewest)
    found = plain.model.levels
    low, high = level_bounds(scaled, fewest)
    lowest = max(found[0] / STEP**_MORE_BELOW, min(low, found[0]))
    highest = min(found[-1] * STEP**_MORE_ABOVE, max(high, found[-1]))
    n_levels = max(2, round(np.log(highest / lowest) / np.log(STEP)) + 1)
    return StartingLevels(plain, np.asarray(lowest * STEP ** np.arange(n_levels)))


def coordinate_scale(answers: Answers) -> Floats:
    """Typical distance of answers from their task's median, per coordinate; geometric mean one.

    So that a coordinate which scatters more than others counts for as much, not more.
    """
    if answers.dimension == 1:
        return np.ones(1)
    distance = np.abs(answers.value - medians(answers)[answers.task])
    scale = np.array([np.median(d[d > 0]) if (d > 0).any() else np.nan for d in distance.T])
    if np.isnan(scale).all():
        return np.ones(answers.dimension)
    # A coordinate in which all agree has no scale of its own.
    scale = np.where(np.isnan(scale), np.nanmin(scale), scale)
    return np.asarray(scale / np.exp(np.log(scale).mean()))


def origins(answers: Answers) -> Floats:
    """The middle answer of each task, per coordinate: differences from it are exact."""
    first, degree = answers.task_ptr[:-1], answers.task_degree
    origin = np.empty((answers.n_tasks, answers.dimension))
    for j in range(answers.dimension):
        ordered = answers.value[np.lexsort((answers.value[:, j], answers.task)), j]
        origin[:, j] = ordered[first + degree // 2]
    return origin


def crowds(answers: Answers) -> tuple[Codes, NDArray[np.bool_]]:
    """Number the connected parts of the graph per worker, and tell which of them have gold."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = answers.n_tasks
    size = n + answers.n_workers
    edges = coo_array(
        (np.ones(answers.n_edges), (answers.task, answers.worker + n)), shape=(size, size)
    )
    n_crowds, part = connected_components(edges, directed=False)
    anchored = np.zeros(n_crowds, dtype=bool)
    anchored[part[:n][answers.is_gold]] = True
    return part[n:], anchored


@dataclass(frozen=True, eq=False)
class Start:
    """Messages (E, d, K) to start from, and the parameters, with the levels that they are about."""

    message: Floats
    learned: Learned


def start_from(
    answers: Answers,
    value: Floats,
    gold: Floats,
    learned: Learned,
    common: int | None,
    on_sweep: OnSweep | None = None,
) -> Start:
    """Messages that take the others' noise for known: near the exact ones, without an integral.

    With w_v the expected precision of worker v, and b the variance of biases if there are any, the
    message of task i to worker u about level s is::

        m(s) = N(A_iu | mean of the others weighted by w,  s + b + 1 / Σ w)

    It is worked out a few times, with new w and new shares of the levels (M21) each time; levels
    that are nobody's likeliest are left out then. Where workers are taken alike, ``common`` is the
    number of the level of all: there is nothing to say of it.

    ``value`` (E, d) and ``gold`` (n, d), NaN where unknown, are in the units of the levels.
    """
    if common is not None:
        kept = _with_floor(np.array([common]), learned)
        return Start(np.zeros((*value.shape, len(kept))), _keep(learned, kept))
    task, worker, m = answers.task, answers.worker, answers.n_workers
    spread = learned.levels * tail_variance(learned.freedom)
    more = learned.bias_variance if learned.bias_variance.size else 0.0
    posterior = np.broadcast_to(np.exp(learned.log_weights), (m, len(spread)))
    for number in range(_ROUNDS):
        before = np.exp(learned.log_weights)
        weight = (posterior @ (spread[0] / spread))[worker][:, None]
        total = sum_by_task(answers, weight)[task]
        others = total - weight
        usable = (answers.task_degree[task] > 1)[:, None] & (others > NO_WEIGHT * total)
        mean = sum_by_task(answers, weight * value)[task] - weight * value
        mean /= np.where(usable, others, 1.0)
        variance = spread[0] / np.where(usable, others, 1.0)
        known = answers.is_gold[task]
        mean[known], variance[known] = gold[task[known]], 0.0
        usable[known] = True
        squared = (value - mean) ** 2
        variance = variance + more

        def said(k: int, squared=squared, variance=variance, usable=usable) -> Floats:  # type: ignore[no-untyped-def]
            """What the answers (E, d) say of level k."""
            wide = variance + spread[k]
            return np.where(usable, -0.5 * (squared / wide + np.log(wide)), 0.0)

        sums = [np.bincount(worker, said(k).sum(axis=1), m) for k in range(len(spread))]
        for _ in range(_SHARE_STEPS):
            posterior = softmax(np.stack(sums, axis=1) + learned.log_weights, axis=1)
            learned = learn_shares(learned, posterior)
        if on_sweep is not None:
            change = float(np.abs(np.exp(learned.log_weights) - before).max())
            on_sweep("first guess", number + 1, change, _LEAST_SHARE)
    used = np.bincount(posterior.argmax(axis=1), minlength=len(spread)) > 0
    kept = _with_floor(np.flatnonzero(used | (np.exp(learned.log_weights) > _LEAST_SHARE)), learned)
    message = np.empty((*value.shape, len(kept)))
    for place, k in enumerate(kept.tolist()):
        message[:, :, place] = said(k)
    message -= message.max(axis=2, keepdims=True)
    return Start(message, _keep(learned, kept))


def _with_floor(kept: Index, learned: Learned) -> Index:
    """Add the levels below that tails or easy tasks reach: the lowest bounds all variances."""
    reach = -int(class_steps(len(learned.log_class))[0])
    reach += -int(TAIL_STEPS[0]) if np.isfinite(learned.freedom) else 0
    return np.union1d(np.arange(max(0, kept[0] - reach), kept[0]), kept)


def _keep(learned: Learned, kept: Index) -> Learned:
    log_weights = learned.log_weights[kept]
    log_weights = log_weights - np.log(np.exp(log_weights).sum())
    return replace(learned, levels=learned.levels[kept], log_weights=log_weights)
