"""Tasks alone with the messages of their workers: every edge has a worker of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from voxpop import Model
from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.cost_model import KernelName
from voxpop.inference.engine import native_is_installed
from voxpop.inference.kernel_set import (
    Edges,
    Integrals,
    KernelSet,
    RowInputs,
    SweepState,
    TaskKernel,
    WarmStartKernel,
)
from voxpop.inference.kernels.integrate import Law, NoiseGrid
from voxpop.inference.kernels.posterior import Posterior
from voxpop.inference.numpy_kernels import NumpyKernels

QUANTUM, FLOOR = 2.0**-36, -(2.0**20)

INSTRUCTION_SETS: list[str] = []
if native_is_installed():
    from voxpop import _native
    from voxpop.inference.native_kernels import NativeKernels

    INSTRUCTION_SETS += _native.instruction_sets()
SETS = ["portable", *INSTRUCTION_SETS]


def kernel_set(name: str, threads: int = 1) -> KernelSet:
    """Return numpy's kernels ("portable"), or those compiled for an instruction set."""
    return NumpyKernels() if name == "portable" else NativeKernels(threads, name)


def state_and_edges(incoming: Floats, floor: float = FLOOR) -> tuple[SweepState, Edges]:
    """Return the state and the edges with which the tasks (n, l, K) get ``incoming``."""
    n, degree, n_levels = incoming.shape
    worker = np.arange(n * degree, dtype=np.int32).reshape(n, degree)
    sums = np.rint(incoming / QUANTUM).astype(np.int64).reshape(-1, n_levels)
    state = SweepState(sums, np.zeros(n_levels), QUANTUM, floor, 0.0)
    return state, Edges(worker, np.zeros(incoming.shape, dtype=np.int64))


def outgoing(kernel: TaskKernel, incoming: Floats, guess: bool = False) -> Floats:
    """Return the messages that answer ``incoming``, in nats."""
    state, edges = state_and_edges(incoming)
    new_sums = np.zeros_like(state.sums)
    if guess:
        cast(WarmStartKernel, kernel).guess(state, edges, new_sums)
    else:
        kernel.sweep(state, edges, new_sums)
    np.testing.assert_array_equal(new_sums.reshape(edges.message.shape), edges.message)
    return np.asarray(edges.message * QUANTUM, dtype=np.float64)


def posterior_of(kernel: TaskKernel, incoming: Floats, probabilities: Floats) -> Posterior:
    """Return what is known of the truths of tasks that get ``incoming``."""
    return kernel.posterior(*state_and_edges(incoming), probabilities)


def plain_law(levels: Floats, prior_variance: float = np.inf, accuracy: float = 1e-9) -> Law:
    """The paper's noise, with a Gaussian prior of the truths or none."""
    prior = np.array([prior_variance] if np.isfinite(prior_variance) else [])
    return Law(NoiseGrid.plain(levels), prior, np.ones_like(prior), accuracy)


class Integration:
    """Tasks in one dimension integrated over under the paper's noise, as a kernel of their own."""

    kept = 0

    def __init__(
        self, kernels: KernelSet, value: Floats, prior_mean: Floats, model: Model, accuracy: float
    ) -> None:
        n, endless = len(value), np.full(len(value), np.inf)
        self._kernels = kernels
        self._law = plain_law(model.levels, model.prior_variance, accuracy)
        self._rows = RowInputs(
            value[:, :, 0],
            prior_mean[:, 0],
            -endless,
            endless,
            np.full(n, np.nan),
            np.zeros((n, 1)),
        )

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        # As messages are passed: the floor of the state is the law's lowest.
        law = replace(self._law, lowest=state.floor)
        given = Integrals(law, self._rows, state, edges)
        return self._kernels.integrate_sweep(given, new_sums, is_counted=False)[0]

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return what is known of the truths."""
        given = Integrals(self._law, self._rows, state, edges)
        return self._kernels.integrate_posterior(given, probabilities)[0]


def make_kernel(
    kernels: KernelSet,
    name: KernelName,
    value: Floats,
    model: Model,
    prior_mean: Floats | None = None,
    accuracy: float = 1e-9,
    room: int = 0,
) -> TaskKernel:
    """Return the kernel of that name for tasks (n, l, d)."""
    if prior_mean is None:
        prior_mean = np.zeros((len(value), value.shape[2]))
    if name == "enumerate":
        return kernels.enumeration(value, prior_mean, model, room)
    if name == "active":
        return kernels.pruned_enumeration(value, prior_mean, model, accuracy)
    return Integration(kernels, value, prior_mean, model, accuracy)
