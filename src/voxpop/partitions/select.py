"""Quantiles over parts, to the last bit: counts by leading bits, then the numbers in one bin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats, Index
from voxpop.partitions.steps import Part, Steps, Totals, joined

# Numbers above zero are ordered as their bits are: bins are those of the first sixteen.
_BITS = 16


Sizes = Callable[[Part], Floats]
"""Numbers of a part that are not negative, (n, columns)."""


def count_bins(part: Part, sizes: Sizes) -> Totals:
    """Count the numbers of a part by their leading bits, (columns, bins)."""
    columns = _bins(sizes(part)).T
    return {"counts": np.stack([np.bincount(c, minlength=1 << _BITS) for c in columns])}


def gather_bins(part: Part, sizes: Sizes, bins: Index) -> Totals:
    """Gather the numbers of some bins (columns, 2): each once, and how often it is there."""
    found: Totals = {}
    numbers = sizes(part)
    for j, (column, places) in enumerate(zip(numbers.T, _bins(numbers).T, strict=True)):
        some, times = np.unique(column[np.isin(places, bins[j])], return_counts=True)
        found |= part.own(**{f"size-{j}": some, f"times-{j}": times})
    return found


def _bins(sizes: Floats) -> Index:
    # Without the sign of zero.
    bits = (np.ascontiguousarray(sizes) + 0.0).view(np.uint64) >> np.uint64(64 - _BITS)
    return np.asarray(bits.astype(np.int64))


def quantiles(steps: Steps, sizes: Sizes, probability: float) -> Floats:
    """Return what :func:`numpy.quantile` does, for each column of all parts together."""
    counts = steps.total(partial(count_bins, sizes=sizes))["counts"]
    below = np.cumsum(counts, axis=1)
    place = (int(below[0, -1]) - 1) * probability
    ranks = np.floor(place) + np.array([0, 1])
    ranks = np.minimum(ranks, below[0, -1] - 1).astype(np.int64)
    bins = np.stack([np.searchsorted(column, ranks, side="right") for column in below])
    found = steps.total(partial(gather_bins, sizes=sizes, bins=bins))
    n_parts = steps.job.parts.n_parts
    ends = [_at(found, j, n_parts, below[j], bins[j], ranks) for j in range(len(bins))]
    return np.array([np.quantile(pair, place - np.floor(place)) for pair in ends])


def _at(
    found: Mapping[str, NDArray[Any]], j: int, n_parts: int, below: Index, bins: Index, ranks: Index
) -> Floats:
    """Return the numbers of some ranks in a column."""
    size, times = joined(found, n_parts, f"size-{j}", f"times-{j}")
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
