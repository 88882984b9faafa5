"""Runs: from files to a folder of results, in parts; a stopped run resumes where it was."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from voxpop.data.answers import Answers
from voxpop.data.many_files import stamps_of
from voxpop.data.output import replacing_folder, require_folder
from voxpop.data.read import read_answers
from voxpop.errors import ConfigError, DataError, VoxpopError, require
from voxpop.estimators.auto.auto import Auto
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.bi.bi import BI
from voxpop.inference.engine import backend_in_use
from voxpop.partitions.cluster import dask_pool, require_scheduler
from voxpop.partitions.cut import Source, cut
from voxpop.partitions.finish import SAMPLE, table_name
from voxpop.partitions.fit import fit_for_parts, fit_parts
from voxpop.partitions.parts import Parts
from voxpop.partitions.steps import Job, Log, OneByOne, Pool, Steps
from voxpop.partitions.store import Store
from voxpop.results.intervals import notes_on_intervals
from voxpop.results.result import Result
from voxpop.results.saved import FILES, write, write_others
from voxpop.words import counted

_JOB = "job.json"
# Sums, beliefs and intervals of a worker, with about ten levels.
_BYTES_PER_WORKER = 400
# Its sd and number of answers, from which the median task is found, and a copy to sort them.
_BYTES_PER_TASK = 40


@dataclass(frozen=True, kw_only=True)
class Running:
    """Where and how parts are computed.

    ``memory`` is in bytes. ``run`` is the folder for the files of the run, which all workers of a
    cluster must reach: a path, or a URL for fsspec.
    """

    engine: Literal["outofcore", "dask"] = "outofcore"
    memory: int = 1 << 30
    n_parts: int | None = None
    scheduler: str | None = None
    n_workers: int = 2
    run: str | None = None

    def __post_init__(self) -> None:
        require(self.memory >= 64 << 20, "memory must be at least 64MB")
        require(
            self.n_parts is None or self.n_parts >= 1,
            f"partitions must be at least 1, got {self.n_parts}",
        )
        require(self.n_workers >= 1, f"processes must be at least 1, got {self.n_workers}")
        require(self.engine == "dask" or self.scheduler is None, "a scheduler needs --engine dask")


@dataclass(frozen=True, eq=False)
class Finished:
    """A run that is complete: the result but for its tasks, and a sample of these.

    ``shown`` are the answers to some tasks, ``of_shown`` is their result.
    """

    parts: Parts
    result: Result
    shown: Answers
    of_shown: Result

    def summary(self) -> str:
        """Return one line: what was done and how it ended."""
        if len(self.result.task_ids):
            return self.result.summary()
        before_and_after = self.result.summary().partition(": 0 tasks ")
        tasks, parts = counted(self.parts.n_tasks, "task"), counted(self.parts.n_parts, "part")
        return f"{before_and_after[0]}: {tasks} in {parts} {before_and_after[2]}"

    def notes(self) -> list[str]:
        """Return what the user should know about it."""
        has_width = bool(self.of_shown.variance.any())
        notes = notes_on_intervals(self.result.audit, self.result.calibration, has_width)
        return [*self.result.notes, *notes]


def aggregate_parts(
    source: Source,
    estimator: Estimator,
    folder: Path,
    running: Running,
    on_sweep: OnSweep | None = None,
    also: Callable[[Finished, Path], object] | None = None,
    name: str | None = None,
) -> Finished:
    """Aggregate answers in parts, and write the tables of tasks and workers into a folder.

    Called again after it was stopped, it resumes from the last complete step. ``also``
    writes more of the files, into the folder that it is given; ``name`` tells the source.
    """
    method = fit_for_parts(estimator)
    if running.engine == "dask":
        method = replace(method, threads=1)  # its processes are as many as there are cores
    require_folder(folder)
    beside = folder.absolute().parent / f".{folder.absolute().name}.run"
    where = running.run or str(beside)
    local = Path(where) if "://" not in where else beside
    with _errors_in_one_line(where), _alone_in(local):
        fingerprint = _fingerprint(source, estimator, running)
        if running.scheduler is not None:
            require_scheduler(running.scheduler)
        _begin(where, fingerprint)
        parts = Parts.load(where)
        if parts is None:
            rounding = isinstance(method, BI) and method.support == "auto"
            parts = _cut(source, where, running, rounding)
        _require_memory(parts, running)
        job = Job(parts, Log.begin(f"{where}/log"))
        if isinstance(method, Auto) and _fits_into_memory(parts, method):
            done = _fit_in_memory(source, estimator, parts, on_sweep)
            run = None
        else:
            with _pool(running, local) as pool:
                result, run = fit_parts(method, Steps(job, pool), local, on_sweep)
            done = Finished(parts, result, *Store(where).kept(SAMPLE))
        with replacing_folder(folder, FILES) as new:
            if run is None:
                write(done.result, new, "parquet", name)
            else:
                _place_tasks(parts, new / "tasks.parquet", local)
                write_others(done.result, new, "parquet", name, run, parts.task_ids(0, local))
            if also is not None:
                also(done, new)
        _remove(where, local)
    return done


def _cut(source: Source, where: str, running: Running, rounding: bool) -> Parts:
    """Cut the answers; if that fails, leave nothing, since the next run cuts them anew."""
    try:
        return cut(source, where, running.memory, running.n_parts, rounding)
    except BaseException:
        with suppress(OSError, VoxpopError):
            if "://" in where:
                Store(where).remove()
            else:
                _clear(Path(where))
        raise


def _fits_into_memory(parts: Parts, auto: Auto) -> bool:
    """Return whether the default compares its models on all answers, and averages them.

    For more answers it fits one model, which is possible in parts.
    """
    return parts.n_answers * parts.dimension <= auto.contest_answers


def _fit_in_memory(
    source: Source, estimator: Estimator, parts: Parts, on_sweep: OnSweep | None
) -> Finished:
    answers = read_answers(
        source.path, task=source.task, worker=source.worker, values=source.values, gold=source.gold
    )
    result = estimator.fit(answers, on_sweep)
    note = f"{counted(answers.n_edges, 'answer')} fit into memory: they were not cut into parts"
    return Finished(parts, replace(result, notes=(*result.notes, note)), answers, result)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder of a run, so that no other process works in it; a kill unlocks it.

    A new folder that is still empty at the end is removed.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows has no such locks
        yield
        return
    descriptor = None
    while descriptor is None:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the other run has removed it at its end
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(descriptor), folder.stat()):
                    raise FileNotFoundError
            except BlockingIOError:
                os.close(descriptor)
                raise ConfigError(
                    f"{folder}: another run is working here; wait for its end, or name another "
                    "--output and another --run"
                ) from None
            except FileNotFoundError:
                os.close(descriptor)
                descriptor = None
            except OSError:
                pass  # a disk that knows no locks
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()
        os.close(descriptor)


@contextmanager
def _errors_in_one_line(where: str) -> Iterator[None]:
    """Turn a full disk, or a run whose files are damaged, into an error that says what to do."""
    import duckdb

    resumed = Store(where).exists(_JOB)
    try:
        yield
    except (OSError, duckdb.IOException, DataError) as error:
        text = str(error)
        if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in text:
            raise DataError(
                f"{where}: the disk is full; free some space and run the same command again: it "
                "resumes where it stopped"
            ) from None
        raise
    except VoxpopError:
        raise
    except (ValueError, KeyError, IndexError, EOFError) as error:
        if not resumed:
            raise
        raise DataError(
            f"{where}: the files of the run do not fit together ({_short(error)}); remove the "
            "folder, and start again"
        ) from error


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:100]


def _fingerprint(source: Source, estimator: Estimator, running: Running) -> bytes:
    """What a run depends on; another run in the same folder starts anew."""
    gold = [source.gold] if isinstance(source.gold, str) else source.gold or ()
    files = [stamps_of(name) for name in (source.path, *filter(os.path.exists, gold))]
    facts = {
        "version": version("voxpop"),
        "source": asdict(source),
        "files": files,
        "settings": plain_settings(estimator),
        "n_parts": running.n_parts,
        "backend": backend_in_use(),
    }
    text = json.dumps(facts, indent=2, default=str)
    return json.dumps(facts | {"sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def _require_memory(parts: Parts, running: Running) -> None:
    """Refuse a crowd whose workers alone do not fit into memory: their tables are in one piece."""
    needed = parts.n_workers * _BYTES_PER_WORKER + parts.n_tasks * _BYTES_PER_TASK
    require(
        needed <= running.memory,
        f"the tables of {parts.n_workers} workers and the sds of {parts.n_tasks} tasks take about "
        f"{needed >> 20} MB; give more --memory",
    )


def _begin(where: str, job: bytes) -> None:
    """Resume the run in a folder if it is this job, or clear the folder for it."""
    store = Store(where)
    known = store.read(_JOB)
    if known == job:
        return
    if "://" not in where and Path(where).exists():
        if known is None and any(Path(where).iterdir()):
            raise ConfigError(
                f"{where}: is not empty, and is not a run of voxpop; name another --run"
            )
        _clear(Path(where))
    elif known is not None:
        raise ConfigError(f"{where}: holds another run; remove it, or name another --run")
    store.write(_JOB, job)


def _clear(folder: Path) -> None:
    """Empty a folder, which itself stays: it is locked."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def _pool(running: Running, local: Path) -> Iterator[Pool]:
    if running.engine == "outofcore":
        yield OneByOne(str(local / "scratch"))
        return
    scratch = local / "dask"
    with dask_pool(running.scheduler, running.n_workers, str(scratch)) as pool:
        yield pool


def _place_tasks(parts: Parts, folder: Path, local: Path) -> None:
    """Put the tables of the tasks into a separate folder."""
    store = Store(parts.where)
    folder.mkdir()
    for part in range(parts.n_parts):
        path = store.fetch(table_name(part), local)
        try:
            os.link(path, folder / path.name)
        except OSError:  # another disk
            shutil.copyfile(path, folder / path.name)


def _remove(where: str, local: Path) -> None:
    """Remove the files of a run."""
    if "://" in where:
        Store(where).remove()
    shutil.rmtree(local, ignore_errors=True)
