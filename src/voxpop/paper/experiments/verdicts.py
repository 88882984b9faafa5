"""A claim with its margin and its test, and the verdict that some tables give on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import pandas as pd

Frames = Mapping[str, pd.DataFrame]
"""The tidy table of each experiment that was run."""
Outcome = tuple[bool | None, str]
"""Whether the margin is kept (None: that cannot be settled here), and what was measured."""
Test = Callable[[Frames], Outcome]


@dataclass(frozen=True)
class Verdict:
    """One claim with what was measured; ``passed`` is None where that cannot settle it."""

    name: str
    claim: str
    margin: str
    measured: str
    passed: bool | None

    @property
    def word(self) -> str:
        """PASS, FAIL or OPEN."""
        return {True: "PASS", False: "FAIL", None: "OPEN"}[self.passed]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the margin that confirms it, and its test on some tables."""

    name: str
    claim: str
    margin: str
    needs: tuple[str, ...]
    test: Test

    def judge(self, frames: Frames) -> Verdict:
        """Judge by the tables at hand."""
        absent = [name for name in self.needs if name not in frames]
        outcome: Outcome = (None, f"not run: needs {', '.join(absent)}")
        passed, measured = outcome if absent else self.test(frames)
        passed = None if passed is None else bool(passed)
        return Verdict(self.name, self.claim, self.margin, measured, passed)


def count(verdicts: Collection[Verdict]) -> str:
    """Say how many claims passed, failed and are open."""
    words = [verdict.word for verdict in verdicts]
    numbers = ", ".join(f"{words.count(word)} {word}" for word in ("PASS", "FAIL", "OPEN"))
    return f"{len(words)} claims: {numbers}"
