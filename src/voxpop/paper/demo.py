"""The demo: a simulated crowd with spammers, and every method's error on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from voxpop.collect.assignment.random_graphs import assign_regular
from voxpop.estimators import comparison
from voxpop.estimators.base import Estimator
from voxpop.estimators.registry import make_estimator
from voxpop.models.model import Model
from voxpop.models.simulation import Simulation, simulate
from voxpop.results.metrics import Score, score
from voxpop.results.result import Result

# A few experts, many fair workers, and a fifth who hardly look.
DEMO_MODEL = Model(support=(10, 100, 5000), weights=(0.3, 0.5, 0.2), dimension=2)


@dataclass(frozen=True, kw_only=True)
class MethodRun:
    """One method on one crowd: its result, its score against the truth, and its time."""

    label: str
    result: Result
    score: Score
    seconds: float


def demo_crowd(n_tasks: int, per_task: int, per_worker: int, seed: int) -> Simulation:
    """Simulate points in a 100 x 100 image, clicked by a crowd with spammers."""
    rng = np.random.default_rng(seed)
    return simulate(DEMO_MODEL, assign_regular(n_tasks, per_task, per_worker, rng), rng)


def demo_methods(crowd: Simulation) -> dict[str, Estimator]:
    """Every method that can run on a crowd of this size, the oracle last."""
    levels = {"support": DEMO_MODEL.support, "weights": DEMO_MODEL.weights}
    return {
        **{name: make_estimator(name) for name in ("average", "median", "nbi")},
        "bi, levels from nbi": make_estimator("bi", {"support": "nbi"}),
        "bi, levels learned": make_estimator("bi"),
        # Simulated workers share no error.
        "auto": make_estimator("auto", {"shared_error": 0.0}),
        "bi, levels known": make_estimator("bi", levels),
        "strong oracle": make_estimator("strong-oracle", {"variances": crowd.variances}),
    }


def compare(crowd: Simulation, methods: Mapping[str, Estimator]) -> list[MethodRun]:
    """Run each method on the crowd and score it against the truth."""
    found = comparison.compare(crowd.answers, methods)
    runs = []
    for label, result in found.results.items():
        scored = score(result, crowd.truth, crowd.worker_variance)
        seconds = found.seconds[label]
        runs.append(MethodRun(label=label, result=result, score=scored, seconds=seconds))
    return runs
