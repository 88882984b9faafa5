"""Estimators, the registry of them, and ``aggregate``, which picks one."""

from __future__ import annotations

from collections.abc import Sequence

from voxpop.data.answers import Duplicates
from voxpop.data.read import read_answers
from voxpop.errors import ConfigError
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.baselines.averages import Average, Median
from voxpop.estimators.baselines.gold_first import GoldFirst
from voxpop.estimators.baselines.itu import P910, P913
from voxpop.estimators.baselines.nbi import NBI
from voxpop.estimators.baselines.pg1 import PG1
from voxpop.estimators.baselines.quantise import QuantiseClassify
from voxpop.estimators.baselines.raykar import Raykar
from voxpop.estimators.baselines.robust import GeometricMedian, HodgesLehmann, Huber
from voxpop.estimators.baselines.truth_discovery import CATD, CRH, GTM, KDEm
from voxpop.estimators.baselines.two_way import TwoWay
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bounds.exact import Exact
from voxpop.estimators.bounds.oracles import StrongOracle
from voxpop.estimators.bounds.weak_oracle import WeakOracle
from voxpop.estimators.conformal import widen_by_gold
from voxpop.estimators.registry import ESTIMATORS, make_estimator
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


__all__ = [
    "BI",
    "CATD",
    "CRH",
    "ESTIMATORS",
    "GTM",
    "NBI",
    "P910",
    "P913",
    "PG1",
    "Auto",
    "Average",
    "Estimator",
    "Exact",
    "GeometricMedian",
    "GoldFirst",
    "HodgesLehmann",
    "Huber",
    "KDEm",
    "Median",
    "QuantiseClassify",
    "Raykar",
    "StrongOracle",
    "TwoWay",
    "WeakOracle",
    "aggregate",
    "make_estimator",
    "widen_by_gold",
]
