"""Workers' gains: an answer is an offset plus a gain times the truth, plus noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import voxpop as vp
from voxpop.arrays import Floats
from voxpop.errors import DataWarning
from voxpop.estimators.bi.gains import LEAST_GAIN, learn_gains
from voxpop.models.noise import Noise
from voxpop.results.prediction import predict_answer

GAIN = Noise(gain=True, truths="learn")


def crowd(
    seed: int,
    gains: Floats | float = 1.0,
    offsets: Floats | float = 0.0,
    n_tasks: int = 150,
    dimension: int = 1,
    n_gold: int = 0,
) -> tuple[vp.Answers, Floats]:
    """30 workers, 6 answers a task; gains about 50 and offsets of each worker, noise of sd 3."""
    rng = np.random.default_rng(seed)
    dealt = vp.assign_regular(n_tasks, 6, n_tasks // 5, rng)
    truth = rng.normal(50, 16, (n_tasks, dimension))
    gains, offsets = (
        np.broadcast_to(np.asarray(a, dtype=float).reshape(-1, 1), (30, dimension))
        for a in (gains, offsets)
    )
    value = 50 + offsets[dealt.worker] + gains[dealt.worker] * (truth[dealt.task] - 50)
    value = value + 3 * rng.standard_normal(value.shape)
    gold = np.full(truth.shape, np.nan)
    gold[:n_gold] = truth[:n_gold]
    order = np.unique(dealt.task, return_index=True)[1].argsort()
    answers = vp.Answers.from_arrays(
        dealt.task, dealt.worker, value, gold=gold[order] if n_gold else None
    )
    return answers, truth[np.asarray(answers.task_ids, dtype=int)]


def of_workers(answers: vp.Answers, values: Floats) -> Floats:
    return np.asarray(values[np.asarray(answers.worker_ids, dtype=int)])


def rmse(estimate: Floats, truth: Floats) -> float:
    return float(np.sqrt(np.mean((estimate - truth) ** 2)))


SPREAD = np.linspace(0.4, 1.6, 30)


def test_known_gains_and_offsets_are_recovered() -> None:
    """Errors of a gain are about 3 / 16 / sqrt(30) = .034; ten seeds gave at most .055."""
    offsets = np.random.default_rng(1).permutation(np.linspace(-6, 6, 30))
    answers, truth = crowd(0, SPREAD, offsets)
    result = vp.BI(noise=GAIN).fit(answers)
    assert rmse(result.worker_gain[:, 0], of_workers(answers, SPREAD)) < 0.08
    assert rmse(result.worker_bias[:, 0], of_workers(answers, offsets)) < 1.5
    assert abs(result.noise.gain_sd[0] - SPREAD.std()) < 0.06
    # Noise is in the units of the answers, and alike.
    assert np.median(result.worker_variance) == pytest.approx(9.0, rel=0.35)
    plain = vp.BI(noise=Noise(bias=True, truths="learn")).fit(answers)
    assert rmse(result.estimate, truth) < 0.8 * rmse(plain.estimate, truth)
    low, high = result.interval(0.95)
    assert ((low <= truth) & (truth <= high)).mean() > 0.9


def test_without_gains_their_spread_vanishes_and_estimates_stay() -> None:
    answers, truth = crowd(2)
    result = vp.BI(noise=GAIN).fit(answers)
    assert result.noise.gain_sd[0] < 0.06
    plain = vp.BI(noise=Noise(truths="learn")).fit(answers)
    assert rmse(result.estimate, truth) < 1.03 * rmse(plain.estimate, truth)


def test_workers_who_do_not_follow_the_truth_do_not_set_the_scale() -> None:
    """A third answer at random; the others' mean gain is one."""
    gains = np.where(np.arange(30) < 10, 0.0, 1.0)
    answers, truth = crowd(3, gains)
    result = vp.BI(noise=GAIN).fit(answers)
    found = result.worker_gain[:, 0]
    follows = of_workers(answers, gains) > 0
    assert (found[~follows] == LEAST_GAIN).all()
    assert abs(found[follows].mean() - 1.0) < 0.05
    slope = np.polyfit(result.estimate[:, 0], truth[:, 0], 1)[0]
    assert abs(slope - 1.0) < 0.05


