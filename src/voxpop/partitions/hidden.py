"""Hidden gold over parts: known truths hidden fold by fold, to check the intervals with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from voxpop.arrays import Index
from voxpop.data.sums import mean_by_task
from voxpop.estimators.conformal import FOLDS, HiddenGold, folds_of
from voxpop.inference.kernels.posterior import Posterior
from voxpop.partitions.finish import Known, found_result
from voxpop.partitions.parts import part_name
from voxpop.partitions.steps import Part, Steps, Totals, joined
from voxpop.results.calibration import Calibration, calibrated


def count_gold(part: Part) -> Totals:
    """Count known truths, and answers to tasks that have several; one for workers of gold tasks."""
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


def gather_gold(part: Part) -> Totals:
    """Gather ids, mean answers and truths of the gold tasks of a part."""
    answers, gold = part.answers, part.answers.is_gold
    assert answers.gold is not None
    ids = part.job.parts.task_ids(part.number, part.scratch)[gold].tolist()
    return part.own(
        id=np.array([str(i) for i in ids], dtype=np.str_),
        mean=mean_by_task(answers, answers.value)[gold],
        truth=answers.gold[gold],
    )


def put_in_folds(part: Part, folds: Sequence[Index]) -> Totals:
    """Write the fold of every gold task of a part, -1 for others; ``folds`` has all parts'."""
    gold = part.answers.is_gold
    fold = np.full(len(gold), -1)
    fold[gold] = folds[part.number]
    part.store.write_array(part_name(part.number, "fold.npy"), fold)
    return {}


def gather_hidden(part: Part, known: Known) -> Totals:
    """Gather the posteriors of the hidden gold tasks, mapped as the others show."""
    answers, job = part.answers, part.job
    truth = job.parts.answers(part.number, part.scratch, job.on_scale).gold
    assert truth is not None
    hidden = ~np.isnan(truth[:, 0]) & ~answers.is_gold
    result = found_result(part, answers, known)
    by = Calibration(gold_map=result.calibration.gold_map)
    there = calibrated(result._agreed, by).rows(hidden)
    return part.own(
        estimate=there.estimate,
        variance=there.variance,
        quantile=there.quantile,
        truth=truth[hidden],
    )


def hide_gold_in_parts(steps: Steps, fit: Callable[[], Known]) -> HiddenGold:
    """Hide gold fold by fold and fit again, as :func:`voxpop.estimators.conformal.hide_gold`."""
    n_parts = steps.job.parts.n_parts
    gold = steps.total(gather_gold)
    ids, mean, truth = joined(gold, n_parts, "id", "mean", "truth")
    sizes = [len(gold[f"id-{part}"]) for part in range(n_parts)]
    folds = np.split(folds_of(ids.tolist(), mean, truth), np.cumsum(sizes)[:-1])
    steps.total(partial(put_in_folds, folds=folds))
    parts, truths = [], []
    for fold in range(FOLDS):
        steps.job = replace(steps.job, hidden=fold)
        found = steps.total(partial(gather_hidden, known=fit()))
        *posterior, truth = joined(found, n_parts, "estimate", "variance", "quantile", "truth")
        parts.append(Posterior(*posterior))
        truths.append(truth)
    steps.job = replace(steps.job, hidden=None)
    return HiddenGold(Posterior.join(parts), np.concatenate(truths))
