"""Explain: why the estimate of one task is what it is, and what one more answer would change."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.data.tables import finite, frame
from voxpop.errors import shorten
from voxpop.models.scale import LINEAR
from voxpop.results.answer_weights import answer_weights, require_match
from voxpop.results.prediction import Scatter, find_id, predicted, scatter, weighs_equally
from voxpop.results.result import Result
from voxpop.results.scaled import result_on_scale
from voxpop.results.tables import html_table, records, suffixes, text_table
from voxpop.results.value_of_answer import value_of_answer
from voxpop.words import counted, number_text, percent

if TYPE_CHECKING:
    from voxpop.estimators.base import Estimator

# An answer this many noise sds off looks like a slip.
_FAR = 10.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """One task, answer by answer: weights, leave-one-out predictions and estimates.

    Rows are answers in order of decreasing weight; arrays of vectors are (n_answers, dimension).

    Attributes
    ----------
    estimate, sd, lower, upper
        The estimate with its sd and 95 % interval, as in the result.
    noise_sd, bias, gain, slips
        Each worker's noise, bias, gain and share of slips; NaN for methods that do not estimate
        them.
    slipped
        Whether the answer looks like a slip: ten times as far off as the worker's noise.
    weight
        Share of the answer in the estimate. The weights sum to one, or are all zero for gold.
    predicted, predicted_sd
        Leave-one-out prediction of the answer, worker bias included, and its sd if the answer is
        no slip; NaN for a single answer.
    off
        Distance of the answer from its prediction, in units of ``predicted_sd``.
    without
        Leave-one-out estimate; NaN for a single answer.
    shared
        Share of the variance that comes from an error which all workers may share.
    one_more
        Expected sd after one more answer by a typical, the best and the worst worker of the crowd.
    how
        How ``weight`` and ``without`` were computed, in words.
    """

    task: object
    value_names: tuple[str, ...]
    estimate: Floats
    sd: Floats
    lower: Floats
    upper: Floats
    is_gold: bool
    difficulty: float | None
    worker: Ids
    value: Floats
    noise_sd: Floats
    bias: Floats
    gain: Floats
    slips: Floats
    slipped: NDArray[np.bool_]
    weight: Floats
    predicted: Floats
    predicted_sd: Floats
    off: Floats
    without: Floats
    shared: float
    one_more: Mapping[str, float]
    how: Mapping[str, str]
    frame_kind: str = field(default="pandas", repr=False)

    @property
    def answers(self) -> Any:
        """Data frame of the answers, of the kind the table came in."""
        return frame(self.columns(), self.frame_kind)

    def columns(self) -> dict[str, Any]:
        """Return the columns of :attr:`answers` as arrays."""
        of = suffixes(self.value_names)
        columns: dict[str, Any] = {"worker": self.worker}
        columns |= {f"answer{s}": self.value[:, j] for j, s in enumerate(of)}
        columns |= {"weight": self.weight, "noise_sd": self.noise_sd}
        if np.isfinite(self.slips).any():
            columns["slip_share"] = self.slips
        for name in ("bias", "gain", "predicted", "predicted_sd", "off", "without"):
            array = getattr(self, name)
            if name not in ("bias", "gain") or np.isfinite(array).any():
                columns |= {name + s: array[:, j] for j, s in enumerate(of)}
        return columns

    def sentences(self) -> list[str]:
        """Return the explanation as sentences: headline, influence, outliers, next answer."""
        n = counted(len(self.worker), "answer")
        if np.isnan(self.sd).any():
            return [
                f"task {shorten([self.task])}: {self._vector(self.estimate)} from {n}; nothing "
                "shows how far off an answer is, so there is no interval"
            ]
        now, interval = number_text(float(np.sqrt((self.sd**2).mean()))), ""
        if len(self.sd) == 1:
            low, high = (number_text(b[0], self.sd[0]) for b in (self.lower, self.upper))
            interval = f", 95 % interval {low} to {high}"
        lines = [
            f"task {shorten([self.task])}: {self._vector(self.estimate)} "
            f"(sd {now}{interval}) from {n}"
        ]
        if self.is_gold:
            return [*lines, "the truth is known (gold): answers do not affect the estimate"]
        moved = (self.without - self.estimate) / np.where(self.sd > 0, self.sd, 1.0)
        influence = np.sqrt((moved**2).mean(axis=1))
        if np.isfinite(influence).any():
            first = int(np.nanargmax(influence))
            lines.append(
                f"{shorten([self.worker[first]])} has the most influence (weight "
                f"{percent(self.weight[first])}): without that answer the estimate would be "
                f"{self._vector(self.without[first])}"
            )
        off = np.abs(np.where(np.isfinite(self.off), self.off, 0.0)).max(axis=1)
        for row in np.flatnonzero(self.slipped | (off > 3)).tolist():
            how = f"{off[row]:.1f} sds off"
            if self.slipped[row]:
                how = "this looks like a slip"
                if np.isfinite(self.slips[row]):
                    how += f", as do about {percent(self.slips[row])} of the worker's answers"
            lines.append(
                f"{shorten([self.worker[row]])} answered {self._vector(self.value[row])}, the "
                f"other answers predict {self._vector(self.predicted[row])}: {how}"
            )
        if self.difficulty is not None and not 0.5 < self.difficulty < 2:
            word = "harder" if self.difficulty > 1 else "easier"
            lines.append(
                f"{word} than the average task: noise variance {self.difficulty:.2g} times as large"
            )
        after = (f"{number_text(sd)} ({kind} worker)" for kind, sd in self.one_more.items())
        if self.shared > 0:
            lines.append(
                f"{percent(self.shared)} of the variance is for an error that all workers may "
                "share: only gold or other workers reduce it"
            )
        lines.append(f"one more answer would reduce the sd from {now} to about {', '.join(after)}")
        return [*lines, *(f"{name}: {meaning}" for name, meaning in self.how.items())]

    def _vector(self, values: Floats) -> str:
        shown = [number_text(v, sd) for v, sd in zip(values, self.sd, strict=True)]
        return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as one document of plain values; NaN becomes None."""
        names = {"estimate": "estimate", "sd": "sd", "lower": "lower_95", "upper": "upper_95"}
        vectors = {
            title: dict(zip(self.value_names, getattr(self, name).tolist(), strict=True))
            for name, title in names.items()
        }
        document: dict[str, Any] = {
            "task": self.task if isinstance(self.task, int | float | str) else str(self.task),
            "gold": self.is_gold,
            "difficulty": self.difficulty,
            **vectors,
            "answers": records(self.columns()),
            "shared_error_share": self.shared,
            "sd_after_one_more": dict(self.one_more),
            "how": dict(self.how),
            "sentences": self.sentences(),
        }
        return {name: finite(part) for name, part in document.items()}

    def __str__(self) -> str:
        first, *rest = self.sentences()
        return "\n".join([first, text_table(self.columns()), *rest])

    def _repr_html_(self) -> str:
        first, *rest = self.sentences()
        items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in rest)
        table = html_table(self.columns())
        return f"<p><b>{html.escape(first)}</b></p>{table}<ul>{items}</ul>"


