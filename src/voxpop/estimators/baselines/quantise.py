"""Quantise and classify: cut the answers into bins, and let EM vote for one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import softmax

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_task, sum_by_task, sum_by_worker
from voxpop.estimators.base import CheckedEstimator, OnSweep, at_least, one_of, positive
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.make_result import gaussian_result
from voxpop.results.result import Result, Trace


@dataclass(frozen=True, kw_only=True)
class QuantiseClassify(CheckedEstimator):
    """Treat numbers as classes: equally wide bins, EM for the class, and its bin's centre.

    Every coordinate is classified on its own. Under ``"one-coin"`` a worker picks the true bin with
    its own probability and all others with equal ones; under ``"dawid-skene"`` it has a confusion
    matrix. ``smoothing`` is a pseudo-count, spread evenly over the bins. Classes ignore distance,
    so the result depends much on ``n_bins``, and estimates may leave the range of their answers by
    half a bin: compare with this method, but do not use it. The sd is that of the bin centres under
    the posterior, plus that of a uniform distribution within the bin.

    References
    ----------
    Zhou et al.: Regularized Minimax Conditional Entropy for Crowdsourcing, 2015, as described in
    Ok et al. 2019; Dawid, Skene: Maximum Likelihood Estimation of Observer Error-Rates, 1979.
    """

    n_bins: int = at_least(2, 10)
    model: Literal["one-coin", "dawid-skene"] = one_of("one-coin", "dawid-skene")
    smoothing: float = positive(1.0)
    tol: float = positive(1e-6)
    max_iter: int = at_least(1, 1000)
    name: ClassVar[str] = "quantise"
    summary: ClassVar[str] = "answers binned into classes, one-coin or Dawid-Skene model"

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        estimate = np.empty((answers.n_tasks, answers.dimension))
        variance, trust, trace = np.empty_like(estimate), np.zeros(answers.n_workers), Trace()
        for j, value in enumerate(answers.value.T):
            low, width = float(value.min()), float(np.ptp(value)) / self.n_bins
            bins = self._bins(value, low, width)
            known = None
            if answers.gold is not None:
                truth = np.where(answers.is_gold, answers.gold[:, j], low)
                known = np.eye(self.n_bins)[self._bins(truth, low, width)]
            chance, accuracy, trace = self._classify(answers, bins, known, on_sweep)
            # Without any width, all bins are at the one value.
            centre = low + width * (np.arange(self.n_bins) + 0.5)
            estimate[:, j] = centre[chance.argmax(axis=1)]
            off = (centre - estimate[:, j : j + 1]) ** 2
            variance[:, j] = (chance * off).sum(axis=1) + width**2 / 12
            trust += accuracy / answers.dimension
        return gaussian_result(self, answers, estimate, variance, worker_weight=trust, trace=trace)

    def _bins(self, value: Floats, low: float, width: float) -> Index:
        place = np.floor((value - low) / (width or 1.0))
        # Clipped before it is a whole number: a truth may be further off than these reach.
        return np.clip(place, 0, self.n_bins - 1).astype(np.int64)

    def _classify(
        self, answers: Answers, bins: Index, known: Floats | None, on_sweep: OnSweep | None
    ) -> tuple[Floats, Floats, Trace]:
        """EM: posterior over the bins of every task (n, K), and the accuracy of each worker."""

        def settle(chance: Floats) -> Floats:
            return chance if known is None else np.where(answers.is_gold[:, None], known, chance)

        chance = settle(mean_by_task(answers, np.eye(self.n_bins)[bins]))
        accuracy = np.ones(answers.n_workers)
        model = self._one_coin if self.model == "one-coin" else self._dawid_skene

        def sweep(damping: float) -> float:
            nonlocal chance, accuracy
            share = chance.mean(axis=0) + self.smoothing / answers.n_tasks / self.n_bins
            accuracy, log_likelihood = model(answers, bins, chance)
            log_chance = np.log(share) + sum_by_task(answers, log_likelihood)
            new = settle(softmax(log_chance, axis=1))
            change = float(np.abs(new - chance).max())
            chance = new + damping * (chance - new)
            return change

        trace = iterate_until(sweep, self.tol, self.max_iter, "quantise and classify", on_sweep)
        return chance, accuracy, trace

    def _one_coin(self, answers: Answers, bins: Index, chance: Floats) -> tuple[Floats, Floats]:
        right = sum_by_worker(answers, chance[answers.task, bins])
        accuracy = (right + self.smoothing / self.n_bins) / (answers.worker_degree + self.smoothing)
        p = accuracy[answers.worker][:, None]
        picked = bins[:, None] == np.arange(self.n_bins)
        return accuracy, np.log(np.where(picked, p, (1 - p) / (self.n_bins - 1)))

    def _dawid_skene(self, answers: Answers, bins: Index, chance: Floats) -> tuple[Floats, Floats]:
        shape = (answers.n_workers, self.n_bins, self.n_bins)
        confusion = np.full(shape, self.smoothing / self.n_bins)
        np.add.at(confusion.transpose(0, 2, 1), (answers.worker, bins), chance[answers.task])
        total = confusion.sum(axis=2, keepdims=True)
        accuracy = np.trace(confusion, axis1=1, axis2=2) / total.sum(axis=(1, 2))
        return accuracy, np.log((confusion / total)[answers.worker, :, bins])
