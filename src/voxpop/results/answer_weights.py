"""Weights: the share of every answer in the estimate of its task, for one task or all at once."""

from __future__ import annotations

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.errors import DataError
from voxpop.results.diagnosis.groups import answer_shares
from voxpop.results.prediction import (
    SLIP,
    coordinate_factor,
    difficulty_of,
    freed_of_habits,
    level_mixture,
    with_slips,
)
from voxpop.results.result import Result
from voxpop.results.scaled import result_on_scale
from voxpop.words import percent

# Quadrature nodes over the posterior of the truth, to judge how likely an answer is a slip.
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
# Levels with less than this share of a worker's precision are left out.
_NEGLIGIBLE = 1e-9
# Numbers in flight in one block: 8 MB.
_BLOCK_NUMBERS = 1_000_000


def require_match(answers: Answers, result: Result) -> None:
    """Refuse a result that was not made from these answers."""
    if not (
        np.array_equal(answers.task_ids, result.task_ids)
        and np.array_equal(answers.worker_degree, result.worker_answers)
    ):
        raise DataError(
            f"the result belongs to other answers: it has {len(result.task_ids)} tasks and "
            f"{int(result.worker_answers.sum())} answers, the table {answers.n_tasks} and "
            f"{answers.n_edges}; aggregate them again"
        )


def answer_weights(
    answers: Answers, result: Result, tasks: Index | None = None
) -> tuple[Floats, str]:
    """Share of every answer in the estimate of its task, and the meaning of the share in words.

    The shares of a task add up to one. They are given for the answers to ``tasks``, task by task,
    or for all answers in the order of the edges. See :func:`voxpop.explain`.
    """
    answers, result = result_on_scale(answers, result)
    chosen = np.arange(answers.n_tasks) if tasks is None else np.asarray(tasks)
    degree = answers.task_degree[chosen]
    first = np.append(0, np.cumsum(degree)[:-1])
    edges = np.repeat(answers.task_ptr[chosen] - first, degree) + np.arange(degree.sum())
    value, owner = answers.value[edges], np.repeat(np.arange(len(chosen)), degree)
    counted = answer_shares(answers, result.settings)[edges]
    if "median" in (result.settings.get("method"), result.settings.get("chosen")):
        return _middle(value, owner, first), "all on the median answer, or on the middle two"
    if result.levels.size:
        # Workers who depend on each other share one answer.
        trust = _precision(answers, result, edges) * counted[:, None]
        meaning = "share of the answer in the expected precision"
    else:
        trust = result.worker_weight[answers.worker[edges]][:, None]
        meaning = "share of the method's weight of each worker"
    # Divided by the largest first: a precision may be as large as float64 allows.
    trust = trust / np.maximum.reduceat(trust, first)[owner]
    weight = (trust / np.add.reduceat(trust, first)[owner]).mean(axis=1)
    if result.alike_share:
        equal = counted / np.add.reduceat(counted, first)[owner]
        weight = (1.0 - result.alike_share) * weight + result.alike_share * equal
        meaning += f"; {percent(result.alike_share)} of it spread equally over all workers"
    return np.asarray(weight), meaning


def _middle(value: Floats, owner: Index, first: Index) -> Floats:
    """Share of each answer in the median of its task, averaged over the coordinates."""
    n, d = value.shape
    degree = np.diff(np.append(first, n))
    weight = np.zeros(n)
    for j in range(d):
        ordered = value[np.lexsort((value[:, j], owner)), j]
        for place in ((degree - 1) // 2, degree // 2):
            # Equal answers get equal shares.
            equal = (value[:, j] == ordered[first + place][owner]).astype(np.float64)
            weight += equal / np.add.reduceat(equal, first)[owner] / (2 * d)
    return weight


def _precision(answers: Answers, result: Result, edges: Index) -> Floats:
    """Expected 1 / variance of answers (E, d) over levels, and over tail steps given the residual.

    The posterior of the level includes this answer already; the tail step, and whether it is a
    slip, is drawn anew for each answer, so its posterior is computed here::

        w = Σ_k p_u(k) E_x[ Σ_t r_kt(x) / v_kt ],   r_kt(x) ∝ tail(t) N(a - b | x, v_kt)
    """
    level, tail = level_mixture(result)
    worker, task = answers.worker[edges], answers.task[edges]
    d = answers.dimension
    # Levels are of answers freed of bias and gain.
    value, doubt = freed_of_habits(result, answers.value[edges], worker)
    if result.worker_gain.size:
        away = result.estimate[task] - np.array(result.noise.gain_centre)
        doubt = doubt + (result.worker_gain_sd[worker] * away) ** 2
        doubt = doubt / result.worker_gain[worker] ** 2
    factor = difficulty_of(result, task)[:, None] * coordinate_factor(result)
    share = result.worker_posterior / result.worker_posterior.sum(axis=1, keepdims=True)
    known = share / level[:, 0]
    kept = known > _NEGLIGIBLE * known.sum(axis=1, keepdims=True)
    # Posterior sd of the truth, in units of the noise before stretching.
    sd = np.sqrt(result.agreement_variance[task]) / result.calibration.stretch
    residual = value - result.estimate_before_gold[task]
    found = np.zeros((len(edges), d))
    # Pairs of an answer and a level that its worker may have.
    row, k = np.nonzero(kept[worker])
    step = max(1, _BLOCK_NUMBERS // (len(_NODES) * len(tail) * d))
    for start in range(0, len(row), step):
        e, at = row[start : start + step], k[start : start + step]
        share_of, times = with_slips(result, worker[e], tail, np.ones(len(tail)))
        wide = level[at]
        if len(times) > len(tail):
            wide = np.column_stack([wide, wide.max(axis=1) * SLIP**2])
        variance = wide[:, :, None] * factor[e][:, None] + doubt[e][:, None]
        precise = _given_residual(residual[e], sd[e], variance, share_of)
        np.add.at(found, e, share[worker[e], at][:, None] * precise)
    return found


def _given_residual(residual: Floats, sd: Floats, variance: Floats, tail: Floats) -> Floats:
    """Expected 1 / variance (P, d) over the steps of ``variance`` (P, T, d), of shares (P, T)."""
    if tail.shape[1] == 1:
        return np.asarray(1.0 / variance[:, 0])
    away = residual[:, None] - _NODES[:, None] * sd[:, None]
    with np.errstate(divide="ignore"):
        scale = np.log(tail)[:, :, None] - 0.5 * np.log(variance)
    log_part = scale[:, :, None] - 0.5 * (away**2)[:, None] / variance[:, :, None]
    part = np.exp(log_part - log_part.max(axis=1, keepdims=True))
    part /= part.sum(axis=1, keepdims=True)
    at = np.einsum("ptqd,ptd->pqd", part, 1.0 / variance)
    return np.asarray(np.einsum("pqd,q->pd", at, _NODE_WEIGHTS / _NODE_WEIGHTS.sum()))
