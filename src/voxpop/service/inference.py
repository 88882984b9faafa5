"""Inference: the process that follows the database, learns the noise, and publishes what it knows.

It reads answers and writes nothing but what is published, so it may be killed at any time: the next
one reads the answers anew. On PostgreSQL several may run; one leads, the others stand by.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from voxpop.errors import VoxpopError
from voxpop.service.database import Database, Lock, outage_of
from voxpop.service.followed import Followed, open_campaigns
from voxpop.service.learning import Learned, Learner
from voxpop.service.logs import log, start_logging
from voxpop.service.published import Published
from voxpop.service.publishing import (
    estimates_bytes,
    known,
    make_board,
    summary_bytes,
    workers_bytes,
)

# Seconds between two looks at the database, between two tries to lead, and after an error.
_LOOK, _STAND_BY, _AFTER_ERROR = 0.1, 1.0, 2.0
# Minimum seconds between two boards; more where one takes long: a tenth of the time.
_PUBLISH, _SHARE = 1.0, 0.1
# A board comes sooner if this share of the tasks has new answers.
_TENTH = 0.1
# Maximum time that learning may take.
_LEARNING = 0.3


class Inference:
    """All campaigns of a database, followed by the process that leads."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database, self._published, self._clock = database, Published(database), clock
        self._followed: dict[int, Followed] = {}
        self._due: dict[int, float] = {}
        self._n_published: dict[int, int] = {}
        self._broken: dict[int, int] = {}
        self._learner = Learner()
        self._learning: int | None = None
        self._rest_until = 0.0

    def step(self) -> bool:
        """Catch up, publish what is due, begin or end a fit; return whether anything happened."""
        busy = False
        with self._database.connect() as connection:
            for number, seq in open_campaigns(connection).items():
                busy |= self._catch_up(connection, number, seq)
        for number in list(self._followed):
            busy |= self._publish(number)
        return self._learn() or busy

    def _catch_up(self, connection: Any, number: int, seq: int) -> bool:
        followed = self._followed.get(number)
        if self._broken.get(number) == seq:
            return False
        try:
            if followed is None:
                self._followed[number] = Followed(connection, number)
                return True
            return followed.seq < seq and followed.follow(connection)
        except VoxpopError as error:
            # Its other campaigns go on; this one is read anew when something has changed.
            log("campaign not followed", logging.ERROR, error, campaign=number)
            self._broken[number] = seq
            self._followed.pop(number, None)
            return False

    def _publish(self, number: int, force: bool = False) -> bool:
        """Publish a campaign if something is new and it is time."""
        followed, now = self._followed[number], time.monotonic()
        if self._n_published.get(number) == followed.seq and not force:
            return False
        behind = followed.seq - self._n_published.get(number, -1)
        soon = behind >= max(1.0, _TENTH * followed.n_real_tasks)
        due = self._due.get(number, 0.0)
        if not force and now < (min(due, self._due.get(-number, 0.0)) if soon else due):
            return False
        start = time.process_time()
        board = make_board(followed)
        self._published.write(number, "board", followed.seq, board.to_bytes())
        self._due[-number] = now + _PUBLISH
        found = known(followed)
        self._published.write(number, "estimates", followed.seq, estimates_bytes(followed, found))
        self._published.write(number, "workers", followed.seq, workers_bytes(followed))
        summary = summary_bytes(followed, board, found, self._clock())
        self._published.write(number, "summary", followed.seq, summary)
        cost = time.process_time() - start
        self._due[number] = now + max(_PUBLISH, cost / _SHARE)
        self._n_published[number] = followed.seq
        return True

    def _learn(self) -> bool:
        """Take over what was learned, or begin to learn what is due."""
        if self._learner.busy:
            found = self._learner.result()
            if found is None:
                return False
            self._take_over(found)
            return True
        if time.monotonic() < self._rest_until:
            return False
        wanting = [n for n, followed in self._followed.items() if followed.wants_to_learn]
        if not wanting:
            return False
        # The one that has waited for most answers first.
        self._learning = max(wanting, key=lambda n: self._followed[n].n_changed)
        self._began = time.monotonic()
        self._learner.start(self._followed[self._learning].job())
        return True

    def _take_over(self, found: Learned | str) -> None:
        took = time.monotonic() - self._began
        self._rest_until = time.monotonic() + took * (1.0 - _LEARNING) / _LEARNING
        number = self._learning
        assert number is not None
        if number not in self._followed:
            return
        if isinstance(found, str):
            log("not learned", logging.WARNING, campaign=number, reason=found)
            self._followed[number].failed = True
            self._publish(number, force=True)
            return
        self._followed[number].take_over(found)
        self._publish(number, force=True)
        log("learned", campaign=number, seconds=round(took, 2))

    def close(self) -> None:
        """End a fit that is under way."""
        self._learner.stop()


def run_inference(url: str, stop: threading.Event) -> None:
    """Follow a database until ``stop`` is set.

    Errors of the database are waited out: the next reading starts again from its contents.
    """
    while not stop.is_set():
        try:
            with Database.open(url) as database:
                _lead(database, stop)
        except (SQLAlchemyError, VoxpopError, OSError) as error:
            log("the database cannot be followed", logging.WARNING, reason=outage_of(error))
            stop.wait(_AFTER_ERROR)


def _lead(database: Database, stop: threading.Event) -> None:
    """Wait to lead, then follow the database as long as the lock is held."""
    lock: Lock | None = None
    while lock is None and not stop.is_set():
        lock = database.lead()
        if lock is None:
            stop.wait(_STAND_BY)
    if lock is None:
        return
    inference = Inference(database)
    try:
        with lock:
            looked = time.monotonic()
            while not stop.is_set():
                if time.monotonic() - looked > _STAND_BY:
                    looked = time.monotonic()
                    if not lock.held():
                        return
                if not inference.step():
                    stop.wait(_LOOK)
    finally:
        inference.close()


def main(arguments: list[str]) -> int:
    """Run as ``python -m voxpop.service.inference URL``; ends with its standard input."""
    start_logging(level=logging.INFO)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    def watch() -> None:
        # Standard input ends when the parent does, however it ends. Not through sys.stdin: its lock
        # would be held when this process ends.
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    run_inference(arguments[0], stop)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
