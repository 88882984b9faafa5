"""Flags: workers whom an honest crowd does not explain, with the evidence in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from scipy.special import bdtrc

from voxpop.arrays import Floats, Ids
from voxpop.data.answers import Answers
from voxpop.data.tables import frame
from voxpop.errors import DataError, require, shorten
from voxpop.results.diagnosis.copies import Pair, find_copies
from voxpop.results.diagnosis.dependence import Link
from voxpop.results.diagnosis.following import follow_test
from voxpop.results.diagnosis.groups import Group, find_groups
from voxpop.results.diagnosis.typos import Typo, find_typos
from voxpop.results.diagnosis.units import nearest_factor, units_test
from voxpop.results.diagnosis.worker_tests import (
    FAR,
    PeerMedians,
    WorkerTest,
    bias_test,
    noise_test,
    slip_test,
    slope_test,
)
from voxpop.results.result import Result
from voxpop.words import percent

# Slope, following, bias, units, noise, slips, copies: each has a seventh of the error rate.
_TESTS = 7
# With fewer answers than the logarithm of so many to 2, times workers, per error rate, nobody is
# judged.
_TOSSES = 5
# Copies are searched for in two ways: by equal answers, and by correlated errors.
_SEARCHES = 2


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One worker to look at, and why.

    Attributes
    ----------
    kind
        ``constant`` or ``straight-liner`` (always or nearly always one value, though the tasks
        differ), ``unrelated`` (answers do not follow the tasks), ``bias`` (answers lie to one
        side), ``units`` (answers are a factor away that lies between two units, such as inches and
        centimetres), ``noise`` (answers scatter far more than the crowd's), ``slips`` (single
        answers are far off, more often than the others' are), ``copy`` (the same answers as another
        worker, beyond chance) or ``dependent`` (errors go together with those of another worker).
    evidence
        What was seen, in words that can be sent to the worker.
    false_alarms
        Expected number of honest workers in a crowd like this who would be flagged on such
        evidence, by all tests together: 0.001 is one in a thousand crowds. Where several workers do
        not follow the tasks, it is the share of honest ones among them, if that is smaller.
    n_answers
        Number of answers that the flag is based on.
    weight
        Weight of an answer of the worker in the result; 1 for the average worker.
    other
        The other worker of a copy or of a dependent pair, else None.
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
        Ids of workers with too few answers to judge: neither flagged nor cleared.
    answers_needed
        Answers needed: with fewer, even answers that all look bad would be no evidence.
    error_rate
        Expected number of honest workers flagged per crowd, at most.
    typos
        Answers that look mistyped, with the value that was probably meant, surest first. One in ten
        of those found is expected not to be a typo.
    """

    flags: tuple[Flag, ...]
    n_workers: int
    unjudged: Ids
    answers_needed: int
    error_rate: float
    typos: tuple[Typo, ...] = ()
    frame_kind: str = "pandas"

    @property
    def workers(self) -> list[object]:
        """Ids of the flagged workers, each once."""
        return list(dict.fromkeys(flag.worker for flag in self.flags))

    def kinds(self) -> dict[object, str]:
        """Kinds of the flags of each flagged worker, in words."""
        return self._by_worker("kind", ", ")

    def evidence(self) -> dict[object, str]:
        """The evidence on each flagged worker, in words."""
        return self._by_worker("evidence", "; ")

    def _by_worker(self, name: str, between: str) -> dict[object, str]:
        found: dict[object, list[str]] = {}
        for flag in self.flags:
            listed = found.setdefault(flag.worker, [])
            if getattr(flag, name) not in listed:
                listed.append(getattr(flag, name))
        return {worker: between.join(listed) for worker, listed in found.items()}

    def columns(self) -> dict[str, Any]:
        """One row per flag: worker, kind, evidence, false_alarms, n_answers, weight, other."""
        names = [field.name for field in fields(Flag)]
        return {name: [getattr(flag, name) for flag in self.flags] for name in names}

    @property
    def table(self) -> Any:
        """The flags as a data frame."""
        return frame(self.columns(), self.frame_kind)

    def typo_columns(self) -> dict[str, Any]:
        """One row per typo: task, worker, name, value, looks_like, kind, others, chance."""
        names = [field.name for field in fields(Typo)]
        return {name: [getattr(typo, name) for typo in self.typos] for name in names}

    @property
    def typos_table(self) -> Any:
        """The typos as a data frame."""
        return frame(self.typo_columns(), self.frame_kind)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain lists, for other programs."""
        return {
            "flags": [asdict(flag) for flag in self.flags],
            "n_workers": self.n_workers,
            "unjudged": self.unjudged.tolist(),
            "answers_needed": self.answers_needed,
            "error_rate": self.error_rate,
            "typos": [asdict(typo) for typo in self.typos],
        }

    def summary(self) -> str:
        """Return one line: how many are flagged, how many cannot be judged, and how many typos."""
        found = f"{len(self.workers)} of {self.n_workers} workers flagged"
        if self.typos:
            look = "answer looks" if len(self.typos) == 1 else "answers look"
            found += f"; {len(self.typos)} {look} mistyped"
        if not len(self.unjudged):
            return found
        return (
            f"{found}; too few answers to judge: {len(self.unjudged)} (fewer than "
            f"{self.answers_needed} on tasks that two others answered)"
        )

    def __repr__(self) -> str:
        lines = [f"{flag.worker} ({flag.kind}): {flag.evidence}" for flag in self.flags]
        lines += [typo.summary() for typo in self.typos]
        return "\n".join([f"Diagnosis: {self.summary()}", *lines])


def diagnose(answers: Answers, result: Result, *, error_rate: float = 0.05) -> Diagnosis:
    """Find the workers whom an honest crowd does not explain.

    The answers of an honest worker follow the tasks, with a noise, a bias and a use of the scale
    of the worker's own; how much honest workers differ in these is learned from the middle of the
    crowd. Every worker is tested against that, coordinate by coordinate, on the tasks with at least
    two other answers, and every pair of workers for equal answers and for errors that go together.
    The tests are corrected for the number of workers, coordinates and tests: in a crowd of honest
    workers the expected number of flagged ones is at most ``error_rate``. By default about 1 crowd
    in 20 has a worker flagged by mistake.

    Workers with fewer than ``log2(5 n_workers / error_rate)`` answers are not judged: even if all
    their answers lay to one side, coin tosses would do that somewhere in such a crowd.

    Single answers far from all others that one slip of the keyboard would bring back are listed as
    ``typos``, with what was probably meant: 410 looks like 41.0.
    """
    require(0 < error_rate <= 1, f"error_rate must be above 0 and at most 1, got {error_rate}")
    if not np.array_equal(answers.worker_ids, result.worker_ids):
        raise DataError("the result belongs to other answers: its workers differ")
    there = result.scale.answers(answers)
    crowd = PeerMedians(there)
    # Tested on the scale of the result, reported in the users' units.
    shown = crowd if there is answers else PeerMedians(result.scale.unwrapped(answers))
    needed = max(4, int(np.ceil(np.log2(_TOSSES * answers.n_workers / error_rate))))
    evidence = _Evidence(shown, result, _TESTS * answers.n_workers * answers.dimension, error_rate)
    flags = _flags_of_single_workers(crowd, shown, evidence, needed)
    level = error_rate / _TESTS / _SEARCHES
    for pair in find_copies(answers, level):
        flags += evidence.of_copies(pair)
    copies = {flag.worker for flag in flags if flag.kind == "copy"}
    for group in find_groups(answers, level).groups:
        flags += [flag for flag in evidence.of_group(group) if flag.worker not in copies]
    return Diagnosis(
        flags=tuple(sorted(flags, key=lambda flag: (flag.false_alarms, str(flag.worker)))),
        n_workers=answers.n_workers,
        unjudged=answers.worker_ids[crowd.count < needed],
        answers_needed=needed,
        error_rate=error_rate,
        typos=find_typos(answers, result.scale),
        frame_kind=answers.frame_kind,
    )


def _flags_of_single_workers(
    crowd: PeerMedians, shown: PeerMedians, evidence: _Evidence, needed: int
) -> list[Flag]:
    """Test every worker against the crowd; one flag for each worker and kind."""
    found: dict[tuple[object, str], Flag] = {}
    for test, tested_on, describe in (
        (slope_test, crowd, evidence.of_slope),
        (follow_test, crowd, evidence.of_slope),
        # Units are those of the users.
        (units_test, shown, evidence.of_units),
        (bias_test, crowd, evidence.of_bias),
        (noise_test, crowd, evidence.of_noise),
        (slip_test, crowd, evidence.of_slips),
    ):
        tested = [test(tested_on, j, needed) for j in range(crowd.answers.dimension)]
        p = np.stack([each.p for each in tested])
        for u in np.flatnonzero(evidence.false_alarms(p.min(axis=0)) <= evidence.error_rate):
            j = int(p[:, u].argmin())
            flag = evidence.flag(int(u), j, tested[j], *describe(int(u), j, tested[j]))
            known = found.setdefault((flag.worker, flag.kind), flag)
            if flag.false_alarms < known.false_alarms:
                found[flag.worker, flag.kind] = flag
    # Other units explain what the other tests see of these workers.
    mixed_up = {worker for worker, kind in found if kind == "units"}
    return [f for f in found.values() if f.kind == "units" or f.worker not in mixed_up]


class _Evidence:
    """Turns the findings of the tests into flags with the evidence in words."""

    def __init__(self, crowd: PeerMedians, result: Result, tests: int, error_rate: float) -> None:
        self._crowd, self._result = crowd, result
        self.error_rate, self._tests = error_rate, tests
        self._ids = result.worker_ids.tolist()

    def false_alarms(self, p: Any) -> Any:
        """Expected number of honest workers flagged, from probabilities of single tests."""
        return p * self._tests

    def flag(self, u: int, j: int, test: WorkerTest, kind: str, evidence: str) -> Flag:
        """Flag a worker for what a test found in one coordinate."""
        names = self._crowd.answers.value_names
        return Flag(
            worker=self._ids[u],
            kind=kind,
            evidence=f"{names[j]}: {evidence}" if len(names) > 1 else evidence,
            false_alarms=float(self.false_alarms(test.p[u])),
            n_answers=int(self._crowd.count[u]),
            weight=float(self._result.worker_weight[u]),
        )

    def _answers(self, u: int, j: int) -> tuple[Floats, Floats]:
        """A worker's answers, and the medians of the others'."""
        rows = self._rows(u)
        return self._crowd.value[rows, j], self._crowd.other[rows, j]

    def _rows(self, u: int) -> slice:
        return slice(*np.searchsorted(self._crowd.worker, [u, u + 1]))

    def of_slope(self, u: int, j: int, _: WorkerTest) -> tuple[str, str]:
        """A straight-liner where one value is given too often, else unrelated."""
        own, medians = self._answers(u, j)
        values, counts = np.unique(own, return_counts=True)
        value, times, n = values[counts.argmax()], int(counts.max()), len(own)
        others = self._answers_of_others(u, j)
        share = float(np.mean([(found == value).mean() for found in others]))
        # Most answers are one value, and more of them than for a worker who answers like the
        # others.
        if 2 * times > n and self.false_alarms(bdtrc(times - 1, n, share)) <= self.error_rate:
            where = np.concatenate([others[place] for place in np.flatnonzero(own == value)])
            count = f"all {n} tasks" if times == n else f"{times} of {n} tasks"
            return "constant" if times == n else "straight-liner", (
                f"answered {value:.6g} on {count}, where the others' answers ranged from "
                f"{where.min():.6g} to {where.max():.6g} and {percent(share)} were {value:.6g}"
            )
        order = np.argsort(medians, kind="stable")
        low, high = order[: n // 2], order[n - n // 2 :]
        return "unrelated", (
            f"answers do not follow the tasks: they average {own[high].mean():.3g} on the {n // 2} "
            f"tasks where the others answered highest and {own[low].mean():.3g} on the {n // 2} "
            f"where they answered lowest (medians of the others: {medians[high].mean():.3g} and "
            f"{medians[low].mean():.3g})"
        )

    def _answers_of_others(self, u: int, j: int) -> list[Floats]:
        """The others' answers to each of the worker's tasks."""
        answers, found = self._crowd.answers, []
        for e in self._crowd.edge[self._rows(u)]:
            start, end = answers.task_ptr[answers.task[e] : answers.task[e] + 2]
            found.append(np.delete(answers.value[start:end, j], e - start))
        return found

    def of_bias(self, u: int, j: int, test: WorkerTest) -> tuple[str, str]:
        """How far to one side, and how often."""
        shift = float(test.statistic[u])
        own, medians = self._answers(u, j)
        up = shift > test.median
        side = int((own > medians).sum() if up else (own < medians).sum())
        name = self._result.scale.name
        where = "" if name == "linear" else f" on the {name} scale"
        return "bias", (
            f"answers lie {abs(shift):.3g} {'above' if shift > 0 else 'below'} the others' "
            f"median{where}, on average over {len(own)} tasks ({'higher' if up else 'lower'} on "
            f"{side} of them; the crowd's median is {test.median:+.2g})"
        )

    def of_units(self, u: int, j: int, test: WorkerTest) -> tuple[str, str]:
        """By which factor answers differ, and between which units it lies."""
        own, medians = self._answers(u, j)
        low, high = np.quantile(own / medians, [0.25, 0.75])
        factor, names = nearest_factor(float(test.statistic[u] / test.median))
        return "units", (
            f"answers are about {test.statistic[u]:.3g} times the others' median on {len(own)} "
            f"tasks (half of them {low:.3g} to {high:.3g} times), as if given in other units: "
            f"{factor:.5g} is the factor between {names}"
        )

    def of_noise(self, u: int, j: int, test: WorkerTest) -> tuple[str, str]:
        """How far away, relative to the crowd."""
        own, medians = self._answers(u, j)
        # The statistic is about the log of how many times as far off.
        times = np.exp(test.statistic[u] - test.median)
        return "noise", (
            f"half of {len(own)} answers are more than {np.median(np.abs(own - medians)):.3g} away "
            f"from the others' median, about {times:.2g} times as far as usual on the same tasks"
        )

    def of_slips(self, u: int, _: int, test: WorkerTest) -> tuple[str, str]:
        """How many answers are far off, and how often those of others are."""
        n, times = int(self._crowd.count[u]), int(test.statistic[u])
        rest = (test.statistic.sum() - times) / max(self._crowd.count.sum() - n, 1)
        return "slips", (
            f"{times} of {n} answers are more than {FAR:.0f} times as far from the others' median "
            f"as usual; {percent(rest, 1)} of the others' answers are"
        )

    def of_copies(self, pair: Pair) -> list[Flag]:
        """One flag for each of the two: the answers do not show who copied from whom."""
        ids, n = self._ids, len(self._ids)
        return [
            Flag(
                worker=ids[u],
                kind="copy",
                evidence=(
                    f"gave the same answer as worker {shorten([ids[v]])} on {pair.equal} of "
                    f"{pair.shared} tasks that both answered, where at most {pair.chance:.2g} "
                    "would be expected of two who work independently"
                ),
                false_alarms=pair.p * n * (n - 1) / 2 * _TESTS * _SEARCHES,
                n_answers=pair.shared,
                weight=float(self._result.worker_weight[u]),
                other=ids[v],
            )
            for u, v in ((pair.first, pair.second), (pair.second, pair.first))
        ]

    def of_group(self, group: Group) -> list[Flag]:
        """One flag for each worker of a group, by the strongest link."""
        flags = []
        for u in group.workers:
            mine = [link for link in group.links if u in (link.first, link.second)]
            # Workers who were found later are linked to the group, whose first worker is named.
            link = min(mine or group.links, key=lambda link: link.p)
            other = link.second if u == link.first else link.first
            flags.append(
                Flag(
                    worker=self._ids[u],
                    kind="copy" if link.equal else "dependent",
                    evidence=_how_dependent(link, shorten([self._ids[other]])),
                    false_alarms=link.p * _TESTS * _SEARCHES,
                    n_answers=link.shared,
                    weight=float(self._result.worker_weight[u]),
                    other=self._ids[other],
                )
            )
        return flags


def _how_dependent(link: Link, other: str) -> str:
    """Describe what two workers have in common."""
    if link.equal:
        return (
            f"gave the same answer as worker {other}, to the last digit, on {link.equal} of "
            f"{link.shared} tasks that both answered, where others hardly ever give equal answers"
        )
    return (
        f"errs as worker {other} does: on {link.shared} tasks that both answered, the errors of "
        f"the two have a correlation of {link.correlation:.2f} beyond what the others explain"
    )
