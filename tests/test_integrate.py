"""The compiled integrals of a noise model against numpy's; the same bits on any threads."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxpop.inference.kernels.mixture import Block, Grid, Heard

from voxpop.arrays import Floats
from voxpop.inference.engine import Engine, native_is_installed
from voxpop.inference.kernels import mixture
from voxpop.results.prediction import Prediction

if not native_is_installed():
    pytest.skip("the compiled kernels are not built", allow_module_level=True)

from voxpop.inference.mixture_kernels import NativeMixture, PortableMixture

from voxpop import _native

SETS = _native.instruction_sets()
every_set = pytest.mark.parametrize("instruction_set", SETS)

crowds = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**31),
        "degree": st.sampled_from([1, 2, 3, 5, 11]),
        "n_levels": st.sampled_from([1, 2, 3, 9]),
        "n_classes": st.sampled_from([1, 2, 5]),
        "apart": st.sampled_from([0.1, 3.0, 100.0, 3000.0]),
        "spread": st.sampled_from([0.0, 1e-9, 0.1, 30.0]),
        "strength": st.sampled_from([0.0, 3.0, 100.0, 5000.0]),
        "heavy": st.booleans(),
        "prior_variance": st.sampled_from([np.inf, 4.0]),
        "bounded": st.booleans(),
        "accuracy": st.sampled_from([1e-4, 1e-7]),
        "gold": st.booleans(),
    }
)
Case = dict[str, float]
Where = tuple[Floats, Floats, Floats, tuple[Floats, float, float], tuple[Floats, Floats], float]


def draw_grid(rng: np.random.Generator, case: Case) -> Grid:
    n_classes, n_levels = int(case["n_classes"]), int(case["n_levels"])
    n_variances = n_levels + 2 * (n_classes - 1) + (8 if case["heavy"] else 0)
    mixing = np.zeros((n_classes, n_levels, n_variances))
    for c in range(n_classes):
        for k in range(n_levels):
            near = rng.uniform(size=9 if case["heavy"] else 1) ** 4
            mixing[c, k, 2 * c + k : 2 * c + k + len(near)] = near / near.sum()
    return Grid(np.geomspace(1e-2, 1e-2 * 2.5 ** (n_variances - 1), n_variances), mixing)


def draw(case: Case, n: int = 5) -> tuple[Block, Grid, Where]:
    """A block on nodes of numpy's, and what these were placed by."""
    rng = np.random.default_rng(int(case["seed"]))
    grid, degree = draw_grid(rng, case), int(case["degree"])
    centre = case["apart"] * rng.normal(size=(n, degree))
    spread = case["spread"] * rng.uniform(0.1, 1.0, (n, degree))
    incoming = case["strength"] * rng.normal(size=(n, degree, grid.mixing.shape[1]))
    incoming -= incoming.max(axis=2, keepdims=True)
    log_class = np.log(rng.dirichlet(np.ones(len(grid.mixing)), n))
    bounds = (np.full(n, -np.inf), np.full(n, np.inf))
    if case["bounded"]:
        bounds = (centre.min(axis=1) - 0.01, centre.max(axis=1) + rng.uniform(-0.01, 100.0, n))
    where: Where = (
        centre,
        grid.variance.min() + spread,
        grid.variance.max() + spread.max(axis=1),
        (rng.normal(size=n), 0.01 * float(case["prior_variance"]), float(case["prior_variance"])),
        bounds,
        float(case["accuracy"]),
    )
    if case["gold"]:
        x, log_weight = centre.mean(axis=1, keepdims=True), np.zeros((n, 1))
    else:
        x, log_weight = mixture.place(*where)
    return Block(centre, spread, incoming, log_class, x, log_weight), grid, where


def assert_heard_alike(ours: Heard, theirs: Heard, block: Block) -> None:
    for name in ("message", "evidence", "shift_variance", "mass", "pairs"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-10, atol=1e-10, err_msg=name
        )
    scale = np.sqrt(block.spread)
    assert (np.abs(ours.shift - theirs.shift) <= 1e-10 * (scale + np.abs(theirs.shift))).all()


