"""State: shared by the endpoints of one app, with ways to wait for the writer and the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from fastapi import Request
from sqlalchemy import delete, insert
from starlette.concurrency import run_in_threadpool

from voxpop.service.api.access import Access, Doors
from voxpop.service.api.boards import Boards
from voxpop.service.api.limiter import Limiter
from voxpop.service.api.metrics import Metrics
from voxpop.service.api.pulls import Pulls
from voxpop.service.api.sessions import Sessions
from voxpop.service.api.settings import Settings
from voxpop.service.commands import Command
from voxpop.service.database import Database
from voxpop.service.published import Published
from voxpop.service.schema import token
from voxpop.service.tokens import hash_token, new_token
from voxpop.service.writer import Writer

T = TypeVar("T")


@dataclass(kw_only=True)
class Service:
    """The database and everything around it in a web process."""

    database: Database
    writer: Writer
    published: Published
    boards: Boards
    doors: Doors
    sessions: Sessions
    limiter: Limiter
    metrics: Metrics
    settings: Settings
    clock: Callable[[], float] = time.time
    closing: bool = False
    watching: int = 0
    watched: dict[int, Any] = field(default_factory=dict)
    pulls: Pulls = field(default_factory=Pulls)

    @contextmanager
    def watched_live(self) -> Iterator[None]:
        """Count a live stream for as long as it is open."""
        self.watching += 1
        try:
            yield
        finally:
            self.watching -= 1

    def send(self, command: Command) -> asyncio.Future[Any]:
        """Give the writer a command; commands that one task sends are carried out in order.

        The reply is there after its commit. A refusal is raised, and becomes the response.
        """
        return asyncio.wrap_future(cast("Future[Any]", self.writer.submit(command)))

    async def read(self, question: Callable[..., T], *arguments: Any) -> T:
        """Query the database in a thread, so that other requests continue."""
        return await run_in_threadpool(self.ask, question, *arguments)

    def ask(self, question: Callable[..., T], *arguments: Any) -> T:
        """Query the database in this thread."""
        with self.database.connect() as connection:
            return question(connection, *arguments)

    async def find(self, digest: str | None) -> Access | None:
        """Find what a token opens; None where there is no token, or it opens nothing."""
        if digest is None:
            return None
        return self.doors.remembered(digest) or await run_in_threadpool(self.doors.look_up, digest)

    def close_streams(self) -> None:
        """Let live streams end, before the server stops."""
        self.closing = True


def service_of(request: Request) -> Service:
    """Return the state of the app that a request came to."""
    return cast(Service, request.app.state.service)


def add_token(
    database: Database,
    scope: str,
    *,
    campaign: int | None = None,
    expires: float | None = None,
    note: str = "",
) -> str:
    """Make a token, keep its hash, and return it; nobody can read it again."""
    made = new_token(scope)
    row = {"hash": hash_token(made), "scope": scope, "campaign": campaign, "worker": None}
    with database.begin() as connection:
        connection.execute(insert(token).values(**row, visit=None, expires=expires, note=note))
    return made


def revoke_tokens(
    database: Database, scopes: Iterable[str], campaign: int | None, *only: str
) -> int:
    """End a campaign's tokens of some scopes, or only those of these hashes; return how many.

    Without a campaign, those tokens that open all campaigns.
    """
    which = [token.c.scope.in_(list(scopes)), token.c.campaign.is_not_distinct_from(campaign)]
    if only:
        which.append(token.c.hash.in_(only))
    with database.begin() as connection:
        return int(connection.execute(delete(token).where(*which)).rowcount)
