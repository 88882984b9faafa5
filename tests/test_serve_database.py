"""The service's database: its constraints, versions, locks, backups, and what its check finds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy", reason="the extra serve is not installed")

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, insert, inspect, select, text, update
from sqlalchemy.exc import IntegrityError

from tests.postgres import PostgreSQL
from tests.serve_api import counted, house_on
from voxpop.errors import ConfigError, DataError
from voxpop.service import commands as c
from voxpop.service import schema
from voxpop.service.backup import backup
from voxpop.service.check import check
from voxpop.service.database import Database, known_versions, newest_version
from voxpop.service.inference import Inference
from voxpop.service.published import Block, Published
from voxpop.service.writer import Writer


@pytest.fixture
def database(serve_url: str) -> Iterator[Database]:
    with Database.open(serve_url) as opened:
        yield opened


def fill(database: Database, slug: str = "ages", n_tasks: int = 5, **rules: Any) -> int:
    """A campaign in which two workers have answered two tasks each, and hold a third."""
    writer = Writer(database)
    (made,) = writer.transact(
        [
            c.CreateCampaign(
                slug=slug, title="Ages", question={"kind": "number"}, budget=1000, state="open",
                rules={"price": 5, "practice": 0, **rules},
            )
        ]
    )  # fmt: skip
    assert isinstance(made, c.Created)
    number = made.campaign
    tasks = [c.NewTask(name=f"t{k}", content={"text": str(k)}) for k in range(n_tasks)]
    writer.transact([c.AddTasks(campaign=number, tasks=tasks)])
    for person in ("ann", "bob"):
        (entered,) = writer.transact(
            [c.Enter(campaign=number, provider="link", external_hmac=person, session=person)]
        )
        assert isinstance(entered, c.Entered)
        for k in range(3):
            (offered,) = writer.transact(
                [c.Next(campaign=number, worker=entered.worker, visit=entered.visit)]
            )
            assert isinstance(offered, c.Offered)
            if k < 2:
                given = c.Answer(
                    campaign=number, offer=offered.offer, worker=entered.worker, value=[k + 0.5]
                )
                writer.transact([given])
    return number


def rows(database: Database) -> dict[str, list[Any]]:
    """All that a database holds."""
    with database.connect() as connection:
        return {
            name: sorted(map(repr, connection.execute(select(table))))
            for name, table in schema.metadata.tables.items()
        }


# ---------------------------------------------------------------- constraints


def copy_of(connection: Connection, table: Any, key: Any, **changes: Any) -> dict[str, Any]:
    row = connection.execute(select(table).where(key).limit(1)).mappings().one()
    return {**row, **changes}


def second_pair(connection: Connection) -> None:
    offer = schema.offer
    row = copy_of(connection, offer, offer.c.state == "answered", id="x", state="skipped")
    connection.execute(insert(offer).values(row))


def second_open_offer(connection: Connection) -> None:
    offer, task = schema.offer, schema.task
    row = copy_of(connection, offer, offer.c.state == "open", id="x")
    had = select(offer.c.task).where(offer.c.worker == row["worker"])
    row["task"] = (
        connection.execute(select(task.c.id).where(task.c.id.not_in(had))).scalars().first()
    )
    connection.execute(insert(offer).values(row))


def second_credit(connection: Connection) -> None:
    row = copy_of(connection, schema.credit, schema.credit.c.amount == 5)
    connection.execute(insert(schema.credit).values(row))


def second_answer(connection: Connection) -> None:
    offer, answer = schema.offer, schema.answer
    row = copy_of(connection, offer, offer.c.state == "answered", id="x", state="released")
    connection.execute(insert(offer).values(row))
    pair = (answer.c.task == row["task"]) & (answer.c.worker == row["worker"])
    given = copy_of(connection, answer, pair, offer="x")
    connection.execute(insert(answer).values(given))


def past_the_budget(connection: Connection) -> None:
    connection.execute(update(schema.campaign).values(spent=991))


def less_than_nothing(connection: Connection) -> None:
    connection.execute(update(schema.task).values(n_open=-1, n_taken=schema.task.c.n_answers - 1))


def event_twice(connection: Connection) -> None:
    row = copy_of(connection, schema.event, schema.event.c.seq == 1)
    connection.execute(insert(schema.event).values(row))


def session_twice(connection: Connection) -> None:
    row = copy_of(connection, schema.visit, schema.visit.c.id == 1, id=99)
    connection.execute(insert(schema.visit).values(row))


def person_twice(connection: Connection) -> None:
    row = copy_of(connection, schema.worker, schema.worker.c.id == 1, id=99)
    connection.execute(insert(schema.worker).values(row))


def unknown_state(connection: Connection) -> None:
    connection.execute(update(schema.offer).values(state="lost"))


def nobodys_answer(connection: Connection) -> None:
    row = copy_of(connection, schema.offer, schema.offer.c.state == "open", id="x", worker=99)
    connection.execute(insert(schema.offer).values(row))


def name_twice(connection: Connection) -> None:
    row = copy_of(connection, schema.task, schema.task.c.id == 1, id=99)
    connection.execute(insert(schema.task).values(row))


def erased_person_known(connection: Connection) -> None:
    connection.execute(update(schema.worker).values(state="erased", external="ann"))


BREAKERS = [
    second_pair, second_open_offer, second_credit, second_answer, past_the_budget,
    less_than_nothing, event_twice, session_twice, person_twice, unknown_state, nobodys_answer,
    name_twice, erased_person_known,
]  # fmt: skip


def test_what_may_never_be_is_a_constraint(database: Database) -> None:
    """No program can write what breaks a rule, whatever it computes."""
    fill(database)
    before = rows(database)
    for breaks in BREAKERS:
        with pytest.raises(IntegrityError), database.begin() as connection:
            breaks(connection)
    assert rows(database) == before
    assert check(database) == []


# ---------------------------------------------------------------- check

CHEATS = {
    "UPDATE task SET n_answers = 7, n_taken = n_open + 7 WHERE id = 1": "counts 7 answers",
    "UPDATE task SET n_open = 7, n_taken = n_answers + 7 WHERE id = 1": "counts 7 open offers",
    "UPDATE campaign SET spent = 21": "credits come to 20",
    "UPDATE campaign SET reserved = 11": "open offers come to 10",
    "UPDATE campaign SET seq = seq + 1": "events, the last is",
    "DELETE FROM event WHERE seq = 3": "events, the last is",
    "UPDATE worker SET n_answers = 1 WHERE id = 1": "counts 1 answers and 0 in practice",
    "UPDATE answer SET version = 2": "differs from its events",
    "DELETE FROM credit": "has earned no credit",
    "UPDATE credit SET amount = 4": "not the price",
    "UPDATE offer SET state = 'skipped' WHERE state = 'answered'": "is skipped and has an answer",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_check_finds_what_does_not_add_up(tmp_path: Path, cheat: str) -> None:
    with Database.open(tmp_path / "a.db") as database:
        fill(database)
        assert check(database) == []
        with database.begin() as connection:
            connection.execute(text(cheat))
        found = check(database)
        assert any(CHEATS[cheat] in line for line in found), found
        assert all("\n" not in line for line in found)


def test_check_finds_rows_that_refer_to_nothing(tmp_path: Path) -> None:
    with Database.open(tmp_path / "a.db") as database:
        fill(database)
        with database.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("PRAGMA foreign_keys=OFF")
            raw.execute("DELETE FROM worker WHERE id = 2")
            raw.execute("PRAGMA foreign_keys=ON")
        assert any("refers to a row of worker" in line for line in check(database))


# ---------------------------------------------------------------- versions


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Database.open(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_new_database_has_todays_tables(database: Database) -> None:
    assert database.version() == newest_version()
    with database.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []


def make_old(url: str, version: str) -> dict[str, list[Any]]:
    """Make the tables of an earlier version, with what that version knew; return all rows."""
    old = Database._connect(url)
    old._upgrade(version)
    with old.begin() as connection:
        columns = columns_of(connection)
        for name, row in OLD_ROWS:
            known = {k: v for k, v in row.items() if k in columns[name]}
            connection.execute(insert(schema.metadata.tables[name]).values(known))
        connection.execute(update(schema.counter).values(value=2))
        found = rows_by(connection, columns)
    old.close()
    assert all(found.values()), "every table has a row to lose"
    return found


def columns_of(connection: Connection) -> dict[str, list[str]]:
    """The columns of all tables that are there."""
    looked = inspect(connection)
    names = set(looked.get_table_names()) & schema.metadata.tables.keys()
    return {name: [one["name"] for one in looked.get_columns(name)] for name in sorted(names)}


def rows_by(connection: Connection, columns: dict[str, list[str]]) -> dict[str, list[Any]]:
    """All rows, by these columns."""
    tables = {name: schema.metadata.tables[name] for name in columns}
    return {
        name: sorted(map(repr, connection.execute(select(*(table.c[k] for k in columns[name])))))
        for name, table in tables.items()
    }


@pytest.mark.parametrize("version", known_versions())
def test_every_earlier_version_becomes_todays_with_its_data(serve_url: str, version: str) -> None:
    """Nothing is lost, and the service goes on: people answer, inference learns and publishes."""
    before = make_old(serve_url, version)
    old = Database._connect(serve_url)
    with old.connect() as connection:
        columns = columns_of(connection)
    old.close()
    assert Database.migrate(serve_url) == (version, newest_version())
    with Database.open(serve_url) as database:
        with database.connect() as connection:
            assert rows_by(connection, columns) == before
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, schema.metadata) == []
        assert check(database) == []
        assert counted(database, 1) == {(1, 1): [41.5]}
        published, inference = Published(database), Inference(database)
        known = published.read(1, "board")
        if database.path is None:  # beside a file, blocks are files
            assert known == Block(1, 1, b"old")
        with house_on(serve_url) as house:
            person = house.worker("ages")
            offer = house.next(person)["offer"]
            assert offer["task"]["content"] == {"text": "u"}
            assert house.answer(person, offer["id"], 17).status_code == 200
            # A key of an upload before the update is still known.
            again = [{"name": "v", "content": {}}]
            sent = house.ask("POST", "/campaigns/ages/tasks", again, headers=KEY)
            assert sent.json()["type"].endswith("key_reused"), sent.text
        while inference.step():
            pass
        inference.close()
        new = published.read(1, "board", other_than=known.edition if known else None)
        assert new is not None
        assert new.seq > 1
        assert check(database) == []


_TASK = {
    "campaign": 1, "content": {}, "kind": "real", "truth": None, "n_open": 0, "state": "open",
}  # fmt: skip
KEY = {"Idempotency-Key": "upload-1"}
OLD_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("campaign", {
        "id": 1, "slug": "ages", "title": "Ages", "instructions": "",
        "question": {"kind": "number"}, "rules": {"price": 5, "practice": 0}, "state": "open",
        "seq": 1, "budget": 100, "reserved": 0, "spent": 5, "created": 1.0,
    }),
    ("task", {**_TASK, "id": 1, "name": "t", "n_answers": 1, "n_taken": 1}),
    (
        "task",
        {**_TASK, "id": 2, "name": "u", "content": {"text": "u"}, "n_answers": 0, "n_taken": 0},
    ),
    ("worker", {
        "id": 1, "campaign": 1, "pseudonym": "w1", "provider": "link", "external_hmac": "h",
        "external": None, "state": "active", "price": None, "capacity": None, "n_answers": 1,
        "n_practice": 0, "created": 1.0,
    }),
    ("visit", {
        "id": 1, "campaign": 1, "worker": 1, "provider": "link", "external_session": "s",
        "state": "open", "completion_code": None, "created": 1.0,
    }),
    ("token", {
        "hash": "h", "scope": "worker", "campaign": 1, "worker": 1, "visit": 1, "expires": None,
        "note": "",
    }),
    ("setting", {"name": "secret", "value": "ab" * 32}),
    ("dropped", {"campaign": 1, "source": "label_studio", "source_id": "9", "version": 3}),
    ("idempotency", {"campaign": 1, "key": "upload-1", "body": {
        "digest": "d", "first_id": 1, "n": 2, "seq": 1,
    }}),
    ("published", {"campaign": 1, "kind": "board", "seq": 1, "content": b"old"}),
    ("offer", {
        "id": "o", "campaign": 1, "task": 1, "worker": 1, "visit": None, "state": "answered",
        "price": 5, "created": 1.0, "expires": 2.0, "note": None,
    }),
    ("answer", {
        "offer": "o", "campaign": 1, "task": 1, "worker": 1, "value": [41.5], "counts": True,
        "lead_ms": 10, "source": "page", "source_id": None, "version": 1, "at": 1.0,
    }),
    ("credit", {
        "answer": "o", "campaign": 1, "worker": 1, "amount": 5, "state": "due", "reason": "",
    }),
    ("event", {
        "campaign": 1, "seq": 1, "at": 1.0, "actor": "worker:1", "kind": "answer",
        "body": {
            "task": 1, "worker": 1, "value": [41.5], "counts": True, "offer": "o", "version": 1
        },
    }),
]  # fmt: skip


def test_an_older_database_asks_to_be_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    Database.open(path).close()
    newest = newest_version()
    monkeypatch.setattr("voxpop.service.database.newest_version", lambda: "next")
    with pytest.raises(DataError, match=rf"of version {newest}, .* voxpop serve migrate {path}$"):
        Database.open(path)


def test_a_newer_or_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Database.open(path) as database, database.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(DataError, match=r"made by a newer voxpop \(version 9999"):
        Database.open(path)
    other = tmp_path / "other.db"
    with Database._connect(str(other)).begin() as connection:
        connection.execute(text("CREATE TABLE recipe (name TEXT)"))
    for refuses in (Database.open, Database.migrate):
        with pytest.raises(DataError, match="is not a database of voxpop serve"):
            refuses(other)
    text_file = tmp_path / "notes.db"
    text_file.write_text("this is no database, however long it may be" * 100)
    with pytest.raises(DataError, match="cannot be used: file is not a database"):
        Database.open(text_file)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://root:pw@localhost/x", r"mysql://root:\*\*\*@localhost/x: expected a file name"),
        ("no/such/folder/a.db", "there is no folder"),
        (".", "is a folder"),
        ("postgresql://u:pw@127.0.0.1:1/x", r"u:\*\*\*@127.0.0.1:1/x: cannot be used"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(url: str, told: str) -> None:
    with pytest.raises((ConfigError, DataError), match=told) as caught:
        Database.open(url)
    assert "\n" not in str(caught.value)
    assert "pw" not in str(caught.value)


# ---------------------------------------------------------------- locks and secrets


def test_one_server_a_file_and_one_leader_a_database(serve_url: str) -> None:
    with Database.open(serve_url) as one, Database.open(serve_url) as other:
        assert one.secret == other.secret
        assert len(one.secret) == 32
        if one.path is not None:
            with (
                one.lock(),
                pytest.raises(DataError, match="is open in another process; a campaign has one"),
            ):
                other.lock()
            other.lock().close()
        leads = one.lead()
        assert leads is not None
        assert leads.held()
        assert other.lead() is None
        leads.close()
        assert not leads.held()
        again = other.lead()
        assert again is not None
        again.close()


# ---------------------------------------------------------------- published and backed up


def test_published_is_whole_and_newest(database: Database) -> None:
    number = fill(database)
    published = Published(database)
    assert published.read(number, "board") is None
    published.write(number, "board", 3, b"\x00three\n")
    published.write(number, "summary", 5, b"{}")
    published.write(number, "board", 4, b"four")
    assert Published(database).read(number, "board") == Block(2, 4, b"four")
    assert published.read(number, "board", other_than=1) == Block(2, 4, b"four")
    assert published.read(number, "board", other_than=2) is None
    # Learned again: no event came, and yet it is another.
    published.write(number, "board", 4, b"four, learned")
    assert published.read(number, "board", other_than=2) == Block(3, 4, b"four, learned")
    assert published.read(number, "summary") == Block(1, 5, b"{}")
    with pytest.raises(ConfigError, match="kind must be"):
        published.write(number, "../board", 5, b"")


@pytest.mark.parametrize("torn", [b"", b"4\nfour", b"3 four\n", b"\x00" * 80])
def test_a_torn_block_reads_as_none_and_is_replaced(tmp_path: Path, torn: bytes) -> None:
    """Also what a voxpop before editions left there: it is computed again."""
    with Database.open(tmp_path / "a.db") as database:
        published = Published(database)
        published.write(1, "board", 3, b"three")
        (tmp_path / "a.db.published" / "1.board").write_bytes(torn)
        assert published.read(1, "board") is None
        published.write(1, "board", 5, b"five")
        assert published.read(1, "board") == Block(1, 5, b"five")


def test_a_backup_under_load_is_its_source_at_one_moment(
    serve_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with Database.open(serve_url) as database:
        number = fill(database, n_tasks=400)
        over = threading.Event()

        def work() -> None:
            writer = Writer(database)
            while not over.is_set():
                (offered,) = writer.transact([c.Next(campaign=number, worker=1)])
                assert isinstance(offered, c.Offered)
                given = c.Answer(campaign=number, offer=offered.offer, worker=1, value=[1])
                writer.transact([given])

        worker = threading.Thread(target=work)
        worker.start()
        copy = backup(database, tmp_path / "copy")
        over.set()
        worker.join()
        with pytest.raises(ConfigError, match="exists already"):
            backup(database, copy)
        assert sorted(path.name for path in tmp_path.glob(".copy*")) == []
        if database.path is None:
            server: PostgreSQL = request.getfixturevalue("postgresql")
            restored = server.make_database(f"restored_{number}_{id(copy)}")
            program = str(server.programs / "pg_restore")
            command = [program, "--no-owner", "--dbname", restored, str(copy)]
            subprocess.run(command, check=True)
        else:
            restored = str(copy)
        with Database.open(restored) as opened, opened.connect() as connection:
            assert check(opened) == []
            # Whatever came before the copy's last event is the same in both.
            last = connection.execute(select(schema.campaign.c.seq)).scalar_one()
            mine = connection.execute(select(schema.event).order_by(schema.event.c.seq)).all()
            with database.connect() as source:
                read = select(schema.event).where(schema.event.c.seq <= last)
                assert source.execute(read.order_by(schema.event.c.seq)).all() == mine
            assert last >= 6
            assert opened.secret == database.secret


@pytest.mark.slow
def test_the_wheel_holds_the_migrations(tmp_path: Path) -> None:
    """What pip installs can make and migrate a database."""
    root = Path(__file__).parent.parent
    if shutil.which("cmake") is None and not (Path(sys.executable).parent / "cmake").exists():
        pytest.skip("building a wheel needs cmake")
    copy = tmp_path / "source"
    shutil.copytree(
        root / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt"):
        shutil.copy(root / name, copy)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--config-settings=wheel.cmake=false", "--wheel-dir", tmp_path, copy],
        check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    here = {
        str(path.relative_to(root / "src"))
        for path in (root / "src/voxpop/service").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "voxpop/service/migrations/env.py" in here
    assert here <= held
