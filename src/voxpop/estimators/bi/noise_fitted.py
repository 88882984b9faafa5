"""The outcome of a fit under a noise model, and the result made from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.estimators.bi.gains import with_noise_as_given
from voxpop.estimators.make_result import WorkerNoise, make_result, worker_noise
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model
from voxpop.models.noise import NoiseParameters
from voxpop.models.noise.levels import Levels
from voxpop.models.noise_facts import NoiseFacts
from voxpop.results.audit import Audit
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result, Trace


@dataclass(frozen=True, eq=False)
class NoiseFitted:
    """The outcome of a fit under a noise model, in the users' units.

    ``answer_variance`` is that of an answer as a multiple of the worker's level, on the usual task
    and on average over the coordinates. ``columns`` are the components' columns of tasks and
    workers, by their field of :class:`Result`; ``level_posterior`` (m, K) has all states of a
    worker. ``hidden`` is the posterior of each gold task without its truth. ``workers`` sums the
    workers up, where that was done before.
    """

    answers: Answers
    posterior: Posterior
    level_posterior: Floats
    parameters: NoiseParameters
    answer_variance: float
    columns: dict[str, Floats]
    audit: Audit | None
    trace: Trace
    learning_sweeps: int
    scale: Floats
    on_grid: bool
    hidden: Posterior
    workers: WorkerNoise | None = None

    def result(
        self,
        settings: dict[str, Any],
        of_part: Audit | None = None,
        *,
        posterior: Posterior | None = None,
        audit: Audit | None = None,
    ) -> Result:
        """Make a result, its intervals stretched as the audit asks.

        Without an audit, that of a part of the answers (``of_part``) is used. With a
        ``posterior`` and an ``audit`` of several models, this one describes the workers only, and
        nothing is stretched.
        """
        levels, stretch = self.parameters[Levels].merged(self.level_posterior)[0], 1.0
        if audit is None:
            audit = self.audit
            if audit is None and of_part is not None:
                audit = Audit.from_dict(of_part.to_dict())
            stretch = 1.0 if audit is None else max(audit.stretch, 1.0)
        result = make_result(
            self.answers,
            settings | levels.settings(self.scale) | {"learning_sweeps": self.learning_sweeps},
            posterior or self.posterior,
            self.workers or self.sum_up_workers(),
            self.trace,
            audit=audit,
        )
        facts = self.parameters.facts(self.scale)
        noise = NoiseFacts(coordinate_scale=tuple(self.scale.tolist()), **facts)
        result = replace(result, noise=noise, **self.columns)  # type: ignore[arg-type]
        return with_noise_as_given(result).calibrated(Calibration(stretch=stretch))

    def sum_up_workers(self) -> WorkerNoise:
        """Sum up what is known of each worker's noise, on the usual task."""
        levels, posterior = self.parameters[Levels].merged(self.level_posterior)
        model = Model(
            support=levels.variance * self.answer_variance,  # type: ignore[arg-type]
            weights=np.exp(levels.log_weights),  # type: ignore[arg-type]
        )
        return worker_noise(posterior, model, between=self.on_grid)


def together(one: dict[str, Floats], other: dict[str, Floats]) -> dict[str, Floats]:
    """Columns of several components; factors of a variance are multiplied."""
    return one | {name: one[name] * c if name in one else c for name, c in other.items()}
