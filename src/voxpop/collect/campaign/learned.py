"""Learned noise: the default's noise model of a crowd, in a form that fast messages can use.

The default compares and averages noise models, which takes seconds; a campaign wants to know what a
new answer changes in milliseconds. So habits of the workers (offset, gain) and the scale are
removed from the answers, messages run on what is left, with the tails and slips of the heaviest
model, and each task is anchored: where and how wide the default's posterior was, relative to that
of the messages, at the time of learning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.data.answers import VARIANCES, Answers
from voxpop.data.sums import mean_by_task, medians
from voxpop.estimators.auto.auto import Auto
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.models.model import Model
from voxpop.models.noise import Noise, NoiseParameters
from voxpop.models.noise.component import StartingPoint
from voxpop.models.noise.slips import Slips
from voxpop.models.noise.tails import tail_variance
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
        """No correction of the messages."""
        empty = np.empty((0, dimension))
        return cls(np.empty(0, dtype=np.int64), empty, empty, np.empty(0))

    def at(self, tasks: Index, n_answers: Index) -> tuple[Floats, Floats, Floats]:
        """Shift (n, d), factor (n, d) and width (n,) of anchored tasks with so many answers (N4).

        An unchanged task has its own; they fade as answers arrive, and a task that had none has no
        shift, and the factors of the typical task.
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
        """Logarithms of the factor (d,) and the width of the typical task: medians."""
        some = self.n_answers > (1 if (self.n_answers > 1).any() else 0)
        if not some.any():
            return np.zeros(self.shift.shape[1]), np.zeros(())
        factor, width = np.log(self.factor[some]), np.log(self.width[some])
        return np.median(factor, axis=0), np.median(width)


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedNoise:
    """The result of a fit of the default, in parts.

    Attributes
    ----------
    auto
        The estimator.
    model
        Levels and weights of answers that are corrected for everything below.
    mixture
        Noise at these levels, a mixture with tails and slips; None where it is Gaussian.
    scale
        The scale that the model is on; answers beyond it are moved to the ``ends`` of those seen.
    unit
        Noise sd of each coordinate (d,), as a multiple of their quadratic mean.
    workers
        The rows of ``offset`` and ``gain`` by worker id; the last row is that of any other worker.
    offset, gain, centre
        An answer is centre + offset + gain (truth - centre) and noise, (m + 1, d) and (d,).
    calibration
        The corrections from agreement to the truth.
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
    mixture: NoiseGrid | None = None

    @classmethod
    def of(cls, result: Result, auto: Auto, answers: Answers) -> LearnedNoise:
        """Split a result of the default into parts; there are no anchors yet."""
        d = answers.dimension
        levels, weights = result.levels, result.level_weights
        if not levels.size:
            # A mean or a median: all workers have the same noise.
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
        learned = cls(
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
        return replace(learned, mixture=_mixture(result, learned.freed(answers, np.arange(m))))

    def freed(self, answers: Answers, habit: Index) -> Answers:
        """Answers on the scale, corrected for their workers' habits, whose rows are ``habit``.

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
        """Anchored posterior of agreement on the scale, from that of corrected answers (N4)."""
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
        """All but the model, as JSON values."""
        anchors, mixture = self.anchors, self.mixture
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
            "mixture": None if mixture is None else [a.tolist() for a in vars(mixture).values()],
        }

    @classmethod
    def from_dict(cls, model: Model, facts: dict[str, Any]) -> LearnedNoise:
        """Undo :meth:`to_dict`."""
        n_answers, shift, factor, width = facts["anchors"]
        shape, auto = (-1, model.dimension), facts["auto"]
        bounds = auto["bounds"]
        mixture = facts.get("mixture")  # none in journals of version 0.1
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
            mixture=None if mixture is None else NoiseGrid(*map(np.array, mixture)),
        )


def _mixture(result: Result, freed: Answers) -> NoiseGrid | None:
    """Tails and slips about the levels of a result, whose answers were ``freed`` of the rest."""
    noise, slips = result.noise, result.noise.slip_share
    if result.worker_slips.size:
        slips = float(result.worker_slips @ freed.worker_degree / freed.n_edges)
    if not result.levels.size or (noise.tails is None and slips is None):
        return None
    freedom = np.inf if noise.tails is None else noise.tails
    start = StartingPoint(
        result.levels / tail_variance(freedom),
        np.log(result.level_weights),
        mean_by_task(freed, freed.value),
        freed.value - medians(freed)[freed.task],
    )
    learned = NoiseParameters.initial(Noise(tails=freedom, slips=slips is not None), start)
    kinds = learned[Slips].variance
    if slips is not None:
        learned = learned.replace(Slips(kinds, np.full(len(kinds), slips / len(kinds))))
    return NoiseGrid(*learned.grid())


def _ratio(one: Floats, other: Floats) -> Floats:
    """One over the other, where both are positive and known; else one."""
    good = np.isfinite(one) & np.isfinite(other) & (one > 0) & (other > 0)
    return np.asarray(np.divide(one, other, out=np.ones_like(other), where=good))


def _rounded(value: Floats) -> Floats:
    """Round to a few significant digits; unknown numbers become zero."""
    value = np.nan_to_num(value, posinf=0.0, neginf=0.0)
    with np.errstate(divide="ignore"):
        size = np.where(value != 0, np.floor(np.log10(np.abs(value))), 0.0)
    place = 10.0 ** np.clip(_DIGITS - 1 - size, -300, 300)
    return np.asarray(np.round(value * place) / place)
