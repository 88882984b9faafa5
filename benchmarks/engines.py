"""Engines of one and the same sweep of belief propagation: ours, a textbook's, and PGMax.

Each is opened on a crowd whose tasks all have the same number of answers, starts from flat
messages, and can be asked for the workers' beliefs after any sweep.
"""

from __future__ import annotations

import itertools
from typing import Protocol

import numpy as np
from scipy.special import softmax

import voxpop as vp
from benchmarks.workloads import LEVELS
from voxpop.inference import engine
from voxpop.inference.cost_model import Inference
from voxpop.inference.kernel_set import belief

# Numbers in flight in one block of the textbook: 8 MB, which is what caches like.
BLOCK_NUMBERS = 1_000_000
# More than this is not asked of a machine, in bytes.
MOST_MEMORY = 12e9


class CannotRun(Exception):
    """Says in one line why an engine cannot do a workload."""


class Engine(Protocol):
    """Belief propagation from flat messages on."""

    sweeps_per_call: int
    tolerance: float
    """How far its beliefs may be from ours: its arithmetic is not always double precision."""

    def advance(self) -> None:
        """Do the next sweeps."""

    def belief(self) -> np.ndarray:
        """Return the probability of every worker's levels, (n_workers, n_levels)."""


class Ours:
    """A kernel set of voxpop."""

    sweeps_per_call = 1
    tolerance = 1e-8

    def __init__(
        self, answers: vp.Answers, backend: str, inference: Inference = "enumerate"
    ) -> None:
        model = vp.Model(support=LEVELS, dimension=answers.dimension)
        self._messages = engine.Engine(backend=backend, inference=inference).open(answers, model)

    def advance(self) -> None:
        """Let all tasks send their messages."""
        self._messages.sweep()

    def belief(self) -> np.ndarray:
        """Normalise the sums of what the workers heard."""
        return belief(self._messages.sums, self._messages.quantum, self._messages.log_weights)


