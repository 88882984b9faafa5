"""Flags: honest crowds are left alone, planted offenders are found, and the words say why."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from voxpop import (
    Answers,
    Average,
    ConfigError,
    DataError,
    Diagnosis,
    StrongOracle,
    agreement,
    diagnose,
    effect_of_removing,
)
from voxpop.data.tables import write_table
from voxpop.present.terminal import show_diagnosis

Table = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
Draw = Callable[[np.random.Generator, NDArray[np.float64], NDArray[np.int64], int], object]


def assignment(
    rng: np.random.Generator, n_tasks: int, per_task: int, n_workers: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    picked = [rng.choice(n_workers, per_task, replace=False) for _ in range(n_tasks)]
    return np.repeat(np.arange(n_tasks), per_task), np.concatenate(picked)


def _rated(
    rng: np.random.Generator, mu: NDArray[np.float64], w: NDArray[np.int64], n: int
) -> object:
    noise = rng.choice([0.4, 0.8, 1.2], n)[w] * rng.normal(size=len(w))
    return np.clip(np.round(1 + mu / 25 + noise), 1, 5)


def _mostly_zero(
    rng: np.random.Generator, mu: NDArray[np.float64], w: NDArray[np.int64], n: int
) -> object:
    """About 70 % zeros; the truth of a task shows in what is left."""
    noise = rng.choice([10, 20, 30], n)[w] * rng.normal(size=len(w))
    return np.clip(np.round(np.where(mu < 70, -20.0, 3 * mu - 200) + noise), 0, 100)


def _skewed(rng: np.random.Generator, mu: NDArray[np.float64], *_: object) -> object:
    return mu * np.exp(0.5 * rng.normal(size=len(mu)))


def _added(noise: Callable[[np.random.Generator, NDArray[np.int64], int], object]) -> Draw:
    return lambda rng, mu, w, n: mu + np.asarray(noise(rng, w, n))


def _tens(
    rng: np.random.Generator, mu: NDArray[np.float64], w: NDArray[np.int64], n: int
) -> object:
    return 10 * np.round(mu / 10 + rng.choice([0.3, 1, 2], n)[w] * rng.normal(size=len(w)))


def _gains(
    rng: np.random.Generator, mu: NDArray[np.float64], w: NDArray[np.int64], n: int
) -> object:
    return np.exp(0.3 * rng.normal(size=n))[w] * (mu - 50) + 10 * rng.normal(size=len(w))


CROWDS: dict[str, Draw] = {
    "equal": _added(lambda rng, w, _: 10 * rng.normal(size=len(w))),
    "three levels": _added(
        lambda rng, w, n: np.sqrt(rng.choice([10, 100, 1000], n))[w] * rng.normal(size=len(w))
    ),
    "heavy tails": _added(lambda rng, w, _: 10 * rng.standard_t(2, size=len(w))),
    "biases": _added(lambda rng, w, n: 10 * (rng.normal(size=n)[w] + rng.normal(size=len(w)))),
    "gains": _gains,
    "ratings": _rated,
    "zeros": _mostly_zero,
    "skewed": _skewed,
    "tens": _tens,
}


def honest(kind: str, seed: int, n_tasks: int = 150, n_workers: int = 30) -> Table:
    rng = np.random.default_rng(seed)
    task, worker = assignment(rng, n_tasks, 6, n_workers)
    mu = rng.uniform(0, 100, n_tasks)[task]
    return task, worker, np.asarray(CROWDS[kind](rng, mu, worker, n_workers), dtype=np.float64)


def find(task: object, worker: object, value: object, **settings: float) -> Diagnosis:
    answers = Answers.from_arrays(np.asarray(task), np.asarray(worker), np.asarray(value))
    return diagnose(answers, Average().fit(answers), **settings)


@pytest.mark.slow
def test_honest_crowds_are_left_alone() -> None:
    # 20 crowds of each kind, 180 in all: 9 false flags promised at most.
    flags = [
        (kind, flag.kind)
        for kind in CROWDS
        for seed in range(20)
        for flag in find(*honest(kind, seed)).flags
    ]
    assert len(flags) <= 9, flags


@pytest.mark.slow
def test_small_and_large_honest_crowds_are_left_alone() -> None:
    # 40 of 10 workers and 8 of 100: 2.4 false flags promised, more than 6 by chance in 1 of 80.
    flags = [
        flag.kind
        for n, times in ((10, 10), (100, 2))
        for kind in ("three levels", "heavy tails", "ratings", "zeros")
        for seed in range(times)
        for flag in find(*honest(kind, seed, n_workers=n, n_tasks=15 * min(n, 40))).flags
    ]
    assert len(flags) <= 6, flags


def plant(kind: str, offence: str, seed: int = 0) -> tuple[Table, set[int]]:
    """Put offenders into an honest crowd: three alike, one noisy, or worker 1 copying worker 0."""
    task, worker, value = honest(kind, seed)
    rng = np.random.default_rng(seed + 1)
    usual, value = float(np.median(value)), value.copy()
    mean = (np.bincount(task, value) / np.bincount(task))[task]
    sd = float(np.std(value - mean))
    if offence == "copy":
        copied = worker == 0
        kept = (worker != 1) | ~np.isin(task, task[copied])
        parts = (task, np.full(len(task), 1), value)
        rows = [
            np.append(own[kept], more[copied])
            for own, more in zip((task, worker, value), parts, strict=True)
        ]
        return (rows[0], rows[1], rows[2]), {0, 1}
    # How much noise is extreme is learned from a crowd: three of thirty are a part of it.
    offenders = {0} if offence == "noise" else {0, 2, 4}
    for u in offenders:
        mine = worker == u
        n = int(mine.sum())
        if offence == "constant":
            value[mine] = usual
        elif offence == "straight-liner":
            value[mine] = np.where(np.arange(n) % 20 == 0, value[mine], usual)
        elif offence == "bias":
            value[mine] += 6 * sd
        elif offence == "noise":
            value[mine] += 20 * sd * rng.normal(size=n)
    return (task, worker, value), offenders


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "offence"),
    [
        *(("equal", offence) for offence in ("constant", "straight-liner", "bias", "copy")),
        *(("heavy tails", offence) for offence in ("constant", "straight-liner", "bias", "copy")),
        *(("ratings", offence) for offence in ("constant", "bias")),
        *(("three levels", offence) for offence in ("constant", "bias")),
        ("zeros", "bias"),
        ("equal", "noise"),
    ],
)
def test_planted_offenders_are_found(kind: str, offence: str) -> None:
    found, planted = 0, 0
    for seed in range(4):
        rows, offenders = plant(kind, offence, seed)
        flags = find(*rows).flags
        found += len({flag.worker for flag in flags if flag.kind == offence} & offenders)
        planted += len(offenders)
        # Whoever sits beside three offenders is not one: odds as in honest crowds.
        assert {flag.worker for flag in flags} <= offenders
    # Measured over 20 crowds: at least 90 % of these; a tenth missed twice over is 1 in 50.
    assert found >= 0.75 * planted


def judged(seed: int, n_judges: int, *, constant: bool = False) -> Diagnosis:
    """300 items scored 1 to 10 by a few judges with offsets, gains and noise of their own."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(6, 2, 300)[:, None]
    offset, gain = rng.normal(0, 0.8, n_judges), rng.uniform(0.5, 1.2, n_judges)
    sd = rng.uniform(0.8, 2, n_judges)
    noise = sd * rng.standard_normal((300, n_judges))
    score = np.clip(np.round(6 + offset + gain * (truth - 6) + noise), 1, 10)
    if constant:
        score[:, 0] = 7
    task, judge = np.indices(score.shape)
    return find(task.ravel(), judge.ravel(), score.ravel())


