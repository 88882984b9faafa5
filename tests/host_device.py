"""The sources of the GPU kernels compiled for this machine: one thread a block, one lane a team.

What they compute is then checked where there is no GPU; how fast they are, and races, are not.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.inference.gpu_device import source_of

_SHIM = r"""
#include <cmath>
#include <cstring>
#define __device__
#define __host__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
using std::isfinite;
using std::isinf;
struct Place { unsigned x; };
extern "C" { Place blockIdx, threadIdx, blockDim{1}, gridDim; }
inline void __syncthreads() {}
inline void __syncwarp(unsigned) {}
template <class T> T __shfl_xor_sync(unsigned, T x, int, int) { return x; }
inline unsigned long long atomicAdd(unsigned long long* a, unsigned long long x) {
    const unsigned long long old = *a;
    *a += x;
    return old;
}
inline void atomicMax(unsigned long long* a, unsigned long long x) { if (x > *a) *a = x; }
inline long long __double_as_longlong(double x) { long long i; memcpy(&i, &x, 8); return i; }
inline double __longlong_as_double(long long i) { double x; memcpy(&x, &i, 8); return x; }
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

    block, n_threads, workspace, shapes = 1, 7, 2**24, False

    def lanes(self, n: int) -> int:
        del n
        return 1

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
        return _library(files, tuple(sorted(defines.items()))), name

    def launch(self, kernel: Any, n_threads: int, *args: Any) -> None:
        library, name = kernel
        place = {at: ctypes.c_uint.in_dll(library, at) for at in ("blockIdx", "gridDim")}
        place["gridDim"].value = n_threads
        given = [_argument(arg) for arg in args]
        for i in range(n_threads):
            place["blockIdx"].value = i
            getattr(library, name)(*given)


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
    flags = ["-O1", "-std=c++17", "-fPIC", "-shared", "-w", "-o", str(made)]
    subprocess.run([gpp, *flags, str(source)], check=True)
    return ctypes.CDLL(str(made))
