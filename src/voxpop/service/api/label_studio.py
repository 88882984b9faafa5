"""Label Studio as a front end: an ML backend that gives scores, a webhook, and pulling behind it.

Its webhooks are sent once, with a timeout of a second and without headers: the secret is in the
path, and missed webhooks are found by pulling the project's export. Predictions hold no result,
ever: an annotator who is shown an estimate no longer answers independently.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as Asked
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy import Connection, RowMapping, select
from starlette.concurrency import run_in_threadpool

from voxpop.errors import DataError
from voxpop.service.annotations import (
    SOURCE,
    Annotation,
    LabelTask,
    read_annotation,
    read_deleted,
    read_export,
    read_task,
)
from voxpop.service.api import bodies
from voxpop.service.api.access import digest_of
from voxpop.service.api.owner import CHANGES, PROBLEMS
from voxpop.service.api.problems import Problem
from voxpop.service.api.pulls import Reached, export_of
from voxpop.service.api.state import Service
from voxpop.service.api.who import TheCampaign, TheService, address_of
from voxpop.service.commands import (
    AddTasks,
    DropAnswers,
    NewTask,
    Refused,
    TakeAnswer,
    WithdrawTasks,
    hidden,
)
from voxpop.service.logs import log
from voxpop.service.schema import answer, campaign, task

router = APIRouter(prefix="/ls/{token}", include_in_schema=False)
owner_router = APIRouter(
    prefix="/api/v1/campaigns/{slug}", tags=["owner"], responses=PROBLEMS
)  # fmt: skip
_PULL_EVERY = 60.0
_AT_ONCE = 1000


async def campaign_of_token(token: str, asked: Asked, service: TheService) -> RowMapping:
    """Return the campaign that the secret in the path opens."""
    access = await service.find(digest_of(token))
    if access is None or access.scope != SOURCE:
        service.limiter.take("address", address_of(asked))
        raise Problem(401, "bad_token", "this address of an ML backend is unknown or has expired")
    service.limiter.take("token", access.hash)
    row = await service.read(_campaign, access.campaign)
    assert row is not None
    return row


def _campaign(connection: Connection, number: int) -> RowMapping | None:
    return connection.execute(select(campaign).where(campaign.c.id == number)).mappings().first()


TheProject = Annotated[Any, Depends(campaign_of_token)]


async def _payload(asked: Asked) -> dict[str, Any]:
    try:
        body = json.loads(await asked.body())
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Problem(422, "bad_request", "the body must be a JSON object")
    return body


@router.get("/health")
@router.get("/")
async def health(_: TheProject) -> JSONResponse:
    """Confirm that the backend is there."""
    return JSONResponse({"status": "UP", "model_class": "voxpop"})


@router.post("/setup")
async def setup(asked: Asked, row: TheProject, service: TheService) -> JSONResponse:
    """Note where the project is; it is sent repeatedly, with an API token in clear."""
    body = await _payload(asked)
    url, api_token = body.get("hostname"), body.get("access_token")
    project = str(body.get("project", "")).partition(".")[0]  # "4.1794838685" is project 4
    if isinstance(url, str) and isinstance(api_token, str) and project.isdigit() and api_token:
        service.pulls.known[row["id"]] = Reached(url, api_token, project)
        _pull_soon(service, row)
    return JSONResponse({"model_version": "voxpop"})


@router.post("/predict")
async def predict(asked: Asked, row: TheProject, service: TheService) -> JSONResponse:
    """Score tasks: the lower, the more one further answer helps; tasks that are new are added."""
    body = await _payload(asked)
    listed = body.get("tasks")
    if not isinstance(listed, list) or len(listed) > 10_000:
        raise Problem(422, "bad_request", "tasks must be a list of at most 10,000")
    tasks = [read_task(one) for one in listed]
    await _add_tasks(service, row["id"], tasks)
    scores = await run_in_threadpool(_scores, service, row["id"], [one.name for one in tasks])
    results = [{"result": [], "score": s, "model_version": "voxpop"} for s in scores]
    return JSONResponse({"results": results, "model_version": "voxpop"})


def _scores(service: Service, number: int, names: Sequence[str]) -> list[float]:
    """Return 1 for done tasks, less the more there is to gain, and 0 where nothing is known."""
    query = select(task.c.name, task.c.id, task.c.state).where(
        task.c.campaign == number, task.c.name.in_(names)
    )
    rows = {row.name: row for row in service.ask(lambda c: c.execute(query).all())}
    worth = service.boards.worth(number, [row.id for row in rows.values()])
    known = sorted(gain for gain in worth.values() if 0 < gain < float("inf"))
    middle = known[len(known) // 2] if known else 1.0
    found = []
    for name in names:
        row = rows.get(name)
        if row is not None and row.state == "done":
            found.append(1.0)
        elif row is None or row.id not in worth:
            found.append(0.0)
        else:
            found.append(round(1.0 / (1.0 + worth[row.id] / middle), 6))
    return found


@router.post("/webhook")
async def webhook(asked: Asked, row: TheProject, service: TheService) -> JSONResponse:
    """Take what happened in the project; what fails here is found by pulling."""
    body = await _payload(asked)
    action, kind = str(body.get("action", "")), row["question"]["kind"]
    number = row["id"]
    if action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED"):
        one = read_task(body.get("task"))
        found = read_annotation(body.get("annotation"), one.name, kind)
        await _add_tasks(service, number, [one])
        taken = await _take(service, number, [found])
    elif action == "ANNOTATIONS_DELETED":
        taken = await _drop(service, number, read_deleted(body))
    elif action in ("TASKS_CREATED", "TASKS_DELETED"):
        listed = body.get("tasks")
        tasks = [read_task(one) for one in (listed if isinstance(listed, list) else [])]
        taken = len(tasks)
        if action == "TASKS_CREATED":
            await _add_tasks(service, number, tasks)
        else:
            await _withdraw(service, number, [one.name for one in tasks])
    else:
        taken = 0  # projects that are renamed and the like
    return JSONResponse({"taken": taken})


# Pulling


class ReconcileBody(bodies.Body):
    """Where the project is. Default: as in Label Studio's last `setup`."""

    url: str | None = Field(None, max_length=500, examples=["http://127.0.0.1:8080"])
    api_token: str | None = Field(None, max_length=500, description="Used once, never stored.")
    project: int | None = Field(None, ge=1, le=2**31)


