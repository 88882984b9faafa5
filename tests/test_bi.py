"""BI: exact on trees, near the oracle where the paper says so, and settled when it says so."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax

from tests.conftest import BACKENDS, random_tree
from tests.oracles import Floats, brute_force, log_likelihood
from voxpop import (
    BI,
    NBI,
    Answers,
    Average,
    ConfigError,
    ConvergenceWarning,
    DataWarning,
    Exact,
    Model,
    Result,
    StrongOracle,
    aggregate,
    assign_degrees,
    assign_regular,
    score,
    simulate,
)
from voxpop.estimators.bi import noise_levels
from voxpop.inference.groups import fixed_point

SMALL = (10.0, 100.0, 1000.0)


def assert_equals_brute_force(result: Result, answers: Answers, model: Model, atol: float) -> None:
    truth = brute_force(answers, model)
    sd = np.sqrt(truth.variance)
    np.testing.assert_allclose(result.estimate / sd, truth.estimate / sd, atol=atol)
    np.testing.assert_allclose(result.variance / sd**2, 1.0, atol=atol)
    np.testing.assert_allclose(result.worker_posterior, truth.worker_posterior, atol=atol)
    low, _ = result.interval(0.95)
    assert truth.cdf(0, 0, low[0, 0]) == pytest.approx(0.025, abs=1e-6)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**31),
    n_workers=st.integers(2, 6),
    dimension=st.sampled_from([1, 2, 4]),
    prior_variance=st.sampled_from([np.inf, 100.0, 3.0]),
    spread=st.sampled_from([1.0, 10.0, 40.0]),
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_exact_on_trees(
    backend: str, seed: int, n_workers: int, dimension: int, prior_variance: float, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    answers = random_tree(rng, n_workers, dimension, spread)
    support, weights = (2.0, 30.0, 500.0), (0.5, 0.2, 0.3)
    mean = rng.normal(0, 20, dimension)
    model = Model(
        support=support,
        weights=weights,
        prior_mean=mean,
        prior_variance=prior_variance,
        dimension=dimension,
    )
    given = mean if np.isfinite(prior_variance) else 0.0
    bi = BI(
        support=support,
        weights=weights,
        prior_mean=given,
        prior_variance=prior_variance,
        backend=backend,
    )
    assert_equals_brute_force(bi.fit(answers), answers, model, 1e-9)


@pytest.mark.slow
@given(seed=st.integers(0, 2**31), dimension=st.sampled_from([1, 2]), gold=st.booleans())
def test_exact_is_brute_force_on_any_graph(seed: int, dimension: int, gold: bool) -> None:
    rng = np.random.default_rng(seed)
    assignment = assign_degrees([3, 2, 2, 1], [2, 2, 2, 1, 1], rng)
    value = rng.normal(0, 10, (8, dimension))
    truths = None
    if gold:
        truths = np.full((4, dimension), np.nan)
        truths[1] = rng.normal(0, 10, dimension)
    answers = Answers.from_arrays(assignment.task, assignment.worker, value, gold=truths)
    result = Exact(support=(2.0, 50.0)).fit(answers)
    if not gold:
        model = Model(support=(2.0, 50.0), dimension=dimension)
        assert_equals_brute_force(result, answers, model, 1e-9)
        return
    # A gold task is the limit of an ever more certain prior, here task by task by hand.
    assert truths is not None
    np.testing.assert_array_equal(result.estimate[1], truths[1])
    np.testing.assert_array_equal(result.variance[1], 0.0)
    tree = random_tree(rng, 4, dimension, 10.0)
    some = np.full((tree.n_tasks, dimension), np.nan)
    some[0] = 7.0
    with_gold = replace(tree, gold=some)
    ours, exact = BI(support=SMALL).fit(with_gold), Exact(support=SMALL).fit(with_gold)
    np.testing.assert_allclose(ours.estimate, exact.estimate, rtol=1e-9)
    np.testing.assert_allclose(ours.worker_posterior, exact.worker_posterior, atol=1e-9)


@pytest.mark.slow
def test_the_papers_figures_at_five_answers_per_task_and_worker() -> None:
    """20 crowds of 200 tasks, as in Figure 1; the means' standard errors are near 3 %."""
    model = Model(support=SMALL, dimension=2)
    scores: dict[str, list[float]] = {}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        crowd = simulate(model, assign_regular(200, 5, 5, rng), rng)
        for estimator in (
            Average(),
            NBI(),
            BI(support=SMALL),
            StrongOracle(variances=crowd.variances),
        ):
            found = score(estimator.fit(crowd.answers), crowd.truth).mse
            scores.setdefault(estimator.name, []).append(found)
    mse = {name: float(np.mean(found)) for name, found in scores.items()}
    assert mse["strong-oracle"] < mse["bi"] < 1.15 * mse["strong-oracle"]
    assert mse["bi"] < mse["nbi"] < 0.5 * mse["average"]
    assert mse["average"] == pytest.approx(2 * 370 / 5, rel=0.1)


