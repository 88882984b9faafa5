"""Decide: what a batch of commands changes, given the facts and the time; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from voxpop.errors import VoxpopError
from voxpop.service import commands as c
from voxpop.service.book import Book
from voxpop.service.decide import crowd, outside, owner, work
from voxpop.service.rows import Facts

_DESKS: dict[type, Callable[[Book, Any], c.Reply]] = {
    c.CreateCampaign: owner.create_campaign,
    c.ChangeCampaign: owner.change_campaign,
    c.AddTasks: owner.add_tasks,
    c.SetGold: owner.set_gold,
    c.WithdrawTasks: owner.withdraw_tasks,
    c.MarkDone: owner.mark_done,
    c.SetWorker: crowd.set_worker,
    c.Erase: crowd.erase,
    c.SetCredits: crowd.set_credits,
    c.Enter: crowd.enter,
    c.Complete: crowd.complete,
    c.Next: work.next_task,
    c.Answer: work.answer,
    c.Edit: work.edit,
    c.Skip: work.skip,
    c.Report: work.report,
    c.Extend: work.extend,
    c.Expire: work.expire,
    c.TakeAnswer: outside.take_answer,
    c.DropAnswers: outside.drop_answers,
}


def decide(
    facts: Facts, commands: Sequence[c.Command], now: float
) -> tuple[Book, list[c.Reply | c.Refused]]:
    """Carry out commands one after the other, each on the state that the earlier ones left.

    Returns what there is to write, and one reply a command. A command that is refused changes
    nothing: it is checked as a whole before its first change.
    """
    book = Book(facts, now)
    replies: list[c.Reply | c.Refused] = []
    for command in commands:
        try:
            replies.append(_DESKS[type(command)](book, command))
        except c.Refused as refused:
            replies.append(refused)
        except VoxpopError as error:
            replies.append(c.Refused(422, "bad_value", str(error)))
    return book, replies
