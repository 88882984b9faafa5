"""Outside: answers that another tool holds, in any order of its messages."""

from __future__ import annotations

from voxpop.service import commands as c
from voxpop.service.book import Book
from voxpop.service.rows import AnswerRow, OfferRow


def take_answer(book: Book, command: c.TakeAnswer) -> c.Answered:
    """Store another tool's answer, or the newer version of one; it is not paid here."""
    campaign = book.campaign(command.campaign)
    task = book.names.get((campaign.id, command.task))
    if task is None:
        line = f"this campaign has no task {command.task!r:.60}"
        raise c.Refused(404, "unknown_task", line)
    value = campaign.question.validate(command.value, book.tasks[task].content)
    key = (campaign.id, command.source, command.source_id)
    if command.version <= book.dropped.get(key, -1):
        raise c.Refused(410, "dropped", "this answer was deleted where it came from")
    actor = f"tool:{command.source}"
    known = book.sources.get(key)
    if known is not None:
        row = book.answers[known]
        if row.task != task:
            raise c.Refused(409, "other_task", "this answer was given to another task")
        if command.version > row.version:
            book.change_answer(known, value, command.version, actor)
            return _taken(book, known, again=False)
        return _taken(book, known, again=True)
    person = book.persons.get((campaign.id, command.source, command.external_hmac))
    if person is not None and (person, task) in book.held:
        line = "this worker has answered this task already, in another message"
        raise c.Refused(409, "pair_taken", line)
    if person is None:
        person = book.add_worker(
            campaign.id, command.source, command.external_hmac, command.external, command.fresh
        ).id
    worker = book.workers[person]
    offer = OfferRow(
        command.fresh, campaign.id, task, person, None, "answered", 0, book.now, book.now
    )
    book.offers[offer.id] = offer
    counts = worker.counts and book.tasks[task].kind != "practice"
    book.add_answer(
        AnswerRow(
            offer.id, campaign.id, task, person, value, counts, command.lead_ms, command.source,
            command.source_id, command.version, book.now,
        ),
        actor,
    )  # fmt: skip
    return _taken(book, offer.id, again=False)


def _taken(book: Book, offer: str, again: bool) -> c.Answered:
    row = book.answers[offer]
    return c.Answered(
        offer=offer,
        version=row.version,
        again=again,
        credited=0,
        practice_truth=None,
        editable_until=row.at,
        seq=book.campaigns[row.campaign].seq,
    )


def drop_answers(book: Book, command: c.DropAnswers) -> c.Done:
    """Delete answers that another tool has deleted, and remember that they are gone."""
    campaign = book.campaign(command.campaign)
    n = 0
    for source_id in dict.fromkeys(command.source_ids):
        key = (campaign.id, command.source, source_id)
        known = book.sources.get(key)
        if known is not None and book.answers[known].version > command.version:
            continue
        book.dropped[key] = max(command.version, book.dropped.get(key, -1))
        if known is not None:
            row = book.answers[known]
            actor = f"tool:{command.source}"
            book.remove_answer(known, actor)
            book.removal(
                campaign.id, actor, "retracted", int(row.counts),
                task=row.task, worker=row.worker, offer=known,
            )  # fmt: skip
            n += 1
    return c.Done(seq=book.campaigns[campaign.id].seq, n=n)
