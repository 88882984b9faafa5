"""Pages for browsers: the owner's and the workers', their scripts, and pictures of tasks."""

from __future__ import annotations

import hmac
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from voxpop.service.api import pictures
from voxpop.service.api.access import digest_of
from voxpop.service.api.guard import FRAMES
from voxpop.service.api.problems import Problem
from voxpop.service.api.providers import MTURK_FRAMES
from voxpop.service.api.sessions import HEADER
from voxpop.service.api.state import service_of
from voxpop.service.api.who import TheService, address_of, find_campaign
from voxpop.service.pages.render import asset, page

router = APIRouter(include_in_schema=False)


async def _owner_page(request: Request, name: str, slug: str | None = None) -> HTMLResponse:
    """Render a page for a logged-in owner; others are told how to log in."""
    service = service_of(request)
    session = service.sessions.read(request.cookies.get(service.sessions.cookie))
    access = await service.find(session.token_hash if session else None)
    if session is None or access is None or access.scope != "owner":
        return HTMLResponse(page("welcome"), 401)
    if slug is not None:
        row = await service.read(find_campaign, slug)
        if row is None or access.campaign not in (None, row["id"]):
            return _not_here(f"There is no campaign {slug[:80]}.")
    return HTMLResponse(page(name, csrf=session.csrf, slug=slug))


@router.get("/")
async def campaigns(request: Request) -> HTMLResponse:
    """Show the owner's campaigns."""
    return await _owner_page(request, "campaigns")


@router.get("/new")
async def new(request: Request) -> HTMLResponse:
    """Make a campaign."""
    return await _owner_page(request, "new")


@router.get("/owner/{slug}")
async def dashboard(request: Request, slug: str) -> HTMLResponse:
    """Show a campaign's dashboard."""
    return await _owner_page(request, "dashboard", slug)


def _not_here(detail: str) -> HTMLResponse:
    return HTMLResponse(page("problem", title="Not found", detail=detail), 404)


@router.get("/login")
async def login(
    request: Request, service: TheService, token: Annotated[str, Query()] = ""
) -> Response:
    """Log in by the owner link.

    The page continues by itself: a cookie that is SameSite=Strict would not come along with a
    redirect that began on another site, as in a web mail.
    """
    service.limiter.check("address", address_of(request))
    access = await service.find(digest_of(token))
    if access is None or access.scope != "owner":
        service.limiter.take("address", address_of(request))
        detail = (
            "This owner link is unknown or has expired; voxpop serve --new-link makes a new one."
        )
        return HTMLResponse(page("problem", title="Not logged in", detail=detail), 403)
    response = HTMLResponse(page("login"), headers={"Refresh": "0; url=/"})
    service.sessions.start(response, access.hash)
    return response


@router.post("/logout")
async def logout(request: Request, service: TheService) -> Response:
    """Log out; only the page itself knows the token that it sends in a header or a form."""
    session = service.sessions.read(request.cookies.get(service.sessions.cookie))
    form = parse_qs((await request.body()).decode("utf-8", "replace"))
    sent = request.headers.get(HEADER) or form.get("csrf", [""])[0]
    if session is None or not hmac.compare_digest(sent.encode(), session.csrf.encode()):
        raise Problem(403, "bad_csrf", "log out from the page itself; reload it first")
    response = RedirectResponse("/", 303)
    service.sessions.end(response)
    return response


@router.get("/c/{slug}")
async def worker_page(request: Request, slug: str, service: TheService) -> HTMLResponse:
    """Show the page on which workers answer; only where MTurk is used may it be in a frame."""
    row = await service.read(find_campaign, slug)
    if row is None:
        return _not_here("This link does not work; ask the person who sent it for a new one.")
    if row["rules"].get("mturk"):
        request.scope[FRAMES] = MTURK_FRAMES
    language = str(row["rules"].get("language", "en"))
    return HTMLResponse(page("worker", slug=row["slug"], language=language))


@router.get("/static/{path:path}")
async def static(request: Request, path: str) -> Response:
    """Serve a script, style or icon of the pages."""
    found = asset(path)
    if found is None:
        raise Problem(404, "not_found", "there is no such file")
    headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type=found.media_type, headers=headers)


@router.get("/files/{signature}/{path:path}")
async def files(signature: str, path: str, service: TheService) -> Response:
    """Serve a picture of a task; its address carries the signature that a task's content has."""
    expected = pictures.sign(service.database.secret, path)
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        raise Problem(404, "not_found", "there is no such image")
    folder = service.settings.images
    found = None if folder is None else await run_in_threadpool(pictures.picture, folder, path)
    if found is None:
        raise Problem(404, "not_found", "there is no such image; see --images")
    body, media_type = found
    headers = {"Cache-Control": "private, max-age=3600", "Content-Security-Policy": "sandbox"}
    return Response(body, media_type=media_type, headers=headers)