def test_only_gold_moves_the_mean_gain() -> None:
    """All use .6 of the scale, from 5 too high: invisible without gold."""
    for n_gold, slope in ((0, 1.0), (30, 0.6)):
        answers, truth = crowd(4, 0.6 * SPREAD, 5.0, n_gold=n_gold)
        result = vp.BI(noise=GAIN).fit(answers)
        mean = result.worker_gain.mean()
        assert abs(mean - slope) < 0.04
        if n_gold:
            unknown = ~answers.is_gold
            assert rmse(result.estimate[unknown], truth[unknown]) < 4.0
            centre = result.noise.gain_centre[0]
            assert abs(result.worker_bias.mean() - (55 + 0.6 * (centre - 50) - centre)) < 1.0


def test_mistyped_gold_does_not_move_the_mean_gain() -> None:
    """Two of 20 known truths are 90 too low. It holds in 40 of 40 crowds; before, in 37 of 40."""
    answers, truth = crowd(7011, n_gold=20)
    gold = answers.gold
    assert gold is not None
    wrong = gold.copy()
    wrong[np.flatnonzero(answers.is_gold)[:2]] -= 90
    for mistyped in (replace(answers, gold=gold), replace(answers, gold=wrong)):
        result = vp.BI(noise=GAIN).fit(mistyped)
        assert abs(result.worker_gain.mean() - 1.0) < 0.1
        unknown = ~answers.is_gold
        assert rmse(result.estimate[unknown], truth[unknown]) < 2.0


def test_the_same_gain_of_all_changes_the_unit_alone() -> None:
    answers, _ = crowd(5, SPREAD)
    other = replace(answers, value=3.0 + 0.25 * answers.value)
    one, two = (vp.BI(noise=GAIN).fit(a) for a in (answers, other))
    np.testing.assert_allclose(two.estimate, 3.0 + 0.25 * one.estimate, rtol=1e-5)
    np.testing.assert_allclose(two.sd, 0.25 * one.sd, rtol=1e-3)
    np.testing.assert_allclose(two.worker_gain, one.worker_gain, rtol=1e-5)
    np.testing.assert_allclose(two.worker_bias, 0.25 * one.worker_bias, atol=1e-4)
    assert two.noise.gain_sd == pytest.approx(one.noise.gain_sd, rel=1e-5)


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000), st.floats(-1e3, 1e3), st.floats(0.01, 100.0))
def test_gains_do_not_depend_on_unit_zero_or_order(seed: int, shift: float, unit: float) -> None:
    answers, _ = crowd(seed, SPREAD, n_tasks=50, dimension=2)
    found = learn_gains(answers)
    moved = learn_gains(replace(answers, value=shift + unit * answers.value))
    np.testing.assert_allclose(moved.gain, found.gain, rtol=1e-6)
    np.testing.assert_allclose(moved.own_offset, unit * found.own_offset, atol=1e-5 * unit)
    order = np.random.default_rng(seed).permutation(answers.n_edges)
    task, worker = answers.task_ids[answers.task], answers.worker_ids[answers.worker]
    mixed = vp.Answers.from_arrays(task[order], worker[order], answers.value[order])
    again = learn_gains(mixed)
    place = {name: u for u, name in enumerate(mixed.worker_ids.tolist())}
    same = [place[name] for name in answers.worker_ids.tolist()]
    np.testing.assert_allclose(again.gain[same], found.gain, rtol=1e-6)


