"""Judges: truths regressed on the answers of a few workers who answer nearly every task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from voxpop import Answers, Average, DataError, GoldFirst, Judges, aggregate
from voxpop.estimators.auto.panel import share_of_regression
from voxpop.estimators.judges import fits_judges

Floats = NDArray[np.float64]


def panel(
    seed: int, n_judges: int = 5, n_gold: int = 20, n_tasks: int = 200, missing: float = 0.0
) -> tuple[Answers, Floats]:
    """Judges with an offset, a gain and a noise of their own; truths have mean 0 and sd 1."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(n_tasks)
    offset, gain = rng.normal(0, 2, n_judges), rng.uniform(0.3, 1.3, n_judges)
    noise = rng.uniform(0.4, 0.95, n_judges) * rng.standard_normal((n_tasks, n_judges))
    scores = offset + gain * truth[:, None] + noise
    kept = rng.random(scores.shape) >= missing
    kept[:, 0] |= ~kept.any(axis=1)
    task, worker = np.nonzero(kept)
    gold = np.full(n_tasks, np.nan)
    gold[rng.permutation(n_tasks)[:n_gold]] = 1.0
    answers = Answers.from_arrays(task, worker, scores[kept], gold=(gold * truth)[:, None])
    return answers, truth[:, None]


def errors(found: Floats, answers: Answers, truth: Floats) -> float:
    """RMSE on tasks without gold; the sd of the truths is 1."""
    return float(np.sqrt(((found - truth)[~answers.is_gold] ** 2).mean()))


def ridge(answers: Answers) -> Floats:
    """Ridge regression of gold on complete scores, its penalty by leave-one-out on gold."""
    scores = np.empty((answers.n_tasks, answers.n_workers))
    scores[answers.task, answers.worker] = answers.value[:, 0]
    known = answers.is_gold
    assert answers.gold is not None
    y = answers.gold[known, 0]
    x = scores - scores[known].mean(axis=0)
    tried = []
    for penalty in 10.0 ** np.arange(-3, 3.1, 0.25):
        inverse = np.linalg.inv(x[known].T @ x[known] + penalty * np.eye(answers.n_workers))
        hat = x[known] @ inverse @ x[known].T + 1.0 / len(y)
        rest = (y - hat @ y) / (1.0 - np.diag(hat))
        tried.append((float((rest**2).mean()), penalty))
    best = min(tried)[1] * np.eye(answers.n_workers)
    slope = np.linalg.solve(x[known].T @ x[known] + best, x[known].T @ (y - y.mean()))
    return np.asarray(y.mean() + x @ slope)[:, None]


def test_judges_beat_ridge_regression_and_the_target() -> None:
    ours, theirs, simple = [], [], []
    for seed in range(20):
        answers, truth = panel(seed)
        ours.append(errors(Judges().fit(answers).estimate, answers, truth))
        theirs.append(errors(ridge(answers), answers, truth))
        simple.append(errors(GoldFirst().fit(answers).estimate, answers, truth))
    # The mean of 20 panels has an error of about .012; ours is about .36, ridge's .39.
    assert np.mean(ours) <= 0.40
    assert np.mean(ours) < np.mean(theirs)
    assert np.mean(ours) < np.mean(simple)


@pytest.mark.slow
@pytest.mark.parametrize("n_judges", [2, 3, 5])
def test_ten_truths_are_enough_to_be_no_worse_than_simpler_methods(n_judges: int) -> None:
    found: dict[str, list[float]] = {"judges": [], "gold-first": [], "average": []}
    for seed in range(30):
        answers, truth = panel(seed, n_judges, n_gold=10)
        for method in (Judges(), GoldFirst(), Average()):
            found[method.name].append(errors(method.fit(answers).estimate, answers, truth))
    mean = {name: np.mean(each) for name, each in found.items()}
    # Of equal methods the difference of two means would have an error of about one per cent.
    assert mean["judges"] <= 1.02 * min(mean["gold-first"], mean["average"])


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_intervals_hold(missing: float) -> None:
    held = []
    for seed in range(40):
        answers, truth = panel(seed, n_gold=15, missing=missing)
        low, high = Judges().fit(answers).interval()
        held.append(((low <= truth) & (truth <= high))[~answers.is_gold].mean())
    # Errors are shared within a panel: the mean of 40 has an error of about one point.
    assert 0.92 <= np.mean(held) <= 0.985


