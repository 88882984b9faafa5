"""Rules of a campaign: its price, when a task has enough answers, leases, gold and practice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from voxpop.errors import ConfigError, require

# A lease is three times the median lead time, within these bounds; so long before any answer.
SHORTEST_LEASE, LONGEST_LEASE, FIRST_LEASE = 60.0, 1800.0, 600.0

PROLIFIC_CODES = ("completed", "screened_out", "nothing_left")
"""How a visit from Prolific may end, each with a completion code of its own."""


@dataclass(frozen=True)
class Rules:
    """The owner's rules; money in minor units, times in seconds.

    Parameters
    ----------
    price
        For one answer, in minor units of the currency.
    currency
        Three letters.
    answers_per_task
        A task with this many answers is done, and is not offered again. None: no cap.
    half_width
        A task whose 95 % interval of agreement is no wider than twice this is done. None: no stop.
    lease_seconds
        How long a worker may keep a task before others are offered it. None: three times the
        median lead time, 1 to 30 minutes.
    capacity
        Maximum answers per worker.
    gold_share
        Share of the offers that are gold, while there is gold that the worker has not had.
    practice
        Practice tasks before the first real one.
    edit_seconds
        How long after an answer its worker may change it.
    language
        Of the worker's page.
    prolific, mturk
        What these platforms need: completion codes; whether it is MTurk's sandbox.
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
        """Check rules given as JSON values, and make them one object."""
        require(isinstance(given, Mapping), "rules must be an object")
        known = {one.name for one in fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            listed = ", ".join(sorted(known))
            raise ConfigError(f"rules: unknown rule {unknown[0]!r}; the rules are {listed}")
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

    def check_platforms(self) -> None:
        """Refuse completion codes that no platform asks for, such as misspelled ones.

        Only rules that are new are checked: a campaign that has such ones goes on.
        """
        for name, one in self.prolific.items():
            good = isinstance(one, str) and 0 < len(one) <= 100 and one.isprintable()
            listed = ", ".join(PROLIFIC_CODES)
            line = f"rules: prolific has codes for {listed}, each a line of text, not {name!r:.60}"
            require(name in PROLIFIC_CODES and good, line)
        good = set(self.mturk) <= {"sandbox"} and isinstance(self.mturk.get("sandbox", True), bool)
        require(good, "rules: mturk must be {}, {'sandbox': true} or {'sandbox': false}")

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
    # Compared as they are: a whole number may be too large for a float.
    good = isinstance(one, int | float) and not isinstance(one, bool) and low <= one <= high
    line = f"rules: {name} must be a number from {low:g} to {high:g}, not {one!r:.60}"
    require(good, line)
