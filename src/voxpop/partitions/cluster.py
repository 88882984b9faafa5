"""Dask: parts distributed over the workers of a cluster, and again when a worker dies.

One task for each worker and step, pinned to it, because the state of its parts is there. Nothing
but workers' sums travels. The state of a dead worker is replayed from the log by those who take
over.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from voxpop.errors import ConfigError, VoxpopError
from voxpop.partitions.steps import Call, Job, Totals, answer_parts, merge

# Seconds between two looks at who is alive, and without any worker before giving up.
_POLL, _PATIENCE = 0.5, 120.0
# Attempts to start a cluster.
_STARTS = 3
# Seconds in which the answer of a worker arrives, if the worker is alive.
_GATHER = 10.0
# After this many workers died over the same parts, the parts are the cause, not the workers.
_MOST_DEATHS = 8
_CONFIG = {
    # A nanny whose worker dies twice in this time would be closed for good.
    "distributed.deploy.lost-worker-timeout": "1 hour",
    "distributed.worker.memory.terminate": False,
    "distributed.admin.log-length": 100,
    # Dask has workers hand memory back at once: to get it again took a quarter of their time.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}


class DaskPool:
    """The workers of a Dask cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._owner: dict[int, str] = {}

    def alive(self) -> list[str]:
        """Addresses of the workers, as the scheduler knows them now."""
        found = self._client.scheduler_info(n_workers=-1)["workers"]
        return sorted(found)

    def total(self, job: Job, at: int, call: Call | None = None) -> Totals:
        """Call all parts; those of a dead worker are called on the others."""
        del call  # workers read it from the log
        waiting: dict[Any, tuple[str, list[int]]] = {}
        missing, found = list(range(job.parts.n_parts)), []
        deaths: Counter[int] = Counter()
        since = time.monotonic()
        while missing or waiting:
            alive = self.alive()
            if alive:
                since = time.monotonic()
                waiting |= self._submit(job, at, self._deal(missing, alive))
                missing = []
            elif time.monotonic() - since > _PATIENCE:
                raise VoxpopError("the cluster has no workers; start some, and run this again")
            self._wait(list(waiting))
            for future, (address, parts) in list(waiting.items()):
                totals = _collect(future)
                if totals is not None:
                    found.append(totals)
                elif future.status in ("error", "cancelled") or address not in self.alive():
                    future.cancel()
                    missing += parts
                    deaths.update(parts)
                else:
                    continue
                del waiting[future]
            most = max(deaths.values(), default=0)
            if most > _MOST_DEATHS:
                raise VoxpopError(
                    f"workers died {most} times over the same part; they may lack memory: give "
                    "more --partitions, or workers with more memory, and run this again"
                )
        return merge(found)

    def _deal(self, parts: Sequence[int], alive: Sequence[str]) -> dict[str, list[int]]:
        """Give parts to the workers that have their state, others to the least busy workers."""
        dealt: dict[str, list[int]] = defaultdict(list)
        held = {address: 0 for address in alive}
        for owner in self._owner.values():
            if owner in held:
                held[owner] += 1
        for part in parts:
            owner = self._owner.get(part, "")
            if owner not in held:
                owner = min(held, key=lambda address: held[address])
                held[owner] += 1
                self._owner[part] = owner
            dealt[owner].append(part)
        return dealt

    def _submit(
        self, job: Job, at: int, dealt: dict[str, list[int]]
    ) -> dict[Any, tuple[str, list[int]]]:
        # Strictly pinned: a task that may go elsewhere is lost if for a moment there is no worker.
        return {
            self._client.submit(
                _answer_here, job, parts, at, workers=[address], allow_other_workers=False,
                pure=False,
            ): (address, parts)
            for address, parts in dealt.items()
        }  # fmt: skip

    def _wait(self, futures: list[Any]) -> None:
        wait: Any = import_module("distributed").wait
        if not futures:
            time.sleep(_POLL)
            return
        try:
            wait(futures, timeout=_POLL, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return


def _collect(future: Any) -> Totals | None:
    """Return the result of a task; None while it is running, and if its worker died.

    A worker may die after it has finished and before it has reported: do not wait for it.
    """
    if not future.done():
        return None
    deaths = (
        import_module("distributed.scheduler").KilledWorker,
        import_module("distributed.comm").CommClosedError,
        import_module("concurrent.futures").CancelledError,
        TimeoutError,
    )
    try:
        found: Totals = future.result(timeout=_GATHER)
    except deaths:
        return None
    return found


def _answer_here(job: Job, parts: list[int], at: int) -> Totals:
    """Answer a call for some parts on the worker that runs this, in its own scratch folder."""
    from distributed import get_worker

    return answer_parts(job, parts, at, f"{get_worker().local_directory}/{job.log.token}")


def require_scheduler(address: str) -> None:
    """Refuse a scheduler that is not there, before any work."""
    with _connected(_packages()[1], address):
        pass


@contextmanager
def dask_pool(scheduler: str | None, n_workers: int, scratch: str) -> Iterator[DaskPool]:
    """Connect to a scheduler, or start a cluster on this machine that nothing outside can reach."""
    dask, distributed = _packages()
    with dask.config.set(_CONFIG):
        if scheduler is not None:
            with _connected(distributed, scheduler) as client:
                yield DaskPool(client)
            return
        cluster = _local_cluster(distributed, n_workers, scratch)
        with cluster, distributed.Client(cluster) as client:
            yield DaskPool(client)


def _packages() -> tuple[Any, Any]:
    try:
        return import_module("dask"), import_module("distributed")
    except ImportError:
        raise ConfigError("--engine dask needs Dask; install 'voxpop[cluster]'") from None


def _connected(distributed: Any, scheduler: str) -> Any:
    try:
        return distributed.Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{scheduler}: no Dask scheduler there: {error}") from None


def _local_cluster(distributed: Any, n_workers: int, scratch: str) -> Any:
    """Start workers on this machine; again if one dies while it starts."""
    for _ in range(_STARTS):
        try:
            return distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0", worker_dashboard_address="127.0.0.1:0",
                local_directory=scratch, memory_limit=0, silence_logs=50,
            )  # fmt: skip
        except RuntimeError as error:
            why = error
    raise VoxpopError(f"a Dask cluster could not be started here: {why}; try fewer --processes")
