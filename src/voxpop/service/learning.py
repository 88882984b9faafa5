"""Learning: a process of its own fits all answers of a campaign by the default, and hands it back.

A fit of many answers takes half a minute, during which boards must still be published.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from voxpop.arrays import Floats
from voxpop.collect.campaign import Campaign
from voxpop.collect.campaign.learned import LearnedNoise
from voxpop.estimators.auto.auto import Auto
from voxpop.models.model import Model
from voxpop.results.result import Result
from voxpop.service.published import finite

# Niceness of a fit, so that answering requests comes first.
_NICE = 10


@dataclass(frozen=True)
class Job:
    """What a fit needs: all tasks in their order, gold, and the answers."""

    tasks: list[int]
    gold: dict[int, list[float]]
    task: list[int]
    worker: list[int]
    value: Floats
    value_names: tuple[str, ...]
    estimator: Auto


@dataclass(frozen=True)
class Learned:
    """The outcome of a fit: the noise, why tasks need a look, and the workers."""

    noise: LearnedNoise
    trust: float
    looks: dict[int, str]
    workers: dict[str, dict[str, Any]]
    n_ready: int
    model: str
    coverage: str
    seconds: float


def learn(job: Job) -> Learned:
    """Fit the answers."""
    start = time.monotonic()
    model = Model(support=(1.0,), dimension=len(job.value_names))
    campaign = Campaign(model, job.tasks, value_names=job.value_names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        campaign.add_many(job.task, job.worker, job.value)
        if job.gold:
            campaign.add_gold(job.gold)
        campaign.relearn(job.estimator)
        result = campaign.result()
    assert campaign.noise is not None
    looks = _looks(result)
    notes = result.interval_notes()
    return Learned(
        noise=campaign.noise,
        trust=campaign.trust,
        looks=looks,
        workers=_workers(result),
        n_ready=len(result.task_ids) - len(looks),
        model=str(result.settings.get("reason", "")),
        coverage=notes[0] if notes else "",
        seconds=time.monotonic() - start,
    )


def _looks(result: Result) -> dict[int, str]:
    """Why tasks need a look; few answers are no reason, since easy tasks get few on purpose."""
    found = {}
    for i, reasons in zip(result.review.tasks.tolist(), result.review.reasons, strict=True):
        kept = [reason for reason in reasons if reason != "few answers"]
        if kept:
            found[int(result.task_ids[i])] = ", ".join(kept)
    return found


def _workers(result: Result) -> dict[str, dict[str, Any]]:
    """Noise sd with its 95 % interval, number of answers and flags, by worker."""
    sd, interval = np.sqrt(result.worker_variance), np.sqrt(result.worker_interval)
    flags = result.review.flags_of(result.worker_ids)
    return {
        str(worker): {
            "noise_sd": finite(sd[row]),
            "noise": [finite(end) for end in interval[row]],
            "n_answers": int(result.worker_answers[row]),
            "flags": [] if flags[row] is None else str(flags[row]).split(", "),
        }
        for row, worker in enumerate(result.worker_ids.tolist())
    }


class Learner:
    """A fit under way in another process, or none."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None

    @property
    def busy(self) -> bool:
        """Whether a fit is under way."""
        return self._process is not None

    def start(self, job: Job) -> None:
        """Begin a fit."""
        context = mp.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        with suppress(OSError):
            self._pipe.send(job)

    def result(self, wait: float = 0.0) -> Learned | str | None:
        """Return what was learned, or why it was not; None while it is under way."""
        if self._pipe is None or not self._pipe.poll(wait):
            return None
        try:
            found: Learned | str = self._pipe.recv()
        except (EOFError, OSError):
            found = "the process that learns has ended"
        self.stop()
        return found

    def stop(self) -> None:
        """End what is under way."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            assert self._pipe is not None
            self._pipe.close()
            self._process = self._pipe = None


def _run(pipe: Connection) -> None:
    """Do one job."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
    # Where memory runs out, Linux ends the fit, not the service.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    # The other end is closed where the process that asked is no more.
    with suppress(EOFError, OSError):
        job: Job = pipe.recv()
        try:
            found: Learned | str = learn(job)
        except Exception as error:  # the campaign goes on with what was learned before
            found = type(error).__name__  # its message may quote an answer
        pipe.send(found)