@given(case=crowds)
def test_send_is_the_twin_of_numpys(case: Case) -> None:
    block, grid, _ = draw(case)
    theirs = mixture.send(block, grid)
    for instruction_set in SETS:
        assert_heard_alike(NativeMixture(1, instruction_set).send(block, grid), theirs, block)


@pytest.mark.slow
@given(case=crowds)
def test_predict_is_the_twin_of_numpys(case: Case) -> None:
    block, grid, _ = draw(case)
    theirs = mixture.predict(block, grid)
    # Mean square less squared mean: what that loses, both lose.
    lost = 1e-13 * float((block.x**2).max())
    for instruction_set in SETS:
        ours = NativeMixture(1, instruction_set).predict(block, grid)
        np.testing.assert_allclose(ours.log_density, theirs.log_density, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(ours.pit, theirs.pit, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-10, atol=1e-10)
        for name in ("truth_variance", "variance"):
            found, expected = getattr(ours, name), getattr(theirs, name)
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 + lost)


@pytest.mark.slow
@given(case=crowds)
def test_place_is_the_twin_of_numpys(case: Case) -> None:
    _, _, where = draw(case)
    x, log_weight = mixture.place(*where)
    inside = np.isfinite(log_weight)
    # Next to a bound rounding of x is felt in its distance, and so in the weights.
    loose = 1e-3 if case["bounded"] else 1e-9
    step = np.diff(x, axis=1, append=x[:, -1:])
    for instruction_set in SETS:
        ours = NativeMixture(1, instruction_set).place(*where)
        assert ours[0].shape == x.shape
        np.testing.assert_array_equal(np.isfinite(ours[1]), inside)
        assert (np.abs(ours[0] - x)[inside] <= loose * step[inside] + 1e-12).all()
        np.testing.assert_allclose(ours[1][inside], log_weight[inside], atol=loose)


@every_set
def test_bits_do_not_depend_on_threads_or_neighbours(instruction_set: str) -> None:
    case: Case = {
        "seed": 3, "degree": 5, "n_levels": 9, "n_classes": 2, "apart": 3.0, "spread": 0.1,
        "strength": 3.0, "heavy": True, "prior_variance": np.inf, "bounded": True,
        "accuracy": 1e-7, "gold": False,
    }  # fmt: skip
    n = 163
    block, grid, where = draw(case, n)
    one = NativeMixture(1, instruction_set)
    heard, predicted, nodes = one.send(block, grid), one.predict(block, grid), one.place(*where)
    for threads in (2, 3):
        many = NativeMixture(threads, instruction_set)
        assert_same_bits(many.send(block, grid), heard)
        assert_same_bits(many.predict(block, grid), predicted)
        for ours, theirs in zip(many.place(*where), nodes, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    # A row says the same wherever it stands, with however many nodes that weigh nothing.
    rows = np.random.default_rng(0).permutation(n)[:37]
    some = Block(**{f.name: getattr(block, f.name)[rows] for f in fields(Block)})
    padded = replace(
        some,
        x=np.pad(some.x, ((0, 0), (0, 9)), mode="edge"),
        log_weight=np.pad(some.log_weight, ((0, 0), (0, 9)), constant_values=-np.inf),
    )
    for part in (some, padded):
        found = one.send(part, grid)
        np.testing.assert_array_equal(found.message, heard.message[rows])
        np.testing.assert_array_equal(found.shift, heard.shift[rows])


def assert_same_bits(ours: Heard | Prediction, theirs: Heard | Prediction) -> None:
    for field in fields(theirs):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))


def test_the_engine_chooses() -> None:
    assert isinstance(Engine(backend="portable").mixtures(), PortableMixture)
    assert isinstance(Engine(backend="native").mixtures(), NativeMixture)
    assert isinstance(Engine().mixtures(), NativeMixture)
