"""Writer: one thread that carries out commands in batches; what it acknowledges is on the disk."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from statistics import median
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import DataError, SQLAlchemyError

from voxpop.errors import ConfigError
from voxpop.service import commands as c
from voxpop.service.database import Database, is_outage, outage_of
from voxpop.service.decide import decide
from voxpop.service.facts import read_facts
from voxpop.service.logs import log
from voxpop.service.rows import Facts
from voxpop.service.schema import IS_OPEN, answer, offer
from voxpop.service.statements import Statements
from voxpop.service.store import write

_Job = tuple[c.Command, "Future[c.Reply]"]
# Seconds between two searches for offers whose time is up.
_SWEEP_EVERY = 5.0
# The median lead time is read again after this many seconds.
_LEADS_EVERY = 30.0
_LEADS = 101
_FEWEST_LEADS = 5
_MOST_CONTENTS = 20_000


class Writer:
    """Takes commands from any thread; a future is done only after its commit.

    All commands that wait are carried out together: their facts are read, ``decide`` says what
    changes, the changes are written and committed once. While one batch is being committed the
    next one gathers.

    Parameters
    ----------
    database
        Where everything is.
    clock
        Says what time it is, in seconds since 1970.
    capacity
        With this many commands waiting, further ones are refused as busy.
    batch
        Commands in one transaction, at most.
    """

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        capacity: int = 5_000,
        batch: int = 256,
    ) -> None:
        self.database = database
        self.clock = clock
        self.batch = batch
        self._queue: queue.Queue[_Job | None] = queue.Queue(capacity)
        self._statements = Statements(database.dialect)
        self._contents: dict[int, dict[str, Any]] = {}
        self._leads: dict[int, tuple[float, float | None]] = {}
        self._swept = float("-inf")
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self) -> Writer:
        """Start the thread."""
        if self._thread is not None:
            raise ConfigError("this writer has been started already")
        self._thread = threading.Thread(target=self._run, name="voxpop-writer", daemon=True)
        self._thread.start()
        return self

    def stop(self, timeout: float = 30.0) -> None:
        """Carry out the waiting commands, then end the thread; later ones are refused."""
        self._stopping = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout)
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return
            if job is not None and job[1].set_running_or_notify_cancel():
                job[1].set_exception(_stopped())

    @property
    def waiting(self) -> int:
        """Commands in the queue."""
        return self._queue.qsize()

    @property
    def alive(self) -> bool:
        """Whether commands are being carried out."""
        return self._thread is not None and self._thread.is_alive() and not self._stopping

    def submit(self, command: c.Command) -> Future[c.Reply]:
        """Queue a command; its future holds the reply, or raises ``Refused``."""
        future: Future[c.Reply] = Future()
        try:
            if self._stopping:
                raise _stopped()
            self._queue.put_nowait((command, future))
        except c.Refused as refused:
            future.set_exception(refused)
        except queue.Full:
            line = "too many commands are waiting; try again in a moment"
            future.set_exception(c.Refused(503, "busy", line))
        return future

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        going = True
        while going:
            jobs, going = self._gather()
            jobs = [job for job in jobs if job[1].set_running_or_notify_cancel()]
            if jobs:
                self._carry_out(jobs)
            if going and time.monotonic() - self._swept > _SWEEP_EVERY:
                self._swept = time.monotonic()
                self._sweep()

    def _gather(self) -> tuple[list[_Job], bool]:
        """Wait for a command, and take all that are there with it."""
        jobs: list[_Job] = []
        try:
            job = self._queue.get(timeout=_SWEEP_EVERY)
            while job is not None:
                jobs.append(job)
                if len(jobs) >= self.batch:
                    return jobs, True
                job = self._queue.get_nowait()
            return jobs, False
        except queue.Empty:
            return jobs, True

    def _carry_out(self, jobs: list[_Job]) -> None:
        try:
            replies = self.transact([command for command, _ in jobs])
        except Exception as error:
            if len(jobs) > 1 and not is_outage(error):
                # One command broke the batch: each for itself, the others are not to blame.
                for job in jobs:
                    self._carry_out([job])
                return
            refused = _failure(error)
            replies = [refused] * len(jobs)
        for (_, future), reply in zip(jobs, replies, strict=True):
            if isinstance(reply, c.Refused):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    def transact(self, commands: Sequence[c.Command]) -> list[c.Reply | c.Refused]:
        """Carry out commands in one transaction of the calling thread, and reply to each."""
        with self.database.begin() as connection:
            facts = read_facts(connection, self._statements, commands, self.clock)
            self._add_leads(connection, facts, facts.now)
            book, replies = decide(facts, commands, facts.now)
            self._add_contents(connection, replies)
            write(connection, book)
        return replies

    def _add_leads(self, connection: Any, facts: Facts, now: float) -> None:
        for number, row in facts.campaigns.items():
            if row.rules.lease_seconds is not None:
                continue
            read_at, lead = self._leads.get(number, (float("-inf"), None))
            if abs(now - read_at) > _LEADS_EVERY:
                found = connection.execute(
                    select(answer.c.lead_ms)
                    .where(answer.c.campaign == number, answer.c.lead_ms.is_not(None))
                    .order_by(answer.c.at.desc())
                    .limit(_LEADS)
                ).scalars().all()  # fmt: skip
                lead = float(median(found)) if len(found) >= _FEWEST_LEADS else None
                self._leads[number] = (now, lead)
            facts.lead_ms[number] = lead

    def _add_contents(self, connection: Any, replies: list[c.Reply | c.Refused]) -> None:
        """Put into the replies what the offered tasks show, which ``decide`` need not know."""
        offered = [(i, r) for i, r in enumerate(replies) if isinstance(r, c.Offered)]
        missing = {r.task for _, r in offered} - self._contents.keys()
        if len(self._contents) + len(missing) > _MOST_CONTENTS:
            self._contents.clear()
            missing = {r.task for _, r in offered}
        if missing:
            rows = self._statements.rows(connection, "contents of tasks", missing)
            self._contents.update((number, content) for number, content in rows)
        for i, reply in offered:
            # A task that came in this very batch is not in the table yet.
            content = self._contents.get(reply.task, reply.content)
            replies[i] = replace(reply, content=content)

    def _sweep(self) -> None:
        """Take back offers whose time is up."""
        try:
            with self.database.connect() as connection:
                due = connection.execute(
                    select(offer.c.campaign)
                    .where(IS_OPEN, offer.c.expires <= self.clock())
                    .distinct()
                ).scalars().all()  # fmt: skip
            for number in due:
                self.transact([c.Expire(campaign=number)])
        except SQLAlchemyError as error:
            log("offers not looked through", logging.WARNING, reason=outage_of(error))


def _stopped() -> c.Refused:
    return c.Refused(503, "stopping", "the service is stopping; try again in a moment")


def _failure(error: Exception) -> c.Refused:
    """The reply when the outcome is uncertain; the command may be given again."""
    if is_outage(error):
        log("the database did not accept a batch", logging.ERROR, reason=outage_of(error))
        return c.Refused(503, "storage", "the database did not accept it; try again in a moment")
    if isinstance(getattr(error, "orig", None) or error, UnicodeError) or isinstance(
        error, DataError
    ):
        line = "a text or a number is not one that the database can store"
        return c.Refused(422, "bad_value", line)
    log("a command failed", logging.ERROR, error)
    return c.Refused(500, "internal", "this command failed and changed nothing; see the log")
