"""Reliability: how much the answers of a crowd say of the tasks, and how much of the workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from voxpop.arrays import Codes, Floats
from voxpop.data.answers import Answers

OVERALL = "overall"


@dataclass(frozen=True, kw_only=True)
class Figure:
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
class Figures:
    """The coefficients of one coordinate, or of all together.

    Attributes
    ----------
    icc1
        ICC(1): the tasks' share in the variance of one answer. Who gave it does not matter.
    icck
        ICC(k): the same of the mean of a task's answers, of which there are k on average.
    icc_agreement
        ICC(A,1): like ICC(1), when every worker may have a bias of its own that counts as error.
    icc_consistency
        ICC(C,1): the same when such a bias does not count.
    alpha
        Krippendorff's alpha for interval data; of vectors, with squared Euclidean distance.
    """

    icc1: Figure
    icck: Figure
    icc_agreement: Figure
    icc_consistency: Figure
    alpha: Figure


NAMES = {
    "icc1": "ICC(1)",
    "icck": "ICC(k)",
    "icc_agreement": "ICC(A,1)",
    "icc_consistency": "ICC(C,1)",
    "alpha": "Krippendorff's alpha",
}


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far the workers agree, over all coordinates and for each of several.

    The intervals are for other tasks put to the same crowd (jackknife over tasks).

    Attributes
    ----------
    overall
        The coefficients with variances added up over the coordinates.
    coordinates
        The coefficients of each coordinate, by its name.
    answers_per_task
        The k of ICC(k): the mean number of answers of a task, less what their spread costs.
    reading
        What the figures say, in words.
    """

    n_tasks: int
    n_workers: int
    n_answers: int
    answers_per_task: float
    overall: Figures
    coordinates: dict[str, Figures]
    reading: str

    def columns(self) -> dict[str, list[Any]]:
        """One row per coordinate and coefficient: of, coefficient, value, lower_95, upper_95."""
        parts = {OVERALL: self.overall} | (self.coordinates if len(self.coordinates) > 1 else {})
        rows = [
            (of, NAMES[part.name], *_numbers(getattr(figures, part.name)))
            for of, figures in parts.items()
            for part in fields(figures)
        ]
        names = ("of", "coefficient", "value", "lower_95", "upper_95")
        return {name: [row[j] for row in rows] for j, name in enumerate(names)}

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and texts, None where a figure is undefined."""
        return {key: _without_nan(item) for key, item in asdict(self).items()}

    def __str__(self) -> str:
        return self.reading


def agreement(answers: Answers) -> Agreement:
    """Measure how far the workers agree, in time and memory linear in the answers.

    With ``a_i`` the variance of the tasks, ``b_u`` of the workers' biases and ``e`` of the rest,
    the coefficients are shares of variance; tables with missing answers are welcome::

        ICC(1) = a / (a + w),  a and w from the sums of squares between and within tasks
        ICC(A,1) = a / (a + b + e),   ICC(C,1) = a / (a + e)
        alpha = 1 - (squared difference within tasks) / (squared difference over all pairs)

    The components of the two-way coefficients equate the sums of squares within tasks, within
    workers and in all with their expectations (Henderson's first method), which on a complete
    table is the analysis of variance, so that ICC(A,1) and ICC(C,1) are those of McGraw and Wong
    (1996). Negative components are left as they are, as there: noise then scatters about 0.
    """
    # Shift and scale change nothing but the rounding.
    value = answers.value - answers.value.mean(axis=0)
    value = value / (np.abs(value).max() or 1.0)
    parts = [_sums(answers, value[:, j]) for j in range(answers.dimension)]
    whole = _Sums(*(np.sum(parts_of, axis=0) for parts_of in zip(*parts, strict=True)))
    overall, k = _figures(answers, whole)
    names = answers.value_names
    each = {name: _figures(answers, part)[0] for name, part in zip(names, parts, strict=True)}
    return Agreement(
        n_tasks=answers.n_tasks,
        n_workers=answers.n_workers,
        n_answers=answers.n_edges,
        answers_per_task=k,
        overall=overall,
        coordinates=each,
        reading=_reading(overall, k),
    )


class _Sums(NamedTuple):
    """Sums of squares of all answers (first entry) and without each task (the others)."""

    total: Floats
    within_tasks: Floats
    within_workers: Floats
    paired_total: Floats  # of tasks with two answers or more, for alpha
    paired_within: Floats


class _Counts(NamedTuple):
    """The counts that go with :class:`_Sums`."""

    n: Floats
    tasks: Floats
    workers: Floats
    task_squares: Floats
    worker_squares: Floats
    paired: Floats


def _sums(answers: Answers, y: Floats) -> _Sums:
    n_tasks, n_i = answers.n_tasks, answers.task_degree.astype(np.float64)
    n_u = answers.worker_degree.astype(np.float64)[answers.worker]
    mean_i, within = _within(y, answers.task, n_tasks)
    mean_u, within_u = _within(y, answers.worker, answers.n_workers)
    # Without task i, each of its workers loses one answer: (y - mean)^2 n / (n - 1) of its sum.
    lost = (y - mean_u[answers.worker]) ** 2 * n_u / np.maximum(n_u - 1, 1)
    lost_i = _sum_by(answers.task, lost, n_tasks)
    pairs = n_i > 1
    weighted = np.where(pairs, n_i / np.maximum(n_i - 1, 1), 0.0) * within
    return _Sums(
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

    return _Counts(
        n=less(answers.n_edges, n_i),
        tasks=less(answers.n_tasks, 1.0),
        workers=less(answers.n_workers, last),
        task_squares=less(float(n_i @ n_i), n_i**2),
        worker_squares=less(float(n_u @ n_u), squares),
        paired=less(float(paired.sum()), paired),
    )


def _figures(answers: Answers, sums: _Sums) -> tuple[Figures, float]:
    c = _counts(answers)
    with np.errstate(divide="ignore", invalid="ignore"):
        # What is left of a sum after much was taken away may be rounding below zero.
        total, within, of_workers = (np.maximum(part, 0.0) for part in sums[:3])
        varies = total > 1e-24 * max(total[0], 1e-300)
        ms_within = within / (c.n - c.tasks)
        ms_between = np.maximum(total - within, 0.0) / (c.tasks - 1)
        k = (c.n - c.task_squares / c.n) / (c.tasks - 1)
        icc1 = (ms_between - ms_within) / (ms_between + (k - 1) * ms_within)
        icck = (ms_between - ms_within) / ms_between
        # a + e from within workers, b + e from within tasks, all three from the total.
        a_e, b_e = of_workers / (c.n - c.workers), ms_within
        spare = c.n - c.task_squares / c.n, c.n - c.worker_squares / c.n
        crossed = spare[0] + spare[1] - (c.n - 1)
        e = (spare[0] * a_e + spare[1] * b_e - total) / crossed
        a = a_e - e
        defined = varies & (crossed > 0) & (c.n > c.tasks) & (c.n > c.workers)
        two_way = [np.where(defined, a / part, np.nan) for part in (a + b_e, a_e)]
        expected = np.maximum(sums.paired_total, 0.0) / (c.paired - 1)
        alpha = 1 - np.maximum(sums.paired_within, 0.0) / c.paired / expected
        alpha = np.where(sums.paired_total > 1e-24 * max(total[0], 1e-300), alpha, np.nan)
    one_way = [np.where(varies & (c.n > c.tasks), icc, np.nan) for icc in (icc1, icck)]
    named = zip((part.name for part in fields(Figures)), (*one_way, *two_way, alpha), strict=True)
    return Figures(**{name: _jackknife(found) for name, found in named}), float(k[0])


def _jackknife(found: Floats) -> Figure:
    """Interval from the figures without each task, on the scale of log(1 - figure).

    On that scale, of the share of error, a bound above 1 cannot come out.
    """
    value = float(found[0]) if np.isfinite(found[0]) else np.nan
    without, n = found[1:], len(found) - 1
    if np.isnan(value) or n < 3 or not np.isfinite(without).all():
        return Figure(value=value, lower=np.nan, upper=np.nan)
    if value >= 1.0 or (without >= 1.0).any():
        same = bool((without >= 1.0 - 1e-12).all())
        bound = value if same else np.nan
        return Figure(value=min(value, 1.0), lower=bound, upper=bound)
    error = np.log1p(-without)
    se = np.sqrt((n - 1) / n * ((error - error.mean()) ** 2).sum())
    reach = float(stdtrit(n - 1, 0.975) * se)
    ends = [float(1 - (1 - value) * np.exp(sign * reach)) for sign in (1, -1)]
    return Figure(value=value, lower=ends[0], upper=ends[1])


def _numbers(figure: Figure) -> Iterator[float]:
    return iter((figure.value, figure.lower, figure.upper))


def _without_nan(item: object) -> object:
    if isinstance(item, dict):
        return {key: _without_nan(part) for key, part in item.items()}
    return None if isinstance(item, float) and np.isnan(item) else item


def _reading(figures: Figures, k: float) -> str:
    one, mean = figures.icc1.value, figures.icck.value
    if np.isnan(one):
        return "Agreement cannot be told: no task has two answers, or all answers are equal."
    if one <= 0:
        return (
            "Answers to one task differ as much as answers to different tasks: the crowd says "
            "nothing of the tasks that chance would not."
        )
    said = [
        f"{one:.0%} of the variance of one answer comes from the tasks; the mean of {k:.3g} "
        f"answers is reliable to {mean:.2f}."
    ]
    agreed, consistent = figures.icc_agreement.value, figures.icc_consistency.value
    if 0 < agreed < consistent <= 1:
        # Without the biases the share would be ICC(C,1): by so much less the error would be.
        error, less = (1 - agreed) / agreed, (1 - consistent) / consistent
        said.append(
            f"Lasting differences between workers (biases) make up {1 - less / error:.0%} of the "
            "error."
        )
    alpha = figures.alpha.value
    if alpha < 0.667:
        said.append(
            f"Krippendorff's alpha is {alpha:.2f}: below the .667 that he asks for even tentative "
            "conclusions from single answers."
        )
    elif alpha < 0.8:
        said.append(f"Krippendorff's alpha is {alpha:.2f}: by his measure fit for tentative use.")
    else:
        said.append(f"Krippendorff's alpha is {alpha:.2f}: by his measure, reliable.")
    return " ".join(said)
