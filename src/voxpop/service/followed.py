"""Followed: one campaign of the database as inference knows it, caught up by its events."""

from __future__ import annotations

import io
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from voxpop.collect.campaign import Board, Campaign
from voxpop.collect.campaign import Rules as BuyingRules
from voxpop.collect.campaign.board import Estimates
from voxpop.estimators.auto.auto import Auto
from voxpop.models.model import Model
from voxpop.service.learning import Job, Learned
from voxpop.service.questions import Question
from voxpop.service.rules import Rules
from voxpop.service.schema import answer, campaign, event, task
from voxpop.service.summary import History, summarise

# Nothing is learned before so many tasks, or all of them, have two answers.
_READY_TASKS, _READY_ANSWERS = 50, 2
# Learn again when so much of the answers is new.
_GROWTH = 0.25
# Answers that a board looks ahead at each task.
_DEPTH = 4
# Events at once.
_MOST_EVENTS = 20_000
# After these the counted answers are read anew; there may be many, and few such events.
_SWEEPING = ("worker_state", "erased")


class Followed:
    """A campaign's answers, truths and states of tasks, as of the event ``seq``.

    The database is the truth: whatever was missed or came twice, reading the answers anew and
    following the events from there ends at the same answers.
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.learned: Learned | None = None
        self.n_learned = 0
        self.n_changed = 0
        self.history = History()
        self._start(connection)

    def _start(self, connection: Connection) -> None:
        """Read everything anew."""
        self._closed: set[int] = set()
        self._gold: dict[int, list[float]] = {}
        # The answers that count, and how many each task has.
        self._value: dict[tuple[int, int], list[float]] = {}
        self._count: Counter[int] = Counter()
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
        self._closed.update(row.id for row in rows if row.state != "open")
        gold = {row.id: row.truth for row in rows if row.kind == "gold" and row.truth is not None}
        self._set_gold(gold)

    def _set_gold(self, gold: dict[int, list[float]]) -> None:
        if gold:
            self._gold |= gold
            self.campaign.add_gold(gold)

    def _sync(self, connection: Connection) -> None:
        """Make the campaign's answers those that count in the database."""
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
            self._count.update(tasks)
            self.n_changed += len(new)

    def _retract(self, pair: tuple[int, int]) -> None:
        self.campaign.retract(*pair)
        del self._value[pair]
        self._count[pair[0]] -= 1
        self.n_changed += 1

    # Catching up

    def follow(self, connection: Connection) -> bool:
        """Follow the events since; tell whether there were any."""
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
            change = self._closed.discard if body["state"] == "open" else self._closed.add
            change(int(body["task"]))
        elif kind == "gold" and body["truth"] is None:
            # A truth that was known is not any more: nothing in a campaign takes it back.
            seq = self.seq
            new.clear()
            self._start(connection)
            self.seq = seq
        elif kind == "gold":
            self._set_gold({int(body["task"]): body["truth"]})
            self.n_changed += 1
        elif kind in _SWEEPING:
            self._add(new)
            new.clear()
            self._sync(connection)
        elif kind == "campaign_changed":
            seq = self.seq
            self._read(connection)
            self.seq = seq

    # Learning

    @property
    def counts(self) -> list[int]:
        """Numbers of answers of the tasks that have some."""
        return [n for n in self._count.values() if n]

    @property
    def n_workers(self) -> int:
        """How many workers have given answers that count."""
        return len({worker for _, worker in self._value})

    @property
    def n_real_tasks(self) -> int:
        """How many tasks have a truth to be found."""
        return len(self.campaign.task_ids) - len(self._gold)

    @property
    def n_done(self) -> int:
        """How many of them are done or withdrawn."""
        return len(self._closed - self._gold.keys())

    @property
    def is_ready(self) -> bool:
        """Whether there are answers enough to learn the noise from."""
        twice = sum(n >= _READY_ANSWERS for n in self._count.values())
        return twice >= min(_READY_TASKS, max(1, len(self.campaign.task_ids)))

    @property
    def wants_to_learn(self) -> bool:
        """Whether enough is new since the last time."""
        if not self.is_ready:
            return False
        return self.learned is None or self.n_changed >= _GROWTH * max(1, self.n_learned)

    def job(self) -> Job:
        """What a fit needs."""
        pairs, self.n_changed = list(self._value), 0
        self.n_learned = len(pairs)
        low, high = self.question.bounds() or (None, None)
        bounds = None if low is None or high is None else (low, high)
        return Job(
            tasks=self.campaign.task_ids,
            gold=dict(self._gold),
            task=[i for i, _ in pairs],
            worker=[u for _, u in pairs],
            value=np.array(list(self._value.values())),
            value_names=self.question.value_names,
            estimator=Auto(bounds=bounds, threads=1),
        )

    def take_over(self, learned: Learned) -> None:
        """Go on with what was learned."""
        self.campaign.adopt(learned.noise, learned.trust)
        self.learned = learned

    # Publishing

    def board(self) -> Board:
        """The order of the tasks that are open, and which of them meet the stop rule."""
        half = self.rules.half_width if self.learned is not None else None
        board = self.campaign.board(BuyingRules(half_width=half), depth=_DEPTH, as_of=self.seq)
        tasks = board.task.astype(np.int64)
        closed = np.isin(tasks, np.array([*self._closed, *self._gold], dtype=np.int64))
        width = board.half_width if self.learned else np.full(len(tasks), np.inf)
        met = board.done & ~closed
        return replace(
            board,
            task=tasks,
            half_width=width,
            done=met,
            order=board.order[~closed[board.order]],
        )

    def known(self) -> Estimates | None:
        """What is known of the tasks with answers."""
        return self.campaign.estimates() if self.campaign.n_answers else None

    def estimates(self, found: Estimates | None) -> bytes:
        """Estimates of tasks with answers, as an ``.npz``; no sds before anything is learned."""
        arrays: dict[str, Any] = {}
        d = self.question.dimension
        if found is not None:
            low, high = found.interval()
            arrays = {"task": found.task_ids.astype(np.int64), "estimate": found.estimate}
            arrays |= {"sd": found.sd, "lower_95": low, "upper_95": high, "n": found.task_answers}
        else:
            arrays = {"task": np.zeros(0, np.int64), "n": np.zeros(0, np.int64)}
            names = ("estimate", "sd", "lower_95", "upper_95")
            arrays |= {name: np.zeros((0, d)) for name in names}
        if self.learned is None:
            for name in ("sd", "lower_95", "upper_95"):
                arrays[name] = np.full_like(arrays[name], np.nan)
        looks = self.learned.looks if self.learned else {}
        reason = [looks.get(i, "") for i in arrays["task"].tolist()]
        arrays["reason"] = np.array(reason, dtype=str)
        arrays["needs_a_look"] = np.array([bool(one) for one in reason], dtype=bool)
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    def workers(self) -> bytes:
        """Noise and flags by worker, as of the last fit."""
        return json.dumps({"workers": self.learned.workers if self.learned else {}}).encode()

    def summary(self, board: Board, found: Estimates | None, now: float) -> bytes:
        """All that the dashboard shows at a glance."""
        return json.dumps(summarise(self, board, found, now), allow_nan=False).encode()


def open_campaigns(connection: Connection) -> dict[int, int]:
    """The campaigns that are not drafts, and the number of the last event of each."""
    query = select(campaign.c.id, campaign.c.seq).where(campaign.c.state != "draft")
    return {int(row.id): int(row.seq) for row in connection.execute(query)}
