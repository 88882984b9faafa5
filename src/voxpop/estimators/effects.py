"""Worker effects: methods that give every worker a bias of its own and take it off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from voxpop.answers import Answers
from voxpop.arrays import Floats
from voxpop.errors import require
from voxpop.estimators.averages import Average, variance_within_tasks
from voxpop.estimators.base import (
    Estimator,
    OnSweep,
    make_result,
    mean_by_worker,
    normal_posterior,
    plain_noise,
    plain_settings,
    relative_weight,
    repeat,
    require_stop,
    sum_by_task,
    sum_by_worker,
    weighted_means,
    with_gold,
)
from voxpop.result import Result, Trace

# The dense system that two-way effects are solved with takes 8 bytes times this squared: 128 MB.
_MOST_UNKNOWNS = 4000
# In P.910 nobody is taken for more consistent than this share of the middle worker's variance.
_FLOOR = 0.01
# BT.500: an answer this many sd off is an outlier, where the answers look Gaussian or do not.
_FAR_IF_GAUSSIAN, _FAR_OTHERWISE = 2.0, np.sqrt(20.0)
_MOST_OUTLIERS, _LEAST_SKEW = 0.05, 0.3


@dataclass(frozen=True)
class SubjectFit:
    """What P.910 and P.913 find: truths, biases and variances of the workers, and how it went.

    ``spread`` is the variance of each task's residuals, coordinate by coordinate.
    """

    estimate: Floats
    bias: Floats
    variance: Floats
    spread: Floats
    weight: Floats
    trace: Trace


@dataclass(frozen=True, kw_only=True)
class P910(Estimator):
    """Bias and inconsistency of every worker by alternating projection (ITU-T P.910 Annex E).

    In turn: a worker's variance is that of its residuals about truth plus bias; the truths are
    means of the answers less the biases, weighted by one over the variance; a worker's bias is
    its mean distance from the truths. The biases average to zero over the workers, unless gold
    tells them. This is also clause 12.6 of P.913, and sureal's ``P910``. Vectors have one bias
    per coordinate and one variance.

    Unlike there, nobody is taken for more consistent than one hundredth of the middle worker's
    variance, and a worker with one answer, which bias explains exactly, counts as an average one.
    The sd is that of the recommendation, from the residuals of the task itself: too small for
    tasks with few answers (a task with one gets the pooled variance).

    References
    ----------
    ITU-T P.910 (07/2022), Annex E. Li, Bampis: Recover Subjective Quality Scores from Noisy
    Measurements, DCC 2017.
    """

    tol: float = 1e-9
    max_iter: int = 2000
    name: ClassVar[str] = "p910"
    summary: ClassVar[str] = "ITU-T P.910: bias and inconsistency by alternating projection"

    def __post_init__(self) -> None:
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        return _subject_result(answers, self, self.project(answers, on_sweep))

    def project(self, answers: Answers, on_sweep: OnSweep | None = None) -> SubjectFit:
        """Find truths, biases and variances."""
        estimate, bias = _means_and_bias(answers)
        variance = _residual_variance(answers, estimate, bias)
        several = answers.worker_degree > 1
        least = _FLOOR * float(np.median(variance[several])) if several.any() else 0.0
        unit = float(np.sqrt(variance_within_tasks(answers).mean())) or 1.0

        def sweep(_: float) -> float:
            nonlocal estimate, bias, variance
            variance = _residual_variance(answers, estimate, bias)
            weight = _precision(variance, several, least)
            new = with_gold(answers, _corrected_means(answers, bias, weight[answers.worker]))
            bias = _mean_of_worker(answers, answers.value - new[answers.task])
            change = float(np.abs(new - estimate).max()) / unit
            estimate = new
            return change

        trace = repeat(
            sweep,
            tol=self.tol,
            max_iter=self.max_iter,
            what="P.910",
            on_sweep=on_sweep,
            dampings=(0.0,),
        )
        residual = answers.value - estimate[answers.task] - bias[answers.worker]
        if not answers.is_gold.any():
            # Sorted: the same mean in any order of the workers.
            shift = np.sort(bias, axis=0).mean(axis=0)
            estimate, bias = estimate + shift, bias - shift
        weight = _precision(variance, several, least)
        spread = _task_variance(answers, residual, 0)
        return SubjectFit(estimate, bias, variance, spread, relative_weight(weight), trace)


@dataclass(frozen=True, kw_only=True)
class P913(Estimator):
    """Take off every worker's bias, leave out erratic workers, and average (ITU-T P.913, 12.4).

    The bias is the mean distance from the tasks' means. A worker is left out by the rule of
    BT.500: answers far off (2 sd where a task's kurtosis is between 2 and 4, else sqrt(20)) in
    more than 5 % of all tasks, and about as often above as below. As sureal's ``P913``, for
    vectors coordinate by coordinate; a task all of whose workers are left out keeps them, and a
    task whose answers agree has no outliers.

    References
    ----------
    ITU-T P.913 (06/2021), clause 12.4. ITU-R BT.500-14.
    """

    name: ClassVar[str] = "p913"
    summary: ClassVar[str] = "ITU-T P.913: mean less worker bias, erratic workers left out"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        return _subject_result(answers, self, self.remove_bias(answers))

    def remove_bias(self, answers: Answers) -> SubjectFit:
        """Find truths, biases and variances; a worker left out has weight zero."""
        estimate, bias = _means_and_bias(answers)
        corrected = answers.value - bias[answers.worker]
        kept = ~_erratic(answers, corrected)
        per_edge = kept[answers.worker].astype(np.float64)
        lost = sum_by_task(answers, per_edge) == 0
        per_edge[lost[answers.task]] = 1.0
        estimate = with_gold(answers, _corrected_means(answers, bias, per_edge))
        residual = corrected - estimate[answers.task]
        variance = mean_by_worker(answers, (residual**2).mean(axis=1))
        weight = kept / kept.mean()
        used = np.where(per_edge[:, None] > 0, residual, np.nan)
        return SubjectFit(
            estimate, bias, variance, _task_variance(answers, used, 1), weight, Trace()
        )


def _means_and_bias(answers: Answers) -> tuple[Floats, Floats]:
    estimate = with_gold(answers, weighted_means(answers, np.ones(answers.n_edges)))
    return estimate, _mean_of_worker(answers, answers.value - estimate[answers.task])


def _mean_of_worker(answers: Answers, per_edge: Floats) -> Floats:
    return np.asarray(sum_by_worker(answers, per_edge) / answers.worker_degree[:, None])


def _corrected_means(answers: Answers, bias: Floats, weight: Floats) -> Floats:
    """Weighted mean of the answers less the biases of those who gave them."""
    share = weight / sum_by_task(answers, weight)[answers.task]
    off = sum_by_task(answers, share[:, None] * bias[answers.worker])
    return np.asarray(weighted_means(answers, weight) - off)


def _residual_variance(answers: Answers, estimate: Floats, bias: Floats) -> Floats:
    """Variance of every worker's residuals about their mean, over all coordinates."""
    residual = answers.value - estimate[answers.task] - bias[answers.worker]
    residual = residual - _mean_of_worker(answers, residual)[answers.worker]
    return mean_by_worker(answers, (residual**2).mean(axis=1))


def _precision(
    variance: Floats, several: np.ndarray[tuple[int], np.dtype[np.bool_]], least: float
) -> Floats:
    if not least:
        return np.ones_like(variance)
    typical = float(np.sort(variance[several]).mean())
    return np.asarray(1.0 / np.maximum(np.where(several, variance, typical), least))


def _task_variance(answers: Answers, residual: Floats, spare: int) -> Floats:
    """Variance of each task's residuals about their mean; NaN where there are too few."""
    there = ~np.isnan(residual)
    count = sum_by_task(answers, there.astype(np.float64))
    filled = np.where(there, residual, 0.0)
    mean = sum_by_task(answers, filled) / count
    squares = sum_by_task(answers, np.where(there, residual - mean[answers.task], 0.0) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(count > 1, squares / (count - spare), np.nan) / count)


def _erratic(answers: Answers, value: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Workers whom BT.500 leaves out: outliers too often, and on both sides."""
    n = answers.task_degree[:, None]
    off = value - (sum_by_task(answers, value) / n)[answers.task]
    second, fourth = sum_by_task(answers, off**2) / n, sum_by_task(answers, off**4) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis = fourth / second**2
    gaussian = (kurtosis >= 2) & (kurtosis <= 4)
    far = (np.where(gaussian, _FAR_IF_GAUSSIAN, _FAR_OTHERWISE) * np.sqrt(second))[answers.task]
    differs = (second > 0)[answers.task]
    above = sum_by_worker(answers, (differs & (off >= far)).sum(axis=1).astype(np.float64))
    below = sum_by_worker(answers, (differs & (off <= -far)).sum(axis=1).astype(np.float64))
    often = (above + below) / (answers.n_tasks * answers.dimension) > _MOST_OUTLIERS
    balanced = np.abs(above - below) < _LEAST_SKEW * (above + below)
    erratic = often & balanced
    return np.zeros_like(erratic) if erratic.all() else erratic


def _subject_result(answers: Answers, estimator: Estimator, found: SubjectFit) -> Result:
    # Where a task has too few answers of its own, or they agree by chance: the crowd's variance,
    # or where bias explains every answer, the variance within tasks.
    pooled = float((answers.worker_degree * found.variance).sum() / answers.n_edges)
    pooled = pooled or float(variance_within_tasks(answers).mean())
    own = np.nan_to_num(found.spread)
    variance = np.where(own > 0, own, pooled / answers.task_degree[:, None])
    worker_variance = np.where(answers.worker_degree > 1, found.variance, pooled)
    worker_variance = np.where(found.variance.any(), worker_variance, pooled)
    out = int((found.weight == 0).sum())
    note = f"{out} of {answers.n_workers} workers were left out as erratic"
    return make_result(
        answers,
        plain_settings(estimator),
        normal_posterior(answers, found.estimate, variance),
        plain_noise(answers, worker_variance, found.weight),
        found.trace,
        (note,) if out else (),
    )


@dataclass(frozen=True, kw_only=True)
class TwoWay(Estimator):
    """Two-way random effects: answer = mean + task + worker + noise, the best linear predictor.

    Coordinate by coordinate. The variances of tasks, workers and noise come from Henderson's
    third method: three sums of squares set equal to their expectations (for a balanced table
    that is REML). Given these the estimates are the best linear unbiased predictors, which draw
    tasks and biases of few answers towards the mean, and the sd is that of the prediction error.
    All workers are equally noisy here. Gold is returned as it is, and not learned from. Where
    answers cannot tell noise from effects (no task and worker are joined by two ways), the
    result is the plain average's, and a note says so.

    References
    ----------
    Henderson: Estimation of Variance and Covariance Components, 1953; Searle, Casella, McCulloch:
    Variance Components, 1992.
    """

    name: ClassVar[str] = "two-way"
    summary: ClassVar[str] = "random effects of tasks and workers, best linear predictor"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        unknowns = min(answers.n_tasks, answers.n_workers)
        require(
            unknowns <= _MOST_UNKNOWNS,
            f"two-way solves a dense system of {unknowns} unknowns, the smaller of tasks and "
            f"workers, more than {_MOST_UNKNOWNS}; use p910 or bi",
        )
        design = _Design(answers)
        estimate = np.empty((answers.n_tasks, answers.dimension))
        variance, residual = np.empty_like(estimate), np.empty_like(answers.value)
        components: list[dict[str, float]] = []
        for j in range(answers.dimension):
            origin = answers.value[0, j]
            y = answers.value[:, j] - origin
            parts = design.components(y)
            if parts is None:
                plain = Average().fit(answers)
                estimate[:, j], variance[:, j] = plain.estimate[:, j], plain.variance[:, j]
                residual[:, j] = answers.value[:, j] - estimate[answers.task, j]
                continue
            noise, of_task, of_worker = parts
            components.append({"noise": noise, "task": of_task, "worker": of_worker})
            found, variance[:, j], residual[:, j] = design.predict(y, noise, of_task, of_worker)
            estimate[:, j] = found + origin
        lost = answers.dimension - len(components)
        note = "noise cannot be told from effects here: the plain average"
        worker_variance = mean_by_worker(answers, (residual**2).mean(axis=1))
        return make_result(
            answers,
            plain_settings(self) | {"variance_components": components},
            normal_posterior(answers, estimate, variance),
            plain_noise(answers, worker_variance, np.ones(answers.n_workers)),
            notes=(note,) if lost else (),
        )


class _Design:
    """Who answered what, as matrices; the smaller side of tasks and workers is kept dense."""

    def __init__(self, answers: Answers) -> None:
        a = self.answers = answers
        n, m = a.n_tasks, a.n_workers
        one = np.ones(a.n_edges)
        self.table = csr_array((one, (a.task, a.worker)), shape=(n, m))
        links = csr_array((one, (a.task, a.worker + n)), shape=(n + m, n + m))
        self.n_parts = int(connected_components(links, directed=False)[0])
        self.tasks_dense = n < m

    def components(self, y: Floats) -> tuple[float, float, float] | None:
        """Variances of noise, tasks and workers by Henderson's third method; None if confounded.

        With SS_t the squares about the tasks' means, SS_w about the workers', and SS_e about the
        fit of both, and c connected parts::

            E SS_e = s_e (N - n - m + c)
            E SS_t = s_w sum_e (1 - 1/n_i) + s_e (N - n)
            E SS_w = s_t sum_e (1 - 1/n_u) + s_e (N - m)
        """
        a = self.answers
        n, m, c = a.n_tasks, a.n_workers, self.n_parts
        free = a.n_edges - n - m + c
        about_task = y - (sum_by_task(a, y) / a.task_degree)[a.task]
        about_worker = y - (sum_by_worker(a, y) / a.worker_degree)[a.worker]
        within_task, within_worker = (
            float(about_task @ about_task),
            float(about_worker @ about_worker),
        )
        several_of_task = float((1 - 1 / a.task_degree[a.task]).sum())
        several_of_worker = float((1 - 1 / a.worker_degree[a.worker]).sum())
        if free <= 0 or not several_of_task or not several_of_worker:
            return None
        if self.tasks_dense:
            explained = _explained(
                self.table.T, a.worker_degree, a.task_degree, sum_by_task(a, about_worker)
            )
            left = within_worker - explained
        else:
            explained = _explained(
                self.table, a.task_degree, a.worker_degree, sum_by_worker(a, about_task)
            )
            left = within_task - explained
        noise = max(left, 0.0) / free
        if noise <= 1e-12 * within_task / a.n_edges:
            return None
        of_worker = max(within_task - noise * (a.n_edges - n), 0.0) / several_of_task
        of_task = max(within_worker - noise * (a.n_edges - m), 0.0) / several_of_worker
        return noise, of_task, of_worker

    def predict(
        self, y: Floats, noise: float, of_task: float, of_worker: float
    ) -> tuple[Floats, Floats, Floats]:
        """Best linear predictors of mean + task, their error variances, and what is left."""
        a = self.answers
        if self.tasks_dense:
            table, count, sums = self.table.T, a.worker_degree, (sum_by_worker, sum_by_task)
            out, kept, dense_count = of_worker, of_task, a.task_degree
        else:
            table, count, sums = self.table, a.task_degree, (sum_by_task, sum_by_worker)
            out, kept, dense_count = of_task, of_worker, a.worker_degree
        # Unknowns: the effects of the dense side, in units of their sd, and the mean; the other
        # side's effects are summed out. ``shrink`` is their variance given all else.
        shrink = out * noise / (count * out + noise)
        scale = np.sqrt(kept)
        joint = np.concatenate([scale * table.toarray(), count[:, None]], axis=1)
        system = -(joint.T * (shrink / noise**2)) @ joint
        own = 1.0 + kept * dense_count / noise
        system[np.diag_indices_from(system)] += np.append(own, a.n_edges / noise)
        system[-1, :-1] += scale * dense_count / noise
        system[:-1, -1] += scale * dense_count / noise
        said = np.append(scale * sums[1](a, y), y.sum()) / noise
        said -= joint.T @ (shrink * sums[0](a, y)) / noise**2
        covariance = np.linalg.inv(system)
        z = covariance @ said
        effect = shrink * (sums[0](a, y) - joint @ z) / noise
        if self.tasks_dense:
            task, worker = z[:-1] * scale, effect
            error = scale**2 * np.diag(covariance)[:-1] + covariance[-1, -1]
            error = error + 2 * scale * covariance[:-1, -1]
        else:
            task, worker = effect, z[:-1] * scale
            pull = -(shrink / noise)[:, None] * joint
            pull[:, -1] += 1.0
            error = shrink + ((pull @ covariance) * pull).sum(axis=1)
        estimate = z[-1] + task
        return estimate, error, y - estimate[a.task] - worker[a.worker]


def _explained(table: csr_array, out_count: Floats, count: Floats, said: Floats) -> float:
    """Squares that one side's fixed effects explain beyond the other side's.

    The normal equations with the other side eliminated are those of a graph's Laplacian, whose
    constant on every connected part is free: least squares takes the shortest solution.
    """
    shared = (table.T @ (table / out_count[:, None])).toarray()
    laplacian = np.diag(count.astype(np.float64)) - shared
    solution = np.linalg.lstsq(laplacian, said, rcond=1e-10)[0]
    return float(said @ solution)
