"""Board: tasks of a campaign by the gain of their next answers, to pick from in microseconds."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids, Index
from voxpop.collect.campaign.next_batch import Rules
from voxpop.collect.campaign.posterior import SELECTION_TOL, CampaignPosterior
from voxpop.collect.campaign.selection import ExpectedVariance
from voxpop.data.ids import id_array
from voxpop.data.output import replacing
from voxpop.errors import DataError, require, shorten
from voxpop.inference.kernels.posterior import Posterior
from voxpop.results.value_of_answer import value_of_answer

# An answer is worth at most this many of an average worker.
_MOST_WORTH = 16


@dataclass(frozen=True, eq=False)
class Estimates:
    """What a campaign knows about its tasks without a fit; arrays follow ``task_ids``.

    Attributes
    ----------
    task_ids, task_answers
        Tasks with answers, and how many.
    posterior
        Estimate, variance (n, d) and quantiles of the truths at 2.5, 5, 95 and 97.5 %.
    agreement_variance
        Variance of what the crowd would agree on (n, d); an error that all share is not part of it.
    even_ratio
        The same on average with as many answers bought evenly, divided by the actual one; NaN
        before there are as many answers as tasks.
    """

    task_ids: Ids
    task_answers: Index
    posterior: Posterior
    agreement_variance: Floats
    even_ratio: float

    @property
    def estimate(self) -> Floats:
        """Estimates (n, d)."""
        return self.posterior.estimate

    @property
    def sd(self) -> Floats:
        """Their standard deviations (n, d)."""
        return np.sqrt(self.posterior.variance)

    def rmse(self) -> tuple[float, float]:
        """Expected RMSE of a coordinate of the tasks that are not gold, and that of even buying."""
        unknown = self.posterior.variance.max(axis=1) > 0
        if not unknown.any():
            return np.nan, np.nan
        now = float(self.posterior.variance[unknown].mean())
        agreed = float(self.agreement_variance[unknown].mean())
        return np.sqrt(now), np.sqrt(max(now + (self.even_ratio - 1.0) * agreed, 0.0))

    def interval(self) -> tuple[Floats, Floats]:
        """Bounds of the 95 % intervals, each (n, d)."""
        return self.posterior.quantile[:, :, 0], self.posterior.quantile[:, :, -1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Board:
    """Tasks, and the expected gains of their next answers; made by :meth:`voxpop.Campaign.board`.

    Attributes
    ----------
    task
        Ids of all tasks.
    gain
        Expected reduction of the variance of the truth by the 1st, 2nd … further answer of an
        unknown worker (n, m), on the scale of the noise; infinite for the first answer under a flat
        prior.
    half_width
        Half-width (n,) of the 95 % interval of what the crowd would agree on.
    done
        Tasks that need no more answers (n,): the target is reached, or the truth is known.
    order
        Rows of the tasks worth asking for, the largest gain per cost first.
    worker, worth
        Workers who have answered, and how many answers of an average worker one of theirs is worth.
    as_of
        The number given when it was made.
    """

    task: Ids
    gain: NDArray[np.float32]
    half_width: Floats
    done: NDArray[np.bool_]
    order: Index
    worker: Ids
    worth: Floats
    as_of: int = 0

    def pick(
        self,
        n: int = 1,
        exclude: Collection[Any] = (),
        offered: Mapping[Any, float] | None = None,
    ) -> list[Any]:
        """Return up to n different tasks, best first.

        Parameters
        ----------
        exclude
            Tasks not to return, such as those that a worker has had; a set is fast.
        offered
            How many answers of a task were asked for since the board was made, whether they have
            come or not: the task is ranked by the gain of the answer after these. An answer of a
            known worker counts as :meth:`worth_of` says.
        """
        barred = exclude if isinstance(exclude, set | frozenset | dict) else set(exclude)
        counts = {} if offered is None else offered
        tasks, first = self._ids, self._column(0)
        picked: list[Any] = []
        # Tasks that were offered wait here; the answer after an offer gains less than the first.
        waiting: list[tuple[float, int]] = []
        for place, task in enumerate(tasks):
            while waiting and len(picked) < n and -waiting[0][0] > first[place]:
                picked.append(tasks[heappop(waiting)[1]])
            if len(picked) >= n:
                return picked
            if task in barred:
                continue
            count = counts.get(task, 0)
            if count:
                heappush(waiting, (-self._later(place, count), place))
            else:
                picked.append(task)
        while waiting and len(picked) < n:
            picked.append(tasks[heappop(waiting)[1]])
        return picked

    def worth_of(self, worker: object) -> float:
        """How many answers of an average worker one of this worker is worth; 1 for a new one."""
        return self._worths.get(worker, 1.0)

    @cached_property
    def _worths(self) -> dict[Any, float]:
        return dict(zip(self.worker.tolist(), self.worth.tolist(), strict=True))

    def best(
        self, n: int = 1, offered: Mapping[Any, float] | None = None
    ) -> list[tuple[Any, float]]:
        """Return what :meth:`pick` returns for a worker who has had no task, with the gains."""
        counts = {} if offered is None else offered
        tasks = self.pick(n, (), counts)
        return [(task, self._later(self._place[task], counts.get(task, 0))) for task in tasks]

    def done_tasks(self) -> list[Any]:
        """Return the tasks that are done."""
        found: list[Any] = self.task[self.done].tolist()
        return found

    def _later(self, place: int, count: float) -> float:
        """Gain of the answer after ``count`` others; beyond the last known, as 1 / number²."""
        last = self.gain.shape[1] - 1
        if count >= last:
            return float(self._column(last)[place] * ((last + 1) / (count + 1)) ** 2)
        below = int(count)
        part, low = count - below, self._column(below)[place]
        if not part:
            return float(low)
        high = self._column(below + 1)[place]
        # If the first gain is infinite, the gains after the answer are compared.
        return float(high if low == np.inf else low + part * (high - low))

    def _column(self, number: int) -> list[float]:
        """Gains by the answer after ``number`` others, in the order of the tasks."""
        if number not in self._columns:
            self._columns[number] = self.gain[self.order, number].tolist()
        return self._columns[number]

    @cached_property
    def _columns(self) -> dict[int, list[float]]:
        return {}

    @cached_property
    def _ids(self) -> list[Any]:
        """Ids of the tasks in their order."""
        found: list[Any] = self.task[self.order].tolist()
        return found

    @cached_property
    def _place(self) -> dict[Any, int]:
        """Place of each id in the order."""
        return {task: place for place, task in enumerate(self._ids)}

    def __len__(self) -> int:
        return len(self.task)

    def __repr__(self) -> str:
        return f"Board({len(self)} tasks, {int(self.done.sum())} done, as of {self.as_of})"

    def to_bytes(self) -> bytes:
        """Return the board as the content of an ``.npz`` file; ids are all numbers or all text."""
        parts: dict[str, Any] = {part.name: getattr(self, part.name) for part in fields(self)}
        parts |= {name: _plain(getattr(self, name)) for name in ("task", "worker")}
        file = io.BytesIO()
        np.savez(file, **parts)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Board:
        """Undo :meth:`to_bytes`."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as found:
                parts: dict[str, Any] = {part.name: found[part.name] for part in fields(cls)}
        except (ValueError, KeyError, OSError, EOFError) as error:
            raise DataError(f"is not a board of this version of voxpop: {error}") from None
        for name in ("task", "worker"):
            if parts[name].dtype.kind == "U":
                parts[name] = id_array(parts[name].tolist())
        return cls(**{**parts, "as_of": int(parts["as_of"])})

    def save(self, path: str | Path) -> Path:
        """Write the board to an ``.npz`` file, all or nothing; :meth:`load` reads it."""
        path, content = Path(path), self.to_bytes()
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Board:
        """Read what :meth:`save` wrote."""
        path = Path(path)
        try:
            return cls.from_bytes(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
        except DataError as error:
            raise DataError(f"{path}: {error}") from None


def _plain(ids: Ids) -> Ids:
    """Ids as a file holds them."""
    if ids.dtype != object:
        return ids
    strange = [i for i in ids.tolist() if not isinstance(i, str)]
    if strange:
        raise DataError(
            "ids of a board that is kept in a file must be all numbers or all text, "
            f"got {shorten(strange)}"
        )
    return ids.astype(str)


def current_estimates(posterior: CampaignPosterior) -> Estimates:
    """Collect what is known about the tasks; see :meth:`voxpop.Campaign.estimates`."""
    tasks, truth, agreed = posterior.truths()
    ids, size = list(posterior.ledger.tasks), posterior.ledger.of_task.size[tasks]
    known = id_array([ids[i] for i in tasks.tolist()])
    return Estimates(known, size, truth, agreed.variance, posterior.even_ratio())


def make_board(posterior: CampaignPosterior, rules: Rules, depth: int, as_of: int) -> Board:
    """Lay out all tasks; see :meth:`voxpop.Campaign.board`."""
    require(depth >= 1, f"depth must be at least 1, got {depth}")
    posterior.update(SELECTION_TOL)
    ledger, model = posterior.ledger, posterior.model
    expected = ExpectedVariance(model.levels, posterior.beliefs(()), model.dimension)
    steps = [posterior.variances()]
    for _ in range(depth):
        steps.append(expected.after_all(0, steps[-1]))
    path = np.stack(steps, axis=1)
    gain = np.where(np.isinf(path[:, :1]) & (np.arange(depth) == 0), np.inf, 0.0)
    finite = np.isfinite(path[:, :-1])
    np.subtract(path[:, :-1], path[:, 1:], out=gain, where=finite)
    done, half_width = ledger.is_gold, posterior.half_widths().copy()
    if rules.half_width is not None:
        done = done | (half_width <= rules.half_width)
    least = rules.price * rules.least_gain * max(1, int((~ledger.is_gold).sum()))
    open_rows = np.flatnonzero(~done & (gain[:, 0] >= least))
    order = open_rows[np.argsort(-gain[open_rows, 0], kind="stable")]
    return Board(
        task=id_array(list(ledger.tasks)),
        worker=id_array(list(ledger.workers)),
        worth=_worths(posterior, expected, path[open_rows, 0]),
        gain=gain.astype(np.float32),
        half_width=half_width,
        done=done,
        order=order,
        as_of=as_of,
    )


def _worths(posterior: CampaignPosterior, expected: ExpectedVariance, variance: Floats) -> Floats:
    """How many average answers to a median task are worth one answer of each worker.

    For a very noisy worker it is almost zero: such an answer changes the task little.
    """
    model, known = posterior.model, variance[np.isfinite(variance)]
    workers = list(posterior.ledger.workers)
    if not len(known) or len(model.support) == 1 or not workers:
        return np.ones(len(workers))
    path = [np.median(known, keepdims=True)]
    for _ in range(_MOST_WORTH):
        path.append(expected.after_all(0, path[-1]))
    left = value_of_answer(path[0], posterior.beliefs(workers)[:-1], model.levels, model.dimension)
    number = np.arange(_MOST_WORTH + 1.0)
    return np.asarray(np.interp(-left[1][0], -np.concatenate(path), number))
