"""Figure 1: simulated crowds of 200 tasks in a 100 x 100 image, over r or l; and section 3.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

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
from voxpop.paper.experiments.runner import Effort, Experiment, Row, Setting
from voxpop.results.metrics import score

SUPPORTS = {"small": (10.0, 100.0, 1000.0), "large": (10.0, 100.0, 5000.0)}
# The paper names neither list, but for "l >= 3" and "l >= 9" among odd numbers.
PER_WORKER = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20)
PER_TASK = (1, 3, 5, 7, 9, 11)
_FIXED = 5
# From this many answers per task on, the weak oracle takes seconds an instance.
_HEAVY_PER_TASK = 11
# Section 3.2: one worker of a task is nearly exact, the others have variance x.
EXAMPLE = Model(support=(0.01, 100.0), weights=(0.2, 0.8), dimension=2)
EXAMPLE_PER_TASK, EXAMPLE_PER_WORKER = 5, 10


def paper_model(support: str) -> Model:
    """The model of figure 1: points in the plane, levels equally likely."""
    return Model(support=SUPPORTS[support], dimension=2)


def _plan(figure: str) -> Callable[[Effort, Path], list[tuple[Setting, int]]]:
    support = "small" if figure in ("fig1a", "fig1c") else "large"
    over_r = figure in ("fig1a", "fig1b")

    def plan(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
        if over_r:
            pairs = [(_FIXED, per_worker) for per_worker in PER_WORKER]
        else:
            pairs = [(per_task, _FIXED) for per_task in PER_TASK]
        return [
            (
                {
                    "support": support,
                    "n_tasks": effort.n_tasks,
                    "per_task": per_task,
                    "per_worker": per_worker,
                },
                effort.heavy if per_task >= _HEAVY_PER_TASK else effort.instances,
            )
            for per_task, per_worker in pairs
        ]

    return plan


def run_figure(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Draw one crowd of figure 1, and score the paper's five estimators on it."""
    model = paper_model(str(setting["support"]))
    n_tasks, per_task, per_worker = (
        int(setting[name]) for name in ("n_tasks", "per_task", "per_worker")
    )
    crowd = simulate(model, assign_regular(n_tasks, per_task, per_worker, rng), rng)
    return compare(crowd, paper_methods(crowd, model))


def paper_methods(crowd: Simulation, model: Model) -> dict[str, Estimator]:
    """The five of section 5, the levels known to BI and to the weak oracle as in the paper."""
    return {
        "average": Average(),
        "nbi": NBI(),
        "bi": BI(support=model.support, weights=model.weights),
        "weak-oracle": WeakOracle(
            support=model.support, weights=model.weights, variances=crowd.variances
        ),
        "strong-oracle": StrongOracle(variances=crowd.variances),
    }


def compare(crowd: Simulation, methods: Mapping[str, Estimator]) -> list[Row]:
    """Fit each method and score it: mean squared distance, coverage, whether it settled."""
    rows: list[Row] = []
    for name, estimator in methods.items():
        result = estimator.fit(crowd.answers)
        found = score(result, crowd.truth)
        rows.append(
            {
                "method": name,
                "mse": found.mse,
                "coverage_95": found.coverage_95,
                "converged": result.trace.converged,
            }
        )
    return rows


def _plan_example(effort: Effort, data: Path) -> list[tuple[Setting, int]]:  # noqa: ARG001
    return [({"n_tasks": effort.n_tasks}, effort.draws)]


def run_example(setting: Setting, rng: np.random.Generator, data: Path) -> list[Row]:  # noqa: ARG001
    """Give every task one nearly exact worker and four poor ones, and nobody knows who is who."""
    n_tasks, others = int(setting["n_tasks"]), EXAMPLE_PER_TASK - 1
    good = assign_regular(n_tasks, 1, EXAMPLE_PER_WORKER, rng)
    poor = assign_regular(n_tasks, others, EXAMPLE_PER_WORKER, rng)
    task = np.concatenate([good.task, poor.task])
    worker = np.concatenate([good.worker, good.n_workers + poor.worker])
    n_workers = good.n_workers + poor.n_workers
    level = np.repeat(EXAMPLE.levels, [good.n_workers, poor.n_workers])
    assignment = Assignment(task, worker, n_tasks, n_workers)
    crowd = simulate(EXAMPLE, assignment, rng, worker_variance=level)
    methods = paper_methods(crowd, EXAMPLE)
    del methods["weak-oracle"]  # section 3.2 does not speak of it
    return compare(crowd, methods)


FIGURES = [
    Experiment(name=name, title=title, plan=_plan(name), run=run_figure)
    for name, title in (
        ("fig1a", "S_small, l = 5, error over r"),
        ("fig1b", "S_large, l = 5, error over r"),
        ("fig1c", "S_small, r = 5, error over l"),
        ("fig1d", "S_large, r = 5, error over l"),
    )
]
EXAMPLE_RUN = Experiment(
    name="example",
    title="one precise worker per task (section 3.2)",
    plan=_plan_example,
    run=run_example,
)
