"""Auto: compare noise models by how well they predict left-out answers, and take what is shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from voxpop.answers import Answers
from voxpop.arrays import Floats
from voxpop.backends import Engine
from voxpop.estimators.averages import Average, Median
from voxpop.estimators.base import Estimator, OnSweep, plain_settings, sum_by_task
from voxpop.estimators.bi import BI, Support
from voxpop.estimators.conformal import widen_by_gold
from voxpop.estimators.noisy import NoisyFit, noisy_result, starting_levels
from voxpop.kernels.posterior import Posterior, stretched
from voxpop.noise import Noise
from voxpop.result import Result

Mask = NDArray[np.bool_]

# Sweeps and change at which a candidate is good enough to be compared.
_CONTEST_SWEEPS, _CONTEST_TOL = 20, 2e-3
# Workers count in the comparison by this power of their precision: halfway between all alike, which
# lets the noisiest decide, and full trust in what is learned, which lets those decide who agree.
_TRUST = 0.5
_LEVEL = 0.05
# Endings of what the winner's settings say that the result's go on saying.
_KEPT = ("_used", "columns", "coordinate_scale", "bias_sd")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A noise model in the contest: its name, what it is, and its scores on left-out answers.

    ``squared`` (E,) is the weighted squared error of predicting each answer, ``log_density`` (E,)
    that of the prediction; both over the coordinates.
    """

    name: str
    noise: Noise
    support: Support
    result: Result
    squared: Floats
    log_density: Floats

    @property
    def complexity(self) -> int:
        """How many things are learned that a simpler model does without."""
        noise = self.noise
        on = (noise.tails == "learn", noise.bias, noise.difficulty, noise.truths == "learn")
        return sum(on) + (self.support == "auto")


