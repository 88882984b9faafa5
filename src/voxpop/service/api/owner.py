"""Endpoints for owners: campaigns, tasks, known truths, answers from elsewhere, and links."""

from __future__ import annotations

import asyncio
import re
import secrets
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Query
from fastapi.responses import JSONResponse

from voxpop.service.api import bodies, reads
from voxpop.service.api.problems import Problem, describe
from voxpop.service.api.providers import link_query
from voxpop.service.api.state import Service, add_token, revoke_tokens
from voxpop.service.api.who import TheCampaign, TheOwner, TheOwnerOfAll, TheService, find_campaign
from voxpop.service.commands import (
    Added,
    AddTasks,
    ChangeCampaign,
    Command,
    CreateCampaign,
    Done,
    NewTask,
    Refused,
    SetGold,
    TakeAnswer,
    WithdrawTasks,
    hidden,
)
from voxpop.service.tokens import hash_token

PROBLEMS = describe(401, 403, 404, 422, 429, 503)
# What the routes of owners share: those that list rows, change something, or also say how much.
LISTED: dict[str, Any] = {"response_model": bodies.Page}
CHANGES: dict[str, Any] = {"responses": describe(409, 413)}
CHANGED: dict[str, Any] = {"response_model": bodies.ChangedReply, **CHANGES}

router = APIRouter(prefix="/api/v1/campaigns", tags=["owner"], responses=PROBLEMS)
Cursor = Annotated[
    str | None, Query(max_length=500, description="The `next` of the previous page.")
]
Limit = Annotated[int, Query(ge=1, le=2000, description="Maximum number of rows per page.")]
LinkInPath = Annotated[
    str, Path(pattern=r"^[0-9a-f]{64}$", description="`id` of a row of `links`.")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        max_length=200,
        pattern=r"^[\x20-\x7e]+$",
        description="Any text; a request repeated with the same key is carried out only once.",
        examples=["upload-2024-05-01-part-3"],
    ),
]


async def page(service: Service, read: Callable[..., Any], *arguments: Any) -> JSONResponse:
    """Reply with a page of rows, and the cursor of the next one."""
    rows, after = await service.read(read, *arguments)
    return JSONResponse({"rows": rows, "next": after})


async def change(service: Service, command: Command) -> JSONResponse:
    """Carry out a command, and reply how many rows it changed."""
    done: Done = await service.send(command)
    return JSONResponse({"n": done.n, "seq": done.seq})


