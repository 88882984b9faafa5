"""Campaign: answers that arrive over time, the estimates so far, and what to ask for next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from voxpop.collect.campaign.board import Board, Estimates, current_estimates, make_board
from voxpop.collect.campaign.changes import ChangingAnswers
from voxpop.collect.campaign.journal import (
    Journal,
    Record,
    campaign_records,
    create_journal,
    crowd_in,
    model_record,
    read_journal,
    write_journal,
)
from voxpop.collect.campaign.learned import LearnedNoise
from voxpop.collect.campaign.next_batch import Available, Batch, Rules, next_batch
from voxpop.collect.campaign.one_at_a_time import one_at_a_time
from voxpop.collect.campaign.posterior import CampaignPosterior, learn_noise
from voxpop.collect.planning.learn_crowd import LearnedCrowd
from voxpop.collect.tables import read_pairs
from voxpop.data.columns import resolve_column
from voxpop.data.ids import Positions, id_array
from voxpop.data.read import read_answers
from voxpop.data.tables import open_table
from voxpop.errors import ConfigError, DataError
from voxpop.estimators.aggregate import aggregate
from voxpop.estimators.auto.auto import Auto
from voxpop.models.model import Model
from voxpop.results.result import Result


class Campaign(ChangingAnswers):
    """Answers as they arrive, what is known at any time, and what to ask for next.

    With a model that is given, :meth:`result` equals that of ``BI`` with the model's levels and
    weights on the answers so far, whatever the order and batches in which they arrived. Learned
    from answers (:meth:`from_answers`, :meth:`relearn`), the noise model is that of the default,
    and :meth:`result` is :func:`voxpop.aggregate` of the answers so far.

    :meth:`next`, :meth:`board` and :meth:`estimates` are fast: what was learned about the noise
    stays as it is until the next :meth:`relearn`, and new answers only trigger updates of the
    messages that they change, on demand. Threads may share a campaign: its methods run one at a
    time.

    Parameters
    ----------
    model
        Levels, weights and dimension; or the result of :func:`voxpop.learn_crowd` on a pilot. A
        prior mean must be the same for all tasks.
    tasks
        Ids of all tasks, if known: tasks without an answer are asked for first.
    value_names
        Names of the coordinates.
    tol
        Tolerance of the messages, as probabilities.
    """

    @classmethod
    def from_answers(
        cls, answers: object, tasks: Iterable[Any] = (), *, estimator: Auto | None = None
    ) -> Campaign:
        """Learn the noise model from answers, and start with them.

        ``answers`` is a table, a path or :class:`Answers`; their gold is kept. ``estimator`` is the
        default with settings of your own, such as ``Auto(bounds=(0, 100))``.
        """
        read = read_answers(answers)
        unknown = Model(support=(1.0,), dimension=read.dimension)
        campaign = cls(unknown, tasks, value_names=read.value_names)
        campaign.add_table(read)
        campaign.relearn(estimator)
        return campaign

    # Learning

    @one_at_a_time
    def relearn(self, estimator: Auto | None = None) -> LearnedCrowd:
        """Fit all answers so far by the default, and use its noise model from then on.

        A prior that was given with a model is dropped, since the default learns its own.
        ``estimator`` is the default with settings of your own; they are kept for the next time.
        """
        posterior, result = learn_noise(
            self._ledger, estimator or self.estimator, self._posterior.tol
        )
        model, trust = posterior.model, posterior.trust
        with self._journal.recording(model_record(model, trust, posterior.noise)):
            self._posterior, self._result = posterior, result
        return LearnedCrowd(model, result.worker_posterior.sum(axis=0), trust)

    @one_at_a_time
    def adopt(self, noise: LearnedNoise, trust: float) -> None:
        """Use what a campaign in another process learned from (about) the same answers.

        Both must have added their tasks in the same order; this one may have more by now.
        """
        crowd = LearnedCrowd(noise.model, np.empty(0), trust)
        with self._journal.recording(model_record(noise.model, trust, noise)):
            self._posterior = CampaignPosterior(self._ledger, crowd, self._posterior.tol, noise)
            self._result = None

    # Current knowledge

    @property
    def noise(self) -> LearnedNoise | None:
        """What was learned about the noise beside the levels; None with a given model."""
        return self._posterior.noise

    @property
    def estimator(self) -> Auto:
        """The default as :meth:`relearn` calls it."""
        noise = self._posterior.noise
        return Auto() if noise is None else noise.auto

    @one_at_a_time
    def result(self) -> Result:
        """Return estimates, intervals and workers: the same as a fit of all answers so far.

        With a model that was given that is a fit by ``BI``, else by the default. That takes as
        long as :func:`voxpop.aggregate`, unless nothing has changed since it was last called;
        :meth:`estimates` are fast.
        """
        if self._posterior.noise is None:
            return self._posterior.result()
        if self._result is None:
            self._result = aggregate(self.answers(), self.estimator)
        return self._result

    @one_at_a_time
    def estimates(self) -> Estimates:
        """Return estimates of the tasks with answers, without a fit.

        They are those that :meth:`next` uses. Right after :meth:`relearn` they are the numbers of
        :meth:`result` to about three digits of the sds; later answers move them, while the learned
        noise stays as it is.
        """
        return current_estimates(self._posterior)

    @one_at_a_time
    def board(self, rules: Rules | None = None, *, depth: int = 8, as_of: int = 0) -> Board:
        """Return all tasks with what their next answers are expected to gain, to pick from.

        A board is small, can be saved and sent to another process, and picks tasks in
        microseconds. It expects answers from unknown workers.

        Parameters
        ----------
        rules
            ``half_width`` says which tasks are done, ``price`` and ``least_gain`` which are not
            worth an answer; the other rules are for the caller.
        depth
            How many further answers of a task are considered.
        as_of
            A number that identifies the board.
        """
        return make_board(self._posterior, rules or Rules(), depth, as_of)

    @one_at_a_time
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
        """Return the k answers that reduce the expected error most per unit of cost.

        Parameters
        ----------
        workers
            Ids of the available workers, or a table of them with optional columns ``price`` and
            ``capacity``. None: anyone may answer, with the noise of an average worker.
        rules
            Prices, limits and targets.
        pending
            Pairs (task, worker) already asked for but not yet answered: they are expected to
            arrive and are not asked for again. The worker may be None.
        forbidden
            Pairs (task, worker) that are not allowed.
        skip
            Tasks not to ask for.
        rng
            Breaks ties; the same generator gives the same batch.
        """
        rng = rng or np.random.default_rng(0)
        return next_batch(self._posterior, k, workers, rules, pending, forbidden, skip, rng)

    # Storage

    @one_at_a_time
    def save(self, path: str | Path) -> Path:
        """Write everything to a file, all or nothing; :meth:`load` reads it."""
        path = Path(path)
        # An open journal is already up to date.
        if not self._journal.writes_to(path):
            write_journal(path, self._records())
        return path

    @classmethod
    def load(cls, path: str | Path) -> Campaign:
        """Read a campaign that was saved, or one that is open elsewhere; the file is unchanged."""
        return _replay(read_journal(Path(path)), Path(path))

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: Model | LearnedCrowd | None = None,
        *,
        value_names: Sequence[str] | None = None,
    ) -> Campaign:
        """Open a campaign whose every answer is on the disk before ``add`` returns.

        A new file needs a model; an existing one contains its own. Use it with ``with``, or
        :meth:`close` it.
        """
        path = Path(path)
        if not path.exists():
            if model is None:
                raise ConfigError(f"{path}: there is no such campaign; a new one needs a model")
            create_journal(path, cls(model, value_names=value_names)._records())
        journal = Journal(path)
        try:
            campaign = _replay(journal.read(), path)
        except BaseException:
            journal.close()
            raise
        campaign._journal = journal
        return campaign

    def _records(self) -> Iterator[Record]:
        return campaign_records(self._ledger, self.model, self.trust, self._posterior.noise)

    @one_at_a_time
    def close(self) -> None:
        """Release the file of this campaign; further answers stay in memory."""
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @one_at_a_time
    def __repr__(self) -> str:
        ledger = self._ledger
        return (
            f"Campaign({ledger.n_edges} answers of {len(ledger.workers)} workers to "
            f"{int((ledger.of_task.size > 0).sum())} of {len(ledger.tasks)} tasks)"
        )


def _replay(records: list[Record], path: Path) -> Campaign:
    """Repeat the changes in the records of a journal."""
    try:
        crowd, noise = crowd_in(records)
        campaign = Campaign(crowd, value_names=records[0]["value_names"])
        for record in records:
            campaign.add_tasks(record.get("tasks", ()))
            if "gold" in record:
                gold = record["gold"]
                campaign.add_gold(dict(zip(gold["task"], gold["value"], strict=True)))
            if "answers" in record:
                campaign.add_many(**record["answers"])
            if "retracted" in record:
                for pair in zip(*record["retracted"].values(), strict=True):
                    campaign.retract(*pair)
        if noise is not None:
            tol = campaign._posterior.tol
            campaign._posterior = CampaignPosterior(campaign._ledger, crowd, tol, noise)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: is not a campaign of this version of voxpop: {error}") from None
    return campaign


def next_from_tables(
    campaign: Campaign,
    k: int,
    rng: np.random.Generator,
    *,
    tasks: object = None,
    workers: object = None,
    pending: object = None,
    forbidden: object = None,
    rules: Rules | None = None,
) -> Batch:
    """Do as :meth:`Campaign.next` does, with tables in place of lists.

    An id may be text in one table and a number in another: ids are matched by their text.

    Parameters
    ----------
    tasks
        A table with a column of all task ids. By default only tasks with answers are known.
    workers
        Ids of the available workers, or a table of them with optional columns ``price`` and
        ``capacity``. None: anyone may answer.
    pending, forbidden
        Tables of (task, worker) pairs: those already asked for, and those not allowed.
    """
    if tasks is not None:
        table = open_table(tasks)
        listed = table.ids(resolve_column(table, "task", None))[1]
        campaign.add_tasks(_match(listed.tolist(), campaign.task_ids))

    def pairs(source: object) -> list[tuple[Any, Any]]:
        task, worker = ([], []) if source is None else read_pairs(source)
        known = _match(task, campaign.task_ids), _match(worker, campaign.worker_ids)
        return list(zip(*known, strict=True))

    if workers is not None:
        available = Available.read(workers)
        workers = replace(available, ids=_match(available.ids, campaign.worker_ids))
    return campaign.next(
        k, workers, rules=rules, pending=pairs(pending), forbidden=pairs(forbidden), rng=rng
    )


def _match(listed: list[Any], known: list[Any]) -> list[Any]:
    """Write known ids as they are known, and new ones as given."""
    positions = Positions(id_array(known))
    return [i if (at := positions.get(i)) is None else known[at] for i in listed]
