"""Hidden gold over parts: known truths hidden fold by fold, to check the intervals with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from voxpop.arrays import Index
from voxpop.data.sums import mean_by_task
from voxpop.estimators.conformal import FOLDS, HiddenGold, folds_of
from voxpop.inference.kernels.posterior import Posterior
from voxpop.partitions.finish import Known, found_result
from voxpop.partitions.parts import array_bytes, part_name
from voxpop.partitions.steps import Part, Steps, Totals, joined
from voxpop.partitions.store import Store
from voxpop.results.calibration import Calibration, calibrated


@dataclass(frozen=True, eq=False)
class CountGold:
    """Count known truths, and answers to tasks that have several."""

    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the counts of a part, and one for the workers who answered gold tasks."""
        answers = part.answers
        gold, degree = answers.is_gold, answers.task_degree
        found = {
            "gold": np.array([gold.sum()]),
            "several": np.array([degree[degree > 1].sum()]),
            "open": np.array([degree[(degree > 1) & ~gold].sum()]),
        }
        if answers.gold is not None:
            found["anchored"] = np.zeros(answers.n_workers)
            found["anchored"][answers.worker[gold[answers.task]]] = 1.0
        return found


@dataclass(frozen=True, eq=False)
class GatherGold:
    """Gather ids, mean answers and truths of gold tasks."""

    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return those of a part."""
        answers, gold = part.answers, part.answers.is_gold
        assert answers.gold is not None
        ids = part.job.parts.task_ids(part.number, part.scratch)[gold].tolist()
        return {
            f"id-{part.number}": np.array([str(i) for i in ids], dtype=np.str_),
            f"mean-{part.number}": mean_by_task(answers, answers.value)[gold],
            f"truth-{part.number}": answers.gold[gold],
        }


@dataclass(frozen=True, eq=False)
class PutInFolds:
    """Write the fold of every gold task of a part, -1 for others; ``folds`` has all parts'."""

    folds: tuple[Index, ...]
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return nothing."""
        gold = part.answers.is_gold
        fold = np.full(len(gold), -1)
        fold[gold] = self.folds[part.number]
        name = part_name(part.number, "fold.npy")
        Store(part.job.parts.where).write(name, array_bytes(fold))
        return {}


@dataclass(frozen=True, eq=False)
class GatherHidden:
    """Gather the posteriors of the hidden gold tasks, mapped as the others show."""

    known: Known
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the estimates, variances, quantiles and truths of a part."""
        answers, job = part.answers, part.job
        truth = job.parts.answers(part.number, part.scratch, job.on_scale).gold
        assert truth is not None
        hidden = ~np.isnan(truth[:, 0]) & ~answers.is_gold
        result = found_result(part, answers, self.known)
        by = Calibration(gold_map=result.calibration.gold_map)
        there = calibrated(result._agreed, by).rows(hidden)
        found = {
            "estimate": there.estimate,
            "variance": there.variance,
            "quantile": there.quantile,
            "truth": truth[hidden],
        }
        return {f"{name}-{part.number}": array for name, array in found.items()}


def hide_gold_in_parts(steps: Steps, fit: Callable[[], Known]) -> HiddenGold:
    """Hide gold fold by fold and fit again, as :func:`voxpop.estimators.conformal.hide_gold`."""
    n_parts = steps.job.parts.n_parts
    gold = steps.total(GatherGold())
    ids, mean, truth = (joined(gold, name, n_parts) for name in ("id", "mean", "truth"))
    sizes = [len(gold[f"id-{part}"]) for part in range(n_parts)]
    folds = np.split(folds_of(ids.tolist(), mean, truth), np.cumsum(sizes)[:-1])
    steps.total(PutInFolds(tuple(folds)))
    parts, truths = [], []
    for fold in range(FOLDS):
        steps.job = replace(steps.job, hidden=fold)
        found = steps.total(GatherHidden(fit()))
        names = ("estimate", "variance", "quantile")
        parts.append(Posterior(*(joined(found, name, n_parts) for name in names)))
        truths.append(joined(found, "truth", n_parts))
    steps.job = replace(steps.job, hidden=None)
    return HiddenGold(Posterior.join(parts), np.concatenate(truths))
