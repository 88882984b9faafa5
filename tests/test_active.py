"""Summing over what can matter: against all configurations, and as the start of a fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from tests.cavity_messages import QUANTUM, SETS, kernel_set, make_kernel, outgoing, posterior_of
from tests.conftest import BACKENDS
from voxpop import BI, Answers, Model, Result, assign_regular, simulate
from voxpop.arrays import Floats
from voxpop.inference.cost_model import choose_kernel
from voxpop.inference.engine import Engine
from voxpop.inference.kernel_set import TaskKernel, add_to_workers
from voxpop.inference.kernels import active
from voxpop.inference.numpy_kernels import Enumeration

LEVELS = (10.0, 100.0, 1000.0)
PROBABILITIES = np.array([0.025, 0.3, 0.5, 0.975])


def make(name: str, value: Floats, mean: Floats, model: Model, accuracy: float) -> TaskKernel:
    return make_kernel(kernel_set(name), "active", value, model, mean, accuracy)


def draw(
    rng: np.random.Generator, n: int, degree: int, n_levels: int, dimension: int, nats: float
) -> tuple[Model, Floats, Floats, Floats]:
    """Tasks whose workers have settled by so many nats, more or less; some answers are far off."""
    levels = np.cumprod(np.exp(rng.uniform(0.5, 3, n_levels)))
    prior_variance = float(rng.choice([np.inf, 0.1, 300.0]))
    model = Model(support=levels.tolist(), prior_variance=prior_variance, dimension=dimension)
    at = rng.integers(0, n_levels, (n, degree))
    value = rng.normal(size=(n, degree, dimension)) * np.sqrt(levels[at])[:, :, None]
    value[0, 0] += 10 * np.sqrt(levels[-1])
    doubt = -nats * rng.uniform(0.3, 2, (n, degree, n_levels))
    incoming = np.where(np.arange(n_levels) == at[:, :, None], 0.0, doubt)
    prior_mean = rng.normal(size=(n, dimension))
    return model, value, prior_mean, np.rint(incoming / QUANTUM) * QUANTUM


@given(
    seed=st.integers(0, 2**31),
    degree=st.integers(2, 7),
    n_levels=st.integers(2, 4),
    dimension=st.integers(1, 3),
    nats=st.sampled_from([0.0, 10.0, 30.0, 300.0]),
    accuracy=st.sampled_from([1e-5, 1e-9]),
    kind=st.sampled_from(SETS),
)
def test_messages_are_as_accurate_as_asked(
    seed: int, degree: int, n_levels: int, dimension: int, nats: float, accuracy: float, kind: str
) -> None:
    """As probabilities, whether all workers have settled, some, or none."""
    if n_levels**degree > 3000:
        degree = 5
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 20))
    model, value, mean, incoming = draw(rng, n, degree, n_levels, dimension, nats)
    found = outgoing(make(kind, value, mean, model, accuracy), incoming)
    exact = outgoing(Enumeration(value, mean, model, 0), incoming)
    assert np.abs(np.exp(found) - np.exp(exact)).max() < max(accuracy, 1e-11)
    likely = exact > -15
    assert np.abs(found - exact)[likely].max() < 1e7 * accuracy
    if kind != "portable":
        theirs = outgoing(make("portable", value, mean, model, accuracy), incoming)
        np.testing.assert_allclose(found, theirs, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("kind", SETS)
def test_answers_that_no_level_explains_are_enumerated(kind: str) -> None:
    """However sure the workers are of their levels: doubts and squares both beyond float64."""
    rng = np.random.default_rng(5)
    model, mean = Model(support=LEVELS, dimension=2), np.zeros((16, 2))
    value = rng.normal(0, 3, (16, 5, 2))
    # Two odd answers: what one changed level makes good is summed over anyway.
    value[:, 0] += np.geomspace(100, 3000, 16)[:, None]
    value[:, 1] += np.geomspace(100, 3000, 16)[:, None]
    incoming = np.broadcast_to([0.0, -900.0, -2000.0], (16, 5, 3)).copy()
    found = outgoing(make(kind, value, mean, model, 1e-9), incoming)
    exact = outgoing(Enumeration(value, mean, model, 0), incoming)
    np.testing.assert_allclose(np.exp(found), np.exp(exact), atol=1e-9)


@pytest.mark.parametrize("kind", SETS[1:])
def test_guesses_and_posteriors_are_those_of_numpy(kind: str) -> None:
    rng = np.random.default_rng(3)
    for degree, n_levels, dimension, nats in ((9, 2, 1, 20.0), (7, 3, 2, 30.0), (5, 4, 3, 25.0)):
        args = draw(rng, 50, degree, n_levels, dimension, nats)
        model, value, mean, incoming = args
        ours, theirs = (make(k, value, mean, model, 1e-9) for k in (kind, "portable"))
        np.testing.assert_allclose(
            outgoing(ours, incoming, guess=True), outgoing(theirs, incoming, guess=True), atol=1e-9
        )
        found, expected = (
            posterior_of(kernel, incoming, PROBABILITIES) for kernel in (ours, theirs)
        )
        sd = np.sqrt(expected.variance)
        np.testing.assert_allclose(found.estimate / sd, expected.estimate / sd, atol=1e-8)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-7)
        error = np.abs(found.quantile - expected.quantile) / sd[:, :, None]
        assert error.max() < 1e-6  # numpy leaves out a mass of 1e-9


def both(answers: Answers, **how: Any) -> tuple[Result, Result]:
    flat = BI(support=LEVELS, inference="enumerate", **how).fit(answers)
    return flat, BI(support=LEVELS, inference="active", **how).fit(answers)


def crowd(rng: np.random.Generator, n: int, degree: int, per_worker: int) -> Answers:
    model = Model(support=LEVELS, dimension=2)
    return simulate(model, assign_regular(n, degree, per_worker, rng), rng).answers


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("per_worker", [4, 8, 20])
def test_a_guess_leads_to_the_same_fixed_point(backend: str, per_worker: int) -> None:
    """Where nobody settles, where some do, and where all do."""
    rng = np.random.default_rng(per_worker)
    flat, ours = both(crowd(rng, 120, 6, per_worker), tol=1e-11, backend=backend)
    assert ours.settings["inference_used"] == {"active": 120}
    assert ours.trace.converged
    np.testing.assert_allclose(ours.estimate, flat.estimate, atol=1e-7)
    np.testing.assert_allclose(ours.variance, flat.variance, rtol=1e-7)
    np.testing.assert_allclose(ours.worker_posterior, flat.worker_posterior, atol=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tasks_that_rest_say_what_they_would_say(backend: str) -> None:
    """Tasks of two degrees; sums are those of all messages, and beliefs those of a full sweep."""
    rng = np.random.default_rng(1)
    whole = crowd(rng, 150, 7, 20)
    kept = np.flatnonzero((whole.task % 2 == 0) | (rng.random(whole.n_edges) < 0.8))
    answers = Answers.from_arrays(whole.task[kept], whole.worker[kept], whole.value[kept])
    model = Model(support=LEVELS, dimension=2)
    resting, all_speak = (
        Engine(backend=backend, inference="active").open(answers, model) for _ in range(2)
    )
    spoke = []
    for _ in range(4):
        resting.sweep()
        expected = np.zeros_like(resting.sums)
        for group in resting._groups:
            add_to_workers(expected, group.worker, group.message)
        np.testing.assert_array_equal(resting.sums, expected)
        all_speak._known_belief = np.empty((0, 0))
        all_speak.sweep()
        belief, of_all = (
            softmax(some.sums * some.quantum + model.log_weights, axis=1)
            for some in (resting, all_speak)
        )
        np.testing.assert_allclose(belief, of_all, atol=1e-7)
        spoke.append(np.abs(belief - resting._known_belief).max(axis=1) > 1e-9)
    np.testing.assert_allclose(belief, of_all, atol=1e-9)
    assert spoke[1].mean() < 0.5  # after two sweeps most workers have made up their minds
    assert not spoke[-1].any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("inference", ["enumerate", "active", "integrate"])
def test_means_come_without_quantiles(backend: str, inference: Any) -> None:
    answers = crowd(np.random.default_rng(2), 20, 4, 8)
    model = Model(support=LEVELS, dimension=2)
    opened = Engine(backend=backend, inference=inference).open(answers, model)
    bare, whole = opened.posterior(np.empty(0)), opened.posterior(PROBABILITIES)
    assert bare.quantile.shape == (20, 2, 0)
    np.testing.assert_array_equal(bare.estimate, whole.estimate)
    np.testing.assert_array_equal(bare.variance, whole.variance)


def test_a_tree_is_exact() -> None:
    """Tasks that share no two workers, on a tree: the posterior is Exact's, settled or not."""
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(3), 3)
    worker = np.array([0, 1, 2, 2, 3, 4, 4, 5, 6])
    for spread in (1.0, 30.0):
        answers = Answers.from_arrays(task, worker, rng.normal(0, spread, (9, 2)))
        flat, ours = both(answers, tol=1e-12)
        np.testing.assert_allclose(ours.estimate, flat.estimate, atol=1e-9)
        np.testing.assert_allclose(ours.worker_posterior, flat.worker_posterior, atol=1e-9)


