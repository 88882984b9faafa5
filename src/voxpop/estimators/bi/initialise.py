"""Where a fit under a noise model starts: answers in units of their own, levels, first messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, weighted_means
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.noise_levels import ChosenModel, learn_support, level_bounds
from voxpop.estimators.leave_one_out import weighted_left_out
from voxpop.inference.engine import Engine
from voxpop.models.model import Model
from voxpop.models.noise import NoiseParameters
from voxpop.models.noise.bias import Bias
from voxpop.models.noise.component import STEP
from voxpop.models.noise.levels import Levels, learn_shares

# With the bias or the slips taken out, the workers' own noise is lower than it looked: so many
# steps of the levels are added below those that Gaussian noise alone made use of, and above.
_MORE_BELOW, _MORE_ABOVE = 3, 1
# Rounds in which weights and means are computed in turn before anything is integrated, and the
# share of workers that keeps a level which is nobody's likeliest.
_ROUNDS, _SHARE_STEPS, _LEAST_SHARE = 4, 5, 1e-3


@dataclass(frozen=True, eq=False)
class PreparedAnswers:
    """Answers as a fit takes them: from an origin of each task, in units of each coordinate.

    ``origin`` (n, d), an answer of the task, and ``scale`` (d,) are in the users' units. ``value``
    (E, d) and ``gold`` (n, d), NaN where unknown, are relative to the origin and in units of the
    scale; ``task_means`` (n, d) in units of the scale. ``part`` (m,) numbers the connected part of
    the crowd that each worker is in; ``anchored`` says which parts have gold.
    """

    answers: Answers
    scale: Floats
    origin: Floats
    value: Floats
    gold: Floats
    task_means: Floats
    part: Codes
    anchored: NDArray[np.bool_]


def prepare(answers: Answers, scale: Floats | None = None) -> PreparedAnswers:
    """Work out all that fits of the same answers share; the scale, too, unless it is given."""
    scale = coordinate_scale(answers) if scale is None else scale
    origin = _origins(answers)
    gold = np.full(origin.shape, np.nan) if answers.gold is None else answers.gold
    scaled = replace(answers, value=answers.value / scale)
    return PreparedAnswers(
        answers,
        scale,
        origin,
        (answers.value - origin[answers.task]) / scale,
        (gold - origin) / scale,
        weighted_means(scaled, np.ones(answers.n_edges)),
        *_connected_parts(answers),
    )


def starting_levels(
    answers: Answers,
    scale: Floats,
    engine: Engine,
    on_sweep: OnSweep | None = None,
    min_answers: int = 1,
) -> tuple[ChosenModel, Floats]:
    """Learn the levels of the paper's noise, and levels that any noise model can start from.

    Both are in units of ``scale`` (d,); ``min_answers`` is as in :func:`learn_support`.
    """
    scaled = replace(answers, value=answers.value / scale)
    base = Model(support=(1.0,), dimension=answers.dimension)
    plain = learn_support(scaled, base, engine, on_sweep=on_sweep, min_answers=min_answers)
    found = plain.model.levels
    low, high = level_bounds(scaled, min_answers)
    lowest = max(found[0] / STEP**_MORE_BELOW, min(low, found[0]))
    highest = min(found[-1] * STEP**_MORE_ABOVE, max(high, found[-1]))
    n_levels = max(2, round(np.log(highest / lowest) / np.log(STEP)) + 1)
    return plain, np.asarray(lowest * STEP ** np.arange(n_levels))


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


def _origins(answers: Answers) -> Floats:
    """The middle answer of each task, per coordinate: differences from it are exact."""
    middle = answers.task_ptr[:-1] + answers.task_degree // 2
    ordered = [column[np.lexsort((column, answers.task))] for column in answers.value.T]
    return np.asarray(np.stack(ordered, axis=1)[middle])


def _connected_parts(answers: Answers) -> tuple[Codes, NDArray[np.bool_]]:
    """Number the connected parts of the graph per worker, and tell which of them have gold."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = answers.n_tasks
    size = n + answers.n_workers
    edges = coo_array(
        (np.ones(answers.n_edges), (answers.task, answers.worker + n)), shape=(size, size)
    )
    n_parts, part = connected_components(edges, directed=False)
    anchored = np.zeros(n_parts, dtype=bool)
    anchored[part[:n][answers.is_gold]] = True
    return part[n:], anchored


def initial_messages(
    data: PreparedAnswers,
    parameters: NoiseParameters,
    common: int | None,
    on_sweep: OnSweep | None = None,
) -> tuple[Floats, NoiseParameters]:
    """Messages (E, d, K) near the exact ones, without an integral, and the levels they are about.

    They take the noise of the other workers for known. With w_v the expected precision of worker v,
    and b the variance of biases if there are any, the message of task i to worker u about level s
    is::

        m(s) = N(A_iu | mean of the others weighted by w,  s + b + 1 / Σ w)

    It is worked out a few times, with new w and new shares of the levels (M21) each time; levels
    that are nobody's likeliest are left out then. Where workers are taken alike, ``common`` is the
    number of the level of all, and messages say nothing.
    """
    answers, value, levels = data.answers, data.value, parameters[Levels]
    if common is not None:
        kept = _with_floor(np.array([common]), parameters)
        return np.zeros((*value.shape, len(kept))), parameters.replace(levels.keep(kept))
    task, worker, m = answers.task, answers.worker, answers.n_workers
    known = answers.is_gold[task]
    spread = levels.variance * parameters.answer_variance
    bias = parameters[Bias]
    log_weights = levels.log_weights
    posterior = np.broadcast_to(np.exp(log_weights), (m, len(spread)))
    for number in range(_ROUNDS):
        before = np.exp(log_weights)
        weight = (posterior @ (spread[0] / spread))[worker]
        mean, others, usable = weighted_left_out(value, weight, task, answers.task_ptr[:-1])
        variance = spread[0] / others
        mean[known], variance[known], usable[known] = data.gold[task[known]], 0.0, True
        squared = (value - mean) ** 2
        wide = variance[:, None] + (bias.variance if bias.is_on else 0.0)

        def message(k: int, squared=squared, wide=wide, usable=usable) -> Floats:  # type: ignore[no-untyped-def]
            """Log likelihood (E, d) of level k."""
            total = wide + spread[k]
            return np.where(usable[:, None], -0.5 * (squared / total + np.log(total)), 0.0)

        sums = [np.bincount(worker, message(k).sum(axis=1), m) for k in range(len(spread))]
        log_weights, _, posterior = learn_shares(np.stack(sums, axis=1), log_weights, _SHARE_STEPS)
        if on_sweep is not None:
            change = float(np.abs(np.exp(log_weights) - before).max())
            on_sweep("first guess", number + 1, change, _LEAST_SHARE)
    used = np.bincount(posterior.argmax(axis=1), minlength=len(spread)) > 0
    kept = np.flatnonzero(used | (np.exp(log_weights) > _LEAST_SHARE))
    kept = _with_floor(kept, parameters)
    messages = np.empty((*value.shape, len(kept)))
    for place, k in enumerate(kept.tolist()):
        messages[:, :, place] = message(k)
    messages -= messages.max(axis=2, keepdims=True)
    return messages, parameters.replace(replace(levels, log_weights=log_weights).keep(kept))


def _with_floor(kept: Index, parameters: NoiseParameters) -> Index:
    """Add the levels below that an answer's variance may reach: the lowest bounds all variances."""
    below = np.arange(max(0, kept[0] + parameters.lowest_step), kept[0])
    return np.union1d(below, kept)
