"""Inference knows what the database holds, whatever came, went, was killed or started again."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="the extra serve is not installed")

from voxpop import Answers, Auto, Board, aggregate
from voxpop.service import commands as c
from voxpop.service.database import Database
from voxpop.service.followed import Followed
from voxpop.service.inference import Inference, run_inference
from voxpop.service.learning import learn
from voxpop.service.published import Block, Published
from voxpop.service.publishing import make_board
from voxpop.service.writer import Writer

pytestmark = pytest.mark.filterwarnings("ignore::voxpop.DataWarning")


class Site:
    """A database, its writer, and one campaign of tasks with truths."""

    def __init__(self, url: str, n_tasks: int = 60, **rules: Any) -> None:
        self.database = Database.open(url)
        self.writer = Writer(self.database, clock=lambda: 1000.0)
        self.rng = np.random.default_rng(0)
        (made,) = self.writer.transact(
            [
                c.CreateCampaign(
                    slug="c", title="Ages", question={"kind": "number"}, state="open",
                    rules={"practice": 0, "gold_share": 0.0, **rules},
                )
            ]
        )  # fmt: skip
        self.campaign = self.done(made).campaign
        tasks = [c.NewTask(name=f"t{i}", content={"text": "?"}) for i in range(n_tasks)]
        (added,) = self.writer.transact([c.AddTasks(campaign=self.campaign, tasks=tasks)])
        self.first = self.done(added).first_id
        self.truth = self.rng.uniform(0, 100, n_tasks)
        self.sd = self.rng.choice([1.0, 3.0, 10.0], 20)

    @staticmethod
    def done(reply: Any) -> Any:
        """A reply that is no refusal."""
        assert not isinstance(reply, Exception), reply
        return reply

    def do(self, *commands: Any) -> list[Any]:
        return list(self.writer.transact(list(commands)))

    def take(self, task: int, person: int, version: int = 1, off: float = 0.0) -> Any:
        """An answer of a person, the same each time but for what it is ``off`` by."""
        rng = np.random.default_rng([task, person])
        value = self.truth[task] + self.sd[person] * rng.normal() + off
        return c.TakeAnswer(
            campaign=self.campaign, source="x", source_id=f"{task}-{person}", task=f"t{task}",
            external_hmac=f"h{person}", value=[float(value)], version=version,
        )  # fmt: skip

    def fit(self) -> Any:
        """A fit of the answers that count in the database."""
        rows = self.database.answers(self.campaign)
        answers = Answers.from_arrays(
            [row.task for row in rows], [row.worker for row in rows], [row.value for row in rows]
        )
        return aggregate(answers, Auto(threads=1))


@pytest.fixture
def site(serve_url: str) -> Iterator[Site]:
    made = Site(serve_url)
    with made.database:
        yield made


def counted(database: Database, number: int) -> dict[tuple[int, int], list[float]]:
    return {(row.task, row.worker): row.value for row in database.answers(number)}


def known(followed: Followed) -> dict[tuple[int, int], list[float]]:
    answers = followed.campaign.answers()
    task, worker = answers.task_ids[answers.task], answers.worker_ids[answers.worker]
    pairs = zip(task.tolist(), worker.tolist(), strict=True)
    return dict(zip(pairs, answers.value.tolist(), strict=True))


def some_trouble(site: Site, rng: np.random.Generator) -> None:
    """Edit, delete, quarantine, erase, withdraw and reveal, in some order."""
    number = site.campaign

    def pick(most: int) -> int:
        return int(rng.integers(most))

    workers = sorted({row.worker for row in site.database.answers(number)})
    edits = [site.take(pick(60), pick(20), version=2, off=5.0) for _ in range(10)]
    gone = [f"{pick(60)}-{pick(20)}" for _ in range(8)]
    every: list[list[Any]] = [
        edits,
        [c.DropAnswers(campaign=number, source="x", source_ids=gone)],
        [c.SetWorker(campaign=number, worker=workers[pick(6)], state="quarantined")],
        [c.SetWorker(campaign=number, worker=workers[pick(6)], state="active")],
        [c.Erase(campaign=number, worker=workers[10 + pick(3)], keep_answers=bool(pick(2)))],
        [c.WithdrawTasks(campaign=number, names=[f"t{pick(60)}"])],
        [c.SetGold(campaign=number, truths={f"t{pick(5)}": [50.0]})],
        [c.SetGold(campaign=number, truths={f"t{pick(5)}": None})],
        [c.AddTasks(campaign=number, tasks=[c.NewTask(name=f"n{pick(10**9)}", content={})])],
        [site.take(pick(60), pick(20)) for _ in range(10)],
    ]
    for turn in rng.permutation(len(every)):
        site.do(*every[turn])


@pytest.mark.parametrize("seed", range(2))
def test_following_events_ends_at_the_answers_that_count(site: Site, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with site.database.connect() as connection:
        early = Followed(connection, site.campaign)
    site.do(*(site.take(i, (i + k) % 20) for i in range(60) for k in range(4)))
    with site.database.connect() as connection:
        middle = Followed(connection, site.campaign)
    for _ in range(3):
        some_trouble(site, rng)
        with site.database.connect() as connection:
            early.follow(connection)
        assert known(early) == counted(site.database, site.campaign)
    with site.database.connect() as connection:
        middle.follow(connection)
        late = Followed(connection, site.campaign)
    boards = [make_board(each) for each in (early, middle, late)]
    for each, board in zip((early, middle, late), boards, strict=True):
        assert known(each) == counted(site.database, site.campaign)
        assert each.seq == late.seq == board.as_of
        np.testing.assert_array_equal(board.order, boards[0].order)
        # Gold and withdrawn tasks are not to be picked, and not to be marked as done.
        assert not board.done.any()
        assert set(board.pick(100)).isdisjoint(each.closed | each.gold.keys())


@pytest.mark.slow
def test_the_result_is_a_fit_of_the_answers_in_the_database(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.do(*(site.take(i, (i + k) % 20) for i in range(60) for k in range(4)))
    with site.database.connect() as connection:
        followed = Followed(connection, site.campaign)
    assert followed.wants_to_learn
    followed.take_over(learn(followed.job()))
    assert not followed.wants_to_learn
    # A few answers are learned from when no more come.
    site.do(site.take(0, 10))
    with site.database.connect() as connection:
        followed.follow(connection)
    assert not followed.wants_to_learn
    monkeypatch.setattr("voxpop.service.followed._QUIET", 0.0)
    assert followed.wants_to_learn
    some_trouble(site, np.random.default_rng(5))
    site.do(c.SetGold(campaign=site.campaign, truths={f"t{i}": None for i in range(5)}))
    with site.database.connect() as connection:
        followed.follow(connection)
        again = Followed(connection, site.campaign)
    again.take_over(learn(again.job()))
    expected = site.fit()
    for each in (followed, again):
        result = each.campaign.result()
        assert result.task_ids.tolist() == expected.task_ids.tolist()
        np.testing.assert_allclose(result.estimate, expected.estimate, rtol=1e-9)
        np.testing.assert_allclose(result.quantile, expected.quantile, rtol=1e-9)
    # The way there makes no difference at all.
    one, other = followed.campaign.result(), again.campaign.result()
    np.testing.assert_array_equal(one.estimate, other.estimate)
    np.testing.assert_array_equal(one.quantile, other.quantile)


def until(done: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = done()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain")


no_block = Block(0, -1, b"")


def read(published: Published, campaign: int, kind: str) -> bytes:
    """What was published last of a kind."""
    found = published.read(campaign, kind)
    assert found is not None
    return found.content


@pytest.mark.slow
def test_boards_estimates_and_summary_are_published_and_learning_goes_on_beside(
    tmp_path: Path,
) -> None:
    site = Site(str(tmp_path / "ages.db"), half_width=2.0)
    with site.database:
        published, inference = Published(site.database), Inference(site.database)
        inference.step()
        board = Board.from_bytes(read(published, site.campaign, "board"))
        # Cold: fewest answers first, nothing is done.
        assert board.pick(3) == [site.first, site.first + 1, site.first + 2]
        assert not board.done.any()
        site.do(*(site.take(i, (i + k) % 20) for i in range(60) for k in range(5)))

        def learned() -> Any:
            inference.step()
            found = published.read(site.campaign, "summary")
            told = json.loads(found.content) if found else {}
            return told if told.get("learned_answers") else None

        told = until(learned)
        inference.close()
        assert told["n_tasks"] == 60
        assert told["n_answers"] == 300
        assert told["n_workers"] == 20
        assert told["expected_rmse"] > 0
        assert told["n_done"] > 0
        assert told["next"]["rmse_after"] < told["expected_rmse"]
        assert told["answers_to_finish"] > 0
        board = Board.from_bytes(read(published, site.campaign, "board"))
        assert (board.half_width[board.done] <= 2.0).all()
        assert (board.half_width[board.order] > 2.0).all()
        content = read(published, site.campaign, "estimates")
        with np.load(io.BytesIO(content), allow_pickle=False) as found:
            arrays = dict(found)
        expected = site.fit()
        assert arrays["task"].tolist() == expected.task_ids.tolist()
        np.testing.assert_allclose(arrays["sd"], expected.sd, rtol=1e-3)
        away = np.abs(arrays["estimate"] - expected.estimate) / expected.sd
        assert away.max() < 1e-3
        workers = json.loads(read(published, site.campaign, "workers"))["workers"]
        assert len(workers) == 20
        assert all(w["noise"][0] < w["noise_sd"] < w["noise"][1] for w in workers.values())


@pytest.mark.slow
def test_another_leads_when_the_first_is_killed(serve_url: str) -> None:
    url, site = serve_url, Site(serve_url)
    with site.database:
        published = Published(site.database)
        command = [sys.executable, "-m", "voxpop.service.inference", url]
        first = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        stop = threading.Event()
        try:
            until(lambda: published.read(site.campaign, "board"))
            other = threading.Thread(target=run_inference, args=(url,), kwargs={"stop": stop})
            other.start()
            first.send_signal(signal.SIGKILL)
            first.wait()
            site.do(site.take(0, 0))
            with site.database.connect() as connection:
                seq = connection.exec_driver_sql("SELECT seq FROM campaign").scalar_one()
            until(lambda: (published.read(site.campaign, "board") or no_block).seq == seq)
            assert Board.from_bytes(read(published, site.campaign, "board")).as_of == seq
        finally:
            stop.set()
            first.kill()
            first.wait()
            assert first.stdin is not None
            first.stdin.close()
        other.join(20)
        assert not other.is_alive()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", ["pipe", "signal"])
def test_it_ends_with_its_parent_or_when_told(tmp_path: Path, how: str) -> None:
    url = str(tmp_path / "ages.db")
    with Site(url).database as database:
        command = [sys.executable, "-m", "voxpop.service.inference", url]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        until(lambda: Published(database).read(1, "summary"))
        assert child.stdin is not None
        if how == "pipe":
            child.stdin.close()
        else:
            child.terminate()
        assert child.wait(20) == 0
        assert child.stderr is not None
        with child.stderr:
            for line in child.stderr:
                json.loads(line)
        child.stdin.close()