def explain(
    answers: Answers, result: Result, task: object, estimator: Estimator | None = None
) -> Explanation:
    """Explain the estimate of one task.

    The weight of an answer is its share of the expected precision. The precision of an answer is
    1 / variance, averaged over the worker's noise levels and, with heavy tails or slips, over the
    probability that the answer is an outlier; the variance includes the uncertainty of the worker's
    bias. The weighted mean of the answers, freed of bias and gain, is the estimate, apart from the
    prior and the skewness of the posterior. Methods without noise levels report their own weights.

    The leave-one-out estimate comes from the cavity messages of the fit, with the noise model
    learned from all answers. If the result has none, ``estimator`` is refitted without each answer
    in turn; without an estimator, the other answers are reweighted.

    Parameters
    ----------
    answers, result
        The answers, and the result of an estimator on them.
    task
        Task id, or its text.
    estimator
        The estimator that produced the result, for refits.

    A result on a scale is explained there. ``noise_sd``, ``bias`` and ``off`` are on the scale, the
    rest comes back in the users' units.
    """
    require_match(answers, result)
    for group in result._groups:
        # Each was fitted by itself, and is calibrated by itself.
        if group._answers is not None and np.isin(str(task), group.task_ids.astype(str)):
            return explain(group._answers, group, task, estimator)
    explained = _explained if result.scale == LINEAR else _in_units
    return explained(answers, result, task, estimator)


