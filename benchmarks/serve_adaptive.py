"""Adaptive buying through the service: boards and ``decide`` beside exact ``next`` and even buying.

    python -m benchmarks.serve_adaptive [--seeds 3] [--known 20] [--first 0] [--tasks 300]

The same workers come in the same order, ten at a time, to three buyers. One goes through the
service: commands to the writer on SQLite, candidates from a board that is refreshed after every
n/10 answers, the noise learned as inference does. One asks ``Campaign.next`` for each worker, with
all answers but those of the same ten, which are pending, and the noise learned at the same times.
One gives every worker a task with the fewest answers. Errors are those of ``aggregate`` of what
each has bought, or of ``BI`` where the levels are known.

Squared errors of a crowd are so uneven that 20 crowds leave 4 % of doubt. So the last column
compares what was bought: the error that the mean of the answers, weighted by their true precisions,
is expected to have. It depends on who answered what alone, not on how the answers came out.

The last table is about tasks that the service has stopped at a half-width: how many truths were
inside that half-width of the estimate, inside the board's half-width, and inside the published
interval of the truth at that time, and inside the final intervals of ``aggregate``, of agreement
and of the truth (the latter allows for an error that all workers may share, which these crowds do
not have).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import voxpop as vp
from benchmarks.buying import Drawn
from voxpop.arrays import Floats
from voxpop.service import commands as c
from voxpop.service.database import Database
from voxpop.service.followed import Followed
from voxpop.service.learning import learn
from voxpop.service.publishing import make_board
from voxpop.service.writer import Writer

LEVELS = (10.0, 100.0, 5000.0)
CROWDS: dict[str, dict[str, float]] = {
    "Gaussian": {},
    "Student-t, 3 degrees": {"tails": 3.0},
    "biased, sd 8": {"bias": 8.0},
}
CAPACITY = 30
PER_TASK, MOST_PER_TASK, HALF_WIDTH = 5, 10, 8.0
_CANDIDATES = 12


def drawn(n: int, seed: int, kind: str) -> Drawn:
    """A crowd of a kind; workers answer up to 30 tasks."""
    return Drawn(vp.Model(support=LEVELS), n, CAPACITY, seed, **CROWDS[kind])


def aggregated(task: list[int], worker: list[int], value: list[Floats]) -> vp.Result:
    """What the default finds of all that was bought."""
    return vp.aggregate(vp.Answers.from_arrays(task, worker, np.array(value)))


class Served:
    """Buys through the service's own parts, in one process."""

    def __init__(
        self, world: Drawn, folder: Path, half_width: float | None = None, known: bool = False
    ) -> None:
        self.world, self.n, self.known = world, len(world.truth), known
        self.database = Database.open(folder / f"{world.seed}.db")
        self.writer = Writer(self.database, clock=lambda: 1000.0)
        rules = {"practice": 0, "gold_share": 0.0, "half_width": half_width}
        question = {"kind": "number"}
        made = c.CreateCampaign(slug="c", title="c", question=question, rules=rules, state="open")
        self.number = self._do(made)[0].campaign
        tasks = [c.NewTask(name=str(i), content={}) for i in range(self.n)]
        self.first = self._do(c.AddTasks(campaign=self.number, tasks=tasks))[0].first_id
        entered = self._do(
            *(
                c.Enter(campaign=self.number, provider="link", external_hmac=str(u))
                for u in world.workers
            )
        )
        self.worker = [reply.worker for reply in entered]
        self.had: dict[int, set[int]] = {u: set() for u in world.workers}
        self.task: list[int] = []
        self.by: list[int] = []
        self.value: list[Floats] = []
        self.stopped: dict[int, tuple[float, ...]] = {}
        with self.database.connect() as connection:
            self.followed = Followed(connection, self.number)
        if known:
            tasks_there = self.followed.campaign.task_ids
            self.followed.campaign = vp.Campaign(vp.Model(support=LEVELS), tasks_there)
        self.refresh()

    def _do(self, *commands: Any) -> list[Any]:
        replies = list(self.writer.transact(list(commands)))
        refused = [reply for reply in replies if isinstance(reply, Exception)]
        if refused:
            raise refused[0]
        return replies

    def refresh(self) -> None:
        """Do what the inference process does, and mark what is done."""
        with self.database.connect() as connection:
            while self.followed.follow(connection):
                pass
        if self.followed.wants_to_learn and not self.known:
            self.followed.take_over(learn(self.followed.job()))
        self.board, self.offered = make_board(self.followed), defaultdict[int, float](float)
        self.n_offered = 0
        done = self.board.done_tasks()
        if done:
            self._note(done)
            as_of = self.followed.seq
            self._do(c.MarkDone(campaign=self.number, tasks=done, as_of_seq=as_of))

    def _note(self, done: list[int]) -> None:
        """Keep what was known of tasks when they were stopped."""
        found = self.followed.campaign.estimates()
        low, high = found.interval()
        numbers = np.concatenate([found.estimate, low, high], axis=1).tolist()
        at = dict(zip(found.task_ids.tolist(), numbers, strict=True))
        width = dict(zip(self.board.task.tolist(), self.board.half_width.tolist(), strict=True))
        for i in done:
            self.stopped.setdefault(i - self.first, (*at[i], width[i]))

    def buy(self, there: list[int]) -> bool:
        """Let each of these workers answer one task."""
        asks = []
        for u in there:
            tasks = self.board.pick(_CANDIDATES, self.had[u], self.offered)
            for i in tasks[:1]:
                self.offered[i] += self.board.worth_of(self.worker[u])
            self.n_offered += 1
            asks.append(
                c.Next(campaign=self.number, worker=self.worker[u], candidates=tasks, draw=0.99)
            )
        answers = []
        for u, reply in zip(there, self._do(*asks), strict=True):
            if not isinstance(reply, c.Offered):
                continue
            i = reply.task - self.first
            self.had[u].add(reply.task)
            value = self.world.answer(i, u)
            self.task.append(i)
            self.by.append(u)
            self.value.append(value)
            answers.append(
                c.Answer(
                    campaign=self.number, offer=reply.offer, worker=self.worker[u],
                    value=value.tolist(),
                )
            )  # fmt: skip
        self._do(*answers)
        if self.n_offered >= self.n / 10:
            self.refresh()
        return bool(answers)


