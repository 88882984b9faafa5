"""Logs: one JSON object a line, with routes and counts, without values and without ids of people.

A path carries tokens and names, so that only its pattern (``/offers/{id}/answer``) is logged. The
message of an exception may quote an answer: only its type and where it was raised are.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import TextIO

NAME = "voxpop.serve"


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record without the message of an exception."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "at": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage() if record.name.startswith("voxpop") else record.name,
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = type(record.exc_info[1]).__name__
            frames = traceback.extract_tb(record.exc_info[2])[-6:]
            line["where"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return json.dumps(line)


def start_logging(stream: TextIO | None = None, *, level: int = logging.WARNING) -> logging.Handler:
    """Log to a stream what is of a level or above it; return the handler.

    Every request and every fit is ``INFO``.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(NAME)
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    # The command reports the start itself; errors of uvicorn are logged.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi"):
        other = logging.getLogger(name)
        other.handlers[:] = [handler] if name == "uvicorn" else []
        other.setLevel(logging.ERROR)
        other.propagate = name != "uvicorn"
    return handler


def is_logged(level: int) -> bool:
    """Whether what is of this level is logged at all."""
    return logging.getLogger(NAME).isEnabledFor(level)


def log(
    event: str, level: int = logging.INFO, error: BaseException | None = None, **fields: object
) -> None:
    """Log an event with its numbers, and the type and place of an error."""
    logging.getLogger(NAME).log(level, event, exc_info=error, extra={"fields": fields})