def _explained(
    answers: Answers, result: Result, task: object, estimator: Estimator | None
) -> Explanation:
    """Explain a result in its own units."""
    i = find_id(result.task_ids, task, "task")
    edges = np.arange(answers.task_ptr[i], answers.task_ptr[i + 1])
    is_gold = bool(answers.is_gold[i])
    weight, weight_means = answer_weights(answers, result, np.array([i]))
    value, who = answers.value[edges], answers.worker[edges]
    without, foreseen, sd, meaning = _left_out(answers, result, i, edges, weight, estimator)
    gold_map = result.calibration.gold_map
    if gold_map is not None and not is_gold:
        # Answers follow the model, the truth follows the map.
        moved = result.estimate[i] - gold_map.estimates(result.estimate_before_gold[[i]])[0]
        # A regression of truths on answers, averaged with the model, is left where it is.
        without = gold_map.estimates(without) + moved
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.where(value == foreseen, 0.0, (value - foreseen) / sd)
    order = np.argsort(-weight, kind="stable")
    low, high = result.interval(0.95)
    unknown = np.full(value.shape, np.nan)
    bias = result.worker_bias[who] if result.worker_bias.size else unknown
    gain = result.worker_gain[who] if result.worker_gain.size else unknown
    far = np.abs(value - foreseen) > _FAR * np.sqrt(result.worker_variance[who])[:, None]
    slips = result.worker_slips[who] if result.worker_slips.size else np.full(len(who), np.nan)
    return Explanation(
        task=result.task_ids.tolist()[i],
        value_names=result.value_names,
        estimate=result.estimate[i],
        sd=result.sd[i],
        lower=low[i],
        upper=high[i],
        is_gold=is_gold,
        difficulty=float(result.task_difficulty[i]) if result.task_difficulty.size else None,
        worker=answers.worker_ids[who][order],
        value=value[order],
        noise_sd=np.sqrt(result.worker_variance[who])[order],
        bias=bias[order],
        gain=gain[order],
        slips=slips[order],
        slipped=np.asarray(far.any(axis=1) & _has_slips(result))[order],
        weight=(0.0 * weight if is_gold else weight)[order],
        predicted=foreseen[order],
        predicted_sd=sd[order],
        off=off[order],
        without=without[order],
        shared=_shared_part(result, i),
        one_more=_one_more(result, i),
        how={"weight": weight_means, "without": meaning},
        frame_kind=answers.frame_kind,
    )


def _in_units(
    answers: Answers, result: Result, task: object, estimator: Estimator | None
) -> Explanation:
    """Explain a result on its scale, and return the explanation in the users' units."""
    scale = result.scale
    for_scale = getattr(estimator, "for_scale", None)
    inner = estimator if for_scale is None else for_scale(scale)
    found = _explained(*result_on_scale(answers, result), task, inner)
    i = find_id(result.task_ids, task, "task")
    edges = np.arange(answers.task_ptr[i], answers.task_ptr[i + 1])
    place = {worker: e for e, worker in zip(edges, answers.worker[edges].tolist(), strict=True)}
    names = {name: u for u, name in enumerate(answers.worker_ids.tolist())}
    order = [place[names[worker]] for worker in found.worker.tolist()]
    predicted = scale.back(found.predicted)
    centre = scale.forward(result.estimate[i])
    one_more = {
        kind: float(np.sqrt((scale.spread(centre, np.full(len(centre), sd)) ** 2).mean()))
        for kind, sd in found.one_more.items()
    }
    return replace(
        found,
        estimate=result.estimate[i],
        sd=result.sd[i],
        lower=result.interval(0.95)[0][i],
        upper=result.interval(0.95)[1][i],
        value=answers.value[order],
        predicted=predicted,
        predicted_sd=scale.spread(scale.forward(predicted), found.predicted_sd),
        without=scale.back(found.without),
        one_more=one_more,
        how={**found.how, "scale": scale.summary()},
    )


def _left_out(
    answers: Answers,
    result: Result,
    i: int,
    edges: Index,
    weight: Floats,
    estimator: Estimator | None,
) -> tuple[Floats, Floats, Floats, str]:
    """Leave-one-out estimates, predictions of the answers and their sd, and how they were made."""
    value, audit = answers.value[edges], result.audit
    if len(edges) == 1:
        none = np.full(value.shape, np.nan)
        return none, none, none, "undefined for a single answer"
    if audit is not None and audit.exact and audit.truth.shape == answers.value.shape:
        meaning = "estimate from the cavity messages, with the noise models of all answers"
        sd = result.calibration.stretch * audit.predicted_sd[edges]
        if _has_slips(result):
            # Of answers that are no slips: a rare slip would make most of the variance.
            noise, _, variance = _without(answers, result, i, edges, weight)
            of_each = zip(audit.truth[edges], variance, noise, strict=True)
            sd = np.fmin(sd, np.stack([predicted(*each).sd for each in of_each]))
        return audit.truth[edges], audit.predicted[edges], sd, meaning
    if estimator is None:
        meaning = "reweighted mean of the other answers"
        noise, truth, variance = _without(answers, result, i, edges, weight)
        cases = [*zip(truth, variance, noise, strict=True)]
    else:
        meaning = "refit without the answer"
        cases = [_refitted(answers, i, e, estimator) for e in edges.tolist()]
    found = [predicted(*case) for case in cases]
    parts = ((case[0], answer.mean, answer.sd) for case, answer in zip(cases, found, strict=True))
    truth, mean, sd = (np.stack(part) for part in zip(*parts, strict=True))
    return truth, mean, sd, meaning


