"""Fitting answers in parts: the estimators' own steps, over messages that are elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.exact import exact_sum, exact_value, largest_by_owner, owner_sums, owner_values
from voxpop.data.sums import residuals
from voxpop.errors import ConfigError
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.bi.bi import BI
from voxpop.estimators.bi.noise_levels import (
    LEARNING_ACCURACY,
    ChosenModel,
    Spread,
    learn_levels,
    median_distance,
    usual_variance,
)
from voxpop.models.model import Model
from voxpop.partitions.audit import audit_of_counts
from voxpop.partitions.default import fit_default
from voxpop.partitions.finish import KnownLevels, find_tasks, finish, kernels_used, no_answers
from voxpop.partitions.passing import PartitionedMessages
from voxpop.partitions.steps import Part, Steps, Totals
from voxpop.results.result import Result


def fit_for_parts(estimator: Estimator) -> BI | Auto:
    """Return the method; refuse, before any work, one that needs all answers in memory."""
    if getattr(estimator, "backend", "auto") == "gpu":
        raise ConfigError(
            "answers in parts are computed on the CPU, got backend 'gpu'; use --engine "
            "local, or backend 'auto'"
        )
    if isinstance(estimator, Auto):
        return estimator
    if not isinstance(estimator, BI):
        raise ConfigError(
            f"answers in parts can be fitted by auto and bi, not by {estimator.name}; "
            "use --engine local, or --method auto or bi"
        )
    plain_prior = isinstance(estimator.prior_mean, int | float | tuple)
    if not (
        estimator.is_plain
        and estimator.support != "nbi"
        and estimator.scale == "linear"
        and not estimator.shared_error
        and plain_prior
    ):
        raise ConfigError(
            "answers in parts can be fitted by bi with levels that are given or learned; for "
            "--support nbi, --noise, --scale, --bounds, --shared-error and priors by task use "
            "--engine local"
        )
    return estimator


def fit_parts(
    estimator: BI | Auto, steps: Steps, scratch: Path, on_sweep: OnSweep | None
) -> tuple[Result, str]:
    """Fit BI or the default, and write the tables of the tasks into the folder of the run.

    Return the result of all parts except their tasks, and the id of the run.
    """
    if isinstance(estimator, Auto):
        return fit_default(estimator, steps, scratch, on_sweep)
    parts = steps.job.parts
    chosen = _choose_model(estimator, steps, on_sweep)
    messages = PartitionedMessages(steps, estimator.engine().on_host(), chosen.model)
    settled = estimator.settle(messages, chosen, on_sweep)
    if on_sweep is not None:
        on_sweep("estimates", 1, np.inf, estimator.tol)
    totals = steps.total(partial(find_tasks, incoming=messages.incoming, settled=settled), "reads")
    settled.settings["inference_used"] = kernels_used(totals)
    audit = audit_of_counts(totals, exact=False)
    known = KnownLevels(settled, chosen.notes)
    shown = replace(known, audit=audit, settings=settled.settings)
    result = shown.result(*no_answers(parts, parts.worker_ids(scratch)))
    return finish(steps, known, result, estimator.support == "auto")


def _choose_model(estimator: BI, steps: Steps, on_sweep: OnSweep | None) -> ChosenModel:
    base = estimator.base_model(estimator.prior_mean, steps.job.parts.dimension)
    if estimator.support != "auto":
        assert not isinstance(estimator.support, str)
        return ChosenModel(base.with_levels(estimator.support, estimator.weights))
    engine = replace(estimator.engine().on_host(), accuracy=LEARNING_ACCURACY)

    def open_messages(model: Model) -> PartitionedMessages:
        return PartitionedMessages(steps, engine, model)

    return learn_levels(_spread(steps), open_messages, base, estimator.max_iter, on_sweep)


def measure_spread(part: Part) -> Totals:
    """Return largest distances from answers to the same task, by worker; sums by coordinate."""
    answers = part.answers
    squared = median_distance(answers)
    within = [exact_sum(column**2) for column in residuals(answers).T]
    return {
        "largest": largest_by_owner(answers.worker, squared, answers.n_workers),
        "largest_value": np.array([np.abs(answers.value).max()]),
        "within": np.stack(within),
        "sums": np.stack([exact_sum(column) for column in answers.value.T]),
    }


def sum_distances(part: Part, largest: Floats, mean: Floats) -> Totals:
    """Sum squared distances from the tasks' medians by worker, and from the ``mean`` of all."""
    answers = part.answers
    about = [exact_sum(column**2) for column in (answers.value - mean).T]
    sums = owner_sums(answers.worker, median_distance(answers), largest)
    return {"distance": sums, "about": np.stack(about)}


def _spread(steps: Steps) -> Spread:
    """Do as :meth:`Spread.of` does."""
    parts = steps.job.parts
    first = steps.total(measure_spread)
    largest = first["largest"]
    mean = np.array([exact_value(limbs) / parts.n_answers for limbs in first["sums"]])
    second = steps.total(partial(sum_distances, largest=largest, mean=mean))
    distance = owner_values(second["distance"], largest)
    freedom, biggest = parts.n_answers - parts.n_tasks, float(first["largest_value"][0])
    within = np.array([exact_value(limbs) for limbs in first["within"]])
    if freedom:
        variance = within / freedom
    else:
        about = np.array([exact_value(limbs) for limbs in second["about"]]) / parts.n_answers
        variance = np.where(about > 0, about, biggest**2)
    assert parts.rounding is not None
    return Spread(
        parts.worker_degree,
        distance / parts.worker_degree / parts.dimension,
        usual_variance(variance, biggest),
        parts.rounding,
    )
