"""Beliefs: what the messages to the workers add up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.exact import order_free_sum
from voxpop.inference.groups import WorkerBias
from voxpop.inference.message_passing import MessagePassing
from voxpop.inference.moment_matching import MomentMatching
from voxpop.models.noise import NoiseParameters
from voxpop.models.noise.bias import Bias
from voxpop.models.noise.levels import Levels

Messages = MessagePassing | MomentMatching
"""Messages to the workers, by integrals and enumeration or with moments matched."""

# Log odds against a level that no message about a single answer can outweigh.
_IMPOSSIBLE = -1e12


@dataclass(frozen=True, eq=False)
class WorkerBeliefs:
    """What is believed of the workers: log levels (m, K), mean and precision of the bias (m, d).

    Without bias the last two are empty.
    """

    log_level: Floats
    bias_mean: Floats
    bias_precision: Floats

    def bias(self, damping: float) -> WorkerBias | None:
        """The biases as tasks hear of them, and the damping of what tasks answer."""
        if not self.bias_mean.size:
            return None
        return WorkerBias(self.bias_mean, self.bias_precision, damping)


def bias_sums(messages: Messages, parameters: NoiseParameters) -> tuple[Floats, Floats]:
    """Precision, and precision times mean, of all messages about each bias; empty without."""
    none = np.empty((len(messages.sums), 0))
    return messages.bias_sums() if parameters[Bias].is_on else (none, none)


def common_likelihood(messages: Messages) -> Floats:
    """Log likelihood of all answers under each level."""
    return np.asarray(messages.sums.sum(axis=0) * messages.quantum)


def certain_level(likelihood: Floats) -> Floats:
    """Log weights (K,) that hold the likeliest level for certain, after the first messages.

    A belief would differ from answer to answer, by what the answer itself says of it; and one
    answer to a task of great size can say more than all others together.
    """
    certain = np.zeros_like(likelihood)
    if likelihood.any():
        certain[:] = _IMPOSSIBLE
        certain[np.argmax(likelihood)] = 0.0
    return certain


def relative_level(levels: Levels, posterior: Floats) -> Floats:
    """Each worker's expected log level, less the average."""
    # Not a matrix product, which rounds by the place of a worker among the others.
    log_level = (posterior * np.log(levels.variance)).sum(axis=1)
    return np.asarray(log_level - order_free_sum(log_level, axis=0) / len(log_level))
