"""Inference knows what the database holds, whatever came, went, was killed or started again."""

from __future__ import annotations

import io
import json
import os
import secrets
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

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from tests.serve_api import counted
from voxpop import Answers, Auto, Board, aggregate
from voxpop.service import commands as c
from voxpop.service.check import check
from voxpop.service.database import Database
from voxpop.service.followed import Followed
from voxpop.service.inference import Inference, run_inference
from voxpop.service.learning import learn
from voxpop.service.published import Block, Published
from voxpop.service.publishing import make_board
from voxpop.service.schema import task as tasks_of
from voxpop.service.writer import Writer

pytestmark = pytest.mark.filterwarnings("ignore::voxpop.DataWarning")


class Site:
    """A database, its writer, and one campaign of tasks with truths."""

    def __init__(
        self, url: str, n_tasks: int = 60, slug: str = "c", crowd: str = "plain", **rules: Any
    ) -> None:
        self.database = Database.open(url)
        self.writer = Writer(self.database, clock=lambda: 1000.0)
        self.rng = np.random.default_rng(0)
        (made,) = self.writer.transact(
            [
                c.CreateCampaign(
                    slug=slug, title="Ages", question={"kind": "number"}, state="open",
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
        if crowd == "tails":
            self.sd[:] = 3.0
        self.bias = 12.0 * self.rng.normal(size=20) * (crowd == "bias")
        self.crowd = crowd

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
        draw = rng.standard_t(2) if self.crowd == "tails" else rng.normal()
        value = self.truth[task] + self.bias[person] + self.sd[person] * draw + off
        if self.crowd == "scale":
            value = np.exp(value / 25)
        return c.TakeAnswer(
            campaign=self.campaign, source="x", source_id=f"{task}-{person}", task=f"t{task}",
            external_hmac=f"h{person}", value=[float(value)], version=version,
        )  # fmt: skip

    def fit(self) -> Any:
        """A fit of the answers that count in the database, with the truths that it knows."""
        rows = counted(self.database, self.campaign)
        tasks = list(dict.fromkeys(task for task, _ in rows))
        known = select(tasks_of.c.id, tasks_of.c.truth).where(
            tasks_of.c.campaign == self.campaign, tasks_of.c.kind == "gold"
        )
        with self.database.connect() as connection:
            truth = {row.id: row.truth for row in connection.execute(known)}
        answers = Answers.from_arrays(
            [task for task, _ in rows], [person for _, person in rows], list(rows.values()),
            gold=[truth.get(i, [np.nan]) for i in tasks] if truth.keys() & set(tasks) else None,
        )  # fmt: skip
        return aggregate(answers, Auto(threads=1))

    def reveal(self, n: int) -> None:
        """Tell the truths of the first tasks."""
        told = np.exp(self.truth / 25) if self.crowd == "scale" else self.truth
        self.do(c.SetGold(campaign=self.campaign, truths={f"t{i}": [told[i]] for i in range(n)}))

    def answer_on_the_page(self, rng: np.random.Generator) -> None:
        """A person comes by the link, answers twice, changes the second answer, and skips."""
        enter = c.Enter(
            campaign=self.campaign, provider="link", external_hmac=f"page {rng.integers(10**9)}"
        )
        (entered,) = self.do(enter)
        who = {"campaign": self.campaign, "worker": self.done(entered).worker}
        for step in (c.Answer, c.Answer, c.Edit, c.Skip):
            if step is not c.Edit:
                (found,) = self.do(c.Next(**who))
                if isinstance(found, c.Nothing):
                    return
                offer = found.offer
            given: Any = {} if step is c.Skip else {"value": [float(rng.uniform(0, 100))]}
            self.done(self.do(step(**who, offer=offer, **given))[0])


@pytest.fixture
def site(serve_url: str) -> Iterator[Site]:
    made = Site(serve_url)
    with made.database:
        yield made


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

    workers = sorted({person for _, person in counted(site.database, number)})
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


def test_new_tasks_make_nobody_forget(tmp_path: Path) -> None:
    """Learned from few tasks, and more come: whoever starts again learns at once."""
    site = Site(str(tmp_path / "ages.db"), n_tasks=12)
    with site.database:

        def started() -> Followed:
            with site.database.connect() as connection:
                return Followed(connection, site.campaign)

        site.do(*(site.take(i, k) for i in range(9) for k in range(3)))
        assert not started().wants_to_learn, "too few tasks"
        site.do(*(site.take(i, k) for i in (9, 10) for k in range(2)))
        assert started().wants_to_learn
        more = [c.NewTask(name=f"new {i}", content={}) for i in range(200)]
        site.do(c.AddTasks(campaign=site.campaign, tasks=more))
        assert started().wants_to_learn


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


@pytest.mark.slow
def test_the_crowds_below_are_not_all_plain(tmp_path: Path) -> None:
    """The default finds in each what the property below is to hold with."""
    found = {}
    for crowd in ("plain", "bias", "tails", "scale"):
        site = Site(str(tmp_path / f"{crowd}.db"), crowd=crowd)
        with site.database:
            site.do(*(site.take(i, (i + k) % 20) for i in range(60) for k in range(5)))
            site.reveal(25)
            found[crowd] = site.fit()
    assert found["bias"].noise.bias_sd
    assert found["tails"].noise.tails is not None
    assert found["scale"].scale != found["plain"].scale


_STEPS = ("answers", "page", "trouble", "learn", "restart", "lost events")


@pytest.mark.slow
@settings(
    max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    steps=st.lists(st.sampled_from(_STEPS), min_size=4, max_size=10),
    seed=st.integers(0, 99),
    crowd=st.sampled_from(["plain", "bias", "tails", "scale"]),
    n_gold=st.sampled_from([0, 25]),
)
def test_the_result_is_that_of_the_database_whatever_happened(
    serve_url: str, steps: list[str], seed: int, crowd: str, n_gold: int
) -> None:
    """Answers, edits, erasures, quarantines, restarts and fits in any order, of any crowd.

    With enough gold the default also chooses the scale.
    """
    slug, rng = f"c{secrets.token_hex(6)}", np.random.default_rng(seed)
    site = Site(serve_url, slug=slug, crowd=crowd)
    with site.database, site.database.connect() as connection:
        followed = Followed(connection, site.campaign)
        for step in ("answers", *steps):
            if step == "answers":
                pairs = {(int(i), int(u)) for i, u in rng.integers((60, 20), size=(120, 2))}
                site.do(*(site.take(i, u) for i, u in pairs))
            elif step == "page":
                site.answer_on_the_page(rng)
            elif step == "trouble":
                some_trouble(site, rng)
            elif step == "learn" and followed.wants_to_learn:
                followed.take_over(learn(followed.job()))
            elif step == "restart":
                followed = Followed(connection, site.campaign)
            if step != "lost events":  # the next look takes more of them at once
                connection.rollback()
                followed.follow(connection)
                assert known(followed) == counted(site.database, site.campaign)
        if n_gold:
            site.reveal(n_gold)
        else:
            site.do(c.SetGold(campaign=site.campaign, truths={f"t{i}": None for i in range(5)}))
        connection.rollback()
        followed.follow(connection)
        assert known(followed) == counted(site.database, site.campaign)
        followed.take_over(learn(followed.job()))
        ours, theirs = followed.campaign.result(), site.fit()
        assert ours.task_ids.tolist() == theirs.task_ids.tolist()
        np.testing.assert_allclose(ours.estimate, theirs.estimate, rtol=1e-9)
        np.testing.assert_allclose(ours.quantile, theirs.quantile, rtol=1e-9)
        assert check(site.database) == []


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
        workers = json.loads(read(published, site.campaign, "workers"))
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
            other = threading.Thread(target=run_inference, args=(url, stop))
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