def test_a_few_honest_judges_who_differ_are_left_alone() -> None:
    # Of 40 crowds of three judges (four, five, six) 0 (1, 0, 0) have a flag.
    flagged = [bool(judged(7000 + seed, n).flags) for n in (3, 4, 5, 6) for seed in range(10)]
    assert sum(flagged) <= 3


def test_a_judge_who_always_gives_one_score_is_found_among_few() -> None:
    # In 40 of 40 crowds of three, four, five and six; before, in 1, 10, 11 and 27.
    for n in (3, 5):
        for seed in range(3):
            found = judged(7000 + seed, n, constant=True)
            assert found.kinds() == {0: "constant"}


def test_a_straight_liner_among_zeros_is_found_and_honest_zeros_are_not() -> None:
    # 60 tasks per worker with 70 % zeros: always 0 is found although it is the most frequent.
    for seed in range(3):
        task, worker, value = honest("zeros", seed, n_tasks=300)
        value = np.where(worker == 3, 0.0, value)
        found = find(task, worker, value)
        assert found.workers == [3]
        assert found.flags[0].kind == "constant"


def test_shuffled_answers_are_unrelated() -> None:
    task, worker, value = honest("equal", 5, n_tasks=600)
    mine = worker == 7
    value[mine] = np.random.default_rng(0).permutation(value[mine])
    flags = [flag for flag in find(task, worker, value).flags if flag.kind == "unrelated"]
    assert [flag.worker for flag in flags] == [7]
    assert "answers do not follow the tasks" in flags[0].evidence


