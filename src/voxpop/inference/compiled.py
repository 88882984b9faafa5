"""The native backend: the same sweeps compiled, several tasks per instruction, and threads.

What a task says does not depend on the number of threads, on its place among the others, or on
whether its factor is kept, to the last bit.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from voxpop import _native
from voxpop.arrays import Floats, WorkerSums
from voxpop.inference import portable as in_numpy
from voxpop.inference.cost_model import most_free
from voxpop.inference.kernel_set import Heard, Sweep, Way, Workers
from voxpop.inference.kernels.integrate import QUANTILE_REFINEMENT
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# Numbers per coordinate that a block of posteriors takes in numpy.
_PER_COORDINATE = 64
# Most answers of a task whose middle is found by comparing each with each.
_FEW_ANSWERS = 64
# Numbers that stay in the processor's cache between sweeps, and configurations from which the
# factor is most of a task's work.
_IN_CACHE, _MOSTLY_FACTOR = 2**20, 2000


@lru_cache(maxsize=16)
def _tables(
    levels: tuple[float, ...], degree: int, dimension: int, prior_precision: float
) -> _native.Tables:
    """Tables depend on the model and the degree only."""
    return _native.Tables(list(levels), degree, dimension, prior_precision)


class Enumeration:
    """Tasks whose levels are summed over jointly, all coordinates together."""

    name = "enumerate"

    def __init__(
        self,
        value: Floats,
        prior_mean: Floats,
        model: Model,
        room: int,
        threads: int = 1,
        instruction_set: str = "",
    ) -> None:
        self._value, self._prior_mean = map(np.ascontiguousarray, (value, prior_mean))
        self._threads, self._instruction_set = threads, instruction_set
        self._tables = _tables(
            tuple(model.support), value.shape[1], value.shape[2], model.prior_precision
        )
        self.numbers_per_task = _PER_COORDINATE * value.shape[2]
        # Whole blocks of tasks are kept, one task per lane.
        lanes = _native.lanes(instruction_set)
        padded = -(-len(value) // lanes) * lanes
        needed = padded * self._tables.n_configurations
        # With eight lanes a factor is made as fast as it is read, unless it stays in the cache or
        # the task has little else to do; see benchmarks/sweep.py.
        pays = lanes < 8 or needed <= _IN_CACHE or self._tables.n_configurations >= _MOSTLY_FACTOR
        self.kept = needed if pays and needed <= room else 0
        self._factor: Floats | None = None

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        first = self.kept > 0 and self._factor is None
        if first:
            self._factor = _aligned(self.kept)
        return _native.enumerate_sweep(
            self._tables,
            self._value,
            self._prior_mean,
            _state(sweep),
            worker,
            message,
            new_sums,
            self._factor,
            first,
            self._threads,
            self._instruction_set,
        )

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return the mixture over configurations."""
        found, wanted = _room_for(len(heard.worker), self._value.shape[2], probabilities)
        _native.enumerate_posterior(
            self._tables,
            self._value[rows],
            self._prior_mean[rows],
            _state(heard.sweep),
            heard.worker,
            heard.message,
            wanted,
            self._threads,
            self._instruction_set,
        )
        return found


