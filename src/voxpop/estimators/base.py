"""What every estimator offers, and the one iteration loop they share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtri, ndtri

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.read import read_answers
from voxpop.errors import ConvergenceWarning, require
from voxpop.estimators.plug_in import plug_in_audit
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.model import Model
from voxpop.results.audit import Audit
from voxpop.results.result import PROBABILITIES, Result, Trace

if TYPE_CHECKING:
    import pandas as pd

OnSweep = Callable[[str, int, float, float], None]
"""Called after every sweep with what is going on, the sweep's number, its change, and the change
at which it stops: for a progress bar."""

# Damping is raised when the change has not reached a new low for this many sweeps.
_PATIENCE = 8
# What counts as a new low: a tenth below the last one, so that a slow drift is not progress.
_NEW_LOW = 0.9
# Numbers in flight in one block: 8 MB.
_BLOCK_NUMBERS = 1_000_000
_DAMPINGS = (0.0, 0.3, 0.5, 0.7, 0.85)


@runtime_checkable
class Estimator(Protocol):
    """A way to turn answers into a result; its parameters are its fields, and it keeps no state.

    Whoever writes another one derives from this class, and gets :meth:`fit_predict` with it.
    """

    name: ClassVar[str]
    """Name on the command line."""

    summary: ClassVar[str]
    """One line on what it does."""

    def fit(self, answers: Answers, on_sweep: OnSweep | None = None) -> Result:
        """Aggregate the answers."""
        ...

    def fit_predict(self, data: object, gold: object = None) -> pd.Series[float] | pd.DataFrame:
        """Return the estimates alone, as crowd-kit's aggregators do.

        ``data`` is a data frame with columns ``task``, ``worker`` and ``label`` (or what else
        :func:`voxpop.read_answers` takes), ``gold`` known truths by task, as crowd-kit's
        ``true_labels``. The answer is a pandas Series indexed by task with the name
        ``agg_label``; for vectors a data frame with one column per coordinate.
        """
        import pandas as pd

        known = gold.to_dict() if isinstance(gold, pd.Series) else gold
        found = self.fit(read_answers(data, gold=known))
        index = pd.Index(found.task_ids, name="task")
        if found.estimate.shape[1] == 1:
            return pd.Series(found.estimate[:, 0], index=index, name="agg_label")
        return pd.DataFrame(found.estimate, index=index, columns=list(found.value_names))


def repeat(
    sweep: Callable[[float], float],
    *,
    tol: float,
    max_iter: int,
    what: str,
    on_sweep: OnSweep | None = None,
    dampings: Sequence[float] = _DAMPINGS,
    warn: bool = True,
) -> Trace:
    """Call ``sweep(damping)`` until the change it returns is at most ``tol``.

    Starts with the first of ``dampings``, undamped; when the change stops falling, it goes on to
    the next (M17). Warns when it stops at ``max_iter``, unless that is as good an end.
    """
    changes: list[float] = []
    used: list[float] = []
    stage, lowest, since = 0, np.inf, 0
    while len(changes) < max_iter:
        damping = dampings[stage]
        changes.append(sweep(damping))
        used.append(damping)
        if on_sweep is not None:
            on_sweep(what, len(changes), changes[-1], tol)
        if changes[-1] <= tol:
            return Trace(changes=tuple(changes), dampings=tuple(used), converged=True)
        since += 1
        if changes[-1] < _NEW_LOW * lowest:
            lowest, since = changes[-1], 0
        elif since >= _PATIENCE and stage + 1 < len(dampings):
            stage, lowest, since = stage + 1, np.inf, 0
    if warn:
        _warn_of_limit(what, max_iter, changes[-1], tol)
    return Trace(changes=tuple(changes), dampings=tuple(used), converged=False)


def _warn_of_limit(what: str, max_iter: int, change: float, tol: float) -> None:
    warnings.warn(
        f"{what} stopped after {max_iter} sweeps with a change of {change:.2g}, above "
        f"tol = {tol:g}; raise max_iter, or read the estimates as approximate",
        ConvergenceWarning,
        stacklevel=4,
    )


def plain_settings(estimator: Estimator) -> dict[str, Any]:
    """The estimator's name and arguments as JSON can hold them; tables by what they are."""
    settings: dict[str, Any] = {"method": estimator.name}
    for argument in fields(estimator):  # type: ignore[arg-type]
        settings[argument.name] = _plain(getattr(estimator, argument.name))
    return settings


