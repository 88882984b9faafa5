"""Rows: what ``decide`` knows of each table, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from voxpop.service.questions import Question
from voxpop.service.rules import Rules


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """A campaign: its question, its rules, its money, and the number of its last event."""

    id: int
    slug: str
    title: str
    instructions: str
    question: Question
    rules: Rules
    state: str
    seq: int
    budget: int | None
    reserved: int
    spent: int
    created: float

    def affords(self, price: int) -> bool:
        """Whether the budget allows another offer at this price."""
        return self.budget is None or self.reserved + self.spent + price <= self.budget


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task; ``content`` is only there where an answer to it must be checked."""

    id: int
    campaign: int
    name: str
    kind: str
    truth: list[float] | None
    n_open: int
    n_answers: int
    state: str
    content: dict[str, Any] | None = None

    @property
    def n_taken(self) -> int:
        """Answers and open offers."""
        return self.n_open + self.n_answers

    def available(self, rules: Rules) -> bool:
        """Whether it may be offered to a worker who has not had it."""
        cap = rules.answers_per_task
        is_taken = self.kind == "real" and cap is not None and self.n_taken >= cap
        return self.state == "open" and not is_taken

    def is_full(self, rules: Rules) -> bool:
        """Whether it has as many answers as the rules ask for."""
        cap = rules.answers_per_task
        return self.kind == "real" and cap is not None and self.n_answers >= cap


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker, under a pseudonym."""

    id: int
    campaign: int
    pseudonym: str
    provider: str
    external_hmac: str
    external: str | None
    state: str
    price: int | None
    capacity: int | None
    n_answers: int
    n_practice: int
    created: float

    @property
    def counts(self) -> bool:
        """Whether the answers of this worker count."""
        return self.state in ("active", "paused", "erased")


@dataclass(frozen=True, slots=True)
class VisitRow:
    """One visit of a worker, in a session of a provider."""

    id: int
    campaign: int
    worker: int
    provider: str
    external_session: str | None
    state: str
    completion_code: str | None
    created: float


@dataclass(frozen=True, slots=True)
class OfferRow:
    """A task that one worker was offered."""

    id: str
    campaign: int
    task: int
    worker: int
    visit: int | None
    state: str
    price: int
    created: float
    expires: float
    note: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What a worker answered."""

    offer: str
    campaign: int
    task: int
    worker: int
    value: list[float]
    counts: bool
    lead_ms: int | None
    source: str
    source_id: str | None
    version: int
    at: float


@dataclass(frozen=True, slots=True)
class CreditRow:
    """What a worker earned by an answer."""

    answer: str
    campaign: int
    worker: int
    amount: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A worker's token, by its hash."""

    hash: str
    scope: str
    campaign: int
    worker: int
    visit: int
    expires: float | None
    note: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event of a campaign; the body holds numbers and ids only."""

    campaign: int
    seq: int
    at: float
    actor: str
    kind: str
    body: dict[str, Any]


@dataclass(slots=True)
class Facts:
    """All that a batch of commands may depend on, read in one transaction, and the time then."""

    now: float = 0.0
    campaigns: dict[int, CampaignRow] = field(default_factory=dict)
    slugs: set[str] = field(default_factory=set)
    tasks: dict[int, TaskRow] = field(default_factory=dict)
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    workers: dict[int, WorkerRow] = field(default_factory=dict)
    persons: dict[tuple[int, str, str], int] = field(default_factory=dict)
    visits: dict[int, VisitRow] = field(default_factory=dict)
    sessions: dict[tuple[int, str, str], int] = field(default_factory=dict)
    offers: dict[str, OfferRow] = field(default_factory=dict)
    answers: dict[str, AnswerRow] = field(default_factory=dict)
    sources: dict[tuple[int, str, str], str] = field(default_factory=dict)
    credits: dict[str, CreditRow] = field(default_factory=dict)
    dropped: dict[tuple[int, str, str], int] = field(default_factory=dict)
    # The replies to commands with an idempotency key.
    keys: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    # Median lead time of late, in milliseconds, by campaign; None before there are answers.
    lead_ms: dict[int, float | None] = field(default_factory=dict)
    # Tasks that a worker has not had, fewest answers first, by worker and kind.
    choices: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    # Workers who may get a task later, when somebody else gives one back.
    waiting: set[int] = field(default_factory=set)
    # The last event by which answers stopped counting, by campaign.
    last_removal: dict[int, int] = field(default_factory=dict)
    # The first free number of each table that has numbers.
    free: dict[str, int] = field(default_factory=dict)

    def put_worker(self, row: WorkerRow) -> None:
        """Put a worker into the tables."""
        self.workers[row.id] = row
        self.persons[row.campaign, row.provider, row.external_hmac] = row.id

    def put_visit(self, row: VisitRow) -> None:
        """Put a visit into the tables."""
        self.visits[row.id] = row
        if row.external_session is not None:
            self.sessions[row.campaign, row.provider, row.external_session] = row.id
