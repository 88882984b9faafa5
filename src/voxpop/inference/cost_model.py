"""Which kernel for which task: what enumeration and integration cost, as measured."""

from __future__ import annotations

from math import asinh, log, pi, sqrt
from typing import Literal

import numpy as np

from voxpop.arrays import Floats
from voxpop.errors import require

Inference = Literal["auto", "enumerate", "active", "integrate"]
KernelName = Literal["enumerate", "active", "integrate"]

# Most configurations of one task that can be enumerated at all: their tables fill the memory.
MOST_CONFIGURATIONS = 2**22
# Most configurations that are enumerated by default. Sweeps could take more; but the quantiles of a
# task's truth are those of a mixture with as many components. The second number is for tasks that
# are rarely enumerated, because their workers settle.
_MOST_UNASKED, _MOST_SETTLED = 2**14, 2**16
# Taking coordinates apart adds loops to the graph, so it must pay this many times over; and so
# must leaving configurations out, whose cost is the least certain.
_WORTH_TAKING_APART, _WORTH_LEAVING_OUT = 3.0, 2.0
# Beyond this ratio of levels, sums of precisions lose too many digits when one is taken off.
_WIDEST_RATIO = 1e5
# Zooming in costs about as much as half of these nodes, and leaves the other half.
_NODES_AFTER_ZOOM = 100.0
# From this many numbers (answers times coordinates) on, a GPU is used by default. Beside 16 threads
# an H200 then gains more than half of the time of BI that learns its levels, and nothing to a third
# with levels given; but compiling, once a machine, takes it 5 to 19 seconds.
GPU_PAYS_FROM = 200_000
# A worker has settled when its messages leave this many nats to the second-best level, and half
# as many as the answers of a task have to give (M26).
_SETTLED_NATS = 18.0


def choose_kernel(
    inference: Inference,
    levels: Floats,
    degree: int,
    dimension: int,
    accuracy: float,
    per_worker: float,
) -> KernelName:
    """Choose the kernel of tasks of that degree; refuse what cannot be enumerated.

    ``per_worker`` is the typical number of answers of a worker.
    """
    n_levels = len(levels)
    few = degree * log(n_levels) <= log(MOST_CONFIGURATIONS) + 1e-9
    if inference in ("enumerate", "active"):
        require(
            few,
            f"a task with {degree} answers has {n_levels}^{degree} configurations of levels, "
            "too many to enumerate; use inference='auto'",
        )
    # One answer under a flat prior needs no integral, and its worker never settles.
    if inference == "enumerate" or degree == 1:
        return "enumerate"
    tame = levels.max() <= _WIDEST_RATIO * levels.min()
    if inference == "active":
        return "active" if tame and n_levels > 1 else "enumerate"
    if inference == "integrate" or not few or n_levels**degree > _MOST_SETTLED:
        return "integrate"
    apart = integration_cost(levels, degree, accuracy) * dimension
    worth = 1.0 if dimension == 1 else _WORTH_TAKING_APART
    jointly = enumeration_cost(n_levels, degree, dimension)
    enumerates = n_levels**degree <= _MOST_UNASKED and jointly <= worth * apart
    settled = _WORTH_LEAVING_OUT * settled_cost(n_levels, degree)
    if settled <= min(jointly, apart) and tame and _settles(levels, degree, dimension, per_worker):
        return "active"
    return "enumerate" if enumerates else "integrate"


def _settles(levels: Floats, degree: int, dimension: int, per_worker: float) -> bool:
    """Return whether the levels of most workers will be certain.

    One answer separates levels of ratio x by d/2 (log x - 1 + 1/x) nats, if the truth is known.
    """
    ratio = float((levels[1:] / levels[:-1]).min()) if len(levels) > 1 else np.inf
    nats = per_worker * dimension / 2 * (log(ratio) - 1.0 + 1.0 / ratio)
    return nats >= _SETTLED_NATS + 0.25 * degree * dimension


def most_free(n_levels: int, degree: int) -> int:
    """The number of free workers of a task above which enumerating all of it is cheaper."""
    pairs = max(1.0, 0.5 * ((n_levels - 1) * degree) ** 2)
    spare = degree * log(n_levels) - log(4.0 * pairs)
    return max(0, min(degree, int(spare / log(2.0))))


def enumeration_cost(n_levels: int, degree: int, dimension: int) -> float:
    """Nanoseconds per task and sweep of the compiled kernel, AVX-512, Zen 4 (within 30 %)."""
    per_answer = 6.0 + 6.0 * n_levels
    return float(n_levels) ** degree * (0.45 + 0.06 * dimension) + degree * per_answer


def settled_cost(n_levels: int, degree: int) -> float:
    """Nanoseconds per task and sweep where workers have settled, likewise."""
    pairs = 0.5 * ((n_levels - 1) * degree) ** 2
    return 2.0 * (1.2 * pairs + 25.0 * degree * n_levels)


def integration_cost(levels: Floats, degree: int, accuracy: float) -> float:
    """Nanoseconds per one-dimensional task and sweep, likewise (within a factor 1.5)."""
    nodes = min(nodes_needed(levels, degree, accuracy), _NODES_AFTER_ZOOM)
    return nodes * degree * (3.6 + 1.0 * len(levels))


def nodes_needed(levels: Floats, degree: int, accuracy: float) -> float:
    """Estimate the nodes over the whole range: the integral of 1 / step (M14), all in one place."""
    alpha = pi * sqrt(2.0 / log(2.0 / accuracy))
    padding = sqrt(2.0 * log(1.0 / accuracy))
    reach = 1.5 * padding
    wide = sqrt(levels.max())
    half_range = padding * wide / sqrt(max(degree - 1, 1)) + 2.5 * wide
    spread = asinh(half_range / (reach * sqrt(levels.min())))
    return sqrt(degree) / alpha * 2.0 * reach * spread
