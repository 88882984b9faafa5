"""Which way to work out a task: what enumeration and integration cost, as measured."""

from __future__ import annotations

from voxpop.backends import Inference
from voxpop.errors import require
from voxpop.tables import Floats

# Most configurations of one task that can be enumerated at all: their tables fill the memory.
MOST_CONFIGURATIONS = 2**22
# Most configurations of one task that are enumerated rather than integrated over.
_FEW_CONFIGURATIONS = 2048


def enumerates(
    inference: Inference, levels: Floats, degree: int, dimension: int, accuracy: float
) -> bool:
    """Tell whether tasks of that degree are enumerated; refuse what cannot be."""
    n_configurations = float(len(levels)) ** degree
    if inference == "enumerate":
        require(
            n_configurations <= MOST_CONFIGURATIONS,
            f"a task with {degree} answers has {len(levels)}^{degree} configurations of levels, "
            "too many to enumerate; use inference='auto'",
        )
    # With one answer there is nothing to integrate against a flat prior.
    if inference == "enumerate" or degree == 1:
        return True
    return inference == "auto" and n_configurations <= _FEW_CONFIGURATIONS