def test_workers_who_answer_at_random_a_few_times_are_found() -> None:
    # 20 answers each: 111 of 180 are found, 2 of 120 before; none beside them is flagged.
    found = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        task, worker = assignment(rng, 200, 6, 60)
        noise = rng.lognormal(np.log(9), 0.4, 60)[worker]
        value = rng.uniform(5, 95, 200)[task] + noise * rng.normal(size=1200)
        value[worker < 6] = rng.uniform(0, 100, int((worker < 6).sum()))
        kinds = find(task, worker, np.clip(np.round(value), 0, 100)).kinds()
        assert set(kinds) <= set(range(6))
        found += sum("unrelated" in kind for kind in kinds.values())
    assert found >= 10


def test_few_tasks_that_differ_are_no_evidence_that_others_do_not_follow() -> None:
    # Of 95 or 90 % zeros; a fifth of the rest is missed. In 60 crowds there is no flag.
    for seed, zeros in enumerate((0.95, 0.95, 0.9, 0.9)):
        rng = np.random.default_rng(seed)
        task, worker = assignment(rng, 200, 5, 60)
        truth = np.where(rng.random(200) < zeros, 0, rng.geometric(0.1, 200))[task]
        seen = rng.random(1000) > rng.beta(2, 8, 60)[worker]
        assert not find(task, worker, np.where(seen, truth, 0)).flags


def test_swapped_coordinates_are_found() -> None:
    # 30 of 30 crowds, 13 of 20 before.
    for seed in range(4):
        rng = np.random.default_rng(seed)
        task, worker = assignment(rng, 120, 5, 25)
        corner = rng.uniform(50, [800, 500], (120, 2))
        truth = np.concatenate([corner, corner + rng.uniform(40, 200, (120, 2))], axis=1)[task]
        noise = rng.lognormal(np.log(4), 0.5, 25)[worker]
        value = truth + noise[:, None] * rng.normal(size=truth.shape)
        value[worker == 2] = value[worker == 2][:, [1, 0, 3, 2]]
        assert find(task, worker, value).workers == [2]


def test_workers_who_answer_in_other_units_are_found_even_if_they_are_a_fifth() -> None:
    # 179 of 180 in 30 crowds, 4 of 120 before.
    for seed in range(4):
        rng = np.random.default_rng(seed)
        task, worker = assignment(rng, 150, 6, 30)
        value = rng.lognormal(np.log(60), 0.5, 150)[task] * rng.lognormal(0, 0.08, 900)
        value = np.where(worker < 6, value / 2.54, value).round(1)
        found = find(task, worker, value)
        assert found.kinds() == dict.fromkeys(range(6), "units")
        assert "factor between inches and centimetres" in found.flags[0].evidence
        # Honest workers who differ by a quarter are left alone.
        value *= np.where(worker < 6, 2.54, 1.0) * rng.lognormal(0, 0.25, 30)[worker]
        assert not find(task, worker, value).flags


