"""Auto: compare noise models by how well they predict left-out answers, and take what is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from voxpop.data.answers import Answers
from voxpop.data.sums import sum_by_task
from voxpop.estimators.auto.compare import Contest, usable_answers
from voxpop.estimators.base import Estimator, OnSweep, plain_settings
from voxpop.estimators.baselines.averages import Average
from voxpop.estimators.bi.bi import BI, Support
from voxpop.estimators.bi.fitted import noisy_result
from voxpop.estimators.bi.noise_fit import NoisyFit
from voxpop.estimators.conformal import widen_by_gold
from voxpop.inference.engine import Engine
from voxpop.models.noise import Noise
from voxpop.results.calibration import Calibration
from voxpop.results.result import Result

# What the winner's settings say that the result's go on saying.
_KEPT = ("support_used", "weights_used", "inference_used", "columns")


@dataclass(frozen=True, kw_only=True)
class Auto(Estimator):
    """Fit several noise models, and keep the one that the answers themselves show to be best.

    Each candidate predicts every answer from the others. Out go those that predict worse, in
    squared error, than the best by more than chance (over workers and tasks, all comparisons taken
    together), or worse than mean or median once all workers count alike: agreement is then no sign
    of being right. Of the rest the highest log density wins, or the simplest that chance cannot
    tell from it. At last the winner is held against the plain mean and the median: where one of
    those would have improved its predictions, the estimates go that far towards it (M38)-(M39).

    Parameters
    ----------
    bounds
        Lowest and highest value a truth can have.
    contest_answers
        With more answers than this, times coordinates, the contest is held on a part of the tasks,
        and a richer model has to be worth it. The winner takes over what it learned there: on all
        answers only the shares of the levels and the spread of biases are learned on, and messages
        settle to half a per cent, which moves no estimate by a hundredth of its sd.
    max_iter, tol, accuracy, backend, threads
        As in :class:`BI`.
    """

    bounds: tuple[float, float] | None = None
    contest_answers: int = 30_000
    max_iter: int = 300
    tol: float = 1e-7
    accuracy: float = 1e-9
    backend: str = "auto"
    threads: int = 1
    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "compares noise models on left-out answers, takes what is shown best"

    def __post_init__(self) -> None:
        self._bi(Noise(bounds=self.bounds), "auto")

    def _bi(self, noise: Noise, support: Support) -> BI:
        return BI(
            support=support,
            noise=noise,
            max_iter=self.max_iter,
            tol=self.tol,
            accuracy=self.accuracy,
            backend=self.backend,
            threads=self.threads,
        )

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        part = neighbourhood(answers, self.contest_answers // answers.dimension)
        usable = usable_answers(part)
        if not usable.any():
            return self._without_contest(answers, on_sweep)
        engine = Engine(backend=self.backend, accuracy=1e-4, threads=self.threads)
        whole = part is answers
        contest = Contest(part, usable, self.bounds, engine, on_sweep, is_part=not whole)
        winner, reason = contest.decide()
        chosen = self._bi(winner.noise, winner.support)
        fit = chosen.fit if whole else self._follow(chosen, contest, part, on_sweep)
        # In several coordinates the contest has units of its own, and so have its levels.
        if whole and chosen.is_plain and answers.dimension == 1:
            result = chosen.fit_levels(answers, contest.plain, on_sweep)
        else:
            result = fit(answers, on_sweep)
        audit = winner.result.audit
        assert audit is not None
        if whole and not chosen.is_plain:
            audit = result.audit or audit
        hedge = contest.hedge(audit, winner.result.noise.tails)
        result = hedge.apply(answers, result)
        if whole and chosen.is_plain:
            stretch = Calibration(stretch=max(audit.stretch, 1.0))
            result = replace(result.calibrated(stretch), audit=audit)
        settings = plain_settings(self) | {
            "chosen": winner.name,
            "reason": reason,
            "contest": contest.table(),
            "contest_answers_used": part.n_edges,
            **{k: v for k, v in result.settings.items() if k in _KEPT},
        }
        sentence = f"chose {winner.name}: {reason}"
        if hedge.share:
            moved = result.calibration.summary()
            sentence += f"; {moved}, which left-out answers show to be needed"
        result = replace(result, settings=settings, notes=(sentence, *result.notes))
        return widen_by_gold(lambda a: hedge.apply(a, fit(a, on_sweep)), answers, result)

    def _follow(
        self, chosen: BI, contest: Contest, part: Answers, on_sweep: OnSweep | None
    ) -> Callable[[Answers, OnSweep | None], Result]:
        """Learn the winner's parameters on the part; return what fits all answers by them."""
        engine = Engine(backend=self.backend, accuracy=self.accuracy, threads=self.threads)
        learning = NoisyFit(part, chosen.noise, engine, chosen.support, fewest=contest.fewest)
        known = learning.run(self.tol, self.max_iter, on_sweep, levels=contest.levels, warn=False)
        audit = noisy_result(part, {}, known).audit

        def fit(answers: Answers, on_sweep: OnSweep | None) -> Result:
            fitting = NoisyFit(answers, chosen.noise, engine, chosen.support, scale=known.scale)
            found = fitting.follow(known, self.tol, self.max_iter, on_sweep)
            return noisy_result(answers, plain_settings(chosen), found, audit)

        return fit

    def _without_contest(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        """Without a second answer to any task there is nothing to compare: the mean it is."""
        result = Average().fit(answers, on_sweep)
        reason = "no task has answers enough to hold any against the others"
        settings = plain_settings(self) | {"chosen": "mean", "reason": reason}
        return replace(result, settings=settings, notes=(f"took the mean: {reason}",))


def neighbourhood(answers: Answers, limit: int) -> Answers:
    """A connected part of at most about ``limit`` answers: tasks whose workers hang together.

    Tasks are taken breadth first from the task whose workers have the most answers, so that
    workers inside keep all of theirs; a random choice of tasks would leave them with one each.
    Where there is a choice, tasks are shuffled as they stand when sorted by their answers: neither
    names, nor rows, nor units decide it, and no task has the advantage.
    """
    if answers.n_edges <= limit:
        return answers
    taken = np.zeros(answers.n_tasks, dtype=bool)
    seen = np.zeros(answers.n_workers, dtype=bool)
    activity = sum_by_task(answers, answers.worker_degree[answers.worker].astype(float)[:, None])
    first = answers.task_ptr[:-1]
    low, high = (f.reduceat(answers.value[:, 0], first) for f in (np.minimum, np.maximum))
    rank = np.empty(answers.n_tasks, dtype=np.int64)
    rank[np.lexsort((high, low))] = np.random.default_rng(0).permutation(len(rank))
    start = int(np.lexsort((rank, -activity[:, 0] / answers.task_degree))[0])
    frontier, budget = np.array([start]), limit
    task_of = answers.task[answers.by_worker]
    while len(frontier) and budget > 0:
        kept = frontier[np.cumsum(answers.task_degree[frontier]) <= budget]
        taken[kept] = True
        budget -= int(answers.task_degree[kept].sum())
        if len(kept) < len(frontier):
            break
        edges = np.flatnonzero(np.isin(answers.task, kept))
        workers = np.unique(answers.worker[edges])
        workers = workers[~seen[workers]]
        seen[workers] = True
        spans = [
            task_of[answers.worker_ptr[u] : answers.worker_ptr[u + 1]] for u in workers.tolist()
        ]
        reached = np.unique(np.concatenate(spans)) if spans else np.empty(0, dtype=np.int64)
        reached = reached[~taken[reached]]
        frontier = reached[np.argsort(rank[reached])]
    if not taken.any():
        taken[start] = True
    return answers.part(taken)
