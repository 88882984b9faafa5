"""Store: writes what ``decide`` changed, each table by one statement for all rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, update

from voxpop.service import schema
from voxpop.service.book import Book
from voxpop.service.rows import (
    AnswerRow,
    CampaignRow,
    CreditRow,
    EventRow,
    OfferRow,
    TaskRow,
    TokenRow,
    VisitRow,
    WorkerRow,
)
from voxpop.service.schema import FREE

Row = (
    CampaignRow | TaskRow | WorkerRow | VisitRow | OfferRow | AnswerRow | CreditRow | EventRow
    | TokenRow
)  # fmt: skip
RowT = TypeVar("RowT", bound=Row)

_INSERTS = {name: insert(table) for name, table in schema.metadata.tables.items()}


class _Update:
    """Writes some columns of rows, which it finds by a key."""

    def __init__(self, table: str, key: str, *columns: str) -> None:
        found = schema.metadata.tables[table]
        self.key, self.columns = key, columns
        values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
        self.statement = update(found).where(found.c[key] == bindparam("key")).values(values)

    def values(self, row: Row) -> dict[str, Any]:
        """The parameters for one row."""
        found = _values(row)
        return {"key": found[self.key]} | {f"new_{name}": found[name] for name in self.columns}


# Money and its budget together: a constraint compares them.
_MONEY = _Update("campaign", "id", "seq", "reserved", "spent", "budget")
_SETUP = _Update("campaign", "id", "title", "instructions", "question", "rules", "state")
_COUNTS = _Update("task", "id", "n_open", "n_answers", "n_taken", "state")
_TRUTH = _Update("task", "id", "kind", "truth")
_WORKER = _Update("worker", "id", "state", "external", "external_hmac", "n_answers", "n_practice")
_VISIT = _Update("visit", "id", "state", "completion_code")
_OFFER = _Update("offer", "id", "state", "expires", "note")
_ANSWER = _Update("answer", "offer", "value", "counts", "version")
_CREDIT = _Update("credit", "answer", "state", "reason")
_NO_ANSWER = delete(schema.answer).where(schema.answer.c.offer == bindparam("key"))
_NO_NOTES = update(schema.offer).where(schema.offer.c.worker == bindparam("key")).values(note=None)
_NO_SESSIONS = (
    update(schema.visit)
    .where(schema.visit.c.worker == bindparam("key"))
    .values(external_session=None)
)
_NO_TOKENS = delete(schema.token).where(schema.token.c.worker == bindparam("key"))
_DROPPED = (
    update(schema.dropped)
    .where(
        schema.dropped.c.campaign == bindparam("in_campaign"),
        schema.dropped.c.source == bindparam("of_source"),
        schema.dropped.c.source_id == bindparam("key"),
    )
    .values(version=bindparam("new_version"))
)


def write(connection: Connection, book: Book) -> None:
    """Write all that differs from the facts; nothing is written where nothing differs."""
    _Writing(connection, book).write()


class _Writing:
    def __init__(self, connection: Connection, book: Book) -> None:
        self.connection = connection
        self.book = book

    def _run(self, statement: Any, rows: Iterable[dict[str, Any]]) -> None:
        listed = list(rows)
        if listed:
            self.connection.execute(statement, listed)

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        self._run(_INSERTS[table], map(_values, rows))

    def _update(self, how: _Update, rows: Iterable[Row]) -> None:
        self._run(how.statement, map(how.values, rows))

    def _save(
        self, table: str, how: _Update, old: Mapping[Any, RowT], new: Mapping[Any, RowT]
    ) -> list[tuple[RowT, RowT]]:
        """Write rows that changed, then those that are new; return the former with what they were.

        New ones may take places that others give up.
        """
        changed = [
            (before, row)
            for key, row in new.items()
            if (before := old.get(key)) is not None and before is not row
        ]
        self._update(how, (row for _, row in changed))
        self._insert(table, (row for key, row in new.items() if key not in old))
        return changed

    def write(self) -> None:
        old, new = self.book.facts, self.book
        campaigns = self._save("campaign", _MONEY, old.campaigns, new.campaigns)
        self._update(_SETUP, (row for before, row in campaigns if _setup(before) != _setup(row)))
        tasks = self._save("task", _COUNTS, old.tasks, new.tasks)
        self._update(_TRUTH, (row for before, row in tasks if _truth(before) != _truth(row)))
        self._save("worker", _WORKER, old.workers, new.workers)
        self._save("visit", _VISIT, old.visits, new.visits)
        self._insert("token", new.tokens)
        # Places are given up before they are taken: every row is checked by itself.
        offers = sorted(new.offers.items(), key=lambda pair: (pair[1].state not in FREE, pair[0]))
        self._save("offer", _OFFER, old.offers, dict(offers))
        self._run(_NO_ANSWER, ({"key": key} for key in old.answers if key not in new.answers))
        self._save("answer", _ANSWER, old.answers, new.answers)
        self._save("credit", _CREDIT, old.credits, new.credits)
        self._insert("event", new.events)
        self._write_keys()
        for statement in (_NO_NOTES, _NO_SESSIONS, _NO_TOKENS):
            self._run(statement, ({"key": worker} for worker in new.erased))

    def _write_keys(self) -> None:
        """Write what has no row of its own: idempotency keys, and what other tools dropped."""
        old, new = self.book.facts, self.book
        told = [
            {"campaign": key[0], "key": key[1], "body": body}
            for key, body in new.keys.items()
            if key not in old.keys
        ]
        self._run(_INSERTS["idempotency"], told)
        for key, version in new.dropped.items():
            if key not in old.dropped:
                names = ("campaign", "source", "source_id", "version")
                self._run(_INSERTS["dropped"], [dict(zip(names, (*key, version), strict=True))])
            elif old.dropped[key] != version:
                names = ("in_campaign", "of_source", "key", "new_version")
                self._run(_DROPPED, [dict(zip(names, (*key, version), strict=True))])


def _setup(row: CampaignRow) -> tuple[object, ...]:
    return row.title, row.instructions, row.question, row.rules, row.state


def _truth(row: TaskRow) -> tuple[object, ...]:
    return row.kind, row.truth


def _values(row: Row) -> dict[str, Any]:
    """A row as its table holds it."""
    found = {name: getattr(row, name) for name in row.__slots__}
    if isinstance(row, CampaignRow):
        found |= {"question": row.question.as_dict(), "rules": row.rules.as_dict()}
    elif isinstance(row, TaskRow):
        found["n_taken"] = row.n_taken
    return found
