"""Result: estimates with their uncertainty, workers with their noise, and how both were made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import Answers
from voxpop.data.tables import frame
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.noise_facts import NoiseFacts
from voxpop.models.scale import LINEAR, Scale
from voxpop.results import tables
from voxpop.results.audit import Audit
from voxpop.results.calibration import PROBABILITIES, Calibration
from voxpop.results.intervals import interval_at
from voxpop.results.scaled import calibrate

if TYPE_CHECKING:
    from voxpop.results.explain import Explanation
    from voxpop.results.prediction import Prediction
    from voxpop.results.review import Review

__all__ = ["PROBABILITIES", "Result", "Trace"]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """How an iteration went: the largest change and damping of every sweep, and the end."""

    changes: tuple[float, ...] = ()
    dampings: tuple[float, ...] = ()
    converged: bool = True

    @property
    def n_sweeps(self) -> int:
        """Number of sweeps made."""
        return len(self.changes)


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What an estimator found.

    Arrays follow ``task_ids`` and ``worker_ids``; the tables :attr:`tasks` and :attr:`workers`
    carry the same with ids, as data frames of the kind the answers came in.

    Attributes
    ----------
    estimate
        Posterior mean of every truth, shape (n_tasks, dimension).
    variance
        Its posterior variance, of the same shape, including an error that all workers may share.
    quantile
        Quantiles at 2.5, 5, 95 and 97.5 %, shape (n_tasks, dimension, 4).
    worker_variance
        Expected noise variance of every worker, per coordinate.
    worker_interval
        Bounds of a 95 % interval of it, shape (n_workers, 2).
    worker_weight
        Weight of an answer of the worker, relative to the average worker's.
    levels
        The noise levels; empty, like the next two, for methods without levels.
    level_weights
        The share of workers at each level.
    worker_posterior
        Each worker's probabilities of the levels, shape (n_workers, n_levels).
    worker_bias, worker_bias_sd
        How far each worker is off on average, and the sd of that, shape (n_workers, dimension);
        empty for methods without worker bias.
    worker_gain, worker_gain_sd
        How much each worker's answers move if the truth moves by one, and the sd of that, of the
        same shape; empty for methods without gains. ``worker_bias`` is then at
        ``noise.gain_centre``, and ``levels`` are of answers divided by the worker's gain.
    worker_slips
        Share of each worker's answers that have nothing to do with the truth, shape (n_workers,);
        empty for methods in which workers do not differ in that.
    task_difficulty
        Noise variance on each task as a multiple of the usual, shape (n_tasks,): the ambiguity of
        the task beside the noise of its workers; empty for methods without task difficulty.
    alike_share
        Share of the estimates that comes from noise models with the same noise for all workers.
    audit
        How well left-out answers are predicted from the others; None where it was not computed.
    calibration
        Corrections of the model's posterior by left-out answers, public crowds and gold;
        ``estimate``, ``variance`` and ``quantile`` include them.
    noise
        What was learned about the noise beside the workers' levels.
    scale
        The scale that the model is on. On another than the linear one ``estimate`` is the value at
        the posterior mean there (for ``log`` a kind of median), quantiles are the mapped ones, and
        ``sd`` is half the distance between the values one sd below and one above. What is known
        about workers (variance, bias, levels) and ``noise`` is in the units of the scale.
    settings
        The estimator's name and arguments, and what it chose from the data, in words.
    notes
        Sentences for the user.
    """

    task_ids: Ids
    worker_ids: Ids
    value_names: tuple[str, ...]
    task_answers: np.ndarray[tuple[int], np.dtype[np.int64]]
    worker_answers: np.ndarray[tuple[int], np.dtype[np.int64]]
    estimate: Floats
    variance: Floats
    quantile: Floats
    worker_variance: Floats
    worker_interval: Floats
    worker_weight: Floats
    levels: Floats = field(default_factory=lambda: np.empty(0))
    level_weights: Floats = field(default_factory=lambda: np.empty(0))
    worker_posterior: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_bias: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_bias_sd: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_gain: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_gain_sd: Floats = field(default_factory=lambda: np.empty((0, 0)))
    worker_slips: Floats = field(default_factory=lambda: np.empty(0))
    task_difficulty: Floats = field(default_factory=lambda: np.empty(0))
    alike_share: float = 0.0
    audit: Audit | None = None
    calibration: Calibration = field(default_factory=Calibration)
    noise: NoiseFacts = field(default_factory=NoiseFacts)
    scale: Scale = LINEAR
    trace: Trace = field(default_factory=Trace)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    frame_kind: str = "pandas"
    _agreement: Posterior | None = None
    _groups: tuple[Result, ...] = ()
    _answers: Answers | None = field(default=None, repr=False)
    _review: Review | None = field(default=None, repr=False)

    @classmethod
    def from_estimates(
        cls,
        answers: object,
        estimate: object,
        variance: object = None,
        *,
        worker_variance: Floats | None = None,
        worker_weight: Floats | None = None,
        method: str | None = None,
        notes: tuple[str, ...] = (),
    ) -> Result:
        """Make a result from the estimates of a method of your own (:doc:`/how-to/own-estimator`).

        ``estimate`` and ``variance`` are arrays in the order of ``answers.task_ids``, or mappings,
        Series or data frames by task. By default the variance is that of one answer about the
        estimates, over the number of answers to the task; the noise of a worker is the mean squared
        residual; and all workers weigh the same. Known truths are filled in, intervals are
        Gaussian. ``method`` is its name; the ``fit`` of an estimator fills in its own.
        """
        from voxpop.estimators.make_result import result_from_estimates

        return result_from_estimates(
            answers, estimate, variance, worker_variance, worker_weight, method, notes
        )

    @property
    def sd(self) -> Floats:
        """Standard deviation of every truth, shape (n_tasks, dimension)."""
        return np.sqrt(self.variance)

    @property
    def agreement_variance(self) -> Floats:
        """Variance of what very many workers of the same crowd would agree on.

        It leaves out the error that all workers share, which ``variance`` includes.
        """
        return self._agreed.variance

    @property
    def estimate_before_gold(self) -> Floats:
        """Estimate of every truth, without the gold map.

        It predicts the next answer.
        """
        return self._agreed.estimate

    @property
    def _posterior(self) -> Posterior:
        return Posterior(self.estimate, self.variance, self.quantile)

    @property
    def _agreed(self) -> Posterior:
        return self._posterior if self._agreement is None else self._agreement

    def _changed(self, change: Callable[[Posterior], Posterior], **others: Any) -> Result:
        """Change what is known of the truths, and of agreement where that differs, and more."""
        found, agreed = change(self._posterior), self._agreement
        return replace(
            self,
            estimate=found.estimate,
            variance=found.variance,
            quantile=found.quantile,
            _agreement=None if agreed is None else change(agreed),
            **others,
        )

    calibrated = calibrate

    def interval(self, coverage: float = 0.95) -> tuple[Floats, Floats]:
        """Return lower and upper bounds of the truth, each (n_tasks, dimension).

        Those of 90 and 95 % are quantiles of the posterior. For any other coverage between 0 and 1
        a Student-t shape goes through these two (M68).
        """
        return interval_at(self._posterior, coverage, self.scale, self.calibration.bounds)

    def agreement_interval(self, coverage: float = 0.95) -> tuple[Floats, Floats]:
        """Return bounds of what very many workers of the same crowd would agree on.

        Unlike :meth:`interval` they leave out an error that all workers share: they are for the
        mean answer of this crowd, not for the truth.
        """
        return interval_at(self._agreed, coverage, self.scale, self.calibration.bounds)

    def explain(self, answers: Answers, task: object, estimator: Any = None) -> Explanation:
        """Show who answered what on a task, and with what weight; see :func:`voxpop.explain`."""
        from voxpop.results.explain import explain

        return explain(answers, self, task, estimator)

    def predict_answer(self, worker: object, task: object) -> Prediction:
        """Predict what a worker would answer on a task; see :func:`voxpop.predict_answer`."""
        from voxpop.results.prediction import predict_answer

        return predict_answer(self, worker, task)

    @cached_property
    def review(self) -> Review:
        """Which labels are ready, which need a look and why, and which workers to talk to."""
        from voxpop.results.review import review

        return self._review or review(self)

    @cached_property
    def tasks(self) -> Any:
        """Data frame: task, estimate, sd, intervals, number of answers, and why to look at it."""
        return frame(self.task_columns(), self.frame_kind)

    @cached_property
    def workers(self) -> Any:
        """Data frame: worker, number of answers, noise sd with interval, weight, bias, flags."""
        return frame(self.worker_columns(), self.frame_kind)

    @property
    def worker_levels(self) -> Any:
        """Data frame: worker, and the probability ``p_…`` of each noise level (a variance)."""
        return frame(tables.level_table(self), self.frame_kind)

    task_columns = tables.task_columns
    worker_columns = tables.worker_columns
    trusted_workers = tables.trusted_workers

    def save(self, directory: str | Path, format: str = "csv") -> Path:
        """Write ``tasks`` and ``workers`` as CSV or Parquet, and ``result.json``.

        They replace an earlier result there, together (:doc:`/promises`).
        """
        from voxpop.results import saved

        return saved.save(self, directory, format)

    @classmethod
    def load(cls, directory: str | Path) -> Result:
        """Read what :meth:`save` wrote."""
        from voxpop.results import saved

        return saved.load(directory)

    def to_dict(self) -> dict[str, Any]:
        """Everything in one document of plain lists, for other programs."""
        from voxpop.results import saved

        return saved.to_dict(self)

    summary = tables.summary
    all_notes = tables.all_notes
    interval_notes = tables.interval_notes
    __repr__ = tables.as_text
    _repr_html_ = tables.as_html
