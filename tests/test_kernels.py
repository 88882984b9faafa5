"""The kernels against brute force, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from scipy.stats import norm

from tests.cavity_messages import SETS, kernel_set, make_kernel, outgoing, plain_law
from tests.oracles import log_messages
from voxpop import Model
from voxpop.inference.kernels import enumerate as enumeration
from voxpop.inference.kernels import integrate as integration
from voxpop.inference.kernels import nodes
from voxpop.inference.kernels.integrate import Rows, nodes_of
from voxpop.inference.kernels.posterior import mixture_quantiles

Floats = NDArray[np.float64]
seeds = st.integers(0, 2**31)


def enumerated(
    value: Floats,
    incoming: Floats,
    levels: Floats,
    prior_mean: Floats | None = None,
    prior_variance: float = np.inf,
) -> Floats:
    prior_mean = np.zeros((len(value), value.shape[2])) if prior_mean is None else prior_mean
    c = enumeration.configurations(tuple(levels), value.shape[1], 1 / prior_variance)
    factor = enumeration.scaled_factor(enumeration.log_factor(value, prior_mean, c))
    out = np.empty_like(incoming)
    enumeration.send(value, prior_mean, incoming, c, factor, out)
    return out


def plain_rows(value: Floats, incoming: Floats, prior_mean: Floats | None = None) -> Rows:
    n, endless = len(value), np.full(len(value), np.inf)
    incoming = incoming - incoming.max(axis=2, keepdims=True)
    mean = np.zeros(n) if prior_mean is None else prior_mean
    unknown, spread, one_class = np.full(n, np.nan), np.zeros_like(value), np.zeros((n, 1))
    return Rows(value, spread, incoming, one_class, mean, -endless, endless, unknown)


def integrated(
    value: Floats,
    incoming: Floats,
    levels: Floats,
    prior_mean: Floats | None = None,
    prior_variance: float = np.inf,
    accuracy: float = 1e-9,
) -> Floats:
    mean = None if prior_mean is None else prior_mean[:, 0]
    rows, law = (
        plain_rows(value[:, :, 0], incoming, mean),
        plain_law(levels, prior_variance, accuracy),
    )
    return integration.send(rows, law, nodes_of(rows, law)).message


@given(
    seed=seeds,
    degree=st.integers(1, 4),
    n_levels=st.integers(1, 3),
    dimension=st.sampled_from([1, 2, 4]),
    strength=st.sampled_from([0.0, 1.0, 30.0, 3000.0]),
    spread=st.sampled_from([0.1, 10.0, 1000.0]),
)
def test_enumeration_is_brute_force(
    seed: int, degree: int, n_levels: int, dimension: int, strength: float, spread: float
) -> None:
    """Also with messages of thousands of nats and answers far outside the levels' reach."""
    rng = np.random.default_rng(seed)
    levels = np.sort(rng.uniform(0.5, 200, n_levels))
    value = rng.normal(0, spread, (2, degree, dimension))
    incoming = strength * rng.normal(size=(2, degree, n_levels))
    out = enumerated(value, incoming, levels)
    expected = np.stack([log_messages(v, m, levels) for v, m in zip(value, incoming, strict=True)])
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@given(
    seed=seeds,
    degree=st.integers(2, 6),
    n_levels=st.integers(2, 3),
    ratio=st.floats(2.0, 1000.0),
    strength=st.sampled_from([0.0, 1.0, 30.0]),
    proper=st.booleans(),
)
def test_integration_is_enumeration(
    seed: int, degree: int, n_levels: int, ratio: float, strength: float, proper: bool
) -> None:
    rng = np.random.default_rng(seed)
    levels = np.geomspace(3.0, 3.0 * ratio, n_levels)
    s = rng.choice(levels, (20, degree))
    value = (rng.normal(size=(20, degree)) * np.sqrt(s))[:, :, None]
    value[0] *= 20  # answers that no level explains
    value[1] = 0  # answers that all agree
    value[2, 0] += 100 * np.sqrt(levels[-1])  # one far off
    incoming = strength * rng.normal(size=(20, degree, n_levels))
    incoming[3, :, 1:] -= 600  # all but the lowest level ruled out
    prior = rng.normal(0, 5, (20, 1)), float(rng.choice([0.5, 50.0])) if proper else np.inf
    ours, theirs = (
        integrated(value, incoming, levels, *prior),
        enumerated(value, incoming, levels, *prior),
    )
    np.testing.assert_allclose(softmax(ours, axis=2), softmax(theirs, axis=2), atol=1e-8)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("accuracy", [1e-4, 1e-6, 1e-9])
