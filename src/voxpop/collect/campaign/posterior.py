"""The posterior of a campaign: truths and workers given all answers so far, updated on demand."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from voxpop.arrays import Floats
from voxpop.collect.campaign.ledger import Growing, Ledger
from voxpop.collect.campaign.messages import Messages
from voxpop.collect.campaign.next_batch import CampaignState
from voxpop.collect.campaign.selection import shrink_variances
from voxpop.estimators.base import make_result, worker_noise
from voxpop.inference.engine import Engine
from voxpop.models.model import Model
from voxpop.results.result import PROBABILITIES, Result

# Tolerance of the beliefs, as probabilities, when selecting answers.
_SELECTION_TOL = 1e-3
_INTERVAL = np.array([0.025, 0.975])


class CampaignPosterior:
    """BI's messages and what follows from them; tasks without an answer have the prior's variance.

    Variances are recomputed only for tasks whose messages have changed, half-widths only when they
    are needed as well, because quantiles are slow.
    """

    def __init__(self, ledger: Ledger, model: Model, trust: float, tol: float) -> None:
        self.model, self.trust, self.tol = model, trust, tol
        self._ledger = ledger
        self.messages = Messages(ledger, model, Engine(), tol)
        self.messages.touch(np.unique(ledger.task).astype(np.int64))
        prior = model.prior_variance
        self._variance = Growing(np.float64, (), prior)
        self._half_width = Growing(np.float64, (), float(ndtri(0.975) * np.sqrt(prior)))
        self._outdated = Growing(np.bool_)

    def result(self) -> Result:
        """Return what a fit of all answers so far finds."""
        self.messages.start_over()
        self._update(self.tol)
        tasks = np.flatnonzero(self._ledger.of_task.size > 0)
        found = self.messages.moments(tasks, PROBABILITIES)
        workers = worker_noise(self.messages.belief(), self.model)
        settings = {
            "method": "bi",
            "support_used": list(self.model.support),
            "weights_used": list(self.model.weights or ()),
        }
        return make_result(self._ledger.answers(), settings, found, workers)

    def state(self, half_widths: bool) -> CampaignState:
        """Return what the selection of answers needs, to the accuracy that it needs."""
        self._update(_SELECTION_TOL)
        variance, n_answers = np.asarray(self._variance.rows), self._ledger.of_task.size
        return CampaignState(
            ledger=self._ledger,
            model=self.model,
            belief=self.messages.belief(),
            variance=shrink_variances(variance, n_answers, self.trust),
            trust=self.trust,
            half_width=self._half_widths() if half_widths else None,
        )

    def _update(self, tol: float) -> None:
        """Pass messages until they change by less than ``tol``, then update the variances."""
        moved = self.messages.settle(tol)
        for column in (self._variance, self._half_width, self._outdated):
            column.grow(len(self._ledger.tasks))
        moved = moved[self._ledger.of_task.size[moved] > 0]
        if len(moved):
            found = self.messages.moments(moved, np.array([0.5]))
            self._variance.rows[moved] = found.variance.mean(axis=1)
            self._outdated.rows[moved] = True
        self._variance.rows[~np.isnan(self._ledger.gold[:, 0])] = 0.0

    def _half_widths(self) -> Floats:
        tasks = np.flatnonzero(self._outdated.rows)
        if len(tasks):
            interval = self.messages.moments(tasks, _INTERVAL).quantile
            self._half_width.rows[tasks] = np.ptp(interval, axis=2).max(axis=1) / 2.0
            self._outdated.rows[tasks] = False
        return np.asarray(self._half_width.rows)
