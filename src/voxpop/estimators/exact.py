"""Exact: the Bayes-optimal estimate by summing over the levels of all workers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from voxpop.answers import Answers
from voxpop.errors import require
from voxpop.estimators.base import (
    Estimator,
    OnSweep,
    as_tuples,
    make_result,
    plain_settings,
    worker_noise,
)
from voxpop.kernels import enumerate as enumeration
from voxpop.kernels.posterior import Posterior, known, log_known
from voxpop.model import Model
from voxpop.result import PROBABILITIES, Result

# All levels of all workers: 3 levels for 12 workers, 2 for 20.
_MOST_STATES = 2**20


@dataclass(frozen=True, kw_only=True)
class Exact(Estimator):
    """The posterior mean itself (M23), for graphs small enough to sum over.

    The cost is levels ** workers. BI approximates this sum, and equals it on trees.
    """

    support: Sequence[float]
    weights: Sequence[float] | None = None
    prior_mean: float | Sequence[float] = 0.0
    prior_variance: float = np.inf
    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "Bayes-optimal sum over all workers' levels, for small graphs"

    def __post_init__(self) -> None:
        model = Model(
            support=self.support, weights=self.weights, prior_variance=self.prior_variance
        )
        object.__setattr__(self, "support", model.support)
        object.__setattr__(self, "weights", None if self.weights is None else model.weights)
        object.__setattr__(self, "prior_mean", as_tuples(self.prior_mean))

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:  # noqa: ARG002
        """Aggregate the answers."""
        model = Model(
            support=self.support,
            weights=self.weights,
            prior_mean=self.prior_mean,
            prior_variance=self.prior_variance,
            dimension=answers.dimension,
        )
        k, m = len(model.support), answers.n_workers
        require(
            m * np.log(k) <= np.log(_MOST_STATES) + 1e-9,
            f"exact sums over {k}^{m} states of {m} workers, more than {_MOST_STATES}; use BI",
        )
        # State number z has level (z // k**(m-1-u)) % k for worker u.
        level = np.indices((k,) * m, dtype=np.int8).reshape(m, -1)
        log_state = model.log_weights[level].sum(axis=0)
        prior_mean = model.prior_means(answers.n_tasks)
        tables = [_Task(answers, i, level, model, prior_mean[i]) for i in range(answers.n_tasks)]
        for task in tables:
            log_state += task.log_factor[task.code]
        state = np.exp(log_state - log_state.max())
        state /= state.sum()
        parts = [task.posterior(state, model) for task in tables]
        found = Posterior(
            np.concatenate([part.estimate for part in parts]),
            np.concatenate([part.variance for part in parts]),
            np.concatenate([part.quantile for part in parts]),
        )
        share = np.stack([np.bincount(level[u], state, k).astype(float) for u in range(m)])
        return make_result(answers, plain_settings(self), found, worker_noise(share, model))


class _Task:
    """One task's factor, and which of its configurations every state of the crowd contains."""

    def __init__(
        self,
        answers: Answers,
        i: int,
        level: np.ndarray[tuple[int, int], np.dtype[np.int8]],
        model: Model,
        prior_mean: np.ndarray[tuple[int], np.dtype[np.float64]],
    ) -> None:
        edges = slice(int(answers.task_ptr[i]), int(answers.task_ptr[i + 1]))
        workers = answers.worker[edges]
        self.origin = answers.value[edges.start]
        self.value = (answers.value[edges] - self.origin)[None]
        self.gold: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
        if answers.gold is not None and answers.is_gold[i]:
            self.gold = answers.gold[i]
        self.prior_mean = (prior_mean - self.origin)[None]
        k = len(model.support)
        self.code = np.zeros(level.shape[1], dtype=np.int64)
        for u in workers:
            self.code = self.code * k + level[u]
        self.c = enumeration.configurations(
            tuple(model.support), len(workers), model.prior_precision
        )
        if self.gold is None:
            self.log_factor = enumeration.log_factor(self.value, self.prior_mean, self.c)[0]
        else:
            said = log_known(answers.value[edges][None], self.gold[None], model.levels)
            self.log_factor = enumeration.log_joint(said)[0]

    def posterior(
        self, state: np.ndarray[tuple[int], np.dtype[np.float64]], model: Model
    ) -> Posterior:
        if self.gold is not None:
            return known(self.gold[None], len(PROBABILITIES))
        table = np.bincount(self.code, state, len(self.log_factor))[None].astype(float)
        found = enumeration.posterior(
            table, self.value, self.prior_mean, model.prior_precision, self.c, PROBABILITIES
        )
        return Posterior(
            found.estimate + self.origin,
            found.variance,
            found.quantile + self.origin[None, :, None],
        )
