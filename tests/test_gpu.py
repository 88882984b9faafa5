"""The kernels for a GPU against numpy's: on a GPU if there is one, and compiled for this machine.

Compiled for the host the same sources run thread by thread, so that what they compute is checked
everywhere; messages agree to 1e-9 as they must on a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import voxpop as vp
from tests.cavity_messages import make_kernel, outgoing, posterior_of
from tests.host_device import HostDevice, compiler
from tests.on_device import OnDevice
from tests.test_integrate import (
    LEARNED_FLOOR,
    RICH,
    Crowd,
    assert_posteriors_agree,
    assert_predictions_agree,
    assert_sweeps_agree,
    crowds,
    draw,
    posterior,
    predict,
    sweep,
)
from tests.test_match import KINDS_OF_ROWS, assert_twins, rows_of
from voxpop.inference import gpu_kernels
from voxpop.inference.engine import Engine, gpu_is_there
from voxpop.inference.gpu_device import CupyDevice
from voxpop.inference.gpu_kernels import GpuKernels
from voxpop.inference.kernels.integrate import NoiseGrid
from voxpop.inference.numpy_kernels import NumpyKernels

pytestmark = pytest.mark.slow

PROBABILITIES = np.array([0.025, 0.5, 0.975])


@pytest.fixture(params=["host", "gpu"])
def where(request: pytest.FixtureRequest) -> str:
    """Where the kernels run."""
    name = str(request.param)
    if name == "host" and compiler() is None:
        pytest.skip("no C++ compiler to compile the GPU kernels for the host with")
    if name == "gpu" and not gpu_is_there():
        pytest.skip("no GPU, or no CuPy to use it with")
    return name


@pytest.fixture
def kernels(where: str) -> OnDevice:
    """The kernels there, called with arrays of the host."""
    device = HostDevice() if where == "host" else CupyDevice()
    return OnDevice(GpuKernels(NumpyKernels(), device))


@pytest.fixture
def backend(where: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """``backend="gpu"``, on the host where there is none."""
    if where == "host":
        monkeypatch.setattr(gpu_kernels, "CupyDevice", HostDevice)
    return "gpu"


@pytest.mark.parametrize(
    ("degree", "dimension", "levels", "prior_variance", "scale", "strength"),
    [
        pytest.param(5, 2, (1.0, 10.0, 100.0), np.inf, 10.0, 3.0, id="the paper's"),
        pytest.param(5, 2, (1.0, 10.0, 100.0), 50.0, 10.0, 3.0, id="a prior"),
        pytest.param(1, 3, (1.0, 4.0), np.inf, 3.0, 3.0, id="one answer"),
        pytest.param(5, 2, (1.0, 10.0, 100.0), np.inf, 3000.0, 3000.0, id="all underflows"),
        pytest.param(8, 1, (0.01, 1.0, 100.0), np.inf, 1.0, 30.0, id="more than nearby memory"),
        pytest.param(3, 2, (2.0,), 7.0, 3.0, 0.0, id="one level"),
    ],
)
def test_enumeration_is_numpys(
    kernels: OnDevice,
    degree: int,
    dimension: int,
    levels: tuple[float, ...],
    prior_variance: float,
    scale: float,
    strength: float,
) -> None:
    rng = np.random.default_rng(degree)
    value = NumpyKernels().centre(scale * rng.normal(size=(12, degree, dimension)), 1.0)[0]
    incoming = -strength * rng.exponential(size=(12, degree, len(levels)))
    model = vp.Model(support=levels, dimension=dimension, prior_variance=prior_variance)
    prior_mean = rng.normal(size=(12, dimension))
    ours, theirs = (
        make_kernel(kernel_set, "enumerate", value, model, prior_mean)  # type: ignore[arg-type]
        for kernel_set in (kernels, NumpyKernels())
    )
    expected = outgoing(theirs, incoming)
    np.testing.assert_allclose(outgoing(ours, incoming), expected, rtol=1e-12, atol=1e-9)
    found, known = (posterior_of(k, incoming, PROBABILITIES) for k in (ours, theirs))
    sd = np.sqrt(known.variance)
    assert (np.abs(found.estimate - known.estimate) <= 1e-9 * (sd + np.abs(known.estimate))).all()
    np.testing.assert_allclose(found.variance, known.variance, rtol=1e-8)
    # Components that weigh nothing are left out of quantiles by each in its own way.
    assert (np.abs(found.quantile - known.quantile) <= 1e-6 * sd[:, :, None]).all()


PLAIN = Crowd(n_classes=1, heavy=False, spread=0.0, n_levels=8, degree=30)


@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(RICH, id="classes, tails, biases"),
        pytest.param(replace(RICH, bounded=True, prior_variance=4.0), id="bounds and a prior"),
        pytest.param(replace(RICH, gold=True), id="gold"),
        pytest.param(replace(RICH, floor=LEARNED_FLOOR, strength=100.0), id="a floor"),
        pytest.param(
            replace(PLAIN, apart=3000.0, degree=5), id="more nodes than there is room for"
        ),
    ],
)
def test_integration_is_numpys(kernels: OnDevice, crowd: Crowd) -> None:
    assert_agrees(kernels, crowd)


def assert_agrees(kernels: OnDevice, crowd: Crowd) -> None:
    case, numpy = draw(crowd), NumpyKernels()
    assert_sweeps_agree(sweep(kernels, case), sweep(numpy, case), case)  # type: ignore[arg-type]
    of_gpu = posterior(kernels, case), predict(kernels, case)  # type: ignore[arg-type]
    assert_posteriors_agree(of_gpu[0], posterior(numpy, case), case)
    assert_predictions_agree(of_gpu[1], predict(numpy, case), case)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("shapes", [False, True])
def test_lanes_share_the_work(shapes: bool) -> None:
    """A thread a lane, for any size of the mixing and for its own."""
    device = HostDevice(lanes=2)
    device.shapes = shapes
    crowd = replace(RICH, degree=3, heavy=False, prior_variance=4.0)
    assert_agrees(OnDevice(GpuKernels(NumpyKernels(), device)), crowd)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@settings(max_examples=8)
@given(crowd=crowds)
def test_any_integral_is_numpys_on_the_host(crowd: Crowd) -> None:
    assert_agrees(OnDevice(GpuKernels(NumpyKernels(), HostDevice())), crowd)


@pytest.mark.skipif(not gpu_is_there(), reason="no GPU, or no CuPy to use it with")
@given(crowd=crowds)
def test_any_integral_is_numpys_on_a_gpu(crowd: Crowd) -> None:
    assert_agrees(OnDevice(GpuKernels(NumpyKernels())), crowd)


@pytest.mark.parametrize("what", KINDS_OF_ROWS)
def test_matched_moments_are_numpys(kernels: OnDevice, what: dict[str, Any]) -> None:
    # Messages about biases are differences of squares of distances, which are 1e6 sds here.
    close = 1e-6 if what.get("wild") and what.get("has_bias") else 1e-9
    assert_twins(kernels, rows_of(3, **what), close, np.arange(40) % 3 == 0)  # type: ignore[arg-type]


def test_messages_of_matched_moments_that_underflow_are_numpys(kernels: OnDevice) -> None:
    """Only a variance that hardly any answer has explains some: all levels underflow."""
    start = rows_of(3)
    value, grid = start.rows.value.copy(), start.law.grid
    value[::20] *= 1e3
    mixing = grid.mixing.copy()
    mixing[:, :, -1] = 1e-120 * (1.0 + np.arange(mixing.shape[1]))
    law = replace(start.law, grid=NoiseGrid(grid.variance, mixing))
    rows = replace(start.rows, value=value)
    assert_twins(kernels, start._replace(law=law, rows=rows), 1e-9)  # type: ignore[arg-type]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_lanes_share_the_matching() -> None:
    kernels = OnDevice(GpuKernels(NumpyKernels(), HostDevice(lanes=2)))
    start = rows_of(5, n_classes=2, n_prior=2, has_bias=True, gold=0.2)
    assert_twins(kernels, start, 1e-9, np.arange(40) % 2 == 0)  # type: ignore[arg-type]


def crowd_of(n_tasks: int, gold: int = 0) -> vp.Answers:
    """Tasks with two to six answers in two coordinates, the first ones gold."""
    rng = np.random.default_rng(5)
    degree = rng.integers(2, 7, n_tasks)
    task = np.repeat(np.arange(n_tasks), degree)
    worker = np.concatenate([rng.permutation(15)[:n] for n in degree])
    truth, sd = rng.normal(size=(n_tasks, 2)) * 5, np.geomspace(0.3, 3.0, 15)
    value = truth[task] + rng.normal(size=(len(task), 2)) * sd[worker, None] + 0.3
    known = np.where(np.arange(n_tasks)[:, None] < gold, truth, np.nan)
    return vp.Answers.from_arrays(task, worker, value, gold=known)


def assert_same(ours: vp.Result, theirs: vp.Result, close: float) -> None:
    scale = np.sqrt(np.asarray(theirs.variance))
    assert (np.abs(ours.estimate - theirs.estimate) <= close * (scale + 1e-12)).all()
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=10 * close)
    np.testing.assert_allclose(ours.worker_variance, theirs.worker_variance, rtol=10 * close)


@pytest.mark.parametrize("inference", ["enumerate", "integrate", "auto"])
def test_bi_is_the_same_on_a_gpu(backend: str, inference: str) -> None:
    answers = crowd_of(30, gold=4)
    bi = vp.BI(support=(0.2, 2.0, 9.0), inference=inference, prior_variance=30.0)  # type: ignore[arg-type]
    theirs = replace(bi, backend="portable").fit(answers)
    ours, again = (replace(bi, backend=backend).fit(answers) for _ in range(2))
    assert_same(ours, theirs, 1e-8)
    np.testing.assert_array_equal(ours.estimate, again.estimate)
    np.testing.assert_array_equal(ours.worker_variance, again.worker_variance)


def test_a_rich_fit_is_the_same_on_a_gpu(backend: str) -> None:
    """Biases and tails are learned, difficulty with them, and gold tasks speak first."""
    noise = vp.Noise(bias=True, tails=True, difficulty=True, truths="learn", bounds=(-30.0, 30.0))
    bi = vp.BI(noise=noise, max_iter=40)
    theirs = bi.fit(crowd_of(20, gold=3))
    assert_same(replace(bi, backend=backend).fit(crowd_of(20, gold=3)), theirs, 1e-6)


def test_the_default_is_the_same_on_a_gpu(backend: str) -> None:
    answers = crowd_of(15)
    theirs = vp.Auto().fit(answers)
    assert_same(vp.Auto(backend=backend).fit(answers), theirs, 1e-5)


def test_messages_are_whole_numbers_of_the_quantum(backend: str) -> None:
    """Some tasks send alone, as in residual scheduling: the sums are those of all messages."""
    answers = crowd_of(12)
    model = vp.Model(support=(0.2, 2.0), dimension=2)
    found = []
    for name in (backend, "portable"):
        messages = Engine(backend=name, inference="integrate").open(answers, model)
        messages.sweep()
        messages.sweep(tasks=np.arange(12) % 3 == 0)
        total = np.zeros_like(messages.sums)
        np.add.at(total, answers.worker, messages.messages().sum(axis=1))
        np.testing.assert_array_equal(messages.sums, total)
        found.append(messages.sums * messages.quantum)
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


@pytest.mark.skipif(gpu_is_there(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_install() -> None:
    with pytest.raises(
        vp.VoxpopError, match=r"backend 'gpu' (needs CuPy: pip install|found no GPU)"
    ):
        vp.BI(support=(1.0, 2.0), backend="gpu").fit(crowd_of(5))
