"""Campaign: answers that come one by one, what is known at any time, and what to ask for next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from voxpop.arrays import Floats
from voxpop.collect.campaign.batch import Batch as Batch
from voxpop.collect.campaign.batch import Rules as Rules
from voxpop.collect.campaign.gain import hedged
from voxpop.collect.campaign.journal import (
    Journal,
    Record,
    check_ids,
    create_journal,
    read_journal,
    write_journal,
)
from voxpop.collect.campaign.ledger import Growing, Ledger, plain
from voxpop.collect.campaign.messages import Messages
from voxpop.collect.campaign.offers import Standing, Wishes, next_batch
from voxpop.collect.campaign.records import ids_in, last_model, model_record, records_of
from voxpop.collect.planning.learn_crowd import LearnedCrowd, learn_crowd
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.errors import DataError, require, shorten
from voxpop.estimators.make_result import make_result, worker_noise
from voxpop.inference.engine import Engine
from voxpop.models.model import Model
from voxpop.results.result import PROBABILITIES, Result

# Choosing needs no more digits of the beliefs than this, as probabilities; a result starts over.
_ROUGH = 1e-3
_INTERVAL = np.array([0.025, 0.975])


class Campaign:
    """Answers as they come, and what BI makes of them, kept up to date.

    The noise model is fixed: given, or learned from the first answers (:meth:`from_answers`), until
    :meth:`relearn` is called. What is known after any answers is what ``BI`` with the model's
    levels and weights finds in them, in whatever order and batches they came; after new answers
    only those messages are worked out again that move, and not before something is asked.

    Parameters
    ----------
    model
        Levels, weights and dimension; or what :func:`voxpop.learn_crowd` found in a pilot. A prior
        mean is one for all tasks.
    tasks
        Ids of all tasks, where known: those without an answer are asked for first.
    value_names
        Names of the coordinates.
    tol
        Change of a message, as a probability, below which it counts as settled.
    """

    def __init__(
        self,
        model: Model | LearnedCrowd,
        tasks: Iterable[Any] = (),
        *,
        value_names: Sequence[str] | None = None,
        tol: float = 1e-8,
    ) -> None:
        self._trust = model.trust if isinstance(model, LearnedCrowd) else 1.0
        model = model.model if isinstance(model, LearnedCrowd) else model
        names = tuple(value_names or _names(model.dimension))
        require(
            len(names) == model.dimension,
            f"value_names must name {model.dimension} coordinates, got {len(names)}",
        )
        require(
            np.asarray(model.prior_mean).ndim < 2,
            "a campaign takes one prior_mean for all tasks, not one for each",
        )
        require(tol > 0, f"tol must be positive, got {tol}")
        self._model, self._tol = model, tol
        self._ledger = Ledger(model.dimension, names)
        self._journal: Journal | None = None
        self._torn = False
        self._begin()
        self.add_tasks(tasks)

    def _begin(self) -> None:
        """Start with flat messages."""
        self._messages = Messages(self._ledger, self._model, Engine(), self._tol)
        prior = self._model.prior_variance
        self._variance = Growing(np.float64, (), prior)
        self._half_width = Growing(np.float64, (), float(ndtri(0.975) * np.sqrt(prior)))
        self._stale = Growing(np.bool_)
        self._messages.touch(np.unique(self._ledger.task).astype(np.int64))

    @classmethod
    def from_answers(cls, answers: object, tasks: Iterable[Any] = ()) -> Campaign:
        """Learn the noise model from some answers, and begin with them.

        ``answers`` is a table, a path or :class:`Answers`; their gold is kept.
        """
        read = answers if isinstance(answers, Answers) else read_answers(answers)
        campaign = cls(learn_crowd(read), tasks, value_names=read.value_names)
        campaign.add_table(read)
        return campaign

    # Answers in

    def add(self, task: object, worker: object, value: ArrayLike) -> None:
        """Add one answer. It counts when this returns; sent again with the same value, once."""
        self.add_many([task], [worker], np.reshape(np.asarray(value, dtype=np.float64), (1, -1)))

    def add_many(self, task: Sequence[Any], worker: Sequence[Any], value: ArrayLike) -> int:
        """Add answers from three parallel columns, all or none; return how many were new."""
        try:
            values = np.array(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("values must be numbers, or vectors of equally many numbers") from None
        values = values[:, None] if values.ndim == 1 else values
        tasks, workers = [plain(i) for i in task], [plain(u) for u in worker]
        fresh = self._ledger.fresh(tasks, workers, values)
        if not len(fresh):
            return 0
        tasks, workers = [tasks[row] for row in fresh], [workers[row] for row in fresh]
        values = values[fresh]
        record = {"answers": {"task": tasks, "worker": workers, "value": values.tolist()}}
        with self._writing(record):
            self._messages.touch(self._ledger.append(tasks, workers, values))
        return len(fresh)

    def add_table(self, source: object) -> int:
        """Add the answers of a table, a path or :class:`Answers`; return how many were new."""
        read = source if isinstance(source, Answers) else read_answers(source)
        added = self.add_many(
            read.task_ids[read.task].tolist(), read.worker_ids[read.worker].tolist(), read.value
        )
        if read.gold is not None:
            known = np.flatnonzero(read.is_gold)
            self.add_gold(dict(zip(read.task_ids[known].tolist(), read.gold[known], strict=True)))
        return added

    def add_tasks(self, tasks: Iterable[Any]) -> None:
        """Make tasks known that have no answer yet."""
        ids = [plain(i) for i in tasks]
        new = [i for i in dict.fromkeys(ids) if self._ledger.tasks.find(i) is None]
        if new:
            with self._writing({"tasks": new}):
                self._ledger.add_tasks(new)

    def add_gold(self, gold: Mapping[Any, ArrayLike]) -> None:
        """Say the truth of some tasks: what is answered there tells of the workers alone."""
        ids = [plain(i) for i in gold]
        truth = np.array([np.reshape(item, -1) for item in gold.values()], dtype=np.float64)
        d = self._model.dimension
        if truth.shape != (len(ids), d) or not np.isfinite(truth).all():
            raise DataError(f"gold must be {d} finite numbers for each task, got {shorten(ids)}")
        with self._writing({"gold": {"task": ids, "value": truth.tolist()}}):
            self._ledger.set_gold(ids, truth)
            self._messages.touch(self._ledger.tasks.numbers(ids))

    def relearn(self) -> LearnedCrowd:
        """Learn the noise model anew from all answers so far; what was known is forgotten."""
        found = learn_crowd(self.answers())
        model = replace(
            found.model,
            prior_mean=self._model.prior_mean,
            prior_variance=self._model.prior_variance,
        )
        with self._writing(model_record(model, found.trust)):
            self._model, self._trust = model, found.trust
            self._begin()
        return found

    # What is known

    @property
    def model(self) -> Model:
        """The noise model."""
        return self._model

    @property
    def trust(self) -> float:
        """How far answers bear out what was learned of workers, from 0 to 1; 1 if it was stated."""
        return self._trust

    @property
    def n_answers(self) -> int:
        """Number of answers so far."""
        return self._ledger.n_edges

    @property
    def task_ids(self) -> list[Any]:
        """Ids of all tasks."""
        return self._ledger.tasks.ids

    @property
    def worker_ids(self) -> list[Any]:
        """Ids of all workers who have answered."""
        return self._ledger.workers.ids

    def answers(self) -> Answers:
        """Return all answers so far, for any estimator; tasks without an answer are left out."""
        return self._ledger.answers()

    def result(self) -> Result:
        """Return estimates, intervals and workers: what a fit of all answers so far finds."""
        self._messages.start_over()
        self._settle(self._tol)
        answers = self.answers()
        tasks = np.flatnonzero(self._ledger.of_task.size > 0)
        found = self._messages.moments(tasks, PROBABILITIES)
        workers = worker_noise(self._messages.belief(), self._model)
        settings = {
            "method": "bi",
            "support_used": list(self._model.support),
            "weights_used": list(self._model.weights or ()),
        }
        return make_result(answers, settings, found, workers)

    def next(
        self,
        k: int = 1,
        workers: object = None,
        *,
        rules: Rules | None = None,
        pending: Iterable[tuple[Any, Any]] = (),
        forbidden: Iterable[tuple[Any, Any]] = (),
        skip: Iterable[Any] = (),
        rng: np.random.Generator | None = None,
    ) -> Batch:
        """Return the k answers that lower the expected error most per price.

        Parameters
        ----------
        workers
            Ids of those who are there; or a table of them, perhaps with columns ``price`` and
            ``capacity``. None: tasks for whoever comes, as good as the crowd on average.
        rules
            Prices, limits and targets.
        pending
            Pairs (task, worker) that were asked for and have not been answered: they are counted
            on, and not asked for again. The worker may be None.
        forbidden
            Pairs (task, worker) that must not be.
        skip
            Tasks not to ask for.
        rng
            Breaks ties; the same generator gives the same batch.
        """
        require(k >= 1, f"k must be at least 1, got {k}")
        self._settle(_ROUGH)
        rules = rules or Rules()
        standing = Standing(
            ledger=self._ledger,
            model=self._model,
            belief=self._messages.belief(),
            variance=hedged(self._variance.rows, self._ledger.of_task.size, self._trust),
            trust=self._trust,
            half_width=None if rules.half_width is None else self._half_widths(),
        )
        wishes = Wishes(rules, list(pending), list(forbidden), list(skip))
        return next_batch(standing, k, workers, wishes, rng or np.random.default_rng(0))

    def _settle(self, tol: float) -> None:
        moved = self._messages.settle(tol)
        ledger = self._ledger
        self._variance.grow(len(ledger.tasks))
        self._half_width.grow(len(ledger.tasks))
        self._stale.grow(len(ledger.tasks))
        moved = moved[ledger.of_task.size[moved] > 0]
        if len(moved):
            found = self._messages.moments(moved, np.array([0.5]))
            self._variance.rows[moved] = found.variance.mean(axis=1)
            self._stale.rows[moved] = True
        self._variance.rows[~np.isnan(ledger.gold[:, 0])] = 0.0

    def _half_widths(self) -> Floats:
        """Half of every task's 95 % interval; quantiles are slow, so not before it is asked for."""
        tasks = np.flatnonzero(self._stale.rows)
        if len(tasks):
            interval = self._messages.moments(tasks, _INTERVAL).quantile
            self._half_width.rows[tasks] = np.ptp(interval, axis=2).max(axis=1) / 2.0
            self._stale.rows[tasks] = False
        return np.asarray(self._half_width.rows)

    # Kept in a file

    def save(self, path: str | Path) -> Path:
        """Write everything to a file, all or nothing; :meth:`load` gives it back."""
        path = Path(path)
        if self._journal is not None and path.exists() and path.samefile(self._journal.path):
            return path  # every answer is there already
        write_journal(path, self._records())
        return path

    @classmethod
    def load(cls, path: str | Path) -> Campaign:
        """Read a campaign that was saved, or one that is open elsewhere; changes nothing there."""
        return cls._replay(read_journal(Path(path)))

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: Model | LearnedCrowd | None = None,
        *,
        value_names: Sequence[str] | None = None,
    ) -> Campaign:
        """Open a campaign whose every answer is on the disk before ``add`` returns.

        A new file needs a model; one that is there has its own. Use it with ``with``, or
        :meth:`close` it.
        """
        path = Path(path)
        if not path.exists():
            require(
                model is not None, f"{path}: there is no such campaign; a new one needs a model"
            )
            assert model is not None
            create_journal(path, cls(model, value_names=value_names)._records())
        journal = Journal(path)
        try:
            campaign = cls._replay(journal.records)
        except BaseException:
            journal.close()
            raise
        journal.records.clear()
        campaign._journal = journal
        return campaign

    def close(self) -> None:
        """Let others open the file of this campaign; further answers stay in memory."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _writing(self, record: Record) -> Iterator[None]:
        """Write a record, then let memory follow; whoever is interrupted between has to reopen."""
        require(not self._torn, "this campaign was interrupted in a change; open or load it again")
        if self._journal is not None:
            check_ids(ids_in(record))
            self._journal.append(record)
        try:
            yield
        except BaseException:
            self._torn = True
            self.close()
            raise

    def _records(self) -> Iterator[Record]:
        return records_of(self._ledger, self._model, self._trust)

    @classmethod
    def _replay(cls, records: list[Record]) -> Campaign:
        """Do again what the records say."""
        model, trust = last_model(records)
        campaign = cls(model, value_names=records[0]["value_names"])
        campaign._trust = trust
        for record in records:
            if "tasks" in record:
                campaign.add_tasks(record["tasks"])
            elif "gold" in record:
                gold = record["gold"]
                campaign.add_gold(dict(zip(gold["task"], gold["value"], strict=True)))
            elif "answers" in record:
                campaign.add_many(**record["answers"])
        return campaign

    def __repr__(self) -> str:
        ledger = self._ledger
        return (
            f"Campaign({ledger.n_edges} answers of {len(ledger.workers)} workers to "
            f"{int((ledger.of_task.size > 0).sum())} of {len(ledger.tasks)} tasks)"
        )


def _names(dimension: int) -> tuple[str, ...]:
    return ("value",) if dimension == 1 else tuple(f"value_{j + 1}" for j in range(dimension))
