"""The runner: instances seeded by their names, run in parallel, each kept as soon as it is done."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from voxpop import __version__
from voxpop.data.tables import make_folder, replacing
from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError, require

# What the usual libraries of linear algebra read when they are loaded.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Cell = str | int | float | bool
Row = dict[str, Cell]
"""One line of a tidy table."""
Setting = Mapping[str, Cell]
"""What makes an instance, but for its random numbers."""
Run = Callable[[Setting, np.random.Generator, Path], list[Row]]
OnInstance = Callable[[str, int, int], None]
"""Told the experiment, how many instances are done, and of how many."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to compute.

    Attributes
    ----------
    instances
        Instances of each setting of a figure; the paper's are 50.
    heavy
        The same where the weak oracle takes seconds.
    draws
        Crowds drawn for a table.
    resamples
        Training sets drawn for a model of table 3.
    n_tasks
        Tasks of a simulated crowd; the paper's are 200.
    detectors
        Crowds drawn for the detector of table 3.
    """

    name: str
    instances: int
    heavy: int
    draws: int
    resamples: int
    n_tasks: int = 200
    detectors: int = 3

    def __post_init__(self) -> None:
        for name in ("instances", "heavy", "draws", "resamples", "n_tasks", "detectors"):
            number = getattr(self, name)
            require(number >= 1, f"{name} must be at least 1, got {number}")


QUICK = Effort(name="quick", instances=20, heavy=4, draws=4, resamples=20)
FULL = Effort(name="full", instances=50, heavy=50, draws=50, resamples=200, detectors=12)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings, and what one instance of a setting measures.

    ``run`` must be a function of a module, so that a new process finds it. ``methods`` are those
    it compares: what was kept of other lists is run again. ``data`` names the folder of
    ``--data`` without which the experiment cannot be run, ``packages`` what has to be installed,
    ``extra`` the extra of voxpop that installs it. ``why_not_now`` gives a further reason not to
    run with an effort, if there is one.
    """

    name: str
    title: str
    plan: Callable[[Effort, Path], list[tuple[Setting, int]]]
    run: Run
    methods: tuple[str, ...] = ()
    data: str = ""
    packages: tuple[str, ...] = ()
    extra: str = ""
    why_not_now: Callable[[Effort], str] | None = None


def rng_of(*names: object) -> np.random.Generator:
    """Random numbers that depend on these names alone: any subset of a run gives the same."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def setting_name(setting: Setting) -> str:
    """Spell a setting as a name that may stand in a path."""
    return ",".join(f"{name}={item}" for name, item in setting.items())


@dataclass(frozen=True, kw_only=True)
class Job:
    """One instance: where its random numbers come from, and where its rows go."""

    experiment: str
    setting: Setting
    index: int
    run: Run
    stamp: str
    folder: Path
    data: Path

    @property
    def path(self) -> Path:
        """File of the finished instance."""
        place = self.folder / "instances" / self.experiment / setting_name(self.setting)
        return place / f"{self.index:04d}.json"

    def finished(self) -> list[Row] | None:
        """Rows that an earlier run of the same kind left; None where it left none."""
        try:
            document = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return None
        return document["rows"] if document.get("stamp") == self.stamp else None

    def do(self) -> list[Row]:
        """Run the instance and keep its rows; a file is there whole or not at all."""
        with warnings.catch_warnings():
            # Whether it settled is in the rows; a warning per instance would say no more.
            for ours in (ConvergenceWarning, DataWarning):
                warnings.simplefilter("ignore", ours)
            rng = rng_of(self.experiment, setting_name(self.setting), self.index)
            found = self.run(self.setting, rng, self.data)
        about: Row = {"experiment": self.experiment, **self.setting, "instance": self.index}
        rows: list[Row] = [about | row for row in found]
        make_folder(self.path.parent)
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps({"stamp": self.stamp, "rows": rows}))
        return rows


def do_job(job: Job) -> list[Row]:
    """Run one job: what a process of the pool is told to do."""
    return job.do()


@contextmanager
def open_pool(jobs: int) -> Iterator[Executor | None]:
    """Open so many fresh processes; None for one, which is this one."""
    require(jobs >= 1, f"jobs must be at least 1, got {jobs}")
    if jobs == 1:
        yield None
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    with _one_thread_each():
        try:
            yield pool
        except BaseException:
            # Instances under way are lost, finished ones are on disk: nothing to wait for.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that start from here on do their linear algebra in one thread, unless told.

    Each would start as many as there are cores; these wait for each other by spinning, and tables
    that train models take several times as long.
    """
    told = {name: os.environ.get(name) for name in _THREADS}
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        for name, before in told.items():
            if before is None:
                os.environ.pop(name, None)


def plan_jobs(experiment: Experiment, effort: Effort, folder: Path, data: Path) -> list[Job]:
    """All instances of an experiment, in order, whether they are on disk or not."""
    return [
        Job(
            experiment=experiment.name,
            setting=setting,
            index=index,
            run=experiment.run,
            stamp=f"voxpop {__version__}: {', '.join(experiment.methods)}",
            folder=folder,
            data=data,
        )
        for setting, number in experiment.plan(effort, data)
        for index in range(number)
    ]


def is_finished(experiment: Experiment, effort: Effort, folder: Path, data: Path) -> bool:
    """Whether an earlier run, here or elsewhere, left all instances."""
    jobs = plan_jobs(experiment, effort, folder, data)
    return all(job.finished() is not None for job in jobs)


def run_experiment(
    experiment: Experiment,
    effort: Effort,
    folder: Path,
    data: Path,
    pool: Executor | None = None,
    on_instance: OnInstance | None = None,
) -> list[Row]:
    """Run all instances that are not on disk yet, and return the rows of all, in order."""
    jobs = plan_jobs(experiment, effort, folder, data)
    rows: dict[int, list[Row]] = {}

    def keep(number: int, found: list[Row]) -> None:
        rows[number] = found
        if on_instance is not None:
            on_instance(experiment.name, len(rows), len(jobs))

    missing = []
    for number, job in enumerate(jobs):
        found = job.finished()
        if found is None:
            missing.append(number)
        else:
            keep(number, found)
    if pool is None:
        for number in missing:
            keep(number, jobs[number].do())
    else:
        futures = {pool.submit(do_job, jobs[number]): number for number in missing}
        try:
            for future in as_completed(futures):
                keep(futures[future], future.result())
        except BrokenProcessPool:
            raise VoxpopError(
                "a process was ended from outside (too little memory?); run the command again, "
                "with fewer --jobs: it goes on where it was"
            ) from None
    return [row for number in sorted(rows) for row in rows[number]]