def _without(
    answers: Answers, result: Result, i: int, edges: Index, weight: Floats
) -> tuple[list[Scatter], Floats, Floats]:
    """Noise of each answer, and what the others of its task say of the truth, reweighted."""
    noise = [scatter(result, int(u), i) for u in answers.worker[edges]]
    of_each = zip(noise, answers.value[edges], strict=True)
    freed = np.stack([each.freed(answer) for each, answer in of_each])
    return noise, *_reweighted(result, i, freed, weight, bool(answers.is_gold[i]))


def _has_slips(result: Result) -> bool:
    """Return whether slips are a part of the noise model."""
    return result.noise.slip_share is not None or result.worker_slips.size > 0


def _others(value: Floats) -> Floats:
    """The other answers of each answer, (n, n - 1, d)."""
    return np.stack([np.delete(value, e, axis=0) for e in range(len(value))])


def _refitted(
    answers: Answers, i: int, edge: int, estimator: Estimator
) -> tuple[Floats, Floats, Scatter]:
    """Refit without an answer: the task's estimate and variance, and the noise of the answer."""
    fewer = answers.select(np.arange(answers.n_edges) != edge)
    again = estimator.fit(fewer)
    worker = np.flatnonzero(fewer.worker_ids == answers.worker_ids[answers.worker[edge]])
    noise = scatter(again, int(worker[0]) if len(worker) else None, i)
    return again.estimate_before_gold[i], again.agreement_variance[i], noise


def _reweighted(
    result: Result, i: int, value: Floats, weight: Floats, is_gold: bool
) -> tuple[Floats, Floats]:
    """Estimate and variance without each answer; the rest keeps its share of the precision."""
    n, estimate = len(value), result.estimate_before_gold[i]
    variance = result.agreement_variance[i]
    if is_gold:
        return np.tile(estimate, (n, 1)), np.zeros_like(value)
    if result.settings.get("method") == "median":
        return np.median(_others(value), axis=1), np.tile(variance * n / (n - 1), (n, 1))
    rest = np.where(np.eye(n, dtype=bool), 0.0, weight)
    whole = rest.sum(axis=1, keepdims=True)
    # If the removed answer had all the weight, the others are weighted equally.
    equal = (1.0 - np.eye(n)) / (n - 1)
    rest = np.divide(rest, whole, out=equal, where=whole > 0)
    about = value - value[0]
    moved = rest @ about - weight @ about
    return estimate + moved, variance / np.maximum(whole, np.finfo(np.float64).eps)


def _one_more(result: Result, i: int) -> dict[str, float]:
    """Expected sd of the task after one more answer, by kind of worker."""
    if weighs_equally(result):
        n = float(result.task_answers[i])
        alike = _truth_sd(result, result.agreement_variance[i] * n / (n + 1.0))
        return dict.fromkeys(("typical", "best", "worst"), alike)
    gain = (result.worker_gain**2).mean(axis=1) if result.worker_gain.size else 1.0
    order = np.argsort(result.worker_variance / gain, kind="stable")
    chosen = {"typical": order[(len(order) - 1) // 2], "best": order[0], "worst": order[-1]}
    variance = result.agreement_variance[i]
    found = {}
    for kind, u in chosen.items():
        noise = scatter(result, int(u), i)
        after = np.zeros(len(variance))
        # Nothing is left uncertain if nothing was before, or if the next answer is exact.
        for j in np.flatnonzero((variance > 0) & (noise.variance > 0).all(axis=0)):
            mixture = noise.share[None], noise.variance[:, j] / noise.gain[j] ** 2
            after[j] = value_of_answer(variance[[j]], *mixture)[1][0, 0]
        if result.calibration.gold_map is not None and variance.any():
            centre = result.estimate_before_gold[[i]]
            after = result.calibration.gold_map.variances(centre, after[None])[0]
        found[kind] = _truth_sd(result, after)
    return found


def _shared_part(result: Result, i: int) -> float:
    """Share of the variance of a task's truth that an error of all workers has."""
    shared, own = result.calibration.shared, result.agreement_variance[i]
    added = 0.0 if shared is None else float(shared.added_variance(own).sum())
    return added / (added + float(own.sum())) if added else 0.0


def _truth_sd(result: Result, agreement: Floats) -> float:
    """Sd of the truth of a task, over all coordinates, from variances of agreement (d,)."""
    return float(np.sqrt(result.calibration.truth_variance(agreement).mean()))
