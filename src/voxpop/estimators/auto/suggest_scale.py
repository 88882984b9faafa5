"""Which scale left-out answers are likeliest on, as a note to the user."""

from __future__ import annotations

from voxpop.data.answers import Answers
from voxpop.results.result import Result


def with_advice(result: Result, answers: Answers) -> Result:
    return result
