"""The compiled kernels against numpy and against logs; the same bits however the work is cut."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp

from tests.cavity_messages import (
    FLOOR,
    INSTRUCTION_SETS,
    QUANTUM,
    kernel_set,
    make_kernel,
    outgoing,
    posterior_of,
)
from voxpop import BI, Answers, Auto, ConvergenceWarning, Model, Result, assign_regular, simulate
from voxpop.arrays import Floats, WorkerSums
from voxpop.inference.cost_model import KernelName
from voxpop.inference.engine import backend_in_use, native_is_installed
from voxpop.inference.groups import fixed_point
from voxpop.inference.kernel_set import Edges, SweepState, TaskKernel, Workers
from voxpop.inference.kernels import enumerate as enumeration

if not native_is_installed():
    pytest.skip("the compiled kernels are not built", allow_module_level=True)

from voxpop import _native

KERNELS: list[KernelName] = ["enumerate", "active", "integrate"]
every_set = pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
every_kernel = pytest.mark.parametrize("kind", KERNELS)


@dataclass(frozen=True)
class Case:
    """Tasks alone with what their workers say, and whose compiled kernels are tried on them."""

    model: Model
    value: Floats
    prior_mean: Floats
    incoming: Floats
    instruction_set: str

    def both(self, kind: KernelName, accuracy: float = 1e-9) -> tuple[TaskKernel, TaskKernel]:
        """Return the compiled kernel of that kind, and numpy's."""
        given = kind, self.value, self.model, self.prior_mean, accuracy
        ours, theirs = (
            make_kernel(kernel_set(name), *given) for name in (self.instruction_set, "portable")
        )
        return ours, theirs


