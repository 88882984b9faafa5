"""Followed: one campaign of the database as inference knows it, caught up by its events."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from voxpop.collect.campaign import Campaign
from voxpop.estimators.auto.auto import Auto
from voxpop.models.model import Model
from voxpop.service.learning import Job, Learned
from voxpop.service.questions import Question
from voxpop.service.rules import Rules
from voxpop.service.schema import answer, campaign, event, task
from voxpop.service.summary import History

# Nothing is learned before this many tasks have two answers, or half of those with answers and no
# fewer than some: tasks that were just added make nobody forget what is known of the others.
_READY_TASKS, _FEWEST_TASKS, _READY_ANSWERS = 50, 10, 2
# No task is stopped before the noise was learned from this many answers per task: with fewer, far
# too few truths were inside the intervals of tasks that were stopped.
_STOP_ANSWERS = 3.0
# Learn again when this share of the answers is new, or when some are and none came for this many
# seconds: at rest, the result is that of ``aggregate``.
_GROWTH, _QUIET = 0.25, 15.0
# Events at once.
_MOST_EVENTS = 20_000
# After these the counted answers are read anew; there may be many, and few such events.
_SWEEPING = ("worker_state", "erased")


class Followed:
    """A campaign's answers, truths and states of tasks, as of the event ``seq``.

    The database is the truth: even after missed or repeated events, reading the answers again and
    following the events gives the same answers.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.learned: Learned | None = None
        self.n_learned = 0
        self.n_changed = 0
        # Whether the last fit failed, and how many answers it was given.
        self.failed, self._n_asked = False, 0
        self._changed_at = time.monotonic()
        self.history = History()
        self._start(connection)

    def _start(self, connection: Connection) -> None:
        """Read everything again."""
        self.closed: set[int] = set()
        self.withdrawn: set[int] = set()
        self.gold: dict[int, list[float]] = {}
        # The answers that count, and how many each task has.
        self._value: dict[tuple[int, int], list[float]] = {}
        self._count: Counter[int] = Counter()
        self._by_worker: Counter[int] = Counter()
        self._n_twice = 0
        self._read(connection)
        model = Model(support=(1.0,), dimension=self.question.dimension)
        self.campaign = Campaign(model, value_names=self.question.value_names)
        self._tasks(connection, 0, None)
        self._sync(connection)
        if self.learned is not None:
            self.campaign.adopt(self.learned.noise, self.learned.trust)

    def _read(self, connection: Connection) -> None:
        """Read the rules, the question, and the number of the last event."""
        row = connection.execute(select(campaign).where(campaign.c.id == self.number)).one()
        self.rules, self.question = Rules.parse(row.rules), Question.parse(row.question)
        self.seq, self.state, self.spent = int(row.seq), str(row.state), int(row.spent)

    def _tasks(self, connection: Connection, first: int, n: int | None) -> None:
        """Take up tasks from a number on."""
        columns = task.c.id, task.c.kind, task.c.truth, task.c.state
        query = select(*columns).where(task.c.campaign == self.number, task.c.id >= first)
        if n is not None:
            query = query.where(task.c.id < first + n)
        rows = [row for row in connection.execute(query.order_by(task.c.id))]
        rows = [row for row in rows if row.kind != "practice"]
        self.campaign.add_tasks(row.id for row in rows)
        self.closed.update(row.id for row in rows if row.state != "open")
        self.withdrawn.update(row.id for row in rows if row.state == "withdrawn")
        gold = {row.id: row.truth for row in rows if row.kind == "gold" and row.truth is not None}
        self._set_gold(gold)

    def _set_gold(self, gold: dict[int, list[float]]) -> None:
        if gold:
            self.gold |= gold
            self.campaign.add_gold(gold)

    def _sync(self, connection: Connection) -> None:
        """Set the campaign's answers to those that count in the database."""
        query = select(answer.c.task, answer.c.worker, answer.c.value).where(
            answer.c.campaign == self.number, answer.c.counts
        )
        rows = connection.execute(query.order_by(answer.c.task, answer.c.worker)).all()
        there = {(row.task, row.worker): row.value for row in rows}
        for pair, value in list(self._value.items()):
            if there.get(pair) != value:
                self._retract(pair)
        self._add({pair: value for pair, value in there.items() if pair not in self._value})

    def _add(self, new: dict[tuple[int, int], list[float]]) -> None:
        if new:
            tasks, workers = ([pair[side] for pair in new] for side in (0, 1))
            self.campaign.add_many(tasks, workers, np.array(list(new.values())))
            self._value |= new
            for task_number, worker in new:
                self._tally(task_number, worker, 1)

    def _retract(self, pair: tuple[int, int]) -> None:
        self.campaign.retract(*pair)
        del self._value[pair]
        self._tally(*pair, -1)

    def _tally(self, task_number: int, worker: int, change: int) -> None:
        """Count an answer that came or went."""
        for counter, owner in ((self._count, task_number), (self._by_worker, worker)):
            counter[owner] += change
            if not counter[owner]:
                del counter[owner]
        if self._count[task_number] == _READY_ANSWERS - (change < 0):
            self._n_twice += change
        self._changed_at = time.monotonic()
        self.n_changed += 1

    # Catching up

    def follow(self, connection: Connection) -> bool:
        """Follow the events since; return whether there were any."""
        query = (
            select(event.c.seq, event.c.kind, event.c.body)
            .where(event.c.campaign == self.number, event.c.seq > self.seq)
            .order_by(event.c.seq)
            .limit(_MOST_EVENTS)
        )
        rows = connection.execute(query).all()
        new: dict[tuple[int, int], list[float]] = {}
        for row in rows:
            self._take(connection, row.kind, row.body, new)
            self.seq = int(row.seq)
        self._add(new)
        return bool(rows)

    def _take(
        self,
        connection: Connection,
        kind: str,
        body: dict[str, Any],
        new: dict[tuple[int, int], list[float]],
    ) -> None:
        """Take one event; answers that are new are gathered to be added together."""
        if kind in ("answer", "retracted"):
            pair = int(body["task"]), int(body["worker"])
            new.pop(pair, None)
            before = self._value.get(pair)
            value = body["value"] if kind == "answer" and body["counts"] else None
            if before is not None and before != value:
                self._retract(pair)
            if value is not None and before != value:
                new[pair] = value
        elif kind == "tasks_added":
            self._tasks(connection, int(body["first_id"]), int(body["n"]))
        elif kind == "task_state":
            change = self.closed.discard if body["state"] == "open" else self.closed.add
            change(int(body["task"]))
            if body["state"] == "withdrawn":
                self.withdrawn.add(int(body["task"]))
        elif kind == "gold" and body["truth"] is None:
            # A truth that was known is not any more: nothing in a campaign takes it back.
            seq = self.seq
            new.clear()
            self._start(connection)
            self.seq = seq
        elif kind == "gold":
            self._set_gold({int(body["task"]): body["truth"]})
            self._changed_at = time.monotonic()
            self.n_changed += 1
        elif kind in _SWEEPING:
            self._add(new)
            new.clear()
            self._sync(connection)
        elif kind == "campaign_changed":
            seq = self.seq
            self._read(connection)
            self.seq = seq

    def pairs(self) -> list[tuple[int, int]]:
        """Task and worker of each answer that counts."""
        return list(self._value)

    def n_of(self, task_number: int) -> int:
        """How many answers of a task count."""
        return self._count[task_number]

    # Learning

    @property
    def n_answered(self) -> int:
        """How many tasks have answers."""
        return len(self._count)

    @property
    def n_workers(self) -> int:
        """How many workers have given answers that count."""
        return len(self._by_worker)

    @property
    def n_real_tasks(self) -> int:
        """How many tasks have a truth to be found."""
        return self.campaign.n_tasks - len(self.gold)

    @property
    def n_done(self) -> int:
        """How many of them are done or withdrawn."""
        return len(self.closed - self.gold.keys())

    @property
    def is_ready(self) -> bool:
        """Whether there are answers enough to learn the noise from."""
        some = max(_FEWEST_TASKS, self.n_answered // 2)
        return self._n_twice >= min(_READY_TASKS, some, max(1, self.campaign.n_tasks))

    @property
    def may_stop(self) -> bool:
        """Whether enough is known of the noise to tell which tasks are done.

        With fewer answers, workers look precise who agree by chance, and with them their tasks.
        """
        enough = _STOP_ANSWERS * max(1, self.n_real_tasks)
        return self.learned is not None and self.n_learned >= enough

    @property
    def wants_to_learn(self) -> bool:
        """Whether enough is new since the last time."""
        if not self.is_ready:
            return False
        first = self.learned is None and not self.failed
        if first or self.n_changed >= _GROWTH * max(1, self._n_asked):
            return True
        return self.n_changed > 0 and time.monotonic() - self._changed_at >= _QUIET

    def job(self) -> Job:
        """What a fit needs."""
        pairs, self.n_changed = self.pairs(), 0
        self._n_asked = len(pairs)
        return Job(
            tasks=self.campaign.task_ids,
            gold=dict(self.gold),
            task=[i for i, _ in pairs],
            worker=[u for _, u in pairs],
            value=np.array(list(self._value.values())),
            value_names=self.question.value_names,
            estimator=Auto(bounds=self.question.bounds(), threads=1),
        )

    def take_over(self, learned: Learned) -> None:
        """Continue with the learned noise."""
        self.campaign.adopt(learned.noise, learned.trust)
        self.learned, self.failed, self.n_learned = learned, False, self._n_asked


def open_campaigns(connection: Connection) -> dict[int, int]:
    """The campaigns that are not drafts, and the number of the last event of each."""
    query = select(campaign.c.id, campaign.c.seq).where(campaign.c.state != "draft")
    return {int(row.id): int(row.seq) for row in connection.execute(query)}
