"""A service in this process for tests of its HTTP side: the app, its owner, and workers."""

from __future__ import annotations

import itertools
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from voxpop.service.database import Database

NUMBER = {"kind": "number", "text": "How old?", "unit": "years", "min": 0, "max": 120}
# Hypothesis and loops make more requests than a person would.
MANY = "1000000/minute"


def counted(database: Database, number: int) -> dict[tuple[int, int], list[float]]:
    """The answers of a campaign that count, by task and worker."""
    from sqlalchemy import select

    from voxpop.service.schema import answer

    counts = select(answer).where(answer.c.campaign == number, answer.c.counts)
    with database.connect() as connection:
        rows = connection.execute(counts.order_by(answer.c.task, answer.c.worker))
        return {(row.task, row.worker): row.value for row in rows}


class Clock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class House:
    """A running app, reached as its owner and as workers reach it."""

    app: FastAPI
    client: TestClient
    owner: str
    clock: Clock
    url: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def service(self) -> Any:
        return self.app.state.service

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **more: Any
    ) -> Any:
        """Send a request, as the owner unless another token is given."""
        headers = {"Authorization": f"Bearer {token or self.owner}"} | more.pop("headers", {})
        content = {} if body is None else {"json": body}
        return self.client.request(method, f"/api/v1{path}", headers=headers, **content, **more)

    def campaign(
        self,
        n_tasks: int = 3,
        question: Any = None,
        tasks: Any = None,
        budget: int | None = None,
        **rules: Any,
    ) -> str:
        """Make a campaign with tasks t0, t1 …; return its slug."""
        title = f"Ages {next(self.numbers)}"
        body = {"title": title, "question": question or NUMBER, "budget": budget}
        made = self.ask("POST", "/campaigns", body | {"rules": {"practice": 0} | rules})
        assert made.status_code == 201, made.text
        slug: str = made.json()["slug"]
        tasks = tasks or [
            {"name": f"t{k}", "content": {"text": f"tree {k}"}} for k in range(n_tasks)
        ]
        added = self.ask("POST", f"/campaigns/{slug}/tasks", tasks)
        assert added.status_code == 200, added.text
        return slug

    def link(self, slug: str, kind: str = "invite", **more: Any) -> str:
        """Make a link; return its token."""
        made = self.ask("POST", f"/campaigns/{slug}/links", {"kind": kind, **more})
        assert made.status_code == 201, made.text
        return str(made.json()["token"])

    def enter(self, slug: str, **body: Any) -> Any:
        """Come in as a worker."""
        body.setdefault("invite", self.link(slug))
        return self.client.post(f"/api/v1/c/{slug}/enter", json=body)

    def worker(self, slug: str) -> str:
        """Come in as a new worker; return the token."""
        entered = self.enter(slug)
        assert entered.status_code == 200, entered.text
        return str(entered.json()["worker_token"])

    def next(self, token: str) -> Any:
        """Get an offer, or what is said in its place."""
        found = self.ask("POST", "/next", token=token)
        assert found.status_code == 200, found.text
        return found.json()

    def answer(self, token: str, offer: str, *value: float, **query: Any) -> Any:
        """Answer an offer."""
        body = {"value": list(value), "lead_ms": 1500}
        return self.ask("PUT", f"/offers/{offer}/answer", body, token, params=query)

    def number(self, slug: str) -> int:
        """Return the number of a campaign in the database."""
        from voxpop.service.api.who import find_campaign

        return int(self.service.ask(find_campaign, slug)["id"])


@contextmanager
def house_on(url: str, **settings: Any) -> Iterator[House]:
    """Run an app on a database."""
    from fastapi.testclient import TestClient

    from voxpop.service.api.app import create_app, owner_link
    from voxpop.service.api.settings import Settings

    given = {"live_every": 0.05, "live_seconds": 0.3, "board_every": 0.05, "token_limit": MANY}
    given |= {"address_limit": MANY, "enter_limit": MANY}
    clock = Clock()
    app = create_app(url, settings=Settings(**(given | settings)), clock=clock)  # type: ignore[arg-type]
    link = owner_link(app)
    assert link is not None
    token = parse_qs(urlsplit(link).query)["token"][0]
    with TestClient(app, raise_server_exceptions=False) as client:
        yield House(app, client, token, clock, url)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables: a copy of it is made faster than they are."""
    from voxpop.service.database import Database

    path = tmp_path_factory.mktemp("template") / "template.db"
    Database.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_house(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    """An app on a new database of either kind, for all tests of a module."""
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").make_database(f"shared_{secrets.token_hex(6)}")
    else:
        url = str(tmp_path_factory.mktemp("shared") / "ages.db")
    with house_on(url) as found:
        yield found


@pytest.fixture
def house(shared_house: House) -> House:
    """The app that a module shares: every test makes campaigns of its own."""
    shared_house.clock.ahead = 0.0
    return shared_house


@pytest.fixture
def small_house(tmp_path: Path, template: Path) -> Iterator[House]:
    """An app on a new file of SQLite, for what no database changes."""
    with house_on(str(shutil.copy(template, tmp_path / "ages.db"))) as found:
        yield found
