"""Prolific and MTurk: who they send, previews, codes at the end, and what they are paid by."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from tests.serve_api import House, house, shared_house, small_house, template
from tests.test_serve_api import is_problem

__all__ = ["house", "shared_house", "small_house", "template"]
CODES = {"completed": "C1 A&B", "screened_out": "S1", "nothing_left": "N1"}
PROLIFIC = {"PROLIFIC_PID": "p-1", "STUDY_ID": "s-1", "SESSION_ID": "v-1"}
MTURK = {"assignmentId": "A-1", "workerId": "W-1", "hitId": "H-1"}


def finish(house: House, token: str) -> Any:
    """Answer all that there is; return what is said at the end."""
    found = house.next(token)
    while found["offer"] is not None:
        found = house.answer(token, found["offer"]["id"], 4, next=1).json()["next"]
    return found


def test_prolific_sends_people_and_takes_them_back_with_a_code(house: House) -> None:
    slug = house.campaign(5, prolific=CODES, capacity=2, price=30)
    made = house.ask("POST", f"/campaigns/{slug}/links", {"kind": "prolific"}).json()
    assert made["url"].endswith(
        "&PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}&SESSION_ID={{%SESSION_ID%}}"
    )
    come = {"invite": made["token"], "provider": "prolific", "params": PROLIFIC}
    first = house.enter(slug, **come).json()
    end = finish(house, first["worker_token"])
    assert end["reason"] == "capacity"
    address = "https://app.prolific.com/submissions/complete?cc=C1%20A%26B"
    assert end["completion"] == {
        "provider": "prolific", "code": CODES["completed"], "url": address, "form": None,
    }  # fmt: skip
    # A reload, or the link again: the same person, the same code, nothing more.
    again = house.enter(slug, **come).json()
    assert again["worker"] == first["worker"]
    assert house.next(again["worker_token"])["completion"] == end["completion"]
    rows = csv.DictReader(
        io.StringIO(house.ask("GET", f"/campaigns/{slug}/export?what=payments").text)
    )
    (row,) = rows
    assert (row["provider"], row["external"], row["session"]) == ("prolific", "p-1", "v-1")
    assert (row["due"], row["n_answers"], row["visit_state"]) == ("60", "2", "completed")


def test_who_finds_nothing_or_is_banned_gets_another_code(house: House) -> None:
    slug = house.campaign(1, prolific=CODES, answers_per_task=1)
    come = {"invite": house.link(slug), "provider": "prolific"}
    first = house.enter(slug, **come, params=PROLIFIC).json()["worker_token"]
    late = house.enter(
        slug, **come, params=PROLIFIC | {"PROLIFIC_PID": "p-2", "SESSION_ID": "v-2"}
    ).json()["worker_token"]
    banned = house.enter(
        slug, **come, params=PROLIFIC | {"PROLIFIC_PID": "p-3", "SESSION_ID": "v-3"}
    ).json()["worker_token"]
    assert finish(house, first)["completion"]["code"] == CODES["completed"]
    assert house.next(late)["completion"]["code"] == CODES["nothing_left"]
    rows = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    house.ask("PATCH", f"/campaigns/{slug}/workers/{rows[2]['id']}", {"state": "banned"})
    assert house.next(banned)["completion"]["code"] == CODES["screened_out"]


@pytest.mark.parametrize(
    ("provider", "params"),
    [
        ("prolific", {}),
        ("prolific", PROLIFIC | {"SESSION_ID": " "}),
        ("prolific", PROLIFIC | {"PROLIFIC_PID": "{{%PROLIFIC_PID%}}"}),
        ("mturk", {"workerId": "W"}),
        ("mturk", {"assignmentId": "A" * 200, "workerId": "W"}),
        ("mturk", MTURK | {"turkSubmitTo": "https://evil.example.org"}),
        ("mturk", MTURK | {"turkSubmitTo": "https://www.mturk.com.evil.org"}),
        ("mturk", MTURK | {"turkSubmitTo": "http://www.mturk.com"}),
        ("mturk", MTURK | {"turkSubmitTo": "https://workersandbox.mturk.com"}),
        ("mturk", MTURK | {"turkSubmitTo": "javascript:alert(1)"}),
    ],
)
def test_links_that_were_set_up_wrongly_are_refused(
    small_house: House, provider: str, params: dict[str, str]
) -> None:
    slug = small_house.campaign()
    assert is_problem(small_house.enter(slug, provider=provider, params=params), 422)
    assert small_house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"] == []


@pytest.mark.parametrize(
    ("sandbox", "host"),
    [(False, "https://www.mturk.com"), (True, "https://workersandbox.mturk.com")],
)
def test_mturk_previews_and_takes_assignments_back(house: House, sandbox: bool, host: str) -> None:
    slug = house.campaign(1, mturk={"sandbox": sandbox} if sandbox else {}, price=5)
    come: dict[str, Any] = {"invite": house.link(slug, "mturk"), "provider": "mturk"}
    preview = MTURK | {"assignmentId": "ASSIGNMENT_ID_NOT_AVAILABLE"}
    shown = house.enter(slug, **come, params=preview).json()
    assert (shown["preview"], shown["worker_token"]) == (True, None)
    assert house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"] == []
    params = MTURK | {"turkSubmitTo": host}
    token = house.enter(slug, **come, params=params).json()["worker_token"]
    end = finish(house, token)["completion"]
    assert end["url"] is None
    assert end["form"]["action"] == f"{host}/mturk/externalSubmit"
    assert end["form"]["fields"]["assignmentId"] == "A-1"
    (row,) = house.ask("GET", f"/campaigns/{slug}/credits").json()["rows"]
    assert (row["external"], row["session"], row["amount"]) == ("W-1", "A-1", 5)


def test_an_erased_worker_leaves_no_id(small_house: House) -> None:
    house = small_house
    slug = house.campaign(2, price=5)
    come = {"provider": "prolific", "params": PROLIFIC | {"PROLIFIC_PID": "person-99"}}
    token = house.enter(slug, **come).json()["worker_token"]
    house.answer(token, house.next(token)["offer"]["id"], 4)
    (row,) = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    assert "person-99" in house.ask("GET", f"/campaigns/{slug}/export?what=payments").text
    house.ask("DELETE", f"/campaigns/{slug}/workers/{row['id']}", params={"keep_answers": True})
    for what in ("payments", "credits", "answers"):
        text = house.ask("GET", f"/campaigns/{slug}/export?what={what}").text
        assert "person-99" not in text
        assert len(text.splitlines()) == 2
