"""BI under a noise model: learn its parameters beside the messages, then let these settle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.beliefs import (
    WorkerBeliefs,
    bias_sums,
    certain_level,
    common_likelihood,
    relative_level,
)
from voxpop.estimators.bi.gains import learn_gains, with_noise_as_given
from voxpop.estimators.bi.initialise import PreparedAnswers, initial_messages, starting_levels
from voxpop.estimators.bi.noise_levels import informative_workers
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.make_result import make_result, worker_noise
from voxpop.estimators.plug_in import MOST_KEPT
from voxpop.inference.engine import Engine
from voxpop.inference.groups import SweepParameters, TruthPrior
from voxpop.inference.kernel_set import Predictions
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.kernels.posterior import Posterior, reaching, stretched
from voxpop.inference.message_passing import MessagePassing
from voxpop.models.model import Model
from voxpop.models.noise import Noise, NoiseParameters
from voxpop.models.noise.bias import Bias, BiasPosterior
from voxpop.models.noise.bounds import Bounds
from voxpop.models.noise.component import StartingPoint, WorkerEvidence
from voxpop.models.noise.difficulty import Difficulty
from voxpop.models.noise.levels import Levels, learn_shares
from voxpop.models.noise.truths import Truths
from voxpop.models.noise_facts import NoiseFacts
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration
from voxpop.results.result import PROBABILITIES, Result, Trace

# Most sweeps in which parameters are learned; they need no more digits than this of an integral,
# and stop when they change by less than this.
_LEARNING_SWEEPS, _LEARNING_ACCURACY, _SETTLED = 40, 1e-4, 5e-3
_FIRST_SWEEPS = 4
# Sweeps of the gold tasks alone, before any other task sends a message.
_GOLD_SWEEPS = 3
# Messages about biases push the answers of a task back and forth; half a step at a time settles.
_BIAS_DAMPING = 0.5
_FINEST_TOL, _FINEST_ACCURACY = 1e-4, 1e-7
# A crowd so large that its parameters come from a part of it needs no more digits than these.
_LARGE_TOL, _LARGE_ACCURACY = 5e-3, 1e-5
# A task is recomputed only if a worker's belief moved by more than this share of the tolerance.
_STALE = 0.3
_LARGE_LEARNING, _SHARE_STEPS = 5, 5


@dataclass(frozen=True, eq=False)
class NoiseFitted:
    """What a fit under a noise model found, in the users' units.

    ``answer_variance`` is that of an answer as a multiple of the worker's level, on the usual task
    and on average over the coordinates. ``columns`` are what components say of tasks and workers,
    by their field of :class:`Result`. ``hidden`` is what would be known of each gold task without
    its truth.
    """

    answers: Answers
    posterior: Posterior
    level_posterior: Floats
    parameters: NoiseParameters
    answer_variance: float
    columns: dict[str, Floats]
    audit: Audit | None
    trace: Trace
    learning_sweeps: int
    scale: Floats
    on_grid: bool
    hidden: Posterior

    def result(
        self,
        settings: dict[str, Any],
        of_part: Audit | None = None,
        *,
        posterior: Posterior | None = None,
        audit: Audit | None = None,
    ) -> Result:
        """Make a result, its intervals stretched as the audit asks.

        Where there is no audit, that of a part of the answers (``of_part``) is taken. With a
        ``posterior`` and an ``audit`` of several models, this one tells of the workers alone, and
        nothing is stretched.
        """
        levels = self.parameters[Levels]
        model = Model(
            support=levels.variance * self.answer_variance,  # type: ignore[arg-type]
            weights=np.exp(levels.log_weights),  # type: ignore[arg-type]
        )
        stretch = 1.0
        if audit is None:
            audit = self.audit
            if audit is None and of_part is not None:
                audit = Audit.from_dict(of_part.to_dict())
            stretch = 1.0 if audit is None else max(audit.stretch, 1.0)
        result = make_result(
            self.answers,
            settings | levels.settings(self.scale) | {"learning_sweeps": self.learning_sweeps},
            posterior or self.posterior,
            worker_noise(self.level_posterior, model, between=self.on_grid),
            self.trace,
            audit=audit,
        )
        facts = self.parameters.facts(self.scale)
        noise = NoiseFacts(coordinate_scale=tuple(self.scale.tolist()), **facts)
        result = replace(result, noise=noise, **self.columns)  # type: ignore[arg-type]
        return with_noise_as_given(result).calibrated(Calibration(stretch=stretch))


class NoiseFit:
    """One data set and one noise model: the messages, and the parameters learned beside them."""

    def __init__(
        self,
        data: PreparedAnswers,
        noise: Noise,
        engine: Engine,
        support: object,
        min_answers: int = 1,
        by_gold: bool = False,
    ) -> None:
        """Take ``support`` as :class:`BI` does: "auto", "common", or levels of equal weight.

        Workers with ``min_answers`` are learned from (:func:`informative_workers`), ``by_gold``
        from gold tasks alone: no other task sends a message.
        """
        self._answers, self._gains = data.answers, learn_gains(data.answers) if noise.gain else None
        if self._gains is not None:
            data, noise = self._gains.freed(data), replace(noise, bias=False)
        self._data, self._noise, self._engine, self._support = data, noise, engine, support
        self._informative = informative_workers(data.answers, min_answers)
        self._on_grid, self._common = support == "auto", support == "common"
        self._sending = data.answers.is_gold if by_gold else None
        self._part, self._anchored = data.part, data.anchored
        if noise.truths == "learn":
            # Truths of one distribution tie all parts of the crowd together.
            self._part = np.zeros_like(data.part)
            self._anchored = np.array([data.anchored.any()])
        self._messages: MessagePassing
        self._parameters: NoiseParameters | None = None
        self._n_learned = 0

    def fit(
        self,
        tol: float,
        max_iter: int,
        accuracy: float,
        on_sweep: OnSweep | None = None,
        levels: Floats | None = None,
        warn: bool = True,
    ) -> NoiseFitted:
        """Learn the parameters, then pass messages with these fixed until they settle.

        ``levels`` are those to start from, if :func:`starting_levels` was asked before. Called
        again, it goes on from where it stopped.
        """
        parameters = self._parameters or self._hear_gold(self._start(levels, on_sweep))
        parameters = self._learn(parameters, max_iter, on_sweep)
        accuracy = max(accuracy, _FINEST_ACCURACY)

        def settle(damping: float) -> float:
            nonlocal parameters
            beliefs, parameters, _ = self._beliefs(parameters)
            given = _sweep_parameters(parameters, accuracy)
            bias = beliefs.bias(max(damping, _BIAS_DAMPING))
            sent = self._messages.sweep(damping, parameters=given, bias=bias, tasks=self._sending)
            return sent[0]

        tol = max(tol, _FINEST_TOL)
        trace = iterate_until(settle, tol, max_iter, "BI", on_sweep, warn=warn)
        return self._fitted(parameters, trace, self._n_learned, accuracy)

    def _hear_gold(self, parameters: NoiseParameters) -> NoiseParameters:
        """Let gold tasks send their messages first.

        Where many workers share an error, messages settle as those agree, or as the truths say.
        """
        is_gold = self._data.answers.is_gold
        for _ in range(_GOLD_SWEEPS if is_gold.any() else 0):
            beliefs, parameters, _ = self._beliefs(parameters)
            given = _sweep_parameters(parameters, _LEARNING_ACCURACY)
            self._messages.sweep(parameters=given, bias=beliefs.bias(0.0), tasks=is_gold)
        return parameters

    def _learn(
        self, parameters: NoiseParameters, max_iter: int, on_sweep: OnSweep | None
    ) -> NoiseParameters:
        """EM beside the messages, one step a sweep."""

        def learn(damping: float) -> float:
            nonlocal parameters
            before = parameters
            beliefs, parameters, _ = self._beliefs(parameters)
            if self._common:
                best = parameters[Levels].moved_to_best(common_likelihood(self._messages))
                parameters = parameters.replace(best)
            parameters = self._learn_from_workers(parameters, beliefs)
            given = _sweep_parameters(parameters, _LEARNING_ACCURACY)
            bias = beliefs.bias(_BIAS_DAMPING)
            _, counts = self._messages.sweep(
                damping, parameters=given, bias=bias, tasks=self._sending, is_counted=True
            )
            assert counts is not None
            parameters = parameters.learn_from_counts(counts)
            self._n_learned += 1
            # The first messages do not depend on each other: a few more before EM may stop.
            return parameters.distance(before) if self._n_learned > _FIRST_SWEEPS else np.inf

        n_sweeps, what = min(max_iter, _LEARNING_SWEEPS), "learning the noise"
        iterate_until(learn, _SETTLED, n_sweeps, what, on_sweep, dampings=(0.0, 0.3), warn=False)
        return parameters

    def fit_from_subset(
        self, known: NoiseFitted, tol: float, max_iter: int, on_sweep: OnSweep | None = None
    ) -> NoiseFitted:
        """Take over what was learned on a part of these answers, and let all messages settle.

        For a few sweeps, what messages to the workers tell without another integral is learned
        on. A task is recomputed only if the belief of one of its workers has moved by a share of
        the tolerance since (residual scheduling).
        """
        answers, tol = self._data.answers, max(tol, _LARGE_TOL)
        common = int(known.level_posterior[0].argmax()) if self._common else None
        message, parameters = initial_messages(self._data, known.parameters, common, on_sweep)
        self._messages = _flat_messages(self._data, self._noise, self._engine, parameters)
        self._messages.resume(message, 1.0)
        accuracy = max(self._engine.accuracy, _LARGE_ACCURACY)
        moved, before, n_sweeps = np.zeros(answers.n_workers), None, 0
        # How far each worker had moved when the task of an answer was last computed.
        last = np.full(answers.n_edges, -np.inf)

        def settle(damping: float) -> float:
            nonlocal parameters, moved, before, n_sweeps
            beliefs, parameters, bias = self._beliefs(parameters)
            if n_sweeps < _LARGE_LEARNING:
                parameters = self._learn_from_workers(parameters, beliefs, _SHARE_STEPS)
            step = np.inf if before is None else beliefs.distance(before)
            moved = moved if before is None else moved + step
            before = beliefs
            now = moved[answers.worker]
            stale = np.logical_or.reduceat(now - last > _STALE * tol, answers.task_ptr[:-1])
            renewed = stale[answers.task]
            last[renewed] = now[renewed]
            given = _sweep_parameters(parameters, accuracy)
            about = beliefs.bias(max(damping, _BIAS_DAMPING))
            change, _ = self._messages.sweep(damping, parameters=given, bias=about, tasks=stale)
            n_sweeps += 1
            # Messages about levels do not say whether biases have settled.
            return change if bias is None else max(change, float(np.max(step)))

        trace = iterate_until(settle, tol=tol, max_iter=max_iter, what="BI", on_sweep=on_sweep)
        if on_sweep is not None:
            on_sweep("estimates", 1, np.inf, tol)
        audited = answers.value.size <= MOST_KEPT
        return self._fitted(parameters, trace, known.learning_sweeps, accuracy, audited)

    def _start(self, levels: Floats | None, on_sweep: OnSweep | None) -> NoiseParameters:
        """Parameters to start from, and empty messages."""
        data = self._data
        if not isinstance(self._support, str):
            levels = Model(support=self._support).levels  # type: ignore[arg-type]
        elif self._gains is not None:
            levels = self._gains.levels(data, self._answers, self._engine, on_sweep)
        elif levels is None:
            levels = starting_levels(data.answers, data.scale, self._engine, on_sweep)[1]
        log_weights = np.full(len(levels), -np.log(len(levels)))
        start = StartingPoint(levels, log_weights, data.task_means, data.value)
        parameters = NoiseParameters.initial(self._noise, start)
        self._messages = _flat_messages(data, self._noise, self._engine, parameters)
        return parameters

    def _learn_from_workers(
        self, parameters: NoiseParameters, beliefs: WorkerBeliefs, n_steps: int = 1
    ) -> NoiseParameters:
        """Learn the shares of levels (M21), and components such as the spread of biases (M37)."""
        levels, informative = parameters[Levels], self._informative
        own = beliefs.log_level[informative]
        posterior = softmax(own, axis=1)
        if self._on_grid:
            shares = learn_shares(own - levels.log_weights, levels.log_weights, n_steps)
            levels = replace(levels, log_weights=shares.log_weights)
            posterior = shares.posterior
            parameters = parameters.replace(levels)
        evidence = WorkerEvidence(
            levels.variance,
            relative_level(levels, posterior),
            *(sums[informative] for sums in bias_sums(self._messages, parameters)),
        )
        return parameters.learn_from_workers(evidence)

    def _beliefs(
        self, parameters: NoiseParameters
    ) -> tuple[WorkerBeliefs, NoiseParameters, BiasPosterior | None]:
        """Sum up the messages to each worker; with bias, set the zero of all biases."""
        levels, bias = parameters[Levels], parameters[Bias]
        messages = self._messages
        if self._common:
            messages.log_weights = certain_level(common_likelihood(self._messages))
            log_level = np.broadcast_to(messages.log_weights, messages.sums.shape)
        else:
            messages.log_weights = levels.log_weights
            log_level = messages.sums * messages.quantum + levels.log_weights
        precision, pull = bias_sums(self._messages, parameters)
        if not bias.is_on:
            return WorkerBeliefs(log_level, pull, precision), parameters, None
        relative = relative_level(levels, softmax(log_level, axis=1))
        found = bias.posterior(precision, pull, relative, self._part, self._anchored)
        messages.recentre(found.shift)
        parameters = parameters.replace(parameters[Truths].shifted(found.shift[0]))
        return WorkerBeliefs(log_level, found.mean, found.precision), parameters, found

    def _fitted(
        self,
        parameters: NoiseParameters,
        trace: Trace,
        learning_sweeps: int,
        accuracy: float,
        audited: bool = True,
    ) -> NoiseFitted:
        """Posterior of the truths and of the workers, in the users' units."""
        answers, scale = self._data.answers, self._data.scale
        given = _sweep_parameters(parameters, accuracy)
        # Beliefs may move the zero of the biases, and the prior with it: a later fit goes on there.
        beliefs, self._parameters, bias = self._beliefs(parameters)
        about = beliefs.bias(0.0)
        posterior = partial(self._messages.posterior_and_classes, PROBABILITIES, given, about)
        (found, classes), (hidden, _) = posterior(), posterior(hidden=True)
        if self._noise.bounds is not None:
            found = reaching(found, posterior(bounded=False)[0], PROBABILITIES < 0.5)
        if bias is not None:
            # All workers of a task are of one connected part: the first answer's will do.
            shift = bias.shift_variance[answers.worker[answers.task_ptr[:-1]]]
            shift = np.where(answers.is_gold[:, None], 0.0, shift) * scale**2
            found = stretched(found, found.variance + shift)
        columns = bias.columns(scale) if bias else {}
        predicted = self._messages.predict(given, about) if audited else None
        if self._gains is not None:
            parameters = parameters.replace(self._gains.component)
            found, columns = self._gains.posterior(found, answers.is_gold), self._gains.columns()
            predicted = None if predicted is None else self._gains.predictions(predicted)
        difficulty = parameters[Difficulty]
        variance = parameters.answer_variance * float((scale**2).mean())
        return NoiseFitted(
            answers=self._answers,
            posterior=found,
            level_posterior=softmax(beliefs.log_level, axis=1),
            parameters=parameters,
            answer_variance=variance * difficulty.usual(classes),
            columns=difficulty.columns(classes) | columns,
            audit=None if predicted is None else _audit(self._answers, predicted),
            trace=trace,
            learning_sweeps=learning_sweeps,
            scale=scale,
            on_grid=self._on_grid,
            hidden=hidden.rows(answers.is_gold),
        )


