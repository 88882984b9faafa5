"""The service over HTTP: a worker's way, an owner's tables, bad input, double submits, two tabs."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.serve_api import NUMBER, House, house, shared_house, small_house, template

__all__ = ["house", "shared_house", "small_house", "template"]
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)> {{7*7}} =cmd|calc ‮ ￿'


def is_problem(reply: Any, status: int, reason: str | None = None) -> bool:
    """Check that a reply is a problem of one line."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    body = reply.json()
    assert set(body) == {"type", "title", "status", "detail", "reason"}
    assert body["status"] == status
    assert body["detail"]
    assert "\n" not in body["detail"]
    return reason is None or body["reason"] == reason


def test_a_workers_way_from_the_link_to_the_end(house: House) -> None:
    slug = house.campaign(2, price=5, budget=100)
    token = house.worker(slug)
    first = house.next(token)["offer"]
    assert first["task"] == {"content": {"text": "tree 0"}}
    assert (first["position"], first["answered"], first["practice"]) == (1, 0, False)
    assert 0 < first["expires_in"] <= 1800
    reply = house.answer(token, first["id"], 40, next=1).json()
    assert (reply["version"], reply["again"], reply["practice"]) == (1, False, None)
    second = reply["next"]["offer"]
    assert second["task"]["content"]["text"] == "tree 1"
    last = house.answer(token, second["id"], 50, next=1).json()["next"]
    assert (last["offer"], last["reason"]) == (None, "done")
    assert last["completion"]["provider"] == "link"
    assert house.next(token)["completion"] == last["completion"]
    shown = house.ask("GET", f"/campaigns/{slug}").json()
    assert (shown["spent"], shown["reserved"], shown["n_answers"]) == (10, 0, 2)


def test_a_reload_gets_the_same_offer(house: House) -> None:
    token = house.worker(house.campaign())
    offers = {house.next(token)["offer"]["id"] for _ in range(3)}
    assert len(offers) == 1


def test_the_same_answer_twice_is_one_and_another_is_a_conflict(house: House) -> None:
    slug = house.campaign(price=3)
    token = house.worker(slug)
    offer = house.next(token)["offer"]["id"]
    assert house.answer(token, offer, 40).json()["again"] is False
    assert house.answer(token, offer, 40).json()["again"] is True
    assert is_problem(house.answer(token, offer, 41), 409)
    rows = house.ask("GET", f"/campaigns/{slug}/credits").json()["rows"]
    assert [row["amount"] for row in rows] == [3]


def test_two_tabs_of_one_worker_share_one_offer(house: House) -> None:
    """Both tabs show the same task; the second answer of another value is refused."""
    slug = house.campaign()
    token = house.worker(slug)
    tabs = [house.next(token)["offer"]["id"] for _ in range(2)]
    assert house.answer(token, tabs[0], 30, next=1).status_code == 200
    assert is_problem(house.answer(token, tabs[1], 31, next=1), 409)
    rows = house.ask("GET", f"/campaigns/{slug}/answers").json()["rows"]
    assert [row["value"] for row in rows] == [[30.0]]


def test_a_worker_comes_back_by_the_token_and_a_stranger_does_not(house: House) -> None:
    slug, other = house.campaign(), house.campaign()
    first = house.enter(slug).json()
    again = house.enter(slug, invite=None, worker_token=first["worker_token"]).json()
    assert (again["worker"], again["worker_token"]) == (first["worker"], first["worker_token"])
    for invite in (None, "vpl_guessed", house.link(other), house.owner):
        assert is_problem(house.enter(slug, invite=invite), 403, "bad_invite")
    elsewhere = house.enter(other, invite=None, worker_token=first["worker_token"])
    assert is_problem(elsewhere, 403, "bad_invite")


