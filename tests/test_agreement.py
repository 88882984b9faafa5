"""Figures of agreement: the textbooks' on complete tables, and laws that hold on all."""

from __future__ import annotations

from dataclasses import asdict, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from voxpop import Answers, agreement
from voxpop.results.agreement import Coefficients

COEFFICIENTS = [field.name for field in fields(Coefficients)]


def from_table(table: NDArray[np.float64]) -> Answers:
    """Answers from rows of tasks and columns of workers, NaN where there is none."""
    task, worker = np.nonzero(~np.isnan(table))
    return Answers.from_arrays(task, worker, table[task, worker])


def values(answers: Answers) -> dict[str, float]:
    return {name: getattr(agreement(answers).overall, name).value for name in COEFFICIENTS}


def crowd(seed: int, missing: float = 0.3, n: int = 20, k: int = 6) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=k) + rng.normal(size=(n, k))
    table[:, 2:][rng.random((n, k - 2)) < missing] = np.nan
    return np.asarray(table)


def test_the_table_of_shrout_and_fleiss() -> None:
    # Shrout and Fleiss (1979), table 2 and what they print for it.
    table = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    found = values(from_table(np.array(table, dtype=float)))
    assert found["icc1"] == pytest.approx(0.17, abs=0.005)
    assert found["icc_agreement"] == pytest.approx(0.29, abs=0.005)
    assert found["icc_consistency"] == pytest.approx(0.71, abs=0.005)
    assert found["icck"] == pytest.approx(0.44, abs=0.005)


def test_krippendorffs_own_example_with_missing_answers() -> None:
    # Krippendorff (2011), Computing Krippendorff's alpha-reliability: interval data, 0.849.
    n = np.nan
    table = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, n, n, n],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, n, 3],
            [n, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, n],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, n],
        ]
    ).T
    assert agreement(from_table(table)).overall.alpha.value == pytest.approx(0.849, abs=5e-4)


@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(2, 6))
def test_complete_tables_give_the_analysis_of_variance(seed: int, n: int, k: int) -> None:
    y = crowd(seed, 0.0, n, k)
    grand, rows, columns = y.mean(), y.mean(axis=1), y.mean(axis=0)
    msr = k * ((rows - grand) ** 2).sum() / (n - 1)
    msc = n * ((columns - grand) ** 2).sum() / (k - 1)
    msw = ((y - rows[:, None]) ** 2).sum() / (n * (k - 1))
    mse = ((y - rows[:, None] - columns + grand) ** 2).sum() / ((n - 1) * (k - 1))
    found = values(from_table(y))
    assert found["icc1"] == pytest.approx((msr - msw) / (msr + (k - 1) * msw))
    assert found["icck"] == pytest.approx((msr - msw) / msr)
    assert found["icc_consistency"] == pytest.approx((msr - mse) / (msr + (k - 1) * mse))
    bottom = msr + (k - 1) * mse + k / n * (msc - mse)
    assert found["icc_agreement"] == pytest.approx((msr - mse) / bottom)


@given(st.integers(0, 10**6))
def test_alpha_is_one_less_the_ratio_of_mean_squared_differences(seed: int) -> None:
    y = crowd(seed, 0.6)
    units = [row[~np.isnan(row)] for row in y]
    pooled = np.concatenate(units)
    n = len(pooled)
    within = sum(((u[:, None] - u) ** 2).sum() / (len(u) - 1) for u in units) / n
    between = ((pooled[:, None] - pooled) ** 2).sum() / (n * (n - 1))
    assert values(from_table(y))["alpha"] == pytest.approx(1 - within / between)


@given(st.integers(0, 10**6), st.floats(-1e6, 1e6), st.sampled_from([1e-6, -1.0, 1e6]))
def test_units_names_and_row_order_do_not_matter(seed: int, shift: float, scale: float) -> None:
    answers = from_table(crowd(seed))
    rng = np.random.default_rng(seed)
    order = rng.permutation(answers.n_edges)
    task, worker = rng.permutation(answers.n_tasks), rng.permutation(answers.n_workers)
    other = Answers.from_arrays(
        task[answers.task][order],
        [f"name {u}" for u in worker[answers.worker][order]],
        (shift + scale * answers.value[order, 0]),
    )
    first, second = agreement(answers), agreement(other)
    tolerance = 1e-9 + 1e-13 * abs(shift / scale)
    for name in COEFFICIENTS:
        a, b = asdict(getattr(first.overall, name)), asdict(getattr(second.overall, name))
        assert a == pytest.approx(b, abs=1e3 * tolerance), name


