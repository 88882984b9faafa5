"""Crowd: workers come and leave, are quarantined, banned, forgotten, and paid."""

from __future__ import annotations

from dataclasses import replace

from voxpop.service import commands as c
from voxpop.service.book import Book
from voxpop.service.rows import TokenRow, VisitRow
from voxpop.service.schema import CREDIT_STATES, VISIT_STATES, WORKER_STATES

# Transitions of a credit; a paid one stays paid.
_STEPS = {
    "due": ("approved", "rejected", "paid"),
    "approved": ("rejected", "paid"),
    "rejected": ("approved",),
    "paid": (),
}


def enter(book: Book, command: c.Enter) -> c.Entered:
    """Admit a person: the same worker as before, the same visit in the same session."""
    campaign = book.campaign(command.campaign)
    key = (campaign.id, command.provider, command.external_hmac)
    known = book.persons.get(key)
    session = None
    if command.session is not None:
        session = book.sessions.get((campaign.id, command.provider, command.session))
    if session is not None and book.visits[session].worker != known:
        raise c.Refused(409, "other_worker", "this session belongs to another worker")
    if known is None and campaign.state == "closed":
        raise c.Refused(410, "closed", "this campaign has closed")
    if known is None:
        person = book.add_worker(*key, command.external, command.fresh)
    else:
        person = book.workers[known]
    if session is None:
        visit = VisitRow(
            book.number("visit"), campaign.id, person.id, command.provider, command.session,
            "open", None, book.now,
        )  # fmt: skip
        book.put_visit(visit)
    else:
        visit = book.visits[session]
    if command.token_hash is not None:
        book.tokens.append(
            TokenRow(
                command.token_hash, "worker", campaign.id, person.id, visit.id, None, ""
            )
        )  # fmt: skip
    return c.Entered(
        worker=person.id,
        pseudonym=person.pseudonym,
        visit=visit.id,
        state=person.state,
        new=known is None,
    )


def complete(book: Book, command: c.Complete) -> c.Completed:
    """End a visit, once; open offers of its worker are released."""
    book.campaign(command.campaign)
    visit = book.visits.get(command.visit)
    if visit is None or visit.campaign != command.campaign:
        raise c.Refused(404, "unknown_visit", "this campaign has no such visit")
    if command.state not in VISIT_STATES or command.state == "open":
        listed = ", ".join(VISIT_STATES[1:])
        raise c.Refused(422, "bad_state", f"a visit ends as {listed}, not {command.state!r}")
    if visit.state == "open":
        code = command.code or command.fresh[:10].upper()
        visit = replace(visit, state=command.state, completion_code=code)
        book.visits[visit.id] = visit
        mine = book.open_offer.get(visit.worker)
        if mine is not None and book.offers[mine].visit == visit.id:
            book.close_offer(mine, "released")
    return c.Completed(visit=visit.id, state=visit.state, code=visit.completion_code or "")


def set_worker(book: Book, command: c.SetWorker) -> c.Done:
    """Change a worker's state; answers of the quarantined and the banned stop counting."""
    campaign = book.campaign(command.campaign)
    person = book.worker(command.campaign, command.worker)
    if command.state not in WORKER_STATES or command.state == "erased":
        listed = ", ".join(WORKER_STATES[:-1])
        raise c.Refused(422, "bad_state", f"a worker is {listed}, not {command.state!r}")
    if person.state == "erased":
        raise c.Refused(409, "erased", "this worker was erased; that cannot be undone")
    if person.state == command.state:
        return c.Done(seq=campaign.seq, n=0)
    counted = person.counts
    person = replace(person, state=command.state)
    book.workers[person.id] = person
    if person.state == "banned":
        _take_back(book, person.id)
    changed = 0
    if person.counts != counted:
        changed = book.set_counts(_answers_of(book, person.id), person.counts, "owner")
    lost = changed if counted else 0
    body = {"worker": person.id, "state": person.state, "counts": person.counts}
    return c.Done(seq=book.removal(campaign.id, "owner", "worker_state", lost, **body))


def _answers_of(book: Book, worker: int) -> list[str]:
    return [row.offer for row in book.answers.values() if row.worker == worker]


def _take_back(book: Book, worker: int) -> None:
    mine = book.open_offer.get(worker)
    if mine is not None:
        book.close_offer(mine, "released")


def erase(book: Book, command: c.Erase) -> c.Done:
    """Forget who a worker is. Credits stay, under the pseudonym: money must add up."""
    campaign = book.campaign(command.campaign)
    person = book.worker(command.campaign, command.worker)
    if person.state == "erased" and command.keep_answers:
        return c.Done(seq=campaign.seq, n=0)
    _take_back(book, person.id)
    mine = _answers_of(book, person.id)
    lost = 0
    if not command.keep_answers:
        for offer in mine:
            row = book.answers[offer]
            if row.source_id is not None:
                # The other tool still has it, and would bring it back.
                book.dropped[campaign.id, row.source, row.source_id] = c.LAST_VERSION
            lost += row.counts
            book.remove_answer(offer, "owner")
    book.persons.pop((campaign.id, person.provider, person.external_hmac), None)
    for key in [k for k, n in book.sessions.items() if book.visits[n].worker == person.id]:
        del book.sessions[key]
    # Answers that do not count because of a quarantine stay out.
    row_now = book.workers[person.id]
    book.workers[person.id] = replace(
        row_now, state="erased", external=None, external_hmac=f"erased:{person.id}"
    )
    book.erased.append(person.id)
    seq = book.removal(
        campaign.id, "owner", "erased", lost, worker=person.id, kept=bool(command.keep_answers)
    )
    return c.Done(seq=seq, n=len(mine))


def set_credits(book: Book, command: c.SetCredits) -> c.Done:
    """Approve, reject or pay credits, all or none. Rejected amounts return to the budget."""
    campaign = book.campaign(command.campaign)
    if command.state not in CREDIT_STATES or command.state == "due":
        listed = ", ".join(CREDIT_STATES[1:])
        raise c.Refused(422, "bad_state", f"a credit becomes {listed}, not {command.state!r}")
    rows = []
    for number in dict.fromkeys(command.answers):
        row = book.credits.get(number)
        if row is None or row.campaign != campaign.id:
            raise c.Refused(404, "unknown_credit", "there is no credit for one of these answers")
        if row.state == command.state:
            continue
        if command.state not in _STEPS[row.state]:
            line = f"a credit that is {row.state} cannot become {command.state}"
            raise c.Refused(409, "bad_step", line)
        rows.append(row)
    back = sum(row.amount for row in rows if row.state == "rejected")
    if not campaign.affords(back):
        raise c.Refused(409, "budget", "the budget is too small to approve these again")
    away = sum(row.amount for row in rows) if command.state == "rejected" else 0
    if not rows:
        return c.Done(seq=campaign.seq, n=0)
    for row in rows:
        book.credits[row.answer] = replace(row, state=command.state, reason=command.reason)
    book.money(campaign.id, spent=back - away)
    seq = book.event(
        campaign.id, "owner", "credits",
        state=command.state, n=len(rows), amount=sum(row.amount for row in rows),
    )  # fmt: skip
    return c.Done(seq=seq, n=len(rows))
