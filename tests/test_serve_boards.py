"""The board in the web process: candidates by gain, retries when it is old, done tasks marked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from sqlalchemy import select

from tests.serve_api import House, house, house_on, shared_house, small_house, template
from voxpop import Board
from voxpop.service.schema import task

__all__ = ["house", "shared_house", "small_house", "template"]


def ids_of(house: House, slug: str) -> list[int]:
    def read(connection: Any) -> list[int]:
        query = select(task.c.id).where(task.c.campaign == house.number(slug)).order_by(task.c.id)
        return list(connection.execute(query).scalars())

    found: list[int] = house.service.ask(read)
    return found


def publish(
    house: House, slug: str, gain: Any, done: Any = (), seq: int | None = None, **more: Any
) -> None:
    """Publish a board whose first gains are these; each further answer gains half."""
    worth: dict[int, float] = more.get("worth", {})
    ids = np.array(ids_of(house, slug))
    first = np.array(gain, dtype=np.float32)
    is_done = np.isin(np.arange(ids.size), list(done))
    order = np.array([k for k in np.argsort(-first, kind="stable") if not is_done[k]])
    board = Board(
        task=ids, gain=first[:, None] * np.array([1, 0.5, 0.25], np.float32),
        half_width=np.ones(ids.size), done=is_done, order=order.astype(np.intp),
        worker=np.array(list(worth), dtype=np.int64), worth=np.array(list(worth.values())),
    )  # fmt: skip
    number = house.number(slug)
    seq = seq or house.ask("GET", f"/campaigns/{slug}").json()["seq"]
    house.service.published.write(number, "board", seq, board.to_bytes())
    house.service.boards.refresh()


def text_of(found: Any) -> str:
    return str(found["offer"]["task"]["content"]["text"])


def test_offers_follow_the_board_and_what_is_left_to_gain(house: House) -> None:
    slug = house.campaign(4)
    publish(house, slug, [1, 8, 5, 3])
    texts = [text_of(house.next(house.worker(slug))) for _ in range(5)]
    # 8, then 5, then the second of the first task (4), then 3, then the second of the second (2.5).
    assert texts == ["tree 1", "tree 2", "tree 1", "tree 3", "tree 2"]
    rows = house.ask("GET", f"/campaigns/{slug}/next?k=3").json()["rows"]
    # Left: a third of the first task (2), the second of the last (1.5), a third of the second.
    assert [row["task"] for row in rows] == ["t1", "t3", "t2"]
    assert rows[0]["gain"] == pytest.approx(2.0)


def test_offers_to_a_worker_who_is_worth_little_leave_much_to_gain(house: House) -> None:
    slug = house.campaign(2)
    spammer = house.worker(slug)
    (row,) = house.ask("GET", f"/campaigns/{slug}/workers").json()["rows"]
    publish(house, slug, [8, 5], worth={row["id"]: 0.1})
    assert text_of(house.next(spammer)) == "tree 0"
    # 8 - 0.1 (8 - 4) = 7.6 is left of the first task: still more than 5.
    assert text_of(house.next(house.worker(slug))) == "tree 0"
    seq = house.ask("GET", f"/campaigns/{slug}").json()["seq"]
    publish(house, slug, [8, 4.5], worth={row["id"]: 0.1}, seq=seq + 1)  # both are open offers
    assert text_of(house.next(house.worker(slug))) == "tree 1"


def test_a_worker_gets_no_task_twice_and_all_in_the_end(house: House) -> None:
    slug = house.campaign(6)
    publish(house, slug, [1, 8, 5, 3, 2, 4])
    token = house.worker(slug)
    found, texts = house.next(token), []
    while found["offer"] is not None:
        texts.append(text_of(found))
        found = house.answer(token, found["offer"]["id"], 4, next=1).json()["next"]
    assert texts == [f"tree {k}" for k in (1, 2, 5, 3, 4, 0)]
    assert found["reason"] == "done"


def test_an_old_board_costs_a_second_try_and_breaks_no_rule(house: House) -> None:
    """All that the board holds is withdrawn: the second try takes what the database holds."""
    slug = house.campaign(2)
    publish(house, slug, [5, 1])
    house.ask("POST", f"/campaigns/{slug}/tasks", [{"name": "new", "content": {"text": "new"}}])
    house.ask("POST", f"/campaigns/{slug}/tasks/withdraw", {"names": ["t0", "t1"]})
    assert text_of(house.next(house.worker(slug))) == "new"


def test_tasks_that_meet_the_stop_rule_are_marked_once(house: House) -> None:
    slug = house.campaign(3, half_width=2)
    token = house.worker(slug)
    house.answer(token, house.next(token)["offer"]["id"], 4)
    publish(house, slug, [5, 1, 2], done=[0, 1])
    states = [row["state"] for row in house.ask("GET", f"/campaigns/{slug}/tasks").json()["rows"]]
    assert states == ["done", "done", "open"]
    seq = house.ask("GET", f"/campaigns/{slug}").json()["seq"]
    publish(house, slug, [5, 1, 2], done=[0, 1], seq=seq + 1)
    assert house.ask("GET", f"/campaigns/{slug}").json()["seq"] == seq
    assert text_of(house.next(house.worker(slug))) == "tree 2"


def test_a_board_learned_again_is_taken_up_though_no_event_came(house: House) -> None:
    """Learning changes what an answer gains, and no event tells of it: its edition does."""
    slug = house.campaign(3)
    publish(house, slug, [1, 8, 5], seq=7)
    assert house.ask("GET", f"/campaigns/{slug}/next").json()["rows"][0]["task"] == "t1"
    house.clock.ahead += 60  # boards are not read again at once: large ones take long
    publish(house, slug, [9, 8, 5], seq=7)
    assert house.ask("GET", f"/campaigns/{slug}/next").json()["rows"][0]["task"] == "t0"
    before = house.service.boards._boards[house.number(slug)]
    house.service.boards.refresh()
    assert house.service.boards._boards[house.number(slug)] is before  # the same is not read twice


def test_without_a_board_the_fewest_answers_come_first(small_house: House) -> None:
    house = small_house
    slug = house.campaign(3)
    texts = [text_of(house.next(house.worker(slug))) for _ in range(6)]
    assert sorted(texts[:3]) == sorted(texts[3:]) == ["tree 0", "tree 1", "tree 2"]


def test_the_thread_finds_new_boards_by_itself(tmp_path: Path) -> None:
    with house_on(str(tmp_path / "a.db"), board_every=0.01) as house:
        slug = house.campaign(2)
        publish(house, slug, [1, 2])
        number = house.number(slug)
        until = time.monotonic() + 20
        while not house.service.boards.best(number, 1):
            assert time.monotonic() < until
            time.sleep(0.01)
        house.ask("PATCH", f"/campaigns/{slug}", {"state": "closed"})
        while house.service.boards.best(number, 1):
            assert time.monotonic() < until
            time.sleep(0.01)
