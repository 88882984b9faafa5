"""Fits of large crowds: parameters from a part of the answers, messages and estimates of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.beliefs import Messages
from voxpop.estimators.bi.noise_fit import (
    NoiseFit,
    integrated_sweeps,
    match_messages,
    sweep_parameters,
    typical_degree,
)
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.plug_in import MOST_KEPT
from voxpop.inference.groups import WorkerBias
from voxpop.models.noise import NoiseParameters
from voxpop.models.noise.levels import Levels
from voxpop.results.result import Trace

# Accuracy of integrals: a large crowd needs no more digits than this.
FINAL_ACCURACY = 1e-5
# Sweeps in which learning the shares of levels continues, and EM steps in each.
_LEARNING, _SHARE_STEPS = 5, 5
# Estimates are at rest when a sweep moves them by this many of their sds, root mean square.
_AT_REST = 1e-2
# Under slips and difficulty, undamped messages swing from one sweep to the next, and back.
_DAMPINGS = (0.3, 0.5, 0.7, 0.85)
_BIAS_DAMPING = 0.5


class LargeFit(NoiseFit):
    """A noise model whose parameters were learned from a part of the answers."""

    def fit_from_subset(
        self, known: NoiseFitted, max_iter: int, on_sweep: OnSweep | None = None
    ) -> NoiseFitted:
        """Take over what was learned on a part of these answers, and let all messages converge."""
        answers, data = self._data.answers, self._data
        messages = match_messages(answers, data.scale, self._engine, known.parameters)
        n_integrated = integrated_sweeps(typical_degree(answers))
        trace = self.settle_from(known.parameters, messages, n_integrated, max_iter, on_sweep)
        return self.fitted(FINAL_ACCURACY, trace, answers.value.size <= MOST_KEPT)

    def settle_from(
        self,
        parameters: NoiseParameters,
        messages: Messages,
        n_integrated: int,
        max_iter: int,
        on_sweep: OnSweep | None,
    ) -> Trace:
        """Let messages converge, from parameters learned on a part of the answers.

        For a few sweeps, learning from the messages to the workers continues. Moments are matched
        until estimates stop moving; this many sweeps of integrals then make the posterior.
        """
        n_sweeps = 0
        self._parameters, self._messages = parameters, messages

        def settle(damping: float) -> float:
            nonlocal n_sweeps
            is_learning = n_sweeps < _LEARNING
            if is_learning:
                # Shares are learned from messages that have gone all the way.
                damping = 0.0
            n_sweeps += 1
            bias = self._before_sweep(damping, is_learning)
            given = sweep_parameters(self._parameters, FINAL_ACCURACY)
            moved = self._messages.sweep(damping, parameters=given, bias=bias)[0]
            return np.inf if is_learning else moved

        trace = iterate_until(settle, _AT_REST, max_iter, "BI", on_sweep, _DAMPINGS)
        dampings = [0.0] * _LEARNING + [*trace.dampings[_LEARNING:]]
        trace = replace(trace, dampings=tuple(dampings[: trace.n_sweeps]))
        self._open_integrals(self._kept_levels())
        for _ in range(n_integrated):
            self._settle(FINAL_ACCURACY, 0.0)
        if on_sweep is not None:
            on_sweep("estimates", 1, np.inf, _AT_REST)
        return trace

    def _before_sweep(self, damping: float, is_learning: bool) -> WorkerBias | None:
        """Learn from the messages to the workers; return what is believed of their biases."""
        beliefs = self._beliefs()[0]
        if is_learning:
            self._learn_from_workers(beliefs, _SHARE_STEPS)
        if is_learning and self._on_grid:
            # What was learned counts in this sweep.
            self._messages.log_weights = self._parameters[Levels].log_weights
        return beliefs.bias(max(damping, _BIAS_DAMPING))
