"""Typos: answers far from all others that a slip of the keyboard explains, and what was meant."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from voxpop.arrays import Floats, Ids, Index
from voxpop.data.answers import Answers
from voxpop.models.scale import SCALES, Scale
from voxpop.results.diagnosis.worker_tests import FAR, PeerMedians, far_off, ranks

# Far: this many typical distances from the others' median, about seven standard deviations.
# Corrected, an answer is within this many, about three.
_NEAR = 4.0
# A wild answer is as likely at any order of magnitude of its distance, over three of them; over
# one on a scale that is not linear, on which three orders of magnitude are a distance of seven.
_DECADES, _DECADES_OF_LOGS = 3.0, 1.0
# A corrected value is not held to be nearer than this share of a typical distance.
_LEAST_DISTANCE = 0.5
# Share of what is found that may be no typo.
_FALSE = 0.1
# Digits that people type.
_DIGITS = 12
# Distances grow with the value if their ranks do, by this many standard errors.
_GROWING = 4.0


@dataclass(frozen=True, kw_only=True)
class Typo:
    """One answer that looks mistyped.

    Attributes
    ----------
    name
        The coordinate of a vector; for plain numbers, the name of their column.
    value, looks_like
        What was answered, and what was probably meant.
    kind
        ``decimal point`` (also a decimal comma that was read as a thousands mark), ``sign``,
        ``swapped digits`` or ``doubled digit``.
    others
        Median of the others' answers to the task.
    chance
        Probability that one of these slips would lead as near to the others' median from an answer
        that far off, had it nothing to do with the task.
    """

    task: object
    worker: object
    name: str
    value: float
    looks_like: float
    kind: str
    others: float
    chance: float

    def summary(self) -> str:
        """Return one sentence."""
        return (
            f"{self.value:.6g} of worker {self.worker} to task {self.task} looks like "
            f"{self.looks_like:.6g} ({self.kind}); the median of the others is {self.others:.6g}"
        )


def find_typos(answers: Answers, scale: Scale) -> tuple[Typo, ...]:
    """Find answers far from all others that correcting one slip would bring back.

    An answer is far if it lies more than ten typical distances from the median of at least two
    others; the typical distance is the median over all answers or over the worker's own, whichever
    is larger, so that usual noise is never a typo. Mended, it must lie within four.

    Some wild answers would fit by chance, so each gets its odds, and the false discovery rate over
    all far answers is held: of what is found one in ten is expected to be no typo, and in a crowd
    with wild answers but without typos that is the chance of finding any. Where the noise of prices
    and the like grows with the value, typical distances are those of logarithms.
    """
    if scale.name == "circular":
        return ()  # every number is an angle
    # Known truths need not be on a scale that all answers are on.
    answers = replace(answers, gold=None)
    scale, crowd = scale_of_noise(answers, scale)
    names, found = answers.value_names, []
    for j in range(answers.dimension):
        far, typical = far_off(crowd, j)
        for k in np.flatnonzero(far):
            e, at = int(crowd.edge[k]), float(crowd.other[k, j])
            mended = mend(float(answers.value[e, j]), at, float(typical[k]), scale)
            found.append((mended, e, names[j], _back(scale, at)))
    chances = np.array([mended[2] for mended, *_ in found])
    return tuple(
        Typo(
            task=_plain(answers.task_ids, answers.task[e]),
            worker=_plain(answers.worker_ids, answers.worker[e]),
            name=name,
            value=float(answers.value[e, names.index(name)]),
            looks_like=looks_like,
            kind=kind,
            others=others,
            chance=chance,
        )
        for (looks_like, kind, chance), e, name, others in (found[k] for k in _significant(chances))
    )


def scale_of_noise(answers: Answers, scale: Scale) -> tuple[Scale, PeerMedians]:
    """The log scale in place of the linear one where noise grows with the value, and less there."""
    crowd = PeerMedians(scale.answers(answers))
    if scale.name != "linear" or answers.dimension > 1 or not (answers.value > 0).all():
        return scale, crowd
    if (grows := _growth(crowd)) <= _GROWING:
        return scale, crowd
    log = SCALES["log"].of(answers)
    on_log = PeerMedians(log.answers(answers))
    return (log, on_log) if abs(_growth(on_log)) < grows else (scale, crowd)


def _growth(crowd: PeerMedians) -> float:
    """By how many standard errors distances from the others' median grow with it, in ranks."""
    if len(crowd.edge) < 2:
        return 0.0
    distance, level = (
        ranks(x) for x in (np.abs(crowd.value - crowd.other)[:, 0], crowd.other[:, 0])
    )
    distance, level = distance - distance.mean(), level - level.mean()
    size = float(np.sqrt((distance**2).sum() * (level**2).sum()))
    return float((distance * level).sum()) / size * len(level) ** 0.5 if size > 0 else 0.0


