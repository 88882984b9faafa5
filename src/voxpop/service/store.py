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

Key = TypeVar("Key")
RowT = TypeVar("RowT")

_INSERTS = {name: insert(table) for name, table in schema.metadata.tables.items()}


def _update(table: str, key: str, *columns: str) -> Any:
    found = schema.metadata.tables[table]
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
    return update(found).where(found.c[key] == bindparam("key")).values(values)


_MONEY = _update("campaign", "id", "seq", "reserved", "spent")
_CAMPAIGN = _update(
    "campaign", "id", "seq", "reserved", "spent", "title", "instructions", "question", "rules",
    "state", "budget",
)  # fmt: skip
_COUNTS = _update("task", "id", "n_open", "n_answers", "n_taken", "state")
_TRUTHS = _update("task", "id", "kind", "truth")
_WORKER = _update("worker", "id", "state", "external", "external_hmac", "n_answers", "n_practice")
_VISIT = _update("visit", "id", "state", "completion_code")
_OFFER = _update("offer", "id", "state", "expires", "note")
_ANSWER = _update("answer", "offer", "value", "counts", "version")
_CREDIT = _update("credit", "answer", "state", "reason")
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


def _split(
    old: Mapping[Key, RowT], new: Mapping[Key, RowT]
) -> tuple[list[RowT], list[tuple[RowT, RowT]]]:
    """Rows that are new, and rows that changed with what they were."""
    added, changed = [], []
    for key, row in new.items():
        before = old.get(key)
        if before is None:
            added.append(row)
        elif before is not row:
            changed.append((before, row))
    return added, changed


class _Writing:
    def __init__(self, connection: Connection, book: Book) -> None:
        self.connection = connection
        self.book = book

    def _run(self, statement: Any, rows: Iterable[dict[str, Any]]) -> None:
        listed = list(rows)
        if listed:
            self.connection.execute(statement, listed)

    def write(self) -> None:
        self._campaigns()
        self._tasks()
        self._people()
        self._offers()
        self._answers()
        self._rest()

    def _campaigns(self) -> None:
        added, changed = _split(self.book.facts.campaigns, self.book.campaigns)
        self._run(_INSERTS["campaign"], map(_campaign, added))
        counted: list[CampaignRow] = []
        others: list[CampaignRow] = []
        for before, row in changed:
            same = (before.title, before.instructions, before.question, before.rules) == (
                row.title, row.instructions, row.question, row.rules
            ) and (before.state, before.budget) == (row.state, row.budget)  # fmt: skip
            (counted if same else others).append(row)
        self._run(
            _MONEY,
            (
                {"key": r.id, "new_seq": r.seq, "new_reserved": r.reserved, "new_spent": r.spent}
                for r in counted
            ),
        )
        self._run(
            _CAMPAIGN,
            (
                {"key": row.id}
                | {f"new_{name}": one for name, one in _campaign(row).items()
                   if name not in ("id", "slug", "created")}
                for row in others
            ),
        )  # fmt: skip

    def _tasks(self) -> None:
        added, changed = _split(self.book.facts.tasks, self.book.tasks)
        self._run(_INSERTS["task"], map(_task, added))
        self._run(
            _COUNTS,
            (
                {"key": row.id, "new_n_open": row.n_open, "new_n_answers": row.n_answers,
                 "new_n_taken": row.n_open + row.n_answers, "new_state": row.state}
                for _, row in changed
            ),
        )  # fmt: skip
        self._run(
            _TRUTHS,
            (
                {"key": row.id, "new_kind": row.kind, "new_truth": row.truth}
                for before, row in changed
                if (before.kind, before.truth) != (row.kind, row.truth)
            ),
        )

    def _people(self) -> None:
        added, changed = _split(self.book.facts.workers, self.book.workers)
        self._run(_INSERTS["worker"], map(_as_dict, added))
        self._run(
            _WORKER,
            (
                {"key": row.id, "new_state": row.state, "new_external": row.external,
                 "new_external_hmac": row.external_hmac, "new_n_answers": row.n_answers,
                 "new_n_practice": row.n_practice}
                for _, row in changed
            ),
        )  # fmt: skip
        visits, ended = _split(self.book.facts.visits, self.book.visits)
        self._run(_INSERTS["visit"], map(_as_dict, visits))
        self._run(
            _VISIT,
            (
                {"key": r.id, "new_state": r.state, "new_completion_code": r.completion_code}
                for _, r in ended
            ),
        )
        self._run(_INSERTS["token"], map(_as_dict, self.book.tokens))

    def _offers(self) -> None:
        added, changed = _split(self.book.facts.offers, self.book.offers)
        # Places are given up before they are taken: every row is checked by itself.
        changed.sort(key=lambda pair: (pair[1].state not in FREE, pair[1].id))
        self._run(
            _OFFER,
            (
                {"key": row.id, "new_state": row.state, "new_expires": row.expires,
                 "new_note": row.note}
                for _, row in changed
            ),
        )  # fmt: skip
        self._run(_INSERTS["offer"], map(_as_dict, added))

    def _answers(self) -> None:
        old, new = self.book.facts.answers, self.book.answers
        self._run(_NO_ANSWER, ({"key": key} for key in old if key not in new))
        added, changed = _split(old, new)
        self._run(
            _ANSWER,
            (
                {"key": row.offer, "new_value": row.value, "new_counts": row.counts,
                 "new_version": row.version}
                for _, row in changed
            ),
        )  # fmt: skip
        self._run(_INSERTS["answer"], map(_as_dict, added))
        earned, settled = _split(self.book.facts.credits, self.book.credits)
        self._run(
            _CREDIT,
            (
                {"key": row.answer, "new_state": row.state, "new_reason": row.reason}
                for _, row in settled
            ),
        )
        self._run(_INSERTS["credit"], map(_as_dict, earned))

    def _rest(self) -> None:
        self._run(_INSERTS["event"], map(_as_dict, self.book.events))
        facts = self.book.facts
        new = [
            {"campaign": key[0], "key": key[1], "body": body}
            for key, body in self.book.keys.items()
            if key not in facts.keys
        ]
        self._run(_INSERTS["idempotency"], new)
        for key, version in self.book.dropped.items():
            names = ("campaign", "source", "source_id")
            if key not in facts.dropped:
                row = dict(zip(names, key, strict=True)) | {"version": version}
                self._run(_INSERTS["dropped"], [row])
            elif facts.dropped[key] != version:
                names = ("in_campaign", "of_source", "key")
                row = dict(zip(names, key, strict=True)) | {"new_version": version}
                self._run(_DROPPED, [row])
        for statement in (_NO_NOTES, _NO_SESSIONS, _NO_TOKENS):
            self._run(statement, ({"key": worker} for worker in self.book.erased))


def _as_dict(
    row: WorkerRow | VisitRow | OfferRow | AnswerRow | CreditRow | EventRow | TokenRow,
) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__slots__}


def _campaign(row: CampaignRow) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in row.__slots__}
    return found | {"question": row.question.as_dict(), "rules": row.rules.as_dict()}


def _task(row: TaskRow) -> dict[str, Any]:
    found = {name: getattr(row, name) for name in row.__slots__}
    return found | {"n_taken": row.n_open + row.n_answers}
