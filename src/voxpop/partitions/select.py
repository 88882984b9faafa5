"""Quantiles over parts, to the last bit: counts by leading bits, then the numbers in one bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.partitions.steps import Part, Steps, Totals, joined

# Numbers above zero are ordered as their bits are: bins are those of the first sixteen.
_BITS = 16


class Sizes(Protocol):
    """Numbers of a part that are not negative, by column."""

    def sizes(self, part: Part) -> Floats:
        """Return them, (n, columns)."""


@dataclass(frozen=True, eq=False)
class CountBins:
    """Count numbers by their leading bits."""

    of: Sizes
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return the counts (columns, bins) of a part."""
        columns = _bins(self.of.sizes(part)).T
        return {"counts": np.stack([np.bincount(c, minlength=1 << _BITS) for c in columns])}


@dataclass(frozen=True, eq=False)
class GatherBins:
    """Gather the numbers of some bins (columns, 2): each once, and how often it is there."""

    of: Sizes
    bins: Index
    kind: ClassVar[str] = "answers"

    def run(self, part: Part) -> Totals:
        """Return those of a part."""
        found: Totals = {}
        sizes = self.of.sizes(part)
        for j, (column, bins) in enumerate(zip(sizes.T, _bins(sizes).T, strict=True)):
            some, times = np.unique(column[np.isin(bins, self.bins[j])], return_counts=True)
            found |= {f"size-{j}-{part.number}": some, f"times-{j}-{part.number}": times}
        return found


def _bins(sizes: Floats) -> Index:
    # Without the sign of zero.
    bits = (np.ascontiguousarray(sizes) + 0.0).view(np.uint64) >> np.uint64(64 - _BITS)
    return np.asarray(bits.astype(np.int64))


def quantiles(steps: Steps, of: Sizes, probability: float) -> Floats:
    """Return what :func:`numpy.quantile` does, for each column of all parts together."""
    counts = steps.total(CountBins(of))["counts"]
    below = np.cumsum(counts, axis=1)
    place = (int(below[0, -1]) - 1) * probability
    ranks = np.floor(place) + np.array([0, 1])
    ranks = np.minimum(ranks, below[0, -1] - 1).astype(np.int64)
    bins = np.stack([np.searchsorted(column, ranks, side="right") for column in below])
    found = steps.total(GatherBins(of, bins))
    n_parts = steps.job.parts.n_parts
    ends = [_at(found, j, n_parts, below[j], bins[j], ranks) for j in range(len(bins))]
    return np.array([np.quantile(pair, place - np.floor(place)) for pair in ends])


def _at(
    found: Mapping[str, NDArray[Any]], j: int, n_parts: int, below: Index, bins: Index, ranks: Index
) -> Floats:
    """Return the numbers of some ranks in a column."""
    size, times = (joined(found, f"{name}-{j}", n_parts) for name in ("size", "times"))
    order = np.argsort(size, kind="stable")
    size, times = size[order], times[order]
    there = _bins(size[:, None])[:, 0]
    values = []
    for rank, wanted in zip(ranks.tolist(), bins.tolist(), strict=True):
        here = there == wanted
        before = int(below[wanted - 1]) if wanted else 0
        place = np.searchsorted(np.cumsum(times[here]), rank - before, side="right")
        values.append(float(size[here][place]))
    return np.array(values)