def test_a_task_that_lacks_answers_is_less_sure() -> None:
    answers, _ = panel(3, missing=0.3)
    sd = Judges().fit(answers).sd[:, 0]
    few = ~answers.is_gold & (answers.task_degree <= 2)
    all_there = ~answers.is_gold & (answers.task_degree == 5)
    assert sd[few].min() > np.median(sd[all_there])


def test_judges_who_share_an_error_do_not_outvote_the_others() -> None:
    rng = np.random.default_rng(5)
    truth, shared = rng.standard_normal(300), rng.standard_normal(300)
    noise = 0.4 * rng.standard_normal((300, 5))
    scores = truth[:, None] + noise + shared[:, None] * np.array([1, 1, 1, 0, 0])
    gold = np.where(np.arange(300) < 50, truth, np.nan)[:, None]
    task, worker = np.indices(scores.shape).reshape(2, -1)
    answers = Answers.from_arrays(task, worker, scores.ravel(), gold=gold)
    # The two others alone would leave .4 / sqrt(2) = .28; the mean of all leaves .63.
    assert errors(Judges().fit(answers).estimate, answers, truth[:, None]) < 0.33


def test_units_order_and_names_do_not_matter() -> None:
    answers, _ = panel(1, missing=0.2)
    assert answers.gold is not None
    ours = Judges().fit(answers)
    other = Judges().fit(
        replace(answers, value=1e6 - 40.0 * answers.value, gold=1e6 - 40.0 * answers.gold)
    )
    np.testing.assert_allclose((1e6 - other.estimate) / 40, ours.estimate, atol=1e-6)
    np.testing.assert_allclose(other.sd / 40, ours.sd, atol=1e-6)
    turned = Answers.from_arrays(
        answers.task[::-1], 9 - answers.worker[::-1], answers.value[::-1], gold=None
    )
    gold = dict(zip(answers.task_ids.tolist(), answers.gold, strict=True))
    turned = replace(turned, gold=np.stack([gold[i] for i in turned.task_ids.tolist()]))
    theirs = Judges().fit(turned)
    place = np.argsort(theirs.task_ids)
    np.testing.assert_allclose(
        theirs.estimate[place], ours.estimate[np.argsort(ours.task_ids)], atol=1e-7
    )


def test_truths_on_another_scale_than_the_scores() -> None:
    answers, truth = panel(2)
    assert answers.gold is not None
    percent = replace(answers, gold=20 * answers.gold + 50)
    found = (Judges().fit(percent).estimate - 50) / 20
    # The slope starts at one, by the weight of one truth, and gold moves it.
    assert errors(found, answers, truth) <= 1.05 * errors(ridge(answers), answers, truth)


def test_vectors_are_fitted_coordinate_by_coordinate() -> None:
    one, _ = panel(4)
    assert one.gold is not None
    both = replace(
        one,
        value=np.hstack([one.value, -one.value]),
        gold=np.hstack([one.gold, -one.gold]),
        value_names=("x", "y"),
    )
    found, single = Judges().fit(both), Judges().fit(one)
    np.testing.assert_allclose(found.estimate, single.estimate * [1, -1], atol=1e-9)


def test_hard_panels_stay_finite() -> None:
    answers, _ = panel(6, n_gold=8, n_tasks=30)
    copy = np.array([0, 0, 2, 2, 2])[answers.worker]
    for value in (answers.value * 0, answers.value * 1e90, answers.value * 1e-90):
        found = Judges().fit(replace(answers, value=value))
        assert np.isfinite(found.quantile).all()
    same = answers.value[answers.task * 5 + copy]
    assert np.isfinite(Judges().fit(replace(answers, value=same)).quantile).all()


