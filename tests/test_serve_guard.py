"""What guards the service and tells about it: headers, limits, live streams, logs, pictures."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from tests.serve_api import (
    NUMBER,
    House,
    house,
    house_on,
    shared_house,
    small_house,
    template,
)
from tests.test_serve_api import is_problem
from voxpop import ConfigError
from voxpop.service.api.settings import Settings
from voxpop.service.inference import Inference
from voxpop.service.logs import log
from voxpop.service.schema import task

__all__ = ["house", "shared_house", "small_house", "template"]


def test_every_answer_has_security_headers(small_house: House) -> None:
    house = small_house
    slug = house.campaign()
    for path in ("/", f"/c/{slug}", "/healthz", "/static/favicon.svg", "/nowhere", "/api/v1/next"):
        headers = house.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "strict-transport-security" not in headers


def test_a_frame_is_opened_only_where_asked(small_house: House) -> None:
    house = small_house
    slug = house.campaign(mturk={"sandbox": True})
    headers = house.client.get(f"/c/{slug}").headers
    assert "frame-ancestors https://worker.mturk.com" in headers["content-security-policy"]
    assert "x-frame-options" not in headers


def test_tls_makes_cookies_secure(tmp_path: Path) -> None:
    with house_on(str(tmp_path / "a.db"), public_url="https://ask.example.org") as house:
        login = house.client.get(f"/login?token={house.owner}")
        cookie = login.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        assert "Secure" in cookie
        assert login.headers["strict-transport-security"]
        slug = house.campaign()
        link = house.ask("POST", f"/campaigns/{slug}/links", {}).json()["url"]
        assert link.startswith(f"https://ask.example.org/c/{slug}?invite=")


def test_too_many_requests_wait(tmp_path: Path) -> None:
    # By the day: a minute may end in the middle of the test.
    limits = {"token_limit": "8/day", "address_limit": "3/day", "enter_limit": "2/day"}
    with house_on(str(tmp_path / "a.db"), **limits) as house:
        slug = house.campaign()
        invite = house.link(slug)
        tokens = [house.enter(slug, invite=invite).json()["worker_token"] for _ in range(2)]
        refused = house.enter(slug, invite=invite)
        assert is_problem(refused, 429, "too_many_requests")
        assert int(refused.headers["retry-after"]) > 0
        replies = [house.ask("POST", "/next", token=tokens[0]) for _ in range(9)]
        assert [reply.status_code for reply in replies] == [200] * 8 + [429]
        # Another token has limits of its own; guesses count against the address.
        assert house.ask("POST", "/next", token=tokens[1]).status_code == 200
        guesses = [house.ask("POST", "/next", token=f"vpw_{k}").status_code for k in range(4)]
        assert guesses == [401, 401, 401, 429]


def events(text: str) -> list[dict[str, Any]]:
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append({"id": fields["id"], **json.loads(fields["data"])})
    return found


def test_a_strangers_body_is_not_read(small_house: House) -> None:
    """The token is checked first where bodies may be large: not a byte of it is asked for."""
    house = small_house
    slug = house.campaign(1)
    studio = house.ask("POST", f"/campaigns/{slug}/links", {"kind": "label_studio"}).json()["token"]
    read: list[int] = []

    def parts() -> Iterator[bytes]:
        for k in range(3):
            read.append(k)
            yield b" " * 1000

    tasks = f"/api/v1/campaigns/{slug}/tasks"
    worker, invite = house.worker(slug), house.link(slug)
    strangers = (
        (tasks, "", 401), (tasks, "vpo_guessed", 401), ("/ls/vps_guessed/webhook", "", 401),
        (tasks, worker, 403), (tasks, invite, 403), (tasks, studio, 403),
        (f"/ls/{worker}/webhook", "", 401), (f"/ls/{house.owner}/predict", house.owner, 401),
    )  # fmt: skip
    for path, token, status in strangers:
        scope = {
            "type": "http", "method": "POST", "path": path, "headers": [
                (b"authorization", f"Bearer {token}".encode()), (b"content-length", b"9000000"),
            ], "query_string": b"", "client": ("127.0.0.1", 1), "server": ("testserver", 80),
            "scheme": "http", "root_path": "", "raw_path": path.encode(), "http_version": "1.1",
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            read.append(1)
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        asyncio.run(house.app(scope, receive, send))
        assert sent[0]["status"] == status, path
        assert read == []
    headers = {"Authorization": f"Bearer {house.owner}"}
    assert house.client.post(tasks, content=parts(), headers=headers).status_code == 422
    assert house.client.post(f"/ls/{studio}/webhook", content=parts()).status_code == 422
    assert read == [0, 1, 2, 0, 1, 2]


def test_live_streams_go_on_from_the_last_event(house: House) -> None:
    slug = house.campaign(2)
    path = f"/api/v1/campaigns/{slug}/live"
    headers = {"Authorization": f"Bearer {house.owner}"}
    reply = house.client.get(path, headers=headers)
    assert reply.headers["content-type"].startswith("text/event-stream")
    (first,) = events(reply.text)
    assert (first["seq"], first["n_tasks"], first["inference"]) == (2, 2, "none")
    assert "fewest answers" in first["notice"]
    assert first["id"] == "2.0"
    # What inference publishes later is news, also when it has learned from the same answers again.
    for last, now in (("2.0", "2.1"), ("2.1", "2.2")):
        publish_summary(house, slug, first["seq"])
        (news,) = events(house.client.get(path, headers=headers | {"Last-Event-ID": last}).text)
        assert (news["id"], news["expected_rmse"]) == (now, 1.5)
    reply = house.client.get(path, headers=headers | {"Last-Event-ID": "2.2"})
    assert events(reply.text) == []
    token = house.worker(slug)
    house.answer(token, house.next(token)["offer"]["id"], 4)
    (after,) = events(house.client.get(path, headers=headers | {"Last-Event-ID": "2.2"}).text)
    assert (after["id"], after["n_answers"], after["expected_rmse"]) == ("3.2", 1, 1.5)
    assert house.ask("GET", f"/campaigns/{slug}/summary").json()["n_answers"] == 1


def publish_summary(house: House, slug: str, seq: int) -> None:
    told = {"seq": seq, "at": house.clock(), "expected_rmse": 1.5, "even_rmse": 2.0}
    house.service.published.write(house.number(slug), "summary", seq, json.dumps(told).encode())


def test_a_summary_says_when_inference_is_late(small_house: House) -> None:
    house = small_house
    slug = house.campaign(2)
    publish_summary(house, slug, 2)
    path = f"/campaigns/{slug}/summary"
    assert house.ask("GET", path).json()["inference"] == "running"
    house.clock.ahead += 1000
    token = house.worker(slug)
    house.answer(token, house.next(token)["offer"]["id"], 4)
    found = summary_anew(house, slug)
    assert found["inference"] == "late"
    assert "has not published for 100" in found["notice"]


def summary_anew(house: House, slug: str) -> Any:
    house.service.watched.pop(house.number(slug), None)
    return house.ask("GET", f"/campaigns/{slug}/summary").json()


def test_all_that_an_owner_reads_is_there_at_every_stage(house: House) -> None:
    """Before there are tasks, before the first answer, and after it, as inference publishes."""
    inference = Inference(house.service.database)
    slug = house.ask("POST", "/campaigns", {"title": "New", "question": NUMBER}).json()["slug"]
    token = house.worker(slug)

    def answered() -> None:
        assert house.answer(token, house.next(token)["offer"]["id"], 4).status_code == 200

    stages: list[Callable[[], Any]] = [
        lambda: None,
        lambda: house.ask("POST", f"/campaigns/{slug}/tasks", [{"name": "t"}, {"name": "u"}]),
        answered,
    ]
    paths = [path for path, methods in house.app.openapi()["paths"].items() if "get" in methods]
    ours = [path for path in paths if "{slug}" in path and not path.endswith("explain")]
    assert len(ours) > 10
    for stage in stages:
        stage()
        while inference.step():
            pass
        summary_anew(house, slug)
        for path in ours:
            read = house.ask("GET", path.format(slug=slug).removeprefix("/api/v1"))
            assert read.status_code == 200, (path, read.text)
    inference.close()
    assert house.ask("GET", f"/campaigns/{slug}/explain", params={"task": "t"}).status_code == 200


def test_a_fault_is_told_once_and_an_outage_may_be_tried_again(
    small_house: House, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the headers of every answer, and are counted."""
    house = small_house
    slug = house.campaign(2)
    outage = OperationalError("SELECT 47.125", None, OSError("server closed\nDETAIL: row (47.125)"))
    kinds = [(ZeroDivisionError("47.125"), 500, "server_error"), (outage, 503, "storage")]
    for fault, status, reason in kinds:

        def failing(*_: Any, fault: Exception = fault) -> Any:
            raise fault

        logged.truncate(0)
        monkeypatch.setattr("voxpop.service.api.reads.list_tasks", failing)
        found = house.ask("GET", f"/campaigns/{slug}/tasks")
        assert is_problem(found, status, reason)
        assert "script-src 'self'" in found.headers["content-security-policy"]
        assert found.headers.get("retry-after") == ("1" if status == 503 else None)
        what, request = (json.loads(line.strip("\0")) for line in logged.getvalue().splitlines())
        assert what["level"] == "error"
        assert request["status"] == status
        assert "47.125" not in logged.getvalue()
    metrics = house.client.get("/metrics", headers={"Authorization": f"Bearer {house.owner}"}).text
    for status in (500, 503):
        line = 'voxpop_requests_total{method="GET",route="/api/v1/campaigns/{slug}/tasks"'
        assert f'{line},status="{status}"}} 1.0' in metrics


