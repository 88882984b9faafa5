"""Explain: why the estimate of one task is what it is, and what one more answer would change."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.data.tables import frame
from voxpop.errors import shorten
from voxpop.results.answer_weights import answer_weights, require_match
from voxpop.results.prediction import find_id, predicted, scatter, seen_variance, stretch_of
from voxpop.results.result import Result

# Distances of the next answer that count: from this share of the narrowest sd, to so many widest.
_NEAREST, _FARTHEST, _STEPS = 1e-4, 12.0, 600


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """One task: who said what, what it counted for, and what would be without it.

    Rows are answers, heaviest first; arrays of vectors are (n_answers, dimension).

    Attributes
    ----------
    estimate, sd, lower, upper
        The estimate with its sd and 95 % interval, as in the result.
    noise_sd, bias
        Each worker's noise and bias; bias is NaN for methods without.
    weight
        Share of the answer in the estimate; together they are one, for a gold task none.
    predicted, predicted_sd
        What the other answers predict for this one, worker bias included; NaN without others.
    off
        How many of these sds the answer is away.
    without
        The estimate without the answer; NaN for the only one.
    one_more
        Expected sd after one more answer of a typical, the best and the worst worker of the crowd.
    how
        What weight and without mean here, in words.
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
    weight: Floats
    predicted: Floats
    predicted_sd: Floats
    off: Floats
    without: Floats
    one_more: Mapping[str, float]
    how: Mapping[str, str]
    frame_kind: str = field(default="pandas", repr=False)

    @property
    def answers(self) -> Any:
        """Data frame of the answers, of the kind the table came in."""
        return frame(self.columns(), self.frame_kind)

    def columns(self) -> dict[str, Any]:
        """Return the columns of :attr:`answers` as arrays."""
        of = [""] if len(self.value_names) == 1 else [f"_{name}" for name in self.value_names]
        columns: dict[str, Any] = {"worker": self.worker}
        columns |= {f"answer{s}": self.value[:, j] for j, s in enumerate(of)}
        columns |= {"weight": self.weight, "noise_sd": self.noise_sd}
        parts = {"bias": self.bias, "predicted": self.predicted, "predicted_sd": self.predicted_sd}
        for name, array in (parts | {"off": self.off, "without": self.without}).items():
            if name != "bias" or np.isfinite(array).any():
                columns |= {name + s: array[:, j] for j, s in enumerate(of)}
        return columns

    def sentences(self) -> list[str]:
        """Say it in words."""
        said = [self._headline()]
        if self.is_gold:
            return [*said, "its truth is known (gold): no answer counts, and none would change it"]
        moved = np.sqrt((((self.without - self.estimate) / _positive(self.sd)) ** 2).mean(axis=1))
        if np.isfinite(moved).any():
            first = int(np.nanargmax(moved))
            said.append(
                f"the answer of {shorten([self.worker[first]])} moves it most: without it (weight "
                f"{self.weight[first]:.0%}) it would be {self._vector(self.without[first])}"
            )
        for row in np.flatnonzero(np.nanmax(np.abs(_zero(self.off)), axis=1) > 3).tolist():
            said.append(
                f"{shorten([self.worker[row]])} said {self._vector(self.value[row])} where the "
                f"others predict {self._vector(self.predicted[row])}: "
                f"{np.abs(self.off[row]).max():.1f} sds off"
            )
        if self.difficulty is not None and not 0.5 < self.difficulty < 2:
            word = "harder" if self.difficulty > 1 else "easier"
            said.append(f"a {word} task: noise variance {self.difficulty:.2g} times the usual")
        return [*said, self._one_more_in_words(), *(f"{k}: {v}" for k, v in self.how.items())]

    def _headline(self) -> str:
        n = len(self.worker)
        where = (
            f"{number_text(self.lower[0], self.sd[0])} to {number_text(self.upper[0], self.sd[0])}"
        )
        interval = f", 95 % {where}" if len(self.sd) == 1 else ""
        return (
            f"task {shorten([self.task])}: {self._vector(self.estimate)} "
            f"(sd {number_text(_norm(self.sd))}{interval}) from {n} answer{'s' * (n > 1)}"
        )

    def _one_more_in_words(self) -> str:
        now = number_text(_norm(self.sd))
        typical, best, worst = (number_text(self.one_more[k]) for k in ("typical", "best", "worst"))
        return (
            f"one more answer of a typical worker would narrow the sd from {now} to about "
            f"{typical}; of the best, to {best}; of the worst, to {worst}"
        )

    def _vector(self, values: Floats) -> str:
        shown = [number_text(v, sd) for v, sd in zip(values, self.sd, strict=True)]
        return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"

    def to_dict(self) -> dict[str, Any]:
        """Everything as one document of plain values; NaN is null."""
        lists = {name: _plain(array) for name, array in self.columns().items()}
        return {
            "task": self.task if isinstance(self.task, int | float | str) else str(self.task),
            "gold": self.is_gold,
            "difficulty": self.difficulty,
            "estimate": dict(zip(self.value_names, _plain(self.estimate), strict=True)),
            "sd": dict(zip(self.value_names, _plain(self.sd), strict=True)),
            "lower_95": dict(zip(self.value_names, _plain(self.lower), strict=True)),
            "upper_95": dict(zip(self.value_names, _plain(self.upper), strict=True)),
            "answers": [
                dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)
            ],
            "sd_after_one_more": dict(self.one_more),
            "how": dict(self.how),
            "sentences": self.sentences(),
        }

    def __str__(self) -> str:
        first, *rest = self.sentences()
        table = frame(self.columns(), "pandas").to_string(
            index=False, float_format=lambda x: f"{x:.4g}", na_rep=""
        )
        return "\n".join([first, str(table), *rest])

    def _repr_html_(self) -> str:
        first, *rest = self.sentences()
        said = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in rest)
        table = frame(self.columns(), "pandas").to_html(index=False, na_rep="")
        return f"<p><b>{html.escape(first)}</b></p>{table}<ul>{said}</ul>"