def hard_crowds() -> Iterator[tuple[str, Answers]]:
    """Crowds that pruning alone gets wrong: outliers, many answers per worker, other scales."""
    rng = np.random.default_rng(11)

    def answers(value: Floats, worker: Any) -> Answers:
        n, degree = worker.shape
        task = np.repeat(np.arange(n), degree)
        return Answers.from_arrays(task, worker.ravel(), value.reshape(n * degree, -1))

    cases = [(500, 0.001, 100.0), (500, 0.002, 1000.0), (20, 0.02, 100.0), (20, 0.05, 300.0)]
    for per_worker, rate, size in cases:
        worker = assign_regular(500, 6, per_worker, rng).worker.reshape(500, 6)
        value = rng.normal(0, np.sqrt(10.0), (500, 6, 2))
        outlier = rng.random(worker.shape) < rate
        value[outlier] += size * rng.choice([-1, 1], (int(outlier.sum()), 2))
        yield f"{rate:.1%} outliers of {size:g} at {per_worker}", answers(value, worker)
    for scale in (0.1, 3.0, 10.0, 100.0):
        worker = assign_regular(200, 6, 20, rng).worker.reshape(200, 6)
        value = rng.normal(0, np.sqrt(10.0) * scale, (200, 6, 2))
        yield f"noise {scale:g} times what the model knows", answers(value, worker)
    given = crowd(rng, 200, 6, 20)
    value, liar = given.value.reshape(200, 6, 2).copy(), given.worker.reshape(200, 6) < 15
    value[liar] = 150 + value[:, :1].repeat(6, axis=1)[liar]
    yield "liars who agree", answers(value, given.worker.reshape(200, 6))


