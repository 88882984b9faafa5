"""Plans: the accuracy that a budget buys, and the budget that an accuracy needs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.collect.planning.density import predict_error
from voxpop.collect.planning.learn_crowd import (
    LearnedCrowd,
    pilot_error,
    rmse_sampling_sd,
    shared_error_of,
)
from voxpop.collect.planning.option import Criterion
from voxpop.collect.planning.option import Option as Option
from voxpop.collect.planning.option import Prices as Prices
from voxpop.errors import ConfigError, require
from voxpop.models.model import Model
from voxpop.models.theory import oracle_mse
from voxpop.results.shared_error import SharedError, SharedErrorOption

CRITERION_NAMES = {"rmse": "RMSE", "half_width": "half-width (95 %)"}
# Squared errors average over tasks, and so do half-widths.
_POWER = {"rmse": 2, "half_width": 1}
# Answers per task and gold questions per worker that a frontier considers.
_PER_TASK = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300)
_GOLD = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Answers per worker, unless the number of workers is given.
_CAPACITY = 20
# Answers per task where nothing else bounds a frontier, and the maximum in any case.
_USUAL, _MOST = 20, 300
# Messages per population: standard errors of a per cent or less, in a fraction of a second.
_SIZE = 2000


_Point = tuple[float, float, Option]


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Options with their cost and accuracy, and the one that meets the target or the budget.

    Attributes
    ----------
    options
        All options that were evaluated.
    chosen
        The cheapest option that reaches the target, or the most accurate one within the budget;
        None if neither was given.
    shared
        The error that all workers share, which no option removes: ``truth_rmse`` of the frontier
        has it, the target and the RMSE beside it do not. None where none is allowed for.
    n_known
        How many workers the pilot had; None where there was none, or the user gave the
        number of workers.
    """

    model: Model
    n_tasks: int
    criterion: Criterion
    options: tuple[Option, ...]
    chosen: Option | None
    target: float | None = None
    budget: float | None = None
    shared: SharedError | None = None
    n_known: int | None = None

    @cached_property
    def frontier(self) -> tuple[Option, ...]:
        """Efficient options, cheapest first: no option and no mixture of two is better.

        Averages between two numbers of answers per task are possible, because some tasks can get
        more than others. Gold questions must therefore be better than the line between the
        neighbouring options, by two standard errors.
        """
        kept: list[_Point] = []
        for point in sorted(map(self._point, self.options), key=lambda p: p[:2]):
            if not kept or point[1] < kept[-1][1]:
                while len(kept) > 1 and _is_above(kept[-2], kept[-1], point):
                    kept.pop()
                kept.append(point)
        chosen = {self.chosen} if self.chosen else set()
        return tuple(sorted({o for _, _, o in kept} | chosen, key=lambda o: o.cost))

    def _point(self, option: Option) -> _Point:
        """Cost and error, as it averages over tasks; with a margin for gold questions."""
        margin = 2 * getattr(option.prediction, f"{self.criterion}_error") if option.gold else 0.0
        found = option.accuracy(self.criterion) + margin
        return option.cost, found ** _POWER[self.criterion], option

    def columns(self, options: Sequence[Option] | None = None) -> dict[str, list[Any]]:
        """Return the frontier, or the given options, as columns of a table."""
        rows = [option.row() for option in (self.frontier if options is None else options)]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def to_dict(self) -> dict[str, Any]:
        """Return target, chosen option and frontier as plain values."""
        return {
            "n_tasks": self.n_tasks,
            "criterion": self.criterion,
            "target": self.target,
            "budget": self.budget,
            "levels": list(self.model.support),
            "weights": list(self.model.weights or ()),
            "chosen": None if self.chosen is None else self.chosen.row(),
            "frontier": [option.row() for option in self.frontier],
        }

    def summary(self) -> str:
        """Describe the chosen option in one line."""
        if self.chosen is None:
            return f"{len(self.frontier)} efficient options"
        o, name = self.chosen, CRITERION_NAMES[self.criterion]
        reached = f"{name} {o.accuracy(self.criterion):.4g} ± {o.error(self.criterion):.2g}"
        if self.target is not None:
            asked = f"{name} {self.target:g} costs {o.cost:,.2f}"
        else:
            asked = f"a budget of {self.budget:,.2f} buys {reached}"
            reached = f"{o.cost:,.2f} spent"
        return f"{asked}: {o.summary()} ({reached})"

    def notes(self) -> list[str]:
        """Return what more answers would not buy, what would, and how many workers are missing."""
        advice = [] if self.shared is None else [self.shared.advice()]
        options = self.frontier if self.chosen is None else (self.chosen,)
        needed = max(option.n_workers for option in options)
        if self.n_known is None or needed <= self.n_known:
            return advice
        more = "the plan needs" if self.chosen else "these options need up to"
        return [
            f"{more} {needed} workers, and the pilot had {self.n_known}; if there are no others, "
            f"say so with n_workers={self.n_known} (command line: --workers {self.n_known})",
            *advice,
        ]

    def plot(self, path: str | Path) -> Path:
        """Plot the frontier to a PNG, SVG or PDF file, with the average and the oracle."""
        from voxpop.present.plots import plot_budget, save_figure

        return save_figure(plot_budget(self).figure, path)


