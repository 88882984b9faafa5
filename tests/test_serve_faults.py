"""Kills, a full disk, a restart of the database and two servers, in small; the module has more."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from tests.postgres import PostgreSQL
from tests.serve_faults import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are Linux's"),
]


@pytest.mark.parametrize("fault", ["kills", "disk", "servers"])
def test_sqlite_loses_nothing(fault: str) -> None:
    told: list[str] = []
    assert run("sqlite", fault, 1, 7, told.append) == [], told


@pytest.mark.parametrize("fault", ["servers", "restart", "disk"])
def test_postgresql_loses_nothing(fault: str, postgresql: PostgreSQL) -> None:
    """Two web processes take the same workers' requests; one and inference are killed."""
    told: list[str] = []
    assert run("postgresql", fault, 1, 8, told.append, postgresql) == [], told
