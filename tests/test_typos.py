"""Typos: planted ones are found with what was meant, and honest crowds have next to none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from voxpop import Answers, Average, aggregate, assign_regular, diagnose, write_report
from voxpop.cli import main
from voxpop.models.scale import LINEAR, SCALES
from voxpop.results.diagnosis.typos import find_typos

Floats = NDArray[np.float64]
Slip = Callable[[float], float]


def crowd(
    seed: int, slip: Slip | None = None, share: float = 0.03, digits: int = 1
) -> tuple[Answers, dict[tuple[int, int], float]]:
    """100 tasks of 6 answers by workers who differ in noise; what was meant where one slipped."""
    rng = np.random.default_rng(seed)
    dealt = assign_regular(100, 6, 20, rng)
    noise = np.exp(rng.normal(0, 0.5, dealt.n_workers))[dealt.worker]
    meant = rng.normal(50, 20, 100)[dealt.task] + noise * rng.standard_normal(600)
    meant = np.round(meant, digits)
    value = meant.copy()
    slipped = rng.permutation(600)[: round(share * 600) if slip else 0].tolist()
    for e in slipped:
        assert slip is not None
        value[e] = slip(meant[e])
    answers = Answers.from_arrays(dealt.task, dealt.worker, value)
    return answers, {(int(dealt.task[e]), int(dealt.worker[e])): meant[e] for e in slipped}


def swap(value: float) -> float:
    text = f"{value:.1f}"
    return float(text[1] + text[0] + text[2:]) if text[:2].isdigit() else value


@pytest.mark.parametrize(
    ("slip", "least"),
    [
        (lambda x: 10 * x, 0.9),
        (lambda x: x / 10, 0.85),
        (lambda x: 1000 * x, 0.9),
        (lambda x: -x, 0.85),
        (swap, 0.5),  # 54 for 45 is no more than noise
    ],
    ids=["x10", "/10", "x1000", "sign", "swap"],
)
def test_planted_typos_are_found_with_what_was_meant(slip: Slip, least: float) -> None:
    planted = right = wrong = false = 0
    for seed in range(10):
        answers, meant = crowd(seed, slip)
        planted += len(meant)
        for typo in find_typos(answers, LINEAR):
            key = (int(str(typo.task)), int(str(typo.worker)))
            if key not in meant:
                false += 1
            elif np.isclose(typo.looks_like, meant[key]):
                right += 1
            else:
                wrong += 1
    # Of 180 planted; a tenth of what is found may be none.
    assert right >= least * planted
    assert false + wrong <= 0.1 * (right + wrong + false)


def test_a_single_typo_is_found_and_said() -> None:
    answers, meant = crowd(3, lambda x: 10 * x, share=1 / 600)
    found = diagnose(answers, Average().fit(answers))
    (typo,) = found.typos
    assert typo.looks_like == pytest.approx(next(iter(meant.values())))
    assert typo.kind == "decimal point"
    assert 0 < typo.chance < 0.1
    said = f"{typo.value:.6g} of worker {typo.worker} to task {typo.task} looks like"
    assert said in repr(found)
    assert "1 answer looks mistyped" in found.summary()
    assert found.typos_table["looks_like"].tolist() == [typo.looks_like]
    assert json.loads(json.dumps(found.to_dict()))["typos"][0]["kind"] == "decimal point"


def test_honest_crowds_have_next_to_none() -> None:
    for seed in range(40):
        assert not find_typos(crowd(seed)[0], LINEAR)


def test_wild_answers_are_no_typos() -> None:
    found = 0
    for seed in range(40):
        answers, _ = crowd(seed)
        rng = np.random.default_rng(seed)
        value = answers.value.copy()
        wild = rng.permutation(600)[:20]
        away = 20 * 1000 ** rng.random((20, 1)) * rng.choice([-1.0, 1.0], (20, 1))
        value[wild] += away
        moved = Answers.from_arrays(answers.task, answers.worker, np.round(value, 1))
        found += bool(find_typos(moved, LINEAR))
    # A crowd without typos shows some with probability .1: 9 or more of 40 have odds of 1 to 60.
    assert found <= 8


def test_a_worker_in_other_units_is_no_typist() -> None:
    answers, _ = crowd(0)
    value = np.where(answers.worker[:, None] == 3, 10 * answers.value, answers.value)
    assert not find_typos(Answers.from_arrays(answers.task, answers.worker, value), LINEAR)


def test_vectors_name_the_coordinate_and_scales_are_respected() -> None:
    answers, meant = crowd(1, lambda x: 10 * x)
    both = Answers.from_arrays(
        answers.task,
        answers.worker,
        np.hstack([answers.value * 0 + answers.task[:, None], answers.value]),
        value_names=("x", "y"),
    )
    found = find_typos(both, LINEAR)
    assert {typo.name for typo in found} == {"y"}
    positive = Answers.from_arrays(answers.task, answers.worker, np.abs(answers.value) + 1)
    on_log = find_typos(positive, SCALES["log"].of(positive))
    assert all(typo.looks_like > 0 for typo in on_log)
    assert find_typos(positive, SCALES["circular"].of(positive, (0, 2000))) == ()
    assert len(found) >= 0.9 * len(meant)


def test_equal_answers_have_no_typos() -> None:
    task, worker = np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5)
    answers = Answers.from_arrays(task, worker, task.astype(float))
    assert find_typos(answers, LINEAR) == ()


def test_the_command_and_the_report_show_them(tmp_path: Path) -> None:
    answers, meant = crowd(2, lambda x: 10 * x, share=3 / 600)
    rows = zip(answers.task.tolist(), answers.worker.tolist(), answers.value[:, 0], strict=True)
    lines = ["task,worker,value", *(f"t{i},w{u},{x:.1f}" for i, u, x in rows)]
    (tmp_path / "answers.csv").write_text("\n".join(lines))
    out = tmp_path / "out"
    run = ["diagnose", str(tmp_path / "answers.csv"), "--method", "average", "-o", str(out)]
    done = CliRunner().invoke(main, run)
    assert done.exit_code == 0, done.output
    assert "3 answers look mistyped" in done.stderr
    assert "looks like" in done.stderr
    assert len((out / "typos.csv").read_text().splitlines()) == 4
    page = write_report(answers, aggregate(answers, "average"), tmp_path / "report.html")
    assert "Answers that look mistyped" in page.read_text()
    assert f"<td>{next(iter(meant.values())):.6g}</td>" in page.read_text()


def test_typos_in_prices_are_found_where_noise_grows_with_the_price() -> None:
    """On seeds 0 to 39, 217 of 240 planted ones; 116 if noise were taken to be the same for all."""
    planted = right = false = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        dealt = assign_regular(150, 5, 25, rng)
        noise = np.exp(rng.normal(np.log(0.05), 0.4, dealt.n_workers))[dealt.worker]
        meant = np.exp(rng.normal(4, 0.6, 150)[dealt.task] + noise * rng.standard_normal(750))
        value, meant = meant.round(2), meant.round(2)
        slipped = rng.permutation(750)[:6]
        value[slipped] *= rng.choice([10, 0.1, 100], 6)
        at = {(int(dealt.task[e]), int(dealt.worker[e])): meant[e] for e in slipped.tolist()}
        for typo in find_typos(Answers.from_arrays(dealt.task, dealt.worker, value), LINEAR):
            place = int(str(typo.task)), int(str(typo.worker))
            right += place in at and abs(typo.looks_like - at[place]) < 0.02 * at[place]
            false += place not in at
        planted += len(at)
    assert right >= 0.8 * planted
    assert false <= 0.1 * planted


def test_a_known_truth_of_zero_among_prices_hides_no_typos() -> None:
    rng = np.random.default_rng(0)
    dealt = assign_regular(150, 5, 25, rng)
    price = np.exp(rng.normal(4, 0.6, 150)[dealt.task] + 0.05 * rng.standard_normal(750))
    price[7] *= 10
    answers = Answers.from_arrays(dealt.task, dealt.worker, price)
    gold = np.where(np.arange(150) == 3, 0.0, np.nan)
    known = Answers.from_arrays(dealt.task, dealt.worker, price, gold=gold)
    assert [typo.value for typo in find_typos(known, LINEAR)] == [price[7]]
    assert find_typos(known, LINEAR) == find_typos(answers, LINEAR)