def as_tuples(numbers: ArrayLike) -> object:
    """Freeze an array of any depth, so that what holds it can be compared and hashed."""
    listed = np.asarray(numbers, dtype=np.float64).tolist()

    def freeze(item: object) -> object:
        return tuple(freeze(part) for part in item) if isinstance(item, list) else item

    return freeze(listed)


def _plain(item: object) -> object:
    if isinstance(item, np.ndarray | np.generic):
        item = item.tolist()
    if isinstance(item, float) and np.isinf(item):
        return None  # JSON has no infinity: a flat prior is no prior variance
    if item is None or isinstance(item, bool | int | float | str):
        return item
    if isinstance(item, tuple | list):
        return [_plain(part) for part in item]
    if isinstance(item, Mapping):
        return f"a mapping of {len(item)}"
    return str(item) if isinstance(item, os.PathLike) else f"a {type(item).__name__}"


@dataclass(frozen=True)
class WorkerNoise:
    """What an estimator found of the workers; the level arrays are empty without levels."""

    variance: Floats
    interval: Floats
    weight: Floats
    levels: Floats = field(default_factory=lambda: np.empty(0))
    level_weights: Floats = field(default_factory=lambda: np.empty(0))
    posterior: Floats = field(default_factory=lambda: np.empty((0, 0)))


def make_result(
    answers: Answers,
    settings: dict[str, Any],
    found: Posterior,
    workers: WorkerNoise,
    trace: Trace | None = None,
    notes: tuple[str, ...] = (),
    audit: Audit | None = None,
) -> Result:
    """Put together what was found of tasks and workers with what the answers are.

    Without an audit of its own, a method is audited by what its weights predict.
    """
    if audit is None:
        audit = plug_in_audit(
            answers, found.estimate, workers.variance, workers.levels, workers.posterior
        )
    return Result(
        task_ids=answers.task_ids,
        worker_ids=answers.worker_ids,
        value_names=answers.value_names,
        task_answers=answers.task_degree,
        worker_answers=answers.worker_degree,
        frame_kind=answers.frame_kind,
        estimate=found.estimate,
        variance=found.variance,
        quantile=found.quantile,
        worker_variance=workers.variance,
        worker_interval=workers.interval,
        worker_weight=workers.weight,
        levels=workers.levels,
        level_weights=workers.level_weights,
        worker_posterior=workers.posterior,
        audit=audit,
        settings=settings | ({"columns": answers.columns} if answers.columns else {}),
        trace=trace or Trace(),
        notes=(*answers.notes, *notes),
    )


def normal_posterior(answers: Answers, estimate: Floats, variance: Floats) -> Posterior:
    """Take the truths as Gaussian, and gold tasks as known."""
    estimate = with_gold(answers, estimate)
    variance = np.where(answers.is_gold[:, None], 0.0, variance)
    spread = np.sqrt(variance)[:, :, None] * ndtri(PROBABILITIES)
    return Posterior(estimate, variance, estimate[:, :, None] + spread)


def with_gold(answers: Answers, estimate: Floats) -> Floats:
    """Put known truths in the place of estimates."""
    if answers.gold is None:
        return estimate
    return np.where(answers.is_gold[:, None], answers.gold, estimate)


def weighted_means(answers: Answers, weight: Floats) -> Floats:
    """Mean answer of every task, with one weight per edge."""
    # About one answer of the task, so that small differences of large values are kept.
    origin = answers.value[answers.task_ptr[:-1]]
    deviation = answers.value - origin[answers.task]
    top = np.maximum.reduceat(weight, answers.task_ptr[:-1])
    share = (weight / top[answers.task])[:, None]
    return np.asarray(
        origin + sum_by_task(answers, share * deviation) / sum_by_task(answers, share)
    )


def sum_by_task(answers: Answers, per_edge: Floats) -> Floats:
    """Add up numbers of the edges of each task."""
    return np.add.reduceat(per_edge, answers.task_ptr[:-1], axis=0)


