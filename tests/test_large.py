"""Large crowds: what a part teaches serves all, and what is left out for speed changes nothing."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.test_noise import crowd
from voxpop import BI, Answers, Auto, ConvergenceWarning, Noise, Result
from voxpop.estimators import plug_in
from voxpop.estimators.auto.subset import neighbourhood
from voxpop.estimators.bi import large_fit, noise_fit
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.large_fit import LargeFit
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.estimators.bi.noise_levels import informative_workers, level_bounds
from voxpop.inference.engine import Engine, native_is_installed

Floats = NDArray[np.float64]
ENGINE = Engine(accuracy=1e-6)
# The portable backend is compared with the compiled one in test_integrate.py and test_native.py.
pytestmark = pytest.mark.skipif(
    not native_is_installed(), reason="fits of thousands of answers take minutes without it"
)


def follow(answers: Answers, noise: Noise, limit: int, support: str = "auto") -> NoiseFitted:
    part = prepare(neighbourhood(answers, limit))
    known = NoiseFit(part, noise, ENGINE, support, 5).fit(1e-6, 300, 1e-6, warn=False)
    whole = LargeFit(prepare(answers, known.scale), noise, ENGINE, support)
    return whole.fit_from_subset(known, 300)


def mse(fitted: NoiseFitted, truth: Floats) -> float:
    return float(np.mean((fitted.posterior.estimate - truth) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "drawn", "support"),
    [
        (Noise(), {}, "auto"),
        (Noise(truths="learn"), {}, "auto"),
        (Noise(bias=True), {"bias_sd": 5.0}, "auto"),
        (Noise(tails="learn"), {"freedom": 3.0, "dimension": 2}, "auto"),
        (Noise(difficulty=True), {"difficulty": (0.2, 1.0, 5.0)}, "common"),
    ],
)
def test_what_a_part_teaches_serves_all(
    noise: Noise, drawn: dict[str, float], support: str
) -> None:
    """Within 0.3 sd, on average, and 6 % of the error, of learning from everybody.

    A sixth of the answers is 120 tasks and a few dozen workers who tell: little to learn shares,
    tails and biases from. (Seen on two seeds of each: up to 0.22 sd, errors of 2 % less to 3 %
    more. The smallest part that is ever taken has forty times as many answers.)
    """
    answers, truth, _, _ = crowd(5, n_tasks=720, **drawn)  # type: ignore[arg-type]
    ours = follow(answers, noise, answers.n_edges // 6, support)
    whole = NoiseFit(prepare(answers), noise, ENGINE, support).fit(1e-6, 300, 1e-6, warn=False)
    away = (ours.posterior.estimate - whole.posterior.estimate) / np.sqrt(whole.posterior.variance)
    assert np.sqrt(np.mean(away**2)) < 0.3
    assert mse(ours, truth) < 1.06 * mse(whole, truth)


@pytest.mark.parametrize("noise", [Noise(truths="learn"), Noise(bias=True)])
def test_it_stops_where_a_sweep_of_all_changes_little(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates are at rest: with a hundredth of the tolerance they are the same."""
    answers = crowd(6, n_tasks=300)[0]
    ours = follow(answers, noise, 600)
    assert ours.trace.converged
    monkeypatch.setattr(large_fit, "_AT_REST", 2e-5)
    exact = follow(answers, noise, 600)
    away = (ours.posterior.estimate - exact.posterior.estimate) / np.sqrt(exact.posterior.variance)
    assert np.abs(away).max() < 0.01


