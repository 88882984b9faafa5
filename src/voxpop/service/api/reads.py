"""Reads: the tables that owners see, page by page, in orders that a cursor can continue."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, case, func, select, tuple_

from voxpop.service.api.problems import Problem
from voxpop.service.schema import (
    HAS_NOTE,
    answer,
    campaign,
    credit,
    event,
    offer,
    task,
    token,
    visit,
    worker,
)

Row = dict[str, Any]
# A program that adds answers names the workers; people who come by a link have pseudonyms.
_NAME = case(
    (worker.c.provider == "client", func.coalesce(worker.c.external, worker.c.pseudonym)),
    else_=worker.c.pseudonym,
)
_LISTED = ("slug", "title", "state", "budget", "reserved", "spent", "created", "seq")


def encode_cursor(*parts: object) -> str:
    """Make a cursor: where a page ended."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def decode_cursor(text: str | None, *kinds: type) -> list[Any] | None:
    """Read a cursor; refuse an invalid one."""
    if text is None:
        return None
    try:
        parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        parts = None
    if (
        not isinstance(parts, list)
        or [type(part) for part in parts] != list(kinds)
        or any(isinstance(part, int) and not 0 <= part < 2**63 for part in parts)
    ):
        raise Problem(422, "bad_cursor", "the cursor must be the `next` of the previous page")
    return parts


def _page(
    connection: Connection,
    query: Select[Any],
    order: Mapping[str, ColumnElement[Any]],
    after: str | None,
    limit: int,
    newest: bool = False,
) -> tuple[Sequence[RowMapping], str | None]:
    """Read a page of rows after a cursor, and the cursor of the next page.

    ``order`` names the columns that the query is ordered by; ``newest`` where from the last one on.
    """
    start = decode_cursor(after, *(column.type.python_type for column in order.values()))
    if start is not None:
        here, end = tuple_(*order.values()), tuple_(*start)
        query = query.where(here < end if newest else here > end)
    rows = connection.execute(query.limit(limit + 1)).mappings().all()
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], encode_cursor(*(rows[limit - 1][name] for name in order))


def _only(row: RowMapping, *names: str) -> Row:
    return {name: row[name] for name in names}


def campaign_facts(connection: Connection, number: int) -> Row:
    """Count a campaign's tasks, answers that count, workers who have answered, and reports."""
    bare = func.sum(case((task.c.n_answers == 0, 1), else_=0))
    query = select(task.c.state, func.count(), func.sum(task.c.n_answers), bare).where(
        task.c.campaign == number, task.c.kind != "practice"
    )
    found = connection.execute(query.group_by(task.c.state)).all()
    n = {state: count for state, count, *_ in found}
    busy = select(func.count()).where(worker.c.campaign == number, worker.c.n_answers > 0)
    reported = select(func.count()).where(
        offer.c.campaign == number, HAS_NOTE, offer.c.state == "reported"
    )
    return {
        "n_tasks": n.get("open", 0) + n.get("done", 0),
        "n_done": n.get("done", 0),
        "n_unanswered": int(sum(row[3] for row in found if row[0] != "withdrawn")),
        "n_answers": int(sum(row[2] or 0 for row in found)),
        "n_workers": connection.execute(busy).scalar_one(),
        "n_reports": connection.execute(reported).scalar_one(),
    }