def test_edit_skip_report_and_extend(house: House) -> None:
    slug = house.campaign(4)
    token = house.worker(slug)
    offer = house.next(token)["offer"]["id"]
    assert house.ask("POST", f"/offers/{offer}/extend", token=token).json()["expires_in"] > 0
    house.answer(token, offer, 40)
    edited = house.ask("PUT", f"/offers/{offer}/edit", {"value": [41]}, token).json()
    assert edited["version"] == 2
    assert edited["editable_for"] > 0
    house.clock.ahead += 1000
    assert is_problem(house.ask("PUT", f"/offers/{offer}/edit", {"value": [42]}, token), 410)
    skipped = house.next(token)["offer"]["id"]
    assert house.ask("POST", f"/offers/{skipped}/skip", {}, token).json() == {"done": True}
    third = house.next(token)["offer"]["id"]
    assert third not in (offer, skipped)
    told = house.ask("POST", f"/offers/{third}/report", {"text": "blurred"}, token)
    assert told.json() == {"done": True}
    (row,) = house.ask("GET", f"/campaigns/{slug}/answers").json()["rows"]
    assert (row["value"], row["version"]) == ([41.0], 2)


def test_reports_come_to_the_owner(house: House) -> None:
    slug = house.campaign(5)
    token = house.worker(slug)
    for k in range(4):
        offer = house.next(token)["offer"]["id"]
        if k < 3:
            house.ask("POST", f"/offers/{offer}/report", {"text": f"=wrong {k}"}, token)
        else:
            house.ask("POST", f"/offers/{offer}/skip", {"reason": "unsure"}, token)
        house.clock.ahead += 1
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        path = f"/campaigns/{slug}/reports?limit=2" + (cursor and f"&cursor={cursor}")
        found = house.ask("GET", path).json()
        rows, cursor = rows + found["rows"], found["next"]
    assert [row["text"] for row in rows] == ["=wrong 2", "=wrong 1", "=wrong 0"]
    assert len({row["task"] for row in rows}) == 3
    assert {row["task_state"] for row in rows} == {"open"}
    (skipped,) = house.ask("GET", f"/campaigns/{slug}/reports?state=skipped").json()["rows"]
    assert skipped["text"] == "unsure"
    assert house.ask("GET", f"/campaigns/{slug}/summary").json()["n_reports"] == 3
    worker = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"][0]["id"]
    house.ask("DELETE", f"/campaigns/{slug}/workers/{worker}")
    assert house.ask("GET", f"/campaigns/{slug}/reports").json()["rows"] == []


def test_nothing_tells_gold_from_other_tasks(house: House) -> None:
    """The same fields of the same types, ids of the same form; practice says what it is.

    Gold comes by chance: once in a million runs there is none before the other six tasks are done.
    """
    tasks: list[dict[str, Any]] = [{"name": f"t{k}", "content": {"text": "x"}} for k in range(6)]
    tasks += [
        {"name": f"g{k}", "content": {"text": "x"}, "kind": "gold", "truth": [4]} for k in range(6)
    ]
    tasks += [{"name": "p", "content": {"text": "x"}, "kind": "practice", "truth": [4]}]
    slug = house.campaign(tasks=tasks, gold_share=0.9, practice=1)
    token = house.worker(slug)
    practice = house.next(token)["offer"]
    assert practice["practice"] is True
    reply = house.answer(token, practice["id"], 9, next=1).json()
    assert reply["practice"] == {"truth": [4.0]}
    shapes = set()
    while (offer := reply["next"]["offer"]) is not None:
        reply = house.answer(token, offer["id"], 4, next=1).json()
        shape = {name: type(item).__name__ for name, item in offer.items()}
        keys = (*reply, reply["practice"], len(offer["id"]), json.dumps(offer["task"]))
        shapes.add((*sorted(shape.items()), *keys))
    assert len(shapes) == 1
    rows = house.ask("GET", f"/campaigns/{slug}/answers").json()["rows"]
    assert {row["kind"] for row in rows} == {"real", "gold", "practice"}


