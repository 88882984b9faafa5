"""The client: a campaign's verbs over HTTP, and the result a fit of what is in the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

import uvicorn

import voxpop as vp
from tests.serve_api import NUMBER
from voxpop.service.api.app import create_app, owner_link
from voxpop.service.api.settings import Settings


@contextmanager
def running(path: Path, **settings: Any) -> Iterator[str]:
    """Serve a database on a free port in a thread; return the owner link."""
    from dataclasses import replace

    from voxpop.service.serve import listen

    with listen("127.0.0.1", 0) as ears:
        url = f"http://127.0.0.1:{ears.getsockname()[1]}"
        app = create_app(str(path), settings=replace(Settings(**settings), public_url=url))
        link = owner_link(app)
        assert link is not None
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [ears]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield link
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("client") / "ages.db", board_every=0.05) as found:
        yield found


def crowd() -> Any:
    rng = np.random.default_rng(0)
    return vp.simulate(vp.Model(support=(4, 400)), vp.assign_regular(30, 4, 8, rng), rng).answers


def test_a_clients_result_is_a_fit_of_the_answers_in_the_database(link: str) -> None:
    answers = crowd()
    value = 60 + answers.value[:, 0] / 100
    owner = vp.Client(link)
    client = owner.create("Ages", NUMBER, rules={"practice": 0})
    names = [f"p{k}" for k in range(answers.n_tasks)]
    assert client.add_tasks([*names, {"name": "gold", "kind": "gold", "truth": [50.0]}]) == 31
    tasks = [names[k] for k in answers.task]
    workers = [f"w{k}" for k in answers.worker]
    with pytest.raises(vp.DataError, match="no answers yet"):
        client.result()
    assert client.add_many(tasks, workers, value) == answers.n_edges
    client.add_many(tasks[:3], workers[:3], value[:3])  # the same again changes nothing
    client.add("gold", "w0", 51)
    client.add("gold", "w0", 52)  # the newer value replaces
    expected = vp.Answers.from_arrays(
        [*tasks, "gold"], [*workers, "w0"], [*value, 52.0],
        gold=[50.0 if name == "gold" else np.nan for name in dict.fromkeys([*tasks, "gold"])],
    )  # fmt: skip
    ours, theirs = client.result("bi"), vp.aggregate(expected, "bi")
    for name in names:
        mine, other = (r.tasks.set_index("task").loc[name] for r in (ours, theirs))
        assert mine["value"] == pytest.approx(other["value"], rel=1e-9)
    assert set(client.answers().worker_ids) == {f"w{k}" for k in set(answers.worker)}
    assert client.summary()["n_answers"] == answers.n_edges + 1
    assert len(client.tasks()) == 31
    assert client.estimates().empty  # nothing was published: no inference runs here


def test_a_result_keeps_to_the_range_of_the_question(link: str) -> None:
    """As what the service publishes: both are fits with the same bounds."""
    rng = np.random.default_rng(1)
    question = {"kind": "slider", "text": "How much?", "min": 0, "max": 10}
    client = vp.Client(link).create("Range", question, rules={"practice": 0})
    client.add_tasks([f"p{k}" for k in range(20)])
    given = [
        (f"p{k}", f"w{u}", float(np.clip(9.5 + 2 * rng.normal(), 0, 10)))
        for k in range(20) for u in range(5)
    ]  # fmt: skip
    client.add_many(*zip(*given, strict=True))
    result = client.result()
    expected = vp.aggregate(client.answers(), vp.Auto(bounds=(0, 10)))
    assert (result.estimate == expected.estimate).all()
    assert result.quantile.max() <= 10
    assert vp.aggregate(client.answers()).quantile.max() > 10


def test_next_asks_for_the_fewest_answers_while_nothing_is_known(link: str, tmp_path: Path) -> None:
    client = vp.Client(link).create("Next", NUMBER, rules={"practice": 0})
    client.add_tasks(["a", "b", "c"])
    client.add("a", "ann", 4)
    batch = client.next(2)
    assert batch.pairs == [("b", None), ("c", None)]
    assert (batch.n_tasks, batch.n_unanswered) == (3, 2)
    assert np.isnan(batch.rmse_after), "nothing is known yet"
    assert "/c/next?invite=vpl_" in client.link()
    assert "/ls/vps_" in client.link("label_studio")
    text = client.export("answers", tmp_path / "answers.csv").read_text()
    assert text.splitlines()[1].startswith("a,ann,4.0,true,real")
    made = client.request("PATCH", body={"state": "paused", "budget": 700})
    assert made == client.request("GET")
    assert (made["state"], made["budget"]) == ("paused", 700)
    assert len(client.request("GET", "workers?limit=5")["rows"]) == 1
    with pytest.raises(vp.DataError, match="nothing to change"):
        client.request("PATCH", body={})
    with pytest.raises(vp.DataError, match="what"):
        client.export("secrets", tmp_path / "x.csv")


def test_mistakes_are_one_line(link: str) -> None:
    owner = vp.Client(link)
    client = owner.create("Mistakes", NUMBER)
    client.add_tasks(["a"])
    with pytest.raises(
        vp.DataError, match=r"answer 2 of 2 \(task 'b'\): .*1 were refused, 1 taken"
    ):
        client.add_many(["a", "b"], ["ann", "ann"], [1, 2])
    with pytest.raises(vp.DataError, match="at most 120"):
        client.add("a", "bob", 400)
    with pytest.raises(vp.DataError):
        client.add_tasks(["a"])
    with pytest.raises(vp.ConfigError, match="name the campaign"):
        owner.next()
    with pytest.raises(vp.DataError, match="there is no campaign 'none'"):
        vp.Client(link, campaign="none").summary()
    address = link.partition("/login")[0]
    with pytest.raises(vp.ConfigError, match="token is missing"):
        vp.Client(address)
    with pytest.raises(vp.DataError, match="unknown"):
        vp.Client(address, "vpo_guessed", "mistakes").summary()
    with pytest.raises(vp.ConfigError, match="expected an address"):
        vp.Client("ages.db", "t")
    with pytest.raises(vp.ConfigError, match="cannot be reached"):
        vp.Client("http://127.0.0.1:9", "t", "ages", timeout=1).summary()
    assert "vpo_" not in repr(client)
