"""Robust locations, truth discovery, Raykar, bins and gold: each does what it says, and no more."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tests.conftest import make_crowd
from tests.oracles import log_likelihood
from tests.test_contract import HARD, KINDS, fit
from voxpop import (
    CATD,
    CRH,
    ESTIMATORS,
    GTM,
    Answers,
    Average,
    ConfigError,
    ConvergenceWarning,
    DataError,
    Estimator,
    GeometricMedian,
    GoldFirst,
    HodgesLehmann,
    Huber,
    KDEm,
    Median,
    QuantiseClassify,
    Raykar,
    score,
)
from voxpop.data.sums import medians

DISCOVERERS: tuple[Estimator, ...] = (CATD(), CRH(), CRH(loss="absolute"), GTM(), KDEm())


def one_task(value: object) -> Answers:
    values = np.asarray(value, dtype=float)
    return Answers.from_arrays(np.zeros(len(values)), np.arange(len(values)), values)


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_of_a_gold_task_is_its_truth(kind: str) -> None:
    answers = make_crowd(0, n_tasks=24).answers
    gold = np.where(np.arange(24)[:, None] % 3 == 0, 50.0 + np.arange(48).reshape(24, 2), np.nan)
    result = fit(kind, replace(answers, gold=gold))
    np.testing.assert_array_equal(result.estimate[::3], gold[::3])
    np.testing.assert_array_equal(result.variance[::3], 0.0)
    assert np.isfinite(result.estimate).all()
    assert (result.variance[1::3] > 0).all()


@pytest.mark.parametrize("method", sorted(set(ESTIMATORS) - {"judges"}))  # they need more gold
def test_fit_predict_is_crowd_kits(method: str) -> None:
    df = pd.DataFrame(
        {
            "task": ["b", "b", "a", "a", "c", "c"],
            "worker": ["u", "v", "v", "w", "w", "u"],
            "label": [1.0, 3.0, 6.0, 5.0, 7.0, 8.0],
        }
    )
    arguments: dict[str, object] = {}
    if method in ("exact", "weak-oracle"):
        arguments["support"] = (1.0, 4.0)
    if method in ("strong-oracle", "weak-oracle"):
        arguments["variances"] = {"u": 1.0, "v": 2.0, "w": 3.0}
    estimator = ESTIMATORS[method](**arguments)
    gold = pd.Series({"c": 7.5}, name="agg_label")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = estimator.fit_predict(df, gold=gold)
    assert isinstance(found, pd.Series)
    assert (found.name, found.index.name) == ("agg_label", "task")
    assert list(found.index) == ["b", "a", "c"]
    assert found["c"] == 7.5
    assert found.notna().all()


def test_fit_predict_of_vectors_is_a_frame() -> None:
    df = pd.DataFrame({"task": [1, 1], "worker": ["u", "v"], "x": [0.0, 2.0], "y": [4.0, 6.0]})
    found = Average().fit_predict(df)
    assert isinstance(found, pd.DataFrame)
    assert found.loc[1].to_dict() == {"x": 1.0, "y": 5.0}


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=12))
def test_hodges_lehmann_is_the_median_of_pairwise_means(value: list[int]) -> None:
    pairs = [(a + b) / 2 for i, a in enumerate(value) for b in value[i:]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = HodgesLehmann().fit(one_task(value)).estimate[0, 0]
    assert found == pytest.approx(np.median(pairs), abs=1e-9)


@given(seed=st.integers(0, 2**31), n=st.integers(3, 9), dimension=st.integers(1, 3))
@settings(max_examples=15)
def test_geometric_median_is_nearest_in_sum(seed: int, n: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    value = rng.normal(0, 3, (n, dimension)) ** 3
    value[0] = value[-1]  # two answers that coincide
    found = GeometricMedian().fit(one_task(value)).estimate[0]

    def total(point: np.ndarray) -> float:
        return float(np.sqrt(((value - point) ** 2).sum(axis=1)).sum())

    best = min(total(minimize(total, start, method="Nelder-Mead").x) for start in value)
    assert total(found) <= best * (1 + 1e-6) + 1e-9


def test_huber_lies_between_mean_and_median() -> None:
    crowd = make_crowd(1, dimension=1)
    mean, median = (kind.fit(crowd.answers).estimate for kind in (Average(), Median()))
    far, near = Huber(cut=50.0).fit(crowd.answers), Huber(cut=1e-6, max_iter=4000, tol=1e-7)
    np.testing.assert_allclose(far.estimate, mean, rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        error = near.fit(crowd.answers).estimate - median
    assert np.abs(error).max() < 1e-3 * np.abs(mean - median).max()
    assert Huber()._inflation() == pytest.approx(1 / 0.95, rel=1e-3)


@pytest.mark.parametrize("method", [HodgesLehmann(), Huber(), GeometricMedian(), Median()])
def test_the_sd_of_a_robust_location_is_honest_for_gaussian_answers(method: Estimator) -> None:
    """3,000 tasks of 9 equal workers: squared errors over variances average one within 10 %."""
    rng = np.random.default_rng(5)
    value = rng.normal(0, 2, (27_000, 2))
    answers = Answers.from_arrays(np.repeat(np.arange(3000), 9), np.tile(np.arange(90), 300), value)
    result = method.fit(answers)
    assert 0.9 < (result.estimate**2 / result.variance).mean() < 1.1


@given(seed=st.integers(0, 2**31))
def test_weighted_medians_leave_half_the_weight_on_either_side(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = make_crowd(seed % 100, dimension=1, n_tasks=12).answers
    weight = rng.integers(1, 4, answers.n_edges).astype(float)
    found = medians(answers, weight)[answers.task, 0]
    value = answers.value[:, 0]
    for side in (value < found - 1e-9, value > found + 1e-9):
        heavy = np.bincount(answers.task, weight * side) / np.bincount(answers.task, weight)
        assert (heavy <= 0.5 + 1e-9).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", DISCOVERERS, ids=lambda method: str(method)[:14])
def test_truth_discovery_beats_the_average(method: Estimator) -> None:
    """Ten crowds with spammers: none of the methods loses to the plain average on any."""
    for seed in range(10):
        crowd = make_crowd(seed, n_tasks=120)
        ours = score(method.fit(crowd.answers), crowd.truth, crowd.worker_variance)
        assert ours.mse < score(Average().fit(crowd.answers), crowd.truth).mse
        assert ours.rank_correlation is not None
        assert ours.rank_correlation > 0.5


@pytest.mark.parametrize("method", DISCOVERERS, ids=lambda method: str(method)[:14])
def test_agreeing_by_chance_does_not_take_all_the_weight(method: Estimator) -> None:
    """64 % zeros: a worker who always says 0 looks perfect, and must not silence the others."""
    rng = np.random.default_rng(0)
    task, worker = np.repeat(np.arange(50), 10), np.tile(np.arange(20), 25)
    value = np.where(rng.random(500) < 0.64, 0.0, rng.integers(-100, 101, 500))
    value[worker == 7] = 0.0
    answers = Answers.from_arrays(task, worker, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        weight = method.fit(answers).worker_weight
    share = weight[answers.worker] / np.bincount(answers.task, weight[answers.worker])[answers.task]
    assert share.max() < 0.99


def test_stopping_rules_are_not_met_at_once() -> None:
    crowd = make_crowd(3, n_tasks=120)
    for method in (*DISCOVERERS, Raykar(), QuantiseClassify()):
        assert method.fit(crowd.answers).trace.n_sweeps > 2, method


def test_gtm_formula_by_hand() -> None:
    answers = make_crowd(4, dimension=1).answers
    result = GTM(alpha=2.0, beta=3.0, prior_variance=0.5).fit(answers)
    v = (Average().fit(answers).variance[:, 0] * answers.task_degree)[0]
    residual = (answers.value - result.estimate[answers.task])[:, 0] ** 2
    s = (2 * 3 * v + np.bincount(answers.worker, residual)) / (2 * 3 + answers.worker_degree)
    np.testing.assert_allclose(result.worker_variance, s, rtol=1e-4)
    mean = np.bincount(answers.task, answers.value[:, 0]) / answers.task_degree
    w = 1 / s[answers.worker]
    top = mean / (0.5 * v) + np.bincount(answers.task, w * answers.value[:, 0])
    total = 1 / (0.5 * v) + np.bincount(answers.task, w)
    np.testing.assert_allclose(result.estimate[:, 0], top / total, rtol=1e-4)
    np.testing.assert_allclose(result.variance[:, 0], 1 / total, rtol=1e-4)


def test_kdem_finds_the_mode_of_two_camps() -> None:
    """Seven say about 10, three about 50: the mode is with the seven, and outliers do nothing."""
    rng = np.random.default_rng(0)
    camp = np.tile(np.where(np.arange(10) < 7, 10.0, 50.0), 30)
    answers = Answers.from_arrays(
        np.repeat(np.arange(30), 10), np.tile(np.arange(10), 30), camp + rng.normal(0, 1, 300)
    )
    result = KDEm(bandwidth=0.3).fit(answers)
    assert np.abs(result.estimate - 10).max() < 2
    assert result.worker_weight[:7].min() > result.worker_weight[7:].max()


@pytest.mark.parametrize("dimension", [1, 2])
def test_raykars_likelihood_never_falls_and_is_the_models(dimension: int) -> None:
    crowd = make_crowd(6, dimension)
    result = Raykar().fit(crowd.answers)
    history = np.array(result.settings["log_likelihood"])
    assert len(history) > 20
    assert (np.diff(history) > -1e-9 * np.abs(history[:-1])).all()
    # The rise from the first to the last variances is that of the model's own density.
    zero = np.zeros(dimension)
    within = Average().fit(crowd.answers).variance.mean(axis=1) * crowd.answers.task_degree
    total = []
    for variance in (np.full(crowd.answers.n_workers, within[0]), result.worker_variance):
        total.append(0.0)
        for i in range(crowd.answers.n_tasks):
            edges = crowd.answers.task == i
            s = variance[crowd.answers.worker[edges]]
            total[-1] += log_likelihood(crowd.answers.value[edges], s, zero, np.inf)
    assert total[1] - total[0] == pytest.approx(history[-1] - history[0], rel=1e-6)


def test_raykar_finds_the_variances_of_busy_workers() -> None:
    rng = np.random.default_rng(1)
    sd = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    truth = rng.normal(0, 100, 400)
    value = truth[:, None] + sd * rng.normal(size=(400, 5))
    task, worker = (index.ravel() for index in np.indices(value.shape))
    result = Raykar().fit(Answers.from_arrays(task, worker, value.ravel()))
    # 400 answers: a standard error of 7 % for the noisy ones, more for the most precise.
    np.testing.assert_allclose(result.worker_variance[1:], sd[1:] ** 2, rtol=0.3)
    assert result.worker_variance[0] < 2


@pytest.mark.slow
def test_bins_decide_what_quantising_finds() -> None:
    """As the table of the docs shows: too few bins are coarse, too many share no votes."""
    crowd = make_crowd(8, dimension=1, n_tasks=120)
    mse = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for n_bins in (3, 10, 30, 100):
            mse[n_bins] = score(QuantiseClassify(n_bins=n_bins).fit(crowd.answers), crowd.truth).mse
    assert max(mse.values()) > 3 * min(mse.values())


@pytest.mark.parametrize("model", ["one-coin", "dawid-skene"])
def test_classes_are_recovered_where_answers_are_classes(model: str) -> None:
    """Workers pick the right of five values or any: most tasks come out right, spammers last."""
    rng = np.random.default_rng(2)
    accuracy = np.repeat([0.9, 0.2], [8, 8])
    truth = rng.integers(0, 5, 150)
    truth[:5] = np.arange(5)
    right = rng.random((150, 16)) < accuracy
    value = np.where(right, truth[:, None], rng.integers(0, 5, (150, 16)))
    task, worker = (index.ravel() for index in np.indices(value.shape))
    method = QuantiseClassify(n_bins=5, model=model)  # type: ignore[arg-type]
    result = method.fit(Answers.from_arrays(task, worker, value.ravel().astype(float)))
    found = np.round((result.estimate[:, 0] - 0.4) / 0.8)
    assert (found == truth).mean() > 0.98
    assert result.worker_weight[:8].min() > result.worker_weight[8:].max()


def gold_crowd(rng: np.random.Generator, n_gold: int) -> tuple[Answers, np.ndarray]:
    truth, n = rng.uniform(0, 100, 400), 400
    bias, sd = rng.normal(0, 5, 20), rng.uniform(1, 10, 20)
    task, worker = np.repeat(np.arange(n), 5), np.tile(np.arange(20), n // 4)
    value = truth[task] + bias[worker] + sd[worker] * rng.normal(size=len(task))
    gold = np.where(np.arange(n) < n_gold, truth, np.nan)
    return Answers.from_arrays(task, worker, value, gold=gold), truth


def test_gold_first_knows_bias_and_noise() -> None:
    answers, truth = gold_crowd(np.random.default_rng(0), 200)
    result = GoldFirst().fit(answers)
    rest = np.where(np.arange(400) < 200, np.nan, truth)
    ours = score(result, rest)
    assert ours.mse < 0.7 * score(Average().fit(answers), rest).mse
    # 200 tasks, 20 workers: binomial and shared errors leave 95 % within 90 and 99 %.
    assert 0.9 < ours.coverage_95 < 0.99


def test_gold_first_follows_units_and_origin() -> None:
    answers, _ = gold_crowd(np.random.default_rng(1), 40)
    assert answers.gold is not None
    gold = np.asarray(-3 * answers.gold + 1e4)
    moved = replace(answers, value=-3 * answers.value + 1e4, gold=gold)
    ours, theirs = GoldFirst().fit(answers), GoldFirst().fit(moved)
    np.testing.assert_allclose(theirs.estimate, -3 * ours.estimate + 1e4, rtol=1e-9)
    np.testing.assert_allclose(theirs.variance, 9 * ours.variance, rtol=1e-6)


def test_gold_first_without_gold_says_what_to_do() -> None:
    answers = make_crowd(0).answers
    with pytest.raises(DataError, match="gold-first needs tasks with a known truth"):
        GoldFirst().fit(answers)
    gold = np.full((60, 2), np.nan)
    gold[0] = 1.0
    result = GoldFirst().fit(replace(answers, gold=gold))
    assert np.isfinite(result.estimate).all()
    assert "answered no gold task" in result.notes[0]


@pytest.mark.parametrize("case", HARD)
def test_gold_first_on_hard_cases(case: str) -> None:
    answers = HARD[case]
    gold = np.full((answers.n_tasks, answers.dimension), np.nan)
    gold[0] = answers.value[0]
    result = GoldFirst().fit(replace(answers, gold=gold))
    for name in ("estimate", "variance", "quantile", "worker_variance", "worker_weight"):
        assert np.isfinite(getattr(result, name)).all(), name


def test_kdem_without_room_to_keep_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = make_crowd(9, n_tasks=24).answers
    ours = KDEm().fit(answers)
    monkeypatch.setattr("voxpop.estimators.baselines.truth_discovery._MOST_KEPT", 0)
    np.testing.assert_array_equal(KDEm().fit(answers).estimate, ours.estimate)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (CATD, {"alpha": 0.0}, "alpha must be between"),
        (CRH, {"loss": "cubic"}, "loss must be"),
        (CRH, {"reference": "mean"}, "reference must be"),
        (GTM, {"beta": -1.0}, "beta must be positive"),
        (KDEm, {"bandwidth": 0.0}, "bandwidth must be positive"),
        (Huber, {"cut": 0.0}, "cut must be positive"),
        (Raykar, {"floor": 1.0}, "floor must be between"),
        (GoldFirst, {"strength": 0.0}, "strength must be positive"),
        (QuantiseClassify, {"n_bins": 1}, "n_bins must be at least 2"),
        (QuantiseClassify, {"model": "glad"}, "model must be"),
        (QuantiseClassify, {"smoothing": 0.0}, "smoothing must be positive"),
        (GeometricMedian, {"tol": 0.0}, "tol must be positive"),
    ],
)
def test_bad_arguments_are_refused(
    kind: type[Estimator], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**arguments)
