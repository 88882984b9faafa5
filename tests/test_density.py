"""Density evolution: the error predicted is the error that crowds have."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxpop import ConfigError, Model, PredictedError, measure_error, predict_error
from voxpop.inference.engine import Engine
from voxpop.models.theory import average_mse, oracle_mse


def predict(model: Model, seed: int = 0, **asked: Any) -> PredictedError:
    return predict_error(model, np.random.default_rng(seed), **{"size": 2000, **asked})


def assert_agree(one: PredictedError, other: PredictedError, bias: float = 0.0) -> None:
    """Within four standard errors of both together, beside a relative ``bias``."""
    error = np.hypot(one.mse_error, other.mse_error)
    assert abs(one.mse - other.mse) <= 4 * error + bias * other.mse
    error = np.hypot(one.half_width_error, other.half_width_error)
    assert abs(one.half_width - other.half_width) <= 4 * error + bias * other.half_width


# l, r, levels, d, gold: sparse and dense, few levels and a grid, enumerated and integrated.
GRID = [
    (2, 3, (10, 100, 1000), 1, 0),
    (3, 3, (10, 1000), 2, 0),
    (5, 5, (10, 100, 1000), 2, 0),
    (5, 20, (10, 100, 1000), 1, 0),
    (4, 4, (1, 4), 4, 0),
    (3, 4, (10, 100, 1000), 1, 2),
    (5, 4, (1, 10, 100, 1000, 10000), 1, 0),
    (2.5, 4, (10, 1000), 1, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("per_task", "per_worker", "support", "dimension", "gold"), GRID)
def test_large_crowds_have_the_error_predicted(
    per_task: float, per_worker: int, support: tuple[float, ...], dimension: int, gold: int
) -> None:
    """Eight crowds of 3,000 answers, four standard errors beside 1 %: one grid in 50 fails."""
    model = Model(support=support, dimension=dimension)
    how: dict[str, Any] = {"per_task": per_task, "per_worker": per_worker, "gold": gold}
    measured = measure_error(
        model,
        np.random.default_rng(1),
        n_tasks=int(3000 / per_task),
        per_task=per_task,
        per_worker=per_worker,
        gold=gold,
        crowds=8,
    )
    assert_agree(predict(model, **how), measured, bias=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("per_task", "per_worker", "dimension"), [(3, 5, 1), (5, 5, 2)])
def test_200_tasks_are_nearly_many(per_task: int, per_worker: int, dimension: int) -> None:
    model = Model(support=(10, 100, 1000), dimension=dimension)
    measured = measure_error(
        model,
        np.random.default_rng(1),
        n_tasks=200,
        per_task=per_task,
        per_worker=per_worker,
        crowds=40,
    )
    predicted = predict(model, per_task=per_task, per_worker=per_worker)
    assert_agree(predicted, measured, bias=0.02)
    assert measured.spread is not None
    assert measured.spread > 0


@pytest.mark.parametrize("per_task", [1, 2, 3])
@pytest.mark.parametrize("prior_variance", [np.inf, 50.0])
def test_the_oracle_is_the_sum_over_all_levels(per_task: int, prior_variance: float) -> None:
    model = Model(
        support=(1e-3, 10, 1e5), weights=(1, 2, 3), prior_variance=prior_variance, dimension=3
    )
    weights, total = np.array(model.weights), 0.0
    for k in product(range(3), repeat=per_task):
        precision = (1 / model.levels[list(k)]).sum() + model.prior_precision
        total += weights[list(k)].prod() / precision
    assert oracle_mse(model, per_task) == pytest.approx(3 * total, rel=1e-10)
    assert average_mse(model, per_task) == pytest.approx(3 * (weights @ model.levels) / per_task)


def test_between_two_whole_numbers_both_kinds_of_tasks_are_averaged() -> None:
    model = Model(support=(10, 100))
    halfway = (oracle_mse(model, 2) + oracle_mse(model, 3)) / 2
    assert oracle_mse(model, 2.5) == pytest.approx(halfway)
    assert average_mse(model, 2.5) == pytest.approx(55 * (1 / 2 + 1 / 3) / 2)


def test_one_level_leaves_nothing_to_learn() -> None:
    found = predict(Model(support=(9.0,), dimension=2), per_task=4, per_worker=5)
    assert found.mse == pytest.approx(2 * 9 / 4, rel=1e-6)
    assert found.mse == pytest.approx(found.oracle_mse, rel=1e-6)
    assert found.mse == pytest.approx(found.average_mse, rel=1e-6)
    assert found.half_width == pytest.approx(1.959964 * 3 / 2, rel=1e-4)
    assert found.rmse == pytest.approx(1.5, rel=1e-6)


def test_one_answer_per_task_is_the_answer() -> None:
    found = predict(Model(support=(10, 1000)), per_task=1, per_worker=10)
    assert found.mse == pytest.approx(505, rel=1e-6)
    assert found.mse_error == 0


def test_a_worker_with_one_answer_is_never_known() -> None:
    """With r = 1 the messages are the weights: the posterior mean of a single task."""
    model = Model(support=(1, 100))
    rng = np.random.default_rng(0)
    s = rng.choice(model.levels, (200_000, 2))
    a = np.sqrt(s) * rng.normal(size=s.shape)
    # Two answers: the levels' probabilities depend on the distance alone, and are even in it.
    w1, w2 = (1 / model.levels[k] for k in np.meshgrid([0, 1], [0, 1], indexing="ij"))
    gap = (a[:, 0] - a[:, 1])[:, None, None] ** 2
    variance = 1 / w1 + 1 / w2
    p = np.exp(-gap / (2 * variance)) / np.sqrt(variance)
    p /= p.sum(axis=(1, 2), keepdims=True)
    share = (p * (w1 / (w1 + w2))).sum(axis=(1, 2))
    squared = (share * a[:, 0] + (1 - share) * a[:, 1]) ** 2
    found = predict(model, per_task=2, per_worker=1)
    error = np.hypot(found.mse_error, squared.std() / np.sqrt(len(squared)))
    assert abs(found.mse - squared.mean()) <= 4 * error


@pytest.mark.slow
def test_more_is_better_and_the_oracle_bounds_it() -> None:
    """More answers per task, more per worker, gold, a prior: each lowers the error clearly."""
    model = Model(support=(10, 100, 1000))
    base = predict(model, per_task=3, per_worker=3)
    better = [
        predict(model, per_task=4, per_worker=3),
        predict(model, per_task=3, per_worker=10),
        predict(model, per_task=3, per_worker=3, gold=5),
        predict(Model(support=(10, 100, 1000), prior_variance=100), per_task=3, per_worker=3),
    ]
    for other in better:
        assert other.mse < base.mse - 3 * np.hypot(base.mse_error, other.mse_error)
    for found in (base, *better):
        assert found.oracle_mse <= found.mse < found.average_mse


def test_with_much_gold_the_oracle_is_reached() -> None:
    found = predict(Model(support=(10, 100, 1000)), per_task=3, per_worker=2, gold=300)
    assert found.mse == pytest.approx(found.oracle_mse, rel=1e-3)


@pytest.mark.slow
@settings(max_examples=8)
@given(scale=st.sampled_from([0.25, 4.0, 1e6]), seed=st.integers(0, 3))
def test_units_do_not_matter(scale: float, seed: int) -> None:
    """The same seed in units twice as fine: the same numbers, to rounding."""
    plain = predict(Model(support=(1, 10)), seed, per_task=3, per_worker=3, size=300)
    other = Model(support=(scale**2, 10 * scale**2))
    scaled = predict(other, seed, per_task=3, per_worker=3, size=300)
    assert scaled.mse == pytest.approx(scale**2 * plain.mse, rel=1e-6)
    assert scaled.half_width == pytest.approx(scale * plain.half_width, rel=1e-6)


def test_where_the_prior_lies_does_not_matter() -> None:
    one = Model(support=(1, 10), prior_variance=5)
    other = Model(support=(1, 10), prior_variance=5, prior_mean=1e3)
    how = {"per_task": 3, "per_worker": 3}
    assert predict(one, **how) == predict(other, **how)


def test_the_backend_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for backend in ("auto", "portable"):
        monkeypatch.setattr("voxpop.collect.planning.density._ENGINE", Engine(backend=backend))
        found.append(predict(Model(support=(1, 10, 100)), per_task=3, per_worker=4, size=600))
    assert found[0].mse == pytest.approx(found[1].mse, rel=1e-6)


@pytest.mark.slow
def test_error_bars_are_honest() -> None:
    """Of 15 small predictions, about 5 % miss the large one by two errors (7 degrees: 9 %)."""
    model = Model(support=(10, 100, 1000))
    large = predict(model, per_task=3, per_worker=5, size=20_000)
    small = [predict(model, seed, per_task=3, per_worker=5, size=500) for seed in range(15)]
    z = np.array([(s.mse - large.mse) / np.hypot(s.mse_error, large.mse_error) for s in small])
    assert (np.abs(z) > 2).sum() <= 6
    assert abs(z.mean()) < 1.0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"per_task": 0.5, "per_worker": 2}, "per_task must be at least 1"),
        ({"per_task": 2, "per_worker": 0}, "per_worker must be at least 1"),
        ({"per_task": 2, "per_worker": 2, "gold": -1}, "gold must be at least 0"),
        ({"per_task": 2, "per_worker": 2, "populations": 1}, "populations must be at least 2"),
        ({"per_task": 2, "per_worker": 2, "size": 3}, "size must be ten times per_task"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict(Model(support=(1.0,)), **asked)
    with pytest.raises(ConfigError, match="crowds must be at least 2"):
        measure_error(
            Model(support=(1.0,)),
            np.random.default_rng(0),
            n_tasks=2,
            per_task=1,
            per_worker=1,
            crowds=1,
        )
