"""The crowd behind a pilot: how many workers of which noise, learned from a few answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri, softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.estimators.bi.noise_levels import learn_support
from voxpop.estimators.leave_one_out import jackknife_error, leave_one_out_means
from voxpop.inference.engine import Engine
from voxpop.models.model import Model
from voxpop.models.noise.component import STEP
from voxpop.models.noise.levels import FEWEST_WORKERS, learn_shares, shares_text
from voxpop.models.theory import oracle_mse, oracle_variance, oracle_variances
from voxpop.results.diagnosis.worker_tests import without_far_answers
from voxpop.results.shared_error import SharedError, SharedErrorOption, typical_answer_variance
from voxpop.words import counted

# Levels of the grid are a STEP apart, as BI learns them, and reach this far past its ends: BI drops
# a level that its rough weights leave empty, and EM may need it again.
_MARGIN = 2.0
# EM steps between two sweeps, and most sweeps. With few answers per worker EM moves by less than
# a thousandth a step for hundreds of steps, so steps must be cheap and the rest strict.
_STEPS, _MOST_SWEEPS, _SETTLED = 100, 40, 1e-3
_ACCURACY = 1e-5
# A weight that no worker supports is kept above zero, for its logarithm.
_LEAST_WEIGHT = 1e-6
# An answer is compared with at least two others: one alone is its own mean, whatever its weight.
_FEWEST_ANSWERS = 3
# Shares of trust that are weighed against each other.
_SHARES = np.linspace(0.0, 1.0, 201)
# Crowds drawn to see what their composition does: the sd comes within 4 %.
_DRAWS = 400
# Answers that stand for all of a crowd.
_ANSWERS = 2000


@dataclass(frozen=True, eq=False)
class LearnedCrowd:
    """Noise levels and their weights, and how many workers of the pilot have each.

    ``trust``, from 0 to 1, is how far left-out answers confirm the workers' weights: see
    :func:`trust_in_weights`. ``n_far`` answers of the pilot did not count, because they are far
    from all others to their task.
    """

    model: Model
    count: Floats
    trust: float = 1.0
    n_far: int = 0

    @classmethod
    def of(cls, crowd: Model | LearnedCrowd) -> LearnedCrowd:
        """Use a stated model, for which nothing has to be learned."""
        return crowd if isinstance(crowd, LearnedCrowd) else cls(crowd, np.empty(0))

    def summary(self) -> str:
        """Return one line: how many workers, and their noise levels."""
        shown = shares_text(np.sqrt(self.model.levels), np.array(self.model.weights))
        found = f"{self.count.sum():.0f} workers in the pilot; noise sd (share): {shown}"
        if self.n_far:
            found += f"; {counted(self.n_far, 'answer')} far from all others did not count"
        return found

    def draw_weights(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw weights from their posterior given the pilot's workers, (n, levels)."""
        return np.maximum(rng.dirichlet(self.count + 1.0 / len(self.count), n), _LEAST_WEIGHT)


def learn_crowd(source: object) -> LearnedCrowd:
    """Learn the workers' noise levels and weights from a pilot.

    Starts from the levels of ``BI(support="auto")``. BI needs their weights to tell workers apart,
    and stops EM early; a plan needs them to count workers, so here EM (M21) runs to its end, with
    messages updated by a sweep after every 100 steps. Answers far from all others to their task
    do not count: a typing error says nothing about the noise of a worker. ``source`` is a table, a
    path or :class:`Answers`.
    """
    pilot = read_answers(source)
    answers = without_far_answers(pilot)
    engine = Engine(accuracy=_ACCURACY)
    base = Model(support=(1.0,), dimension=answers.dimension)
    found = learn_support(answers, base, engine).model.levels
    low, high = found[0] / _MARGIN, found[-1] * _MARGIN
    n_levels = int(np.ceil(np.log(high / low) / np.log(STEP))) + 1
    model = base.with_levels(np.geomspace(low, high, n_levels).tolist())
    messages = engine.open(answers, model)
    weights = np.array(model.weights)
    for sweep in range(_MOST_SWEEPS):
        messages.sweep()
        before = weights
        shares = learn_shares(messages.sums, messages.quantum, np.log(before), _STEPS)
        weights = np.maximum(np.exp(shares.log_weights), _LEAST_WEIGHT)
        messages.log_weights = np.log(weights)
        # The first messages do not depend on each other: two more before EM may stop.
        if sweep > 2 and np.abs(weights - before).max() < _SETTLED:
            break
    count = shares.n_workers
    kept = count >= FEWEST_WORKERS
    learned = model.with_levels(model.levels[kept].tolist(), weights[kept].tolist())
    # The weight of a worker at a task, from the answers to the other tasks.
    elsewhere = messages.sums[answers.worker] - messages.messages().sum(axis=1)
    belief = softmax(elsewhere * messages.quantum + np.log(weights), axis=1)
    trust = trust_in_weights(answers, 1.0 / (belief @ model.levels))
    return LearnedCrowd(learned, count[kept], trust, pilot.n_edges - answers.n_edges)


