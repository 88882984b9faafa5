"""Campaigns to try ways of buying on: drawn crowds, and real answers revealed when asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

import voxpop as vp
from voxpop.arrays import Floats

Pair = tuple[int, int]
# Workers who are there at a time, where they come by themselves.
THERE = 10


class World(Protocol):
    """Tasks with a truth, and workers who come and answer."""

    truth: Floats
    seed: int
    workers: range

    def come(self, rng: np.random.Generator) -> list[int]:
        """Return some workers who are there now; none when nobody is left."""

    def open_to(self, worker: int) -> np.ndarray:
        """Tell which tasks a worker can be given."""

    def barred(self, worker: int) -> list[Pair]:
        """Return the pairs that a buyer must keep clear of, beside those answered."""

    def answer(self, task: int, worker: int) -> Floats:
        """Let a worker answer a task."""


class Drawn:
    """A crowd drawn from a model; every worker answers up to ``capacity`` tasks.

    The others are beyond what the model knows: ``hard`` is the spread (sd of the logarithm) of a
    factor of the noise by task, ``tails`` the degrees of freedom of Student's t, ``shared`` the sd
    of an error that all answers to a task have in common, ``bias`` that of a worker's own offset.
    """

    def __init__(
        self,
        model: vp.Model,
        n_tasks: int,
        capacity: int,
        seed: int,
        hard: float = 0.0,
        tails: float = np.inf,
        shared: float = 0.0,
        bias: float = 0.0,
    ) -> None:
        rng = np.random.default_rng([seed, 1])
        self.model, self.seed, self._capacity = model, seed, capacity
        self.truth = rng.uniform(0, 100, (n_tasks, model.dimension))
        n_workers = n_tasks
        self._sd = np.sqrt(rng.choice(model.levels, n_workers, p=np.array(model.weights)))
        shape = (n_workers, n_tasks, model.dimension)
        self._noise = rng.normal(size=shape) * np.exp(hard * rng.normal(size=(1, n_tasks, 1)))
        if np.isfinite(tails):
            self._noise /= np.sqrt(rng.chisquare(tails, (n_workers, n_tasks, 1)) / tails)
        self._offset = shared * rng.normal(size=(1, n_tasks, 1))
        self._offset = self._offset + bias * rng.normal(size=(n_workers, 1, 1))
        self._given = np.zeros((n_workers, n_tasks), dtype=bool)
        self.workers = range(n_workers)
        # Of an answer by each worker, around the truth; Student's t needs more than 2 degrees.
        spread = tails / (tails - 2.0) if np.isfinite(tails) else 1.0
        self.variance = spread * self._sd**2 + bias**2

    def come(self, rng: np.random.Generator) -> list[int]:
        """Return some of those who have answered less than they may."""
        free = np.flatnonzero(self._given.sum(axis=1) < self._capacity)
        return [int(u) for u in rng.permutation(free)[:THERE]]

    def open_to(self, worker: int) -> np.ndarray:
        """Tell which tasks the worker has not answered."""
        return np.asarray(~self._given[worker])

    def barred(self, worker: int) -> list[Pair]:  # noqa: ARG002
        """Return nothing: what was answered is known."""
        return []

    def answer(self, task: int, worker: int) -> Floats:
        """Add the worker's noise to the truth: the same whenever it is asked for."""
        assert not self._given[worker, task]
        self._given[worker, task] = True
        error = self._offset[worker, task] + self._sd[worker] * self._noise[worker, task]
        return np.asarray(self.truth[task] + error)


class Revealed:
    """A real set whose answers are revealed one by one."""

    def __init__(self, answers: vp.Answers, truth: Floats, seed: int) -> None:
        self.answers, self.truth, self.seed = answers, truth, seed
        shape = (answers.n_workers, answers.n_tasks)
        self._edge = np.full(shape, -1)
        self._edge[answers.worker, answers.task] = np.arange(answers.n_edges)
        self._hidden = self._edge >= 0
        self.workers = range(answers.n_workers)

    def come(self, rng: np.random.Generator) -> list[int]:
        """Return workers by how many of their answers are hidden, each at most once."""
        worker = np.nonzero(self._hidden)[0]
        return list(dict.fromkeys(rng.permutation(worker)[: 4 * THERE].tolist()))[:THERE]

    def open_to(self, worker: int) -> np.ndarray:
        """Tell which tasks the worker has answered without our knowing."""
        return np.array(self._hidden[worker])

    def barred(self, worker: int) -> list[Pair]:
        """Return the tasks that the worker has never answered."""
        return [(i, worker) for i in np.flatnonzero(self._edge[worker] < 0).tolist()]

    def whoever(self, task: int, rng: np.random.Generator) -> int:
        """Return a worker with a hidden answer to the task."""
        return int(rng.choice(np.flatnonzero(self._hidden[:, task])))

    def hidden(self) -> np.ndarray:
        """Count the hidden answers of every task."""
        return np.asarray(self._hidden.sum(axis=0))

    def answer(self, task: int, worker: int) -> Floats:
        """Reveal an answer."""
        assert self._hidden[worker, task]
        self._hidden[worker, task] = False
        return np.asarray(self.answers.value[self._edge[worker, task]])


