"""From ids, tables and rules to the next answers to ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.campaign.batch import Batch, Rules
from voxpop.campaign.choosing import Asked, Choice, choose
from voxpop.campaign.gain import Gains
from voxpop.campaign.ledger import Ledger, id_array, plain
from voxpop.errors import DataError, shorten
from voxpop.model import Model
from voxpop.tables import open_table, resolve_column


@dataclass(frozen=True, eq=False, kw_only=True)
class Standing:
    """Where a campaign stands: what is known of truths (n,) and of workers (m, K)."""

    ledger: Ledger
    model: Model
    belief: Floats
    variance: Floats
    half_width: Floats


@dataclass(frozen=True, eq=False)
class _Present:
    """Those who are there: ids, prices, and most answers of each in all."""

    ids: list[Any]
    price: Floats
    capacity: Floats


def next_batch(
    standing: Standing,
    k: int,
    workers: object,
    rules: Rules,
    pending: list[tuple[Any, Any]],
    rng: np.random.Generator,
) -> Batch:
    """Choose the next answers, and say where the campaign stands."""
    ledger, model = standing.ledger, standing.model
    pending = [(plain(i), plain(u)) for i, u in pending]
    present = None if workers is None else _present(workers, rules)
    # Of each of these one row: those who are there, those who were asked, and anyone.
    people = [] if present is None else list(present.ids)
    absent = [u for u in dict.fromkeys(u for _, u in pending if u is not None) if u not in people]
    belief = np.array([*(_belief(standing, u) for u in [*people, *absent]), model.weights])
    gains = Gains(model.levels, belief, model.dimension)
    row_of = {u: row for row, u in enumerate([*people, *absent])}
    variance = standing.variance.copy()
    for task, worker in pending:
        i = ledger.tasks.find(task)
        if i is None:
            raise DataError(f"pending: there is no task {shorten([task])}")
        row = row_of.get(worker, len(belief) - 1)
        variance[i] = gains.left(row, variance[i : i + 1])[0]
    may = _may(standing, rules)
    if present is None:
        asked = [Asked(len(belief) - 1, rules.price, k, repeats=True)]
    else:
        asked = _asked(standing, present, pending, k, rules)
    n_scored = max(1, int(np.isnan(ledger.gold[:, 0]).sum()))
    chosen = choose(
        variance,
        may,
        gains,
        asked,
        k,
        rng,
        budget=np.inf if rules.budget is None else rules.budget,
        least_gain=rules.least_gain * n_scored,
    )
    return _batch(standing, variance, may, asked, chosen, people, k, rules)


def _present(workers: object, rules: Rules) -> _Present:
    """Read who is there: ids, or a table."""
    price: Floats | None = None
    most: Floats | None = None
    if isinstance(workers, list | tuple | set | frozenset | range | np.ndarray):
        ids = [plain(u) for u in workers]
    elif isinstance(workers, str) and "." not in workers:
        raise DataError(f"workers must be a list of ids or a table, got {workers!r}; try a list")
    else:
        table = open_table(workers)
        code, distinct = table.ids(resolve_column(table, "worker", None))
        ids = [plain(distinct[c]) for c in code]
        if "price" in table.columns:
            price = table.numbers("price")
            if not (price > 0).all():
                raise DataError("price of a worker must be a positive number")
        if "capacity" in table.columns:
            most = table.numbers("capacity")
            if not ((most >= 0) & (most == np.floor(most))).all():
                raise DataError("capacity of a worker must be a whole number, 0 or more")
    twice = [u for u in dict.fromkeys(ids) if ids.count(u) > 1] if len(set(ids)) < len(ids) else []
    if twice:
        raise DataError(f"workers: {shorten(twice)} is there more than once")
    limit = np.inf if rules.capacity is None else float(rules.capacity)
    everyone = np.full(len(ids), limit)
    return _Present(
        ids,
        np.full(len(ids), rules.price) if price is None else price,
        everyone if most is None else np.minimum(everyone, most),
    )


def _belief(standing: Standing, worker: object) -> Any:
    """Probabilities of a worker's levels; of one who has not answered, those of the crowd."""
    u = standing.ledger.workers.find(worker)
    return standing.model.weights if u is None else standing.belief[u]


