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

    def come(self, rng: np.random.Generator) -> list[int]:
        """Return some workers who are there now; none when nobody is left."""

    def open_to(self, worker: int) -> np.ndarray:
        """Tell which tasks a worker can be given."""

    def answer(self, task: int, worker: int) -> Floats:
        """Let a worker answer a task."""


class Drawn:
    """A crowd drawn from a model; every worker answers up to ``capacity`` tasks."""

    def __init__(self, model: vp.Model, n_tasks: int, capacity: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        self.model, self.seed, self._capacity = model, seed, capacity
        self.truth = rng.uniform(0, 100, (n_tasks, model.dimension))
        n_workers = n_tasks
        self._sd = np.sqrt(rng.choice(model.levels, n_workers, p=np.array(model.weights)))
        self._noise = rng.normal(size=(n_workers, n_tasks, model.dimension))
        self._given = np.zeros((n_workers, n_tasks), dtype=bool)

    def come(self, rng: np.random.Generator) -> list[int]:
        """Return some of those who have answered less than they may."""
        free = np.flatnonzero(self._given.sum(axis=1) < self._capacity)
        return [int(u) for u in rng.permutation(free)[:THERE]]

    def open_to(self, worker: int) -> np.ndarray:
        """Tell which tasks the worker has not answered."""
        return np.asarray(~self._given[worker])

    def answer(self, task: int, worker: int) -> Floats:
        """Add the worker's noise to the truth: the same whenever it is asked for."""
        assert not self._given[worker, task]
        self._given[worker, task] = True
        return np.asarray(self.truth[task] + self._sd[worker] * self._noise[worker, task])


class Revealed:
    """A real set whose answers are revealed one by one."""

    def __init__(self, answers: vp.Answers, truth: Floats, seed: int) -> None:
        self.answers, self.truth, self.seed = answers, truth, seed
        shape = (answers.n_workers, answers.n_tasks)
        self._edge = np.full(shape, -1)
        self._edge[answers.worker, answers.task] = np.arange(answers.n_edges)
        self._hidden = self._edge >= 0

    def come(self, rng: np.random.Generator) -> list[int]:
        """Return workers by how many of their answers are hidden, each at most once."""
        worker = np.nonzero(self._hidden)[0]
        return list(dict.fromkeys(rng.permutation(worker)[: 4 * THERE].tolist()))[:THERE]

    def open_to(self, worker: int) -> np.ndarray:
        """Tell which tasks the worker has answered without our knowing."""
        return np.array(self._hidden[worker])

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
            barred = [
                (i, u) for u in there for i in np.flatnonzero(~self.world.open_to(u)).tolist()
            ]
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
