"""Access: who a request comes from, by its token or its session, and what that opens."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from sqlalchemy import select

from voxpop.service.database import Database
from voxpop.service.schema import token, visit
from voxpop.service.tokens import LONGEST, hash_token

_KEPT = 20_000


@dataclass(frozen=True)
class Access:
    """What a token opens. An owner's without a campaign opens all of them."""

    hash: str
    scope: str
    campaign: int | None
    worker: int | None
    visit: int | None
    expires: float | None
    provider: str | None = None


class Doors:
    """Looks up what a token opens: in memory for a few seconds, then in the database.

    A worker's token is looked up with every request. What the commands check (the worker's state,
    the campaign's) does not depend on this memory: it is only as old as ``seconds`` for a token
    that was revoked in another process.
    """

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, seconds: float = 10.0
    ) -> None:
        self._database, self._clock, self._seconds = database, clock, seconds
        self._known: OrderedDict[str, tuple[float, Access]] = OrderedDict()
        self._lock = Lock()

    def remembered(self, digest: str) -> Access | None:
        """Find a token in memory, without waiting for the database."""
        found = self._known.get(digest)
        now = self._clock()
        if found is None or found[0] < now or _is_over(found[1], now):
            return None
        return found[1]

    def look_up(self, digest: str) -> Access | None:
        """Find a token by its hash in the database; None where there is none, or it has expired."""
        columns = (token.c[name] for name in ("hash", "scope", "campaign", "worker", "visit"))
        query = (
            select(*columns, token.c.expires, visit.c.provider)
            .select_from(token.outerjoin(visit, visit.c.id == token.c.visit))
            .where(token.c.hash == digest)
        )
        with self._database.connect() as connection:
            row = connection.execute(query).one_or_none()
        now = self._clock()
        if row is None:
            return None
        access = Access(**row._mapping)
        if _is_over(access, now):
            return None
        with self._lock:
            self._known[digest] = (now + self._seconds, access)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return access

    def forget(self, digest: str) -> None:
        """Forget a token that was revoked."""
        with self._lock:
            self._known.pop(digest, None)


def digest_of(text: str | None) -> str | None:
    """Return the hash of a text sent as a token; None for a text that cannot be one."""
    return hash_token(text) if text and len(text) <= LONGEST else None


def _is_over(access: Access, now: float) -> bool:
    return access.expires is not None and access.expires <= now
