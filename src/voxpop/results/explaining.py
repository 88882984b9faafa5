"""Explaining: why the estimate of one task is what it is, and what one more answer would change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.results.answer_weights import answer_weights, require_match
from voxpop.results.explanation import Explanation
from voxpop.results.prediction import find_id, predicted, scatter
from voxpop.results.result import Result

# Distances of the next answer that count: from this share of the narrowest sd, to so many widest.
_NEAREST, _FARTHEST, _STEPS = 1e-4, 12.0, 600


class CanFit(Protocol):
    """An estimator, as far as this module needs one."""

    def fit(self, answers: Answers) -> Result:
        """Aggregate the answers."""
        ...


def explain(
    answers: Answers, result: Result, task: object, estimator: CanFit | None = None
) -> Explanation:
    """Explain the estimate of one task.

    The weight of an answer is its share of the expected precision: of each answer 1 / variance, the
    variance that of its worker's levels and of what is not known of his bias, averaged over both
    and, with heavy tails, over how likely the answer is a slip, given where the truth is believed
    to be. So the mean of the answers less bias, with these weights, is the estimate, but for a
    prior and for the skew of the posterior. Methods without levels give their own weights.

    The estimate without an answer is what all others say of the truth in the messages (the
    audit's; the noise model stays as learned from all answers). Where the result holds none, it
    is that of a refit by ``estimator``, once for each answer of the task; without one it comes
    from the weights.

    Parameters
    ----------
    answers, result
        The answers, and what an estimator found in them.
    task
        Its id, or the text of it.
    estimator
        What made the result, to refit where the messages do not tell.
    """
    require_match(answers, result)
    i = find_id(result.task_ids, task, "task")
    edges = np.arange(answers.task_ptr[i], answers.task_ptr[i + 1])
    is_gold = bool(answers.is_gold[i])
    weight, weight_means = answer_weights(answers, result, np.array([i]))
    left_out = _left_out(answers, result, i, edges, weight, estimator)
    value = answers.value[edges]
    who = answers.worker[edges]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = (value - left_out.predicted) / left_out.predicted_sd
    off = np.where(value == left_out.predicted, 0.0, off)
    order = np.argsort(-weight, kind="stable")
    low, high = result.interval(0.95)
    bias = result.worker_bias[who] if result.worker_bias.size else np.full(value.shape, np.nan)
    return Explanation(
        task=result.task_ids.tolist()[i],
        value_names=result.value_names,
        estimate=result.estimate[i],
        sd=result.sd[i],
        lower=low[i],
        upper=high[i],
        is_gold=is_gold,
        difficulty=float(result.task_difficulty[i]) if result.task_difficulty.size else None,
        worker=answers.worker_ids[who][order],
        value=value[order],
        noise_sd=np.sqrt(result.worker_variance[who])[order],
        bias=bias[order],
        weight=(0.0 * weight if is_gold else weight)[order],
        predicted=left_out.predicted[order],
        predicted_sd=left_out.predicted_sd[order],
        off=off[order],
        without=left_out.truth[order],
        one_more=_one_more(result, i),
        how={"weight": weight_means, "without": left_out.meaning},
        frame_kind=answers.frame_kind,
    )


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """The task without each of its answers, (n_answers, d)."""

    truth: Floats
    predicted: Floats
    predicted_sd: Floats
    meaning: str


def _left_out(
    answers: Answers,
    result: Result,
    i: int,
    edges: Index,
    weight: Floats,
    estimator: CanFit | None,
) -> _LeftOut:
    shape = (len(edges), answers.dimension)
    audit = result.audit
    if len(edges) == 1:
        none = np.full(shape, np.nan)
        return _LeftOut(none, none, none, "there is no other answer")
    if audit is not None and audit.exact and audit.truth.shape == answers.value.shape:
        truth = audit.truth[edges]
        meaning = "what all others say of the task in the messages, the noise model as learned"
        calibration = result.calibration
        if calibration.shrinkage:
            others = np.stack([np.delete(answers.value[edges], e, 0) for e in range(len(edges))])
            simple = np.median if calibration.towards == "median" else np.mean
            truth = calibration.shrink(truth, simple(others, axis=1))
            meaning += f", {calibration.summary()}"
        sd = calibration.stretch * audit.predicted_sd[edges]
        return _LeftOut(truth, audit.predicted[edges], sd, meaning)
    if estimator is None:
        meaning = "by the weights, all else kept"
        parts = [_reweighed(answers, result, i, edges, weight, e) for e in range(len(edges))]
    else:
        meaning = "a refit without the answer"
        parts = [_refitted(answers, i, e, estimator) for e in edges.tolist()]
    truth, mean, deviation = (np.stack(part) for part in zip(*parts, strict=True))
    return _LeftOut(truth, mean, deviation, meaning)


def _refitted(
    answers: Answers, i: int, edge: int, estimator: CanFit
) -> tuple[Floats, Floats, Floats]:
    """Fit again without an answer; predict it from that."""
    fewer = without_edge(answers, edge)
    again = estimator.fit(fewer)
    worker = np.flatnonzero(fewer.worker_ids == answers.worker_ids[answers.worker[edge]])
    u = int(worker[0]) if len(worker) else None
    answer = predicted(again.estimate[i], again.variance_before_gold[i], scatter(again, u, i))
    return again.estimate[i], answer.mean, answer.sd


def _reweighed(
    answers: Answers, result: Result, i: int, edges: Index, weight: Floats, row: int
) -> tuple[Floats, Floats, Floats]:
    """Take an answer out of the weighted mean; what remains has the rest of the precision."""
    noise = [scatter(result, int(u), i) for u in answers.worker[edges]]
    value = answers.value[edges]
    if answers.is_gold[i]:
        left, variance = result.estimate[i], 0.0 * result.variance[i]
    elif result.settings.get("method") == "median":
        left = np.median(np.delete(value, row, axis=0), axis=0)
        variance = result.variance_before_gold[i] * len(edges) / (len(edges) - 1)
    else:
        free = value - np.stack([n.bias for n in noise])
        rest = np.delete(weight, row)
        whole = float(rest.sum())
        # An answer that has all the weight leaves the others with nothing to tell them apart.
        rest = rest / whole if whole > 0 else np.full(len(rest), 1.0 / len(rest))
        origin = free[0]
        moved = rest @ (np.delete(free, row, axis=0) - origin) - weight @ (free - origin)
        left = result.estimate[i] + moved
        variance = result.variance_before_gold[i] / max(whole, np.finfo(np.float64).eps)
    answer = predicted(left, variance, noise[row])
    return left, answer.mean, answer.sd


def without_edge(answers: Answers, edge: int) -> Answers:
    """The answers but one, of a task that has others."""
    kept = np.arange(answers.n_edges) != edge
    workers, worker = np.unique(answers.worker[kept], return_inverse=True)
    return replace(
        answers,
        worker_ids=answers.worker_ids[workers],
        task=answers.task[kept],
        worker=worker.astype(np.int32),
        value=answers.value[kept],
    )


def _one_more(result: Result, i: int) -> dict[str, float]:
    """Expected sd of the task after one more answer, by what kind of worker gives it."""
    if not result.levels.size and (result.worker_weight == result.worker_weight[0]).all():
        # To a method that takes all workers alike it is one answer more, whoever gives it.
        n = float(result.task_answers[i])
        alike = float(np.sqrt(result.variance[i].mean() * n / (n + 1.0)))
        return dict.fromkeys(("typical", "best", "worst"), alike)
    order = np.argsort(result.worker_variance, kind="stable")
    chosen = {"typical": order[(len(order) - 1) // 2], "best": order[0], "worst": order[-1]}
    found = {}
    for kind, u in chosen.items():
        noise = scatter(result, int(u), i)
        after = [
            expected_variance(float(v), noise.share, noise.variance[:, j])
            for j, v in enumerate(result.variance_before_gold[i])
        ]
        found[kind] = result.calibration.gold_stretch * float(np.sqrt(np.mean(after)))
    return found


def expected_variance(variance: float, share: Floats, noise: Floats) -> float:
    """Variance of a Gaussian truth that an answer of mixed noise is expected to leave.

    The answer moves the mean by m(a) = a Σ_c r_c(a) V / (V + v_c), r_c its chance to be of noise
    v_c; what remains is V - E[m(a)²], an integral over a, here in steps of log a.
    """
    if not variance > 0 or (noise <= 0).any():
        return 0.0
    total = variance + noise
    low, high = _NEAREST * np.sqrt(total.min()), _FARTHEST * np.sqrt(total.max())
    log_a = np.linspace(np.log(low), np.log(high), _STEPS)
    a = np.exp(log_a)[:, None]
    density = share * np.exp(-0.5 * a**2 / total) / np.sqrt(2.0 * np.pi * total)
    p = density.sum(axis=1)
    pull = (density * (variance / total)).sum(axis=1) / np.maximum(p, np.finfo(np.float64).tiny)
    removed = 2.0 * float((p * (a[:, 0] * pull) ** 2 * a[:, 0]).sum() * (log_a[1] - log_a[0]))
    return max(variance - removed, 0.0)
