"""Providers: how Prolific and Mechanical Turk send workers here, and where they go at the end.

Their parameters cannot be checked here, so a link also carries one of our tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from voxpop.service.api.guard import MTURK_HOSTS
from voxpop.service.api.problems import Problem
from voxpop.service.commands import fresh_id

PREVIEW = "ASSIGNMENT_ID_NOT_AVAILABLE"
PROLIFIC_END = "https://app.prolific.com/submissions/complete?cc="
MTURK_FRAMES = ("https://worker.mturk.com", "https://workersandbox.mturk.com", MTURK_HOSTS[0])
"""Who shows the worker page in a frame, where a campaign's rules name mturk."""

_LONGEST_ID = 100


@dataclass(frozen=True)
class Arrival:
    """A new worker: the id with the provider and its session; ``paid`` where it must be kept."""

    external: str
    session: str | None
    paid: bool
    preview: bool = False


def arrival(provider: str, params: Mapping[str, str], rules: Mapping[str, Any]) -> Arrival:
    """Read who a provider sent, from the parameters of the page."""
    if provider == "prolific":
        person, session = (_need(params, name) for name in ("PROLIFIC_PID", "SESSION_ID"))
        return Arrival(person, session, paid=True)
    if provider == "mturk":
        assignment = _need(params, "assignmentId")
        if assignment == PREVIEW:
            return Arrival("", None, paid=False, preview=True)
        sent_to = params.get("turkSubmitTo", mturk_host(rules))
        if _origin(sent_to) != mturk_host(rules):
            raise Problem(
                422,
                "bad_submit_host",
                f"turkSubmitTo must be {mturk_host(rules)} (rule mturk.sandbox decides which)",
            )
        return Arrival(_need(params, "workerId"), assignment, paid=True)
    return Arrival(fresh_id(), None, paid=False)


def mturk_host(rules: Mapping[str, Any]) -> str:
    """Return the host that finished assignments are sent to: the real one, or the sandbox."""
    live, sandbox = MTURK_HOSTS
    return sandbox if (rules.get("mturk") or {}).get("sandbox") else live


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _need(params: Mapping[str, str], name: str) -> str:
    found = params.get(name, "").strip()
    if not found or len(found) > _LONGEST_ID or found.startswith("{{"):
        raise Problem(422, "bad_parameters", f"the link lacks {name}; check how it was set up")
    return found


def completion_code(
    provider: str, reason: str, answered: int, rules: Mapping[str, Any]
) -> tuple[str, str | None]:
    """Return the state in which a visit ends, and the owner's code for it where there is one.

    Prolific has separate codes for who finished, who was screened out, and who found nothing left.
    """
    state = "screened_out" if reason == "banned" else "completed"
    if provider != "prolific":
        return state, None
    codes = rules.get("prolific") or {}
    name = "nothing_left" if state == "completed" and not answered else state
    code = codes.get(name) or codes.get("completed")
    return state, str(code) if code else None


def completion(
    provider: str, code: str, session: str | None, rules: Mapping[str, Any]
) -> dict[str, Any]:
    """Return where a worker goes at the end of a visit."""
    found: dict[str, Any] = {"provider": provider, "code": code, "url": None, "form": None}
    if provider == "prolific":
        found["url"] = PROLIFIC_END + quote(code, safe="")
    elif provider == "mturk":
        found["form"] = {
            "action": f"{mturk_host(rules)}/mturk/externalSubmit",
            "fields": {"assignmentId": session or "", "code": code},
        }
    return found


def link_query(kind: str, token: str) -> str:
    """Return the query of a worker link; Prolific fills in the placeholders itself."""
    query = f"?invite={token}"
    if kind == "prolific":
        for name in ("PROLIFIC_PID", "STUDY_ID", "SESSION_ID"):
            query += f"&{name}={{{{%{name}%}}}}"
    return query
