"""Two-way random effects: every task and every worker shifts the answers at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array, hstack
from scipy.sparse.csgraph import connected_components

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_task, mean_by_worker, sum_by_task, sum_by_worker
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.estimators.baselines.averages import Average
from voxpop.estimators.make_result import gaussian_result
from voxpop.inference.numpy_kernels import blocks
from voxpop.results.result import Result

# The dense system that is solved takes 8 bytes times this squared: 128 MB.
_MOST_UNKNOWNS = 4000


@dataclass(frozen=True, kw_only=True)
class TwoWay(Estimator):
    """Two-way random effects: answer = mean + task + worker + noise, the best linear predictor.

    Coordinate by coordinate. The variances of tasks, workers and noise come from Henderson's
    third method: three sums of squares are equated to their expectations (for a balanced table
    that is REML). Given these, the estimates are the best linear unbiased predictors, which shrink
    effects with few answers towards the mean, and the sd is that of the prediction error. All
    workers are equally noisy in this model. Gold is returned, but not learned from. Where noise and
    effects are confounded (the graph has no cycle), the result is that of the plain average, and a
    note says so.

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
            # In units of a power of two, so that squares neither over- nor underflow.
            unit = float(2.0 ** np.rint(np.log2(np.abs(y).max() or 1.0)))
            y = y / unit
            parts = design.components(y)
            if parts is None:
                plain = Average().fit(answers)
                estimate[:, j], variance[:, j] = plain.estimate[:, j], plain.variance[:, j]
                residual[:, j] = answers.value[:, j] - estimate[answers.task, j]
                continue
            noise, of_task, of_worker = parts
            named = {"noise": noise, "task": of_task, "worker": of_worker}
            components.append({name: unit**2 * part for name, part in named.items()})
            found, error, left = design.predict(y, noise, of_task, of_worker)
            estimate[:, j], variance[:, j] = found * unit + origin, error * unit**2
            residual[:, j] = left * unit
        lost = answers.dimension - len(components)
        note = "noise and effects are confounded here: the estimates are plain averages"
        return gaussian_result(
            self,
            answers,
            estimate,
            variance,
            mean_by_worker(answers, (residual**2).mean(axis=1)),
            notes=(note,) if lost else (),
            settings={"variance_components": components},
        )


class _Design:
    """Who answered what, as matrices; the smaller side of tasks and workers is kept dense."""

    def __init__(self, answers: Answers) -> None:
        a = self.answers = answers
        n, m = a.n_tasks, a.n_workers
        one = np.ones(a.n_edges)
        table = csr_array((one, (a.task, a.worker)), shape=(n, m))
        links = csr_array((one, (a.task, a.worker + n)), shape=(n + m, n + m))
        self.n_parts = int(connected_components(links, directed=False)[0])
        self.tasks_dense = n < m
        self.table: csr_array = table.T.tocsr() if self.tasks_dense else table
        self.count, self.dense_count = a.task_degree, a.worker_degree
        self.sum, self.dense_sum = sum_by_task, sum_by_worker
        if self.tasks_dense:
            self.count, self.dense_count = a.worker_degree, a.task_degree
            self.sum, self.dense_sum = sum_by_worker, sum_by_task

    def components(self, y: Floats) -> tuple[float, float, float] | None:
        """Variances of noise, tasks and workers by Henderson's third method; None if confounded.

        With SS_t the squares about the tasks' means, SS_w about the workers', SS_e about the fit
        of both, and c connected components::

            E SS_e = s_e (N - n - m + c)
            E SS_t = s_w sum_e (1 - 1/n_i) + s_e (N - n)
            E SS_w = s_t sum_e (1 - 1/n_u) + s_e (N - m)
        """
        a = self.answers
        n, m, c = a.n_tasks, a.n_workers, self.n_parts
        free = a.n_edges - n - m + c
        about_task = y - mean_by_task(a, y)[a.task]
        about_worker = y - mean_by_worker(a, y)[a.worker]
        within_task = float(about_task @ about_task)
        within_worker = float(about_worker @ about_worker)
        several_of_task = float((1 - 1 / a.task_degree[a.task]).sum())
        several_of_worker = float((1 - 1 / a.worker_degree[a.worker]).sum())
        if free <= 0 or not several_of_task or not several_of_worker:
            return None
        about = about_worker if self.tasks_dense else about_task
        left = float(about @ about) - self._explained(self.dense_sum(a, about))
        noise = max(left, 0.0) / free
        if noise <= 1e-12 * within_task / a.n_edges:
            return None
        of_worker = max(within_task - noise * (a.n_edges - n), 0.0) / several_of_task
        of_task = max(within_worker - noise * (a.n_edges - m), 0.0) / several_of_worker
        return noise, of_task, of_worker

    def _explained(self, right: Floats) -> float:
        """Sum of squares that the dense side's fixed effects explain beyond the other side's.

        With the other side eliminated, the matrix of the normal equations is a graph Laplacian: a
        constant on every connected component is free, and lstsq takes the shortest solution.
        """
        shared = (self.table.T @ (self.table / self.count[:, None])).toarray()
        laplacian = np.diag(self.dense_count.astype(np.float64)) - shared
        solution = np.linalg.lstsq(laplacian, right, rcond=1e-10)[0]
        return float(right @ solution)

    def predict(
        self, y: Floats, noise: float, of_task: float, of_worker: float
    ) -> tuple[Floats, Floats, Floats]:
        """Best linear predictors of mean + task, their error variances, and the residuals."""
        a, count, dense_count = self.answers, self.count, self.dense_count
        out, kept = (of_worker, of_task) if self.tasks_dense else (of_task, of_worker)
        # Unknowns: the effects of the dense side, in units of their sd, and the mean; the other
        # side's effects are eliminated. ``shrink`` is their variance given everything else.
        shrink = out * noise / (count * out + noise)
        scale = np.sqrt(kept)
        joint = hstack([scale * self.table, csr_array(count[:, None].astype(np.float64))]).tocsr()
        system = -(joint.T @ (joint * (shrink / noise**2)[:, None])).toarray()
        own = 1.0 + kept * dense_count / noise
        system[np.diag_indices_from(system)] += np.append(own, a.n_edges / noise)
        system[-1, :-1] += scale * dense_count / noise
        system[:-1, -1] += scale * dense_count / noise
        right = np.append(scale * self.dense_sum(a, y), y.sum()) / noise
        right -= joint.T @ (shrink * self.sum(a, y)) / noise**2
        covariance = np.linalg.inv(system)
        z = covariance @ right
        effect = shrink * (self.sum(a, y) - joint @ z) / noise
        if self.tasks_dense:
            task, worker = z[:-1] * scale, effect
            error = scale**2 * np.diag(covariance)[:-1] + covariance[-1, -1]
            error = error + 2 * scale * covariance[:-1, -1]
        else:
            task, worker = effect, z[:-1] * scale
            error = shrink + 0.0
            for rows in blocks(a.n_tasks, 2 * len(z)):
                pull = -(shrink[rows] / noise)[:, None] * joint[rows].toarray()
                pull[:, -1] += 1.0
                error[rows] += ((pull @ covariance) * pull).sum(axis=1)
        estimate = z[-1] + task
        return estimate, error, y - estimate[a.task] - worker[a.worker]
