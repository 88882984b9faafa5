"""A campaign that learned its noise agrees with ``aggregate``, whatever came and went."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import make_crowd
from voxpop import (
    Answers,
    Auto,
    Board,
    Campaign,
    DataError,
    Model,
    Result,
    Rules,
    aggregate,
    assign_regular,
    simulate,
)

SUPPORT = (10.0, 100.0, 1000.0)


def odd_crowd(seed: int, kind: str) -> Answers:
    """A crowd that the paper's model does not describe."""
    rng = np.random.default_rng(seed)
    crowd = simulate(Model(support=(4.0, 25.0, 100.0)), assign_regular(60, 5, 15, rng), rng)
    answers = crowd.answers
    m, worker, truth = answers.n_workers, answers.worker, crowd.truth[answers.task]
    value = answers.value.copy()
    if kind == "bias":
        value += 12.0 * rng.normal(size=(m, 1))[worker]
    elif kind == "tails":
        value = truth + (value - truth) / np.sqrt(rng.chisquare(2.5, value.shape) / 2.5)
    elif kind == "slips":
        value[rng.random(len(value)) < 0.04] *= 10.0
    elif kind == "gain":
        value = 50.0 + (value - 50.0) * np.exp(0.35 * rng.normal(size=(m, 1)))[worker]
    elif kind == "log":
        value = np.exp(truth / 25.0 + (value - truth) / 25.0)
    task, worker_ids = answers.task_ids[answers.task], answers.worker_ids[worker]
    if kind != "log":
        return Answers.from_arrays(task, worker_ids, value)
    gold = np.full((answers.n_tasks, 1), np.nan)
    gold[:25] = np.exp(crowd.truth[:25] / 25.0)
    return Answers.from_arrays(task, worker_ids, value, gold=gold)


def same(one: Result, other: Result) -> None:
    """Everything that a result says of tasks and workers is the same to the bit, by id."""
    for ids, names in (
        ("task_ids", ("estimate", "variance", "quantile", "task_answers")),
        ("worker_ids", ("worker_variance", "worker_interval", "worker_posterior", "worker_bias")),
    ):
        left, right = (np.argsort(getattr(r, ids).astype(str)) for r in (one, other))
        assert getattr(one, ids)[left].tolist() == getattr(other, ids)[right].tolist()
        for name in names:
            a, b = getattr(one, name), getattr(other, name)
            if a.size or b.size:
                np.testing.assert_array_equal(a[left], b[right], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "bias", "tails", "slips", "gain", "log"])
def test_the_result_is_that_of_aggregate_and_the_board_starts_from_it(kind: str) -> None:
    answers = odd_crowd(3, kind)
    estimator = Auto(scale="log") if kind == "log" else None
    campaign = Campaign.from_answers(answers, estimator=estimator)
    result = aggregate(campaign.answers(), estimator or "auto")
    same(campaign.result(), result)
    theirs = aggregate(answers, estimator or "auto")
    place = np.argsort(theirs.task_ids)
    np.testing.assert_allclose(campaign.result().estimate, theirs.estimate[place], rtol=1e-9)
    # Anchors have seven digits; messages moved on their way by less than three digits of a belief.
    quick, board = campaign.estimates(), campaign.board()
    open_task = ~campaign.answers().is_gold
    assert quick.task_ids.tolist() == result.task_ids.tolist()
    unit = result.sd[open_task]
    np.testing.assert_allclose(quick.sd[open_task], unit, rtol=1e-4)
    off = (quick.estimate - result.estimate)[open_task] / unit
    assert np.abs(off).max() < 1e-3
    low, high = result.agreement_interval()
    half = (high - low).max(axis=1) / 2
    at = {task: row for row, task in enumerate(board.task.tolist())}
    rows = [at[i] for i in result.task_ids.tolist()]
    np.testing.assert_allclose(board.half_width[rows][open_task], half[open_task], rtol=1e-4)
    assert board.done[rows][~open_task].all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "bias", "tails", "slips"])
