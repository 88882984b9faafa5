"""Panel: of a few judges with gold, noise models averaged with truths regressed on the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.auto.average import mixed
from voxpop.estimators.conformal import HiddenGold, hide_gold, widen_by_gold
from voxpop.estimators.judges import Judges, fits_judges
from voxpop.results.result import Result
from voxpop.words import percent

# Prior sd of the regression's weight about one half: so wide that gold decides.
_SHARE, _SHARE_SD = 0.5, 0.5


def checked_by_gold(fit: Callable[[Answers], Result], answers: Answers, result: Result) -> Result:
    """Check intervals by gold; of a panel of judges, average the result with :class:`Judges`.

    Both estimate the same gold tasks, half of them hidden at a time, and their errors there give
    the weight of the regression (M81).
    """
    if not fits_judges(answers):
        return widen_by_gold(fit, answers, result)
    judges = Judges()
    ours, theirs = (hide_gold(each, answers) for each in (fit, judges.fit))
    share = share_of_regression(*_errors(ours, theirs))
    regressed = widen_by_gold(judges.fit, answers, judges.fit(answers), theirs)
    result = widen_by_gold(fit, answers, result, ours)
    posterior = mixed([result._posterior, regressed._posterior], np.array([1.0 - share, share]))
    reason = (
        f"the regression of the truths on the answers of the {answers.n_workers} workers has "
        f"{percent(share)} of the weight, by its errors on {len(ours.truth)} gold tasks, hidden "
        "half at a time"
    )
    chosen: dict[str, object] = {"regression": round(share, 3)}
    found = result
    if share > _SHARE:
        # It also describes the workers: its estimates are on the scale of the truths.
        found = replace(regressed, settings=result.settings)
        chosen |= {"chosen": "judges", "reason": reason, "averaged": {}}
    return replace(
        found,
        estimate=posterior.estimate,
        variance=posterior.variance,
        quantile=posterior.quantile,
        settings={**found.settings, **chosen},
        notes=(f"averaged with judges: {reason}", *found.notes),
    )


def share_of_regression(one: Floats, other: Floats) -> float:
    """Weight of the regression, from errors (g, d) of both methods on hidden truths (M81).

    The average of the two with the smallest error on hidden truths, by ridge regression about
    equal shares.
    """
    middle, apart = 0.5 * (one + other), one - other
    noise = float((middle**2).sum()) / len(one)
    if noise == 0:
        return _SHARE
    moved = float((middle * apart).sum()) / (float((apart**2).sum()) + noise / _SHARE_SD**2)
    return float(np.clip(_SHARE + moved, 0.0, 1.0))


def _errors(ours: HiddenGold, theirs: HiddenGold) -> tuple[Floats, Floats]:
    """Errors (g, d) of both on hidden truths, coordinates in units of errors of the first."""
    one, other = (each.truth - each.agreed.estimate for each in (ours, theirs))
    square = (one**2).mean(axis=0)
    unit = np.sqrt(np.where(square > 0, square, 1.0))
    return one / unit, other / unit
