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


@dataclass(frozen=True, kw_only=True)
class OfCampaign:
    """A command about one campaign."""

    campaign: int


@dataclass(frozen=True, kw_only=True)
class OfOffer(OfCampaign):
    """What a worker asks for about an offer."""

    offer: str
    worker: int


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
class ChangeCampaign(OfCampaign):
    """Change title, instructions, question, state, budget, or single rules of a campaign."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """One task to add."""

    name: str
    content: Mapping[str, Any]
    kind: str = "real"
    truth: Sequence[float] | None = None


@dataclass(frozen=True, kw_only=True)
class AddTasks(OfCampaign):
    """Add tasks, all or none. The same key and tasks again give the same reply."""

    tasks: Sequence[NewTask]
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class SetGold(OfCampaign):
    """Set the truth of tasks by name (they become gold), or None (they become real)."""

    truths: Mapping[str, Sequence[float] | None]


@dataclass(frozen=True, kw_only=True)
class WithdrawTasks(OfCampaign):
    """Stop offering these tasks; open offers of them may still be answered."""

    names: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class MarkDone(OfCampaign):
    """Tasks meet the stop rule, as of an event; ignored if answers were taken out since."""

    tasks: Sequence[int]
    as_of_seq: int


@dataclass(frozen=True, kw_only=True)
class SetWorker(OfCampaign):
    """Make a worker active, paused, quarantined or banned."""

    worker: int
    state: str


@dataclass(frozen=True, kw_only=True)
class Erase(OfCampaign):
    """Forget who a worker is; delete the answers too, or keep them without a person."""

    worker: int
    keep_answers: bool


@dataclass(frozen=True, kw_only=True)
class SetCredits(OfCampaign):
    """Approve, reject or mark as paid what workers earned, by the ids of the answered offers."""

    answers: Sequence[str]
    state: str
    reason: str = ""


# ---------------------------------------------------------------- what workers ask for


@dataclass(frozen=True, kw_only=True)
class Enter(OfCampaign):
    """Come in: a person of a provider, by a hidden id, in a session of that provider.

    ``external`` is kept in clear only where payments need it. A session that is None is a visit
    of its own. With ``token_hash``, a worker token is stored in the same commit.
    """

    provider: str
    external_hmac: str
    external: str | None = None
    session: str | None = None
    token_hash: str | None = None
    fresh: str = field(default_factory=fresh_id)


@dataclass(frozen=True, kw_only=True)
class Next(OfCampaign):
    """Get a task: one of the candidates, best first; without any, the one with fewest answers."""

    worker: int
    visit: int | None = None
    candidates: Sequence[int] = ()
    offer: str = field(default_factory=fresh_id)
    draw: float = field(default_factory=_random.random)


@dataclass(frozen=True, kw_only=True)
class Answer(OfOffer):
    """Answer an offer."""

    value: Sequence[float]
    lead_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Edit(OfOffer):
    """Change an answer, within the time that the rules allow."""

    value: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Skip(OfOffer):
    """Skip a task; this worker is not offered it again."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Report(OfOffer):
    """Report that something is wrong with a task, and skip it."""

    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Extend(OfOffer):
    """Keep an open offer for another lease."""


@dataclass(frozen=True, kw_only=True)
class Complete(OfCampaign):
    """End a visit: completed or screened out; repeated requests get the same code."""

    visit: int
    state: str = "completed"
    code: str | None = None
    fresh: str = field(default_factory=fresh_id)


# ---------------------------------------------------------------- what other tools and the clock do


@dataclass(frozen=True, kw_only=True)
class TakeAnswer(OfCampaign):
    """An answer that another tool holds; a newer version replaces, an older one is ignored."""

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
class DropAnswers(OfCampaign):
    """Answers that another tool has deleted; versions up to this one do not come back."""

    source: str
    source_ids: Sequence[str]
    version: int = LAST_VERSION


@dataclass(frozen=True, kw_only=True)
class Expire(OfCampaign):
    """Take back offers whose time is up. The writer gives this command by itself."""


Command = CreateCampaign | OfCampaign


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
