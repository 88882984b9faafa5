"""Endpoints for owners who watch: estimates, workers, money, events, the live summary, exports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from voxpop.service.api import bodies, reads, views
from voxpop.service.api.export import export_rows
from voxpop.service.api.owner import CHANGED, LISTED, PROBLEMS, Cursor, Limit, change, page
from voxpop.service.api.problems import Problem
from voxpop.service.api.state import Service
from voxpop.service.api.who import TheCampaign, TheService
from voxpop.service.commands import Erase, SetCredits, SetWorker
from voxpop.service.published import finite
from voxpop.service.schema import task

router = APIRouter(prefix="/api/v1/campaigns/{slug}", tags=["owner"], responses=PROBLEMS)
WorkerInPath = Annotated[int, Path(ge=1, lt=2**63, description="`id` of a row of `workers`.")]
_BEAT = 15.0


@router.get("/estimates", **LISTED, summary="List estimates")
async def list_estimates(
    service: TheService,
    row: TheCampaign,
    cursor: Cursor = None,
    limit: Limit = 100,
    order: Annotated[
        Literal["look", "width", "name", "answers"],
        Query(description="What needs a look first, then the widest interval; or by a column."),
    ] = "look",
) -> JSONResponse:
    """List estimates with 95 % intervals, as inference published them last."""
    found = await run_in_threadpool(views.estimates_page, service, row["id"], order, cursor, limit)
    rows, after, total = found
    return JSONResponse({"rows": rows, "next": after, "total": total})


@router.get("/explain", summary="Explain an estimate")
async def explain(
    service: TheService, row: TheCampaign, task: Annotated[str, Query(max_length=200)]
) -> JSONResponse:
    """Show one task answer by answer: values, the noise of their workers, and their weights."""
    return JSONResponse(await run_in_threadpool(views.explanation, service, row["id"], task))


@router.get("/next", **LISTED, summary="List what to ask")
async def list_next(
    service: TheService, row: TheCampaign, k: Annotated[int, Query(ge=1, le=1000)] = 1
) -> JSONResponse:
    """List the tasks that one more answer, by anyone, helps most; best first.

    `gain` is the expected reduction of the variance of the truth; null where nothing is known.
    """
    return JSONResponse({"rows": await run_in_threadpool(_next_rows, service, row["id"], k)})


def _next_rows(service: Service, number: int, k: int) -> list[reads.Row]:
    best = service.boards.best(number, k)
    listed: list[tuple[str, float | None]]
    with service.database.connect() as connection:
        if best:
            query = select(task.c.id, task.c.name).where(task.c.id.in_([t for t, _ in best]))
            names = {one.id: one.name for one in connection.execute(query)}
            listed = [(names[t], gain) for t, gain in best if t in names]
        else:
            fewest = (
                select(task.c.name)
                .where(task.c.campaign == number, task.c.state == "open", task.c.kind == "real")
                .order_by(task.c.n_taken, task.c.id)
                .limit(k)
            )
            listed = [(name, None) for name in connection.execute(fewest).scalars()]
    return [{"task": name, "gain": finite(gain)} for name, gain in listed]


@router.get("/workers", **LISTED, summary="List workers")
async def list_workers(
    service: TheService, row: TheCampaign, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List workers by pseudonym, with the interval of their noise, flags, and what they earned."""
    rows, after = await service.read(reads.list_workers, row["id"], cursor, limit)
    told = await run_in_threadpool(views.workers_of, service, row["id"])
    for one in rows:
        known = told.get(str(one["id"]), {})
        one.update(
            noise=known.get("noise"),
            noise_sd=known.get("noise_sd"),
            flags=known.get("flags", []),
        )
    return JSONResponse({"rows": rows, "next": after})


@router.patch("/workers/{worker}", **CHANGED, summary="Change a worker's state")
async def change_worker(
    worker: WorkerInPath, body: bodies.WorkerChange, service: TheService, row: TheCampaign
) -> JSONResponse:
    """Pause, quarantine or ban a worker, or undo that.

    Quarantine stops counting the answers of a worker, who is still paid.
    """
    command = SetWorker(campaign=row["id"], worker=worker, state=body.state)
    return await change(service, command)


@router.delete("/workers/{worker}", **CHANGED, summary="Erase a worker")
async def erase_worker(
    worker: WorkerInPath,
    service: TheService,
    row: TheCampaign,
    keep_answers: Annotated[
        bool, Query(description="Keep the answers, without the worker's name.")
    ] = False,
) -> JSONResponse:
    """Forget who a worker is: ids and texts are overwritten; answers too, unless they are kept."""
    command = Erase(campaign=row["id"], worker=worker, keep_answers=keep_answers)
    return await change(service, command)


