"""The audit of methods without leave-one-out integrals: the others' weighted mean as prediction."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from voxpop.answers import Answers
from voxpop.arrays import Floats
from voxpop.audit import Audit

# Above so many numbers only the summary is kept, not one prediction per answer.
MOST_KEPT = 4_000_000
# Shares of a task's weight that a sum less the answer itself cannot tell from nothing.
_LEAST_SHARE = 1e-9


def plug_in_audit(
    answers: Answers, estimate: Floats, variance: Floats, levels: Floats, posterior: Floats
) -> Audit:
    """Predict every answer by the others' precision-weighted mean, their noise taken as known.

    With w_v = 1 / s_v the precision of worker v, the answer of u to task i is predicted as the mean
    of the others weighted by w, with variance s_u + 1 / Σ w, mixed over the levels of u where the
    method has levels. Gold tasks are predicted by their truth.
    """
    task, worker = answers.task, answers.worker
    # A worker who never erred is as precise as the most precise of the others.
    least = variance[variance > 0].min() if (variance > 0).any() else 1.0
    weight = (least / np.maximum(variance, least))[worker]
    origin = answers.value[answers.task_ptr[:-1]][task]
    deviation = answers.value - origin
    pull = weight[:, None] * deviation
    total = np.add.reduceat(weight, answers.task_ptr[:-1])[task]
    others = total - weight
    usable = (answers.task_degree[task] > 1) & (others > _LEAST_SHARE * total)
    safe = np.where(usable, others, 1.0)
    mean = (np.add.reduceat(pull, answers.task_ptr[:-1])[task] - pull) / safe[:, None]
    truth = np.where(usable[:, None], origin + mean, origin)
    of_truth = least / safe
    gold = answers.is_gold[task]
    truth[gold], of_truth[gold] = estimate[task[gold]], 0.0
    usable |= gold
    residual = answers.value - truth
    shares = posterior if levels.size else np.ones((answers.n_workers, 1))
    below, density = np.zeros_like(residual), np.zeros_like(residual)
    for k in range(shares.shape[1]):
        noise = np.full(answers.n_edges, levels[k]) if levels.size else variance[worker]
        sd = np.sqrt(np.maximum(noise, least * _LEAST_SHARE) + of_truth)[:, None]
        z = residual / sd
        share = shares[worker, k][:, None]
        below += share * ndtr(z)
        density += share * np.exp(-0.5 * np.minimum(z * z, 1400.0)) / sd
    total_sd = np.sqrt((variance[worker] + of_truth)[:, None]) * np.ones_like(residual)
    with np.errstate(divide="ignore"):
        log_density = np.log(np.maximum(density, 1e-300)) - 0.5 * np.log(2.0 * np.pi)
    audit = Audit.of(
        answers.value,
        task,
        usable,
        pit=np.clip(below, 0.0, 1.0),
        predicted=truth,
        predicted_sd=total_sd,
        truth=truth,
        log_density=log_density,
    )
    return audit if residual.size <= MOST_KEPT else Audit.from_summary(audit.summary())