def test_bad_input_is_a_problem_of_one_line(small_house: House) -> None:
    house = small_house
    slug = house.campaign()
    token = house.worker(slug)
    offer = house.next(token)["offer"]["id"]
    put = f"/offers/{offer}/answer"
    for value in ([], [1, 2], ["x"], [None], [121], [-1], [True], [1e400]):
        assert is_problem(house.client.put(
            f"/api/v1{put}", content=json.dumps({"value": value}),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        ), 422), value  # fmt: skip
    assert is_problem(house.ask("PUT", put, {"value": [1], "extra": 1}, token), 422)
    assert is_problem(house.answer(token, "nobodys", 4), 404)
    assert is_problem(house.ask("GET", "/nowhere"), 404, "not_found")
    assert is_problem(house.ask("DELETE", "/next"), 405, "method_not_allowed")
    bad = {"Authorization": f"Bearer {house.owner}", "Content-Type": "application/json"}
    torn = house.client.post("/api/v1/campaigns", content=b'{"title": "a', headers=bad)
    assert is_problem(torn, 422, "bad_request")
    question = {"title": "x", "question": {"kind": "essay"}}
    assert is_problem(house.ask("POST", "/campaigns", question), 422)
    twice = [{"name": "same"}, {"name": "same"}]
    assert house.ask("POST", f"/campaigns/{slug}/tasks", twice).status_code in (409, 422)
    assert is_problem(house.ask("GET", f"/campaigns/{slug}/tasks?cursor=xyz"), 422, "bad_cursor")
    assert is_problem(house.ask("GET", f"/campaigns/{slug}/explain?task=none"), 404)
    assert house.answer(token, offer, 44).status_code == 200


def test_numbers_that_no_float_holds_and_codes_that_nobody_asks_for_are_refused(
    small_house: House,
) -> None:
    house, huge = small_house, 10**400
    path = f"/campaigns/{house.campaign()}"
    before = house.ask("GET", path).json()
    for rules in (
        {"half_width": huge}, {"lease_seconds": huge}, {"gold_share": -huge}, {"price": huge},
        {"prolific": {"complete": "C1"}}, {"prolific": {"completed": "a\0"}},
        {"prolific": {"completed": 5}}, {"mturk": {"sandbox": "no"}}, {"mturk": {"live": True}},
    ):  # fmt: skip
        told = house.ask("PATCH", path, {"rules": rules})
        assert is_problem(told, 422, "bad_value"), rules
        body = {"title": "x", "question": NUMBER, "rules": rules}
        assert is_problem(house.ask("POST", "/campaigns", body), 422, "bad_value"), rules
    for content in ({"width": huge}, {"width": -1}, {"text": "a\0b"}):
        told = house.ask("POST", f"{path}/tasks", [{"name": "new", "content": content}])
        assert is_problem(told, 422, "bad_value"), content
    studio = house.ask("POST", f"{path}/links", {"kind": "label_studio"}).json()["token"]
    region = {"type": "number", "value": {"number": huge}}
    annotation = {
        "id": 1, "completed_by": 1, "result": [region], "lead_time": huge,
        "updated_at": "2025-05-01T10:00:00Z",
    }  # fmt: skip
    sent = {"action": "ANNOTATION_CREATED", "task": {"id": 1}, "annotation": annotation}
    assert house.client.post(f"/ls/{studio}/webhook", json=sent).status_code < 500
    counts = {"seq": 0, "n_tasks": 0, "n_unanswered": 0}
    assert house.ask("GET", path).json() | counts == before | counts


def test_an_answer_that_no_estimator_takes_is_refused(small_house: House) -> None:
    """Stored, it would end all learning of its campaign."""
    house = small_house
    slug = house.campaign(question={"kind": "number", "text": "How far?"})
    token = house.worker(slug)
    offer = house.next(token)["offer"]["id"]
    for value in (1e120, -1e120, 10**120):
        assert is_problem(house.answer(token, offer, value), 422, "bad_value")
    assert house.answer(token, offer, 1e99).status_code == 200


