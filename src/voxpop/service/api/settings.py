"""Settings of the web process: addresses, limits and intervals, with defaults that are safe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from limits import parse

from voxpop.errors import ConfigError, require

_VARIABLE = "VOXPOP_SERVE_"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of the operator; each can also be set by a variable ``VOXPOP_SERVE_NAME``.

    Parameters
    ----------
    public_url
        The address under which people reach the service, as in links that it makes.
    images
        A folder whose images tasks may name by a relative path.
    token_limit, address_limit, enter_limit
        Maximum requests per token, failed requests per address, and arrivals per address.
    body_most, bulk_most
        Bytes of a request: of any, and of one that adds tasks.
    live_every, live_seconds, live_most
        Seconds between two looks at the summary, and how long one connection lives (the browser
        opens the next one by itself); most connections at a time.
    board_every
        Seconds between two looks for a new board.
    late_after
        Seconds without a new board, despite new answers, after which inference is late.
    session_days
        How long an owner stays logged in.
    """

    public_url: str = "http://127.0.0.1:8000"
    images: Path | None = None
    token_limit: str = "1200/minute"
    address_limit: str = "120/minute"
    enter_limit: str = "600/minute"
    body_most: int = 256 * 1024
    bulk_most: int = 16 * 1024 * 1024
    live_every: float = 1.0
    live_seconds: float = 900.0
    live_most: int = 500
    board_every: float = 0.5
    late_after: float = 60.0
    session_days: int = 30

    def __post_init__(self) -> None:
        parts = urlsplit(self.public_url)
        require(
            parts.scheme in ("http", "https") and bool(parts.netloc) and not parts.query,
            f"public_url must be like https://ask.example.org, got {self.public_url!r}",
        )
        for name in ("token_limit", "address_limit", "enter_limit"):
            text = getattr(self, name)
            try:
                parse(text)
            except ValueError:
                raise ConfigError(f"{name} must be like 600/minute, got {text!r}") from None

    @property
    def is_https(self) -> bool:
        """Whether people reach the service over TLS."""
        return self.public_url.startswith("https:")

    def url(self, path: str) -> str:
        """Return a path as people reach it."""
        return self.public_url.rstrip("/") + path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings in the variables; the others keep their defaults."""
        given: dict[str, object] = {}
        for field in fields(cls):
            text = environment.get(_VARIABLE + field.name.upper())
            if text is None:
                continue
            kind: type = Path if field.name == "images" else type(field.default)
            try:
                given[field.name] = kind(text)
            except ValueError:
                raise ConfigError(
                    f"{_VARIABLE}{field.name.upper()} must be a number, got {text!r}"
                ) from None
        return replace(cls(), **given)  # type: ignore[arg-type]
