"""Pictures of tasks: by URL as they are, by relative path from a folder, under signed addresses.

An ``<img>`` sends no token, so the address itself carries the right to see it: a signature of the
path. Only files that begin like a picture are sent, with the type shown by their first bytes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

_SIGNS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_MOST = 50 * 1024 * 1024


def sign(secret: bytes, path: str) -> str:
    """Sign a path below the folder of pictures."""
    return hmac.new(secret, f"picture {path}".encode(), hashlib.sha256).hexdigest()[:32]


def shown(secret: bytes, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's content as workers see it: relative paths of pictures become addresses."""
    found = dict(content)
    image = found.get("image")
    if isinstance(image, str) and image and not is_address(image):
        path = image.lstrip("/")
        found["image"] = f"/files/{sign(secret, path)}/{quote(path)}"
    return found


def is_address(image: str) -> bool:
    """Return whether this is an address rather than a path; ``data:`` is an address."""
    return image.startswith("data:image/") or urlsplit(image).scheme in ("http", "https")


def picture(folder: Path, path: str) -> tuple[bytes, str] | None:
    """Read a picture below a folder, and its type; None where it is none."""
    root = folder.resolve()
    try:
        file = (root / path).resolve()
        if not file.is_relative_to(root) or not file.is_file() or file.stat().st_size > _MOST:
            return None
        body = file.read_bytes()
    except (OSError, ValueError):
        return None
    media_type = media_type_of(body)
    return None if media_type is None else (body, media_type)


def media_type_of(body: bytes) -> str | None:
    """Return the type of a picture by its first bytes."""
    for sign_of, media_type in _SIGNS:
        if body.startswith(sign_of):
            return media_type
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return "image/webp"
    return None