def test_bodies_have_a_cap(small_house: House) -> None:
    house = small_house
    token = house.worker(house.campaign())
    headers = {"Authorization": f"Bearer {token}"}
    long = b" " * (house.service.settings.body_most + 1)

    def in_parts() -> Any:
        yield from (long[k : k + 10_000] for k in range(0, len(long), 10_000))

    for content in (long, in_parts()):
        reply = house.client.put("/api/v1/offers/x/answer", content=content, headers=headers)
        assert is_problem(reply, 413, "too_large")


def test_hostile_text_is_data(house: House) -> None:
    """It comes back as it was, in JSON; pages do not hold it; a spreadsheet runs nothing."""
    name = "=HYPERLINK(1)"
    slug = house.campaign(tasks=[{"name": name, "content": {"text": HOSTILE}}])
    house.ask("PATCH", f"/campaigns/{slug}", {"title": HOSTILE[:60], "instructions": HOSTILE})
    token = house.worker(slug)
    offered = house.ask("POST", "/next", token=token)
    assert offered.headers["content-type"] == "application/json"
    assert offered.headers["x-content-type-options"] == "nosniff"
    assert offered.json()["offer"]["task"]["content"]["text"] == HOSTILE
    for path in (f"/c/{slug}", "/", f"/c/{HOSTILE[:8]}"):
        assert "<script>alert" not in house.client.get(path).text
    house.answer(token, offered.json()["offer"]["id"], 4)
    house.ask("POST", f"/campaigns/{slug}/tasks", [{"name": "-5"}])
    (row,) = csv.DictReader(io.StringIO(house.ask("GET", f"/campaigns/{slug}/export").text))
    assert (row["task"], row["value"]) == (f"'{name}", "4.0")
    for text in ("nul \x00", "a\nb"):
        assert is_problem(house.ask("POST", f"/campaigns/{slug}/tasks", [{"name": text}]), 422)


