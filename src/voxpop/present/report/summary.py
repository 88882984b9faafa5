"""The words of the report: the decision as tiles; cards on model, error, intervals and workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.data.sums import weighted_means
from voxpop.estimators.leave_one_out import leave_one_out_means
from voxpop.estimators.registry import ESTIMATORS
from voxpop.results.diagnosis.flags import Diagnosis
from voxpop.results.intervals import truth_check
from voxpop.results.next_answers import next_answers
from voxpop.results.result import Result
from voxpop.words import number_text, percent

# Estimates nearer to the mean than this share of their sd count as equal to it.
_SAME = 1e-3
_UNTESTED = "There are too many answers to test the workers here: run voxpop diagnose."


class Card(NamedTuple):
    """One card: a figure with its unit, and a sentence or two."""

    figure: str
    unit: str
    text: str


class Tile(NamedTuple):
    """One decision: its kind, a figure, what it is of, a sentence, and where to go on."""

    kind: str
    figure: str
    unit: str
    text: str
    link: str = ""


def tiles(answers: Answers, result: Result) -> list[Tile]:
    """The decision: what is ready, what needs a look, whom to talk to, what more would buy."""
    found, coming = result.review, next_answers(answers, result)
    n, of = len(found.tasks), len(result.task_ids)
    share = f"{percent(found.n_ready / of)} of {of:,}: take them as they are."
    why = " · ".join(f"{reason} {count:,}" for reason, count in found.counts().items())
    listed = [
        Tile("ready", f"{found.n_ready:,}", "label ready" if found.n_ready == 1 else "labels ready",
             share, "#tasks"),
        Tile("look", f"{n:,}", "needs a look" if n == 1 else "need a look",
             f"{why}." if why else "No label stands out.", "#look" if n else ""),
    ]  # fmt: skip
    if found.workers is None:
        listed.append(Tile("talk", "?", "workers not tested", _UNTESTED))
    else:
        m, names = len(found.workers), ", ".join(str(worker) for worker in found.workers[:3])
        more = f" and {m - 3:,} more" if m > 3 else ""
        text = f"{names}{more}: ask them before you judge." if m else "No worker stands out."
        unit = "worker to talk to" if m == 1 else "workers to talk to"
        listed.append(Tile("talk", f"{m:,}", unit, text, "#talk" if m else ""))
    if coming is not None and np.isfinite(coming.rmse) and coming.rmse > 0:
        less = 1 - coming.rmse_after / coming.rmse
        unit = f"less error for {coming.n_answers:,} more answers"
        listed.append(Tile("next", percent(less), unit, coming.summary()))
    return listed


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Root mean squared error of estimates and of plain means, per coordinate.

    Where truths are known (``measured``), both are measured against them. Otherwise both are what
    the posterior expects: of the estimate its variance, of the mean also the squared distance
    between the two, E (m - x)² = Var x + (m - E x)². That can never favour the mean, so there is
    also a measure that can: the median ``distance`` of left-out answers from what the model
    predicts for them, and from the mean of the others; NaN where no answer can be predicted.
    ``covered`` is the share of known truths inside their 95 % intervals; NaN without.
    """

    ours: float
    mean: float
    n_tasks: int
    measured: bool
    is_mean: bool
    distance: float
    distance_to_mean: float
    covered: float = np.nan

    def headline(self) -> str:
        """Say how well known truths were met; nothing where none is known."""
        if np.isnan(self.covered):
            return ""
        return (
            f"{percent(self.covered, 1)} of {self.n_tasks:,} known truths are inside their 95 % "
            f"intervals; the RMSE is {number_text(self.ours)} (of the mean: "
            f"{number_text(self.mean)})"
        )


def gain_over_mean(answers: Answers, result: Result, truth: Floats | None = None) -> Gain:
    """Compare estimates with plain means; against ``truth`` (n_tasks, d), NaN where unknown."""
    mean = weighted_means(answers)
    apart = np.abs(result.scale.difference(mean, result.estimate))
    counted = ~answers.is_gold
    if truth is not None:
        counted &= np.isfinite(truth).all(axis=1)
        away = result.scale.difference
        square = away(result.estimate, truth) ** 2, away(mean, truth) ** 2
    else:
        square = result.variance, result.variance + apart**2
    covered = np.nan
    if truth is not None and counted.any():
        near = result.scale.nearest(truth, result.estimate)
        low, high = result.interval(0.95)
        covered = float(((low <= near) & (near <= high))[counted].mean())
    ours, of_mean = (
        float(np.sqrt(part[counted].mean())) if counted.any() else np.nan for part in square
    )
    distance, distance_to_mean = _left_out(answers, result)
    return Gain(
        ours=ours,
        mean=of_mean,
        n_tasks=int(counted.sum()),
        measured=truth is not None,
        is_mean=bool((apart <= _SAME * result.sd)[counted].all()),
        distance=distance,
        distance_to_mean=distance_to_mean,
        covered=covered,
    )


