"""Connected components: the parts of a graph that no edge joins, numbered."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Index


def components(n_nodes: int, first: NDArray[Any], second: NDArray[Any]) -> Index:
    """Number the part (nodes,) that every node is in, by edges from ``first`` to ``second`` (E,).

    Parts are numbered in the order of their first nodes. scipy.sparse has this too, but loading it
    takes as long as fitting a small crowd.
    """
    lowest = np.arange(n_nodes)
    while len(first):
        one, other = lowest[first], lowest[second]
        apart = one != other
        first, second, one, other = first[apart], second[apart], one[apart], other[apart]
        np.minimum.at(lowest, np.maximum(one, other), np.minimum(one, other))
        while (lowest[lowest] != lowest).any():
            lowest = lowest[lowest]
    return np.unique(lowest, return_inverse=True)[1]