def _is_above(left: _Point, point: _Point, right: _Point) -> bool:
    """Return whether a point (cost, error) lies above the line between two others."""
    slope = (right[1] - left[1]) / (right[0] - left[0])
    return bool(point[1] > left[1] + slope * (point[0] - left[0]))


def make_plan(
    crowd: Model | LearnedCrowd,
    rng: np.random.Generator,
    *,
    n_tasks: int,
    rmse: float | None = None,
    half_width: float | None = None,
    budget: float | None = None,
    capacity: int | None = None,
    n_workers: int | None = None,
    max_gold: int = 0,
    prices: Prices | None = None,
    shared_error: SharedErrorOption | SharedError = "auto",
    on_option: Callable[[Option], None] | None = None,
) -> Plan:
    """Find the cheapest option for a target or the best one for a budget, and the whole frontier.

    Every worker answers as many tasks as allowed: fewer workers are then better known.

    Parameters
    ----------
    crowd
        The workers: a model, or the result of :func:`voxpop.learn_crowd` on a pilot.
    rmse, half_width
        Target for the error of a coordinate, or for half of its 95 % interval on average.
    budget
        Money to spend. At most one of the three is given.
    capacity
        Maximum number of answers per worker, including gold questions: 20, or with ``n_workers``
        as many as there are to give.
    n_workers
        How many workers there are, if not as many as it takes: the answers are shared evenly.
    max_gold
        Maximum number of gold questions per worker to consider.
    shared_error
        Kappa, as in :class:`voxpop.Auto`, or what a result's ``calibration.shared`` has learned.
    on_option
        Called with every option as it is evaluated, to show progress.
    """
    _check(rmse, half_width, budget, n_tasks, n_workers)
    if capacity is None:
        capacity = _CAPACITY if n_workers is None else n_tasks + max_gold
    require(
        0 <= max_gold < capacity,
        f"a worker with capacity {capacity} needs room for a task besides the gold questions: "
        f"max_gold must be between 0 and {capacity - 1}, got {max_gold}",
    )
    search = _PlanSearch(
        crowd=LearnedCrowd.of(crowd),
        seed=int(rng.integers(2**62)),
        n_tasks=n_tasks,
        capacity=capacity,
        n_workers=n_workers,
        golds=[gold for gold in _GOLD if gold <= max_gold],
        prices=prices or Prices(),
        criterion="rmse" if half_width is None else "half_width",
        shared=shared_error_of(LearnedCrowd.of(crowd).model, shared_error),
        on_option=on_option,
    )
    return search.run(rmse if half_width is None else half_width, budget)


def _check(
    rmse: float | None,
    half_width: float | None,
    budget: float | None,
    n_tasks: int,
    n_workers: int | None,
) -> None:
    """Refuse numbers for which there is no plan."""
    given = {"rmse": rmse, "half_width": half_width, "budget": budget}
    asked = {name: item for name, item in given.items() if item is not None}
    require(len(asked) <= 1, f"give one of rmse, half_width and budget, got {' and '.join(asked)}")
    for name, item in asked.items():
        require(0 < item < np.inf, f"{name} must be positive, got {item}")
    require(n_tasks >= 1, f"n_tasks must be at least 1, got {n_tasks}")
    require(n_workers is None or n_workers >= 1, f"n_workers must be at least 1, got {n_workers}")


