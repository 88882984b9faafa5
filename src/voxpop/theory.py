"""Theory: the errors and bounds that the paper proves, as functions of the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, factorial, prod

import numpy as np
from numpy.typing import ArrayLike

from voxpop.arrays import Index
from voxpop.errors import require
from voxpop.model import Model

# Ways to deal the levels among a task's workers that are summed over.
_MOST_COUNTS = 2_000_000


def oracle_mse(model: Model, per_task: int) -> float:
    """Expected squared error of a task for whoever knows all variances: the strong oracle's.

    ``d E[ 1 / (1/tau² + sum_u 1/s_u) ]``, the harmonic mean of the variances of the workers and
    the prior, over the number of answers. The expectation is over the levels of ``per_task``
    workers; it does not matter who has which, so the sum is over how many have each. No estimator
    has a smaller error: this is (a) of Theorem 1.
    """
    _check_count("per_task", per_task)
    precision = 1.0 / model.levels
    total = 0.0
    for probability, count in _levels_of(model, per_task):
        total += probability / (model.prior_precision + float(precision @ count))
    return model.dimension * total


def average_mse(model: Model, per_task: int) -> float:
    """Expected squared error of the plain average: ``d E[s] / per_task``, the arithmetic mean."""
    _check_count("per_task", per_task)
    return float(model.dimension * (np.array(model.weights) @ model.levels) / per_task)


def mse_given(variances: ArrayLike, dimension: int = 1) -> tuple[float, float]:
    """Expected squared error of the average and of the oracle, for a task's workers as they are.

    With l workers of variances s_u, ``d sum s_u / l²`` against ``d / sum 1/s_u``: the arithmetic
    against the harmonic mean. One precise worker among many (section 3.2) makes the second as
    small as you like and leaves the first at about d x / l, with x the others' variance.
    """
    s = np.asarray(variances, dtype=np.float64)
    require(
        s.ndim == 1 and s.size > 0 and bool((s > 0).all()),
        "variances must be one positive number for each of a task's workers",
    )
    return float(dimension * s.sum() / len(s) ** 2), float(dimension / (1.0 / s).sum())


@dataclass(frozen=True, kw_only=True)
class Theorem1:
    """The bound on the error of BI after k sweeps on a random regular assignment.

    Attributes
    ----------
    oracle
        The oracle's error, (a) of the theorem.
    gap
        What BI loses at most by having to find out who is reliable, (b).
    constant
        The factor E of the gap, from the levels, the prior and the answers per task.
    identification
        Bound on the probability to be wrong about a worker, ``4 exp(-eps² r / (8 (8 eps + 1)
        s_max))``; above 1 it says nothing.
    loops
        Bound on the probability that a task's neighbourhood is no tree, ``2^-k``; the theorem
        takes it from ``3 (l r)^(2k+2) / n``, for n large enough.
    """

    oracle: float
    gap: float
    constant: float
    identification: float
    loops: float

    @property
    def bound(self) -> float:
        """The bound itself, oracle plus gap."""
        return self.oracle + self.gap


def theorem1(
    model: Model, per_task: int, per_worker: int, n_sweeps: int, *, separation: float | None = None
) -> Theorem1:
    """Theorem 1 of the paper, with its constants.

    For ``|s_k - s_k'| > eps`` and l answers per task, r per worker, after k sweeps, and n large
    enough that ``r, k <= log log n``::

        E MSE(BI) <= d E[ 1 / (1/tau² + sum_u 1/s_u) ]
                     + E l^(1/4) ( 4 exp( -eps² r / (8 (8 eps + 1) s_max) ) + 2^-k )^(1/4)
        E = 2 d (1/tau² + l s_max / s_min²) / (1/tau² + l / s_min)²

    The gap falls exponentially in r and k; for levels as far apart as the paper's its size is
    astronomic where r is small: it says how fast, not how much. ``separation`` is eps, by default
    the smallest difference of two levels. The theorem takes the levels as equally likely.
    """
    _check_count("per_task", per_task, least=2)
    _check_count("per_worker", per_worker, least=2)
    _check_count("n_sweeps", n_sweeps, least=2)
    levels, l = model.levels, per_task  # noqa: E741
    require(len(levels) >= 2, "theorem1 needs at least two levels to tell apart")
    smallest = float(np.diff(levels).min())
    eps = smallest if separation is None else separation
    require(
        0 < eps <= smallest,
        f"separation must be positive and at most the smallest difference of two levels, "
        f"{smallest:g}, got {eps}",
    )
    low, high, prior = float(levels[0]), float(levels[-1]), model.prior_precision
    constant = 2 * model.dimension * (prior + l * high / low**2) / (prior + l / low) ** 2
    identification = 4 * np.exp(-(eps**2) * per_worker / (8 * (8 * eps + 1) * high))
    loops = 2.0**-n_sweeps
    return Theorem1(
        oracle=oracle_mse(model, per_task),
        gap=float(constant * l**0.25 * (identification + loops) ** 0.25),
        constant=float(constant),
        identification=float(identification),
        loops=loops,
    )


def theorem2_holds(model: Model) -> bool:
    """Tell whether the levels fulfil condition (i) of Theorem 2: BI is then optimal in the limit.

    Two levels, equally likely, with ``s_min < s_max <= 2 s_min``: close enough to be hard to tell
    apart. The theorem also asks for ``C <= r <= log log n`` with a constant C that depends on the
    number of answers per task and on the difference of the levels, and that it does not give.
    """
    levels = model.levels
    return bool(
        len(levels) == 2
        and np.allclose(np.array(model.weights), 0.5)
        and levels[1] <= 2 * levels[0]
    )


def _check_count(name: str, number: int, least: int = 1) -> None:
    require(number >= least, f"{name} must be at least {least}, got {number}")


def _levels_of(model: Model, n_workers: int) -> Iterator[tuple[float, Index]]:
    """How many of n workers have each level, with the probability of that (multinomial)."""
    k, weights = len(model.support), model.weights
    assert weights is not None
    ways = comb(n_workers + k - 1, k - 1)
    require(
        ways <= _MOST_COUNTS,
        f"{n_workers} workers of {k} levels can be mixed in {ways} ways, more than {_MOST_COUNTS}",
    )
    for count in _compositions(n_workers, k):
        arrangements = factorial(n_workers) // prod(factorial(c) for c in count)
        chance = prod(weight**c for weight, c in zip(weights, count, strict=True))
        yield arrangements * chance, np.array(count)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as an ordered sum of so many numbers, zeros among them."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