@pytest.mark.slow
def test_three_answers_per_task_bring_the_error_under_100() -> None:
    """The paper's statement on S_small with r = 5; 20 crowds, standard error near 2."""
    model = Model(support=SMALL, dimension=2)
    bi, nbi = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        crowd = simulate(model, assign_regular(200, 3, 5, rng), rng)
        bi.append(score(BI(support=SMALL).fit(crowd.answers), crowd.truth).mse)
        nbi.append(score(NBI().fit(crowd.answers), crowd.truth).mse)
    assert np.mean(bi) < np.mean(nbi) < 100


def test_coordinates_apart_come_close_to_joint_enumeration() -> None:
    model = Model(support=SMALL, dimension=2)
    rng = np.random.default_rng(3)
    crowd = simulate(model, assign_regular(300, 5, 5, rng), rng)
    joint = score(BI(support=SMALL, inference="enumerate").fit(crowd.answers), crowd.truth)
    apart = score(BI(support=SMALL, inference="integrate").fit(crowd.answers), crowd.truth)
    assert apart.mse == pytest.approx(joint.mse, rel=0.03)


def test_in_one_dimension_both_ways_of_inference_agree() -> None:
    rng = np.random.default_rng(3)
    crowd = simulate(Model(support=SMALL), assign_regular(100, 5, 5, rng), rng)
    joint = BI(support=SMALL, inference="enumerate").fit(crowd.answers)
    integrated = BI(support=SMALL, inference="integrate").fit(crowd.answers)
    np.testing.assert_allclose(integrated.estimate, joint.estimate, rtol=1e-5)
    np.testing.assert_allclose(integrated.variance, joint.variance, rtol=1e-5)
    np.testing.assert_allclose(integrated.quantile, joint.quantile, atol=0.02)
    assert joint.settings["inference_used"] == {"enumerate": 100}
    assert integrated.settings["inference_used"] == {"integrate": 100}


def test_many_answers_per_task_cost_no_enumeration() -> None:
    """A task with 60 answers, where 3**60 configurations could never be listed."""
    rng = np.random.default_rng(0)
    degrees = np.array([60, 60, 5, 1, 30])
    assignment = assign_degrees(degrees, np.r_[np.full(36, 2), np.full(84, 1)], rng)
    crowd = simulate(Model(support=SMALL), assignment, rng)
    result = BI(support=SMALL).fit(crowd.answers)
    assert result.trace.converged
    assert result.settings["inference_used"] == {"enumerate": 2, "integrate": 3}
    assert (np.abs(result.estimate - crowd.truth) < 6 * result.sd).all()


def test_a_thousand_answers_per_task() -> None:
    """More configurations than a float can count."""
    rng = np.random.default_rng(0)
    task, worker = np.repeat(np.arange(3), 1000), np.tile(np.arange(1000), 3)
    sd = np.where(np.arange(1000) < 300, 1.0, 30.0)
    answers = Answers.from_arrays(task, worker, rng.normal(0, sd[worker]))
    result = BI(support=(1.0, 900.0)).fit(answers)
    assert (np.abs(result.estimate) < 5 / np.sqrt(300)).all()


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("spread", [1e2, 1e4, 1e6])
def test_answers_far_apart_leave_the_mass_between_them(backend: str, spread: float) -> None:
    """Integration finds it as enumeration does, however far from every answer it lies."""
    apart = Answers.from_arrays([0] * 5, range(5), np.array([0, 1.1, 2.3, 3, 4]) * spread)
    rng = np.random.default_rng(0)
    value = rng.normal(0, 5, (10, 6))
    value[:, 0] += spread
    task, worker = np.repeat(np.arange(10), 6), np.tile(np.arange(6), 10)
    outlier = Answers.from_arrays(task, worker, value.ravel())
    for answers in (apart, outlier):
        ours, theirs = (
            BI(support=SMALL, inference=way, backend=backend).fit(answers)
            for way in ("integrate", "enumerate")
        )
        np.testing.assert_allclose(ours.sd, theirs.sd, rtol=1e-5)
        assert (np.abs(ours.estimate - theirs.estimate) < 1e-5 * theirs.sd).all()


