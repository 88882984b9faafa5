"""Book: the facts with what a batch has changed so far; counters and money follow every change."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import fields, replace
from typing import Any

from voxpop.service.commands import Refused, pseudonym_of
from voxpop.service.rows import (
    AnswerRow,
    CampaignRow,
    CreditRow,
    EventRow,
    Facts,
    OfferRow,
    TaskRow,
    TokenRow,
    WorkerRow,
)
from voxpop.service.schema import FREE


class Book(Facts):
    """Rows by their keys; the facts stay unchanged, and rows that differ are to be written."""

    def __init__(self, facts: Facts, now: float) -> None:
        super().__init__(**{one.name: copy(getattr(facts, one.name)) for one in fields(Facts)})
        self.facts = facts
        self.now = now
        self.events: list[EventRow] = []
        self.tokens: list[TokenRow] = []
        self.erased: list[int] = []
        self.open_offer = {o.worker: o.id for o in facts.offers.values() if o.state == "open"}
        self.held = {(o.worker, o.task): o.id for o in facts.offers.values() if o.state not in FREE}

    # ------------------------------------------------------------ looking up

    def campaign(self, number: int) -> CampaignRow:
        """The campaign of that number."""
        found = self.campaigns.get(number)
        if found is None:
            raise Refused(404, "unknown_campaign", f"there is no campaign number {number}")
        return found

    def worker(self, campaign: int, number: int) -> WorkerRow:
        """The worker of that number, in that campaign."""
        found = self.workers.get(number)
        if found is None or found.campaign != campaign:
            raise Refused(404, "unknown_worker", f"this campaign has no worker number {number}")
        return found

    def offer(self, campaign: int, number: str, worker: int) -> OfferRow:
        """The offer of that id, if it is this worker's."""
        found = self.offers.get(number)
        if found is None or found.campaign != campaign or found.worker != worker:
            raise Refused(404, "unknown_offer", "this worker has no such offer")
        return found

    def number(self, table: str) -> int:
        """A number for a new row."""
        number = self.free[table]
        self.free[table] = number + 1
        return number

    def expiry(self, campaign: CampaignRow) -> float:
        """When an offer that is made now expires."""
        return self.now + campaign.rules.lease(self.lead_ms.get(campaign.id))

    # ------------------------------------------------------------ changing

    def event(self, campaign: int, actor: str, kind: str, **body: Any) -> int:
        """Record an event; return its number."""
        row = self.campaigns[campaign]
        seq = row.seq + 1
        self.campaigns[campaign] = replace(row, seq=seq)
        self.events.append(EventRow(campaign, seq, self.now, actor, kind, body))
        return seq

    def money(self, campaign: int, reserved: int = 0, spent: int = 0) -> None:
        """Reserve and spend this much more."""
        if reserved or spent:
            row = self.campaigns[campaign]
            self.campaigns[campaign] = replace(
                row, reserved=row.reserved + reserved, spent=row.spent + spent
            )

    def count(self, task: int, n_open: int = 0, n_answers: int = 0) -> TaskRow:
        """Count this many more open offers and answers of a task."""
        row = self.tasks[task]
        row = replace(row, n_open=row.n_open + n_open, n_answers=row.n_answers + n_answers)
        self.tasks[task] = row
        return row

    def set_task_state(self, task: int, state: str, actor: str) -> None:
        """Open a task, or end it."""
        row = self.tasks[task]
        if row.state != state:
            self.tasks[task] = replace(row, state=state)
            self.event(row.campaign, actor, "task_state", task=task, state=state)

    def add_worker(
        self, campaign: int, provider: str, external_hmac: str, external: str | None, fresh: str
    ) -> WorkerRow:
        """Add a person whom the campaign does not know."""
        number = self.number("worker")
        row = WorkerRow(
            number, campaign, pseudonym_of(number, fresh), provider, external_hmac, external,
            "active", None, None, 0, 0, self.now,
        )  # fmt: skip
        self.put_worker(row)
        return row

    def add_open_offer(self, row: OfferRow) -> None:
        """Offer a task: reserve its price, count it as open."""
        self.offers[row.id] = row
        self.open_offer[row.worker] = row.id
        self.held[row.worker, row.task] = row.id
        self.money(row.campaign, reserved=row.price)
        self.count(row.task, n_open=1)

    def close_offer(self, offer: str, state: str, note: str | None = None) -> None:
        """End an open offer: its price is no longer reserved."""
        row = self.offers[offer]
        self.offers[offer] = replace(row, state=state, note=note)
        del self.open_offer[row.worker]
        if state in FREE:
            del self.held[row.worker, row.task]
        self.money(row.campaign, reserved=-row.price)
        self.count(row.task, n_open=-1)

    def add_answer(self, row: AnswerRow, actor: str) -> int:
        """Store an answer to an offer that is answered; return the number of its event."""
        self.answers[row.offer] = row
        self.held[row.worker, row.task] = row.offer
        if row.source_id is not None:
            self.sources[row.campaign, row.source, row.source_id] = row.offer
        practice = self.tasks[row.task].kind == "practice"
        self._count_of_worker(row.worker, 1, practice)
        seq = self._tell(row, actor)
        if row.counts:
            self._answers_came(row, actor)
        return seq

    def _count_of_worker(self, worker: int, change: int, practice: bool) -> None:
        row = self.workers[worker]
        if practice:
            self.workers[worker] = replace(row, n_practice=row.n_practice + change)
        else:
            self.workers[worker] = replace(row, n_answers=row.n_answers + change)

    def _answers_came(self, row: AnswerRow, actor: str) -> None:
        """Count an answer; a task with as many as the rules ask for is done."""
        task = self.count(row.task, n_answers=1)
        if task.state == "open" and task.is_full(self.campaigns[task.campaign].rules):
            self.set_task_state(row.task, "done", actor)

    def _tell(self, row: AnswerRow, actor: str) -> int:
        return self.event(
            row.campaign, actor, "answer",
            task=row.task, worker=row.worker, value=row.value, counts=row.counts,
            offer=row.offer, version=row.version,
        )  # fmt: skip

    def change_answer(self, offer: str, value: list[float], version: int, actor: str) -> int:
        """Replace an answer by a newer version of it."""
        row = replace(self.answers[offer], value=value, version=version)
        self.answers[offer] = row
        return self._tell(row, actor)

    def set_counts(self, offers: Iterable[str], counts: bool, actor: str) -> int:
        """Let answers count, or not; tasks that lose one are open again. Return how many changed.

        Answers to practice tasks never count.
        """
        changed = 0
        for offer in offers:
            row = self.answers[offer]
            practice = self.tasks[row.task].kind == "practice"
            if row.counts == counts or (counts and practice):
                continue
            self.answers[offer] = replace(row, counts=counts)
            changed += 1
            if counts:
                self._answers_came(row, actor)
            else:
                self._answer_went(row.task, actor)
        return changed

    def _answer_went(self, task: int, actor: str) -> None:
        row = self.count(task, n_answers=-1)
        if row.state == "done" and not row.is_full(self.campaigns[row.campaign].rules):
            self.set_task_state(task, "open", actor)

    def remove_answer(self, offer: str, actor: str) -> None:
        """Delete an answer; its offer is released, what was earned by it stays earned."""
        row = self.answers.pop(offer)
        self.offers[offer] = replace(self.offers[offer], state="released")
        del self.held[row.worker, row.task]
        if row.source_id is not None:
            del self.sources[row.campaign, row.source, row.source_id]
        self._count_of_worker(row.worker, -1, self.tasks[row.task].kind == "practice")
        if row.counts:
            self._answer_went(row.task, actor)

    def removal(self, campaign: int, actor: str, kind: str, lost: int, **body: Any) -> int:
        """Record why this many answers stopped counting."""
        seq = self.event(campaign, actor, kind, lost=lost, **body)
        if lost:
            self.last_removal[campaign] = seq
        return seq

    def add_credit(self, row: CreditRow) -> None:
        """Note what a worker earned; the money counts as spent."""
        self.credits[row.answer] = row
        self.money(row.campaign, spent=row.amount)
