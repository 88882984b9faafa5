"""Noise models: known parameters are recovered, simple cases agree with closed forms."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm, truncnorm

import voxpop as vp
from tests.conftest import make_crowd, moved_and_renamed, random_tree
from voxpop import BI, Answers, ConfigError, ConvergenceWarning, Noise, assign_regular
from voxpop.estimators.bi.initialise import prepare
from voxpop.estimators.bi.noise_fit import NoiseFit
from voxpop.estimators.bi.noise_fitted import NoiseFitted
from voxpop.inference.engine import Engine
from voxpop.models.noise import COMPONENTS, LEARNABLE, NoiseParameters
from voxpop.models.noise.careless import Careless
from voxpop.models.noise.component import StartingPoint
from voxpop.models.noise.slips import Slips
from voxpop.models.noise.tails import FREEDOMS, tail_shares
from voxpop.results.answer_weights import answer_weights

Floats = NDArray[np.float64]


# Answers less the median of their task: most near it, one far off.
RESIDUAL = np.array([[0.0], [0.5], [-1.0], [400.0]])


def crowd(
    seed: int,
    *,
    n_tasks: int = 120,
    per_task: int = 6,
    per_worker: int = 24,
    bias_sd: float = 0.0,
    freedom: float = np.inf,
    difficulty: tuple[float, ...] = (1.0,),
    dimension: int = 1,
) -> tuple[Answers, Floats, Floats, Floats]:
    """Answers with known bias, tails and difficulty; noise sd 2 or 6 by worker."""
    rng = np.random.default_rng(seed)
    graph = assign_regular(n_tasks, per_task, per_worker, rng)
    n_workers = graph.worker.max() + 1
    truth = rng.uniform(0, 100, (n_tasks, dimension))
    bias = rng.normal(0, 1, (n_workers, dimension)) * bias_sd
    sd = np.where(rng.random(n_workers) < 0.5, 2.0, 6.0)
    multiple = rng.choice(difficulty, n_tasks)
    noise = rng.normal(size=(len(graph.task), dimension))
    if np.isfinite(freedom):
        noise /= np.sqrt(rng.chisquare(freedom, (len(graph.task), dimension)) / freedom)
    scale = sd[graph.worker] * np.sqrt(multiple[graph.task])
    value = truth[graph.task] + bias[graph.worker] + scale[:, None] * noise
    answers = Answers.from_arrays(graph.task, graph.worker, value)
    # from_arrays numbers by first appearance: bring the knowns into its order.
    tasks, workers = answers.task_ids.astype(int), answers.worker_ids.astype(int)
    return answers, truth[tasks], bias[workers], multiple[tasks]


def fit_levels(answers: Answers, noise: Noise, support: tuple[float, ...]) -> NoiseFitted:
    data = prepare(answers, np.ones(answers.dimension))
    return NoiseFit(data, noise, Engine(), support).fit(1e-7, 200, 1e-7)


def test_without_anything_on_it_is_bi() -> None:
    answers = make_crowd(0, dimension=1, n_tasks=40).answers
    support = (10.0, 100.0, 1000.0)
    ours = fit_levels(answers, Noise(), support)
    plain = BI(support=support, inference="integrate").fit(answers)
    sd = plain.sd
    np.testing.assert_allclose(ours.posterior.estimate / sd, plain.estimate / sd, atol=1e-4)
    np.testing.assert_allclose(ours.posterior.variance, plain.variance, rtol=1e-3)
    np.testing.assert_allclose(ours.level_posterior, plain.worker_posterior, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_left_out_predictions_are_refits_on_trees(seed: int) -> None:
    answers = random_tree(np.random.default_rng(seed), 5, 1, 20.0)
    support = (10.0, 1000.0)

    def fit(part: Answers) -> tuple[Floats, Floats]:
        found = fit_levels(part, Noise(), support)
        assert found.audit is not None
        return found.audit.truth, found.posterior.estimate

    truth, _ = fit(answers)
    checked = 0
    for edge in range(answers.n_edges):
        rest = np.arange(answers.n_edges) != edge
        if answers.task_degree[answers.task[edge]] < 2:
            continue
        part = Answers.from_arrays(answers.task[rest], answers.worker[rest], answers.value[rest])
        without = fit(part)[1]
        row = np.flatnonzero(part.task_ids == answers.task[edge])[0]
        assert truth[edge, 0] == pytest.approx(without[row, 0], abs=2e-3)
        checked += 1
    assert checked > 2


def test_bounds_cut_the_posterior() -> None:
    value = np.array([-1.0, 0.5, 2.0, 99.0, 103.0, 104.0, 50.0, 52.0, 54.0])
    task, worker = np.repeat([0, 1, 2], 3), np.tile([0, 1, 2], 3)
    answers = Answers.from_arrays(task, worker, value)
    found = fit_levels(answers, Noise(bounds=(0.0, 100.0)), (9.0,))
    sd = np.sqrt(3.0)
    for i, mean in enumerate(value.reshape(3, 3).mean(axis=1)):
        cut = truncnorm((0 - mean) / sd, (100 - mean) / sd, loc=mean, scale=sd)
        assert found.posterior.estimate[i, 0] == pytest.approx(cut.mean(), abs=1e-4)
        assert found.posterior.variance[i, 0] == pytest.approx(cut.var(), rel=1e-3)
        # Intervals reach a bound that they would cross without it.
        at = [0.025, 0.05, 0.95, 0.975]
        free = norm(mean, sd).ppf(at)
        ends = np.minimum(cut.ppf(at), free)[:2], np.maximum(cut.ppf(at), free)[2:]
        expected = np.concatenate(ends)
        np.testing.assert_allclose(found.posterior.quantile[i, 0], expected, atol=0.02)


def test_tails_are_recovered() -> None:
    heavy, truth, _, _ = crowd(1, freedom=3.0)
    light, _, _, _ = crowd(2)
    found = BI(noise=Noise(tails="learn")).fit(heavy)
    assert found.noise.tails is not None
    assert 2.0 <= found.noise.tails <= 5.0
    assert (BI(noise=Noise(tails="learn")).fit(light).noise.tails or np.inf) >= 10.0
    gaussian = BI().fit(heavy)
    assert np.mean((found.estimate - truth) ** 2) < np.mean((gaussian.estimate - truth) ** 2)


def test_bias_is_recovered_up_to_a_shift_and_gold_finds_that() -> None:
    answers, truth, bias, _ = crowd(3, bias_sd=8.0)
    found = BI(noise=Noise(bias=True)).fit(answers)
    centred = bias - bias.mean(axis=0)
    error = found.worker_bias - found.worker_bias.mean(axis=0) - centred
    assert np.sqrt((error**2).mean()) < 1.5
    plain = BI().fit(answers)
    assert np.mean((found.estimate - truth) ** 2) < 0.5 * np.mean((plain.estimate - truth) ** 2)
    shifted = Answers.from_arrays(
        answers.task_ids[answers.task], answers.worker_ids[answers.worker], answers.value + 20.0
    )
    gold = np.full(truth.shape, np.nan)
    gold[:12] = truth[:12]
    known = Answers.from_arrays(
        shifted.task_ids[shifted.task],
        shifted.worker_ids[shifted.worker],
        shifted.value,
        gold=gold,
    )
    with_gold = BI(noise=Noise(bias=True)).fit(known)
    rest = ~known.is_gold
    assert abs((with_gold.estimate - truth)[rest].mean()) < 1.0
    assert abs(with_gold.worker_bias.mean() - (bias.mean() + 20.0)) < 1.5


def test_difficulty_is_recovered() -> None:
    answers, _, _, multiple = crowd(4, difficulty=(0.1, 1.0, 10.0), per_task=8)
    found = BI(noise=Noise(difficulty=True)).fit(answers)
    rank = np.corrcoef(np.log(found.task_difficulty), np.log(multiple))[0, 1]
    assert rank > 0.75
    assert np.exp(np.log(found.task_difficulty).mean()) == pytest.approx(1.0)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3.0))
@settings(max_examples=15, deadline=None)
def test_one_level_for_all_is_the_mean_however_tasks_differ_in_size(
    seed: int, spread: float
) -> None:
    """Of one level nothing but the mean can come, and of the others' answers nothing but theirs."""
    rng = np.random.default_rng(seed)
    task, worker = np.repeat(np.arange(20), 4), np.tile(np.arange(16), 5)
    size = np.exp(rng.normal(0, spread, 20))[task]
    answers = Answers.from_arrays(task, worker, size * (10 + rng.normal(0, 3, 80)))
    found = BI(support="common").fit(answers)
    values, close = answers.value.reshape(20, 4), 1e-8 * np.sqrt(found.variance.max())
    np.testing.assert_allclose(found.estimate[:, 0], values.mean(axis=1), atol=close)
    assert found.audit is not None
    others = (values.sum(axis=1, keepdims=True) - values) / 3
    np.testing.assert_allclose(found.audit.truth.reshape(20, 4), others, atol=close)


