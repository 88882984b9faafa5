"""Exports: whole tables as CSV or JSON, row by row, so that no table has to fit into memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Select, func, select

from voxpop.service.api.reads import Row, answers_query, credits_query, plain_answer, plain_credit
from voxpop.service.api.state import Service
from voxpop.service.api.views import estimate_row, latest
from voxpop.service.questions import Question
from voxpop.service.schema import credit, offer, task, visit, worker

_AT_ONCE = 1000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export_rows(service: Service, row: Mapping[Any, Any], what: str, format: str) -> Iterator[str]:
    """Return a table of a campaign as text, in parts."""
    names = list(Question.parse(row["question"]).value_names)
    number = row["id"]
    rows: Iterator[Row]
    if what == "answers":
        rows = _answers(service, number, names)
    elif what == "estimates":
        rows = _estimates(service, number, names)
    elif what == "credits":
        rows = _selected(service, credits_query(number), plain_credit)
    else:
        rows = _selected(service, payments_query(number), dict)
    columns = _columns(what, names)
    return _csv(rows, columns) if format == "csv" else _json(rows)


def _columns(what: str, names: list[str]) -> list[str]:
    if what == "answers":
        return ["task", "worker", *names, "counts", "kind", "lead_ms", "source", "version", "at"]
    if what == "estimates":
        many = [f"{name}_{part}" for name in names for part in ("sd", "lower_95", "upper_95")]
        return ["task", *names, *many, "n_answers", "kind", "state", "needs_a_look", "reason"]
    if what == "credits":
        first = ["answer", "worker", "task", "provider", "external", "session"]
        return [*first, "amount", "state", "reason"]
    first = ["provider", "external", "session", "worker", "visit_state", "completion_code"]
    return [*first, "n_answers", "due", "approved", "rejected", "paid", "reason"]


def _selected(service: Service, query: Select[Any], plain: Any) -> Iterator[Row]:
    with service.database.connect() as connection:
        for row in _read(connection, query):
            yield plain(row)


def _read(connection: Connection, query: Select[Any]) -> Iterator[Mapping[Any, Any]]:
    found = connection.execution_options(yield_per=_AT_ONCE).execute(query)
    yield from found.mappings()


def _answers(service: Service, number: int, names: list[str]) -> Iterator[Row]:
    for row in _selected(service, answers_query(number), plain_answer):
        yield row | dict(zip(names, row.pop("value"), strict=True))


def _estimates(service: Service, number: int, names: list[str]) -> Iterator[Row]:
    arrays = latest(service, number, "estimates")
    if arrays is None:
        return
    place = {int(one): k for k, one in enumerate(arrays["task"])}
    query = select(task).where(task.c.campaign == number).order_by(task.c.id)
    with service.database.connect() as connection:
        for row in _read(connection, query):
            if row["id"] not in place:
                continue
            found = estimate_row(row, arrays, place[row["id"]])
            numbers = {part: found.pop(part) for part in ("sd", "lower_95", "upper_95")}
            flat = {"task": found.pop("name"), **found}
            flat |= dict(zip(names, flat.pop("estimate"), strict=True))
            for part, values in numbers.items():
                for name, value in zip(names, values, strict=True):
                    flat[f"{name}_{part}"] = value
            flat.pop("content")
            yield flat


def payments_query(number: int) -> Select[Any]:
    """Select what to pay and what to approve, one row a visit: a provider pays visits."""
    sums = {
        state: func.sum(credit.c.amount).filter(credit.c.state == state).label(state)
        for state in ("due", "approved", "rejected", "paid")
    }
    return (
        select(
            worker.c.provider, worker.c.external, visit.c.external_session.label("session"),
            worker.c.pseudonym.label("worker"), visit.c.state.label("visit_state"),
            visit.c.completion_code, func.count().label("n_answers"), *sums.values(),
            func.max(credit.c.reason).label("reason"),
        )
        .join_from(credit, worker, worker.c.id == credit.c.worker)
        .join(offer, offer.c.id == credit.c.answer)
        .outerjoin(visit, visit.c.id == offer.c.visit)
        .where(credit.c.campaign == number)
        .group_by(
            worker.c.provider, worker.c.external, visit.c.external_session, worker.c.pseudonym,
            visit.c.state, visit.c.completion_code, worker.c.id, visit.c.id,
        )
        .order_by(worker.c.id, visit.c.id)
    )  # fmt: skip


def _csv(rows: Iterable[Row], columns: list[str]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for number, row in enumerate(rows):
        writer.writerow([_cell(row.get(name)) for name in columns])
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _cell(item: Any) -> Any:
    """Keep a spreadsheet from running a text as a formula; numbers stay as they are."""
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, str) and item.startswith(_FORMULA) and not _is_number(item):
        return f"'{item}"
    return item


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json(rows: Iterable[Row]) -> Iterator[str]:
    before = "["
    for row in rows:
        yield before + json.dumps(row)
        before = ",\n"
    yield "[]" if before == "[" else "]"
