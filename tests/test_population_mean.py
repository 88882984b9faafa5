"""The mean of a population: its interval holds where workers share an error, and gold is used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from voxpop import Answers, ConfigError, DataError, Judges, aggregate, population_mean
from voxpop.cli import main
from voxpop.estimators.population_mean import _combine

TRUE_MEAN = 5.0


def crowd(
    seed: int, n_gold: int = 30, shared: float = 1.0, bias: float = 0.5, *, useless: bool = False
) -> Answers:
    """300 tasks, 5 of 20 workers each, who share a bias and an error of every task."""
    rng = np.random.default_rng(seed)
    truth = TRUE_MEAN + rng.standard_normal(300)
    task = np.repeat(np.arange(300), 5)
    worker = np.concatenate([rng.permutation(20)[:5] for _ in range(300)])
    seen = 0.0 * truth if useless else truth
    value = (seen + bias + shared * rng.standard_normal(300))[task] + rng.standard_normal(1500)
    gold = np.where(np.isin(np.arange(300), rng.permutation(300)[:n_gold]), truth, np.nan)
    return Answers.from_arrays(task, worker, value, gold=gold[:, None])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "n_gold"), [("average", 10), ("average", 40), ("gold-first", 25)]
)
def test_the_interval_holds_where_the_naive_one_does_not(method: str, n_gold: int) -> None:
    held, naive = [], []
    for seed in range(400):
        answers = crowd(seed, n_gold)
        low, high = population_mean(answers, method).interval()
        held.append(bool((low <= TRUE_MEAN) & (high >= TRUE_MEAN)))
        found = aggregate(replace(answers, gold=None), "average").estimate
        naive.append(abs(found.mean() - TRUE_MEAN) < 1.96 * found.std() / np.sqrt(300))
    # The share of 400 has an error of 1.1 points.
    assert 0.93 <= np.mean(held) <= 0.975
    assert np.mean(naive) < 0.2


def test_good_estimates_make_it_narrower_than_gold_alone() -> None:
    found = [population_mean(crowd(seed, shared=0.2), "average") for seed in range(20)]
    assert np.mean([each.sd / each.gold_sd for each in found]) < 0.65
    assert np.mean([each.power for each in found]) > 0.6


def test_useless_estimates_leave_the_mean_of_gold() -> None:
    found = [population_mean(crowd(seed, useless=True), "average") for seed in range(40)]
    assert np.mean([each.power for each in found]) < 0.1
    moved = [abs(each.mean - each.gold_mean) / each.gold_sd for each in found]
    assert np.mean(moved) < 0.15
    assert min(moved) == 0.0
    # Learning that costs next to nothing.
    assert np.mean([each.sd / each.gold_sd for each in found]) < 1.03


def test_the_formula_is_that_of_ppi_python() -> None:
    truth = np.array([2.0, 3.5, 1.0, 4.0, 5.5, 2.5, 3.0, 4.5])
    hidden = np.array([2.2, 3.0, 1.9, 3.5, 4.6, 2.9, 3.3, 3.8])
    others = np.array([3.1, 2.0, 4.4, 2.7, 3.9, 1.5, 3.0, 2.6, 4.9, 3.3, 2.2, 3.6])
    mean, sd, _, power = _combine(truth, hidden, others)
    # ppi-python 0.2.3: ppi_mean_ci(truth, hidden, others, alpha=0.05, lam=power).
    low, high = 2.52766798, 3.87520559
    assert mean == pytest.approx((low + high) / 2, rel=1e-7)
    # It divides squares by n where we divide by n - 2, and takes the power as known.
    of_others = power**2 * others.var() / 12
    of_rest = ((high - low) / 2 / 1.9599639845) ** 2 - of_others
    apart = others.mean() - hidden.mean()
    of_power = of_rest * 8 / ((hidden - hidden.mean()) ** 2).sum() / (1 + 8 / 12) ** 2
    expected = of_others + (of_rest + apart**2 * of_power) * 8 / 6
    assert sd**2 == pytest.approx(expected, rel=1e-6)


def test_vectors_have_a_mean_for_each_coordinate() -> None:
    one = crowd(3)
    assert one.gold is not None
    both = replace(
        one,
        value=np.hstack([one.value, -2 * one.value]),
        gold=np.hstack([one.gold, -2 * one.gold]),
        value_names=("x", "y"),
    )
    found, single = population_mean(both, "average"), population_mean(one, "average")
    np.testing.assert_allclose(found.mean, single.mean * [1, -2])
    np.testing.assert_allclose(found.sd, single.sd * [1, 2])
    assert found.summary().count("the mean of") == 2
    assert found.to_dict()["value"] == ["x", "y"]


def test_gold_beside_answers_and_all_truths_known() -> None:
    answers = crowd(1)
    assert answers.gold is not None
    known = {int(i): answers.gold[i, 0] for i in np.flatnonzero(answers.is_gold)}
    found = population_mean(replace(answers, gold=None), "average", gold=known)
    assert found.mean == population_mean(answers, "average").mean
    every = population_mean(answers.part(answers.is_gold), "average")
    assert (every.mean, every.sd) == (every.gold_mean, every.gold_sd)
    assert every.to_dict()["estimates_mean"] == [None]


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(DataError, match="at least 5 tasks with a known truth"):
        population_mean(crowd(0, n_gold=4))
    with pytest.raises(ConfigError, match="angles have no mean"):
        population_mean(crowd(0), "average", scale="circular")
    with pytest.raises(ConfigError, match="level must be between 0 and 1"):
        population_mean(crowd(0), "average").interval(95)


def test_the_command_prints_what_the_function_finds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(6, 1, 60)
    rows = [
        f"{i},{w},{truth[i] + w + 0.3 * rng.standard_normal():.3f}"
        for i in range(60)
        for w in range(3)
    ]
    (tmp_path / "answers.csv").write_text("\n".join(["task,worker,value", *rows]))
    known = [f"{i},{truth[i]}" for i in range(0, 60, 3)]
    (tmp_path / "gold.csv").write_text("\n".join(["task,value", *known]))
    paths = [str(tmp_path / "answers.csv"), "--gold", str(tmp_path / "gold.csv")]
    done = CliRunner().invoke(main, ["mean", *paths, "--method", "judges", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    expected = population_mean(paths[0], Judges(), gold=paths[2])
    assert found["mean"] == pytest.approx(expected.mean.tolist())
    assert "20 known truths, and estimates of 40 other tasks" in done.stderr
