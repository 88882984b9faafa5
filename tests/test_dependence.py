"""Workers who depend on each other are found and count once; honest ones are left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from voxpop import Answers, Auto, Result, aggregate, diagnose, write_report
from voxpop.results.answer_weights import answer_weights
from voxpop.results.diagnosis import dependence
from voxpop.results.diagnosis.groups import Merging, find_groups

Rng = np.random.Generator
Numbers = NDArray[np.float64]
N_TASKS, PER_TASK, N_WORKERS = 160, 8, 24
SD = 10.0


class Crowd:
    """Tasks dealt to workers by chance, with all workers as noisy; copies are made of it."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.task = np.repeat(np.arange(N_TASKS), PER_TASK)
        dealt = [self.rng.choice(N_WORKERS, PER_TASK, replace=False) for _ in range(N_TASKS)]
        self.worker = np.concatenate(dealt)
        self.truth = self.rng.normal(50, 20, N_TASKS)
        self.value = self.truth[self.task] + SD * self.rng.standard_normal(len(self.task))

    def copy(self, noise: float = 0.0, often: float = 1.0, count: int = 5) -> Answers:
        """Let workers 1, 2, ... give the answers of worker 0, who has one for every task."""
        source = self.truth + SD * self.rng.standard_normal(N_TASKS)
        copied = (self.worker <= count) & (self.rng.random(len(self.task)) < often)
        copied |= self.worker == 0
        near = source[self.task] + noise * self.rng.standard_normal(len(self.task))
        return Answers.from_arrays(self.task, self.worker, np.where(copied, near, self.value))

    def answers(self) -> Answers:
        return Answers.from_arrays(self.task, self.worker, self.value)

    def second_account(self, of: int = 3, noise: float = 0.0, digits: int = 12) -> Answers:
        """Add a worker who repeats all answers of another."""
        again = self.worker == of
        value = self.value[again] + noise * self.rng.standard_normal(int(again.sum()))
        return Answers.from_arrays(
            np.append(self.task, self.task[again]),
            np.append(self.worker, np.full(int(again.sum()), N_WORKERS)),
            np.append(self.value, value).round(digits),
        )


@given(seed=st.integers(0, 10**6), n_workers=st.integers(2, 400))
def test_pairs_of_workers_are_those_that_counting_finds(seed: int, n_workers: int) -> None:
    """All who share three tasks and more, and all their answers to these."""
    rng = np.random.default_rng(seed)
    dealt = [rng.choice(n_workers, min(n_workers, 5), replace=False) for _ in range(60)]
    task, worker = np.repeat(np.arange(60), len(dealt[0])), np.concatenate(dealt)
    answers = Answers.from_arrays(task, worker, rng.normal(size=len(task)))
    at: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i in range(answers.n_tasks):
        edges = range(answers.task_ptr[i], answers.task_ptr[i + 1])
        for e, f in ((e, f) for e in edges for f in edges):
            if answers.worker[e] < answers.worker[f]:
                at.setdefault((int(answers.worker[e]), int(answers.worker[f])), []).append((e, f))
    expected = {both: sorted(edges) for both, edges in at.items() if len(edges) >= 3}
    pairs = dependence.edge_pairs(answers)
    counted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for e, f, k in () if pairs is None else zip(pairs.e, pairs.f, pairs.pair, strict=True):
        assert pairs is not None
        both = int(pairs.first[k]), int(pairs.second[k])
        counted.setdefault(both, []).append((int(e), int(f)))
    assert {both: sorted(edges) for both, edges in counted.items()} == expected


def found(answers: Answers) -> list[set[object]]:
    ids = answers.worker_ids
    return [set(ids[list(group.workers)].tolist()) for group in find_groups(answers).groups]


# Who is found


@pytest.mark.parametrize(("noise", "often"), [(0.0, 1.0), (1.0, 1.0), (0.0, 0.5)])
def test_copies_are_found(noise: float, often: float) -> None:
    """Exact, noisy and occasional copies, none of them missed in five crowds."""
    for seed in range(5):
        answers = Crowd(seed).copy(noise, often)
        groups = find_groups(answers).groups
        assert found(answers) == [{0, 1, 2, 3, 4, 5}]
        # Those who copy at times answer for themselves at other times.
        assert groups[0].whole == (often == 1)