def test_a_prior_far_from_the_answers() -> None:
    answers = Answers.from_arrays([0] * 4, range(4), [0.0, 1.0, 2.0, 3.0])
    prior = {"prior_mean": 1e6, "prior_variance": 1.0}
    ours, theirs = (
        BI(support=(1.0, 100.0), inference=way, **prior).fit(answers)  # type: ignore[arg-type]
        for way in ("integrate", "enumerate")
    )
    assert (np.abs(ours.estimate - theirs.estimate) < 1e-5 * theirs.sd).all()
    np.testing.assert_allclose(ours.sd, theirs.sd, rtol=1e-5)


@given(seed=st.integers(0, 2**31), dimension=st.sampled_from([1, 2]))
def test_gold_is_a_prior_that_is_certain(seed: int, dimension: int) -> None:
    """Brute force with a prior of next to no variance on the gold task, flat on no other."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4, dimension, 10.0)
    gold = np.full((tree.n_tasks, dimension), np.nan)
    gold[0] = rng.normal(0, 10, dimension)
    answers = replace(tree, gold=gold)
    known = tree.worker[tree.task == 0]
    squared = ((tree.value[tree.task == 0] - gold[0]) ** 2).sum(axis=1)
    levels = np.array(SMALL)
    # What a known truth says of its workers, as weights of their levels in all other tasks.
    log_weight = np.zeros((tree.n_workers, 3))
    log_weight[known] = -0.5 * (squared[:, None] / levels + dimension * np.log(levels))
    others = tree.task != 0
    result = BI(support=SMALL).fit(answers)
    if not others.any():
        expected = softmax(log_weight, axis=1)
    else:
        expected = levels_given(tree, others, log_weight, levels)
    np.testing.assert_allclose(result.worker_posterior, expected, atol=1e-9)
    np.testing.assert_array_equal(result.estimate[0], gold[0])


def levels_given(
    answers: Answers, edges: NDArray[np.bool_], log_weight: Floats, levels: Floats
) -> Floats:
    """Posterior of the workers' levels from some edges, with weights for each worker."""
    posterior = np.zeros_like(log_weight)
    for state in product(range(len(levels)), repeat=answers.n_workers):
        log_p = log_weight[np.arange(answers.n_workers), state].sum()
        for i in np.unique(answers.task[edges]):
            mine = edges & (answers.task == i)
            s = levels[np.array(state)[answers.worker[mine]]]
            log_p += log_likelihood(answers.value[mine], s, np.zeros(answers.dimension), np.inf)
        posterior[np.arange(answers.n_workers), state] += np.exp(log_p)
    return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


def frustrated() -> Answers:
    """A small loopy graph whose undamped messages swing for ever."""
    rng = np.random.default_rng(1)
    assignment = assign_regular(12, 3, 3, rng)
    value = rng.normal(0, 1, len(assignment.task)) * rng.choice([1.0, 40.0], len(assignment.task))
    return Answers.from_arrays(assignment.task, assignment.worker, value)


