"""Removing: what the estimates would be without some workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import Answers
from voxpop.data.tables import finite, frame
from voxpop.errors import require, shorten
from voxpop.results.result import Result

if TYPE_CHECKING:  # the caller brings the estimator
    from voxpop.estimators.base import Estimator


@dataclass(frozen=True, eq=False, kw_only=True)
class EffectOfRemoving:
    """Two fits side by side: with all workers, and without some.

    Attributes
    ----------
    removed
        Ids of the workers left out.
    before, after
        The results with all workers and without these.
    task_ids
        The tasks that both have, in the order of ``after``.
    change
        How far their estimates move, shape (tasks, dimension).
    change_in_sd
        The same in units of the sd that the estimate had before.
    left_without_answers
        Ids of the tasks that only the removed workers answered; they are in ``before`` alone.
    """

    removed: Ids
    before: Result
    after: Result
    task_ids: Ids
    change: Floats
    change_in_sd: Floats
    left_without_answers: Ids

    @property
    def largest(self) -> float:
        """Largest change of any estimate, in sd."""
        return float(np.abs(self.change_in_sd).max())

    @property
    def typical(self) -> float:
        """Median change of an estimate, in sd."""
        return float(np.median(np.abs(self.change_in_sd)))

    @property
    def tasks(self) -> Any:
        """Data frame: task, and of every value the estimate before, after, and the change in sd."""
        columns: dict[str, object] = {"task": self.task_ids}
        place = {identity: i for i, identity in enumerate(self.before.task_ids.tolist())}
        kept = [place[identity] for identity in self.task_ids.tolist()]
        for j, name in enumerate(self.after.value_names):
            columns[f"{name}_before"] = self.before.estimate[kept, j]
            columns[f"{name}_after"] = self.after.estimate[:, j]
            columns[f"{name}_change_in_sd"] = self.change_in_sd[:, j]
        return frame(columns, self.after.frame_kind)

    def summary(self) -> str:
        """Say in a sentence what changes."""
        where = int(np.abs(self.change_in_sd).max(axis=1).argmax())
        moved = (
            f"without {shorten(self.removed)}, half of the estimates move by less than "
            f"{self.typical:.2g} sd, and none by more than {self.largest:.2g} sd "
            f"(task {shorten(self.task_ids[where : where + 1])})"
        )
        left = shorten(self.left_without_answers)
        return f"{moved}; left without any answer: task {left}" if left else moved

    def to_dict(self) -> dict[str, Any]:
        """The changes as plain numbers; an infinite change (the sd was 0) is None."""
        numbers = {"typical_change_in_sd": self.typical, "largest_change_in_sd": self.largest}
        left = self.left_without_answers.tolist()
        return {"removed": self.removed.tolist(), **finite(numbers), "left_without_answers": left}

    def __repr__(self) -> str:
        return f"EffectOfRemoving({self.summary()})"


def effect_of_removing(
    answers: Answers,
    estimator: Estimator,
    workers: Iterable[object],
    *,
    before: Result | None = None,
) -> EffectOfRemoving:
    """Fit again without some workers, given by their ids, and say how far the estimates move.

    Large changes mean that the workers matter, not that the estimates improve: to see that, use
    gold, or look at the tasks that move most. ``before`` is the estimator's result on all the
    answers, if you have it already.
    """
    known = {identity: u for u, identity in enumerate(answers.worker_ids.tolist())}
    named = list(dict.fromkeys(workers))
    unknown = [worker for worker in named if worker not in known]
    require(
        bool(named) and not unknown,
        f"workers must be ids of workers who answered, got {shorten(unknown) or 'none'}",
    )
    removed = np.zeros(answers.n_workers, dtype=bool)
    removed[[known[worker] for worker in named]] = True
    require(not removed.all(), "all workers would be removed; leave some to fit")
    edges = ~removed[answers.worker]
    fewer, kept = answers.select(edges), np.unique(answers.task[edges])
    before = estimator.fit(answers) if before is None else before
    after = estimator.fit(fewer)
    change = before.scale.difference(after.estimate, before.estimate[kept])
    sd = before.sd[kept]
    # A known truth, gold, has no sd and does not move.
    in_sd = np.divide(change, sd, out=np.where(change == 0, 0.0, np.inf), where=sd > 0)
    return EffectOfRemoving(
        removed=answers.worker_ids[removed],
        before=before,
        after=after,
        task_ids=fewer.task_ids,
        change=change,
        change_in_sd=in_sd,
        left_without_answers=np.delete(answers.task_ids, kept),
    )
