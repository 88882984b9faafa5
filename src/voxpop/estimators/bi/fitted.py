"""What a fit under a rich noise model found, and how it becomes a result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.bi.em_steps import Learned
from voxpop.inference.kernel_set import Predictions
from voxpop.estimators.make_result import make_result, worker_noise
from voxpop.inference.kernels.posterior import Posterior, stretched
from voxpop.models.model import Model
from voxpop.models.noise import tail_variance
from voxpop.models.noise_facts import NoiseFacts
from voxpop.results.audit import Audit as AnswerAudit
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result, Trace


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit under a noise model found, in the users' units."""

    posterior: Posterior
    level_posterior: Floats
    levels: Floats
    learned: Learned
    difficulty: Floats
    usual_difficulty: float
    bias: Floats
    bias_variance: Floats
    audit: Predictions | None
    trace: Trace
    learning_sweeps: int
    scale: Floats
    on_grid: bool

    def settings(self) -> dict[str, Any]:
        """The noise levels and how they were learned, as JSON can hold it."""
        return {
            "weights_used": np.exp(self.learned.log_weights).tolist(),
            "support_used": (self.levels * float((self.scale**2).mean())).tolist(),
            "learning_sweeps": self.learning_sweeps,
        }

    def noise(self) -> NoiseFacts:
        """What was learned beside the levels."""
        learned = self.learned
        biased, hard = bool(learned.bias_variance.size), len(learned.log_class) > 1
        bias_sd = np.sqrt(learned.bias_variance) * self.scale if biased else np.empty(0)
        return NoiseFacts(
            tails=None if np.isinf(learned.freedom) else learned.freedom,
            bias_sd=tuple(bias_sd.tolist()),
            bias_exponent=learned.exponent if biased else None,
            difficulty_shares=tuple(np.exp(learned.log_class).tolist()) if hard else (),
            coordinate_scale=tuple(self.scale.tolist()),
        )


def noisy_result(
    answers: Answers, settings: dict[str, Any], found: Fitted, of_part: AnswerAudit | None = None
) -> Result:
    """Put what was found into a result; where no answer was predicted, with the audit of a part."""
    learned = found.learned
    # What an answer scatters by: heavy tails included, on average over the coordinates.
    spread = tail_variance(learned.freedom) * float((found.scale**2).mean())
    factor = spread * found.usual_difficulty
    model = Model(support=found.levels * factor, weights=np.exp(learned.log_weights))  # type: ignore[arg-type]
    audit = None if of_part is None else AnswerAudit.from_dict(of_part.to_dict())
    if found.audit is not None:
        audit = AnswerAudit.of(
            answers.value,
            answers.task,
            answers.task_degree[answers.task] > 1,
            pit=found.audit.pit,
            predicted=found.audit.truth_mean + found.audit.bias,
            predicted_sd=np.sqrt(found.audit.variance),
            truth=found.audit.truth_mean,
            log_density=found.audit.log_density,
            exact=True,
        )
    result = make_result(
        answers,
        settings | found.settings(),
        found.posterior,
        worker_noise(found.level_posterior, model, between=found.on_grid),
        found.trace,
        audit=audit,
    )
    result = replace(
        result,
        worker_bias=found.bias,
        worker_bias_sd=np.sqrt(found.bias_variance),
        task_difficulty=found.difficulty,
        noise=found.noise(),
    )
    stretch = 1.0 if audit is None else max(audit.stretch, 1.0)
    return result.calibrated(Calibration(stretch=stretch))
