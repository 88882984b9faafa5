"""Units over parts: from the users' units to the scale of a fit and back, and bounds of truths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.exact import exact_sum, exact_value
from voxpop.errors import DataError
from voxpop.estimators.on_scale import with_settings
from voxpop.estimators.within_bounds import (
    clipped,
    n_outside,
    outside_note,
    refuse_gold_outside,
    refuse_if_all_outside,
)
from voxpop.models.scale import LINEAR, SCALES, Range, Scale
from voxpop.models.scale.base import all_values
from voxpop.partitions.parts import part_name
from voxpop.partitions.steps import Part, Steps, Totals, joined
from voxpop.results.audit import Audit
from voxpop.results.result import Result
from voxpop.results.scaled import result_in_units


@dataclass(frozen=True)
class Units:
    """How users see the result of a fit: its scale, its bounds, and the shared error."""

    scale: Scale = LINEAR
    bounds: Range | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def result(self, answers: Answers, result: Result) -> Result:
        """Return a result in the units of ``answers``, except its audit, and within bounds."""
        audit = result.audit
        if self.scale != LINEAR:
            result = result_in_units(answers, self.scale, replace(result, audit=None))
        if self.bounds is not None:
            result = clipped(result, self.bounds)
        return with_settings(replace(result, audit=audit), self.settings)

    def summary_of(self, steps: Steps, audit: Audit) -> Audit:
        """Return an audit without predictions in the users' units."""
        if self.scale == LINEAR:
            return audit
        found = steps.total(partial(sum_slopes, scale=self.scale))
        moved = exact_value(found["slope"]) / max(int(found["answers"][0]), 1)
        return replace(audit, rmse=np.nan, log_score=audit.log_score + moved)


def measure_values(part: Part) -> Totals:
    """Return the ends of the answers of a part, and the two outermost values at either end."""
    answers, known = part.given, all_values(part.given)
    low, high = known.min(), known.max()
    inner = known[(known > low) & (known < high)]
    ends = [low, *([inner.min(), inner.max()] if inner.size else []), high]
    return {
        "lowest": -answers.value.min(axis=0),
        "highest": answers.value.max(axis=0),
        **part.own(outermost=np.array(ends)),
    }


def check_values(part: Part, scale: Scale, bounds: Range | None) -> Totals:
    """Count values that are not on a scale, or outside bounds; return parts of the origin."""
    answers, found = part.given, dict[str, Any]()
    n_bad = scale.n_outside(answers)
    if bounds is not None:
        found["outside"] = n_outside(answers.value, bounds)
        if answers.gold is not None:
            n_bad += int(n_outside(answers.gold[answers.is_gold], bounds)[-1])
    found |= {"centres": scale.sums(answers), "bad": np.array([n_bad])}
    return found | part.own(bad=np.array([n_bad]))


def write_on_scale(part: Part, scale: Scale) -> Totals:
    """Write the answers of a part, and its known truths, as they are on a scale."""
    there = scale.answers(part.given)
    part.store.write_array(part_name(part.number, "on-scale.value.npy"), there.value)
    if there.gold is not None:
        part.store.write_array(part_name(part.number, "on-scale.gold.npy"), there.gold)
    return {}


def sum_slopes(part: Part, scale: Scale) -> Totals:
    """Sum up the slopes of a scale at answers to tasks that have several, and count these."""
    answers = part.given
    slope = scale.log_slope(answers.value[(answers.task_degree > 1)[answers.task]])
    return {"slope": exact_sum(slope), "answers": np.array([len(slope)])}


class Values:
    """The values of all parts in the users' units, as scales and bounds ask of them."""

    def __init__(self, steps: Steps, scratch: Path) -> None:
        self._steps, self._scratch = steps, scratch

    @cached_property
    def _measured(self) -> Mapping[str, Any]:
        return self._steps.total(measure_values)

    @property
    def ends(self) -> Floats:
        """Lowest and highest answer in each coordinate, (2, d)."""
        return np.stack([-self._measured["lowest"], self._measured["highest"]])

    def scale(self, name: str, bounds: Range | None) -> Scale:
        """Make a scale, as :meth:`Scale.of` does; refuse values that are not on it."""
        if name == LINEAR.name:
            return LINEAR
        (outermost,) = joined(self._measured, self._steps.job.parts.n_parts, "outermost")
        scale = SCALES[name].fitting(outermost, bounds)
        found = self._steps.total(partial(check_values, scale=scale, bounds=None))
        if (part := self._first_bad(found)) is not None:
            self._refuse(part, int(found["bad"][0]), scale.refuse_outside)
        return scale.centred(found["centres"])

    def within(self, bounds: Range | None) -> tuple[str, ...]:
        """Refuse bounds as :func:`refuse_bounds` does; note how many answers are outside."""
        if bounds is None:
            return ()
        parts = self._steps.job.parts
        found = self._steps.total(partial(check_values, scale=LINEAR, bounds=bounds))
        all_outside = found["outside"][:-1] == parts.n_answers
        lowest, highest = self.ends
        refuse_if_all_outside(all_outside, parts.value_names, lowest, highest, bounds)
        if (part := self._first_bad(found)) is not None:
            n_bad = int(found["bad"][0])
            self._refuse(part, n_bad, lambda answers: refuse_gold_outside(answers, bounds))
        return outside_note(int(found["outside"][-1]), parts.n_answers, bounds)

    def _first_bad(self, found: Any) -> int | None:
        n_parts = self._steps.job.parts.n_parts
        return next((i for i in range(n_parts) if found[f"bad-{i}"][0]), None)

    def _refuse(self, part: int, n_bad: int, refuse: Any) -> None:
        """Refuse the values of a part, and say how many such values all parts have."""
        parts = self._steps.job.parts
        answers = replace(
            parts.answers(part, self._scratch),
            task_ids=parts.task_ids(part, self._scratch),
            worker_ids=parts.worker_ids(self._scratch),
        )
        try:
            refuse(answers)
        except DataError as error:
            in_all = f" ({n_bad} such values in all parts)" if parts.n_parts > 1 else ""
            raise DataError(f"{error}{in_all}") from None


def put_on_scale(steps: Steps, scale: Scale) -> None:
    """Show the answers to fits on a scale."""
    if scale != LINEAR:
        steps.total(partial(write_on_scale, scale=scale))
        steps.job = replace(steps.job, on_scale=True)