@dataclass
class Buyer:
    """Buys answers of a world for a campaign, evenly or by what ``next`` says."""

    world: World
    campaign: vp.Campaign
    adaptive: bool

    def __post_init__(self) -> None:
        # The same workers come, whoever buys; ties are broken apart from that.
        self._arrivals = np.random.default_rng([self.world.seed, 2])
        self._ties = np.random.default_rng([self.world.seed, 3])
        self.count = np.zeros(len(self.world.truth), dtype=int)

    def buy(self, pairs: Sequence[Pair]) -> None:
        """Have pairs answered."""
        value = [self.world.answer(i, u) for i, u in pairs]
        self.campaign.add_many([i for i, _ in pairs], [u for _, u in pairs], value)
        np.add.at(self.count, [i for i, _ in pairs], 1)

    def by_arrival(self, needed: int | None = None) -> bool:
        """Give one task to each worker who is there, or to so many of them."""
        there = self.world.come(self._arrivals)
        k = min(needed or len(there), len(there))
        if not there:
            return False
        if self.adaptive:
            barred = [pair for u in there for pair in self.world.barred(u)]
            batch = self.campaign.next(
                k, there, rules=vp.Rules(per_worker=1), forbidden=barred, rng=self._ties
            )
            self.buy(batch.pairs)
        else:
            pairs: list[Pair] = []
            count = self.count.copy()
            for u in there[:k]:
                i = self._fewest(self.world.open_to(u), count)
                pairs.append((i, u))
                count[i] += 1
            self.buy(pairs)
        return True

    def by_task(self, k: int) -> bool:
        """Ask for tasks; chance decides who answers."""
        assert isinstance(self.world, Revealed)
        hidden = self.world.hidden()
        if not hidden.any():
            return False
        if self.adaptive:
            closed = np.flatnonzero(hidden == 0).tolist()
            batch = self.campaign.next(k, skip=closed, rng=self._ties)
            tasks = batch.task.tolist()
        else:
            count, tasks = self.count.copy(), []
            for _ in range(min(k, int(hidden.sum()))):
                i = self._fewest(hidden > 0, count)
                tasks.append(i)
                count[i] += 1
                hidden[i] -= 1
        for i in tasks:
            if self.world.hidden()[i]:
                self.buy([(i, self.world.whoever(i, self._arrivals))])
        return True

    def _fewest(self, may: np.ndarray, count: np.ndarray) -> int:
        """Choose a task with the fewest answers; of equal ones, any."""
        return int(np.where(may, count + self._ties.random(len(count)), np.inf).argmin())


def begin(world: World, per_task: int, adaptive: bool) -> Buyer:
    """Begin with so many answers per task, bought evenly, and the noise that they show."""
    rng = np.random.default_rng([world.seed, 4])
    n_workers = len(world.workers)
    pairs, load = [], np.zeros(n_workers)
    for i in rng.permutation(len(world.truth)).tolist():
        able = [u for u in world.workers if world.open_to(u)[i]]
        # Those who have answered least: as even a load as there can be.
        able.sort(key=lambda u: (load[u], rng.random()))
        for u in able[:per_task]:
            pairs.append((i, u))
            load[u] += 1
    value = [world.answer(i, u) for i, u in pairs]
    task, worker = ([pair[side] for pair in pairs] for side in (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crowd = vp.learn_crowd(vp.Answers.from_arrays(task, worker, value))
    campaign = vp.Campaign(crowd, range(len(world.truth)))
    campaign.add_many(task, worker, value)
    buyer = Buyer(world, campaign, adaptive)
    np.add.at(buyer.count, task, 1)
    return buyer


def mse(campaign: vp.Campaign, truth: Floats) -> float:
    """Squared error per task of what the campaign knows, over tasks whose truth is known."""
    found = campaign.result()
    place = np.array(found.task_ids, dtype=int)
    error = ((found.estimate - truth[place]) ** 2).sum(axis=1)
    return float(np.nanmean(error))


def curve(
    buyer: Buyer, step: Callable[[], bool], budgets: Sequence[int], relearn: bool
) -> list[float]:
    """Buy step by step; return the error at every budget."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for budget in budgets:
            while buyer.campaign.n_answers < budget and step():
                pass
            if relearn:
                buyer.campaign.relearn()
            found.append(mse(buyer.campaign, buyer.world.truth))
    return found
