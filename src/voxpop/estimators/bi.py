"""BI: the Bayesian iterative algorithm, belief propagation over the workers' noise levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import softmax

from voxpop.answers import Answers
from voxpop.backends import Inference, WorkerSums, open_backend
from voxpop.errors import require
from voxpop.estimators.base import OnSweep, WorkerNoise, make_result, relative_weight, repeat
from voxpop.estimators.support import learn_support, support_from_nbi
from voxpop.io import read_truth
from voxpop.model import Model
from voxpop.result import PROBABILITIES, Result
from voxpop.tables import Floats

Support = Literal["auto", "nbi"] | Sequence[float]


@dataclass(frozen=True, kw_only=True)
class BI:
    """Pass beliefs about the workers' noise between tasks and workers until they settle.

    The messages are (M3)-(M4) of ``docs/model.md``, the estimates (M5)-(M9). Exact where the
    graph of tasks and workers is a tree, and optimal in the limit on random sparse graphs.

    Parameters
    ----------
    support
        Noise levels a worker may have, as variances per coordinate. ``"auto"`` learns a grid of
        levels and their weights from the answers (M21); ``"nbi"`` is the paper's rule, two levels
        at the 10 % and 90 % quantiles of NBI's variances (M22).
    weights
        Share of workers at each level of an explicit support; equal by default.
    prior_mean, prior_variance
        Gaussian prior of the truths: a number or vector for all tasks, or a mapping, table or
        path with one per task. Flat by default.
    max_iter, tol
        Stop after so many sweeps, or when no message changes by more than ``tol`` as a
        probability.
    inference
        How a task's messages are worked out: by summing over all configurations of levels
        (``"enumerate"``), by integrating over the truth (``"integrate"``, coordinates apart), or
        whichever suits the task (``"auto"``).
    accuracy
        Error aimed at by the integration.
    backend
        Which implementation runs the kernels: ``"native"`` (compiled), ``"portable"`` (numpy), or
        the best one installed (``"auto"``).
    threads
        Threads of the native backend; their number does not change the result.

    References
    ----------
    Ok, Oh, Jang, Shin, Yi: Iterative Bayesian Learning for Crowdsourced Regression, AISTATS 2019.
    """

    support: Support = "auto"
    weights: Sequence[float] | None = None
    prior_mean: object = field(default=0.0, compare=False)
    prior_variance: float = np.inf
    max_iter: int = 300
    tol: float = 1e-7
    inference: Inference = "auto"
    accuracy: float = 1e-9
    backend: str = "auto"
    threads: int = 1
    name: ClassVar[str] = "bi"
    summary: ClassVar[str] = "Bayesian iterative algorithm: learns every worker's noise level"

    def __post_init__(self) -> None:
        require(self.tol > 0, f"tol must be positive, got {self.tol}")
        require(self.max_iter >= 1, f"max_iter must be at least 1, got {self.max_iter}")
        require(self.threads >= 1, f"threads must be at least 1, got {self.threads}")
        require(
            1e-14 <= self.accuracy <= 1e-2,
            f"accuracy must be between 1e-14 and 0.01, got {self.accuracy}",
        )
        if isinstance(self.support, str):
            require(
                self.support in ("auto", "nbi"),
                f"support must be 'auto', 'nbi' or a list of variances, got {self.support!r}",
            )
            require(
                self.weights is None,
                f"weights go with an explicit support, not with support={self.support!r}",
            )
        else:
            # Tuples make the estimator hashable; the model checks what is in them.
            object.__setattr__(self, "support", tuple(float(s) for s in self.support))
            if self.weights is not None:
                object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
            Model(support=self.support, weights=self.weights, prior_variance=self.prior_variance)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        model, notes = self.model_for(answers, on_sweep)
        backend = open_backend(
            self.backend, answers, model, self.inference, self.accuracy, self.threads
        )
        log_weights = model.log_weights
        sums: WorkerSums = np.zeros((answers.n_workers, len(log_weights)), dtype=np.int64)

        def sweep(damping: float) -> float:
            nonlocal sums
            sums, change = backend.to_workers(damping)
            backend.to_tasks(sums, log_weights)
            return change

        trace = repeat(sweep, tol=self.tol, max_iter=self.max_iter, what="BI", on_sweep=on_sweep)
        found = backend.moments(PROBABILITIES)
        workers = worker_noise(softmax(sums * backend.quantum + log_weights, axis=1), model)
        settings = self._settings() | {
            "support_used": list(model.support),
            "weights_used": list(model.weights or ()),
            "inference_used": backend.used,
        }
        return make_result(answers, settings, found, workers, trace, notes)

    def model_for(
        self, answers: Answers, on_sweep: OnSweep | None = None
    ) -> tuple[Model, tuple[str, ...]]:
        """Return the model that is used for these answers, and what to tell the user of it."""
        prior_mean = self.prior_mean
        if not isinstance(prior_mean, int | float | np.ndarray | list | tuple):
            prior_mean = read_truth(
                prior_mean, answers.task_ids, answers.value_names, needed="prior_mean"
            )
            require(bool(np.isfinite(prior_mean).all()), "prior_mean must be given for every task")
        base = Model(
            support=(1.0,),
            prior_mean=prior_mean,
            prior_variance=self.prior_variance,
            dimension=answers.dimension,
        )
        if self.support == "nbi":
            return support_from_nbi(answers, base)
        if self.support == "auto":
            return learn_support(
                *(answers, base, self.inference, self.accuracy),
                *(self.backend, self.threads, on_sweep),
            )
        assert not isinstance(self.support, str)
        return base.with_levels(self.support, self.weights), ()

    def _settings(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"method": self.name}
        for key in ("support", "weights", "max_iter", "tol", "inference", "accuracy", "backend"):
            item = getattr(self, key)
            plain[key] = list(item) if isinstance(item, tuple) else item
        # JSON has no infinity: a flat prior is no prior variance.
        flat = np.isinf(self.prior_variance)
        plain["prior_variance"] = None if flat else self.prior_variance
        mean = self.prior_mean
        plain["prior_mean"] = mean if isinstance(mean, int | float) else "per task or coordinate"
        return plain


def worker_noise(posterior: Floats, model: Model) -> WorkerNoise:
    """Sum up each worker's probabilities of the levels: expected variance, interval, weight."""
    levels = model.levels
    cumulated = np.cumsum(posterior, axis=1)
    low = (cumulated < 0.025).sum(axis=1)
    high = (cumulated < 0.975).sum(axis=1)
    interval = levels[np.minimum(np.stack([low, high], axis=1), len(levels) - 1)]
    return WorkerNoise(
        variance=posterior @ levels,
        interval=interval,
        weight=relative_weight(posterior @ (levels[0] / levels)),
        levels=levels,
        level_weights=np.array(model.weights),
        posterior=posterior,
    )
