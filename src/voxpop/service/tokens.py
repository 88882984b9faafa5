"""Tokens: secrets that give access, shown once and kept only as their hash.

A token is 192 random bits, so a plain SHA-256 of it cannot be searched: slow hashes are for
passwords that people choose. What a token opens is its row in the database: its scope, and the
campaign, worker and visit that it is for.
"""

from __future__ import annotations

import hashlib
import secrets

PREFIX = {"owner": "vpo", "campaign_link": "vpl", "worker": "vpw", "label_studio": "vps"}
"""What a token of a scope begins with, so that a leaked one is found by a search for it."""

LONGEST = 200
"""No token is longer: what is, is not looked up."""


def new_token(scope: str) -> str:
    """Make a token of a scope."""
    return f"{PREFIX[scope]}_{secrets.token_urlsafe(24)}"


def hash_token(token: str) -> str:
    """Return the hash under which a token is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
