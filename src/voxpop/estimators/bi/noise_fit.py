"""BI under a rich noise model: learn its parameters beside the messages, then let them settle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import weighted_means, with_gold
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.em_steps import (
    BiasBelief,
    Learned,
    begin,
    believe_bias,
    class_steps,
    learn_bias,
    learn_common_level,
    learn_counts,
    learn_shares,
    shift_truths,
)
from voxpop.estimators.bi.fitted import Fitted
from voxpop.estimators.bi.initialise import (
    LEARNING_SWEEPS,
    coordinate_scale,
    crowds,
    origins,
    start_from,
    starting_levels,
)
from voxpop.estimators.bi.noise_levels import telling_workers
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.plug_in import MOST_KEPT
from voxpop.inference.engine import Engine
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.inference.message_passing import MessagePassing, WorkerBias
from voxpop.models.model import Model
from voxpop.models.noise import STEP, Noise
from voxpop.results.result import PROBABILITIES, Trace

# Learning needs no more digits than this of an integral, and the parameters no more than that.
_LEARNING_ACCURACY = 1e-4
_SETTLED = 5e-3
_FIRST_SWEEPS = 4
# Messages about biases push the answers of a task back and forth; half a step at a time settles.
_BIAS_DAMPING = 0.5
_FINEST_TOL, _FINEST_ACCURACY = 1e-4, 1e-7
# Of a crowd so large that its parameters come from a part, nobody sees more digits than these.
_LARGE_TOL, _LARGE_ACCURACY, _STILL = 5e-3, 1e-5, 0.3
_LARGE_LEARNING, _SHARE_STEPS = 5, 5
# Log odds against a level that no message about a single answer can outweigh.
_IMPOSSIBLE = -1e12


class NoisyFit:
    """One data set and one noise model: learn, settle, sum up."""

    def __init__(
        self,
        answers: Answers,
        noise: Noise,
        engine: Engine,
        support: object,
        scale: Floats | None = None,
        fewest: int = 1,
    ) -> None:
        """Take ``support`` as :class:`BI` does: "auto", "common", or levels of equal weight.

        ``scale`` (d,) is the unit of each coordinate, if it is not to be found in these answers;
        ``fewest`` answers make a worker one to learn from (:func:`telling_workers`).
        """
        self._telling = telling_workers(answers, fewest)
        self._answers, self._noise, self._engine = answers, noise, engine
        self._common = support == "common"
        explicit = not isinstance(support, str)
        self._scale = np.ones(answers.dimension) if explicit else coordinate_scale(answers)
        self._scale = self._scale if scale is None else scale
        self._origin = origins(answers)
        self._scaled = replace(answers, value=answers.value / self._scale)
        self._explicit = support if explicit else None
        gold = np.full(self._origin.shape, np.nan) if answers.gold is None else answers.gold
        self._relative = (answers.value - self._origin[answers.task]) / self._scale
        self._gold = (gold - self._origin) / self._scale
        self._messages: MessagePassing
        self._crowd, self._anchored = crowds(answers)
        if noise.truths == "learn":
            # Truths of one distribution tie all parts of the crowd together.
            self._crowd = np.zeros_like(self._crowd)
            self._anchored = np.array([self._anchored.any()])

    def run(
        self,
        tol: float,
        max_iter: int,
        on_sweep: OnSweep | None,
        levels: Floats | None = None,
        warn: bool = True,
    ) -> Fitted:
        """Learn the parameters, then pass messages with these fixed until they settle.

        ``levels`` are those to start from, if :func:`starting_levels` was asked before.
        """
        learned = self._start(levels, on_sweep)
        self._messages = self._open(learned)
        n_learning, n_learned = min(max_iter, LEARNING_SWEEPS), 0
        lowest = float(learned.levels[0])

        def learn(damping: float) -> float:
            nonlocal learned, n_learned
            before = learned
            beliefs, bias = self._believe(learned)
            learned = learned if bias is None else shift_truths(learned, bias)
            if self._common:
                learned = learn_common_level(learned, self._common_likelihood(), lowest)
            learned = self._learn_of_workers(learned, beliefs)
            _, counts = self._messages.sweep(
                damping,
                parameters=learned.law(_LEARNING_ACCURACY),
                bias=beliefs.about_bias(_BIAS_DAMPING),
                is_counted=True,
            )
            assert counts is not None
            learned = learn_counts(learned, self._noise, counts, self._answers.n_tasks)
            n_learned += 1
            # The first messages know nothing of each other: a few more before anything may rest.
            return learned.distance(before) if n_learned > _FIRST_SWEEPS else np.inf

        learning = iterate_until(
            learn,
            tol=_SETTLED,
            max_iter=n_learning,
            what="learning the noise",
            on_sweep=on_sweep,
            dampings=(0.0, 0.3),
            warn=False,
        )
        accuracy = max(self._engine.accuracy, _FINEST_ACCURACY)

        def settle(damping: float) -> float:
            nonlocal learned
            beliefs, bias = self._believe(learned)
            learned = learned if bias is None else shift_truths(learned, bias)
            about = beliefs.about_bias(max(damping, _BIAS_DAMPING))
            return self._messages.sweep(damping, parameters=learned.law(accuracy), bias=about)[0]

        trace = iterate_until(
            settle,
            tol=max(tol, _FINEST_TOL),
            max_iter=max_iter,
            what="BI",
            on_sweep=on_sweep,
            warn=warn,
        )
        return self._sum_up(learned, trace, learning.n_sweeps, accuracy)

    def follow(
        self, part: Fitted, tol: float, max_iter: int, on_sweep: OnSweep | None = None
    ) -> Fitted:
        """Take over what was learned on a part of these answers, and let all messages settle.

        For a few sweeps what is learned of the workers alone, which costs nothing, goes on being
        learned. A task speaks again when a worker of its has since moved by part of the tolerance.
        """
        answers, tol = self._answers, max(tol, _LARGE_TOL)
        common = int(part.level_posterior[0].argmax()) if self._common else None
        start = start_from(answers, self._relative, self._gold, part.learned, common, on_sweep)
        learned = start.learned
        self._messages = self._open(learned)
        self._messages.resume(start.message, 1.0)
        accuracy = max(self._engine.accuracy, _LARGE_ACCURACY)
        moved, before, n_sweeps = np.zeros(answers.n_workers), None, 0
        # What each worker had moved by when the task last spoke to it.
        heard = np.full(answers.n_edges, -np.inf)

        def settle(damping: float) -> float:
            nonlocal learned, moved, before, n_sweeps
            beliefs, bias = self._believe(learned)
            learned = learned if bias is None else shift_truths(learned, bias)
            if n_sweeps < _LARGE_LEARNING:
                learned = self._learn_of_workers(learned, beliefs, _SHARE_STEPS)
            step = np.inf if before is None else beliefs.distance(before)
            moved = moved if before is None else moved + step
            before = beliefs
            now = moved[answers.worker]
            stale = np.logical_or.reduceat(now - heard > _STILL * tol, answers.task_ptr[:-1])
            spoken = stale[answers.task]
            heard[spoken] = now[spoken]
            about = beliefs.about_bias(max(damping, _BIAS_DAMPING))
            change, _ = self._messages.sweep(
                damping, parameters=learned.law(accuracy), bias=about, tasks=stale
            )
            n_sweeps += 1
            # Messages about levels say nothing of whether biases have settled.
            return change if bias is None else max(change, float(np.max(step)))

        trace = iterate_until(settle, tol=tol, max_iter=max_iter, what="BI", on_sweep=on_sweep)
        if on_sweep is not None:
            on_sweep("estimates", 1, np.inf, tol)
        audited = answers.value.size <= MOST_KEPT
        return self._sum_up(learned, trace, part.learning_sweeps, accuracy, audited)

    def _open(self, learned: Learned) -> MessagePassing:
        """Lay out all messages, flat."""
        answers, bounds = self._answers, self._noise.bounds
        d = answers.dimension
        return MessagePassing(
            answers,
            Model(support=learned.levels.tolist(), dimension=d),
            self._scale,
            "integrate",
            _LEARNING_ACCURACY,
            self._engine.kernels(),
            learned=True,
            n_classes=len(learned.log_class),
            bounds=None if bounds is None else np.repeat(np.array(bounds)[:, None], d, axis=1),
            has_bias=learned.bias_variance.size > 0,
        )

    def _start(self, levels: Floats | None, on_sweep: OnSweep | None) -> Learned:
        means = weighted_means(self._scaled, np.ones(self._answers.n_edges))
        if self._explicit is not None:
            model = Model(support=self._explicit)  # type: ignore[arg-type]
            return begin(self._noise, model.levels, model.log_weights, means)
        if levels is None:
            levels = starting_levels(self._answers, self._engine, on_sweep).levels
        return begin(self._noise, levels, np.full(len(levels), -np.log(len(levels))), means)

    def _learn_of_workers(self, learned: Learned, beliefs: Beliefs, steps: int = 1) -> Learned:
        """Shares of the levels (M21) and spread of the biases (M37), from beliefs alone."""
        own = beliefs.log_level[self._telling]
        level = softmax(own, axis=1)
        if not self._common and self._explicit is None:
            said = own - learned.log_weights
            for step in range(steps):
                learned = learn_shares(learned, level)
                level = softmax(said + learned.log_weights, axis=1) if step + 1 < steps else level
        if learned.bias_variance.size:
            precision, pull = (sums[self._telling] for sums in self._messages.bias_sums())
            log_level = self._log_level(learned, level)
            learned = learn_bias(learned, precision, pull, log_level, 1e-6 * learned.levels[0])
        return learned

    def _believe(self, learned: Learned) -> tuple[Beliefs, BiasBelief | None]:
        """What the workers believe of themselves after the last sweep."""
        messages = self._messages
        if self._common:
            messages.log_weights = self._certain_level()
            log_level = np.broadcast_to(messages.log_weights, messages.sums.shape)
        else:
            messages.log_weights = learned.log_weights
            log_level = messages.sums * messages.quantum + learned.log_weights
        none = np.empty((0, 0))
        if not learned.bias_variance.size:
            return Beliefs(log_level, none, none), None
        precision, pull = self._messages.bias_sums()
        bias = believe_bias(
            learned,
            precision,
            pull,
            self._log_level(learned, softmax(log_level, axis=1)),
            self._crowd,
            self._anchored,
        )
        self._messages.recentre(bias.shift)
        return Beliefs(log_level, bias.mean, bias.precision), bias

    def _common_likelihood(self) -> Floats:
        """Log likelihood of all answers under each level."""
        return np.asarray(self._messages.sums.sum(axis=0) * self._messages.quantum)

    def _certain_level(self) -> Floats:
        """Log weights (K,) of one level for all workers, certain once answers have been heard.

        A belief would be another one for each answer, without what the answer itself says of it;
        and one answer to a task of great size can say more than all others together.
        """
        likelihood = self._common_likelihood()
        certain = np.zeros_like(likelihood)
        if likelihood.any():
            certain[:] = _IMPOSSIBLE
            certain[np.argmax(likelihood)] = 0.0
        return certain

    def _log_level(self, learned: Learned, posterior: Floats) -> Floats:
        """Each worker's expected log level, less the average."""
        log_level = posterior @ np.log(learned.levels)
        return np.asarray(log_level - np.sort(log_level).mean())

    def _sum_up(
        self,
        learned: Learned,
        trace: Trace,
        learning_sweeps: int,
        accuracy: float,
        audited: bool = True,
    ) -> Fitted:
        answers, scale = self._answers, self._scale
        law = learned.law(accuracy)
        beliefs, bias = self._believe(learned)
        about = beliefs.about_bias(0.0)
        found, classes = self._messages.posterior_and_classes(PROBABILITIES, law, about)
        shift = np.zeros_like(found.variance)
        if bias is not None:
            # All workers of a task are of one crowd; the first answer's will do.
            shift = bias.shift_variance[answers.worker[answers.task_ptr[:-1]]]
            shift = np.where(answers.is_gold[:, None], 0.0, shift) * scale**2
        widened = stretched(found, found.variance + shift)
        # To the last bit, the estimate of a gold task is its truth.
        gold = answers.is_gold[:, None]
        estimate = with_gold(answers, widened.estimate)
        posterior = Posterior(
            estimate,
            np.where(gold, 0.0, widened.variance),
            np.where(gold[:, :, None], estimate[:, :, None], widened.quantile),
        )
        log_difficulty = classes @ class_steps(classes.shape[1]) * np.log(STEP)
        usual = float(np.sort(log_difficulty).mean())
        none = np.empty((0, 0))
        return Fitted(
            posterior=posterior,
            level_posterior=softmax(beliefs.log_level, axis=1),
            levels=learned.levels,
            learned=learned,
            difficulty=np.exp(log_difficulty - usual) if self._noise.difficulty else np.empty(0),
            usual_difficulty=float(np.exp(usual)),
            bias=none if bias is None else bias.mean * scale,
            bias_variance=none if bias is None else scale**2 / bias.precision,
            audit=self._messages.predict(law, about) if audited else None,
            trace=trace,
            learning_sweeps=learning_sweeps,
            scale=scale,
            on_grid=not self._common and self._explicit is None,
        )


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of the workers: log levels (m, K), mean and precision of the bias (m, d).

    Without bias the last two are empty.
    """

    log_level: Floats
    bias: Floats
    bias_precision: Floats

    def about_bias(self, damping: float) -> WorkerBias | None:
        """The biases as messages hear them, and the damping of the answer."""
        if not self.bias.size:
            return None
        return WorkerBias(self.bias, self.bias_precision, damping)

    def distance(self, other: Beliefs) -> Floats:
        """How far each worker's are from others: in probability, and in sds of the bias (m,)."""
        found = np.abs(softmax(self.log_level, axis=1) - softmax(other.log_level, axis=1))
        if not self.bias.size:
            return np.asarray(found.max(axis=1))
        bias = np.abs(self.bias - other.bias) * np.sqrt(self.bias_precision)
        sure = np.abs(np.log(self.bias_precision / other.bias_precision))
        return np.asarray(found.max(axis=1) + (bias + sure).max(axis=1))
