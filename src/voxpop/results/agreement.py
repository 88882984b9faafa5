"""Agreement: how much of the variance of the answers comes from the tasks and the workers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Codes, Floats
from voxpop.data.answers import Answers


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
        return _without_nan(asdict(self) | {"reading": self.summary()})  # type: ignore[return-value]

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
            f"{one:.0%} of the variance of one answer comes from the tasks; the mean of "
            f"{self.answers_per_task:.3g} answers has a reliability of {mean:.2f}."
        ]
        agreed, consistent = self.overall.icc_agreement.value, self.overall.icc_consistency.value
        if 0 < agreed < consistent <= 1:
            # Without the biases the share would be ICC(C,1), and the error smaller by as much.
            error, less = (1 - agreed) / agreed, (1 - consistent) / consistent
            lines.append(f"Worker biases make up {1 - less / error:.0%} of the error.")
        alpha = self.overall.alpha.value
        if alpha < 0.667:
            use = "below .667, the least he accepts for tentative conclusions from single answers"
        else:
            use = "fit for tentative use by his rule" if alpha < 0.8 else "reliable by his rule"
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
    parts = [_square_sums(answers, column) for column in value.T]
    whole = _SquareSums(*(np.sum(part, axis=0) for part in zip(*parts, strict=True)))
    counts = _counts(answers)
    each = [_coefficients(part, counts) for part in parts]
    return Agreement(
        n_tasks=answers.n_tasks,
        n_workers=answers.n_workers,
        n_answers=answers.n_edges,
        answers_per_task=float(counts.per_task[0]),
        overall=_coefficients(whole, counts),
        coordinates=dict(zip(answers.value_names, each, strict=True)),
    )


class _SquareSums(NamedTuple):
    """Sums of squares of all answers (first entry) and without each task (the others)."""

    total: Floats
    within_tasks: Floats
    within_workers: Floats
    paired_total: Floats  # of tasks with two answers or more, for alpha
    paired_within: Floats


class _Counts(NamedTuple):
    """The counts that go with :class:`_SquareSums`.

    ``spare_tasks`` is what the tasks' variance counts for in the total sum of squares, n - sum of
    n_i^2 / n, ``spare_workers`` the workers'; ``per_task`` is the k of ICC(k).
    """

    n: Floats
    tasks: Floats
    workers: Floats
    spare_tasks: Floats
    spare_workers: Floats
    per_task: Floats
    paired: Floats


def _square_sums(answers: Answers, y: Floats) -> _SquareSums:
    n_tasks, n_i = answers.n_tasks, answers.task_degree.astype(np.float64)
    n_u = answers.worker_degree.astype(np.float64)[answers.worker]
    mean_i, within = _within(y, answers.task, n_tasks)
    mean_u, within_u = _within(y, answers.worker, answers.n_workers)
    # Without task i, each of its workers loses one answer: (y - mean)^2 n / (n - 1) of its sum.
    lost = (y - mean_u[answers.worker]) ** 2 * n_u / np.maximum(n_u - 1, 1)
    lost_i = _sum_by(answers.task, lost, n_tasks)
    pairs = n_i > 1
    weighted = np.where(pairs, n_i / np.maximum(n_i - 1, 1), 0.0) * within
    return _SquareSums(
        total=_without_each(n_i, mean_i, within),
        within_tasks=np.append(within.sum(), within.sum() - within),
        within_workers=np.append(within_u.sum(), within_u.sum() - lost_i),
        paired_total=_without_each(np.where(pairs, n_i, 0.0), mean_i, within),
        paired_within=np.append(weighted.sum(), weighted.sum() - weighted),
    )


def _within(y: Floats, owner: Codes, n: int) -> tuple[Floats, Floats]:
    mean = np.bincount(owner, y, minlength=n) / np.bincount(owner, minlength=n)
    return mean, _sum_by(owner, (y - mean[owner]) ** 2, n)


def _sum_by(owner: Codes, numbers: Floats, n: int) -> Floats:
    return np.bincount(owner, numbers, minlength=n).astype(np.float64)


def _without_each(n_i: Floats, mean_i: Floats, within: Floats) -> Floats:
    """Sum of squares about the common mean, of all and without each task."""
    n = n_i.sum()
    mean = (n_i @ mean_i) / max(n, 1.0)
    apart = n_i * (mean_i - mean) ** 2
    total = (apart + within * (n_i > 0)).sum()
    # Taking a group away moves the mean of the others, too: hence n / (n - n_i).
    rest = np.maximum(n - n_i, 1.0)
    return np.append(total, total - np.where(n_i > 0, within + apart * n / rest, 0.0))


def _counts(answers: Answers) -> _Counts:
    n_i = answers.task_degree.astype(np.float64)
    n_u = answers.worker_degree.astype(np.float64)
    of_edge = n_u[answers.worker]
    last = _sum_by(answers.task, (of_edge == 1).astype(np.float64), answers.n_tasks)
    squares = _sum_by(answers.task, 2 * of_edge - 1, answers.n_tasks)
    paired = np.where(n_i > 1, n_i, 0.0)

    def less(whole: float, part: Floats | float) -> Floats:
        return np.append(whole, whole - part * np.ones(answers.n_tasks))

    n, tasks = less(answers.n_edges, n_i), less(answers.n_tasks, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        spare_tasks = n - less(float(n_i @ n_i), n_i**2) / n
        return _Counts(
            n=n,
            tasks=tasks,
            workers=less(answers.n_workers, last),
            spare_tasks=spare_tasks,
            spare_workers=n - less(float(n_u @ n_u), squares) / n,
            per_task=spare_tasks / (tasks - 1),
            paired=less(float(paired.sum()), paired),
        )


def _coefficients(sums: _SquareSums, c: _Counts) -> Coefficients:
    with np.errstate(divide="ignore", invalid="ignore"):
        # Rounding may leave a sum from which much was subtracted below zero.
        total, within, of_workers = (np.maximum(part, 0.0) for part in sums[:3])
        least = 1e-24 * max(total[0], 1e-300)
        ms_within = within / (c.n - c.tasks)
        ms_between = np.maximum(total - within, 0.0) / (c.tasks - 1)
        icc1 = (ms_between - ms_within) / (ms_between + (c.per_task - 1) * ms_within)
        icck = (ms_between - ms_within) / ms_between
        # a + e from within workers, b + e from within tasks, all three from the total.
        a_e, b_e = of_workers / (c.n - c.workers), ms_within
        crossed = c.spare_tasks + c.spare_workers - (c.n - 1)
        a = a_e - (c.spare_tasks * a_e + c.spare_workers * b_e - total) / crossed
        expected = np.maximum(sums.paired_total, 0.0) / (c.paired - 1)
        alpha = 1 - np.maximum(sums.paired_within, 0.0) / c.paired / expected
        one_way = (total > least) & (c.n > c.tasks)
        two_way = one_way & (crossed > 0) & (c.n > c.workers)
        found = {
            "icc1": np.where(one_way, icc1, np.nan),
            "icck": np.where(one_way, icck, np.nan),
            "icc_agreement": np.where(two_way, a / (a + b_e), np.nan),
            "icc_consistency": np.where(two_way, a / a_e, np.nan),
            "alpha": np.where(sums.paired_total > least, alpha, np.nan),
        }
    return Coefficients(**{name: _jackknife(part) for name, part in found.items()})


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


def _without_nan(item: object) -> object:
    if isinstance(item, dict):
        return {key: _without_nan(part) for key, part in item.items()}
    return None if isinstance(item, float) and np.isnan(item) else item
