"""The next batch: from the state of a campaign, workers and rules to the answers to ask for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.collect.campaign.batch import Batch, Rules
from voxpop.collect.campaign.ledger import Ledger, id_array, plain
from voxpop.collect.campaign.posterior import CampaignPosterior
from voxpop.collect.campaign.selection import Candidate, Choice, ExpectedVariance, select_answers
from voxpop.collect.tables import read_capacity, read_distinct_ids, require_distinct
from voxpop.data.tables import open_table
from voxpop.errors import DataError, require, shorten

Pairs = Iterable[tuple[Any, Any]]
# Tolerance of the beliefs, as probabilities, when selecting answers.
_SELECTION_TOL = 1e-3


@dataclass(frozen=True, eq=False)
class Available:
    """Available workers: ids, and their own prices and capacities where known."""

    ids: list[Any]
    price: Floats | None = None
    capacity: Floats | None = None

    @classmethod
    def read(cls, workers: object) -> Available:
        """Read a list of ids, or a table."""
        if isinstance(workers, Available):
            return workers
        if isinstance(workers, list | tuple | set | frozenset | range | np.ndarray):
            return cls([plain(u) for u in workers])
        if isinstance(workers, str) and "." not in workers and not Path(workers).exists():
            raise DataError(
                f"workers must be a list of ids or a table, got {workers!r}; try a list"
            )
        table = open_table(workers)
        price = table.numbers("price") if "price" in table.columns else None
        if price is not None and not (price > 0).all():
            raise DataError("price of a worker must be a positive number")
        ids = [plain(u) for u in read_distinct_ids(table, "worker")]
        return cls(ids, price, read_capacity(table))


def next_batch(
    posterior: CampaignPosterior,
    k: int,
    workers: object,
    rules: Rules | None,
    pending: Pairs,
    forbidden: Pairs,
    skip: Iterable[Any],
    rng: np.random.Generator,
) -> Batch:
    """Select the next answers; see :meth:`Campaign.next`."""
    require(k >= 1, f"k must be at least 1, got {k}")
    posterior.update(_SELECTION_TOL)
    ledger, model = posterior.ledger, posterior.model
    rules, named = rules or Rules(), Available.read([] if workers is None else workers)
    require_distinct(named.ids, "worker")
    asked = _numbered(ledger, pending, "pending")
    # One belief per available worker and per worker of a pending answer; the last is the crowd's.
    people = dict.fromkeys([*named.ids, *(u for _, u in asked if u is not None)])
    row = {u: n for n, u in enumerate(people)}
    expected = ExpectedVariance(model.levels, posterior.beliefs(people), model.dimension)
    now = posterior.variances()
    variance = now.copy()
    for i, u in asked:
        variance[i] = expected.after(row.get(u, len(row)), variance[i])
    unknown, half_width = ~ledger.is_gold, None
    unfinished = unknown.copy()
    if rules.half_width is not None:
        half_width = posterior.half_widths()
        unfinished &= half_width > rules.half_width
    eligible = unfinished.copy()
    eligible[[i for i, _ in _numbered(ledger, ((i, None) for i in skip), "skip")]] = False
    if workers is None:
        candidates = [Candidate(len(row), rules.price, k, anonymous=True)]
    else:
        barred = _numbered(ledger, forbidden, "forbidden")
        candidates = _candidates(ledger, named, asked, barred, k, rules)
    budget = np.inf if rules.budget is None else rules.budget
    least_gain = rules.least_gain * max(1, int(unknown.sum()))
    chosen = select_answers(variance, eligible, expected, candidates, k, rng, budget, least_gain)
    for c in chosen:
        variance[c.task] = c.after
    ids, before = ledger.tasks.ids, np.array([c.before for c in chosen])
    after = np.array([c.after for c in chosen])
    return Batch(
        task=id_array([ids[c.task] for c in chosen]),
        worker=id_array([named.ids[c.candidate] if named.ids else None for c in chosen]),
        gain=before - after,
        sd=np.sqrt(before),
        sd_after=np.sqrt(after),
        price=np.array([candidates[c.candidate].price for c in chosen]),
        reason=[_reason(ledger, c.task, now, half_width) for c in chosen],
        stop="" if len(chosen) == k else _stop(chosen, eligible, candidates, budget),
        n_tasks=len(ledger.tasks),
        n_done=int((~unfinished).sum()),
        n_unanswered=int((unknown & (ledger.of_task.size == 0)).sum()),
        rmse=_rmse(now[unknown]),
        rmse_after=_rmse(variance[unknown]),
    )


def _numbered(ledger: Ledger, pairs: Pairs, what: str) -> list[tuple[int, Any]]:
    """Replace the task ids of pairs by numbers; a rule about an unknown task is an error."""
    found, unknown = [], []
    for task, worker in pairs:
        i = ledger.tasks.find(task)
        if i is None:
            unknown.append(task)
        else:
            found.append((i, plain(worker)))
    if unknown:
        raise DataError(f"{what}: there is no task {shorten(unknown)}; add it with add_tasks")
    return found


def _candidates(
    ledger: Ledger,
    workers: Available,
    pending: list[tuple[int, Any]],
    forbidden: list[tuple[int, Any]],
    k: int,
    rules: Rules,
) -> list[Candidate]:
    """Make a candidate of every available worker."""
    n = len(workers.ids)
    share = rules.per_worker or -(-k // max(1, n))
    price = np.full(n, rules.price) if workers.price is None else workers.price
    capacity = np.full(n, rules.capacity or np.inf)
    if workers.capacity is not None:
        capacity = np.minimum(capacity, workers.capacity)
    taken, barred = defaultdict[Any, set[int]](set), defaultdict[Any, set[int]](set)
    for tasks_of, pairs in ((taken, pending), (barred, forbidden)):
        for i, u in pairs:
            tasks_of[u].add(i)
    candidates = []
    for place, worker in enumerate(workers.ids):
        taken[worker].update(ledger.tasks_of(worker))
        room = int(min(share, capacity[place] - len(taken[worker])))
        excluded = taken[worker] | barred[worker]
        candidates.append(Candidate(place, float(price[place]), room, excluded))
    return candidates


def _rmse(variance: Floats) -> float:
    known = variance[np.isfinite(variance)]
    return float(np.sqrt(known.mean())) if len(known) else np.inf


def _reason(ledger: Ledger, task: int, variance: Floats, half_width: Floats | None) -> str:
    n_answers = int(ledger.of_task.size[task])
    if not n_answers:
        return "no answer yet"
    answers = f"{n_answers} answer{'s' if n_answers > 1 else ''}"
    if half_width is not None:
        return f"{answers}, ± {half_width[task]:.3g} at 95 %"
    return f"{answers}, sd {np.sqrt(variance[task]):.3g}"


def _stop(
    chosen: list[Choice],
    eligible: NDArray[np.bool_],
    candidates: list[Candidate],
    budget: float,
) -> str:
    """Say why the batch has fewer answers than were asked for."""
    if not eligible.any():
        return "every task is done"
    spent = sum(candidates[c.candidate].price for c in chosen)
    cheapest = min((one.price for one in candidates if one.room > 0), default=np.inf)
    if budget - spent < cheapest < np.inf:
        return "the budget is spent"
    tasks = set(np.flatnonzero(eligible).tolist())
    if not any(one.room > 0 and tasks - one.excluded for one in candidates):
        return "no available worker can take more tasks"
    return "no answer reaches the minimum gain per unit of cost"
