"""Endpoints for workers: come in, get a task, answer it. Gold looks like any other task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from sqlalchemy import Connection, RowMapping, select

from voxpop.service.api import bodies, pictures, providers
from voxpop.service.api.access import Access, digest_of
from voxpop.service.api.problems import Problem, describe
from voxpop.service.api.state import Service
from voxpop.service.api.who import SlugInPath, TheService, TheWorker, address_of, find_campaign
from voxpop.service.commands import (
    Answer,
    Answered,
    Command,
    Complete,
    Completed,
    Edit,
    Enter,
    Entered,
    Extend,
    Extended,
    Next,
    Nothing,
    Offered,
    Refused,
    Report,
    Skip,
    hidden,
)
from voxpop.service.rules import Rules
from voxpop.service.schema import campaign, visit, worker
from voxpop.service.tokens import hash_token, new_token

router = APIRouter(
    prefix="/api/v1", tags=["worker"], responses=describe(401, 403, 404, 429, 503)
)  # fmt: skip
OfferInPath = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The offer's id.", examples=["Zk3x"])
]
# After these, a visit is over; after others, asking again may help.
_ENDS = ("done", "capacity", "budget", "closed", "banned")
_RETRY_SECONDS = 5.0
_OF_OFFER = describe(409, 410, 413, 422)


@router.post(
    "/c/{slug}/enter",
    response_model=bodies.EnterReply,
    responses=describe(410, 413, 422),
    summary="Come in",
)
async def enter(
    slug: SlugInPath, body: bodies.EnterBody, request: Request, service: TheService
) -> JSONResponse:
    """Trade a link's token, or an earlier worker token, for a worker token of this campaign.

    A provider's preview (MTurk) gets the campaign, but no token and no offers.
    """
    service.limiter.take("enter", address_of(request))
    row = await service.read(find_campaign, slug)
    back = await _comes_back(service, row, body.worker_token)
    if row is None or (back is None and not await _is_invited(service, row["id"], body.invite)):
        service.limiter.take("address", address_of(request))
        detail = "this link is not valid, or has expired; ask the person who sent it for a new one"
        raise Problem(403, "bad_invite", detail)
    if row["state"] == "closed":
        raise Problem(410, "closed", "this campaign is closed; thank you")
    found: dict[str, Any] = {"worker_token": None, "worker": None, "preview": False}
    if back is not None:
        found.update(worker_token=body.worker_token, worker=back)
    else:
        who = providers.arrival(body.provider, body.params, row["rules"])
        if who.preview:
            found["preview"] = True
        else:
            found.update(await _register(service, row["id"], body.provider, who))
    return JSONResponse({**found, "campaign": for_workers(row)})


async def _register(
    service: Service, number: int, provider: str, who: providers.Arrival
) -> dict[str, str]:
    token = new_token("worker")
    entered: Entered = await service.send(
        Enter(
            campaign=number,
            provider=provider,
            external_hmac=hidden(service.database.secret, number, provider, who.external),
            external=who.external if who.paid else None,
            session=who.session,
            token_hash=hash_token(token),
        )
    )
    return {"worker_token": token, "worker": entered.pseudonym}


async def _is_invited(service: Service, number: int, invite: str | None) -> bool:
    access = await service.find(digest_of(invite))
    return access is not None and (access.scope, access.campaign) == ("campaign_link", number)


async def _comes_back(service: Service, row: RowMapping | None, token: str | None) -> str | None:
    """Return the pseudonym of a worker who was here before; None for anybody else."""
    access = await service.find(digest_of(token))
    if row is None or access is None:
        return None
    if (access.scope, access.campaign) != ("worker", row["id"]):
        return None
    return await service.read(_pseudonym, access.worker)


def _pseudonym(connection: Connection, number: int) -> str | None:
    query = select(worker.c.pseudonym).where(worker.c.id == number, worker.c.state != "erased")
    return connection.execute(query).scalar_one_or_none()


def for_workers(row: RowMapping) -> dict[str, Any]:
    """Return what workers may know of a campaign."""
    rules = Rules.parse(row["rules"])
    return {
        **{name: row[name] for name in ("slug", "title", "instructions", "question")},
        "language": rules.language,
        "practice": rules.practice,
        "unit": row["question"].get("unit"),
        "price": rules.price,
        "currency": rules.currency,
    }


@router.post("/next", response_model=bodies.NextReply, summary="Get a task")
async def next_offer(service: TheService, access: TheWorker) -> JSONResponse:
    """Offer the task that helps most and that this worker has not had, or say why there is none.

    An offer that is open is offered again: a reload gets the same task.
    """
    return JSONResponse(await _next(service, access))


async def _next(
    service: Service, access: Access, first: asyncio.Future[Any] | None = None
) -> dict[str, Any]:
    """Offer a task; ``first`` is the reply to a command that is under way already."""
    number, person = _ids(access)
    reply: Offered | Nothing = await (first or service.send(await _asks(service, access)))
    if isinstance(reply, Nothing) and reply.reason in ("done", "wait"):
        # The order in memory may be old: try once more, from the database.
        service.boards.forget(number, person)
        reply = await service.send(Next(campaign=number, worker=person, visit=access.visit))
    if isinstance(reply, Offered):
        service.boards.offered(number, person, reply.task, again=reply.again)
        return {"offer": _offer(service, reply), "reason": None, "completion": None}
    waits = reply.reason not in _ENDS
    return {
        "offer": None,
        "reason": reply.reason,
        "retry_after": _RETRY_SECONDS if waits else None,
        "completion": None if waits else await _complete(service, access, reply),
    }


async def _asks(service: Service, access: Access) -> Next:
    number, person = _ids(access)
    candidates = await service.boards.candidates(number, person)
    return Next(campaign=number, worker=person, visit=access.visit, candidates=candidates)


def _ids(access: Access) -> tuple[int, int]:
    assert access.campaign is not None
    assert access.worker is not None
    return access.campaign, access.worker


def _offer(service: Service, offered: Offered) -> dict[str, Any]:
    return {
        "id": offered.offer,
        "task": {"content": pictures.shown(service.database.secret, offered.content)},
        "practice": offered.practice,
        "expires_in": round(offered.expires - service.clock(), 1),
        "position": offered.answered + 1,
        "answered": offered.answered,
    }


async def _complete(service: Service, access: Access, nothing: Nothing) -> dict[str, Any] | None:
    if access.visit is None:
        return None
    number, _ = _ids(access)
    rules, session = await service.read(_visit_facts, number, access.visit)
    provider = access.provider or "link"
    state, code = providers.completion_code(provider, nothing.reason, nothing.answered, rules)
    ended: Completed = await service.send(
        Complete(campaign=number, visit=access.visit, state=state, code=code)
    )
    return providers.completion(provider, ended.code, session, rules)


def _visit_facts(connection: Connection, number: int, of: int) -> tuple[dict[str, Any], str | None]:
    rules = connection.execute(select(campaign.c.rules).where(campaign.c.id == number)).scalar_one()
    query = select(visit.c.external_session).where(visit.c.id == of)
    return rules, connection.execute(query).scalar_one_or_none()


@router.put(
    "/offers/{offer}/answer",
    response_model=bodies.AnswerReply,
    responses=_OF_OFFER,
    summary="Answer",
)
async def answer(
    offer: OfferInPath,
    body: bodies.AnswerBody,
    service: TheService,
    access: TheWorker,
    next: Annotated[bool, Query(description="Also return the next offer.")] = False,
) -> JSONResponse:
    """Store an answer; what this acknowledges is on the disk.

    The same answer again is acknowledged again. Another value for the same offer is a conflict
    (409), as from a second tab: `edit` changes an answer.
    """
    number, person = _ids(access)
    given = Answer(
        campaign=number, offer=offer, worker=person, value=body.value, lead_ms=body.lead_ms
    )
    asks = await _asks(service, access) if next else None
    # Both in one commit where they meet there: the writer keeps their order.
    stored = service.send(given)
    following = None if asks is None else service.send(asks)
    try:
        reply = _answered(service, await stored)
    except Refused:
        if following is not None:  # nobody waits for it: its errors are ignored
            following.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise
    if following is not None:
        reply["next"] = await _next(service, access, following)
    return JSONResponse(reply)


def _answered(service: Service, found: Answered) -> dict[str, Any]:
    truth = found.practice_truth
    return {
        "version": found.version,
        "again": found.again,
        "practice": None if truth is None else {"truth": truth},
        "editable_for": round(max(found.editable_until - service.clock(), 0.0), 1),
        "editable_until": found.editable_until,
    }


@router.put(
    "/offers/{offer}/edit",
    response_model=bodies.AnswerReply,
    responses=_OF_OFFER,
    summary="Change an answer",
)
async def edit(
    offer: OfferInPath, body: bodies.EditBody, service: TheService, access: TheWorker
) -> JSONResponse:
    """Replace an answer by a new version, within the time that the rules allow."""
    changed = await _about(service, access, Edit, offer, value=body.value)
    return JSONResponse(_answered(service, changed))


async def _about(
    service: Service, access: Access, kind: Callable[..., Command], offer: str, **more: Any
) -> Any:
    """Carry out a worker's command about an offer, and return the reply."""
    number, person = _ids(access)
    return await service.send(kind(campaign=number, offer=offer, worker=person, **more))


