"""Results on a scale: from what a model found there to the users' units, and back to the scale."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.scale import LINEAR, Scale
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration, calibrated, within

if TYPE_CHECKING:
    from voxpop.results.result import Result


def in_units(scale: Scale, found: Posterior) -> Posterior:
    """Posterior in the users' units, from that on the scale (M50)-(M52): mean, quantiles, sd."""
    if scale == LINEAR:
        return found
    estimate = scale.back(found.estimate)
    sd = scale.spread(scale.forward(estimate), np.sqrt(found.variance))
    return Posterior(estimate, sd**2, scale.back_from(found.estimate, found.quantile))


def on_scale(scale: Scale, found: Posterior, centre: Floats | None = None) -> Posterior:
    """Undo :func:`in_units`; on a circle, within half a turn of the ``centre`` of each task."""
    if scale == LINEAR:
        return found
    at = scale.forward(found.estimate)
    quantile = scale.forward_from(found.estimate, found.quantile)
    if centre is not None:
        turned = scale.turn(at, centre)
        quantile = quantile + (turned - at)[:, :, None]
        at = turned
    return Posterior(at, scale.sd_at(at, np.sqrt(found.variance)) ** 2, quantile)


def calibrate(result: Result, by: Calibration) -> Result:
    """Apply a calibration, on the scale of the model.

    The stretch is applied once in the making of a result; a shared error and gold replace those
    that were there. Bounds are kept after every part.
    """
    before = on_scale(result.scale, result._agreed)
    agreed = calibrated(before, Calibration(stretch=by.stretch))
    whole = result.calibration.then(by)
    there = calibrated(agreed, whole.of_truth)
    found, agreement = (
        within(in_units(result.scale, each), whole.bounds) for each in (there, agreed)
    )
    return replace(
        result,
        estimate=found.estimate,
        variance=found.variance,
        quantile=found.quantile,
        calibration=whole,
        _agreement=None if there is agreed else agreement,
        _groups=(),
    )


def result_in_units(answers: Answers, scale: Scale, found: Result) -> Result:
    """Result in the users' units, from that of a model on the scale.

    What is known about workers (noise, bias, levels) stays on the scale, where all tasks are alike.
    Gold tasks get their truth as it was given.
    """
    return found._changed(
        lambda each: in_units(scale, each).with_truths(answers.gold),
        audit=None if found.audit is None else audit_in_units(answers, scale, found.audit),
        notes=(*found.notes, scale.summary()),
        scale=scale,
    )


def result_on_scale(answers: Answers, result: Result) -> tuple[Answers, Result]:
    """Answers and result on the scale of the result, where its model applies."""
    scale = result.scale
    if scale == LINEAR:
        return answers, result
    there, centre = scale.with_centres(answers)
    audit = result.audit
    if audit is not None and audit.predicted.shape == answers.value.shape:
        nearby = None if centre is None else centre[answers.task]
        predicted, truth = scale.forward(audit.predicted), scale.forward(audit.truth)
        if nearby is not None:
            predicted, truth = scale.turn(predicted, nearby), scale.turn(truth, nearby)
        audit = replace(
            audit,
            predicted=predicted,
            predicted_sd=scale.sd_at(predicted, audit.predicted_sd),
            truth=truth,
            log_density=audit.log_density - scale.log_slope(answers.value),
        )
    found = result._changed(lambda each: on_scale(scale, each, centre), audit=audit, scale=LINEAR)
    return there, found


def audit_in_units(answers: Answers, scale: Scale, audit: Audit) -> Audit:
    """Predictions in the users' units; densities with the slope of the scale (M51).

    PIT values and coverage are the same on every scale.
    """
    slope = scale.log_slope(answers.value)
    if audit.predicted.shape != answers.value.shape:
        several = (answers.task_degree > 1)[answers.task]
        moved = float(slope[several].sum(axis=1).mean()) if several.any() else 0.0
        return replace(audit, rmse=np.nan, log_score=audit.log_score + moved)
    usable = np.isfinite(audit.pit).all(axis=1)
    predicted = scale.back(audit.predicted)
    residual = scale.difference(answers.value, predicted)[usable]
    moved = float(slope[usable].sum(axis=1).mean()) if usable.any() else 0.0
    return replace(
        audit,
        rmse=float(np.sqrt((residual**2).mean())) if usable.any() else np.nan,
        log_score=audit.log_score + moved,
        predicted=predicted,
        predicted_sd=scale.spread(scale.forward(predicted), audit.predicted_sd),
        truth=scale.back(audit.truth),
        log_density=audit.log_density + slope,
    )
