"""Groups apart: unconnected groups of workers, fitted one by one where they scatter differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Codes, Floats, Index
from voxpop.data.answers import Answers
from voxpop.errors import shorten
from voxpop.estimators.bi.noise_levels import median_distance
from voxpop.inference.kernels.posterior import Posterior
from voxpop.results.audit import Audit
from voxpop.results.result import Result

# Of two groups of 6 workers and 20 tasks whose noise is learned together, 95 % intervals of the one
# that scatters more hold 92 % of the truths if it does so twice as far, 90 % at three times, 84 %
# at five, 78 % at ten and 56 % at a thousand; where each is fitted by itself, 95 %.
_RATIO = 4.0
# Fewer answers show too little of how far they scatter.
_FEWEST_ANSWERS = 50
# Share of the answers of a part that its scatter is taken from.
_COUNTED = 0.9
_NONE, _NOTHING = np.empty((0, 0)), np.empty(0)


def fit_groups(
    fit: Callable[[Answers], Result], answers: Answers, on_scale: Answers | None = None
) -> Result:
    """Fit answers, group by group where noise learned from one would mislead about another.

    The groups share no worker and no task, so that nothing but the noise, the prior of the truths
    and gold would connect them. Each is fitted as if it were alone. ``on_scale`` are the answers
    where their noise is compared.
    """
    group = groups_apart(answers if on_scale is None else on_scale)
    if group is None:
        return fit(answers)
    masks = [group[answers.worker] == g for g in range(int(group.max()) + 1)]
    return _joined(answers, [_Group.of(fit, answers, mask) for mask in masks])


def groups_apart(answers: Answers) -> Codes | None:
    """Number the group of each worker (m,), from those that scatter least; None if all are alike.

    A group is one or more of the connected parts. Within it, no part scatters :data:`_RATIO` times
    as far as another. Parts with few answers are with the largest of those near to them, if known.
    """
    part = answers.worker_part
    if part.max() == 0:
        return None
    spread = _spread_of_parts(answers, part)
    known = np.flatnonzero(~np.isnan(spread))
    if not len(known) or spread[known].max() <= _RATIO * spread[known].min():
        return None
    of_part = np.full(len(spread), -1)
    lowest, number = 0.0, -1
    for each in known[np.argsort(spread[known], kind="stable")]:
        if spread[each] > _RATIO * lowest:
            lowest, number = spread[each], number + 1
        of_part[each] = number
    # What shows too little of itself goes with most of the answers.
    size = np.bincount(part[answers.worker], minlength=len(spread))
    counts = np.bincount(of_part[known], size[known])
    of_part[of_part < 0] = counts.argmax()
    return np.asarray(of_part[part], dtype=np.int32)


def _spread_of_parts(answers: Answers, part: Codes) -> Floats:
    """Root mean square distance of answers from their task's median by part; NaN where unknown.

    The furthest tenth does not count: a few wild answers are no reason to learn less from others.
    """
    several = np.flatnonzero((answers.task_degree > 1)[answers.task])
    square, owner = median_distance(answers)[several], part[answers.worker[several]]
    n_parts = int(part.max()) + 1
    count = np.bincount(owner, minlength=n_parts)
    order = np.lexsort((square, owner))
    rank = np.arange(len(order)) - (np.cumsum(count) - count)[owner[order]]
    nearest = order[rank < _COUNTED * count[owner[order]]]
    n_nearest = np.bincount(owner[nearest], minlength=n_parts)
    total = np.bincount(owner[nearest], square[nearest], minlength=n_parts)
    known = (count >= _FEWEST_ANSWERS) & (total > 0)
    return np.where(known, np.sqrt(total) / np.sqrt(np.maximum(n_nearest, 1)), np.nan)


@dataclass(frozen=True, eq=False)
class _Group:
    """A group's result, and the numbers of its answers, tasks and workers among all."""

    result: Result
    edges: Index
    tasks: Index
    workers: Index

    @classmethod
    def of(
        cls, fit: Callable[[Answers], Result], answers: Answers, mask: NDArray[np.bool_]
    ) -> _Group:
        tasks, workers = (
            np.unique(codes[mask]).astype(np.int64) for codes in (answers.task, answers.worker)
        )
        return cls(fit(answers.select(mask)), np.flatnonzero(mask), tasks, workers)


