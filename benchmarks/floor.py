"""How far a sweep is from what the machine allows: bytes moved, and exponentials taken.

    python -m benchmarks.floor [--quick]

Bandwidth and the rate of exponentials are measured, here and now, on one thread. A sweep cannot
be faster than the bytes it must move at that bandwidth, nor than the exponentials and logarithms
it must take at that rate. The kernels and their sweeps are those of ``benchmarks.sweep``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import voxpop as vp
from benchmarks.workloads import LEVELS, WORKLOADS, parse, print_head, print_table, timed
from voxpop.inference.engine import native_is_installed

# Bytes that no kernel can do without, per answer: messages (whole numbers of 8 bytes) read and
# written, the answer, the worker.
ANSWER_BYTES = 2 * 8 * len(LEVELS) + 8 * 2 + 4


def best_of(run: Callable[[], object], rounds: int) -> float:
    """Least CPU seconds of a run."""
    return min(timed(run).cpu for _ in range(rounds))


def bandwidths(megabytes: int, rounds: int) -> dict[str, float]:
    """Bytes per second when numpy reads, and when it copies, arrays far beyond the caches."""
    source = np.ones(megabytes * 10**6 // 8)
    target = np.zeros_like(source)
    return {
        "read (numpy sum)": source.nbytes / best_of(source.sum, rounds),
        "read and written (numpy copy)": 2
        * source.nbytes
        / best_of(lambda: np.copyto(target, source), rounds),
    }


def rates(rounds: int) -> dict[str, float]:
    """Numbers per second of exponentials and logarithms, so many that a call costs nothing."""
    x = np.random.default_rng(0).uniform(-30.0, 0.0, 50_000)
    positive, out = -x, np.empty_like(x)
    functions = {
        "exp (numpy)": lambda: np.exp(x, out),
        "log (numpy)": lambda: np.log(positive, out),
    }
    if native_is_installed():
        from voxpop import _native

        functions["exp (ours)"] = lambda: _native.exp(x, out)
        functions["exp2 (ours)"] = lambda: _native.exp2(x, out)
        functions["log (ours)"] = lambda: _native.log(positive, out)
    return {
        name: 20 * len(x) / best_of(lambda f=f: [f() for _ in range(20)], rounds)
        for name, f in functions.items()
    }


def against_the_floor(name: str, bandwidth: float, rate: dict[str, float], rounds: int) -> list:
    """Rows of one workload: each kernel against both floors."""
    from benchmarks import sweep

    w = WORKLOADS[name]
    model = vp.Model(support=LEVELS, dimension=2)
    crowd = sweep.draw(w.n_tasks, w.per_task, w.per_worker, model)
    engines = sweep.engines_of(crowd, model, 1)
    best = sweep.take_turns(crowd, engines, rounds, time.CLOCK_PROCESS_CPUTIME_ID)
    k, n_edges = len(LEVELS), w.n_tasks * w.per_task
    per_edge = k**w.per_task / w.per_task
    rows = []
    for engine, kept in (("native", False), ("native, factor kept", True)):
        n_bytes = ANSWER_BYTES + (8 * per_edge if kept else 0)
        n_exp = k + (0 if kept else per_edge)
        memory = n_edges * n_bytes / bandwidth
        # The factor is made of powers of two; messages of exponentials, and of logarithms.
        arithmetic = n_edges * (
            (0 if kept else per_edge) / rate["exp2 (ours)"]
            + k / rate["exp (ours)"]
            + k / rate["log (ours)"]
        )
        floor = max(memory, arithmetic)
        row = [f"{name} {engine}", 1e3 * best[engine], n_bytes, 1e3 * memory]
        rows.append([*row, n_exp, 1e3 * arithmetic, f"{floor / best[engine]:.0%}"])
    return rows


def main() -> None:
    """Print what the machine does, and what the sweeps make of it."""
    options = parse(__doc__)
    print_head("Floor")
    rounds = 3 if options.quick else 15
    bandwidth = bandwidths(80 if options.quick else 400, rounds)
    rate = rates(20 * rounds)
    rows = [[f"memory {name}", f"{b / 1e9:.1f} GB/s", None] for name, b in bandwidth.items()]
    rows += [[name, f"{r / 1e9:.2f} per ns", f"{1e9 / r:.2f} ns"] for name, r in rate.items()]
    print_table(["what", "rate", "each"], rows)
    if not native_is_installed():
        print("The compiled kernels were not built with this package: no sweep is set against it.")
        return
    read = bandwidth["read (numpy sum)"]
    rows = []
    for name in ("W1", "W2") if options.quick else ("W1", "W2", "W3", "W4"):
        rows += against_the_floor(name, read, rate, rounds)
    head = ["kernel", "ms per sweep", "bytes per answer", "memory floor, ms"]
    print_table([*head, "exps per answer", "exp, log floor, ms", "higher floor / measured"], rows)


if __name__ == "__main__":
    main()
