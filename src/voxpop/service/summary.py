"""Summary: the state of a campaign at a glance, and its history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from voxpop.arrays import Floats, Index
from voxpop.collect.campaign import Board
from voxpop.collect.campaign.board import Estimates
from voxpop.service.published import finite

if TYPE_CHECKING:
    from voxpop.service.followed import Followed

# Points of the curve that are kept; then every second one goes.
_MOST_POINTS = 200
# The forecast of the dashboard: the effect of this many more answers.
_MORE = 100
_MOST_TO_FINISH = 10**7
# Tasks drawn to see how many would be done by even buying, fewer where each has many answers.
_DRAWN, _FEWEST_DRAWN, _MOST_ENTRIES = 4000, 200, 10**6


@dataclass
class History:
    """Points of the two charts, further and further apart.

    Each is (answers, tasks done, expected RMSE, that of even buying, tasks done by even buying). It
    lives as long as the process: it is only for display.
    """

    points: list[list[float | None]] = field(default_factory=list)
    _apart: int = 1

    def add(self, point: list[float | None]) -> None:
        """Add a point; one of as many answers as the last takes its place."""
        numbers = [float(one[0] or 0.0) for one in self.points[-2:]]
        now = float(point[0] or 0.0)
        # The last point is kept where it is far enough from the one before it, too.
        if numbers and (
            now == numbers[-1] or (len(numbers) > 1 and now - numbers[0] < self._apart)
        ):
            self.points.pop()
        self.points.append(point)
        if len(self.points) > _MOST_POINTS:
            self.points = self.points[::2]
            self._apart *= 2


def summarise(
    followed: Followed, board: Board, found: Estimates | None, now: float
) -> dict[str, Any]:
    """Make the summary."""
    learned = followed.learned
    n_answers, met = followed.campaign.n_answers, int(board.done.sum())
    n_done = followed.n_done + met
    # Expected RMSE of the tasks with answers, and that of as many answers bought evenly.
    errors = (None, None) if learned is None or found is None else found.rmse()
    expected, even = map(finite, errors)
    followed.history.add([n_answers, n_done, expected, even, _even_done(followed, board)])
    workers = learned.workers.values() if learned else ()
    return {
        "seq": followed.seq,
        "at": now,
        "n_tasks": followed.n_real_tasks,
        "n_done": n_done,
        "n_answers": n_answers,
        "n_workers": followed.n_workers,
        "expected_rmse": expected,
        "even_rmse": even,
        "stop": _stop(followed, n_done),
        "coverage": learned.coverage if learned else "",
        "ready": _n_ready(followed, board),
        "need_a_look": len(learned.looks) if learned else 0,
        "workers_to_talk_to": sum(bool(one["flags"]) for one in workers),
        "model": _model(followed),
        "next": _next(followed, board, found, expected),
        "answers_to_finish": _to_finish(followed, board),
        "learned_answers": followed.n_learned if learned else 0,
        "history": followed.history.points,
    }


def _n_ready(followed: Followed, board: Board) -> int:
    """Count ready tasks: no reason to look at them, and done where there is a stop rule."""
    learned, rules = followed.learned, followed.rules
    if learned is None:
        return 0
    if rules.half_width is None and rules.answers_per_task is None:
        return learned.n_ready
    done = followed.closed - followed.withdrawn | set(board.task[board.done].tolist())
    return len(done - learned.looks.keys() - followed.gold.keys())


def _model(followed: Followed) -> str:
    learned = followed.learned
    if learned is None and followed.failed:
        return (
            "the noise of the workers could not be learned, so all have equal weight; look for "
            "answers far from all others, such as typing errors"
        )
    if learned is None:
        return (
            "all workers have equal weight until 50 tasks, or half of those with answers, have two "
            "answers; until then, tasks with the fewest answers come first"
        )
    since = " (the last fit, of all answers, failed)" if followed.failed else ""
    return f"learned from {followed.n_learned} answers{since}: {learned.model}"


def _stop(followed: Followed, n_done: int) -> str:
    rules = followed.rules
    if followed.n_real_tasks and n_done >= followed.n_real_tasks:
        return "every task is done"
    if rules.half_width is None:
        return (
            "no target: the campaign goes on until its budget or its answers per task are reached"
        )
    if not followed.may_stop:
        return (
            f"a task is done at ± {rules.half_width:g}, but none before there are three answers "
            "per task on average"
        )
    return (
        f"a task is done when its 95 % interval of agreement is ± {rules.half_width:g} or narrower"
    )


def _next(
    followed: Followed, board: Board, found: Estimates | None, expected: float | None
) -> dict[str, Any]:
    """The effect of the next answers: the number of tasks they go to, and the RMSE after them."""
    none = {"n_answers": _MORE, "rmse_after": None, "tasks": 0}
    if followed.learned is None or found is None or not len(board.order):
        return none
    skip = followed.closed.union(board.task[board.done].tolist())
    batch = followed.campaign.next(_MORE, skip=skip)
    none["tasks"] = len(set(batch.task.tolist()))
    # Nobody knows how far off the first answer to a task is.
    if expected is None or not len(batch) or not np.isfinite(batch.gain).all():
        return none
    left = (batch.rmse_after / batch.rmse) ** 2
    # An error that all workers share stays.
    agreed = float(found.agreement_variance[found.posterior.variance.max(axis=1) > 0].mean())
    after = np.sqrt(max(expected**2 + (left - 1.0) * agreed, 0.0))
    if not np.isfinite(after):
        return none
    return {"n_answers": len(batch), "rmse_after": float(after), "tasks": none["tasks"]}


def _even_done(followed: Followed, board: Board) -> float | None:
    """Tasks that would be done if as many answers had been bought evenly, of workers as they came.

    None without a rule by which a task is done.
    """
    rules, n_tasks = followed.rules, followed.n_real_tasks
    if not n_tasks or (rules.half_width is None and rules.answers_per_task is None):
        return None
    task, worker = np.array(followed.pairs(), np.int64).reshape(-1, 2).T
    real = ~np.isin(task, list(followed.gold))
    task, worker = task[real], worker[real]
    each = len(task) / n_tasks
    rng = np.random.default_rng(0)
    n_drawn = max(_FEWEST_DRAWN, min(_DRAWN, int(_MOST_ENTRIES / (each + 1))))
    count = int(each) + (rng.random(n_drawn) < each % 1)
    done = np.zeros(n_drawn, dtype=bool)
    if rules.answers_per_task is not None:
        done |= count >= rules.answers_per_task
    if rules.half_width is not None and followed.may_stop and len(task):
        precision = _precision(followed, worker)
        drawn = precision[rng.integers(len(task), size=(n_drawn, int(count.max())))]
        even = np.where(np.arange(drawn.shape[1]) < count[:, None], drawn, 0.0).sum(axis=1)
        unit = _squares_of_units(board, task, precision)
        if len(unit):
            done |= even * rules.half_width**2 >= rng.choice(unit, n_drawn)
    return float(n_tasks * done.mean())


def _precision(followed: Followed, worker: Index) -> Floats:
    """What each answer counts, by the noise of its worker; of new workers like that of others."""
    assert followed.learned is not None
    known, row = np.unique(worker, return_inverse=True)
    found = [followed.learned.workers.get(str(u), {}).get("noise_sd") or np.nan for u in known]
    by_worker = 1.0 / np.array(found, dtype=float) ** 2
    unknown = ~np.isfinite(by_worker)
    by_worker[unknown] = 1.0 if unknown.all() else np.median(by_worker[~unknown])
    return np.asarray(by_worker[row])


def _squares_of_units(board: Board, task: Index, precision: Floats) -> Floats:
    """Squares of the half-widths that tasks would have with answers of precision 1 in all."""
    answered, row = np.unique(task, return_inverse=True)
    total = np.bincount(row, precision)
    by_id = np.argsort(board.task)
    half = board.half_width[by_id[np.searchsorted(board.task, answered, sorter=by_id)]]
    known = np.isfinite(half)
    return np.asarray((half**2 * total)[known])


def _to_finish(followed: Followed, board: Board) -> float | None:
    """Answers until every task is done, of what its width and its number of answers ask for.

    None while that is not known, and where no rule ends a task.
    """
    rules, tasks = followed.rules, board.task[board.order].tolist()
    wanted = []
    if rules.answers_per_task is not None:
        wanted.append(np.array([rules.answers_per_task - followed.n_of(i) for i in tasks]))
    if rules.half_width is not None and followed.learned is not None:
        wanted.append(_to_width(followed, board, rules.half_width))
    if not wanted or (rules.half_width is not None and followed.learned is None):
        return None
    total = float(np.ceil(np.maximum(np.min(wanted, axis=0), 0.0)).sum())
    return total if np.isfinite(total) and total < _MOST_TO_FINISH else None


def _to_width(followed: Followed, board: Board, target: float) -> Floats:
    """Answers that tasks need to meet the target: half-widths fall like the root of the number."""
    half = board.half_width[board.order]
    model = followed.campaign.model
    one = 1.96 * float(np.sqrt(1.0 / (np.array(model.weights) @ (1.0 / model.levels))))
    # Missing precision, divided by the precision that a typical answer adds.
    lacking = 1.0 / target**2 - np.where(np.isfinite(half), 1.0 / half**2, 0.0)
    return np.asarray(np.maximum(lacking, 0.0) * one**2)
