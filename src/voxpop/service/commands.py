"""Commands: all that may change a campaign, and the replies to them.

A command carries the randomness that it needs (the id of the offer that it may become, the draw
that decides on gold), so that ``decide`` is a function of the facts, the commands and the time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from typing import Any

_random = SystemRandom()

# A version that nothing exceeds: what was dropped with it stays dropped.
LAST_VERSION = 2**62


def fresh_id() -> str:
    """A random id that cannot be guessed and carries no information."""
    return secrets.token_urlsafe(15)


def pseudonym_of(worker: int, fresh: str) -> str:
    """The name of a worker: the worker's number and a few random letters."""
    letters = hashlib.sha256(fresh.encode()).hexdigest()[:6]
    return f"w{worker}-{letters}"


def hidden(secret: bytes, campaign: int, provider: str, external: str) -> str:
    """A person's id with a provider as a campaign stores it: the same person, not readable."""
    text = f"{campaign}\0{provider}\0{external}".encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


# ---------------------------------------------------------------- what owners ask for


@dataclass(frozen=True, kw_only=True)
class CreateCampaign:
    """Make a campaign, as a draft."""

    slug: str
    title: str
    question: Mapping[str, Any]
    instructions: str = ""
    rules: Mapping[str, Any] = field(default_factory=dict)
    budget: int | None = None
    state: str = "draft"


@dataclass(frozen=True, kw_only=True)
class ChangeCampaign:
    """Change title, instructions, question, state, budget, or single rules of a campaign."""

    campaign: int
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """One task to add."""

    name: str
    content: Mapping[str, Any]
    kind: str = "real"
    truth: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True)
class AddTasks:
    """Add tasks, all or none. The same key and tasks again give the same reply."""

    campaign: int
    tasks: Sequence[NewTask]
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class SetGold:
    """Set the truth of tasks by name (they become gold), or None (they become real)."""

    campaign: int
    truths: Mapping[str, Sequence[float] | None]


@dataclass(frozen=True, kw_only=True)
class WithdrawTasks:
    """Stop offering these tasks; open offers of them may still be answered."""

    campaign: int
    names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class MarkDone:
    """Tasks meet the stop rule, as of an event; ignored if answers were taken out since."""

    campaign: int
    tasks: Sequence[int]
    as_of_seq: int


@dataclass(frozen=True, kw_only=True)
class SetWorker:
    """Make a worker active, paused, quarantined or banned."""

    campaign: int
    worker: int
    state: str


@dataclass(frozen=True, kw_only=True)
class Erase:
    """Forget who a worker is; delete the answers too, or keep them without a person."""

    campaign: int
    worker: int
    keep_answers: bool


@dataclass(frozen=True, kw_only=True)
class SetCredits:
    """Approve, reject or mark as paid what workers earned, by the ids of the answered offers."""

    campaign: int
    answers: Sequence[str]
    state: str
    reason: str = ""


# ---------------------------------------------------------------- what workers ask for


@dataclass(frozen=True, kw_only=True)
class Enter:
    """Come in: a person of a provider, by a hidden id, in a session of that provider.

    ``external`` is kept in clear only where payments need it. A session that is None is a visit
    of its own. With ``token_hash``, a worker token is stored in the same commit.
    """

    campaign: int
    provider: str
    external_hmac: str
    external: str | None = None
    session: str | None = None
    token_hash: str | None = None
    token_expires: float | None = None
    fresh: str = field(default_factory=fresh_id)


@dataclass(frozen=True, kw_only=True)
class Next:
    """Get a task: one of the candidates, best first; without any, the one with fewest answers."""

    campaign: int
    worker: int
    visit: int | None = None
    candidates: Sequence[int] = ()
    offer: str = field(default_factory=fresh_id)
    draw: float = field(default_factory=_random.random)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer an offer."""

    campaign: int
    offer: str
    worker: int
    value: Sequence[float]
    lead_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Change an answer, within the time that the rules allow."""

    campaign: int
    offer: str
    worker: int
    value: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Skip:
    """Skip a task; this worker is not offered it again."""

    campaign: int
    offer: str
    worker: int
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report that something is wrong with a task, and skip it."""

    campaign: int
    offer: str
    worker: int
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Extend:
    """Keep an open offer for another lease."""

    campaign: int
    offer: str
    worker: int


@dataclass(frozen=True, kw_only=True)
class Complete:
    """End a visit: completed or screened out; repeated requests get the same code."""

    campaign: int
    visit: int
    state: str = "completed"
    code: str | None = None
    fresh: str = field(default_factory=fresh_id)


# ---------------------------------------------------------------- what other tools and the clock do


@dataclass(frozen=True, kw_only=True)
class TakeAnswer:
    """An answer that another tool holds; a newer version replaces, an older one is ignored."""

    campaign: int
    source: str
    source_id: str
    task: str
    external_hmac: str
    value: Sequence[float]
    version: int
    external: str | None = None
    lead_ms: int | None = None
    fresh: str = field(default_factory=fresh_id)


@dataclass(frozen=True, kw_only=True)
class DropAnswers:
    """Answers that another tool has deleted; versions up to this one do not come back."""

    campaign: int
    source: str
    source_ids: Sequence[str]
    version: int = LAST_VERSION


@dataclass(frozen=True, kw_only=True)
class Expire:
    """Take back offers whose time is up. The writer gives this command by itself."""

    campaign: int


Command = (
    CreateCampaign | ChangeCampaign | AddTasks | SetGold | WithdrawTasks | MarkDone | SetWorker
    | Erase | SetCredits | Enter | Next | Answer | Edit | Skip | Report | Extend
    | Complete | TakeAnswer | DropAnswers | Expire
)  # fmt: skip


# ---------------------------------------------------------------- replies


class Refused(Exception):
    """A command that changed nothing: HTTP status, a word for programs, a line for people."""

    def __init__(self, status: int, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.detail = detail

    def __repr__(self) -> str:
        return f"Refused({self.status}, {self.reason!r}, {self.detail!r})"


@dataclass(frozen=True, kw_only=True)
class Done:
    """The command has been carried out; the campaign's sequence number after it, and how many."""

    seq: int
    n: int = 1


@dataclass(frozen=True, kw_only=True)
class Created:
    """A new campaign."""

    campaign: int
    seq: int


@dataclass(frozen=True, kw_only=True)
class Added:
    """Tasks were added with ids from ``first_id`` on; ``again``: by an earlier command."""

    first_id: int
    n: int
    seq: int
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A worker is in; ``new`` where the campaign did not know the person."""

    worker: int
    pseudonym: str
    visit: int
    state: str
    visit_state: str
    new: bool


@dataclass(frozen=True, kw_only=True)
class Offered:
    """A task for a worker; ``answered`` counts the real and gold answers so far."""

    offer: str
    task: int
    name: str
    content: Mapping[str, Any]
    practice: bool
    price: int
    created: float
    expires: float
    answered: int
    again: bool


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """No task: done, capacity, budget, wait, paused, closed or banned."""

    reason: str
    answered: int = 0


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An answer is stored; ``again``: the same answer was stored before."""

    offer: str
    version: int
    again: bool
    credited: int
    practice_truth: list[float] | None
    editable_until: float
    seq: int


@dataclass(frozen=True, kw_only=True)
class Extended:
    """An offer lasts until then."""

    offer: str
    expires: float


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A visit has ended, with this code."""

    visit: int
    state: str
    code: str


Reply = (
    Done | Created | Added | Entered | Offered | Nothing | Answered | Extended | Completed
)  # fmt: skip
