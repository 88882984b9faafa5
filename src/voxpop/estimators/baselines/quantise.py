"""Quantise and classify: cut the answers into bins, vote with a model of classes, return a bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_worker, squared_residual, sum_by_task, sum_by_worker, with_gold
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.iterate import repeat, require_stop
from voxpop.estimators.make_result import (
    make_result,
    normal_posterior,
    plain_noise,
    relative_weight,
)
from voxpop.results.result import Result, Trace

Bins = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class QuantiseClassify(Estimator):
    """Treat numbers as classes: equally wide bins, EM for who picks the right one, bin centre out.

    Coordinates are taken apart. Under ``"one-coin"`` a worker hits the true bin with its own
    probability and otherwise any other alike; under ``"dawid-skene"`` it has a whole confusion
    matrix. Each probability starts from ``smoothing`` imagined answers, spread evenly. The bins
    know nothing of distance, so the result depends much on ``n_bins``, and estimates may leave
    the range of their answers by half a bin: this is here to be compared with, not to be used.
    The sd is that of the bin centres under the found probabilities, with a bin's own width.

    References
    ----------
    Zhou et al.: Regularized Minimax Conditional Entropy for Crowdsourcing, 2015, as described in
    Ok et al. 2019; Dawid, Skene: Maximum Likelihood Estimation of Observer Error-Rates, 1979.
    """

    n_bins: int = 10
    model: Literal["one-coin", "dawid-skene"] = "one-coin"
    smoothing: float = 1.0
    tol: float = 1e-6
    max_iter: int = 1000
    name: ClassVar[str] = "quantise"
    summary: ClassVar[str] = "bins taken for classes, one-coin or Dawid-Skene, bin centre out"

    def __post_init__(self) -> None:
        require(self.n_bins >= 2, f"n_bins must be at least 2, got {self.n_bins}")
        require(
            self.model in ("one-coin", "dawid-skene"),
            f"model must be 'one-coin' or 'dawid-skene', got {self.model!r}",
        )
        require(self.smoothing > 0, f"smoothing must be positive, got {self.smoothing}")
        require_stop(self.tol, self.max_iter)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        estimate = np.empty((answers.n_tasks, answers.dimension))
        variance = np.empty_like(estimate)
        trust = np.zeros(answers.n_workers)
        trace = Trace()
        for j in range(answers.dimension):
            low, high = float(answers.value[:, j].min()), float(answers.value[:, j].max())
            width = (high - low) / self.n_bins
            position = (answers.value[:, j] - low) / (width or 1.0)
            bins = np.clip(np.floor(position).astype(np.int64), 0, self.n_bins - 1)
            known = None
            if answers.gold is not None:
                where = (np.where(answers.is_gold, answers.gold[:, j], low) - low) / (width or 1.0)
                known = np.clip(np.floor(where).astype(np.int64), 0, self.n_bins - 1)
            chance, accuracy, trace = self._classify(answers, bins, known, on_sweep)
            centre = low + width * (np.arange(self.n_bins) + 0.5) if width else np.full(1, low)
            chance = chance if width else np.ones((answers.n_tasks, 1))
            estimate[:, j] = centre[chance.argmax(axis=1)]
            off = (centre - estimate[:, j : j + 1]) ** 2
            variance[:, j] = (chance * off).sum(axis=1) + width**2 / 12
            trust += accuracy / answers.dimension
        estimate = with_gold(answers, estimate)
        residual = squared_residual(answers, estimate) / answers.dimension
        found = normal_posterior(answers, estimate, variance)
        workers = plain_noise(answers, mean_by_worker(answers, residual), relative_weight(trust))
        return make_result(answers, plain_settings(self), found, workers, trace)

    def _classify(
        self, answers: Answers, bins: Bins, known: Bins | None, on_sweep: OnSweep | None
    ) -> tuple[Floats, Floats, Trace]:
        """EM: probabilities of every task's bins (n, K), and how often each worker is right."""
        picked = np.eye(self.n_bins)[bins]
        truth = np.eye(self.n_bins)[known] if known is not None else None

        def settle(chance: Floats) -> Floats:
            if truth is None:
                return chance
            return np.where(answers.is_gold[:, None], truth, chance)

        chance = settle(sum_by_task(answers, picked) / answers.task_degree[:, None])
        accuracy = np.ones(answers.n_workers)

        def sweep(damping: float) -> float:
            nonlocal chance, accuracy
            share = chance.mean(axis=0) + self.smoothing / answers.n_tasks / self.n_bins
            if self.model == "one-coin":
                accuracy, said = self._one_coin(answers, bins, chance)
            else:
                accuracy, said = self._dawid_skene(answers, bins, chance)
            log_chance = np.log(share) + sum_by_task(answers, said)
            new = settle(softmax(log_chance, axis=1))
            change = float(np.abs(new - chance).max())
            chance = new + damping * (chance - new)
            return change

        trace = repeat(
            sweep,
            tol=self.tol,
            max_iter=self.max_iter,
            what="quantise and classify",
            on_sweep=on_sweep,
        )
        return chance, accuracy, trace

    def _one_coin(self, answers: Answers, bins: Bins, chance: Floats) -> tuple[Floats, Floats]:
        right = sum_by_worker(answers, chance[answers.task, bins])
        accuracy = (right + self.smoothing / self.n_bins) / (answers.worker_degree + self.smoothing)
        p = accuracy[answers.worker]
        said = np.repeat(np.log((1 - p) / (self.n_bins - 1))[:, None], self.n_bins, axis=1)
        said[np.arange(len(bins)), bins] = np.log(p)
        return accuracy, said

    def _dawid_skene(self, answers: Answers, bins: Bins, chance: Floats) -> tuple[Floats, Floats]:
        confusion = np.full(
            (answers.n_workers, self.n_bins, self.n_bins), self.smoothing / self.n_bins
        )
        np.add.at(confusion.transpose(0, 2, 1), (answers.worker, bins), chance[answers.task])
        occasions = confusion.sum(axis=2, keepdims=True)
        hits = np.trace(confusion, axis1=1, axis2=2) / occasions.sum(axis=(1, 2))
        confusion /= occasions
        return hits, np.log(confusion[answers.worker, :, bins])