@router.get("", **LISTED, summary="List campaigns")
async def list_campaigns(
    service: TheService, owner: TheOwner, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the campaigns that this token opens, the newest first."""
    return await page(service, reads.list_campaigns, owner.campaign, cursor, limit)


@router.post("", status_code=201, **CHANGES, summary="Make a campaign")
async def create_campaign(
    body: bodies.CampaignBody, service: TheService, _: TheOwnerOfAll
) -> JSONResponse:
    """Make a campaign: one question, asked about many tasks."""
    command = CreateCampaign(**{**dict(body), "slug": body.slug or slug_of(body.title)})
    try:
        await service.send(command)
    except Refused as refused:
        if refused.status != 409 or body.slug:
            raise
        command = replace(command, slug=f"{command.slug[:50]}-{secrets.token_hex(3)}")
        await service.send(command)
    return JSONResponse(await _whole(service, command.slug), 201)


async def _whole(service: Service, slug: str) -> reads.Row:
    def read(connection: Any) -> reads.Row:
        row = find_campaign(connection, slug)
        assert row is not None
        return reads.campaign_row(connection, row, whole=True)

    return await service.read(read)


def slug_of(title: str) -> str:
    """Make a campaign's name in URLs from its title."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60].strip("-")
    return slug or f"campaign-{secrets.token_hex(3)}"


@router.get("/{slug}", summary="Show a campaign")
async def show_campaign(service: TheService, row: TheCampaign) -> JSONResponse:
    """Show a campaign with its question, rules, counts and money."""
    return JSONResponse(await _whole(service, row["slug"]))


@router.patch("/{slug}", **CHANGES, summary="Change a campaign")
async def change_campaign(
    body: bodies.CampaignChanges, service: TheService, row: TheCampaign
) -> JSONResponse:
    """Change title, instructions, budget, state, or single rules.

    Fields that are left out stay. A budget of null removes the cap.
    """
    changes = body.model_dump(exclude_unset=True)
    for name in changes.keys() - {"budget"}:
        if changes[name] is None:
            raise Problem(422, "bad_request", f"{name} must not be null; leave it out to keep it")
    if not changes:
        raise Problem(422, "bad_request", "there is nothing to change in the request")
    await service.send(ChangeCampaign(campaign=row["id"], changes=changes))
    return JSONResponse(await _whole(service, row["slug"]))


@router.post("/{slug}/tasks", response_model=bodies.AddedReply, **CHANGES, summary="Add tasks")
async def add_tasks(
    service: TheService,
    row: TheCampaign,
    tasks: Annotated[list[bodies.TaskBody], Body(min_length=1, max_length=5_000)],
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Add tasks, all or none, up to 5,000 at once. Names are unique in a campaign.

    With an `Idempotency-Key`, a request that is repeated, as after a lost connection, adds nothing
    twice.
    """
    new = [NewTask(**dict(one)) for one in tasks]
    command = AddTasks(campaign=row["id"], tasks=new, idempotency_key=idempotency_key)
    added: Added = await service.send(command)
    return JSONResponse({"n": added.n, "again": added.again, "seq": added.seq})


@router.get("/{slug}/tasks", **LISTED, summary="List tasks")
async def list_tasks(
    service: TheService,
    row: TheCampaign,
    cursor: Cursor = None,
    limit: Limit = 100,
    state: Annotated[str | None, Query(pattern="^(open|done|withdrawn)$")] = None,
) -> JSONResponse:
    """List tasks in the order in which they were added."""
    return await page(service, reads.list_tasks, row["id"], cursor, limit, state)


@router.post("/{slug}/tasks/withdraw", **CHANGED, summary="Withdraw tasks")
async def withdraw_tasks(
    body: bodies.WithdrawBody, service: TheService, row: TheCampaign
) -> JSONResponse:
    """Stop offering tasks. Their answers stay."""
    return await change(service, WithdrawTasks(campaign=row["id"], names=body.names))


@router.post("/{slug}/gold", **CHANGED, summary="Set truths")
async def set_gold(body: bodies.GoldBody, service: TheService, row: TheCampaign) -> JSONResponse:
    """Set the truth of tasks: they become gold, and only inform about the workers."""
    return await change(service, SetGold(campaign=row["id"], truths=body.gold))


@router.get("/{slug}/answers", **LISTED, summary="List answers")
async def list_answers(
    service: TheService, row: TheCampaign, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List answers by task and worker."""
    return await page(service, reads.list_answers, row["id"], cursor, limit)


@router.post(
    "/{slug}/answers",
    response_model=bodies.TakenReply,
    **CHANGES,
    summary="Take answers given elsewhere",
)
async def take_answers(
    service: TheService,
    row: TheCampaign,
    answers: Annotated[list[bodies.GivenAnswer], Body(min_length=1, max_length=1_000)],
) -> JSONResponse:
    """Take answers that were given elsewhere, by the names of tasks and workers there.

    The same answer again changes nothing; another value of the same worker replaces the first.
    """
    number, secret = row["id"], service.database.secret
    version = int(1000 * service.clock())
    sent = [
        service.send(
            TakeAnswer(
                campaign=number,
                source="client",
                source_id=hidden(secret, number, "client", f"{one.worker}\0{one.task}"),
                task=one.task,
                external_hmac=hidden(secret, number, "client", one.worker),
                external=one.worker,
                value=one.value,
                version=version,
            )
        )
        for one in answers
    ]
    replies = await asyncio.gather(*sent, return_exceptions=True)
    refused = []
    for place, reply in enumerate(replies):
        if isinstance(reply, Refused):
            refused.append({"row": place, "reason": reply.reason, "detail": reply.detail})
        elif isinstance(reply, BaseException):
            raise reply
    return JSONResponse({"taken": len(replies) - len(refused), "refused": refused})


@router.post(
    "/{slug}/links",
    status_code=201,
    response_model=bodies.LinkReply,
    **CHANGES,
    summary="Make a link",
)
async def make_link(body: bodies.LinkBody, service: TheService, row: TheCampaign) -> JSONResponse:
    """Make a link, shown once. Anyone who has it may use it until it expires.

    `invite`, `prolific` and `mturk` let workers in; `owner` opens this campaign alone to another
    owner; `label_studio` is the address of an ML backend and webhook.
    """
    scope = body.kind if body.kind in ("owner", "label_studio") else "campaign_link"
    expires = None if body.days is None else service.clock() + 86_400 * body.days

    def make(_: Any) -> str:
        number = row["id"]
        return add_token(service.database, scope, campaign=number, expires=expires, note=body.note)

    token = await asyncio.to_thread(make, None)
    path = {
        "owner": f"/login?token={token}",
        "label_studio": f"/ls/{token}",
    }.get(body.kind, f"/c/{row['slug']}{link_query(body.kind, token)}")
    url = service.settings.url(path)
    made = {"url": url, "token": token, "kind": body.kind, "id": hash_token(token)}
    return JSONResponse(made, 201)


@router.get("/{slug}/links", **LISTED, summary="List links")
async def list_links(
    service: TheService, row: TheCampaign, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List the links that were not revoked, by `id`: the links themselves are kept nowhere."""
    return await page(service, reads.list_links, row["id"], cursor, limit)


@router.delete(
    "/{slug}/links/{link}", response_model=bodies.RevokedReply, **CHANGES, summary="Revoke a link"
)
async def revoke_link(link: LinkInPath, service: TheService, row: TheCampaign) -> JSONResponse:
    """End a link, as when it has leaked: it opens nothing any more, nor do logins by it.

    Workers who came in by it stay. Other web processes take up to 10 seconds to know.
    """
    n = await asyncio.to_thread(revoke_tokens, service.database, reads.LINK_KINDS, row["id"], link)
    service.doors.forget(link)
    if not n:
        raise Problem(404, "no_link", "there is no such link here; it may be revoked already")
    return JSONResponse({"n": n})
