"""Plans: the accuracy that a budget buys, and the budget that an accuracy needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from voxpop.collect.planning.density import predict_error
from voxpop.collect.planning.frontier import NAMES, Criterion, Option, Plan, Prices
from voxpop.collect.planning.learn_crowd import LearnedCrowd, pilot_error, rmse_sampling_sd
from voxpop.errors import ConfigError, require
from voxpop.models.model import Model
from voxpop.models.theory import oracle_mse

# Answers per task that a frontier looks at, and gold questions per worker.
_PER_TASK = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300)
_GOLD = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Answers per task where nothing else bounds a frontier, and the most that are thought of.
_USUAL, _MOST = 20, 300
# Messages per population: errors of a per cent or less, in a fraction of a second.
_SIZE = 2000


def make_plan(
    crowd: Model | LearnedCrowd,
    rng: np.random.Generator,
    *,
    n_tasks: int,
    rmse: float | None = None,
    half_width: float | None = None,
    budget: float | None = None,
    capacity: int = 20,
    max_gold: int = 0,
    prices: Prices | None = None,
    on_option: Callable[[Option], None] | None = None,
) -> Plan:
    """Find the cheapest way to a target, or the best way to spend a budget, and all in between.

    Workers are given as much as they may do: with more answers each they are better known, and
    fewer need to be qualified, so fewer answers each never help.

    Parameters
    ----------
    crowd
        The workers: a model, or what :func:`voxpop.learn_crowd` found in a pilot.
    rmse, half_width
        Target for the error of a coordinate, or for half of its 95 % interval on average.
    budget
        Money to spend; at most one of the three is given.
    capacity
        Most answers of one worker, gold questions included.
    max_gold
        Most gold questions per worker to think of.
    on_option
        Called with every option as it is predicted: for a progress line.
    """
    given = {"rmse": rmse, "half_width": half_width, "budget": budget}
    asked = {name: item for name, item in given.items() if item is not None}
    require(len(asked) <= 1, f"give one of rmse, half_width and budget, got {' and '.join(asked)}")
    for name, item in asked.items():
        require(0 < item < np.inf, f"{name} must be positive, got {item}")
    require(n_tasks >= 1, f"n_tasks must be at least 1, got {n_tasks}")
    require(
        0 <= max_gold < capacity,
        f"a worker who answers {capacity} in all must have room for a task beside the gold: "
        f"max_gold must be between 0 and {capacity - 1}, got {max_gold}",
    )
    search = _Search(
        crowd,
        int(rng.integers(2**62)),
        n_tasks,
        capacity,
        [gold for gold in _GOLD if gold <= max_gold],
        prices or Prices(),
        "half_width" if half_width is not None else "rmse",
        on_option,
    )
    target = rmse if half_width is None else half_width
    return search.run(target, budget)


class _Search:
    """Predicts options, each once, and looks among them."""

    def __init__(
        self,
        crowd: Model | LearnedCrowd,
        seed: int,
        n_tasks: int,
        capacity: int,
        golds: list[int],
        prices: Prices,
        criterion: Criterion,
        on_option: Callable[[Option], None] | None,
    ) -> None:
        self._pilot = crowd if isinstance(crowd, LearnedCrowd) else None
        self._model = crowd.model if isinstance(crowd, LearnedCrowd) else crowd
        self._seed, self._n_tasks, self._capacity = seed, n_tasks, capacity
        self._golds, self._prices, self._criterion = golds, prices, criterion
        self._on_option = on_option
        self._known: dict[tuple[int, int], Option] = {}
        self._crowd_errors: dict[int, float] = {}

    def run(self, target: float | None, budget: float | None) -> Plan:
        """Answer the question, then fill in the frontier around the answer."""
        chosen = None
        if target is not None:
            chosen = self._cheapest(target)
        elif budget is not None:
            chosen = self._best_within(budget)
        reached = 0.0 if chosen is None else chosen.per_task
        last = _USUAL if chosen is None else min(n for n in _PER_TASK if n > reached or n == _MOST)
        # Beyond the cost of the last there would be gold questions only, for want of answers.
        most = self._size(last * self._n_tasks, 0)[2]
        for gold in self._golds:
            for n_answers in (n * self._n_tasks for n in _PER_TASK if n <= last):
                if self._size(n_answers, gold)[2] <= most and not self._hopeless(n_answers, gold):
                    self._option(n_answers, gold)
        return Plan(
            model=self._model,
            n_tasks=self._n_tasks,
            criterion=self._criterion,
            options=tuple(o for o in self._known.values() if o.cost <= most or o is chosen),
            chosen=chosen,
            target=target,
            budget=budget,
        )

    def _size(self, n_answers: int, gold: int) -> tuple[int, int, float]:
        """Return tasks per worker, workers, and cost of so many answers besides the gold."""
        per_worker = min(self._capacity - gold, self._n_tasks)
        n_workers = -(-n_answers // per_worker)
        p = self._prices
        cost = n_answers * p.answer + n_workers * (gold * p.answer + p.worker) + gold * p.gold
        return per_worker, n_workers, cost

    def _option(self, n_answers: int, gold: int) -> Option:
        key = (n_answers, gold)
        if key not in self._known:
            per_worker, n_workers, cost = self._size(n_answers, gold)
            per_task = n_answers / self._n_tasks
            prediction = predict_error(
                self._model,
                np.random.default_rng([self._seed, *key]),
                per_task=per_task,
                per_worker=per_worker,
                gold=gold,
                size=int(max(_SIZE, 10 * per_task)),
            )
            self._known[key] = Option(
                per_task=per_task,
                per_worker=per_worker,
                gold=gold,
                n_workers=n_workers,
                n_answers=n_answers + n_workers * gold,
                cost=cost,
                prediction=prediction,
                crowd_error=self._crowd_error(int(per_task)),
                luck=rmse_sampling_sd(
                    self._model,
                    per_task,
                    self._n_tasks,
                    n_workers,
                    np.random.default_rng([self._seed, *key, 1]),
                ),
            )
            if self._on_option is not None:
                self._on_option(self._known[key])
        return self._known[key]

    def _crowd_error(self, per_task: int) -> float:
        if self._pilot is None:
            return 0.0
        if per_task not in self._crowd_errors:
            rng = np.random.default_rng([self._seed, per_task])
            self._crowd_errors[per_task] = pilot_error(self._pilot, per_task, rng)
        return self._crowd_errors[per_task]

    def _floor(self, per_task: float) -> float:
        """What the criterion cannot fall below: the oracle's RMSE; of a half-width, nothing."""
        if self._criterion == "half_width":
            return 0.0
        return float(np.sqrt(oracle_mse(self._model, per_task) / self._model.dimension))

    def _hopeless(self, n_answers: int, gold: int) -> bool:
        """Tell whether something known costs no more, and is as good as this could be at best."""
        cost, best = self._size(n_answers, gold)[2], self._floor(n_answers / self._n_tasks)
        return any(
            o.cost <= cost and o.accuracy(self._criterion) <= best for o in self._known.values()
        )

    def _cheapest(self, target: float) -> Option:
        """Find, for every number of gold questions, the fewest answers that do."""
        found = [o for gold in self._golds if (o := self._fewest(target, gold)) is not None]
        if not found:
            best = min(self._known.values(), key=lambda o: o.accuracy(self._criterion))
            raise ConfigError(
                f"{NAMES[self._criterion]} {target:g} is out of reach: {best.per_task:g} answers "
                f"per task give {best.accuracy(self._criterion):.3g}; ask for less, or for better "
                "workers"
            )
        return min(found, key=lambda o: o.cost)

    def _fewest(self, target: float, gold: int) -> Option | None:
        """Go up, then halve, then interpolate: more answers per task are always better."""
        low, high = 0, 1
        while self._floor(high) > target and high < _MOST:
            low, high = high, high + 1
        reaching = [o.cost for o in self._known.values() if self._does(o, target)]
        while not self._does(self._option(high * self._n_tasks, gold), target):
            too_dear = reaching and self._size(high * self._n_tasks, gold)[2] > min(reaching)
            if high == _MOST or too_dear:
                return None
            low, high = high, min(max(high + 1, int(1.5 * high)), _MOST)
        while high - low > 1:
            middle = (low + high) // 2
            if self._does(self._option(middle * self._n_tasks, gold), target):
                high = middle
            else:
                low = middle
        return self._between(low, high, target, gold)

    def _between(self, low: int, high: int, target: float, gold: int) -> Option:
        """Give some tasks one answer less, in tenths of the tasks, while that is enough."""
        if low >= 1:
            ends = [self._option(n * self._n_tasks, gold) for n in (low, high)]
            # Tasks with few and with many answers average their squared errors.
            power = 2 if self._criterion == "rmse" else 1
            above, below = (o.accuracy(self._criterion) ** power for o in ends)
            needed = (above - target**power) / (above - below) if above > below else 1.0
            for tenths in range(max(1, int(np.ceil(10 * needed))), 10):
                n_answers = -(-self._n_tasks * (10 * low + tenths) // 10)
                option = self._option(n_answers, gold)
                if self._does(option, target):
                    return option
        return self._option(high * self._n_tasks, gold)

    def _does(self, option: Option, target: float) -> bool:
        return option.accuracy(self._criterion) <= target

    def _best_within(self, budget: float) -> Option:
        """Buy all answers that the budget allows, for every number of gold questions."""
        found = []
        for gold in self._golds:
            affordable = self._affordable(budget, gold)
            if affordable is not None and not self._hopeless(affordable, gold):
                found.append(self._option(affordable, gold))
        if not found:
            least = self._size(self._n_tasks, 0)[2]
            raise ConfigError(
                f"a budget of {budget:,.2f} does not buy one answer per task, which costs "
                f"{least:,.2f}; raise it, or ask about fewer tasks"
            )
        return min(found, key=lambda o: (o.accuracy(self._criterion), o.cost))

    def _affordable(self, budget: float, gold: int) -> int | None:
        """Return the most answers within the budget; None where that is not one per task."""
        low, high = self._n_tasks, _MOST * self._n_tasks
        # Prices are decimal, sums are binary: a budget that is met to the cent is met.
        limit = budget * (1 + 1e-9)
        if self._size(low, gold)[2] > limit:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self._size(middle, gold)[2] <= limit else (low, middle - 1)
            )
        return low
