"""What the dashboard says of a campaign: forecasts, and the comparison with even buying."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sqlalchemy", reason="the extra serve is not installed")

from tests.test_serve_inference import Site
from voxpop.service.followed import Followed
from voxpop.service.learning import Learner, learn
from voxpop.service.publishing import known, make_board
from voxpop.service.summary import History, summarise

pytestmark = pytest.mark.filterwarnings("ignore::voxpop.DataWarning")


def summary(site: Site, *, learned: bool = True) -> dict[str, Any]:
    """What is published of the answers so far."""
    with site.database.connect() as connection:
        followed = Followed(connection, site.campaign)
    if learned:
        followed.take_over(learn(followed.job()))
    return summarise(followed, make_board(followed), known(followed), time.time())


def buy(site: Site, first: int, last: int, n: int) -> None:
    """Give some tasks n answers each, of workers drawn at random."""
    rng = np.random.default_rng(first)
    drawn = {i: rng.choice(20, n, replace=False).tolist() for i in range(first, last)}
    site.do(*(site.take(i, u) for i, workers in drawn.items() for u in workers))


def done(told: dict[str, Any]) -> tuple[float, float]:
    """Tasks done, and tasks that would be done by even buying."""
    *_, (_, bought, _, _, evenly) = told["history"]
    return bought, evenly


@pytest.mark.slow
@pytest.mark.parametrize(("crowd", "half_width"), [("plain", 2.0), ("tails", 6.0)])
def test_what_was_bought_evenly_is_as_good_as_even_buying(
    tmp_path: Path, crowd: str, half_width: float
) -> None:
    with (site := Site(str(tmp_path / "ages.db"), crowd=crowd, half_width=half_width)).database:
        buy(site, 0, 60, 6)
        bought, evenly = done(summary(site))
    assert 10 < bought < 58
    assert abs(bought - evenly) < 8  # two sds of 60 tosses


@pytest.mark.slow
def test_answers_bought_in_the_wrong_place_end_fewer_tasks_than_even_buying(
    tmp_path: Path,
) -> None:
    with (site := Site(str(tmp_path / "ages.db"), half_width=2.5)).database:
        buy(site, 0, 40, 2)
        buy(site, 40, 60, 14)
        bought, evenly = done(summary(site))
        assert bought < evenly - 8
    with (site := Site(str(tmp_path / "free.db"))).database:
        buy(site, 0, 60, 3)
        assert done(summary(site))[1] is None, "no rule ends a task"


def test_a_history_has_one_point_for_each_number_of_answers() -> None:
    """The latest of them; of a long one, points that are evenly apart."""
    history = History()
    for n in (5, 5, 8, 8, 8, 9):
        history.add([n, 0, None, None, None])
    history.add([9, 1, None, None, None])
    assert [point[:2] for point in history.points] == [[5, 0], [8, 0], [9, 1]]
    for n in range(10, 3000):
        history.add([n, 0, None, None, None])
    numbers = [point[0] or 0.0 for point in history.points]
    assert numbers[-1] == 2999
    assert 100 <= len(numbers) <= 200
    assert np.diff(numbers).min() > 0


def test_tasks_done_by_number_are_compared_with_even_buying(tmp_path: Path) -> None:
    with (site := Site(str(tmp_path / "ages.db"), answers_per_task=4)).database:
        buy(site, 0, 30, 4)
        assert done(summary(site, learned=False)) == (30, 0)
        buy(site, 30, 60, 4)
        assert done(summary(site, learned=False)) == (60, 60)


def test_the_answers_that_are_missing_are_counted_where_a_number_ends_tasks(tmp_path: Path) -> None:
    with (site := Site(str(tmp_path / "ages.db"), answers_per_task=4)).database:
        assert summary(site, learned=False)["answers_to_finish"] == 240
        buy(site, 0, 10, 4)
        buy(site, 10, 20, 1)
        assert summary(site, learned=False)["answers_to_finish"] == 190
        buy(site, 10, 60, 4)
        assert summary(site, learned=False)["answers_to_finish"] == 0


@pytest.mark.slow
def test_no_task_is_said_to_need_more_answers_than_it_can_get(tmp_path: Path) -> None:
    """A width that is out of reach costs no more than the maximum answers of every task."""
    found = {}
    for most in (None, 6):
        url = str(tmp_path / f"{most}.db")
        with (site := Site(url, half_width=0.1, answers_per_task=most)).database:
            buy(site, 0, 60, 5)
            found[most] = summary(site)["answers_to_finish"]
    assert found[6] == 60
    assert found[None] > 1000


@pytest.mark.slow
def test_a_fit_that_fails_is_said_and_not_tried_again_at_once(tmp_path: Path) -> None:
    with (site := Site(str(tmp_path / "ages.db"))).database:
        buy(site, 0, 60, 3)
        with site.database.connect() as connection:
            followed = Followed(connection, site.campaign)
        job = followed.job()
        learner = Learner()
        # Whatever a fit breaks on, there is an outcome; its message may quote an answer.
        learner.start(replace(job, value=job.value[:-1]))
        assert learner.result(60) in ("ValueError", "DataError")
        followed.failed = True
        assert not followed.wants_to_learn
        told = summarise(followed, make_board(followed), known(followed), time.time())
        assert "could not be learned" in told["model"]
        buy(site, 0, 60, 8)
        with site.database.connect() as connection:
            followed.follow(connection)
        assert followed.wants_to_learn
        followed.take_over(learn(followed.job()))
        told = summarise(followed, make_board(followed), known(followed), time.time())
        assert "could not be learned" not in told["model"]
        assert told["learned_answers"] == followed.campaign.n_answers


@pytest.mark.slow
@pytest.mark.parametrize("crowd", ["plain", "scale"])
def test_the_forecast_is_in_the_units_of_the_estimates(tmp_path: Path, crowd: str) -> None:
    """On whatever scale the noise was learned: 100 more answers beside 175 are no small thing."""
    with (site := Site(str(tmp_path / "ages.db"), crowd=crowd)).database:
        buy(site, 0, 59, 5)
        site.reveal(25)
        told = summary(site)
        assert told["next"]["rmse_after"] is None, "one task has no answer"
        buy(site, 59, 60, 5)
        told = summary(site)
    assert told["next"]["n_answers"] == 100
    assert 0.65 < told["next"]["rmse_after"] / told["expected_rmse"] < 0.9