@dataclass(frozen=True, kw_only=True)
class Auto(Estimator):
    """Fit several noise models, and keep the one that the answers themselves show to be best.

    Each candidate predicts every answer from the others. Out go those that predict worse, in
    squared error, than the best by more than chance (over workers and tasks, all comparisons taken
    together); of the rest the highest log density wins, or the simplest within a standard error
    of it. At last the winner is held against the plain mean and the median: where one of those
    would have improved its predictions, the estimates go that far towards it (M38)-(M39).

    Parameters
    ----------
    bounds
        Lowest and highest value a truth can have.
    contest_answers
        With more answers than this, times coordinates, the contest is held on a part of the tasks;
        the winner is fitted to all.
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
        usable = _usable(part)
        if not usable.any():
            return self._without_contest(answers, on_sweep)
        contest = _Contest(part, usable, self, on_sweep)
        winner, reason = contest.decide()
        chosen = self._bi(winner.noise, winner.support)
        result = chosen.fit(answers, on_sweep)
        if result.audit is None:
            result = replace(result, audit=None if part is not answers else winner.result.audit)
        hedge = contest.hedge(winner)
        result = hedge.apply(answers, result)
        settings = plain_settings(self) | {
            "chosen": winner.name,
            "reason": reason,
            "fallback": hedge.name if hedge.share else None,
            "fallback_share": hedge.share,
            "contest": contest.table(),
            "contest_answers_used": part.n_edges,
            **{k: v for k, v in result.settings.items() if k.endswith(_KEPT)},
        }
        sentence = f"chose {winner.name}: {reason}"
        if hedge.share:
            sentence += (
                f"; moved {hedge.share:.0%} of the way to the {hedge.name}, which left-out answers "
                "show to be needed"
            )
        result = replace(result, settings=settings, notes=(sentence, *result.notes))
        return widen_by_gold(lambda a: hedge.apply(a, chosen.fit(a, on_sweep)), answers, result)

    def _without_contest(self, answers: Answers, on_sweep: OnSweep | None) -> Result:
        """Without a second answer to any task there is nothing to compare: the mean it is."""
        result = Average().fit(answers, on_sweep)
        reason = "no task has answers enough to hold any against the others"
        settings = plain_settings(self) | {"chosen": "mean", "reason": reason}
        return replace(result, settings=settings, notes=(f"took the mean: {reason}",))


@dataclass(frozen=True)
class Hedge:
    """How far to move estimates towards a simple method, and towards which."""

    name: str
    share: float

    def apply(self, answers: Answers, result: Result) -> Result:
        """Mix the two posteriors: mean, variance, quantiles stretched to that variance (M39)."""
        if not self.share:
            return result
        simple = (Average() if self.name == "mean" else Median()).fit(answers)
        mean = (1 - self.share) * result.estimate + self.share * simple.estimate
        variance = (1 - self.share) * (result.variance + (result.estimate - mean) ** 2)
        variance += self.share * (simple.variance + (simple.estimate - mean) ** 2)
        mixed = stretched(Posterior(result.estimate, result.variance, result.quantile), variance)
        return replace(
            result,
            estimate=mean,
            variance=variance,
            quantile=mixed.quantile + (mean - result.estimate)[:, :, None],
        )


@dataclass(eq=False)
class _Contest:
    """All candidates fitted to the same answers."""

    answers: Answers
    usable: Mask
    settings: Auto
    on_sweep: OnSweep | None
    candidates: list[Candidate] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self._engine = Engine(backend=settings.backend, accuracy=1e-4, threads=settings.threads)
        self._levels = starting_levels(self.answers, self._engine, self.on_sweep)
        bounds = settings.bounds
        levels = self._fit("workers differ in noise", Noise(bounds=bounds), "auto")
        self._weight = self._weigh(levels.result)
        levels = self._scored(levels)
        prior = self._scored(
            self._fit(
                "workers differ in noise, truths drawn to the usual",
                Noise(truths="learn", bounds=bounds),
                "auto",
            )
        )
        self.candidates = [levels, prior]
        # One decision for all: whether truths have a distribution worth knowing.
        base = self.decide()[0].noise
        drawn = ", truths drawn to the usual" if base.truths == "learn" else ""
        variants: list[tuple[str, Noise, Support]] = [
            ("workers alike", replace(base), "common"),
            ("workers alike but for bias", replace(base, bias=True), "common"),
            ("workers differ in noise and bias", replace(base, bias=True), "auto"),
            ("workers differ in noise, heavy tails", replace(base, tails="learn"), "auto"),
            (
                "workers differ in noise and bias, heavy tails",
                replace(base, tails="learn", bias=True),
                "auto",
            ),
            (
                "workers differ in noise and bias, tasks in difficulty",
                replace(base, bias=True, difficulty=True),
                "auto",
            ),
        ]
        for name, noise, support in variants:
            self.candidates.append(self._scored(self._fit(name + drawn, noise, support)))

    def _fit(self, name: str, noise: Noise, support: Support) -> Candidate:
        fit = NoisyFit(self.answers, noise, self._engine, support)
        found = fit.run(
            _CONTEST_TOL, _CONTEST_SWEEPS, self.on_sweep, levels=self._levels, warn=False
        )
        nothing = np.empty(0)
        result = noisy_result(self.answers, {}, found)
        return Candidate(name, noise, support, result, nothing, nothing)

    def _weigh(self, reference: Result) -> Floats:
        """Weight of each usable coordinate of an answer (E, d) in the comparison."""
        log_level = reference.worker_posterior @ np.log(reference.levels)
        trust = np.exp(-_TRUST * (log_level - log_level.min()))[self.answers.worker]
        scale = np.array(reference.settings["coordinate_scale"])
        return np.asarray(trust[:, None] / scale**2)[self.usable]

    def _scored(self, candidate: Candidate) -> Candidate:
        audit = candidate.result.audit
        assert audit is not None
        residual = (self.answers.value - audit.predicted)[self.usable]
        return replace(
            candidate,
            squared=(self._weight * residual**2).sum(axis=1),
            log_density=audit.log_density[self.usable].sum(axis=1),
        )

    def decide(self) -> tuple[Candidate, str]:
        """The winner so far, and why, in one sentence."""
        best = min(self.candidates, key=lambda c: float(c.squared.sum()))
        critical = self._critical_value(len(self.candidates) - 1)
        allowed = [c for c in self.candidates if self._worse(c, best) <= critical]
        likeliest = max(allowed, key=lambda c: float(c.log_density.sum()))

        def within(c: Candidate) -> bool:
            difference = likeliest.log_density - c.log_density
            return float(difference.sum()) <= self._error(difference)

        winner = min((c for c in allowed if within(c)), key=lambda c: c.complexity)
        out = len(self.candidates) - len(allowed)
        reason = (
            f"of {len(self.candidates)} models {out} predict left-out answers worse than the best "
            "by more than chance; of the others it "
        )
        if winner is likeliest:
            reason += "predicts them best"
        else:
            reason += f"is the simplest within a standard error of the best ({likeliest.name})"
        return winner, reason

    def _worse(self, one: Candidate, other: Candidate) -> float:
        """By how many standard errors one predicts worse than the other, in squared error."""
        difference = one.squared - other.squared
        error = self._error(difference)
        return float(difference.sum()) / error if error > 0 else 0.0

    def _critical_value(self, n_comparisons: int) -> float:
        """Student's t at the level that keeps the chance of a wrong exclusion, of any, small."""
        freedom = max(min(self._n_workers, self._n_tasks) - 1, 1)
        return float(stdtrit(freedom, 1.0 - _LEVEL / max(n_comparisons, 1)))

    def _error(self, per_answer: Floats) -> float:
        """Standard error of a sum over answers: those of a worker go together, and of a task."""
        errors = []
        for owner in (self.answers.worker[self.usable], self.answers.task[self.usable]):
            sums = np.bincount(owner, per_answer)
            present = np.bincount(owner) > 0
            n = int(present.sum())
            spread = sums[present] - sums[present].mean()
            errors.append(np.sqrt(max(n, 2) / max(n - 1, 1) * float((spread**2).sum())))
        return float(max(errors))

    @property
    def _n_workers(self) -> int:
        return len(np.unique(self.answers.worker[self.usable]))

    @property
    def _n_tasks(self) -> int:
        return len(np.unique(self.answers.task[self.usable]))

    def hedge(self, winner: Candidate) -> Hedge:
        """How far moving to mean or median improves the winner's predictions, less an error (M39).

        The share lambda of the simple method minimises the weighted squared error of the mixed
        prediction; a standard error below it is what is shown.
        """
        audit = winner.result.audit
        assert audit is not None
        residual = (self.answers.value - audit.predicted)[self.usable]
        best = Hedge("mean", 0.0)
        for name, simple in (("mean", _others_mean), ("median", _others_median)):
            move = simple(self.answers)[self.usable] - audit.truth[self.usable]
            gain = (self._weight * residual * move).sum(axis=1)
            size = (self._weight * move**2).sum(axis=1)
            if size.sum() <= 0:
                continue
            share = float(gain.sum() / size.sum())
            shown = share - self._error(gain - share * size) / float(size.sum())
            if shown > best.share:
                best = Hedge(name, float(min(shown, 1.0)))
        return best

    def table(self) -> list[dict[str, Any]]:
        """The scores of all, as JSON can hold them."""
        best = min(self.candidates, key=lambda c: float(c.squared.sum()))
        return [
            {
                "model": c.name,
                "log_score": float(c.log_density.mean()),
                "squared_error": float(c.squared.mean() / best.squared.mean())
                if best.squared.mean() > 0
                else 1.0,
                "standard_errors_worse": self._worse(c, best),
                "coverage_95": c.result.audit.coverage_95 if c.result.audit else None,
            }
            for c in self.candidates
        ]


