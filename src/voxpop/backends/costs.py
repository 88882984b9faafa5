"""Which way to work out a task: what enumeration and integration cost, as measured."""

from __future__ import annotations

from math import asinh, log, pi, sqrt

from voxpop.backends import Inference
from voxpop.errors import require
from voxpop.tables import Floats

# Most configurations of one task that can be enumerated at all: their tables fill the memory.
MOST_CONFIGURATIONS = 2**22
# Most configurations that are enumerated unasked. Sweeps would bear more; but the quantiles of a
# task's truth are those of a mixture with as many components.
_MOST_UNASKED = 2**14
# Taking coordinates apart adds loops to the graph, so it must pay this many times over.
_WORTH_TAKING_APART = 3.0


def enumerates(
    inference: Inference, levels: Floats, degree: int, dimension: int, accuracy: float
) -> bool:
    """Tell whether tasks of that degree are enumerated; refuse what cannot be."""
    few = degree * log(len(levels)) <= log(MOST_CONFIGURATIONS) + 1e-9
    if inference == "enumerate":
        require(
            few,
            f"a task with {degree} answers has {len(levels)}^{degree} configurations of levels, "
            "too many to enumerate; use inference='auto'",
        )
    # With one answer there is nothing to integrate against a flat prior.
    if inference == "enumerate" or degree == 1:
        return True
    if inference == "integrate" or not few or len(levels) ** degree > _MOST_UNASKED:
        return False
    apart = integration_cost(levels, degree, accuracy) * dimension
    worth = 1.0 if dimension == 1 else _WORTH_TAKING_APART
    return enumeration_cost(len(levels), degree, dimension) <= worth * apart


def enumeration_cost(n_levels: int, degree: int, dimension: int) -> float:
    """Nanoseconds per task and sweep of the native backend, AVX-512, Zen 4 (within 30 %)."""
    per_answer = 6.0 + 6.0 * n_levels
    return float(n_levels) ** degree * (0.45 + 0.06 * dimension) + degree * per_answer


def integration_cost(levels: Floats, degree: int, accuracy: float) -> float:
    """Nanoseconds per one-dimensional task and sweep, likewise (within a factor 1.5)."""
    return nodes_needed(levels, degree, accuracy) * degree * (3.6 + 1.0 * len(levels))


def nodes_needed(levels: Floats, degree: int, accuracy: float) -> float:
    """Estimate the number of nodes: the integral of 1 / step (M14), all answers in one place."""
    alpha = pi * sqrt(2.0 / log(2.0 / accuracy))
    padding = sqrt(2.0 * log(1.0 / accuracy))
    reach = 1.5 * padding
    wide = sqrt(levels.max())
    half_range = padding * wide / sqrt(max(degree - 1, 1)) + 2.5 * wide
    spread = asinh(half_range / (reach * sqrt(levels.min())))
    return sqrt(degree) / alpha * 2.0 * reach * spread
