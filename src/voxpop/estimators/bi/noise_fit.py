"""BI under a noise model: learn its parameters beside the messages, then let these converge."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.beliefs import (
    Messages,
    WorkerBeliefs,
    certain_level,
    common_likelihood,
    less_average,
    log_levels,
    relative_level,
    softmax,
)
from voxpop.estimators.bi.gains import Gains
from voxpop.estimators.bi.growth import Growing
from voxpop.estimators.bi.initialise import PreparedAnswers, kept_levels, starting_levels
from voxpop.estimators.bi.noise_fitted import NoiseFitted, together
from voxpop.estimators.bi.noise_levels import informative_workers
from voxpop.estimators.iterate import iterate_until
from voxpop.inference.engine import Engine
from voxpop.inference.groups import SweepParameters, TruthPrior, WorkerBias
from voxpop.inference.kernel_set import Predictions
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.kernels.posterior import Posterior, reaching, stretched
from voxpop.inference.message_passing import MessagePassing
from voxpop.inference.moment_matching import MomentMatching
from voxpop.inference.schedule import Whole
from voxpop.models.model import Model
from voxpop.models.noise import Noise, NoiseParameters
from voxpop.models.noise.bias import Bias, BiasPosterior
from voxpop.models.noise.bounds import Bounds
from voxpop.models.noise.careless import Careless
from voxpop.models.noise.component import StartingPoint, WorkerEvidence
from voxpop.models.noise.difficulty import Difficulty
from voxpop.models.noise.levels import Levels, learn_shares
from voxpop.models.noise.truths import Truths
from voxpop.results.audit import Audit
from voxpop.results.result import PROBABILITIES, Trace

# Most sweeps of learning, with moments matched and then with integrals; fewest before EM may stop.
_MATCHED_SWEEPS, _LEARNING_SWEEPS, _FIRST_SWEEPS = 12, 40, 4
_LEARNING_ACCURACY, _SETTLED = 1e-4, 5e-3  # of integrals; change of parameters at which EM stops
# Sweeps of integrals after matched moments, by most answers that an answer's task has on average.
FEW_ANSWERS, ALL_INTEGRATED = 4.5, 4
_INTEGRATED_SWEEPS = ((3.5, ALL_INTEGRATED), (FEW_ANSWERS, 2), (np.inf, 1))
# Sweeps of the gold tasks alone, before any other task sends a message: where many workers share
# an error, messages settle as those agree, or as the truths say.
_GOLD_SWEEPS = 3
# Messages about biases push the answers of a task back and forth; half a step at a time converges.
_BIAS_DAMPING = 0.5
_FINEST_TOL, _FINEST_ACCURACY = 1e-4, 1e-7
_NO_QUANTILES = np.empty(0)


class NoiseFit:
    """One data set and one noise model, learned by EM beside the messages, one step a sweep.

    First with moments matched, which is cheap and comes near, then with integrals.
    """

    def __init__(
        self,
        data: PreparedAnswers,
        noise: Noise,
        engine: Engine,
        support: object,
        min_answers: int = 1,
        by_gold: bool = False,
        freeing: Gains | Growing | None = None,
    ) -> None:
        """Take ``support`` as :class:`BI` does: "auto", "common", or levels of equal weight.

        Workers with ``min_answers`` are learned from (:func:`informative_workers`), ``by_gold``
        from gold tasks alone: no other task sends a message. With gains or growth, ``freeing``
        is what was learned of them before.
        """
        self._answers, self._freeing = data.answers, freeing
        if freeing is not None:
            # Gains have offsets, which are biases.
            bias = noise.bias and not noise.gain
            data, noise = freeing.freed(data), replace(noise, bias=bias)
        self._data, self._noise, self._engine, self._support = data, noise, engine, support
        informative = informative_workers(data.answers, min_answers)
        self._informative = slice(None) if informative.all() else informative
        self._on_grid, self._common = support == "auto", support == "common"
        self._sending = data.answers.is_gold if by_gold else None
        self._part, self._anchored = data.part, data.anchored
        if noise.truths == "learn":
            # Truths of one distribution tie all parts of the crowd together.
            self._part = np.zeros_like(data.part)
            self._anchored = np.array([data.anchored.any()])
        self._messages: Messages
        self._parameters: NoiseParameters
        self._n_learned = 0

    def fit(
        self,
        tol: float,
        max_iter: int,
        accuracy: float,
        on_sweep: OnSweep | None = None,
        warn: bool = True,
    ) -> NoiseFitted:
        """Learn the parameters, then pass messages with these fixed until they converge."""
        self.learn(max_iter, on_sweep)
        self._open_integrals(np.arange(len(self._parameters[Levels].variance)))
        self._learn(min(max_iter, _LEARNING_SWEEPS), on_sweep)
        accuracy = max(accuracy, _FINEST_ACCURACY)
        settle, tol = partial(self._settle, accuracy), max(tol, _FINEST_TOL)
        trace = iterate_until(settle, tol, max_iter, "BI", on_sweep, warn=warn)
        return self.fitted(accuracy, trace)

    def learn(
        self,
        max_iter: int,
        on_sweep: OnSweep | None = None,
        levels: Floats | None = None,
        start: NoiseFit | None = None,
        ahead: int = 0,
    ) -> None:
        """Learn the parameters with moments matched.

        ``levels`` are those to start from, if :func:`starting_levels` was asked before; ``start``
        is a fit with no other components to go on from, which puts this one some sweeps ``ahead``.
        """
        self._parameters = parameters = _initial(self, levels, on_sweep)
        about = self._data.answers, self._data.scale, self._engine
        self._messages = matching = match_messages(*about, parameters)
        if start is not None and isinstance(start._messages, MomentMatching):
            matching.resume(start._messages)
            self._parameters = parameters.resumed(start._parameters, start._noise.learned)
        self._n_learned = ahead
        self._hear_gold()
        self._learn(min(max_iter, _MATCHED_SWEEPS) - ahead, on_sweep)

    def refine(self, on_sweep: OnSweep | None = None, most: int = ALL_INTEGRATED) -> None:
        """Learn to convergence, then integrate, in as few sweeps as needed and ``most`` at most."""
        self._learn(_MATCHED_SWEEPS - self._n_learned, on_sweep)
        self._open_integrals(self._kept_levels())
        self._learn(min(most, integrated_sweeps(typical_degree(self._data.answers))), on_sweep)

    def _kept_levels(self) -> Index:
        self._beliefs()
        return kept_levels(self._parameters, log_levels(self._messages), self._common)

    def _open_integrals(self, levels: Index) -> None:
        """Continue with integrals from matched moments, with some of the levels."""
        before = self._messages
        assert isinstance(before, MomentMatching)
        self._parameters = self._parameters.keep(levels)
        about = self._noise, self._engine, self._parameters, before, levels
        self._messages = integral_messages(self._data.answers, self._data.scale, *about)
        self._messages.sums = before.sums.take(levels, axis=1)

    def _settle(self, accuracy: float, damping: float) -> float:
        """Send all messages once, with the parameters as they are."""
        bias = self._beliefs()[0].bias(max(damping, _BIAS_DAMPING))
        given = sweep_parameters(self._parameters, accuracy)
        return self._messages.sweep(damping, parameters=given, bias=bias, tasks=self._sending)[0]

    def _hear_gold(self) -> None:
        """Let gold tasks send their messages first."""
        is_gold = self._data.answers.is_gold
        for _ in range(_GOLD_SWEEPS if is_gold.any() else 0):
            bias = self._beliefs()[0].bias(0.0)
            given = sweep_parameters(self._parameters, _LEARNING_ACCURACY)
            self._messages.sweep(parameters=given, bias=bias, tasks=is_gold)

    def _learn(self, n_sweeps: int, on_sweep: OnSweep | None) -> None:
        """EM beside the messages, one step a sweep."""

        def learn(damping: float) -> float:
            before = self._parameters
            beliefs = self._beliefs()[0]
            if self._common:
                best = self._parameters[Levels].moved_to_best(common_likelihood(self._messages))
                self._parameters = self._parameters.replace(best)
            self._learn_from_workers(beliefs)
            given = sweep_parameters(self._parameters, _LEARNING_ACCURACY)
            bias = beliefs.bias(_BIAS_DAMPING)
            _, counts = self._messages.sweep(
                damping, parameters=given, bias=bias, tasks=self._sending, is_counted=True
            )
            assert counts is not None
            self._parameters = self._parameters.learn_from_counts(counts)
            self._n_learned += 1
            # The first messages do not depend on each other: a few more before EM may stop.
            return self._parameters.distance(before) if self._n_learned > _FIRST_SWEEPS else np.inf

        what = "learning the noise"
        iterate_until(learn, _SETTLED, n_sweeps, what, on_sweep, (0.0, 0.3), warn=False)

    def _learn_from_workers(self, beliefs: WorkerBeliefs, n_steps: int = 1) -> None:
        """Learn the shares of levels (M21), and components such as the spread of biases (M37)."""
        levels, informative = self._parameters[Levels], self._informative
        if self._on_grid:
            sums = self._messages.sums[informative]
            shares = learn_shares(sums, self._messages.quantum, levels.log_weights, n_steps)
            levels = replace(levels, log_weights=shares.log_weights)
            if (careless := self._parameters[Careless]).is_on:
                levels = levels.independent(careless.of_state)
            self._parameters = self._parameters.replace(levels)
        if not beliefs.bias_mean.size:
            return
        evidence = WorkerEvidence(
            np.sort(levels.variance),
            less_average(beliefs.relative[informative]),
            beliefs.said_precision[informative],
            beliefs.said_pull[informative],
        )
        self._parameters = self._parameters.learn_from_workers(evidence)

    def _beliefs(self) -> tuple[WorkerBeliefs, BiasPosterior | None]:
        """Sum up the messages to each worker; with bias, set the zero of all biases."""
        parameters, messages = self._parameters, self._messages
        levels, bias = parameters[Levels], parameters[Bias]
        if self._common:
            messages.log_weights = certain_level(common_likelihood(messages))
        else:
            messages.log_weights = levels.log_weights
        if not bias.is_on:
            return WorkerBeliefs(), None
        precision, pull = messages.bias_sums()
        relative = relative_level(levels, log_levels(messages))
        found = bias.posterior(precision, pull, relative, self._part, self._anchored)
        messages.recentre(found.shift)
        self._parameters = parameters.replace(parameters[Truths].shifted(found.shift[0]))
        said = precision, pull - precision * found.shift
        return WorkerBeliefs(found.mean, found.precision, *said, relative), found

    @property
    def is_matched(self) -> bool:
        """Return whether nothing has been integrated so far."""
        return isinstance(self._messages, MomentMatching)

    def expected_log_levels(self) -> Floats:
        """Each worker's expected log level (m,)."""
        self._beliefs()
        posterior = softmax(log_levels(self._messages))
        return np.asarray(posterior @ np.log(self._parameters[Levels].variance))

    def hidden_gold(self, accuracy: float) -> Floats:
        """What the estimates (g, d) of gold tasks would be without their truths, by integrals."""
        about, messages = self._beliefs()[0].bias(0.0), self._messages
        given = sweep_parameters(self._parameters, accuracy)
        assert isinstance(messages, MessagePassing)
        found = messages.posterior_and_classes(_NO_QUANTILES, given, about, hidden=True)
        known = self._answers.is_gold
        hidden = found[0].estimate[known]
        if isinstance(self._freeing, Growing):
            return self._freeing.estimates(hidden, known)
        return hidden

    def predict(self, accuracy: float, with_pit: bool = False) -> Predictions:
        """Predict every answer from the others, with moments matched or by integrals."""
        given = sweep_parameters(self._parameters, accuracy)
        found = self._messages.predict(given, self._beliefs()[0].bias(0.0), with_pit)
        return found if self._freeing is None else self._freeing.predictions(found)

    def audit(self, accuracy: float) -> Audit:
        """Compare every answer with its prediction from the others."""
        return audit_of(self._answers, self.predict(accuracy, with_pit=True))

    def fitted(
        self, accuracy: float, trace: Trace | None = None, audited: bool = True
    ) -> NoiseFitted:
        """Posterior of the truths and of the workers, in the users' units, by integrals."""
        answers, scale = self._data.answers, self._data.scale
        given = sweep_parameters(self._parameters, accuracy)
        # Beliefs may move the zero of the biases, and with it the prior: a later fit keeps that.
        beliefs, bias = self._beliefs()
        about, parameters, messages = beliefs.bias(0.0), self._parameters, self._messages
        assert isinstance(messages, MessagePassing)
        posterior = partial(messages.posterior_and_classes, PROBABILITIES, given, about)
        hidden = posterior(hidden=True)[0]
        shared = None if bias is None else bias.shift_variance * scale**2
        found, classes = find_posterior(messages, answers, self._noise, given, about, shared)
        states = softmax(log_levels(messages))
        columns = parameters[Careless].columns(states) | (bias.columns(scale) if bias else {})
        if self._freeing is not None:
            parameters = parameters.replace(self._freeing.component)
            found = self._freeing.posterior(found, answers.is_gold)
            columns = columns | self._freeing.columns()
        if isinstance(self._freeing, Growing):
            hidden = self._freeing.posterior(hidden)
        difficulty = parameters[Difficulty]
        variance = parameters.answer_variance * float((scale**2).mean())
        usual = difficulty.usual(classes)
        return NoiseFitted(
            answers=self._answers,
            posterior=found,
            level_posterior=states,
            parameters=parameters,
            answer_variance=variance * usual,
            columns=together(difficulty.columns(classes, usual), columns),
            audit=self.audit(accuracy) if audited else None,
            trace=trace or Trace(),
            learning_sweeps=self._n_learned,
            scale=scale,
            on_grid=self._on_grid,
            hidden=hidden.rows(answers.is_gold),
        )


