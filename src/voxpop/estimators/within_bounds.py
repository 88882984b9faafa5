"""Within bounds: refuse a range that leaves out all answers, and keep a result inside the range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.errors import DataError, shorten
from voxpop.models.scale import Range
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result


def refuse_bounds(answers: Answers, bounds: Range | None) -> None:
    """Refuse bounds that leave out all answers in some coordinate, or a known truth.

    Noise may put some answers beyond the bounds of the truths, but not all of them.
    """
    if bounds is None:
        return
    said = f"bounds {bounds[0]:g} to {bounds[1]:g}"
    for name, column in zip(answers.value_names, answers.value.T, strict=True):
        if _outside(column, bounds).all():
            what = "" if answers.dimension == 1 else f" of {name}"
            raise DataError(
                f"{said} leave out all answers{what}, which go from {column.min():g} to "
                f"{column.max():g}; give bounds of the truths in the answers' units"
            )
    if answers.gold is None:
        return
    gold = answers.gold[answers.is_gold]
    if (beyond := _outside(gold, bounds).any(axis=1)).any():
        first = int(np.flatnonzero(beyond)[0])
        task = answers.task_ids[np.flatnonzero(answers.is_gold)[first]]
        raise DataError(
            f"{said} leave out {int(beyond.sum())} of {len(gold)} gold truths: the first is that "
            f"of task {shorten([task])}, {shorten(gold[first].tolist())}; give wider bounds"
        )


def keep_bounds(result: Result, answers: Answers, bounds: Range | None) -> Result:
    """Keep estimates and intervals within the bounds, and note how many answers are outside."""
    if bounds is None:
        return result
    result = result.calibrated(Calibration(bounds=bounds))
    n_outside = int(_outside(answers.value, bounds).any(axis=1).sum())
    if not n_outside:
        return result
    are = "answer lies" if n_outside == 1 else "answers lie"
    note = (
        f"{n_outside} of {answers.n_edges} {are} outside the bounds {bounds[0]:g} to "
        f"{bounds[1]:g}: noise may put them there, and they count; estimates and intervals stay "
        "inside"
    )
    return replace(result, notes=(*result.notes, note))


def _outside(value: Floats, bounds: Range) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.asarray((value < bounds[0]) | (value > bounds[1]))
