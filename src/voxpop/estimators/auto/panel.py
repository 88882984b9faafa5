"""Panel: a few judges with gold, and whether truths regressed on their answers are the better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.auto.gold_checks import standard_errors_worse
from voxpop.estimators.conformal import HiddenGold, hide_gold, widen_by_gold
from voxpop.estimators.judges import Judges, fits_judges
from voxpop.results.result import Result

# By so many standard errors the regression has to be better on hidden truths.
_CLEARLY = 1.0


def checked_by_gold(fit: Callable[[Answers], Result], answers: Answers, result: Result) -> Result:
    """Check intervals by gold; for a panel of judges, take :class:`Judges` where gold shows it.

    Both estimate the same gold tasks, half of them hidden at a time. The regression is taken if it
    is better by more than a standard error of the sum of squared errors (M81).
    """
    if not fits_judges(answers):
        return widen_by_gold(fit, answers, result)
    judges = Judges()
    ours, theirs = (hide_gold(each, answers) for each in (fit, judges.fit))
    one, other = _errors(ours, ours), _errors(theirs, ours)
    if standard_errors_worse(one, other) <= _CLEARLY:
        return widen_by_gold(fit, answers, result, ours)
    found = judges.fit(answers)
    part = np.sqrt(other.sum() / one.sum())
    reason = (
        f"on {len(one)} gold tasks hidden by halves, truths regressed on the answers of the "
        f"{answers.n_workers} workers have {part:.0%} of the error of the best noise models"
    )
    found = replace(
        found,
        settings={**result.settings, "chosen": "judges", "reason": reason, "averaged": {}},
        notes=(f"chose judges: {reason}", *found.notes),
    )
    return widen_by_gold(judges.fit, answers, found, theirs)


def _errors(found: HiddenGold, unit: HiddenGold) -> Floats:
    """Squared error (g,) of each hidden truth, coordinates in units of errors of ``unit``."""
    square = ((unit.truth - unit.agreed.estimate) ** 2).mean(axis=0)
    error = found.truth - found.agreed.estimate
    return np.asarray((error**2 / np.where(square > 0, square, 1.0)).sum(axis=1))