def test_an_idempotency_key_adds_once(house: House) -> None:
    slug = house.campaign(1)
    tasks = [{"name": "new", "content": {}}]
    replies = [
        house.ask("POST", f"/campaigns/{slug}/tasks", tasks, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert [reply.json()["again"] for reply in replies] == [False, True]
    assert is_problem(house.ask("POST", f"/campaigns/{slug}/tasks", tasks), 409)
    assert house.ask("GET", f"/campaigns/{slug}").json()["n_tasks"] == 2


def test_pages_hold_every_row_once(house: House) -> None:
    slug = house.campaign(7)
    for _ in range(3):
        token = house.worker(slug)
        found = house.next(token)
        while found["offer"] is not None:
            found = house.answer(token, found["offer"]["id"], 9, next=1).json()["next"]
    for what, n in (("tasks", 7), ("answers", 21), ("workers", 3), ("credits", 21), ("events", 0)):
        whole = house.ask("GET", f"/campaigns/{slug}/{what}?limit=1000").json()["rows"]
        assert len(whole) == n or what == "events"
        rows, cursor = [], None
        while True:
            key = "after" if what == "events" else "cursor"
            query = {"limit": 2} | ({key: cursor} if cursor is not None else {})
            page = house.ask("GET", f"/campaigns/{slug}/{what}", params=query).json()
            rows += page["rows"]
            cursor = page["next"]
            if cursor is None:
                break
        assert rows == whole
    seq = [row["seq"] for row in rows]
    assert seq == list(range(1, len(seq) + 1))
    slugs = [row["slug"] for row in house.ask("GET", "/campaigns").json()["rows"]]
    assert slugs[0] == slug


def test_credits_are_settled_and_exported_as_payments(house: House) -> None:
    slug = house.campaign(2, price=7)
    token = house.worker(slug)
    offer = house.next(token)["offer"]["id"]
    second = house.answer(token, offer, 4, next=1).json()["next"]["offer"]["id"]
    house.answer(token, second, 5)
    path = f"/campaigns/{slug}/credits"
    approved = house.ask("POST", path, {"answers": [offer], "state": "approved"})
    assert approved.json()["n"] == 1
    no_reason = {"answers": [second], "state": "rejected"}
    assert is_problem(house.ask("POST", path, no_reason), 422)
    assert is_problem(house.ask("POST", path, {"answers": ["x"], "state": "paid"}), 404)
    house.ask("POST", path, no_reason | {"reason": "not read"})
    states = {row["answer"]: row["state"] for row in house.ask("GET", path).json()["rows"]}
    assert states == {offer: "approved", second: "rejected"}
    text = house.ask("GET", f"/campaigns/{slug}/export?what=payments").text
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["approved"], row["rejected"], row["n_answers"]) == ("7", "7", "2")
    listed = house.ask("GET", f"/campaigns/{slug}/export?what=credits&format=json").json()
    assert len(listed) == 2


def test_an_owner_pauses_bans_and_erases_workers(house: House) -> None:
    slug = house.campaign(5)
    token = house.worker(slug)
    house.answer(token, house.next(token)["offer"]["id"], 4)
    (row,) = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    path = f"/campaigns/{slug}/workers/{row['id']}"
    assert house.ask("PATCH", path, {"state": "banned"}).status_code == 200
    assert house.next(token)["reason"] == "banned"
    assert is_problem(house.ask("PATCH", f"{path}0", {"state": "active"}), 404)
    assert house.ask("DELETE", path, params={"keep_answers": True}).status_code == 200
    (row,) = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    assert row["state"] == "erased"
    assert len(house.ask("GET", f"/campaigns/{slug}/answers").json()["rows"]) == 1
    assert house.enter(slug, invite=None, worker_token=token).status_code == 403


def test_answers_from_elsewhere_are_taken_once(house: House) -> None:
    slug = house.campaign(2)
    given = [
        {"task": "t0", "worker": "ann", "value": [4]},
        {"task": "no", "worker": "b", "value": [1]},
    ]
    for _ in range(2):
        reply = house.ask("POST", f"/campaigns/{slug}/answers", given).json()
        assert reply["taken"] == 1
        assert [one["row"] for one in reply["refused"]] == [1]
    house.clock.ahead += 1
    house.ask("POST", f"/campaigns/{slug}/answers", [given[0] | {"value": [5]}])
    (row,) = house.ask("GET", f"/campaigns/{slug}/answers").json()["rows"]
    assert (row["task"], row["worker"], row["value"]) == ("t0", "ann", [5.0])


def test_changes_of_a_campaign(house: House) -> None:
    slug = house.campaign(1, budget=100)
    path = f"/campaigns/{slug}"
    changed = house.ask("PATCH", path, {"rules": {"price": 9}, "budget": None}).json()
    assert (changed["rules"]["price"], changed["rules"]["practice"]) == (9, 0)
    assert changed["budget"] is None
    for changes in ({}, {"title": None}, {"rules": {"prize": 1}}, {"state": "gone"}):
        assert is_problem(house.ask("PATCH", path, changes), 422), changes
    token = house.worker(slug)
    house.ask("PATCH", path, {"state": "paused"})
    paused = house.next(token)
    assert (paused["reason"], paused["completion"]) == ("paused", None)
    assert paused["retry_after"] > 0
    house.ask("PATCH", path, {"state": "closed"})
    assert is_problem(house.enter(slug), 410, "closed")
    same = {"title": "x", "slug": slug, "question": NUMBER}
    assert is_problem(house.ask("POST", "/campaigns", same), 409)
    assert house.ask("POST", f"{path}/tasks/withdraw", {"names": ["t0"]}).json()["n"] == 1
