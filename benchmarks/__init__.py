"""Benchmarks of voxpop: each file is one question, one command, and prints one section.

    python -m benchmarks.NAME [--quick]      one of them
    python -m benchmarks [--quick]           all of them

One thread for everybody is set here, because it must be before numpy or JAX is imported.
"""

import os

os.environ |= {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
}
