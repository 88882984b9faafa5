"""Matched moments: exact for Gaussian noise, near integrals elsewhere, twins in C++ and numpy."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.test_noise import crowd
from voxpop.inference.engine import native_is_installed
from voxpop.inference.groups import SweepParameters, TruthPrior
from voxpop.inference.kernel_set import (
    BiasMessages,
    Edges,
    KernelSet,
    Matching,
    MatchInputs,
    SweepState,
)
from voxpop.inference.kernels.integrate import Law, NoiseGrid
from voxpop.inference.message_passing import MessagePassing
from voxpop.inference.moment_matching import MomentMatching
from voxpop.inference.numpy_kernels import NumpyKernels
from voxpop.models.model import Model

Floats = NDArray[np.float64]
QUANTUM = 2.0**-30


def grid(n_levels: int, n_classes: int, spread: bool) -> NoiseGrid:
    """Levels a step apart, each spread over three variances, classes a step harder."""
    n_variances = n_levels + n_classes - 1 + 2 * spread
    mixing = np.zeros((n_classes, n_levels, n_variances))
    shares = (0.5, 0.3, 0.2) if spread else (1.0,)
    for c in range(n_classes):
        for k in range(n_levels):
            for step, share in enumerate(shares):
                mixing[c, k, c + k + step] += share
    return NoiseGrid(np.asarray(0.1 * 2.5 ** np.arange(n_variances), dtype=np.float64), mixing)


def rows_of(
    seed: int,
    n_classes: int = 1,
    n_prior: int = 0,
    has_bias: bool = False,
    gold: float = 0.0,
    spread: bool = True,
    wild: bool = False,
    longest: int = 7,
    damping: float = 0.3,
) -> Matching:
    """Rows of one answer and more, with messages that are not flat."""
    rng = np.random.default_rng(seed)
    n, m, n_levels = 40, 15, 7
    ptr = np.concatenate([[0], np.cumsum(rng.integers(1, longest + 1, n))]).astype(np.int64)
    n_edges = int(ptr[-1])
    value = rng.normal(0, 3, n_edges)
    if wild:
        value[rng.integers(0, n_edges, 5)] *= 1e6
    bias = None
    if has_bias:
        bias = BiasMessages(
            rng.normal(0, 0.3, m),
            9.0 + rng.random(m),
            rng.random((n_edges, 1)),
            rng.normal(0, 0.1, (n_edges, 1)),
            0.5,
        )
    rows = MatchInputs(
        ptr,
        int(np.diff(ptr).max()),
        value,
        rng.normal(0, 1, n),
        np.where(rng.random(n) < gold, rng.normal(0, 1, n), np.nan),
        np.log(rng.dirichlet(np.ones(n_classes), n)),
        np.zeros((n_classes, n_edges)),
        np.zeros((n_classes, n)),
        bias,
    )
    sums = rng.integers(-(10**10), 10**10, (m, n_levels))
    state = SweepState(sums, np.log(np.full(n_levels, 1 / n_levels)), QUANTUM, -575.0, damping)
    worker = rng.integers(0, m, n_edges).astype(np.int32)[:, None]
    message = rng.integers(-(10**9), 0, (n_edges, 1, n_levels))
    prior = np.asarray(9.0 * 4.0 ** np.arange(n_prior), dtype=np.float64)
    weight = np.full(n_prior, 1 / max(n_prior, 1))
    law = Law(grid(n_levels, n_classes, spread), prior, weight, 1e-4, -575.0)
    return Matching(law, rows, state, Edges(worker, message))


KINDS_OF_ROWS: list[dict[str, Any]] = [
    {},
    {"spread": False},
    {"n_prior": 3},
    {"has_bias": True},
    {"n_classes": 3},
    {"n_classes": 3, "damping": 0.0},
    {"spread": True, "damping": 0.0},
    {"wild": True},
    {"longest": 150, "n_prior": 3},
    {"n_classes": 5, "n_prior": 3, "has_bias": True, "gold": 0.2},
    {"n_classes": 3, "has_bias": True, "wild": True},
]


def assert_twins(
    ours: KernelSet, start: Matching, close: float, sending: NDArray[np.bool_] | None = None
) -> None:
    """Two sweeps and predictions are those of numpy's; some rows send alone in a third sweep."""
    found: list[list[Floats]] = []
    for kernels in (ours, NumpyKernels()):
        here = copy.deepcopy(start)
        for _ in range(2):
            sums = np.zeros_like(here.state.sums)
            moved, evidence, counts = kernels.match_sweep(here, sums, True)
        p = kernels.match_predict(here)
        assert counts is not None
        if sending is not None:
            some = here._replace(rows=replace(here.rows, sending=sending))
            kernels.match_sweep(some, sums, False)
        bias = here.rows.bias
        about = [] if bias is None else [bias.edge_precision, bias.edge_pull]
        evidence = evidence - evidence.max(axis=1, keepdims=True)
        scaled = [np.asarray(QUANTUM * units) for units in (sums, here.edges.message)]
        found.append(
            [
                np.array(moved), evidence, counts, *scaled,
                here.rows.site, here.rows.prior_site, *about, p.log_density, p.pit, p.truth_mean,
                p.truth_variance, p.bias, p.variance,
            ]
        )  # fmt: skip
    for mine, numpys in zip(*found, strict=True):
        np.testing.assert_allclose(mine, numpys, rtol=close, atol=close)


