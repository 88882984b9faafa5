"""Schema: the tables of the service's database, the same on SQLite and PostgreSQL.

The rules that no program may break are constraints here: a pair of task and worker at most once,
one open offer a worker, money within the budget, one credit an answer. Money is in minor units,
times are seconds since 1970 (UTC). ``migrations`` holds how every earlier schema becomes this one.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

CAMPAIGN_STATES = ("draft", "open", "paused", "closed")
TASK_KINDS = ("real", "gold", "practice")
TASK_STATES = ("open", "done", "withdrawn")
WORKER_STATES = ("active", "paused", "quarantined", "banned", "erased")
VISIT_STATES = ("open", "completed", "screened_out")
OFFER_STATES = ("open", "answered", "skipped", "reported", "expired", "released")
CREDIT_STATES = ("due", "approved", "rejected", "paid")
TOKEN_SCOPES = ("owner", "campaign_link", "worker", "label_studio")

# In these states an offer no longer keeps its worker's place at the task.
FREE = ("expired", "released")

# SQLite calls only INTEGER a row's own number.
Number = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _id() -> Column[int]:
    """A number from the table ``counter``."""
    return Column("id", Number, primary_key=True, autoincrement=False)


def _to(table: str, nullable: bool = False, index: bool = False) -> Column[int]:
    """A reference to a row of another table."""
    return Column(table, Number, ForeignKey(f"{table}.id"), nullable=nullable, index=index or None)


def _one_of(column: str, states: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({_listed(states)})", name=f"{column}_known")


def _listed(states: tuple[str, ...]) -> str:
    return ", ".join(f"'{one}'" for one in states)


campaign = Table(
    "campaign",
    metadata,
    _id(),
    Column("slug", Text, nullable=False, unique=True),
    Column("title", Text, nullable=False),
    Column("instructions", Text, nullable=False),
    Column("question", JSON, nullable=False),
    Column("rules", JSON, nullable=False),
    Column("state", Text, nullable=False),
    Column("seq", Number, nullable=False),
    Column("budget", Number),
    Column("reserved", Number, nullable=False),
    Column("spent", Number, nullable=False),
    Column("created", Double, nullable=False),
    _one_of("state", CAMPAIGN_STATES),
    CheckConstraint("reserved >= 0 AND spent >= 0", name="money_not_negative"),
    CheckConstraint("budget IS NULL OR reserved + spent <= budget", name="within_budget"),
)

task = Table(
    "task",
    metadata,
    _id(),
    _to("campaign"),
    Column("name", Text, nullable=False),
    Column("content", JSON, nullable=False),
    Column("kind", Text, nullable=False),
    Column("truth", JSON(none_as_null=True)),
    Column("n_open", Integer, nullable=False),
    Column("n_answers", Integer, nullable=False),
    # Answers and open offers: whoever has the fewest is asked first where there is no board.
    Column("n_taken", Integer, nullable=False),
    Column("state", Text, nullable=False),
    _one_of("kind", TASK_KINDS),
    _one_of("state", TASK_STATES),
    CheckConstraint("n_open >= 0 AND n_answers >= 0", name="counts_not_negative"),
    CheckConstraint("n_taken = n_open + n_answers", name="taken_is_the_sum"),
    UniqueConstraint("campaign", "name"),
    Index(None, "campaign", "kind", "state", "n_taken", "id"),
)

worker = Table(
    "worker",
    metadata,
    _id(),
    _to("campaign"),
    Column("pseudonym", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("external_hmac", Text, nullable=False),
    Column("external", Text),
    Column("state", Text, nullable=False),
    Column("price", Number),
    Column("capacity", Integer),
    Column("n_answers", Integer, nullable=False),
    Column("n_practice", Integer, nullable=False),
    Column("created", Double, nullable=False),
    _one_of("state", WORKER_STATES),
    CheckConstraint("state <> 'erased' OR external IS NULL", name="erased_is_nobody"),
    UniqueConstraint("campaign", "provider", "external_hmac"),
)

visit = Table(
    "visit",
    metadata,
    _id(),
    _to("campaign"),
    _to("worker", index=True),
    Column("provider", Text, nullable=False),
    Column("external_session", Text),
    Column("state", Text, nullable=False),
    Column("completion_code", Text),
    Column("created", Double, nullable=False),
    _one_of("state", VISIT_STATES),
    UniqueConstraint("campaign", "provider", "external_session"),
)

_HELD = text(f"state NOT IN ({_listed(FREE)})")
_OPEN = text("state = 'open'")
_NOTED = text("note IS NOT NULL")

offer = Table(
    "offer",
    metadata,
    Column("id", Text, primary_key=True),
    _to("campaign"),
    _to("task"),
    _to("worker"),
    _to("visit", nullable=True),
    Column("state", Text, nullable=False),
    Column("price", Number, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("note", Text),
    _one_of("state", OFFER_STATES),
    CheckConstraint("price >= 0", name="price_not_negative"),
    Index(
        "uq_offer_pair", "worker", "task", unique=True, sqlite_where=_HELD, postgresql_where=_HELD
    ),
    Index("uq_offer_open", "worker", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    Index("ix_offer_due", "campaign", "expires", sqlite_where=_OPEN, postgresql_where=_OPEN),
    Index(
        "ix_offer_noted", "campaign", "created", "id",
        sqlite_where=_NOTED, postgresql_where=_NOTED,
    ),
)  # fmt: skip

# Conditions on offers as their indexes have them. SQLite takes an index over part of a table only
# for a condition that it can read; a parameter in its place would mean a search of the whole table.
IS_OPEN = text("offer.state = 'open'")
HOLDS_PLACE = text(f"offer.state NOT IN ({_listed(FREE)})")
HAS_NOTE = text("offer.note IS NOT NULL")

_OUTSIDE = text("source_id IS NOT NULL")

answer = Table(
    "answer",
    metadata,
    Column("offer", Text, ForeignKey("offer.id"), primary_key=True),
    _to("campaign"),
    _to("task"),
    _to("worker", index=True),
    Column("value", JSON, nullable=False),
    Column("counts", Boolean, nullable=False),
    Column("lead_ms", Number),
    Column("source", Text, nullable=False),
    Column("source_id", Text),
    Column("version", Number, nullable=False),
    Column("at", Double, nullable=False),
    UniqueConstraint("task", "worker"),
    Index(None, "campaign", "at"),
    Index(
        "uq_answer_source", "campaign", "source", "source_id",
        unique=True, sqlite_where=_OUTSIDE, postgresql_where=_OUTSIDE,
    ),
)  # fmt: skip

# Answers that another tool deleted, so that an older message does not restore them.
dropped = Table(
    "dropped",
    metadata,
    Column("campaign", Number, ForeignKey("campaign.id"), primary_key=True, autoincrement=False),
    Column("source", Text, primary_key=True),
    Column("source_id", Text, primary_key=True),
    Column("version", Number, nullable=False),
)

credit = Table(
    "credit",
    metadata,
    Column("answer", Text, ForeignKey("offer.id"), primary_key=True),
    _to("campaign"),
    _to("worker", index=True),
    Column("amount", Number, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    _one_of("state", CREDIT_STATES),
    CheckConstraint("amount >= 0", name="amount_not_negative"),
    Index(None, "campaign", "state"),
)

event = Table(
    "event",
    metadata,
    Column("campaign", Number, ForeignKey("campaign.id"), primary_key=True, autoincrement=False),
    Column("seq", Number, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", JSON, nullable=False),
    CheckConstraint("seq > 0", name="seq_from_one"),
)

token = Table(
    "token",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("scope", Text, nullable=False),
    _to("campaign", nullable=True),
    _to("worker", nullable=True),
    _to("visit", nullable=True),
    Column("expires", Double),
    Column("note", Text, nullable=False),
    _one_of("scope", TOKEN_SCOPES),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("campaign", Number, ForeignKey("campaign.id"), primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("body", JSON, nullable=False),
)

# Numbers for new rows; those of one command are in a row. A transaction that fails gives them back.
counter = Table(
    "counter",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Number, nullable=False),
)

setting = Table(
    "setting",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

# The output of inference, where there is no folder beside the database.
published = Table(
    "published",
    metadata,
    Column("campaign", Number, ForeignKey("campaign.id"), primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("seq", Number, nullable=False),
    Column("content", LargeBinary, nullable=False),
    # Counts up with every block: what is learned again is new, though no event came.
    Column("edition", Number, nullable=False, server_default=text("1")),
)
