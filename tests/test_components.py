"""Connected components, against those of scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from voxpop.data.components import components


@pytest.mark.parametrize("n_edges", [0, 1, 30, 60, 100, 400])
@pytest.mark.parametrize("seed", range(5))
def test_components_are_those_of_scipy(n_edges: int, seed: int) -> None:
    first, second = np.random.default_rng(seed).integers(0, 100, (2, n_edges))
    graph = coo_array((np.ones(n_edges), (first, second)), shape=(100, 100))
    assert (components(100, first, second) == connected_components(graph, directed=False)[1]).all()


def test_a_long_chain_is_one_part() -> None:
    order = np.random.default_rng(0).permutation(10_000)
    assert (components(10_001, order, order + 1) == 0).all()
