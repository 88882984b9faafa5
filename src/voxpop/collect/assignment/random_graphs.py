"""Random assignments of tasks to workers with given numbers of answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.errors import require

Numbers = NDArray[np.int64]
Mixing = Literal["different", "same"]

# Rounds of random exchanges after the graph is simple; each exchanges up to half the edges. With
# many edges a random matching has few double edges, so repairing them needs few rounds of mixing.
_MIXING_ROUNDS = 60
_MIXING_ROUNDS_OF_MANY = 8
_MANY_EDGES = 20_000
# Rounds of repair before a valid graph is built greedily instead.
_REPAIR_ROUNDS = 200


@dataclass(frozen=True, eq=False)
class Assignment:
    """Edges of a bipartite graph: ``task[e]`` is answered by ``worker[e]``, no pair twice."""

    task: Numbers
    worker: Numbers
    n_tasks: int
    n_workers: int

    @classmethod
    def of_edges(cls, task: Numbers, worker: Numbers, n_tasks: int, n_workers: int) -> Assignment:
        """Sort the edges by task, then by worker."""
        order = np.lexsort((worker, task))
        return cls(task[order], worker[order], n_tasks, n_workers)


@dataclass(frozen=True, eq=False, kw_only=True)
class Constraints:
    """Which worker may answer which task.

    Attributes
    ----------
    forbidden
        Forbidden pairs, as sorted numbers ``task * n_workers + worker``.
    groups
        Group of every task and of every worker, or None for no groups.
    mixing
        ``"different"``: nobody gets tasks from their own group, as when teams grade each other;
        ``"same"``: everybody gets tasks from their own group only, as with languages.
    """

    n_workers: int
    forbidden: Numbers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    groups: tuple[Numbers, Numbers] | None = None
    mixing: Mixing = "different"

    def violated(self, task: Numbers, worker: Numbers) -> NDArray[np.bool_]:
        """Tell which pairs violate a constraint."""
        broken = among(task * self.n_workers + worker, self.forbidden)
        if self.groups is not None:
            together = self.groups[0][task] == self.groups[1][worker]
            broken |= together if self.mixing == "different" else ~together
        return broken

    def allowed(self, task: int) -> NDArray[np.bool_]:
        """Tell which workers may answer a task."""
        return ~self.violated(np.full(self.n_workers, task), np.arange(self.n_workers))


def assign_regular(
    n_tasks: int, per_task: int, per_worker: int, rng: np.random.Generator
) -> Assignment:
    """Draw a random regular assignment: ``per_task`` answers a task, ``per_worker`` a worker.

    If the answers cannot be divided evenly, there are as few workers as keep everyone at or below
    ``per_worker``, and their numbers of answers differ by at most one.
    """
    numbers = {"n_tasks": n_tasks, "per_task": per_task, "per_worker": per_worker}
    for name, number in numbers.items():
        require(number >= 1, f"{name} must be at least 1, got {number}")
    n_edges = n_tasks * per_task
    n_workers = -(-n_edges // per_worker)
    require(
        per_task <= n_workers,
        f"{per_task} answers per task need as many workers, but {n_edges} answers at {per_worker} "
        f"per worker leave {n_workers}; lower per_worker or raise n_tasks",
    )
    worker_degree = rng.permutation(even_shares(n_edges, n_workers))
    return assign_degrees(np.full(n_tasks, per_task), worker_degree, rng)


def even_shares(total: int, n: int) -> Numbers:
    """Share a whole number among n, evenly: shares differ by at most one, the larger come first."""
    return total // n + (np.arange(n) < total % n)


def assign_degrees(
    task_degree: ArrayLike, worker_degree: ArrayLike, rng: np.random.Generator
) -> Assignment:
    """Draw a random assignment with the given number of answers of each task and worker.

    Starts from a random matching of answer slots, exchanges workers between edges until no worker
    has a task twice, and continues exchanging so that all such graphs are about equally likely.
    """
    tasks, workers = (np.array(degree) for degree in (task_degree, worker_degree))
    require(
        tasks.ndim == workers.ndim == 1 and len(tasks) > 0 and len(workers) > 0,
        "degrees must be two lists of whole numbers, one per task and one per worker",
    )
    whole = tasks.dtype.kind in "iu" and workers.dtype.kind in "iu"
    require(whole, "degrees must be whole numbers")
    require(
        bool((tasks >= 1).all() and (workers >= 1).all()),
        "every task and every worker must have at least one answer",
    )
    require(
        tasks.sum() == workers.sum(),
        f"the tasks ask for {tasks.sum()} answers, the workers give {workers.sum()}",
    )
    require(_exists(tasks, workers), "no assignment has these degrees without repeating a pair")
    task = np.repeat(np.arange(len(tasks)), tasks)
    worker = rng.permutation(np.repeat(np.arange(len(workers)), workers))
    nearly_uniform = len(task) >= _MANY_EDGES
    constraints = Constraints(n_workers=len(workers))
    for _ in range(_REPAIR_ROUNDS):
        if not repeated(task * len(workers) + worker).any():
            break
        worker = exchange(task, worker, constraints, rng)
    else:
        task, worker = _greedy(tasks, workers)
        nearly_uniform = False
    worker = mix(task, worker, constraints, rng, nearly_uniform)
    return Assignment.of_edges(task, worker, len(tasks), len(workers))


def _exists(tasks: Numbers, workers: Numbers) -> bool:
    """Return by the Gale-Ryser theorem whether a graph without double edges exists."""
    largest = np.sort(workers)[::-1]
    # Σ_i min(task_i, k) for k = 1 .. n_workers: tasks with at least k answers add one each step.
    at_least = np.cumsum(np.bincount(tasks, minlength=len(workers) + 1)[::-1])[::-1]
    room = np.cumsum(at_least[1 : len(workers) + 1])
    return bool(tasks.max() <= len(workers) and (np.cumsum(largest) <= room).all())


def repeated(edge: Numbers) -> NDArray[np.bool_]:
    """Tell which numbers occur more than once."""
    ordered = np.sort(edge)
    return among(edge, ordered[1:][ordered[1:] == ordered[:-1]])


def among(edge: Numbers, ordered: Numbers) -> NDArray[np.bool_]:
    """Tell which numbers occur in a sorted list; twice as fast as ``np.isin``, which sorts both."""
    if not len(ordered):
        return np.zeros(len(edge), dtype=bool)
    place = np.minimum(np.searchsorted(ordered, edge), len(ordered) - 1)
    return np.asarray(ordered[place] == edge)


def mix(
    task: Numbers,
    worker: Numbers,
    constraints: Constraints,
    rng: np.random.Generator,
    nearly_uniform: bool,
) -> Numbers:
    """Exchange workers until the assignment does not depend on how it was built."""
    for _ in range(_MIXING_ROUNDS_OF_MANY if nearly_uniform else _MIXING_ROUNDS):
        worker = exchange(task, worker, constraints, rng)
    return worker


def exchange(
    task: Numbers, worker: Numbers, constraints: Constraints, rng: np.random.Generator
) -> Numbers:
    """Pair the edges at random, and exchange workers within pairs where that is allowed.

    Exchanges that would create a double edge are rejected too. Only half of the pairs try, so that
    the chain is aperiodic.
    """
    n_pairs = len(task) // 2
    shuffled = rng.permutation(len(task))
    first, second = shuffled[:n_pairs], shuffled[n_pairs : 2 * n_pairs]
    tries = rng.random(n_pairs) < 0.5
    first, second = first[tries], second[tries]
    present = np.sort(task * constraints.n_workers + worker)
    tasks = np.concatenate([task[first], task[second]])
    workers = np.concatenate([worker[second], worker[first]])
    proposed = tasks * constraints.n_workers + workers
    refused = among(proposed, present) | repeated(proposed) | constraints.violated(tasks, workers)
    allowed = ~refused.reshape(2, -1).any(axis=0)
    exchanged = worker.copy()
    exchanged[first[allowed]] = worker[second[allowed]]
    exchanged[second[allowed]] = worker[first[allowed]]
    return exchanged


def _greedy(tasks: Numbers, workers: Numbers) -> tuple[Numbers, Numbers]:
    """Build one valid graph: the busiest worker takes the tasks that lack the most answers."""
    lacking = tasks.copy()
    chosen: list[Numbers] = []
    owners = np.argsort(-workers, kind="stable")
    for u in owners:
        taken = np.argsort(-lacking, kind="stable")[: workers[u]]
        lacking[taken] -= 1
        chosen.append(taken)
    return np.concatenate(chosen), np.repeat(owners, workers[owners])
