"""Beliefs: the sums of the messages to the workers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from voxpop.arrays import Floats
from voxpop.data.exact import order_free_sum
from voxpop.inference.groups import WorkerBias
from voxpop.inference.message_passing import MessagePassing
from voxpop.inference.moment_matching import MomentMatching
from voxpop.models.noise.levels import Levels

Messages = MessagePassing | MomentMatching
"""Messages to the workers, by integrals and enumeration or with moments matched."""

_NOTHING = np.empty((0, 0))
# Log odds against a level that no message about a single answer can outweigh.
_IMPOSSIBLE = -1e12


class WorkerBeliefs(NamedTuple):
    """Beliefs about the workers' biases: mean and precision (m, d); empty where there are none.

    ``said_precision`` and ``said_pull`` (m, d) are the sums of the messages about them, precision
    and precision times mean; ``relative`` (m,) is each worker's expected log level, less the
    average.
    """

    bias_mean: Floats = _NOTHING
    bias_precision: Floats = _NOTHING
    said_precision: Floats = _NOTHING
    said_pull: Floats = _NOTHING
    relative: Floats = _NOTHING

    def bias(self, damping: float) -> WorkerBias | None:
        """The biases as tasks use them, and the damping of the messages of tasks."""
        if not self.bias_mean.size:
            return None
        return WorkerBias(self.bias_mean, self.bias_precision, damping)


def log_levels(messages: Messages) -> Floats:
    """Log beliefs about the workers' levels (m, K), up to a constant."""
    # In place: of a large crowd, this is a large table.
    found = np.multiply(messages.sums, messages.quantum)
    found += messages.log_weights
    return found


def common_likelihood(messages: Messages) -> Floats:
    """Log likelihood of all answers under each level."""
    return np.asarray(messages.sums.sum(axis=0) * messages.quantum)


def certain_level(likelihood: Floats) -> Floats:
    """Log weights (K,) that take the most likely level as certain, after the first messages.

    A belief would differ from answer to answer, by what the answer itself says of it; and one
    answer to a task of great size can say more than all others together.
    """
    certain = np.zeros_like(likelihood)
    if likelihood.any():
        certain[:] = _IMPOSSIBLE
        certain[np.argmax(likelihood)] = 0.0
    return certain


def relative_level(levels: Levels, log_level: Floats) -> Floats:
    """Each worker's expected log level, less the average, from log beliefs (m, K)."""
    # Not a matrix product, which rounds by the place of a worker among the others.
    return less_average((softmax(log_level) * np.log(levels.variance)).sum(axis=1))


def less_average(per_worker: Floats) -> Floats:
    """Subtract the average."""
    return np.asarray(per_worker - order_free_sum(per_worker, axis=0) / len(per_worker))


def softmax(log_weight: Floats) -> Floats:
    """Weights (m, K) that add up to one, from their logarithms up to a constant."""
    # Level by level: numpy is slow along short axes. In place: large crowds make large tables.
    weight = np.array(log_weight.T, order="C")
    weight -= weight.max(axis=0)
    np.exp(weight, out=weight)
    weight /= weight.sum(axis=0)
    return np.ascontiguousarray(weight.T)
