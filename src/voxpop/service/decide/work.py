"""Work: offers and answers, as workers ask for them and the clock ends them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from voxpop.service import commands as c
from voxpop.service.book import Book
from voxpop.service.rows import AnswerRow, CampaignRow, CreditRow, OfferRow, TaskRow, WorkerRow

_LONGEST_LEAD_MS = 10**9


def next_task(book: Book, command: c.Next) -> c.Offered | c.Nothing:
    """Offer a task, or say why there is none.

    An open offer comes again. Practice comes first, gold by the draw; then the first candidate
    that is open, not full, and new to the worker; then the task with the fewest answers.
    """
    campaign = book.campaign(command.campaign)
    worker = book.worker(command.campaign, command.worker)
    mine = book.open_offer.get(worker.id)
    stop = _reason_to_stop(book, campaign, worker, command.visit)
    if stop is not None:
        return c.Nothing(reason=stop, answered=worker.n_answers)
    if mine is not None:
        again = _offer_again(book, campaign, book.offers[mine])
        if again is not None:
            return again
    rules, price, task = campaign.rules, 0, None
    if worker.n_practice < rules.practice:
        task = _first_of_kind(book, campaign, worker, "practice")
    if task is None:
        capacity = rules.capacity if worker.capacity is None else worker.capacity
        if capacity is not None and worker.n_answers >= capacity:
            return c.Nothing(reason="capacity", answered=worker.n_answers)
        price = rules.price if worker.price is None else worker.price
        if command.draw < rules.gold_share:
            task = _first_of_kind(book, campaign, worker, "gold")
        task = (
            task
            or _first_new(book, campaign, worker, command.candidates, ("real", "gold"))
            or _first_of_kind(book, campaign, worker, "real")
        )
        if task is None:
            reason = "wait" if worker.id in book.waiting else "done"
            return c.Nothing(reason=reason, answered=worker.n_answers)
        if not book.campaign(campaign.id).affords(price):
            return c.Nothing(reason="budget", answered=worker.n_answers)
    offer = OfferRow(
        command.offer, campaign.id, task.id, worker.id, command.visit, "open", price,
        book.now, book.expiry(campaign),
    )  # fmt: skip
    book.add_open_offer(offer)
    return _offered(book, offer, again=False)


def _reason_to_stop(
    book: Book, campaign: CampaignRow, worker: WorkerRow, visit: int | None
) -> str | None:
    if campaign.state in ("draft", "paused"):
        return "paused"
    if campaign.state == "closed":
        return "closed"
    if worker.state in ("banned", "erased"):
        return "banned"
    if worker.state == "paused":
        return "paused"
    if visit is not None:
        row = book.visits.get(visit)
        if row is None or row.worker != worker.id:
            raise c.Refused(404, "unknown_visit", "this worker has no such visit")
        if row.state != "open":
            return "done"
    return None


def _offer_again(book: Book, campaign: CampaignRow, mine: OfferRow) -> c.Offered | None:
    """The worker's open offer, with a new lease where it was over; none if the task has ended."""
    if book.tasks[mine.task].state != "open":
        book.close_offer(mine.id, "released")
        return None
    if mine.expires <= book.now:
        mine = replace(mine, expires=book.expiry(campaign))
        book.offers[mine.id] = mine
    return _offered(book, mine, again=True)


def _offered(book: Book, offer: OfferRow, again: bool) -> c.Offered:
    task = book.tasks[offer.task]
    return c.Offered(
        offer=offer.id,
        task=task.id,
        name=task.name,
        content=task.content or {},
        practice=task.kind == "practice",
        price=offer.price,
        created=offer.created,
        expires=offer.expires,
        answered=book.workers[offer.worker].n_answers,
        again=again,
    )


def _first_new(
    book: Book,
    campaign: CampaignRow,
    worker: WorkerRow,
    tasks: Sequence[int],
    kinds: tuple[str, ...],
) -> TaskRow | None:
    for number in tasks:
        task = book.tasks.get(number)
        if (
            task is not None
            and task.campaign == campaign.id
            and task.kind in kinds
            and task.available(campaign.rules)
            and (worker.id, number) not in book.held
        ):
            return task
    return None


def _first_of_kind(
    book: Book, campaign: CampaignRow, worker: WorkerRow, kind: str
) -> TaskRow | None:
    choices = book.choices.get((worker.id, kind), ())
    # Others of this batch may have been offered the first ones.
    fewest = sorted(choices, key=lambda n: (book.tasks[n].n_taken, n))
    return _first_new(book, campaign, worker, fewest, (kind,))


