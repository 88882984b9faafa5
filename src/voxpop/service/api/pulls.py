"""Pulls: where Label Studio's projects are, in memory only, and their exports as JSON."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from voxpop.errors import DataError

_MOST_EXPORT = 500 * 1024 * 1024
_TIMEOUT = 60.0


@dataclass(frozen=True)
class Reached:
    """How to reach a project; its API token opens all of Label Studio and is never stored."""

    url: str
    api_token: str = field(repr=False)
    project: str


@dataclass
class Pulls:
    """The projects that ``setup`` told about, when each was pulled, and pulls under way."""

    known: dict[int, Reached] = field(default_factory=dict)
    at: dict[int, float] = field(default_factory=dict)
    running: set[asyncio.Task[Any]] = field(default_factory=set)


class _NoRedirects(HTTPRedirectHandler):
    """The API token goes to the address that was given, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def export_of(reached: Reached) -> object:
    """Read a project's export: all tasks with their annotations."""
    if urlsplit(reached.url).scheme not in ("http", "https"):
        raise DataError("the address of Label Studio must begin with http:// or https://")
    query = "exportType=JSON&download_all_tasks=true"
    url = f"{reached.url.rstrip('/')}/api/projects/{reached.project}/export?{query}"
    try:
        asks = Request(url)
        asks.add_unredirected_header("Authorization", f"Token {reached.api_token}")
        with build_opener(_NoRedirects).open(asks, timeout=_TIMEOUT) as reply:
            return json.loads(reply.read(_MOST_EXPORT))
    except HTTPError as error:
        error.close()
        reason = f"it answered {error.code}"
    except (URLError, OSError, ValueError, RecursionError):
        reason = "no export came"
    raise DataError(f"Label Studio cannot be pulled: {reason}; check url and token")
