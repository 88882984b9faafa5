"""Gold judges: known truths take part in comparing models, and map estimates to truths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voxpop import BI, Answers, Result, aggregate, explain
from voxpop.arrays import Floats
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.learn_map import learn_map, left_out_errors
from voxpop.inference.engine import Engine
from voxpop.inference.kernels.posterior import Posterior
from voxpop.models.noise import Noise
from voxpop.results.gold_map import GoldMap


def crowd(
    seed: int, n_gold: int, *, offset: float = 0.0, slope: float = 1.0, n_tasks: int = 80
) -> tuple[Answers, Floats]:
    """Every task has five answers of twenty workers, all off by the same line."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), 5)
    worker = np.concatenate([rng.permutation(20)[:5] for _ in range(n_tasks)])
    truth = rng.normal(50.0, 10.0, (n_tasks, 1))
    sd = np.exp(rng.normal(0.5, 0.5, 20))
    value = (
        offset + 50.0 + slope * (truth[task, 0] - 50.0) + sd[worker] * rng.normal(size=len(task))
    )
    gold = np.where(np.arange(n_tasks)[:, None] < n_gold, truth, np.nan)
    return Answers.from_arrays(task, worker, value, gold=gold), truth


def open_rmse(result: Result, answers: Answers, truth: Floats) -> float:
    return float(np.sqrt(((result.estimate - truth)[~answers.is_gold] ** 2).mean()))


def hidden_and_truth(seed: int, n: int = 30) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(3.0, 2.0, (n, 1))
    return hidden, 1.0 + 0.8 * hidden + rng.normal(0.0, 0.3, (n, 1))


# The map


def test_truths_as_estimated_give_the_identity() -> None:
    hidden, _ = hidden_and_truth(0)
    found = learn_map(hidden, hidden)
    assert found is not None
    assert (found.shift, found.slope) == ((0.0,), (1.0,))
    assert (found.shift_sd, found.slope_sd, found.bend_sd) == ((0.0,), (0.0,), (0.0,))
    np.testing.assert_allclose(found.estimates(hidden), hidden, rtol=1e-15)


@given(
    st.integers(0, 50),
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
    st.sampled_from([6, 20, 45]),
)
@settings(max_examples=40, deadline=None)
def test_the_map_follows_shift_and_unit(seed: int, shift: float, unit: float, n: int) -> None:
    hidden, truth = hidden_and_truth(seed, n)
    one = learn_map(hidden, truth)
    other = learn_map(shift + unit * hidden, shift + unit * truth)
    assert one is not None
    assert other is not None
    at = np.linspace(-5, 10, 7)[:, None]
    size = 1e-6 * (unit + 1e-8 * abs(shift))
    expected = shift + unit * one.estimates(at)
    np.testing.assert_allclose(other.estimates(shift + unit * at), expected, atol=size, rtol=1e-9)


def test_more_gold_shrinks_less_and_fewer_than_five_not_at_all() -> None:
    shifts = []
    for n in (5, 20, 80):
        hidden, _ = hidden_and_truth(1, n)
        found = learn_map(hidden, hidden + 2.0 + 0.1 * np.sin(np.arange(n))[:, None])
        assert found is not None
        shifts.append(found.shift[0])
    assert 0.5 < shifts[0] < shifts[1] < shifts[2] < 2.0
    assert learn_map(hidden[:4], hidden[:4] + 2.0) is None


def test_a_wild_truth_among_gold_moves_the_map_little() -> None:
    """A typo of 1e6 counts as five typical distances: 0.3 by 5 / 0.67 over 34 is 0.07."""
    hidden, truth = hidden_and_truth(2)
    wrong = truth.copy()
    wrong[3] += 1e6
    one, other = learn_map(hidden, truth), learn_map(hidden, wrong)
    assert one is not None
    assert other is not None
    assert np.abs(one.estimates(hidden) - other.estimates(hidden)).max() < 0.3


