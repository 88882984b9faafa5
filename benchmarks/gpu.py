"""How fast one GPU is, beside one thread and beside all cores of its machine.

    python -m benchmarks.gpu [default] [bi] [integrate] [files] [--most N] [--default N] [--files N]

``default``: ``vp.Auto`` from arrays on the host, on the GPU and on all cores, a tenth of the
answers first: it compiles the kernels. ``bi``: BI with three levels given, five answers per task
and twenty per worker in two coordinates, on a random regular graph that is drawn on the GPU, until
no message changes by more than 1e-6; times with all data on the GPU. ``integrate``: one sweep of
integrals over tasks with a hundred answers each, under eight levels. ``files``: from a Parquet file
to those of a result by BI, and where the time goes. Without a name: all of them. A CPU's sweep is
the best of three. What is printed is also written to ``$OUT/gpu.txt``, if ``OUT`` is set.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import cupy as cp
import duckdb
import numpy as np

import voxpop as vp
from voxpop.inference.engine import gpu_is_there, native_is_installed
from voxpop.inference.gpu_arrays import GpuWorkers
from voxpop.inference.gpu_device import CupyDevice
from voxpop.inference.gpu_kernels import GpuKernels
from voxpop.inference.groups import fixed_point
from voxpop.inference.kernel_set import Edges, Integrals, KernelSet, RowInputs, SweepState
from voxpop.inference.kernels.integrate import Law, NoiseGrid
from voxpop.inference.numpy_kernels import NumpyKernels
from voxpop.models.model import Model

LEVELS = (10.0, 100.0, 1000.0)
DEGREE, PER_WORKER, DIMENSION, TOL = 5, 20, 2, 1e-6

# A random regular graph: answer e goes to worker perm(e) / PER_WORKER, with perm a permutation by a
# Feistel network; errors are hashed from the number of the answer. All truths are 0.
_DRAW = r"""
typedef long long i64;
__device__ unsigned hash(unsigned x) {
  x ^= x >> 16; x *= 0x7feb352dU; x ^= x >> 15; x *= 0x846ca68bU; x ^= x >> 16; return x;
}
__device__ double uniform(unsigned x) { return (hash(x) + 0.5) * 2.3283064365386963e-10; }
__device__ double gauss(unsigned x) {
  return sqrt(-2.0 * log(uniform(x * 2u + 1u))) * cospi(2.0 * uniform(x * 2u + 0x5bd1e995u));
}
__device__ unsigned network(unsigned x, unsigned half, unsigned mask) {
  unsigned left = x >> half, right = x & mask;
  for (int i = 0; i < 4; ++i) {
    const unsigned last = right;
    right = left ^ (hash(right + 0x9E3779B1u * (i + 1)) & mask), left = last;
  }
  return (left << half) | right;
}
extern "C" __global__ void draw(int* worker, double* value, i64 n, unsigned half, unsigned mask) {
  const i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (e >= n) return;
  unsigned place = (unsigned)e;
  do { place = network(place, half, mask); } while (place >= n);
  worker[e] = place / PER_WORKER;
  const double sd = pow(10.0, 0.5 * (1 + hash(worker[e] * 7u + 3u) % 3));
  for (int j = 0; j < DIMENSION; ++j)
    value[e * DIMENSION + j] = sd * gauss((unsigned)e * 2u + j);
}
"""


def say(text: str) -> None:
    """Print a line, and keep it."""
    print(text, flush=True)
    if "OUT" in os.environ:
        with (Path(os.environ["OUT"]) / "gpu.txt").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def draw(n: int) -> tuple[cp.ndarray, cp.ndarray]:
    """Draw workers (n / 5, 5) and errors of answers (n / 5, 5, 2) on the GPU."""
    defines = {"DEGREE": DEGREE, "PER_WORKER": PER_WORKER, "DIMENSION": DIMENSION}
    options = ("--std=c++17", *(f"-D{name}={value}" for name, value in defines.items()))
    bits = int(np.ceil(np.log2(n)))
    half = (bits + bits % 2) // 2
    worker, value = cp.empty((n // DEGREE, DEGREE), np.int32), cp.empty((n, DIMENSION))
    kernel = cp.RawModule(code=_DRAW, options=options).get_function("draw")
    sizes = np.int64(n), np.uint32(half), np.uint32((1 << half) - 1)
    kernel((-(-n // 256),), (256,), (worker, value, *sizes))
    return worker, value.reshape(n // DEGREE, DEGREE, DIMENSION)


def host_kernels() -> KernelSet:
    """The compiled kernels on one thread, or numpy's."""
    if not native_is_installed():
        say("the compiled kernels are not built here: numpy's stand for the CPU")
        return NumpyKernels()
    from voxpop.inference.native_kernels import NativeKernels

    return NativeKernels(1)


