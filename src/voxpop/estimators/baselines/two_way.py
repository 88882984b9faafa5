"""Two-way random effects: every task and every worker shifts the answers at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array, eye_array, hstack
from scipy.sparse.csgraph import connected_components

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_task, mean_by_worker
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
            components.append({name: unit**2 * part for name, part in parts.items()})
            found, error, left = design.predict(y, **parts)
            estimate[:, j], variance[:, j] = found * unit + origin, error * unit**2
            residual[:, j] = left * unit
        note = "noise and effects are confounded here: the estimates are plain averages"
        return gaussian_result(
            self,
            answers,
            estimate,
            variance,
            mean_by_worker(answers, (residual**2).mean(axis=1)),
            notes=(note,) if len(components) < answers.dimension else (),
            settings={"variance_components": components},
        )


class _Design:
    """Who answered what, as matrices; the smaller side of tasks and workers is kept dense."""

    def __init__(self, answers: Answers) -> None:
        a = self.answers = answers
        edge, sides = np.arange(a.n_edges), ((a.task, a.n_tasks), (a.worker, a.n_workers))
        # One row per answer, with a one for its task or its worker.
        of_task, of_worker = (
            csr_array((np.ones(len(edge)), (edge, code)), shape=(len(edge), n)) for code, n in sides
        )
        self.tasks_dense = a.n_tasks < a.n_workers
        self.out, self.dense = (of_worker, of_task) if self.tasks_dense else (of_task, of_worker)
        self.count: Floats = self.out.sum(axis=0)

    def components(self, y: Floats) -> dict[str, float] | None:
        """Variances of noise, tasks and workers by Henderson's third method; None if confounded.

        With SS_t the squares about the tasks' means, SS_w about the workers', SS_e about the fit
        of both, and c connected components::

            E SS_e = s_e (N - n - m + c)
            E SS_t = (s_w + s_e) (N - n),   E SS_w = (s_t + s_e) (N - m)
        """
        a = self.answers
        about_task = y - mean_by_task(a, y)[a.task]
        about_worker = y - mean_by_worker(a, y)[a.worker]
        # With one side eliminated, the matrix of the normal equations is a graph Laplacian: a
        # constant on every connected component is free, and lstsq takes the shortest solution.
        table = csr_array(self.out.T @ self.dense)
        shared = csr_array(table.T @ (table / self.count[:, None])).toarray()
        free = a.n_edges - a.n_tasks - a.n_workers + int(connected_components(shared)[0])
        if free <= 0 or a.n_edges in (a.n_tasks, a.n_workers):
            return None
        about = about_worker if self.tasks_dense else about_task
        right = np.asarray(self.dense.T @ about)
        laplacian = np.diag(self.dense.sum(axis=0)) - shared
        explained = right @ np.linalg.lstsq(laplacian, right, rcond=1e-10)[0]
        noise = max(float(about @ about - explained), 0.0) / free
        within_task = float(about_task @ about_task)
        # Nothing but rounding errors is left where all workers agree, or differ by a constant.
        if noise <= max(1e-12 * within_task, 1e-28 * float(y @ y)) / a.n_edges:
            return None
        of_worker = within_task / (a.n_edges - a.n_tasks)
        of_task = float(about_worker @ about_worker) / (a.n_edges - a.n_workers)
        return {
            "noise": noise,
            "task": max(of_task - noise, 0.0),
            "worker": max(of_worker - noise, 0.0),
        }

    def predict(
        self, y: Floats, noise: float, task: float, worker: float
    ) -> tuple[Floats, Floats, Floats]:
        """Best linear predictors of mean + task, their error variances, and the residuals."""
        out, dense = (worker, task) if self.tasks_dense else (task, worker)
        n, scale = self.dense.shape[1], np.sqrt(dense)
        # Unknowns: the effects of the dense side, in units of their sd, and the mean; the other
        # side's effects are eliminated. ``shrink`` is their variance given everything else.
        shrink = out * noise / (self.count * out + noise)
        fixed = hstack([scale * self.dense, csr_array(np.ones((len(y), 1)))]).tocsr()
        joint = csr_array(self.out.T @ fixed)
        lost = joint.T @ (joint * (shrink / noise)[:, None])
        system = (fixed.T @ fixed - lost).toarray() / noise + np.diag(np.append(np.ones(n), 0.0))
        covariance = np.linalg.inv(system)
        alone = np.asarray(shrink / noise * (self.out.T @ y))
        z = covariance @ (fixed.T @ y - joint.T @ alone) / noise
        effect = alone - shrink / noise * (joint @ z)
        # A truth is the mean, plus what is ``given``, plus ``pull`` times the unknowns.
        if self.tasks_dense:
            given = apart = np.zeros(n)
            pull = scale * eye_array(n, n + 1, format="csr")
        else:
            given, apart = alone, shrink
            pull = csr_array(joint * (-shrink / noise)[:, None])
        error = apart.copy()
        for rows in blocks(len(error), 2 * len(z)):
            some = pull[rows].toarray()
            some[:, -1] += 1.0
            error[rows] += ((some @ covariance) * some).sum(axis=1)
        return z[-1] + given + pull @ z, error, y - fixed @ z - self.out @ effect