@st.composite
def cases(
    draw: st.DrawFn,
    degrees: tuple[int, int],
    most_levels: int,
    dimensions: tuple[int, ...],
    strengths: tuple[float, ...],
    spreads: tuple[float, ...],
    most_tasks: int,
) -> Case:
    """Draw tasks, with messages and answers from weak and near to hopeless and far off."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    degree, n_levels = draw(st.integers(*degrees)), draw(st.integers(1, most_levels))
    dimension, strength = draw(st.sampled_from(dimensions)), draw(st.sampled_from(strengths))
    spread = draw(st.sampled_from(spreads))
    n = int(rng.integers(1, most_tasks))
    model = Model(
        support=np.sort(np.exp(rng.uniform(-2, 8, n_levels))).tolist(),
        prior_variance=draw(st.sampled_from([np.inf, 0.01, 300.0])),
        dimension=dimension,
    )
    incoming = strength * rng.normal(size=(n, degree, n_levels))
    return Case(
        model,
        rng.normal(0, spread, (n, degree, dimension)),
        rng.normal(0, spread, (n, dimension)),
        np.rint(incoming / QUANTUM) * QUANTUM,
        draw(st.sampled_from(INSTRUCTION_SETS)),
    )


@given(
    case=cases(
        (1, 6), 5, (1, 2, 3, 5), (0.0, 1.0, 30.0, 3000.0), (0.1, 10.0, 1000.0), most_tasks=20
    )
)
def test_enumeration_is_that_of_numpy(case: Case) -> None:
    ours, theirs = (outgoing(kernel, case.incoming) for kernel in case.both("enumerate"))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-9)


@given(case=cases((2, 30), 6, (1,), (0.0, 1.0, 30.0, 3000.0), (0.1, 10.0, 300.0), most_tasks=10))
def test_integration_is_that_of_numpy(case: Case) -> None:
    """On the same nodes, so far closer than the accuracy asked for."""
    ours, theirs = (outgoing(kernel, case.incoming) for kernel in case.both("integrate", 1e-6))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-8)


@given(case=cases((1, 6), 4, (1, 2, 3), (0.0, 1.0, 3000.0), (0.1, 10.0, 1000.0), most_tasks=20))
def test_posterior_is_that_of_numpy(case: Case) -> None:
    """Mean, variance and quantiles, enumerated and (in one dimension) integrated."""
    p = np.array([0.025, 0.05, 0.3, 0.5, 0.7, 0.9, 0.95, 0.975, 0.999])
    # Enumerating, numpy leaves out a mass of 1e-9.
    kinds: list[tuple[KernelName, float]] = [("enumerate", 1e-6)]
    if case.model.dimension == 1 and case.value.shape[1] > 1:
        kinds.append(("integrate", 1e-5))
    for kind, tolerance in kinds:
        found, expected = (posterior_of(kernel, case.incoming, p) for kernel in case.both(kind))
        scale = float(np.sqrt(expected.variance.min()))
        np.testing.assert_allclose(found.estimate, expected.estimate, atol=1e-8 * scale, rtol=1e-9)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-6)
        np.testing.assert_allclose(
            found.quantile, expected.quantile, atol=tolerance * scale, rtol=tolerance
        )


@pytest.mark.parametrize("accuracy", [1e-4, 1e-8, 1e-12])
def test_integration_is_as_accurate_as_asked(accuracy: float) -> None:
    rng = np.random.default_rng(5)
    model = Model(support=(1.0, 20.0, 400.0))
    value, incoming = rng.normal(0, 15, (40, 6, 1)), rng.normal(size=(40, 6, 3))
    native = kernel_set(INSTRUCTION_SETS[0])
    exact = outgoing(make_kernel(native, "enumerate", value, model), incoming)
    kernel = make_kernel(native, "integrate", value, model, accuracy=accuracy)
    found = outgoing(kernel, incoming)
    assert np.abs(np.exp(found) - np.exp(exact)).max() < max(accuracy, 1e-11)


@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 20),
    degree=st.integers(1, 70),
    dimension=st.integers(1, 3),
    digits=st.sampled_from([0, 3]),
    instruction_set=st.sampled_from(INSTRUCTION_SETS),
)
def test_answers_are_centred_as_in_numpy(
    seed: int, n: int, degree: int, dimension: int, digits: int, instruction_set: str
) -> None:
    """With few digits many answers are equal."""
    value = np.round(np.random.default_rng(seed).normal(5, 3, (n, degree, dimension)), digits)
    expected = kernel_set("portable").centre(value, 0.25)
    found = kernel_set(instruction_set).centre(value, 0.25)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@every_set
def test_elementary_functions_are_right_to_two_units(instruction_set: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-707, 700, 5000), rng.uniform(-1, 1, 5000)])
    out = np.empty_like(x)
    for name, at in (("exp", x), ("exp2", x), ("log", np.exp(x))):
        getattr(_native, name)(at, out, instruction_set)
        exact = getattr(np, name)(at.astype(np.longdouble))
        assert (np.abs(out - exact) <= 2 * np.abs(np.spacing(exact.astype(np.float64)))).all()
    far = np.array([-np.inf, -1e300, -1e18, -745.0, -720.0, 0.0])
    out = np.empty_like(far)
    _native.exp(far, out, instruction_set)
    np.testing.assert_array_equal(out, [0, 0, 0, 0, 0, 1])


def in_logs(value: Floats, levels: Floats, incoming: Floats) -> Floats:
    """Messages as a textbook has them: nothing leaves the logs."""
    n, degree, n_levels = incoming.shape
    c = enumeration.configurations(tuple(levels), degree, 0.0)
    belief = enumeration.log_factor(value, np.zeros((n, value.shape[2])), c)
    belief = belief.reshape(n, *(n_levels,) * degree)
    for u in range(degree):
        belief = belief + incoming[:, u].reshape(n, *(1,) * u, n_levels, *(1,) * (degree - u - 1))
    out = np.empty(incoming.shape)
    for u in range(degree):
        others = tuple(1 + v for v in range(degree) if v != u)
        out[:, u] = logsumexp(belief, axis=others) - incoming[:, u]
    return np.asarray(out - out.max(axis=2, keepdims=True))


def hard_crowds() -> Iterator[tuple[str, Floats, Workers]]:
    """Crowds that a linear leave-one-out gets wrong without a check for underflow."""
    rng = np.random.default_rng(1)

    def crowd(per_worker: int, n: int, scale: float) -> tuple[Floats, Workers]:
        assigned = assign_regular(n, 5, per_worker, rng)
        value = rng.normal(0, np.sqrt(10.0) * scale, (n, 5, 2))
        return value, assigned.worker.reshape(n, 5).astype(np.int32)

    for rate, size in ((0.001, 100.0), (0.002, 1000.0)):
        value, worker = crowd(500, 2000, 1.0)
        outlier = rng.random(worker.shape) < rate
        value[outlier] += size * rng.choice([-1, 1], (int(outlier.sum()), 2))
        yield f"{rate:.1%} outliers of {size:g} at 500 answers a worker", value, worker
    for scale in (3.0, 10.0, 30.0, 100.0):
        yield f"noise {scale:g} times what the model knows", *crowd(20, 400, scale)


@pytest.mark.parametrize(
    ("value", "worker"), [pytest.param(v, w, id=name) for name, v, w in hard_crowds()]
)
@pytest.mark.parametrize("kept", [False, True])
def test_no_task_is_wrong_on_hard_crowds(value: Floats, worker: Workers, kept: bool) -> None:
    model = Model(support=(10.0, 100.0, 1000.0), dimension=2)
    native = kernel_set(INSTRUCTION_SETS[0])
    kernel = make_kernel(native, "enumerate", value, model, room=10**7 * kept)
    assert (kernel.kept > 0) == kept
    quantum, floor = fixed_point(int(np.bincount(worker.ravel()).max()))
    sums = np.zeros((worker.max() + 1, 3), dtype=np.int64)
    message = np.zeros((*worker.shape, 3), dtype=np.int64)
    for _ in range(5):
        state = SweepState(sums, model.log_weights, quantum, floor, 0.0)
        expected = in_logs(value, model.levels, state.incoming(worker, message))
        new_sums = np.zeros_like(sums)
        kernel.sweep(state, Edges(worker, message), new_sums)
        np.testing.assert_allclose(
            message * quantum, np.maximum(expected, floor), rtol=1e-9, atol=1e-9
        )
        sums = new_sums


def random_group(
    rng: np.random.Generator, kind: KernelName, n: int = 37
) -> tuple[Floats, Model, Workers, WorkerSums, WorkerSums]:
    degree, n_workers = 5, 11
    model = Model(support=(1.0, 10.0, 100.0), dimension=1 if kind == "integrate" else 2)
    value = rng.normal(0, 10, (n, degree, model.dimension))
    worker = np.stack([rng.permutation(n_workers)[:degree] for _ in range(n)]).astype(np.int32)
    message = -rng.integers(0, 2**45, (n, degree, 3))
    sums = np.zeros((n_workers, 3), dtype=np.int64)
    np.add.at(sums, worker, message)
    return value, model, worker, message, sums


def sweep_rows(
    kind: KernelName,
    group: tuple[Floats, Model, Workers, WorkerSums, WorkerSums],
    rows: NDArray[np.int64],
    threads: int,
    instruction_set: str,
    room: int = 0,
) -> tuple[WorkerSums, WorkerSums, float]:
    value, model, worker, message, sums = group
    kernels = kernel_set(instruction_set, threads)
    kernel = make_kernel(kernels, kind, value[rows], model, room=room)
    state = SweepState(sums, model.log_weights, QUANTUM, FLOOR, 0.25)
    for _ in range(2):  # the second time from the factor that is kept, where there is room
        new, new_sums = message[rows].copy(), np.zeros_like(sums)
        change = kernel.sweep(state, Edges(worker[rows], new), new_sums)
    return new, new_sums, change


@every_set
@every_kernel
def test_bits_do_not_depend_on_threads(kind: KernelName, instruction_set: str) -> None:
    # Enough work for three threads; with less, fewer are started.
    n = 301 if kind == "integrate" else 4001
    group = random_group(np.random.default_rng(6), kind, n)
    message, sums, change = sweep_rows(kind, group, np.arange(n), 1, instruction_set)
    for threads in (2, 3):
        other = sweep_rows(kind, group, np.arange(n), threads, instruction_set)
        np.testing.assert_array_equal(other[0], message)
        np.testing.assert_array_equal(other[1], sums)
        assert other[2] == change


@every_set
@every_kernel
def test_bits_do_not_depend_on_order_or_blocks(kind: KernelName, instruction_set: str) -> None:
    rng = np.random.default_rng(2)
    group = random_group(rng, kind)
    everyone = np.arange(37)
    message, sums, change = sweep_rows(kind, group, everyone, 1, instruction_set)
    kept = sweep_rows(kind, group, everyone, 1, instruction_set, room=10**6)
    np.testing.assert_array_equal(kept[0], message)
    shuffled = rng.permutation(37)
    other = sweep_rows(kind, group, shuffled, 1, instruction_set)
    np.testing.assert_array_equal(other[0], message[shuffled])
    np.testing.assert_array_equal(other[1], sums)
    assert other[2] == change
    for cuts in ([1], [5, 6, 20], list(range(1, 37))):
        parts = [
            sweep_rows(kind, group, rows, 1, instruction_set) for rows in np.split(everyone, cuts)
        ]
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), message)
        np.testing.assert_array_equal(np.sum([part[1] for part in parts], axis=0), sums)
        assert max(part[2] for part in parts) == change


@every_kernel
def test_instruction_sets_agree(kind: KernelName) -> None:
    group = random_group(np.random.default_rng(3), kind)
    found = [sweep_rows(kind, group, np.arange(37), 1, name) for name in INSTRUCTION_SETS]
    for message, _, change in found[1:]:
        np.testing.assert_allclose(message * QUANTUM, found[0][0] * QUANTUM, atol=1e-9, rtol=1e-10)
        assert change == pytest.approx(found[0][2], abs=1e-9)


@pytest.mark.parametrize("inference", ["enumerate", "active", "integrate"])
def test_a_fit_is_the_same_with_any_backend_threads_and_row_order(inference: str) -> None:
    rng = np.random.default_rng(4)
    model = Model(support=(10, 100, 1000), dimension=2)
    crowd = simulate(model, assign_regular(60, 4, 8, rng), rng).answers
    support = (10.0, 100.0, 1000.0)
    order = rng.permutation(crowd.n_edges)
    shuffled = Answers.from_arrays(
        crowd.task_ids[crowd.task[order]],
        crowd.worker_ids[crowd.worker[order]],
        crowd.value[order],
    )
    how = {"support": support, "inference": inference}
    ours = BI(backend="native", **how).fit(crowd)  # type: ignore[arg-type]
    theirs = BI(backend="portable", **how).fit(crowd)  # type: ignore[arg-type]
    threaded = BI(backend="native", threads=2, **how).fit(crowd)  # type: ignore[arg-type]
    reordered = BI(backend="native", **how).fit(shuffled)  # type: ignore[arg-type]
    np.testing.assert_allclose(ours.estimate, theirs.estimate, atol=1e-7)
    np.testing.assert_array_equal(ours.estimate, threaded.estimate)
    np.testing.assert_array_equal(ours.trace.changes, threaded.trace.changes)
    at = {task: i for i, task in enumerate(shuffled.task_ids)}
    back = [at[task] for task in crowd.task_ids]
    np.testing.assert_array_equal(ours.estimate, reordered.estimate[back])
    np.testing.assert_array_equal(ours.trace.changes, reordered.trace.changes)


@pytest.mark.parametrize("inference", ["enumerate", "active", "integrate", "matched"])
def test_threads_that_share_out_a_sweep_change_no_bit(inference: str) -> None:
    """With enough answers that several threads start, each with workers' sums of its own."""
    rng = np.random.default_rng(5)
    model = Model(support=(10, 100, 1000), dimension=1)
    crowd = simulate(model, assign_regular(3000, 5, 20, rng), rng).answers

    def fit(threads: int) -> Result:
        if inference == "matched":
            return Auto(threads=threads, contest_answers=2000).fit(crowd)
        how: Any = {"support": (10.0, 100.0, 1000.0), "inference": inference, "max_iter": 4}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return BI(backend="native", threads=threads, **how).fit(crowd)

    one = fit(1)
    for threads in (2, 7):
        found = fit(threads)
        np.testing.assert_array_equal(found.estimate, one.estimate)
        np.testing.assert_array_equal(found.worker_variance, one.worker_variance)
        np.testing.assert_array_equal(found.trace.changes, one.trace.changes)


def test_version_names_the_instruction_set() -> None:
    # Where there is a GPU, its name comes first.
    assert backend_in_use().endswith(f"native ({INSTRUCTION_SETS[0]})")