def sum_by_worker(answers: Answers, per_edge: Floats) -> Floats:
    """Add up numbers of the edges of each worker."""
    return np.add.reduceat(per_edge[answers.by_worker], answers.worker_ptr[:-1], axis=0)


def mean_by_worker(answers: Answers, per_edge: Floats) -> Floats:
    """Average a number over the edges of each worker."""
    return np.asarray(sum_by_worker(answers, per_edge) / answers.worker_degree)


def by_degree(
    answers: Answers, numbers_per_task: Callable[[int], int]
) -> Iterator[tuple[Index, Index]]:
    """Tasks with equally many answers and their edges (n, l), in blocks of bounded memory.

    ``numbers_per_task`` says how many numbers a task with so many answers takes.
    """
    for size in np.unique(answers.task_degree).tolist():
        tasks = np.flatnonzero(answers.task_degree == size)
        block = max(1, _BLOCK_NUMBERS // max(1, numbers_per_task(size) * answers.dimension))
        for start in range(0, len(tasks), block):
            some = tasks[start : start + block]
            yield some, answers.task_ptr[some][:, None] + np.arange(size)


def squared_residual(answers: Answers, estimate: Floats) -> Floats:
    """Squared distance of every answer from the estimate of its task, over all coordinates."""
    return np.asarray(((answers.value - estimate[answers.task]) ** 2).sum(axis=1))


def variance_interval(answers: Answers, variance: Floats) -> Floats:
    """95 % interval of a variance that is a mean of squared Gaussian residuals."""
    freedom = answers.worker_degree * answers.dimension
    quantile = [freedom * variance / chdtri(freedom, p) for p in (0.025, 0.975)]
    return np.stack(quantile, axis=1)


def relative_weight(precision: Floats) -> Floats:
    """Scale precisions so that the average worker weighs one."""
    # Against the largest first: a precision may be as large as float64 goes.
    weight = precision / precision.max()
    return np.asarray(weight / weight.mean())


def plain_noise(answers: Answers, variance: Floats, weight: Floats) -> WorkerNoise:
    """Say what was found of workers where their variance is a mean of squared residuals."""
    return WorkerNoise(variance, variance_interval(answers, variance), weight)


def require_stop(tol: float, max_iter: int) -> None:
    """Check what every iterative method takes."""
    require(tol > 0, f"tol must be positive, got {tol}")
    require(max_iter >= 1, f"max_iter must be at least 1, got {max_iter}")


def worker_noise(posterior: Floats, model: Model, between: bool = False) -> WorkerNoise:
    """Sum up each worker's probabilities of the levels: expected variance, interval, weight.

    With ``between`` a level stands for all variances about it, as on a grid that was laid over the
    data; otherwise for itself.
    """
    levels = model.levels
    return WorkerNoise(
        variance=posterior @ levels,
        interval=_between(posterior, levels) if between else _among(posterior, levels),
        weight=relative_weight(posterior @ (levels[0] / levels)),
        levels=levels,
        level_weights=np.array(model.weights),
        posterior=posterior,
    )


def _among(posterior: Floats, levels: Floats) -> Floats:
    """95 % intervals (m, 2) that end at levels."""
    cumulated = np.cumsum(posterior, axis=1)
    ends = np.stack([(cumulated < share).sum(axis=1) for share in (0.025, 0.975)], axis=1)
    return np.asarray(levels[np.minimum(ends, len(levels) - 1)])


def _between(posterior: Floats, levels: Floats) -> Floats:
    """95 % intervals (m, 2) of levels that share what lies between them halfway, in logs."""
    log_level = np.log(levels)
    if len(levels) == 1:
        return _among(posterior, levels)
    middle = 0.5 * (log_level[1:] + log_level[:-1])
    edge = np.concatenate(
        [2 * log_level[:1] - middle[:1], middle, 2 * log_level[-1:] - middle[-1:]]
    )
    cumulated = np.concatenate(
        [np.zeros((len(posterior), 1)), np.cumsum(posterior, axis=1)], axis=1
    )
    ends = [np.interp((0.025, 0.975), row / row[-1], edge) for row in cumulated]
    return np.asarray(np.exp(np.array(ends).reshape(-1, 2)))
