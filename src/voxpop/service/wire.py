"""Wire: requests to a service with the owner's token, by the standard library alone."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener

from voxpop.errors import ConfigError, DataError

_PAGE = 1000
_TRIES = 5
_LONGEST_WAIT = 30.0
_HERE = ("127.0.0.1", "localhost", "::1")


class Wire:
    """Requests to one service; lost or premature requests are sent again where that is safe."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        self.url, self.token, self.timeout = url, token, timeout
        self._opener = _opener(urlsplit(url).hostname or "")

    def rows(self, path: str) -> Iterator[Any]:
        """Read a list page after page."""
        joint, cursor = "&" if "?" in path else "?", None
        while True:
            query = {"limit": _PAGE} | ({"cursor": cursor} if cursor else {})
            page = self.send("GET", f"{path}{joint}{urlencode(query)}")
            yield from page["rows"]
            cursor = page["next"]
            if cursor is None:
                return

    def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send a request and read the JSON of the response."""
        content = self.read(method, path, body, headers)
        try:
            return json.loads(content)
        except ValueError:
            raise DataError(f"{self.url}: sent no JSON; is this a voxpop service?") from None

    def read(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request, again where the service was busy or the connection was lost."""
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        request = Request(f"{self.url}/api/v1/{path}", content, method=method)
        known = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        for name, value in {**known, **(headers or {})}.items():
            request.add_unredirected_header(name, value)
        # Requests that would act twice are not sent again blindly.
        is_safe = method == "GET" or "Idempotency-Key" in (headers or {}) or "/answers" in path
        for left in range(_TRIES - 1, -1, -1):
            try:
                with self._opener.open(request, timeout=self.timeout) as reply:
                    answer: bytes = reply.read()
                    return answer
            except HTTPError as error:
                with error:
                    wait = error.headers.get("Retry-After", "")
                    if error.code not in (429, 503) or not left:
                        raise DataError(_detail(error, self.url)) from None
                time.sleep(min(float(wait) if wait.isdigit() else 1.0, _LONGEST_WAIT))
            except (URLError, http.client.HTTPException, OSError) as error:
                reason = getattr(error, "reason", None) or error
                if not is_safe or not left:
                    raise ConfigError(f"{self.url}: cannot be reached: {reason}") from None
                time.sleep(0.2)
        raise AssertionError  # the last try returned or raised


class NoRedirects(HTTPRedirectHandler):
    """A token goes to the address that was given, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""


def _opener(host: str) -> OpenerDirector:
    proxies = [ProxyHandler({})] if host in _HERE else []
    return build_opener(*proxies, NoRedirects)


def _detail(error: HTTPError, url: str) -> str:
    """Read the one line that a problem holds."""
    try:
        found = str(json.loads(error.read(100_000))["detail"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"{url}: answered {error.code} {error.reason}; is this a voxpop service?"
    return found
