"""The iteration loop: sweep until the change is small, with more damping where it stalls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.errors import ConvergenceWarning
from voxpop.estimators.base import OnSweep
from voxpop.results.result import Trace

# Damping is raised when the change has not reached a new low for this many sweeps.
_PATIENCE = 8
# What counts as a new low: a tenth below the last one, so that a slow drift is not progress.
_NEW_LOW = 0.9
_DAMPINGS = (0.0, 0.3, 0.5, 0.7, 0.85)
# Sweeps at the strongest damping without a new low after which more would only swing on.
_GIVEN_UP = 30
UNDAMPED = (0.0,)
"""For sweeps that cannot oscillate, such as EM."""


def iterate_until(
    sweep: Callable[[float], float],
    tol: float,
    max_iter: int,
    what: str,
    on_sweep: OnSweep | None = None,
    dampings: Sequence[float] = _DAMPINGS,
    warn: bool = True,
    give_up: int = _GIVEN_UP,
) -> Trace:
    """Call ``sweep(damping)`` until the change it returns is at most ``tol``.

    Starts with the first of ``dampings``; when the change stops falling, it takes the next (M17).
    Stops at ``max_iter``, or after ``give_up`` sweeps at the strongest damping without a new low,
    and warns then, unless ``warn`` is false.
    """
    changes: list[float] = []
    used: list[float] = []
    stage, lowest, since = 0, np.inf, 0
    while len(changes) < max_iter:
        damping = dampings[stage]
        changes.append(sweep(damping))
        used.append(damping)
        if on_sweep is not None:
            on_sweep(what, len(changes), changes[-1], tol)
        if changes[-1] <= tol:
            return Trace(changes=tuple(changes), dampings=tuple(used), converged=True)
        since += 1
        if changes[-1] < _NEW_LOW * lowest:
            lowest, since = changes[-1], 0
        elif since >= _PATIENCE and stage + 1 < len(dampings):
            stage, lowest, since = stage + 1, np.inf, 0
        elif since >= give_up and len(dampings) > 1:
            break
    if warn and len(changes) < max_iter:
        warnings.warn(
            f"{what} stopped after {len(changes)} sweeps: the largest change oscillates near "
            f"{changes[-1]:.2g} and no longer falls towards tol = {tol:g}; the estimates are "
            "approximate",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif warn:
        warnings.warn(
            f"{what} stopped after {max_iter} sweeps with a change of {changes[-1]:.2g}, above "
            f"tol = {tol:g}; raise max_iter, or take the estimates as approximate",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Trace(changes=tuple(changes), dampings=tuple(used), converged=False)


def iterate_weights(
    weigh: Callable[[Floats], Floats],
    answers: Answers,
    tol: float,
    max_iter: int,
    what: str,
    on_sweep: OnSweep | None,
    dampings: Sequence[float] = _DAMPINGS,
) -> tuple[Floats, Trace]:
    """Repeat ``weigh``, from weights of answers to those of workers, until none changes by tol.

    Changes and damping are in logarithms of the weights, which start at 1.
    """
    weight = np.ones(answers.n_workers)

    def sweep(damping: float) -> float:
        nonlocal weight
        # A worker who is further off than all others together may weigh nothing.
        new = np.maximum(weigh(weight[answers.worker]), np.finfo(np.float64).tiny)
        change = float(np.abs(np.log(new / weight)).max())
        weight = new * (weight / new) ** damping
        return change

    # Weights may oscillate for hundreds of sweeps, which are cheap, and settle in the end.
    trace = iterate_until(sweep, tol, max_iter, what, on_sweep, dampings, give_up=max_iter)
    return weight, trace
