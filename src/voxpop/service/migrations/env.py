"""Alembic's way in: it runs the steps on the connection that ``Database.migrate`` hands over."""

from __future__ import annotations

from alembic import context

from voxpop.service.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
