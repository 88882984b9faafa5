"""What to ask for next: the largest expected gain per price, within the rules, ties by seed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import make_crowd
from voxpop import (
    Answers,
    Campaign,
    ConfigError,
    DataError,
    Model,
    Rules,
    assign_regular,
    learn_crowd,
    simulate,
)
from voxpop.cli import main
from voxpop.collect.campaign.selection import (
    Candidate,
    ExpectedVariance,
    select_answers,
    shrink_variances,
)
from voxpop.collect.planning.learn_crowd import trust_in_weights

SUPPORT = (10.0, 100.0, 1000.0)


def campaign_of(seed: int, dimension: int = 1, n_tasks: int = 40) -> Campaign:
    campaign = Campaign(Model(support=SUPPORT, dimension=dimension))
    campaign.add_table(make_crowd(seed, dimension, n_tasks).answers)
    return campaign


# Gains


def left(levels: np.ndarray, q: np.ndarray, d: int, v: float) -> float:
    return ExpectedVariance(levels, q[None], d).after(0, v)


@given(v=st.floats(1e-6, 1e9), level=st.sampled_from(SUPPORT), d=st.integers(1, 4))
def test_a_known_level_leaves_what_the_textbook_says(v: float, level: float, d: int) -> None:
    levels = np.array(SUPPORT)
    assert left(levels, (levels == level) * 1.0, d, v) == pytest.approx(v * level / (v + level))


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("v", [5.0, 80.0, 3000.0])
def test_an_unknown_level_leaves_what_sampling_finds(v: float, d: int) -> None:
    # 400,000 draws give the mean within 0.25 %; 1 % is four such errors.
    rng = np.random.default_rng(1)
    levels, q = np.array(SUPPORT), np.array([0.5, 0.3, 0.2])
    total = v + levels
    k = rng.choice(3, 400_000, p=q)
    rho = total[k] * rng.chisquare(d, len(k))
    log_r = np.log(q) - 0.5 * (rho[:, None] / total + d * np.log(total))
    r = np.exp(log_r - log_r.max(axis=1, keepdims=True))
    r /= r.sum(axis=1, keepdims=True)
    pull = r @ (v / total)
    spread = r @ (v / total) ** 2 - pull**2
    variance = r @ (v * levels / total) + rho / d * spread
    assert left(levels, q, d, v) == pytest.approx(variance.mean(), rel=0.01)


@given(
    q=st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
    v=st.floats(1e-3, 1e6),
    d=st.integers(1, 3),
)
def test_not_knowing_the_level_costs_and_more_variance_gains_more(
    q: list[float], v: float, d: int
) -> None:
    levels, belief = np.array(SUPPORT), np.array(q) / sum(q)
    unsure = left(levels, belief, d, v)
    assert belief @ (v * levels / (v + levels)) <= unsure * (1 + 1e-3)
    assert unsure <= v * (belief @ levels) / (v + belief @ levels) * (1 + 1e-3)
    assert v - unsure <= (1.1 * v - left(levels, belief, d, 1.1 * v)) * (1 + 1e-3)


def test_expected_gains_are_the_gains_on_average() -> None:
    # 300 new answers to tasks of 3 answers: the mean of (variance before - after) / expected is 1
    # with a standard error of about 0.06, of the approximation that a truth is Gaussian 0.1 more.
    rng = np.random.default_rng(5)
    ratio = []
    for seed in range(6):
        crowd = make_crowd(seed, 1, 60)
        campaign = Campaign(Model(support=SUPPORT))
        campaign.add_table(crowd.answers)
        before = campaign.result()
        batch = campaign.next(50)
        level = rng.choice(SUPPORT, 50)
        place = {i: row for row, i in enumerate(before.task_ids.tolist())}
        rows = [place[i] for i in batch.task.tolist()]
        value = crowd.truth[rows, 0] + np.sqrt(level) * rng.normal(size=50)
        campaign.add_many(batch.task.tolist(), [f"new{j}" for j in range(50)], value)
        after = campaign.result()
        some = np.unique(rows)
        ratio.append((before.variance - after.variance)[some].sum() / batch.gain.sum())
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.3)


# Trust in what is known of workers


@pytest.mark.parametrize("d", [1, 2])
def test_weights_are_trusted_as_far_as_they_predict_answers(d: int) -> None:
    # Of 2,000 answers the share is known to about 0.04: 0.85 and 0.3 are four such errors off.
    rng = np.random.default_rng(4)
    model = Model(support=SUPPORT, dimension=d)
    crowd = simulate(model, assign_regular(400, 5, 20, rng), rng)
    precision = 1.0 / crowd.worker_variance
    worker = crowd.answers.worker
    assert trust_in_weights(crowd.answers, precision[worker]) > 0.85
    assert trust_in_weights(crowd.answers, rng.permutation(precision)[worker]) < 0.3


def test_without_a_third_answer_anywhere_trust_is_a_half() -> None:
    rng = np.random.default_rng(4)
    answers = simulate(Model(support=SUPPORT), assign_regular(40, 2, 8, rng), rng).answers
    assert trust_in_weights(answers, rng.random(answers.n_edges)) == 0.5
    assert learn_crowd(answers).trust == 0.5


@given(seed=st.integers(0, 50), shift=st.floats(-1e4, 1e4), scale=st.floats(1e-3, 1e3))
@settings(max_examples=15)
def test_trust_knows_no_units_origin_or_row_order(seed: int, shift: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    answers = make_crowd(seed, 1, 30).answers
    weight = rng.uniform(0.1, 10.0, answers.n_edges)
    found = trust_in_weights(answers, weight)
    assert 0.0 <= found <= 1.0
    order = rng.permutation(answers.n_edges)
    names = rng.permutation(answers.n_workers)
    value = shift + scale * answers.value[order]
    again = Answers.from_arrays(answers.task[order], names[answers.worker[order]], value)
    # The edges of the new answers, each with its old weight.
    old = {(i, u): w for i, u, w in zip(answers.task, names[answers.worker], weight, strict=True)}
    same = [
        old[again.task_ids[i], again.worker_ids[u]]
        for i, u in zip(again.task, again.worker, strict=True)
    ]
    assert trust_in_weights(again, 3.0 * np.array(same)) == pytest.approx(found, abs=1e-6)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 1.0, 30.0, np.inf]), st.integers(0, 9)),
        min_size=1,
        max_size=9,
    ),
    trust=st.floats(0.0, 1.0),
)
def test_hedging_keeps_the_total_and_goes_from_variances_to_counts(
    rows: list[tuple[float, int]], trust: float
) -> None:
    variance = np.array([v if n else np.inf for v, n in rows])
    count = np.array([n for _, n in rows])
    found = shrink_variances(variance, count, trust)
    some = np.isfinite(variance) & (variance > 0)
    np.testing.assert_array_equal(found[~some], variance[~some])
    assert found[some].sum() == pytest.approx(variance[some].sum())
    np.testing.assert_allclose(shrink_variances(variance, count, 1.0), variance)
    alike = shrink_variances(variance, count, 0.0)[some] * count[some]
    np.testing.assert_allclose(alike, alike[:1].repeat(len(alike)))
    # Never less than the share of what the number of answers says.
    assert (found[some] >= (1.0 - trust) * alike / count[some] * (1 - 1e-9)).all()


def test_without_trust_answers_are_bought_evenly() -> None:
    campaign = campaign_of(2)
    campaign._posterior.trust = 0.0
    place = {i: row for row, i in enumerate(campaign.task_ids)}
    count = np.bincount(campaign._ledger.task.rows)
    for i in campaign.next(70).task.tolist():
        assert count[place[i]] == count.min()
        count[place[i]] += 1


# The choice


@given(
    variance=st.lists(
        st.sampled_from([0.5, 1.0, 2.0, 50.0, 900.0, np.inf]), min_size=1, max_size=9
    ),
    prices=st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
    k=st.integers(1, 12),
)
@settings(max_examples=60)
def test_the_choice_is_the_greedy_one(
    variance: list[float], prices: list[float], seed: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    n, w = len(variance), len(prices)
    levels = np.array(SUPPORT)
    belief = rng.dirichlet(np.ones(3), w)
    expected = ExpectedVariance(levels, belief, 1)
    barred = [set(np.flatnonzero(rng.random(n) < 0.3).tolist()) for _ in range(w)]
    room = rng.integers(0, 4, w).tolist()
    may = rng.random(n) < 0.8
    candidates = [Candidate(u, prices[u], room[u], set(barred[u])) for u in range(w)]
    chosen = select_answers(np.array(variance), may, expected, candidates, k, rng)
    # The same by looking at every pair.
    v = np.array(variance)
    for choice in chosen:
        offers: dict[tuple[int, int], tuple[float, float]] = {}
        for u in range(w):
            for i in np.flatnonzero(may).tolist():
                if room[u] > 0 and i not in barred[u]:
                    rest = expected.after(u, v[i])
                    infinite = np.isinf(v[i])
                    offers[i, u] = (
                        (-np.inf, rest * prices[u]) if infinite else (-(v[i] - rest) / prices[u], 0)
                    )
        best = min(offers.values())
        assert offers[choice.task, choice.candidate][0] == pytest.approx(best[0])
        assert offers[choice.task, choice.candidate][1] == pytest.approx(best[1])
        v[choice.task] = choice.after
        room[choice.candidate] -= 1
        barred[choice.candidate].add(choice.task)
    left_over = [(i, u) for u in range(w) for i in np.flatnonzero(may) if i not in barred[u]]
    assert len(chosen) == k or not any(room[u] > 0 for _, u in left_over)


@given(
    seed=st.integers(0, 20),
    k=st.integers(1, 60),
    capacity=st.integers(1, 14),
    per_worker=st.integers(1, 8),
)
@settings(max_examples=25)
def test_nobody_gets_what_is_not_for_him(seed: int, k: int, capacity: int, per_worker: int) -> None:
    campaign = campaign_of(seed)
    answers = campaign.answers()
    rng = np.random.default_rng(seed)
    given_pairs = {
        (answers.task_ids[i], answers.worker_ids[u])
        for i, u in zip(answers.task, answers.worker, strict=True)
    }
    workers = [*answers.worker_ids[:6].tolist(), "new", "newer"]
    tasks = answers.task_ids.tolist()
    pending = [(tasks[i], workers[u]) for i, u in rng.integers(0, [40, 8], (5, 2))]
    pending = [pair for pair in dict.fromkeys(pending) if pair not in given_pairs]
    forbidden = [(tasks[i], workers[u]) for i, u in rng.integers(0, [40, 8], (60, 2))]
    skip = tasks[:3]
    batch = campaign.next(
        k,
        workers,
        rules=Rules(capacity=capacity, per_worker=per_worker),
        pending=pending,
        forbidden=forbidden,
        skip=skip,
    )
    pairs = batch.pairs
    assert len(set(pairs)) == len(pairs) <= k
    assert not set(pairs) & (given_pairs | set(pending) | set(forbidden))
    assert not set(batch.task.tolist()) & set(skip)
    for worker in workers:
        got = sum(u == worker for _, u in pairs)
        had = sum(u == worker for _, u in given_pairs | set(pending))
        assert got <= max(0, min(capacity - had, per_worker))


def test_a_batch_is_shared_out_evenly_unless_told_otherwise() -> None:
    campaign = campaign_of(1)
    there = campaign.worker_ids[:5]
    even = campaign.next(20, there)
    assert pd.Series(even.worker).value_counts().tolist() == [4] * 5
    free = campaign.next(20, there, rules=Rules(per_worker=20))
    assert free.gain.sum() > even.gain.sum()
    # Of more workers than are needed the best are asked.
    result = campaign.result()
    belief = {
        u: p @ SUPPORT
        for u, p in zip(result.worker_ids.tolist(), result.worker_posterior, strict=True)
    }
    best = campaign.next(1, there).worker[0]
    assert belief[best] == min(belief[u] for u in there)


def test_a_batch_spreads_over_tasks_as_answers_take_the_variance_down() -> None:
    campaign = Campaign(Model(support=SUPPORT), range(30))
    batch = campaign.next(30)
    assert sorted(batch.task.tolist()) == list(range(30))
    campaign.add_many(range(30), range(30), np.linspace(0, 10, 30))
    again = campaign.next(60)
    assert np.bincount(np.array(again.task, dtype=int)).max() == 2


def test_ties_are_broken_by_the_seed() -> None:
    campaign = Campaign(Model(support=SUPPORT), range(500))
    one, same, other = (
        campaign.next(20, rng=np.random.default_rng(seed)).task.tolist() for seed in (1, 1, 2)
    )
    assert one == same != other
    assert one != sorted(one)


def test_what_was_asked_for_is_counted_on() -> None:
    campaign = campaign_of(2)
    first = campaign.next(5)
    # Five at once are five one by one.
    pending: list[tuple[Any, Any]] = []
    for _ in range(5):
        pending += campaign.next(1, pending=pending).pairs
    assert [i for i, _ in pending] == first.task.tolist()


def test_prices_decide_between_equals() -> None:
    campaign = campaign_of(3)
    dear = pd.DataFrame({"worker": ["new", "newer"], "price": [2.0, 1.0]})
    assert campaign.next(1, dear).worker.tolist() == ["newer"]
    best, worst = _best_and_worst(campaign)
    table = pd.DataFrame({"worker": [best, worst], "price": [1.5, 1.0]})
    assert campaign.next(1, table).worker.tolist() == [best]
    table["price"] = [1e6, 1.0]
    assert campaign.next(1, table).worker.tolist() == [worst]
    table["capacity"] = [1000, 0]
    assert campaign.next(2, table).worker.tolist() == [best]


def _best_and_worst(campaign: Campaign) -> tuple[object, object]:
    found = campaign.result()
    order = np.argsort(found.worker_variance)
    return found.worker_ids[order[0]], found.worker_ids[order[-1]]


def test_tasks_that_are_done_are_left_alone_and_the_campaign_stops() -> None:
    campaign = campaign_of(4)
    found = campaign.result()
    low, high = found.interval()
    half = (high - low)[:, 0] / 2
    target = float(np.median(half))
    batch = campaign.next(100, rules=Rules(half_width=target))
    assert batch.n_done == (half <= target).sum()
    assert not set(batch.task) & set(found.task_ids[half <= target])
    done = campaign.next(5, rules=Rules(half_width=1e3))
    assert (len(done), done.stop) == (0, "every task is done")
    assert "stop: every task is done" in done.summary()


def test_the_campaign_stops_for_want_of_money_gain_or_workers() -> None:
    campaign = campaign_of(5)
    spent = campaign.next(10, rules=Rules(price=0.4, budget=1.0))
    assert (len(spent), spent.stop) == (2, "the budget is spent")
    assert spent.cost <= 1.0
    gain = campaign.next(3).gain / len(campaign.task_ids)
    some = campaign.next(40, rules=Rules(least_gain=float(gain[2]) * 0.999))
    assert len(some) == 3
    assert some.stop == "no answer reaches the minimum gain per unit of cost"
    full = campaign.next(4, ["w0"], rules=Rules(capacity=1))
    assert len(full) == 1
    assert full.stop == "no available worker can take more tasks"


def test_what_is_refused() -> None:
    campaign = campaign_of(6)
    with pytest.raises(ConfigError, match="k must be"):
        campaign.next(0)
    with pytest.raises(DataError, match="more than once"):
        campaign.next(1, ["a", "a"])
    with pytest.raises(DataError, match="try a list"):
        campaign.next(1, "ann")
    with pytest.raises(DataError, match="forbidden: there is no task 'nowhere'"):
        campaign.next(1, ["a"], forbidden=[("nowhere", "a")])
    with pytest.raises(ConfigError, match="price must be positive"):
        Rules(price=0.0)
    with pytest.raises(ConfigError, match="capacity must be"):
        Rules(capacity=0)
    with pytest.raises(DataError, match="price of a worker"):
        campaign.next(1, pd.DataFrame({"worker": ["a"], "price": [-1.0]}))


@pytest.mark.slow
def test_adaptive_buying_is_no_worse_than_even_buying() -> None:
    # Six crowds of 60 tasks with 4 answers each: the mean squared error falls to about a fifth
    # of that of even buying (benchmarks/adaptive.py), where chance alone makes 0.3 more or less.
    from benchmarks.buying import Buyer, Drawn, curve

    model = Model(support=(10.0, 1000.0))
    error = np.zeros((6, 2))
    for seed in range(6):
        for adaptive in (False, True):
            world = Drawn(model, 60, 12, seed)
            buyer = Buyer(world, Campaign(model, range(60)), adaptive)
            error[seed, int(adaptive)] = curve(buyer, buyer.by_arrival, [240], relearn=False)[0]
    even, ours = error.mean(axis=0)
    assert ours < 0.8 * even


# The command


def write_answers(folder: Path) -> Path:
    answers = make_crowd(7, 1, 30).answers
    table = pd.DataFrame(
        {
            "task": answers.task_ids[answers.task],
            "worker": answers.worker_ids[answers.worker],
            "value": answers.value[:, 0],
        }
    )
    table.to_csv(folder / "answers.csv", index=False)
    return folder / "answers.csv"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["next", *map(str, arguments)])


def test_the_command_writes_what_the_campaign_says(tmp_path: Path) -> None:
    path = write_answers(tmp_path)
    support = ("--support", "10,100,1000")
    done = run(path, "-k", 6, *support, "--seed", 3)
    assert done.exit_code == 0, done.stderr
    campaign = Campaign(Model(support=SUPPORT))
    campaign.add_table(path)
    expected = campaign.next(6, rng=np.random.default_rng(3))
    table = pd.read_csv(StringIO(done.stdout))
    assert table["task"].tolist() == expected.task.tolist()
    np.testing.assert_allclose(table["gain"], expected.gain)
    assert table["worker"].isna().all()
    assert "0 of 30 tasks done; expected RMSE" in done.stderr
    assert run(path, "-k", 6, *support, "-o", tmp_path / "out.csv").exit_code == 0
    assert len(pd.read_csv(tmp_path / "out.csv")) == 6


def test_the_command_knows_tasks_workers_and_pairs_by_their_text(tmp_path: Path) -> None:
    # Numbers in one file, text in another: the same ids.
    rng = np.random.default_rng(1)
    task, worker = np.divmod(np.arange(40), 4)
    answers = pd.DataFrame({"task": task, "worker": worker, "value": rng.normal(size=40)})
    answers.to_csv(tmp_path / "answers.csv", index=False)
    (tmp_path / "tasks.csv").write_text("task\n3\nx\ny\n")
    (tmp_path / "pending.csv").write_text("task,worker\nx,1\n")
    (tmp_path / "forbidden.csv").write_text("task,worker\ny,1\ny,z\n")
    (tmp_path / "staff.csv").write_text("worker,price,capacity\n1,1,100\nz,2,1\n")
    done = run(
        *(tmp_path / "answers.csv", "-k", 9, "--support", "1,10"),
        *("--tasks", tmp_path / "tasks.csv", "--workers", tmp_path / "staff.csv"),
        *("--pending", tmp_path / "pending.csv", "--forbidden", tmp_path / "forbidden.csv"),
    )
    assert done.exit_code == 0, done.stderr
    assert "12 tasks" in done.stderr
    rows = pd.read_csv(StringIO(done.stdout), dtype=str)
    # Worker 1 has answered 0 to 9, is asked for x, and must not get y; z may answer once.
    assert rows["worker"].tolist() == ["z"]
    assert "no available worker can take more tasks" in done.stderr
    names = run(tmp_path / "answers.csv", "-k", 2, "--support", "1,10", "--workers", "ann,bob")
    assert set(pd.read_csv(StringIO(names.stdout))["worker"]) == {"ann", "bob"}


def test_the_command_learns_the_noise_and_stops(tmp_path: Path) -> None:
    path = write_answers(tmp_path)
    done = run(path, "--half-width", 1e4)
    assert done.exit_code == 0, done.stderr
    assert "noise models compared" in done.stderr
    assert "30 of 30 tasks done" in done.stderr
    assert "stop: every task is done" in done.stderr
    assert done.stdout.startswith("task,worker,gain")
    assert run(path, "--workers", "nowhere.csv").stderr.splitlines()[-1].startswith("Error: ")
    assert "give both" in run(path, "--prior-mean", 3).stderr
    path.write_text("task,worker,value\na,u,1\nb,v,2\n")
    assert "no noise could be learned" in run(path).stderr
    for option in (("--bounds", "0,1"), ("--scale", "log")):
        assert "is for noise that is learned" in run(path, "--support", "1", *option).stderr
