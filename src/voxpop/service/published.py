"""Published: what inference hands to the web processes, always whole and always replaceable.

Beside a SQLite file it is a folder of files renamed into place; on PostgreSQL it is a table. All of
it can be computed again from the answers: losing it costs time, nothing else.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sqlalchemy import delete, insert, select

from voxpop.errors import require
from voxpop.service.database import Database
from voxpop.service.schema import published

_KIND = re.compile(r"[a-z][a-z_]*")


class Published:
    """Blocks of bytes by campaign and kind, each with the number of the event it is as of."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._folder: Path | None = None
        if database.path is not None:
            self._folder = database.path.with_name(f"{database.path.name}.published")

    @classmethod
    def of(cls, database: Database) -> Published:
        """What is published beside a database, or in it."""
        return cls(database)

    def write(self, campaign: int, kind: str, seq: int, content: bytes) -> None:
        """Put a block in place of the one before it."""
        require(bool(_KIND.fullmatch(kind)), f"kind must be small letters, not {kind!r}")
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            # Readers never see half of it; a crash leaves the old one. It is not worth an fsync.
            new = self._folder / f".{campaign}.{kind}.{os.getpid()}"
            new.write_bytes(b"%d\n%b" % (seq, content))
            new.replace(self._folder / f"{campaign}.{kind}")
            return
        with self._database.begin() as connection:
            # Only the process that leads inference writes here.
            row = (published.c.campaign == campaign) & (published.c.kind == kind)
            connection.execute(delete(published).where(row))
            values = {"campaign": campaign, "kind": kind, "seq": seq, "content": content}
            connection.execute(insert(published).values(values))

    def read(self, campaign: int, kind: str, newer_than: int = -1) -> tuple[int, bytes] | None:
        """The newest block and its number; None if there is none that is newer."""
        if self._folder is not None:
            try:
                with (self._folder / f"{campaign}.{kind}").open("rb") as file:
                    # A block torn by a lost disk cache reads as none, and is soon replaced.
                    first = file.readline(32).strip()
                    seq = int(first) if first.isdigit() else -1
                    return (seq, file.read()) if seq > newer_than else None
            except FileNotFoundError:
                return None
        with self._database.connect() as connection:
            found = connection.execute(
                select(published.c.seq, published.c.content).where(
                    published.c.campaign == campaign,
                    published.c.kind == kind,
                    published.c.seq > newer_than,
                )
            ).first()
        return None if found is None else (found.seq, bytes(found.content))
