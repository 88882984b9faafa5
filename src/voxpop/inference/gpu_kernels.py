"""The kernels on a GPU: one thread or one team of threads a task, in double precision.

Values, workers and messages stay on the GPU between sweeps. A message does not depend on how many
threads there are, and sums of messages are of whole numbers: the same bits come out on every run.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri

from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.gpu_device import CupyDevice, Device
from voxpop.inference.gpu_match import GpuMatching
from voxpop.inference.kernel_set import Edges, Integrals, KernelSet, Predictions, SweepState
from voxpop.inference.kernels import enumerate as enumeration
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model

# Nodes of a row for which there is room at first, and by what factor the room grows for rows that
# need more; and by what factor for the posterior, which has finer nodes.
_ROOM, _MORE_ROOM, _FINER = 512, 8, 3
# Sizes of the mixing for which kernels are compiled; larger ones run on kernels for any size.
_MOST_SHAPED = 16
# 2^100 times what underflows is still far below the 1e-200 from which the kernel trusts a sum.
_LARGEST_OFFSET = 100.0 * np.log(2.0)


class Enumeration:
    """Tasks whose levels are summed over jointly, all coordinates together; one thread a task."""

    kept = 0

    def __init__(self, kernels: GpuKernels, value: Any, prior_mean: Any, model: Model) -> None:
        self._kernels, self._device = kernels, kernels.device
        self._n, degree, self._dimension = value.shape
        self._value = kernels.there(value)
        self._prior_mean = kernels.there(prior_mean) if model.prior_precision > 0 else None
        levels = tuple(model.support)
        table, last, self._widest = _tables(levels, degree, self._dimension, model.prior_precision)
        self._table, self._last = kernels.there(table), kernels.there(last)
        self._shape = {"DEGREE": degree, "LEVELS": len(levels), "DIMENSION": self._dimension}

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Replace all messages, add them to the sums, return the largest change."""
        device, change = self._device, self._device.zeros((1,), np.float64)
        kernel = device.compile(
            ("messages", "enumerate"), "enumerate_sweep", LANES=1, **self._shape
        )
        device.launch(
            kernel, self._n, self._value, self._prior_mean, self._table, np.int64(self._widest),
            np.int64(self._n), *self._kernels.incoming(state, edges), change,
        )  # fmt: skip
        self._kernels.add_messages(new_sums, edges)
        return float(device.download(change)[0])

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the mixture over configurations."""
        device, kernels = self._device, self._kernels
        n, d, q = self._n, self._dimension, len(probabilities)
        shape = (n, d), (n, d), (n, d, q)
        found = [device.empty(*size) for size in shape]
        n_configurations = self._shape["LEVELS"] ** self._shape["DEGREE"]
        lanes, size = device.lanes(n_configurations), n_configurations * (2 + d)
        n_teams = kernels.n_teams(n, lanes, size)
        kernel = device.compile(
            ("messages", "enumerate", "posterior"), "enumerate_posterior",
            LANES=lanes, **self._shape,
        )  # fmt: skip
        device.launch(
            kernel, n_teams * lanes, self._value, self._prior_mean, self._table, self._last,
            np.int64(n), *kernels.incoming(state, edges)[:5], kernels.there(probabilities),
            kernels.there(ndtri(probabilities)), np.int32(q),
            device.empty(n_teams * size), *found,
        )  # fmt: skip
        return Posterior(*(device.download(part) for part in found))


class OneLevel:
    """Tasks all of whose workers have the same level: messages carry no information."""

    kept = 0

    def __init__(self, value: Floats, prior_mean: Floats, model: Model) -> None:
        self._given = value, prior_mean, model

    def sweep(self, state: SweepState, edges: Edges, new_sums: WorkerSums) -> float:
        """Leave all messages as they are."""
        del state, edges, new_sums
        return 0.0

    def posterior(self, state: SweepState, edges: Edges, probabilities: Floats) -> Posterior:
        """Return the weighted means."""
        del state, edges
        value, prior_mean, model = self._given
        degree, precision = value.shape[1], model.prior_precision
        c = enumeration.configurations(tuple(model.support), degree, precision)
        sure = np.ones((len(value), 1))
        return enumeration.posterior(sure, value, prior_mean, precision, c, probabilities)


class GpuKernels(GpuMatching):
    """All kernels on a GPU; ``host`` is the set for what is done once, before all sweeps."""

    def __init__(self, host: KernelSet, device: Device | None = None) -> None:
        super().__init__(CupyDevice() if device is None else device)
        self._host = host
        self.team_sizes: dict[tuple[int, ...], int] = {}

    def centre(self, value: Floats, unit: float) -> tuple[Floats, Floats]:
        """Return values relative to an origin of their task, and the origins."""
        return self._host.centre(value, unit)

    def enumeration(
        self, value: Any, prior_mean: Any, model: Model, room: int
    ) -> Enumeration | OneLevel:
        """Sum over all configurations of the levels; nothing is kept."""
        del room
        if len(model.support) == 1:
            return OneLevel(value, prior_mean, model)
        return Enumeration(self, value, prior_mean, model)

    def pruned_enumeration(
        self, value: Any, prior_mean: Any, model: Model, accuracy: float
    ) -> Enumeration | OneLevel:
        """Sum over all configurations too: there are few enough for a GPU."""
        del accuracy
        return self.enumeration(value, prior_mean, model, 0)

    def integrate_sweep(
        self, given: Integrals, new_sums: WorkerSums, is_counted: bool
    ) -> tuple[float, Floats, Floats | None]:
        """Integrate where there is mass."""
        law, device = given.law, self.device
        n_classes, n_levels, n_variances = law.grid.mixing.shape
        n_counts = n_classes * n_levels * n_variances + n_classes + len(law.prior_variance) + 2
        evidence = device.empty(given.edges.worker.shape[0], n_classes)
        change, counted = device.zeros((1,), np.float64), np.zeros(n_counts)
        bias = given.rows.bias
        damping = np.float64(0.0 if bias is None else bias.damping)
        rows = _Rows(self, given, "integrate_sweep")
        while rows.n:
            n_teams, work = rows.workspace()
            counts = device.zeros((n_teams, n_counts), np.float64) if is_counted else None
            rows.launch(n_teams, (damping, *work), (evidence, counts, change))
            if counts is not None:
                counted += self.add_up(counts)
        self.add_messages(new_sums, given.edges)
        moved = float(device.download(change)[0])
        return moved, device.download(evidence), counted if is_counted else None

    def integrate_posterior(
        self, given: Integrals, probabilities: Floats
    ) -> tuple[Posterior, Floats]:
        """Return the density on finer nodes."""
        device, n, q = self.device, given.edges.worker.shape[0], len(probabilities)
        shapes = (n, 1), (n, 1), (n, 1, q), (n, len(given.law.grid.mixing))
        found = [device.empty(*shape) for shape in shapes]
        wanted = self.there(probabilities), np.int32(q)
        rows = _Rows(self, given, "integrate_posterior", _FINER)
        while rows.n:
            n_teams, work = rows.workspace()
            rows.launch(n_teams, work, (*wanted, *found))
        estimate, variance, quantile, classes = (device.download(part) for part in found)
        return Posterior(estimate, variance, quantile), classes

    def integrate_predict(self, given: Integrals, with_pit: bool = True) -> Predictions:
        """Predict each answer from the others."""
        size = int(np.prod(given.edges.worker.shape))
        out = self.device.empty(6, *given.edges.worker.shape)
        rows = _Rows(self, given, "integrate_predict")
        while rows.n:
            n_teams, work = rows.workspace()
            rows.launch(n_teams, work, (np.int64(size), np.int32(with_pit), out))
        return Predictions(*self.device.download(out))


class _Rows:
    """Rows that a kernel integrates over, those with few nodes first."""

    def __init__(self, kernels: GpuKernels, given: Integrals, name: str, finer: int = 1) -> None:
        self._kernels, self._given = kernels, given
        self._device = kernels.device
        law, rows = given.law, given.rows
        n_classes, n_levels, n_variances = law.grid.mixing.shape
        self._sizes = n_classes, n_levels, n_variances, len(law.prior_variance)
        self.n, self._degree = given.edges.worker.shape
        self._lanes = self._device.lanes(self._degree + (self._sizes[3] > 0))
        self._room, self._todo = _ROOM * finer, None
        shaped = self._device.shapes and n_classes * n_variances <= _MOST_SHAPED
        self._defines = {
            "LANES": self._lanes,
            "CLASSES": n_classes if shaped else 0,
            "VARIANCES": n_variances if shaped else 0,
            "MOST_CLASSES": n_classes if shaped else _at_least(n_classes, 8),
            "MOST_VARIANCES": n_variances if shaped else _at_least(n_variances, 32),
        }
        self._kernel = self._compile(name)
        there = kernels.there
        self._law = (
            *(np.int32(size) for size in self._sizes), there(law.grid.variance),
            there(law.grid.mixing), there(law.prior_variance), there(law.prior_weight),
            np.float64(law.accuracy),
        )  # fmt: skip
        about: tuple[Any, ...] = (None,) * 4
        if rows.bias is not None:
            beliefs = there(rows.bias.mean), there(rows.bias.precision)
            about = *beliefs, rows.bias.edge_precision, rows.bias.edge_pull
        # A flat prior has no mean, and the only class is certain.
        mean = there(rows.prior_mean) if law.prior_variance.size else None
        log_class = (
            there(rows.log_class) if n_classes > 1 else self._device.zeros((self.n, 1), np.float64)
        )
        given_rows = there(rows.value), mean, there(rows.low), there(rows.high), there(rows.known)
        self._rows = (np.int32(self._degree), *given_rows, log_class, *about)
        self._incoming = kernels.incoming(given.state, given.edges)

    def _compile(self, name: str) -> Any:
        files = (
            "messages",
            "law",
            "nodes",
            "integrate",
            name.replace("measure_team", "integrate_sweep"),
        )
        return self._device.compile(files, name, **self._defines)

    def workspace(self) -> tuple[int, tuple[Any, ...]]:
        """Return the number of teams, and the workspace for them."""
        key = *self._sizes, self._degree, self._room
        known = self._kernels.team_sizes
        if key not in known:
            size = self._device.zeros((1,), np.int64)
            numbers = (np.int32(x) for x in key)
            self._device.launch(self._compile("measure_team"), 1, *numbers, size)
            known[key] = int(self._device.download(size)[0])
        n_teams = self._kernels.n_teams(self.n, self._lanes, known[key])
        return n_teams, (np.int32(self._room), self._device.empty(n_teams * known[key]))

    def launch(self, n_teams: int, work: tuple[Any, ...], out: tuple[Any, ...]) -> None:
        """Integrate; keep the rows for which there was no room, with more room for them."""
        device = self._device
        left, n_left = device.zeros((self.n,), np.int64), device.zeros((1,), np.int64)
        rows = np.int64(self.n), *self._rows, self._todo, left, n_left
        device.launch(
            self._kernel, n_teams * self._lanes, *self._law, *rows, *self._incoming, *work, *out
        )
        self.n = int(device.download(n_left)[0])
        if self.n:
            # In the order of the rows, not in that of the threads.
            self._todo = device.upload(np.sort(device.download(left)[: self.n]))
            self._room *= _MORE_ROOM


def _at_least(n: int, fewest: int) -> int:
    """Round up to a power of two."""
    return max(fewest, 1 << (n - 1).bit_length())


@lru_cache(maxsize=16)
def _tables(
    levels: tuple[float, ...], degree: int, dimension: int, prior_precision: float
) -> tuple[Floats, Floats, int]:
    """How configurations grow worker by worker, as in enumerate.cu.

    Returns two numbers for every configuration of the first workers, one worker after another, and
    for all of them w / W of the last worker and 1 / W; and the configuration of the widest levels.
    """
    own = 1.0 / np.array(levels)
    before, log_product, parts = np.array([prior_precision]), np.zeros(1), []
    for _ in range(degree):
        after = (before[:, None] + own).ravel()
        log_product = (log_product[:, None] + np.log(levels)).ravel()
        gain = (own / after.reshape(-1, len(own))).ravel()
        cost = -0.5 * np.repeat(before, len(own)) * gain
        parts.append(np.stack([cost, gain], axis=1))
        before = after
    last = np.stack([parts[-1][:, 1], 1.0 / before], axis=1)
    offset = -0.5 * dimension * (np.log(before) + log_product)
    widest = int(np.argmax(levels)) * sum(len(levels) ** u for u in range(degree))
    parts[-1][:, 1] = offset - max(offset[widest], offset.max() - _LARGEST_OFFSET)
    return np.concatenate(parts), last, widest
