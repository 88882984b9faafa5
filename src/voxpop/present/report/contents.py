"""What tasks show: their pictures, small and inside the file; links and texts."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voxpop.data.answers import Answers
from voxpop.data.formats.base import PICTURES, is_picture
from voxpop.data.objects import parse_object_id

# Bytes of all pictures together; without Pillow to shrink it, of one picture.
_MOST_BYTES, _LARGEST = 1_000_000, 150_000
# Longer sides of pictures are shrunk to this many pixels, and longer texts cut.
_SIDE, _LONGEST = 560, 2000
_TYPES = {".jpg": "jpeg", ".svg": "svg+xml"}


@dataclass
class Contents:
    """What every task shown displays: a kind and a text, and the pictures by their names.

    Kinds are ``picture`` (inside the file), ``remote`` (a picture that is loaded when the reader
    asks for it), ``link`` and ``text``.
    """

    of_task: list[tuple[str, str] | None] = field(default_factory=list)
    pictures: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def sources(self) -> str:
        """Where pictures may come from, in the words of a content security policy."""
        allowed = ["data:"] * bool(self.pictures)
        remote = any(found is not None and found[0] == "remote" for found in self.of_task)
        return " ".join([*allowed, *(["https:", "http:"] if remote else [])])


def find_contents(
    answers: Answers, tasks: list[Any], first: list[int], folder: Path | None
) -> Contents:
    """Find what tasks show; pictures are looked for in ``folder``, those of ``first`` first."""
    texts = [_content(answers, task) for task in tasks]
    found = Contents([None] * len(tasks))
    room = _MOST_BYTES
    for i in [*first, *(k for k in range(len(tasks)) if k not in set(first))]:
        text = texts[i]
        if text is None:
            continue
        if text.startswith(("https://", "http://")):
            found.of_task[i] = ("remote" if is_picture(text) else "link", text)
        elif is_picture(text):
            if text not in found.pictures and folder is not None and room > 0:
                picture = _picture(text, folder, room)
                if picture is not None:
                    found.pictures[text] = picture
                    room -= len(picture["data"])
            if text in found.pictures:
                found.of_task[i] = ("picture", text)
        else:
            found.of_task[i] = ("text", text[:_LONGEST])
    return found


def _content(answers: Answers, task: Any) -> str | None:
    """Text or address of a task: from the export, or its id where that names a picture."""
    if task in answers.contents:
        return answers.contents[task]
    place = parse_object_id(str(task))
    image = str(task) if place is None else place.image
    known = answers.contents.get(image)
    if known is None and image.isdigit():
        known = answers.contents.get(int(image))
    return known or (image if is_picture(image) else None)


def _picture(name: str, folder: Path, room: int) -> dict[str, Any] | None:
    """Read a picture from the folder, shrunk where Pillow is installed."""
    inside = folder.resolve()
    for place in (inside / name, inside / Path(name).name):
        # A name in an export must not lead out of the folder.
        path = place.resolve()
        if path.is_file() and path.is_relative_to(inside) and path.suffix.lower() in PICTURES:
            return _shrunk(path, room) or _whole(path, room)
    return None


def _shrunk(path: Path, room: int) -> dict[str, Any] | None:
    """Return a picture as a small JPEG with its true size; None where that cannot be made."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        return None
    try:
        with Image.open(path) as opened:
            size = opened.size
            small = ImageOps.exif_transpose(opened).convert("RGB")
    except (OSError, ValueError):
        return None
    small.thumbnail((_SIDE, _SIDE))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=75)
    return _packed(out.getvalue(), "jpeg", room, size=list(size))


def _whole(path: Path, room: int) -> dict[str, Any] | None:
    if path.stat().st_size > _LARGEST:
        return None
    kind = _TYPES.get(path.suffix.lower(), path.suffix.lower()[1:])
    return _packed(path.read_bytes(), kind, room)


def _packed(content: bytes, kind: str, room: int, **more: Any) -> dict[str, Any] | None:
    data = f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return {"data": data, **more} if len(data) <= room else None
