"""Owner: campaigns and their tasks, gold, and which tasks are done."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from voxpop.errors import ConfigError, require, shorten
from voxpop.service import commands as c
from voxpop.service.book import Book
from voxpop.service.questions import Question, check_content
from voxpop.service.rows import CampaignRow, TaskRow
from voxpop.service.rules import Rules
from voxpop.service.schema import CAMPAIGN_STATES, TASK_KINDS

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_CHANGEABLE = ("title", "instructions", "question", "rules", "state", "budget")
_LONGEST_TITLE, _LONGEST_TEXT = 300, 50_000


def create_campaign(book: Book, command: c.CreateCampaign) -> c.Created:
    """Make a campaign under a slug that is free."""
    if not isinstance(command.slug, str) or not _SLUG.fullmatch(command.slug):
        raise ConfigError(
            f"slug must be lower-case letters, digits and hyphens, at most 64, not {command.slug!r}"
        )
    _check_text("title", command.title, _LONGEST_TITLE)
    _check_text("instructions", command.instructions, _LONGEST_TEXT)
    _check_state(command.state)
    _check_budget(command.budget)
    question, rules = Question.parse(command.question), Rules.parse(command.rules)
    rules.check_platforms()
    if command.slug in book.slugs:
        raise c.Refused(409, "slug_taken", f"a campaign named {command.slug!r} exists already")
    row = CampaignRow(
        book.number("campaign"), command.slug, command.title, command.instructions, question,
        rules, command.state, 0, command.budget, 0, 0, book.now,
    )  # fmt: skip
    book.campaigns[row.id] = row
    book.slugs.add(command.slug)
    seq = book.event(row.id, "owner", "campaign_created")
    return c.Created(campaign=row.id, seq=seq)


def _check_text(name: str, one: object, longest: int) -> None:
    require(isinstance(one, str), f"{name} must be text, not {one!r}")
    require(len(str(one)) <= longest, f"{name} must have at most {longest} characters")


def _check_state(state: object) -> None:
    listed = ", ".join(CAMPAIGN_STATES)
    require(state in CAMPAIGN_STATES, f"state must be one of {listed}, not {state!r}")


def _check_budget(budget: object) -> None:
    good = isinstance(budget, int) and not isinstance(budget, bool) and 0 <= budget < 2**53
    require(budget is None or good, f"budget must be a whole number of minor units, not {budget!r}")


def change_campaign(book: Book, command: c.ChangeCampaign) -> c.Done:
    """Change what the owner may change; a closed campaign's open offers go back."""
    row = book.campaign(command.campaign)
    unknown = sorted(set(command.changes) - set(_CHANGEABLE))
    if unknown:
        listed = ", ".join(_CHANGEABLE)
        raise ConfigError(f"a campaign's {unknown[0]!r} cannot be changed, only {listed}")
    new = _changed(row, dict(command.changes))
    if new == row:
        return c.Done(seq=row.seq, n=0)
    if not new.affords(0):
        held = row.reserved + row.spent
        line = f"budget must be at least {held}, which is spent or promised already"
        raise c.Refused(409, "budget", line)
    book.campaigns[row.id] = new
    book.event(row.id, "owner", "campaign_changed", changed=sorted(command.changes))
    if new.state == "closed" and row.state != "closed":
        for number in list(book.open_offer.values()):
            if book.offers[number].campaign == row.id:
                book.close_offer(number, "released")
    _apply_stop_rule(book, row, new)
    return c.Done(seq=book.campaigns[row.id].seq)


def _changed(row: CampaignRow, changes: dict[str, Any]) -> CampaignRow:
    if "title" in changes:
        _check_text("title", changes["title"], _LONGEST_TITLE)
    if "instructions" in changes:
        _check_text("instructions", changes["instructions"], _LONGEST_TEXT)
    if "state" in changes:
        _check_state(changes["state"])
    if "budget" in changes:
        _check_budget(changes["budget"])
    if "question" in changes:
        changes["question"] = Question.parse(changes["question"])
        kind = changes["question"].kind
        line = f"a {row.question.kind} question cannot become a {kind}; make another campaign"
        require(changes["question"].dimension == row.question.dimension, line)
    if "rules" in changes:
        require(isinstance(changes["rules"], dict), "rules must be an object")
        new = Rules.parse({**row.rules.as_dict(), **changes["rules"]})
        if (new.prolific, new.mturk) != (row.rules.prolific, row.rules.mturk):
            new.check_platforms()
        changes["rules"] = new
    return replace(row, **changes)


def stop_rule_changes(changes: object) -> bool:
    """Whether a change of rules may open tasks again that were done, or end others."""
    rules = changes.get("rules") if isinstance(changes, dict) else None
    return isinstance(rules, dict) and bool({"answers_per_task", "half_width"} & rules.keys())


def _apply_stop_rule(book: Book, old: CampaignRow, new: CampaignRow) -> None:
    """Open tasks that the new rules want more of, and end those that have enough.

    Those that meet the width of an interval are ended by the next board, not here.
    """
    asked = [(row.rules.answers_per_task, row.rules.half_width) for row in (old, new)]
    if asked[0] == asked[1]:
        return
    for task in list(book.tasks.values()):
        if task.campaign != new.id or task.kind != "real" or task.state == "withdrawn":
            continue
        state = "done" if task.is_full(new.rules) else "open"
        book.set_task_state(task.id, state, "owner")


