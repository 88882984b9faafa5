"""Balanced assignments under constraints: shares as equal as the constraints allow."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Ids
from voxpop.collect.assignment.random_graphs import (
    Assignment,
    Constraints,
    Mixing,
    Numbers,
    even_shares,
    exchange,
    mix,
)
from voxpop.errors import ConfigError, require, shorten

# Rounds of exchanges without progress before augmenting paths are searched instead.
_PATIENCE = 10

Pairs = tuple[ArrayLike, ArrayLike]
# A task, and the worker who would give it up; None where it has one answer too few.
_Offer = tuple[int, int | None]


def assign_balanced(
    n_tasks: int,
    n_workers: int,
    rng: np.random.Generator,
    *,
    per_task: float,
    capacity: int | ArrayLike | None = None,
    given: Pairs | None = None,
    forbidden: Pairs | None = None,
    task_group: ArrayLike | None = None,
    worker_group: ArrayLike | None = None,
    mixing: Mixing = "different",
    task_names: Sequence[object] | None = None,
) -> Assignment:
    """Draw a random assignment that satisfies the constraints and shares the work equally.

    The numbers of answers of tasks differ by at most one, those of workers by no more than the
    constraints require. Answers already given count for both and are not asked for again. If random
    exchanges do not find an assignment, augmenting paths do: an error means that none exists.

    Parameters
    ----------
    per_task
        Answers per task, including those given; a fraction is an average over tasks.
    capacity
        Maximum number of answers of a worker, including those given: one number, or one per worker.
    given, forbidden
        Pairs, as two lists of numbers: tasks and workers.
    task_group, worker_group, mixing
        Group of every task and worker. ``"different"``: nobody gets tasks from their own group;
        ``"same"``: everybody gets tasks from their own group only.
    task_names
        Names of the tasks in error messages.
    """
    require(n_tasks >= 1, f"n_tasks must be at least 1, got {n_tasks}")
    require(n_workers >= 1, f"n_workers must be at least 1, got {n_workers}")
    require(per_task > 0, f"per_task must be positive, got {per_task}")
    kinds = ("different", "same")
    require(mixing in kinds, f"mixing must be 'different' or 'same', got {mixing!r}")
    done = _codes(given, n_tasks, n_workers)
    names = np.arange(n_tasks) if task_names is None else np.array([*task_names], dtype=object)
    done_by_task = np.bincount(done // n_workers, minlength=n_tasks)
    done_by_worker = np.bincount(done % n_workers, minlength=n_workers)
    most = np.asarray(n_tasks if capacity is None else capacity, np.int64)
    require(bool((most >= 0).all()), "capacity must be 0 or more")
    groups = None
    if task_group is not None and worker_group is not None:
        groups = np.asarray(task_group, np.int64), np.asarray(worker_group, np.int64)
    constraints = Constraints(
        n_workers=n_workers,
        forbidden=np.union1d(done, _codes(forbidden, n_tasks, n_workers)),
        groups=groups,
        mixing=mixing,
    )
    # Tasks with more answers get the extra one first.
    first = np.lexsort((rng.random(n_tasks), -done_by_task))
    goal = even_shares(round(n_tasks * per_task), n_tasks)[np.argsort(first)]
    need, room = np.maximum(goal - done_by_task, 0), np.maximum(most - done_by_worker, 0)
    task, worker = _Assigner(need, done_by_worker, room, constraints, names).assign(rng)
    return Assignment.of_edges(task, worker, n_tasks, n_workers)


def _codes(pairs: Pairs | None, n_tasks: int, n_workers: int) -> Numbers:
    """Return the pairs as sorted distinct numbers."""
    if pairs is None:
        return np.empty(0, dtype=np.int64)
    task, worker = (np.asarray(part, np.int64) for part in pairs)
    known = (task >= 0) & (task < n_tasks) & (worker >= 0) & (worker < n_workers)
    require(
        bool(known.all()),
        f"pairs must be numbers of {n_tasks} tasks and {n_workers} workers, counted from 0",
    )
    return np.unique(task * n_workers + worker)


def _fill(load: Numbers, room: Numbers, n: int, rng: np.random.Generator) -> Numbers:
    """Distribute n answers so that the total loads are equal, within the room of each worker."""
    levels = range(int((load + room).max()) + 1)
    level = bisect_right(levels, n, key=lambda total: np.clip(total - load, 0, room).sum()) - 1
    share = np.clip(level - load, 0, room)
    willing = rng.permutation(np.flatnonzero((share < room) & (load + share <= level)))
    share[willing[: n - share.sum()]] += 1
    return np.asarray(share)


@dataclass(frozen=True, eq=False)
class _Assigner:
    """Builds one assignment: what tasks need, and the load and the room of workers."""

    need: Numbers
    load: Numbers
    room: Numbers
    constraints: Constraints
    names: Ids

    def assign(self, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
        """Assign at random, exchange, repair the rest by augmenting paths, and mix."""
        n = int(self.need.sum())
        free = int(self.room.sum())
        require(
            n <= free,
            f"{n} answers are needed, but the workers have room for {free}; raise capacity or the "
            "number of workers, or ask for fewer answers per task",
        )
        task = np.repeat(np.arange(len(self.need)), self.need)
        if not n:
            return task, task.copy()
        share = self._share(rng)
        worker = rng.permutation(np.repeat(np.arange(len(share)), share))
        task, worker, broken = self._exchange_broken(task, worker, rng)
        if broken.any() or self._may_be_uneven(worker):
            paths = _AugmentingPaths(
                task[~broken], worker[~broken], self.load, self.room, self.constraints
            )
            for i in task[broken].tolist():
                if not paths.add(i):
                    raise ConfigError(self._infeasibility(i, paths))
            paths.level()
            task, worker = paths.edges()
        return task, mix(task, worker, self.constraints, rng, nearly_uniform=not broken.any())

    @property
    def pools(self) -> tuple[Numbers, Numbers]:
        """The pools that share work: all together, or each group by itself."""
        if self.constraints.groups is not None and self.constraints.mixing == "same":
            return self.constraints.groups
        return np.zeros_like(self.need), np.zeros_like(self.room)

    def _share(self, rng: np.random.Generator) -> Numbers:
        """Distribute the answers evenly within each pool."""
        share, (of_task, of_worker) = np.zeros_like(self.room), self.pools
        for pool in np.unique(of_task).tolist():
            members = np.flatnonzero(of_worker == pool)
            wanted, free = int(self.need[of_task == pool].sum()), int(self.room[members].sum())
            require(
                wanted <= free,
                f"{wanted} answers are needed in the group of task "
                f"{shorten(self.names[of_task == pool][:1])}, but its {len(members)} workers "
                f"have room for {free}; raise capacity, or find more workers for it",
            )
            if wanted:
                share[members] = _fill(self.load[members], self.room[members], wanted, rng)
        return share

    def _exchange_broken(
        self, task: Numbers, worker: Numbers, rng: np.random.Generator
    ) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """Exchange at random while that helps; return which edges still violate a constraint."""
        # Sort both sides by pool, so that the edges stay within pools.
        task, worker = (
            side[np.argsort(pool[side], kind="stable")]
            for side, pool in zip((task, worker), self.pools, strict=True)
        )
        fewest, waited = len(task) + 1, 0
        while waited < _PATIENCE:
            broken = self._broken(task, worker)
            if not broken.any():
                break
            waited = 0 if broken.sum() < fewest else waited + 1
            fewest = min(fewest, int(broken.sum()))
            worker = exchange(task, worker, self.constraints, rng)
        return task, worker, self._broken(task, worker)

    def _broken(self, task: Numbers, worker: Numbers) -> NDArray[np.bool_]:
        """Tell which edges violate a constraint or repeat an earlier one."""
        repeats = np.ones(len(task), dtype=bool)
        code = task * self.constraints.n_workers + worker
        repeats[np.unique(code, return_index=True)[1]] = False
        return repeats | self.constraints.violated(task, worker)

    def _may_be_uneven(self, worker: Numbers) -> bool:
        """Return whether total loads differ by more than one although there is room."""
        new = np.bincount(worker, minlength=len(self.room))
        total, takes = self.load + new, new < self.room
        gives = new > 0
        return bool(takes.any() and gives.any() and total[gives].max() - total[takes].min() > 1)

    def _infeasibility(self, task: int, paths: _AugmentingPaths) -> str:
        """Name tasks that need more answers than the workers allowed for them can give."""
        allowed = int(self.constraints.allowed(task).sum())
        name = shorten(self.names[[task]])
        if allowed < self.need[task]:
            return (
                f"task {name} needs {self.need[task]} answers, but the rules allow only {allowed} "
                "workers for it; ask for fewer answers per task, or relax the rules"
            )
        tasks, workers = paths.stuck(task)
        n, free = int(self.need[tasks].sum()), int(self.room[workers].sum())
        return (
            f"{len(tasks)} tasks, including {name}, need {n} answers, but the {len(workers)} "
            f"workers that the rules allow have room for {free}, with one answer each per task; "
            "raise capacity, find more workers, or relax the rules"
        )


class _AugmentingPaths:
    """Edges as sets, and paths along which tasks are passed from worker to worker."""

    def __init__(
        self, task: Numbers, worker: Numbers, load: Numbers, room: Numbers, constraints: Constraints
    ) -> None:
        self._constraints, self._load, self._room = constraints, load, room
        self._tasks_of: list[set[int]] = [set() for _ in room]
        self._workers_of: defaultdict[int, set[int]] = defaultdict(set)
        for i, u in zip(task.tolist(), worker.tolist(), strict=True):
            self._tasks_of[u].add(i)
            self._workers_of[i].add(u)
        self._new = np.bincount(worker, minlength=len(room))
        self._visited = np.zeros(len(room), dtype=bool)

    @property
    def _total(self) -> Numbers:
        return self._load + self._new

    def add(self, task: int) -> bool:
        """Add an answer to a task, by the least busy worker at the end of a path."""
        return self._hand_on([(task, None)], self._new < self._room)

    def level(self) -> None:
        """Pass tasks from busy workers to those with at least two fewer, until no path is left.

        Then no other assignment is more equal.
        """
        improved = True
        while improved:
            improved = False
            # Workers reached by a failed search from a busier one have no path either.
            exhausted = np.zeros(len(self._room), dtype=bool)
            for u in np.argsort(-self._total, kind="stable").tolist():
                while self._tasks_of[u] and not exhausted[u]:
                    total = self._total
                    takes = (self._new < self._room) & (total <= total[u] - 2)
                    if self._hand_on([(i, u) for i in sorted(self._tasks_of[u])], takes):
                        improved = True
                    else:
                        exhausted |= self._visited

    def stuck(self, task: int) -> tuple[list[int], list[int]]:
        """After a failed search: the workers it reached, and all their tasks."""
        workers = np.flatnonzero(self._visited).tolist()
        tasks = {task}.union(*(self._tasks_of[u] for u in workers))
        return sorted(tasks), workers

    def edges(self) -> tuple[Numbers, Numbers]:
        """Return the edges as arrays, sorted by task."""
        pairs = sorted((i, u) for u, tasks in enumerate(self._tasks_of) for i in tasks)
        task, worker = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return task, worker

    def _search(
        self, start: list[_Offer], takes: NDArray[np.bool_]
    ) -> tuple[int | None, dict[int, _Offer]]:
        """Search breadth first from tasks, each with its giver, for a worker who can take one.

        Returns that worker, or None, and for every worker reached the task to take and its giver.
        """
        self._visited[:] = False
        self._visited[[u for _, u in start if u is not None]] = True
        path: dict[int, _Offer] = {}
        layer, seen = start, {i for i, _ in start}
        while layer and takes.any():
            reached: list[int] = []
            for i, giver in layer:
                new = self._constraints.allowed(i) & ~self._visited
                new[list(self._workers_of[i])] = False
                self._visited |= new
                for u in np.flatnonzero(new).tolist():
                    path[u] = (i, giver)
                    reached.append(u)
            ends = [u for u in reached if takes[u]]
            if ends:
                return min(ends, key=lambda u: (self._load[u] + self._new[u], u)), path
            layer = []
            for u in reached:
                layer += [(i, u) for i in sorted(self._tasks_of[u] - seen)]
                seen |= self._tasks_of[u]
        return None, path

    def _hand_on(self, start: list[_Offer], takes: NDArray[np.bool_]) -> bool:
        """Find a path, and apply it from its end: every worker takes a task from the one before."""
        taker, path = self._search(start, takes)
        if taker is None:
            return False
        self._new[taker] += 1
        while taker is not None:
            task, giver = path[taker]
            self._tasks_of[taker].add(task)
            self._workers_of[task].add(taker)
            if giver is not None:
                self._tasks_of[giver].remove(task)
                self._workers_of[task].remove(giver)
                if giver not in path:
                    self._new[giver] -= 1
                    return True
            taker = giver
        return True