@owner_router.post("/label-studio/reconcile", **CHANGES, summary="Pull from Label Studio")
async def reconcile(body: ReconcileBody, row: TheCampaign, service: TheService) -> JSONResponse:
    """Compare with the project's export: add what webhooks missed, drop what was deleted there."""
    if body.url and body.api_token and body.project:
        reached = Reached(body.url, body.api_token, str(body.project))
    else:
        known = service.pulls.known.get(row["id"])
        if known is None:
            detail = "give url, api_token and project: Label Studio has not sent them yet"
            raise Problem(409, "not_connected", detail)
        reached = known
    try:
        return JSONResponse(await pull(service, row, reached))
    except DataError as error:
        raise Problem(422, "cannot_pull", str(error)) from None


def _pull_soon(service: Service, row: RowMapping) -> None:
    """Pull in the background, at most once a minute."""
    number = row["id"]
    if time.monotonic() - service.pulls.at.get(number, float("-inf")) < _PULL_EVERY:
        return
    service.pulls.at[number] = time.monotonic()

    async def run() -> None:
        try:
            await pull(service, row, service.pulls.known[number])
        except Exception as error:  # the next one may succeed; the message might hold an address
            log("label studio not pulled", logging.WARNING, error)

    started = asyncio.create_task(run())
    service.pulls.running.add(started)
    started.add_done_callback(service.pulls.running.discard)


async def pull(service: Service, row: RowMapping, reached: Reached) -> dict[str, int]:
    """Set the campaign's answers from Label Studio to those in the project now."""
    number = row["id"]
    # Before the export: what is annotated meanwhile comes by webhook and must not be dropped.
    before = await service.read(_held, number)
    document = await run_in_threadpool(export_of, reached)
    tasks, found = read_export(document, row["question"]["kind"])
    await _add_tasks(service, number, tasks)
    taken = await _take(service, number, found)
    gone = sorted(before - {one.id for one in found})
    dropped = await _drop(service, number, gone)
    return {"tasks": len(tasks), "annotations": len(found), "changed": taken, "dropped": dropped}


def _held(connection: Connection, number: int) -> set[str]:
    query = select(answer.c.source_id).where(answer.c.campaign == number, answer.c.source == SOURCE)
    return {str(one) for one in connection.execute(query).scalars()}


# Commands


async def _add_tasks(service: Service, number: int, tasks: Sequence[LabelTask]) -> None:
    """Add the tasks that are not here yet; two messages at once may bring the same one."""
    names = list({one.name: one for one in tasks}.values())
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        for _ in range(3):
            query = select(task.c.name).where(
                task.c.campaign == number, task.c.name.in_([one.name for one in some])
            )
            known = set(await service.read(lambda c, q=query: c.execute(q).scalars().all()))
            new = [
                NewTask(name=one.name, content=one.content) for one in some if one.name not in known
            ]
            if not new:
                break
            try:
                await service.send(AddTasks(campaign=number, tasks=new))
                break
            except Refused as refused:
                if refused.status != 409:
                    raise


async def _take(service: Service, number: int, found: Sequence[Annotation]) -> int:
    """Take annotations as answers; return how many changed something."""
    secret, changed = service.database.secret, 0
    for start in range(0, len(found), _AT_ONCE):
        sent = []
        for one in found[start : start + _AT_ONCE]:
            if one.value is None:  # cancelled, or no value of this kind
                command: Any = DropAnswers(
                    campaign=number, source=SOURCE, source_ids=[one.id], version=one.version
                )
            else:
                command = TakeAnswer(
                    campaign=number,
                    source=SOURCE,
                    source_id=one.id,
                    task=one.task,
                    external_hmac=hidden(secret, number, SOURCE, one.person),
                    value=one.value,
                    version=one.version,
                    lead_ms=one.lead_ms,
                )
            sent.append(service.send(command))
        for reply in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(reply, Refused):
                if reply.status >= 500:
                    raise reply
                log("annotation refused", logging.WARNING, reason=reply.reason)
            elif isinstance(reply, BaseException):
                raise reply
            else:
                changed += not getattr(reply, "again", False) and getattr(reply, "n", 1) > 0
    return changed


async def _drop(service: Service, number: int, ids: Sequence[str]) -> int:
    if not ids:
        return 0
    done = await service.send(DropAnswers(campaign=number, source=SOURCE, source_ids=list(ids)))
    return int(done.n)


async def _withdraw(service: Service, number: int, names: Sequence[str]) -> None:
    try:
        await service.send(WithdrawTasks(campaign=number, names=list(names)))
    except Refused as refused:
        log("tasks not withdrawn", logging.WARNING, reason=refused.reason)
