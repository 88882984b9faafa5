"""Views: what inference published, joined with the database: summary, estimates, explanations."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sqlalchemy import RowMapping, select
from starlette.concurrency import run_in_threadpool

from voxpop.service.api.pictures import shown
from voxpop.service.api.problems import Problem
from voxpop.service.api.reads import (
    Row,
    answers_query,
    campaign_facts,
    decode_cursor,
    encode_cursor,
)
from voxpop.service.api.state import Service
from voxpop.service.published import finite
from voxpop.service.schema import campaign, task

Arrays = Mapping[str, Any]
_NOTICES = {
    "none": "There is no estimate yet: tasks with the fewest answers come first.",
    "late": "Inference has not published for {age:.0f} s: the order of tasks may be out of date, "
    "and once it is used up, tasks with the fewest answers come first.",
}


@dataclass
class Latest:
    """What inference knows of a campaign, decoded once per edition."""

    edition: dict[str, int] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    summary: Row | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def latest(service: Service, number: int, kind: str) -> Any:
    """Return what inference published last of a kind, decoded; None where there is nothing."""
    known: Latest = service.watched.setdefault(number, Latest())
    found = service.published.read(number, kind, other_than=known.edition.get(kind))
    if found is not None:
        if kind == "estimates":
            with np.load(io.BytesIO(found.content), allow_pickle=False) as arrays:
                known.content[kind] = {name: arrays[name] for name in arrays.files}
        else:
            known.content[kind] = json.loads(found.content)
        known.edition[kind] = found.edition
    return known.content.get(kind)


# The summary


async def summary_of(service: Service, number: int) -> Row:
    """Return the summary, computed at most once in ``live_every`` seconds for all viewers."""
    known: Latest = service.watched.setdefault(number, Latest())
    async with known.lock:
        if known.summary is None or time.monotonic() - known.at >= service.settings.live_every:
            known.summary = await run_in_threadpool(make_summary, service, number)
            known.at = time.monotonic()
        return known.summary


def make_summary(service: Service, number: int) -> Row:
    """Join the last output of inference with the database now."""
    told: Row = dict(latest(service, number, "summary") or {})
    with service.database.connect() as connection:
        query = select(campaign).where(campaign.c.id == number)
        row = connection.execute(query).mappings().one()
        facts = campaign_facts(connection, number)
    seen = int(told.get("seq", -1))
    age = max(0.0, service.clock() - float(told.get("at", 0.0)))
    if not told:
        state = "none"
    elif seen < row["seq"] and age > service.settings.late_after:
        state = "late"
    else:
        state = "running"
    notice = _NOTICES[state].format(age=age) if state in _NOTICES else None
    return {
        **told,
        **facts,
        "seq": row["seq"],
        "inference_seq": seen,
        "edition": service.watched[number].edition.get("summary", 0),
        "at": service.clock(),
        "state": row["state"],
        "title": row["title"],
        **{name: row[name] for name in ("budget", "spent", "reserved")},
        "price": row["rules"].get("price", 0),
        "currency": row["rules"].get("currency", "EUR"),
        "board_age_s": round(age, 1) if told else None,
        "inference": state,
        "notice": notice,
    }


# Estimates


def estimates_page(
    service: Service, number: int, order: str, after: str | None, limit: int
) -> tuple[list[Row], str | None, int]:
    """Return a page of estimates in an order; tasks without one come last."""
    (at,) = decode_cursor(after, int) or [0]
    arrays = latest(service, number, "estimates")
    if arrays is None:
        return [], None, 0
    ids = arrays["task"]
    ranked = _ranked(arrays, order)[at : at + limit]
    query = select(task).where(task.c.id.in_(ids[ranked].tolist()))
    with service.database.connect() as connection:
        named = {row["id"]: row for row in connection.execute(query).mappings()}
    rows = [
        estimate_row(_seen(service, named[n]), arrays, k) for k in ranked if (n := ids[k]) in named
    ]
    end = at + limit
    return rows, encode_cursor(end) if end < ids.size else None, int(ids.size)


def _ranked(arrays: Arrays, order: str) -> Any:
    width = np.asarray(arrays["upper_95"]) - np.asarray(arrays["lower_95"])
    widest = np.nan_to_num(width, nan=np.inf, posinf=np.inf).max(axis=1, initial=0.0)
    if order == "look":
        return np.lexsort((arrays["task"], -widest, ~arrays["needs_a_look"]))
    if order == "width":
        return np.lexsort((arrays["task"], -widest))
    if order == "answers":
        return np.lexsort((arrays["task"], arrays["n"]))
    return np.argsort(arrays["task"], kind="stable")


def _seen(service: Service, row: RowMapping) -> Row:
    """Return a task whose picture has the address that a browser can load."""
    return {**row, "content": shown(service.database.secret, row["content"])}


def estimate_row(row: Mapping[Any, Any], arrays: Arrays, k: int) -> Row:
    """Return one task with its estimate."""
    names = ("estimate", "sd", "lower_95", "upper_95")
    numbers = {name: [finite(x) for x in arrays[name][k]] for name in names}
    return {
        "name": row["name"],
        "content": row["content"],
        "kind": row["kind"],
        **numbers,
        "n_answers": row["n_answers"],
        "state": row["state"],
        "needs_a_look": bool(arrays["needs_a_look"][k]),
        "reason": str(arrays["reason"][k]),
    }


# One task


def explanation(service: Service, number: int, name: str) -> Row:
    """Return one task answer by answer: worker, value, noise and weight."""
    with service.database.connect() as connection:
        query = select(task).where(task.c.campaign == number, task.c.name == name)
        found_row = connection.execute(query).mappings().one_or_none()
        if found_row is None:
            raise Problem(404, "no_task", f"this campaign has no task {name[:100]!r}")
        row = _seen(service, found_row)
        given = answers_query(number).where(task.c.id == row["id"])
        answers = connection.execute(given).mappings().all()
    arrays = latest(service, number, "estimates")
    shared = ("name", "content", "kind", "truth", "state", "n_answers")
    found = {fact: row[fact] for fact in shared}
    if arrays is not None:
        for k in np.flatnonzero(arrays["task"] == row["id"]).tolist():
            found |= estimate_row(row, arrays, k)
    workers = workers_of(service, number)
    precision = [
        _precision(workers.get(str(a["worker_id"]), {})) if a["counts"] else 0.0 for a in answers
    ]
    total = sum(precision)
    found["answers"] = [
        {
            "worker": a["worker"],
            "value": a["value"],
            "counts": a["counts"],
            "noise": workers.get(str(a["worker_id"]), {}).get("noise"),
            "weight": p / total if total else None,
        }
        for a, p in zip(answers, precision, strict=True)
    ]
    return found


def workers_of(service: Service, number: int) -> dict[str, Row]:
    """Return what inference published about the workers, by worker number."""
    return latest(service, number, "workers") or {}


def _precision(worker: Row) -> float:
    """Weigh a worker by the noise of the worker's own answers; unknown workers all the same."""
    middle = float(worker.get("noise_sd") or 1.0)
    return 1.0 / middle**2 if middle > 0 else 0.0