def find_posterior(
    messages: MessagePassing,
    answers: Answers,
    noise: Noise,
    given: SweepParameters,
    bias: WorkerBias | None,
    shift_variance: Floats | None,
) -> tuple[Posterior, Floats]:
    """Posterior of the truths and of the classes of tasks, in the answers' own units.

    ``shift_variance`` (m, d) is that of the zero of the biases, which all workers of a connected
    part share.
    """
    posterior = partial(messages.posterior_and_classes, PROBABILITIES, given, bias)
    found, classes = posterior()
    if noise.bounds is not None:
        found = reaching(found, posterior(bounded=False)[0], PROBABILITIES < 0.5)
    if shift_variance is not None:
        # All workers of a task are of one connected part: the first answer's will do.
        shift = shift_variance[answers.worker[answers.task_ptr[:-1]]]
        shift = np.where(answers.is_gold[:, None], 0.0, shift)
        found = stretched(found, found.variance + shift)
    return found, classes


def _initial(fit: NoiseFit, levels: Floats | None, on_sweep: OnSweep | None) -> NoiseParameters:
    """Parameters to start from."""
    data = fit._data
    if not isinstance(fit._support, str):
        levels = Model(support=fit._support).levels  # type: ignore[arg-type]
    elif levels is None and fit._freeing is not None:
        levels = fit._freeing.levels(data, fit._answers, fit._engine, on_sweep)
    elif levels is None:
        levels = starting_levels(data.answers, data.scale, fit._engine, on_sweep)
    log_weights = np.full(len(levels), -np.log(len(levels)))
    start = StartingPoint(levels, log_weights, data.task_means, data.value)
    # Equal workers also slip equally often.
    careless = fit._noise.careless and not fit._common
    return NoiseParameters.initial(replace(fit._noise, careless=careless), start)