def test_between_two_fits_new_answers_move_estimates_towards_the_next_fit(kind: str) -> None:
    # Learned on two thirds of the answers: with the rest, fast estimates come much nearer to a new
    # fit than the old ones are, though what was learned of the noise stays.
    answers = odd_crowd(5, kind)
    rng = np.random.default_rng(0)
    order = rng.permutation(answers.n_edges)
    task, worker = answers.task_ids[answers.task], answers.worker_ids[answers.worker]
    first, rest = np.split(order, [answers.n_edges * 2 // 3])
    pilot = Answers.from_arrays(task[first], worker[first], answers.value[first])
    campaign = Campaign.from_answers(pilot, answers.task_ids.tolist())
    before = {
        i: x for i, x in zip(pilot.task_ids.tolist(), campaign.result().estimate, strict=True)
    }
    model = campaign.model
    campaign.add_many(task[rest].tolist(), worker[rest].tolist(), answers.value[rest])
    quick = campaign.estimates()
    assert campaign.model is model
    result = campaign.result()
    same(result, aggregate(campaign.answers()))
    assert quick.task_ids.tolist() == result.task_ids.tolist()
    old = np.array([before.get(i, [np.nan]) for i in quick.task_ids.tolist()])
    moved = np.abs(old - result.estimate)[:, 0]
    off = np.abs(quick.estimate - result.estimate)[:, 0]
    known = np.isfinite(moved)
    assert off[known].mean() < 0.5 * moved[known].mean()
    # An interval is not sure of what the next fit will say otherwise.
    assert np.mean(off < 2 * quick.sd[:, 0]) > 0.95


def test_a_typing_error_does_not_make_a_worker_noisy() -> None:
    """What next expects of named workers is the same with and without one answer in 25 mistyped."""
    clean, mistyped = (odd_crowd(4, kind) for kind in ("plain", "slips"))
    workers = clean.worker_ids.tolist()
    expected = []
    for answers in (clean, mistyped):
        campaign = Campaign.from_answers(answers)
        assert campaign.noise is not None
        assert (campaign.noise.mixture is not None) == (answers is mistyped)
        belief = campaign._posterior.beliefs(workers)[:-1]
        expected.append(belief @ (1.0 / campaign.model.levels))
        batch = campaign.next(5, workers)
        assert batch.sd.max() < 2 * clean.value.std() / 3
    assert np.corrcoef(*np.log(expected))[0, 1] > 0.8
    ratio = np.exp(np.abs(np.log(expected[1] / expected[0])))
    assert np.median(ratio) < 1.5


def test_a_model_that_is_given_stays_bi_until_it_is_relearned() -> None:
    answers = make_crowd(4, 1).answers
    campaign = Campaign(Model(support=SUPPORT, prior_mean=50.0, prior_variance=900.0))
    campaign.add_table(answers)
    assert campaign.result().settings["method"] == "bi"
    learned = campaign.relearn()
    same(campaign.result(), aggregate(campaign.answers()))
    assert learned.model is campaign.model
    assert 0 <= learned.trust <= 1


pairs = st.tuples(st.integers(0, 7), st.integers(0, 4))


@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
@given(steps=st.lists(pairs, min_size=1, max_size=60), looks=st.sets(st.integers(0, 60)))
@settings(max_examples=40, deadline=None)
def test_what_was_taken_back_was_never_there(steps: list[tuple[int, int]], looks: set[int]) -> None:
    """A pair that comes again is taken back; what is left is a campaign of its own, to the bit."""
    value = np.random.default_rng(1).normal(50, 20, (8, 5))
    campaign, left = Campaign(Model(support=SUPPORT), range(8)), dict[tuple[int, int], None]()
    campaign._posterior.messages.fresh_below = 0
    for at, (task, worker) in enumerate(steps):
        if (task, worker) in left:
            campaign.retract(task, worker)
            del left[task, worker]
        else:
            campaign.add(task, worker, value[task, worker])
            left[task, worker] = None
        if at in looks:
            campaign.next(2)
    assert campaign.n_answers == len(left)
    if not left:
        return
    other = Campaign(Model(support=SUPPORT), range(8))
    for task, worker in left:
        other.add(task, worker, value[task, worker])
    same(campaign.result(), other.result())
    np.testing.assert_allclose(campaign.board().gain, other.board().gain, rtol=0.01)


def test_an_answer_taken_back_of_a_large_campaign_leaves_no_trace() -> None:
    rng = np.random.default_rng(0)
    answers = simulate(Model(support=SUPPORT), assign_regular(600, 5, 20, rng), rng).answers
    campaign = Campaign(Model(support=SUPPORT))
    campaign.add_table(answers)
    before, board = campaign.result(), campaign.board()
    some = rng.choice(answers.n_edges, 40, replace=False)
    task, worker = answers.task_ids[answers.task[some]], answers.worker_ids[answers.worker[some]]
    for i, u in zip(task.tolist(), worker.tolist(), strict=True):
        campaign.retract(i, u)
    campaign.board()
    campaign.add_many(task.tolist(), worker.tolist(), answers.value[some])
    np.testing.assert_allclose(campaign.board().half_width, board.half_width, rtol=0.02)
    same(campaign.result(), before)


def test_only_an_answer_that_is_there_can_be_taken_back() -> None:
    campaign = Campaign(Model(support=SUPPORT), ["t"])
    for task, worker in (("t", "u"), ("nowhere", "u")):
        with pytest.raises(DataError, match="has not answered task"):
            campaign.retract(task, worker)
    campaign.add("t", "u", 1.0)
    campaign.retract("t", "u")
    assert campaign.n_answers == 0
    assert campaign.board().gain[0, 0] == np.inf


def test_a_journal_keeps_what_was_learned_and_taken_back(tmp_path: Path) -> None:
    answers, path = odd_crowd(2, "bias"), tmp_path / "c.campaign"
    task, worker = answers.task_ids[answers.task], answers.worker_ids[answers.worker]
    with Campaign.open(path, Model(support=SUPPORT)) as campaign:
        campaign.add_table(answers)
        campaign.relearn(Auto(bounds=(-500.0, 500.0)))
        for edge in (0, 7, 31):
            campaign.retract(task[edge], worker[edge])
        campaign.add(task[0], "somebody new", 40.0)
        campaign.save(tmp_path / "copy")
        for again in (Campaign.load(path), Campaign.load(tmp_path / "copy")):
            assert again.estimator == campaign.estimator
            assert again.trust == campaign.trust
            same(again.result(), campaign.result())
            one, other = campaign.board(), again.board()
            np.testing.assert_allclose(one.gain, other.gain, rtol=0.01)
            np.testing.assert_allclose(one.half_width, other.half_width, rtol=0.01)
            assert again.next(5).task.tolist() == campaign.next(5).task.tolist()


def test_a_board_orders_tasks_as_next_does_and_takes_offers_into_account() -> None:
    campaign = Campaign(Model(support=SUPPORT))
    campaign.add_table(make_crowd(7, 1, 40).answers)
    board = campaign.board(depth=20)
    batch = campaign.next(40)
    offered: dict[object, int] = {}
    for task in batch.task.tolist():
        assert board.pick(1, offered=offered) == [task]
        offered[task] = offered.get(task, 0) + 1
    # What is beyond the depth is guessed, and falls with every offer.
    shallow = campaign.board(depth=2)
    later = [shallow._later(0, count) for count in range(8)]
    assert later[:2] == shallow.gain[shallow.order[0]].tolist()
    assert later[0] > shallow._later(0, 0.3) > shallow._later(0, 0.7) > later[1]
    assert (np.diff(later) < 0).all()
    gains = [gain for _, gain in board.best(40)]
    assert gains == sorted(gains, reverse=True)
    assert [task for task, _ in board.best(7, offered)] == board.pick(7, (), offered)
    best = board.pick(5)
    assert board.pick(3, exclude=set(best[:2])) == best[2:5]
    assert board.pick(100, exclude=list(best)) == board.pick(100)[5:]
    assert len(board.pick(1000)) == 40


def test_an_offer_to_a_worker_counts_as_much_as_the_answer_is_worth() -> None:
    rng = np.random.default_rng(0)
    model = Model(support=(10.0, 5000.0))
    crowd = simulate(model, assign_regular(100, 5, 25, rng), rng)
    campaign = Campaign(model)
    campaign.add_table(crowd.answers)
    board = campaign.board()
    worth = np.array([board.worth_of(u) for u in crowd.answers.worker_ids.tolist()])
    good = crowd.worker_variance == 10.0
    assert worth[~good].max() < 0.1
    assert worth[good].min() > 1.0
    assert board.worth_of("somebody new") == 1.0
    # An answer that is nothing but noise leaves the task where it was.
    noisy = crowd.answers.worker_ids[~good].tolist()[0]
    assert board._later(0, board.worth_of(noisy)) > 0.9 * board._later(0, 0)
    # One of a good worker leaves as much as several usual ones.
    assert board._later(0, board.worth_of(crowd.answers.worker_ids[good][0])) < board._later(0, 1)


def test_a_board_leaves_out_what_is_done_or_not_worth_it() -> None:
    answers = make_crowd(7, 1, 40).answers
    campaign = Campaign(Model(support=SUPPORT), ["nobody"])
    campaign.add_table(answers)
    campaign.add_gold({answers.task_ids[0]: 3.0})
    half = np.median(campaign.board().half_width)
    board = campaign.board(Rules(half_width=float(half)))
    assert board.done.sum() == campaign.next(1, rules=Rules(half_width=float(half))).n_done
    picked = board.pick(100)
    assert picked[0] == "nobody"
    assert set(picked) == set(board.task[~board.done].tolist())
    assert set(picked) | set(board.done_tasks()) == set(campaign.task_ids)
    assert campaign.board(Rules(least_gain=1e9)).pick(3) == ["nobody"]


@pytest.mark.parametrize("ids", [[1, 2, 3], ["a", "b", "ü"]])
def test_a_board_can_be_saved_and_sent(tmp_path: Path, ids: list[object]) -> None:
    campaign = Campaign(Model(support=SUPPORT), ids)
    campaign.add(ids[1], "u", 1.0)
    board = campaign.board(as_of=17)
    for again in (pickle.loads(pickle.dumps(board)), Board.load(board.save(tmp_path / "b.npz"))):
        assert again.as_of == 17
        assert again.pick(3) == board.pick(3) == [ids[0], ids[2], ids[1]]
        np.testing.assert_array_equal(again.gain, board.gain)
    with pytest.raises(DataError, match="is not a board"):
        Board.from_bytes(b"something else")
    with pytest.raises(DataError, match=r"cannot be read"):
        Board.load(tmp_path / "nowhere.npz")
    with pytest.raises(DataError, match="all numbers or all text"):
        Campaign(Model(support=SUPPORT), [1, "a"]).board().to_bytes()
