"""What every estimator owes: units, row order and names do not matter; all output is finite."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.conftest import make_crowd
from voxpop import (
    BI,
    CATD,
    CRH,
    ESTIMATORS,
    GTM,
    NBI,
    P910,
    P913,
    PG1,
    Answers,
    Average,
    ConvergenceWarning,
    DataWarning,
    Estimator,
    Exact,
    GeometricMedian,
    HodgesLehmann,
    Huber,
    KDEm,
    Median,
    Noise,
    QuantiseClassify,
    Raykar,
    Result,
    StrongOracle,
    TwoWay,
    WeakOracle,
    aggregate,
)

Floats = NDArray[np.float64]
SUPPORT = (10.0, 100.0, 1000.0)
# Difficulty, five times the work, is put to the same laws once in test_noise.py.
RICH = Noise(tails="learn", bias=True, truths="learn")


def variances(answers: Answers) -> dict[object, float]:
    """Some variance per worker, by a rule that goes with the id and not with the position."""
    return {u: 1.0 + (len(str(u)) * 7 + sum(map(ord, str(u)))) % 50 for u in answers.worker_ids}


def estimator(kind: str, answers: Answers, scale: float = 1.0) -> Estimator:
    """Make the estimator for answers in units of which one is ``scale`` of the first ones."""
    support = tuple(scale**2 * s for s in SUPPORT)
    told = {u: scale**2 * s for u, s in variances(answers).items()}
    kinds: dict[str, Estimator] = {
        "average": Average(),
        "median": Median(),
        "nbi": NBI(),
        "bi": BI(support=support),
        "bi-integrated": BI(support=support, inference="integrate"),
        "bi-auto": BI(),
        "bi-nbi": BI(support="nbi"),
        "bi-common": BI(support="common", max_iter=15),
        "bi-noise": BI(noise=RICH, max_iter=15),
        "strong-oracle": StrongOracle(variances=told),
        "weak-oracle": WeakOracle(support=support[::2], variances=told),
        "raykar": Raykar(max_iter=30),
        "pg1": PG1(n_sweeps=40, burn_in=10),
        "geometric-median": GeometricMedian(),
        "hodges-lehmann": HodgesLehmann(),
        "huber": Huber(),
        "catd": CATD(max_iter=30),
        "crh": CRH(max_iter=30),
        "crh-absolute": CRH(loss="absolute", reference="max", max_iter=30),
        "gtm": GTM(),
        "kdem": KDEm(max_iter=30),
        "two-way": TwoWay(),
        "p910": P910(max_iter=30),
        "p913": P913(),
        "quantise": QuantiseClassify(max_iter=30),
        "quantise-dawid-skene": QuantiseClassify(model="dawid-skene", max_iter=30),
    }
    return kinds[kind]


KINDS = (
    *("average", "median", "nbi", "bi", "bi-integrated", "bi-auto", "bi-nbi"),
    *("bi-common", "bi-noise"),
    *("strong-oracle", "weak-oracle", "raykar", "pg1"),
    *("geometric-median", "hodges-lehmann", "huber", "catd", "crh", "crh-absolute", "gtm"),
    *("kdem", "two-way", "p910", "p913", "quantise", "quantise-dawid-skene"),
)
# Those who take off a bias, shrink, or answer with a bin may leave the range of the answers.
LEAVES_THE_RANGE = {
    "bi-noise",
    "pg1",
    "two-way",
    "p910",
    "p913",
    "quantise",
    "quantise-dawid-skene",
}
# Learned beside the messages in floating point: equal to fewer digits than sums of integers.
LEARNED_TOLERANCE = {"bi-auto": 1e-9, "bi-common": 1e-6, "bi-noise": 1e-6}
# Drawn at random: what is equal for the others is equal up to the error of the draws.
DRAWN = {"pg1"}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_kind_many_times = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in ("bi-noise", "bi-common") else kind
        for kind in KINDS
    ],
)


def fit(kind: str, answers: Answers, scale: float = 1.0) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator(kind, answers, scale).fit(answers)


def by_id(result: Result) -> tuple[dict[object, Floats], dict[object, float]]:
    tasks = dict(zip(result.task_ids.tolist(), result.estimate, strict=True))
    return tasks, dict(zip(result.worker_ids.tolist(), result.worker_variance, strict=True))


def test_every_estimator_is_under_test() -> None:
    # These have laws of their own: test_auto.py, test_exact.py and, with gold, test_baselines.py
    # and test_judges.py.
    assert set(KINDS) | {"auto", "exact", "gold-first", "judges"} >= set(ESTIMATORS)
    for name, kind in ESTIMATORS.items():
        assert kind.name == name
        assert "\n" not in kind.summary
    assert isinstance(Exact(support=(1.0,)), Estimator)


@every_kind_many_times
@given(
    seed=st.integers(0, 20),
    shift=st.sampled_from([-1000.0, 3.5, 1e6, 1e9]),
    scale=st.sampled_from([0.001, 3.0, -2.0, 4096.0]),
)
def test_units_and_origin_do_not_matter(kind: str, seed: int, shift: float, scale: float) -> None:
    answers = make_crowd(seed, dimension=1, n_tasks=24).answers
    moved = Answers.from_arrays(
        answers.task_ids[answers.task],
        answers.worker_ids[answers.worker],
        scale * answers.value + shift,
    )
    if kind in DRAWN and scale < 0:
        return  # mirrored draws are other draws
    ours, theirs = fit(kind, answers), fit(kind, moved, abs(scale))
    sd = np.sqrt(np.maximum(ours.variance, 1e-12))
    back = (theirs.estimate - shift) / scale
    # What a large shift leaves of a difference is good for fewer digits.
    tolerance = 1e-4 + 1e-14 * abs(shift / scale)
    np.testing.assert_allclose(back / sd, ours.estimate / sd, atol=tolerance, rtol=1e-7)
    np.testing.assert_allclose(theirs.variance / scale**2, ours.variance, rtol=tolerance)
    here, there = np.argsort(ours.worker_ids), np.argsort(theirs.worker_ids)
    np.testing.assert_allclose(
        theirs.worker_variance[there] / scale**2, ours.worker_variance[here], rtol=tolerance
    )
    ratio = theirs.worker_weight[there] / ours.worker_weight[here]
    np.testing.assert_allclose(ratio, 1.0, rtol=tolerance)


@every_kind
def test_a_power_of_two_changes_no_bit(kind: str) -> None:
    answers = make_crowd(6, n_tasks=24).answers
    doubled = replace(answers, value=8 * answers.value)
    ours, theirs = fit(kind, answers), fit(kind, doubled, 8.0)
    # A learned grid goes through logarithms, which a factor does not leave alone.
    np.testing.assert_allclose(
        theirs.estimate, 8 * ours.estimate, rtol=LEARNED_TOLERANCE.get(kind, 0.0)
    )


@pytest.mark.slow
@every_kind
@given(seed=st.integers(0, 2**31))
def test_row_order_does_not_matter(kind: str, seed: int) -> None:
    answers = make_crowd(1, n_tasks=24).answers
    order = np.random.default_rng(seed).permutation(answers.n_edges)
    shuffled = Answers.from_arrays(
        answers.task_ids[answers.task[order]],
        answers.worker_ids[answers.worker[order]],
        answers.value[order],
    )
    (tasks, workers), (tasks2, workers2) = by_id(fit(kind, answers)), by_id(fit(kind, shuffled))
    tolerance = max(1e-9, LEARNED_TOLERANCE.get(kind, 0.0))
    for task, estimate in tasks.items():
        np.testing.assert_allclose(tasks2[task], estimate, rtol=tolerance)
    for worker, variance in workers.items():
        assert workers2[worker] == pytest.approx(variance, rel=tolerance)


@every_kind
def test_names_do_not_matter(kind: str) -> None:
    answers = make_crowd(2, n_tasks=24).answers
    rng = np.random.default_rng(0)
    new_task = rng.permutation(answers.n_tasks)
    names = {u: ("worker", int(i)) for u, i in enumerate(rng.permutation(answers.n_workers))}
    worker = np.empty(answers.n_edges, dtype=object)
    worker[:] = [names[u] for u in answers.worker]
    renamed = Answers.from_arrays(new_task[answers.task], worker, answers.value)
    if kind in ("strong-oracle", "weak-oracle"):
        table = variances(answers)
        told = {names[u]: table[answers.worker_ids[u]] for u in range(answers.n_workers)}
        theirs = replace(estimator(kind, renamed), variances=told).fit(renamed)  # type: ignore
    else:
        theirs = fit(kind, renamed)
    tasks, _ = by_id(theirs)
    ours = fit(kind, answers)
    for i in range(answers.n_tasks):
        there = tasks[int(new_task[i])]
        if kind in DRAWN:
            assert (np.abs(there - ours.estimate[i]) < 2 * ours.sd[i]).all()
        else:
            np.testing.assert_allclose(there, ours.estimate[i], rtol=1e-6)


@pytest.mark.parametrize("dimension", [2, 3])
@given(seed=st.integers(0, 2**31))
def test_rotation_does_not_matter_to_joint_enumeration(dimension: int, seed: int) -> None:
    answers = make_crowd(3, dimension, n_tasks=24).answers
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))
    turned = Answers.from_arrays(answers.task, answers.worker, answers.value @ rotation)
    bi = BI(support=SUPPORT, inference="enumerate")
    ours, theirs = bi.fit(answers), bi.fit(turned)
    np.testing.assert_allclose(theirs.estimate, ours.estimate @ rotation, atol=1e-6)
    np.testing.assert_allclose(theirs.variance.sum(1), ours.variance.sum(1), rtol=1e-6)


@every_kind
def test_the_same_answers_give_the_same_bits_and_are_left_alone(kind: str) -> None:
    answers = make_crowd(4, n_tasks=24).answers
    before = answers.value.copy()
    ours, theirs = fit(kind, answers), fit(kind, answers)
    np.testing.assert_array_equal(ours.estimate, theirs.estimate)
    np.testing.assert_array_equal(ours.quantile, theirs.quantile)
    np.testing.assert_array_equal(answers.value, before)


@every_kind
def test_estimators_and_results_survive_pickling(kind: str) -> None:
    answers = make_crowd(5, n_tasks=24).answers
    ours = estimator(kind, answers)
    again = pickle.loads(pickle.dumps(ours))
    assert repr(again) == repr(ours)
    result = pickle.loads(pickle.dumps(fit(kind, answers)))
    assert result.estimate.shape == (24, 2)


def hard_cases() -> dict[str, Answers]:
    rng = np.random.default_rng(0)
    task, worker = np.repeat(np.arange(30), 4), np.tile(np.arange(12), 10)
    noise = rng.normal(0, 1, 120)
    zeros = np.where(rng.random(120) < 0.64, 0.0, rng.integers(-100, 101, 120))
    stubborn = np.where(worker == 3, 7.0, rng.uniform(0, 100, 30)[task] + 5 * noise)
    wild = noise * np.where(worker % 2, 1e-4, 1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return {
            "all equal": Answers.from_arrays(task, worker, np.full(120, 3.0)),
            "all zero": Answers.from_arrays(task, worker, np.zeros(120)),
            "equal within tasks": Answers.from_arrays(task, worker, task * 1.0),
            "64 % zeros": Answers.from_arrays(task, worker, zeros),
            "one worker gives one number": Answers.from_arrays(task, worker, stubborn),
            "large with small differences": Answers.from_arrays(task, worker, 1e12 + 1e-3 * noise),
            "variance ratio 1e8 and more": Answers.from_arrays(task, worker, wild),
            "one answer": Answers.from_arrays(["t"], ["w"], [5.0]),
            "one worker": Answers.from_arrays(np.arange(5), np.zeros(5), np.arange(5.0)),
            "one answer per task": Answers.from_arrays(
                np.arange(6), [0, 0, 1, 1, 2, 2], rng.normal(size=6)
            ),
            "one answer per worker": Answers.from_arrays(
                [0, 0, 0, 1, 1], np.arange(5), rng.normal(size=5)
            ),
            "tiny": Answers.from_arrays(task, worker, 1e-90 * noise),
            "huge": Answers.from_arrays(task, worker, 1e90 * noise),
            "an outlier beyond reason": Answers.from_arrays(
                task, worker, np.where(np.arange(120) == 7, 1e15, noise)
            ),
            "vectors of unequal scale": Answers.from_arrays(
                task, worker, np.stack([noise, 1e6 * noise, 0 * noise], axis=1)
            ),
            "twelve answers per task": Answers.from_arrays(
                np.repeat(np.arange(10), 12), worker, zeros
            ),
        }


HARD = hard_cases()


@pytest.mark.parametrize("case", HARD)
@every_kind
def test_nothing_non_finite_comes_out(kind: str, case: str) -> None:
    answers = HARD[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = estimator(kind, answers).fit(answers)
    for name in (
        *("estimate", "variance", "quantile", "worker_variance", "worker_interval"),
        *("worker_weight", "worker_posterior", "levels", "level_weights"),
    ):
        assert np.isfinite(getattr(result, name)).all(), name
    assert (result.variance >= 0).all()
    assert (np.diff(result.quantile, axis=2) >= 0).all()
    lowest = np.minimum.reduceat(answers.value, answers.task_ptr[:-1], axis=0)
    highest = np.maximum.reduceat(answers.value, answers.task_ptr[:-1], axis=0)
    accuracy = max(1e-9, LEARNED_TOLERANCE.get(kind, 0.0))
    slack = accuracy * (np.maximum(np.abs(lowest), np.abs(highest)) + highest - lowest + result.sd)
    # With a flat prior no estimate leaves the range of its answers.
    if kind not in LEAVES_THE_RANGE:
        assert ((result.estimate >= lowest - slack) & (result.estimate <= highest + slack)).all()


def test_support_with_a_ratio_of_1e8_is_fine() -> None:
    answers = HARD["variance ratio 1e8 and more"]
    for inference in ("enumerate", "integrate"):
        result = BI(support=(1e-8, 1.0, 1e8), inference=inference).fit(answers)
        assert np.isfinite(result.quantile).all()
        precise = result.worker_posterior[answers.worker_ids % 2 == 1]
        assert (precise[:, 0] > 0.99).all()


def test_aggregate_takes_names_and_estimators(crowd) -> None:  # type: ignore[no-untyped-def]
    assert aggregate(crowd.answers).settings["method"] == "auto"
    assert aggregate(crowd.answers, "median").settings["method"] == "median"
    assert aggregate(crowd.answers, NBI(floor=0.01)).settings["floor"] == 0.01