def test_one_level_for_all_is_the_mean_also_where_an_answer_is_far_off() -> None:
    """Far from all others, where nodes are few, too; an earlier integrator was .4 sd off here."""
    rng = np.random.default_rng(1)
    task, worker = np.repeat(np.arange(2000), 6), np.tile(np.arange(30), 400)
    values = rng.normal(0, 10, (2000, 6))
    values[0, 3] += 2000.0
    found = BI(support="common").fit(Answers.from_arrays(task, worker, values.ravel()))
    sd = np.sqrt(found.variance[:, 0])
    assert (np.abs(found.estimate[:, 0] - values.mean(axis=1)) <= 1e-9 * sd).all()
    np.testing.assert_allclose(sd, sd[0], rtol=1e-9)


def test_one_level_for_all_is_recovered() -> None:
    """The sd of 2,000 residuals has an sd of 2 %: four of these."""
    rng = np.random.default_rng(7)
    task, worker = np.repeat(np.arange(500), 5), np.tile(np.arange(50), 50)
    truth = rng.uniform(0, 100, 500)
    answers = Answers.from_arrays(task, worker, truth[task] + rng.normal(0, 3, 2500))
    found = BI(support="common").fit(answers)
    np.testing.assert_allclose(np.sqrt(found.worker_variance), 3.0, rtol=0.08)


