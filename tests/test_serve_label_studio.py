"""Label Studio: payloads that version 1.23 sent, and others like them; pulling behind webhooks."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.serve_api import House, house, shared_house, small_house, template
from tests.test_serve_api import is_problem
from tests.test_serve_boards import publish
from voxpop import DataError
from voxpop.service.annotations import read_annotation, read_task
from voxpop.service.api.label_studio import router

__all__ = ["house", "shared_house", "small_house", "template"]
API_TOKEN = "0123456789abcdef0123456789abcdef01234567"
NUMBERS = [{"id": "r1", "type": "number", "from_name": "age", "to_name": "text"}]


def annotation(key: int, value: float, at: str = "10:00:00", person: int = 1) -> dict[str, Any]:
    """An annotation as a webhook holds it."""
    return {
        "id": key,
        "completed_by": person,
        "result": [NUMBERS[0] | {"value": {"number": value}}],
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": "2025-05-01T10:00:00.000000Z",
        "updated_at": f"2025-05-01T{at}.123456Z",
        "lead_time": 3.25,
        "task": 11,
        "project": 4,
    }


def task(key: int = 11, **more: Any) -> dict[str, Any]:
    return {"id": key, "data": {"text": f"tree {key}"}, "is_labeled": True, "project": 4, **more}


def webhook(action: str, **more: Any) -> dict[str, Any]:
    return {"action": action, "project": {"id": 4, "title": "Ages"}, **more}


class Studio:
    """A campaign that Label Studio talks to."""

    def __init__(self, house: House) -> None:
        self.house = house
        made = house.ask("POST", "/campaigns", {
            "title": "Labels", "question": {"kind": "number", "text": "How old?"},
        }).json()  # fmt: skip
        self.slug = made["slug"]
        link = house.ask("POST", f"/campaigns/{self.slug}/links", {"kind": "label_studio"}).json()
        self.path = f"/ls/{link['token']}"

    def send(self, what: str, body: Any) -> Any:
        return self.house.client.post(f"{self.path}/{what}", json=body)

    def values(self) -> dict[str, list[float]]:
        rows = self.house.ask("GET", f"/campaigns/{self.slug}/answers").json()["rows"]
        return {row["task"]: sorted([*row["value"]]) for row in rows}


@pytest.fixture
def studio(house: House) -> Studio:
    return Studio(house)


def test_a_backend_is_connected_and_gives_scores_without_results(studio: Studio) -> None:
    health = studio.house.client.get(f"{studio.path}/health").json()
    assert health["status"] == "UP"
    body = {
        "tasks": [task(1), task(2), task(3)],
        "project": "4.1794838685",
        "label_config": "<View><Number name='age' toName='text'/></View>",
        "params": {"login": None, "password": None, "context": {}},
    }
    for _ in range(2):  # it asks again and again; tasks are added once
        reply = studio.send("predict", body).json()
        assert [one["result"] for one in reply["results"]] == [[], [], []]
        assert [one["score"] for one in reply["results"]] == [0.0, 0.0, 0.0]
    assert studio.house.ask("GET", f"/campaigns/{studio.slug}").json()["n_tasks"] == 3
    publish(studio.house, studio.slug, [1, 8, 5], done=[0])
    scores = [one["score"] for one in studio.send("predict", body).json()["results"]]
    assert scores[0] == 1.0
    assert scores[1] < scores[2] < 1.0


def test_annotations_come_change_and_go(studio: Studio) -> None:
    created = webhook("ANNOTATION_CREATED", task=task(), annotation=annotation(7, 40))
    assert studio.send("webhook", created).json() == {"taken": 1}
    assert studio.send("webhook", created).json() == {"taken": 0}
    assert studio.values() == {"11": [40.0]}
    edited = annotation(7, 45, "10:05:00")
    studio.send("webhook", webhook("ANNOTATION_UPDATED", task=task(), annotation=edited))
    studio.send("webhook", created)  # an old message that comes late changes nothing
    assert studio.values() == {"11": [45.0]}
    cancelled = annotation(7, 45, "10:06:00") | {"was_cancelled": True}
    studio.send("webhook", webhook("ANNOTATION_UPDATED", task=task(), annotation=cancelled))
    assert studio.values() == {}
    again = annotation(7, 46, "10:07:00")
    studio.send("webhook", webhook("ANNOTATION_UPDATED", task=task(), annotation=again))
    assert studio.values() == {"11": [46.0]}
    gone = webhook("ANNOTATIONS_DELETED", annotations=[{"id": 7}])
    assert studio.send("webhook", gone).json() == {"taken": 1}
    studio.send("webhook", webhook("ANNOTATION_UPDATED", task=task(), annotation=again))
    assert studio.values() == {}


def test_what_a_running_label_studio_sent_is_taken(studio: Studio) -> None:
    """Recorded from 1.23.2 by ``benchmarks.label_studio_live --record``, in the order it came."""
    sent = json.loads((Path(__file__).parent / "label_studio_payloads.json").read_text())
    exported = sent.pop()
    assert exported["path"] == "/export"
    stages = []
    for message in sent:
        path = f"{studio.path}{message['path']}"
        reply = studio.house.client.request(message["method"], path, json=message["body"])
        assert reply.status_code == 200, (message, reply.text)
        assert reply.json().keys() == message["reply"].keys()
        for one in reply.json().get("results", []):
            assert one["result"] == []
        stages.append(((message["body"] or {}).get("action"), studio.values()))
    seen = {}
    for action, values in stages:
        seen[action] = values  # as it was after the last of its kind
    assert seen["ANNOTATION_CREATED"] == {"1": [10.0], "2": [20.0], "3": [30.0]}
    assert seen["ANNOTATION_UPDATED"] == {"1": [77.0], "2": [20.0], "3": [30.0]}
    assert seen["ANNOTATIONS_DELETED"] == {"1": [77.0], "3": [30.0]}
    assert {message["path"] for message in sent} == {"/health", "/setup", "/webhook", "/predict"}
    # Three webhooks were missed after that; its export, recorded as well, has what they would say.
    with project(exported["reply"], []) as url:
        body = {"url": url, "api_token": API_TOKEN, "project": 1}
        path = f"/campaigns/{studio.slug}/label-studio/reconcile"
        for changed, dropped in ((2, 1), (0, 0)):
            told = {"tasks": 3, "annotations": 2, "changed": changed, "dropped": dropped}
            assert studio.house.ask("POST", path, body).json() == told
        assert studio.values() == {"1": [78.0], "2": [55.0]}


def test_other_messages_are_taken_as_they_are(studio: Studio) -> None:
    assert studio.send("webhook", webhook("TASKS_CREATED", tasks=[task(21), task(22)])).json()
    assert studio.send("webhook", webhook("PROJECT_UPDATED")).json() == {"taken": 0}
    studio.send("webhook", webhook("TASKS_DELETED", tasks=[{"id": 22}]))
    rows = studio.house.ask("GET", f"/campaigns/{studio.slug}/tasks").json()["rows"]
    assert [(row["name"], row["state"]) for row in rows] == [("21", "open"), ("22", "withdrawn")]


def test_bad_payloads_are_problems_and_nothing_is_lost(studio: Studio) -> None:
    for what, body in (
        ("webhook", []),
        ("webhook", webhook("ANNOTATION_CREATED")),
        ("webhook", webhook("ANNOTATION_CREATED", task=task(), annotation={"id": 1})),
        ("webhook", webhook("ANNOTATIONS_DELETED", annotations={"id": 1})),
        ("predict", {"tasks": "x"}),
        ("predict", {"tasks": [{"id": None}]}),
        ("setup", "x"),
    ):
        assert is_problem(studio.send(what, body), 422), body
    deep = "[" * 100_000
    reply = studio.house.client.post(f"{studio.path}/webhook", content=deep)
    assert is_problem(reply, 422)
    assert studio.values() == {}


def test_the_secret_in_the_path_opens_its_campaign_only(studio: Studio) -> None:
    house = studio.house
    expired = house.link(studio.slug, "label_studio", days=1)
    house.clock.ahead += 2 * 86_400
    routes = [(one.methods, one.path) for one in router.routes]  # type: ignore[attr-defined]
    assert len(routes) == 5
    for token in ("vps_guessed", expired, house.owner, house.link(studio.slug)):
        for methods, path in routes:
            method = "POST" if "POST" in methods else "GET"
            found = house.client.request(method, path.format(token=token), json={})
            assert is_problem(found, 401), path
    assert studio.send("webhook", {}).status_code == 200


@contextmanager
def project(document: Any, asked: list[Any]) -> Iterator[str]:
    """A Label Studio that knows nothing but its export."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            good = self.headers["Authorization"] == f"Token {API_TOKEN}"
            self.send_response(200 if good else 401)
            self.end_headers()
            self.wfile.write(json.dumps(document if good else {"detail": "no"}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_pulling_finds_what_webhooks_missed(studio: Studio) -> None:
    house, path = studio.house, f"/campaigns/{studio.slug}/label-studio/reconcile"
    for key, value in ((1, 40), (2, 50)):
        made = webhook("ANNOTATION_CREATED", task=task(key), annotation=annotation(key, value))
        studio.send("webhook", made)
    assert is_problem(house.ask("POST", path, {}), 409, "not_connected")
    document = [
        task(1, annotations=[annotation(1, 44, "10:30:00")]),  # an edit was missed
        task(2, annotations=[]),  # a deletion was missed
        task(3, annotations=[annotation(3, 60, person=2)]),  # a new one was missed
        task(4, annotations=[]),
    ]
    asked: list[Any] = []
    with project(document, asked) as url:
        body = {"url": url, "api_token": API_TOKEN, "project": 4}
        reply = house.ask("POST", path, body).json()
        assert reply == {"tasks": 4, "annotations": 2, "changed": 2, "dropped": 1}
        assert studio.values() == {"1": [44.0], "3": [60.0]}
        assert house.ask("POST", path, body).json()["changed"] == 0
        assert is_problem(house.ask("POST", path, body | {"api_token": "bad"}), 422, "cannot_pull")
    assert asked[0][0] == "/api/projects/4/export?exportType=JSON&download_all_tasks=true"
    closed = house.ask("POST", path, {"url": "file:///etc", "api_token": "x", "project": 1})
    assert is_problem(closed, 422, "cannot_pull")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("file:///etc/passwd", "must be like https://"),
        ("http:///export", "must be like https://"),
        ("http://[::1", "must be like https://"),
        ("http://127.0.0.1:99999", "must be like https://"),
        ("http://studio@127.0.0.1:8080", "no user, query or fragment"),
        ("http://127.0.0.1:8080/secrets?", "no user, query or fragment"),
        ("http://127.0.0.1:8080/secrets#", "no user, query or fragment"),
        ("http://169.254.169.254", "link-local"),
        ("http://2852039166", "link-local"),  # the same, as one number
        ("http://[fe80::1]", "link-local"),
        ("http://[::ffff:169.254.169.254]", "link-local"),
        ("http://no-such-host.invalid", "its address is unknown"),
    ],
)
def test_only_a_plain_address_is_pulled(studio: Studio, url: str, told: str) -> None:
    """Whoever has the link must not choose what the service reads elsewhere."""
    house, path = studio.house, f"/campaigns/{studio.slug}/label-studio/reconcile"
    reply = house.ask("POST", path, {"url": url, "api_token": API_TOKEN, "project": 4})
    assert is_problem(reply, 422, "cannot_pull")
    assert told in reply.json()["detail"]
    assert API_TOKEN not in reply.text


