"""Shared: allow for an error that all workers share, after any method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.exact import exact_sum, exact_value
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result
from voxpop.results.shared_error import SharedError, SharedErrorOption, typical_answer_variance


def with_shared_error(
    answers: Answers,
    result: Result,
    option: SharedErrorOption,
    bounds: tuple[float, float] | None = None,
) -> Result:
    """Widen the intervals of a result to hold the truth, by an error that all workers share.

    Its variance is that of one answer, as this result finds it, times kappa: the ``option`` is
    "auto" for the prior of kappa, or kappa itself, and 0 leaves the result as it is.
    """
    shared = SharedError.option(option)
    if shared is None:
        return result
    # The distance of an answer from a known truth includes the shared error.
    counted = (answers.task_degree > 1)[answers.task]
    unknown = counted & ~answers.is_gold[answers.task]
    edges = np.flatnonzero(unknown if unknown.any() else counted)
    if not len(edges):
        return result
    weight = worker_weights(result, answers.worker_degree)
    one = typical_answer_variance(*residuals(answers, result, edges, weight))
    return allow_for(result, shared, one, bounds)


def residuals(
    answers: Answers, result: Result, edges: Index, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """Some answers minus their estimates, the variances of these, and the weight of each answer."""
    task = answers.task[edges]
    residual = answers.value[edges] - result.estimate[task]
    return residual, result.agreement_variance[task], weight[answers.worker[edges]]


def worker_weights(result: Result, degree: Index) -> Floats:
    """Weight of an answer of each worker (m,), one on average over all answers."""
    trusted, alike = result.worker_weight, result.alike_share
    mean = exact_value(exact_sum(trusted * degree)) / int(degree.sum())
    return np.asarray((1.0 - alike) * trusted / mean + alike)


def allow_for(
    result: Result, shared: SharedError, one: Floats, bounds: tuple[float, float] | None
) -> Result:
    """Allow for a shared error, given the variance (d,) of one answer."""
    shared = replace(shared, answer_variance=tuple(one.tolist()), bounds=bounds)
    return result.calibrated(Calibration(shared=shared))