def test_estimates_pulled_to_the_average_are_better_where_answers_are_few() -> None:
    rng = np.random.default_rng(5)
    task, worker = np.repeat(np.arange(300), 2), np.tile(np.arange(60), 10)
    truth = rng.normal(50, 3, 300)
    answers = Answers.from_arrays(task, worker, truth[task] + rng.normal(0, 6, 600))
    drawn = BI(support="common", noise=Noise(truths="learn")).fit(answers)
    flat = BI(support="common").fit(answers)
    best = 1.0 / (1 / 9 + 2 / 36)
    errors = [float(np.mean((r.estimate[:, 0] - truth) ** 2)) for r in (drawn, flat)]
    assert errors[0] < 1.25 * best < errors[1]


@pytest.mark.slow
@pytest.mark.parametrize(("per_task", "per_worker"), [(3, 6), (5, 5), (10, 50)])
def test_intervals_keep_their_word(per_task: int, per_worker: int) -> None:
    """95 % intervals of the truth on crowds from the model itself, all parts on.

    About 600 truths: the share inside is 0.95 with an sd of 0.009 if truths were independent, and
    0.015 with what a shared zero of the biases ties together; 0.91 is 2.7 of these.
    """
    inside = []
    for seed in range(3):
        answers, truth, _, _ = crowd(
            10 + seed, n_tasks=200, per_task=per_task, per_worker=per_worker, bias_sd=2.0
        )
        with warnings.catch_warnings():
            # Sparse crowds may keep swinging a little: their intervals must hold all the same.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = BI(noise=Noise(bias=True, truths="learn"), max_iter=60).fit(answers)
        low, high = found.interval(0.95)
        inside.append((low <= truth) & (truth <= high))
        assert found.audit is not None
        assert 0.92 <= found.audit.coverage_95 <= 0.98
    assert 0.91 <= np.mean(inside) <= 0.99


def test_coordinates_of_unequal_scale_count_alike() -> None:
    answers, truth, _, _ = crowd(6, dimension=2, bias_sd=3.0)
    stretch = np.array([1.0, 1000.0])
    wide = Answers.from_arrays(
        answers.task_ids[answers.task],
        answers.worker_ids[answers.worker],
        answers.value * stretch,
    )
    ours, theirs = (BI(noise=Noise(bias=True)).fit(a) for a in (answers, wide))
    np.testing.assert_allclose(theirs.estimate / stretch, ours.estimate, atol=0.02)
    assert np.isfinite(truth).all()


