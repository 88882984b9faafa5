"""The app: every endpoint, the guard before them, and the threads that live as long as it does."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from sqlalchemy import func, select, text
from sqlalchemy.exc import SQLAlchemyError

from voxpop import __version__
from voxpop.service.api import label_studio, owner, pages, problems, watch, worker
from voxpop.service.api.access import Doors
from voxpop.service.api.boards import Boards
from voxpop.service.api.guard import Guard
from voxpop.service.api.limiter import Limiter
from voxpop.service.api.metrics import CONTENT_TYPE, Metrics
from voxpop.service.api.sessions import Sessions
from voxpop.service.api.settings import Settings
from voxpop.service.api.state import Service, add_token, revoke_tokens
from voxpop.service.api.who import TheOwnerOfAll, TheService, refuse_stranger
from voxpop.service.database import Database
from voxpop.service.published import Published
from voxpop.service.schema import token
from voxpop.service.writer import Writer

_DESCRIPTION = """Ask people for numbers, and watch the estimates as answers arrive.

**Workers** trade a link for a token (`enter`), get a task (`next`) and answer it (`answer`).
**Owners** make campaigns, add tasks, and read estimates, workers and money, live.

Every error is `application/problem+json` with one line of `detail` for people and one word,
`reason`, for programs. Lists come in pages: to get the next one, send the `next` of a page as
`cursor`. Times are seconds since 1970 (UTC), money is in minor units (cents).
"""


def create_app(
    database_url: str,
    *,
    settings: Settings | None = None,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """Make the app of a database: a file of SQLite, or ``postgresql://…``.

    The database is opened and locked here, so that errors show at once; it is released when the app
    ends.
    """
    settings = settings or Settings.from_environment()
    database = Database.open(database_url)
    try:
        lock = database.lock()
    except BaseException:
        database.close()
        raise
    service = make_service(database, settings, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.writer.start()
        service.boards.start()
        try:
            yield
        finally:
            service.close_streams()
            service.boards.stop()
            service.writer.stop()
            database.close()
            lock.close()

    app = FastAPI(
        title="voxpop serve",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.service = service
    problems.install(app)
    routers = (worker.router, owner.router, watch.router, label_studio.owner_router)
    for router in (*routers, label_studio.router, pages.router):
        app.include_router(router)
    _add_probes(app)
    app.add_middleware(
        Guard,
        settings=settings,
        metrics=service.metrics,
        refuse_stranger=partial(refuse_stranger, service),
    )
    return app


def make_service(
    database: Database, settings: Settings, clock: Callable[[], float] = time.time
) -> Service:
    """Make the state that the endpoints share."""
    writer = Writer(database, clock)
    published = Published(database)
    boards = Boards(database, published, writer, settings.board_every, clock)
    metrics = Metrics(lambda: writer.waiting, boards.age)
    service = Service(
        database=database,
        writer=writer,
        published=published,
        boards=boards,
        doors=Doors(database, clock),
        sessions=Sessions(database.secret, settings),
        limiter=Limiter(settings, metrics),
        metrics=metrics,
        settings=settings,
        clock=clock,
    )
    metrics.live.set_function(lambda: service.watching)
    return service


def _add_probes(app: FastAPI) -> None:
    @app.get("/healthz", tags=["running"], summary="Is the process alive?")
    async def healthz() -> dict[str, str]:
        """Answer whenever the process can answer at all."""
        return {"status": "ok"}

    @app.get(
        "/readyz",
        tags=["running"],
        summary="Can it take answers?",
        responses=problems.describe(503),
    )
    async def readyz(service: TheService) -> JSONResponse:
        """Check the writer and the database."""
        try:
            await service.read(lambda connection: connection.execute(text("SELECT 1")).scalar())
            reads = True
        except SQLAlchemyError:
            reads = False
        if not reads or not service.writer.alive or service.closing:
            what = "the writer has stopped" if reads else "the database does not answer"
            raise problems.Problem(503, "not_ready", what)
        return JSONResponse({"status": "ready", "queue": service.writer.waiting})

    @app.get(
        "/metrics",
        tags=["running"],
        summary="Metrics for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **problems.describe(401, 403, 429)},
    )
    async def metrics(service: TheService, _: TheOwnerOfAll) -> Response:
        """Give requests, times and queues in Prometheus's text format, to an owner's token."""
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def owner_link(app: FastAPI, *, renew: bool = False, revoke: bool = False) -> str | None:
    """Return a link that makes its bearer the owner: the first one, or another if asked.

    ``revoke`` ends all earlier ones, and the logins by them, as when one has leaked. None where
    there is one already: only hashes of tokens are kept, so it cannot be shown again.
    """
    service: Service = app.state.service
    all_campaigns = (token.c.scope == "owner", token.c.campaign.is_(None))

    def count(connection: Any) -> int:
        query = select(func.count()).select_from(token).where(*all_campaigns)
        return int(connection.execute(query).scalar_one())

    if revoke:
        revoke_tokens(service.database, ["owner"], None)
    if not renew and service.ask(count):
        return None
    made = add_token(service.database, "owner", note="owner link")
    return service.settings.url(f"/login?token={made}")