def seconds(call: Callable[[], object], times: int = 3) -> float:
    """Return the shortest of some times."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def bi(most: int) -> None:
    """Print a line per size."""
    kernels, model = GpuKernels(NumpyKernels(), CupyDevice()), Model(support=LEVELS, dimension=2)
    say("answers | layout s | sweeps | all s | ns an answer and sweep | GB | one CPU thread, ns")
    for n in (10**5, 10**6, 10**7, 10**8, 10**9):
        if n > most:
            break
        worker, value = draw(n)
        start = time.perf_counter()
        there = GpuWorkers(kernels.device, worker)
        del worker
        assert there.order is not None
        cp.cuda.Device().synchronize()
        layout = time.perf_counter() - start
        m, n_levels = -(-n // PER_WORKER), len(LEVELS)
        quantum, floor = fixed_point(PER_WORKER)
        weights = np.full(n_levels, -np.log(n_levels))
        task = kernels.enumeration(value, None, model, 0)
        edges = Edges(there, kernels.zeros((n // DEGREE, DEGREE, n_levels), np.int64))
        # The first call compiles; on flat messages, which are then made flat again.
        task.sweep(SweepState(kernels.zeros((m, n_levels), np.int64), weights, quantum, floor, 0.0),
                   edges, kernels.zeros((m, n_levels), np.int64))  # fmt: skip
        edges.message[...] = 0
        sums, took, change = kernels.zeros((m, n_levels), np.int64), [], np.inf
        begin = time.perf_counter()
        while change > TOL and len(took) < 50:
            start, new = time.perf_counter(), kernels.zeros((m, n_levels), np.int64)
            change = task.sweep(SweepState(sums, weights, quantum, floor, 0.0), edges, new)
            cp.cuda.Device().synchronize()
            sums = new
            took.append(time.perf_counter() - start)
        whole, used = time.perf_counter() - begin, cp.get_default_memory_pool().used_bytes()
        of_cpu = cpu_sweep(there, value, model) if 10**6 <= n <= 10**7 else np.nan
        each = np.median(took) / n * 1e9
        line = f"{n:.0e} | {layout:.2f} | {len(took)} | {whole:.3f} | {each:.3f}"
        say(f"{line} | {used / 1e9:.1f} | {of_cpu:.1f}")
        del there, value, task, edges, sums, new
        cp.get_default_memory_pool().free_all_blocks()


def cpu_sweep(worker: GpuWorkers, value: cp.ndarray, model: Model) -> float:
    """Nanoseconds an answer and sweep of one thread, on the same answers, after the first sweep."""
    kernels = host_kernels()
    on_host, here = cp.asnumpy(worker.there), cp.asnumpy(value)
    m, n_levels = int(on_host.max()) + 1, len(LEVELS)
    quantum, floor = fixed_point(PER_WORKER)
    weights = np.full(n_levels, -np.log(n_levels))
    task = kernels.enumeration(here, np.zeros((len(here), DIMENSION)), model, 32_000_000)
    edges = Edges(on_host, np.zeros((*on_host.shape, n_levels), np.int64))
    sums = np.zeros((m, n_levels), np.int64)

    def sweep() -> None:
        nonlocal sums
        new = np.zeros_like(sums)
        task.sweep(SweepState(sums, weights, quantum, floor, 0.0), edges, new)
        sums = new

    sweep()
    return seconds(sweep) / on_host.size * 1e9


def integrate(n: int = 20_000, degree: int = 100, n_levels: int = 8) -> None:
    """Print one sweep of integrals on the GPU beside one thread."""
    rng = np.random.default_rng(1)
    levels = np.geomspace(0.1, 100.0, n_levels)
    m = n * degree // 1000
    level = levels[rng.integers(n_levels, size=m)]
    worker = rng.integers(m, size=(n, degree)).astype(np.int32)
    value = np.sqrt(level[worker]) * rng.normal(size=(n, degree))
    law = Law(NoiseGrid.plain(levels), np.empty(0), np.empty(0), 1e-9, -1e6)
    weights = np.full(n_levels, -np.log(n_levels))
    quantum, floor = fixed_point(2000)

    def rate(kernels: KernelSet, rows: int) -> float:
        endless = np.full(rows, np.inf)
        known, log_class = np.full(rows, np.nan), np.zeros((rows, 1))
        arrays = value[:rows], np.zeros(rows), -endless, endless, known, log_class
        inputs = RowInputs(*(kernels.bring(array) for array in arrays))
        message = kernels.zeros((rows, degree, n_levels), np.int64)
        edges = Edges(kernels.bring(worker[:rows]), message)
        sums = kernels.zeros((m, n_levels), np.int64)

        def sweep() -> None:
            nonlocal sums
            new = kernels.zeros((m, n_levels), np.int64)
            state = SweepState(sums, weights, quantum, floor, 0.0)
            kernels.integrate_sweep(Integrals(law, inputs, state, edges), new, False)
            sums = new

        sweep()
        return seconds(sweep) / rows / degree * 1e9

    rates = rate(GpuKernels(NumpyKernels(), CupyDevice()), n), rate(host_kernels(), n // 100)
    say(f"integration, {degree} answers a task, {n_levels} levels: {rates[0]:.2f} ns an answer and "
        f"sweep on the GPU, {rates[1]:.0f} on one thread: {rates[1] / rates[0]:.0f} times",
    )  # fmt: skip


def drawn_answers(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw tasks, workers and values of answers in two coordinates, with truths from 0 to 100."""
    worker, value = (cp.asnumpy(array) for array in draw(n))
    truth = np.random.default_rng(1).uniform(0, 100, size=(n // DEGREE, 1, DIMENSION))
    value += truth
    # A random graph gives a few tasks to one worker twice.
    twice = np.zeros(worker.shape, dtype=bool)
    for i in range(DEGREE):
        for j in range(i):
            twice[:, i] |= worker[:, i] == worker[:, j]
    kept = ~twice.ravel()
    task = np.repeat(np.arange(n // DEGREE, dtype=np.int32), DEGREE)
    return task[kept], worker.ravel()[kept], value.reshape(n, DIMENSION)[kept]


def default(n: int) -> None:
    """Print the default method on the GPU beside all cores."""
    task, worker, value = drawn_answers(n)
    ids = np.arange(n // DEGREE), np.arange(worker.max() + 1)
    answers = vp.Answers.from_codes(
        task, ids[0], worker, ids[1], value, value_names=("x", "y")
    )  # fmt: skip
    cores = os.cpu_count() or 1

    def run(backend: str) -> tuple[float, np.ndarray]:
        stages: dict[str, float] = {}
        start = last = time.perf_counter()

        def note(what: str, *_: object) -> None:
            nonlocal last
            now = time.perf_counter()
            stages[what] = stages.get(what, 0.0) + now - last
            last = now

        profile = cProfile.Profile()
        with profile:
            found = vp.Auto(backend=backend, threads=cores).fit(answers, note).estimate
        note("the rest")
        parts = ", ".join(f"{what} {took:.1f}" for what, took in stages.items())
        whole = time.perf_counter() - start
        say(f"default, {n:.0e} answers, {backend}: {whole:.1f} s ({parts})")
        if "OUT" in os.environ:
            path = Path(os.environ["OUT"]) / f"default_{n:d}_{backend}.txt"
            with path.open("w", encoding="utf-8") as file:
                stats = pstats.Stats(profile, stream=file)
                stats.sort_stats("tottime").print_stats(40)
                stats.sort_stats("cumtime").print_stats(60)
        return whole, found

    (on_gpu, ours), (on_cpu, theirs) = (run(backend) for backend in ("gpu", "native"))
    say(f"the GPU is {on_cpu / on_gpu:.1f} times as fast as {cores} threads; the largest "
        f"difference of an estimate is {np.abs(ours - theirs).max():.2g}")  # fmt: skip


def files(n: int) -> None:
    """Print the seconds from a Parquet file to those of a result, step by step."""
    with TemporaryDirectory() as folder:
        task, worker, value = drawn_answers(n)
        table = {"task": task, "worker": worker, "x": value[:, 0].copy(), "y": value[:, 1].copy()}
        source = Path(folder) / "answers.parquet"
        with duckdb.connect() as connection:
            connection.register("drawn", table)
            connection.execute(f"COPY drawn TO '{source}' (FORMAT parquet)")
        del task, worker, value, table
        cp.get_default_memory_pool().free_all_blocks()
        steps, start = {}, time.perf_counter()
        answers = vp.read_answers(source)
        steps["read, number and sort"] = time.perf_counter() - start
        start = time.perf_counter()
        result = vp.BI(support=LEVELS, backend="gpu").fit(answers)
        steps["fit"] = time.perf_counter() - start
        start = time.perf_counter()
        result.save(Path(folder) / "result", format="parquet")
        steps["write"] = time.perf_counter() - start
        size = source.stat().st_size / 1e9
        parts = ", ".join(f"{name} {took:.1f}" for name, took in steps.items())
        say(
            f"file ({size:.1f} GB) to files, {n:.0e} answers: {sum(steps.values()):.1f} s ({parts})"
        )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["default", "bi", "integrate", "files"])
    parser.add_argument("--most", type=float, default=1e9, help="most answers of bi")
    parser.add_argument("--default", type=float, default=1e7, help="answers of the default")
    parser.add_argument("--files", type=float, default=1e8, help="answers from file to files")
    given = parser.parse_args()
    if not gpu_is_there():
        sys.exit("no GPU to measure")
    name = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    say(f"{name}, {os.cpu_count()} cores, CuPy {cp.__version__}")
    if "default" in given.what:
        default(int(given.default / 10))
        default(int(given.default))
    if "bi" in given.what:
        bi(int(given.most))
    if "integrate" in given.what:
        integrate()
    if "files" in given.what:
        files(int(given.files / 10))
        files(int(given.files))


if __name__ == "__main__":
    main()
