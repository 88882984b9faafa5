"""BI: the Bayesian iterative algorithm, belief propagation over the workers' noise levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import softmax

from voxpop.data.answers import Answers
from voxpop.data.truths import read_truth
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep, as_tuples, plain_settings
from voxpop.estimators.bi.groups_apart import fit_groups
from voxpop.estimators.bi.growth import learned_before
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.bi.noise_levels import ChosenModel, learn_support, support_from_nbi
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.make_result import WorkerNoise, make_result, worker_noise
from voxpop.estimators.on_scale import fit_on_scale, with_settings
from voxpop.estimators.shared import with_shared_error
from voxpop.estimators.within_bounds import keep_bounds, refuse_bounds
from voxpop.estimators.within_reach import fit_within_reach
from voxpop.inference.cost_model import Inference
from voxpop.inference.engine import Engine
from voxpop.inference.schedule import Schedule
from voxpop.models.model import Model
from voxpop.models.noise import Noise
from voxpop.models.scale import LINEAR, SCALES, Scale, ScaleName, check_scale
from voxpop.results.own_noise import with_own_noise
from voxpop.results.result import PROBABILITIES, Result, Trace
from voxpop.results.shared_error import SharedError, SharedErrorOption

Support = Literal["auto", "nbi", "common"] | Sequence[float]


class Settled(NamedTuple):
    """The workers by the converged messages, how these converged, and the settings to keep."""

    workers: WorkerNoise
    trace: Trace
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class BI(Estimator):
    """Pass beliefs about the workers' noise between tasks and workers until they converge.

    The messages are (M3)-(M4) of ``docs/model.md``, the estimates (M5)-(M9). Exact where the
    graph of tasks and workers is a tree, and optimal in the limit on random sparse graphs.

    Parameters
    ----------
    support
        Noise levels a worker may have, as variances per coordinate. ``"auto"`` learns a grid of
        levels and their weights from the answers (M21); ``"nbi"`` is the paper's rule, two levels
        at the 10 % and 90 % quantiles of NBI's variances (M22); ``"common"`` is one learned level
        for all workers.
    weights
        Share of workers at each level of an explicit support; equal by default.
    noise
        Departures of answers from plain scatter: heavy tails, worker bias, task difficulty, a
        learned prior or bounds of the truths (M28); none of it by default, as in the paper.
    scale
        The scale on which all values have the same noise, as in :func:`voxpop.aggregate`;
        ``support`` is on it.
    shared_error
        As in :class:`Auto`; 0, as in the paper, by default. Gold does not learn it here.
    prior_mean, prior_variance
        Gaussian prior of the truths: a number or vector for all tasks, or a mapping, table or
        path with one per task. Flat by default.
    max_iter, tol
        Stop after this many sweeps, or when no message changes by more than ``tol`` as a
        probability.
    inference
        How a task's messages are computed: by summing over all configurations of levels
        (``"enumerate"``), over those that can matter (``"active"``, from a guess instead of flat
        messages), by integrating over the truth (``"integrate"``, coordinates apart), or whichever
        suits the task (``"auto"``).
    accuracy
        Error aimed at by the integration, and most that ``"active"`` leaves out.
    backend
        Which implementation runs the kernels: ``"native"`` (compiled), ``"portable"`` (numpy),
        ``"gpu"`` (by CuPy), or the best one for these answers (``"auto"``).
    threads
        Threads of the native backend, all cores by default; their number does not change the
        result.

    References
    ----------
    Ok, Oh, Jang, Shin, Yi: Iterative Bayesian Learning for Crowdsourced Regression, AISTATS 2019.
    """

    support: Support = "auto"
    weights: Sequence[float] | None = None
    noise: Noise = field(default_factory=Noise)
    scale: ScaleName = "linear"
    shared_error: SharedErrorOption = 0.0
    prior_mean: object = 0.0
    prior_variance: float = np.inf
    max_iter: int = 300
    tol: float = 1e-7
    inference: Inference = "auto"
    accuracy: float = 1e-9
    backend: str = "auto"
    threads: int | None = None
    name: ClassVar[str] = "bi"
    summary: ClassVar[str] = "Bayesian iterative algorithm: learns every worker's noise level"

    def __post_init__(self) -> None:
        if isinstance(self.support, np.ndarray):
            object.__setattr__(self, "support", tuple(self.support.tolist()))
        require(isinstance(self.noise, Noise), f"noise must be a Noise, got {self.noise!r}")
        require(self.tol > 0, f"tol must be positive, got {self.tol}")
        require(self.max_iter >= 1, f"max_iter must be at least 1, got {self.max_iter}")
        check_scale(self.scale)
        SharedError.option(self.shared_error)
        self.engine()
        require(
            self.scale == "linear" or np.isinf(self.prior_variance),
            "prior_mean and prior_variance need scale='linear'; drop them, or the scale",
        )
        require(
            np.isfinite(self.prior_variance)
            or (isinstance(self.prior_mean, float | int) and not self.prior_mean),
            "prior_mean does nothing without a finite prior_variance; give both",
        )
        require(
            self.is_plain or (self.support != "nbi" and self.weights is None),
            "noise components need support 'auto', 'common' or levels of equal weight",
        )
        require(
            self.is_plain or np.isinf(self.prior_variance),
            "noise components exclude prior_variance; use noise=Noise(truths='learn')",
        )
        if isinstance(self.prior_mean, np.ndarray | np.generic | list):
            object.__setattr__(self, "prior_mean", as_tuples(self.prior_mean))
        if isinstance(self.support, str):
            require(
                self.support in ("auto", "nbi", "common"),
                "support must be 'auto', 'nbi', 'common' or a list of variances, "
                f"got {self.support!r}",
            )
            require(
                self.weights is None,
                f"weights need an explicit support, got support={self.support!r}",
            )
            Model(support=(1.0,), prior_variance=self.prior_variance)
        else:
            # The model checks support and weights; as tuples they make the estimator hashable.
            model = Model(
                support=self.support, weights=self.weights, prior_variance=self.prior_variance
            )
            object.__setattr__(self, "support", model.support)
            object.__setattr__(self, "weights", None if self.weights is None else model.weights)

    @property
    def is_plain(self) -> bool:
        """Return whether the noise is the paper's."""
        return self.noise.is_plain and self.support != "common"

    def engine(self) -> Engine:
        """How messages are computed."""
        return Engine(
            backend=self.backend,
            inference=self.inference,
            accuracy=self.accuracy,
            threads=self.threads,
        )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        scale = SCALES[self.scale].of(answers, self.noise.bounds)
        there = self.for_scale(scale)
        # A scale with its own range keeps to it.
        bounds = None if there.noise.bounds is None else self.noise.bounds
        refuse_bounds(answers, bounds)

        def fit(answers: Answers) -> Result:
            found = fit_on_scale(lambda a: there._fit_in_reach(a, on_sweep), answers, scale)
            if there is not self:
                found = with_settings(found, plain_settings(self))
            found = keep_bounds(found, answers, bounds)
            return with_own_noise(answers, found) if self.support == "auto" else found

        # Levels that are given fit all groups, and truths of a given prior are to be of all tasks.
        if not isinstance(self.support, str) or np.isfinite(self.prior_variance):
            return fit(answers)
        return fit_groups(fit, answers, scale.answers(answers))

    def _fit_in_reach(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        """Fit answers within reach of each other, where something is laid out by their range."""
        if self.is_plain and not isinstance(self.support, str):
            return self._fit(answers, on_sweep)
        may_move = bool(np.isinf(self.prior_variance))
        return fit_within_reach(lambda a: self._fit(a, on_sweep), answers, may_move)

    def _fit(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        if not self.is_plain:
            # Levels that are given are in the users' units.
            units = None if isinstance(self.support, str) else np.ones(answers.dimension)
            freeing = learned_before(answers, self.noise)
            data, engine = prepare(answers, units), self.engine()
            fit = NoiseFit(data, self.noise, engine, self.support, freeing=freeing)
            learned = fit.fit(self.tol, self.max_iter, self.accuracy, on_sweep)
            result = learned.result(plain_settings(self))
        else:
            result = self.fit_levels(answers, self._choose_model(answers, on_sweep), on_sweep)
        return with_shared_error(answers, result, self.shared_error, self.noise.bounds)

    def for_scale(self, scale: Scale) -> BI:
        """The estimator to fit answers on a scale with."""
        if scale == LINEAR and self.scale == "linear":
            return self
        noise = replace(self.noise, bounds=scale.bounds(self.noise.bounds))
        return replace(self, scale="linear", noise=noise)

    def fit_levels(
        self, answers: Answers, chosen: ChosenModel, on_sweep: OnSweep | None = None
    ) -> Result:
        """Aggregate the answers under the paper's noise, with levels that were chosen before."""
        messages = self.engine().open(answers, chosen.model)
        settled = self.settle(messages, chosen, on_sweep)
        moments = messages.posterior(PROBABILITIES)
        settings = settled.settings | {"inference_used": messages.used}
        return make_result(answers, settings, moments, settled.workers, settled.trace, chosen.notes)

    def settle(
        self, messages: Schedule, chosen: ChosenModel, on_sweep: OnSweep | None = None
    ) -> Settled:
        """Pass messages until they converge, wherever answers are, and summarise the workers."""
        model = chosen.model
        trace = iterate_until(
            lambda damping: messages.sweep(damping)[0], self.tol, self.max_iter, "BI", on_sweep
        )
        belief = softmax(messages.sums * messages.quantum + model.log_weights, axis=1)
        settings = plain_settings(self) | {
            "support_used": list(model.support),
            "weights_used": list(model.weights or ()),
            "learning_sweeps": chosen.n_sweeps,
        }
        return Settled(worker_noise(belief, model, between=self.support == "auto"), trace, settings)

    def _choose_model(self, answers: Answers, on_sweep: OnSweep | None) -> ChosenModel:
        prior_mean = self.prior_mean
        if not isinstance(prior_mean, int | float | tuple):
            prior_mean = read_truth(
                prior_mean, answers.task_ids, answers.value_names, needed="prior_mean"
            )
            require(bool(np.isfinite(prior_mean).all()), "prior_mean must be given for every task")
        base = self.base_model(prior_mean, answers.dimension)
        if self.support == "nbi":
            return support_from_nbi(answers, base)
        if self.support == "auto":
            return learn_support(answers, base, self.engine(), self.max_iter, on_sweep)
        assert not isinstance(self.support, str)
        return ChosenModel(base.with_levels(self.support, self.weights))

    def base_model(self, prior_mean: object, dimension: int) -> Model:
        """The model without its levels."""
        return Model(
            support=(1.0,),
            prior_mean=prior_mean,  # type: ignore[arg-type]
            prior_variance=self.prior_variance,
            dimension=dimension,
        )
