"""GPU device: arrays and compiled kernels on a GPU, by CuPy; kernels are compiled at run time."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.errors import require

# Threads of one block.
_BLOCK = 128
# Threads that are given work at once, for every multiprocessor.
_THREADS_EACH = 1024
# Share of the memory that the workspace of a kernel may take.
_WORKSPACE_SHARE = 0.1


class Device(Protocol):
    """What the kernels need from a GPU; it has its own type of arrays."""

    block: int
    """The number of threads in a launch is a multiple of this."""
    n_threads: int
    """Number of threads that keep it busy."""
    workspace: int
    """Maximum size of a kernel's workspace, in numbers."""
    shapes: bool
    """Whether kernels are compiled for the sizes of a model, and not for any."""

    def lanes(self, n: int) -> int:
        """How many threads share the work of a task with ``n`` answers."""

    def upload(self, array: NDArray[Any]) -> Any:
        """Bring an array there."""

    def download(self, array: Any) -> NDArray[Any]:
        """Bring an array back."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros there."""

    def empty(self, *shape: int) -> Any:
        """Return room for numbers there."""

    def argsort(self, array: Any) -> Any:
        """Return the positions that sort an array, flat, as uint32; equal ones in their order."""

    def compile(self, files: tuple[str, ...], name: str, **defines: int) -> Any:
        """Return a kernel of some sources."""

    def launch(self, kernel: Any, n_threads: int, *args: Any) -> None:
        """Run a kernel in at least this many threads."""


def source_of(files: tuple[str, ...]) -> str:
    """Join some of the sources."""
    folder = Path(__file__).parent / "cuda"
    return "\n".join((folder / f"{name}.cu").read_text(encoding="utf-8") for name in files)


class CupyDevice:
    """The current GPU."""

    block, shapes = _BLOCK, True

    def __init__(self) -> None:
        self._cp = _cupy()
        require(self._cp is not None, _MISSING)
        require(
            finds_gpu(),
            "backend 'gpu' found no GPU: CuPy is installed, but sees no CUDA device; check the "
            "driver with nvidia-smi, or use backend='auto'",
        )
        n_processors, memory = _facts(int(self._cp.cuda.Device().id))
        self.n_threads = n_processors * _THREADS_EACH
        self.workspace = int(_WORKSPACE_SHARE * memory) // 8

    def lanes(self, n: int) -> int:
        """How many threads share the work of a task with ``n`` answers."""
        return next((lanes for lanes in (4, 8, 16) if n <= lanes), 32)

    def upload(self, array: NDArray[Any]) -> Any:
        """Bring an array there."""
        return self._cp.asarray(np.ascontiguousarray(array))

    def download(self, array: Any) -> NDArray[Any]:
        """Bring an array back."""
        return np.asarray(self._cp.asnumpy(array))

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros there."""
        return self._cp.zeros(shape, dtype)

    def empty(self, *shape: int) -> Any:
        """Return room for numbers there."""
        return self._cp.empty(shape, np.float64)

    def argsort(self, array: Any) -> Any:
        """Return the positions that sort an array, flat, as uint32; equal ones in their order."""
        return self._cp.argsort(array.reshape(-1), kind="stable").astype(self._cp.uint32)

    def compile(self, files: tuple[str, ...], name: str, **defines: int) -> Any:
        """Return a kernel of some sources."""
        return _module(files, tuple(sorted(defines.items()))).get_function(name)

    def launch(self, kernel: Any, n_threads: int, *args: Any) -> None:
        """Run a kernel in at least this many threads."""
        # CuPy does not accept None: a null pointer is a number.
        given = tuple(np.uint64(0) if arg is None else arg for arg in args)
        kernel((-(-n_threads // _BLOCK),), (_BLOCK,), given)


_MISSING = (
    "backend 'gpu' needs CuPy: pip install 'voxpop[gpu]' (CUDA 12; for another version of CUDA "
    "install the cupy wheel that goes with it), or use backend='auto'"
)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        return None
    return cupy


@lru_cache(maxsize=1)
def finds_gpu() -> bool:
    """Return whether CuPy finds a GPU."""
    cupy = _cupy()
    if cupy is None:
        return False
    try:
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@lru_cache
def _facts(number: int) -> tuple[int, int]:
    """How many multiprocessors a GPU has, and its memory in bytes."""
    properties = _cupy().cuda.runtime.getDeviceProperties(number)
    return int(properties["multiProcessorCount"]), int(properties["totalGlobalMem"])


@lru_cache(maxsize=256)
def _module(files: tuple[str, ...], defines: tuple[tuple[str, int], ...]) -> Any:
    cupy = _cupy()
    options = ("--std=c++17", *(f"-D{name}={value}" for name, value in defines))
    return cupy.RawModule(code=source_of(files), options=options)
