"""P.910, P.913 and two-way effects: biases taken off, as the recommendations and sureal do."""

from __future__ import annotations

import contextlib
import io
import warnings

import numpy as np
import pytest

from tests.oracles import Floats
from voxpop import P910, P913, Answers, Average, ConfigError, Result, TwoWay
from voxpop.data.sums import mean_by_worker
from voxpop.estimators.peers import run_sureal


def opinions(
    seed: int, n_tasks: int = 40, n_workers: int = 12, missing: float = 0.0
) -> tuple[Answers, Floats, Floats]:
    """Scores with bias and unequal noise, some of them missing; truths and biases."""
    rng = np.random.default_rng(seed)
    truth, bias = rng.uniform(1, 5, n_tasks), rng.normal(0, 0.4, n_workers)
    sd = rng.uniform(0.3, 1.2, n_workers)
    task, worker = np.nonzero(rng.random((n_tasks, n_workers)) >= missing)
    value = truth[task] + bias[worker] + sd[worker] * rng.normal(size=len(task))
    answers = Answers.from_arrays(task, worker, value)
    return answers, truth[answers.task_ids], bias[answers.worker_ids]


def by_sureal(model: str, answers: Answers) -> dict[str, Floats]:
    pytest.importorskip("sureal")
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = run_sureal(model, answers)
    return {name: np.asarray(item) for name, item in found.items() if name.startswith(("q", "o"))}


def biases(answers: Answers, result: Result) -> Floats:
    """What P.910 takes for the biases: the workers' mean residuals."""
    residual = answers.value - result.estimate[answers.task]
    return mean_by_worker(answers, residual)[:, 0]


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_p910_is_sureals(missing: float) -> None:
    # Enough answers that sureal gives no worker all the weight, as it may: see below.
    answers, _, _ = opinions(1, 80, 24, missing)
    theirs, ours = by_sureal("P910AnnexEModel", answers), P910().fit(answers)
    np.testing.assert_allclose(ours.estimate[:, 0], theirs["quality_scores"], atol=1e-6)
    np.testing.assert_allclose(biases(answers, ours), theirs["observer_bias"], atol=1e-6)
    noise = np.sqrt(ours.worker_variance)
    np.testing.assert_allclose(noise, theirs["observer_inconsistency"], rtol=1e-5)
    np.testing.assert_allclose(ours.sd[:, 0], theirs["quality_scores_std"], rtol=1e-5)


def test_p910_does_not_collapse_where_sureal_does() -> None:
    """There the most consistent worker's variance runs to zero, and its answers are the result."""
    answers, _, _ = opinions(1)
    theirs, ours = by_sureal("P910AnnexEModel", answers), P910().fit(answers)
    assert theirs["observer_inconsistency"].min() < 1e-3
    assert ours.worker_weight.max() / ours.worker_weight.sum() < 0.99


@pytest.mark.parametrize("missing", [0.0, 0.5])
@pytest.mark.parametrize("erratic", [False, True])
def test_p913_is_sureals(missing: float, erratic: bool) -> None:
    answers, _, _ = opinions(2, 40, 24, missing)
    if erratic:
        sign = np.random.default_rng(0).choice([-1.0, 1.0], (answers.n_edges, 1))
        wild = np.where((answers.worker == 3)[:, None], 2 * sign, 0.0)
        answers = Answers.from_arrays(answers.task, answers.worker, answers.value + wild)
    theirs, ours = by_sureal("P913124Model", answers), P913().fit(answers)
    np.testing.assert_array_equal(ours.worker_weight == 0, theirs["observer_rejected"])
    np.testing.assert_allclose(ours.estimate[:, 0], theirs["quality_scores"], rtol=1e-9)
    np.testing.assert_allclose(ours.sd[:, 0], theirs["quality_scores_std"], rtol=1e-9)
    if erratic:
        assert ours.worker_weight[3] == 0
        assert "left out as erratic" in ours.notes[0]


def test_p910_finds_biases_and_beats_the_average() -> None:
    answers, truth, bias = opinions(3, n_tasks=200, n_workers=20, missing=0.6)
    found = P910().fit(answers)
    assert np.corrcoef(biases(answers, found), bias)[0, 1] > 0.95
    assert biases(answers, found).mean() == pytest.approx(0, abs=1e-12)
    ours, theirs = found.estimate[:, 0] - truth, Average().fit(answers).estimate[:, 0] - truth
    assert (ours**2).mean() < 0.8 * (theirs**2).mean()


