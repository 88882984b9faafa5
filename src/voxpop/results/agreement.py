"""Agreement: how much of the variance of the answers comes from the tasks and the workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Floats, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import mean_by_task, mean_by_worker, sum_by_task
from voxpop.data.tables import finite
from voxpop.words import percent


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """A coefficient of agreement, 1 at best, with its 95 % interval; NaN where undefined."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "undefined"
        if np.isnan(self.lower):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} ({self.lower:.3f} to {self.upper:.3f})"


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """The coefficients of one coordinate, or of all together.

    Attributes
    ----------
    icc1
        ICC(1): the tasks' share in the variance of one answer, whoever gave it.
    icck
        ICC(k): the same for the mean of a task's answers, of which there are k on average.
    icc_agreement
        ICC(A,1): like ICC(1), with a bias of every worker that counts as error.
    icc_consistency
        ICC(C,1): the same when such a bias does not count.
    alpha
        Krippendorff's alpha for interval data; for vectors, with squared Euclidean distance.
    """

    icc1: Coefficient
    icck: Coefficient
    icc_agreement: Coefficient
    icc_consistency: Coefficient
    alpha: Coefficient


NAMES = {
    "icc1": "ICC(1)",
    "icck": "ICC(k)",
    "icc_agreement": "ICC(A,1)",
    "icc_consistency": "ICC(C,1)",
    "alpha": "Krippendorff's alpha",
}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far the workers agree, over all coordinates and for each of them.

    The intervals are for other tasks given to the same crowd (jackknife over tasks).

    Attributes
    ----------
    overall
        The coefficients with variances added up over the coordinates.
    coordinates
        The coefficients of each coordinate, by its name.
    answers_per_task
        The k of ICC(k): the mean number of answers of a task, corrected for unequal numbers.
    """

    n_tasks: int
    n_workers: int
    n_answers: int
    answers_per_task: float
    overall: Coefficients
    coordinates: dict[str, Coefficients]

    def columns(self) -> dict[str, list[Any]]:
        """One row per coordinate and coefficient: of, coefficient, value, lower_95, upper_95."""
        parts = {"overall": self.overall} | (self.coordinates if len(self.coordinates) > 1 else {})
        rows = [
            (of, title, *asdict(getattr(found, name)).values())
            for of, found in parts.items()
            for name, title in NAMES.items()
        ]
        names = ("of", "coefficient", "value", "lower_95", "upper_95")
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, None where a coefficient is undefined."""
        return {name: finite(part) for name, part in asdict(self).items()} | {
            "reading": self.summary()
        }

    def summary(self) -> str:
        """Say what the coefficients mean."""
        one, mean = self.overall.icc1.value, self.overall.icck.value
        if np.isnan(one):
            return "Agreement is undefined: no task has two answers, or all answers are equal."
        if one <= 0:
            return (
                "Answers to one task differ as much as answers to different tasks: the crowd says "
                "no more about the tasks than chance would."
            )
        lines = [
            f"{percent(one)} of the variance of one answer comes from the tasks; the mean of "
            f"{self.answers_per_task:.3g} answers has a reliability of {mean:.2f}."
        ]
        agreed, consistent = self.overall.icc_agreement.value, self.overall.icc_consistency.value
        if 0 < agreed < consistent <= 1:
            # Without the biases the share would be ICC(C,1), and the error smaller by as much.
            error, less = (1 - agreed) / agreed, (1 - consistent) / consistent
            lines.append(f"Worker biases make up {percent(1 - less / error)} of the error.")
        alpha = self.overall.alpha.value
        if alpha < 0.667:
            use = "below .667, his minimum for tentative conclusions from single answers"
        else:
            use = (
                "enough for tentative conclusions by his rule"
                if alpha < 0.8
                else "reliable by his rule"
            )
        if not np.isnan(alpha):
            lines.append(f"Krippendorff's alpha is {alpha:.2f}: {use}.")
        return " ".join(lines)

    def __str__(self) -> str:
        return self.summary()


def agreement(answers: Answers) -> Agreement:
    """Measure how far the workers agree, in time and memory linear in the answers.

    With the variances ``a`` of the tasks, ``b`` of the workers' biases and ``e`` of the rest, the
    coefficients are shares of variance; not every worker need answer every task::

        ICC(1) = a / (a + w),  a and w from the sums of squares between and within tasks
        ICC(A,1) = a / (a + b + e),   ICC(C,1) = a / (a + e)
        alpha = 1 - (squared difference within tasks) / (squared difference over all pairs)

    The components of the two-way coefficients equate the sums of squares within tasks, within
    workers and in all with their expectations (Henderson's first method), which on a complete
    table is the analysis of variance, so that ICC(A,1) and ICC(C,1) are those of McGraw and Wong
    (1996). Negative components are kept, as there, so that the coefficients of pure noise scatter
    about 0.
    """
    # Shift and scale change nothing but the rounding.
    value = answers.value - answers.value.mean(axis=0)
    value = value / (np.abs(value).max() or 1.0)
    sums = _square_sums(answers, value)
    per_task, found = _coefficients(answers, np.insert(sums, 0, sums.sum(axis=2), axis=2))
    overall, *each = (
        Coefficients(**{name: _jackknife(part[:, j]) for name, part in found.items()})
        for j in range(answers.dimension + 1)
    )
    return Agreement(
        n_tasks=answers.n_tasks,
        n_workers=answers.n_workers,
        n_answers=answers.n_edges,
        answers_per_task=per_task,
        overall=overall,
        coordinates=dict(zip(answers.value_names, each, strict=True)),
    )


