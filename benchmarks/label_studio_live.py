"""A running Label Studio as the front end: connect, annotate, edit, delete, miss a webhook, pull.

Not among the tests: it needs Label Studio in an environment of its own, and minutes.

    python -m venv /tmp/studio && /tmp/studio/bin/pip install label-studio
    python -m benchmarks.label_studio_live /tmp/studio/bin/label-studio [--record FILE]

``--record`` keeps what Label Studio sent, without tokens, addresses and names, as
``tests/label_studio_payloads.json`` has it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import voxpop as vp

LABELS = """<View><Text name="text" value="$text"/><Number name="age" toName="text"/></View>"""
PATIENCE = 900.0


class Studio:
    """Label Studio, by its API."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request as its owner."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Token {self.token}", "Content-Type": "application/json"}
        try:
            asked = Request(f"{self.url}{path}", content, headers, method=method)
            with urlopen(asked, timeout=120) as reply:
                return json.loads(reply.read() or b"null")
        except HTTPError as error:
            raise SystemExit(f"{method} {path}: {error.code} {error.read()[:500]!r}") from None


@contextmanager
def running(command: list[str], log: Path, **variables: str) -> Iterator[None]:
    """Run a program until the end of a block; what it says goes to a file."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=log.parent,
            env={**os.environ, **variables}, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


class Recorder(ThreadingHTTPServer):
    """Stands before the service: passes on what Label Studio sends, and keeps it."""

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Pass)
        self.behind, self.seen = behind, list[dict[str, Any]]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def save(self, path: Path, secret: dict[str, str]) -> None:
        """Write every webhook and the first of the others, without what is secret."""
        kept: list[dict[str, Any]] = []
        for one in self.seen:
            # Two webhooks were there, so each message came twice.
            like = [other for other in kept if other["path"] == one["path"]]
            if not like or (one["path"] == "/webhook" and one["body"] != like[-1]["body"]):
                kept.append(one)
        text = "[\n" + ",\n".join(json.dumps(one) for one in kept) + "\n]"
        text = re.sub(r'"token": "[^"]+"', '"token": "TOKEN"', text)
        for word, instead in secret.items():
            text = text.replace(word, instead)
        path.write_text(text + "\n")


class _Pass(BaseHTTPRequestHandler):
    """Hands a request on, and the reply back."""

    server: Recorder

    def do_GET(self) -> None:
        """Hand it on."""
        self._hand_on()

    do_POST = do_GET

    def _hand_on(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        asked = Request(f"{self.server.behind}{self.path}", content, method=self.command)
        if content:
            asked.add_header("Content-Type", self.headers.get("Content-Type", "application/json"))
        try:
            with urlopen(asked, timeout=30) as reply:
                status, found = reply.status, reply.read()
        except HTTPError as error:
            status, found = error.code, error.read()
        path = re.sub(r"^/ls/[^/]+", "", self.path)
        body = json.loads(content) if content else None
        seen = {"method": self.command, "path": path, "body": body, "reply": json.loads(found)}
        self.server.seen.append(seen)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        """Say nothing: paths hold tokens."""


def until(what: str, found: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until something is there."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            if result := found():
                return result
        except (OSError, vp.VoxpopError):
            pass
        time.sleep(0.3)
    raise SystemExit(f"waited {patience:.0f} s in vain: {what}")


def free_port() -> int:
    """Find a port that is free."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def value(number: float) -> dict[str, Any]:
    """An annotation's result."""
    region = {"id": secrets.token_hex(5), "from_name": "age", "to_name": "text", "type": "number"}
    return {"result": [region | {"value": {"number": number}}], "lead_time": 4.5}


def main(program: str, record: Path | None) -> None:
    """Do all of it, and say what was seen."""
    with tempfile.TemporaryDirectory() as name:
        folder, port, token = Path(name), free_port(), secrets.token_hex(20)
        url = f"http://127.0.0.1:{port}"
        start = [
            program, "start", "--no-browser", "--port", str(port), "--data-dir", str(folder / "ls"),
            "--username", "owner@example.org", "--password", secrets.token_hex(8),
            "--user-token", token,
        ]  # fmt: skip
        variables = {
            "ML_BLOCK_LOCAL_IP": "false",
            "SSRF_PROTECTION_ENABLED": "false",
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "LABEL_STUDIO_HOST": url,
            "COLLECT_ANALYTICS": "false",
        }
        serve = [sys.executable, "-m", "voxpop", "serve", "labels.db", "--log-requests"]
        with (
            running(start, folder / "studio.log", **variables),
            running(serve, folder / "serve.log"),
        ):
            log = folder / "serve.log"
            link = until("the owner link", lambda: re.search(r"http\S+token=\S+", log.read_text()))
            question = {"kind": "number", "text": "How old?", "min": 0}
            client = vp.Client(link[0]).create("Labels", question)
            began = time.monotonic()
            until("Label Studio", lambda: urlopen(f"{url}/health", timeout=5).status == 200)
            print(f"Label Studio is up after {time.monotonic() - began:.0f} s")
            service, _, path = client.link("label_studio").partition("/ls/")
            recorder = Recorder(service)
            pulled = walk(Studio(url, token), client, log, f"{recorder.url}/ls/{path}")
            recorder.seen.append(
                {"method": "GET", "path": "/export", "body": None, "reply": pulled}
            )
            asked = [one for one in recorder.seen if one["path"] == "/predict"]
            results = [result for one in asked for result in one["reply"]["results"]]
            assert results, "Label Studio asked for no prediction"
            assert all(one["result"] == [] for one in results)
            print("predictions hold no result; scores", [one["score"] for one in results])
            if record is not None:
                hosts = {recorder.url: "https://voxpop.example", url: "https://studio.example"}
                recorder.save(record, {token: "0" * 40, path: "TOKEN", **hosts})
            said = log.read_text()
            assert token not in said, "the API token is in the log"
            print("its API token is not in the log")