@pytest.mark.parametrize("answers", [pytest.param(a, id=name) for name, a in hard_crowds()])
def test_no_task_is_wrong_on_hard_crowds(answers: Answers) -> None:
    flat, ours = both(answers)
    assert flat.trace.converged
    assert ours.trace.converged
    error = np.abs(ours.estimate - flat.estimate) / np.sqrt(flat.variance)
    assert (error > 1e-6).sum() == 0


def test_the_cost_model_takes_it_where_workers_settle() -> None:
    levels = np.array(LEVELS)
    assert choose_kernel("auto", levels, 10, 2, 1e-9, per_worker=20) == "active"
    assert choose_kernel("auto", levels, 10, 2, 1e-9, per_worker=5) == "integrate"
    assert choose_kernel("auto", levels, 5, 2, 1e-9, per_worker=20) == "enumerate"
    assert choose_kernel("active", levels, 5, 2, 1e-9, per_worker=5) == "active"
    # Nothing can be left out safely between levels so far apart.
    assert choose_kernel("active", np.array([1.0, 1e9]), 5, 2, 1e-9, per_worker=5) == "enumerate"
    rng = np.random.default_rng(1)
    backend = Engine().open(crowd(rng, 40, 10, 20), Model(support=LEVELS, dimension=2))
    assert backend.used == {"active": 40}


def test_tasks_that_are_not_settled_are_left_alone() -> None:
    """Whatever stands in their rows, infinity included, is neither read nor written."""
    rng = np.random.default_rng(0)
    levels, value = np.array([1.0, 10.0, 100.0]), rng.normal(0, 5, (4, 6, 1))
    sure = np.full((4, 6, 3), -40.0)
    sure[:, :, 1] = 0.0
    sure[2:] = 0.0  # nothing is known of the workers of the last two tasks
    out = np.full((4, 6, 3), np.inf)
    done = active.send(value, np.zeros((4, 1)), 0.0, sure, levels, 1e-9, 1, out)
    assert done[:2].all()
    assert not done[2:].any()
    assert np.isfinite(out[:2]).all()
    assert np.isposinf(out[2:]).all()
