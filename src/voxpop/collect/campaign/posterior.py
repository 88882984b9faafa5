"""The posterior of a campaign: truths and workers given all answers so far, updated on demand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import ndtri

from voxpop.arrays import Floats, Index
from voxpop.collect.campaign.learned import LearnedNoise
from voxpop.collect.campaign.ledger import Growing, Ledger
from voxpop.collect.campaign.messages import Messages
from voxpop.collect.campaign.selection import shrink_variances
from voxpop.collect.planning.learn_crowd import LearnedCrowd, trust_in_weights
from voxpop.data.answers import Answers
from voxpop.errors import require
from voxpop.estimators.aggregate import aggregate
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.make_result import make_result, worker_noise
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.scale import LINEAR
from voxpop.results.diagnosis.worker_tests import far_answers
from voxpop.results.result import PROBABILITIES, Result
from voxpop.results.scaled import in_units

_INTERVAL = np.array([0.025, 0.975])
# Tasks drawn to find the variance under even buying.
_DRAWN = 2000
# Tolerance of the beliefs, as probabilities, when selecting answers.
SELECTION_TOL = 1e-3


class CampaignPosterior:
    """Messages and the posteriors that follow; tasks without an answer have the prior's variance.

    With a model that was given these are BI's. With ``noise``, which the default learned, answers
    are first corrected for what was learned, and the posteriors are anchored to the default's.
    Variances are on the scale of the noise; they are recomputed only for tasks whose messages have
    changed, half-widths only when they are needed as well, because quantiles are slow.
    """

    def __init__(
        self,
        ledger: Ledger,
        crowd: LearnedCrowd,
        tol: float,
        noise: LearnedNoise | None = None,
    ) -> None:
        model = crowd.model
        require(
            np.asarray(model.prior_mean).ndim < 2,
            "a campaign takes one prior_mean for all tasks, not one for each",
        )
        require(tol > 0, f"tol must be positive, got {tol}")
        self.model, self.trust, self.tol = model, crowd.trust, tol
        self.ledger, self.noise = ledger, noise
        # By worker, the row of what was learned; the last row is that of any other worker.
        self._habit = Growing(np.int64, (), -1)
        if noise is not None:
            known = ledger.add_workers(noise.workers)
            self._habit.grow(len(ledger.workers))
            self._habit.rows[known] = np.arange(len(known))
        mixture = None if noise is None else noise.mixture
        self.messages = Messages(ledger, model, tol, self._freed, mixture)
        self.messages.touch(np.unique(ledger.task.rows).astype(np.int64))
        prior = model.prior_variance
        self._variance = Growing(np.float64, (), prior)
        self._half_width = Growing(np.float64, (), float(ndtri(0.975) * np.sqrt(prior)))
        # Variance in the users' units, over that on the scale.
        self._stretch = Growing(np.float64, (), 1.0)
        self._outdated = Growing(np.bool_)
        self._columns = self._variance, self._half_width, self._stretch, self._outdated

    def result(self) -> Result:
        """Return the result of a fit of all answers so far by BI."""
        self.messages.start_over()
        self.update(self.tol)
        found = self.messages.moments(None, PROBABILITIES)
        there = self.ledger.workers.in_order(self.ledger.of_worker.size > 0)
        workers = worker_noise(self.messages.belief()[there], self.model)
        settings = {
            "method": "bi",
            "support_used": list(self.model.support),
            "weights_used": list(self.model.weights or ()),
        }
        return make_result(self.ledger.answers(), settings, found, workers)

    def truths(self) -> tuple[Index, Posterior, Posterior]:
        """Return the tasks with answers, and the posteriors of their truths and of agreement."""
        self.update(SELECTION_TOL)
        tasks = self.ledger.answered()
        found = self._moments(tasks, PROBABILITIES)
        if self.noise is None:
            return tasks, found, found
        return tasks, self.noise.truth(found), in_units(self.noise.scale, found)

    def even_ratio(self) -> float:
        """Mean variance if as many answers had been bought evenly, divided by the actual one.

        An answer counts by its worker's expected precision (N5). Tasks drawn with the mean number
        of answers, of workers as they came, are compared with the tasks as they are.
        """
        ledger = self.ledger
        edge = np.flatnonzero(~ledger.is_gold[ledger.task.rows])
        n_tasks = int((~ledger.is_gold).sum())
        each = len(edge) / max(n_tasks, 1)
        if each < 1:
            return np.nan
        precision = (self.messages.belief() @ (1.0 / self.model.levels))[ledger.worker[edge]]
        total = np.bincount(ledger.task[edge], precision)
        rng = np.random.default_rng(0)
        n_answers = int(each) + (rng.random(_DRAWN) < each % 1)
        drawn = precision[rng.integers(len(edge), size=(_DRAWN, int(n_answers.max())))]
        even = np.where(np.arange(drawn.shape[1]) < n_answers[:, None], drawn, 0.0).sum(axis=1)
        return float((1.0 / even).mean() / (1.0 / total[total > 0]).mean())

    def beliefs(self, workers: Iterable[Any]) -> Floats:
        """Probabilities of workers' noise levels, shrunk by the trust; the last row is the crowd's.

        A worker without answers has the probabilities of the crowd.
        """
        crowd, belief = np.array(self.model.weights), self.messages.belief()
        numbers = [self.ledger.workers.find(worker) for worker in workers]
        rows = (
            crowd if u is None else self.trust * belief[u] + (1 - self.trust) * crowd
            for u in numbers
        )
        return np.array([*rows, crowd])

    def variances(self) -> Floats:
        """Variance of every truth, averaged over coordinates and shrunk by the trust."""
        return shrink_variances(self._variance.rows, self.ledger.of_task.size, self.trust)

    def in_units(self, variance: Floats, tasks: Index | slice = slice(None)) -> Floats:
        """Variances of tasks in the users' units, from those on the scale."""
        return np.asarray(variance * self._stretch.rows[tasks])

    def update(self, tol: float) -> None:
        """Pass messages until they change by less than ``tol``, then update the variances."""
        moved = self.messages.settle(tol)
        for column in self._columns:
            column.grow(len(self.ledger.tasks))
        self._refresh(moved)
        empty = self.ledger.of_task.size == 0
        for column in self._columns:
            column.rows[empty] = column.fill
        self._variance.rows[self.ledger.is_gold] = 0.0

    def half_widths(self) -> Floats:
        """Half-width of every 95 % interval of agreement, the widest of the coordinates."""
        tasks = np.flatnonzero(self._outdated.rows)
        if len(tasks):
            found = self._moments(tasks, _INTERVAL)
            if self.noise is None:
                half = np.ptp(found.quantile, axis=2).max(axis=1) / 2.0
            else:
                half = self.noise.half_widths(found, tasks, self.ledger.of_task.size[tasks])
            self._half_width.rows[tasks] = half
            self._outdated.rows[tasks] = False
        return np.asarray(self._half_width.rows)

    def anchor(self, result: Result, answers: Answers) -> None:
        """Anchor the messages to the result of a fit of the same answers, and weigh the workers."""
        assert self.noise is not None
        self.update(SELECTION_TOL)
        tasks = self.ledger.answered()
        found = self.messages.moments(None, PROBABILITIES)
        self.noise = self.noise.anchored_by(result, answers, found, tasks, len(self.ledger.tasks))
        numbered, edge = self.ledger.by_task()
        freed = self._freed(numbered)
        near = ~far_answers(freed)
        weight = 1.0 / (self.messages.belief_without(edge) @ self.model.levels)
        self.trust = trust_in_weights(freed.select(near), weight[near])
        self._refresh(tasks)
        self._variance.rows[self.ledger.is_gold] = 0.0

    def _moments(self, tasks: Index, probabilities: Floats) -> Posterior:
        """Posterior of agreement of tasks that have answers, on the scale."""
        found = self.messages.moments(tasks, probabilities)
        if self.noise is None:
            return found
        return self.noise.anchored(found, tasks, self.ledger.of_task.size[tasks])

    def _freed(self, answers: Answers) -> Answers:
        """Correct answers, whose ids are numbers, for what was learned."""
        if self.noise is None:
            return answers
        self._habit.grow(len(self.ledger.workers))
        return self.noise.freed(answers, self._habit.rows[answers.worker_ids])

    def _refresh(self, tasks: Index) -> None:
        """Compute the variances of tasks that have answers."""
        if not len(tasks):
            return
        found = self._moments(tasks, np.array([0.5]))
        self._variance.rows[tasks] = found.variance.mean(axis=1)
        self._outdated.rows[tasks] = True
        if self.noise is not None and self.noise.scale != LINEAR:
            there = in_units(self.noise.scale, found).variance.mean(axis=1)
            here = found.variance.mean(axis=1)
            ratio = np.divide(there, here, out=np.ones(len(here)), where=here > 0)
            self._stretch.rows[tasks] = ratio


def learn_noise(ledger: Ledger, auto: Auto, tol: float) -> tuple[CampaignPosterior, Result]:
    """Fit all answers by the default, and continue from there with fast messages."""
    answers = ledger.answers()
    result = aggregate(answers, auto)
    noise = LearnedNoise.of(result, auto, answers)
    posterior = CampaignPosterior(ledger, LearnedCrowd.of(noise.model), tol, noise)
    posterior.anchor(result, answers)
    return posterior, result