def _joined(answers: Answers, groups: Sequence[_Group]) -> Result:
    """Join the results of groups; what has only one value is that of the largest group."""
    results = [group.result for group in groups]
    main = max(results, key=lambda result: int(result.worker_answers.sum()))
    tasks, workers = [g.tasks for g in groups], [g.workers for g in groups]

    def of_tasks(name: str, none: float = 0.0) -> Floats:
        return _placed(tasks, [getattr(result, name) for result in results], none)

    def of_workers(name: str, none: float = 0.0) -> Floats:
        return _placed(workers, [getattr(result, name) for result in results], none)

    # Biases and gains are at a centre of their own in every group: the facts have room for one.
    gains = all(result.noise.gain_centre == main.noise.gain_centre for result in results)
    levels = np.unique(np.concatenate([result.levels for result in results]))
    has_levels = all(result.levels.size for result in results)
    return replace(
        main,
        task_ids=answers.task_ids,
        worker_ids=answers.worker_ids,
        task_answers=answers.task_degree,
        worker_answers=answers.worker_degree,
        estimate=of_tasks("estimate"),
        variance=of_tasks("variance"),
        quantile=of_tasks("quantile"),
        worker_variance=of_workers("worker_variance"),
        worker_interval=of_workers("worker_interval"),
        worker_weight=of_workers("worker_weight"),
        worker_bias=of_workers("worker_bias"),
        worker_bias_sd=of_workers("worker_bias_sd"),
        worker_gain=of_workers("worker_gain", 1.0) if gains else _NONE,
        worker_gain_sd=of_workers("worker_gain_sd") if gains else _NONE,
        worker_slips=of_workers("worker_slips"),
        task_difficulty=of_tasks("task_difficulty", 1.0),
        levels=levels if has_levels else _NOTHING,
        level_weights=_level_weights(levels, results) if has_levels else _NOTHING,
        worker_posterior=_worker_posterior(levels, workers, results) if has_levels else _NONE,
        noise=main.noise if gains else replace(main.noise, gain_sd=(), gain_centre=()),
        audit=_joined_audit(groups),
        trace=replace(
            max((result.trace for result in results), key=lambda trace: trace.n_sweeps),
            converged=all(result.trace.converged for result in results),
        ),
        settings={**main.settings, "groups_apart": len(groups), **_copyists(results)},
        notes=_notes(answers, results),
        _agreement=None
        if all(result._agreement is None for result in results)
        else Posterior(
            *(
                _placed(tasks, [getattr(result._agreed, name) for result in results])
                for name in ("estimate", "variance", "quantile")
            )
        ),
        _groups=tuple(results),
        _answers=answers,
    )


def _placed(rows: Sequence[Index], found: Sequence[Floats], none: float = 0.0) -> Floats:
    """Put what was found of some rows each into one array; ``none`` where a group has nothing."""
    shape = next((each.shape[1:] for each in found if each.size), None)
    if shape is None:
        return found[0]
    whole = np.full((sum(len(each) for each in rows), *shape), none)
    for each, values in zip(rows, found, strict=True):
        if values.size:
            whole[each] = values
    return whole


def _level_weights(levels: Floats, results: Sequence[Result]) -> Floats:
    """Shares of all workers at the levels of all groups."""
    weight = np.zeros(len(levels))
    for result in results:
        at = np.searchsorted(levels, result.levels)
        weight[at] += len(result.worker_ids) * result.level_weights
    return np.asarray(weight / weight.sum())


def _worker_posterior(
    levels: Floats, workers: Sequence[Index], results: Sequence[Result]
) -> Floats:
    """Probabilities of the levels of all groups, by worker."""
    posterior = np.zeros((sum(len(each) for each in workers), len(levels)))
    for each, result in zip(workers, results, strict=True):
        posterior[np.ix_(each, np.searchsorted(levels, result.levels))] = result.worker_posterior
    return posterior


def _joined_audit(groups: Sequence[_Group]) -> Audit | None:
    """The audit of all answers: each was held against its prediction in its own group."""
    audits = [group.result.audit for group in groups if group.result.audit is not None]
    if len(audits) < len(groups):
        return None
    number = np.array([audit.n_answers for audit in audits])
    counted = number > 0
    if not counted.any():
        return audits[0]

    share = number[counted] / number.sum()

    def mean(name: str) -> float:
        return float(share @ np.array([getattr(audit, name) for audit in audits])[counted])

    def of_edges(name: str, none: Floats = _NONE) -> Floats:
        found = [getattr(audit, name) for audit in audits]
        edges = [group.edges for group in groups]
        return _placed(edges, found, np.nan) if all(each.size for each in found) else none

    rmse = np.array([audit.rmse for audit in audits])[counted]
    return Audit(
        n_answers=int(number.sum()),
        stretch=max(audit.stretch for audit in audits),
        coverage_90=mean("coverage_90"),
        coverage_95=mean("coverage_95"),
        unstretched_95=mean("unstretched_95"),
        # Squares of the largest values would overflow.
        rmse=float(rmse.max() * np.sqrt(share @ (rmse / (rmse.max() or 1.0)) ** 2)),
        log_score=mean("log_score"),
        exact=all(audit.exact for audit in audits),
        pit=of_edges("pit"),
        predicted=of_edges("predicted"),
        predicted_sd=of_edges("predicted_sd"),
        truth=of_edges("truth"),
        log_density=of_edges("log_density", _NOTHING),
        judged_by=of_edges("judged_by", _NOTHING),
    )


def _copyists(results: Sequence[Result]) -> dict[str, Any]:
    """Workers who count as one, of all groups."""
    found = [item for result in results for item in result.settings.get("groups", ())]
    return {"groups": found} if found else {}


def _notes(answers: Answers, results: Sequence[Result]) -> tuple[str, ...]:
    """Say that there are groups, and what was found in each."""
    said = [
        f"the answers fall into {len(results)} groups that share no worker or task and scatter "
        "very differently: each was fitted by itself, and weights of workers compare those of one "
        "group"
    ]
    for result in results:
        who = f"workers {shorten(result.worker_ids)}"
        said += [f"{who}: {note}" for note in result.notes if note not in answers.notes]
    return (*answers.notes, *said)
