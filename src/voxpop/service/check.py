"""Check: whether a database is consistent; every finding is one line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, case, func, or_, select

from voxpop.service.database import Database
from voxpop.service.schema import FREE, answer, campaign, credit, event, offer, task, worker

# Of each kind of finding this many are listed, and the number of the others.
_TOLD = 20


def check(database: Database) -> list[str]:
    """Compare counters with the rows, in one read transaction.

    Counters of tasks and workers, money reserved and spent, events in sequence, answers with their
    offers and credits, and the answers according to the events.
    """
    with database.connect() as connection:
        found = [*_files(connection)]
        if found:
            # Nothing further can be trusted, or perhaps read.
            return found
        if database.dialect == "postgresql":
            connection.rollback()
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        for one in (_sequences, _money, _tasks, _workers, _offers, _credits, _told_by_events):
            found += _some(one(connection))
    return found


def _some(lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    more = len(listed) - _TOLD
    return listed if more <= 0 else [*listed[:_TOLD], f"… and {more} more of this kind"]


def _files(connection: Connection) -> Iterable[str]:
    """SQLite's own checks; PostgreSQL keeps foreign keys itself."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.exec_driver_sql("PRAGMA integrity_check"):
        if line != "ok":
            yield f"the file is damaged: {line}"
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"table {table}, row {row}: refers to a row of {parent} that is not there"


def _sequences(connection: Connection) -> Iterable[str]:
    read = (
        select(campaign.c.slug, campaign.c.seq, func.count(event.c.seq), func.max(event.c.seq))
        .select_from(campaign.outerjoin(event, event.c.campaign == campaign.c.id))
        .group_by(campaign.c.id, campaign.c.slug, campaign.c.seq)
    )
    for slug, seq, n, last in connection.execute(read):
        if not seq == n == (last or 0):
            yield f"campaign {slug}: is at event {seq}, has {n} events, the last is number {last}"


def _money(connection: Connection) -> Iterable[str]:
    held = (
        select(offer.c.campaign, func.sum(offer.c.price).label("amount"))
        .where(offer.c.state == "open")
        .group_by(offer.c.campaign)
        .subquery()
    )
    earned = (
        select(credit.c.campaign, func.sum(credit.c.amount).label("amount"))
        .where(credit.c.state != "rejected")
        .group_by(credit.c.campaign)
        .subquery()
    )
    read = select(
        campaign.c.slug, campaign.c.reserved, func.coalesce(held.c.amount, 0),
        campaign.c.spent, func.coalesce(earned.c.amount, 0), campaign.c.budget,
    ).select_from(
        campaign.outerjoin(held, held.c.campaign == campaign.c.id)
        .outerjoin(earned, earned.c.campaign == campaign.c.id)
    )  # fmt: skip
    for slug, reserved, held_now, spent, earned_now, budget in connection.execute(read):
        if reserved != held_now:
            yield f"campaign {slug}: {reserved} is reserved, open offers come to {held_now}"
        if spent != earned_now:
            yield f"campaign {slug}: {spent} is spent, credits come to {earned_now}"
        if budget is not None and held_now + earned_now > budget:
            yield f"campaign {slug}: {held_now + earned_now} is more than the budget, {budget}"


def _counted(table: Any, key: Any, condition: Any) -> Any:
    return (
        select(key.label("key"), func.count().label("n"))
        .select_from(table)
        .where(condition)
        .group_by(key)
        .subquery()
    )


def _tasks(connection: Connection) -> Iterable[str]:
    opened = _counted(offer, offer.c.task, offer.c.state == "open")
    given = _counted(answer, answer.c.task, answer.c.counts)
    n_open, n_answers = func.coalesce(opened.c.n, 0), func.coalesce(given.c.n, 0)
    read = (
        select(task.c.name, task.c.n_open, n_open, task.c.n_answers, n_answers)
        .select_from(
            task.outerjoin(opened, opened.c.key == task.c.id)
            .outerjoin(given, given.c.key == task.c.id)
        )
        .where(or_(task.c.n_open != n_open, task.c.n_answers != n_answers))
    )  # fmt: skip
    for name, open_told, open_there, told, there in connection.execute(read):
        if open_told != open_there:
            yield f"task {name!r}: counts {open_told} open offers, there are {open_there}"
        if told != there:
            yield f"task {name!r}: counts {told} answers, there are {there}"


