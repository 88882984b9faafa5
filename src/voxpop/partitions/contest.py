"""The contest over parts: noise models compared on tasks near each other, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from voxpop.arrays import Floats
from voxpop.data.answers import Answers
from voxpop.errors import ConfigError
from voxpop.estimators.auto.auto import Auto, contest_settings
from voxpop.estimators.auto.average import average
from voxpop.estimators.auto.subset import usable_answers
from voxpop.estimators.base import OnSweep
from voxpop.estimators.bi.bi import Support
from voxpop.models.noise import Noise, NoiseParameters
from voxpop.partitions.store import Store
from voxpop.results.audit import Audit
from voxpop.results.diagnosis.groups import find_groups

_CONTEST = "contest.pickle"


@dataclass(frozen=True, eq=False)
class Contest:
    """The result of the comparison on a part of the answers, and the notes to report."""

    noise: Noise
    support: Support
    parameters: NoiseParameters
    scale: Floats
    audit: Audit
    settings: dict[str, Any]
    alike_share: float
    notes: tuple[str, ...]


def hold_contest(auto: Auto, part: Answers, store: Store, on_sweep: OnSweep | None) -> Contest:
    """Compare noise models, unless that was done before the run was stopped."""
    if not store.exists(_CONTEST):
        store.keep(_CONTEST, _compare(auto, part, on_sweep))
    contest: Contest = store.kept(_CONTEST)
    return contest


def _compare(auto: Auto, part: Answers, on_sweep: OnSweep | None) -> Contest:
    usable = usable_answers(part)
    if not usable.any():
        raise ConfigError(
            "no task has enough answers for leave-one-out prediction; for answers "
            "in parts use --method bi, or use --engine local"
        )
    comparison = auto.compare(part, usable, True, on_sweep)
    found = average(comparison)
    notes: tuple[str, ...] = ()
    if found.candidates and _needs_all(found.candidates[0].noise):
        left = found.name
        comparison.candidates = [c for c in comparison.candidates if not _needs_all(c.noise)]
        found = average(comparison)
        notes = (
            f"{left} predicts best, but needs all answers in memory, so it was left out; "
            "--engine local fits it",
        )
    if found.simple:
        raise ConfigError(
            f"the default would use the {found.simple} here ({found.reason}), which needs all "
            "answers in memory; use --engine local, or --method bi"
        )
    if find_groups(part):
        notes = (
            *notes,
            "some workers agree far more than independent workers would; they count as one worker "
            "with --engine local only",
        )
    best = found.candidates[0]
    return Contest(
        best.noise,
        best.support,
        best.fitted.parameters,
        best.fitted.scale,
        Audit.from_dict(best.audit.to_dict()),
        contest_settings(auto, found, comparison),
        found.alike_share,
        (found.summary(), *notes),
    )


def _needs_all(noise: Noise) -> bool:
    """Return whether a model is not fitted in parts.

    Gains and growth are learned before any message, from all answers at once; the parts do not know
    the states of careless workers.
    """
    return noise.gain or noise.growth or noise.careless
