"""What the report says first: the model and why, the gain over the mean, the audit, the flags."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators import ESTIMATORS
from voxpop.estimators.base import sum_by_task
from voxpop.estimators.leave_one_out import leave_one_out_means, leave_one_out_medians
from voxpop.results.diagnosis import Diagnosis
from voxpop.results.explanation import number_text
from voxpop.results.result import Result

# Estimates nearer to the mean than this share of their sd are the mean.
_SAME = 1e-3


@dataclass(frozen=True, kw_only=True)
class Card:
    """One thing to know: what it is of, a figure, what the figure is, and a sentence or two."""

    title: str
    figure: str
    unit: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Root mean squared error of estimates and of plain means, per coordinate.

    Where truths are known (``measured``) it is their distance from them. Else it is what the
    posterior expects: of the estimate its own variance, of the mean that and the squared distance
    of the two, E (m - x)² = Var x + (m - E x)². That can never favour the mean, so there is also
    what can: how far left-out answers lie, in the middle, from what the model predicts for them
    and from the mean of the others; NaN where no answer can be predicted.
    """

    ours: float
    mean: float
    n_tasks: int
    measured: bool
    is_mean: bool
    distance: float
    distance_to_mean: float


def gain_over_mean(answers: Answers, result: Result, truth: Floats | None = None) -> Gain:
    """Compare estimates with plain means; against ``truth`` (n_tasks, d), NaN where unknown."""
    mean = task_means(answers)
    counted = ~answers.is_gold
    if truth is not None:
        counted &= np.isfinite(truth).all(axis=1)
        square = (result.estimate - truth) ** 2, (mean - truth) ** 2
    else:
        square = result.variance, result.variance + (mean - result.estimate) ** 2
    ours, of_mean = (
        float(np.sqrt(part[counted].mean())) if counted.any() else np.nan for part in square
    )
    apart = np.abs(mean - result.estimate)[counted]
    distance, distance_to_mean = _left_out(answers, result)
    return Gain(
        ours=ours,
        mean=of_mean,
        n_tasks=int(counted.sum()),
        measured=truth is not None,
        is_mean=bool((apart <= _SAME * result.sd[counted]).all()),
        distance=distance,
        distance_to_mean=distance_to_mean,
    )


def task_means(answers: Answers) -> Floats:
    """Plain mean of the answers to every task, (n_tasks, d)."""
    # About the first answer, which keeps small differences of large values.
    origin = answers.value[answers.task_ptr[:-1]]
    total = sum_by_task(answers, answers.value - origin[answers.task])
    return np.asarray(origin + total / answers.task_degree[:, None])


def _left_out(answers: Answers, result: Result) -> tuple[float, float]:
    """Median distance of answers from their prediction, and from the mean of the others."""
    audit = result.audit
    if audit is None or audit.predicted.shape != answers.value.shape:
        return np.nan, np.nan
    usable = (answers.task_degree[answers.task] > 1) & ~answers.is_gold[answers.task]
    if not usable.any():
        return np.nan, np.nan
    mean, predicted = leave_one_out_means(answers), audit.predicted
    moved = float(result.settings.get("fallback_share") or 0.0)
    if moved:
        simple = leave_one_out_medians(answers) if result.settings["fallback"] == "median" else mean
        predicted = predicted + moved * (simple - audit.truth)

    def middle(of: Floats) -> float:
        return float(np.median(np.sqrt(((answers.value - of)[usable] ** 2).mean(axis=1))))

    return middle(predicted), middle(mean)


def cards(result: Result, gain: Gain, found: Diagnosis | None) -> list[Card]:
    """Say the four things in words; ``found`` is None where workers were not tested."""
    return [_model(result), _error(gain), _intervals(result), _workers(found)]


def _model(result: Result) -> Card:
    settings = result.settings
    method = str(settings.get("method", "unknown"))
    if "chosen" not in settings:
        summary = ESTIMATORS[method].summary if method in ESTIMATORS else ""
        return Card(title="Model", figure=method, unit="", text=_sentence(summary))
    text = _sentence(str(settings["reason"]))
    if settings.get("fallback_share"):
        share = f"{100 * settings['fallback_share']:.0f} %"
        text += (
            f" The estimates were moved {share} of the way to the {settings['fallback']}, which "
            "left-out answers show to be needed."
        )
    return Card(title="Model", figure=str(settings["chosen"]), unit="", text=text)


def _error(gain: Gain) -> Card:
    if not gain.n_tasks:
        text = "All truths are known: there is nothing to estimate."
        return Card(title="Error", figure="0", unit="", text=text)
    kind = "RMSE" if gain.measured else "expected RMSE"
    against = f"against the truths of {gain.n_tasks:,} tasks"
    if gain.is_mean:
        how = f"Measured {against}." if gain.measured else "As the intervals have it."
        text = f"{how} The estimates are the means of the answers."
        return Card(title="Error", figure=number_text(gain.ours), unit=kind, text=text)
    unit = f"{kind}; the mean's is {number_text(gain.mean)}"
    change = 1.0 - gain.ours / gain.mean if gain.mean > 0 else 0.0
    size = f"{abs(100 * change):.0f} % {'less' if change >= 0 else 'more'} than the mean's"
    if gain.measured:
        text = f"{size}, measured {against}."
    else:
        text = f"{size}, if the noise is as learned: no truth is known here to measure it against."
    if np.isfinite(gain.distance):
        text += (
            f" Half of the answers, left out, lie within {number_text(gain.distance)} of what the "
            f"others predict, and within {number_text(gain.distance_to_mean)} of the others' mean."
        )
    return Card(title="Error", figure=number_text(gain.ours), unit=unit, text=text)


def _intervals(result: Result) -> Card:
    audit, title = result.audit, "95 % intervals"
    if audit is None or not audit.n_answers:
        why = _sentence("" if audit is None else audit.summary())
        return Card(title=title, figure="?", unit="not audited", text=why)
    text = f"{audit.n_answers:,} answers were each predicted from the others, with an interval. "
    inside = audit.coverage_95
    if not audit.exact:
        inside = audit.unstretched_95
        text += "Predictions are weighted means of the others."
    elif audit.stretch > 1:
        text += (
            f"Before stretching the intervals by {audit.stretch:.2f}, as this audit called for, "
            f"{100 * audit.unstretched_95:.1f} % were inside."
        )
    else:
        text += "Nothing had to be stretched."
    unit = "of left-out answers inside theirs"
    return Card(title=title, figure=f"{100 * inside:.1f} %", unit=unit, text=text)


def _workers(found: Diagnosis | None) -> Card:
    if found is None:
        text = "There are too many answers to do that in passing: voxpop diagnose does it."
        return Card(title="Workers", figure="?", unit="not tested", text=text)
    n = len(found.workers)
    unit = f"of {found.n_workers:,} flagged: worth a look, not a verdict"
    text = f"Of a crowd of honest workers {found.error_rate:g} are flagged on average, at most."
    if len(found.unjudged):
        text += (
            f" {len(found.unjudged):,} have too few answers to judge (fewer than "
            f"{found.answers_needed} on tasks with two others)."
        )
    return Card(title="Workers", figure=f"{n:,}", unit=unit, text=text)


def _sentence(text: str) -> str:
    """Begin with a capital, end with a stop."""
    return text and f"{text[0].upper()}{text[1:].rstrip('.')}."
