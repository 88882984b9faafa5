"""The writer: what it acknowledges is committed, and one bad command or outage ends nothing."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra serve is not installed")

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, select, text
from sqlalchemy.exc import OperationalError

from tests.serve_api import counted
from voxpop.errors import ConfigError
from voxpop.service import commands as c
from voxpop.service.check import check
from voxpop.service.database import Database
from voxpop.service.decide import decide
from voxpop.service.questions import Question
from voxpop.service.rows import Facts
from voxpop.service.rules import Rules
from voxpop.service.schema import answer, campaign, offer, token, visit, worker
from voxpop.service.writer import Writer


@pytest.fixture
def database(serve_url: str) -> Iterator[Database]:
    with Database.open(serve_url) as opened:
        yield opened


@pytest.fixture
def writer(database: Database) -> Iterator[Writer]:
    started = Writer(database).start()
    yield started
    started.stop()


def make(writer: Writer, n_tasks: int = 20, question: str = "number", **settings: Any) -> int:
    rules = {"practice": 0, "gold_share": 0.0, **settings.pop("rules", {})}
    made: Any = writer.submit(
        c.CreateCampaign(
            slug="ages", title="Ages", question={"kind": question}, state="open", rules=rules,
            **settings,
        )
    ).result(30)  # fmt: skip
    tasks = [
        c.NewTask(name=f"t{k}", content={"text": str(k), "width": 50, "height": 40})
        for k in range(n_tasks)
    ]
    writer.submit(c.AddTasks(campaign=made.campaign, tasks=tasks)).result(30)
    return int(made.campaign)


def enter(writer: Writer, number: int, person: str = "ann", **settings: Any) -> c.Entered:
    found = writer.submit(
        c.Enter(campaign=number, provider="link", external_hmac=person, **settings)
    ).result(30)
    assert isinstance(found, c.Entered)
    return found


def get(writer: Writer, number: int, who: int, **settings: Any) -> Any:
    return writer.submit(c.Next(campaign=number, worker=who, **settings)).result(30)


def test_a_reply_comes_after_its_commit(database: Database, writer: Writer) -> None:
    """Whatever a future holds, another connection sees."""
    number = make(writer)
    who = enter(writer, number).worker
    for k in range(5):
        offered = get(writer, number, who)
        given = c.Answer(campaign=number, offer=offered.offer, worker=who, value=[k], lead_ms=7000)
        writer.submit(given).result(30)
        with database.connect() as connection:
            read = select(answer.c.value).where(answer.c.offer == offered.offer)
            assert connection.execute(read).scalar_one() == [float(k)]
    # After five answers the lease is three times their median lead, a minute at least.
    writer._leads.clear()
    offered = get(writer, number, who)
    assert offered.expires - offered.created == pytest.approx(60)


def test_commands_that_wait_are_carried_out_together(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(database, batch=50)
    batches: list[int] = []
    transact = writer.transact

    def counting(commands: Sequence[c.Command]) -> Any:
        batches.append(len(commands))
        return transact(commands)

    monkeypatch.setattr(writer, "transact", counting)
    waiting = threading.Thread(target=writer.stop)
    futures = [
        writer.submit(c.CreateCampaign(slug=f"c{k}", title="", question={"kind": "number"}))
        for k in range(120)
    ]
    writer.start()
    replies = [future.result(30) for future in futures]
    assert len({getattr(reply, "campaign", None) for reply in replies}) == 120
    assert batches == [50, 50, 20]
    waiting.start()
    waiting.join()
    with pytest.raises(c.Refused, match="stopping"):
        writer.submit(c.Expire(campaign=1)).result(1)
    assert not writer.alive


def test_a_full_queue_is_busy_and_a_stop_leaves_nobody_waiting(database: Database) -> None:
    writer = Writer(database, capacity=3)
    futures = [writer.submit(c.Expire(campaign=9)) for _ in range(5)]
    for future in futures[3:]:
        with pytest.raises(c.Refused) as caught:
            future.result(1)
        assert (caught.value.status, caught.value.reason) == (503, "busy")
    writer.stop()
    for future in futures[:3]:
        with pytest.raises(c.Refused, match="stopping"):
            future.result(1)


def test_a_command_that_breaks_its_batch_spares_the_others(
    database: Database, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    """A fault of ours in one command: it alone fails, the others of its batch are stored."""
    writer = Writer(database)
    good = c.CreateCampaign(slug="good", title="", question={"kind": "number"})
    bad = c.CreateCampaign(slug="bad", title="", question={"kind": "number"})

    def broken(facts: Facts, commands: Any, now: float) -> Any:
        if bad in commands:
            raise ZeroDivisionError("a fault")
        return decide(facts, commands, now)

    monkeypatch.setattr("voxpop.service.writer.decide", broken)
    futures = [writer.submit(good), writer.submit(bad)]
    writer.start()
    assert isinstance(futures[0].result(30), c.Created)
    with pytest.raises(c.Refused) as caught:
        futures[1].result(30)
    assert caught.value.status == 500
    assert "a fault" not in caught.value.detail
    assert json.loads(logged.getvalue())["error"] == "ZeroDivisionError"
    assert "a fault" not in logged.getvalue()
    writer.stop()
    with database.connect() as connection:
        assert connection.execute(select(campaign.c.slug)).scalars().all() == ["good"]


def test_an_outage_refuses_and_then_work_goes_on(
    database: Database, writer: Writer, logged: io.StringIO
) -> None:
    """The database fails at the commit: nothing is acknowledged, nothing is stored."""
    number = make(writer)
    who = enter(writer, number).worker
    offered = get(writer, number, who)
    given = c.Answer(campaign=number, offer=offered.offer, worker=who, value=[3])
    fails = [True]

    def fail(_: object) -> None:
        if fails:
            fails.clear()
            raise OperationalError("COMMIT", None, OSError("no space is left\nrow (3)"))

    event.listen(database.engine, "commit", fail)
    with pytest.raises(c.Refused) as caught:
        writer.submit(given).result(30)
    assert caught.value.status == 503
    assert json.loads(logged.getvalue())["reason"] == "no space is left"
    assert not counted(database, number)
    reply: Any = writer.submit(given).result(30)
    assert (reply.again, reply.version) == (False, 1)
    assert check(database) == []


def test_offers_expire_by_themselves_and_late_answers_are_paid(database: Database) -> None:
    now = [1000.0]
    writer = Writer(database, clock=lambda: now[0]).start()
    number = make(writer, n_tasks=1, rules={"price": 4, "lease_seconds": 30}, budget=4)
    ann, bob = enter(writer, number, "ann").worker, enter(writer, number, "bob").worker
    offered = get(writer, number, ann)
    assert get(writer, number, bob).reason == "budget"
    now[0] += 31
    writer._sweep()
    taken = get(writer, number, bob)
    assert isinstance(taken, c.Offered)
    late = c.Answer(campaign=number, offer=offered.offer, worker=ann, value=[1])
    with pytest.raises(c.Refused, match="and the budget is spent"):
        writer.submit(late).result(30)
    writer.submit(c.Skip(campaign=number, offer=taken.offer, worker=bob)).result(30)
    paid: Any = writer.submit(late).result(30)
    assert paid.credited == 4
    writer.stop()
    assert check(database) == []


def test_erasure_leaves_no_trace_of_the_person(database: Database, writer: Writer) -> None:
    number = make(writer, rules={"price": 2})
    who = enter(
        writer, number, "hmac-of-ann", external="ann@example.org", session="session-of-ann",
        token_hash="token-of-ann",
    )  # fmt: skip
    offered = get(writer, number, who.worker, visit=who.visit)
    writer.submit(
        c.Report(campaign=number, offer=offered.offer, worker=who.worker, text="I am Ann")
    ).result(30)
    offered = get(writer, number, who.worker, visit=who.visit)
    writer.submit(
        c.Answer(campaign=number, offer=offered.offer, worker=who.worker, value=[1])
    ).result(30)
    writer.submit(c.Erase(campaign=number, worker=who.worker, keep_answers=True)).result(30)
    with database.connect() as connection:
        everything = "".join(
            repr(connection.execute(select(table)).all())
            for table in (worker, visit, offer, answer, token)
        )
    for trace in ("hmac-of-ann", "ann@example.org", "session-of-ann", "token-of-ann", "I am Ann"):
        assert trace not in everything
    assert len(counted(database, number)) == 1
    assert check(database) == []
    # The same person is somebody new.
    assert enter(writer, number, "hmac-of-ann").new


def test_points_and_boxes_lie_in_their_images(writer: Writer) -> None:
    number = make(writer, question="box")
    who = enter(writer, number).worker
    offered = get(writer, number, who)
    for value in ([1, 1, 0, 5], [40, 1, 20, 5], [-3, 1, 5, 5], [1, 2], ["1", 2, 3, 4]):
        with pytest.raises(c.Refused) as caught:
            writer.submit(
                c.Answer(campaign=number, offer=offered.offer, worker=who, value=value)  # type: ignore[arg-type]
            ).result(30)
        assert caught.value.status == 422
    writer.submit(
        c.Answer(campaign=number, offer=offered.offer, worker=who, value=[30, 20, 20, 20])
    ).result(30)


@given(st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.integers(), st.text())))
def test_questions_and_rules_are_parsed_or_refused(told: dict[str, Any]) -> None:
    for parse in (Question.parse, Rules.parse):
        for given_now in (told, {"kind": "slider", **told}, {"price": 3, **told}):
            found = None
            with suppress(ConfigError):
                found = parse(given_now)
            assert found is None or parse(found.as_dict()) == found


def test_the_facts_are_left_as_they_are() -> None:
    """``decide`` is a function: the same facts give the same replies, however often."""
    facts = Facts(free={"campaign": 1})
    command = c.CreateCampaign(slug="a", title="", question={"kind": "number"})
    first = decide(facts, [command, command], 5.0)
    again = decide(facts, [command, command], 5.0)
    assert [repr(reply) for reply in first[1]] == [repr(reply) for reply in again[1]]
    assert facts == Facts(free={"campaign": 1})
    assert isinstance(first[1][0], c.Created)
    assert isinstance(first[1][1], c.Refused)


def test_a_text_that_the_database_cannot_store_is_refused(
    database: Database, writer: Writer, logged: io.StringIO
) -> None:
    """Half a character is stored by neither database, NUL not by PostgreSQL."""
    for title in ("\ud800", *(["a\x00b"] if database.path is None else [])):
        with pytest.raises(c.Refused) as caught:
            writer.submit(
                c.CreateCampaign(slug="a", title=title, question={"kind": "number"})
            ).result(30)
        assert (caught.value.status, caught.value.reason) == (422, "bad_value")
    assert logged.getvalue() == ""


def test_the_log_tells_no_answers(database: Database, writer: Writer, logged: io.StringIO) -> None:
    """PostgreSQL quotes the whole row that breaks a rule."""
    number = make(writer)
    broken = "DROP TABLE visit"
    if database.path is None:
        broken = "ALTER TABLE visit ADD CHECK (external_session <> 'session-of-ann')"
    with database.begin() as connection:
        connection.execute(text(broken))
    with pytest.raises(c.Refused):
        enter(writer, number, "hmac-of-ann", session="session-of-ann")
    (line,) = logged.getvalue().splitlines()
    assert json.loads(line)["level"] == "error"
    assert "of-ann" not in line


def test_money_of_a_task_that_ended_pays_for_the_next_one(writer: Writer) -> None:
    """The budget allows one offer: that of a withdrawn task goes back when its worker asks."""
    number = make(writer, n_tasks=2, rules={"price": 5}, budget=5)
    who = enter(writer, number).worker
    offered = get(writer, number, who)
    writer.submit(c.WithdrawTasks(campaign=number, names=[offered.name])).result(30)
    other = get(writer, number, who)
    assert isinstance(other, c.Offered)
    assert other.task != offered.task
