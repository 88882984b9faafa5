"""A campaign knows at any time what BI would find, in whatever order its answers came."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import make_crowd
from voxpop import (
    BI,
    Answers,
    Campaign,
    ConfigError,
    DataError,
    Model,
    Result,
    Simulation,
    assign_regular,
    simulate,
)
from voxpop.collect.campaign.ledger import Growing, Lists

SUPPORT = (10.0, 100.0, 1000.0)


def stepwise(model: Model, tasks: Sequence[object] = ()) -> Campaign:
    """A campaign that never starts over, whatever is asked, and always settles to its tol."""
    campaign = Campaign(model, tasks)
    posterior = campaign._posterior
    posterior.messages.fresh_below = 0
    posterior.messages.start_over = lambda: None  # type: ignore[method-assign]
    update = posterior.update
    posterior.update = lambda tol: update(min(tol, posterior.tol))  # type: ignore[method-assign]
    return campaign


def feed(campaign: Campaign, answers: Answers, order: np.ndarray, cuts: Sequence[int]) -> None:
    """Add answers in an order, in batches, asking for something after each."""
    task, worker = answers.task_ids[answers.task], answers.worker_ids[answers.worker]
    for part in np.split(order, sorted(cuts)):
        if len(part):
            campaign.add_many(task[part].tolist(), worker[part].tolist(), answers.value[part])
            campaign.next(2)


def by_id(result: Result) -> dict[object, tuple[float, ...]]:
    return {
        i: (*estimate, *np.sqrt(variance))
        for i, estimate, variance in zip(
            result.task_ids.tolist(), result.estimate, result.variance, strict=True
        )
    }


def assert_same(one: Result, other: Result, scale: float = 1.0) -> None:
    """Estimates and sds agree to a millionth of the least noise, beliefs to a millionth."""
    a, b = by_id(one), by_id(other)
    assert a.keys() == b.keys()
    keys = list(a)
    np.testing.assert_allclose(
        [a[i] for i in keys], [b[i] for i in keys], atol=1e-6 * np.sqrt(SUPPORT[0]) * scale
    )
    workers = {u: p for u, p in zip(one.worker_ids.tolist(), one.worker_posterior, strict=True)}
    for u, p in zip(other.worker_ids.tolist(), other.worker_posterior, strict=True):
        np.testing.assert_allclose(workers[u], p, atol=1e-6)


def scratch(answers: Answers, support: Sequence[float] = SUPPORT) -> Result:
    return BI(support=support, tol=1e-12, max_iter=2000).fit(answers)


@given(
    seed=st.integers(0, 30),
    dimension=st.sampled_from([1, 2]),
    shuffle=st.integers(0, 100),
    cuts=st.lists(st.integers(1, 150), max_size=6),
)
@settings(max_examples=25)
def test_the_order_of_arrival_does_not_matter(
    seed: int, dimension: int, shuffle: int, cuts: list[int]
) -> None:
    answers = make_crowd(seed, dimension, n_tasks=40).answers
    campaign = stepwise(Model(support=SUPPORT, dimension=dimension))
    order = np.random.default_rng(shuffle).permutation(answers.n_edges)
    feed(campaign, answers, order, cuts)
    assert_same(campaign.result(), scratch(answers))


def test_one_by_one_is_all_at_once() -> None:
    answers = make_crowd(3, 1, n_tasks=24).answers
    campaign = stepwise(Model(support=SUPPORT))
    feed(campaign, answers, np.arange(answers.n_edges), range(1, answers.n_edges))
    assert_same(campaign.result(), scratch(answers))


def test_every_step_on_the_way_is_what_bi_would_find() -> None:
    answers = make_crowd(5, 1, n_tasks=30).answers
    campaign = stepwise(Model(support=SUPPORT))
    order = np.random.default_rng(1).permutation(answers.n_edges)
    for part in np.array_split(order, 6):
        feed(campaign, answers, part, [])
        assert_same(campaign.result(), scratch(campaign.answers()))


@given(
    seed=st.integers(0, 10**6),
    n_shared=st.integers(2, 60),
    n_workers=st.integers(2, 3),
    attached=st.booleans(),
    cuts=st.lists(st.integers(1, 200), max_size=6),
)
@example(seed=9, n_shared=60, n_workers=2, attached=True, cuts=[40, 80, 120])
@example(seed=12, n_shared=60, n_workers=2, attached=True, cuts=[40, 80, 120])
@settings(max_examples=20)
def test_where_two_workers_share_all_tasks_the_way_there_does_not_matter_either(
    seed: int, n_shared: int, n_workers: int, attached: bool, cuts: list[int]
) -> None:
    # Which of them is the good one the answers may not say; BI then has several fixed points, and
    # step by step another is found in one of thirty such crowds.
    rng = np.random.default_rng(seed)
    task, worker = (x.ravel() for x in np.mgrid[:n_shared, :n_workers])
    others = make_crowd(seed, 1, n_tasks=12).answers
    task = np.concatenate([task, others.task + n_shared])
    worker = np.concatenate([worker, others.worker + n_workers])
    if attached:
        task, worker = np.append(task, n_shared), np.append(worker, 0)
    sd = np.sqrt(rng.choice(SUPPORT, worker.max() + 1))
    value = rng.uniform(0, 100, task.max() + 1)[task] + sd[worker] * rng.normal(size=len(task))
    answers = Answers.from_arrays(task, worker, value)
    campaign = Campaign(Model(support=SUPPORT))
    campaign._posterior.messages.fresh_below = 0
    feed(campaign, answers, rng.permutation(answers.n_edges), cuts)
    campaign.result()
    assert_same(campaign.result(), BI(support=SUPPORT, tol=1e-8, max_iter=500).fit(answers))


@pytest.mark.parametrize(
    ("per_task", "support", "dimension"),
    [(12, SUPPORT, 1), (10, (1.0, 4.0, 16.0, 64.0, 256.0), 2), (9, (10.0, 100.0), 2)],
)
def test_many_answers_per_task_change_the_way_but_not_the_end(
    per_task: int, support: tuple[float, ...], dimension: int
) -> None:
    rng = np.random.default_rng(2)
    model = Model(support=support, dimension=dimension)
    answers = simulate(model, assign_regular(20, per_task, 20, rng), rng).answers
    campaign = stepwise(model)
    feed(campaign, answers, rng.permutation(answers.n_edges), range(20, answers.n_edges, 20))
    assert_same(campaign.result(), scratch(answers, support))


def test_a_coarser_quantum_on_the_way_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voxpop.collect.campaign.messages._FEWEST_MESSAGES", 1)
    answers = make_crowd(8, 1, n_tasks=40).answers
    campaign = stepwise(Model(support=SUPPORT))
    first = campaign._posterior.messages.quantum
    feed(campaign, answers, np.random.default_rng(0).permutation(answers.n_edges), [20, 60, 100])
    assert campaign._posterior.messages.quantum > first
    assert_same(campaign.result(), scratch(answers))


def test_a_few_new_answers_wake_only_their_neighbourhood() -> None:
    rng = np.random.default_rng(0)
    answers = simulate(Model(support=SUPPORT), assign_regular(2000, 5, 20, rng), rng).answers
    campaign = Campaign(Model(support=SUPPORT))
    campaign.add_table(answers)
    before = campaign.result()
    swept: list[int] = []
    sweep = campaign._posterior.messages._sweep
    campaign._posterior.messages._sweep = lambda tasks, damping, tol: (  # type: ignore[method-assign]
        swept.append(len(tasks)) or sweep(tasks, damping, tol)  # type: ignore[func-returns-value]
    )
    campaign.add("t0000", "new", 50.0)
    campaign.next(1)
    assert sum(swept) < 200
    assert_same(campaign.result(), scratch(campaign.answers()))
    assert abs(campaign.result().estimate - before.estimate).max() > 1e-6


@given(shift=st.floats(-100, 100), scale=st.sampled_from([0.5, 2.0, 8.0]), seed=st.integers(0, 9))
@settings(max_examples=10)
def test_units_origin_and_names_do_not_matter(shift: float, scale: float, seed: int) -> None:
    answers = make_crowd(seed, 1, n_tasks=30).answers
    order = np.random.default_rng(seed).permutation(answers.n_edges)
    plain = stepwise(Model(support=SUPPORT))
    feed(plain, answers, order, [30, 60])
    other = stepwise(Model(support=[scale**2 * s for s in SUPPORT]))
    moved = Answers.from_arrays(answers.task + 7, -answers.worker, answers.value * scale + shift)
    feed(other, moved, order, [50])
    expected, found = plain.result(), other.result()
    place = [int(str(i)[1:]) + 7 for i in expected.task_ids]
    at = {i: row for row, i in enumerate(found.task_ids.tolist())}
    rows = [at[i] for i in place]
    np.testing.assert_allclose(
        found.estimate[rows], scale * expected.estimate + shift, atol=1e-5 * scale
    )
    np.testing.assert_allclose(found.sd[rows], scale * expected.sd, rtol=1e-5)
    first, second = plain.next(5), other.next(5)
    np.testing.assert_allclose(second.sd, scale * first.sd, rtol=1e-2)


def test_gold_counts_as_in_bi(crowd: Simulation) -> None:
    answers, d = crowd.answers, crowd.answers.dimension
    campaign = stepwise(Model(support=SUPPORT, dimension=d))
    feed(campaign, answers, np.arange(answers.n_edges), [100])
    known = {i: crowd.truth[k] for k, i in enumerate(answers.task_ids[:8].tolist())}
    campaign.add_gold(known)
    gold = np.full((answers.n_tasks, d), np.nan)
    gold[:8] = crowd.truth[:8]
    told = Answers.from_arrays(
        answers.task_ids[answers.task], answers.worker_ids[answers.worker], answers.value, gold=gold
    )
    assert_same(campaign.result(), scratch(told))
    assert not set(campaign.next(500).task.tolist()) & set(known)


def test_a_prior_counts_as_in_bi() -> None:
    answers = make_crowd(1, 1, n_tasks=30).answers
    model = Model(support=SUPPORT, prior_mean=50.0, prior_variance=400.0)
    campaign = stepwise(model, ["nobody asked yet"])
    feed(campaign, answers, np.arange(answers.n_edges), [40])
    fit = BI(support=SUPPORT, prior_mean=50.0, prior_variance=400.0, tol=1e-12, max_iter=2000)
    assert_same(campaign.result(), fit.fit(answers))
    row = campaign.next(1)
    assert row.task.tolist() == ["nobody asked yet"]
    assert row.sd[0] == pytest.approx(20.0)


def test_an_answer_sent_again_counts_once_and_another_value_is_refused() -> None:
    campaign = Campaign(Model(support=SUPPORT))
    campaign.add("t", "u", 1.5)
    assert campaign.add_many(["t", "t", "t"], ["u", "v", "v"], [1.5, 2.0, 2.0]) == 1
    assert campaign.n_answers == 2
    with pytest.raises(DataError, match=r"worker 'v' has answered task 't' with \[2.0\] and now"):
        campaign.add_many(["new", "t"], ["u", "v"], [1.0, 3.0])
    # All or none.
    assert campaign.n_answers == 2
    assert campaign.task_ids == ["t"]


def test_what_is_refused() -> None:
    campaign = Campaign(Model(support=SUPPORT))
    with pytest.raises(DataError, match="not a finite"):
        campaign.add("t", "u", np.nan)
    with pytest.raises(DataError, match="row 2: an answer needs a task and a worker"):
        campaign.add_many(["t", None], ["u", "u"], [1.0, 1.0])
    with pytest.raises(DataError, match="must be hashable"):
        campaign.add(["t"], "u", 1.0)
    with pytest.raises(DataError, match="1 coordinates"):
        campaign.add("t", "u", [1.0, 2.0])
    with pytest.raises(DataError, match="equally long"):
        campaign.add_many(["t"], ["u", "v"], [1.0, 2.0])
    with pytest.raises(DataError, match="gold"):
        campaign.add_gold({"t": [1.0, 2.0]})
    with pytest.raises(ConfigError, match="one prior_mean for all"):
        Campaign(Model(support=SUPPORT, prior_mean=[[1.0], [2.0]], prior_variance=1.0))
    with pytest.raises(ConfigError, match="value_names"):
        Campaign(Model(support=SUPPORT), value_names=("x", "y"))
    assert campaign.n_answers == 0


@given(st.lists(st.lists(st.integers(0, 6), max_size=8), max_size=8))
def test_lists_hold_what_was_appended(batches: list[list[int]]) -> None:
    lists = Lists()
    expected: list[list[int]] = [[] for _ in range(7)]
    lists.grow(7)
    item = 0
    for owners in batches:
        items = np.arange(item, item + len(owners))
        item += len(owners)
        lists.append(np.array(owners, dtype=np.int64), items)
        for owner, number in zip(owners, items.tolist(), strict=True):
            expected[owner].append(number)
    found, size = lists.gather(np.arange(7))
    assert size.tolist() == [len(part) for part in expected]
    assert found.tolist() == [number for part in expected for number in part]


def test_growing_arrays_keep_their_rows() -> None:
    column = Growing(np.float64, (2,), np.nan)
    for n in range(40):
        column.extend(np.full((1, 2), float(n)))
    column.grow(45)
    assert column.rows[:40, 0].tolist() == list(range(40))
    assert np.isnan(column.rows[40:]).all()


@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
def test_threads_may_share_a_campaign(tmp_path: Path) -> None:
    """Four threads add, one reads. Without the lock this failed in each of 20 runs."""
    n, path = 120, tmp_path / "c.campaign"
    with Campaign.open(path, Model(support=(1.0, 10.0))) as campaign:
        failed: list[BaseException] = []

        def add(worker: int) -> None:
            try:
                for task in range(n):
                    campaign.add(task, worker, float(task + worker))
                    assert campaign.answers().n_edges >= task + 1
            except BaseException as error:
                failed.append(error)

        def read() -> None:
            try:
                while campaign.n_answers < 4 * n and not failed:
                    assert len(campaign.result().task_ids) <= n
                    campaign.next(3)
            except BaseException as error:
                failed.append(error)

        campaign.add(0, "first", 0.0)
        threads = [Thread(target=add, args=(k,)) for k in range(4)] + [Thread(target=read)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        assert failed == []
        assert campaign.n_answers == 4 * n + 1
        assert campaign.answers().n_edges == 4 * n + 1
        twin = copy.deepcopy(Campaign(Model(support=(1.0, 10.0)), ["a"]))
        twin.add("a", "u", 1.0)  # a copy has a lock of its own
    assert Campaign.load(path).n_answers == 4 * n + 1
