"""What is published has an edition: learned again, it is new, though no event came."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make what is there the first edition."""
    edition = sa.Column("edition", NUMBER, nullable=False, server_default=sa.text("1"))
    op.add_column("published", edition)