def walk(studio: Studio, client: vp.Client, log: Path, address: str) -> Any:
    """Connect, annotate, edit, delete, miss a webhook, reconcile; return the export pulled from."""
    version = studio.ask("GET", "/api/version")
    print("Label Studio", version.get("release"))
    project = studio.ask("POST", "/api/projects", {"title": "Ages", "label_config": LABELS})["id"]
    texts = [{"data": {"text": f"tree {k}"}} for k in range(3)]
    studio.ask("POST", f"/api/projects/{project}/import", texts)
    model = {"project": project, "url": address, "title": "voxpop"}
    connected = studio.ask("POST", "/api/ml", model)
    print("connected:", {name: connected.get(name) for name in ("state", "error_message")})
    hooks = studio.ask("GET", f"/api/webhooks/?project={project}")
    print("webhooks that Label Studio added by itself:", len(hooks))
    own = {"project": project, "url": f"{address}/webhook", "send_payload": True}
    studio.ask("POST", "/api/webhooks/", own | {"send_for_all_actions": True})
    page = studio.ask("GET", f"/api/tasks?project={project}&fields=all")
    tasks = [task["id"] for task in page["tasks"]]
    n_answers = lambda: client.summary()["n_answers"]  # noqa: E731
    values = lambda: sorted(v[0] for v in answers(client))  # noqa: E731

    made = [studio.ask("POST", f"/api/tasks/{t}/annotations", value(10.0 * t)) for t in tasks]
    until("three annotations", lambda: n_answers() == 3, 60)
    print("annotated by webhook:", values())
    studio.ask("PATCH", f"/api/annotations/{made[0]['id']}", value(77))
    until("an edit", lambda: 77.0 in values(), 60)
    print("edited by webhook:", values())
    studio.ask("DELETE", f"/api/annotations/{made[1]['id']}")
    until("a deletion", lambda: n_answers() == 2, 60)
    print("deleted by webhook:", values())

    for hook in studio.ask("GET", f"/api/webhooks/?project={project}"):
        studio.ask("DELETE", f"/api/webhooks/{hook['id']}/")
    heard = log.read_text().count("/ls/{token}/webhook")
    pulled = log.read_text().count("/ls/{token}/setup")
    studio.ask("PATCH", f"/api/annotations/{made[0]['id']}", value(78))
    studio.ask("DELETE", f"/api/annotations/{made[2]['id']}")
    studio.ask("POST", f"/api/tasks/{tasks[1]}/annotations", value(55))
    time.sleep(3)
    assert log.read_text().count("/ls/{token}/webhook") == heard, "the webhook was to be missed"
    again = log.read_text().count("/ls/{token}/setup") - pulled
    print(f"missed three webhooks: {values()}; setup came {again} times meanwhile")
    reach = {"url": studio.url, "api_token": studio.token, "project": project}
    print("pulled:", client.request("POST", "label-studio/reconcile", reach))
    assert values() == [55.0, 78.0], values()
    print("reconciled:", values())
    every = {"selectedItems": {"all": True, "excluded": []}, "project": str(project)}
    asks = f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}"
    print("Label Studio asks for predictions:", studio.ask("POST", asks, every))
    whole = "exportType=JSON&download_all_tasks=true"
    return studio.ask("GET", f"/api/projects/{project}/export?{whole}")


def answers(client: vp.Client) -> list[list[float]]:
    """The values in the database."""
    rows = client._wire.rows(f"campaigns/{client.campaign}/answers")
    return [row["value"] for row in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="Label Studio's own command.")
    parser.add_argument("--record", type=Path, help="A file for what it sent.")
    given = parser.parse_args()
    main(given.program, given.record)
