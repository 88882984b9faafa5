"""Flags: workers whom an honest crowd does not explain, with the evidence in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrc

from voxpop.arrays import Ids
from voxpop.data.answers import Answers
from voxpop.data.tables import frame
from voxpop.errors import DataError, require, shorten
from voxpop.results.diagnosis.copies import Pair, find_copies
from voxpop.results.diagnosis.worker_tests import (
    Comparison,
    Standing,
    bias,
    compare,
    following,
    noise,
    times_as_far,
)
from voxpop.results.result import Result

KINDS = {
    "constant": "gave one value to every task, though the tasks differ",
    "straight-liner": "gave one value nearly always, though the tasks differ",
    "unrelated": "gave answers that do not follow the tasks",
    "bias": "answers lie to one side, further than those of the crowd",
    "noise": "answers scatter far more than those of the crowd",
    "copy": "gave the same answers as another worker, beyond chance",
}
"""Every kind of flag, and what it means."""

# following, bias, noise, copies: each may err a quarter as often as all together.
_TESTS = 4


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One worker, one suspicion.

    Attributes
    ----------
    kind
        One of ``constant``, ``straight-liner``, ``unrelated``, ``bias``, ``noise``, ``copy``.
    evidence
        What was seen, in words fit for a message to the worker.
    false_alarms
        How many honest workers of a crowd like this would be flagged on such evidence, on
        average, by all tests together: 0.001 is one in a thousand crowds.
    n_answers
        Answers that the judgement rests on.
    weight
        What an answer of the worker counts in the result, the average worker's being 1.
    other
        The other worker of a copy, else None.
    """

    worker: object
    kind: str
    evidence: str
    false_alarms: float
    n_answers: int
    weight: float
    other: object = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Diagnosis:
    """The flags of a crowd, strongest evidence first.

    Attributes
    ----------
    unjudged
        Ids of workers with too few answers to judge: no flag, and no clean bill.
    answers_needed
        How many it takes: fewer would not suffice even if each of them spoke against the worker.
    error_rate
        Honest workers flagged per crowd, on average, at most.
    """

    flags: tuple[Flag, ...]
    n_workers: int
    unjudged: Ids
    answers_needed: int
    error_rate: float
    frame_kind: str = "pandas"

    @property
    def workers(self) -> list[object]:
        """Ids of the flagged workers, each once."""
        return list(dict.fromkeys(flag.worker for flag in self.flags))

    def columns(self) -> dict[str, Any]:
        """One row per flag: worker, kind, evidence, false_alarms, n_answers, weight, other."""
        names = ("worker", "kind", "evidence", "false_alarms", "n_answers", "weight")
        columns: dict[str, Any] = {
            name: [getattr(flag, name) for flag in self.flags] for name in names
        }
        return columns | {"other": [flag.other for flag in self.flags]}

    @property
    def table(self) -> Any:
        """The flags as a data frame."""
        return frame(self.columns(), self.frame_kind)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, for a program on the other end of a pipe."""
        return {
            "flags": [asdict(flag) for flag in self.flags],
            "n_workers": self.n_workers,
            "unjudged": self.unjudged.tolist(),
            "answers_needed": self.answers_needed,
            "error_rate": self.error_rate,
        }

    def summary(self) -> str:
        """Say in one line how many are flagged, and how many cannot be judged."""
        said = f"{len(self.workers)} of {self.n_workers} workers flagged"
        if len(self.unjudged):
            said += (
                f"; too few answers to judge: {len(self.unjudged)} (fewer than "
                f"{self.answers_needed} on tasks with two others)"
            )
        return said

    def __repr__(self) -> str:
        lines = [f"{flag.worker} ({flag.kind}): {flag.evidence}" for flag in self.flags]
        return "\n".join([f"Diagnosis: {self.summary()}", *lines])


def diagnose(answers: Answers, result: Result, *, error_rate: float = 0.05) -> Diagnosis:
    """Find the workers whom an honest crowd does not explain.

    An honest worker's answers follow the tasks, with a noise, a bias and a use of the scale of
    its own, each spread over the crowd as the crowd's own middle shows. Every worker is tested
    against that, coordinate by coordinate, on the tasks with at least two other answers, and
    every pair for equal answers. The tests are corrected for the number of workers, coordinates
    and tests: of a crowd of honest workers, ``error_rate`` are flagged on average, at most.

    A worker is judged from ``log2(4 n_workers / error_rate)`` answers on: with fewer, even a run
    of answers all to one side would come up by coin tosses somewhere in such a crowd.
    """
    require(0 < error_rate <= 1, f"error_rate must be above 0 and at most 1, got {error_rate}")
    if not np.array_equal(answers.worker_ids, result.worker_ids):
        raise DataError("the result is not of these answers: its workers differ")
    crowd = compare(answers)
    tests = _TESTS * answers.n_workers * answers.dimension
    needed = max(4, int(np.ceil(np.log2(_TESTS * answers.n_workers / error_rate))))
    words = _Words(crowd, result, tests, error_rate)
    flags: list[Flag] = []
    for test, found in ((following, words.following), (bias, words.bias), (noise, words.noise)):
        standing = [test(crowd, j, needed) for j in range(answers.dimension)]
        p = np.stack([each.p for each in standing])
        for u in np.flatnonzero(p.min(axis=0) * tests <= error_rate):
            j = int(p[:, u].argmin())
            flags.append(found(int(u), j, standing[j], float(p[j, u])))
    for pair in find_copies(answers, error_rate / _TESTS):
        flags += words.copies(pair)
    few = crowd.count < needed
    return Diagnosis(
        flags=tuple(sorted(flags, key=lambda flag: (flag.false_alarms, str(flag.worker)))),
        n_workers=answers.n_workers,
        unjudged=answers.worker_ids[few],
        answers_needed=needed,
        error_rate=error_rate,
        frame_kind=answers.frame_kind,
    )


class _Words:
    """Turns findings into flags; computes what only the words need."""

    def __init__(self, crowd: Comparison, result: Result, tests: int, error_rate: float) -> None:
        self._crowd, self._result = crowd, result
        self._tests, self._error_rate = tests, error_rate
        self._ends = np.append(0, np.cumsum(crowd.count))

    def _flag(self, u: int, kind: str, evidence: str, p: float) -> Flag:
        return Flag(
            worker=_plain(self._result.worker_ids[u]),
            kind=kind,
            evidence=evidence,
            false_alarms=p * self._tests,
            n_answers=int(self._crowd.count[u]),
            weight=float(self._result.worker_weight[u]),
        )

    def _rows(self, u: int) -> slice:
        return slice(self._ends[u], self._ends[u + 1])

    def _of(self, j: int) -> str:
        """Name the coordinate where there are several."""
        names = self._crowd.answers.value_names
        return f"{names[j]}: " if len(names) > 1 else ""

    def following(self, u: int, j: int, _: Standing, p: float) -> Flag:
        """A straight-liner where one value is given too often, else unrelated."""
        rows = self._rows(u)
        own = self._crowd.value[rows, j]
        values, counts = np.unique(own, return_counts=True)
        value, times, n = values[counts.argmax()], int(counts.max()), len(own)
        edges = self._crowd.edge[rows]
        others = [np.delete(*pair) for pair in self._answers_of(edges, j)]
        share = float(np.mean([(found == value).mean() for found in others]))
        # Most answers are one value, and more than would be if the worker answered like the others.
        if 2 * times > n and bdtrc(times - 1, n, share) * self._tests <= self._error_rate:
            there = [found for found, mine in zip(others, own, strict=True) if mine == value]
            where = np.concatenate(there)
            kind = "constant" if times == n else "straight-liner"
            count = f"all {n} tasks" if times == n else f"{times} of {n} tasks"
            evidence = (
                f"answered {value:.6g} on {count}, where the others' answers ranged from "
                f"{where.min():.6g} to {where.max():.6g} and {share:.0%} were {value:.6g}"
            )
        else:
            kind = "unrelated"
            medians = self._crowd.other[rows, j]
            order = np.argsort(medians, kind="stable")
            low, high = order[: n // 2], order[n - n // 2 :]
            evidence = (
                f"answers do not follow the tasks: {own[high].mean():.3g} on average over the "
                f"{n // 2} tasks where the others answered highest, and {own[low].mean():.3g} over "
                f"the {n // 2} where they answered lowest (medians of the others: "
                f"{medians[high].mean():.3g} and {medians[low].mean():.3g})"
            )
        return self._flag(u, kind, self._of(j) + evidence, p)

    def _answers_of(self, edges: Any, j: int) -> Iterator[tuple[Any, int]]:
        """The answers to each edge's task, and the place of the edge among them."""
        answers = self._crowd.answers
        for e in edges:
            start, end = answers.task_ptr[answers.task[e] : answers.task[e] + 2]
            yield answers.value[start:end, j], int(e - start)

    def bias(self, u: int, j: int, standing: Standing, p: float) -> Flag:
        """How far to one side, and how often."""
        shift, usual = float(standing.found[u]), standing.usual
        rows = self._rows(u)
        residual = self._crowd.value[rows, j] - self._crowd.other[rows, j]
        up = shift > usual
        side = int((residual > 0).sum() if up else (residual < 0).sum())
        evidence = (
            f"answers lie {abs(shift):.3g} {'above' if shift > 0 else 'below'} the median of the "
            f"others' on average over {len(residual)} tasks ({'higher' if up else 'lower'} on "
            f"{side} of them; usual here: {usual:+.2g})"
        )
        return self._flag(u, "bias", self._of(j) + evidence, p)

    def noise(self, u: int, j: int, standing: Standing, p: float) -> Flag:
        """How far away, and against what is usual."""
        size, usual = float(standing.found[u]), standing.usual
        rows = self._rows(u)
        apart = np.abs(self._crowd.value[rows, j] - self._crowd.other[rows, j])
        evidence = (
            f"half of {len(apart)} answers are more than {np.median(apart):.3g} away from the "
            f"median of the others', about {times_as_far(size, usual):.2g} times as far as usual "
            "on the same tasks"
        )
        return self._flag(u, "noise", self._of(j) + evidence, p)

    def copies(self, pair: Pair) -> list[Flag]:
        """One flag for each of the two: who copied from whom cannot be seen."""
        ids, n = self._result.worker_ids, len(self._result.worker_ids)
        found = []
        for u, v in ((pair.first, pair.second), (pair.second, pair.first)):
            evidence = (
                f"gave the same answer as worker {shorten([ids[v]])} on {pair.equal} of "
                f"{pair.shared} tasks that both answered, where at most {pair.chance:.2g} would "
                "be expected of two who work apart"
            )
            found.append(
                Flag(
                    worker=_plain(ids[u]),
                    kind="copy",
                    evidence=evidence,
                    false_alarms=pair.p * n * (n - 1) / 2 * _TESTS,
                    n_answers=pair.shared,
                    weight=float(self._result.worker_weight[u]),
                    other=_plain(ids[v]),
                )
            )
        return found


def _plain(identity: Any) -> object:
    """Unwrap a numpy scalar."""
    return identity.item() if isinstance(identity, np.generic) else identity