class CanFit(Protocol):
    """An estimator, as far as this module needs one."""

    def fit(self, answers: Answers) -> Result:
        """Aggregate the answers."""
        ...


def explain(
    answers: Answers, result: Result, task: object, estimator: CanFit | None = None
) -> Explanation:
    """Explain the estimate of one task.

    The weight of an answer is its share of the expected precision: of each answer 1 / variance, the
    variance that of its worker's levels and of what is not known of his bias, averaged over both
    and, with heavy tails, over how likely the answer is a slip, given where the truth is believed
    to be. So the mean of the answers less bias, with these weights, is the estimate, but for a
    prior and for the skew of the posterior. Methods without levels give their own weights.

    The estimate without an answer is what all others say of the truth in the messages (the
    audit's; the noise model stays as learned from all answers). Where the result holds none, it
    is that of a refit by ``estimator``, once for each answer of the task; without one it comes
    from the weights.

    Parameters
    ----------
    answers, result
        The answers, and what an estimator found in them.
    task
        Its id, or the text of it.
    estimator
        What made the result, to refit where the messages do not tell.
    """
    require_match(answers, result)
    i = find_id(result.task_ids, task, "task")
    edges = np.arange(answers.task_ptr[i], answers.task_ptr[i + 1])
    is_gold = bool(answers.is_gold[i])
    weight, weight_means = answer_weights(answers, result, np.array([i]))
    left_out = _left_out(answers, result, i, edges, weight, estimator)
    value = answers.value[edges]
    who = answers.worker[edges]
    with np.errstate(divide="ignore", invalid="ignore"):
        off = (value - left_out.predicted) / left_out.predicted_sd
    off = np.where(value == left_out.predicted, 0.0, off)
    order = np.argsort(-weight, kind="stable")
    low, high = result.interval(0.95)
    bias = result.worker_bias[who] if result.worker_bias.size else np.full(value.shape, np.nan)
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
        weight=(0.0 * weight if is_gold else weight)[order],
        predicted=left_out.predicted[order],
        predicted_sd=left_out.predicted_sd[order],
        off=off[order],
        without=left_out.truth[order],
        one_more=_one_more(result, i),
        how={"weight": weight_means, "without": left_out.meaning},
        frame_kind=answers.frame_kind,
    )


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """The task without each of its answers, (n_answers, d)."""

    truth: Floats
    predicted: Floats
    predicted_sd: Floats
    meaning: str


