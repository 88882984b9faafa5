"""Tasks alone with what their workers tell them: every edge has a worker of its own."""

from __future__ import annotations

from typing import cast

import numpy as np

from voxpop.arrays import Floats
from voxpop.inference.kernel_set import GuessingWay, Heard, Sweep, Way
from voxpop.inference.kernels.posterior import Posterior

QUANTUM, FLOOR = 2.0**-36, -(2.0**20)


def heard(incoming: Floats) -> Heard:
    """Return sums, workers and messages with which tasks (n, l, K) hear ``incoming``."""
    n, degree, n_levels = incoming.shape
    worker = np.arange(n * degree, dtype=np.int32).reshape(n, degree)
    sums = np.rint(incoming / QUANTUM).astype(np.int64).reshape(-1, n_levels)
    sweep = Sweep(sums, np.zeros(n_levels), QUANTUM, FLOOR, 0.0)
    return Heard(sweep, worker, np.zeros(incoming.shape, dtype=np.int64))


def said(way: Way, incoming: Floats, guess: bool = False) -> Floats:
    """Return what tasks say when they hear ``incoming``, in nats."""
    sweep, worker, message = heard(incoming)
    new_sums = np.zeros_like(sweep.sums)
    if guess:
        cast(GuessingWay, way).guess(sweep, worker, message, new_sums)
    else:
        way.sweep(sweep, worker, message, new_sums)
    np.testing.assert_array_equal(new_sums.reshape(message.shape), message)
    return np.asarray(message * QUANTUM, dtype=np.float64)


def known_of(way: Way, incoming: Floats, probabilities: Floats) -> Posterior:
    """Return what is known of the truths of tasks that hear ``incoming``."""
    return way.posterior(slice(0, len(incoming)), heard(incoming), probabilities)
