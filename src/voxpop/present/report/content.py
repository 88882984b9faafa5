"""The numbers of the report: tasks, answers and workers as columns, rounded and capped.

Every list here is as long as the tasks, answers or workers shown. Numbers are rounded to the digits
that their uncertainty supports, so that a report of ten thousand tasks can still be mailed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.data.sums import weighted_means
from voxpop.models.scale import LINEAR
from voxpop.present.report.contents import Contents
from voxpop.results.answer_weights import answer_weights
from voxpop.results.diagnosis.flags import Diagnosis
from voxpop.results.result import Result
from voxpop.results.scaled import result_on_scale

# Nobody reads more answers of one task than this; those of the heaviest workers are shown.
_MOST_ANSWERS = 1000
# Longer ids lose their middle.
_LONGEST_ID = 120
# Bars of the histogram of sds; the last one holds all sds above this quantile.
_BARS, _TOP = 24, 0.99
# Sds that differ by a smaller share than this are equal, and make no histogram.
_EQUAL = 1e-3


@dataclass(frozen=True, eq=False)
class Shown:
    """The tasks, edges and workers that a report has room for, as positions."""

    tasks: Index
    edges: Index
    per_task: Index
    workers: Index


def choose(answers: Answers, result: Result, budget: int) -> Shown:
    """Take everything, or what fits into a ``budget`` of numbers.

    Tasks that need a look come first, then the most uncertain. With them come the workers who
    answered them, the flagged ones, and the most active others, up to as many workers as tasks.
    """
    d = answers.dimension
    cost = 4 + 5 * d + np.minimum(answers.task_degree, _MOST_ANSWERS) * (3 + d)
    ready = np.ones(answers.n_tasks, dtype=bool)
    ready[result.review.tasks] = False
    by_doubt = np.lexsort((-result.variance.mean(axis=1), ready))
    n_tasks = max(1, int(np.searchsorted(np.cumsum(cost[by_doubt]), budget, side="right")))
    tasks = np.sort(by_doubt[:n_tasks])
    edges = np.flatnonzero(np.isin(answers.task, tasks))
    # Of very many answers to one task, those of the workers with most weight.
    weight = result.worker_weight[answers.worker[edges]]
    by_weight = edges[np.lexsort((-weight, answers.task[edges]))]
    degree = answers.task_degree[tasks]
    rank = np.arange(len(edges)) - np.repeat(np.cumsum(degree) - degree, degree)
    edges = np.sort(by_weight[rank < _MOST_ANSWERS])
    wanted = np.isin(np.arange(answers.n_workers), answers.worker[edges])
    if result.review.workers:
        wanted |= np.isin(answers.worker_ids, np.array(result.review.workers, dtype=object))
    most = max(int(wanted.sum()), n_tasks)
    order = np.lexsort((-answers.worker_degree, ~wanted))
    return Shown(tasks, edges, np.minimum(degree, _MOST_ANSWERS), np.sort(order[:most]))


def columns(
    answers: Answers, result: Result, shown: Shown, truth: Floats | None, contents: Contents
) -> dict[str, Any]:
    """Everything the page draws, as JSON can hold it."""
    found = result.review.diagnosis
    digits = _digits(answers, result)
    n = {"tasks": answers.n_tasks, "answers": answers.n_edges, "workers": answers.n_workers}
    return {
        "totals": n,
        "names": list(result.value_names),
        "digits": digits.tolist(),
        "answerDigits": _answer_digits(answers.value, digits),
        "tasks": {
            **_tasks(answers, result, shown, digits, truth),
            "look": looks(result, shown),
            "content": contents.of_task,
        },
        "images": contents.pictures,
        "answers": _answers(answers, result, shown, digits),
        "workers": _workers(result, shown, digits),
        "flags": [] if found is None else _flags(found, result.worker_ids, shown),
        "pictures": _pictures(answers, result),
    }


def looks(result: Result, shown: Shown) -> list[list[Any]]:
    """Position among the tasks shown, and reasons, of each that needs a look, in their order."""
    place = {i: k for k, i in enumerate(shown.tasks.tolist())}
    pairs = zip(result.review.tasks.tolist(), result.review.reasons, strict=True)
    return [[place[i], list(reasons)] for i, reasons in pairs if i in place]


def _digits(answers: Answers, result: Result) -> Index:
    """Decimals of each coordinate: the median sd is given to four significant digits."""
    sd = np.median(result.sd, axis=0)
    spread = np.where(sd > 0, sd, np.ptp(answers.value, axis=0) / 100)
    size = np.floor(np.log10(np.where(spread > 0, spread, 1.0)))
    return np.asarray(np.clip(3 - size, -90, 90).astype(np.int64))


def _answer_digits(value: Floats, digits: Index) -> list[int]:
    """Decimals that give all answers exactly, or else as many as the sd supports."""
    found = []
    for column, most in zip(value.T, np.clip(digits, 0, 12).tolist(), strict=True):
        exact = (k for k in range(most + 1) if (np.round(column, k) == column).all())
        found.append(next(exact, max(most - 2, 0)))
    return found


def _rounded(array: Floats, digits: Index | int) -> list[Any]:
    """Round; what is not a finite number becomes None."""
    if isinstance(digits, int):
        return [x if isfinite(x) else None for x in np.round(array, digits).tolist()]
    return [_rounded(array[:, j], int(each)) for j, each in enumerate(digits)]


def _tasks(
    answers: Answers, result: Result, shown: Shown, digits: Index, truth: Floats | None
) -> dict[str, Any]:
    tasks, hard = shown.tasks, result.task_difficulty
    low, high = result.interval(0.95)
    return {
        "id": _texts(result.task_ids[tasks]),
        "estimate": _rounded(result.estimate[tasks], digits),
        "sd": _rounded(result.sd[tasks], digits),
        "lower": _rounded(low[tasks], digits),
        "upper": _rounded(high[tasks], digits),
        "mean": _rounded(weighted_means(answers)[tasks], digits),
        "n": answers.task_degree[tasks].tolist(),
        "shown": shown.per_task.tolist(),
        "gold": np.flatnonzero(answers.is_gold[tasks]).tolist(),
        "difficulty": _rounded(hard[tasks], 3) if hard.size else None,
        "truth": None if truth is None else _rounded(truth[tasks], digits),
    }


def _answers(answers: Answers, result: Result, shown: Shown, digits: Index) -> dict[str, Any]:
    edges, camps = shown.edges, result.review.camps
    weight, meaning = answer_weights(answers, result, shown.tasks)
    weight = weight[np.isin(np.flatnonzero(np.isin(answers.task, shown.tasks)), edges)]
    gold = answers.is_gold[answers.task[edges]]
    off = None
    # On a circle an answer is shown where it is nearest to the estimate.
    value = result.scale.nearest(answers.value, result.estimate[answers.task])
    there, found = result_on_scale(answers, result)
    audit = found.audit
    if audit is not None and audit.predicted.shape == answers.value.shape:
        sd = result.calibration.stretch * audit.predicted_sd[edges]
        away = there.value[edges] - audit.predicted[edges]
        ratio = np.divide(away, sd, out=np.zeros_like(away), where=sd > 0)
        one = ratio[:, 0] if answers.dimension == 1 else np.sqrt((ratio**2).mean(axis=1))
        alone = (answers.task_degree[answers.task[edges]] < 2) & ~gold
        off = _rounded(np.where(alone, np.nan, one), 2)
    return {
        "worker": np.searchsorted(shown.workers, answers.worker[edges]).tolist(),
        "value": _rounded(value[edges], digits),
        "weight": _rounded(np.where(gold, 0.0, weight), 3),
        "meaning": meaning,
        "off": off,
        "upper": [] if camps is None else np.flatnonzero(camps.upper[edges]).tolist(),
    }


def _workers(result: Result, shown: Shown, digits: Index) -> dict[str, Any]:
    workers = shown.workers
    if result.scale != LINEAR:
        # Noise is on the scale, and so has other digits.
        noise = float(np.sqrt(np.median(result.worker_variance)))
        digits = np.full_like(digits, 3 - int(np.floor(np.log10(noise))) if noise > 0 else 3)
    fewest = int(digits.min())
    bounds = np.sqrt(np.maximum(result.worker_interval[workers], 0.0))
    biased = bool(result.worker_bias.size)
    return {
        "id": _texts(result.worker_ids[workers]),
        "n": result.worker_answers[workers].tolist(),
        "sd": _rounded(np.sqrt(result.worker_variance[workers]), fewest),
        "lower": _rounded(bounds[:, 0], fewest),
        "upper": _rounded(bounds[:, 1], fewest),
        "weight": _rounded(result.worker_weight[workers], 3),
        "bias": _rounded(result.worker_bias[workers], digits) if biased else None,
        "biasSd": _rounded(result.worker_bias_sd[workers], digits) if biased else None,
    }


def _flags(found: Diagnosis, ids: Ids, shown: Shown) -> list[list[Any]]:
    """Worker, kind, evidence and false alarms of each flag, strongest evidence first."""
    place = {identity: u for u, identity in enumerate(ids[shown.workers].tolist())}
    return [
        [place[flag.worker], flag.kind, flag.evidence, float(f"{flag.false_alarms:.2g}")]
        for flag in found.flags
    ]


def _pictures(answers: Answers, result: Result) -> dict[str, Any]:
    """Figures of all tasks, shown or not: sds, calibration and convergence."""
    sd = np.sqrt(result.variance.mean(axis=1))[~answers.is_gold]
    pictures: dict[str, Any] = {"sd": None, "calibration": None, "trace": None}
    if len(sd) > 1 and np.ptp(sd) > _EQUAL * sd.max():
        top = float(np.quantile(sd, _TOP))
        # Where nearly all are equal, the few others must not fall into one bar with them.
        top = top if top - sd.min() > _EQUAL * top else float(sd.max())
        counts, bounds = np.histogram(np.minimum(sd, top), _BARS, (float(sd.min()), top))
        pictures["sd"] = {
            "bounds": [float(f"{bound:.5g}") for bound in bounds],
            "counts": counts.tolist(),
            "largest": float(f"{sd.max():.5g}"),
        }
    audit = result.audit
    if audit is not None and audit.has_pit:
        nominal = np.arange(1, 20) / 20
        stretched = audit.is_stretched
        pictures["calibration"] = {
            "pit": _rounded(audit.pit_shares(20), 3),
            "nominal": _rounded(nominal, 2),
            "plain": _rounded(audit.coverage_at(nominal), 4),
            "stretched": _rounded(audit.coverage_at(nominal, True), 4) if stretched else None,
        }
    changes = [float(f"{change:.2e}") for change in result.trace.changes if np.isfinite(change)]
    if changes:
        # The first change may be infinite: sweeps are counted, not the changes drawn.
        first, last = result.trace.n_sweeps - len(changes) + 1, result.trace.n_sweeps
        converged = result.trace.converged
        pictures["trace"] = {"changes": changes, "first": first, "n": last, "converged": converged}
    return pictures


def _texts(ids: Ids) -> list[str]:
    """Ids as text, without the middle of very long ones."""
    cut = _LONGEST_ID // 2
    spelled = map(str, ids.tolist())
    return [t if len(t) <= _LONGEST_ID else f"{t[:cut]}…{t[-cut:]}" for t in spelled]
