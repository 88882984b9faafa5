"""Simulation and metrics: what is drawn follows the model; what is scored is defined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from voxpop import (
    Answers,
    Average,
    ConfigError,
    DataError,
    Model,
    Result,
    Simulation,
    StrongOracle,
    assign_regular,
    read_answers,
    score,
    simulate,
)
from voxpop.results.metrics import rank_correlation


def test_answers_follow_the_model() -> None:
    """20,000 answers per level: a variance is off by 5 standard errors once in a million."""
    rng = np.random.default_rng(0)
    model = Model(support=(4, 100), weights=(0.3, 0.7), dimension=2)
    crowd = simulate(model, assign_regular(5000, 4, 20, rng), rng)
    residual = (crowd.answers.value - crowd.truth[crowd.answers.task]) ** 2
    for level in (4.0, 100.0):
        edges = crowd.worker_variance[crowd.answers.worker] == level
        assert residual[edges].mean() == pytest.approx(level, rel=5 * np.sqrt(1 / edges.sum()))
    share = (crowd.worker_variance == 4.0).mean()
    assert share == pytest.approx(0.3, abs=5 * np.sqrt(0.21 / 1000))
    assert 0 <= crowd.truth.min() < 5 < 95 < crowd.truth.max() <= 100


def test_truths_follow_the_prior() -> None:
    rng = np.random.default_rng(0)
    model = Model(support=(1,), prior_mean=7.0, prior_variance=9.0)
    crowd = simulate(model, assign_regular(4000, 1, 1, rng), rng)
    assert crowd.truth.mean() == pytest.approx(7.0, abs=0.25)
    assert crowd.truth.var() == pytest.approx(9.0, rel=0.12)


def test_a_truth_of_ones_own() -> None:
    rng = np.random.default_rng(0)
    assignment = assign_regular(3, 1, 1, rng)
    crowd = simulate(Model(support=(1e-12,)), assignment, rng, truth=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(crowd.answers.value[:, 0], [1.0, 2.0, 3.0], atol=1e-4)
    with pytest.raises(ConfigError, match=r"truth must have shape \(3, 1\)"):
        simulate(Model(support=(1.0,)), assignment, rng, truth=[1.0, 2.0])


def test_noise_of_ones_own() -> None:
    """1,000 answers: the variance is off by 5 standard errors once in a million."""
    rng = np.random.default_rng(0)
    assignment, model = assign_regular(1000, 2, 1000, rng), Model(support=(1.0,))
    crowd = simulate(model, assignment, rng, worker_variance=[4.0, 1e-12])
    residual = (crowd.answers.value - crowd.truth[crowd.answers.task])[:, 0] ** 2
    spread = np.bincount(crowd.answers.worker, residual) / 1000
    assert spread == pytest.approx([4.0, 0.0], abs=5 * 4.0 * np.sqrt(2 / 1000))
    assert crowd.variances == {"w0": 4.0, "w1": 1e-12}
    for wrong in ([4.0], [4.0, 0.0]):
        with pytest.raises(ConfigError, match="worker_variance must be a positive number"):
            simulate(model, assignment, rng, worker_variance=wrong)


def test_files_hold_the_whole_crowd(crowd: Simulation, tmp_path: Path) -> None:
    folder = crowd.save(tmp_path / "crowd")
    again = read_answers(folder / "answers.csv")
    np.testing.assert_array_equal(again.value, crowd.answers.value)
    known = StrongOracle(variances=crowd.variances).fit(crowd.answers)
    from_file = StrongOracle(variances=str(folder / "workers.csv")).fit(crowd.answers)
    np.testing.assert_array_equal(known.estimate, from_file.estimate)
    # Numbers are read by Python itself: older pandas rounds their last digit.
    text = pd.read_csv(folder / "truth.csv", index_col="task", dtype=str)
    truth = text.astype(float).reset_index()
    assert score(known, truth) == score(known, crowd.truth)
    assert score(known, folder / "truth.csv") == score(known, crowd.truth)


def made_by_hand() -> Result:
    """Two tasks in the plane; the averages are (1, 1) and (5, 5), the sds of a mean of two."""
    value = [[0.0, 0.0], [2.0, 2.0], [4.0, 5.0], [6.0, 5.0]]
    answers = Answers.from_arrays(["a", "a", "b", "b"], ["u", "v", "u", "v"], value)
    return Average().fit(answers)


def test_metrics_by_hand() -> None:
    truth = {"a": (1.0, 4.0), "b": (5.0, 5.0)}
    scored = score(made_by_hand(), truth)
    assert scored.n_tasks == 2
    assert scored.mse == pytest.approx((9 + 0) / 2)
    assert scored.rmse == pytest.approx(np.sqrt(9 / 4))
    assert scored.mae == pytest.approx(3 / 4)
    assert scored.coverage_95 == pytest.approx(3 / 4)
    assert scored.rank_correlation is None


def test_tasks_without_a_truth_are_left_out() -> None:
    assert score(made_by_hand(), {"b": (5.0, 5.0), "z": (0.0, 0.0)}).mse == 0.0
    with pytest.raises(DataError, match="none of its tasks"):
        score(made_by_hand(), {"z": (0.0, 0.0)})
    with pytest.raises(DataError, match="truth must have shape"):
        score(made_by_hand(), np.zeros(3))
    with pytest.raises(DataError, match="one number for each of 2 workers"):
        score(made_by_hand(), np.zeros((2, 2)), [1.0])
    with pytest.raises(DataError, match="none given for worker 'v'"):
        score(made_by_hand(), np.zeros((2, 2)), {"u": 1.0})
    with pytest.raises(DataError, match="no task has a finite value"):
        score(made_by_hand(), np.full((2, 2), np.nan))


def test_rank_correlation() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(a, np.exp(a)) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
    assert rank_correlation(a, np.ones(4)) == 0.0
    assert rank_correlation(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(
        np.sqrt(3) / 2
    )


def test_an_oracle_needs_every_worker(crowd: Simulation) -> None:
    with pytest.raises(DataError, match="none given for worker 'w"):
        StrongOracle(variances={"w00": 1.0}).fit(crowd.answers)
    with pytest.raises(DataError, match="positive finite"):
        StrongOracle(variances=dict.fromkeys(crowd.answers.worker_ids, 0.0)).fit(crowd.answers)