def test_an_answer_has_no_part_in_the_gain_that_predicts_it() -> None:
    """Moved by a noise sd, it moves its own prediction by less than a hundredth of that."""
    answers, _ = crowd(6, SPREAD, np.linspace(5, -5, 30))
    before = learn_gains(answers)
    moved = []
    for edge in range(0, answers.n_edges, 150):
        value = answers.value.copy()
        value[edge] += 3.0
        after = learn_gains(replace(answers, value=value))
        away = answers.value[edge] - 50.0
        moved.append(
            after.own_offset[edge]
            - before.own_offset[edge]
            + (after.own_gain[edge] - before.own_gain[edge]) * away
        )
    assert abs(np.mean(moved)) < 0.03


def test_the_density_of_a_left_out_answer_is_one_in_all() -> None:
    """One answer takes every value in turn; it moves the noise learned, so only nearly one."""
    answers, _ = crowd(7, SPREAD, n_tasks=50)
    edge = 17
    centre = float(vp.BI(noise=GAIN).fit(answers).audit.predicted[edge, 0])  # type: ignore[union-attr]
    values = centre + np.linspace(-20, 20, 17)
    density = []
    for value in values.tolist():
        moved = answers.value.copy()
        moved[edge] = value
        audit = vp.BI(noise=GAIN, tol=1e-3).fit(replace(answers, value=moved)).audit
        assert audit is not None
        density.append(float(np.exp(audit.log_density[edge, 0])))
    assert np.trapezoid(density, values) == pytest.approx(1.0, abs=0.1)


def test_predictions_use_the_gain() -> None:
    answers, _ = crowd(8, SPREAD)
    result = vp.BI(noise=GAIN).fit(answers)
    centre = result.noise.gain_centre[0]
    far = int(np.argmax(result.estimate[:, 0]))
    u = int(np.argmin(result.worker_gain[:, 0]))
    found = predict_answer(result, result.worker_ids[u], result.task_ids[far])
    wanted = (
        centre
        + result.worker_bias[u, 0]
        + result.worker_gain[u, 0] * (result.estimate[far, 0] - centre)
    )
    assert found.mean[0] == pytest.approx(wanted)
    assert found.cdf(found.upper)[0] == pytest.approx(0.975, abs=1e-6)
    # Left-out answers are predicted much better than by truths alone.
    assert result.audit is not None
    assert rmse(result.audit.predicted, answers.value) < 0.7 * rmse(
        result.audit.truth, answers.value
    )
    told = vp.explain(answers, result, result.task_ids[far])
    assert set(told.columns()) >= {"gain", "bias"}
    np.testing.assert_allclose(told.weight.sum(), 1.0)


def test_gains_are_saved_and_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    answers, _ = crowd(9, SPREAD, dimension=2, n_tasks=50)
    result = vp.BI(noise=GAIN).fit(answers)
    again = vp.Result.load(result.save(tmp_path / "saved"))
    np.testing.assert_allclose(again.worker_gain, result.worker_gain)
    np.testing.assert_allclose(again.worker_gain_sd, result.worker_gain_sd)
    assert again.noise == result.noise
    assert result.worker_gain.shape == (30, 2)


def test_auto_uses_gains_where_they_are_shown() -> None:
    answers, truth = crowd(10, SPREAD)
    result = vp.aggregate(answers)
    assert "worker gain" in result.settings["chosen"]
    assert result.worker_gain.size
    assert rmse(result.estimate, truth) < 0.8 * rmse(
        vp.aggregate(answers, method="average").estimate, truth
    )
    plain = vp.aggregate(crowd(11)[0])
    assert "worker gain" not in plain.settings["chosen"]


def test_equal_answers_stay_as_they_are() -> None:
    with pytest.warns(DataWarning, match="all answers are equal"):
        answers = vp.Answers.from_arrays(
            np.repeat(np.arange(5), 3), np.tile(np.arange(3), 5), [7.0] * 15
        )
    found = learn_gains(answers)
    np.testing.assert_allclose(found.own_offset, 0.0, atol=1e-9)
    assert np.isfinite(found.gain).all()
