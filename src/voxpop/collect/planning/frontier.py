"""Frontiers: ways to spend money, what each buys, and which are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from voxpop.collect.planning.density import PredictedError
from voxpop.errors import require
from voxpop.models.model import Model
from voxpop.present.drawing import BLUE, GREY, ORANGE, new_axes, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Criterion = Literal["rmse", "half_width"]
NAMES = {"rmse": "RMSE", "half_width": "half-width (95 %)"}


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
        o, name = self.chosen, NAMES[self.criterion]
        reached = f"{name} {o.accuracy(self.criterion):.4g} ± {o.error(self.criterion):.2g}"
        if self.target is not None:
            asked = f"{name} {self.target:g} costs {o.cost:,.2f}"
        else:
            asked = f"a budget of {self.budget:,.2f} buys {reached}"
            reached = f"{o.cost:,.2f} spent"
        return f"{asked}: {o.summary()} ({reached})"

    def plot(self, path: str | Path) -> Path:
        """Draw the frontier to a PNG, SVG or PDF file, beside the average and the oracle."""
        axes = new_axes()
        draw_frontier(self, axes)
        return save_figure(axes.figure, path)


def _is_above(
    left: tuple[float, float, Option], point: tuple[float, float, Option], right: Any
) -> bool:
    """Tell whether a point lies above the line between two others, in cost and error."""
    slope = (right[1] - left[1]) / (right[0] - left[0])
    return bool(point[1] > left[1] + slope * (point[0] - left[0]))


def draw_frontier(plan: Plan, axes: Axes) -> None:
    """Draw accuracy against money: BI with its error, the average above it, the oracle below."""
    rows, name = plan.frontier, plan.criterion
    cost = np.array([o.cost for o in rows])
    accuracy = np.array([o.accuracy(name) for o in rows])
    error = np.array([o.error(name) for o in rows])
    root = np.sqrt(plan.model.dimension)
    if name == "rmse":
        # Neither of the two has any use for gold questions.
        plain = sorted((o for o in plan.options if not o.gold), key=lambda o: o.cost)
        money = [o.cost for o in plain]
        average = [np.sqrt(o.prediction.average_mse) / root for o in plain]
        oracle = [np.sqrt(o.prediction.oracle_mse) / root for o in plain]
        axes.plot(money, average, color=GREY, linestyle="--", label="plain average")
        axes.plot(money, oracle, color=GREY, linestyle=":", label="oracle: all noise known")
    axes.fill_between(cost, accuracy - 2 * error, accuracy + 2 * error, color=BLUE, alpha=0.15)
    axes.plot(cost, accuracy, color=BLUE, marker="o", markersize=4, label="voxpop (± 2 errors)")
    for option in _labelled(rows):
        gold = f" + {option.gold} gold" if option.gold else ""
        axes.annotate(
            f"{option.per_task:.3g}{gold}",
            (option.cost, option.accuracy(name)),
            xytext=(3, 5),
            textcoords="offset points",
            fontsize=8,
            color=BLUE,
        )
    if plan.chosen is not None:
        at = (plan.chosen.cost, plan.chosen.accuracy(name))
        axes.plot(*at, marker="o", markersize=11, color=ORANGE, fillstyle="none", zorder=5)
    if plan.target is not None:
        axes.axhline(plan.target, color=ORANGE, linewidth=0.8)
    if plan.budget is not None:
        axes.axvline(plan.budget, color=ORANGE, linewidth=0.8)
    axes.set(xlabel="cost", ylabel=NAMES[name], yscale="log")
    axes.set_title(f"{plan.n_tasks:,} tasks; numbers are answers per task", fontsize=10)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.tick_params(labelsize=8)
    axes.tick_params(which="minor", labelsize=7)
    axes.grid(which="both", alpha=0.2)
    axes.legend(fontsize=8, frameon=False)


def _labelled(rows: tuple[Option, ...]) -> tuple[Option, ...]:
    """Leave out labels where points crowd: a point needs a twenty-fifth of the width."""
    kept: list[Option] = []
    width = rows[-1].cost - rows[0].cost
    for option in rows:
        if not kept or option.cost - kept[-1].cost >= width / 25:
            kept.append(option)
    return tuple(kept)