def _square_sums(answers: Answers, y: Floats) -> Floats:
    """Sums of squares of all answers (row 0) and without each task (the others), (5, n + 1, d).

    In all, within tasks, within workers; and for alpha, of the tasks with two answers or more, in
    all and within, as pairs of a task count.
    """
    n_i, n_u = answers.task_degree[:, None], answers.worker_degree[answers.worker][:, None]
    mean = mean_by_task(answers, y)
    within = sum_by_task(answers, (y - mean[answers.task]) ** 2)
    about = (y - mean_by_worker(answers, y)[answers.worker]) ** 2
    # Without task i, each of its workers loses one answer: (y - mean)^2 n / (n - 1) of its sum.
    lost = sum_by_task(answers, about * (n_u / np.maximum(n_u - 1, 1)))
    paired = np.where(n_i > 1, n_i, 0)
    weighted = paired / np.maximum(n_i - 1, 1) * within
    return np.stack(
        [
            _in_all(n_i, mean, within),
            _less(within.sum(axis=0), within),
            _less(about.sum(axis=0), lost),
            _in_all(paired, mean, within),
            _less(weighted.sum(axis=0), weighted),
        ]
    )


def _less(whole: Floats | float, part: Floats) -> Floats:
    """The whole, and the whole less the part of each task."""
    return np.concatenate([np.broadcast_to(whole, part[:1].shape), whole - part])


def _in_all(n_i: Index, mean_i: Floats, within: Floats) -> Floats:
    """Sum of squares about the common mean, of all and without each task."""
    n = n_i.sum()
    apart = n_i * (mean_i - (n_i * mean_i).sum(axis=0) / max(n, 1)) ** 2
    there = within * (n_i > 0)
    # Leaving out a group also moves the mean of the others: hence n / (n - n_i).
    return _less((apart + there).sum(axis=0), there + apart * n / np.maximum(n - n_i, 1))


def _coefficients(answers: Answers, sums: Floats) -> tuple[float, dict[str, Floats]]:
    """The k of ICC(k), and the coefficients of all answers and without each task."""
    n_i, n_u = (x[:, None].astype(np.float64) for x in (answers.task_degree, answers.worker_degree))
    of_edge = n_u[answers.worker]
    paired = np.where(n_i > 1, n_i, 0.0)
    n, tasks = _less(answers.n_edges, n_i), _less(answers.n_tasks, np.ones_like(n_i))
    workers = _less(answers.n_workers, sum_by_task(answers, (of_edge == 1).astype(np.float64)))
    n_paired = _less(paired.sum(), paired)
    # Rounding may leave a sum from which much was subtracted below zero.
    total, within, of_workers, paired_total, paired_within = np.maximum(sums, 0.0)
    least = 1e-24 * np.maximum(total[0], 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Coefficients of the tasks' variance, and of the workers', in the total sum of squares.
        of_task = n - _less((n_i**2).sum(), n_i**2) / n
        of_worker = n - _less((n_u**2).sum(), sum_by_task(answers, 2 * of_edge - 1)) / n
        per_task = of_task / (tasks - 1)
        ms_within = within / (n - tasks)
        ms_between = np.maximum(total - within, 0.0) / (tasks - 1)
        icc1 = (ms_between - ms_within) / (ms_between + (per_task - 1) * ms_within)
        icck = (ms_between - ms_within) / ms_between
        # a + e from within workers, b + e from within tasks, all three from the total.
        a_e, b_e = of_workers / (n - workers), ms_within
        crossed = of_task + of_worker - (n - 1)
        a = a_e - (of_task * a_e + of_worker * b_e - total) / crossed
        alpha = 1 - paired_within / n_paired / (paired_total / (n_paired - 1))
        one_way = (total > least) & (n > tasks)
        two_way = one_way & (crossed > 0) & (n > workers)
        return float(per_task[0, 0]), {
            "icc1": np.where(one_way, icc1, np.nan),
            "icck": np.where(one_way, icck, np.nan),
            "icc_agreement": np.where(two_way, a / (a + b_e), np.nan),
            "icc_consistency": np.where(two_way, a / a_e, np.nan),
            "alpha": np.where(paired_total > least, alpha, np.nan),
        }


def _jackknife(found: Floats) -> Coefficient:
    """Interval from the coefficients without each task, on the scale of log(1 - coefficient).

    On that scale, the log of the share of error, no bound exceeds 1.
    """
    value = float(found[0]) if np.isfinite(found[0]) else np.nan
    without, n = found[1:], len(found) - 1
    if np.isnan(value) or n < 3 or not np.isfinite(without).all():
        return Coefficient(value=value, lower=np.nan, upper=np.nan)
    if value >= 1.0 or (without >= 1.0).any():
        same = bool((without >= 1.0 - 1e-12).all())
        bound = value if same else np.nan
        return Coefficient(value=min(value, 1.0), lower=bound, upper=bound)
    error = np.log1p(-without)
    se = np.sqrt((n - 1) / n * ((error - error.mean()) ** 2).sum())
    reach = float(stdtrit(n - 1, 0.975) * se)
    ends = [float(1 - (1 - value) * np.exp(sign * reach)) for sign in (1, -1)]
    return Coefficient(value=value, lower=ends[0], upper=ends[1])
