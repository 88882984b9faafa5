"""Estimators, the registry of them, and ``aggregate``, which picks one."""

from __future__ import annotations

from collections.abc import Sequence

from voxpop.answers import Duplicates
from voxpop.errors import require
from voxpop.estimators.averages import Average, Median
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.bi import BI
from voxpop.estimators.exact import Exact
from voxpop.estimators.nbi import NBI
from voxpop.estimators.oracles import StrongOracle
from voxpop.io import read_answers
from voxpop.result import Result

ESTIMATORS: dict[str, type[Estimator]] = {
    estimator.name: estimator for estimator in (Average, Median, NBI, BI, StrongOracle, Exact)
}
"""Every estimator by its name on the command line."""


def aggregate(
    source: object,
    method: str | Estimator = "auto",
    *,
    task: str | None = None,
    worker: str | None = None,
    values: str | Sequence[str] | None = None,
    gold: object = None,
    duplicates: Duplicates = "error",
    on_sweep: OnSweep | None = None,
) -> Result:
    """Estimate the truth of every task, from answers, a path, or a data frame.

    Parameters
    ----------
    method
        An estimator, or the name of one that needs no arguments: ``"auto"`` (BI with noise
        levels learned from the answers), ``"bi"``, ``"nbi"``, ``"average"``, ``"median"``.
    task, worker, values, gold, duplicates
        As in :func:`voxpop.read_answers`; ignored when ``source`` is ``Answers``.
    on_sweep
        Called after every sweep with its number and its change.
    """
    estimator = named(method) if isinstance(method, str) else method
    answers = read_answers(source, task, worker, values, gold, duplicates=duplicates)
    return estimator.fit(answers, on_sweep)


def named(method: str) -> Estimator:
    """Return the estimator of that name with its default arguments."""
    if method == "auto":
        return BI()
    require(
        method in ESTIMATORS,
        f"method must be 'auto' or one of {', '.join(ESTIMATORS)}, got {method!r}",
    )
    try:
        return ESTIMATORS[method]()
    except TypeError:
        required = "variances" if method == StrongOracle.name else "support"
        message = f"method {method!r} needs {required}; pass an estimator with it instead"
    require(False, message)
    raise AssertionError


__all__ = [
    "BI",
    "ESTIMATORS",
    "NBI",
    "Average",
    "Estimator",
    "Exact",
    "Median",
    "StrongOracle",
    "aggregate",
    "named",
]