@router.get("/reports", **LISTED, summary="List reports")
async def list_reports(
    service: TheService,
    row: TheCampaign,
    cursor: Cursor = None,
    limit: Limit = 100,
    state: Annotated[Literal["reported", "skipped"], Query(description="What the workers did.")] = (
        "reported"
    ),
) -> JSONResponse:
    """List what workers said is wrong with tasks, or why they skipped them; the newest first.

    `at` is when the task was offered.
    """
    return await page(service, reads.list_reports, row["id"], cursor, limit, state)


@router.get("/credits", **LISTED, summary="List credits")
async def list_credits(
    service: TheService,
    row: TheCampaign,
    cursor: Cursor = None,
    limit: Limit = 100,
    state: Annotated[str | None, Query(pattern="^(due|approved|rejected|paid)$")] = None,
) -> JSONResponse:
    """List what answers earned, with what a payment needs: the ids of the provider."""
    return await page(service, reads.list_credits, row["id"], cursor, limit, state)


@router.post("/credits", **CHANGED, summary="Settle credits")
async def set_credits(
    body: bodies.CreditsBody, service: TheService, row: TheCampaign
) -> JSONResponse:
    """Approve, reject or mark as paid what answers earned. A rejection needs a reason."""
    if body.state == "rejected" and not body.reason.strip():
        raise Problem(422, "no_reason", "a rejection needs a reason; the tables show it")
    command = SetCredits(
        campaign=row["id"], answers=body.answers, state=body.state, reason=body.reason
    )
    return await change(service, command)


@router.get("/events", summary="List events")
async def list_events(
    service: TheService,
    row: TheCampaign,
    after: Annotated[int, Query(ge=0, lt=2**63, description="A sequence number.")] = 0,
    limit: Limit = 100,
) -> JSONResponse:
    """List what happened after a sequence number: all changes, without gaps."""
    return await page(service, reads.list_events, row["id"], after, limit)


@router.get("/summary", summary="Sum up")
async def summary(service: TheService, row: TheCampaign) -> JSONResponse:
    """Sum up: progress, expected error, money, and whether inference keeps up."""
    return JSONResponse(await views.summary_of(service, row["id"]))


@router.get(
    "/live",
    responses={
        200: {
            "description": "Events `summary`; their `id` is the sequence number and the edition.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
    response_class=StreamingResponse,
    summary="Watch live",
)
async def live(
    service: TheService,
    row: TheCampaign,
    request: Request,
    last_event_id: Annotated[
        str | None, Header(max_length=40, description="`id` of the last event that was seen.")
    ] = None,
) -> StreamingResponse:
    """Stream the summary whenever it changes; a browser that reconnects misses nothing."""
    if service.watching >= service.settings.live_most:
        detail = f"{service.watching} live streams are open already; close some pages"
        raise Problem(503, "too_many_streams", detail, {"Retry-After": "10"})
    stream = _stream(service, row["id"], request, last_event_id)
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(
    service: Service, number: int, request: Request, last: str | None
) -> AsyncIterator[str]:
    until = time.monotonic() + service.settings.live_seconds
    spoke, shown = time.monotonic(), None
    with service.watched_live():
        yield "retry: 2000\n\n"
        while not service.closing and time.monotonic() < until:
            found = await views.summary_of(service, number)
            mark = {name: item for name, item in found.items() if name not in ("at", "board_age_s")}
            sent_as = f"{found['seq']}.{found['edition']}"
            seen = last == sent_as and found["inference_seq"] >= found["seq"]
            if mark != shown and not (shown is None and seen):
                yield f"id: {sent_as}\nevent: summary\ndata: {json.dumps(found)}\n\n"
                spoke = time.monotonic()
            elif time.monotonic() - spoke > _BEAT:
                yield ": still here\n\n"
                spoke = time.monotonic()
            shown = mark
            await asyncio.sleep(service.settings.live_every)
            if await request.is_disconnected():
                return


@router.get(
    "/export",
    responses={
        200: {
            "description": "The table.",
            "content": {"text/csv": {"schema": {"type": "string"}}, "application/json": {}},
        },
    },
    response_class=StreamingResponse,
    summary="Export a table",
)
async def export(
    service: TheService,
    row: TheCampaign,
    what: Literal["answers", "estimates", "credits", "payments"] = "answers",
    format: Literal["csv", "json"] = "csv",
) -> StreamingResponse:
    """Export all answers, estimates, credits, or payments (one row a visit, as providers pay).

    `voxpop aggregate` reads the answers as they are.
    """
    rows: Any = export_rows(service, row, what, format)
    kind = "text/csv; charset=utf-8" if format == "csv" else "application/json"
    name = f"{row['slug']}-{what}.{format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(rows, media_type=kind, headers=headers)
