"""What every component of a noise model offers: its option, its density, its EM step, its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from voxpop.arrays import Floats, Index

if TYPE_CHECKING:
    from voxpop.inference.kernel_set import ExpectedCounts

STEP = 2.5
"""Variances of the mixture are this factor apart, as the learned levels are."""
REACH = 2.0**30
"""No answer counts as further off than this many times the usual distance, about 10⁹.

A sum that holds a number as large keeps 23 bits, seven digits, of the usual distance. A slip is a
slip at that distance, too; further off it would only cost the other answers their digits.
"""
_ONE_STEP = np.zeros(1, dtype=np.int64), np.ones(1)


class StartingPoint(NamedTuple):
    """The starting point of parameters: levels (K,), their log weights, and where the answers are.

    ``task_means`` (n, d) are the means of each task's answers, ``residual`` (E, d) the answers less
    their task's median.
    """

    levels: Floats
    log_weights: Floats
    task_means: Floats
    residual: Floats


class WorkerEvidence(NamedTuple):
    """What the last sweep says about the workers who are learned from.

    ``levels`` (K,) are those that they may have, ``log_level`` (m,) each one's expected log level,
    less the average. ``bias_precision`` and ``bias_pull`` (m, d) are precision, and precision times
    mean, of all messages about the worker's bias.
    """

    levels: Floats
    log_level: Floats
    bias_precision: Floats
    bias_pull: Floats


class Component:
    """One part of a noise model, with its parameters as learned so far; learning makes a new one.

    Every noise model has all components: one that is switched off changes no density. A new one
    is a file like those beside this one and a line in :class:`voxpop.models.noise.Noise`.
    """

    name: ClassVar[str]
    """Field of :class:`voxpop.Noise`, and its word on the command line."""
    about: ClassVar[str]
    """What the field of :class:`voxpop.Noise` means."""
    words: ClassVar[str]
    """What the component adds, in the name of a model."""
    off: ClassVar[object] = False
    """Value of the field that leaves the component out."""
    learned: ClassVar[object] = True
    """Value that has it learned from the answers; None for a component without parameters."""
    compared_with: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Other components beside which a comparison of models tries this one, where workers differ."""
    compared_alike: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Other components beside which it is tried where all workers have the same noise."""

    @classmethod
    def check(cls, value: Any) -> Any:
        """Refuse a value of the field that makes no sense, or return it in its normal form."""
        return value

    @classmethod
    def summary(cls, value: object) -> str:
        """Return what a value of the field switches on; empty if nothing."""
        return "" if value == cls.off else cls.words

    @classmethod
    def initial(cls, value: Any, start: StartingPoint) -> Self:
        """Parameters to start from, under a value of the field."""
        raise NotImplementedError

    def answer_steps(self) -> tuple[Index, Floats]:
        """Steps that the variance of an answer is above its level, and their shares, both (S,)."""
        return _ONE_STEP

    def learn_from_workers(self, evidence: WorkerEvidence) -> Self:
        """EM step from the messages to the workers, before a sweep."""
        return self

    def learn_from_counts(self, counts: ExpectedCounts, steps: Floats) -> Self:
        """EM step from the counts of a sweep; ``steps`` (S,) are answers at each answer step."""
        return self

    def position(self) -> Floats:
        """Shares and logarithms of sizes: EM stops when none of them changes by much."""
        return np.empty(0)

    def facts(self, scale: Floats) -> dict[str, Any]:
        """The learned facts, by field of ``NoiseFacts``; ``scale`` (d,) are the units."""
        return {}