def _left_out(
    answers: Answers,
    result: Result,
    i: int,
    edges: Index,
    weight: Floats,
    estimator: CanFit | None,
) -> _LeftOut:
    shape = (len(edges), answers.dimension)
    audit = result.audit
    if len(edges) == 1:
        none = np.full(shape, np.nan)
        return _LeftOut(none, none, none, "there is no other answer")
    if audit is not None and audit.exact and audit.truth.shape == answers.value.shape:
        truth = audit.truth[edges]
        moved = float(result.settings.get("fallback_share") or 0.0)
        if moved:
            others = np.stack([np.delete(answers.value[edges], e, 0) for e in range(len(edges))])
            simple = np.median if result.settings["fallback"] == "median" else np.mean
            truth = (1 - moved) * truth + moved * simple(others, axis=1)
        sd = stretch_of(result) * audit.predicted_sd[edges]
        meaning = "what all others say of the task in the messages, the noise model as learned"
        if moved:
            meaning += f", moved {moved:.0%} of the way to the {result.settings['fallback']}"
        return _LeftOut(truth, audit.predicted[edges], sd, meaning)
    if estimator is None:
        meaning = "by the weights, all else kept"
        parts = [_reweighed(answers, result, i, edges, weight, e) for e in range(len(edges))]
    else:
        meaning = "a refit without the answer"
        parts = [_refitted(answers, i, e, estimator) for e in edges.tolist()]
    truth, mean, deviation = (np.stack(part) for part in zip(*parts, strict=True))
    return _LeftOut(truth, mean, deviation, meaning)


def _refitted(
    answers: Answers, i: int, edge: int, estimator: CanFit
) -> tuple[Floats, Floats, Floats]:
    """Fit again without an answer; predict it from that."""
    fewer = without_edge(answers, edge)
    again = estimator.fit(fewer)
    worker = np.flatnonzero(fewer.worker_ids == answers.worker_ids[answers.worker[edge]])
    u = int(worker[0]) if len(worker) else None
    answer = predicted(again.estimate[i], seen_variance(again)[i], scatter(again, u, i))
    return again.estimate[i], answer.mean, answer.sd


def _reweighed(
    answers: Answers, result: Result, i: int, edges: Index, weight: Floats, row: int
) -> tuple[Floats, Floats, Floats]:
    """Take an answer out of the weighted mean; what remains has the rest of the precision."""
    noise = [scatter(result, int(u), i) for u in answers.worker[edges]]
    value = answers.value[edges]
    if answers.is_gold[i]:
        left, variance = result.estimate[i], 0.0 * result.variance[i]
    elif result.settings.get("method") == "median":
        left = np.median(np.delete(value, row, axis=0), axis=0)
        variance = seen_variance(result)[i] * len(edges) / (len(edges) - 1)
    else:
        free = value - np.stack([n.bias for n in noise])
        rest = np.delete(weight, row)
        whole = float(rest.sum())
        # An answer that has all the weight leaves the others with nothing to tell them apart.
        rest = rest / whole if whole > 0 else np.full(len(rest), 1.0 / len(rest))
        origin = free[0]
        moved = rest @ (np.delete(free, row, axis=0) - origin) - weight @ (free - origin)
        left = result.estimate[i] + moved
        variance = seen_variance(result)[i] / max(whole, np.finfo(np.float64).eps)
    answer = predicted(left, variance, noise[row])
    return left, answer.mean, answer.sd


