"""Pulls: where Label Studio's projects are, in memory only, and their exports as JSON."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

from voxpop.errors import DataError
from voxpop.service.wire import NoRedirects

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
    """The projects reported by ``setup``, when each was pulled, and pulls under way."""

    known: dict[int, Reached] = field(default_factory=dict)
    at: dict[int, float] = field(default_factory=dict)
    running: set[asyncio.Task[Any]] = field(default_factory=set)


def check_address(url: str) -> None:
    """Refuse what is no plain address of a Label Studio, before anything is asked for there.

    It comes from whoever has the campaign's link, and the service may stand where others cannot
    reach: a query or fragment would choose what is read, and link-local addresses are those at
    which clouds hand out the keys of a machine. Private networks are where Label Studio often is.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise DataError("the address of Label Studio must be like https://studio.example.org")
    if "?" in url or "#" in url or "@" in parts.netloc:
        raise DataError("the address of Label Studio must have no user, query or fragment")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise DataError("Label Studio cannot be pulled: its address is unknown") from None
    for _, _, _, _, (address, *_) in found:
        one = ipaddress.ip_address(str(address).partition("%")[0])
        one = getattr(one, "ipv4_mapped", None) or one
        if one.is_link_local or one.is_multicast:
            raise DataError("the address of Label Studio must not be link-local or multicast")


def export_of(reached: Reached) -> object:
    """Read a project's export: all tasks with their annotations."""
    check_address(reached.url)
    query = "exportType=JSON&download_all_tasks=true"
    url = f"{reached.url.rstrip('/')}/api/projects/{reached.project}/export?{query}"
    try:
        asks = Request(url)
        asks.add_unredirected_header("Authorization", f"Token {reached.api_token}")
        with build_opener(NoRedirects).open(asks, timeout=_TIMEOUT) as reply:
            return json.loads(reply.read(_MOST_EXPORT))
    except HTTPError as error:
        error.close()
        reason = f"it answered {error.code}"
    except (URLError, OSError, ValueError, RecursionError):
        reason = "no export came"
    raise DataError(f"Label Studio cannot be pulled: {reason}; check url and token")
