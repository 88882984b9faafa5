"""Backends own the memory of a fit and run the kernels; estimators see three methods.

A sweep of belief propagation is: tasks speak (local to a task), what they said is summed per
worker, workers answer (local to an edge). Only the per-worker sums travel, so threads, a GPU or
a cluster fit behind this seam without touching an estimator.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from voxpop.arrays import Floats, WorkerSums
from voxpop.data.answers import Answers
from voxpop.errors import require
from voxpop.inference.cost_model import Inference
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import Ways
    from voxpop.inference.message_passing import Groups
    from voxpop.inference.mixture_kernels import MixtureKernels


class Backend(Protocol):
    """One data set and one model, ready to pass messages."""

    quantum: float
    """Size of one unit of the sums, in nats."""

    used: dict[str, int]
    """How many tasks each way of inference handles."""

    def to_workers(self, damping: float) -> tuple[WorkerSums, float]:
        """Let every task speak to its workers.

        Returns the sum of the log messages to each worker, (n_workers, n_levels) in units of
        ``quantum``, and the largest change of a message, as a probability.
        """

    def to_tasks(self, sums: WorkerSums, log_weights: Floats) -> None:
        """Let every worker answer: its belief, without what the task itself has told it."""

    def moments(self, probabilities: Floats) -> Posterior:
        """Return what is known of all truths."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """How messages are worked out: by which backend, in which way, how exactly, how parallel.

    ``backend`` "auto" is the best one installed; ``inference`` "auto" is what suits a task.
    """

    backend: str = "auto"
    inference: Inference = "auto"
    accuracy: float = 1e-9
    threads: int = 1

    def __post_init__(self) -> None:
        require(
            self.backend in ("auto", "native", "portable"),
            f"backend must be 'auto', 'native' or 'portable', got {self.backend!r}",
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
        require(self.threads >= 1, f"threads must be at least 1, got {self.threads}")

    def open(self, answers: Answers, model: Model) -> Groups:
        """Lay out answers and model for passing messages."""
        from voxpop.inference.message_passing import Groups

        return Groups(answers, model, self.inference, self.accuracy, self.ways())

    def ways(self) -> Ways:
        """Return the kernels of the plain noise model."""
        if not self._is_native:
            from voxpop.inference.portable import PortableWays

            return PortableWays()
        from voxpop.inference.compiled import NativeWays

        return NativeWays(self.threads)

    def mixtures(self) -> MixtureKernels:
        """Return the kernels of a rich noise model."""
        from voxpop.inference.mixture_kernels import NativeMixture, PortableMixture

        return NativeMixture(self.threads) if self._is_native else PortableMixture()

    @property
    def _is_native(self) -> bool:
        return self.backend != "portable" and native_is_installed()


def native_is_installed() -> bool:
    """Tell whether the compiled kernels were built with this package."""
    return find_spec("voxpop._native") is not None


def backend_in_use() -> str:
    """Name the backend that ``auto`` stands for on this machine, and its instruction set."""
    if not native_is_installed():
        return "portable"
    from voxpop._native import instruction_sets

    return f"native ({instruction_sets()[0]})"
