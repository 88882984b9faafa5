"""GPU arrays: per-answer arrays, kept on a GPU between sweeps, and the workers' sums.

Sums of messages are of whole numbers, and others in an order that depends on their number only:
the same bits come out on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.inference.gpu_device import Device
from voxpop.inference.kernel_set import Edges, SweepState

# Messages that one thread adds to their workers' sums, as in sums.cu.
_SEGMENT = 32
# Teams whose counts one thread adds up.
_TEAMS_EACH = 64


class GpuWorkers:
    """The workers (n, l) of some tasks, and their answers worker by worker."""

    def __init__(self, device: Device, worker: Any, ordered: bool = True) -> None:
        self._device, self.there, self.shape = device, worker, worker.shape
        self._is_ordered, self._order = ordered, None

    @property
    def order(self) -> Any:
        """The answers worker by worker, or None where that does not pay: for one sweep only."""
        if self._is_ordered and self._order is None:
            self._order = self._device.argsort(self.there)
        return self._order


class GpuArrays:
    """Arrays on a GPU, and the arguments that all its kernels share."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._small: dict[bytes, Any] = {}

    def bring(self, array: NDArray[Any]) -> Any:
        """Bring an array to the GPU; whole numbers of 32 bits are those of workers."""
        there = self.device.upload(array)
        return GpuWorkers(self.device, there) if array.dtype == np.int32 else there

    def fetch(self, array: Any) -> NDArray[Any]:
        """Bring an array back from the GPU."""
        return self.device.download(array)

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros on the GPU."""
        return self.device.zeros(shape, dtype)

    def take(self, array: Any, rows: NDArray[np.intp]) -> Any:
        """Copy some rows."""
        whole = array.there if isinstance(array, GpuWorkers) else array
        part = self.device.zeros((len(rows), *whole.shape[1:]), whole.dtype)
        self._copy_rows("take_rows", whole, rows, part)
        return GpuWorkers(self.device, part, False) if isinstance(array, GpuWorkers) else part

    def put(self, array: Any, rows: NDArray[np.intp], part: Any) -> None:
        """Overwrite some rows."""
        self._copy_rows("put_rows", part, rows, array)

    def _copy_rows(self, name: str, given: Any, rows: NDArray[np.intp], out: Any) -> None:
        width = int(np.prod(given.shape[1:])) * given.dtype.itemsize // 4
        kernel = self.device.compile(("messages", "sums"), name, LANES=1, LEVELS=1)
        row = self.device.upload(rows.astype(np.int64))
        sizes = np.int64(len(rows)), np.int64(width)
        self.device.launch(kernel, len(rows) * width, given, row, *sizes, out)

    def add_messages(self, sums: Any, edges: Edges, sign: int = 1) -> None:
        """Add messages to the sums of their workers."""
        worker: Any = edges.worker
        n, n_levels = int(np.prod(worker.shape)), edges.message.shape[2]
        kernel = self.device.compile(("messages", "sums"), "add_messages", LANES=1, LEVELS=n_levels)
        self.device.launch(
            kernel, -(-n // _SEGMENT), worker.there, edges.message, worker.order, np.int64(n),
            np.int64(sign), sums,
        )  # fmt: skip

    def recentre(self, worker: Any, precision: Any, pull: Any, shift: Floats) -> None:
        """Take ``shift`` (m,) off every worker's bias, in the messages about it (n, l)."""
        n = int(np.prod(worker.shape))
        kernel = self.device.compile(("messages", "sums"), "recentre", LANES=1, LEVELS=1)
        shift = self.device.upload(shift)
        self.device.launch(kernel, n, worker.there, precision, shift, np.int64(n), pull)

    def sum_by_worker(self, groups: Sequence[tuple[Any, Any]], n_workers: int) -> Floats:
        """Sum numbers over the answers of each worker, in the order of groups and answers."""
        kernel = self.device.compile(("messages", "sums"), "sum_by_worker", LANES=1, LEVELS=1)
        total = np.zeros(n_workers)
        for worker, per_edge in groups:
            found = self.device.empty(n_workers)
            n = np.int64(np.prod(worker.shape))
            order = worker.order if worker.order is not None else self.device.argsort(worker.there)
            given = worker.there, per_edge, order, n, np.int64(n_workers)
            self.device.launch(kernel, n_workers, *given, found)
            total += self.device.download(found)
        return total

    def gather(self, per_edge: Any, edge: Index, levels: Index | None = None) -> Any:
        """Copy messages (E, 1, ...) at the edges (n, l), or some of their levels: (n, l, ...)."""
        width = int(np.prod(per_edge.shape[2:]))
        chosen = np.arange(width) if levels is None else levels
        shape = (*edge.shape, len(chosen)) if per_edge.shape[2:] else edge.shape
        found = self.device.zeros(shape, per_edge.dtype)
        kernel = self.device.compile(("messages", "sums"), "gather", LANES=1, LEVELS=1)
        sizes = np.int64(edge.size), np.int64(width), np.int64(len(chosen))
        at, which = self.device.upload(edge), self.there(chosen.astype(np.int64))
        self.device.launch(kernel, edge.size * len(chosen), per_edge, at, which, *sizes, found)
        return found

    def add_up(self, table: Any) -> Floats:
        """Add up the rows of a table, in an order that depends on their number only."""
        n, width = table.shape
        n_parts = -(-n // _TEAMS_EACH)
        parts = self.device.empty(n_parts, width)
        kernel = self.device.compile(("messages", "sums"), "add_up", LANES=1, LEVELS=1)
        sizes = np.int64(n), np.int64(width), np.int64(_TEAMS_EACH)
        self.device.launch(kernel, n_parts * width, table, *sizes, parts)
        return np.asarray(self.device.download(parts).sum(axis=0))

    def there(self, array: Any) -> Any:
        """Return an array on the GPU, wherever it is; small ones are kept there."""
        if not isinstance(array, np.ndarray):
            return array
        if array.size > 4096:
            return self.device.upload(array)
        key = array.tobytes() + str((array.dtype, array.shape)).encode()
        if key not in self._small:
            if len(self._small) >= 256:
                self._small.clear()
            self._small[key] = self.device.upload(array)
        return self._small[key]

    def incoming(self, state: SweepState, edges: Edges) -> tuple[Any, ...]:
        """Messages and the workers' beliefs, as all kernels take them."""
        worker: Any = edges.worker
        numbers = (np.float64(x) for x in (state.quantum, state.floor, state.damping))
        return (
            worker.there, edges.message, self.there(state.sums), self.there(state.log_weights),
            *numbers,
        )  # fmt: skip

    def n_teams(self, n: int, lanes: int, size: int) -> int:
        """How many teams share the work on n tasks, each of which needs this many numbers."""
        device = self.device
        most = min(n, device.n_threads // lanes, device.workspace // size)
        whole = max(device.block // lanes, 1)
        return max(-(-n // whole) if most == n else most // whole, 1) * whole
