"""A naive model of a campaign: lists that are looked through, nothing counted or kept in step.

It says what every command must be replied and what must be there afterwards, straight from the
rules in words. It shares no code with ``voxpop.service.decide``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from voxpop.service import commands as c

HELD = ("open", "answered", "skipped", "reported")


@dataclass
class Naive:
    """One campaign of number questions from 0 to 100."""

    rules: dict[str, Any]
    budget: int | None
    state: str = "open"
    tasks: dict[int, dict[str, Any]] = field(default_factory=dict)
    workers: dict[int, dict[str, Any]] = field(default_factory=dict)
    visits: dict[int, dict[str, Any]] = field(default_factory=dict)
    offers: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    credits: dict[str, dict[str, Any]] = field(default_factory=dict)
    graves: dict[str, int] = field(default_factory=dict)
    removed_at: int = 0
    now: float = 0.0
    # Whether the command is the only one of its batch.
    alone: bool = True

    # ------------------------------------------------------------ looking through the lists

    def reserved(self) -> int:
        return sum(o["price"] for o in self.offers.values() if o["state"] == "open")

    def spent(self) -> int:
        return sum(x["amount"] for x in self.credits.values() if x["state"] != "rejected")

    def can_pay(self, price: int) -> bool:
        return self.budget is None or self.reserved() + self.spent() + price <= self.budget

    def n_open(self, task: int) -> int:
        return sum(o["task"] == task and o["state"] == "open" for o in self.offers.values())

    def n_answers(self, task: int) -> int:
        return sum(self.offers[k]["task"] == task and a["counts"] for k, a in self.answers.items())

    def n_given(self, worker: int, practice: bool) -> int:
        return sum(
            self.offers[k]["worker"] == worker
            and (self.tasks[self.offers[k]["task"]]["kind"] == "practice") == practice
            for k in self.answers
        )

    def had(self, worker: int, task: int) -> bool:
        return any(
            o["worker"] == worker and o["task"] == task and o["state"] in HELD
            for o in self.offers.values()
        )

    def may_get(self, worker: int, task: int, kinds: Iterable[str]) -> bool:
        row = self.tasks.get(task)
        if row is None or row["kind"] not in kinds or row["state"] != "open":
            return False
        cap = self.rules["answers_per_task"]
        if row["kind"] == "real" and cap and self.n_open(task) + self.n_answers(task) >= cap:
            return False
        return not self.had(worker, task)

    def counts(self, worker: int) -> bool:
        return self.workers[worker]["state"] not in ("quarantined", "banned")

    def open_of(self, worker: int) -> str | None:
        mine = [k for k, o in self.offers.items() if o["worker"] == worker and o["state"] == "open"]
        assert len(mine) <= 1
        return mine[0] if mine else None

    def settle(self) -> None:
        """A real task with as many answers as the rules ask for does not stay open."""
        cap = self.rules["answers_per_task"]
        for number, row in self.tasks.items():
            full = row["kind"] == "real" and cap and self.n_answers(number) >= cap
            if full and row["state"] == "open":
                row["state"] = "done"

    def lost(self, task: int, reply: c.Done) -> None:
        """A task that was done and loses an answer is open again."""
        self.removed_at = reply.seq
        if self.tasks[task]["state"] == "done":
            self.tasks[task]["state"] = "open"

    # ------------------------------------------------------------ commands

    def apply(self, command: Any, reply: Any, now: float, alone: bool) -> None:
        """Carry a command out, and compare with the reply to it."""
        self.now, self.alone = now, alone
        getattr(self, f"do_{type(command).__name__.lower()}")(command, reply)

    def refused(self, reply: Any, status: int) -> None:
        assert isinstance(reply, c.Refused), reply
        assert reply.status == status, reply

    def good(self, value: Any) -> bool:
        return (
            len(value) == 1
            and isinstance(value[0], int | float)
            and 0 <= value[0] <= 100
        )  # fmt: skip

    def do_addtasks(self, command: c.AddTasks, reply: Any) -> None:
        names = [t.name for t in command.tasks]
        if {row["name"] for row in self.tasks.values()} & set(names):
            return self.refused(reply, 409)
        assert reply.n == len(names)
        for i, t in enumerate(command.tasks):
            truth = None if t.truth is None else list(t.truth)
            self.tasks[reply.first_id + i] = {
                "name": t.name, "kind": t.kind, "truth": truth, "state": "open"
            }  # fmt: skip
        return None

    def do_enter(self, command: c.Enter, reply: Any) -> None:
        known = [k for k, w in self.workers.items() if w["person"] == command.external_hmac]
        there = [
            k for k, v in self.visits.items()
            if command.session is not None and v["session"] == command.session
        ]  # fmt: skip
        if there and [self.visits[there[0]]["worker"]] != known:
            return self.refused(reply, 409)
        if not known and self.state == "closed":
            return self.refused(reply, 410)
        assert reply.new == (not known)
        if known:
            assert reply.worker == known[0]
        else:
            assert reply.worker not in self.workers
            self.workers[reply.worker] = {"person": command.external_hmac, "state": "active"}
        if there:
            assert reply.visit == there[0]
        else:
            assert reply.visit not in self.visits
            self.visits[reply.visit] = {
                "worker": reply.worker, "session": command.session, "state": "open", "code": None
            }  # fmt: skip
        return None

    def do_next(self, command: c.Next, reply: Any) -> None:
        worker = command.worker
        state = self.workers[worker]["state"]
        stop = None
        if self.state != "open":
            stop = "closed" if self.state == "closed" else "paused"
        elif state in ("banned", "erased"):
            stop = "banned"
        elif state == "paused":
            stop = "paused"
        elif command.visit is not None and self.visits[command.visit]["state"] != "open":
            stop = "done"
        if stop is not None:
            assert reply == c.Nothing(reason=stop, answered=self.n_given(worker, False))
            return
        mine = self.open_of(worker)
        if mine is not None:
            row = self.offers[mine]
            if self.tasks[row["task"]]["state"] == "open":
                assert (reply.offer, reply.again) == (mine, True)
                if row["expires"] <= self.now:
                    row["expires"] = self.now + self.rules["lease_seconds"]
                assert reply.expires == row["expires"]
                return
            row["state"] = "released"
        self._new_offer(command, reply)

    def _new_offer(self, command: c.Next, reply: Any) -> None:
        worker = command.worker
        allowed, price = self._allowed(command)
        cap = self.rules["capacity"]
        if not allowed[1] or allowed[0] != "practice":
            if cap is not None and self.n_given(worker, False) >= cap:
                assert reply.reason == "capacity"
                return
            if not allowed[1]:
                assert reply.reason in ("done", "wait")
                if self.alone:
                    coming = any(
                        t["kind"] == "real" and t["state"] == "open"
                        and self.n_open(k) and not self.had(worker, k)
                        for k, t in self.tasks.items()
                    )  # fmt: skip
                    assert reply.reason == ("wait" if coming else "done")
                return
            if not self.alone and isinstance(reply, c.Nothing) and reply.reason in ("wait", "done"):
                # What others of the batch gave back is found at the next try.
                return
            if not self.can_pay(price):
                assert reply.reason == "budget"
                return
        assert isinstance(reply, c.Offered), reply
        assert not reply.again
        if self.alone:
            assert reply.task in allowed[1]
        else:
            kinds = ("practice",) if reply.practice else ("real", "gold")
            assert self.may_get(worker, reply.task, kinds)
        assert reply.price == (0 if reply.practice else self.rules["price"])
        assert reply.practice == (self.tasks[reply.task]["kind"] == "practice")
        self.offers[reply.offer] = {
            "task": reply.task, "worker": worker, "visit": command.visit, "state": "open",
            "price": reply.price, "expires": self.now + self.rules["lease_seconds"],
        }  # fmt: skip
        assert reply.expires == self.offers[reply.offer]["expires"]

    def _allowed(self, command: c.Next) -> tuple[tuple[str, list[int]], int] | Any:
        worker, price = command.worker, self.rules["price"]

        def new(kind: str) -> list[int]:
            return [k for k in self.tasks if self.may_get(worker, k, (kind,))]

        if self.n_given(worker, True) < self.rules["practice"] and new("practice"):
            return ("practice", new("practice")), 0
        if command.draw < self.rules["gold_share"] and new("gold"):
            return ("gold", new("gold")), price
        for number in command.candidates:
            if self.may_get(worker, number, ("real", "gold")):
                return ("candidate", [number]), price
        real = new("real")
        load = {k: self.n_open(k) + self.n_answers(k) for k in real}
        return ("fewest", [k for k in real if load[k] == min(load.values())]), price

    def do_answer(self, command: c.Answer, reply: Any) -> None:
        row = self.offers.get(command.offer)
        if row is None or row["worker"] != command.worker:
            return self.refused(reply, 404)
        if not self.good(command.value):
            return self.refused(reply, 422)
        value = [float(command.value[0])]
        kind = self.tasks[row["task"]]["kind"]
        if row["state"] == "answered":
            if self.answers[command.offer]["value"] != value:
                return self.refused(reply, 409)
            assert reply.again
            assert reply.version == self.answers[command.offer]["version"]
            return None
        late = row["state"] == "expired"
        if (
            self.state == "closed"
            or self.workers[command.worker]["state"] in ("banned", "erased")
            or row["state"] not in ("open", "expired")
            or (late and self.had(command.worker, row["task"]))
            or (late and not self.can_pay(row["price"]))
        ):
            return self.refused(reply, 410)
        row["state"] = "answered"
        self.answers[command.offer] = {
            "value": value, "version": 1, "at": self.now, "source": "page", "source_id": None,
            "counts": kind != "practice" and self.counts(command.worker),
        }  # fmt: skip
        paid = 0
        if kind != "practice":
            paid = row["price"]
            self.credits[command.offer] = {"amount": paid, "state": "due"}
        assert (reply.again, reply.version, reply.credited) == (False, 1, paid)
        shown = self.tasks[row["task"]]["truth"] if kind == "practice" else None
        assert reply.practice_truth == shown
        self.settle()
        return None

    def do_edit(self, command: c.Edit, reply: Any) -> None:
        row = self.offers.get(command.offer)
        if row is None or row["worker"] != command.worker:
            return self.refused(reply, 404)
        if not self.good(command.value):
            return self.refused(reply, 422)
        if row["state"] != "answered":
            return self.refused(reply, 409)
        given = self.answers[command.offer]
        if given["value"] == [float(command.value[0])]:
            assert reply.again
            return None
        if self.state == "closed" or self.workers[command.worker]["state"] in ("banned", "erased"):
            return self.refused(reply, 410)
        if given["source"] != "page" or self.tasks[row["task"]]["kind"] == "practice":
            return self.refused(reply, 409)
        if self.now > given["at"] + self.rules["edit_seconds"]:
            return self.refused(reply, 410)
        given["value"] = [float(command.value[0])]
        given["version"] += 1
        assert reply.version == given["version"]
        return None

    def _end(self, command: Any, reply: Any, state: str) -> None:
        row = self.offers.get(command.offer)
        if row is None or row["worker"] != command.worker:
            return self.refused(reply, 404)
        if row["state"] == "answered":
            return self.refused(reply, 409)
        if row["state"] == "open":
            row["state"] = state
        assert isinstance(reply, c.Done)
        return None

    def do_skip(self, command: c.Skip, reply: Any) -> None:
        self._end(command, reply, "skipped")

    def do_report(self, command: c.Report, reply: Any) -> None:
        self._end(command, reply, "reported")

    def do_extend(self, command: c.Extend, reply: Any) -> None:
        row = self.offers.get(command.offer)
        if row is None or row["worker"] != command.worker:
            return self.refused(reply, 404)
        if row["state"] != "open":
            return self.refused(reply, 410)
        row["expires"] = max(row["expires"], self.now + self.rules["lease_seconds"])
        assert reply.expires == row["expires"]
        return None

    def do_expire(self, _: c.Expire, reply: Any) -> None:
        due = [
            row
            for row in self.offers.values()
            if row["state"] == "open" and row["expires"] <= self.now
        ]
        assert reply.n == len(due)
        for row in due:
            row["state"] = "expired"

    def do_complete(self, command: c.Complete, reply: Any) -> None:
        visit = self.visits[command.visit]
        if visit["state"] == "open":
            visit.update(state=command.state, code=command.code)
            mine = self.open_of(visit["worker"])
            if mine is not None and self.offers[mine]["visit"] == command.visit:
                self.offers[mine]["state"] = "released"
        assert (reply.state, reply.code) == (visit["state"], visit["code"])

    def do_setworker(self, command: c.SetWorker, reply: Any) -> None:
        row = self.workers[command.worker]
        if row["state"] == "erased":
            return self.refused(reply, 409)
        before = self.counts(command.worker)
        row["state"] = command.state
        mine = self.open_of(command.worker)
        if command.state == "banned" and mine is not None:
            self.offers[mine]["state"] = "released"
        after = self.counts(command.worker)
        if before == after:
            return None
        for number, given in self.answers.items():
            offer = self.offers[number]
            if offer["worker"] == command.worker:
                if given["counts"] and not after:
                    self.lost(offer["task"], reply)
                given["counts"] = after and self.tasks[offer["task"]]["kind"] != "practice"
        self.settle()
        return None

    def _delete(self, offer: str, reply: c.Done) -> None:
        if self.answers[offer]["counts"]:
            self.lost(self.offers[offer]["task"], reply)
        self.offers[offer]["state"] = "released"
        del self.answers[offer]

    def do_erase(self, command: c.Erase, reply: Any) -> None:
        row = self.workers[command.worker]
        if row["state"] == "erased" and command.keep_answers:
            return
        mine = self.open_of(command.worker)
        if mine is not None:
            self.offers[mine]["state"] = "released"
        for offer in list(self.answers):
            if self.offers[offer]["worker"] == command.worker and not command.keep_answers:
                if self.answers[offer]["source_id"] is not None:
                    self.graves[self.answers[offer]["source_id"]] = c.LAST_VERSION
                self._delete(offer, reply)
        row.update(state="erased", person=None)
        for visit in self.visits.values():
            if visit["worker"] == command.worker:
                visit["session"] = None
        self.settle()

    def do_setcredits(self, command: c.SetCredits, reply: Any) -> None:
        if not set(command.answers) <= self.credits.keys():
            return self.refused(reply, 404)
        allowed = {
            "approved": ("due", "approved", "rejected"),
            "rejected": ("due", "approved", "rejected"),
            "paid": ("due", "approved", "paid"),
        }[command.state]
        rows = [self.credits[k] for k in dict.fromkeys(command.answers)]
        if any(row["state"] not in allowed for row in rows):
            return self.refused(reply, 409)
        back = sum(r["amount"] for r in rows if r["state"] == "rejected" != command.state)
        if not self.can_pay(back):
            return self.refused(reply, 409)
        for row in rows:
            row["state"] = command.state
        return None

    def do_changecampaign(self, command: c.ChangeCampaign, reply: Any) -> None:
        changes = dict(command.changes)
        budget = changes.get("budget", self.budget)
        if budget is not None and self.reserved() + self.spent() > budget:
            return self.refused(reply, 409)
        self.budget = budget
        self.state = changes.get("state", self.state)
        if self.state == "closed":
            for row in self.offers.values():
                if row["state"] == "open":
                    row["state"] = "released"
        cap = changes.get("rules", {}).get("answers_per_task", self.rules["answers_per_task"])
        if cap != self.rules["answers_per_task"]:
            self.rules["answers_per_task"] = cap
            for row in self.tasks.values():
                if row["kind"] == "real" and row["state"] == "done":
                    row["state"] = "open"
            self.settle()
        return None

    def do_withdrawtasks(self, command: c.WithdrawTasks, reply: Any) -> None:
        named = [row for row in self.tasks.values() if row["name"] in command.names]
        assert reply.n == sum(row["state"] != "withdrawn" for row in named)
        for row in named:
            row["state"] = "withdrawn"

    def do_setgold(self, command: c.SetGold, reply: Any) -> None:
        named = [row for row in self.tasks.values() if row["name"] in command.truths]
        if any(r["kind"] == "practice" and command.truths[r["name"]] is None for r in named):
            return self.refused(reply, 409)
        for row in named:
            truth = command.truths[row["name"]]
            row["truth"] = None if truth is None else [float(x) for x in truth]
            if row["kind"] != "practice":
                row["kind"] = "real" if truth is None else "gold"
        self.settle()
        return None

    def do_markdone(self, command: c.MarkDone, reply: Any) -> None:
        if self.removed_at > command.as_of_seq:
            assert reply.n == 0
            return
        for number in command.tasks:
            row = self.tasks[number]
            if row["kind"] == "real" and row["state"] == "open":
                row["state"] = "done"

    def do_takeanswer(self, command: c.TakeAnswer, reply: Any) -> None:
        (task,) = [k for k, row in self.tasks.items() if row["name"] == command.task]
        if not self.good(command.value):
            return self.refused(reply, 422)
        if command.version <= self.graves.get(command.source_id, -1):
            return self.refused(reply, 410)
        known = [k for k, a in self.answers.items() if a["source_id"] == command.source_id]
        value = [float(command.value[0])]
        if known:
            given = self.answers[known[0]]
            if self.offers[known[0]]["task"] != task:
                return self.refused(reply, 409)
            if command.version > given["version"]:
                given.update(value=value, version=command.version)
            assert reply.version == given["version"]
            return None
        person = [k for k, w in self.workers.items() if w["person"] == command.external_hmac]
        if person and self.had(person[0], task):
            return self.refused(reply, 409)
        # The reply does not name a new worker: the comparison with the tables does.
        worker = person[0] if person else -len(self.workers) - 1
        if not person:
            self.workers[worker] = {"person": command.external_hmac, "state": "active"}
        self.offers[reply.offer] = {
            "task": task, "worker": worker, "visit": None, "state": "answered", "price": 0,
            "expires": self.now,
        }  # fmt: skip
        self.answers[reply.offer] = {
            "value": value, "version": command.version, "at": self.now, "source": "ls",
            "source_id": command.source_id,
            "counts": self.tasks[task]["kind"] != "practice" and self.counts(worker),
        }  # fmt: skip
        self.settle()
        return None

    def do_dropanswers(self, command: c.DropAnswers, reply: Any) -> None:
        for source_id in command.source_ids:
            known = [k for k, a in self.answers.items() if a["source_id"] == source_id]
            if known and self.answers[known[0]]["version"] > command.version:
                continue
            self.graves[source_id] = max(command.version, self.graves.get(source_id, -1))
            if known:
                self._delete(known[0], reply)
        self.settle()
