"""Laws of the kernels that hold in every set: blocks, memory, hard crowds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from tests.cavity_messages import SETS, kernel_set, make_kernel, outgoing, posterior_of
from voxpop import BI, Answers, Model, assign_regular
from voxpop.arrays import Floats
from voxpop.inference.cost_model import KernelName
from voxpop.inference.groups import fixed_point
from voxpop.inference.kernel_set import Edges, SweepState, Workers

LEVELS = (10.0, 100.0, 1000.0)
PROBABILITIES = np.array([0.025, 0.5, 0.9])


def work(kind: KernelName, value: Floats, model: Model, incoming: Floats) -> list[Floats]:
    """Messages, and what is known of the truths."""
    kernel = make_kernel(kernel_set("portable"), kind, value, model)
    found = posterior_of(kernel, incoming, PROBABILITIES)
    return [outgoing(kernel, incoming), found.estimate, found.variance, found.quantile]


@pytest.mark.parametrize(
    ("kind", "degree", "dimension"),
    [("enumerate", 5, 2), ("enumerate", 7, 1), ("active", 6, 2), ("integrate", 20, 1)],
)
def test_numpys_kernels_give_the_same_bits_in_any_blocks(
    kind: KernelName, degree: int, dimension: int
) -> None:
    rng = np.random.default_rng(3)
    model = Model(support=(1.0, 10.0, 100.0), dimension=dimension)
    value = rng.normal(0, 10, (29, degree, dimension))
    # As they come: the widest last.
    value = value[np.argsort(np.ptp(value[:, :, 0], axis=1))]
    incoming = -rng.uniform(0, 40, (29, degree, 3))
    whole = work(kind, value, model, incoming)
    for cuts in ([1], [5, 6, 20], list(range(1, 29))):
        rows = [slice(r[0], r[-1] + 1) for r in np.split(np.arange(29), cuts)]
        parts = [work(kind, value[r], model, incoming[r]) for r in rows]
        for i, expected in enumerate(whole):
            np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), expected)


@pytest.mark.slow
def test_thousands_of_answers_to_one_task_need_little_memory() -> None:
    """In numpy too: a hundred numbers per answer and level would already be 20 MB."""
    rng = np.random.default_rng(4)
    model = Model(support=LEVELS[:2])
    value, incoming = rng.normal(0, 5, (1, 2000, 1)), np.zeros((1, 2000, 2))
    tracemalloc.start()
    work("integrate", value, model, incoming)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def hard_crowds() -> Iterator[tuple[str, Floats, Workers]]:
    """Crowds with many answers per worker and some far off, or on another scale altogether."""
    rng = np.random.default_rng(1)

    def crowd(per_worker: int, n: int, scale: float) -> tuple[Floats, Workers]:
        worker = assign_regular(n, 5, per_worker, rng).worker.reshape(n, 5).astype(np.int32)
        return rng.normal(0, np.sqrt(10.0) * scale, (n, 5, 1)), worker

    for rate, size in ((0.001, 100.0), (0.002, 1000.0)):
        value, worker = crowd(500, 1000, 1.0)
        outlier = rng.random(worker.shape) < rate
        value[outlier] += size * rng.choice([-1, 1], (int(outlier.sum()), 1))
        yield f"{rate:.1%} outliers of {size:g} at 500 answers a worker", value, worker
    for scale in (3.0, 30.0, 100.0):
        yield f"noise {scale:g} times what the model knows", *crowd(20, 200, scale)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", SETS[:2])
@pytest.mark.parametrize(
    ("value", "worker"), [pytest.param(v, w, id=name) for name, v, w in hard_crowds()]
)
def test_integration_gets_no_task_wrong_on_hard_crowds(
    kernels: str, value: Floats, worker: Workers
) -> None:
    model = Model(support=LEVELS)
    kernel = make_kernel(kernel_set(kernels), "integrate", value, model)
    exact = make_kernel(kernel_set("portable"), "enumerate", value, model)
    quantum, floor = fixed_point(int(np.bincount(worker.ravel()).max()))
    sums = np.zeros((worker.max() + 1, 3), dtype=np.int64)
    message = np.zeros((*worker.shape, 3), dtype=np.int64)
    for _ in range(4):
        state = SweepState(sums, model.log_weights, quantum, floor, 0.0)
        expected, new_sums = message.copy(), np.zeros_like(sums)
        exact.sweep(state, Edges(worker, expected), np.zeros_like(sums))
        kernel.sweep(state, Edges(worker, message), new_sums)
        wrong = np.abs(np.exp(message * quantum) - np.exp(expected * quantum)) > 1e-8
        # In logs as well: an improbable level must not come out impossible.
        wrong |= np.abs(message - expected) * quantum > 1e-6 - 1e-6 * expected * quantum
        assert wrong.any(axis=(1, 2)).sum() == 0
        sums = new_sums


@pytest.mark.slow
def test_numpys_kernels_take_many_answers_of_one_level_and_huge_ones() -> None:
    """Neither is left to the compiled kernels: where they are, nothing else would try them."""
    rng = np.random.default_rng(0)
    crowded = Answers.from_arrays(np.repeat([0, 1], 100), np.arange(200), rng.normal(size=200))
    found = BI(support=(1.0,), backend="portable").fit(crowded)
    np.testing.assert_allclose(found.estimate[:, 0], crowded.value.reshape(2, 100).mean(axis=1))
    huge = Answers.from_arrays([0, 0, 0], [0, 1, 2], [-1e100, 1e100, 3.0])
    found = BI(support=(1.0, 100.0), inference="integrate", backend="portable").fit(huge)
    assert np.isfinite(found.estimate).all()