def mend(value: float, at: float, typical: float, scale: Scale) -> tuple[float, str, float]:
    """The most likely slip behind a value: what was meant, its kind, and the chance."""
    median = _back(scale, at)
    best, best_kind, nearest, windows = np.nan, "", np.inf, 0.0
    for meant, kind, slope, shift in _slips(value):
        # Where the same slip would take the others' median.
        there = np.array([slope * median + shift, median])
        if bool(scale.outside(there[:1])[0]):
            continue
        far = abs(float(scale.forward(there[:1])[0]) - at)
        if far < FAR * typical:
            continue
        steepness = np.exp(np.subtract(*scale.log_slope(there)))
        windows += abs(slope) * float(steepness) / far
        if bool(scale.outside(np.array([meant]))[0]):
            continue
        off = abs(float(scale.forward(np.array([meant]))[0]) - at)
        # A lost decimal point is the commonest slip: of two that fit as well it is the one.
        if off < nearest - typical * (best_kind == "decimal point"):
            best, best_kind, nearest = meant, kind, off
    if nearest > _NEAR * typical:
        return best, best_kind, 1.0
    near = max(nearest, _LEAST_DISTANCE * typical)
    decades = _DECADES if scale.name == "linear" else _DECADES_OF_LOGS
    # Answers that a slip leads as near as that lie in a window about where it takes the median,
    # and a wild answer lies in one with this chance.
    return best, best_kind, min(1.0, 2 * near * windows / (decades * np.log(10)))


def _plain(ids: Ids, place: int) -> object:
    """An id as a JSON value."""
    return ids[place : place + 1].tolist()[0]


def _back(scale: Scale, at: float) -> float:
    return float(scale.back(np.array([at]))[0])


def _slips(value: float) -> list[tuple[float, str, float, float]]:
    """What may have been meant, by kind; the answer is slope times that, plus a shift."""
    found = [(value / 10.0**k, "decimal point", 10.0**k, 0.0) for k in (1, -1, 2, -2, 3, -3)]
    found.append((-value, "sign", -1.0, 0.0))
    text = f"{abs(value):.{_DIGITS}g}"
    if "e" in text:
        return found
    sign = -1.0 if value < 0 else 1.0
    for k in range(len(text) - 1):
        a, b = text[k], text[k + 1]
        if a == b:
            typed, kind = text[:k] + text[k + 1 :], "doubled digit"
        elif a.isdigit() and b.isdigit():
            typed, kind = text[:k] + b + a + text[k + 2 :], "swapped digits"
        else:
            continue
        meant = sign * float(typed)
        # The digits behind are as they were meant.
        found.append((meant, kind, 1.0, value - meant))
    return found


def _significant(chance: Floats) -> Index:
    """Positions of what is found, surest first.

    By Benjamini and Hochberg's procedure, with Storey's estimate of the share of far answers that
    are no typos: it may be small.
    """
    n = len(chance)
    by_chance = min(1.0, 2.0 * (1.0 + (chance > 0.5).sum()) / max(n, 1))
    order = np.argsort(chance, kind="stable")
    held = np.flatnonzero(chance[order] * n * by_chance <= _FALSE * np.arange(1, n + 1))
    return np.asarray(order[: held[-1] + 1] if len(held) else order[:0])