def _left_out(answers: Answers, result: Result) -> tuple[float, float]:
    """Median distance of answers from their prediction, and from the mean of the others."""
    audit = result.audit
    if audit is None or audit.predicted.shape != answers.value.shape:
        return np.nan, np.nan
    usable = (answers.task_degree[answers.task] > 1) & ~answers.is_gold[answers.task]
    if not usable.any():
        return np.nan, np.nan
    mean, predicted = leave_one_out_means(answers), audit.predicted

    def median_distance(to: Floats) -> float:
        away = result.scale.difference(answers.value, to)[usable]
        return float(np.median(np.sqrt((away**2).mean(axis=1))))

    return median_distance(predicted), median_distance(mean)


def cards(result: Result, gain: Gain, found: Diagnosis | None) -> dict[str, Card]:
    """The four cards by their titles; ``found`` is None where workers were not tested.

    Where truths are known, how many of them the intervals hold comes first.
    """
    shown = {
        "Model": _model(result),
        "Error": _error(gain),
        "95 % intervals": _intervals(result, gain),
        "Workers": _workers(found),
    }
    if np.isfinite(gain.covered):
        first = "95 % intervals"
        return {first: shown.pop(first), **shown}
    return shown


def _model(result: Result) -> Card:
    settings = result.settings
    method = str(settings.get("method", "unknown"))
    if "chosen" not in settings:
        summary = ESTIMATORS[method].summary if method in ESTIMATORS else ""
        return Card(method, "", _sentence(summary))
    return Card(str(settings["chosen"]), "", _sentence(str(settings["reason"])))


def _error(gain: Gain) -> Card:
    if not gain.n_tasks:
        return Card("0", "", "All truths are known: there is nothing to estimate.")
    if np.isnan(gain.ours):
        return Card("?", "not known", "Nothing shows how far off an answer is.")
    ours, unit = number_text(gain.ours), "RMSE" if gain.measured else "expected RMSE"
    against = f"measured against the truths of {gain.n_tasks:,} tasks"
    if gain.is_mean:
        how = f"{against.capitalize()}." if gain.measured else "Expected from the posterior."
        return Card(ours, unit, f"{how} The estimates are the means of the answers.")
    unit += f"; the mean's is {number_text(gain.mean)}"
    change = 1.0 - gain.ours / gain.mean if gain.mean > 0 else 0.0
    text = f"{percent(abs(change))} {'less' if change >= 0 else 'more'} than the mean's, "
    text += against if gain.measured else "if the learned noise is right"
    if np.isfinite(gain.distance):
        text += (
            f". Half of the left-out answers lie within {number_text(gain.distance)} of what the "
            f"others predict, and within {number_text(gain.distance_to_mean)} of the others' mean"
        )
    return Card(ours, unit, f"{text}.")


def _intervals(result: Result, gain: Gain) -> Card:
    card = _audited(result)
    checked = _sentence(truth_check(result.calibration))
    shared = result.calibration.shared
    allowed = "" if shared is None else f" {_sentence(shared.summary())}"
    if np.isfinite(gain.covered):
        unit = f"of {gain.n_tasks:,} known truths are inside"
        text = f"{card.figure} {card.unit} their prediction intervals. {card.text}"
        return Card(percent(gain.covered, 1), unit, f"{text}{allowed}")
    return Card(card.figure, card.unit, f"{card.text} {checked}{allowed}".strip())


def _audited(result: Result) -> Card:
    audit = result.audit
    if audit is None or not audit.n_answers:
        return Card("?", "not audited", _sentence("" if audit is None else audit.summary()))
    how = "The intervals were not stretched."
    if not audit.exact:
        how = "The predictions are weighted means of the other answers."
    elif audit.is_stretched:
        how = (
            f"The intervals were stretched by {audit.stretch:.2f}; before that, "
            f"{percent(audit.unstretched_95, 1)} were inside."
        )
    text = f"Each of {audit.n_answers:,} answers was predicted from the others. {how}"
    return Card(percent(audit.inside_95, 1), "of left-out answers fell inside", text)


def _workers(found: Diagnosis | None) -> Card:
    if found is None:
        return Card("?", "not tested", _UNTESTED)
    text = f"About 1 crowd in {1 / found.error_rate:.0f} has a worker flagged by mistake."
    if len(found.unjudged):
        text += (
            f" {len(found.unjudged):,} have too few answers to judge (fewer than "
            f"{found.answers_needed} on tasks that two others answered)."
        )
    if found.typos:
        first = found.typos[0]
        count = "1 answer looks" if len(found.typos) == 1 else f"{len(found.typos):,} answers look"
        text += f" {count} mistyped: for example, {first.value:.6g} for {first.looks_like:.6g}."
    advice = ": look at the evidence before you judge" if found.workers else ""
    unit = f"of {found.n_workers:,} flagged{advice}"
    return Card(f"{len(found.workers):,}", unit, text)


def _sentence(text: str) -> str:
    """Begin with a capital letter and end with a full stop."""
    return text and f"{text[0].upper()}{text[1:].rstrip('.')}."
