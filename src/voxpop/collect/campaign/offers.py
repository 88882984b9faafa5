"""From ids, tables and rules to the next answers to ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.collect.campaign.batch import Batch, Rules
from voxpop.collect.campaign.choosing import Asked, Choice, choose
from voxpop.collect.campaign.gain import Gains
from voxpop.collect.campaign.ledger import Ledger, id_array, plain
from voxpop.data.tables import open_table, resolve_column
from voxpop.errors import DataError, shorten
from voxpop.models.model import Model


@dataclass(frozen=True, eq=False, kw_only=True)
class Standing:
    """Where a campaign stands: what is known of truths (n,) and of workers (m, K).

    Variances are hedged by the ``trust`` in what is known of workers. Half-widths are there when
    the rules ask for them.
    """

    ledger: Ledger
    model: Model
    belief: Floats
    variance: Floats
    trust: float
    half_width: Floats | None


@dataclass(frozen=True, eq=False)
class _Present:
    """Those who are there: ids, prices, and most answers of each in all."""

    ids: list[Any]
    price: Floats
    capacity: Floats


@dataclass(frozen=True, eq=False)
class Wishes:
    """Rules, pairs that were asked for already, pairs that must not be, tasks to leave out."""

    rules: Rules
    pending: list[tuple[Any, Any]]
    forbidden: list[tuple[Any, Any]]
    skip: list[Any]


def next_batch(
    standing: Standing, k: int, workers: object, wishes: Wishes, rng: np.random.Generator
) -> Batch:
    """Choose the next answers, and say where the campaign stands."""
    ledger, model, rules = standing.ledger, standing.model, wishes.rules
    present = (
        _Present([], np.empty(0), np.empty(0)) if workers is None else _present(workers, rules)
    )
    # Of each of these one row: those who are there, others who were asked, and anyone.
    people = dict.fromkeys([*present.ids, *(plain(u) for _, u in wishes.pending)])
    people.pop(None, None)
    belief = np.array([*(_belief(standing, u) for u in people), model.weights])
    gains = Gains(model.levels, belief, model.dimension)
    row_of = {u: row for row, u in enumerate(people)}
    variance = standing.variance.copy()
    for i, worker in _pairs(ledger, wishes.pending, "pending"):
        row = row_of.get(worker, len(belief) - 1)
        variance[i] = gains.left(row, variance[i : i + 1])[0]
    needed = _needed(standing, rules)
    may = needed.copy()
    may[[i for i, _ in _pairs(ledger, [(task, None) for task in wishes.skip], "skip")]] = False
    if workers is None:
        asked = [Asked(len(belief) - 1, rules.price, k, repeats=True)]
    else:
        asked = _asked(standing, present, wishes, k)
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
    return Batch(
        **_columns(standing, chosen, asked, present.ids),
        **_state(standing, variance, needed, chosen),
        stop="" if len(chosen) == k else _stop(chosen, may, asked, rules),
    )


def _pairs(ledger: Ledger, pairs: list[tuple[Any, Any]], what: str) -> list[tuple[int, Any]]:
    """Number the tasks of pairs; a task that nobody knows would be a rule without effect."""
    numbers = [ledger.tasks.find(task) for task, _ in pairs]
    unknown = [task for (task, _), i in zip(pairs, numbers, strict=True) if i is None]
    if unknown:
        raise DataError(f"{what}: there is no task {shorten(unknown)}; add it with add_tasks")
    return [(i, plain(u)) for (_, u), i in zip(pairs, numbers, strict=True) if i is not None]


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
    crowd = np.array(standing.model.weights)
    return (
        crowd if u is None else standing.trust * standing.belief[u] + (1 - standing.trust) * crowd
    )


def _needed(standing: Standing, rules: Rules) -> NDArray[np.bool_]:
    """Tell which tasks still need answers."""
    needed = np.isnan(standing.ledger.gold[:, 0])
    if standing.half_width is not None and rules.half_width is not None:
        needed &= standing.half_width > rules.half_width
    return np.asarray(needed)


def _asked(standing: Standing, present: _Present, wishes: Wishes, k: int) -> list[Asked]:
    """Say of everyone who is there how many answers are left, and which tasks are not for him."""
    ledger = standing.ledger
    share = wishes.rules.per_worker or -(-k // max(1, len(present.ids)))
    waiting: dict[Any, set[int]] = {}
    for i, worker in _pairs(ledger, wishes.pending, "pending"):
        waiting.setdefault(worker, set()).add(i)
    barred: dict[Any, set[int]] = {}
    for i, worker in _pairs(ledger, wishes.forbidden, "forbidden"):
        barred.setdefault(worker, set()).add(i)
    asked = []
    for place, worker in enumerate(present.ids):
        u = ledger.workers.find(worker)
        taken = set(waiting.get(worker, ()))
        if u is not None:
            edge, _ = ledger.of_worker.gather(np.array([u]))
            taken.update(ledger.task[edge].tolist())
        room = min(float(share), present.capacity[place] - len(taken))
        asked.append(
            Asked(place, float(present.price[place]), int(room), taken | barred.get(worker, set()))
        )
    return asked


def _columns(
    standing: Standing, chosen: list[Choice], asked: list[Asked], people: list[Any]
) -> dict[str, Any]:
    """Return the rows of a batch."""
    ids = standing.ledger.tasks.ids
    before, left = (np.array([getattr(c, part) for c in chosen]) for part in ("before", "left"))
    return {
        "task": id_array([ids[c.task] for c in chosen]),
        "worker": id_array([people[c.asked] if people else None for c in chosen]),
        "gain": before - left,
        "sd": np.sqrt(before),
        "sd_after": np.sqrt(left),
        "price": np.array([asked[c.asked].price for c in chosen]),
        "reason": [_reason(standing, c) for c in chosen],
    }


def _state(
    standing: Standing, variance: Floats, needed: NDArray[np.bool_], chosen: list[Choice]
) -> dict[str, Any]:
    """Say where the campaign stands, and will stand."""
    ledger = standing.ledger
    after = variance.copy()
    for c in chosen:
        after[c.task] = c.left
    unknown = np.isnan(ledger.gold[:, 0])
    return {
        "n_tasks": len(ledger.tasks),
        "n_done": int((~needed).sum()),
        "n_unanswered": int((unknown & (ledger.of_task.size == 0)).sum()),
        "rmse": _rmse(standing.variance[unknown]),
        "rmse_after": _rmse(after[unknown]),
    }


def _rmse(variance: Floats) -> float:
    known = variance[np.isfinite(variance)]
    return float(np.sqrt(known.mean())) if len(known) else np.inf


def _reason(standing: Standing, choice: Choice) -> str:
    n_answers = int(standing.ledger.of_task.size[choice.task])
    if not n_answers:
        return "no answer yet"
    answers = f"{n_answers} answer{'s' if n_answers > 1 else ''}"
    if standing.half_width is not None:
        return f"{answers}, ± {standing.half_width[choice.task]:.3g} at 95 %"
    return f"{answers}, sd {np.sqrt(standing.variance[choice.task]):.3g}"


def _stop(chosen: list[Choice], may: NDArray[np.bool_], asked: list[Asked], rules: Rules) -> str:
    """Say why fewer answers are asked for than were wanted."""
    if not may.any():
        return "every task is done"
    spent = sum(asked[c.asked].price for c in chosen)
    cheapest = min((one.price for one in asked if one.room > 0), default=np.inf)
    if rules.budget is not None and rules.budget - spent < cheapest < np.inf:
        return "the budget is spent"
    if not any(one.room > 0 and _left_for(one, may) for one in asked):
        return "nobody who is there may be asked for more"
    return "no answer is expected to gain what it costs"


def _left_for(one: Asked, may: NDArray[np.bool_]) -> bool:
    return int(may.sum()) > sum(bool(may[i]) for i in one.barred)
