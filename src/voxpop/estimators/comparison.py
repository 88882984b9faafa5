"""Comparison: several methods on the same answers, side by side, with or without known truths."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from voxpop.data.read import ReadingOptions, read_answers
from voxpop.data.tables import frame
from voxpop.errors import require
from voxpop.estimators.base import Estimator
from voxpop.estimators.registry import make_estimator
from voxpop.results.metrics import Score, score
from voxpop.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Several methods on the same answers, in the order in which they were named.

    Attributes
    ----------
    results
        The result of each method, by its label.
    seconds
        How long each took.
    scores
        Each against the truth; empty where no truth is known.
    """

    results: Mapping[str, Result]
    seconds: Mapping[str, float]
    scores: Mapping[str, Score] = field(default_factory=dict)
    frame_kind: str = "pandas"

    @property
    def table(self) -> Any:
        """Data frame with one row per method, of the kind the answers came in."""
        return frame(self.columns(), self.frame_kind)

    def columns(self) -> dict[str, Any]:
        """Return the columns of :attr:`table`.

        With a truth: ``rmse``, ``mae``, and the share of truths inside 90 and 95 % intervals.
        Always: ``left_out_rmse``, the distance of left-out answers from what the others predict,
        ``left_out_95``, the share of them inside 95 % prediction intervals, ``need_a_look``, the
        number of tasks that do, and ``seconds``.
        """
        columns: dict[str, Any] = {"method": [*self.results]}
        for name in ("rmse", "mae", "coverage_90", "coverage_95") if self.scores else ():
            columns[name] = [getattr(score, name) for score in self.scores.values()]
        audits = [result.audit for result in self.results.values()]
        columns["left_out_rmse"] = [np.nan if a is None else a.rmse for a in audits]
        columns["left_out_95"] = [np.nan if a is None else a.inside_95 for a in audits]
        columns["need_a_look"] = [len(result.review.tasks) for result in self.results.values()]
        columns["seconds"] = [*self.seconds.values()]
        return columns

    def best(self) -> str:
        """Label of the method with the least error: against the truth, or of left-out answers."""
        columns = self.columns()
        error = columns["rmse" if self.scores else "left_out_rmse"]
        return str(columns["method"][int(np.nanargmin(error))])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the errors of the methods; see :func:`voxpop.plot_comparison`."""
        from voxpop.present.plots import plot_comparison

        return plot_comparison(self, ax)

    def __repr__(self) -> str:
        rounded = frame(self.columns(), "pandas")
        return str(rounded.to_string(index=False, float_format=lambda x: f"{x:.4g}", na_rep="-"))

    def _repr_html_(self) -> str:
        rounded = frame(self.columns(), "pandas")
        return str(
            rounded.to_html(index=False, float_format=lambda x: f"{x:.4g}", na_rep="", border=0)
        )


def compare(
    answers: object,
    methods: Sequence[str | Estimator] | Mapping[str, str | Estimator] = (
        *("auto", "average", "median"),
    ),
    truth: object = None,
    **reading: Unpack[ReadingOptions],
) -> Comparison:
    """Run several methods on the same answers.

    Parameters
    ----------
    answers
        ``Answers``, or what :func:`voxpop.read_answers` takes; its arguments may follow.
    methods
        Names or estimators, or a mapping from labels to them.
    truth
        Known truths, as for :func:`voxpop.score`: the methods are then scored against them.
        Otherwise by left-out answers only, which cannot show an error that all workers share.
    """
    table = read_answers(answers, **reading)
    named = dict(methods) if isinstance(methods, Mapping) else _labelled(methods)
    require(len(named) > 0, "methods must name at least one method")
    results, seconds = {}, {}
    for label, method in named.items():
        estimator = make_estimator(method) if isinstance(method, str) else method
        start = time.perf_counter()
        results[label] = estimator.fit(table)
        seconds[label] = time.perf_counter() - start
    scores = {} if truth is None else {name: score(found, truth) for name, found in results.items()}
    return Comparison(results=results, seconds=seconds, scores=scores, frame_kind=table.frame_kind)


def _labelled(methods: Sequence[str | Estimator]) -> dict[str, str | Estimator]:
    """Label methods by their names; those of the same name are numbered."""
    require(not isinstance(methods, str), f"methods must be a list, got {methods!r}")
    named: dict[str, str | Estimator] = {}
    for method in methods:
        name = method if isinstance(method, str) else method.name
        same = sum(label.partition(" (")[0] == name for label in named)
        named[f"{name} ({same + 1})" if same else name] = method
    return named
