"""Within bounds: refuse a range without any answer or known truth, and keep results inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.errors import DataError, shorten
from voxpop.models.scale import Range
from voxpop.results.calibration import within
from voxpop.results.result import Result


def refuse_bounds(answers: Answers, bounds: Range | None) -> None:
    """Refuse bounds that exclude all answers in some coordinate, or a known truth.

    Noise may put some answers beyond the bounds of the truths, but not all of them.
    """
    if bounds is None:
        return
    ends = answers.value.min(axis=0), answers.value.max(axis=0)
    all_outside = n_outside(answers.value, bounds)[:-1] == answers.n_edges
    refuse_if_all_outside(all_outside, answers.value_names, *ends, bounds)
    refuse_gold_outside(answers, bounds)


def refuse_if_all_outside(
    all_outside: NDArray[np.bool_],
    names: Sequence[str],
    lowest: Floats,
    highest: Floats,
    bounds: Range,
) -> None:
    """Refuse bounds if all answers are outside in some coordinate, given their range."""
    for excluded, name, low, high in zip(all_outside, names, lowest, highest, strict=True):
        if excluded:
            what = "" if len(names) == 1 else f" of {name}"
            raise DataError(
                f"bounds {bounds[0]:g} to {bounds[1]:g} exclude all answers{what}, which range "
                f"from {low:g} to {high:g}; give bounds of the truths in the answers' units"
            )


def refuse_gold_outside(answers: Answers, bounds: Range) -> None:
    """Refuse bounds that exclude a known truth."""
    if answers.gold is None:
        return
    gold = answers.gold[answers.is_gold]
    if (beyond := _outside(gold, bounds).any(axis=1)).any():
        first = int(np.flatnonzero(beyond)[0])
        task = answers.task_ids[np.flatnonzero(answers.is_gold)[first]]
        raise DataError(
            f"bounds {bounds[0]:g} to {bounds[1]:g} exclude {int(beyond.sum())} of {len(gold)} "
            f"gold truths: the first is that of task {shorten([task])}, "
            f"{shorten(gold[first].tolist())}; give wider bounds"
        )


def keep_bounds(result: Result, answers: Answers, bounds: Range | None) -> Result:
    """Keep estimates and intervals within the bounds, and note how many answers are outside."""
    if bounds is None:
        return result
    notes = outside_note(int(n_outside(answers.value, bounds)[-1]), answers.n_edges, bounds)
    result = clipped(result, bounds)
    return replace(result, notes=(*result.notes, *notes))


def clipped(result: Result, bounds: Range) -> Result:
    """Clip estimates and intervals, those of agreement too, to the bounds."""
    calibration = replace(result.calibration, bounds=bounds)
    return result._changed(lambda each: within(each, bounds), calibration=calibration)


def n_outside(value: Floats, bounds: Range) -> Index:
    """Count the rows outside a range in each coordinate, and last in any, (d + 1,)."""
    outside = _outside(value, bounds)
    return np.append(outside.sum(axis=0), outside.any(axis=1).sum())


def outside_note(n: int, n_answers: int, bounds: Range) -> tuple[str, ...]:
    """Note how many answers are outside the bounds, if any are."""
    if not n:
        return ()
    are = "answer lies" if n == 1 else "answers lie"
    return (
        f"{n} of {n_answers} {are} outside the bounds {bounds[0]:g} to {bounds[1]:g}: noise may "
        "put them there, and they count; estimates and intervals stay inside",
    )


def _outside(value: Floats, bounds: Range) -> NDArray[np.bool_]:
    return np.asarray((value < bounds[0]) | (value > bounds[1]))