@pytest.mark.skipif(not native_is_installed(), reason="the compiled kernels are not installed")
@pytest.mark.parametrize("what", KINDS_OF_ROWS)
@pytest.mark.parametrize("instruction_set", ["", "plain"])
def test_compiled_kernels_are_the_twins_of_numpys(
    what: dict[str, Any], instruction_set: str
) -> None:
    from voxpop.inference.native_kernels import NativeKernels

    assert_twins(NativeKernels(2, instruction_set), rows_of(3, **what), 1e-6)


def both(
    seed: int, levels: tuple[float, ...], **drawn: float
) -> tuple[MessagePassing, MomentMatching, SweepParameters]:
    """The same answers laid out for integrals and for matching, after one sweep of each."""
    answers = crowd(seed, n_tasks=60, **drawn)[0]  # type: ignore[arg-type]
    model = Model(support=levels, dimension=answers.dimension)
    unit, kernels = np.ones(answers.dimension), NumpyKernels()
    exact = MessagePassing(answers, model, unit, "integrate", 1e-9, kernels, learned=True)
    ours = MomentMatching(answers, model, unit, kernels)
    none = np.empty((answers.dimension, 0))
    truths = TruthPrior(np.zeros(answers.dimension), none, none)
    given = SweepParameters(NoiseGrid.plain(model.levels), np.zeros(1), truths, 1e-9)
    for messages in (exact, ours):
        messages.sweep(parameters=given)
    return exact, ours, given


@pytest.mark.parametrize("dimension", [1, 2])
def test_gaussian_noise_of_one_level_is_matched_exactly(dimension: int) -> None:
    exact, ours, given = both(1, (9.0,), dimension=dimension)
    theirs, mine = exact.predict(given, None), ours.predict(given, None)
    for name in ("log_density", "pit", "truth_mean", "truth_variance", "variance"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=1e-6, atol=1e-8)


def test_messages_are_near_those_of_integrals() -> None:
    """Sums over a worker's answers, as probabilities (on this seed 0.02 on average)."""
    exact, ours, _ = both(2, (4.0, 36.0, 324.0))
    beliefs = []
    for messages in (exact, ours):
        log_p = messages.sums * messages.quantum
        p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
        beliefs.append(p / p.sum(axis=1, keepdims=True))
    assert np.abs(beliefs[0] - beliefs[1]).mean() < 0.05


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(-1e3, 1e3), st.integers(-20, 20))
def test_shift_and_scale_move_predictions_along(seed: int, shift: float, power: int) -> None:
    factor = 2.0**power
    here = rows_of(seed, n_prior=2)
    rows, law = here.rows, here.law
    there = here._replace(
        law=Law(
            NoiseGrid(law.grid.variance * factor**2, law.grid.mixing),
            law.prior_variance * factor**2,
            law.prior_weight,
            law.accuracy,
            law.lowest,
        ),
        rows=MatchInputs(
            rows.ptr,
            rows.most,
            (rows.value + shift) * factor,
            (rows.prior_mean + shift) * factor,
            (rows.known + shift) * factor,
            rows.log_class,
            rows.site.copy(),
            rows.prior_site.copy(),
        ),
    )
    found = [NumpyKernels().match_predict(given) for given in (here, there)]
    mean = (found[0].truth_mean + shift) * factor
    np.testing.assert_allclose(found[1].truth_mean, mean, rtol=1e-6, atol=1e-6 * factor)
    np.testing.assert_allclose(
        found[1].log_density + np.log(factor), found[0].log_density, rtol=1e-6, atol=1e-6
    )


def test_an_only_answer_says_nothing_and_gold_says_what_it_knows() -> None:
    rows = MatchInputs(
        np.array([0, 1, 2]), 1, np.array([5.0, 2.0]), np.zeros(2), np.array([np.nan, 0.0]),
        np.zeros((2, 1)), np.zeros((1, 2)), np.zeros((1, 2)),
    )  # fmt: skip
    law = Law(NoiseGrid.plain(np.array([1.0, 4.0])), np.empty(0), np.empty(0), 1e-4)
    state = SweepState(np.zeros((2, 2), dtype=np.int64), np.zeros(2), QUANTUM, -575.0, 0.0)
    edges = Edges(np.array([[0], [1]], dtype=np.int32), np.zeros((2, 1, 2), dtype=np.int64))
    sums = np.zeros((2, 2), dtype=np.int64)
    NumpyKernels().match_sweep(Matching(law, rows, state, edges), sums, False)
    assert (edges.message[0] == 0).all()
    level = np.array([1.0, 4.0])
    exact = -0.5 * (2.0**2 / level + np.log(level))
    np.testing.assert_allclose(edges.message[1, 0] * QUANTUM, exact - exact.max(), atol=1e-8)