@dataclass
class _PlanSearch:
    """Evaluates options, each once, and searches among them."""

    crowd: LearnedCrowd
    seed: int
    n_tasks: int
    capacity: int
    n_workers: int | None
    golds: list[int]
    prices: Prices
    criterion: Criterion
    shared: SharedError | None
    on_option: Callable[[Option], None] | None
    known: dict[tuple[int, int], Option] = field(default_factory=dict)

    def run(self, target: float | None, budget: float | None) -> Plan:
        """Find the chosen option, then evaluate the frontier around it."""
        if self._most(min(self.golds)) < self.n_tasks:
            raise ConfigError(
                f"{self.n_workers} workers with up to {self.capacity} answers each cannot give "
                f"every one of {self.n_tasks} tasks an answer; raise the capacity"
            )
        chosen = None
        if target is not None:
            chosen = self._cheapest(target)
        elif budget is not None:
            chosen = self._best_within(budget)
        reached = 0.0 if chosen is None else chosen.per_task
        last = _USUAL if chosen is None else min(n for n in _PER_TASK if n > reached or n == _MOST)
        # Options beyond this cost would have gold questions only because answers are capped.
        most = self._cost(last * self.n_tasks, 0)
        for gold in self.golds:
            for n_answers in (n * self.n_tasks for n in _PER_TASK if n <= last):
                if (
                    n_answers <= self._most(gold)
                    and self._cost(n_answers, gold) <= most
                    and not self._dominated(n_answers, gold)
                ):
                    self._option(n_answers, gold)
        return Plan(
            model=self.crowd.model,
            n_tasks=self.n_tasks,
            criterion=self.criterion,
            options=tuple(o for o in self.known.values() if o.cost <= most or o is chosen),
            chosen=chosen,
            target=target,
            budget=budget,
            shared=self.shared,
            n_known=self._n_known(),
        )

    def _n_known(self) -> int | None:
        known = round(float(self.crowd.count.sum()))
        return known if known and self.n_workers is None else None

    def _most(self, gold: int) -> float:
        """Return how many answers the workers can give, each to a task but once."""
        if self.n_workers is None:
            return np.inf
        return self.n_workers * min(self.capacity - gold, self.n_tasks)

    def _workers(self, n_answers: int, gold: int) -> tuple[int, int]:
        """Return tasks per worker, and the number of workers."""
        per_worker = min(self.capacity - gold, self.n_tasks)
        if self.n_workers is not None:
            per_worker = min(per_worker, -(-n_answers // self.n_workers))
        return per_worker, -(-n_answers // per_worker)

    def _cost(self, n_answers: int, gold: int) -> float:
        """Return the cost of a number of answers and of the gold questions."""
        p, (_, n_workers) = self.prices, self._workers(n_answers, gold)
        return n_answers * p.answer + n_workers * (gold * p.answer + p.worker) + gold * p.gold

    def _option(self, n_answers: int, gold: int) -> Option:
        """Predict the accuracy of a number of answers and gold questions per worker."""
        if (n_answers, gold) in self.known:
            return self.known[n_answers, gold]
        model, (per_worker, n_workers) = self.crowd.model, self._workers(n_answers, gold)
        per_task = n_answers / self.n_tasks
        prediction = predict_error(
            model,
            self._rng(n_answers, gold),
            per_task=per_task,
            per_worker=per_worker,
            gold=gold,
            size=int(max(_SIZE, 10 * per_task)),
        )
        luck_rng = self._rng(n_answers, gold, 1)
        self.known[n_answers, gold] = option = Option(
            per_task=per_task,
            per_worker=per_worker,
            gold=gold,
            n_workers=n_workers,
            n_answers=n_answers + n_workers * gold,
            cost=self._cost(n_answers, gold),
            prediction=prediction,
            crowd_error=pilot_error(self.crowd, int(per_task), self._rng(int(per_task))),
            luck=rmse_sampling_sd(model, per_task, self.n_tasks, n_workers, luck_rng),
            shared_variance=0.0 if self.shared is None else self.shared.lasting_rmse**2,
        )
        if self.on_option is not None:
            self.on_option(option)
        return option

    def _rng(self, *key: int) -> np.random.Generator:
        """Random numbers that depend on the option only, not on the order of evaluation."""
        return np.random.default_rng([self.seed, *key])

    def _accuracy(self, option: Option) -> float:
        return option.accuracy(self.criterion)

    def _floor(self, per_task: float) -> float:
        """Lower bound of the criterion: the oracle's RMSE; none for a half-width."""
        if self.criterion == "half_width":
            return 0.0
        model = self.crowd.model
        return float(np.sqrt(oracle_mse(model, per_task) / model.dimension))

    def _dominated(self, n_answers: int, gold: int) -> bool:
        """Return whether a known option costs no more and reaches the lower bound of this one."""
        cost, best = self._cost(n_answers, gold), self._floor(n_answers / self.n_tasks)
        return any(o.cost <= cost and self._accuracy(o) <= best for o in self.known.values())

    def _cheapest(self, target: float) -> Option:
        """Find the cheapest option that reaches the target, over all numbers of gold questions."""
        found = [o for gold in self.golds if (o := self._fewest(target, gold)) is not None]
        if not found:
            best = min(self.known.values(), key=self._accuracy)
            who = "" if self.n_workers is None else f" of {self.n_workers} workers"
            raise ConfigError(
                f"{CRITERION_NAMES[self.criterion]} {target:g} is out of reach: "
                f"{best.per_task:g} answers per task{who} give {self._accuracy(best):.3g}; "
                f"relax the target, or find {'more or ' * bool(who)}better workers"
            )
        return min(found, key=lambda o: o.cost)

    def _fewest(self, target: float, gold: int) -> Option | None:
        """Find the fewest answers that reach the target: accuracy is monotone in their number."""

        def reached(per_task: int) -> bool:
            return self._accuracy(self._option(per_task * self.n_tasks, gold)) <= target

        last = int(min(_MOST, self._most(gold) // self.n_tasks))
        if last < 1:
            return None
        low, high = 0, 1
        while self._floor(high) > target and high < last:
            low, high = high, high + 1
        known = [o.cost for o in self.known.values() if self._accuracy(o) <= target]
        while not reached(high):
            if high == last or self._cost(high * self.n_tasks, gold) > min(known, default=np.inf):
                return None
            low, high = high, min(max(high + 1, int(1.5 * high)), last)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return self._between(low, high, target, gold)

    def _between(self, low: int, high: int, target: float, gold: int) -> Option:
        """Give a multiple of a tenth of the tasks one answer less, if that reaches the target."""
        end = self._option(high * self.n_tasks, gold)
        if low < 1:
            return end
        power, start = _POWER[self.criterion], self._option(low * self.n_tasks, gold)
        above, below = self._accuracy(start) ** power, self._accuracy(end) ** power
        needed = (above - target**power) / (above - below) if above > below else 1.0
        for tenths in range(max(1, int(np.ceil(10 * needed))), 10):
            option = self._option(-(-self.n_tasks * (10 * low + tenths) // 10), gold)
            if self._accuracy(option) <= target:
                return option
        return end

    def _best_within(self, budget: float) -> Option:
        """Find the most accurate option within the budget, over all numbers of gold questions."""
        # Prices are decimal but sums are binary: allow for rounding.
        limit = budget * (1 + 1e-9)
        found = []
        for gold in self.golds:
            most = int(min(_MOST * self.n_tasks, self._most(gold)))
            counts = range(self.n_tasks, most + 1)
            n = bisect_right(counts, limit, key=lambda n_answers: self._cost(n_answers, gold))
            if n and not self._dominated(counts[n - 1], gold):
                found.append(self._option(counts[n - 1], gold))
        if not found:
            raise ConfigError(
                f"a budget of {budget:,.2f} does not buy one answer per task, which costs "
                f"{self._cost(self.n_tasks, 0):,.2f}; raise it, or ask about fewer tasks"
            )
        return min(found, key=lambda o: (self._accuracy(o), o.cost))