def test_live_streams_are_counted_and_capped(tmp_path: Path) -> None:
    with house_on(str(tmp_path / "a.db"), live_most=1) as house:
        path = f"/campaigns/{house.campaign()}/live"
        for _ in range(2):  # one ends before the next begins
            assert house.ask("GET", path).status_code == 200
        house.service.watching = 1
        assert is_problem(house.ask("GET", path), 503, "too_many_streams")


def test_estimates_and_workers_as_published(house: House) -> None:
    slug = house.campaign(3)
    number = house.number(slug)
    tasks = house.ask("GET", f"/campaigns/{slug}/tasks").json()["rows"]
    assert len(tasks) == 3
    token = house.worker(slug)
    house.answer(token, house.next(token)["offer"]["id"], 4)
    ids = house.service.ask(ids_of, number)
    content = io.BytesIO()
    middle = np.array([[10.0], [20.0], [30.0]])
    half = np.array([[1.0], [3.0], [np.inf]])
    np.savez(
        content, task=ids, estimate=middle, sd=half / 2, lower_95=middle - half,
        upper_95=middle + half, n=np.array([1, 0, 0]), needs_a_look=np.array([True, False, False]),
        reason=np.array(["few answers", "", ""]),
    )  # fmt: skip
    house.service.published.write(number, "estimates", 3, content.getvalue())
    (worker,) = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    told = {str(worker["id"]): {"noise": [2.0, 4.0], "noise_sd": 3.0, "flags": ["bias"]}}
    house.service.published.write(number, "workers", 3, json.dumps(told).encode())
    path = f"/campaigns/{slug}/estimates"
    page = house.ask("GET", path).json()
    assert [row["name"] for row in page["rows"]] == ["t0", "t2", "t1"]
    assert page["total"] == 3
    assert page["rows"][1]["upper_95"] == [None]
    first = house.ask("GET", f"{path}?limit=2&order=width").json()
    second = house.ask("GET", f"{path}?limit=2&order=width&cursor={first['next']}").json()
    assert [row["name"] for row in first["rows"] + second["rows"]] == ["t2", "t1", "t0"]
    assert second["next"] is None
    (worker,) = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    assert (worker["noise"], worker["flags"]) == ([2.0, 4.0], ["bias"])
    shown = house.ask("GET", f"/campaigns/{slug}/explain?task=t0").json()
    assert shown["estimate"] == [10.0]
    (answer,) = shown["answers"]
    assert (answer["value"], answer["noise"], answer["weight"]) == ([4.0], [2.0, 4.0], 1.0)
    text = house.ask("GET", f"/campaigns/{slug}/export?what=estimates").text
    assert text.splitlines()[1].startswith("t0,10.0,0.5,9.0,11.0,1,real,open,true")


