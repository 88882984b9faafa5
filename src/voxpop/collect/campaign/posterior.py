"""The posterior of a campaign: truths and workers given all answers so far, updated on demand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import ndtri

from voxpop.arrays import Floats
from voxpop.collect.campaign.ledger import Growing, Ledger
from voxpop.collect.campaign.messages import Messages
from voxpop.collect.campaign.selection import shrink_variances
from voxpop.errors import require
from voxpop.estimators.make_result import make_result, worker_noise
from voxpop.models.model import Model
from voxpop.results.result import PROBABILITIES, Result

_INTERVAL = np.array([0.025, 0.975])


class CampaignPosterior:
    """BI's messages and what follows from them; tasks without an answer have the prior's variance.

    Variances are recomputed only for tasks whose messages have changed, half-widths only when they
    are needed as well, because quantiles are slow.
    """

    def __init__(self, ledger: Ledger, model: Model, trust: float, tol: float) -> None:
        require(
            np.asarray(model.prior_mean).ndim < 2,
            "a campaign takes one prior_mean for all tasks, not one for each",
        )
        require(tol > 0, f"tol must be positive, got {tol}")
        self.model, self.trust, self.tol = model, trust, tol
        self.ledger = ledger
        self.messages = Messages(ledger, model, tol)
        self.messages.touch(np.unique(ledger.task.rows).astype(np.int64))
        prior = model.prior_variance
        self._variance = Growing(np.float64, (), prior)
        self._half_width = Growing(np.float64, (), float(ndtri(0.975) * np.sqrt(prior)))
        self._outdated = Growing(np.bool_)

    def result(self) -> Result:
        """Return what a fit of all answers so far finds."""
        self.messages.start_over()
        self.update(self.tol)
        tasks = np.flatnonzero(self.ledger.of_task.size > 0)
        found = self.messages.moments(tasks, PROBABILITIES)
        workers = worker_noise(self.messages.belief(), self.model)
        settings = {
            "method": "bi",
            "support_used": list(self.model.support),
            "weights_used": list(self.model.weights or ()),
        }
        return make_result(self.ledger.answers(), settings, found, workers)

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

    def update(self, tol: float) -> None:
        """Pass messages until they change by less than ``tol``, then update the variances."""
        moved = self.messages.settle(tol)
        for column in (self._variance, self._half_width, self._outdated):
            column.grow(len(self.ledger.tasks))
        if len(moved):
            found = self.messages.moments(moved, np.array([0.5]))
            self._variance.rows[moved] = found.variance.mean(axis=1)
            self._outdated.rows[moved] = True
        self._variance.rows[self.ledger.is_gold] = 0.0

    def half_widths(self) -> Floats:
        """Half-width of every 95 % interval, the widest of the coordinates."""
        tasks = np.flatnonzero(self._outdated.rows)
        if len(tasks):
            interval = self.messages.moments(tasks, _INTERVAL).quantile
            self._half_width.rows[tasks] = np.ptp(interval, axis=2).max(axis=1) / 2.0
            self._outdated.rows[tasks] = False
        return np.asarray(self._half_width.rows)