class Exact:
    """Asks ``next`` before every ten answers; learns when inference would."""

    def __init__(self, world: Drawn, adaptive: bool, known: bool = False) -> None:
        self.world, self.n, self.adaptive, self.known = world, len(world.truth), adaptive, known
        model = vp.Model(support=LEVELS if known else (1.0,))
        self.campaign = vp.Campaign(model, range(self.n))
        self.task: list[int] = []
        self.by: list[int] = []
        self.value: list[Floats] = []
        self._learned_at, self._ties = 0, np.random.default_rng([world.seed, 3])
        self._count = np.zeros(self.n, dtype=int)

    def buy(self, there: list[int]) -> bool:
        """Let each of these workers answer one task."""
        if self.adaptive:
            self._learn()
            # One by one, as they come: the answers of those before are still to come.
            pairs = []
            for u in there:
                pairs += self.campaign.next(1, [u], pending=pairs, rng=self._ties).pairs
        else:
            pairs = []
            for u in there:
                tie = self._count + self._ties.random(self.n)
                i = int(np.where(self.world.open_to(u), tie, np.inf).argmin())
                self._count[i] += 1
                pairs.append((i, u))
        for i, u in pairs:
            self.task.append(i)
            self.by.append(u)
            self.value.append(self.world.answer(i, u))
        value = np.array(self.value[-len(pairs) :])
        self.campaign.add_many([i for i, _ in pairs], [u for _, u in pairs], value)
        return bool(pairs)

    def _learn(self) -> None:
        n, counts = len(self.task), np.bincount(self.task, minlength=self.n)
        ready = (counts >= 2).sum() >= min(50, self.n)
        if ready and not self.known and n >= 1.25 * self._learned_at:
            self._learned_at = n
            self.campaign.relearn()


def run(world: Drawn, buyer: Served | Exact, n_answers: int, until: Callable[[], bool]) -> None:
    """Let workers come until so many answers are bought."""
    arrivals = np.random.default_rng([world.seed, 2])
    while len(buyer.task) < n_answers and not until():
        there = world.come(arrivals)[: n_answers - len(buyer.task)]
        if not there or not buyer.buy(there):
            return


def mse(world: Drawn, buyer: Served | Exact) -> float:
    """Squared error of what was bought."""
    if buyer.known:
        value = np.array(buyer.value)
        found = vp.BI(support=LEVELS).fit(vp.Answers.from_arrays(buyer.task, buyer.by, value))
    else:
        found = aggregated(buyer.task, buyer.by, buyer.value)
    place = np.array(found.task_ids, dtype=int)
    return float(((found.estimate - world.truth[place]) ** 2).mean())


