"""Who: the dependencies of the endpoints that let a worker or an owner in, or nobody."""

from __future__ import annotations

import hmac
from typing import Annotated, Any

from fastapi import Depends, Path, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Connection, RowMapping, select

from voxpop.service.api.access import Access, digest_of
from voxpop.service.api.guard import SAFE
from voxpop.service.api.problems import Problem
from voxpop.service.api.sessions import HEADER
from voxpop.service.api.state import Service, service_of
from voxpop.service.schema import campaign

_worker_token = HTTPBearer(
    auto_error=False,
    scheme_name="worker",
    description="The token from `enter`. The page keeps it; it is never a cookie.",
)
_owner_token = HTTPBearer(
    auto_error=False, scheme_name="owner", description="The token in the owner link."
)
_owner_session = APIKeyCookie(
    name="voxpop_session",
    auto_error=False,
    scheme_name="session",
    description=f"The cookie of a logged-in owner, with the header `{HEADER}` for every change.",
)
_CHALLENGE = {"WWW-Authenticate": "Bearer"}

Credentials = HTTPAuthorizationCredentials | None
TheService = Annotated[Service, Depends(service_of)]


def address_of(request: Request) -> str:
    """Return the address that a request came from, or that a trusted proxy reports."""
    return request.client.host if request.client else "unknown"


async def _let_in(
    request: Request, service: Service, digest: str | None, scope: str, missing: str
) -> Access:
    """Admit a token of a scope; failures count against its address."""
    address = address_of(request)
    access = await service.find(digest)
    if access is None or access.scope != scope:
        service.limiter.take("address", address)
        raise _not_let_in(digest, access, scope, missing)
    service.limiter.take("token", access.hash)
    return access


def _not_let_in(digest: str | None, access: Access | None, scope: str, missing: str) -> Problem:
    """Say what is wrong with a token: not there, unknown, or for other doors."""
    if digest is None:
        return Problem(401, "no_token", missing, _CHALLENGE)
    if access is None:
        detail = "this token is unknown, revoked or expired"
        return Problem(401, "bad_token", detail, _CHALLENGE)
    detail = f"this needs a token of scope {scope}, but this one has scope {access.scope}"
    return Problem(403, "wrong_scope", detail)


async def worker_in(
    request: Request, service: TheService, given: Annotated[Credentials, Security(_worker_token)]
) -> Access:
    """Admit a worker by the token from ``enter``."""
    digest = digest_of(given.credentials if given else None)
    missing = "send the worker's token as 'Authorization: Bearer …'; POST /c/{slug}/enter gives it"
    return await _let_in(request, service, digest, "worker", missing)


async def owner_in(
    request: Request,
    service: TheService,
    given: Annotated[Credentials, Security(_owner_token)],
    _: Annotated[str | None, Security(_owner_session)] = None,
) -> Access:
    """Admit an owner by token, or by session; a session must prove that its own page asks."""
    digest = digest_of(given.credentials if given else None)
    if digest is None:
        session = service.sessions.read(request.cookies.get(service.sessions.cookie))
        if session is not None:
            sent = request.headers.get(HEADER, "")
            is_ours = hmac.compare_digest(sent.encode(), session.csrf.encode())
            if request.method not in SAFE and not is_ours:
                detail = f"a session needs the header {HEADER} for every change; reload the page"
                raise Problem(403, "bad_csrf", detail)
            digest = session.token_hash
    missing = "send the owner's token as 'Authorization: Bearer …', or follow the owner link"
    return await _let_in(request, service, digest, "owner", missing)


async def refuse_stranger(service: Service, request: Request) -> Problem | None:
    """Return why a request has no valid token of the right scope; None if it has one.

    Which campaign the token opens is for the endpoint to check.
    """
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    root, _, path = request.url.path.lstrip("/").partition("/")
    if root == "ls":
        scope, digest = "label_studio", digest_of(path.partition("/")[0])
    else:
        session = service.sessions.read(request.cookies.get(service.sessions.cookie))
        scope, digest = "owner", digest_of(given.strip() if scheme.lower() == "bearer" else None)
        digest = digest or (session.token_hash if session else None)
    access = await service.find(digest)
    if access is not None and access.scope == scope:
        return None
    try:
        service.limiter.take("address", address_of(request))
    except Problem as problem:
        return problem
    if root == "ls":
        access = None  # a path that opens nothing is unknown, whatever else it is
    return _not_let_in(digest, access, scope, "send a token as 'Authorization: Bearer …'")


TheWorker = Annotated[Access, Depends(worker_in)]
TheOwner = Annotated[Access, Depends(owner_in)]
SlugInPath = Annotated[
    str,
    Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="The campaign's name in URLs."),
]


def find_campaign(connection: Connection, slug: str) -> RowMapping | None:
    """Read a campaign's row by its slug."""
    return connection.execute(select(campaign).where(campaign.c.slug == slug)).mappings().first()


async def campaign_of_owner(slug: SlugInPath, service: TheService, owner: TheOwner) -> RowMapping:
    """Return the campaign in the path, if this owner's token opens it."""
    row = await service.read(find_campaign, slug)
    # A token of one campaign learns nothing of others, not even whether they exist.
    if owner.campaign is not None and (row is None or row["id"] != owner.campaign):
        raise Problem(403, "other_campaign", "this token is for another campaign")
    if row is None:
        raise Problem(404, "no_campaign", f"there is no campaign {slug!r}")
    return row


TheCampaign = Annotated[Any, Depends(campaign_of_owner)]


def owner_of_all(owner: TheOwner) -> Access:
    """Admit only an owner whose token opens every campaign."""
    if owner.campaign is not None:
        raise Problem(403, "other_campaign", "this token is for one campaign only")
    return owner


TheOwnerOfAll = Annotated[Access, Depends(owner_of_all)]
