"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    _make_campaign()
    _make_counter()
    _make_setting()
    _make_dropped()
    _make_event()
    _make_idempotency()
    _make_published()
    _make_task()
    _make_worker()
    _make_visit()
    _make_offer()
    _make_token()
    _make_answer()
    _make_credit()
    counter = sa.table("counter", sa.column("name", sa.Text), sa.column("value", NUMBER))
    rows = [{"name": name, "value": 0} for name in ("campaign", "task", "visit", "worker")]
    op.bulk_insert(counter, rows)


def _make_campaign() -> None:
    op.create_table(
        "campaign",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=False),
        sa.Column("question", sa.JSON(), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("seq", NUMBER, nullable=False),
        sa.Column("budget", NUMBER, nullable=True),
        sa.Column("reserved", NUMBER, nullable=False),
        sa.Column("spent", NUMBER, nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "state IN ('draft', 'open', 'paused', 'closed')", name=op.f("ck_campaign_state_known")
        ),
        sa.CheckConstraint(
            "budget IS NULL OR reserved + spent <= budget", name=op.f("ck_campaign_within_budget")
        ),
        sa.CheckConstraint(
            "reserved >= 0 AND spent >= 0", name=op.f("ck_campaign_money_not_negative")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
        sa.UniqueConstraint("slug", name=op.f("uq_campaign_slug")),
    )


def _make_counter() -> None:
    op.create_table(
        "counter",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counter")),
    )


def _make_setting() -> None:
    op.create_table(
        "setting",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_setting")),
    )


def _make_dropped() -> None:
    op.create_table(
        "dropped",
        sa.Column("campaign", NUMBER, autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("version", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_dropped_campaign")),
        sa.PrimaryKeyConstraint("campaign", "source", "source_id", name=op.f("pk_dropped")),
    )


def _make_event() -> None:
    op.create_table(
        "event",
        sa.Column("campaign", NUMBER, autoincrement=False, nullable=False),
        sa.Column("seq", NUMBER, autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.CheckConstraint("seq > 0", name=op.f("ck_event_seq_from_one")),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_event_campaign")),
        sa.PrimaryKeyConstraint("campaign", "seq", name=op.f("pk_event")),
    )


def _make_idempotency() -> None:
    op.create_table(
        "idempotency",
        sa.Column("campaign", NUMBER, autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign"], ["campaign.id"], name=op.f("fk_idempotency_campaign")
        ),
        sa.PrimaryKeyConstraint("campaign", "key", name=op.f("pk_idempotency")),
    )


def _make_published() -> None:
    op.create_table(
        "published",
        sa.Column("campaign", NUMBER, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("seq", NUMBER, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_published_campaign")),
        sa.PrimaryKeyConstraint("campaign", "kind", name=op.f("pk_published")),
    )


def _make_task() -> None:
    op.create_table(
        "task",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("campaign", NUMBER, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("truth", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("n_open", sa.Integer(), nullable=False),
        sa.Column("n_answers", sa.Integer(), nullable=False),
        sa.Column("n_taken", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.CheckConstraint("kind IN ('real', 'gold', 'practice')", name=op.f("ck_task_kind_known")),
        sa.CheckConstraint(
            "state IN ('open', 'done', 'withdrawn')", name=op.f("ck_task_state_known")
        ),
        sa.CheckConstraint(
            "n_open >= 0 AND n_answers >= 0", name=op.f("ck_task_counts_not_negative")
        ),
        sa.CheckConstraint("n_taken = n_open + n_answers", name=op.f("ck_task_taken_is_the_sum")),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_task_campaign")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_task")),
        sa.UniqueConstraint("campaign", "name", name=op.f("uq_task_campaign_name")),
    )
    op.create_index(
        op.f("ix_task_campaign_kind_state_n_taken_id"),
        "task",
        ["campaign", "kind", "state", "n_taken", "id"],
        unique=False,
    )


def _make_worker() -> None:
    op.create_table(
        "worker",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("campaign", NUMBER, nullable=False),
        sa.Column("pseudonym", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("external_hmac", sa.Text(), nullable=False),
        sa.Column("external", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("price", NUMBER, nullable=True),
        sa.Column("capacity", sa.Integer(), nullable=True),
        sa.Column("n_answers", sa.Integer(), nullable=False),
        sa.Column("n_practice", sa.Integer(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "state <> 'erased' OR external IS NULL", name=op.f("ck_worker_erased_is_nobody")
        ),
        sa.CheckConstraint(
            "state IN ('active', 'paused', 'quarantined', 'banned', 'erased')",
            name=op.f("ck_worker_state_known"),
        ),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_worker_campaign")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
        sa.UniqueConstraint(
            "campaign",
            "provider",
            "external_hmac",
            name=op.f("uq_worker_campaign_provider_external_hmac"),
        ),
    )


def _make_visit() -> None:
    op.create_table(
        "visit",
        sa.Column("id", NUMBER, autoincrement=False, nullable=False),
        sa.Column("campaign", NUMBER, nullable=False),
        sa.Column("worker", NUMBER, nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("external_session", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("completion_code", sa.Text(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "state IN ('open', 'completed', 'screened_out')", name=op.f("ck_visit_state_known")
        ),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_visit_campaign")),
        sa.ForeignKeyConstraint(["worker"], ["worker.id"], name=op.f("fk_visit_worker")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_visit")),
        sa.UniqueConstraint(
            "campaign",
            "provider",
            "external_session",
            name=op.f("uq_visit_campaign_provider_external_session"),
        ),
    )
    op.create_index(op.f("ix_visit_worker"), "visit", ["worker"], unique=False)


def _make_offer() -> None:
    op.create_table(
        "offer",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("campaign", NUMBER, nullable=False),
        sa.Column("task", NUMBER, nullable=False),
        sa.Column("worker", NUMBER, nullable=False),
        sa.Column("visit", NUMBER, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("price", NUMBER, nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('open', 'answered', 'skipped', 'reported', 'expired', 'released')",
            name=op.f("ck_offer_state_known"),
        ),
        sa.CheckConstraint("price >= 0", name=op.f("ck_offer_price_not_negative")),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_offer_campaign")),
        sa.ForeignKeyConstraint(["task"], ["task.id"], name=op.f("fk_offer_task")),
        sa.ForeignKeyConstraint(["visit"], ["visit.id"], name=op.f("fk_offer_visit")),
        sa.ForeignKeyConstraint(["worker"], ["worker.id"], name=op.f("fk_offer_worker")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offer")),
    )
    op.create_index(
        "ix_offer_due",
        "offer",
        ["campaign", "expires"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index(
        "uq_offer_open",
        "offer",
        ["worker"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index(
        "uq_offer_pair",
        "offer",
        ["worker", "task"],
        unique=True,
        sqlite_where=sa.text("state NOT IN ('expired', 'released')"),
        postgresql_where=sa.text("state NOT IN ('expired', 'released')"),
    )


def _make_token() -> None:
    op.create_table(
        "token",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("campaign", NUMBER, nullable=True),
        sa.Column("worker", NUMBER, nullable=True),
        sa.Column("visit", NUMBER, nullable=True),
        sa.Column("expires", sa.Double(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "scope IN ('owner', 'campaign_link', 'worker', 'label_studio')",
            name=op.f("ck_token_scope_known"),
        ),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_token_campaign")),
        sa.ForeignKeyConstraint(["visit"], ["visit.id"], name=op.f("fk_token_visit")),
        sa.ForeignKeyConstraint(["worker"], ["worker.id"], name=op.f("fk_token_worker")),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_token")),
    )


def _make_answer() -> None:
    op.create_table(
        "answer",
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("campaign", NUMBER, nullable=False),
        sa.Column("task", NUMBER, nullable=False),
        sa.Column("worker", NUMBER, nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("counts", sa.Boolean(), nullable=False),
        sa.Column("lead_ms", NUMBER, nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Text(), nullable=True),
        sa.Column("version", NUMBER, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_answer_campaign")),
        sa.ForeignKeyConstraint(["offer"], ["offer.id"], name=op.f("fk_answer_offer")),
        sa.ForeignKeyConstraint(["task"], ["task.id"], name=op.f("fk_answer_task")),
        sa.ForeignKeyConstraint(["worker"], ["worker.id"], name=op.f("fk_answer_worker")),
        sa.PrimaryKeyConstraint("offer", name=op.f("pk_answer")),
        sa.UniqueConstraint("task", "worker", name=op.f("uq_answer_task_worker")),
    )
    op.create_index(op.f("ix_answer_campaign_at"), "answer", ["campaign", "at"], unique=False)
    op.create_index(op.f("ix_answer_worker"), "answer", ["worker"], unique=False)
    op.create_index(
        "uq_answer_source",
        "answer",
        ["campaign", "source", "source_id"],
        unique=True,
        sqlite_where=sa.text("source_id IS NOT NULL"),
        postgresql_where=sa.text("source_id IS NOT NULL"),
    )


def _make_credit() -> None:
    op.create_table(
        "credit",
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("campaign", NUMBER, nullable=False),
        sa.Column("worker", NUMBER, nullable=False),
        sa.Column("amount", NUMBER, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "state IN ('due', 'approved', 'rejected', 'paid')", name=op.f("ck_credit_state_known")
        ),
        sa.CheckConstraint("amount >= 0", name=op.f("ck_credit_amount_not_negative")),
        sa.ForeignKeyConstraint(["answer"], ["offer.id"], name=op.f("fk_credit_answer")),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.id"], name=op.f("fk_credit_campaign")),
        sa.ForeignKeyConstraint(["worker"], ["worker.id"], name=op.f("fk_credit_worker")),
        sa.PrimaryKeyConstraint("answer", name=op.f("pk_credit")),
    )
    op.create_index(op.f("ix_credit_campaign_state"), "credit", ["campaign", "state"], unique=False)
    op.create_index(op.f("ix_credit_worker"), "credit", ["worker"], unique=False)
