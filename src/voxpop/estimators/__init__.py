"""Estimators: voxpop's own and those of plugins, and ``aggregate``, which runs one by name."""

from __future__ import annotations

from collections.abc import Sequence

from voxpop.data.answers import Duplicates
from voxpop.data.read import read_answers
from voxpop.errors import ConfigError
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.registry import make_estimator
from voxpop.results.result import Result


def aggregate(
    source: object,
    method: str | Estimator = "auto",
    *,
    task: str | None = None,
    worker: str | None = None,
    values: str | Sequence[str] | None = None,
    gold: object = None,
    duplicates: Duplicates | None = None,
    on_sweep: OnSweep | None = None,
) -> Result:
    """Estimate the truth of every task, from answers, a path, or a data frame.

    Parameters
    ----------
    method
        An estimator, or the name of one that needs no arguments: ``"auto"`` (noise models
        compared on left-out answers), ``"bi"``, ``"nbi"``, ``"average"``, ``"median"``.
    task, worker, values, gold, duplicates
        As in :func:`voxpop.read_answers`; ignored when ``source`` is ``Answers``.
    on_sweep
        Called after every sweep: what is going on, its number, its change, the change to reach.
    """
    estimator = make_estimator(method) if isinstance(method, str) else method
    if not isinstance(estimator, Estimator) or isinstance(estimator, type):
        raise ConfigError(f"method must be a name or an estimator like BI(), got {method!r}")
    answers = read_answers(source, task, worker, values, gold, duplicates=duplicates)
    return estimator.fit(answers, on_sweep)
