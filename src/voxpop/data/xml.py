"""XML, read safely: no document types, no deep nesting, no odd encodings.

No export has a document type, and entities are how XML does harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO
from xml.parsers import expat

from voxpop.errors import DataError, VoxpopError

_CHUNK = 1 << 20
_DEEPEST = 50


def parse_xml(
    file: IO[bytes],
    where: object,
    start: Callable[[str, dict[str, str]], object],
    end: Callable[[str], object],
    text: Callable[[str], object],
) -> Iterator[None]:
    """Call back for every element and text; yield after every megabyte of the file.

    Names come without the prefix of their namespace.
    """
    depth = 0

    def opened(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise DataError(f"{where}: is nested too deeply to be an export")
        start(name.rpartition(":")[2], attributes)

    def closed(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name.rpartition(":")[2])

    def doctype(*_: object) -> None:
        raise DataError(f"{where}: declares a document type, which no export does")

    parser = expat.ParserCreate()
    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    parser.buffer_text = True
    try:
        while block := file.read(_CHUNK):
            parser.Parse(block, False)
            yield
        parser.Parse(b"", True)
        yield
    except VoxpopError:
        raise
    except expat.ExpatError as error:
        raise DataError(f"{where}: is not well-formed XML: {error}") from None
    except (ValueError, LookupError):
        # Raised by Python's decoders for an encoding that expat asks them for.
        raise DataError(f"{where}: is in an unknown encoding; save it as UTF-8") from None