def without_edge(answers: Answers, edge: int) -> Answers:
    """The answers but one, of a task that has others."""
    kept = np.arange(answers.n_edges) != edge
    workers, worker = np.unique(answers.worker[kept], return_inverse=True)
    return replace(
        answers,
        worker_ids=answers.worker_ids[workers],
        task=answers.task[kept],
        worker=worker.astype(np.int32),
        value=answers.value[kept],
    )


def _one_more(result: Result, i: int) -> dict[str, float]:
    """Expected sd of the task after one more answer, by what kind of worker gives it."""
    if not result.levels.size and (result.worker_weight == result.worker_weight[0]).all():
        # To a method that takes all workers alike it is one answer more, whoever gives it.
        n = float(result.task_answers[i])
        alike = float(np.sqrt(result.variance[i].mean() * n / (n + 1.0)))
        return dict.fromkeys(("typical", "best", "worst"), alike)
    order = np.argsort(result.worker_variance, kind="stable")
    chosen = {"typical": order[(len(order) - 1) // 2], "best": order[0], "worst": order[-1]}
    gold = float(result.settings.get("gold_stretch", 1.0))
    found = {}
    for kind, u in chosen.items():
        noise = scatter(result, int(u), i)
        after = [
            expected_variance(float(v), noise.share, noise.variance[:, j])
            for j, v in enumerate(seen_variance(result)[i])
        ]
        found[kind] = gold * float(np.sqrt(np.mean(after)))
    return found


def expected_variance(variance: float, share: Floats, noise: Floats) -> float:
    """Variance of a Gaussian truth that an answer of mixed noise is expected to leave.

    The answer moves the mean by m(a) = a Σ_c r_c(a) V / (V + v_c), r_c its chance to be of noise
    v_c; what remains is V - E[m(a)²], an integral over a, here in steps of log a.
    """
    if not variance > 0 or (noise <= 0).any():
        return 0.0
    total = variance + noise
    low, high = _NEAREST * np.sqrt(total.min()), _FARTHEST * np.sqrt(total.max())
    log_a = np.linspace(np.log(low), np.log(high), _STEPS)
    a = np.exp(log_a)[:, None]
    density = share * np.exp(-0.5 * a**2 / total) / np.sqrt(2.0 * np.pi * total)
    p = density.sum(axis=1)
    pull = (density * (variance / total)).sum(axis=1) / np.maximum(p, np.finfo(np.float64).tiny)
    removed = 2.0 * float((p * (a[:, 0] * pull) ** 2 * a[:, 0]).sum() * (log_a[1] - log_a[0]))
    return max(variance - removed, 0.0)


def _norm(sd: Floats) -> float:
    """One sd for all coordinates, as in the table of tasks."""
    return float(np.sqrt((sd**2).mean()))


def number_text(value: float, sd: float | None = None) -> str:
    """Show a number to the digits that its sd, or its own size, makes worth showing."""
    size = abs(value) if sd is None else sd
    if not np.isfinite(value) or not size > 0 or not 1e-9 < size < 1e12:
        return f"{value:.4g}"
    digits = (2 if sd is None else 1) - int(np.floor(np.log10(size)))
    return f"{value:.{max(digits, 0)}f}"


def _positive(sd: Floats) -> Floats:
    return np.where(sd > 0, sd, 1.0)


def _zero(array: Floats) -> Floats:
    return np.where(np.isfinite(array), array, 0.0)


def _plain(array: Any) -> list[Any]:
    plain = [item if isinstance(item, int | float | str) else str(item) for item in array.tolist()]
    return [None if isinstance(item, float) and not np.isfinite(item) else item for item in plain]
