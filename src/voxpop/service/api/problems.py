"""Problems: every error over HTTP is problem+json (RFC 9457), one clear line of detail in each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from voxpop.errors import VoxpopError
from voxpop.service.commands import Refused

MEDIA_TYPE = "application/problem+json"
_LONGEST = 500
_WORDS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed"}


class ProblemBody(BaseModel):
    """What went wrong, in one line for people and one word for programs."""

    type: str = Field(examples=["urn:voxpop:bad_value"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["value must be from 0 to 120, got 400"])
    reason: str = Field(examples=["bad_value"])


class Problem(Refused):
    """A request that is refused, with headers for the response."""

    def __init__(
        self, status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, reason, detail)
        self.headers = dict(headers or {})


def problem_response(refused: Refused) -> Response:
    """Say why a request is refused, and when to try again if it was too early."""
    body = {
        "type": f"urn:voxpop:{refused.reason}",
        "title": HTTPStatus(refused.status).phrase,
        "status": refused.status,
        "detail": one_line(refused.detail),
        "reason": refused.reason,
    }
    headers = {"Retry-After": "1"} if refused.status == 503 else {}
    if isinstance(refused, Problem):
        headers |= refused.headers
    return Response(json.dumps(body), refused.status, headers, MEDIA_TYPE)


def one_line(text: str) -> str:
    """Shorten a text to one line for logs and pages."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def describe(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe problems in the OpenAPI document: the errors that an endpoint may return."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Answer every error of an app with a problem, and describe what one looks like."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["ProblemBody"] = ProblemBody.model_json_schema()
        return document

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_exception_handler(Refused, _on_refused)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(VoxpopError, _on_bad_value)


async def _on_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return problem_response(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem_response(Refused(422, "bad_request", _first(error.errors())))


def _first(errors: Sequence[Any]) -> str:
    """Return where the first mistake is and what was expected, without repeating the input."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where}: {first['msg']}{more}"


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = {
        404: f"there is nothing at {request.url.path[:100]}; see /api/v1/openapi.json",
        405: f"{request.method} is not possible here; see /api/v1/openapi.json",
    }.get(error.status_code, str(error.detail))
    reason = _WORDS.get(error.status_code, "bad_request")
    return problem_response(Problem(error.status_code, reason, detail, error.headers))


async def _on_bad_value(_: Request, error: Exception) -> Response:
    return problem_response(Refused(422, "bad_request", str(error)))