def test_two_precise_workers_in_a_noisy_crowd_are_no_copies() -> None:
    # Both hit the same step on most tasks, as two who know the answer do.
    for seed in range(5):
        rng = np.random.default_rng(seed)
        task, worker = np.divmod(np.arange(1000), 10)
        truth = rng.integers(2, 9, 100)[task]
        noise = np.where(worker < 2, 0.25, 2.5) * rng.normal(size=1000)
        value = np.round(truth + noise)
        equal = (value[worker == 0] == value[worker == 1]).mean()
        assert equal > 0.8
        assert not [flag for flag in find(task, worker, value).flags if flag.kind == "copy"]


def test_two_straight_liners_are_no_copies_of_each_other() -> None:
    task, worker, value = honest("equal", 1)
    value[(worker == 0) | (worker == 1)] = 50.0
    assert {flag.kind for flag in find(task, worker, value).flags} == {"constant"}


def test_the_evidence_can_be_told_to_the_worker() -> None:
    (task, worker, value), _ = plant("equal", "constant")
    flag = next(flag for flag in find(task, worker, value).flags if flag.worker == 2)
    n = int((worker == 2).sum())
    others = value[np.isin(task, task[worker == 2]) & (worker != 2)]
    assert f"answered {value[worker == 2][0]:.6g} on all {n} tasks" in flag.evidence
    assert f"ranged from {others.min():.6g} to {others.max():.6g}" in flag.evidence
    assert flag.n_answers == n
    assert flag.false_alarms <= 0.05
    rows, _ = plant("equal", "copy")
    copies = find(*rows).flags
    assert [(flag.worker, flag.other) for flag in copies] == [(0, 1), (1, 0)]
    shared = int((rows[1] == 0).sum())
    assert f"the same answer as worker 1 on {shared} of {shared} tasks" in copies[0].evidence
    rows, _ = plant("equal", "bias")
    assert "above the others' median, on average" in find(*rows).flags[0].evidence
    rows, _ = plant("equal", "noise", 1)
    noisy = next(flag for flag in find(*rows).flags if flag.kind == "noise")
    assert "times as far as usual" in noisy.evidence


def test_units_names_and_row_order_do_not_matter() -> None:
    for kind, offence in (("biases", "straight-liner"), ("ratings", "bias"), ("equal", "copy")):
        (task, worker, value), _ = plant(kind, offence, 3)
        order = np.random.default_rng(0).permutation(len(task))
        names = np.array([f"{(7 * u) % 30:02d}" for u in range(30)])
        first = find(task, worker, value)
        second = find(task[order] + 5, names[worker[order]], 30 + 0.1 * value[order])
        assert first.flags
        expected = {(str(names[int(str(f.worker))]), f.kind): f.false_alarms for f in first.flags}
        found = {(str(f.worker), f.kind): f.false_alarms for f in second.flags}
        assert found == pytest.approx(expected, rel=1e-6)


def test_vectors_are_judged_by_coordinate() -> None:
    (task, worker, value), offenders = plant("equal", "constant")
    _, _, other = honest("equal", 0)
    found = find(task, worker, np.stack([other, value], axis=1))
    assert set(found.workers) == offenders
    assert all(flag.evidence.startswith("value_2: ") for flag in found.flags)


def test_too_few_answers_are_remarked_not_flagged() -> None:
    task, worker, value = honest("equal", 2)
    few = np.isin(np.arange(len(task)), np.flatnonzero(worker == 4)[5:])
    found = find(task[~few], worker[~few], np.where(worker == 4, 0.0, value)[~few])
    assert found.unjudged.tolist() == [4]
    assert 4 not in found.workers
    assert found.answers_needed == 12  # 2^-12 is the first power below .05 / (4 x 30)
    assert "too few answers to judge: 1 (fewer than 12" in repr(found)