def list_campaigns(
    connection: Connection, only: int | None, after: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """List campaigns, the newest first."""
    query = select(campaign).order_by(campaign.c.id.desc())
    if only is not None:
        query = query.where(campaign.c.id == only)
    rows, cursor = _page(connection, query, {"id": campaign.c.id}, after, limit, newest=True)
    return [campaign_row(connection, row) for row in rows], cursor


def campaign_row(connection: Connection, row: RowMapping, *, whole: bool = False) -> Row:
    """Return a campaign with its counts; the whole of it also with its question and rules."""
    found = _only(row, *_LISTED)
    if whole:
        found |= _only(row, "instructions", "question", "rules")
    currency = row["rules"].get("currency", "EUR")
    return found | {"currency": currency} | campaign_facts(connection, row["id"])


def list_tasks(
    connection: Connection, number: int, after: str | None, limit: int, state: str | None = None
) -> tuple[list[Row], str | None]:
    """List tasks in the order in which they came."""
    query = select(task).where(task.c.campaign == number).order_by(task.c.id)
    if state is not None:
        query = query.where(task.c.state == state)
    rows, cursor = _page(connection, query, {"id": task.c.id}, after, limit)
    names = ("name", "content", "kind", "truth", "state", "n_open", "n_answers")
    return [_only(row, *names) for row in rows], cursor


def answers_query(number: int) -> Select[Any]:
    """Select all answers of a campaign, with names of tasks and pseudonyms of workers."""
    return (
        select(
            answer.c.offer.label("id"), answer.c.task.label("task_id"),
            answer.c.worker.label("worker_id"), task.c.name.label("task"), task.c.kind,
            _NAME.label("worker"), answer.c.value, answer.c.counts,
            answer.c.lead_ms, answer.c.source, answer.c.version, answer.c.at,
        )
        .join_from(answer, task, task.c.id == answer.c.task)
        .join(worker, worker.c.id == answer.c.worker)
        .where(answer.c.campaign == number)
        .order_by(answer.c.task, answer.c.worker)
    )  # fmt: skip


def list_answers(
    connection: Connection, number: int, after: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """List answers by task and worker."""
    order = {"task_id": answer.c.task, "worker_id": answer.c.worker}
    rows, cursor = _page(connection, answers_query(number), order, after, limit)
    return [plain_answer(row) for row in rows], cursor


def plain_answer(row: Mapping[Any, Any]) -> Row:
    """Return an answer without the numbers of rows."""
    return {name: item for name, item in row.items() if name not in ("task_id", "worker_id")}


def credits_query(number: int) -> Select[Any]:
    """Select what workers earned, with what a payment needs: the person and session outside."""
    return (
        select(
            credit.c.answer, worker.c.pseudonym.label("worker"), task.c.name.label("task"),
            worker.c.provider, worker.c.external, visit.c.external_session.label("session"),
            credit.c.amount, credit.c.state, credit.c.reason, offer.c.visit,
        )
        .join_from(credit, worker, worker.c.id == credit.c.worker)
        .join(offer, offer.c.id == credit.c.answer)
        .join(task, task.c.id == offer.c.task)
        .outerjoin(visit, visit.c.id == offer.c.visit)
        .where(credit.c.campaign == number)
        .order_by(credit.c.answer)
    )  # fmt: skip


def list_credits(
    connection: Connection, number: int, after: str | None, limit: int, state: str | None
) -> tuple[list[Row], str | None]:
    """List credits by the ids of their answers."""
    query = credits_query(number)
    if state is not None:
        query = query.where(credit.c.state == state)
    rows, cursor = _page(connection, query, {"answer": credit.c.answer}, after, limit)
    return [plain_credit(row) for row in rows], cursor


def plain_credit(row: Mapping[Any, Any]) -> Row:
    """Return a credit without the number of its visit."""
    return {name: item for name, item in row.items() if name != "visit"}


def list_workers(
    connection: Connection, number: int, after: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """List workers in the order in which they came, with what they earned."""
    query = select(worker).where(worker.c.campaign == number).order_by(worker.c.id)
    rows, cursor = _page(connection, query, {"id": worker.c.id}, after, limit)
    credits = (
        select(credit.c.worker, func.sum(credit.c.amount))
        .where(credit.c.worker.in_([row["id"] for row in rows]), credit.c.state != "rejected")
        .group_by(credit.c.worker)
    )
    earned = {person: int(total) for person, total in connection.execute(credits)}
    names = ("id", "pseudonym", "provider", "state", "n_answers", "n_practice", "created")
    return [_only(row, *names) | {"earned": earned.get(row["id"], 0)} for row in rows], cursor


def list_reports(
    connection: Connection, number: int, after: str | None, limit: int, state: str
) -> tuple[list[Row], str | None]:
    """List the workers' notes on tasks that they reported or skipped, the newest first."""
    query = (
        select(
            task.c.name.label("task"), task.c.state.label("task_state"),
            worker.c.pseudonym.label("worker"), offer.c.note.label("text"), offer.c.id,
            offer.c.created.label("at"),
        )
        .join_from(offer, task, task.c.id == offer.c.task)
        .join(worker, worker.c.id == offer.c.worker)
        .where(offer.c.campaign == number, HAS_NOTE, offer.c.state == state)
        .order_by(offer.c.created.desc(), offer.c.id.desc())
    )  # fmt: skip
    order = {"at": offer.c.created, "id": offer.c.id}
    rows, cursor = _page(connection, query, order, after, limit, newest=True)
    return [{name: item for name, item in row.items() if name != "id"} for row in rows], cursor


# What links open; a worker's own token comes from no link of an owner.
LINK_KINDS = {"campaign_link": "invite", "owner": "owner", "label_studio": "label_studio"}


def list_links(
    connection: Connection, number: int, after: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """List a campaign's links that were not revoked; only hashes of them are known."""
    query = (
        select(token.c.hash.label("id"), token.c.scope, token.c.note, token.c.expires)
        .where(token.c.campaign == number, token.c.scope.in_(LINK_KINDS))
        .order_by(token.c.hash)
    )
    rows, cursor = _page(connection, query, {"id": token.c.hash}, after, limit)
    return [
        {"kind": LINK_KINDS[row["scope"]], **_only(row, "id", "note", "expires")} for row in rows
    ], cursor


def list_events(
    connection: Connection, number: int, after: int, limit: int
) -> tuple[list[Row], int | None]:
    """List events after a sequence number."""
    query = (
        select(event.c.seq, event.c.at, event.c.actor, event.c.kind, event.c.body)
        .where(event.c.campaign == number, event.c.seq > after)
        .order_by(event.c.seq)
        .limit(limit + 1)
    )
    rows = [dict(row) for row in connection.execute(query).mappings()]
    more = len(rows) > limit
    return rows[:limit], rows[limit - 1]["seq"] if more else None
