"""Steps of a fit that are vectorised for millions of answers: what they compute, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.host_device import HostDevice, compiler
from voxpop import Answers
from voxpop.data import exact
from voxpop.data.exact import (
    column_sums,
    largest_by_owner,
    order_free_sum,
    owner_sums,
    owner_values,
)
from voxpop.data.sums import median_by_worker, middle_answers
from voxpop.inference.gpu_kernels import GpuKernels
from voxpop.inference.kernel_set import HostArrays
from voxpop.inference.numpy_kernels import NumpyKernels
from voxpop.models.noise import bias, levels
from voxpop.models.noise.bias import Bias
from voxpop.models.noise.component import WorkerEvidence
from voxpop.results.intervals import quantiles_by_row


def test_an_order_free_sum_is_the_sum_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    terms = rng.normal(size=(1000, 3)) * 10.0 ** rng.integers(-6, 3, (1000, 3))
    found = order_free_sum(terms, axis=0)
    np.testing.assert_allclose(found, terms.sum(axis=0), rtol=1e-12, atol=1e-12)
    for _ in range(5):
        np.testing.assert_array_equal(order_free_sum(rng.permutation(terms), axis=0), found)
    np.testing.assert_array_equal(order_free_sum(0 * terms, axis=0), np.zeros(3))
    np.testing.assert_array_equal(order_free_sum(terms.T.copy(), axis=1), found)
    with monkeypatch.context() as patched:
        patched.setattr(exact, "_IN_CACHE", 99)
        np.testing.assert_array_equal(order_free_sum(terms, axis=0), found)


@pytest.mark.parametrize("n_levels", [1, 3, 11])
def test_the_order_of_workers_changes_no_bit_of_the_shares_of_levels(
    n_levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even of the last worker, who is alone in a block; and they are what M21 says."""
    rng, m = np.random.default_rng(8), 101
    sums, quantum = rng.integers(-(2**32), 0, (m, n_levels)), 2.0**-28
    start = np.full(n_levels, -np.log(n_levels))
    monkeypatch.setattr(levels, "_AT_ONCE", 20)
    found, order = levels.learn_shares(sums, quantum, start, 3), rng.permutation(m)
    again = levels.learn_shares(sums[order], quantum, start, 3)
    np.testing.assert_array_equal(again.log_weights, found.log_weights)
    weights = np.exp(start)
    for _ in range(3):
        belief = weights * np.exp(sums * quantum)
        belief /= belief.sum(axis=1, keepdims=True)
        weights = (belief.sum(axis=0) + 1 / n_levels) / (m + 1)
    np.testing.assert_allclose(np.exp(found.log_weights), weights, rtol=1e-12)
    np.testing.assert_allclose(found.n_workers, belief.sum(axis=0), rtol=1e-12)