@pytest.mark.parametrize(("noise", "per_task"), [(Noise(slips=True), 3), (Noise(tails="learn"), 2)])
def test_messages_that_swing_come_to_rest(
    noise: Noise, per_task: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a few dozen sweeps; undamped, the same messages swing for ever."""
    answers = crowd(7, n_tasks=600, per_task=per_task, freedom=2.0)[0]
    settled = follow(answers, noise, 600).trace
    assert settled.converged
    assert settled.n_sweeps <= 40
    monkeypatch.setattr(large_fit, "_DAMPINGS", (0.0,))
    with pytest.warns(ConvergenceWarning):
        swinging = follow(answers, noise, 600).trace
    assert not swinging.converged


def test_all_tasks_speaking_one_by_one_say_what_they_say_together() -> None:
    answers = crowd(7, n_tasks=60, dimension=2)[0]
    data = prepare(answers)
    learned = NoiseFit(data, Noise(), ENGINE, "auto").fit(1e-3, 20, 1e-6, warn=False).parameters
    given = noise_fit.sweep_parameters(learned, 1e-6)
    messages = []
    for cuts in (1, 3):
        fit = NoiseFit(data, Noise(), ENGINE, "auto")
        fit._parameters = learned
        fit._messages = passing = noise_fit.integral_messages(
            answers, data.scale, Noise(), ENGINE, learned
        )
        fit._beliefs()
        changes, sums = [], passing.sums
        for cut in range(cuts):
            among = np.arange(answers.n_tasks) % cuts == cut if cuts > 1 else None
            passing.sums = sums  # all tasks hear the same workers
            changes.append(passing.sweep(parameters=given, tasks=among)[0])
        messages.append((passing.messages(), max(changes)))
    np.testing.assert_array_equal(messages[0][0], messages[1][0])
    assert messages[0][1] == messages[1][1]


@pytest.mark.parametrize("noise", [Noise(), Noise(bias=True), Noise(tails="learn", truths="learn")])
def test_a_few_integrals_after_matched_moments_come_to_the_fit(noise: Noise) -> None:
    """What is learned with moments matched is near: one sweep of integrals makes it right."""
    answers = crowd(13, bias_sd=3.0)[0]
    fit = NoiseFit(prepare(answers), noise, ENGINE, "auto")
    fit.learn(12)
    fit.refine()
    ours = fit.fitted(1e-4)
    fine = NoiseFit(prepare(answers), noise, ENGINE, "auto").fit(1e-6, 300, 1e-6, warn=False)
    away = (ours.posterior.estimate - fine.posterior.estimate) / np.sqrt(fine.posterior.variance)
    assert np.sqrt(np.mean(away**2)) < 0.08


def large(answers: Answers) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Auto(contest_answers=700).fit(answers)


@pytest.mark.slow
def test_neither_names_nor_rows_nor_units_matter_to_a_large_crowd() -> None:
    answers = crowd(8, n_tasks=300)[0]
    rows = np.random.default_rng(0).permutation(answers.n_edges)
    other = Answers.from_arrays(
        [f"t{-i}" for i in answers.task_ids[answers.task][rows].astype(int)],
        [f"w{-u}" for u in answers.worker_ids[answers.worker][rows].astype(int)],
        4.0 * answers.value[rows],
    )
    ours, theirs = large(answers), large(other)
    assert ours.settings["chosen"] == theirs.settings["chosen"]
    assert ours.settings["contest_answers_used"] < answers.n_edges
    place = {task: i for i, task in enumerate(theirs.task_ids.tolist())}
    order = [place[f"t{-i}"] for i in ours.task_ids.astype(int)]
    near = 1e-7 * float(np.ptp(theirs.estimate))  # some estimates are next to zero
    np.testing.assert_allclose(theirs.estimate[order], 4.0 * ours.estimate, rtol=1e-6, atol=near)
    np.testing.assert_allclose(theirs.sd[order], 4.0 * ours.sd, rtol=1e-4)


@pytest.mark.slow
def test_too_many_answers_have_the_audit_of_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = crowd(9, n_tasks=300)[0]
    audited = large(answers)
    monkeypatch.setattr(large_fit, "MOST_KEPT", 0)
    ours = large(answers)
    np.testing.assert_array_equal(ours.estimate, audited.estimate)
    assert ours.audit is not None
    assert audited.audit is not None
    assert audited.audit.n_answers == answers.n_edges
    assert ours.audit.n_answers == ours.settings["contest_answers_used"]
    assert not ours.audit.has_pit
    assert abs(ours.audit.coverage_95 - 0.95) < 0.03


def test_who_has_one_answer_tells_nothing_of_how_workers_differ() -> None:
    """Many with one answer each, some equal to the median by chance, leave the levels alone."""
    rng = np.random.default_rng(1)
    core = crowd(10, n_tasks=60)[0]
    task = np.r_[core.task, rng.integers(0, 60, 2000)]
    worker = np.r_[core.worker, core.n_workers + np.arange(2000)]
    centre = np.array([np.median(core.value[core.task == i]) for i in range(60)])
    value = np.r_[core.value[:, 0], centre[task[core.n_edges :]] + rng.normal(0, 4, 2000)]
    both = Answers.from_arrays(task, worker, value)
    assert informative_workers(both, 5).sum() == core.n_workers
    assert level_bounds(both)[0] == level_bounds(both, 5)[0] >= 0.1 * level_bounds(core)[0]
    assert informative_workers(both, 10**6).all()


@pytest.mark.parametrize("dimension", [1, 2])
def test_the_audit_is_the_same_however_many_tasks_are_predicted_at_once(
    dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = crowd(11, n_tasks=40, dimension=dimension)[0]
    gold = np.where(np.arange(40)[:, None] % 9 == 0, np.full((40, dimension), 50.0), np.nan)
    answers = replace(answers, gold=gold)
    together = BI(support=(4.0, 36.0)).fit(answers).audit
    monkeypatch.setattr(plug_in, "_TASKS_AT_ONCE", 7)
    apart = BI(support=(4.0, 36.0)).fit(answers).audit
    assert together is not None
    assert apart is not None
    assert together.to_dict() == apart.to_dict()
    for name in ("pit", "predicted", "predicted_sd", "truth", "log_density"):
        np.testing.assert_array_equal(getattr(together, name), getattr(apart, name))


def test_biases_settle_where_workers_are_alike_in_noise() -> None:
    """One level leaves nothing to say of levels; it goes on until the biases rest, too."""
    answers, _, bias, _ = crowd(12, n_tasks=300, bias_sd=8.0)
    ours = follow(answers, Noise(bias=True), 600, "common")
    assert (ours.level_posterior.argmax(axis=1) == ours.level_posterior[0].argmax()).all()
    assert ours.trace.converged
    assert ours.trace.n_sweeps > 3
    assert np.corrcoef(ours.columns["worker_bias"][:, 0], bias[:, 0])[0, 1] > 0.95