def test_who_are_judges() -> None:
    assert fits_judges(panel(0)[0])
    assert not fits_judges(panel(0, n_gold=7)[0])
    assert not fits_judges(panel(0, n_judges=30)[0])
    assert not fits_judges(panel(0, missing=0.7)[0])
    assert aggregate(panel(0)[0], "judges").settings["method"] == "judges"
    with pytest.raises(DataError, match="at least 4 tasks with a known truth"):
        Judges().fit(panel(0, n_gold=3)[0])
    with pytest.raises(DataError, match="at most 50 workers"):
        Judges().fit(panel(0, n_judges=51)[0])


def test_a_typing_error_counts_as_missing() -> None:
    answers, truth = panel(6)
    clean = Judges().fit(answers)
    rng = np.random.default_rng(0)
    wild = rng.permutation(answers.n_edges)[:15]
    value = answers.value.copy()
    value[wild] += 1000.0
    found = Judges().fit(replace(answers, value=value))
    left_out = Judges().fit(answers.select(~np.isin(np.arange(answers.n_edges), wild)))
    np.testing.assert_allclose(found.estimate, left_out.estimate, atol=1e-9)
    # Of 1,000 scores 15 are lost: the error rises by about one per cent.
    assert errors(found.estimate, answers, truth) < 1.1 * errors(clean.estimate, answers, truth)


@pytest.mark.slow
def test_auto_takes_judges_where_gold_shows_it() -> None:
    # Scores and truths are on different scales: no pull towards the scores' own is right.
    answers, truth = panel(2)
    assert answers.gold is not None
    percent = replace(answers, gold=20 * answers.gold + 50)
    found, alone = aggregate(percent), Judges().fit(percent)
    assert found.settings["method"] == "auto"
    assert found.settings["chosen"] == "judges"
    assert found.settings["regression"] > 0.5
    assert "gold tasks, hidden half at a time" in found.notes[0]
    ours, theirs = (errors(each.estimate, percent, 20 * truth + 50) for each in (found, alone))
    assert ours <= 1.05 * theirs
    assert found.calibration.gold is not None
    assert "weight" in str(found.explain(percent, int(np.flatnonzero(~answers.is_gold)[0])))


@given(st.integers(0, 2**32 - 1), st.integers(8, 40), st.sampled_from([1, 2]))
def test_the_share_of_the_regression_is_that_of_the_least_penalised_error(
    seed: int, n: int, dimension: int
) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.standard_normal((2, n, dimension)) * rng.uniform(0.5, 2, (2, 1, 1))
    share, noise = share_of_regression(one, other), (((one + other) / 2) ** 2).sum() / n
    tried = np.linspace(0, 1, 1001)[:, None, None]
    missed = (((1 - tried) * one + tried * other) ** 2).sum(axis=(1, 2))
    missed += 4 * noise * (tried[:, 0, 0] - 0.5) ** 2
    assert share == pytest.approx(tried[np.argmin(missed), 0, 0], abs=1e-3)
    # The other way round it is the rest.
    assert share_of_regression(other, one) == pytest.approx(1 - share)


def test_a_method_without_errors_gets_the_more_the_more_gold_there_is() -> None:
    rng = np.random.default_rng(0)
    wrong = rng.standard_normal((100, 1))
    shares = [share_of_regression(wrong[:n], 0 * wrong[:n]) for n in (5, 20, 100)]
    assert 0.5 < shares[0] < shares[1] < shares[2] < 1
    assert share_of_regression(0 * wrong, 0 * wrong) == 0.5


@pytest.mark.slow
def test_auto_keeps_its_noise_models_in_the_average_where_workers_differ_in_noise_alone() -> None:
    rng = np.random.default_rng(3)
    truth, chosen = rng.standard_normal(60), []
    for _ in range(3):
        scores = truth[:, None] + np.exp(rng.normal(-0.5, 0.5, 4)) * rng.standard_normal((60, 4))
        task, worker = np.indices(scores.shape).reshape(2, -1)
        gold = np.where(np.arange(60) < 20, truth, np.nan)[:, None]
        answers = Answers.from_arrays(task, worker, scores.ravel(), gold=gold)
        found = aggregate(answers)
        chosen.append(found.settings["regression"])
        # What was found of the workers stays, whatever estimates are averaged with.
        assert found.levels.size or found.settings["chosen"] == "judges"
    # Both are as good here: the mean of three shares has an error of about .1.
    assert np.mean(chosen) < 0.7
