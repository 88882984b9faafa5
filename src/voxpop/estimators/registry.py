"""The registry: every estimator by its name, voxpop's own and those of plugins."""

from __future__ import annotations

import warnings
from collections import UserDict
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter

from voxpop.errors import ConfigError, DataWarning, require
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.base import Estimator, arguments
from voxpop.estimators.baselines.averages import (
    Average,
    GeometricMedian,
    HodgesLehmann,
    Huber,
    Median,
)
from voxpop.estimators.baselines.gold_first import GoldFirst
from voxpop.estimators.baselines.itu import P910, P913
from voxpop.estimators.baselines.nbi import NBI, Raykar
from voxpop.estimators.baselines.pg1 import PG1
from voxpop.estimators.baselines.quantise import QuantiseClassify
from voxpop.estimators.baselines.truth_discovery import CATD, CRH, GTM, KDEm
from voxpop.estimators.baselines.two_way import TwoWay
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bounds.exact import Exact
from voxpop.estimators.bounds.oracles import StrongOracle
from voxpop.estimators.bounds.weak_oracle import WeakOracle
from voxpop.estimators.judges import Judges


class Estimators(UserDict[str, type[Estimator]]):
    """Estimators by name; a plugin is imported when it is asked for, or when all are listed.

    A plugin that cannot be used raises a ``ConfigError`` when it is asked for by name. Listing all
    estimators warns and leaves it out.
    """

    def __missing__(self, name: str) -> type[Estimator]:
        offers = _offers().get(name)
        if offers is None:
            raise KeyError(name)
        return _load(offers)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except (KeyError, ConfigError):
            return False

    def __iter__(self) -> Iterator[str]:
        yield from self.data
        for name, offers in _offers().items():
            try:
                require(
                    name not in self.data,
                    f"method {name!r} of {_source(offers[0])} is ignored: voxpop has one of that "
                    "name",
                )
                _load(offers)
            except ConfigError as error:
                warnings.warn(str(error), DataWarning, stacklevel=2)
            else:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def names(self) -> list[str]:
        """All names, without importing any plugin."""
        return [*dict.fromkeys([*self.data, *_offers()])]


ESTIMATORS = Estimators(
    (estimator.name, estimator)
    for estimator in (
        *(Auto, BI, NBI, Raykar, PG1, GoldFirst, Judges),
        *(Average, Median, GeometricMedian, HodgesLehmann, Huber),
        *(CATD, CRH, GTM, KDEm, TwoWay, P910, P913, QuantiseClassify),
        *(StrongOracle, WeakOracle, Exact),
    )
)
"""Every estimator by its name on the command line, plugins included."""


def make_estimator(method: str, options: Mapping[str, object] | None = None) -> Estimator:
    """Make the estimator of that name; say which argument it lacks or does not take.

    ``"auto"`` with an argument that only BI has is BI: if the noise is given, nothing is compared.
    """
    try:
        kind = ESTIMATORS[method]
    except KeyError:
        choices = ", ".join(ESTIMATORS.names())
        raise ConfigError(f"no method {method!r}; choose one of {choices}") from None
    given = dict(options or {})
    known = arguments(kind)
    if kind is Auto and given.keys() - known.keys() and given.keys() <= arguments(BI).keys():
        kind, known = BI, arguments(BI)
    for name in given:
        require(name in known, f"method {method!r} takes no {name}")
    for name, argument in known.items():
        needed = name not in given and argument.default is Parameter.empty
        require(not needed, f"method {method!r} needs {name}")
    return kind(**given)


def _offers() -> dict[str, list[EntryPoint]]:
    """Entry points of the installed plugins, by name."""
    offers: dict[str, list[EntryPoint]] = {}
    for offer in entry_points(group="voxpop.estimators"):
        offers.setdefault(offer.name, []).append(offer)
    return offers


def _source(offer: EntryPoint) -> str:
    return f"the distribution {offer.dist.name} {offer.dist.version}" if offer.dist else "a plugin"


def _load(offers: list[EntryPoint]) -> type[Estimator]:
    """Import a plugin, and check that it is an estimator of that name."""
    offer, source = offers[0], _source(offers[0])
    require(
        len(offers) == 1,
        f"method {offer.name!r} is offered by {' and by '.join(map(_source, offers))}; "
        "uninstall one of them",
    )
    try:
        kind = offer.load()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"method {offer.name!r} of {source} cannot be imported: {reason}"
        ) from error
    own_fit = getattr(kind, "fit", Estimator.fit) is not Estimator.fit
    require(
        isinstance(kind, type) and isinstance(kind, Estimator) and own_fit,
        f"method {offer.name!r} of {source} is not an estimator: {offer.value} must be a class "
        "with name, summary and fit, derived from voxpop.Estimator",
    )
    require(
        kind.name == offer.name,
        f"method {offer.name!r} of {source} has another name in its class: {kind.name!r}",
    )
    return kind  # type: ignore[no-any-return]
