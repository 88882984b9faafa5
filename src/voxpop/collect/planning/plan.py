"""Plans: the accuracy that a budget buys, and the budget that an accuracy needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from voxpop.collect.planning.density import PredictedError, predict_error
from voxpop.collect.planning.learn_crowd import LearnedCrowd, luck, pilot_error
from voxpop.errors import ConfigError, require
from voxpop.models.model import Model
from voxpop.models.theory import oracle_mse

Criterion = Literal["rmse", "half_width"]
CRITERION_NAMES = {"rmse": "RMSE", "half_width": "half-width (95 %)"}
# Answers per task that a frontier looks at, and gold questions per worker.
_PER_TASK = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300)
_GOLD = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Answers per task where nothing else bounds a frontier, and the most that are thought of.
_USUAL, _MOST = 20, 300
# Messages per population: errors of a per cent or less, in a fraction of a second.
_SIZE = 2000


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What things cost, in any currency: an answer, a worker's qualification, a gold question."""

    answer: float = 1.0
    worker: float = 0.0
    gold: float = 0.0

    def __post_init__(self) -> None:
        require(
            0 < self.answer < np.inf, f"the price of an answer must be positive, got {self.answer}"
        )
        for name in ("worker", "gold"):
            price = getattr(self, name)
            require(0 <= price < np.inf, f"price {name} must be 0 or more, got {price}")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to spend money: so many answers per task and worker, and what comes of it.

    ``per_worker`` counts tasks; the ``gold`` questions that every worker also answers come on
    top, and are paid for. ``crowd_error`` is the relative error of RMSE and half-width that comes
    from knowing the crowd by a pilot only; ``luck`` how much, relatively, the RMSE of one campaign
    differs from the next one's, which no prediction can know.
    """

    per_task: float
    per_worker: int
    gold: int
    n_workers: int
    n_answers: int
    cost: float
    prediction: PredictedError
    crowd_error: float = 0.0
    luck: float = 0.0

    def accuracy(self, criterion: Criterion) -> float:
        """RMSE or half-width."""
        return float(getattr(self.prediction, criterion))

    def error(self, criterion: Criterion) -> float:
        """Standard error of that: of the populations, and of the pilot."""
        drawn = float(getattr(self.prediction, f"{criterion}_error"))
        return float(np.hypot(drawn, self.crowd_error * self.accuracy(criterion)))

    def summary(self) -> str:
        """Say what to buy, in words."""
        gold = f" and {self.gold} gold questions" if self.gold else ""
        return (
            f"{self.per_task:.4g} answers per task, {self.n_workers} workers with up to "
            f"{self.per_worker} tasks{gold} each"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Options worth their money, cheapest first, and the one that answers the question.

    Attributes
    ----------
    options
        Everything that was predicted.
    chosen
        The cheapest that reaches the target, or the most accurate within the budget; None where
        neither was asked for.
    """

    model: Model
    n_tasks: int
    criterion: Criterion
    options: tuple[Option, ...]
    chosen: Option | None
    target: float | None = None
    budget: float | None = None

    @cached_property
    def frontier(self) -> tuple[Option, ...]:
        """Options that nothing beats, cheapest first, a mixture of two others included.

        Between two numbers of answers per task lies every average of them: some tasks get more.
        So gold questions must do better than the straight line between the options around them,
        by two standard errors.
        """
        power = 2 if self.criterion == "rmse" else 1
        points = []
        for option in self.options:
            margin = 2 * getattr(option.prediction, f"{self.criterion}_error")
            found = option.accuracy(self.criterion) + (margin if option.gold else 0.0)
            points.append((option.cost, found**power, option))
        kept: list[tuple[float, float, Option]] = []
        for point in sorted(points, key=lambda p: p[:2]):
            if kept and point[1] >= kept[-1][1]:
                continue
            while len(kept) > 1 and _is_above(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        chosen = {self.chosen} if self.chosen else set()
        return tuple(sorted({o for _, _, o in kept} | chosen, key=lambda o: o.cost))

    def columns(self, options: Sequence[Option] | None = None) -> dict[str, list[Any]]:
        """Return the frontier, or other options, as columns of a table."""
        rows = self.frontier if options is None else options
        root = np.sqrt(self.model.dimension)
        return {
            "cost": [o.cost for o in rows],
            "per_task": [o.per_task for o in rows],
            "per_worker": [o.per_worker for o in rows],
            "gold": [o.gold for o in rows],
            "workers": [o.n_workers for o in rows],
            "answers": [o.n_answers for o in rows],
            "rmse": [o.prediction.rmse for o in rows],
            "rmse_error": [o.error("rmse") for o in rows],
            "rmse_luck": [o.luck * o.prediction.rmse for o in rows],
            "half_width_95": [o.prediction.half_width for o in rows],
            "average_rmse": [float(np.sqrt(o.prediction.average_mse) / root) for o in rows],
            "oracle_rmse": [float(np.sqrt(o.prediction.oracle_mse) / root) for o in rows],
        }

    def to_dict(self) -> dict[str, Any]:
        """The question, the answer and the frontier in plain numbers."""
        columns = self.columns([*([self.chosen] if self.chosen else []), *self.frontier])
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        chosen = rows.pop(0) if self.chosen else None
        return {
            "n_tasks": self.n_tasks,
            "criterion": self.criterion,
            "target": self.target,
            "budget": self.budget,
            "levels": list(self.model.support),
            "weights": list(self.model.weights or ()),
            "chosen": chosen,
            "frontier": rows,
        }

    def summary(self) -> str:
        """Answer the question in one line."""
        if self.chosen is None:
            return f"{len(self.frontier)} options are worth their money"
        o, name = self.chosen, CRITERION_NAMES[self.criterion]
        reached = f"{name} {o.accuracy(self.criterion):.4g} ± {o.error(self.criterion):.2g}"
        if self.target is not None:
            asked = f"{name} {self.target:g} costs {o.cost:,.2f}"
        else:
            asked = f"a budget of {self.budget:,.2f} buys {reached}"
            reached = f"{o.cost:,.2f} spent"
        return f"{asked}: {o.summary()} ({reached})"

    def plot(self, path: str | Path) -> Path:
        """Draw the frontier to a PNG, SVG or PDF file, beside the average and the oracle."""
        from voxpop.present.drawing import save_figure
        from voxpop.present.plots import plot_budget

        return save_figure(plot_budget(self).figure, path)


def _is_above(
    left: tuple[float, float, Option], point: tuple[float, float, Option], right: Any
) -> bool:
    """Tell whether a point lies above the line between two others, in cost and error."""
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
                luck=luck(
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
                f"{CRITERION_NAMES[self._criterion]} {target:g} is out of reach: "
                f"{best.per_task:g} answers per task give {best.accuracy(self._criterion):.3g}; "
                "ask for less, or for better workers"
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