def test_units_names_and_rows_do_not_matter_with_everything_on() -> None:
    answers = crowd(7, n_tasks=40, per_worker=10, difficulty=(0.2, 5.0))[0]
    moved = moved_and_renamed(answers)
    rich = BI(noise=Noise(tails="learn", bias=True, difficulty=True, truths="learn"), max_iter=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours, theirs = rich.fit(answers), rich.fit(moved)
    row = {task: i for i, task in enumerate(theirs.task_ids.tolist())}
    there = [row[task] for task in answers.task_ids.tolist()]
    back = (theirs.estimate[there] - 1e4) / -3.0
    np.testing.assert_allclose(back / ours.sd, ours.estimate / ours.sd, atol=1e-4)
    np.testing.assert_allclose(theirs.task_difficulty[there], ours.task_difficulty, rtol=1e-4)


def test_the_grid_holds_what_it_should() -> None:
    start = StartingPoint(
        np.array([1.0, 2.5, 6.25]), np.log(np.full(3, 1 / 3)), np.zeros((1, 1)), RESIDUAL
    )
    for freedom in (*FREEDOMS[::12].tolist(), np.inf):
        assert tail_shares(freedom).sum() == pytest.approx(1.0)
        noise = Noise(tails=freedom, difficulty=True, slips=True)
        variance, mixing = NoiseParameters.initial(noise, start).grid()
        np.testing.assert_allclose(mixing.sum(axis=2), 1.0)
        assert mixing.shape == (5, 3, len(variance))
        assert variance.min() >= 1.0 - 1e-6


def test_every_component_can_be_switched_on_and_is_told_of() -> None:
    """By its name, in words of its own, on the command line and in the guide."""
    assert Noise().summary() == "Gaussian noise"
    # Growth goes with neither gains nor bounds.
    most = {name: component for name, component in LEARNABLE.items() if name != "growth"}
    everything = Noise(bounds=(0, 1)).learning(*most)
    assert everything.learned == tuple(most.values())
    assert len(set(everything.summary().split(", "))) >= len(most) + 1
    assert Noise().learning("growth").learned == (LEARNABLE["growth"],)
    guide, commands = (
        (Path(__file__).parent.parent / "docs" / page).read_text()
        for page in ("guide.md", "commands.md")
    )
    assert f"`{','.join(LEARNABLE)}`" in commands, "--noise in docs/commands.md lists them in order"
    for component in COMPONENTS:
        assert f"\n{component.name}\n    {component.about[:20]}" in (Noise.__doc__ or "")
        assert f"| `{component.name}=" in guide, "docs/guide.md has a row for each"
        for beside in (*component.compared_with, *component.compared_alike):
            assert component in Noise().learning(component.name, *beside).learned


def test_a_component_sees_its_own_steps_among_those_of_others() -> None:
    """Answers counted on the grid are told apart by the steps that led there."""
    start = StartingPoint(np.array([1.0, 2.5]), np.log(np.full(2, 0.5)), np.zeros((1, 1)), RESIDUAL)
    parameters = NoiseParameters.initial(Noise(tails=3.0, difficulty=True, slips=True), start)
    pairs = 100.0 * parameters.grid()[1]
    steps = parameters._expected_steps(pairs)
    assert steps.size == len(tail_shares(3.0))
    kept = 1.0 - parameters[Slips].share.sum()
    np.testing.assert_allclose(steps.ravel(), kept * 1000.0 * tail_shares(3.0))


@pytest.mark.slow
@pytest.mark.parametrize("size", [60.0, 1e3, 1e6])
def test_slips_are_counted_and_do_not_move_estimates(size: float) -> None:
    """4 % of 900 answers off by ``size``: the share is found to 1 %, five sds of the count."""
    answers, truth, _, _ = crowd(40)
    clean = BI(noise=Noise(slips=True)).fit(answers)
    assert clean.noise.slip_share is not None
    assert clean.noise.slip_share < 0.01
    rng = np.random.default_rng(0)
    slipped = rng.random(answers.n_edges) < 0.04
    value = answers.value + size * slipped[:, None] * rng.choice([-1, 1], (answers.n_edges, 1))
    found = BI(noise=Noise(slips=True)).fit(replace(answers, value=value))
    assert found.noise.slip_share == pytest.approx(slipped.mean(), abs=0.01)
    error, before = (np.sqrt(((r.estimate - truth) ** 2).mean()) for r in (found, clean))
    assert error < 1.15 * before


def careless_crowd(seed: int) -> tuple[Answers, NDArray[np.bool_], Floats]:
    """A crowd in which three in ten answers of a fifth of the workers are slips; who, how many."""
    answers, *_ = crowd(seed, n_tasks=200, per_worker=30)
    rng = np.random.default_rng(seed)
    bad = np.arange(answers.n_workers) < answers.n_workers // 5
    slipped = rng.random(answers.n_edges) < 0.3 * bad[answers.worker]
    value = answers.value + np.where(slipped, rng.normal(0, 500, answers.n_edges), 0.0)[:, None]
    seen = np.bincount(answers.worker, slipped, answers.n_workers) / answers.worker_degree
    return replace(answers, value=value), bad, np.asarray(seen)


def test_who_slips_often_is_told_from_who_does_not(tmp_path: Path) -> None:
    """Shares of single workers are near what was drawn: 0.15 is two sds of 30 tosses."""
    answers, bad, seen = careless_crowd(3)
    found = BI(noise=Noise(careless=True)).fit(answers)
    assert found.worker_slips[~bad].max() < 0.05
    assert np.abs(found.worker_slips[bad] - seen[bad]).max() < 0.17
    # Levels come once each, without the classes.
    assert (np.diff(found.levels) > 0).all()
    assert found.worker_posterior.shape == (answers.n_workers, len(found.levels))
    np.testing.assert_allclose(found.worker_posterior.sum(axis=1), 1.0)
    table = found.worker_columns()
    np.testing.assert_array_equal(table["slip_share"], found.worker_slips)
    again = vp.Result.load(found.save(tmp_path))
    np.testing.assert_array_equal(again.worker_slips, found.worker_slips)


def test_left_out_answers_decide_whether_workers_differ_in_slips() -> None:
    """The default uses it where some workers slip more often, and not where all do alike."""
    answers, bad, _ = careless_crowd(4)
    found = vp.aggregate(answers)
    assert "some workers slip more often" in found.settings["chosen"]
    assert found.worker_slips[bad].min() > found.worker_slips[~bad].max()
    even, *_ = crowd(4, n_tasks=200, per_worker=30)
    slipped = np.random.default_rng(4).random((even.n_edges, 1)) < 0.05
    assert not vp.aggregate(replace(even, value=even.value + 500.0 * slipped)).worker_slips.size


def test_a_slip_counts_for_nothing_and_its_worker_is_explained() -> None:
    """An answer far off has hardly any weight, whatever the worker's noise; its line says why."""
    answers, bad, _ = careless_crowd(3)
    found = BI(noise=Noise(careless=True)).fit(answers)
    wild = np.abs(answers.value[:, 0] - found.estimate[answers.task, 0]) > 200
    weight, _ = answer_weights(answers, found)
    assert weight[wild].max() < 0.01
    edge = int(np.flatnonzero(wild)[0])
    said = vp.explain(answers, found, answers.task_ids[answers.task[edge]])
    assert "looks like a slip, as do about" in str(said)
    assert "slip_share" in said.columns()
    flagged = {f.worker for f in vp.diagnose(answers, found).flags if f.kind == "slips"}
    assert flagged
    assert flagged <= set(answers.worker_ids[bad].tolist())


def test_workers_with_one_class_are_those_without() -> None:
    """Classes that slip alike leave the model of slips as it is."""
    start = StartingPoint(np.array([1.0, 2.5]), np.log(np.full(2, 0.5)), np.zeros((1, 1)), RESIDUAL)
    plain = NoiseParameters.initial(Noise(slips=True), start)
    classes = NoiseParameters.initial(Noise(careless=True), start)
    same = replace(classes[Careless], share=np.full(3, plain[Slips].share.sum()))
    variance, mixing = classes.replace(same).grid()
    np.testing.assert_allclose(variance, plain.grid()[0])
    np.testing.assert_allclose(mixing, np.tile(plain.grid()[1], (1, 3, 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tails": 0.5}, "tails must be 'learn' or degrees of freedom"),
        ({"tails": "fat"}, "tails must be 'learn'"),
        ({"truths": "guess"}, "truths must be 'flat' or 'learn'"),
        ({"bounds": (3.0, 1.0)}, "bounds must be a lower and a higher number"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Noise(**arguments)  # type: ignore[arg-type]


def test_noise_does_not_go_with_everything() -> None:
    with pytest.raises(ConfigError, match="levels of equal weight"):
        BI(support="nbi", noise=Noise(bias=True))
    with pytest.raises(ConfigError, match="exclude prior_variance"):
        BI(noise=Noise(bias=True), prior_variance=4.0)