def _flat_messages(
    data: PreparedAnswers, noise: Noise, engine: Engine, parameters: NoiseParameters
) -> MessagePassing:
    """Lay out all messages, flat."""
    answers, bounds = data.answers, Bounds.interval(noise.bounds)
    return MessagePassing(
        answers,
        Model(support=parameters[Levels].variance.tolist(), dimension=answers.dimension),
        data.scale,
        "integrate",
        _LEARNING_ACCURACY,
        engine.kernels(),
        learned=True,
        n_classes=len(parameters[Difficulty].steps),
        bounds=np.outer(bounds, np.ones(answers.dimension)),
        has_bias=parameters[Bias].is_on,
    )


def _audit(answers: Answers, found: Predictions) -> Audit:
    """Hold every answer against its prediction from the others."""
    return Audit.of(
        answers.value,
        answers.task,
        answers.task_degree[answers.task] > 1,
        pit=found.pit,
        predicted=found.truth_mean + found.bias,
        predicted_sd=np.sqrt(found.variance),
        truth=found.truth_mean,
        log_density=found.log_density,
        exact=True,
    )


def _sweep_parameters(parameters: NoiseParameters, accuracy: float) -> SweepParameters:
    """What a sweep takes as given."""
    truths = parameters[Truths]
    return SweepParameters(
        NoiseGrid(*parameters.grid()),
        parameters[Difficulty].log_share,
        TruthPrior(truths.mean, truths.variance, truths.weight),
        accuracy,
    )
