"""Boards in memory: the order of tasks that inference published, and who has had which task.

The database decides: an old board, or a worker's past that another web process knows better, costs
a second try, but breaks no rule.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool

from voxpop.collect.campaign.board import Board
from voxpop.service.commands import MarkDone, Refused
from voxpop.service.database import Database
from voxpop.service.logs import log
from voxpop.service.published import Published
from voxpop.service.schema import FREE, answer, campaign, event, offer
from voxpop.service.writer import Writer

# Number of candidates in a command: some may be taken before it is decided.
_CANDIDATES = 12
_WORKERS = 10_000
# Long commands would make workers wait.
_MARKED_AT_ONCE = 500
# Requests wait while a board is loaded: that may take no more than one part in this many of the
# time. A board of 10^5 tasks then serves for seconds, in which few of them get an answer.
_REST = 200.0

Numbers = NDArray[np.int64]


@dataclass
class InUse:
    """A campaign's board, and what was offered since it was made."""

    board: Board | None = None
    seq: int = -1
    edition: int | None = None
    loaded: float = 0.0
    took: float = 0.0
    since: dict[int, float] = field(default_factory=dict)
    marked: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))


class Boards:
    """The boards of all campaigns; a thread looks for newer ones."""

    def __init__(
        self,
        database: Database,
        published: Published,
        writer: Writer,
        every: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._published, self._writer = database, published, writer
        self._every, self._clock = every, clock
        self._boards: dict[int, InUse] = {}
        self._had: OrderedDict[tuple[int, int], set[int]] = OrderedDict()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="boards", daemon=True)

    def start(self) -> None:
        """Start looking for boards."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join(10)

    async def candidates(self, number: int, person: int) -> Sequence[int]:
        """Return tasks for a worker, best first; none where there is no board.

        The writer then takes the open task with the fewest answers.
        """
        used = self._boards.get(number)
        if used is None or used.board is None:
            return ()
        had = self._had.get((number, person))
        if had is None:
            had = await run_in_threadpool(self._read_had, number, person)
        with self._lock:
            return used.board.pick(_CANDIDATES, had, used.since)

    def _read_had(self, number: int, person: int) -> set[int]:
        query = select(offer.c.task).where(offer.c.worker == person, offer.c.state.not_in(FREE))
        with self._database.connect() as connection:
            had = set(connection.execute(query).scalars())
        with self._lock:
            self._had[number, person] = had
            while len(self._had) > _WORKERS:
                self._had.popitem(last=False)
        return had

    def offered(self, number: int, person: int, task: int, *, again: bool) -> None:
        """Note an offer, so that the next ones see the gain that is left."""
        with self._lock:
            self._had.setdefault((number, person), set()).add(task)
            used = self._boards.get(number)
            if used is not None and not again:
                worth = used.board.worth_of(person) if used.board else 1.0
                used.since[task] = used.since.get(task, 0.0) + worth

    def forget(self, number: int, person: int) -> None:
        """Forget a worker's past: it is read from the database again."""
        with self._lock:
            self._had.pop((number, person), None)

    def best(self, number: int, n: int) -> list[tuple[int, float]]:
        """Return the tasks to ask for next, for anybody, with the value of an answer."""
        used = self._boards.get(number)
        if used is None or used.board is None:
            return []
        with self._lock:
            return used.board.best(n, used.since)

    def worth(self, number: int, tasks: Sequence[int]) -> dict[int, float]:
        """Return the expected gain of a further answer to tasks; only for those on the board."""
        used = self._boards.get(number)
        if used is None or used.board is None:
            return {}
        board = used.board
        rows = np.flatnonzero(np.isin(board.task, np.array(tasks, dtype=np.int64)))
        with self._lock:
            counts = np.array([used.since.get(t, 0.0) for t in board.task[rows].tolist()])
        later = np.minimum(counts.astype(np.int64), board.gain.shape[1] - 1)
        gains = board.gain[rows, later].tolist()
        return dict(zip(board.task[rows].tolist(), gains, strict=True))

    def age(self) -> float:
        """Return the age of the oldest board in use, in seconds."""
        now = self._clock()
        return max((now - used.loaded for used in self._boards.values() if used.board), default=0.0)

    # Looking for newer boards

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.refresh()
            except Exception as error:  # the old boards stay in use; the next look may succeed
                log("boards not read", logging.WARNING, error)

    def refresh(self) -> None:
        """Read the boards that are not in use yet, and mark done tasks as done."""
        query = select(campaign.c.id).where(campaign.c.state == "open")
        with self._database.connect() as connection:
            numbers = list(connection.execute(query).scalars())
        for number in numbers:
            used = self._boards.get(number) or InUse()
            if self._clock() < used.loaded + _REST * used.took:
                continue
            found = self._published.read(number, "board", other_than=used.edition)
            if found is None:
                continue
            start = time.thread_time()
            board = Board.from_bytes(found.content)
            board.pick(1)  # sorts the tasks here, not in a request
            since = self._since(number, board, found.seq)
            took = time.thread_time() - start
            new = InUse(
                board, found.seq, found.edition, self._clock(), took, since, used.marked
            )  # fmt: skip
            with self._lock:
                self._boards[number] = new
            self._mark_done(number, new)
        for number in self._boards.keys() - set(numbers):
            with self._lock:
                self._boards.pop(number, None)

    def _since(self, number: int, board: Board, seq: int) -> dict[int, float]:
        """Sum, by task, the pending answers: open offers, and answers newer than the board.

        Each counts as much as an answer of its worker is worth: a spammer's leaves the gain as it
        is.
        """
        held = select(offer.c.task, offer.c.worker).where(
            offer.c.campaign == number, offer.c.state == "open"
        )
        seen = select(event.c.at).where(event.c.campaign == number, event.c.seq == seq)
        with self._database.connect() as connection:
            rows = list(connection.execute(held))
            at = connection.execute(seen).scalar_one_or_none()
            if at is not None:
                late = select(answer.c.task, answer.c.worker).where(
                    answer.c.campaign == number, answer.c.at > at
                )
                rows += connection.execute(late)
        found: dict[int, float] = {}
        for row in rows:
            found[row.task] = found.get(row.task, 0.0) + board.worth_of(row.worker)
        return found

    def _mark_done(self, number: int, used: InUse) -> None:
        """Have the writer mark tasks that meet the stop rule, some at a time, each once."""
        assert used.board is not None
        done = used.board.task[used.board.done]
        # A task that is no longer done (an answer was removed) may be marked again later.
        marked = np.intersect1d(used.marked, done, assume_unique=True)
        new = np.setdiff1d(done, marked, assume_unique=True)
        for start in range(0, new.size, _MARKED_AT_ONCE):
            some = new[start : start + _MARKED_AT_ONCE].tolist()
            try:
                command = MarkDone(campaign=number, tasks=some, as_of_seq=used.seq)
                self._writer.submit(command).result(60)
            except Refused as refused:
                log("done tasks not marked", logging.WARNING, reason=refused.reason)
                new = new[:start]
                break
        used.marked = np.union1d(marked, new)
