"""Changes of a campaign: tasks, answers and truths in, answers taken back; the journal first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from voxpop.collect.campaign.journal import Journal, Record
from voxpop.collect.campaign.ledger import Ledger
from voxpop.collect.campaign.one_at_a_time import Lock, one_at_a_time
from voxpop.collect.campaign.posterior import CampaignPosterior
from voxpop.collect.planning.learn_crowd import LearnedCrowd
from voxpop.data.answers import Answers
from voxpop.data.ids import plain
from voxpop.data.read import read_answers
from voxpop.errors import DataError, shorten
from voxpop.models.model import Model
from voxpop.results.result import Result


class ChangingAnswers:
    """The answers of a campaign, each on the disk before it counts, and what is known of them."""

    def __init__(
        self,
        model: Model | LearnedCrowd,
        tasks: Iterable[Any] = (),
        *,
        value_names: Sequence[str] | None = None,
        tol: float = 1e-8,
    ) -> None:
        self._lock = Lock()
        crowd = LearnedCrowd.of(model)
        d = crowd.model.dimension
        names = ("value",) if d == 1 else tuple(f"value_{j + 1}" for j in range(d))
        self._ledger = Ledger(d, tuple(value_names or names))
        self._posterior = CampaignPosterior(self._ledger, crowd, tol)
        # The default's result on the answers so far; None if they have changed since.
        self._result: Result | None = None
        self._journal = Journal()
        self.add_tasks(tasks)

    # Answers in

    def add(self, task: object, worker: object, value: ArrayLike) -> None:
        """Add one answer. Adding it again with the same value has no effect."""
        self.add_many([task], [worker], np.reshape(np.asarray(value, dtype=np.float64), (1, -1)))

    @one_at_a_time
    def add_many(self, task: Sequence[Any], worker: Sequence[Any], value: ArrayLike) -> int:
        """Add answers from three parallel columns, all or none; return how many were new."""
        tasks, workers, values = self._ledger.new_rows(task, worker, value)
        if tasks:
            record = {"answers": {"task": tasks, "worker": workers, "value": values.tolist()}}
            with self._changing(record):
                self._posterior.messages.touch(self._ledger.append(tasks, workers, values))
        return len(tasks)

    @one_at_a_time
    def retract(self, task: object, worker: object) -> None:
        """Take an answer back, as if it had never been given; the task stays.

        Messages are whole numbers, so what is left of their sums is exact.
        """
        edge = self._ledger.edge_of(task, worker)
        with self._changing({"retracted": {"task": [plain(task)], "worker": [plain(worker)]}}):
            self._posterior.messages.drop(edge)
            self._ledger.remove(edge)

    @one_at_a_time
    def add_table(self, source: object) -> int:
        """Add the answers of a table, a path or :class:`Answers`; return how many were new."""
        read = read_answers(source)
        n_new = self.add_many(
            read.task_ids[read.task].tolist(), read.worker_ids[read.worker].tolist(), read.value
        )
        if read.gold is not None:
            known = np.flatnonzero(read.is_gold)
            self.add_gold(dict(zip(read.task_ids[known].tolist(), read.gold[known], strict=True)))
        return n_new

    @one_at_a_time
    def add_tasks(self, tasks: Iterable[Any]) -> None:
        """Add tasks that have no answer yet."""
        ids = dict.fromkeys(plain(i) for i in tasks)
        new = [i for i in ids if self._ledger.tasks.find(i) is None]
        if new:
            with self._journal.recording({"tasks": new}):
                self._ledger.add_tasks(new)

    @one_at_a_time
    def add_gold(self, gold: Mapping[Any, ArrayLike]) -> None:
        """Set the truth of some tasks; their answers then only inform about the workers."""
        ids = [plain(i) for i in gold]
        truth = np.array([np.reshape(item, -1) for item in gold.values()], dtype=np.float64)
        d = self.model.dimension
        if truth.shape != (len(ids), d) or not np.isfinite(truth).all():
            raise DataError(f"gold must be {d} finite numbers for each task, got {shorten(ids)}")
        with self._changing({"gold": {"task": ids, "value": truth.tolist()}}):
            self._posterior.messages.touch(self._ledger.set_gold(ids, truth))

    @contextmanager
    def _changing(self, record: Record) -> Iterator[None]:
        """Change the answers or truths, once the record is on the disk."""
        with self._journal.recording(record):
            self._result = None
            yield

    @property
    def model(self) -> Model:
        """The noise model."""
        return self._posterior.model

    @property
    def trust(self) -> float:
        """How far left-out answers confirm the learned weights, 0 to 1; 1 for a given model."""
        return self._posterior.trust

    @property
    def n_answers(self) -> int:
        """Number of answers so far."""
        return self._ledger.n_edges

    @property
    def n_tasks(self) -> int:
        """Number of tasks, with or without answers."""
        return len(self._ledger.tasks)

    @property
    @one_at_a_time
    def task_ids(self) -> list[Any]:
        """Ids of all tasks."""
        return list(self._ledger.tasks)

    @property
    @one_at_a_time
    def worker_ids(self) -> list[Any]:
        """Ids of all workers who have answered."""
        return list(self._ledger.workers)

    @one_at_a_time
    def answers(self) -> Answers:
        """Return all answers so far, for any estimator; tasks without an answer are left out."""
        return self._ledger.answers()