@router.post(
    "/offers/{offer}/skip",
    response_model=bodies.Done,
    responses=_OF_OFFER,
    summary="Skip a task",
)
async def skip(
    offer: OfferInPath, body: bodies.SkipBody, service: TheService, access: TheWorker
) -> JSONResponse:
    """Skip a task; this worker is not offered it again."""
    await _about(service, access, Skip, offer, reason=body.reason)
    return JSONResponse({"done": True})


@router.post(
    "/offers/{offer}/report",
    response_model=bodies.Done,
    responses=_OF_OFFER,
    summary="Report a task",
)
async def report(
    offer: OfferInPath, body: bodies.ReportBody, service: TheService, access: TheWorker
) -> JSONResponse:
    """Tell the owner that something is wrong with a task, and skip it."""
    await _about(service, access, Report, offer, text=body.text)
    return JSONResponse({"done": True})


@router.post(
    "/offers/{offer}/extend",
    response_model=bodies.ExtendReply,
    responses=describe(409, 410, 422),
    summary="Extend the time for a task",
)
async def extend(offer: OfferInPath, service: TheService, access: TheWorker) -> JSONResponse:
    """Hold an open offer for another lease."""
    found: Extended = await _about(service, access, Extend, offer)
    return JSONResponse({"expires_in": round(found.expires - service.clock(), 1)})