def _usable(answers: Answers) -> Mask:
    """Answers that can be held against at least two others, or against one if none can."""
    degree = answers.task_degree[answers.task]
    open_task = ~answers.is_gold[answers.task]
    enough = (degree >= 3) & open_task
    return np.asarray(enough if enough.any() else (degree == 2) & open_task)


def _others_mean(answers: Answers) -> Floats:
    """Mean of the other answers to the same task, for every answer."""
    degree = answers.task_degree[answers.task][:, None]
    origin = answers.value[answers.task_ptr[:-1]][answers.task]
    deviation = answers.value - origin
    total = sum_by_task(answers, deviation)[answers.task]
    return np.asarray(origin + (total - deviation) / np.maximum(degree - 1, 1))


def _others_median(answers: Answers) -> Floats:
    """Median of the other answers to the same task, for every answer."""
    found = np.empty_like(answers.value)
    degree, first = answers.task_degree, answers.task_ptr[:-1]
    for j in range(answers.dimension):
        order = np.lexsort((answers.value[:, j], answers.task))
        ordered = answers.value[order, j]
        rank = np.empty(answers.n_edges, dtype=np.int64)
        rank[order] = np.arange(answers.n_edges)
        rank -= first[answers.task]
        n_others = degree[answers.task] - 1
        sides = []
        for place in ((n_others - 1) // 2, n_others // 2):
            # Taking an answer out moves those above it down by one.
            place = np.maximum(place, 0)
            place = place + (place >= rank)
            place = np.minimum(place, n_others)
            sides.append(ordered[first[answers.task] + place])
        found[:, j] = 0.5 * (sides[0] + sides[1])
    return found


def neighbourhood(answers: Answers, limit: int) -> Answers:
    """A connected part of at most about ``limit`` answers: tasks whose workers hang together.

    Tasks are taken breadth first from the task whose workers have the most answers, so that
    workers inside keep all of theirs; a random choice of tasks would leave them with one each.
    """
    if answers.n_edges <= limit:
        return answers
    taken = np.zeros(answers.n_tasks, dtype=bool)
    seen = np.zeros(answers.n_workers, dtype=bool)
    activity = sum_by_task(answers, answers.worker_degree[answers.worker].astype(float)[:, None])
    start = int(np.argmax(activity[:, 0] / answers.task_degree))
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
        frontier = reached[~taken[reached]]
    if not taken.any():
        taken[start] = True
    return answers.part(taken)