def test_the_asked_accuracy_is_kept(accuracy: float) -> None:
    rng = np.random.default_rng(5)
    levels = np.array([1.0, 30.0, 1000.0])
    value = (rng.normal(size=(500, 5)) * np.sqrt(rng.choice(levels, (500, 5))))[:, :, None]
    incoming = rng.normal(size=(500, 5, 3))
    ours = softmax(integrated(value, incoming, levels, accuracy=accuracy), axis=2)
    theirs = softmax(enumerated(value, incoming, levels), axis=2)
    assert np.abs(ours - theirs).max() < 10 * accuracy


@pytest.mark.slow
@pytest.mark.parametrize("degree", [20, 40])
@pytest.mark.parametrize("strength", [0.0, 3.0, 300.0])
def test_zooming_in_leaves_nothing_out(degree: int, strength: float) -> None:
    """Against a plain trapezoid rule with even steps over all of the range, in logs."""
    rng = np.random.default_rng(degree)
    levels, n = np.array([2.0, 20.0, 200.0]), 8
    s = rng.choice(levels, (n, degree))
    value = rng.normal(size=(n, degree)) * np.sqrt(s)
    value[0, : degree // 2] += 60  # two camps, as many in each
    value[1, :3] += 200  # some far off
    value[2] *= 10  # answers that no level explains
    incoming = strength * rng.normal(size=(n, degree, 3))
    incoming[3] = np.where(levels == s[3, :, None], 0.0, -40.0)  # everybody is known
    found = integrated(value[:, :, None], incoming, levels)
    low, high = value.min() - 40, value.max() + 40
    x = np.arange(low, high, 0.5 * np.sqrt(levels[0] / degree))
    term = incoming[..., None] - 0.5 * np.log(levels)[:, None]
    gauss = -0.5 * (x - value[:, :, None, None]) ** 2 / levels[:, None]
    log_f = logsumexp(term + gauss, axis=2)
    cavity = log_f.sum(axis=1, keepdims=True) - log_f
    expected = logsumexp(cavity[:, :, None] + gauss, axis=3) - 0.5 * np.log(levels)
    expected -= expected.max(axis=2, keepdims=True)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-8)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


def test_nodes_do_not_grow_with_the_number_of_answers() -> None:
    rng = np.random.default_rng(0)
    levels = np.geomspace(10.0, 1000.0, 8)
    for degree in (20, 200, 2000):
        value = rng.normal(size=(8, degree)) * np.sqrt(rng.choice(levels, (8, degree)))
        incoming = np.zeros((8, degree, 8))
        placed = nodes_of(plain_rows(value, incoming), plain_law(levels))
        assert (placed.weight > 0).sum(axis=1).mean() < 160


def many_answers(degree: int) -> Floats:
    """Answers of one task by three kinds of workers, about their median, (1, degree)."""
    rng = np.random.default_rng(0)
    value = rng.normal(0, np.sqrt(rng.choice([0.1, 1.0, 4.0], degree)))
    return np.asarray((value - np.median(value))[None])


def count_peels(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that says of each scan of one row whether it peeled the range."""
    peeled, points = [], nodes._points

    def counted(low: Floats, high: Floats, centre: Floats, apart: Floats) -> Floats:
        peeled.append(bool((apart == 0.0).any()))
        return points(low, high, centre, apart)

    monkeypatch.setattr(nodes, "_points", counted)
    return peeled


@pytest.mark.parametrize("degree", [10_000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_nodes_stay_few_for_many_answers_on_a_grid_of_levels(
    degree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a grid as wide as that of learned levels; unpeeled there would be ten times as many."""
    levels = np.geomspace(0.0017, 150.0, 14)
    rows = plain_rows(many_answers(degree), np.zeros((1, degree, 14)))
    assert (nodes_of(rows, plain_law(levels)).weight > 0).sum() < 1000
    monkeypatch.setattr(nodes, "_MANY_NODES", np.inf)
    assert (nodes_of(rows, plain_law(levels)).weight > 0).sum() > 10_000


@pytest.mark.slow
def test_peeling_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a plain trapezoid rule with even steps over all of the range, in logs."""
    degree, levels = 1000, np.geomspace(0.01, 100.0, 5)
    value, incoming = many_answers(degree), np.zeros((1, degree, 5))
    rows, law, peeled = plain_rows(value, incoming), plain_law(levels), count_peels(monkeypatch)
    placed = nodes_of(rows, law)
    assert any(peeled)
    assert np.ptp(placed.x) < 0.2 * np.ptp(value)
    found = integration.send(rows, law, placed).message[0]
    x = np.arange(value.min() - 2.0, value.max() + 2.0, 0.5 * np.sqrt(levels[0] / degree))
    squared = (x - value[0, :, None]) ** 2
    log_f = np.full(squared.shape, -np.inf)
    for s in levels:
        np.logaddexp(log_f, -0.5 * (squared / s + np.log(s)), out=log_f)
    cavity = log_f.sum(axis=0) - log_f
    said = [logsumexp(cavity - 0.5 * squared / s, axis=1) - 0.5 * np.log(s) for s in levels]
    expected = np.stack(said, axis=1)
    expected -= expected.max(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-8)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", SETS)
def test_ranges_are_peeled_alike_in_every_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same nodes, so far closer than the accuracy asked for."""
    peeled = count_peels(monkeypatch)
    model = Model(support=np.geomspace(0.01, 100.0, 5).tolist())
    value, incoming = many_answers(1000)[:, :, None], np.zeros((1, 1000, 5))
    ours, theirs = (
        outgoing(make_kernel(kernel_set(of), "integrate", value, model, accuracy=1e-6), incoming)
        for of in (name, "portable")
    )
    assert any(peeled)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-8)


