"""Where a fit under a noise model starts: answers in natural units, and levels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import medians, middle_answers, weighted_means
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.noise_levels import learn_support, level_bounds
from voxpop.inference.engine import Engine
from voxpop.models.model import Model
from voxpop.models.noise import NoiseParameters
from voxpop.models.noise.component import STEP
from voxpop.models.noise.levels import Levels

# With the bias or the slips taken out, the workers' own noise is lower than it looked: this many
# steps of the levels are added below those that Gaussian noise alone made use of, and above.
_MORE_BELOW, _MORE_ABOVE = 3, 1
# A level that is nobody's most likely is kept if it has this share of the workers.
_LEAST_SHARE = 1e-3
# Distances above 2 to the power of this are taken in the users' units.
_LOWEST_EXPONENT = -170


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
    """Compute everything that fits of the same answers share; also the scale, if not given."""
    scale = coordinate_scale(answers) if scale is None else scale
    # The middle answer of each task: differences from it are exact.
    origin = middle_answers(answers)
    gold = np.full(origin.shape, np.nan) if answers.gold is None else answers.gold
    scaled = replace(answers, value=answers.value / scale)
    return PreparedAnswers(
        answers,
        scale,
        origin,
        (answers.value - origin[answers.task]) / scale,
        (gold - origin) / scale,
        weighted_means(scaled, np.ones(answers.n_edges)),
        *connected_parts(answers),
    )


def starting_levels(
    answers: Answers,
    scale: Floats,
    engine: Engine,
    on_sweep: OnSweep | None = None,
    min_answers: int = 1,
) -> Floats:
    """Levels (K,) that any noise model can start from, in units of ``scale`` (d,).

    They are those near to the levels of the paper's noise, as far as answers show any;
    ``min_answers`` is as in :func:`learn_support`.
    """
    scaled = replace(answers, value=answers.value / scale)
    base = Model(support=(1.0,), dimension=answers.dimension)
    plain = learn_support(
        scaled, base, engine, on_sweep=on_sweep, min_answers=min_answers, matched=True
    )
    found = plain.model.levels
    low, high = level_bounds(scaled, min_answers)
    lowest = max(found[0] / STEP**_MORE_BELOW, min(low, found[0]))
    highest = min(found[-1] * STEP**_MORE_ABOVE, max(high, found[-1]))
    n_levels = max(2, round(np.log(highest / lowest) / np.log(STEP)) + 1)
    grid = lowest * STEP ** np.arange(n_levels)
    # One wild answer is a level of its own: nothing is filled in up to there.
    steps = np.log(grid[:, None] / found) / np.log(STEP)
    near = ((steps > -_MORE_BELOW - 0.5) & (steps < _MORE_ABOVE + 0.5)).any(axis=1)
    return np.asarray(grid[near] if near.sum() > 1 else grid)


def coordinate_scale(answers: Answers) -> Floats:
    """Typical distance of answers from their task's median, per coordinate; geometric mean one.

    So that a coordinate which scatters more than others counts for as much, not more. Where the
    distance is so small that its powers are no floats, the mean is a power of two near it.
    """
    distance = np.abs(answers.value - medians(answers)[answers.task])
    scale = np.array([np.median(d[d > 0]) if (d > 0).any() else np.nan for d in distance.T])
    if np.isnan(scale).all():
        return np.ones(answers.dimension)
    # A coordinate in which all agree has no scale of its own.
    scale = np.where(np.isnan(scale), np.nanmin(scale), scale)
    mean = np.exp(np.log(scale).mean())
    exponent = np.rint(np.log2(mean))
    unit = 2.0 ** (exponent if exponent < _LOWEST_EXPONENT else 0.0)
    return np.asarray(scale / mean * unit if answers.dimension > 1 else np.full(1, unit))


def connected_parts(answers: Answers) -> tuple[Codes, NDArray[np.bool_]]:
    """Number the connected parts of the graph per worker, and tell which of them have gold."""
    part = answers.worker_part
    anchored = np.zeros(int(part.max()) + 1, dtype=bool)
    anchored[part[answers.worker[answers.task_ptr[:-1][answers.is_gold]]]] = True
    return part, anchored


def kept_levels(parameters: NoiseParameters, log_level: Floats, common: bool) -> Index:
    """Indices of the levels worth integrating, from the workers' log beliefs (m, K).

    They are those that are somebody's most likely level, or that some share of the workers has;
    where workers are ``common``, the likeliest and those beside it. Levels below that the variance
    of an answer may reach are kept, too: the lowest bounds all variances.
    """
    likeliest = log_level.argmax(axis=1)
    if common:
        kept = np.arange(likeliest[0] - 1, likeliest[0] + 2)
        kept = kept[(kept >= 0) & (kept < log_level.shape[1])]
    else:
        used = np.bincount(likeliest, minlength=log_level.shape[1]) > 0
        kept = np.flatnonzero(used | (np.exp(parameters[Levels].log_weights) > _LEAST_SHARE))
    below = np.arange(max(0, kept[0] + parameters.lowest_step), kept[0])
    return np.union1d(below, kept)
