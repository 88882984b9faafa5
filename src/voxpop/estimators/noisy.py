"""BI under a rich noise model: learn its parameters beside the messages, then let them settle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from voxpop.answers import Answers
from voxpop.arrays import Codes, Floats
from voxpop.audit import Audit as AnswerAudit
from voxpop.backends import Engine
from voxpop.backends.integrals import Audit, Beliefs, Integrals
from voxpop.estimators.averages import medians
from voxpop.estimators.base import (
    OnSweep,
    make_result,
    repeat,
    weighted_means,
    with_gold,
    worker_noise,
)
from voxpop.estimators.learning import (
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
from voxpop.estimators.support import learn_support, level_bounds
from voxpop.kernels.posterior import Posterior, stretched
from voxpop.model import Model
from voxpop.noise import STEP, Noise, tail_variance
from voxpop.result import PROBABILITIES, Result, Trace

# Learning needs no more digits than this of an integral, and the parameters no more than that.
_LEARNING_ACCURACY = 1e-4
_SETTLED = 5e-3
_FIRST_SWEEPS, _LEARNING_SWEEPS = 4, 40
# With the bias or the slips taken out, the workers' own noise is lower than it looked: so many
# steps of the levels are added below those that Gaussian noise alone made use of, and above.
_MORE_BELOW, _MORE_ABOVE = 3, 1
# Messages about biases push the answers of a task back and forth; half a step at a time settles.
_BIAS_DAMPING = 0.5
_FINEST_TOL, _FINEST_ACCURACY = 1e-4, 1e-7
# Log odds against a level that no message about a single answer can outweigh.
_IMPOSSIBLE = -1e12


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit under a noise model found, in the users' units."""

    posterior: Posterior
    level_posterior: Floats
    levels: Floats
    learned: Learned
    difficulty: Floats
    usual_difficulty: float
    bias: Floats
    bias_variance: Floats
    audit: Audit
    trace: Trace
    learning_sweeps: int
    scale: Floats
    on_grid: bool

    def facts(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        learned = self.learned
        return {
            "weights_used": np.exp(learned.log_weights).tolist(),
            "support_used": (self.levels * float((self.scale**2).mean())).tolist(),
            "tails_used": None if np.isinf(learned.freedom) else learned.freedom,
            "difficulty_shares": np.exp(learned.log_class).tolist(),
            "bias_sd": (np.sqrt(learned.bias_variance) * self.scale).tolist()
            if learned.bias_variance.size
            else [],
            "bias_exponent": learned.exponent if learned.bias_variance.size else None,
            "coordinate_scale": self.scale.tolist(),
            "learning_sweeps": self.learning_sweeps,
        }


class NoisyFit:
    """One data set and one noise model: learn, settle, sum up."""

    def __init__(self, answers: Answers, noise: Noise, engine: Engine, support: object) -> None:
        """Take ``support`` as :class:`BI` does: "auto", "common", or levels of equal weight."""
        self._answers, self._noise, self._engine = answers, noise, engine
        self._common = support == "common"
        explicit = not isinstance(support, str)
        self._scale = np.ones(answers.dimension) if explicit else coordinate_scale(answers)
        self._origin = _origins(answers)
        self._scaled = replace(answers, value=answers.value / self._scale)
        self._explicit = support if explicit else None
        gold = np.full(self._origin.shape, np.nan) if answers.gold is None else answers.gold
        bounds = np.array([[-np.inf], [np.inf]]) * np.ones((2, answers.dimension))
        if noise.bounds is not None:
            bounds = np.array(noise.bounds)[:, None] * np.ones((2, answers.dimension))
        self._integrals = Integrals(
            answers,
            (answers.value - self._origin[answers.task]) / self._scale,
            self._origin / self._scale,
            (gold - self._origin) / self._scale,
            bounds / self._scale,
            engine.mixtures(),
        )
        self._crowd, self._anchored = _crowds(answers)
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
        self._integrals.start(len(learned.levels), len(learned.log_class))
        n_learning, n_learned = min(max_iter, _LEARNING_SWEEPS), 0
        lowest = float(learned.levels[0])

        def learn(damping: float) -> float:
            nonlocal learned, n_learned
            before = learned
            beliefs, bias = self._believe(learned)
            level = softmax(beliefs.log_level, axis=1)
            if self._common:
                learned = learn_common_level(learned, self._common_likelihood(), lowest)
            elif self._explicit is None:
                learned = learn_shares(learned, level)
            if bias is not None:
                learned = shift_truths(learned, bias)
                learned = learn_bias(
                    learned,
                    *self._integrals.bias_sums(),
                    self._log_level(learned, level),
                    1e-6 * learned.levels[0],
                )
            _, counts = self._integrals.sweep(
                learned.law(_LEARNING_ACCURACY), beliefs, damping, _BIAS_DAMPING
            )
            learned = learn_counts(learned, self._noise, counts, self._answers.n_tasks)
            n_learned += 1
            # The first messages know nothing of each other: a few more before anything may rest.
            return learned.distance(before) if n_learned > _FIRST_SWEEPS else np.inf

        learning = repeat(
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
            if bias is not None:
                learned = shift_truths(learned, bias)
            law = learned.law(accuracy)
            return self._integrals.sweep(law, beliefs, damping, max(damping, _BIAS_DAMPING))[0]

        trace = repeat(
            settle,
            tol=max(tol, _FINEST_TOL),
            max_iter=max_iter,
            what="BI",
            on_sweep=on_sweep,
            warn=warn,
        )
        return self._sum_up(learned, trace, learning.n_sweeps)

    def _start(self, levels: Floats | None, on_sweep: OnSweep | None) -> Learned:
        means = weighted_means(self._scaled, np.ones(self._answers.n_edges))
        if self._explicit is not None:
            model = Model(support=self._explicit)  # type: ignore[arg-type]
            return begin(self._noise, model.levels, model.log_weights, means)
        if levels is None:
            levels = starting_levels(self._answers, self._engine, on_sweep)
        return begin(self._noise, levels, np.full(len(levels), -np.log(len(levels))), means)

    def _believe(self, learned: Learned) -> tuple[Beliefs, BiasBelief | None]:
        """What the workers believe of themselves after the last sweep."""
        if self._common:
            log_level = self._certain_level()
        else:
            log_level = self._integrals.level_sums() + learned.log_weights
        none = np.empty((0, 0))
        if not learned.bias_variance.size:
            return Beliefs(log_level, none, none), None
        precision, pull = self._integrals.bias_sums()
        bias = believe_bias(
            learned,
            precision,
            pull,
            self._log_level(learned, softmax(log_level, axis=1)),
            self._crowd,
            self._anchored,
        )
        self._integrals.recentre(bias.shift)
        return Beliefs(log_level, bias.mean, bias.precision), bias

    def _common_likelihood(self) -> Floats:
        """Log likelihood of all answers under each level; sorted, so that no order shows."""
        return np.asarray(np.sort(self._integrals.level_sums(), axis=0).sum(axis=0))

    def _certain_level(self) -> Floats:
        """One level for all workers, held for certain once answers have been heard, (m, K).

        A belief would be another one for each answer, without what the answer itself says of it;
        and one answer to a task of great size can say more than all others together.
        """
        likelihood = self._common_likelihood()
        certain = np.zeros_like(likelihood)
        if likelihood.any():
            certain[:] = _IMPOSSIBLE
            certain[np.argmax(likelihood)] = 0.0
        return np.broadcast_to(certain, (self._answers.n_workers, len(certain)))

    def _log_level(self, learned: Learned, posterior: Floats) -> Floats:
        """Each worker's expected log level, less the average."""
        log_level = posterior @ np.log(learned.levels)
        return np.asarray(log_level - np.sort(log_level).mean())

    def _sum_up(self, learned: Learned, trace: Trace, learning_sweeps: int) -> Fitted:
        answers, scale = self._answers, self._scale
        law = learned.law(max(self._engine.accuracy, _FINEST_ACCURACY))
        beliefs, bias = self._believe(learned)
        found, classes = self._integrals.posterior(law, beliefs, PROBABILITIES)
        audit = self._integrals.audit(law, beliefs)
        shift = np.zeros_like(found.variance)
        if bias is not None:
            # All workers of a task are of one crowd; the first answer's will do.
            shift = bias.shift_variance[answers.worker[answers.task_ptr[:-1]]]
            shift = np.where(answers.is_gold[:, None], 0.0, shift)
        widened = stretched(found, found.variance + shift)
        # To the last bit, the estimate of a gold task is its truth.
        gold = answers.is_gold[:, None]
        estimate = with_gold(answers, widened.estimate * scale + self._origin)
        quantile = widened.quantile * scale[:, None] + self._origin[:, :, None]
        posterior = Posterior(
            estimate,
            np.where(gold, 0.0, widened.variance * scale**2),
            np.where(gold[:, :, None], estimate[:, :, None], quantile),
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
            audit=Audit(
                audit.log_density - np.log(scale),
                audit.pit,
                audit.truth_mean * scale + self._origin[answers.task],
                audit.truth_variance * scale**2,
                audit.bias * scale,
                audit.variance * scale**2,
            ),
            trace=trace,
            learning_sweeps=learning_sweeps,
            scale=scale,
            on_grid=not self._common and self._explicit is None,
        )


def starting_levels(answers: Answers, engine: Engine, on_sweep: OnSweep | None = None) -> Floats:
    """Levels, in units of :func:`coordinate_scale`, that any noise model can make do with."""
    scaled = replace(answers, value=answers.value / coordinate_scale(answers))
    base = Model(support=(1.0,), dimension=answers.dimension)
    found = learn_support(scaled, base, engine, _LEARNING_SWEEPS, on_sweep).model.levels
    low, high = level_bounds(scaled)
    lowest = max(found[0] / STEP**_MORE_BELOW, min(low, found[0]))
    highest = min(found[-1] * STEP**_MORE_ABOVE, max(high, found[-1]))
    n_levels = max(2, round(np.log(highest / lowest) / np.log(STEP)) + 1)
    return np.asarray(lowest * STEP ** np.arange(n_levels))


def coordinate_scale(answers: Answers) -> Floats:
    """Typical distance of answers from their task's median, per coordinate; geometric mean one.

    So that a coordinate which scatters more than others counts for as much, not more.
    """
    if answers.dimension == 1:
        return np.ones(1)
    distance = np.abs(answers.value - medians(answers)[answers.task])
    scale = np.array([np.median(d[d > 0]) if (d > 0).any() else np.nan for d in distance.T])
    if np.isnan(scale).all():
        return np.ones(answers.dimension)
    # A coordinate in which all agree has no scale of its own.
    scale = np.where(np.isnan(scale), np.nanmin(scale), scale)
    return np.asarray(scale / np.exp(np.log(scale).mean()))


def _origins(answers: Answers) -> Floats:
    """The middle answer of each task, per coordinate: differences from it are exact."""
    first, degree = answers.task_ptr[:-1], answers.task_degree
    origin = np.empty((answers.n_tasks, answers.dimension))
    for j in range(answers.dimension):
        ordered = answers.value[np.lexsort((answers.value[:, j], answers.task)), j]
        origin[:, j] = ordered[first + degree // 2]
    return origin


def _crowds(answers: Answers) -> tuple[Codes, NDArray[np.bool_]]:
    """Number the connected parts of the graph per worker, and tell which of them have gold."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = answers.n_tasks
    size = n + answers.n_workers
    edges = coo_array(
        (np.ones(answers.n_edges), (answers.task, answers.worker + n)), shape=(size, size)
    )
    n_crowds, part = connected_components(edges, directed=False)
    anchored = np.zeros(n_crowds, dtype=bool)
    anchored[part[:n][answers.is_gold]] = True
    return part[n:], anchored


def noisy_result(answers: Answers, settings: dict[str, Any], found: Fitted) -> Result:
    """Put what was found under a noise model into a result."""
    learned = found.learned
    # What an answer scatters by: heavy tails included, on average over the coordinates.
    spread = tail_variance(learned.freedom) * float((found.scale**2).mean())
    factor = spread * found.usual_difficulty
    model = Model(support=found.levels * factor, weights=np.exp(learned.log_weights))  # type: ignore[arg-type]
    audit = AnswerAudit.of(
        answers.value,
        answers.task,
        answers.task_degree[answers.task] > 1,
        pit=found.audit.pit,
        predicted=found.audit.truth_mean + found.audit.bias,
        predicted_sd=np.sqrt(found.audit.variance),
        truth=found.audit.truth_mean,
        log_density=found.audit.log_density,
        exact=True,
    )
    result = make_result(
        answers,
        settings | found.facts(),
        stretched(found.posterior, max(audit.stretch, 1.0) ** 2 * found.posterior.variance),
        worker_noise(found.level_posterior, model, between=found.on_grid),
        found.trace,
        audit=audit,
    )
    return replace(
        result,
        worker_bias=found.bias,
        worker_bias_sd=np.sqrt(found.bias_variance),
        task_difficulty=found.difficulty,
    )