def trust_in_weights(answers: Answers, weight: Floats) -> float:
    """How far left-out answers confirm the weights of the workers, from 0 to 1.

    Every answer A is predicted from the others of its task: by their mean y, with equal weights,
    and by their mean x with the weight (E,) that each worker has by the other tasks. The share of
    the way from y to x that predicts best, with equal weights for all workers, is ::

        t = Σ (A - y)(x - y) / Σ (x - y)²

    It is one where workers differ as learned, and zero where weighting moves the estimates but not
    towards the next worker's answer. Its standard error is that of the jackknife over workers or
    over tasks, the larger. The posterior mean of the share is returned, under a uniform prior from
    0 to 1: a half where no answer can be compared with others.
    """
    usable = (answers.task_degree[answers.task] >= _FEWEST_ANSWERS) & ~answers.is_gold[answers.task]
    if not usable.any():
        return 0.5
    plain = leave_one_out_means(answers)[usable]
    move = leave_one_out_means(answers, weight)[usable] - plain
    gain = ((answers.value[usable] - plain) * move).sum(axis=1)
    size = (move**2).sum(axis=1)
    owners = (answers.task[usable], answers.worker[usable])
    error = jackknife_error(gain, size, owners)
    if not np.isfinite(error):
        return 0.5
    freedom = min(len(np.unique(owner)) for owner in owners) - 1.0
    apart = (_SHARES - gain.sum() / size.sum()) / max(error, 1e-6)
    likelihood = softmax(-0.5 * (freedom + 1.0) * np.log1p(apart**2 / freedom))
    return float(likelihood @ _SHARES)


def pilot_error(crowd: LearnedCrowd, per_task: float, rng: np.random.Generator) -> float:
    """Relative standard error of a predicted RMSE from learning the crowd in a small pilot.

    From weights drawn from their posterior given the pilot, and the strong oracle's RMSE under
    each: the share of good workers changes BI's as it changes the oracle's. A stated crowd has
    none.
    """
    if not len(crowd.count):
        return 0.0
    weights = crowd.draw_weights(_DRAWS, rng)
    drawn = np.sqrt(oracle_variances(crowd.model, weights, per_task, 1.0))
    return float(np.std(drawn) / np.sqrt(oracle_variance(crowd.model, per_task, 1.0)))


def rmse_sampling_sd(
    model: Model, per_task: float, n_tasks: int, n_workers: int, rng: np.random.Generator
) -> float:
    """Relative standard deviation of the RMSE from one campaign to the next.

    It has two causes: how many workers of each level came, and how far off their answers to a
    finite number of tasks happen to be. Both are computed for the strong oracle::

        Var[MSE] ≈ Var_n[f(n / m)] + (d (d + 2) E[1/W²] - (d E[1/W])²) / n_tasks,

    with f(π) the expected MSE under weights π, and n the multinomial numbers of m workers.
    """
    weights = rng.multinomial(n_workers, np.array(model.weights), _DRAWS) / n_workers
    d, mean = model.dimension, oracle_mse(model, per_task)
    of_workers = np.var(d * oracle_variances(model, weights, per_task, 1.0))
    of_tasks = (d * (d + 2) * oracle_variance(model, per_task, 2.0) - mean**2) / n_tasks
    return float(np.sqrt(of_workers + of_tasks) / (2.0 * mean))


def shared_error_of(model: Model, given: SharedErrorOption | SharedError) -> SharedError | None:
    """The error that all workers of a crowd share: as given by an option, or as learned before.

    The typical variance of an answer, which kappa multiplies, is that of this crowd.
    """
    shared = given if isinstance(given, SharedError) else SharedError.option(given)
    if shared is None:
        return None
    numbers = np.maximum(1, np.round(_ANSWERS * np.array(model.weights))).astype(np.int64)
    parts = [
        np.sqrt(level) * ndtri((np.arange(n) + 0.5) / n)
        for level, n in zip(model.levels.tolist(), numbers.tolist(), strict=True)
    ]
    residual = np.concatenate(parts)[:, None]
    weight = np.repeat(1.0 / model.levels, numbers)
    one = typical_answer_variance(residual, np.zeros_like(residual), weight)
    return replace(shared, answer_variance=tuple(one.tolist()))
