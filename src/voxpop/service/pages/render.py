"""Rendering: templates with their words, and the scripts and styles that they load."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

LANGUAGES = ("en", "de", "es", "fr", "pt")

# What the dashboard shares with the report, so that both look the same.
_SHARED = ("draw.js", "listing.js", "details.js", "page.css")
_TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file for the browser, and a tag that changes with its content."""

    body: bytes
    media_type: str
    etag: str


@cache
def asset(path: str) -> Asset | None:
    """Return a script, style or picture of the pages by its path below ``/static/``, or None.

    Paths below ``report/`` are files of the report.
    """
    folder, _, name = path.rpartition("/")
    kind = _TYPES.get(name.rpartition(".")[2])
    if kind is None:
        return None
    if folder == "report":
        place = files("voxpop.present.report") if name in _SHARED else None
    elif folder in ("", "kinds"):
        place = files("voxpop.service.pages").joinpath("static", folder)
    else:
        place = None
    if place is None or not (file := place.joinpath(name)).is_file():
        return None
    body = file.read_bytes()
    return Asset(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')


@cache
def words(language: str) -> dict[str, str]:
    """Return the words of the worker page in a language; in English where it is not known."""
    name = language if language in LANGUAGES else "en"
    text = files("voxpop.service.pages").joinpath("words", f"{name}.json").read_text("utf-8")
    table: dict[str, str] = json.loads(text)
    return table


@cache
def _environment() -> Environment:
    # A name that a template expects and does not get is a mistake, not an empty text.
    return Environment(
        loader=PackageLoader("voxpop.service.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(name: str, *, language: str = "en", **context: object) -> str:
    """Render a page by the name of its template.

    ``worker`` takes ``slug``; ``dashboard`` takes ``csrf`` and ``slug``; ``campaigns`` and ``new``
    take ``csrf``; ``login`` and ``welcome`` take nothing; ``problem`` takes ``title`` and
    ``detail``.
    """
    table = words(language)
    template = _environment().get_template(f"{name}.html")
    return template.render(words=table, language=table["language"], **context)
