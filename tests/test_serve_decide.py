"""``decide`` and the writer against a naive model, on both databases."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

pytest.importorskip("sqlalchemy", reason="the extra serve is not installed")

from sqlalchemy import select

from tests.serve_naive import Naive
from voxpop.service import commands as c
from voxpop.service.check import check
from voxpop.service.database import Database
from voxpop.service.schema import answer, campaign, credit, offer, task, worker
from voxpop.service.writer import Writer

PERSONS = ("ann", "bob", "eve", "joe")
GOOD, BAD = [(1.0,), (2.0,), (50,)], [(-1,), (101.0,), (1.0, 2.0)]
VALUES = st.one_of(st.sampled_from(GOOD), st.sampled_from(GOOD), st.sampled_from(BAD))


class Crowd(RuleBasedStateMachine):
    """Commands, alone or several in a batch, on one campaign beside those of earlier runs."""

    database: ClassVar[Database]
    n_campaigns: ClassVar[int] = 0

    @initialize(
        budget=st.sampled_from([None, 0, 7, 20, 60]),
        cap=st.sampled_from([None, 1, 2]),
        capacity=st.sampled_from([None, 2]),
        practice=st.integers(0, 1),
        gold_share=st.sampled_from([0.0, 0.5]),
    )
    def begin(
        self, budget: int | None, cap: int | None, capacity: int | None, practice: int,
        gold_share: float,
    ) -> None:  # fmt: skip
        self.time = 1000.0
        self.writer = Writer(self.database, clock=lambda: self.time)
        self.waiting: list[Any] = []
        self.n_ids = 0
        rules = {
            "price": 5, "answers_per_task": cap, "capacity": capacity, "practice": practice,
            "gold_share": gold_share, "lease_seconds": 100.0, "edit_seconds": 50.0,
        }  # fmt: skip
        Crowd.n_campaigns += 1
        self.slug = f"c{Crowd.n_campaigns}"
        (created,) = self.writer.transact(
            [
                c.CreateCampaign(
                    slug=self.slug, title="Ages", question={"kind": "number", "min": 0, "max": 100},
                    rules=rules, budget=budget, state="open",
                )
            ]
        )  # fmt: skip
        assert isinstance(created, c.Created)
        self.campaign = created.campaign
        self.model = Naive(dict(rules), budget)
        tasks = [c.NewTask(name=f"t{i}", content={"text": "how old?"}) for i in range(3)]
        tasks.append(c.NewTask(name="g", content={}, kind="gold", truth=[3]))
        tasks.append(c.NewTask(name="p", content={}, kind="practice", truth=[4]))
        self.run(c.AddTasks(campaign=self.campaign, tasks=tasks))
        self.run(*(self.enter(person, person, None) for person in PERSONS[:2]))

    def fresh(self) -> str:
        self.n_ids += 1
        return f"{self.slug}-{self.n_ids}"

    def run(self, *commands: Any) -> None:
        """Carry commands out in one batch, in the service and in the model, and compare."""
        replies = self.writer.transact(commands)
        for command, reply in zip(commands, replies, strict=True):
            self.model.apply(command, reply, self.time, len(commands) == 1)
        self.compare()

    def give(self, command: Any, now: bool) -> None:
        """Let a command wait for others, or carry all out."""
        self.waiting.append(command)
        if now:
            waiting, self.waiting = self.waiting, []
            self.run(*waiting)

    def compare(self) -> None:
        model, number = self.model, self.campaign
        with self.database.connect() as connection:
            (row,) = connection.execute(select(campaign).where(campaign.c.id == number))
            tasks = connection.execute(select(task).where(task.c.campaign == number)).all()
            people = connection.execute(select(worker).where(worker.c.campaign == number)).all()
            offers = connection.execute(select(offer).where(offer.c.campaign == number)).all()
            given = connection.execute(select(answer).where(answer.c.campaign == number)).all()
            earned = connection.execute(select(credit).where(credit.c.campaign == number)).all()
        # Workers of another tool get their numbers from the tables.
        for person in people:
            for key in [k for k, w in model.workers.items() if k < 0]:
                if model.workers[key]["person"] == person.external_hmac:
                    model.workers[person.id] = model.workers.pop(key)
                    for one in model.offers.values():
                        one["worker"] = person.id if one["worker"] == key else one["worker"]
        assert (row.state, row.budget) == (model.state, model.budget)
        assert (row.reserved, row.spent) == (model.reserved(), model.spent())
        assert {t.id: (t.kind, t.truth, t.state, t.n_open, t.n_answers) for t in tasks} == {
            k: (t["kind"], t["truth"], t["state"], model.n_open(k), model.n_answers(k))
            for k, t in model.tasks.items()
        }
        assert {w.id: (w.state, w.n_answers, w.n_practice) for w in people} == {
            k: (w["state"], model.n_given(k, False), model.n_given(k, True))
            for k, w in model.workers.items()
        }
        assert {o.id: (o.task, o.worker, o.state, o.price, o.expires) for o in offers} == {
            k: (o["task"], o["worker"], o["state"], o["price"], o["expires"])
            for k, o in model.offers.items()
        }
        assert {a.offer: (a.value, a.version, a.counts, a.source_id) for a in given} == {
            k: (a["value"], a["version"], a["counts"], a["source_id"])
            for k, a in model.answers.items()
        }
        assert {x.answer: (x.amount, x.state) for x in earned} == {
            k: (x["amount"], x["state"]) for k, x in model.credits.items()
        }

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            if self.waiting:
                self.run(*self.waiting)
            assert check(self.database) == []

    # ------------------------------------------------------------ what workers do

    def enter(self, person: str, session: str | None, token: str | None) -> c.Enter:
        return c.Enter(
            campaign=self.campaign, provider="ls", external_hmac=person, external=person,
            session=session, token_hash=token and self.fresh(), fresh=self.fresh(),
        )  # fmt: skip

    def some_worker(self, i: int) -> int:
        return sorted(k for k in self.model.workers if k > 0)[i % len(self.model.workers)]

    def of(self, i: int, of_another: bool = False) -> dict[str, Any]:
        """The campaign, the offer and the worker of a command about some offer."""
        known = sorted(self.model.offers)
        if not known:
            mine = {"offer": "none", "worker": self.some_worker(i)}
        else:
            # Offers of late are more interesting.
            number = sorted(known, key=lambda k: int(k.rpartition("-")[2]))[-1 - i % len(known)]
            mine = {"offer": number, "worker": self.model.offers[number]["worker"]}
        if of_another:
            mine["worker"] = self.some_worker(i)
        return {"campaign": self.campaign, **mine}

    @rule(person=st.sampled_from(PERSONS), session=st.sampled_from([None, "ann", "x"]))
    def enters(self, person: str, session: str | None) -> None:
        self.give(self.enter(person, session, "token"), now=True)

    def ask(self, i: int, candidates: list[int], draw: float, visit: bool) -> c.Next:
        who = self.some_worker(i)
        visits = [k for k, v in self.model.visits.items() if v["worker"] == who]
        numbers = sorted(self.model.tasks)
        return c.Next(
            campaign=self.campaign, worker=who, visit=visits[0] if visit and visits else None,
            candidates=[numbers[k % len(numbers)] for k in candidates],
            offer=self.fresh(), draw=draw,
        )  # fmt: skip

    @rule(
        i=st.integers(0, 5), candidates=st.lists(st.integers(0, 9), max_size=3),
        draw=st.sampled_from([0.2, 0.8]), visit=st.booleans(), now=st.booleans(),
    )  # fmt: skip
    def asks(self, i: int, candidates: list[int], draw: float, visit: bool, now: bool) -> None:
        self.give(self.ask(i, candidates, draw, visit), now)

    @rule(i=st.integers(0, 3), value=VALUES, of_another=st.booleans(), now=st.booleans())
    def answers(self, i: int, value: Any, of_another: bool, now: bool) -> None:
        self.give(c.Answer(**self.of(i, of_another), value=value, lead_ms=1500), now)

    @rule(i=st.integers(0, 5), j=st.integers(0, 5), value=st.sampled_from([1.0, 7]))
    def everybody_works(self, i: int, j: int, value: float) -> None:
        """Two workers ask and answer in batches: most of what happens in a campaign."""
        self.give(self.ask(i, [i, j], 0.9, True), now=False)
        self.give(self.ask(j, [i, j, 2], 0.3, True), now=True)
        held = [k for k, o in self.model.offers.items() if o["state"] == "open"]
        for number in held:
            who = self.model.offers[number]["worker"]
            self.waiting.append(
                c.Answer(campaign=self.campaign, offer=number, worker=who, value=[value])
            )
        if self.waiting:
            self.give(self.waiting.pop(), now=True)

    @rule(i=st.integers(0, 3), value=VALUES, now=st.booleans())
    def edits(self, i: int, value: Any, now: bool) -> None:
        self.give(c.Edit(**self.of(i), value=value), now)

    @rule(
        i=st.integers(0, 3), now=st.booleans(),
        kind=st.sampled_from([c.Skip, c.Report, c.Extend]),
    )  # fmt: skip
    def passes(self, i: int, now: bool, kind: Any) -> None:
        self.give(kind(**self.of(i)), now)

    @rule(seconds=st.sampled_from([10.0, 60.0, 150.0]), sweep=st.booleans())
    def time_goes_by(self, seconds: float, sweep: bool) -> None:
        if self.waiting:
            self.give(self.waiting.pop(), now=True)
        self.time += seconds
        if sweep:
            self.give(c.Expire(campaign=self.campaign), now=True)

    @precondition(lambda self: self.model.visits)
    @rule(i=st.integers(0, 3), state=st.sampled_from(["completed", "screened_out"]))
    def completes(self, i: int, state: str) -> None:
        visits = sorted(self.model.visits)
        number = visits[i % len(visits)]
        code = self.fresh()
        self.give(c.Complete(campaign=self.campaign, visit=number, state=state, code=code), True)

    # ------------------------------------------------------------ what owners and tools do

    @rule(
        i=st.integers(0, 5), now=st.booleans(),
        state=st.sampled_from(["active", "paused", "quarantined", "banned", "active"]),
    )  # fmt: skip
    def sets_worker(self, i: int, now: bool, state: str) -> None:
        who = self.some_worker(i)
        self.give(c.SetWorker(campaign=self.campaign, worker=who, state=state), now)

    @rule(i=st.integers(0, 5), keep=st.booleans(), now=st.booleans())
    def erases(self, i: int, keep: bool, now: bool) -> None:
        who = self.some_worker(i)
        self.give(c.Erase(campaign=self.campaign, worker=who, keep_answers=keep), now)

    @rule(
        which=st.sets(st.integers(0, 4), min_size=1), now=st.booleans(),
        state=st.sampled_from(["approved", "rejected", "rejected", "paid"]),
    )  # fmt: skip
    def settles(self, which: set[int], now: bool, state: str) -> None:
        known = sorted(self.model.credits) or ["none"]
        rows = [known[i % len(known)] for i in which]
        self.give(c.SetCredits(campaign=self.campaign, answers=rows, state=state), now)

    @rule(
        now=st.booleans(),
        changes=st.sampled_from(
            [{"state": "open"}, {"state": "open"}, {"state": "paused"}, {"state": "closed"},
             {"budget": None}, {"budget": 12}, {"budget": 40}, {"rules": {"answers_per_task": 1}},
             {"rules": {"answers_per_task": 3}}, {"rules": {"answers_per_task": None}}]
        ),
    )  # fmt: skip
    def changes(self, changes: dict[str, Any], now: bool) -> None:
        self.give(c.ChangeCampaign(campaign=self.campaign, changes=changes), now)

    @rule(i=st.integers(0, 9))
    def adds_a_task(self, i: int) -> None:
        new = c.NewTask(name=f"t{i}", content={"text": "?"})
        self.give(c.AddTasks(campaign=self.campaign, tasks=[new]), now=True)

    @rule(i=st.integers(0, 9), truth=st.sampled_from([None, [9], [8.5]]), now=st.booleans())
    def sets_gold(self, i: int, truth: list[float] | None, now: bool) -> None:
        names = sorted(row["name"] for row in self.model.tasks.values())
        name = names[i % len(names)]
        self.give(c.SetGold(campaign=self.campaign, truths={name: truth}), now)

    @rule(i=st.integers(0, 20), now=st.booleans())
    def withdraws(self, i: int, now: bool) -> None:
        names = [row["name"] for row in self.model.tasks.values()]
        chosen = names[i : i + 1]
        self.give(c.WithdrawTasks(campaign=self.campaign, names=chosen), now)

    @rule(i=st.integers(0, 5), back=st.sampled_from([0, 3]), now=st.booleans())
    def marks_done(self, i: int, back: int, now: bool) -> None:
        with self.database.connect() as connection:
            read = select(campaign.c.seq).where(campaign.c.id == self.campaign)
            seq = connection.execute(read).scalar_one()
        numbers = sorted(self.model.tasks)[i : i + 2]
        self.give(c.MarkDone(campaign=self.campaign, tasks=numbers, as_of_seq=seq - back), now)

    @rule(
        i=st.integers(0, 9), person=st.sampled_from(PERSONS[1:]), value=VALUES,
        source_id=st.sampled_from(["1", "2", "3"]), version=st.integers(1, 4), now=st.booleans(),
    )  # fmt: skip
    def takes(
        self, i: int, person: str, value: Any, source_id: str, version: int, now: bool
    ) -> None:
        names = sorted(row["name"] for row in self.model.tasks.values())
        command = c.TakeAnswer(
            campaign=self.campaign, source="ls", source_id=source_id, task=names[i % len(names)],
            external_hmac=person, value=value, version=version, fresh=self.fresh(),
        )  # fmt: skip
        self.give(command, now)

    @rule(
        which=st.sets(st.sampled_from(["1", "2", "3"]), min_size=1),
        version=st.sampled_from([1, 2, c.LAST_VERSION]), now=st.booleans(),
    )  # fmt: skip
    def drops(self, which: set[str], version: int, now: bool) -> None:
        command = c.DropAnswers(
            campaign=self.campaign, source="ls", source_ids=sorted(which), version=version
        )
        self.give(command, now)


def walk(crowd: Crowd, rng: random.Random, steps: int) -> None:
    """Commands by chance, such as a campaign sees them: most are work, few end something."""

    def value() -> Any:
        return rng.choice(GOOD * 4 + BAD)

    def i() -> int:
        return rng.randrange(10)

    def now() -> bool:
        return rng.random() < 0.6

    open_again = [{"state": "open"}, {"budget": None}, {"budget": 200}]
    changes = [{"budget": 12}, {"state": "paused"}, {"state": "closed"}] + [
        {"rules": {"answers_per_task": cap}} for cap in (1, 2, 3, 5, None)
    ]
    moves: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: crowd.asks(i(), [i(), i()], rng.choice([0.2, 0.8]), not now(), now())),
        (30, lambda: crowd.answers(rng.randrange(4), value(), rng.random() < 0.1, now())),
        (10, lambda: crowd.everybody_works(i(), i(), rng.choice([1.0, 7]))),
        (8, lambda: crowd.edits(rng.randrange(4), value(), now())),
        (9, lambda: crowd.passes(
            rng.randrange(3), now(), rng.choice([c.Skip, c.Report, c.Extend, c.Extend])
        )),
        (12, lambda: crowd.time_goes_by(rng.choice([10.0, 60.0, 150.0]), rng.random() < 0.7)),
        (6, lambda: crowd.enters(rng.choice(PERSONS), rng.choice([None, "ann", "x"]))),
        (8, lambda: crowd.sets_worker(
            i(), now(), rng.choice(["active", "active", "paused", "quarantined", "banned"])
        )),
        (1, lambda: crowd.erases(i(), rng.random() < 0.5, now())),
        (6, lambda: crowd.settles(
            {i() for _ in range(rng.randint(1, 3))}, now(),
            rng.choice(["approved", "rejected", "rejected", "paid"]),
        )),
        (6, lambda: crowd.changes(rng.choice(changes), now())),
        (12, lambda: crowd.changes(rng.choice(open_again), True)),
        (3, lambda: crowd.adds_a_task(rng.randrange(40))),
        (3, lambda: crowd.sets_gold(i(), rng.choice([None, [9], [8.5]]), now())),
        (1, lambda: crowd.withdraws(rng.randrange(20), now())),
        (4, lambda: crowd.marks_done(i(), rng.choice([0, 3]), now())),
        (1, lambda: crowd.completes(i(), "completed")),
        (10, lambda: crowd.takes(
            i(), rng.choice(PERSONS[1:]), value(), rng.choice("123"), rng.randint(1, 4), now()
        )),
        (3, lambda: crowd.drops(set(rng.sample("123", 2)), rng.choice([1, 2, 2]), now())),
    ]  # fmt: skip
    weights = [weight for weight, _ in moves]
    for _, move in rng.choices(moves, weights, k=steps):
        move()


@pytest.mark.slow
@pytest.mark.usefixtures("no_leftovers")
def test_long_walks_end_where_the_naive_model_does(serve_url: str) -> None:
    Crowd.database = Database.open(serve_url)
    few = serve_url.startswith("postgresql")
    for seed in range(5 if few else 20):
        rng = random.Random(seed)
        crowd = Crowd()
        crowd.begin(
            rng.choice([None, 20, 60]), rng.choice([None, 1, 2, 4]), rng.choice([None, 4, 8]),
            rng.randint(0, 1), rng.choice([0.0, 0.5]),
        )  # fmt: skip
        walk(crowd, rng, 120)
        crowd.teardown()


@pytest.fixture
def no_leftovers() -> Iterator[None]:
    yield
    if "database" in Crowd.__dict__:
        Crowd.database.close()


def _play(database: Database, examples: int, steps: int) -> None:
    Crowd.database = database
    Crowd.n_campaigns = 0
    Crowd.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        # Steps as they came are told; making them fewer takes minutes.
        phases=(Phase.explicit, Phase.generate),
    )
    Crowd.TestCase().runTest()


@pytest.mark.slow
@pytest.mark.usefixtures("no_leftovers")
def test_decide_is_the_naive_model(serve_url: str) -> None:
    """Any commands, in any batches, leave what the naive model says, and the same replies."""
    few = serve_url.startswith("postgresql")
    _play(Database.open(serve_url), examples=8 if few else 25, steps=25)