class Textbook:
    """Log-space numpy: a table of all configurations, and logsumexp over those of the others.

    Nothing of voxpop is used, so that it also tells whether ours is right. ``keep`` computes the
    factors once; without it they are computed in every sweep, in little memory.
    """

    sweeps_per_call = 1
    tolerance = 1e-8

    def __init__(self, answers: vp.Answers, keep: bool) -> None:
        n, d = answers.n_tasks, answers.dimension
        self.value = answers.value.reshape(n, -1, d)
        self.worker = answers.worker.reshape(n, -1)
        self.n_workers = answers.n_workers
        degree, k = self.worker.shape[1], len(LEVELS)
        self.states = np.array(list(itertools.product(range(k), repeat=degree)))
        self.block = max(1, BLOCK_NUMBERS // len(self.states))
        self.log_factor = self.compute_factor(slice(0, n)) if keep else None
        self.message = np.zeros((n, degree, k))  # from tasks to workers
        self.total = np.zeros((self.n_workers, k))

    def compute_factor(self, rows: slice) -> np.ndarray:
        """Log-likelihood of the answers of some tasks under every configuration of levels."""
        value = self.value[rows] - self.value[rows].mean(axis=1, keepdims=True)
        d = value.shape[2]
        variance = np.array(LEVELS)[self.states]  # (configurations, l)
        precision = 1 / variance
        total = precision.sum(axis=1)
        mean = precision @ value / total[:, None]  # (tasks, configurations, d)
        square = (value**2).sum(axis=2) @ precision.T - total * (mean**2).sum(axis=2)
        return -0.5 * square - 0.5 * d * (np.log(total) + np.log(variance).sum(axis=1))

    def advance(self) -> None:
        """Pass all messages once, block by block."""
        n, degree, k = self.message.shape
        incoming = self.total[self.worker] - self.message
        for start in range(0, n, self.block):
            rows = slice(start, min(start + self.block, n))
            kept = self.log_factor
            factor = self.compute_factor(rows) if kept is None else kept[rows]
            belief = factor.reshape(-1, *(k,) * degree).copy()
            for u in range(degree):
                shape = (len(belief), *(1,) * u, k, *(1,) * (degree - u - 1))
                belief += incoming[rows, u].reshape(shape)
            for u in range(degree):
                others = tuple(1 + v for v in range(degree) if v != u)
                self.message[rows, u] = logsumexp(belief, others) - incoming[rows, u]
        self.message -= self.message.max(axis=2, keepdims=True)
        self.total[:] = 0
        np.add.at(self.total, self.worker, self.message)

    def belief(self) -> np.ndarray:
        """Normalise the sums of what the workers heard."""
        return softmax(self.total, axis=1)


def logsumexp(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Log of the sum of exponentials; scipy's own is slower."""
    top = x.max(axis=axes, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=axes)) + np.squeeze(top, axis=axes)


class PGMax:
    """PGMax: enumerated factors, compiled by JAX, in single precision as it does by default.

    One iteration per call, or ``sweeps_per_call`` inside its own scan, where it is at its best.
    """

    tolerance = 1e-3

    def __init__(self, answers: vp.Answers, sweeps_per_call: int) -> None:
        self.sweeps_per_call = sweeps_per_call
        textbook = Textbook(answers, keep=False)
        n, degree = textbook.worker.shape
        # It keeps two indices of 8 bytes for each variable of each configuration.
        needed = n * len(textbook.states) * degree * 16
        if needed > MOST_MEMORY:
            raise CannotRun(f"its indices alone would take {needed / 1e9:,.0f} GB (computed)")
        try:
            import jax
            import jax.extend.backend
            from pgmax import fgraph, fgroup, infer, vgroup
        except ImportError as error:
            raise CannotRun(f"not installed: {error}") from None
        if not hasattr(jax.lib, "xla_bridge"):  # gone from JAX, still asked for by PGMax 0.6.1
            jax.lib.xla_bridge = jax.extend.backend
        log_factor = textbook.compute_factor(slice(0, n))
        log_factor -= log_factor.max(axis=1, keepdims=True)
        workers = vgroup.NDVarArray(num_states=len(LEVELS), shape=(answers.n_workers,))
        graph = fgraph.FactorGraph(variable_groups=[workers])
        graph.add_factors(
            fgroup.EnumFactorGroup(
                variables_for_factors=[[workers[u] for u in row] for row in textbook.worker],
                factor_configs=textbook.states,
                log_potentials=log_factor,
            )
        )
        bp = infer.build_inferer(graph.bp_state, backend="bp")
        self._workers, self._bp, self._arrays = workers, bp, bp.init()
        self._run = jax.jit(
            lambda arrays: bp.run(arrays, num_iters=sweeps_per_call, damping=0.0, temperature=1.0)
        )

    def advance(self) -> None:
        """Call it, and wait for what it computes."""
        self._arrays = self._run(self._arrays)
        self._arrays.ftov_msgs.block_until_ready()

    def belief(self) -> np.ndarray:
        """Normalise its own beliefs."""
        found = self._bp.get_beliefs(self._arrays)[self._workers]
        return softmax(np.asarray(found, dtype=np.float64), axis=1)


def open_engine(name: str, answers: vp.Answers) -> Engine:
    """Open an engine by the name it has in the tables; refuse with a reason."""
    n_configurations = len(LEVELS) ** (answers.n_edges // answers.n_tasks)
    enumerates = not name.startswith("ours, ") or not name.endswith("apart")
    if enumerates and n_configurations > 2**22:
        raise CannotRun(f"{n_configurations:,} configurations per task")
    if name.startswith("ours, native") and not engine.native_is_installed():
        raise CannotRun("the compiled kernels were not built with this package")
    if name == "textbook, factors kept" and answers.n_tasks * n_configurations * 24 > MOST_MEMORY:
        raise CannotRun("the factors would not fit the memory")
    makers = {
        "ours, native": lambda: Ours(answers, "native"),
        "ours, portable": lambda: Ours(answers, "portable"),
        "ours, native, coordinates apart": lambda: Ours(answers, "native", "integrate"),
        "ours, portable, coordinates apart": lambda: Ours(answers, "portable", "integrate"),
        "textbook": lambda: Textbook(answers, keep=False),
        "textbook, factors kept": lambda: Textbook(answers, keep=True),
        "PGMax, a call per sweep": lambda: PGMax(answers, 1),
        "PGMax, its own scan": lambda: PGMax(answers, 5),
    }
    return makers[name]()