def test_middle_answers_are_the_middle_of_sorted_ones() -> None:
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(40), rng.integers(1, 9, 40))
    worker = np.concatenate([np.arange(n) for n in np.bincount(task)])
    answers = Answers.from_arrays(task, worker, rng.normal(size=(len(task), 2)))
    for number, found in enumerate(middle_answers(answers)):
        mine = np.sort(answers.value[answers.task == number], axis=0)
        np.testing.assert_array_equal(found, mine[len(mine) // 2])


def test_medians_by_worker_are_those_of_each_worker() -> None:
    rng = np.random.default_rng(5)
    worker = rng.permutation(np.repeat(np.arange(40), rng.integers(1, 9, 40)))
    answers = Answers.from_arrays(np.arange(len(worker)), worker, rng.normal(size=len(worker)))
    terms = rng.integers(-3, 4, (len(worker), 2)) + rng.normal(size=(len(worker), 2)) / 8
    expected = [np.median(terms[answers.worker == u], axis=0) for u in range(answers.n_workers)]
    np.testing.assert_array_equal(median_by_worker(answers, terms), expected)


def test_quantiles_by_row_are_interpolated() -> None:
    rng = np.random.default_rng(3)
    mass = np.cumsum(rng.dirichlet(np.full(6, 0.3), 200), axis=1)
    mass[0] = [0, 0, 1, 1, 1, 1]
    mass = 7.0 * np.insert(mass, 0, 0.0, axis=1)
    at = np.sort(rng.normal(size=mass.shape), axis=1)
    shares = (0.025, 0.5, 0.975)
    expected = [np.interp(shares, m / m[-1], x) for m, x in zip(mass, at, strict=True)]
    np.testing.assert_allclose(quantiles_by_row(shares, mass, at), expected, rtol=1e-12, atol=1e-12)


def evidence(m: int, spread: float, exponent: float) -> WorkerEvidence:
    """Messages about biases that spread so far, wider for noisier workers; one worker has none."""
    rng = np.random.default_rng(4)
    log_level, precision = rng.normal(0, 0.7, m), rng.gamma(4.0, 2.0, (m, 2))
    sd = np.sqrt(spread * np.exp(exponent * log_level))[:, None]
    mean = 30.0 + rng.normal(size=(m, 2)) * sd + rng.normal(size=(m, 2)) / np.sqrt(precision)
    precision[0] = 0.0
    return WorkerEvidence(np.array([0.1, 1.0, 10.0]), log_level, precision, precision * mean)


def test_the_spread_of_biases_is_learned_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """From any start and in blocks of any size; a common shift is no spread."""
    given, found = evidence(20_000, 0.5, 0.8), Bias(np.full(2, 0.1))
    for _ in range(20):
        found = found.learn_from_workers(given)
    np.testing.assert_allclose(found.variance, 0.5, rtol=0.1)
    assert abs(found.exponent - 0.8) < 0.1
    whole = found.learn_from_workers(given)
    monkeypatch.setattr(bias, "_BLOCK", 777)
    np.testing.assert_allclose(found.learn_from_workers(given).variance, whole.variance, rtol=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_the_order_of_workers_changes_no_bit_of_what_is_known_of_biases(ties: bool) -> None:
    given, rng = evidence(12_345, 0.5, 0.8), np.random.default_rng(6)
    if ties:
        given.bias_pull[100:300] = 0.0
    found, part = Bias(np.full(2, 0.1)), np.arange(12_345, dtype=np.int32) % 3
    anchored, order = np.array([False, True, False]), rng.permutation(12_345)
    numbers = given.bias_precision, given.bias_pull, given.log_level
    p, q, z = (array[order] for array in numbers)
    ours = found.learn_from_workers(given)
    theirs = found.learn_from_workers(WorkerEvidence(given.levels, z, p, q))
    assert theirs.exponent == ours.exponent
    assert theirs.variance.tolist() == ours.variance.tolist()
    known = ours.posterior(*numbers, part, anchored)
    again = theirs.posterior(p, q, z, part[order], anchored)
    for name in ("mean", "precision", "shift", "shift_variance"):
        np.testing.assert_array_equal(getattr(again, name), getattr(known, name)[order])


def test_sums_by_worker_are_those_of_any_order_and_any_groups() -> None:
    rng, host = np.random.default_rng(7), HostArrays()
    worker = rng.integers(0, 50, 3000).astype(np.int32)
    number = rng.normal(size=3000) * 10.0 ** rng.integers(-6, 3, 3000)
    known = host.sum_by_worker([(worker, number)], 50)
    np.testing.assert_allclose(known, np.bincount(worker, number, 50), rtol=1e-9, atol=1e-9)
    order = rng.permutation(3000)
    some = [(worker[at].reshape(-1, 3), number[at].reshape(-1, 3)) for at in np.split(order, 4)]
    assert host.sum_by_worker(some, 50).tolist() == known.tolist()


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_sums_and_copies_on_a_device_are_those_of_the_host() -> None:
    rng = np.random.default_rng(5)
    device, host = GpuKernels(NumpyKernels(), HostDevice()), HostArrays()
    worker = rng.integers(0, 7, (30, 1)).astype(np.int32)  # worker 7 and 8 have no answer
    number, message = rng.normal(size=(30, 1)), rng.integers(-99, 0, (30, 1, 4))
    there = device.bring(worker)
    found = device.sum_by_worker([(there, device.bring(number))] * 2, 9)
    expected = host.sum_by_worker([(worker, number)] * 2, 9)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    edge, levels = rng.integers(0, 30, (5, 3)), np.array([0, 3])
    for array, some in ((message, levels), (number, None)):
        ours = device.fetch(device.gather(device.bring(array), edge, some))
        np.testing.assert_array_equal(ours, host.gather(array, edge, some))


def test_sums_of_columns_have_the_bits_of_those_of_one_owner() -> None:
    rng = np.random.default_rng(4)
    terms = rng.standard_normal((20_000, 7)) * 10.0 ** rng.integers(-9, 9, 7)
    terms[:, 3] = 0.0
    owner = np.zeros(len(terms), dtype=np.int64)
    for column, found in zip(terms.T, column_sums(terms), strict=True):
        largest = largest_by_owner(owner, column, 1)
        assert owner_values(owner_sums(owner, column, largest), largest)[0] == found
