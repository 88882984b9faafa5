"""What every scale offers, and the linear one, which changes nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import Limbs
from voxpop.errors import DataError, shorten

ScaleName = Literal["linear", "log", "sqrt", "logit", "circular"]
Range = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """The linear scale, which changes nothing; the others derive from it.

    A value v in the users' units is t = f(v) on the scale, with f increasing. Estimates come back
    as f⁻¹ of the posterior mean, quantiles as f⁻¹ of quantiles, and an sd as half the distance
    between the values one sd below and one sd above (M50)-(M52).
    """

    name: ClassVar[ScaleName] = "linear"
    noise_unit: ClassVar[str] = ""
    """What workers' noise and bias are measured in."""
    domain: ClassVar[str] = ""
    """Which values are on the scale, in words."""
    advice: ClassVar[str] = ""
    """What to try if some are not."""

    @classmethod
    def of(cls, answers: Answers, bounds: Range | None = None) -> Self:
        """Make the scale for these answers; ``bounds`` is the range that truths are known to be in.

        Refuses values that are not on the scale.
        """
        scale = cls.fitting(all_values(answers), bounds)
        scale.refuse_outside(answers)
        return scale.centred(scale.sums(answers))

    @classmethod
    def fitting(cls, _values: Floats, _bounds: Range | None) -> Self:
        """Make a scale for values; only the two outermost at either end may matter."""
        return cls()

    def sums(self, _answers: Answers) -> Limbs:
        """Sum up what :meth:`centred` needs; sums of parts of the tasks can be added."""
        return np.empty(0, dtype=np.int64)

    def centred(self, _sums: Limbs) -> Self:
        """Return the scale with an origin that suits the tasks, if it has one."""
        return self

    def outside(self, value: Floats) -> NDArray[np.bool_]:
        """Return which values are not on the scale."""
        return np.zeros(value.shape, dtype=bool)

    def forward(self, value: Floats) -> Floats:
        """Place of values on the scale."""
        return value

    def back(self, at: Floats) -> Floats:
        """Values at places of the scale, in the users' units."""
        return at

    def log_slope(self, value: Floats) -> Floats:
        """Log of f'(v): added to a log density on the scale, it gives that in the users' units."""
        return np.zeros_like(value)

    def spread(self, at: Floats, sd: Floats) -> Floats:
        """Sd in the users' units: half the distance between one sd below and one above (M52)."""
        return np.asarray(0.5 * (self.back(at + sd) - self.back(at - sd)))

    def sd_at(self, at: Floats, spread: Floats) -> Floats:
        """Undo :meth:`spread` (M52)."""
        return spread

    def back_from(self, at: Floats, quantile: Floats) -> Floats:
        """Quantiles in the users' units, of posteriors with their mean at ``at``."""
        return self.back(quantile)

    def forward_from(self, value: Floats, quantile: Floats) -> Floats:
        """Undo :meth:`back_from`; ``value`` is the estimate."""
        return self.forward(quantile)

    def turn(self, at: Floats, centre: Floats) -> Floats:
        """The place on the scale nearest to ``centre`` among those of the same value."""
        return at

    def difference(self, value: Floats, other: Floats) -> Floats:
        """How far ``value`` is from ``other``, in the users' units."""
        return np.asarray(value - other)

    def nearest(self, value: Floats, other: Floats) -> Floats:
        """The same values, whole turns added on a circle to come near ``other``."""
        return value

    def bounds(self, given: Range | None) -> Range | None:
        """Range of the truths on the scale, from that in the users' units."""
        return given

    def answers(self, answers: Answers) -> Answers:
        """Return the answers, and their gold, on the scale."""
        return self.with_centres(answers)[0]

    def with_centres(self, answers: Answers) -> tuple[Answers, Floats | None]:
        """Return the answers on the scale and, on a circle, the centre of each task there."""
        if self.name == "linear":
            return answers, None
        gold = None if answers.gold is None else self.forward(answers.gold)
        return replace(answers, value=self.forward(answers.value), gold=gold), None

    def unwrapped(self, answers: Answers) -> Answers:
        """Return the answers in the users' units, those on a circle as numbers on a line."""
        return answers

    def n_outside(self, answers: Answers) -> int:
        """Count the answers and known truths that are not on the scale."""
        given = (answers.value, answers.gold)
        return sum(int(self.outside(v).any(axis=1).sum()) for v in given if v is not None)

    def refuse_outside(self, answers: Answers) -> None:
        """Refuse values that are not on the scale: how many, which is the first, what to try."""
        for what, values in (("answer", answers.value), ("gold truth", answers.gold)):
            if values is None or not (bad := self.outside(values).any(axis=1)).any():
                continue
            row = int(np.flatnonzero(bad)[0])
            task = row if values is answers.gold else int(answers.task[row])
            where = f"the gold of task {shorten([answers.task_ids[task]])}"
            if values is answers.value:
                worker = shorten([answers.worker_ids[answers.worker[row]]])
                where = f"that of worker {worker} to task {shorten([answers.task_ids[task]])}"
            n = int(bad.sum())
            count = f"1 {what} is not:" if n == 1 else f"{n} {what}s are not: the first is"
            raise DataError(
                f"scale {self.name!r} takes {self.domain}{self._details()}, but {count} {where}, "
                f"{shorten(values[row].tolist())}; {self.advice}"
            )

    def summary(self) -> str:
        """Return which figures are in which unit; nothing on the linear scale."""
        if self.name == "linear":
            return ""
        return (
            f"modelled on the {self.name} scale{self._details()}: estimates, sds and intervals are "
            f"in the answers' unit, noise and bias of workers {self.noise_unit}"
        )

    def _details(self) -> str:
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters as JSON values."""
        return {"name": self.name, **asdict(self)}


LINEAR = Scale()


def all_values(answers: Answers) -> Floats:
    """All answers and known truths."""
    gold: ArrayLike = [] if answers.gold is None else answers.gold[answers.is_gold]
    return np.append(answers.value.ravel(), np.ravel(gold))
