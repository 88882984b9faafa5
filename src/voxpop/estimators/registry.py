"""The registry: every estimator by its name, voxpop's own and those of plugins."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter

from voxpop.errors import ConfigError, DataWarning, require
from voxpop.estimators.base import Estimator, arguments

OWN = {
    "auto": "auto.auto.Auto",
    "bi": "bi.bi.BI",
    "nbi": "baselines.nbi.NBI",
    "raykar": "baselines.nbi.Raykar",
    "pg1": "baselines.pg1.PG1",
    "gold-first": "baselines.gold_first.GoldFirst",
    "judges": "judges.Judges",
    "average": "baselines.averages.Average",
    "median": "baselines.averages.Median",
    "geometric-median": "baselines.averages.GeometricMedian",
    "hodges-lehmann": "baselines.averages.HodgesLehmann",
    "huber": "baselines.averages.Huber",
    "catd": "baselines.truth_discovery.CATD",
    "crh": "baselines.truth_discovery.CRH",
    "gtm": "baselines.truth_discovery.GTM",
    "kdem": "baselines.truth_discovery.KDEm",
    "two-way": "baselines.two_way.TwoWay",
    "p910": "baselines.itu.P910",
    "p913": "baselines.itu.P913",
    "quantise": "baselines.quantise.QuantiseClassify",
    "strong-oracle": "bounds.oracles.StrongOracle",
    "weak-oracle": "bounds.weak_oracle.WeakOracle",
    "exact": "bounds.exact.Exact",
}
"""Where voxpop's own estimators are, by name; each is imported when it is asked for."""


class Estimators(Mapping[str, type[Estimator]]):
    """Estimators by name, each imported on first use; plugins also when all are listed.

    A plugin that cannot be used raises a ``ConfigError`` when it is asked for by name. Listing all
    estimators warns and leaves it out.
    """

    def __getitem__(self, name: str) -> type[Estimator]:
        if name in OWN:
            module, _, kind = OWN[name].rpartition(".")
            return getattr(import_module(f"voxpop.estimators.{module}"), kind)  # type: ignore[no-any-return]
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
        yield from OWN
        for name, offers in _offers().items():
            try:
                require(
                    name not in OWN,
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
        """All names, without importing anything."""
        return [*dict.fromkeys([*OWN, *_offers()])]


ESTIMATORS = Estimators()
"""Every estimator by its name on the command line, plugins included."""


def make_estimator(method: str, options: Mapping[str, object] | None = None) -> Estimator:
    """Make the estimator of that name; report an argument that it lacks or does not take.

    ``"auto"`` with an argument that only BI has is BI: if the noise is given, nothing is compared.
    """
    try:
        kind = ESTIMATORS[method]
    except KeyError:
        choices = ", ".join(ESTIMATORS.names())
        raise ConfigError(f"no method {method!r}; choose one of {choices}") from None
    given = dict(options or {})
    known = arguments(kind)
    if method == "auto" and given.keys() - known.keys():
        bi = ESTIMATORS["bi"]
        if given.keys() <= arguments(bi).keys():
            kind, known = bi, arguments(bi)
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
