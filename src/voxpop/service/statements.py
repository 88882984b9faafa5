"""Statements: the SQL that reads a batch's facts, built once a database, all keys one parameter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
    "sqlite": """
        SELECT offer.* FROM json_each(:pairs) AS pair
        CROSS JOIN offer ON offer.worker = json_extract(pair.value, '$[0]')
        AND offer.task = json_extract(pair.value, '$[1]')
        WHERE offer.state NOT IN ('expired', 'released')""",
    "postgresql": """
        SELECT offer.* FROM unnest(CAST(:workers AS bigint[]), CAST(:tasks AS bigint[]))
        AS pair (worker, task) JOIN offer ON offer.worker = pair.worker
        AND offer.task = pair.task WHERE offer.state NOT IN ('expired', 'released')""",
}

Rows = Sequence[Any]


class Statements:
    """The statements of one kind of database."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        locked = select(campaign).where(self._among(campaign.c.id)).order_by(campaign.c.id)
        self._campaigns = locked.with_for_update() if dialect == "postgresql" else locked
        self._slugs = select(campaign.c.slug).where(self._among(campaign.c.slug))
        self._rows = {
            "visit": select(visit).where(self._among(visit.c.id)),
            "worker": select(worker).where(self._among(worker.c.id)),
        }
        self._by_three = {
            "visit": self._three(visit, "provider", "external_session"),
            "worker": self._three(worker, "provider", "external_hmac"),
            "answer": self._three(answer, "source", "source_id"),
            "dropped": self._three(schema.dropped, "source", "source_id"),
        }
        self._build_offers()
        self._build_tasks()
        self._build_rest()

    # ------------------------------------------------------------ building

    def _build_offers(self) -> None:
        self._offers = select(offer).where(self._among(offer.c.id))
        self._open = select(offer).where(self._among(offer.c.worker), IS_OPEN)
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

    def _build_tasks(self) -> None:
        self._tasks = select(*_TASK).where(self._among(task.c.id))
        self._real = select(*_TASK).where(
            task.c.campaign == bindparam("campaign"), task.c.kind == "real"
        )
        self._contents = select(task.c.id, task.c.content).where(self._among(task.c.id))
        self._named = select(task.c.id, task.c.name).where(
            task.c.campaign == bindparam("campaign"), self._among(task.c.name)
        )
        self._kinds = (
            select(task.c.campaign, task.c.kind)
            .where(self._among(task.c.campaign), task.c.kind.in_(("gold", "practice")))
            .distinct()
        )
        self._choices = {capped: self._choice(capped) for capped in (False, True)}
        self._wait = select(
            exists().where(
                task.c.campaign == bindparam("campaign"),
                task.c.kind == "real",
                task.c.state == "open",
                task.c.n_open > 0,
                self._new_to_worker(),
            )
        )

    def _build_rest(self) -> None:
        self._answers = select(answer).where(self._among(answer.c.offer))
        self._answers_of = select(answer).where(self._among(answer.c.worker))
        self._credits = select(credit).where(self._among(credit.c.answer))
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

    def _listed(self, keys: Iterable[int] | Iterable[str]) -> Any:
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

    def campaigns(self, connection: Connection, keys: set[int]) -> Rows:
        """Campaigns by number; PostgreSQL locks them until the transaction ends."""
        return connection.execute(self._campaigns, {"keys": self._listed(keys)}).all()

    def slugs(self, connection: Connection, keys: set[str]) -> Rows:
        """Those of the slugs that are taken."""
        return connection.execute(self._slugs, {"keys": self._listed(keys)}).all()

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

    def rows(self, connection: Connection, table: str, keys: set[int]) -> Rows:
        """Visits or workers by number."""
        return connection.execute(self._rows[table], {"keys": self._listed(keys)}).all()

    def by_three(
        self, connection: Connection, table: str, first: set[Any], second: set[Any], third: set[Any]
    ) -> Rows:
        """Rows by campaign and two texts."""
        parts = {"first": first, "second": second, "third": third}
        found = {name: self._listed(keys) for name, keys in parts.items()}
        return connection.execute(self._by_three[table], found).all()

    def offers(self, connection: Connection, keys: set[str]) -> Rows:
        """Offers by id."""
        return connection.execute(self._offers, {"keys": self._listed(keys)}).all()

    def open_offers(self, connection: Connection, workers: set[int]) -> Rows:
        """The open offers of workers."""
        return connection.execute(self._open, {"keys": self._listed(workers)}).all()

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

    def tasks(self, connection: Connection, keys: set[int]) -> Rows:
        """Tasks by number, without what they show."""
        return connection.execute(self._tasks, {"keys": self._listed(keys)}).all()

    def real_tasks(self, connection: Connection, number: int) -> Rows:
        """All real tasks of a campaign."""
        return connection.execute(self._real, {"campaign": number}).all()

    def contents(self, connection: Connection, keys: set[int]) -> Rows:
        """What tasks show."""
        return connection.execute(self._contents, {"keys": self._listed(keys)}).all()

    def tasks_named(self, connection: Connection, number: int, names: set[str]) -> Rows:
        """Number and name of tasks by name."""
        keys = {"campaign": number, "keys": self._listed(names)}
        return connection.execute(self._named, keys).all()

    def kinds(self, connection: Connection, campaigns: set[int]) -> Rows:
        """Which campaigns have gold and practice."""
        return connection.execute(self._kinds, {"keys": self._listed(campaigns)}).all()

    def answers(self, connection: Connection, offers: set[str]) -> Rows:
        """Answers by offer."""
        return connection.execute(self._answers, {"keys": self._listed(offers)}).all()

    def answers_of(self, connection: Connection, workers: set[int]) -> Rows:
        """All answers of workers."""
        return connection.execute(self._answers_of, {"keys": self._listed(workers)}).all()

    def credits(self, connection: Connection, answers: set[str]) -> Rows:
        """Credits by answer."""
        return connection.execute(self._credits, {"keys": self._listed(answers)}).all()

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