def test_setup_pulls_and_its_api_token_is_nowhere_else(
    small_house: House, logged: io.StringIO
) -> None:
    studio = Studio(small_house)
    asked: list[Any] = []
    document = [task(1, annotations=[annotation(1, 44)])]
    with project(document, asked) as url:
        body = {"project": "4.1794838685", "schema": "<View/>", "hostname": url}
        for _ in range(3):
            reply = studio.send("setup", body | {"access_token": API_TOKEN})
            assert reply.json() == {"model_version": "voxpop"}
        path = f"/campaigns/{studio.slug}/label-studio/reconcile"
        small_house.ask("POST", path, {})
    assert studio.values() == {"1": [44.0]}
    assert 1 <= len(asked) <= 2
    assert "/ls/{token}/setup" in logged.getvalue()
    assert API_TOKEN not in logged.getvalue()
    assert studio.path not in logged.getvalue()
    assert API_TOKEN not in repr(small_house.service.pulls)


def test_values_of_every_kind() -> None:
    def value(kind: str, *regions: Any) -> Any:
        given = annotation(1, 0) | {"result": list(regions)}
        return read_annotation(given, 11, kind).value

    size = {"original_width": 200, "original_height": 100}
    box = {"type": "rectanglelabels", **size, "value": {"x": 10, "y": 20, "width": 5, "height": 50}}
    point = {"type": "keypointlabels", **size, "value": {"x": 50, "y": 50, "width": 0.5}}
    stars = {"type": "rating", "value": {"rating": 4}}
    assert value("box", box) == [20.0, 20.0, 10.0, 50.0]
    assert value("point", box, point) == [100.0, 50.0]
    assert value("rating", stars) == [4.0]
    assert value("number", {"type": "choices", "value": {"choices": ["a"]}}) is None
    assert value("number", {"type": "number", "value": {"number": "4"}}, "junk", None) is None
    assert value("box", box | {"value": box["value"] | {"rotation": 30}}) is None  # type: ignore[operator]
    assert value("box", box | {"original_width": None}) is None
    given = read_annotation(
        annotation(1, 4) | {"completed_by": {"id": 9, "email": "a@b"}}, 1, "number"
    )
    assert (given.person, given.lead_ms) == ("9", 3250)
    with pytest.raises(DataError):
        read_annotation(annotation(1, 4) | {"updated_at": "yesterday"}, 1, "number")
    shown = read_task({"id": 1, "data": {"image": "https://x.org/a.png", "text": "t", "n": 4}})
    assert shown.content == {"image": "https://x.org/a.png", "text": "t"}