def add_tasks(book: Book, command: c.AddTasks) -> c.Added:
    """Add tasks with new names, all or none."""
    campaign = book.campaign(command.campaign)
    digest = _digest(command.tasks)
    if command.idempotency_key is not None:
        before = book.keys.get((campaign.id, command.idempotency_key))
        if before is not None:
            if before["digest"] != digest:
                line = "this Idempotency-Key was used before with other tasks; use a new one"
                raise c.Refused(422, "key_reused", line)
            told = {name: before[name] for name in ("first_id", "n", "seq")}
            return c.Added(**told, again=True)
    require(len(command.tasks) > 0, "no tasks to add: expected at least one")
    names = [_checked(campaign, task) for task in command.tasks]
    if len(set(names)) < len(names):
        twice = [name for name, times in Counter(names).items() if times > 1]
        raise c.Refused(
            409, "name_taken", f"these names are given to several tasks: {shorten(twice)}"
        )
    taken = [name for name in names if (campaign.id, name) in book.names]
    if taken:
        line = f"tasks with these names exist already: {shorten(taken)}"
        raise c.Refused(409, "name_taken", line)
    first = book.free["task"]
    for task in command.tasks:
        number = book.number("task")
        truth = None
        if task.truth is not None:
            truth = campaign.question.validate(list(task.truth), task.content)
        book.tasks[number] = TaskRow(
            number, campaign.id, task.name, task.kind, truth, 0, 0, "open", dict(task.content)
        )
        book.names[campaign.id, task.name] = number
    seq = book.event(campaign.id, "owner", "tasks_added", first_id=first, n=len(names))
    if command.idempotency_key is not None:
        body = {"digest": digest, "first_id": first, "n": len(names), "seq": seq}
        book.keys[campaign.id, command.idempotency_key] = body
    return c.Added(first_id=first, n=len(names), seq=seq)


def _digest(tasks: Sequence[c.NewTask]) -> str:
    listed = [
        [t.name, dict(t.content), t.kind, None if t.truth is None else list(t.truth)] for t in tasks
    ]
    text = json.dumps(listed, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _checked(campaign: CampaignRow, task: c.NewTask) -> str:
    good = isinstance(task.name, str) and 0 < len(task.name) <= 500 and task.name.isprintable()
    require(good, f"a task's name must be a line of 1 to 500 characters, not {task.name!r:.60}")
    try:
        check_content(task.content)
        listed = ", ".join(TASK_KINDS)
        require(task.kind in TASK_KINDS, f"kind must be one of {listed}, not {task.kind!r}")
        known = task.truth is not None
        require(
            known == (task.kind != "real"),
            "gold and practice tasks need a truth; a real task must not have one",
        )
        if task.truth is not None:
            campaign.question.validate(list(task.truth), task.content)
    except ValueError as error:
        raise ConfigError(f"task {task.name!r:.60}: {error}") from None
    return task.name


def _named(book: Book, campaign: int, names: Sequence[str]) -> list[TaskRow]:
    unknown = [name for name in names if (campaign, name) not in book.names]
    if unknown:
        line = f"this campaign has no tasks with these names: {shorten(unknown)}"
        raise c.Refused(404, "unknown_task", line)
    return [book.tasks[book.names[campaign, name]] for name in names]


def set_gold(book: Book, command: c.SetGold) -> c.Done:
    """Set the truth of tasks, or remove it; practice tasks stay practice tasks."""
    campaign = book.campaign(command.campaign)
    tasks = _named(book, campaign.id, list(command.truths))
    rows = []
    for task in tasks:
        truth = command.truths[task.name]
        if truth is None and task.kind == "practice":
            raise c.Refused(409, "practice", f"practice task {task.name!r} needs its truth")
        value = None if truth is None else campaign.question.validate(list(truth), task.content)
        kind = task.kind if task.kind == "practice" else "real" if value is None else "gold"
        if (kind, value) != (task.kind, task.truth):
            rows.append(replace(task, kind=kind, truth=value))
    for row in rows:
        book.tasks[row.id] = row
        book.event(campaign.id, "owner", "gold", task=row.id, truth=row.truth)
        if row.state == "open" and row.is_full(campaign.rules):
            book.set_task_state(row.id, "done", "owner")
    return c.Done(seq=book.campaigns[campaign.id].seq, n=len(rows))


def withdraw_tasks(book: Book, command: c.WithdrawTasks) -> c.Done:
    """Offer tasks to nobody any more."""
    campaign = book.campaign(command.campaign)
    tasks = _named(book, campaign.id, list(dict.fromkeys(command.names)))
    changed = [task for task in tasks if task.state != "withdrawn"]
    for task in changed:
        book.set_task_state(task.id, "withdrawn", "owner")
    return c.Done(seq=book.campaigns[campaign.id].seq, n=len(changed))


def mark_done(book: Book, command: c.MarkDone) -> c.Done:
    """End tasks that met the stop rule, unless answers have stopped counting since."""
    campaign = book.campaign(command.campaign)
    n = 0
    if book.last_removal.get(campaign.id, 0) <= command.as_of_seq:
        for number in dict.fromkeys(command.tasks):
            task = book.tasks.get(number)
            if task is None or task.campaign != campaign.id:
                continue
            if task.kind == "real" and task.state == "open":
                book.set_task_state(number, "done", "inference")
                n += 1
    return c.Done(seq=book.campaigns[campaign.id].seq, n=n)