def answer(book: Book, command: c.Answer) -> c.Answered:
    """Store an answer; the same again is acknowledged again, another value is refused.

    An answer that comes after its lease is taken and paid while the campaign has not closed, if
    nobody's place at the task is taken twice by it and the budget allows it.
    """
    campaign = book.campaign(command.campaign)
    offer = book.offer(command.campaign, command.offer, command.worker)
    task = book.tasks[offer.task]
    value = campaign.question.validate(command.value, task.content)
    if offer.state == "answered":
        if book.answers[offer.id].value == value:
            return _answered(book, offer.id, again=True)
        raise c.Refused(
            409, "other_answer", "this task has been answered already, with another value"
        )
    worker = book.worker(command.campaign, command.worker)
    _check_may_answer(book, campaign, worker, offer)
    if offer.state == "open":
        book.close_offer(offer.id, "answered")
    else:
        book.offers[offer.id] = replace(offer, state="answered")
    lead = command.lead_ms
    row = AnswerRow(
        offer=offer.id,
        campaign=campaign.id,
        task=offer.task,
        worker=worker.id,
        value=value,
        counts=worker.counts and task.kind != "practice",
        lead_ms=None if lead is None else min(max(int(lead), 0), _LONGEST_LEAD_MS),
        source="page",
        source_id=None,
        version=1,
        at=book.now,
    )
    book.add_answer(row, f"worker:{worker.id}")
    if task.kind != "practice":
        book.add_credit(CreditRow(offer.id, campaign.id, worker.id, offer.price, "due", ""))
    return _answered(book, offer.id, again=False)


def _check_may_answer(
    book: Book, campaign: CampaignRow, worker: WorkerRow, offer: OfferRow
) -> None:
    _check_admitted(campaign, worker)
    if offer.state == "open":
        return
    if offer.state != "expired":
        raise c.Refused(410, offer.state, f"this task was {offer.state}; ask for another one")
    if (worker.id, offer.task) in book.held:
        raise c.Refused(410, "offered_again", "this task was offered again; answer the new offer")
    if not campaign.affords(offer.price):
        raise c.Refused(410, "budget", "the time for this task is over, and the budget is spent")


def _check_admitted(campaign: CampaignRow, worker: WorkerRow) -> None:
    if campaign.state == "closed":
        raise c.Refused(410, "closed", "this campaign has closed; it takes no more answers")
    if worker.state in ("banned", "erased"):
        raise c.Refused(410, "banned", "this worker may no longer answer here")


def _answered(book: Book, offer: str, again: bool) -> c.Answered:
    row = book.answers[offer]
    campaign = book.campaigns[row.campaign]
    task = book.tasks[row.task]
    credit = book.credits.get(offer)
    return c.Answered(
        offer=offer,
        version=row.version,
        again=again,
        credited=0 if credit is None else credit.amount,
        practice_truth=task.truth if task.kind == "practice" else None,
        editable_until=row.at + campaign.rules.edit_seconds,
        seq=campaign.seq,
    )


def edit(book: Book, command: c.Edit) -> c.Answered:
    """Replace an answer by a new version of it, while the rules allow."""
    campaign = book.campaign(command.campaign)
    offer = book.offer(command.campaign, command.offer, command.worker)
    task = book.tasks[offer.task]
    value = campaign.question.validate(command.value, task.content)
    if offer.state != "answered":
        raise c.Refused(409, "no_answer", "this task has no answer yet to change")
    row = book.answers[offer.id]
    if row.value == value:
        return _answered(book, offer.id, again=True)
    _check_admitted(campaign, book.workers[command.worker])
    if row.source != "page" or task.kind == "practice":
        raise c.Refused(409, "fixed", "this answer cannot be changed here")
    if book.now > row.at + campaign.rules.edit_seconds:
        raise c.Refused(410, "too_late", "the time to change this answer is over")
    book.change_answer(offer.id, value, row.version + 1, f"worker:{command.worker}")
    return _answered(book, offer.id, again=False)


def _pass(book: Book, command: c.Skip | c.Report, state: str, note: str) -> c.Done:
    offer = book.offer(command.campaign, command.offer, command.worker)
    if offer.state == "answered":
        raise c.Refused(409, "answered", "this task has been answered already")
    if offer.state == "open":
        book.close_offer(offer.id, state, note[:2000] or None)
    return c.Done(seq=book.campaigns[command.campaign].seq)


def skip(book: Book, command: c.Skip) -> c.Done:
    """Skip a task."""
    return _pass(book, command, "skipped", command.reason)


def report(book: Book, command: c.Report) -> c.Done:
    """Skip a task and report what is wrong with it."""
    return _pass(book, command, "reported", command.text)


def extend(book: Book, command: c.Extend) -> c.Extended:
    """Keep an open offer for another lease."""
    campaign = book.campaign(command.campaign)
    offer = book.offer(command.campaign, command.offer, command.worker)
    if offer.state != "open":
        raise c.Refused(
            410, offer.state, f"this task is {offer.state}; its time cannot be extended"
        )
    expires = max(offer.expires, book.expiry(campaign))
    book.offers[offer.id] = replace(offer, expires=expires)
    return c.Extended(offer=offer.id, expires=expires)


def expire(book: Book, command: c.Expire) -> c.Done:
    """Take back the offers whose time is up."""
    campaign = book.campaign(command.campaign)
    due = [
        book.offers[number]
        for number in book.open_offer.values()
        if book.offers[number].campaign == campaign.id and book.offers[number].expires <= book.now
    ]
    for offer in due:
        book.close_offer(offer.id, "expired")
    return c.Done(seq=campaign.seq, n=len(due))