def ids_of(connection: Any, number: int) -> Any:
    query = select(task.c.id).where(task.c.campaign == number).order_by(task.c.id)
    return np.array(connection.execute(query).scalars().all())


def test_metrics_and_logs_name_no_person_and_no_value(
    small_house: House, logged: io.StringIO
) -> None:
    house = small_house
    slug = house.campaign(2)
    invite = house.link(slug)
    params = {"PROLIFIC_PID": "person-77", "SESSION_ID": "session-88", "STUDY_ID": "s"}
    entered = house.enter(slug, invite=invite, provider="prolific", params=params).json()
    token = entered["worker_token"]
    offer = house.next(token)["offer"]["id"]
    house.answer(token, offer, 47.125)
    house.answer(token, offer, 48.5)
    log("failed", logging.ERROR, ValueError("person-77 said 47.125"))
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert {line["route"] for line in lines if "route" in line} >= {
        "/api/v1/next",
        "/api/v1/offers/{offer}/answer",
    }
    metrics = house.client.get("/metrics", headers={"Authorization": f"Bearer {house.owner}"}).text
    assert 'voxpop_requests_total{method="POST",route="/api/v1/next",status="200"} 1.0' in metrics
    for text in (logged.getvalue(), metrics):
        for secret in (
            "person-77",
            "session-88",
            "47.125",
            token,
            invite,
            offer,
            entered["worker"],
        ):
            assert secret not in text


