"""Doubtful gold: a mistyped truth is named with what was meant, and right ones hardly ever are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from voxpop import Answers, aggregate
from voxpop.cli import main
from voxpop.models.scale import LINEAR, SCALES, Scale
from voxpop.results.diagnosis.doubtful_gold import doubts_about_gold

Floats = NDArray[np.float64]
KINDS = ("gaussian", "heavy tails", "offsets", "prices")


def crowd(kind: str, seed: int, n_gold: int, per_task: int = 5) -> Answers:
    """Crowd of 30 workers who differ in noise; 60 tasks are open, the others have right gold."""
    rng = np.random.default_rng([seed, n_gold, per_task])
    n = n_gold + 60
    task = np.repeat(np.arange(n), per_task)
    worker = np.concatenate([rng.permutation(30)[:per_task] for _ in range(n)])
    sd = np.exp(rng.normal(0.7, 0.5, 30))[worker]
    if kind == "heavy tails":
        noise = sd * rng.standard_t(rng.choice([1, 2, 3]), len(task))
    else:
        noise = sd * rng.standard_normal(len(task))
    if kind == "prices":
        truth = np.exp(rng.normal(5, 1, n))
        value = truth[task] * np.exp(0.1 * noise)
    else:
        truth = rng.normal(50, 15, n)
        value = truth[task] + noise
    if kind == "offsets":
        value += rng.normal(0, 10) + rng.normal(0, 5, 30)[worker]
    gold = np.where(np.arange(n) < n_gold, np.round(truth, 1), np.nan)
    return Answers.from_arrays(task, worker, value, gold=gold)


def changed(answers: Answers, truths: dict[int, float]) -> Answers:
    gold = np.array(answers.gold)
    for task, truth in truths.items():
        gold[task, 0] = truth
    return replace(answers, gold=gold)


def truth_of(answers: Answers, task: int) -> float:
    return float(np.asarray(answers.gold)[task, 0])


def doubted(answers: Answers, scale: Scale = LINEAR) -> list[str]:
    """Tasks whose truth is doubted."""
    found = doubts_about_gold(answers, scale).notes
    return [note.removeprefix("the known truth of task ").split(",")[0] for note in found]


@pytest.mark.parametrize("kind", KINDS)
def test_right_gold_is_hardly_ever_doubted(kind: str) -> None:
    """100 crowds of each kind with 10 to 60 gold tasks and 2 to 8 answers per task.

    Of 8,000 crowds with other seeds, 6 had a note, all of them prices: of 100, three or more of
    these would have one less than once in 200 seeds.
    """
    said = 0
    for seed in range(100):
        n_gold, per_task = (10, 15, 20, 40, 60)[seed % 5], (2, 3, 5, 8)[seed % 4]
        said += bool(doubted(crowd(kind, seed, n_gold, per_task)))
    assert said <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_one_truth_of_twenty_that_is_ten_times_too_large_is_named(kind: str) -> None:
    """50 crowds with five answers per task; in 2,000 with other seeds it was named 1,998 times.

    No other truth was, and in 95 of 100 cases the note had the right one.
    """
    named = right = 0
    for seed in range(50):
        answers, task = crowd(kind, seed, 20), seed % 20
        truth = truth_of(answers, task)
        found = doubts_about_gold(changed(answers, {task: 10 * truth}), LINEAR).notes
        assert len(found) <= 1
        named += any(f"truth of task {task}, {10 * truth:.6g}, may be wrong" in x for x in found)
        right += any(f"looks like {truth:.6g} (decimal point)" in x for x in found)
    assert named >= 49
    assert right >= 40


def test_the_worst_of_several_are_named_and_the_rest_counted() -> None:
    answers = crowd("gaussian", 3, 60)
    wrong = {task: 10 * truth_of(answers, task) for task in (4, 9, 14, 19, 24)}
    found = doubts_about_gold(changed(answers, wrong), LINEAR).notes
    assert len(found) == 4
    assert found[-1] == "2 more known truths may be wrong; nothing is learned from them"
    assert set(doubted(changed(answers, wrong))[:3]) < {str(task) for task in wrong}


def test_a_truth_that_belongs_to_another_task_looks_like_no_slip() -> None:
    answers = crowd("gaussian", 6, 20)
    gold = np.asarray(answers.gold)[:20, 0]
    low, high = int(gold.argmin()), int(gold.argmax())
    swapped = changed(answers, {low: gold[high], high: gold[low]})
    assert sorted(doubted(swapped)) == sorted([str(low), str(high)])
    assert not any("looks like" in note for note in doubts_about_gold(swapped, LINEAR).notes)


def test_a_crowd_that_errs_as_far_elsewhere_doubts_nothing() -> None:
    """The same truth is in doubt, or not, by how far off the crowd is about the others."""
    answers = crowd("gaussian", 7, 20)
    wrong = changed(answers, {3: truth_of(answers, 3) + 60})
    assert doubted(wrong) == ["3"]
    rng = np.random.default_rng(0)
    misread = rng.normal(0, 30, answers.n_tasks)
    misread[3] = 0.0
    assert not doubted(replace(wrong, value=wrong.value + misread[wrong.task][:, None]))


def test_units_and_the_order_of_rows_change_nothing() -> None:
    answers = changed(crowd("heavy tails", 2, 20), {6: 700.0})
    order = np.random.default_rng(1).permutation(answers.n_edges)
    first = answers.task[order][np.sort(np.unique(answers.task[order], return_index=True)[1])]
    other = Answers.from_arrays(
        answers.task[order],
        answers.worker[order],
        1024.0 * answers.value[order] - 4096.0,
        gold=1024.0 * np.asarray(answers.gold)[first] - 4096.0,
    )
    assert doubted(answers) == doubted(other) == ["6"]


def test_of_a_vector_the_coordinate_is_named() -> None:
    answers = crowd("gaussian", 4, 20)
    gold = np.repeat(np.asarray(answers.gold), 2, axis=1)
    gold[8, 1] *= 10
    both = replace(
        answers, value=np.repeat(answers.value, 2, axis=1), value_names=("x", "y"), gold=gold
    )
    (note,) = doubts_about_gold(both, LINEAR).notes
    assert f"the known truth of task 8, y = {gold[8, 1]:.6g}, may be wrong" in note


def test_every_scale_has_its_own_distances() -> None:
    """Small prices err by little; a lost sign has no logarithm; and 359 degrees are near to 1."""
    prices = crowd("prices", 1, 20)
    least = int(np.nanargmin(np.asarray(prices.gold)))
    assert doubted(changed(prices, {least: 10 * truth_of(prices, least)})) == [str(least)]
    dearest = int(np.nanargmax(np.asarray(prices.gold)))
    minus = changed(prices, {dearest: -truth_of(prices, dearest)})
    assert "(sign)" in doubts_about_gold(minus, LINEAR).notes[0]
    high = changed(prices, {5: 10 * truth_of(prices, 5)})
    assert doubted(high, SCALES["log"].of(high)) == ["5"]
    crowd_of_angles = crowd("gaussian", 1, 20)
    angles = replace(
        crowd_of_angles,
        value=np.mod(crowd_of_angles.value - 50, 360),
        gold=np.mod(np.asarray(crowd_of_angles.gold) - 50, 360),
    )
    circle = SCALES["circular"].of(angles, (0.0, 360.0))
    assert not doubted(angles, circle)
    turned = changed(angles, {5: (truth_of(angles, 5) + 150) % 360})
    assert doubted(turned, circle) == ["5"]


def test_equal_answers_and_truths_have_no_distance() -> None:
    """Rounding is no error; without any other, a truth that is off is doubtful however near."""
    task, truth = np.repeat(np.arange(12), 3), np.arange(12) / 10
    exact = Answers.from_arrays(task, np.tile(np.arange(3), 12), truth[task], gold=truth)
    assert not doubted(changed(exact, {3: 0.1 + 0.2}))
    assert doubted(changed(exact, {3: 0.4})) == ["3"]


def test_few_gold_tasks_doubt_nothing() -> None:
    answers = crowd("gaussian", 3, 9)
    assert not doubted(changed(answers, {2: 1000.0}))
    single = crowd("gaussian", 3, 20, per_task=1)
    assert not doubted(changed(single, {2: 1000.0}))
    assert not doubted(replace(answers, gold=None))


@pytest.mark.slow
def test_the_default_and_its_command_say_it_with_their_notes(tmp_path: Path) -> None:
    """Nothing is learned from it, and the result gives it as it was given.

    Intervals were stretched 8 to 66 times by one such truth in six crowds.
    """
    right = crowd("gaussian", 0, 20)
    answers = changed(right, {7: 10 * truth_of(right, 7)})
    result, wanted = aggregate(answers), aggregate(changed(right, {7: np.nan}))
    rest = np.arange(answers.n_tasks) != 7
    np.testing.assert_array_equal(result.estimate[rest], wanted.estimate[rest])
    np.testing.assert_array_equal(result.quantile[rest], wanted.quantile[rest])
    assert result.estimate[7, 0] == truth_of(answers, 7)
    assert result.sd[7, 0] == 0
    assert result.notes[-1] == doubts_about_gold(answers, LINEAR).notes[0]
    assert result.notes[-1].startswith("the known truth of task 7, ")
    gold = np.asarray(answers.gold)[answers.task, 0]
    rows = zip(answers.task, answers.worker, answers.value[:, 0], gold, strict=True)
    lines = [f"{t},{w},{v},{'' if np.isnan(g) else g}" for t, w, v, g in rows]
    path = tmp_path / "answers.csv"
    path.write_text("\n".join(["task,worker,value,truth", *lines]))
    done = CliRunner().invoke(main, ["aggregate", str(path), "--gold", "truth"])
    assert done.exit_code == 0, done.output
    assert "the known truth of task 7, " in " ".join(done.output.split())
