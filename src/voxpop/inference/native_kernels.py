"""The compiled kernels: the same as in numpy, several tasks per instruction, and threads.

A message does not depend on the number of threads, on the place of its task among the others, or on
whether its factor is kept, to the last bit.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from voxpop import _native
from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.cost_model import most_free
from voxpop.inference.kernel_set import (
    Edges,
    HostArrays,
    Integrals,
    Matching,
    Predictions,
    SweepState,
)
from voxpop.inference.kernels.integrate import Law
from voxpop.inference.kernels.posterior import Posterior
from voxpop.inference.numpy_kernels import NumpyKernels
from voxpop.models.model import Model

# Most answers of a task whose middle is found by comparing each with each.
_FEW_ANSWERS = 64
# Numbers that stay in the processor's cache between sweeps, and configurations from which the
# factor is most of a task's work.
_IN_CACHE, _MOSTLY_FACTOR = 2**20, 2000


@lru_cache(maxsize=16)
def _tables(
    levels: tuple[float, ...], degree: int, dimension: int, prior_precision: float
) -> _native.Tables:
    """Make the tables, which depend on the model and the degree only."""
    return _native.Tables(list(levels), degree, dimension, prior_precision)


class Enumeration:
    """Tasks whose levels are summed over jointly, all coordinates together."""

    def __init__(
        self, value: Floats, prior_mean: Floats, model: Model, room: int, machine: _native.Machine
    ) -> None:
        tables = _tables(tuple(model.support), *value.shape[1:], model.prior_precision)
        # Whole blocks of tasks are kept, one task per lane.
        lanes, n_configurations = machine.lanes, tables.n_configurations
        needed = -(-len(value) // lanes) * lanes * n_configurations
        # With eight lanes a factor is made as fast as it is read, unless it stays in the cache or
        # the task has little else to do; see benchmarks/sweep.py.
        pays = lanes < 8 or needed <= _IN_CACHE or n_configurations >= _MOSTLY_FACTOR
        self.kept = needed if pays and needed <= room else 0
        factor = _aligned(self.kept) if self.kept else None
        self._tasks = _native.Tasks(tables, value, prior_mean, machine, factor)
        self._dimension = value.shape[2]

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return self._tasks.enumerate(state, edges, new_sums)

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the mixture over configurations."""
        found, wanted = _room_for(edges, self._dimension, probabilities)
        self._tasks.posterior(False, state, edges, *wanted)
        return found


class PrunedEnumeration:
    """Tasks of which only configurations that can matter are summed over."""

    kept = 0

    def __init__(
        self,
        value: Floats,
        prior_mean: Floats,
        model: Model,
        accuracy: float,
        machine: _native.Machine,
    ) -> None:
        self._given = value, prior_mean, model, accuracy, machine
        tables = _tables(tuple(model.support), *value.shape[1:], model.prior_precision)
        free = most_free(len(model.support), value.shape[1])
        self._tasks = _native.Tasks(
            tables, value, prior_mean, machine, accuracy=accuracy, most_free=free
        )

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        return self._tasks.prune(state, edges, new_sums)

    def guess(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """As ``sweep``, but roughly and quickly."""
        return self._tasks.guess(state, edges, new_sums)

    def some(self, rows: NDArray[np.intp]) -> PrunedEnumeration:
        """Return the kernel of some of the rows."""
        value, prior_mean, model, accuracy, machine = self._given
        return PrunedEnumeration(value[rows], prior_mean[rows], model, accuracy, machine)

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the mixture over those configurations."""
        found, wanted = _room_for(edges, self._given[0].shape[2], probabilities)
        self._tasks.posterior(True, state, edges, *wanted)
        return found


class NativeKernels(HostArrays):
    """All kernels, compiled."""

    def __init__(self, threads: int = 1, instruction_set: str = "") -> None:
        self._machine = _native.Machine(threads, instruction_set)

    def centre(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values relative to an origin of their task, and the origins."""
        n, degree, dimension = value.shape
        if degree > _FEW_ANSWERS:
            return NumpyKernels().centre(value, unit)
        away, origin = np.empty(value.shape), np.empty((n, dimension))
        _native.centre(value, 1.0 / unit, away, origin, self._machine)
        return away, origin

    def enumeration(
        self, value: Floats, prior_mean: Floats, model: Model, room: int
    ) -> Enumeration:
        """Sum over all configurations of the levels."""
        return Enumeration(value, prior_mean, model, room, self._machine)

    def pruned_enumeration(
        self, value: Floats, prior_mean: Floats, model: Model, accuracy: float
    ) -> PrunedEnumeration:
        """Sum over configurations that can matter."""
        return PrunedEnumeration(value, prior_mean, model, accuracy, self._machine)

    def integrate_sweep(
        self, given: Integrals, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Integrate where there is mass."""
        evidence = np.empty(given.rows.log_class.shape)
        counts = _room_for_counts(given.law) if is_counted else None
        change = _native.integrate(*given, new_sums, evidence, counts, self._machine)
        return change, evidence, counts

    def integrate_posterior(
        self, given: Integrals, probabilities: Floats
    ) -> tuple[Posterior, Floats]:
        """Return the density on finer nodes."""
        found, wanted = _room_for(given.edges, 1, probabilities)
        classes = np.empty(given.rows.log_class.shape)
        _native.integrate_posterior(*given, *wanted, classes, self._machine)
        return found, classes

    def integrate_predict(self, given: Integrals, with_pit: bool = True) -> Predictions:
        """Predict each answer from the others."""
        out = np.full((6, *given.rows.value.shape), np.nan)
        _native.integrate_predict(*given, out, with_pit, self._machine)
        return Predictions(*out)

    def match_sweep(
        self, given: Matching, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Match moments, row by row."""
        evidence, counts = np.zeros(given.rows.log_class.shape), None
        if is_counted:
            counts = _room_for_counts(given.law)
        moved = _native.match(*given, new_sums, evidence, counts, self._machine)
        return float(moved), evidence, counts

    def match_predict(self, given: Matching, with_pit: bool = True) -> Predictions:
        """Predict each answer from the others."""
        out = np.full((6, len(given.rows.value), 1), np.nan)
        _native.match_predict(*given, out, with_pit, self._machine)
        return Predictions(*out)


def _room_for(
    edges: Edges, dimension: int, probabilities: Floats
) -> tuple[Posterior, tuple[Floats, Floats, Posterior]]:
    """Return a posterior to be filled, and the arguments of the kernels that fill it."""
    shape = len(edges.worker), dimension
    quantile = np.empty((*shape, len(probabilities)))
    room = Posterior(np.empty(shape), np.empty(shape), quantile)
    return room, (probabilities, ndtri(probabilities), room)


def _room_for_counts(law: Law) -> Floats:
    """Return room for all counts of learning."""
    mixing = law.grid.mixing
    return np.empty(mixing.size + len(mixing) + len(law.prior_variance) + 2)


def _aligned(n: int) -> Floats:
    """Return room for n numbers on a 64-byte boundary, as whole vectors want it."""
    memory = np.empty(n + 8)
    start = (-memory.ctypes.data % 64) // 8
    return memory[start : start + n]
