"""Crowds as every user has them: typos, experts among others, judges, prices, gains, copies.

Each is a function of a seeded generator. Sizes are everyday ones: 100 to 200 tasks, 5 to 8 answers
each, 30 to 40 workers. ``best`` is what an oracle makes of the same answers, where one is easy to
state: it knows the workers, never the truths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import voxpop as vp
from benchmarks.drawn_crowds import Draw, Rng
from voxpop.arrays import Floats

# Spread of the workers' noise, as sd of its logarithm: the default then has about .75 of the
# median's RMSE.
SPREAD = 0.5


class Case(NamedTuple):
    """Answers, the truth of every task, and what is known of both beside them, per task."""

    answers: vp.Answers
    truth: Floats
    best: Floats | None = None
    copied: np.ndarray | None = None
    accounts: tuple[str, ...] = ()


def make_case(
    draw: Draw,
    value: Floats,
    *,
    n_gold: int = 0,
    best: Floats | None = None,
    copied: np.ndarray | None = None,
    accounts: tuple[str, ...] = (),
) -> Case:
    """Make answers of a draw; so many random tasks have a known truth."""
    answers = vp.Answers.from_arrays(draw.task, draw.worker, value)
    # Tasks are numbered by their first answer.
    place = np.asarray(answers.task_ids, dtype=int)
    truth = draw.truths[place][:, None]
    if n_gold:
        gold = hide_all_but(truth, draw.rng.permutation(len(truth))[:n_gold])
        answers = vp.Answers.from_arrays(draw.task, draw.worker, value, gold=gold)
    return Case(
        answers,
        truth,
        None if best is None else best[place][:, None],
        None if copied is None else copied[place],
        accounts,
    )


def hide_all_but(truth: Floats, chosen: np.ndarray) -> Floats:
    """Return the truths of chosen tasks, NaN elsewhere."""
    gold = np.full_like(truth, np.nan)
    gold[chosen] = truth[chosen]
    return gold


def _mean_by_task(draw: Draw, value: Floats, counts: np.ndarray) -> Floats:
    """Weighted mean of the answers to each task; NaN where no answer counts."""
    n_tasks = len(draw.truths)
    weight = np.bincount(draw.task, counts, n_tasks)
    total = np.bincount(draw.task, counts * value, n_tasks)
    return np.asarray(np.divide(total, weight, out=np.full(n_tasks, np.nan), where=weight > 0))


def _levels(draw: Draw, sds: tuple[float, ...]) -> Floats:
    """Noise of every answer; as nearly as can be, as many workers of each level."""
    sd = draw.rng.permutation(np.resize(sds, draw.n_workers))
    return np.asarray(draw.of_workers(sd) * draw.noise)


# Slips: 100 tasks, 6 answers each, 30 workers


def _everyday_noise(draw: Draw) -> Floats:
    """Noise of every answer; about one unit, more with some workers than with others."""
    return draw.of_workers(np.exp(draw.rng.normal(0, SPREAD, draw.n_workers))) * draw.noise


def _pick(draw: Draw, count: int) -> np.ndarray:
    """Pick random answers, at most two of a task: with half of them wild no median would hold."""
    order = draw.rng.permutation(len(draw.task))
    task = draw.task[order]
    before = np.array([(task[:place] == own).sum() for place, own in enumerate(task)])
    return np.asarray(order[before < 2][:count])


def slips(rng: Rng, count: int = 0, size: float = 1000.0, *, upwards: bool = False) -> Case:
    """A number of answers are off by so many noise units, to either side or all upwards."""
    draw = Draw(rng, 100, 6, 20)
    value = draw.truth + _everyday_noise(draw)
    wild = _pick(draw, count)
    sign = np.ones(count) if upwards else rng.choice([-1.0, 1.0], count)
    value[wild] += sign * size
    return make_case(draw, value)


def decimal_typos(rng: Rng, share: float = 0.03) -> Case:
    """A share of the answers lack their decimal point: ten times what was meant."""
    draw = Draw(rng, 100, 6, 20)
    value = draw.truth + _everyday_noise(draw)
    value[_pick(draw, round(share * len(value)))] *= 10
    return make_case(draw, value)


def second_object(rng: Rng, share: float = 0.1) -> Case:
    """A share of the answers are about another object of the task, which is anywhere in the range.

    Coordinates of clicks in pictures of 1,000 pixels, with noise of about five.
    """
    draw = Draw(rng, 100, 6, 20, truths=rng.uniform(0, 1000, 100))
    about, strays = draw.truth.copy(), _pick(draw, round(share * len(draw.task)))
    about[strays] = rng.uniform(0, 1000, 100)[draw.task[strays]]
    return make_case(draw, about + 5 * _everyday_noise(draw))


def careless(rng: Rng, share: float = 0.2, often: float = 0.3) -> Case:
    """A share of the workers slip in so many of their answers, by about 100 noise units."""
    draw = Draw(rng, 100, 6, 20)
    value = draw.truth + _everyday_noise(draw)
    slipped = draw.some(share) & (rng.random(len(value)) < often)
    return make_case(draw, value + np.where(slipped, rng.normal(0, 100, len(value)), 0.0))


def cauchy(rng: Rng) -> Case:
    """Cauchy noise; workers differ in its scale.

    The oracle knows every scale: the posterior mean under Cauchy noise.
    """
    draw = Draw(rng, 100, 6, 20)
    draw.noise = rng.standard_cauchy(len(draw.task))
    scale = draw.of_workers(np.exp(draw.rng.normal(0, SPREAD, draw.n_workers)))
    value = draw.truth + scale * draw.noise
    best = np.empty(len(draw.truths))
    # Fine near every answer, coarse far out.
    about = 0.01 * np.sinh(np.linspace(-12, 12, 2001))
    for task in range(len(best)):
        rows = draw.task == task
        answer, wide = value[rows], scale[rows]
        points = np.sort(np.add.outer(answer, about).ravel())
        log_density = -np.log1p(((answer[:, None] - points) / wide[:, None]) ** 2).sum(axis=0)
        weight = np.exp(log_density - log_density.max()) * np.gradient(points)
        best[task] = weight @ points / weight.sum()
    return make_case(draw, value, best=best)


# Gold


def experts(rng: Rng, share: float, n_gold: int) -> Case:
    """A share of the workers are experts; the others share an error of sd 6 on every task.

    The oracle takes the mean of the experts, and of all where no expert answered.
    """
    draw = Draw(rng, 200, 8, 40)
    expert = draw.some(share)
    common = rng.normal(0, 6, len(draw.truths))[draw.task]
    value = draw.truth + np.where(expert, 0.0, common) + draw.noise
    everybody = _mean_by_task(draw, value, np.ones(len(value)))
    best = _mean_by_task(draw, value, expert.astype(float))
    return make_case(draw, value, n_gold=n_gold, best=np.where(np.isnan(best), everybody, best))


def judges(rng: Rng, n_judges: int = 5, n_gold: int = 20, *, lenient: bool = False) -> Case:
    """A few judges score all items, each with an offset, a gain and a noise of its own.

    Lenient judges are all too high, by less.
    """
    draw = Draw(rng, 200, n_judges, 200, truths=rng.standard_normal(200))
    offset = rng.normal(0, 2.0, n_judges)
    if lenient:
        offset = 0.5 * np.abs(offset)
    gain = rng.uniform(0.3, 1.3, n_judges)
    sd = rng.uniform(0.4, 0.95, n_judges)
    value = draw.of_workers(offset) + draw.of_workers(gain) * draw.truth
    return make_case(draw, value + draw.of_workers(sd) * draw.noise, n_gold=n_gold)


# Scales: the truth is the median of the noise on the scale on which noise is alike


def prices(rng: Rng, sds: tuple[float, ...]) -> Case:
    """Prices with log-normal noise; workers may differ in it."""
    draw = Draw(rng, 200, 6, 40, truths=np.exp(rng.normal(4, 0.6, 200)))
    return make_case(draw, draw.truth * np.exp(_levels(draw, sds)))


def counts(rng: Rng) -> Case:
    """Counts: Poisson about the truth times a log-normal factor; workers differ."""
    draw = Draw(rng, 200, 6, 40, truths=np.exp(rng.normal(3, 0.7, 200)))
    return make_case(
        draw, rng.poisson(draw.truth * np.exp(_levels(draw, (0.1, 0.3, 0.6)))).astype(float)
    )


def percentages(rng: Rng) -> Case:
    """Percentages with Gaussian noise of the logits; workers differ."""
    draw = Draw(rng, 200, 6, 40, truths=rng.normal(0, 1.5, 200))
    value = _expit(draw.truth + _levels(draw, (0.3, 0.8, 1.5)))
    draw.truths = _expit(draw.truths)
    return make_case(draw, value)


def _expit(logit: Floats) -> Floats:
    return np.asarray(100 / (1 + np.exp(-logit)))


def angles(rng: Rng) -> Case:
    """Directions in degrees, 0 to 360, most about 180; noise of 5, 15 or 40 degrees."""
    draw = Draw(rng, 200, 6, 40, truths=rng.normal(180, 90, 200) % 360)
    return make_case(draw, (draw.truth + _levels(draw, (5.0, 15.0, 40.0))) % 360)


def ratings(rng: Rng) -> Case:
    """Ratings 1 to 5 in whole numbers, truths finer, some at either end; workers differ."""
    draw = Draw(rng, 200, 6, 40, truths=np.clip(rng.normal(3.5, 1.2, 200), 1, 5))
    return make_case(draw, np.clip(np.round(draw.truth + _levels(draw, (0.4, 0.8, 1.2))), 1, 5))


# Gains


def gains(rng: Rng, low: float, high: float, sds: tuple[float, ...] = (3.0,)) -> Case:
    """Each worker stretches or shrinks the scale about its middle.

    The oracle knows every gain but for their mean, which no answer shows, every noise, and the
    distribution of truths.
    """
    draw = Draw(rng, 200, 6, 40, truths=rng.normal(50, 16, 200))
    return _with_gains(draw, rng.uniform(low, high, draw.n_workers), sds)


def compress(rng: Rng) -> Case:
    """Half of the workers use two fifths of the scale, about its middle."""
    draw = Draw(rng, 200, 6, 40, truths=rng.normal(50, 16, 200))
    return _with_gains(draw, rng.permutation(np.resize([0.4, 1.0], draw.n_workers)), (3.0,))


def _with_gains(draw: Draw, gain: Floats, sds: tuple[float, ...]) -> Case:
    sd = draw.rng.permutation(np.resize(sds, draw.n_workers))
    seen = draw.of_workers(gain) * (draw.truth - 50) + draw.of_workers(sd) * draw.noise
    slope, weight = draw.of_workers(gain / gain.mean()), draw.of_workers(sd**-2.0)
    n_tasks = len(draw.truths)
    above = np.bincount(draw.task, weight * slope * seen, n_tasks)
    best = 50 + above / (np.bincount(draw.task, weight * slope**2, n_tasks) + 16.0**-2)
    return make_case(draw, 50 + seen, best=best)


# Copies: 150 tasks, 8 answers each, 30 workers, all as noisy


def copies(rng: Rng, count: int = 8, noise: float = 0.0, often: float = 1.0) -> Case:
    """Some of 30 workers copy one: exactly or nearly, always or part of the time.

    The oracle knows which answers are copied, and weighs by the covariance of the answers.
    """
    draw = Draw(rng, 150, 8, 40)
    sd = 10.0
    own = sd * draw.noise
    source = sd * rng.standard_normal(len(draw.truths))
    who = rng.permutation(draw.n_workers)
    own = np.where(draw.worker == who[0], source[draw.task], own)
    copier = np.isin(draw.worker, who[1 : count + 1])
    copied = copier & (rng.random(len(own)) < often)
    own = np.where(copied, source[draw.task] + noise * rng.standard_normal(len(own)), own)
    value = draw.truth + own
    same = copied | (draw.worker == who[0])
    best = np.empty(len(draw.truths))
    for task in range(len(best)):
        rows = np.flatnonzero(draw.task == task)
        covariance = np.outer(same[rows], same[rows]) * sd**2
        extra = noise**2 * copied[rows]
        # A little more, so that exact copies have an inverse.
        np.fill_diagonal(covariance, sd**2 * (1 + 1e-9) + extra)
        weight = np.linalg.solve(covariance, np.ones(len(rows)))
        best[task] = weight @ value[rows] / weight.sum()
    return make_case(draw, value, best=best)


def second_account(rng: Rng) -> Case:
    """An average worker has a second account, which repeats all of his answers.

    The oracle knows everybody's noise, and leaves the second account out.
    """
    draw = Draw(rng, 200, 6, 40)
    sd = rng.permutation(np.resize((2.3, 6.0, 17.0), draw.n_workers))
    value = draw.truth + draw.of_workers(sd) * draw.noise
    best = _mean_by_task(draw, value, draw.of_workers(sd**-2.0))
    first = int(np.flatnonzero(sd == 6.0)[0])
    again = np.flatnonzero(draw.worker == first)
    copied = np.isin(np.arange(len(draw.truths)), draw.task[again])
    draw.task = np.append(draw.task, draw.task[again])
    draw.worker = np.append(draw.worker, np.full(len(again), draw.n_workers))
    accounts = (str(first), str(draw.n_workers))
    value = np.append(value, value[again])
    return make_case(draw, value, best=best, copied=copied, accounts=accounts)


# Small, and broad


def small(rng: Rng, n_tasks: int, n_workers: int) -> Case:
    """All of a few workers answer all of a few tasks; their noise differs."""
    draw = Draw(rng, n_tasks, n_workers, n_tasks)
    sd = 10 * np.exp(rng.normal(0, 0.5, draw.n_workers))
    return make_case(draw, draw.truth + draw.of_workers(sd) * draw.noise)


def broad(rng: Rng) -> Case:
    """A crowd of any size, with or without levels, biases, tails, hard tasks; no shared error."""
    per_task = int(rng.integers(3, 11))
    n_workers = int(rng.integers(max(12, per_task), 41))
    n_tasks = n_workers * int(rng.integers(2, 9))
    draw = Draw(rng, n_tasks, per_task, n_tasks * per_task // n_workers)
    levels, biased, heavy, hard = rng.random(4) < (0.7, 0.4, 0.3, 0.3)
    spread = rng.uniform(0.3, 1.2) if levels else 0.0
    sd = 10 * np.exp(rng.normal(0, spread, draw.n_workers))
    if heavy:
        draw.noise = rng.standard_t(rng.uniform(2.5, 6), len(draw.task))
    bias = rng.normal(0, rng.uniform(3, 10) if biased else 0.0, draw.n_workers)
    ease = np.exp(rng.normal(0, rng.uniform(0.3, 0.8) if hard else 0.0, n_tasks))
    noise = draw.of_workers(sd) * ease[draw.task] * draw.noise
    return make_case(draw, draw.truth + draw.of_workers(bias) + noise)