def test_probes(small_house: House) -> None:
    assert small_house.client.get("/healthz").json() == {"status": "ok"}
    assert small_house.client.get("/readyz").json() == {"status": "ready", "queue": 0}
    small_house.service.close_streams()
    assert is_problem(small_house.client.get("/readyz"), 503, "not_ready")


def test_pictures_are_served_by_signed_addresses_only(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    (folder / "deep").mkdir(parents=True)
    png = b"\x89PNG\r\n\x1a\n" + bytes(10)
    (folder / "deep" / "oak 1.png").write_bytes(png)
    (folder / "page.png").write_bytes(b"<html><script>")
    (tmp_path / "secret.png").write_bytes(png)
    with house_on(str(tmp_path / "a.db"), images=folder) as house:
        names = ["deep/oak 1.png", "page.png", "../secret.png", "https://x.org/a.png"]
        tasks = [{"name": n, "content": {"image": n}} for n in names]
        slug = house.campaign(tasks=tasks)
        token = house.worker(slug)
        seen: dict[str, Any] = {}
        found = house.next(token)
        while found["offer"] is not None:
            image = found["offer"]["task"]["content"]["image"]
            seen[image] = house.client.get(image) if image.startswith("/") else None
            found = house.answer(token, found["offer"]["id"], 4, next=1).json()["next"]
        good, *rest = seen.items()
        assert good[1].content == png
        assert good[1].headers["content-type"] == "image/png"
        assert [None if one is None else one.status_code for _, one in rest] == [404, 404, None]
        signature = good[0].split("/")[2]
        assert house.client.get(f"/files/{signature}/page.png").status_code == 404
        assert house.client.get("/files/0/deep/oak%201.png").status_code == 404


def test_settings_come_from_the_environment() -> None:
    given = {"VOXPOP_SERVE_ENTER_LIMIT": "9/second", "VOXPOP_SERVE_LIVE_EVERY": "0.5"}
    given |= {"VOXPOP_SERVE_IMAGES": "/pictures", "VOXPOP_SERVE_BODY_MOST": "1000"}
    found = Settings.from_environment(given)
    assert (found.enter_limit, found.live_every, found.body_most) == ("9/second", 0.5, 1000)
    assert found.images == Path("/pictures")
    for name, text in (("ENTER_LIMIT", "often"), ("BODY_MOST", "x"), ("PUBLIC_URL", "ask.org")):
        with pytest.raises(ConfigError):
            Settings.from_environment({f"VOXPOP_SERVE_{name}": text})
