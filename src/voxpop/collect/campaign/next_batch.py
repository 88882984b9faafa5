"""The next batch of answers to ask for: which, from whom and why, by the rules for buying them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids
from voxpop.collect.campaign.ledger import Ledger
from voxpop.collect.campaign.posterior import SELECTION_TOL, CampaignPosterior
from voxpop.collect.campaign.selection import Candidate, Choice, ExpectedVariance, select_answers
from voxpop.collect.tables import read_capacity, read_distinct_ids, require_distinct
from voxpop.data.answers import Answers
from voxpop.data.ids import id_array, plain
from voxpop.data.tables import frame, open_table
from voxpop.errors import DataError, require, shorten
from voxpop.results.shared_error import SharedError
from voxpop.words import counted

Pairs = Iterable[tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Prices, limits and targets of a campaign.

    Parameters
    ----------
    half_width
        Target: a task is done when its 95 % interval is ± this or narrower in every coordinate.
    capacity
        Maximum number of answers per worker in total, including those already given.
    per_worker
        Maximum number of answers per worker in a batch. By default a batch is divided equally
        among the named workers. To prefer the best of them, ask for fewer answers than there are
        workers, or raise this limit.
    price
        Price of an answer from a worker who has no own price.
    budget
        Money left to spend.
    least_gain
        Minimum reduction of the mean variance per unit of cost; answers below it are not bought.
    """

    half_width: float | None = None
    capacity: int | None = None
    per_worker: int | None = None
    price: float = 1.0
    budget: float | None = None
    least_gain: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("half_width", 0.0), ("price", 0.0), ("budget", -1e-300)):
            number = getattr(self, name)
            require(
                number is None or least < number < np.inf,
                f"{name} must be positive, got {number}",
            )
        for name in ("capacity", "per_worker"):
            number = getattr(self, name)
            require(number is None or number >= 1, f"{name} must be at least 1, got {number}")
        require(self.least_gain >= 0, f"least_gain must be 0 or more, got {self.least_gain}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The answers to ask for next, best first, and the progress of the campaign.

    Attributes
    ----------
    task, worker
        Ids, row by row; ``worker`` is None if anyone may answer.
    gain
        Expected reduction of the task's variance per coordinate; infinite for the first answer
        under a flat prior.
    sd, sd_after
        Standard deviation of the task's truth before this answer and expected after it, shrunk by
        the trust in the beliefs about workers. Repeated tasks continue from the row before.
    price
        Cost of the answer.
    reason
        Why the answer is asked for, in words.
    stop
        Why no further answers should be bought; empty if the campaign goes on.
    n_tasks, n_done, n_unanswered
        Numbers of all tasks, of those that need no more answers, and of those without any.
    rmse, rmse_after
        Expected root mean squared error of a coordinate over the answered tasks, now and after
        this batch.
    """

    task: Ids
    worker: Ids
    gain: Floats
    sd: Floats
    sd_after: Floats
    price: Floats
    reason: list[str]
    stop: str
    n_tasks: int
    n_done: int
    n_unanswered: int
    rmse: float
    rmse_after: float

    def __len__(self) -> int:
        return len(self.task)

    @property
    def pairs(self) -> list[tuple[Any, Any]]:
        """Task and worker of every row."""
        return list(zip(self.task.tolist(), self.worker.tolist(), strict=True))

    @property
    def cost(self) -> float:
        """Total price."""
        return float(self.price.sum())

    def columns(self) -> dict[str, Any]:
        """Return the table as columns."""
        names = ("task", "worker", "gain", "sd", "sd_after", "price")
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        return columns | {"reason": np.array(self.reason, dtype=object)}

    @property
    def table(self) -> Any:
        """The table as a pandas data frame."""
        return frame(self.columns(), "pandas")

    def summary(self) -> str:
        """Describe the progress and the effect of the batch in one line."""
        state = f"{self.n_done:,} of {counted(self.n_tasks, 'task')} done"
        if self.n_unanswered:
            state += f", {self.n_unanswered:,} without an answer"
        if np.isfinite(self.rmse):
            state += f"; expected RMSE{' of the others' * bool(self.n_unanswered)} {self.rmse:.4g}"
        if not len(self):
            return f"{state}; stop: {self.stop}"
        more = counted(len(self), "more answer")
        after = f"{self.rmse_after:.4g} after {more} (cost {self.cost:,.2f})"
        return f"{state}, {after}" + (f"; then stop: {self.stop}" if self.stop else "")

    def __repr__(self) -> str:
        return f"Batch({self.summary()})"


@dataclass(frozen=True, eq=False)
class Available:
    """Available workers: ids, and their own prices and capacities where known."""

    ids: list[Any]
    price: Floats | None = None
    capacity: NDArray[np.int64] | None = None

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
    posterior.update(SELECTION_TOL)
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
    unknown = ~ledger.is_gold
    half_width, unfinished = None, unknown
    if rules.half_width is not None:
        half_width = posterior.half_widths()
        unfinished = unknown & (half_width > rules.half_width)
    eligible = unfinished.copy()
    eligible[[i for i, _ in _numbered(ledger, ((i, None) for i in skip), "skip")]] = False
    if workers is None:
        candidates = [Candidate(len(row), rules.price, k, anonymous=True)]
    else:
        candidates = _candidates(ledger, named, asked, forbidden, k, rules)
    budget = np.inf if rules.budget is None else rules.budget
    least_gain = rules.least_gain * max(1, int(unknown.sum()))
    chosen = select_answers(variance, eligible, expected, candidates, k, rng, budget, least_gain)
    for c in chosen:
        variance[c.task] = c.after
    ids, tasks = list(ledger.tasks), np.array([c.task for c in chosen], dtype=np.int64)
    before = posterior.in_units(np.array([c.before for c in chosen]), tasks)
    after = posterior.in_units(np.array([c.after for c in chosen]), tasks)
    now, variance = posterior.in_units(now), posterior.in_units(variance)
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


def advice(batch: Batch, answers: Answers, shared: SharedError | None) -> str:
    """Return where the answers of a batch help little, and what helps more; empty otherwise.

    They help little for tasks with so many answers that an error which all workers share outweighs
    the rest of the variance.
    """
    if shared is None or not len(batch):
        return ""
    size = dict(zip(answers.task_ids.tolist(), answers.task_degree.tolist(), strict=True))
    often = sum(size.get(task, 0) >= shared.enough_answers for task in batch.task.tolist())
    if not often:
        return ""
    n = shared.enough_answers
    return f"{often} of these are for tasks with {n} answers or more; {shared.advice()}"


def _numbered(ledger: Ledger, pairs: Pairs, what: str) -> list[tuple[int, Any]]:
    """Replace the task ids of pairs by numbers; a rule about an unknown task is an error."""
    pairs = list(pairs)
    unknown = [task for task, _ in pairs if ledger.tasks.find(task) is None]
    if unknown:
        raise DataError(f"{what}: there is no task {shorten(unknown)}; add it with add_tasks")
    return [(ledger.tasks[plain(task)], plain(worker)) for task, worker in pairs]


def _candidates(
    ledger: Ledger,
    workers: Available,
    pending: list[tuple[int, Any]],
    forbidden: Pairs,
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
    for tasks_of, pairs in ((taken, pending), (barred, _numbered(ledger, forbidden, "forbidden"))):
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
    answers = counted(n_answers, "answer")
    if half_width is not None:
        return f"{answers}, ± {half_width[task]:.3g} at 95 %"
    return f"{answers}, sd {np.sqrt(variance[task]):.3g}"


def _stop(
    chosen: list[Choice],
    eligible: NDArray[np.bool_],
    candidates: list[Candidate],
    budget: float,
) -> str:
    """Return why the batch has fewer answers than requested."""
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
