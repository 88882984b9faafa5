"""The plug-in audit: every answer predicted by the weighted mean of the others to its task."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.leave_one_out import NO_WEIGHT, weighted_left_out
from voxpop.results.audit import Audit

# Beyond this many numbers only the summary of the audit is kept.
MOST_KEPT = 4_000_000
# Tasks per block, which bounds the memory.
_TASKS_AT_ONCE = 50_000


def plug_in_audit(
    answers: Answers,
    estimate: Floats,
    variance: Floats,
    levels: Floats,
    posterior: Floats,
    most_kept: int | None = None,
) -> Audit:
    """Predict every answer by the precision-weighted mean of the others, variances taken as known.

    For methods without leave-one-out integrals. With w_v = 1 / s_v the precision of worker v, the
    answer of u to task i is predicted by the mean of the others weighted by w, with variance
    s_u + 1 / Σ w; where the method has levels, by a mixture over the levels of u. Answers to gold
    tasks are predicted by the truth. If there are more than ``most_kept`` numbers, only
    the summary is kept.
    """
    usable = np.empty(answers.n_edges, dtype=bool)
    truth, sd, pit, log_density = (np.empty_like(answers.value) for _ in range(4))
    # A worker without any error counts as the most precise of the others.
    least = variance[variance > 0].min() if (variance > 0).any() else 1.0
    shares = posterior if levels.size else np.ones((answers.n_workers, 1))
    for first in range(0, answers.n_tasks, _TASKS_AT_ONCE):
        ptr = answers.task_ptr[first : first + _TASKS_AT_ONCE + 1]
        here = slice(ptr[0], ptr[-1])
        task, worker, value = answers.task[here], answers.worker[here], answers.value[here]
        weight = (least / np.maximum(variance, least))[worker]
        seen, others, told = weighted_left_out(value, weight, task - first, ptr[:-1] - ptr[0])
        of_truth = least / others
        gold = answers.is_gold[task]
        seen[gold], of_truth[gold] = estimate[task[gold]], 0.0
        usable[here], truth[here] = told | gold, seen
        residual = value - seen
        below, density = np.zeros_like(residual), np.zeros_like(residual)
        for k in range(shares.shape[1]):
            noise = np.full(len(worker), levels[k]) if levels.size else variance[worker]
            wide = np.sqrt(np.maximum(noise, least * NO_WEIGHT) + of_truth)[:, None]
            z = residual / wide
            share = shares[worker, k][:, None]
            below += share * ndtr(z)
            density += share * np.exp(-0.5 * np.minimum(z * z, 1400.0)) / wide
        sd[here] = np.sqrt((variance[worker] + of_truth)[:, None])
        pit[here] = np.clip(below, 0.0, 1.0)
        with np.errstate(divide="ignore"):
            log_density[here] = np.log(np.maximum(density, 1e-300)) - 0.5 * np.log(2.0 * np.pi)
    audit = Audit.of(
        answers.value,
        answers.task,
        usable,
        pit=pit,
        predicted=truth,
        predicted_sd=sd,
        truth=truth,
        log_density=log_density,
    )
    most_kept = MOST_KEPT if most_kept is None else most_kept
    return audit if truth.size <= most_kept else Audit.from_dict(audit.to_dict())