def test_left_out_errors_are_those_of_the_other_gold_tasks() -> None:
    """Up to the weights of the forms and the centre, which all gold tasks share."""
    hidden, truth = hidden_and_truth(3, 60)
    quick = left_out_errors(hidden, truth)
    for i in range(0, 60, 7):
        kept = np.arange(60) != i
        found = learn_map(hidden[kept], truth[kept])
        assert found is not None
        line = replace(found, bend=((0.0,) * len(found.knots[0]),))
        assert quick[i] == pytest.approx(truth[i] - line.estimates(hidden[[i]])[0], abs=0.03)


def test_a_bend_is_monotone_and_only_where_shown() -> None:
    rng = np.random.default_rng(4)
    hidden = rng.uniform(0.0, 10.0, (100, 1))
    straight = hidden + rng.normal(0.0, 0.2, hidden.shape)
    bent = np.minimum(hidden, 5.0) + rng.normal(0.0, 0.2, hidden.shape)
    at = np.linspace(-2.0, 12.0, 200)[:, None]
    one, other = learn_map(hidden, straight), learn_map(hidden, bent)
    assert one is not None
    assert other is not None
    assert np.abs(one.estimates(at) - at).max() < 0.3
    inside = (at > 0.5) & (at < 9.5)
    assert np.abs(other.estimates(at) - np.minimum(at, 5.0))[inside].max() < 1.0
    assert (np.diff(one.estimates(at), axis=0) >= -1e-9).all()


def test_known_truths_stay_and_bounds_hold() -> None:
    hidden, truth = hidden_and_truth(5)
    found = learn_map(hidden, truth, bounds=(0.0, 4.0))
    assert found is not None
    variance = np.full_like(hidden, 0.5)
    variance[0] = 0.0
    quantile = hidden[:, :, None] + np.sqrt(variance)[:, :, None] * np.array([-2.0, -1.6, 1.6, 2.0])
    mapped = found.apply(Posterior(hidden, variance, quantile))
    assert mapped.estimate[0] == hidden[0]
    assert not mapped.variance[0].any()
    assert (mapped.quantile[0] == hidden[0]).all()
    assert mapped.estimate[1:].min() >= 0.0
    assert mapped.quantile[1:].max() <= 4.0
    # Never narrowed, and the doubt about the map is added.
    assert (mapped.variance[1:] > 0.5).all()
    assert GoldMap.from_dict(found.__dict__) == found


# Hidden gold


def test_a_hidden_truth_does_not_speak_for_itself() -> None:
    """What would be known of one gold task without it is what a fit without it knows."""
    answers, _ = crowd(0, 20)
    assert answers.gold is not None
    engine, noise, levels = Engine(), Noise(), (1.0, 4.0, 16.0)
    found = NoiseFit(prepare(answers), noise, engine, levels).fit(1e-6, 100, 1e-9)
    for i in (0, 7):
        gold = answers.gold.copy()
        gold[i] = np.nan
        other = replace(answers, gold=gold)
        again = NoiseFit(prepare(other), noise, engine, levels).fit(1e-6, 100, 1e-9)
        sd = float(np.sqrt(again.posterior.variance[i, 0]))
        assert found.hidden.estimate[i, 0] == pytest.approx(
            again.posterior.estimate[i, 0], abs=0.05 * sd
        )


# The default


@pytest.mark.slow
def test_without_gold_there_is_no_map_and_nothing_is_kept_of_one() -> None:
    answers, _ = crowd(1, 0)
    assert not answers.is_gold.any()
    result = aggregate(answers)
    assert result.calibration.gold_map is None
    assert result.estimate_before_gold is result.estimate
    nothing = replace(answers, gold=np.full((answers.n_tasks, 1), np.nan))
    assert np.array_equal(aggregate(nothing).estimate, result.estimate)


def test_an_offset_of_all_workers_is_removed_with_enough_gold() -> None:
    answers, truth = crowd(2, 30, offset=-8.0)
    result, blind = aggregate(answers), aggregate(replace(answers, gold=None))
    assert open_rmse(blind, answers, truth) > 7.0
    assert open_rmse(result, answers, truth) < 1.5
    one = np.where(np.arange(answers.n_tasks)[:, None] < 1, truth, np.nan)
    assert aggregate(replace(answers, gold=one)).calibration.gold_map is None


