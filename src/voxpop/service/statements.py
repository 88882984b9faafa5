"""Statements: the SQL that reads a batch's facts, built once a database, all keys one parameter."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Text,
    TextClause,
    and_,
    any_,
    bindparam,
    exists,
    func,
    or_,
    select,
    text,
    update,
)

from voxpop.service import schema
from voxpop.service.schema import (
    HOLDS_PLACE,
    IS_OPEN,
    answer,
    campaign,
    credit,
    event,
    offer,
    task,
    visit,
    worker,
)

_TASK = (
    task.c.id, task.c.campaign, task.c.name, task.c.kind, task.c.truth,
    task.c.n_open, task.c.n_answers, task.c.state,
)  # fmt: skip

# Events by which answers may stop counting; they say how many did.
REMOVALS = ("retracted", "erased", "worker_state")

_PAIRS = {
    "sqlite": f"""
        SELECT offer.* FROM json_each(:pairs) AS pair
        CROSS JOIN offer ON offer.worker = json_extract(pair.value, '$[0]')
        AND offer.task = json_extract(pair.value, '$[1]')
        WHERE {HOLDS_PLACE.text}"""
    "",
    "postgresql": f"""
        SELECT offer.* FROM unnest(CAST(:workers AS bigint[]), CAST(:tasks AS bigint[]))
        AS pair (worker, task) JOIN offer ON offer.worker = pair.worker
        AND offer.task = pair.task WHERE {HOLDS_PLACE.text}""",
}

Rows = Sequence[Any]


class Statements:
    """The statements of one kind of database."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        among = self._among
        locked = select(campaign).where(among(campaign.c.id)).order_by(campaign.c.id)
        tasks = select(*_TASK)
        kinds = select(task.c.campaign, task.c.kind).where(task.c.kind.in_(("gold", "practice")))
        self._by_key: dict[str, Select[Any]] = {
            # PostgreSQL locks them until the transaction ends.
            "campaigns": locked.with_for_update() if dialect == "postgresql" else locked,
            "slugs": select(campaign.c.slug).where(among(campaign.c.slug)),
            "visits": select(visit).where(among(visit.c.id)),
            "workers": select(worker).where(among(worker.c.id)),
            "offers": select(offer).where(among(offer.c.id)),
            "open offers of workers": select(offer).where(among(offer.c.worker), IS_OPEN),
            "tasks": tasks.where(among(task.c.id)),
            "contents of tasks": select(task.c.id, task.c.content).where(among(task.c.id)),
            "real tasks of campaigns": tasks.where(among(task.c.campaign), task.c.kind == "real"),
            "kinds in campaigns": kinds.where(among(task.c.campaign)).distinct(),
            "answers": select(answer).where(among(answer.c.offer)),
            "answers of workers": select(answer).where(among(answer.c.worker)),
            "credits": select(credit).where(among(credit.c.answer)),
        }
        self._by_three = {
            "visits": self._three(visit, "provider", "external_session"),
            "workers": self._three(worker, "provider", "external_hmac"),
            "answers": self._three(answer, "source", "source_id"),
            "dropped": self._three(schema.dropped, "source", "source_id"),
        }
        self._choices = {capped: self._choice(capped) for capped in (False, True)}
        self._build_rest()

    # ------------------------------------------------------------ building

    def _build_rest(self) -> None:
        self._due = select(offer).where(
            IS_OPEN,
            or_(
                self._among(offer.c.campaign, "closing"),
                and_(
                    self._among(offer.c.campaign, "expiring"),
                    offer.c.expires <= bindparam("now"),
                ),
            ),
        )
        self._pairs: TextClause = text(_PAIRS[self.dialect])
        self._named = select(task.c.id, task.c.name).where(
            task.c.campaign == bindparam("campaign"), self._among(task.c.name)
        )
        self._wait = select(
            exists().where(
                task.c.campaign == bindparam("campaign"),
                task.c.kind == "real",
                task.c.state == "open",
                task.c.n_open > 0,
                self._new_to_worker(),
            )
        )
        self._key = select(schema.idempotency.c.body).where(
            schema.idempotency.c.campaign == bindparam("campaign"),
            schema.idempotency.c.key == bindparam("key"),
        )
        self._removal = select(func.max(event.c.seq)).where(
            event.c.campaign == bindparam("campaign"),
            event.c.seq > bindparam("as_of"),
            event.c.kind.in_(REMOVALS),
            event.c.body["lost"].as_integer() > 0,
        )

    def _among(self, column: ColumnElement[Any], name: str = "keys") -> ColumnElement[bool]:
        """The column is one of the values of one parameter."""
        if self.dialect == "sqlite":
            listed = func.json_each(bindparam(name, type_=Text())).table_valued("value")
            return column.in_(select(listed.c.value))
        kind = Text() if isinstance(column.type, Text) else BigInteger()
        return column == any_(bindparam(name, type_=ARRAY(kind)))

    def _listed(self, keys: Collection[Any]) -> Any:
        """Values for such a parameter."""
        listed = sorted(keys)
        return json.dumps(listed) if self.dialect == "sqlite" else listed

    def _three(self, table: Any, second: str, third: str) -> Select[Any]:
        return select(table).where(
            self._among(table.c.campaign, "first"),
            self._among(table.c[second], "second"),
            self._among(table.c[third], "third"),
        )

    def _new_to_worker(self) -> ColumnElement[bool]:
        return ~exists().where(
            offer.c.task == task.c.id,
            offer.c.worker == bindparam("worker"),
            HOLDS_PLACE,
        )

    def _choice(self, capped: bool) -> Select[Any]:
        found = (
            select(*_TASK)
            .where(
                task.c.campaign == bindparam("campaign"),
                task.c.kind == bindparam("kind"),
                task.c.state == "open",
                self._new_to_worker(),
            )
            .order_by(task.c.n_taken, task.c.id)
            .limit(bindparam("limit"))
        )
        return found.where(task.c.n_taken < bindparam("cap")) if capped else found

    # ------------------------------------------------------------ running

    def rows(self, connection: Connection, what: str, keys: Collection[Any]) -> Rows:
        """Rows by their keys; without any, no statement runs."""
        if not keys:
            return ()
        return connection.execute(self._by_key[what], {"keys": self._listed(keys)}).all()

    def rows_by_three(
        self, connection: Connection, what: str, keys: Collection[tuple[int, str, str]]
    ) -> Rows:
        """Rows by campaign and two texts, and perhaps some that mix the keys."""
        if not keys:
            return ()
        parts = zip(("first", "second", "third"), zip(*keys, strict=True), strict=True)
        found = {name: self._listed(set(part)) for name, part in parts}
        return connection.execute(self._by_three[what], found).all()

    def reserve_numbers(self, connection: Connection, new: Mapping[str, int]) -> dict[str, int]:
        """Take as many numbers as there may be new rows; return the first of each table."""
        counter = schema.counter
        found = {}
        for name in sorted(new):
            statement = (
                update(counter)
                .where(counter.c.name == name)
                .values(value=counter.c.value + new[name])
                .returning(counter.c.value)
            )
            found[name] = connection.execute(statement).scalar_one() - new[name] + 1
        return found

    def offers_due(
        self, connection: Connection, closing: set[int], expiring: set[int], now: float
    ) -> Rows:
        """All open offers of some campaigns, and those of others whose time is up."""
        keys = {"closing": self._listed(closing), "expiring": self._listed(expiring), "now": now}
        return connection.execute(self._due, keys).all()

    def held_pairs(self, connection: Connection, pairs: set[tuple[int, int]]) -> Rows:
        """The offers that keep places of workers at tasks."""
        listed = sorted(pairs)
        if self.dialect == "sqlite":
            return connection.execute(self._pairs, {"pairs": json.dumps(listed)}).all()
        workers, tasks = zip(*listed, strict=True)
        return connection.execute(
            self._pairs, {"workers": list(workers), "tasks": list(tasks)}
        ).all()

    def tasks_named(self, connection: Connection, number: int, names: set[str]) -> Rows:
        """Number and name of tasks by name."""
        keys = {"campaign": number, "keys": self._listed(names)}
        return connection.execute(self._named, keys).all()

    def key(self, connection: Connection, number: int, key: str) -> Rows:
        """What was replied to an idempotency key."""
        return connection.execute(self._key, {"campaign": number, "key": key}).all()

    def last_removal(self, connection: Connection, number: int, as_of: int) -> int | None:
        """The last event after another by which answers stopped counting."""
        keys = {"campaign": number, "as_of": as_of}
        found: int | None = connection.execute(self._removal, keys).scalar()
        return found

    def choices(
        self, connection: Connection, number: int, who: int, kind: str, cap: int | None, limit: int
    ) -> Rows:
        """Open tasks that a worker has not had, fewest answers first."""
        keys = {"campaign": number, "worker": who, "kind": kind, "limit": limit}
        if cap is not None:
            keys["cap"] = cap
        return connection.execute(self._choices[cap is not None], keys).all()

    def may_wait(self, connection: Connection, number: int, who: int) -> bool:
        """Whether a task that a worker has not had may come back from somebody else."""
        keys = {"campaign": number, "worker": who}
        return bool(connection.execute(self._wait, keys).scalar())