def test_oscillation_is_damped() -> None:
    """Graphs full of answers that no worker of one level could give: of 40, one never settles."""
    damped, unsettled = 0, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        assignment = assign_regular(12, 3, 3, rng)
        scale = rng.choice([1.0, 40.0], len(assignment.task))
        answers = Answers.from_arrays(
            assignment.task, assignment.worker, rng.normal(0, 1, len(scale)) * scale
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            trace = BI(support=(1.0, 1000.0), max_iter=400).fit(answers).trace
        unsettled += not trace.converged
        damped += trace.converged and trace.dampings[-1] > 0
    assert unsettled <= 1
    assert damped >= 3  # so many would have swung for ever


def test_the_fixed_point_does_not_depend_on_when_damping_starts(crowd) -> None:  # type: ignore[no-untyped-def]
    result = BI(support=SMALL, tol=1e-12, max_iter=1000).fit(crowd.answers)
    coarse = BI(support=SMALL, tol=1e-6).fit(crowd.answers)
    assert coarse.trace.n_sweeps < result.trace.n_sweeps
    np.testing.assert_allclose(coarse.estimate, result.estimate, atol=1e-3)


def test_stopping_at_the_limit_is_said() -> None:
    answers = frustrated()
    with pytest.warns(ConvergenceWarning, match="stopped after 2 sweeps"):
        result = BI(support=SMALL, max_iter=2).fit(answers)
    assert not result.trace.converged
    assert len(result.trace.changes) == 2


def test_a_known_answer_teaches_who_to_trust() -> None:
    """Two workers disagree everywhere; gold on some tasks settles whom to believe on the rest."""
    rng = np.random.default_rng(2)
    truth = rng.uniform(0, 100, 40)
    good, bad = truth + rng.normal(0, 1, 40), truth + rng.normal(0, 30, 40)
    task, worker = np.tile(np.arange(40), 2), np.repeat(["good", "bad"], 40)
    gold = np.where(np.arange(40) < 10, truth, np.nan)
    answers = Answers.from_arrays(task, worker, np.r_[good, bad], gold=gold)
    without = Answers.from_arrays(task, worker, np.r_[good, bad])
    bi = BI(support=(1.0, 900.0))
    blind, told = score(bi.fit(without), truth[:, None]), bi.fit(answers)
    assert score(told, truth[:, None]).rmse < 1.2 < blind.rmse
    assert told.worker_variance[0] < 2
    assert (told.estimate[:10, 0] == truth[:10]).all()


@pytest.mark.slow
def test_auto_support_comes_close_to_the_known_one() -> None:
    """Three crowds with 20 answers per worker; the learned grid loses at most 10 %."""
    known, learned = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        crowd = simulate(Model(support=SMALL), assign_regular(300, 5, 20, rng), rng)
        known.append(score(BI(support=SMALL).fit(crowd.answers), crowd.truth).mse)
        learned.append(score(BI().fit(crowd.answers), crowd.truth).mse)
    assert np.mean(learned) < 1.1 * np.mean(known)


def test_auto_support_recovers_the_shares() -> None:
    """75 workers of 40 answers at two far levels: weights near them, up to counting error."""
    rng = np.random.default_rng(0)
    model = Model(support=(4, 400), weights=(0.6, 0.4))
    crowd = simulate(model, assign_regular(600, 5, 40, rng), rng)
    result = BI().fit(crowd.answers)
    low = result.level_weights[result.levels < 40].sum()
    assert low == pytest.approx((crowd.worker_variance == 4).mean(), abs=0.03)
    assert result.levels @ result.level_weights == pytest.approx(
        crowd.worker_variance.mean(), rel=0.15
    )


def test_tasks_far_apart_do_not_move_the_learned_levels() -> None:
    """The gaps between tasks are no steps of a scale."""
    rng = np.random.default_rng(0)
    model, assignment = Model(support=(1, 1000)), assign_regular(200, 3, 10, rng)
    near = simulate(model, assignment, np.random.default_rng(1), side=10.0)
    far = simulate(model, assignment, np.random.default_rng(1), side=1e6)
    found = [BI().fit(crowd.answers) for crowd in (near, far)]
    np.testing.assert_allclose(found[1].levels, found[0].levels, rtol=1e-3)


@pytest.mark.parametrize("typo", [1e6, 1e9, 1e12])
def test_one_wild_answer_does_not_spoil_the_rest(typo: float) -> None:
    rng = np.random.default_rng(0)
    crowd = simulate(Model(support=(1, 25)), assign_regular(100, 5, 10, rng), rng)
    clean = score(BI().fit(crowd.answers), crowd.truth).mse
    value = crowd.answers.value.copy()
    value[0] = typo
    result = BI().fit(replace(crowd.answers, value=value))
    others = result.estimate[1:] - crowd.truth[1:]
    assert float((others**2).mean()) < 1.3 * clean


def test_nothing_known_is_no_certainty() -> None:
    with pytest.warns(DataWarning):
        single = Answers.from_arrays(["a"], ["ann"], [31.0])
    alone = Answers.from_arrays(np.arange(50), np.arange(50) % 7, np.arange(50.0))
    for estimator in (BI(), BI(support="nbi"), NBI(), Average()):
        assert (estimator.fit(single).sd > 1).all()
        assert (estimator.fit(alone).sd > 1).all()


def test_rounded_answers_do_not_pass_for_precision() -> None:
    """All workers alike, and all round: none is much better than the rest."""
    rng = np.random.default_rng(0)
    crowd = simulate(Model(support=(2.0,)), assign_regular(250, 3, 3, rng), rng, side=10.0)
    a = crowd.answers
    steps = Answers.from_arrays(a.task, a.worker, np.rint(a.value))
    result = BI().fit(steps)
    assert result.levels.min() > 0.08
    assert score(result, crowd.truth).mse < 1.1 * score(Average().fit(a), crowd.truth).mse


def test_gold_teaches_nbi_even_with_one_answer_per_task() -> None:
    gold = np.array([0.0, 0.0, 0.0, np.nan, np.nan, np.nan])
    answers = Answers.from_arrays(
        np.arange(6), ["u", "v", "u", "v", "u", "v"], [1.0, 10.0, -1.0, 3.0, 4.0, 5.0], gold=gold
    )
    variance = NBI().fit(answers).worker_variance
    assert 0 < variance[0] < variance[1]


def test_nbi_support_is_the_papers_rule() -> None:
    rng = np.random.default_rng(0)
    crowd = simulate(Model(support=(10, 1000)), assign_regular(400, 5, 40, rng), rng)
    result = BI(support="nbi").fit(crowd.answers)
    found = NBI().fit(crowd.answers)
    free = found.worker_variance[found.worker_variance > 1.001 * found.settings["floor_variance"]]
    assert len(free) >= crowd.answers.n_workers - 3
    np.testing.assert_allclose(result.levels, np.quantile(free, [0.1, 0.9]), rtol=1e-9)


def test_per_task_priors_go_by_id_not_by_position() -> None:
    rng = np.random.default_rng(0)
    tree = random_tree(rng, 5, 1, 10.0)
    prior = {int(i): float(i) for i in tree.task_ids}
    order = rng.permutation(tree.n_edges)
    shuffled = Answers.from_arrays(tree.task[order], tree.worker[order], tree.value[order])
    bi = BI(support=SMALL, prior_mean=prior, prior_variance=4.0)
    ours, theirs = bi.fit(tree), bi.fit(shuffled)
    np.testing.assert_array_equal(
        ours.estimate[np.argsort(tree.task_ids)], theirs.estimate[np.argsort(shuffled.task_ids)]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"support": "best"}, "support must be 'auto', 'nbi', 'common' or a list"),
        ({"support": (1.0, -1.0)}, "positive finite variances"),
        ({"support": (1.0, 1.0)}, "different variances"),
        ({"support": ()}, "list of variances"),
        ({"support": 5}, "list of variances"),
        ({"support": ["a"]}, "must be numbers"),
        ({"support": (1.0, 2.0), "weights": (1.0,)}, "as many as the levels"),
        ({"support": (1.0, 2.0), "weights": (1.0, 0.0)}, "weights must be positive"),
        ({"weights": (1.0,)}, "explicit support"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"accuracy": 1.0}, "accuracy must be between"),
        ({"support": (1.0,), "prior_variance": 0.0}, "prior_variance must be positive"),
        ({"prior_variance": -1.0}, "prior_variance must be positive"),
        ({"prior_mean": 5.0}, "give both"),
        ({"inference": "guess"}, "inference must be"),
        ({"backend": "abacus"}, "backend must be"),
        ({"threads": 0}, "threads must be from 1 to 1024"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BI(**arguments)  # type: ignore[arg-type]


def test_too_much_to_enumerate_or_sum_is_refused(crowd) -> None:  # type: ignore[no-untyped-def]
    answers = Answers.from_arrays(np.zeros(30), np.arange(30), np.arange(30.0))
    with pytest.raises(ConfigError, match=r"30 answers has 3\^30 configurations"):
        BI(support=SMALL, inference="enumerate").fit(answers)
    with pytest.raises(ConfigError, match="use BI"):
        Exact(support=SMALL).fit(crowd.answers)
    many = Answers.from_arrays(np.zeros(1100), np.arange(1100), np.arange(1100.0))
    with pytest.raises(ConfigError, match=r"2\^1100 states"):
        Exact(support=(1.0, 2.0)).fit(many)


@given(n=st.integers(1, 10**9))
def test_sums_of_messages_fit_62_bits(n: int) -> None:
    quantum, floor = fixed_point(n)
    assert n * (-floor / quantum) <= 2.0**62
    assert floor <= -512
    assert quantum < 1e-3


@pytest.mark.slow
def test_intervals_of_noise_hold_between_the_levels() -> None:
    """Sds from 2 to 30, 25 answers each: the level is a grid's, what it stands for is not.

    180 workers: a share of 0.92 has an sd of 0.02; ends at the levels themselves have 0.67.
    """
    inside, n = 0, 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        graph = assign_regular(300, 5, 25, rng)
        sd = np.exp(rng.uniform(np.log(2), np.log(30), graph.n_workers))
        noise = sd[graph.worker] * rng.normal(size=len(graph.task))
        answers = Answers.from_arrays(graph.task, graph.worker, 7.0 * graph.task + noise)
        found = BI().fit(answers)
        low, high = found.worker_interval.T
        assert ((low <= found.worker_variance) & (found.worker_variance <= high)).all()
        true = sd[found.worker_ids.astype(int)] ** 2
        inside, n = inside + int(((low <= true) & (true <= high)).sum()), n + len(true)
    assert inside / n > 0.86


def one_long_task(n: int, seed: int) -> Answers:
    """Answers of ``n`` workers of three kinds to one task, and few to two others."""
    rng = np.random.default_rng(seed)
    sd = rng.choice([1.0, 3.0, 10.0], n)
    task = np.append(np.zeros(n, dtype=int), np.repeat([1, 2], 5))
    worker = np.append(np.arange(n), np.tile(np.arange(5), 2))
    return Answers.from_arrays(task, worker, 50.0 + sd[worker] * rng.normal(size=n + 10))


def test_levels_are_learned_from_a_part_of_a_long_task(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = one_long_task(3000, 0)
    assert noise_levels.thinned(answers) is answers
    whole = aggregate(answers, "bi")
    monkeypatch.setattr(noise_levels, "MOST_OF_TASK", 1500)
    part = noise_levels.thinned(answers)
    assert part.task_degree.tolist() == [1500, 5, 5]
    # Evenly spaced in the order of the distance: the furthest is there, and the middle is the same.
    far, some = (np.sort(noise_levels.median_distance(a)) for a in (answers, part))
    np.testing.assert_allclose(some[-1], far[-1], rtol=0.02)
    np.testing.assert_allclose(np.median(some), np.median(far), rtol=0.05)
    found = aggregate(answers, "bi")
    assert (np.abs(found.estimate - whole.estimate) < whole.sd).all()
    assert (found.sd < 1.5 * whole.sd).all()
    # Who knew all levels would be off by 0.030; shares that have not settled leave 0.09.
    assert max(whole.sd[0, 0], found.sd[0, 0]) < 0.06


def test_the_part_of_a_long_task_does_not_depend_on_the_order_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noise_levels, "MOST_OF_TASK", 100)
    answers = one_long_task(300, 1)
    order = np.random.default_rng(0).permutation(answers.n_edges)
    ids = answers.task_ids[answers.task], answers.worker_ids[answers.worker], answers.value
    shuffled = Answers.from_arrays(*(each[order] for each in ids))
    one, other = (
        sorted(zip(a.worker_ids[a.worker].tolist(), a.value[:, 0].tolist(), strict=True))
        for a in (noise_levels.thinned(answers), noise_levels.thinned(shuffled))
    )
    assert one == other