def match_messages(
    answers: Answers,
    scale: Floats,
    engine: Engine,
    parameters: NoiseParameters,
    whole: Whole | None = None,
) -> MomentMatching:
    """Lay out flat messages for matching moments."""
    model = states_of(parameters, answers.dimension)
    about = len(parameters[Difficulty].steps), parameters[Bias].is_on, whole
    return MomentMatching(answers, model, scale, engine.kernels(answers), *about)


def integral_messages(
    answers: Answers,
    scale: Floats,
    noise: Noise,
    engine: Engine,
    parameters: NoiseParameters,
    before: MomentMatching | None = None,
    levels: Index | None = None,
    whole: Whole | None = None,
) -> MessagePassing:
    """Lay out messages for integrals: flat, or from matched moments, all but their sums."""
    dimension = answers.dimension
    after = MessagePassing(
        answers,
        states_of(parameters, dimension),
        scale,
        "integrate",
        _LEARNING_ACCURACY,
        engine.kernels(answers),
        whole=whole,
        learned=True,
        n_classes=len(parameters[Difficulty].steps),
        bounds=np.outer(Bounds.interval(noise.bounds), np.ones(dimension)),
        has_bias=parameters[Bias].is_on,
    )
    if before is not None:
        assert levels is not None
        assert after.quantum == before.quantum
        after.resume(before.messages(), levels, before.bias_messages())
        after.evidence[:] = before.evidence
    return after