def _workers(connection: Connection) -> Iterable[str]:
    practice = func.sum(case((task.c.kind == "practice", 1), else_=0))
    given = (
        select(answer.c.worker, func.count().label("n"), practice.label("practice"))
        .select_from(answer.join(task, task.c.id == answer.c.task))
        .group_by(answer.c.worker)
        .subquery()
    )
    n, n_practice = func.coalesce(given.c.n, 0), func.coalesce(given.c.practice, 0)
    read = (
        select(worker.c.pseudonym, worker.c.n_answers, n, worker.c.n_practice, n_practice)
        .select_from(worker.outerjoin(given, given.c.worker == worker.c.id))
        .where(or_(worker.c.n_answers != n - n_practice, worker.c.n_practice != n_practice))
    )
    for name, told, n_there, practised, practice_there in connection.execute(read):
        yield (
            f"worker {name}: counts {told} answers and {practised} in practice, there are "
            f"{n_there - practice_there} and {practice_there}"
        )


def _offers(connection: Connection) -> Iterable[str]:
    same = (
        (answer.c.task == offer.c.task)
        & (answer.c.worker == offer.c.worker)
        & (answer.c.campaign == offer.c.campaign)
    )
    read = (
        select(offer.c.id, offer.c.state, answer.c.offer, same)
        .select_from(offer.outerjoin(answer, answer.c.offer == offer.c.id))
        .where(
            or_(
                (offer.c.state == "answered") & answer.c.offer.is_(None),
                (offer.c.state != "answered") & answer.c.offer.is_not(None),
                ~same,
            )
        )
    )
    for number, state, there, _ in connection.execute(read):
        answered = "has no answer" if there is None else "has an answer"
        yield f"offer {number}: is {state} and {answered}, or that of another task or worker"
    twice = (
        select(offer.c.task, offer.c.worker, func.count())
        .where(offer.c.state.not_in(FREE))
        .group_by(offer.c.task, offer.c.worker)
        .having(func.count() > 1)
    )
    for number, person, n in connection.execute(twice):
        yield f"task number {number}: worker number {person} holds it {n} times"


def _credits(connection: Connection) -> Iterable[str]:
    read = (
        select(answer.c.offer)
        .select_from(
            answer.join(task, task.c.id == answer.c.task)
            .outerjoin(credit, credit.c.answer == answer.c.offer)
        )
        .where(answer.c.source == "page", task.c.kind != "practice", credit.c.answer.is_(None))
    )  # fmt: skip
    for (number,) in connection.execute(read):
        yield f"answer {number}: has earned no credit"
    others = (
        select(credit.c.answer)
        .select_from(credit.join(offer, offer.c.id == credit.c.answer))
        .where(or_(credit.c.worker != offer.c.worker, credit.c.amount != offer.c.price))
    )
    for (number,) in connection.execute(others):
        yield f"credit {number}: belongs to another worker, or is not the price of its offer"


def _told_by_events(connection: Connection) -> Iterable[str]:
    """The answers that count, according to the events, and as they are."""
    told: dict[str, tuple[int, int, list[float], int]] = {}
    counting: dict[str, bool] = {}
    by_worker: dict[int, set[str]] = {}
    read = (
        select(event.c.kind, event.c.body)
        .where(event.c.kind.in_(("answer", "retracted", "worker_state", "erased")))
        .order_by(event.c.campaign, event.c.seq)
        .execution_options(yield_per=5000)
    )
    practice = set(connection.execute(select(task.c.id).where(task.c.kind == "practice")).scalars())
    for kind, body in connection.execute(read):
        mine = by_worker.setdefault(body["worker"], set())
        if kind == "answer":
            number = body["offer"]
            told[number] = (body["task"], body["worker"], body["value"], body["version"])
            counting.setdefault(number, body["counts"])
            mine.add(number)
        elif kind == "retracted":
            told.pop(body["offer"], None)
            counting.pop(body["offer"], None)
            mine.discard(body["offer"])
        elif kind == "worker_state":
            counting.update((one, body["counts"] and told[one][0] not in practice) for one in mine)
        elif not body["kept"]:
            for one in mine:
                told.pop(one, None)
                counting.pop(one, None)
            mine.clear()
    rows = select(
        answer.c.offer, answer.c.task, answer.c.worker, answer.c.value, answer.c.version,
        answer.c.counts,
    ).execution_options(yield_per=5000)  # fmt: skip
    for number, *row, counts in connection.execute(rows):
        if told.pop(number, None) != tuple(row) or counting[number] != counts:
            yield f"answer {number}: differs from its events"
    for number in told:
        yield f"answer {number}: is in the events, but not in its table"