def _may(standing: Standing, rules: Rules) -> NDArray[np.bool_]:
    """Tell which tasks still need answers."""
    may = np.isnan(standing.ledger.gold[:, 0])
    if rules.half_width is not None:
        may &= standing.half_width > rules.half_width
    return may


def _asked(
    standing: Standing,
    present: _Present,
    pending: list[tuple[Any, Any]],
    k: int,
    rules: Rules,
) -> list[Asked]:
    """Say of everyone who is there how many answers are left, and which tasks are not for him."""
    ledger = standing.ledger
    share = rules.per_worker or -(-k // max(1, len(present.ids)))
    asked = []
    for place, worker in enumerate(present.ids):
        u = ledger.workers.find(worker)
        barred: set[int] = set()
        if u is not None:
            edge, _ = ledger.of_worker.gather(np.array([u]))
            barred = set(ledger.task[edge].tolist())
        barred |= {ledger.tasks.find(i) for i, v in pending if v == worker}  # type: ignore[misc]
        room = min(float(share), present.capacity[place] - len(barred))
        asked.append(Asked(place, float(present.price[place]), int(room), barred))
    return asked


def _batch(
    standing: Standing,
    variance: Floats,
    may: NDArray[np.bool_],
    asked: list[Asked],
    chosen: list[Choice],
    people: list[Any],
    k: int,
    rules: Rules,
) -> Batch:
    ledger = standing.ledger
    ids = ledger.tasks.ids
    task = np.array([c.task for c in chosen], dtype=np.int64)
    before, left = (np.array([getattr(c, part) for c in chosen]) for part in ("before", "left"))
    after = variance.copy()
    for c in chosen:
        after[c.task] = c.left
    unknown = np.isnan(ledger.gold[:, 0])
    with np.errstate(invalid="ignore"):
        gain = np.where(np.isinf(before), np.inf, before - left)
    return Batch(
        task=id_array([ids[i] for i in task]),
        worker=id_array([people[c.asked] if people else None for c in chosen]),
        gain=gain,
        sd=np.sqrt(before),
        sd_after=np.sqrt(left),
        price=np.array([asked[c.asked].price for c in chosen]),
        reason=[_reason(standing, c, rules) for c in chosen],
        stop=_stop(chosen, may, asked, k, rules),
        n_tasks=len(ids),
        n_done=int((~may).sum()),
        n_unanswered=int((ledger.of_task.size == 0).sum()),
        rmse=_rmse(standing.variance[unknown]),
        rmse_after=_rmse(after[unknown]),
    )


def _rmse(variance: Floats) -> float:
    known = variance[np.isfinite(variance)]
    return float(np.sqrt(known.mean())) if len(known) else np.inf


def _reason(standing: Standing, choice: Choice, rules: Rules) -> str:
    n_answers = int(standing.ledger.of_task.size[choice.task])
    if not n_answers:
        return "no answer yet"
    answers = f"{n_answers} answer{'s' if n_answers > 1 else ''}"
    if rules.half_width is not None:
        return f"{answers}, ± {standing.half_width[choice.task]:.3g} at 95 %"
    return f"{answers}, sd {np.sqrt(standing.variance[choice.task]):.3g}"


def _stop(
    chosen: list[Choice], may: NDArray[np.bool_], asked: list[Asked], k: int, rules: Rules
) -> str:
    """Say why fewer answers are asked for than were wanted."""
    if len(chosen) == k:
        return ""
    if not may.any():
        return "every task is done"
    spent = sum(asked[c.asked].price for c in chosen)
    cheapest = min((one.price for one in asked if one.room > 0), default=np.inf)
    if rules.budget is not None and rules.budget - spent < cheapest < np.inf:
        return "the budget is spent"
    open_to = [one for one in asked if one.room > 0 and (one.repeats or _left_for(one, may))]
    if not open_to:
        return "nobody who is there may answer a task that is left"
    return "no answer is expected to gain what it costs"


def _left_for(one: Asked, may: NDArray[np.bool_]) -> bool:
    return int(may.sum()) > sum(bool(may[i]) for i in one.barred)