def bought(world: Drawn, buyer: Served | Exact) -> float:
    """Squared error expected of the mean weighted by the true precisions."""
    precision = 1.0 / world.variance[np.array(buyer.by)]
    return float((1.0 / np.bincount(buyer.task, precision, len(world.truth))).mean())


def ratio(one: Floats, other: Floats) -> str:
    """Ratio of two means over the same crowds, with its standard error."""
    found = one.mean() / other.mean()
    off = (one - found * other) / other.mean()
    return f"{found:.3f} ± {off.std(ddof=1) / np.sqrt(len(one)) if len(one) > 1 else np.nan:.3f}"


def compare(n: int, seeds: range, folder: Path, known: bool) -> None:
    """Print errors of the three ways of buying."""
    noise = "levels known (BI)" if known else "noise learned on the way (aggregate)"
    print(f"\n{PER_TASK} answers per task, {n} tasks, levels {LEVELS}, {seeds}, {noise}")
    print("| crowd | even | exact next / even | service / even | service / exact next | bought |")
    print("|---|---|---|---|---|---|")
    for kind in list(CROWDS)[:1] if known else CROWDS:
        rows = []
        for seed in seeds:
            row = []
            for way in ("even", "exact", "service"):
                world = drawn(n, seed, kind)
                with TemporaryDirectory(dir=folder) as place:
                    buyer = (
                        Served(world, Path(place), known=known)
                        if way == "service"
                        else Exact(world, way == "exact", known)
                    )
                    run(world, buyer, PER_TASK * n, lambda: False)
                    row.append((mse(world, buyer), bought(world, buyer)))
            rows.append(row)
        (even, _), (exact, at_best), (service, served) = np.array(rows).transpose(1, 2, 0)
        print(
            f"| {kind} | {even.mean():.2f} | {exact.mean() / even.mean():.3f} "
            f"| {service.mean() / even.mean():.3f} "
            f"| {ratio(service, exact)} | {ratio(served, at_best)} |",
            flush=True,
        )


def cover(n: int, seeds: range, folder: Path) -> None:
    """Print how many truths of stopped tasks are inside their intervals."""
    print(f"\nstopped at ± {HALF_WIDTH:g}, at most {MOST_PER_TASK} answers per task on average")
    print(
        "| crowd | stopped | answers per task | ± target at the stop | ± board's half-width ",
        "| interval at the stop ",
        sep="",
        end="",
    )
    print("| aggregate, agreement | aggregate, truth |\n|---|---|---|---|---|---|---|---|")
    for kind in CROWDS:
        inside: list[list[bool]] = []
        n_bought = 0
        for seed in seeds:
            world = drawn(n, seed + 100, kind)
            with TemporaryDirectory(dir=folder) as place:
                buyer = Served(world, Path(place), HALF_WIDTH)
                run(world, buyer, MOST_PER_TASK * n, lambda b=buyer: len(b.stopped) == n)  # type: ignore[misc]
                n_bought += len(buyer.task)
            result = aggregated(buyer.task, buyer.by, buyer.value)
            rows = {int(i): row for row, i in enumerate(result.task_ids.tolist())}
            (low, high), (lower, upper) = result.agreement_interval(), result.interval()
            for i, (estimate, first, last, half) in buyer.stopped.items():
                x, row = world.truth[i, 0], rows[i]
                ends = [(estimate - w, estimate + w) for w in (HALF_WIDTH, half)]
                ends += [(first, last)]
                ends += [(low[row, 0], high[row, 0]), (lower[row, 0], upper[row, 0])]
                inside.append([bool(a <= x <= b) for a, b in ends])
        share = " | ".join(f"{part:.3f}" for part in np.mean(inside, axis=0))
        done = len(inside) / (n * len(seeds))
        print(f"| {kind} | {done:.0%} | {n_bought / (n * len(seeds)):.2f} | {share} |", flush=True)


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--known", type=int, default=20, help="Crowds whose levels are known.")
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--tasks", type=int, default=300)
    given = parser.parse_args()
    start = time.process_time()
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        first = given.first
        if given.known:
            seeds = range(first, first + given.known)
            compare(given.tasks, seeds, Path(folder), known=True)
        if given.seeds:
            seeds = range(first, first + given.seeds)
            compare(given.tasks, seeds, Path(folder), known=False)
            cover(given.tasks, seeds, Path(folder))
    print(f"\n{time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
