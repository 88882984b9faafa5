"""A real service for tests in a browser: the app on a port of this machine, and its owner."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np

if TYPE_CHECKING:
    from fastapi import FastAPI

PICTURE = "data:image/svg+xml," + quote(
    '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="420">'
    '<rect width="640" height="420" fill="#9cc7f0"/>'
    '<rect x="250" y="200" width="180" height="90" fill="#c93a2e"/></svg>'
)
QUESTIONS: dict[str, dict[str, Any]] = {
    "number": {"kind": "number", "text": "How old?", "unit": "years", "min": 0, "max": 120},
    "slider": {
        "kind": "slider", "text": "How happy?", "min": 0, "max": 100, "step": 1,
        "labels": ["sad", "happy"],
    },
    "rating": {"kind": "rating", "text": "How well?", "min": 1, "max": 7, "labels": ["no", "yes"]},
    "point": {"kind": "point", "text": "Where is the nose?"},
    "box": {"kind": "box", "text": "Where is the car?"},
}  # fmt: skip


@dataclass
class Site:
    """The service, reached as its owner reaches it."""

    url: str
    token: str
    app: FastAPI
    folder: Path
    made: int = 0

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request as the owner."""
        request = Request(f"{self.url}/api/v1{path}", method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        content = None if body is None else json.dumps(body).encode()
        with urlopen(request, content, timeout=20) as reply:
            return json.loads(reply.read() or b"{}")

    def campaign(
        self,
        question: Mapping[str, Any] | str = "number",
        tasks: list[dict[str, Any]] | int = 3,
        *,
        title: str = "Ages of portraits",
        instructions: str = "",
        budget: int | None = None,
        **rules: Any,
    ) -> str:
        """Make an open campaign, and return its slug."""
        asked = QUESTIONS[question] if isinstance(question, str) else dict(question)
        on_image = asked["kind"] in ("point", "box")
        if isinstance(tasks, int):
            shown = {"image": PICTURE} if on_image else {"text": "A **portrait**."}
            tasks = [{"name": f"task {k}", "content": shown} for k in range(tasks)]
        self.made += 1
        made = self.ask("POST", "/campaigns", {
            "slug": f"c{self.made}", "title": title, "instructions": instructions,
            "question": asked, "rules": {"practice": 0, "gold_share": 0, **rules}, "budget": budget,
        })  # fmt: skip
        slug = str(made["slug"])
        self.ask("POST", f"/campaigns/{slug}/tasks", tasks)
        self.ask("PATCH", f"/campaigns/{slug}", {"state": "open"})
        return slug

    def invite(self, slug: str, kind: str = "invite") -> str:
        """Make a link for workers."""
        return str(self.ask("POST", f"/campaigns/{slug}/links", {"kind": kind})["url"])

    def answers(self, slug: str) -> list[dict[str, Any]]:
        """Return all answers that a campaign has."""
        rows: list[dict[str, Any]] = self.ask("GET", f"/campaigns/{slug}/answers?limit=2000")[
            "rows"
        ]
        return rows

    def take(self, slug: str, answers: list[tuple[str, str, list[float]]]) -> None:
        """Bring in answers given elsewhere: (task, worker, value)."""
        rows = [{"task": task, "worker": worker, "value": value} for task, worker, value in answers]
        self.ask("POST", f"/campaigns/{slug}/answers", rows)

    def publish(
        self,
        slug: str,
        summary: dict[str, Any],
        look: Mapping[str, str],
        flags: Mapping[str, list[str]],
    ) -> None:
        """Stand in for inference: publish means as estimates, with what stands out."""
        from sqlalchemy import select

        from voxpop.service.schema import campaign, task

        service = self.app.state.service
        with service.database.connect() as connection:
            found = select(campaign.c.id).where(campaign.c.slug == slug)
            number = int(connection.execute(found).scalar_one())
            query = select(task.c.id, task.c.name).where(task.c.campaign == number)
            tasks = list(connection.execute(query).mappings())
        given: dict[str, list[list[float]]] = {}
        for answer in self.answers(slug):
            given.setdefault(answer["task"], []).append(answer["value"])
        known = [row for row in tasks if row["name"] in given]
        mean = np.array([np.mean(given[row["name"]], axis=0) for row in known])
        sd = np.array([3.0 + 9.0 * (row["name"] in look) for row in known])[:, None]
        sd = np.broadcast_to(sd, mean.shape)
        arrays = {
            "task": np.array([row["id"] for row in known], np.int64),
            "estimate": mean, "sd": sd, "lower_95": mean - 2 * sd, "upper_95": mean + 2 * sd,
            "n": np.array([len(given[row["name"]]) for row in known], np.int64),
            "needs_a_look": np.array([row["name"] in look for row in known]),
            "reason": np.array([look.get(row["name"], "") for row in known]),
        }  # fmt: skip
        block = io.BytesIO()
        np.savez(block, allow_pickle=False, **arrays)
        rows = self.ask("GET", f"/campaigns/{slug}/workers?limit=2000")["rows"]
        workers = {
            str(row["id"]): {"noise": [2.0 + k, 4.0 + 2 * k], "flags": flags.get(str(k), [])}
            for k, row in enumerate(rows)
        }
        seq = self.ask("GET", f"/campaigns/{slug}/summary")["seq"]
        told = {"seq": seq, "at": time.time(), **summary}
        service.published.write(number, "estimates", seq, block.getvalue())
        service.published.write(number, "workers", seq, json.dumps(workers).encode())
        service.published.write(number, "summary", seq, json.dumps(told).encode())


@contextmanager
def running(folder: Path) -> Iterator[Site]:
    """Serve a new database on a free port of this machine, for as long as the block lasts."""
    import uvicorn

    from voxpop.service.api.app import create_app, owner_link
    from voxpop.service.api.settings import Settings

    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        settings = Settings(public_url=url, live_every=0.2, board_every=0.2, images=folder)
        app = create_app(str(folder / "site.db"), settings=settings)
        link = owner_link(app, renew=True)
        assert link is not None
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.02)
            yield Site(url, link.partition("token=")[2], app, folder)
        finally:
            server.should_exit = True
            thread.join(20)