class Active:
    """Tasks of which only those configurations are summed over that can matter."""

    name = "active"
    kept = 0

    def __init__(
        self,
        value: Floats,
        prior_mean: Floats,
        model: Model,
        accuracy: float,
        threads: int = 1,
        instruction_set: str = "",
    ) -> None:
        self._value, self._prior_mean = map(np.ascontiguousarray, (value, prior_mean))
        self._threads, self._instruction_set = threads, instruction_set
        degree, dimension = value.shape[1:]
        tables = _tables(tuple(model.support), degree, dimension, model.prior_precision)
        self._model, self._law = model, (tables, model.levels)
        self._prior_precision, self._accuracy = model.prior_precision, accuracy
        self._most_free = most_free(len(model.support), degree)
        self.numbers_per_task = _PER_COORDINATE * dimension

    def _speak(
        self,
        guess: bool,
        sweep: Sweep,
        worker: Workers,
        message: WorkerSums,
        new_sums: WorkerSums,
    ) -> float:
        return _native.active_sweep(
            *self._law,
            self._value,
            self._prior_mean,
            self._prior_precision,
            self._accuracy,
            self._most_free,
            guess,
            _state(sweep),
            worker,
            message,
            new_sums,
            self._threads,
            self._instruction_set,
        )

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return self._speak(False, sweep, worker, message, new_sums)

    def guess(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Do as ``sweep`` does, roughly and quickly."""
        return self._speak(True, sweep, worker, message, new_sums)

    def some(self, rows: NDArray[np.intp]) -> Active:
        """Return the way of some of the rows."""
        return Active(
            self._value[rows],
            self._prior_mean[rows],
            self._model,
            self._accuracy,
            self._threads,
            self._instruction_set,
        )

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return the mixture over those configurations."""
        found, wanted = _room_for(len(heard.worker), self._value.shape[2], probabilities)
        _native.active_posterior(
            *self._law,
            self._value[rows],
            self._prior_mean[rows],
            self._prior_precision,
            self._accuracy,
            self._most_free,
            _state(heard.sweep),
            heard.worker,
            heard.message,
            wanted,
            self._threads,
            self._instruction_set,
        )
        return found


class Integration:
    """One-dimensional tasks whose truth is integrated over."""

    name = "integrate"
    kept = 0

    def __init__(
        self,
        value: Floats,
        prior_mean: Floats,
        model: Model,
        accuracy: float,
        threads: int = 1,
        instruction_set: str = "",
    ) -> None:
        self._value = np.ascontiguousarray(value[:, :, 0])
        self._prior_mean = np.ascontiguousarray(prior_mean[:, 0])
        self._levels, self._prior_variance = model.levels, model.prior_variance
        self._accuracy, self._threads = accuracy, threads
        self._instruction_set = instruction_set
        self.numbers_per_task = _PER_COORDINATE * value.shape[2]

    def sweep(
        self, sweep: Sweep, worker: Workers, message: WorkerSums, new_sums: WorkerSums
    ) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return _native.integrate_sweep(
            self._value,
            self._prior_mean,
            self._prior_variance,
            self._levels,
            self._accuracy,
            _state(sweep),
            worker,
            message,
            new_sums,
            self._threads,
            self._instruction_set,
        )

    def posterior(self, rows: slice, heard: Heard, probabilities: Floats) -> Posterior:
        """Return the density on finer nodes."""
        found, wanted = _room_for(len(heard.worker), 1, probabilities)
        _native.integrate_posterior(
            self._value[rows],
            self._prior_mean[rows],
            self._prior_variance,
            self._levels,
            self._accuracy,
            QUANTILE_REFINEMENT,
            _state(heard.sweep),
            heard.worker,
            heard.message,
            wanted,
            self._threads,
            self._instruction_set,
        )
        return found


class NativeWays:
    """The ways of this backend; gold tasks say the same in every sweep and stay in numpy."""

    def __init__(self, threads: int = 1, instruction_set: str = "") -> None:
        self._threads, self._instruction_set = threads, instruction_set

    def centred(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values less an origin of their task, and the origins."""
        n, degree, dimension = value.shape
        if degree > _FEW_ANSWERS:
            return in_numpy.PortableWays().centred(value, unit)
        away, origin = np.empty(value.shape), np.empty((n, dimension))
        value = np.ascontiguousarray(value)
        _native.centre(value, 1.0 / unit, away, origin, self._threads, self._instruction_set)
        return away, origin

    def gold(self, value: Floats, gold: Floats, model: Model) -> Way:
        """Take tasks whose truth is known."""
        return in_numpy.Gold(value, gold, model)

    def enumeration(self, value: Floats, prior_mean: Floats, model: Model, room: int) -> Way:
        """Sum over all configurations of the levels."""
        return Enumeration(value, prior_mean, model, room, self._threads, self._instruction_set)

    def active(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> Way:
        """Sum over those configurations that can matter."""
        return Active(value, prior_mean, model, accuracy, self._threads, self._instruction_set)

    def integration(self, value: Floats, prior_mean: Floats, model: Model, accuracy: float) -> Way:
        """Integrate over the truth, in one dimension."""
        return Integration(value, prior_mean, model, accuracy, self._threads, self._instruction_set)


def _state(sweep: Sweep) -> _native.SweepState:
    return _native.SweepState(
        sweep.sums, sweep.log_weights, sweep.quantum, sweep.floor, sweep.damping
    )


def _room_for(n: int, dimension: int, probabilities: Floats) -> tuple[Posterior, _native.Wanted]:
    """Return arrays for a posterior, to be filled, and the same as the kernels want them."""
    room = np.empty((n, dimension)), np.empty((n, dimension))
    quantile = np.empty((n, dimension, len(probabilities)))
    wanted = _native.Wanted(probabilities, ndtri(probabilities), *room, quantile)
    return Posterior(*room, quantile), wanted


def _aligned(n: int) -> Floats:
    """Return room for n numbers on a 64-byte boundary, as whole vectors want it."""
    memory = np.empty(n + 8)
    start = (-memory.ctypes.data % 64) // 8
    return memory[start : start + n]