def test_a_slope_of_all_workers_is_put_right() -> None:
    answers, truth = crowd(3, 40, slope=0.6)
    result, blind = aggregate(answers), aggregate(replace(answers, gold=None))
    assert open_rmse(result, answers, truth) < 0.6 * open_rmse(blind, answers, truth)


def test_experts_in_the_minority_are_followed_where_gold_shows_them() -> None:
    """Two workers in five are right, all others share an error of sd 6: the mean has about 3.6."""
    rng = np.random.default_rng(5)
    n = 120
    task = np.repeat(np.arange(n), 8)
    worker = np.concatenate([rng.permutation(30)[:8] for _ in range(n)])
    truth, common = rng.normal(0.0, 10.0, (n, 1)), rng.normal(0.0, 6.0, n)
    value = truth[task, 0] + np.where(worker < 12, 0.0, common[task]) + rng.normal(size=len(task))
    gold = np.where(np.arange(n)[:, None] < 40, truth, np.nan)
    answers = Answers.from_arrays(task, worker, value, gold=gold)
    result = aggregate(answers)
    assert open_rmse(aggregate(answers, "average"), answers, truth) > 3.0
    assert open_rmse(result, answers, truth) < 1.2
    trusted = set(np.argsort(-result.worker_weight)[:12].tolist())
    experts = {u for u, name in enumerate(answers.worker_ids.tolist()) if int(name) < 12}
    assert len(trusted & experts) >= 11


@pytest.mark.slow
def test_truths_are_covered_with_gold() -> None:
    """20 crowds of 50 open tasks with an offset; at least 0.95 expected of 1,000, sd below 0.015.

    More, because the prior of the error that all workers share allows for some here.
    """
    inside = []
    for seed in range(20):
        answers, truth = crowd(100 + seed, 30, offset=5.0)
        low, high = aggregate(answers).interval(0.95)
        inside.append(((low <= truth) & (truth <= high))[~answers.is_gold])
    assert np.concatenate(inside).mean() > 0.92


def test_row_order_and_names_do_not_matter() -> None:
    answers, _ = crowd(6, 25, offset=3.0)
    order = np.random.default_rng(0).permutation(answers.n_edges)
    task = answers.task[order]
    _, first = np.unique(task, return_index=True)
    seen = task[np.sort(first)]
    assert answers.gold is not None
    named = Answers.from_arrays(
        [f"t{i}" for i in task],
        [f"w{u}" for u in answers.worker[order]],
        answers.value[order],
        gold=answers.gold[seen],
    )
    one, other = aggregate(answers), aggregate(named)
    np.testing.assert_allclose(other.estimate, one.estimate[seen], rtol=1e-9)
    np.testing.assert_allclose(other.variance, one.variance[seen], rtol=1e-6, atol=1e-12)


def test_answers_follow_the_model_and_the_truth_follows_the_map(tmp_path: Path) -> None:
    answers, truth = crowd(7, 30, slope=0.6)
    result = aggregate(answers)
    moved = np.abs(result.estimate - result.estimate_before_gold)[:, 0]
    i = int(np.argmax(moved))
    assert moved[i] > 3.0
    task = result.task_ids[i]
    mean = float(result.predict_answer(None, task).mean[0])
    assert mean == pytest.approx(result.estimate_before_gold[i, 0])
    loaded = Result.load(result.save(tmp_path))
    assert loaded.calibration == result.calibration
    np.testing.assert_allclose(loaded.estimate_before_gold, result.estimate_before_gold)
    again = loaded.predict_answer(None, task)
    assert float(again.mean[0]) == pytest.approx(mean)
    told = explain(answers, result, task)
    # Without one answer the estimate would be nearby, on the side of the truth.
    assert np.abs(told.without - told.estimate).max() < moved[i]
    known = result.task_ids[int(np.flatnonzero(answers.is_gold)[0])]
    assert explain(answers, result, known).estimate == truth[answers.is_gold][0]


def test_other_methods_are_not_mapped() -> None:
    answers, _ = crowd(8, 20, offset=5.0)
    assert BI().fit(answers).calibration.gold_map is None
