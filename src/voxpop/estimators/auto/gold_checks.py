"""Gold checks: noise models compared with known truths, each hidden in turn."""

from __future__ import annotations

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.auto.calibration_checks import error_of_sum
from voxpop.estimators.learn_map import FEWEST_GOLD, left_out_errors

# Left-out answers stand in for truths where there are none. With n gold tasks they count by a share
# of this over this plus n.
_ANSWERS_WORTH = 0.5


def judges(answers: Answers) -> bool:
    """Return whether there is enough gold to judge models by."""
    return int(answers.is_gold.sum()) >= FEWEST_GOLD


def gold_errors(answers: Answers, hidden: Floats, scale: Floats) -> Floats:
    """Squared error (g,) of the gold tasks from hidden estimates (g, d), over all coordinates.

    Each estimate is mapped as the other gold tasks show. These left-out errors (M61) leave out what
    a map will correct: that is no reason to reject a model. Empty with too little gold.
    """
    if answers.gold is None or not judges(answers):
        return np.empty(0)
    error = left_out_errors(hidden, answers.gold[answers.is_gold]) / scale
    return np.asarray((error**2).sum(axis=1))


def standard_errors_worse(one: Floats, other: Floats) -> float:
    """By how many standard errors one is worse than the other; 0 without gold."""
    difference = one - other
    if not difference.any():
        return 0.0
    error = error_of_sum(difference)
    return float(difference.sum()) / error if error > 0 else 0.0


def gold_scores(errors: Floats, dimension: int) -> Floats:
    """Log density (g, models) of each truth, from squared errors (g, models) (M64).

    Each model gets the variance that fits its errors best: if its own was too small, calibration
    corrects that.
    """
    square = errors.mean(axis=0) / dimension
    least = np.finfo(np.float64).eps * square.max()
    if least == 0:
        return np.zeros_like(errors)
    square = np.maximum(square, least)
    return np.asarray(-0.5 * (dimension * np.log(square) + errors / square))


def share_of_answers(n_gold: int) -> float:
    """Weight of left-out answers relative to gold."""
    return _ANSWERS_WORTH / (_ANSWERS_WORTH + n_gold)
