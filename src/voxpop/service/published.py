"""Published: the output of inference for the web processes, always whole and always replaceable.

Beside a SQLite file it is a folder of files renamed into place; on PostgreSQL it is a table. All of
it can be computed again from the answers: losing it costs time, nothing else.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import insert, select, update

from voxpop.errors import require
from voxpop.service.database import Database
from voxpop.service.schema import published

_KIND = re.compile(r"[a-z][a-z_]*")


def finite(number: float | None) -> float | None:
    """JSON has no infinity: unknown numbers are null."""
    return float(number) if number is not None and math.isfinite(number) else None


class Block(NamedTuple):
    """Bytes that were published, the number of the event they are as of, and their edition."""

    edition: int
    seq: int
    content: bytes


class Published:
    """Blocks of bytes by campaign and kind.

    Every block that is written has another edition than the one before it, also where no event
    came between them, as when the noise has been learned again from the same answers.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._folder: Path | None = None
        if database.path is not None:
            self._folder = database.path.with_name(f"{database.path.name}.published")

    def write(self, campaign: int, kind: str, seq: int, content: bytes) -> None:
        """Put a block in place of the one before it."""
        require(bool(_KIND.fullmatch(kind)), f"kind must be lower-case letters, not {kind!r}")
        # Only the process that leads inference writes here.
        if self._folder is None:
            self._write_row(campaign, kind, seq, content)
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)  # as the database: for its owner alone
        before = self._read_file(campaign, kind)
        edition = 1 if before is None else before.edition + 1
        # Readers never see half of it; a crash leaves the old one. It is not worth an fsync.
        new = self._folder / f".{campaign}.{kind}.{os.getpid()}"
        new.write_bytes(b"%d %d\n%b" % (edition, seq, content))
        new.replace(self._folder / f"{campaign}.{kind}")

    def _write_row(self, campaign: int, kind: str, seq: int, content: bytes) -> None:
        there = (published.c.campaign == campaign) & (published.c.kind == kind)
        new = {"seq": seq, "content": content}
        again = update(published).where(there).values(**new, edition=published.c.edition + 1)
        with self._database.begin() as connection:
            if not connection.execute(again).rowcount:
                row = {"campaign": campaign, "kind": kind, **new}
                connection.execute(insert(published).values(row))

    def read(self, campaign: int, kind: str, other_than: int | None = None) -> Block | None:
        """Return the newest block; None if there is none, or it has the edition that is known.

        Editions begin anew where a folder was lost: one that differs is new, not one that is
        larger.
        """
        if self._folder is not None:
            return self._read_file(campaign, kind, other_than)
        query = select(published.c.edition, published.c.seq, published.c.content).where(
            published.c.campaign == campaign, published.c.kind == kind
        )
        if other_than is not None:
            query = query.where(published.c.edition != other_than)
        with self._database.connect() as connection:
            found = connection.execute(query).first()
        return None if found is None else Block(found.edition, found.seq, bytes(found.content))

    def _read_file(self, campaign: int, kind: str, known: int | None = None) -> Block | None:
        assert self._folder is not None
        try:
            with (self._folder / f"{campaign}.{kind}").open("rb") as file:
                numbers = file.readline(64).split()
                # A block torn by a lost disk cache, or of an earlier voxpop, reads as none, and is
                # soon replaced.
                if len(numbers) != 2 or not all(one.isdigit() for one in numbers):
                    return None
                edition, seq = map(int, numbers)
                return None if edition == known else Block(edition, seq, file.read())
        except FileNotFoundError:
            return None
