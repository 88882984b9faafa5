"""The runner: instances seeded by their names, run in parallel, each stored when it is done."""

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
from typing import Any

import numpy as np

from voxpop import __version__
from voxpop.data.output import make_folder, replacing
from voxpop.errors import ConvergenceWarning, DataWarning, VoxpopError, require

# What the usual libraries of linear algebra read when they are loaded.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

Row = dict[str, Any]
"""One line of a tidy table."""
Setting = Mapping[str, Any]
"""What defines an instance, but for its random numbers."""
Run = Callable[[Setting, np.random.Generator, Path], list[Row]]
"""Runs one instance: its setting, its random numbers, the folder of the data sets."""
OnInstance = Callable[[str, int, int], None]
"""Called with the experiment, the number of finished instances, and the number of all."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much to compute.

    Attributes
    ----------
    instances
        Instances of each setting of a figure; the paper has 50.
    heavy
        The same where the weak oracle takes seconds.
    draws
        Crowds drawn for a table.
    resamples
        Training sets drawn for a model of table 3.
    n_tasks
        Tasks of a simulated crowd; the paper has 200.
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


QUICK = Effort(name="quick", instances=20, heavy=4, draws=4, resamples=20)
FULL = Effort(name="full", instances=50, heavy=50, draws=50, resamples=200, detectors=12)

Plan = list[tuple[Setting, int]]
"""Settings, each with its number of instances."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings, and what one instance of a setting measures.

    ``run`` must be a function of a module, so that a new process can import it. ``methods`` are
    those it compares: instances stored under another list are run again. ``data`` names the
    folder of ``--data`` that it needs, ``packages`` what must be installed, and ``extra`` the
    extra of voxpop that installs them. ``unavailable`` gives a further reason why it cannot run
    with an effort, or an empty text.
    """

    name: str
    title: str
    plan: Callable[[Effort, Path], Plan]
    run: Run
    methods: tuple[str, ...] = ()
    data: str = ""
    packages: tuple[str, ...] = ()
    extra: str = ""
    unavailable: Callable[[Effort], str] = lambda _: ""

    def jobs(self, effort: Effort, folder: Path, data: Path) -> list[Job]:
        """All instances in order, whether they are on disk or not."""
        stamp = f"voxpop {__version__}: {', '.join(self.methods)}"
        return [
            Job(self.name, setting, index, self.run, stamp, folder, data)
            for setting, number in self.plan(effort, data)
            for index in range(number)
        ]


def named_rng(*names: object) -> np.random.Generator:
    """Random numbers that depend on these names alone: any subset of a run gives the same."""
    digest = hashlib.sha256("/".join(map(str, names)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


@dataclass(frozen=True)
class Job:
    """One instance: its setting and index, which seed it, and where its rows are stored."""

    experiment: str
    setting: Setting
    index: int
    run: Run
    stamp: str
    folder: Path
    data: Path

    @property
    def setting_name(self) -> str:
        """The setting as part of a path, and of the seed."""
        return ",".join(f"{name}={item}" for name, item in self.setting.items())

    @property
    def path(self) -> Path:
        """File of the finished instance."""
        place = self.folder / "instances" / self.experiment / self.setting_name
        return place / f"{self.index:04d}.json"

    def stored(self) -> list[Row] | None:
        """Rows that an earlier run with the same stamp stored, or None."""
        try:
            document = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return None
        return document["rows"] if document.get("stamp") == self.stamp else None

    def execute(self) -> list[Row]:
        """Run the instance and store its rows; the file is written whole or not at all."""
        with warnings.catch_warnings():
            # The rows say whether a fit converged; a warning per instance would add nothing.
            for ours in (ConvergenceWarning, DataWarning):
                warnings.simplefilter("ignore", ours)
            rng = named_rng(self.experiment, self.setting_name, self.index)
            measured = self.run(self.setting, rng, self.data)
        about: Row = {"experiment": self.experiment, **self.setting, "instance": self.index}
        rows: list[Row] = [about | row for row in measured]
        make_folder(self.path.parent)
        with replacing(self.path) as temporary:
            temporary.write_text(json.dumps({"stamp": self.stamp, "rows": rows}))
        return rows


@contextmanager
def open_pool(jobs: int) -> Iterator[Executor | None]:
    """Open a pool of fresh processes; None for a single job, which runs in this process.

    Each process does its linear algebra in one thread, unless the environment says otherwise: by
    default each would start a thread per core, and threads that wait for each other by spinning
    make the training of models several times slower.
    """
    require(jobs >= 1, f"jobs must be at least 1, got {jobs}")
    if jobs == 1:
        yield None
        return
    unset = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        # Instances under way are lost, finished ones are on disk: nothing to wait for.
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        for name in unset:
            os.environ.pop(name, None)


def run_experiment(
    experiment: Experiment,
    effort: Effort,
    folder: Path,
    data: Path,
    pool: Executor | None = None,
    on_instance: OnInstance | None = None,
) -> list[Row]:
    """Run all instances that are not on disk yet, and return the rows of all, in order."""
    jobs = experiment.jobs(effort, folder, data)
    done = {number: rows for number, job in enumerate(jobs) if (rows := job.stored()) is not None}
    missing = [number for number in range(len(jobs)) if number not in done]

    def report() -> None:
        if on_instance is not None:
            on_instance(experiment.name, len(done), len(jobs))

    report()
    if pool is None:
        for number in missing:
            done[number] = jobs[number].execute()
            report()
    else:
        futures = {pool.submit(Job.execute, jobs[number]): number for number in missing}
        try:
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                report()
        except BrokenProcessPool:
            raise VoxpopError(
                "a process was ended from outside (too little memory?); run the command again with "
                "fewer --jobs: it resumes where it stopped"
            ) from None
    return [row for number in range(len(jobs)) for row in done[number]]