def states_of(parameters: NoiseParameters, dimension: int) -> Model:
    """As many levels as workers have states: each sweep gets their values."""
    levels = parameters[Levels].variance
    if parameters[Careless].is_on:
        levels = levels.min() * (1.0 + np.arange(len(levels)))
    return Model(support=levels.tolist(), dimension=dimension)


def typical_degree(answers: Answers) -> float:
    """How many answers the task of an answer has, on average."""
    return float(answers.task_degree[answers.task].mean())


def integrated_sweeps(degree: float) -> int:
    """Number of sweeps of integrals that messages need after matched moments.

    ``degree`` is what :func:`typical_degree` says.

    One Gaussian per answer is a better approximation the more answers a task has.
    """
    return next(n for most, n in _INTEGRATED_SWEEPS if degree <= most)


def audit_of(answers: Answers, found: Predictions) -> Audit:
    """Compare every answer with its prediction from the others."""
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


def sweep_parameters(parameters: NoiseParameters, accuracy: float) -> SweepParameters:
    """Inputs of a sweep."""
    truths = parameters[Truths]
    return SweepParameters(
        NoiseGrid(*parameters.grid()),
        parameters[Difficulty].log_share,
        TruthPrior(truths.mean, truths.variance, truths.weight),
        accuracy,
    )
