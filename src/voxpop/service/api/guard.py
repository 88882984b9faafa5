"""Guard: what every request passes first and every answer last: caps, headers, log and metrics.

A plain ASGI middleware, since one that wraps the answer would hold back live streams.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from voxpop.service.api.metrics import Metrics
from voxpop.service.api.problems import Problem, problem_response
from voxpop.service.api.settings import Settings
from voxpop.service.database import is_outage, outage_of
from voxpop.service.logs import is_logged, log

MTURK_HOSTS = ("https://www.mturk.com", "https://workersandbox.mturk.com")
"""Where a finished MTurk assignment may be sent: its two hosts, and nowhere else."""

FRAMES = "voxpop.frames"
"""Key of a request's scope: the origins that may show the page in a frame."""


SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing, and bring no body."""


class TooLarge(Exception):
    """The body of a request is larger than its limit."""


def content_policy(settings: Settings, frames: Iterable[str] = ()) -> str:
    """Return the Content-Security-Policy: own scripts only, nothing inline, no frames unasked."""
    pictures = "https:" if settings.is_https else "https: http:"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            f"img-src 'self' data: blob: {pictures}",
            "connect-src 'self'",
            f"form-action 'self' {' '.join(MTURK_HOSTS)}",
            "base-uri 'none'",
            f"frame-ancestors {' '.join(frames) or chr(39) + 'none' + chr(39)}",
            "require-trusted-types-for 'script'",
        )
    )


Check = Callable[[Request], Awaitable[Problem | None]]
"""Says why a request comes from nobody who is known; None where it comes from somebody."""


class Guard:
    """Caps bodies, adds security headers, counts and logs every request.

    The framework reads a body before any endpoint looks at its token, so the guard checks the token
    first where bodies may be large: a stranger's body is not read.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, refuse_stranger: Check
    ) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.refuse_stranger = refuse_stranger
        self.headers = {
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
            "Content-Security-Policy": content_policy(settings),
        }
        if settings.is_https:
            self.headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        body = _Capped(receive, self._most(scope))

        async def sending(message: Message) -> None:
            nonlocal status
            if body.is_over and not status:
                return  # whatever the app answers to half a body: it was too large
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(scope, message)
                self._count(scope, status, time.perf_counter() - began)
            await send(message)

        try:
            if self._is_bulk(scope) and (stranger := await self.refuse_stranger(Request(scope))):
                raise stranger
            declared = dict(scope["headers"]).get(b"content-length", b"0")
            if not declared.isdigit() or int(declared) > body.most:
                raise TooLarge
            await self.app(scope, body.receive, sending)
            if body.is_over and not status:
                raise TooLarge
        except Exception as error:
            problem = _too_large(body.most) if body.is_over else _problem_of(error, body.most)
            body.is_over = False
            if not status:  # a response that has begun cannot be taken back
                await problem_response(problem)(scope, receive, sending)

    def _is_bulk(self, scope: Scope) -> bool:
        ends = ("/tasks", "/answers", "/gold", "/webhook", "/predict")
        return scope["method"] not in SAFE and str(scope["path"]).endswith(ends)

    def _most(self, scope: Scope) -> int:
        return self.settings.bulk_most if self._is_bulk(scope) else self.settings.body_most

    def _add_headers(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in self.headers.items():
            headers.setdefault(name, value)
        frames = scope.get(FRAMES, ())
        if frames:
            headers["Content-Security-Policy"] = content_policy(self.settings, frames)
        else:
            headers["X-Frame-Options"] = "DENY"
        headers.setdefault("Cache-Control", "no-store")

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "none"
        self.metrics.requests.labels(route, _method(scope["method"]), status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        level = logging.ERROR if status >= 500 and status != 503 else logging.INFO
        if is_logged(level):
            ms = round(1000 * seconds, 1)
            log(
                "request", level, route=route, method=_method(scope["method"]), status=status, ms=ms
            )


def _too_large(most: int) -> Problem:
    return Problem(413, "too_large", f"the body is over {most} bytes; send it in parts")


def _problem_of(error: Exception, most: int) -> Problem:
    """Return what went wrong; errors of the server or the database are logged."""
    if isinstance(error, TooLarge):
        return _too_large(most)
    if isinstance(error, Problem):
        return error
    if is_outage(error):
        log("the database does not answer", logging.ERROR, reason=outage_of(error))
        detail = "the database does not answer; try again in a moment"
        return Problem(503, "storage", detail)
    log("request failed", logging.ERROR, error)
    detail = "the server failed on this request and stored nothing; see its log"
    return Problem(500, "server_error", detail)


def _method(method: str) -> str:
    """Anyone may send any word as a method: unknown ones must not fill the metrics."""
    known = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
    return method if method in known else "other"


class _Capped:
    """A body up to its cap, also where its length was not declared."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self.most = receive, most
        self._taken = 0
        self.is_over = False

    async def receive(self) -> Message:
        """Receive a part."""
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self.most:
            self.is_over = True
            raise TooLarge
        return message
