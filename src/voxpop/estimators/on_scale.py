"""Fitting on a scale: answers are transformed, fitted by any estimator, and the result restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from voxpop.data.answers import Answers
from voxpop.errors import require
from voxpop.estimators.base import Estimator, OnSweep
from voxpop.models.scale import LINEAR, SCALES, Range, Scale, ScaleName, check_scale
from voxpop.results.result import Result
from voxpop.results.scaled import result_in_units


def fit_on_scale(
    fit: Callable[[Answers], Result],
    answers: Answers,
    scale: ScaleName | Scale,
    bounds: Range | None = None,
) -> Result:
    """Fit answers on a scale with equal noise for all values; estimates are in the users' units.

    Answers and gold are transformed, fitted, and what comes out is transformed back (M50)-(M53).
    ``fit`` is the method of any estimator, such as ``NBI().fit``; arguments that it was made with
    (noise levels, say) are on the scale.

    Parameters
    ----------
    scale
        ``"linear"`` (nothing is done), ``"log"``, ``"sqrt"``, ``"logit"`` or ``"circular"``.
    bounds
        The range of a logit, or one turn of a circle; recognised without.
    """
    if isinstance(scale, str):
        check_scale(scale)
        scale = SCALES[scale].of(answers, bounds)
    if scale == LINEAR:
        return fit(answers)
    return result_in_units(answers, scale, fit(scale.answers(answers)))


@dataclass(frozen=True)
class OnScale(Estimator):
    """Any estimator, on a scale."""

    estimator: Estimator
    scale: ScaleName
    bounds: Range | None = None
    name: ClassVar[str] = "on_scale"
    summary: ClassVar[str] = "another estimator, on a scale where all values have the same noise"

    def __post_init__(self) -> None:
        check_scale(self.scale)

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        scale = SCALES[self.scale].of(answers, self.bounds)
        found = fit_on_scale(lambda a: self.estimator.fit(a, on_sweep), answers, scale)
        return with_settings(found, {"scale": self.scale})

    def for_scale(self, _scale: Scale) -> Estimator:
        """The estimator that fits answers on the scale."""
        return self.estimator


def with_scale(
    estimator: Estimator, scale: ScaleName | None, bounds: Range | None = None
) -> Estimator:
    """Return the estimator on a scale; None leaves it as it is.

    ``bounds`` of the scale are for estimators that take no bounds.
    """
    if scale is None:
        return estimator
    check_scale(scale)
    own = getattr(estimator, "scale", None)
    if not (isinstance(own, str) and own in ("auto", *SCALES)):
        return estimator if scale == "linear" else OnScale(estimator, scale, bounds)
    require(
        own in ("auto", "linear", scale),
        f"the estimator has scale={own!r} already, and scale={scale!r} was given",
    )
    return replace(estimator, scale=scale)  # type: ignore[type-var]


def with_settings(result: Result, settings: Mapping[str, Any]) -> Result:
    """Record the settings as users gave them, in place of those on the scale."""
    return replace(result, settings={**result.settings, **settings})