@pytest.mark.parametrize(("noise", "digits"), [(0.0, 12), (2.0, 12), (0.0, 0)])
def test_a_second_account_is_found(noise: float, digits: int) -> None:
    """Also with noise of its own, and on a scale of whole numbers."""
    for seed in range(5):
        assert found(Crowd(seed).second_account(3, noise, digits)) == [{3, N_WORKERS}]


def test_judges_of_one_family_are_found() -> None:
    rng = np.random.default_rng(0)
    error = rng.standard_normal((150, 8))
    error[:, :3] = np.sqrt(0.8) * rng.standard_normal((150, 1)) + np.sqrt(0.2) * error[:, :3]
    value = rng.normal(0, 2, (150, 1)) + error
    task, judge = np.divmod(np.arange(150 * 8), 8)
    assert found(Answers.from_arrays(task, judge, value.ravel())) == [{0, 1, 2}]


# Who is not


def _alike(rng: Rng, mu: Numbers, *_: object) -> Numbers:
    return mu + SD * rng.standard_normal(len(mu))


def _levels(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    return mu + rng.choice([1.0, 5.0, 25.0], N_WORKERS)[w] * rng.standard_normal(len(mu))


def _habits(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    slope, bias = rng.uniform(0.3, 1.3, N_WORKERS), rng.normal(0, 15, N_WORKERS)
    return 50 + slope[w] * (mu - 50) + bias[w] + 5 * rng.standard_normal(len(mu))


def _tails(rng: Rng, mu: Numbers, *_: object) -> Numbers:
    return mu + 5 * rng.standard_t(1.5, len(mu))


def _ratings(rng: Rng, mu: Numbers, *_: object) -> Numbers:
    return np.clip(np.round(mu / 20 + 0.8 * rng.standard_normal(len(mu))), 1, 5)


def _straight_liners(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    return np.where(w < 6, 50.0, _alike(rng, mu, w))


def _rounders(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    value = _alike(rng, mu, w)
    return np.where(w < 12, 10 * np.round(value / 10), value)


def _experts(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    """A few are far better than all others: they agree because they are right."""
    return mu + np.where(w < 4, 0.5, 15.0) * rng.standard_normal(len(mu))


def _readers(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    """Most of some workers' answers, and some of the others', are exactly right."""
    right = rng.random(len(mu)) < np.where(w < 10, 0.9, 0.25)
    return np.where(right, mu.round(2), mu + 15 * rng.standard_normal(len(mu)))


def _shared(rng: Rng, mu: Numbers, w: NDArray[np.int64]) -> Numbers:
    """All workers share an error: the correlation of any pair is that of the others."""
    return mu + rng.normal(0, 20, N_TASKS)[np.arange(len(mu)) // PER_TASK] + _alike(rng, 0 * mu, w)


KINDS = (
    *(_alike, _levels, _habits, _tails, _ratings),
    *(_straight_liners, _rounders, _experts, _readers, _shared),
)


@pytest.mark.parametrize("draw", KINDS)
def test_honest_workers_are_left_alone(draw: Callable[..., Numbers]) -> None:
    """Of 20 crowds of a kind 0.125 are expected to hold a group at most: two have odds of 1 %."""
    groups = 0
    for seed in range(20):
        crowd = Crowd(1000 + seed)
        value = draw(crowd.rng, crowd.truth[crowd.task], crowd.worker)
        groups += bool(find_groups(Answers.from_arrays(crowd.task, crowd.worker, value)))
    assert groups <= 1


def test_a_stuck_sensor_makes_no_group_of_the_good_ones() -> None:
    """Six sensors, one of which always says the same, in 20 crowds.

    Nearest to a line, it had the largest weight in the means that the others are compared with: 40
    of 100 crowds had a group of good sensors. One has; of 20, two would have one with odds of 2 %.
    """
    groups = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        task, worker = np.repeat(np.arange(200), 6), np.tile(np.arange(6), 200)
        offset, sd = np.array([0, 0.5, 0, 2, 0, 0]), np.array([0.2, 0.2, 1, 1, 3, 0.3])
        value = rng.normal(20, 5, 200)[task] + offset[worker] + sd[worker] * rng.normal(size=1200)
        value[worker == 2] = 25.0
        groups += bool(find_groups(Answers.from_arrays(task, worker, value)))
    assert groups <= 1


def test_experts_shown_by_gold_are_not_merged() -> None:
    """Where most workers share an error, the few without it agree: gold shows them to be right."""
    crowd = Crowd(2)
    common = np.where(crowd.worker < 5, 0.0, crowd.rng.normal(0, 6, N_TASKS)[crowd.task])
    value = crowd.truth[crowd.task] + common + crowd.rng.standard_normal(len(crowd.task))
    answers = Answers.from_arrays(crowd.task, crowd.worker, value)
    assert any(group <= {0, 1, 2, 3, 4} for group in found(answers))
    gold = np.where(np.arange(N_TASKS) < 60, crowd.truth, np.nan)
    told = found(Answers.from_arrays(crowd.task, crowd.worker, value, gold=gold))
    # Those who share the error are one opinion; the experts are five.
    assert told == [set(range(5, N_WORKERS))]


def sharing(seed: int, shared: float, share_of_noisy: float = 0.6) -> Answers:
    """Precise workers, and noisy ones with an error of their own and one that they share."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(N_TASKS), PER_TASK)
    worker = np.concatenate(
        [rng.choice(N_WORKERS, PER_TASK, replace=False) for _ in range(N_TASKS)]
    )
    truth, common = rng.normal(50, 20, N_TASKS), shared * rng.standard_normal(N_TASKS)
    noisy = worker < share_of_noisy * N_WORKERS
    own = np.sqrt(37.0 - shared**2) * rng.standard_normal(len(task))
    value = truth[task] + np.where(noisy, common[task] + own, rng.standard_normal(len(task)))
    gold = np.where(np.arange(N_TASKS) < 50, truth, np.nan)[:, None]
    return Answers.from_arrays(task, worker, value, gold=gold)


def test_workers_who_share_an_error_about_known_truths_count_as_one() -> None:
    answers = sharing(0, shared=6.0)
    groups = found(answers)
    assert groups == [set(range(15))]
    # Only gold can show which of the two kinds is wrong.
    assert set(range(15)) not in found(replace(answers, gold=None))


@pytest.mark.parametrize("everybody", [False, True])
def test_noise_and_what_everybody_has_wrong_make_no_group(everybody: bool) -> None:
    for seed in range(10):
        # Independent noise of two sizes, or one error that all workers share.
        answers = sharing(seed, shared=6.0 if everybody else 0.0, share_of_noisy=0.6 + everybody)
        assert not found(answers)


def test_too_many_pairs_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependence, "_MOST_PAIRS", 1000)
    assert not find_groups(Crowd(0).copy())


# What a group counts


def test_an_exact_second_account_changes_nothing() -> None:
    """Estimates and intervals are those without it, to the tolerance of a fit."""
    crowd = Crowd(4)
    alone, both = aggregate(crowd.answers()), aggregate(crowd.second_account())
    np.testing.assert_allclose(both.estimate, alone.estimate, atol=1e-6)
    np.testing.assert_allclose(both.quantile, alone.quantile, atol=1e-5)
    np.testing.assert_allclose(both.worker_variance[:N_WORKERS], alone.worker_variance, rtol=1e-6)


def test_copies_do_not_take_over() -> None:
    """With five copies of one worker, whose errors would count six times, the mean is beaten."""
    ratio = []
    for seed in range(3):
        crowd = Crowd(seed)
        answers = crowd.copy(noise=1.0, count=9)
        rmse = [
            np.sqrt(((aggregate(answers, method=method).estimate[:, 0] - crowd.truth) ** 2).mean())
            for method in ("auto", "average")
        ]
        ratio.append(rmse[0] / rmse[1])
    assert np.mean(ratio) < 0.95


def test_names_and_rows_make_no_difference() -> None:
    answers = Crowd(5).copy(often=0.5)
    order = np.random.default_rng(0).permutation(answers.n_edges)
    name = np.array([f"w{97 * u % 101:03d}" for u in range(N_WORKERS)])
    worker = answers.worker_ids[answers.worker]
    renamed = Answers.from_arrays(
        answers.task_ids[answers.task][order], name[worker][order], answers.value[order]
    )
    assert found(renamed) == [{name[u] for u in group} for group in found(answers)]  # type: ignore[call-overload]
    at = [renamed.task_ids.tolist().index(task) for task in answers.task_ids.tolist()]
    np.testing.assert_allclose(
        aggregate(renamed).estimate[at], aggregate(answers).estimate, atol=1e-3
    )


@given(st.integers(0, 2**32 - 1))
def test_merged_answers_are_means(seed: int) -> None:
    """Every answer has a place, the shares of a place are one in all, and its value is the mean."""
    rng = np.random.default_rng(seed)
    task, worker = np.divmod(np.flatnonzero(rng.random(40) < 0.7), 5)
    answers = Answers.from_arrays(task, worker, rng.standard_normal((len(task), 2)))
    owner = rng.integers(0, 5, answers.n_edges)
    merging = Merging.of(answers, owner)
    merged = merging.answers
    shares = np.bincount(merging.place, merging.share, minlength=merged.n_edges)
    np.testing.assert_allclose(shares, 1.0)
    np.testing.assert_array_equal(merged.task[merging.place], answers.task)
    np.testing.assert_array_equal(merging.owner[merged.worker[merging.place]], owner)
    mean = np.zeros_like(merged.value)
    np.add.at(mean, merging.place, merging.share[:, None] * answers.value)
    np.testing.assert_allclose(merged.value, mean, atol=1e-12)


@pytest.fixture(scope="module")
def fitted() -> tuple[Answers, Result]:
    answers = Crowd(6).second_account()
    return answers, Auto().fit(answers)


def test_a_result_has_every_worker_and_answer_again(fitted: tuple[Answers, Result]) -> None:
    answers, result = fitted
    np.testing.assert_array_equal(result.worker_ids, answers.worker_ids)
    np.testing.assert_array_equal(result.worker_answers, answers.worker_degree)
    np.testing.assert_array_equal(result.task_answers, answers.task_degree)
    assert result.audit is not None
    assert result.audit.truth.shape == result.audit.pit.shape == answers.value.shape
    ids = answers.worker_ids.tolist()
    first, second = ids.index(3), ids.index(N_WORKERS)
    assert result.worker_variance[first] == result.worker_variance[second]
    others = np.delete(result.worker_weight, [first, second])
    assert result.worker_weight[first] < 0.75 * others.max()
    assert result.worker_weight.mean() == pytest.approx(1.0)


def test_the_accounts_share_the_weight_of_one(
    fitted: tuple[Answers, Result], tmp_path: Path
) -> None:
    """Explained, also after the result was saved: two accounts count as much as one worker."""
    answers, result = fitted
    loaded = Result.load(result.save(tmp_path / "saved"))
    for each in (result, loaded):
        weight, _ = answer_weights(answers, each)
        np.testing.assert_allclose(np.bincount(answers.task, weight), 1.0)
        task = answers.task[answers.worker == answers.worker_ids.tolist().index(N_WORKERS)][0]
        explained = each.explain(answers, answers.task_ids[task])
        shown = dict(zip(explained.worker.tolist(), explained.weight, strict=True))
        assert shown[3] == pytest.approx(shown[N_WORKERS])
    write_report(answers, result, tmp_path / "report.html")
    assert "count as one" in (tmp_path / "report.html").read_text()


def test_ids_of_any_kind_can_be_saved(tmp_path: Path) -> None:
    """Also where only equal answers count, in several coordinates, and ids are no text."""
    answers = Crowd(8).copy(often=0.5)
    worker = np.empty(answers.n_edges, dtype=object)
    worker[:] = [date(2020, 1, 1 + int(u)) for u in answers.worker_ids[answers.worker]]
    value = np.concatenate([answers.value, answers.value**2 / 50], axis=1)
    dated = Answers.from_arrays(answers.task_ids[answers.task], worker, value)
    result = aggregate(dated)
    assert "their equal answers count as one" in result.notes[-1]
    assert len(result.worker_ids) == N_WORKERS
    loaded = Result.load(result.save(tmp_path))
    for each in (result, loaded):
        weight, _ = answer_weights(dated, each)
        np.testing.assert_allclose(np.bincount(dated.task, weight), 1.0)


def test_both_accounts_are_flagged_and_named(fitted: tuple[Answers, Result]) -> None:
    answers, result = fitted
    flags = {flag.worker: flag for flag in diagnose(answers, result).flags}
    assert set(flags) == {3, N_WORKERS}
    assert flags[3].other == N_WORKERS
    assert flags[3].kind == "copy"
    note = next(note for note in result.notes if "count as one" in note)
    assert note.startswith("workers 3 and 24 agree far more than independent workers would")


def test_noisy_copies_are_flagged_as_dependent() -> None:
    answers = Crowd(7).copy(noise=1.0)
    flags = diagnose(answers, aggregate(answers, method="average")).flags
    assert {flag.worker for flag in flags} == {0, 1, 2, 3, 4, 5}
    assert {flag.kind for flag in flags} == {"dependent"}
    assert all("correlation" in flag.evidence for flag in flags)
    assert all(flag.false_alarms <= 0.05 for flag in flags)
