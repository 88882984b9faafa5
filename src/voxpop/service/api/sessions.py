"""Sessions: an owner who followed the owner link stays logged in by a signed cookie.

The cookie names the token's hash, so that a revoked token ends its sessions. A page sends the
session's CSRF token back in a header with everything that changes something.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from fastapi.responses import Response
from itsdangerous import BadData, URLSafeTimedSerializer

from voxpop.service.api.settings import Settings

HEADER = "X-CSRF-Token"


@dataclass(frozen=True)
class Session:
    """A logged-in owner: the hash of the token, and what the pages send back."""

    token_hash: str
    csrf: str


class Sessions:
    """Makes and reads the cookies of owners."""

    def __init__(self, secret: bytes, settings: Settings) -> None:
        self._secret, self._settings = secret, settings
        self._signer = URLSafeTimedSerializer(secret, salt="voxpop owner session")
        # Cookies ignore ports: two services on one machine must not log each other out.
        mark = hashlib.sha256(secret).hexdigest()[:8]
        self.cookie = f"{'__Host-' if settings.is_https else ''}voxpop_{mark}"

    def start(self, response: Response, token_hash: str) -> None:
        """Log the owner of a token in."""
        response.set_cookie(
            self.cookie,
            self._signer.dumps([token_hash, secrets.token_urlsafe(12)]),
            max_age=self._seconds,
            httponly=True,
            samesite="strict",
            secure=self._settings.is_https,
            path="/",
        )

    def end(self, response: Response) -> None:
        """Log out."""
        response.delete_cookie(
            self.cookie, httponly=True, samesite="strict", secure=self._settings.is_https, path="/"
        )

    def read(self, cookie: str | None) -> Session | None:
        """Read a cookie; None where it is missing, altered or too old."""
        try:
            token_hash, nonce = self._signer.loads(cookie or "", max_age=self._seconds)
        except (BadData, ValueError, TypeError):
            return None
        digest = hmac.new(self._secret, f"csrf {nonce}".encode(), hashlib.sha256)
        return Session(str(token_hash), digest.hexdigest())

    @property
    def _seconds(self) -> int:
        return self._settings.session_days * 86_400
