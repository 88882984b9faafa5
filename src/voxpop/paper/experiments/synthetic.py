"""Figure 1: simulated crowds of 200 tasks in a 100 x 100 image, over r or l; and section 3.2."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from voxpop.collect.assignment.random_graphs import Assignment, assign_regular
from voxpop.estimators.base import Estimator
from voxpop.estimators.baselines.averages import Average
from voxpop.estimators.baselines.nbi import NBI
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bounds.oracles import StrongOracle
from voxpop.estimators.bounds.weak_oracle import WeakOracle
from voxpop.models.model import Model
from voxpop.models.simulation import Simulation, simulate
from voxpop.models.theory import average_mse, oracle_mse
from voxpop.paper.demo import compare
from voxpop.paper.experiments.runner import Effort, Experiment, Plan, Row, Setting

SUPPORTS = {"small": (10.0, 100.0, 1000.0), "large": (10.0, 100.0, 5000.0)}
METHODS = ("average", "nbi", "bi", "weak-oracle", "strong-oracle")
"""The five of section 5."""
FORMULAS = {"average": average_mse, "strong-oracle": oracle_mse}
"""Expected errors by section 3.2, as functions of the model and the answers per task."""
# The paper names neither list, but for "l >= 3" and "l >= 9" among odd numbers.
PER_WORKER = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
PER_TASK = (1, 3, 5, 7, 9, 11)
_FIXED = 5
# From this many answers per task on, the weak oracle takes seconds per instance.
_HEAVY_PER_TASK = 11
# Section 3.2: one worker of a task is nearly exact, the others have variance x.
EXAMPLE = Model(support=(0.01, 100.0), weights=(0.2, 0.8), dimension=2)
EXAMPLE_PER_TASK, EXAMPLE_PER_WORKER = 5, 10


class Panel(NamedTuple):
    """A panel of figure 1: its noise levels, and the degree that varies; the other one is 5."""

    support: str
    varies: Literal["per_worker", "per_task"]

    @property
    def symbol(self) -> str:
        """The paper's letter for the degree that varies."""
        return "r" if self.varies == "per_worker" else "l"


PANELS = {
    "fig1a": Panel("small", "per_worker"),
    "fig1b": Panel("large", "per_worker"),
    "fig1c": Panel("small", "per_task"),
    "fig1d": Panel("large", "per_task"),
}


def paper_model(support: str) -> Model:
    """The model of figure 1: points in the plane, levels equally likely."""
    return Model(support=SUPPORTS[support], dimension=2)


def paper_methods(
    crowd: Simulation, model: Model, *, weak_oracle: bool = False
) -> dict[str, Estimator]:
    """The methods of section 5; BI and the weak oracle know the levels, as in the paper."""
    support, weights, variances = model.support, model.weights, crowd.variances
    methods: dict[str, Estimator] = {
        "average": Average(),
        "nbi": NBI(),
        "bi": BI(support=support, weights=weights),
    }
    if weak_oracle:
        known = WeakOracle(support=support, weights=weights, variances=variances)
        methods["weak-oracle"] = known
    return methods | {"strong-oracle": StrongOracle(variances=variances)}


def score_rows(crowd: Simulation, methods: dict[str, Estimator]) -> list[Row]:
    """Fit each method and score it: mean squared distance, coverage, whether it converged."""
    return [
        {
            "method": run.label,
            "mse": run.score.mse,
            "coverage_95": run.score.coverage_95,
            "converged": run.result.trace.converged,
        }
        for run in compare(crowd, methods)
    ]


def _plan_panel(panel: Panel, effort: Effort, _data: Path) -> Plan:
    if panel.varies == "per_worker":
        degrees = [(_FIXED, per_worker) for per_worker in PER_WORKER]
    else:
        degrees = [(per_task, _FIXED) for per_task in PER_TASK]
    crowd: Setting = {"support": panel.support, "n_tasks": effort.n_tasks}
    return [
        (
            {**crowd, "per_task": per_task, "per_worker": per_worker},
            effort.heavy if per_task >= _HEAVY_PER_TASK else effort.instances,
        )
        for per_task, per_worker in degrees
    ]


def run_panel(setting: Setting, rng: np.random.Generator, _data: Path) -> list[Row]:
    """Draw one crowd of figure 1, and score the paper's five estimators on it."""
    model = paper_model(str(setting["support"]))
    n_tasks, per_task, per_worker = (
        int(setting[name]) for name in ("n_tasks", "per_task", "per_worker")
    )
    crowd = simulate(model, assign_regular(n_tasks, per_task, per_worker, rng), rng)
    return score_rows(crowd, paper_methods(crowd, model, weak_oracle=True))


def run_example(setting: Setting, rng: np.random.Generator, _data: Path) -> list[Row]:
    """Give every task one nearly exact worker and four poor ones, and nobody knows who is who."""
    n_tasks, others = int(setting["n_tasks"]), EXAMPLE_PER_TASK - 1
    good = assign_regular(n_tasks, 1, EXAMPLE_PER_WORKER, rng)
    poor = assign_regular(n_tasks, others, EXAMPLE_PER_WORKER, rng)
    assignment = Assignment(
        np.concatenate([good.task, poor.task]),
        np.concatenate([good.worker, good.n_workers + poor.worker]),
        n_tasks,
        good.n_workers + poor.n_workers,
    )
    level = np.repeat(EXAMPLE.levels, [good.n_workers, poor.n_workers])
    crowd = simulate(EXAMPLE, assignment, rng, worker_variance=level)
    return score_rows(crowd, paper_methods(crowd, EXAMPLE))


FIGURES = [
    Experiment(
        name=name,
        title=f"figure 1{name[-1]}: S_{panel.support}, error over {panel.symbol}",
        plan=partial(_plan_panel, panel),
        run=run_panel,
    )
    for name, panel in PANELS.items()
]
EXAMPLE_RUN = Experiment(
    name="example",
    title="one precise worker per task (section 3.2)",
    plan=lambda effort, _: [({"n_tasks": effort.n_tasks}, effort.draws)],
    run=run_example,
)
