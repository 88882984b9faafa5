"""Rules of a campaign: its price, when a task has answers enough, leases, gold and practice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from voxpop.errors import ConfigError, require

# A lease is three times the median lead time, within these bounds; so long before any answer.
SHORTEST_LEASE, LONGEST_LEASE, FIRST_LEASE = 60.0, 1800.0, 600.0


@dataclass(frozen=True)
class Rules:
    """What the owner fixed; money in minor units, times in seconds.

    Parameters
    ----------
    price
        For one answer, in minor units of the currency.
    currency
        Three letters.
    answers_per_task
        A task with so many answers is done; nobody is offered it any more. None: no cap.
    half_width
        A task whose calibrated 95 % interval is no wider than twice this is done. None: no stop.
    lease_seconds
        How long a worker may keep a task before others are offered it. None: three times the
        median lead time, 1 to 30 minutes.
    capacity
        Answers a worker, at most.
    gold_share
        Share of the offers that are gold, while there is gold that the worker has not had.
    practice
        Practice tasks before the first real one.
    edit_seconds
        How long after an answer its worker may change it.
    language
        Of the worker's page.
    prolific, mturk
        What these platforms need: completion codes.
    """

    price: int = 0
    currency: str = "EUR"
    answers_per_task: int | None = None
    half_width: float | None = None
    lease_seconds: float | None = None
    capacity: int | None = None
    gold_share: float = 0.1
    practice: int = 3
    edit_seconds: float = 300.0
    language: str = "en"
    prolific: dict[str, Any] = field(default_factory=dict)
    mturk: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Rules:
        """Check rules as JSON holds them, and make them one object."""
        require(isinstance(given, Mapping), "rules must be an object")
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            listed = ", ".join(sorted(known))
            raise ConfigError(f"rules: no rule {unknown[0]!r}; there are {listed}")
        rules = cls(**given)
        rules._check()
        return rules

    def _check(self) -> None:
        _whole("price", self.price, 0)
        _whole("practice", self.practice, 0)
        for name in ("answers_per_task", "capacity"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)
        _between("gold_share", self.gold_share, 0, 1)
        _between("edit_seconds", self.edit_seconds, 0, 1e9)
        if self.lease_seconds is not None:
            _between("lease_seconds", self.lease_seconds, 1, 1e7)
        if self.half_width is not None:
            _between("half_width", self.half_width, 0, 1e150)
            require(self.half_width > 0, "rules: half_width must be above 0")
        for name in ("currency", "language"):
            one = getattr(self, name)
            good = isinstance(one, str) and 0 < len(one) <= 20
            require(good, f"rules: {name} must be a short text, not {one!r}")
        for name in ("prolific", "mturk"):
            good = isinstance(getattr(self, name), dict)
            require(good, f"rules: {name} must be an object")

    def as_dict(self) -> dict[str, Any]:
        """The rules as JSON holds them."""
        return asdict(self)

    def lease(self, median_lead_ms: float | None) -> float:
        """How many seconds an offer lasts, given the median time that an answer has taken."""
        if self.lease_seconds is not None:
            return float(self.lease_seconds)
        if median_lead_ms is None:
            return FIRST_LEASE
        return min(max(3 * median_lead_ms / 1000, SHORTEST_LEASE), LONGEST_LEASE)


def _whole(name: str, one: object, least: int) -> None:
    good = isinstance(one, int) and not isinstance(one, bool) and least <= one < 2**53
    require(good, f"rules: {name} must be a whole number of at least {least}, not {one!r}")


def _between(name: str, one: object, low: float, high: float) -> None:
    good = isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one)
    if not good or not low <= float(one) <= high:  # type: ignore[arg-type]
        raise ConfigError(f"rules: {name} must be a number from {low:g} to {high:g}, not {one!r}")
