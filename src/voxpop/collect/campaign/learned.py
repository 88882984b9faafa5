"""Learned noise: what the default found of a crowd, in the form that fast messages can use.

The default compares and averages noise models, which takes seconds; a campaign wants to know what a
new answer changes in milliseconds. So habits of the workers (offset, gain) and the scale are taken
out of the answers, plain messages run on what is left, and each task is anchored: where and how
wide the default's posterior was, relative to that of the messages, at the time of learning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import VARIANCES, Answers
from voxpop.estimators.auto.auto import Auto
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.models.model import Model
from voxpop.models.scale import LINEAR, Scale, scale_from_dict
from voxpop.results.calibration import Calibration, calibrated, within
from voxpop.results.prediction import coordinate_factor
from voxpop.results.result import Result
from voxpop.results.saved import calibration_facts, calibration_from
from voxpop.results.scaled import in_units, result_on_scale

# Digits of an anchor: a journal keeps them as text.
_DIGITS = 7


@dataclass(frozen=True, eq=False)
class Anchors:
    """The default's posterior of agreement relative to that of the messages, by task number.

    ``n_answers`` (n,) is how many answers there were. On the scale, the estimate was higher by
    ``shift`` (n, d), and the variance ``factor`` (n, d) times as large; half of the 95 % interval,
    in the users' units, was then wider by ``width`` (n,).
    """

    n_answers: Index
    shift: Floats
    factor: Floats
    width: Floats

    @classmethod
    def none(cls, dimension: int) -> Anchors:
        """Messages as they are."""
        empty = np.empty((0, dimension))
        return cls(np.empty(0, dtype=np.int64), empty, empty, np.empty(0))

    def at(self, tasks: Index, n_answers: Index) -> tuple[Floats, Floats, Floats]:
        """Shift (n, d), factor (n, d) and width (n,) of anchored tasks with so many answers (N4).

        A task that is as it was has its own; the more answers came since, the less they count, and
        a task that had none has no shift, and the factors of the usual task.
        """
        known = np.flatnonzero(tasks < len(self.n_answers))
        row, share = tasks[known], np.zeros(len(tasks))
        before = self.n_answers[row]
        share[known] = before / np.maximum(np.maximum(before, n_answers[known]), 1)
        shift = np.zeros((len(tasks), self.shift.shape[1]))
        log_factor, log_width = np.zeros_like(shift), np.zeros(len(tasks))
        shift[known] = self.shift[row]
        log_factor[known], log_width[known] = np.log(self.factor[row]), np.log(self.width[row])
        usual_factor, usual_width = self._usual
        part = share[:, None]
        return (
            part * shift,
            np.exp(part * log_factor + (1.0 - part) * usual_factor),
            np.exp(share * log_width + (1.0 - share) * usual_width),
        )

    @cached_property
    def _usual(self) -> tuple[Floats, Floats]:
        """Logarithms of the factor (d,) and the width of the usual task: medians."""
        some = self.n_answers > (1 if (self.n_answers > 1).any() else 0)
        if not some.any():
            return np.zeros(self.shift.shape[1]), np.zeros(())
        factor, width = np.log(self.factor[some]), np.log(self.width[some])
        return np.median(factor, axis=0), np.median(width)


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedNoise:
    """What a fit of the default found, taken apart.

    Attributes
    ----------
    auto
        The estimator.
    model
        Levels and weights of answers that are freed of all below.
    scale
        The scale that the model is on; answers beyond it are moved to the ``ends`` of those seen.
    unit
        Noise sd of each coordinate (d,), as a multiple of their quadratic mean.
    workers
        The rows of ``offset`` and ``gain`` by worker id; the last row is that of any other worker.
    offset, gain, centre
        An answer is centre + offset + gain (truth - centre) and noise, (m + 1, d) and (d,).
    calibration
        What makes agreement the truth.
    anchors
        Where the fit was, relative to the messages.
    """

    auto: Auto
    model: Model
    scale: Scale
    ends: tuple[float, float]
    unit: Floats
    workers: dict[Any, int]
    offset: Floats
    gain: Floats
    centre: Floats
    calibration: Calibration
    anchors: Anchors

    @classmethod
    def of(cls, result: Result, auto: Auto, answers: Answers) -> LearnedNoise:
        """Take a result of the default apart; there are no anchors yet."""
        d = answers.dimension
        levels, weights = result.levels, result.level_weights
        if not levels.size:
            # A mean or a median: all workers are alike.
            seen = result.worker_variance[np.isfinite(result.worker_variance)]
            seen = seen[seen > 0]
            levels = np.clip([np.median(seen) if seen.size else 1.0], *VARIANCES)
            weights = np.ones(1)
        m = len(result.worker_ids)
        offset, gain = np.zeros((m + 1, d)), np.ones((m + 1, d))
        if result.worker_bias.size:
            offset[:m] = result.worker_bias
        if result.worker_gain.size:
            gain[:m] = result.worker_gain
        return cls(
            auto=auto,
            model=Model(support=levels.tolist(), weights=weights.tolist(), dimension=d),
            scale=result.scale,
            ends=(float(answers.value.min()), float(answers.value.max())),
            unit=np.sqrt(coordinate_factor(result)),
            workers={u: row for row, u in enumerate(result.worker_ids.tolist())},
            offset=offset,
            gain=gain,
            centre=np.array(result.noise.gain_centre or np.zeros(d)),
            calibration=result.calibration,
            anchors=Anchors.none(d),
        )

    def freed(self, answers: Answers, habit: Index) -> Answers:
        """Answers on the scale without the habits of their workers, whose rows are ``habit``.

        Coordinates are in units of their noise, so that one level is the same in all of them.
        """
        if self.scale != LINEAR:
            answers = self._inside(answers)
        there, row = self.scale.answers(answers), habit[answers.worker]
        value = self.centre + (there.value - self.centre - self.offset[row]) / self.gain[row]
        gold = None if there.gold is None else there.gold / self.unit
        return replace(there, value=value / self.unit, gold=gold)

    def _inside(self, answers: Answers) -> Answers:
        """Move answers and truths that are not on the scale to the ends of those seen before."""

        def inside(value: Floats) -> Floats:
            return np.where(self.scale.outside(value), np.clip(value, *self.ends), value)

        gold = None if answers.gold is None else inside(answers.gold)
        return replace(answers, value=inside(answers.value), gold=gold)

    def anchored(self, found: Posterior, tasks: Index, n_answers: Index) -> Posterior:
        """Anchored posterior of agreement on the scale, from that of freed answers (N4)."""
        unit = self.unit[:, None]
        there = Posterior(
            found.estimate * self.unit, found.variance * self.unit**2, found.quantile * unit
        )
        shift, factor, _ = self.anchors.at(tasks, n_answers)
        known = there.variance == 0
        there = stretched(there, np.where(known, 0.0, factor) * there.variance)
        shift = np.where(known, 0.0, shift)
        return Posterior(there.estimate + shift, there.variance, there.quantile + shift[:, :, None])

    def half_widths(self, found: Posterior, tasks: Index, n_answers: Index) -> Floats:
        """Half-width of agreement (n,) in the users' units, the widest of the coordinates."""
        ends = in_units(self.scale, found).quantile
        half = np.ptp(ends, axis=2).max(axis=1) / 2.0
        return np.asarray(half * self.anchors.at(tasks, n_answers)[2])

    def anchored_by(
        self, result: Result, answers: Answers, found: Posterior, tasks: Index, n_tasks: int
    ) -> LearnedNoise:
        """Anchor the messages' posterior of tasks with answers to a result of the same answers."""
        n_answers = result.task_answers
        loose = self.anchored(found, tasks, n_answers)
        agreed = result_on_scale(answers, result)[1]._agreed
        shift = _rounded(self.scale.turn(agreed.estimate, loose.estimate) - loose.estimate)
        factor = _rounded(_ratio(agreed.variance, loose.variance))
        anchors = self._laid_out(n_tasks, tasks, n_answers, shift, factor, np.ones(len(tasks)))
        known = replace(self, anchors=anchors)
        low, high = result.agreement_interval()
        half = known.half_widths(known.anchored(found, tasks, n_answers), tasks, n_answers)
        width = _rounded(_ratio((high - low).max(axis=1) / 2.0, half))
        return replace(
            self, anchors=self._laid_out(n_tasks, tasks, n_answers, shift, factor, width)
        )

    def _laid_out(self, n_tasks: int, tasks: Index, n_answers: Index, *parts: Floats) -> Anchors:
        """Anchors by task number, from those of some tasks."""
        d = self.model.dimension
        rows = (
            np.zeros(n_tasks, dtype=np.int64),
            np.zeros((n_tasks, d)),
            np.ones((n_tasks, d)),
            np.ones(n_tasks),
        )
        for row, part in zip(rows, (n_answers, *parts), strict=True):
            row[tasks] = part
        return Anchors(*rows)

    def truth(self, agreed: Posterior) -> Posterior:
        """Posterior of the truths in the users' units, from that of agreement on the scale."""
        there = calibrated(agreed, self.calibration.of_truth)
        return within(in_units(self.scale, there), self.calibration.bounds)

    def to_dict(self) -> dict[str, Any]:
        """All but the model, as JSON has it."""
        anchors = self.anchors
        return {
            "auto": asdict(self.auto),
            "scale": self.scale.to_dict(),
            "ends": list(self.ends),
            "unit": self.unit.tolist(),
            "worker": list(self.workers),
            "offset": self.offset.tolist(),
            "gain": self.gain.tolist(),
            "centre": self.centre.tolist(),
            "calibration": calibration_facts(self.calibration),
            "anchors": [
                part.tolist()
                for part in (anchors.n_answers, anchors.shift, anchors.factor, anchors.width)
            ],
        }

    @classmethod
    def from_dict(cls, model: Model, facts: dict[str, Any]) -> LearnedNoise:
        """Undo :meth:`to_dict`."""
        n_answers, shift, factor, width = facts["anchors"]
        shape, auto = (-1, model.dimension), facts["auto"]
        bounds = auto["bounds"]
        return cls(
            auto=Auto(**{**auto, "bounds": None if bounds is None else tuple(bounds)}),
            model=model,
            scale=scale_from_dict(facts["scale"]),
            ends=tuple(facts["ends"]),
            unit=np.array(facts["unit"]),
            workers={u: row for row, u in enumerate(facts["worker"])},
            offset=np.array(facts["offset"]),
            gain=np.array(facts["gain"]),
            centre=np.array(facts["centre"]),
            calibration=calibration_from(facts["calibration"]),
            anchors=Anchors(
                np.array(n_answers, dtype=np.int64),
                np.array(shift, dtype=np.float64).reshape(shape),
                np.array(factor, dtype=np.float64).reshape(shape),
                np.array(width, dtype=np.float64),
            ),
        )


def _ratio(one: Floats, other: Floats) -> Floats:
    """One over the other, where both are positive and known; else one."""
    good = np.isfinite(one) & np.isfinite(other) & (one > 0) & (other > 0)
    return np.asarray(np.divide(one, other, out=np.ones_like(other), where=good))


def _rounded(value: Floats) -> Floats:
    """Round to a few significant digits; what is unknown is zero."""
    value = np.nan_to_num(value, posinf=0.0, neginf=0.0)
    with np.errstate(divide="ignore"):
        size = np.where(value != 0, np.floor(np.log10(np.abs(value))), 0.0)
    place = 10.0 ** np.clip(_DIGITS - 1 - size, -300, 300)
    return np.asarray(np.round(value * place) / place)