def test_p910_with_gold_knows_the_common_bias() -> None:
    answers, truth, _ = opinions(4, n_tasks=100)
    shifted = Answers.from_arrays(
        answers.task,
        answers.worker,
        answers.value + 3.0,
        gold=np.where(np.arange(100) < 50, truth, np.nan),
    )
    error = P910().fit(shifted).estimate[:, 0] - truth
    assert np.abs(error[50:].mean()) < 0.2
    np.testing.assert_array_equal(error[:50], 0.0)


def test_a_worker_with_one_answer_is_not_taken_for_perfect() -> None:
    answers, _, _ = opinions(5)
    task, worker = np.append(answers.task, 0), np.append(answers.worker, 99)
    more = Answers.from_arrays(task, worker, np.append(answers.value[:, 0], 50.0))
    result = P910().fit(more)
    assert result.worker_weight[-1] < 2
    assert abs(result.estimate[0, 0] - P910().fit(answers).estimate[0, 0]) < 4


def balanced_components(y: Floats) -> tuple[float, float, float]:
    """Variance components of a full table by the textbook's analysis of variance."""
    n, m = y.shape
    row, column = y.mean(axis=1, keepdims=True), y.mean(axis=0, keepdims=True)
    residual = y - row - column + y.mean()
    noise = float((residual**2).sum() / ((n - 1) * (m - 1)))
    of_row = float(((row.var(ddof=1)) * m - noise) / m)
    of_column = float(((column.var(ddof=1)) * n - noise) / n)
    return noise, of_row, of_column


@pytest.mark.parametrize("shape", [(15, 6), (6, 15)])
def test_two_way_is_the_textbooks_on_a_full_table(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    n, m = shape
    y = rng.normal(0, 3, (n, 1)) + rng.normal(0, 1, (1, m)) + rng.normal(0, 1, shape)
    task, worker = (index.ravel() for index in np.indices(shape))
    answers = Answers.from_arrays(task, worker, y.ravel())
    result = TwoWay().fit(answers)
    noise, of_task, of_worker = balanced_components(y)
    found = result.settings["variance_components"][0]
    expected = {"noise": noise, "task": of_task, "worker": of_worker}
    assert found == pytest.approx(expected, rel=1e-9)
    # Best linear prediction from the whole covariance, for tasks and their errors.
    z_t, z_w = np.eye(n)[answers.task], np.eye(m)[answers.worker]
    v = of_task * z_t @ z_t.T + of_worker * z_w @ z_w.T + noise * np.eye(len(z_t))
    inverse = np.linalg.inv(v)
    one = np.ones(len(z_t))
    flat = answers.value[:, 0]
    mean = one @ inverse @ flat / (one @ inverse @ one)
    predictor = of_task * z_t.T @ inverse
    np.testing.assert_allclose(result.estimate[:, 0], mean + predictor @ (flat - mean), rtol=1e-9)
    lever = 1 - predictor @ one
    error = of_task - np.diag(predictor @ z_t) * of_task + lever**2 / (one @ inverse @ one)
    np.testing.assert_allclose(result.variance[:, 0], error, rtol=1e-8)


def test_two_way_recovers_its_components_and_covers() -> None:
    """60 tables of 60 tasks, 4 answers each: components within 4 standard errors, and 95 %
    intervals that cover 93 to 97 % of 3,600 truths."""
    rng = np.random.default_rng(1)
    found, inside = [], []
    from voxpop import assign_regular

    for _ in range(60):
        a = assign_regular(60, 4, 8, rng)
        truth, bias = rng.normal(10, 3, 60), rng.normal(0, 2, a.n_workers)
        value = truth[a.task] + bias[a.worker] + rng.normal(0, 1, len(a.task))
        answers = Answers.from_arrays(a.task, a.worker, value)
        result = TwoWay().fit(answers)
        found.append([*result.settings["variance_components"][0].values()])
        low, high = result.interval(0.95)
        there = truth[answers.task_ids]
        inside.append((low[:, 0] <= there) & (there <= high[:, 0]))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(60)
    assert (np.abs(mean - [1, 9, 4]) < 4 * error).all()
    assert 0.93 < np.mean(inside) < 0.97


def test_two_way_says_when_it_cannot_tell() -> None:
    answers = Answers.from_arrays([0, 0, 1, 1], [0, 1, 1, 2], [1.0, 2.0, 3.0, 5.0])
    result = TwoWay().fit(answers)
    np.testing.assert_allclose(result.estimate[:, 0], [1.5, 4.0])
    assert "confounded" in result.notes[0]
    many = Answers.from_arrays(np.arange(5000), np.arange(5000), np.arange(5000.0))
    with pytest.raises(ConfigError, match="dense system of 5000 unknowns"):
        TwoWay().fit(many)