@pytest.mark.filterwarnings("ignore::voxpop.DataWarning")
def test_the_smallest_crowds_pass_without_a_flag() -> None:
    for rows in (
        ([0], [0], [1.0]),
        ([0, 0], [0, 1], [1.0, 2.0]),
        ([0, 0, 0], [0, 1, 2], [1.0, 1.0, 1.0]),
        (np.repeat(np.arange(40), 3), np.tile(np.arange(3), 40), np.ones(120)),
        (np.repeat(np.arange(40), 3), np.tile(np.arange(3), 40), np.repeat(np.arange(40.0), 3)),
    ):
        assert find(*rows).flags == ()


def test_a_result_of_other_answers_is_refused() -> None:
    answers = Answers.from_arrays([0, 0], [0, 1], [1.0, 2.0])
    other = Answers.from_arrays([0, 0], [0, 2], [1.0, 2.0])
    with pytest.raises(DataError, match="belongs to other answers"):
        diagnose(answers, Average().fit(other))
    with pytest.raises(ConfigError, match="error_rate must be"):
        diagnose(answers, Average().fit(answers), error_rate=0.0)


def test_removing_is_refitting_without() -> None:
    task, worker, value = honest("equal", 0)
    # Task "x" has answers of worker 0 alone; gold stays with its task.
    answers = Answers.from_arrays(
        [*task.tolist(), "x"],
        [*worker.tolist(), 0],
        [*value.tolist(), 7.0],
        gold=[33.0] + [np.nan] * 150,
    )
    effect = effect_of_removing(answers, Average(), [0, 5])
    assert effect.removed.tolist() == [u for u in answers.worker_ids.tolist() if u in (0, 5)]
    assert effect.left_without_answers.tolist() == ["x"]
    assert effect.task_ids.tolist() == list(range(150))
    kept = ~np.isin(worker, (0, 5))
    mean = np.bincount(task[kept], value[kept]) / np.bincount(task[kept])
    assert effect.after.estimate[0, 0] == 33.0
    assert effect.after.estimate[1:, 0] == pytest.approx(mean[1:])
    change = (effect.after.estimate - effect.before.estimate[:150])[1:]
    assert effect.change_in_sd[1:] == pytest.approx(change / effect.before.sd[1:150])
    assert effect.change_in_sd[0] == 0.0
    assert effect.largest == pytest.approx(np.abs(effect.change_in_sd).max())
    assert "left without any answer: task 'x'" in repr(effect)
    assert list(effect.tasks.columns) == [
        "task",
        "value_before",
        "value_after",
        "value_change_in_sd",
    ]
    again = effect_of_removing(answers, Average(), [5, 0], before=effect.before)
    assert again.change_in_sd == pytest.approx(effect.change_in_sd)


def test_an_estimator_that_knows_the_workers_can_do_with_fewer() -> None:
    task, worker, value = honest("equal", 0)
    answers = Answers.from_arrays(task, worker, value)
    oracle = StrongOracle(variances={u: 100.0 for u in range(30)})
    assert effect_of_removing(answers, oracle, [3]).largest > 0


def test_only_workers_who_answered_can_be_removed() -> None:
    answers = Answers.from_arrays([0, 0], ["a", "b"], [1.0, 2.0])
    for workers, message in (
        (["c"], "ids of workers who answered, got 'c'"),
        ([], "got none"),
        (["a", "b"], "leave some"),
    ):
        with pytest.raises(ConfigError, match=message):
            effect_of_removing(answers, Average(), workers)


def test_the_pages_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (task, worker, value), _ = plant("equal", "constant")
    write_table({"task": task, "worker": worker, "value": value}, tmp_path / "answers.csv")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "docs/diagnosis.md").read_text()
    exec(compile(page.split("```python\n")[1].split("```")[0], "diagnosis.md", "exec"), {})
    said = capsys.readouterr().out
    assert "of the variance of one answer comes from the tasks" in said
    assert "3 of 30 workers flagged" in said
    assert "half of the estimates move by less than" in said


def test_a_terminal_shows_figures_and_flags() -> None:
    (task, worker, value), _ = plant("equal", "constant")
    answers = Answers.from_arrays(task, worker, value)
    console = Console(file=StringIO(), width=200)
    show_diagnosis(agreement(answers), find(task, worker, value), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Krippendorff's alpha" in shown
    assert "constant" in shown