def test_rows_are_peeled_each_by_itself() -> None:
    """Whether one row of a block gives up, peels or was narrowed at once is nothing to another."""
    levels = np.geomspace(0.01, 100.0, 5)
    many = many_answers(1000)
    value = np.concatenate([many, np.zeros_like(many), many + 30 * (many > 0.5), 0.01 * many])
    incoming = np.zeros((4, 1000, 5))
    together = nodes_of(plain_rows(value, incoming), plain_law(levels))
    for i in range(4):
        alone = nodes_of(plain_rows(value[i : i + 1], incoming[:1]), plain_law(levels))
        kept = alone.weight[0] > 0
        np.testing.assert_array_equal(alone.x[0, kept], together.x[i, together.weight[i] > 0])


def test_nodes_stay_few_at_any_ratio_of_levels() -> None:
    rng = np.random.default_rng(0)
    for ratio in (1e2, 1e4, 1e8):
        levels = np.array([1.0, ratio])
        value = rng.normal(size=(50, 10)) * np.sqrt(rng.choice(levels, (50, 10)))
        placed = nodes_of(plain_rows(value, np.zeros((50, 10, 2))), plain_law(levels))
        assert placed.x.shape[1] < 3000


@given(seed=seeds, degree=st.integers(2, 5), proper=st.booleans())
def test_both_kernels_give_the_same_posterior(seed: int, degree: int, proper: bool) -> None:
    rng = np.random.default_rng(seed)
    levels, n = np.array([1.0, 10.0, 400.0]), 8
    prior_mean, prior_variance = rng.normal(0, 3, (n, 1)), 20.0 if proper else np.inf
    value = (rng.normal(size=(n, degree)) * np.sqrt(rng.choice(levels, (n, degree))))[:, :, None]
    incoming = rng.normal(size=(n, degree, 3))
    probabilities = np.array([0.025, 0.05, 0.5, 0.95, 0.975])
    c = enumeration.configurations(tuple(levels), degree, 1 / prior_variance)
    table = enumeration.belief(value, prior_mean, incoming, c)
    theirs = enumeration.posterior(table, value, prior_mean, 1 / prior_variance, c, probabilities)
    rows = plain_rows(value[:, :, 0], incoming, prior_mean[:, 0])
    ours, _ = integration.posterior(rows, plain_law(levels, prior_variance), probabilities)
    sd = np.sqrt(theirs.variance)
    np.testing.assert_allclose(ours.estimate / sd, theirs.estimate / sd, atol=1e-6)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-6)
    error = np.abs(ours.quantile - theirs.quantile) / sd[:, :, None]
    assert error.max() < 5e-3


def test_mixture_quantiles_invert_the_distribution() -> None:
    rng = np.random.default_rng(1)
    weight = rng.dirichlet(np.full(30, 0.2), size=6)
    mean, variance = rng.normal(0, 10, (6, 30, 2)), rng.uniform(0.01, 4, 30)
    p = np.array([0.001, 0.05, 0.5, 0.975])
    x = mixture_quantiles(weight, mean, variance, p)
    z = (x[:, :, :, None] - mean.transpose(0, 2, 1)[:, :, None, :]) / np.sqrt(variance)
    np.testing.assert_allclose(
        (weight[:, None, None] * norm.cdf(z)).sum(-1), np.broadcast_to(p, x.shape), atol=1e-7
    )
