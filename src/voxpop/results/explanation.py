"""Explanation: an explained task as sentences, a table, or one JSON document."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from voxpop.arrays import Floats, Ids
from voxpop.data.tables import frame
from voxpop.errors import shorten


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
