"""Engine: how messages are computed, by which kernel set, how exactly, how parallel."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from voxpop.data.answers import Answers
from voxpop.errors import require
from voxpop.inference.cost_model import GPU_PAYS_FROM, Inference
from voxpop.models.model import Model

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import KernelSet
    from voxpop.inference.kernels.integrate import NoiseGrid
    from voxpop.inference.message_passing import MessagePassing
    from voxpop.inference.moment_matching import MomentMatching
    from voxpop.inference.schedule import Whole


# More threads than this are a typing error.
_MOST_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How messages are computed: by which kernel set, in which way, how exactly, how parallel.

    ``backend`` "auto" is a GPU where there is one and the answers are many, else the best set
    installed; ``inference`` "auto" is the cheapest kernel for each task; ``threads`` None is one
    for each core that this process may use.
    """

    backend: str = "auto"
    inference: Inference = "auto"
    accuracy: float = 1e-9
    threads: int | None = None

    def __post_init__(self) -> None:
        require(
            self.backend in ("auto", "native", "portable", "gpu"),
            f"backend must be 'auto', 'native', 'portable' or 'gpu', got {self.backend!r}",
        )
        require(
            self.backend != "native" or native_is_installed(),
            "backend 'native' is not installed: the compiled kernels were not built with this "
            "package; use backend='auto', or install it again where a C++ compiler is found",
        )
        require(
            self.inference in ("auto", "enumerate", "active", "integrate"),
            "inference must be 'auto', 'enumerate', 'active' or 'integrate', "
            f"got {self.inference!r}",
        )
        require(
            1e-14 <= self.accuracy <= 1e-2,
            f"accuracy must be between 1e-14 and 0.01, got {self.accuracy}",
        )
        require(
            self.threads is None or 1 <= self.threads <= _MOST_THREADS,
            f"threads must be from 1 to {_MOST_THREADS}, got {self.threads}",
        )

    def open(
        self,
        answers: Answers,
        model: Model,
        per_worker: float | None = None,
        whole: Whole | None = None,
        grid: NoiseGrid | None = None,
    ) -> MessagePassing:
        """Lay out answers and the paper's model for passing messages.

        ``per_worker`` and ``whole`` go with a part of a larger set of answers, as in
        :class:`MessagePassing`. With a ``grid`` the noise at each level is a mixture.
        """
        from voxpop.inference.groups import model_in_units, noise_unit
        from voxpop.inference.kernels.integrate import NoiseGrid
        from voxpop.inference.message_passing import MessagePassing

        unit = noise_unit(model)
        return MessagePassing(
            answers,
            model_in_units(model, unit),
            np.full(answers.dimension, unit),
            self.inference,
            self.accuracy,
            self.kernels(answers),
            per_worker=per_worker,
            whole=whole,
            grid=None if grid is None else NoiseGrid(grid.variance / unit**2, grid.mixing),
        )

    def match(self, answers: Answers, model: Model) -> MomentMatching:
        """Lay out answers and the paper's model for matching moments."""
        from voxpop.inference.groups import model_in_units, noise_unit
        from voxpop.inference.moment_matching import MomentMatching

        unit = noise_unit(model)
        units = np.full(answers.dimension, unit)
        kernels = self.kernels(answers)
        return MomentMatching(answers, model_in_units(model, unit), units, kernels)

    def kernels(self, answers: Answers) -> KernelSet:
        """Return the kernel set for some answers."""
        is_large = answers.value.size >= GPU_PAYS_FROM
        if self.backend == "gpu" or (self.backend == "auto" and is_large and gpu_is_there()):
            from voxpop.inference.gpu_kernels import GpuKernels

            return GpuKernels(self._host_kernels())
        return self._host_kernels()

    def on_host(self) -> Engine:
        """Return the same engine, but "auto" never stands for a GPU."""
        return replace(self, backend=host_backend()) if self.backend == "auto" else self

    def _host_kernels(self) -> KernelSet:
        if self.backend == "portable" or not native_is_installed():
            from voxpop.inference.numpy_kernels import NumpyKernels

            return NumpyKernels()
        from voxpop.inference.native_kernels import NativeKernels

        return NativeKernels(self.threads or _cores())


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpu_is_there() -> bool:
    """Return whether CuPy is installed and finds a GPU."""
    if find_spec("cupy") is None:
        return False
    from voxpop.inference.gpu_device import finds_gpu

    return finds_gpu()


def host_backend() -> str:
    """Name the best kernel set that runs on the processor."""
    return "native" if native_is_installed() else "portable"


def native_is_installed() -> bool:
    """Return whether the compiled kernels were built with this package."""
    return find_spec("voxpop._native") is not None


def backend_in_use() -> str:
    """Name the kernel sets that ``auto`` stands for on this machine, and the instruction set."""
    gpu = f"gpu from {GPU_PAYS_FROM:,} numbers on, else " if gpu_is_there() else ""
    if not native_is_installed():
        return f"{gpu}portable"
    from voxpop._native import instruction_sets

    return f"{gpu}native ({instruction_sets()[0]})"
