"""Theory: the errors and bounds that the paper proves, as functions of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gamma

from voxpop.arrays import Floats
from voxpop.errors import require
from voxpop.models.model import Model


def oracle_mse(model: Model, per_task: float) -> float:
    """Expected squared error of a task when all variances are known: that of the strong oracle.

    ``d E[ 1 / (1/tau² + sum_u 1/s_u) ]``, the harmonic mean of the variances of the workers and
    the prior, over the number of answers. A fractional ``per_task`` is an average: some tasks get
    one answer more than the others. No estimator has a smaller error: this is (a) of Theorem 1.
    """
    return model.dimension * oracle_variance(model, per_task, 1.0)


def oracle_variance(model: Model, per_task: float, power: float) -> float:
    """Expectation of 1/W^p over the levels of a task's workers, W their summed precision (D5)."""
    return float(oracle_variances(model, np.array([model.weights]), per_task, power)[0])


def oracle_variances(model: Model, weights: Floats, per_task: float, power: float) -> Floats:
    """As :func:`oracle_variance`, for several weights, shape (n, levels), in place of the model's.

    An integral replaces the sum over all configurations::

        E[W^-p] = 1/Γ(p) ∫_0^∞ t^(p-1) exp(-t/tau²) (Σ_k π_k exp(-t/s_k))^l dt             (D5)

    In log t the trapezoid rule converges exponentially.
    """
    low, share = _split(per_task)
    if share:
        ends = [oracle_variances(model, weights, n, power) for n in (low, low + 1)]
        return (1 - share) * ends[0] + share * ends[1]
    levels = model.levels
    # Below the first bound nothing has decayed, above the second everything has.
    t = np.exp(np.arange(np.log(levels[0] / low) - 40.0 / power, np.log(800.0 * levels[-1]), 0.2))
    with np.errstate(under="ignore"):
        decay = (weights @ np.exp(-t / levels[:, None])) ** low
        scale = 0.2 * t**power * np.exp(-t * model.prior_precision) / gamma(power)
        return np.asarray(decay @ scale)


def average_mse(model: Model, per_task: float) -> float:
    """Expected squared error of the plain average: ``d E[s] / l``, the arithmetic mean (D6)."""
    low, share = _split(per_task)
    inverse = (1 - share) / low + share / (low + 1)
    return model.dimension * float(model.levels @ np.array(model.weights)) * inverse


def mse_given(variances: ArrayLike, dimension: int = 1) -> tuple[float, float]:
    """Expected squared error of the average and of the oracle, for given workers of a task.

    With l workers of variances s_u, ``d sum s_u / l²`` against ``d / sum 1/s_u``: the arithmetic
    against the harmonic mean. One precise worker among many (section 3.2) makes the second
    arbitrarily small and leaves the first at about d x / l, with x the others' variance.
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
        The most that BI can lose by having to identify the reliable workers, (b).
    constant
        The factor E of the gap, from the levels, the prior and the answers per task.
    identification
        Bound on the probability of misidentifying a worker, ``4 exp(-eps² r / (8 (8 eps + 1)
        s_max))``; above 1 it says nothing.
    loops
        Bound on the probability that a task's neighbourhood is not a tree, ``2^-k``; the theorem
        derives it from ``3 (l r)^(2k+2) / n``, for n large enough.
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

    The gap falls exponentially in r and k. For levels as far apart as the paper's it is
    astronomic where r is small: it gives the rate, not the size. ``separation`` is eps, by default
    the smallest difference of two levels. The theorem takes the levels as equally likely.
    """
    counts = {"per_task": per_task, "per_worker": per_worker, "n_sweeps": n_sweeps}
    for name, number in counts.items():
        require(number >= 2, f"{name} must be at least 2, got {number}")
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
    """Return whether the levels fulfil condition (i) of Theorem 2: BI is then optimal in the limit.

    Two levels, equally likely, with ``s_min < s_max <= 2 s_min``: close enough to be hard to tell
    apart. The theorem also needs ``C <= r <= log log n``, with a constant C that depends on the
    number of answers per task and on the difference of the levels; its value is not given.
    """
    levels = model.levels
    return bool(
        len(levels) == 2
        and np.allclose(np.array(model.weights), 0.5)
        and levels[1] <= 2 * levels[0]
    )


def _split(per_task: float) -> tuple[int, float]:
    """Return the whole answers per task, and the share of tasks with one more."""
    require(per_task >= 1, f"per_task must be at least 1, got {per_task}")
    low = int(np.floor(per_task))
    return low, float(per_task - low)
