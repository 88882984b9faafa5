"""Facts: what a batch of commands may depend on, read by a few statements for all of them.

``Reading`` collects the keys that the commands name, locks their campaigns, and reads the rows,
each table once. Statements are built once and take all keys as one parameter, so that neither
SQLAlchemy nor the database has to parse them again for every batch.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from voxpop.service import commands as c
from voxpop.service.decide.owner import stop_rule_changes
from voxpop.service.questions import Question
from voxpop.service.rows import (
    AnswerRow,
    CampaignRow,
    CreditRow,
    Facts,
    OfferRow,
    TaskRow,
    VisitRow,
    WorkerRow,
)
from voxpop.service.rules import Rules
from voxpop.service.schema import FREE
from voxpop.service.statements import Rows, Statements


@dataclass(slots=True)
class Keys:
    """The keys that the commands of a batch name."""

    campaigns: set[int] = field(default_factory=set)
    slugs: set[str] = field(default_factory=set)
    offers: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    workers: set[int] = field(default_factory=set)
    holders: set[int] = field(default_factory=set)
    whole_workers: set[int] = field(default_factory=set)
    tasks: set[int] = field(default_factory=set)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    names: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    visits: set[int] = field(default_factory=set)
    persons: set[tuple[int, str, str]] = field(default_factory=set)
    sessions: set[tuple[int, str, str]] = field(default_factory=set)
    sources: set[tuple[int, str, str]] = field(default_factory=set)
    keys: set[tuple[int, str]] = field(default_factory=set)
    credits: set[str] = field(default_factory=set)
    closing: set[int] = field(default_factory=set)
    expiring: set[int] = field(default_factory=set)
    stop_rule: set[int] = field(default_factory=set)
    as_of: dict[int, int] = field(default_factory=dict)
    checked: set[int] = field(default_factory=set)
    new: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, commands: Iterable[c.Command]) -> Keys:
        """Collect the keys of a batch."""
        keys = cls()
        for command in commands:
            keys._add(command)
        return keys

    def _add(self, command: c.Command) -> None:
        if isinstance(command, c.CreateCampaign):
            self.slugs.add(command.slug)
            self.new["campaign"] += 1
            return
        self.campaigns.add(command.campaign)
        if isinstance(command, c.OfOffer):
            self.offers.add(command.offer)
            self.workers.add(command.worker)
            if isinstance(command, c.Answer | c.Edit):
                self.answered.add(command.offer)
        self._add_visits(command)
        self._add_answers_from_outside(command)
        self._add_owners(command)

    def _add_visits(self, command: c.OfCampaign) -> None:
        match command:
            case c.Enter():
                self.persons.add((command.campaign, command.provider, command.external_hmac))
                if command.session is not None:
                    self.sessions.add((command.campaign, command.provider, command.session))
                self.new.update(worker=1, visit=1)
            case c.Next():
                self.workers.add(command.worker)
                self.holders.add(command.worker)
                self.tasks.update(command.candidates)
                self.pairs.update((command.worker, task) for task in command.candidates)
                if command.visit is not None:
                    self.visits.add(command.visit)
            case c.Complete():
                self.visits.add(command.visit)
            case c.Expire():
                self.expiring.add(command.campaign)

    def _add_answers_from_outside(self, command: c.OfCampaign) -> None:
        match command:
            case c.TakeAnswer(campaign=campaign, source=source):
                self.sources.add((campaign, source, command.source_id))
                self.persons.add((campaign, source, command.external_hmac))
                self._named(campaign, [command.task])
                self.new["worker"] += 1
            case c.DropAnswers(campaign=campaign, source=source):
                self.sources.update((campaign, source, one) for one in command.source_ids)

    def _add_owners(self, command: c.OfCampaign) -> None:
        match command:
            case c.ChangeCampaign():
                if command.changes.get("state") == "closed":
                    self.closing.add(command.campaign)
                if stop_rule_changes(command.changes):
                    self.stop_rule.add(command.campaign)
            case c.AddTasks():
                self._named(command.campaign, [task.name for task in command.tasks])
                self.new["task"] += len(command.tasks)
                if command.idempotency_key is not None:
                    self.keys.add((command.campaign, command.idempotency_key))
            case c.SetGold():
                self._named(command.campaign, command.truths)
            case c.WithdrawTasks():
                self._named(command.campaign, command.names)
            case c.MarkDone():
                self.tasks.update(command.tasks)
                before = self.as_of.get(command.campaign, command.as_of_seq)
                self.as_of[command.campaign] = min(before, command.as_of_seq)
            case c.SetWorker() | c.Erase():
                self.whole_workers.add(command.worker)
            case c.SetCredits():
                self.credits.update(command.answers)

    def _named(self, campaign: int, names: Iterable[str]) -> None:
        self.names[campaign].update(n for n in names if isinstance(n, str))


def read_facts(
    connection: Connection,
    statements: Statements,
    commands: Sequence[c.Command],
    clock: Callable[[], float],
) -> Facts:
    """Lock the campaigns of a batch, and read all that its commands may depend on."""
    return _Reading(connection, statements, commands, clock).read()


class _Reading:
    """One batch's reading: the keys named so far, and the facts found so far."""

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        commands: Sequence[c.Command],
        clock: Callable[[], float],
    ) -> None:
        self.connection = connection
        self.s = statements
        self.commands = commands
        self.clock = clock
        self.keys = Keys.of(commands)
        self.facts = Facts()

    def read(self) -> Facts:
        self._read_campaigns()
        self._read_people()
        self._read_sources()
        self._read_offers()
        self._read_tasks()
        self._read_answers()
        self._read_rest()
        self._read_choices()
        return self.facts

    def _rows(self, what: str, keys: Collection[Any]) -> Rows:
        return self.s.rows(self.connection, what, keys)

    def _read_campaigns(self) -> None:
        keys, facts = self.keys, self.facts
        for row in self._rows("campaigns", keys.campaigns):
            data = row._asdict()
            data["question"] = Question.parse(data["question"])
            data["rules"] = Rules.parse(data["rules"])
            facts.campaigns[row.id] = CampaignRow(**data)
        # Read while the locks are held: the times of a campaign's events never run backwards.
        facts.now = self.clock()
        facts.slugs = {row[0] for row in self._rows("slugs", keys.slugs)}
        facts.free = self.s.reserve_numbers(self.connection, keys.new)

    def _read_people(self) -> None:
        keys, facts = self.keys, self.facts
        for row in self.s.rows_by_three(self.connection, "visits", keys.sessions):
            facts.put_visit(VisitRow(*row))
        for row in self._rows("visits", keys.visits):
            facts.put_visit(VisitRow(*row))
        for row in self.s.rows_by_three(self.connection, "workers", keys.persons):
            facts.put_worker(WorkerRow(*row))
        visitors = {visit.worker for visit in facts.visits.values()}
        keys.workers |= keys.whole_workers | visitors
        keys.holders |= keys.whole_workers | visitors
        for row in self._rows("workers", keys.workers):
            facts.put_worker(WorkerRow(*row))

    def _read_sources(self) -> None:
        keys, facts = self.keys, self.facts
        for row in self._rows("answers of workers", keys.whole_workers):
            self._answer(AnswerRow(*row))
        # An erased worker may have answers of another tool, which are then dropped.
        keys.sources |= facts.sources.keys()
        for row in self.s.rows_by_three(self.connection, "answers", keys.sources):
            self._answer(AnswerRow(*row))
        for *key, version in self.s.rows_by_three(self.connection, "dropped", keys.sources):
            campaign, source, source_id = key
            facts.dropped[campaign, source, source_id] = version
        for campaign, names in keys.names.items():
            for number, name in self.s.tasks_named(self.connection, campaign, names):
                facts.names[campaign, name] = number
                keys.tasks.add(number)
                keys.checked.add(number)
        for command in self.commands:
            if isinstance(command, c.TakeAnswer):
                person = facts.persons.get(
                    (command.campaign, command.source, command.external_hmac)
                )
                task = facts.names.get((command.campaign, command.task))
                if person is not None and task is not None:
                    keys.pairs.add((person, task))

    def _answer(self, row: AnswerRow) -> None:
        self.facts.answers[row.offer] = row
        self.keys.offers.add(row.offer)
        self.keys.tasks.add(row.task)
        if row.source_id is not None:
            self.facts.sources[row.campaign, row.source, row.source_id] = row.offer
        if row.worker not in self.facts.workers:
            for found in self._rows("workers", {row.worker}):
                self.facts.put_worker(WorkerRow(*found))

    def _read_offers(self) -> None:
        keys, facts, offers = self.keys, self.facts, self.facts.offers
        for row in self._rows("offers", keys.offers):
            offers[row[0]] = OfferRow(*row)
        # An answer that comes late may find the worker's place at the task taken.
        keys.pairs.update(
            (one.worker, one.task)
            for number in keys.answered
            if (one := offers.get(number)) is not None and one.state == "expired"
        )
        found = [*self._rows("open offers of workers", keys.holders)]
        if keys.closing or keys.expiring:
            found += self.s.offers_due(self.connection, keys.closing, keys.expiring, facts.now)
        if keys.pairs:
            found += self.s.held_pairs(self.connection, keys.pairs)
        offers.update((row[0], OfferRow(*row)) for row in found)

    def _read_tasks(self) -> None:
        keys, facts = self.keys, self.facts
        keys.tasks.update(offer.task for offer in facts.offers.values())
        for what, numbers in (("tasks", keys.tasks), ("real tasks of campaigns", keys.stop_rule)):
            for row in self._rows(what, numbers):
                facts.tasks[row[0]] = TaskRow(*row)
        keys.checked |= {
            facts.offers[number].task for number in keys.answered if number in facts.offers
        }
        # Only points and boxes are checked against what a task shows.
        checked = {
            number
            for number in keys.checked
            if (row := facts.campaigns.get(facts.tasks[number].campaign)) is not None
            and row.question.on_image
        }
        for number, content in self._rows("contents of tasks", checked):
            facts.tasks[number] = replace(facts.tasks[number], content=content)

    def _read_answers(self) -> None:
        keys, facts = self.keys, self.facts
        answered = {
            number
            for number in keys.answered
            if number in facts.offers and facts.offers[number].state == "answered"
        }
        for row in self._rows("answers", answered):
            facts.answers[row[0]] = AnswerRow(*row)
        for row in self._rows("credits", answered | keys.credits):
            facts.credits[row[0]] = CreditRow(*row)

    def _read_rest(self) -> None:
        keys, facts = self.keys, self.facts
        for campaign, key in keys.keys:
            for (body,) in self.s.key(self.connection, campaign, key):
                facts.keys[campaign, key] = body
        for campaign, as_of in keys.as_of.items():
            seq = self.s.last_removal(self.connection, campaign, as_of)
            if seq is not None:
                facts.last_removal[campaign] = seq

    def _read_choices(self) -> None:
        """Tasks for workers who need practice or gold, or for whom no candidate is left."""
        asking = [one for one in self.commands if isinstance(one, c.Next)]
        if not asking:
            return
        campaigns = {one.campaign for one in asking} & self.facts.campaigns.keys()
        kinds = {tuple(row) for row in self._rows("kinds in campaigns", campaigns)}
        held = {(o.worker, o.task) for o in self.facts.offers.values() if o.state not in FREE}
        n_without = 0
        for command in asking:
            campaign = self.facts.campaigns.get(command.campaign)
            worker = self.facts.workers.get(command.worker)
            if campaign is None or worker is None or worker.campaign != campaign.id:
                continue
            rules = campaign.rules
            if worker.n_practice < rules.practice and (campaign.id, "practice") in kinds:
                self._choose(campaign, worker.id, "practice", 2)
            if command.draw < rules.gold_share and (campaign.id, "gold") in kinds:
                self._choose(campaign, worker.id, "gold", 2)
            if not any(
                (task := self.facts.tasks.get(number)) is not None
                and task.campaign == campaign.id
                and task.kind != "practice"
                and task.available(rules)
                and (worker.id, number) not in held
                for number in command.candidates
            ):
                # Earlier commands of this batch may take the first ones.
                n_without += 1
                self._choose(campaign, worker.id, "real", n_without + 1)
                found = self.facts.choices[worker.id, "real"]
                wait = found or self.s.may_wait(self.connection, campaign.id, worker.id)
            else:
                wait = True
            if wait:
                # If others of this batch take these tasks, they may come back later.
                self.facts.waiting.add(worker.id)

    def _choose(self, campaign: CampaignRow, worker: int, kind: str, limit: int) -> None:
        cap = campaign.rules.answers_per_task if kind == "real" else None
        found = []
        for row in self.s.choices(self.connection, campaign.id, worker, kind, cap, limit):
            task = TaskRow(*row)
            self.facts.tasks.setdefault(task.id, task)
            found.append(task.id)
        self.facts.choices[worker, kind] = found
