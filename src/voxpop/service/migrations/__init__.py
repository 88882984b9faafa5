"""Migrations: how every earlier schema becomes today's, one file a step; run by Alembic."""
