"""What workers say about tasks, reports and reasons for skipping, is found by an index."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    noted = sa.text("note IS NOT NULL")
    op.create_index(
        "ix_offer_noted",
        "offer",
        ["campaign", "created", "id"],
        sqlite_where=noted,
        postgresql_where=noted,
    )
