"""Fits of large crowds: parameters from a part of the answers, messages and estimates of all."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.initialise import kept_levels
from voxpop.estimators.bi.noise_fit import (
    NoiseFit,
    integrated_sweeps,
    match_messages,
    sweep_parameters,
)
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.estimators.iterate import iterate_until
from voxpop.estimators.plug_in import MOST_KEPT

# What integrals are asked for: a large crowd needs no more digits than this.
_ACCURACY = 1e-5
# Sweeps in which shares of levels are learned on, and steps of EM in each.
_LEARNING, _SHARE_STEPS = 5, 5
# Estimates are at rest when a sweep moves them by this many of their sds, root mean square.
_AT_REST = 2e-3
_BIAS_DAMPING = 0.5


class LargeFit(NoiseFit):
    """A noise model whose parameters a part of the answers has taught."""

    def fit_from_subset(
        self, known: NoiseFitted, max_iter: int, on_sweep: OnSweep | None = None
    ) -> NoiseFitted:
        """Take over what was learned on a part of these answers, and let all messages settle.

        For a few sweeps, what messages to the workers tell is learned on. Moments are matched
        until estimates rest; integrals then make the posterior.
        """
        answers, n_sweeps = self._data.answers, 0
        self._parameters = known.parameters
        self._messages = match_messages(self._data, self._engine, known.parameters)

        def settle(damping: float) -> float:
            nonlocal n_sweeps
            beliefs = self._beliefs()[0]
            if n_sweeps < _LEARNING:
                self._learn_from_workers(beliefs, _SHARE_STEPS)
            n_sweeps += 1
            given = sweep_parameters(self._parameters, _ACCURACY)
            bias = beliefs.bias(max(damping, _BIAS_DAMPING))
            moved = self._messages.sweep(damping, parameters=given, bias=bias)[0]
            return moved if n_sweeps > _LEARNING else np.inf

        trace = iterate_until(settle, _AT_REST, max_iter, "BI", on_sweep)
        posterior = softmax(self._beliefs()[0].log_level, axis=1)
        self._open_integrals(kept_levels(self._parameters, posterior, self._common))
        for _ in range(integrated_sweeps(answers)):
            self._settle(_ACCURACY, 0.0)
        if on_sweep is not None:
            on_sweep("estimates", 1, np.inf, _AT_REST)
        return self.fitted(_ACCURACY, trace, answers.value.size <= MOST_KEPT)
