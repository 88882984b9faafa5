"""The sources of the GPU kernels compiled for this machine: one team a block, a thread a lane.

What they compute is then checked where there is no GPU; how fast they are is not.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.inference.gpu_device import source_of

_SHIM = r"""
#include <cmath>
#include <cstring>
#include <pthread.h>
#define __device__
#define __host__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
using std::isfinite;
using std::isinf;
struct Place { unsigned x; };
thread_local Place blockIdx, threadIdx;
Place blockDim{LANES}, gridDim;
pthread_barrier_t meeting;
double shown[LANES];
extern "C" void begin_launch(unsigned n_blocks) {
    gridDim.x = n_blocks;
    pthread_barrier_init(&meeting, nullptr, LANES);
}
extern "C" void take_place(unsigned block, unsigned thread) {
    blockIdx.x = block, threadIdx.x = thread;
}
inline void __syncwarp(unsigned) { pthread_barrier_wait(&meeting); }
inline void __syncthreads() { pthread_barrier_wait(&meeting); }
inline double __shfl_xor_sync(unsigned, double x, int other, int) {
    shown[threadIdx.x] = x;
    __syncwarp(0);
    const double found = shown[threadIdx.x ^ other];
    __syncwarp(0);
    return found;
}
inline unsigned long long atomicAdd(unsigned long long* a, unsigned long long x) {
    return __atomic_fetch_add(a, x, __ATOMIC_RELAXED);
}
inline void atomicMax(unsigned long long* a, unsigned long long x) { if (x > *a) *a = x; }
inline long long __double_as_longlong(double x) { long long i; memcpy(&i, &x, 8); return i; }
inline double __longlong_as_double(long long i) { double x; memcpy(&x, &i, 8); return x; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
"""


def compiler() -> str | None:
    """Return a C++ compiler, if there is one."""
    return shutil.which("g++")


class HostArray:
    """An array that only kernels and the device may look into."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.inside = array
        self.shape, self.dtype = array.shape, array.dtype

    def __array__(self, *args: object, **kwargs: object) -> NDArray[Any]:
        raise AssertionError("an array on the device was used as one of the host")


class HostDevice:
    """This machine in the place of a GPU."""

    block, n_threads, workspace, shapes = 1, 14, 2**24, False

    def __init__(self, lanes: int = 1) -> None:
        self._lanes = lanes

    def lanes(self, n: int) -> int:
        del n
        return self._lanes

    def upload(self, array: NDArray[Any]) -> HostArray:
        return HostArray(np.array(array, order="C"))

    def download(self, array: HostArray) -> NDArray[Any]:
        return array.inside.copy()

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> HostArray:
        return HostArray(np.zeros(shape, dtype))

    def empty(self, *shape: int) -> HostArray:
        # What is read before it is written shows.
        return HostArray(np.full(shape, np.nan))

    def argsort(self, array: HostArray) -> HostArray:
        return HostArray(np.argsort(array.inside.reshape(-1), kind="stable").astype(np.uint32))

    def compile(self, files: tuple[str, ...], name: str, **defines: int) -> Any:
        return _library(files, tuple(sorted(defines.items()))), name, defines["LANES"]

    def launch(self, kernel: Any, n_threads: int, *args: Any) -> None:
        library, name, lanes = kernel
        given = [_argument(arg) for arg in args]
        n_blocks = -(-n_threads // lanes)
        library.begin_launch(n_blocks)

        def lane(number: int) -> None:
            for block in range(n_blocks):
                library.take_place(block, number)
                getattr(library, name)(*given)

        others = [Thread(target=lane, args=(number,)) for number in range(1, lanes)]
        for thread in others:
            thread.start()
        lane(0)
        for thread in others:
            thread.join()


def _argument(arg: Any) -> Any:
    if arg is None:
        return ctypes.c_void_p(None)
    if isinstance(arg, HostArray):
        return ctypes.c_void_p(arg.inside.ctypes.data)
    kinds = {np.int32: ctypes.c_int, np.int64: ctypes.c_longlong, np.float64: ctypes.c_double}
    return kinds[type(arg)](arg.item())


_FOLDER = tempfile.TemporaryDirectory(prefix="voxpop-kernels-")


@cache
def _library(files: tuple[str, ...], defines: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
    text = "".join(f"#define {name} {value}\n" for name, value in defines)
    text += _SHIM + source_of(files)
    made = Path(_FOLDER.name) / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"
    source = made.with_suffix(".cpp")
    source.write_text(text, encoding="utf-8")
    gpp = compiler()
    assert gpp is not None
    flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-w", "-pthread", "-o", str(made)]
    subprocess.run([gpp, *flags, str(source)], check=True)
    return ctypes.CDLL(str(made))
