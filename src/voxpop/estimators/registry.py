"""The registry: every estimator by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields

from voxpop.errors import ConfigError
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.base import Estimator
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

ESTIMATORS: dict[str, type[Estimator]] = {
    estimator.name: estimator
    for estimator in (
        *(Auto, BI, NBI, Raykar, PG1, GoldFirst),
        *(Average, Median, GeometricMedian, HodgesLehmann, Huber),
        *(CATD, CRH, GTM, KDEm, TwoWay, P910, P913, QuantiseClassify),
        *(StrongOracle, WeakOracle, Exact),
    )
}
"""Every estimator by its name on the command line."""


def make_estimator(method: str, arguments: Mapping[str, object] | None = None) -> Estimator:
    """Make the estimator of that name; say which argument it lacks or does not take.

    ``"auto"`` with an argument that only BI has is BI: who states the noise wants no contest.
    """
    if method not in ESTIMATORS:
        raise ConfigError(f"no method {method!r}; choose one of {', '.join(ESTIMATORS)}")
    kind = ESTIMATORS[method]
    given = dict(arguments or {})
    known = _arguments(kind)
    if kind is Auto and given.keys() - known.keys() and given.keys() <= _arguments(BI).keys():
        kind, known = BI, _arguments(BI)
    for name in given:
        if name not in known:
            raise ConfigError(f"method {method!r} takes no {name}")
    for name, argument in known.items():
        if name not in given and argument.default is argument.default_factory is MISSING:
            raise ConfigError(f"method {method!r} needs {name}")
    return kind(**given)


def _arguments(kind: type[Estimator]) -> dict[str, Field[object]]:
    return {argument.name: argument for argument in fields(kind)}  # type: ignore[arg-type]
