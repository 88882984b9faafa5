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
from voxpop.results.audit import Audit as AnswerAudit
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

    def facts(self) -> dict[str, Any]:
        """What was learned, as JSON can hold it."""
        learned = self.learned
        return {
            "weights_used": np.exp(learned.log_weights).tolist(),
            "support_used": (self.levels * float((self.scale**2).mean())).tolist(),
            "tails_used": None if np.isinf(learned.freedom) else learned.freedom,
            "difficulty_shares": np.exp(learned.log_class).tolist(),
            "bias_sd": (np.sqrt(learned.bias_variance) * self.scale).tolist()
            if learned.bias_variance.size
            else [],
            "bias_exponent": learned.exponent if learned.bias_variance.size else None,
            "coordinate_scale": self.scale.tolist(),
            "learning_sweeps": self.learning_sweeps,
        }


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
    stretch = 1.0 if audit is None else max(audit.stretch, 1.0)
    result = make_result(
        answers,
        settings | found.facts(),
        stretched(found.posterior, stretch**2 * found.posterior.variance),
        worker_noise(found.level_posterior, model, between=found.on_grid),
        found.trace,
        audit=audit,
    )
    return replace(
        result,
        worker_bias=found.bias,
        worker_bias_sd=np.sqrt(found.bias_variance),
        task_difficulty=found.difficulty,
    )