def test_the_jackknife_is_that_of_refits() -> None:
    y = crowd(3)
    n = len(y)
    refits = [values(from_table(np.delete(y, i, axis=0))) for i in range(n)]
    for name, figure in vars(agreement(from_table(y)).overall).items():
        error = np.log([1 - refit[name] for refit in refits])
        se = np.sqrt((n - 1) ** 2 / n * error.var(ddof=1))
        # Both ends lie t times the se from the figure, on the scale of the logs; t at n - 1 = 19.
        reach = np.log((1 - figure.lower) / (1 - figure.value))
        assert reach == pytest.approx(2.0930 * se, rel=1e-4), name
        assert reach == pytest.approx(-np.log((1 - figure.upper) / (1 - figure.value)))


def test_perfect_agreement_is_one_and_noise_is_none() -> None:
    rng = np.random.default_rng(0)
    same = np.repeat(rng.normal(size=(30, 1)), 4, axis=1)
    assert values(from_table(same)) == pytest.approx(dict.fromkeys(COEFFICIENTS, 1.0))
    noise = agreement(from_table(rng.normal(size=(2000, 5))))
    for name in set(COEFFICIENTS) - {"icck"}:  # sd of each about .01: odds of 5 sd are 1e-6
        assert abs(getattr(noise.overall, name).value) < 0.05
    biased = same + rng.normal(size=4)  # workers who differ by a constant agree in that sense
    assert values(from_table(biased))["icc_consistency"] == pytest.approx(1.0)
    assert values(from_table(biased))["icc_agreement"] < 0.9


def test_intervals_cover_the_share_that_was_simulated() -> None:
    # 300 crowds of 40 tasks x 4 answers, ICC(1) = .4; 95 % +- 3.8 sd of a binomial is 90 to 99 %.
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(300):
        truth = np.sqrt(0.4) * rng.normal(size=(40, 1))
        y = truth + np.sqrt(0.6) * rng.normal(size=(40, 4))
        figure = agreement(from_table(y)).overall.icc1
        inside += figure.lower <= 0.4 <= figure.upper
    assert 0.90 <= inside / 300 <= 0.99


def test_components_are_recovered_from_a_sparse_table() -> None:
    # a = 4, b = 1, e = 2 with 5 of 60 workers per task; sd of the shares about .02.
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(1500), 5)
    worker = np.concatenate([rng.choice(60, 5, replace=False) for _ in range(1500)])
    y = 2 * rng.normal(size=1500)[task] + rng.normal(size=60)[worker]
    found = values(Answers.from_arrays(task, worker, y + np.sqrt(2) * rng.normal(size=len(task))))
    assert found["icc_agreement"] == pytest.approx(4 / 7, abs=0.1)
    assert found["icc_consistency"] == pytest.approx(4 / 6, abs=0.1)


def test_vectors_add_up_their_coordinates() -> None:
    table = crowd(5)
    task, worker = np.nonzero(~np.isnan(table))
    y = table[task, worker]
    twice = agreement(Answers.from_arrays(task, worker, np.stack([y, y + 3], axis=1)))
    once = agreement(Answers.from_arrays(task, worker, y))
    assert list(twice.coordinates) == ["value_1", "value_2"]
    for figures in (twice.overall, *twice.coordinates.values()):
        assert figures.alpha.value == pytest.approx(once.overall.alpha.value)
    assert len(twice.columns()["of"]) == 3 * len(COEFFICIENTS)
    # A coordinate of larger units counts for more, as it does in Euclidean distance.
    noise = np.random.default_rng(0).normal(size=len(y))
    mixed = agreement(Answers.from_arrays(task, worker, np.stack([1e4 * y, noise], axis=1)))
    assert mixed.overall.alpha.value == pytest.approx(once.overall.alpha.value, abs=1e-6)


@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
def test_what_cannot_be_told_is_undefined_and_said() -> None:
    for answers in (
        Answers.from_arrays([0, 1, 2], [0, 1, 0], [1.0, 2.0, 3.0]),  # no task twice
        Answers.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [2.0] * 4),  # no variance
        Answers.from_arrays([0], [0], [2.0]),
    ):
        found = agreement(answers)
        assert all(np.isnan(getattr(found.overall, name).value) for name in COEFFICIENTS[2:])
        assert "Agreement is undefined" in found.summary()
        assert found.to_dict()["overall"]["alpha"]["value"] is None
    apart = agreement(Answers.from_arrays([0, 0, 1, 1], [0, 1, 2, 3], [1.0, 1.1, 5.0, 5.2]))
    assert np.isnan(apart.overall.icc_agreement.value)  # every worker answered once
    assert apart.overall.icc1.value > 0.9
    assert "reliable" in str(apart)
