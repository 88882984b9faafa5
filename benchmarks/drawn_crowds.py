"""Synthetic crowds with a known truth: such as simple models draw, and such as mislead a model.

Each is a function of a seeded generator; ``CROWDS`` has them by name. What the truth is stands in
the first line of each: where errors are shared or skewed, no method can see it from the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

import voxpop as vp
from voxpop.arrays import Floats

Rng = np.random.Generator


class Crowd(NamedTuple):
    """Answers and the truth of every task, in the order of ``answers.task_ids``."""

    answers: vp.Answers
    truth: Floats


Make = Callable[[Rng], Crowd]


class Draw:
    """Who answers what, with truths and standard normal noise to make answers of.

    ``truth``, ``noise`` and ``worker`` are per answer; :meth:`crowd` makes a crowd of the answers.
    """

    def __init__(
        self,
        rng: Rng,
        n_tasks: int = 200,
        per_task: int = 5,
        per_worker: int = 20,
        truths: Floats | None = None,
    ) -> None:
        dealt = vp.assign_regular(n_tasks, per_task, per_worker, rng)
        self.task, self.worker, self.n_workers = dealt.task, dealt.worker, dealt.n_workers
        self.truths = rng.normal(50, 20, n_tasks) if truths is None else truths
        self.truth = self.truths[self.task]
        self.noise = rng.standard_normal(len(self.task))
        self.rng = rng

    def of_workers(self, values: Floats) -> Floats:
        """Give every answer its worker's value."""
        return np.asarray(values[self.worker])

    def some(self, share: float) -> np.ndarray:
        """Tell of every answer whether its worker is one of a random share of the workers."""
        chosen = np.arange(self.n_workers) < max(1, round(share * self.n_workers))
        return np.asarray(self.rng.permutation(chosen)[self.worker])

    def crowd(self, value: Floats, kept: np.ndarray | None = None) -> Crowd:
        """Make a crowd of these answers, or of some of them."""
        keep = np.ones(len(self.task), dtype=bool) if kept is None else kept
        answers = vp.Answers.from_arrays(self.task[keep], self.worker[keep], value[keep])
        return Crowd(answers, self.truths[np.asarray(answers.task_ids, dtype=int)][:, None])


# Simple models


def alike(rng: Rng, n_tasks: int = 200, per_task: int = 5, per_worker: int = 20) -> Crowd:
    """Gaussian noise, all workers alike: the mean cannot be beaten."""
    draw = Draw(rng, n_tasks, per_task, per_worker)
    return draw.crowd(draw.truth + 10 * draw.noise)


def levels(rng: Rng, n_tasks: int = 200, per_task: int = 5, per_worker: int = 20) -> Crowd:
    """The paper's crowd: variance 10, 100 or 1000."""
    draw = Draw(rng, n_tasks, per_task, per_worker)
    sd = np.sqrt(rng.choice([10.0, 100.0, 1000.0], draw.n_workers))
    return draw.crowd(draw.truth + draw.of_workers(sd) * draw.noise)


def bias(rng: Rng) -> Crowd:
    """Every worker is off by a constant of the size of the noise."""
    draw = Draw(rng)
    return draw.crowd(
        draw.truth + draw.of_workers(rng.normal(0, 10, draw.n_workers)) + 10 * draw.noise
    )


def tails(rng: Rng) -> Crowd:
    """Student-t noise with two degrees of freedom: the median beats the mean."""
    draw = Draw(rng)
    return draw.crowd(draw.truth + 5 * rng.standard_t(2, len(draw.task)))


def laplace(rng: Rng) -> Crowd:
    """Laplace noise, all workers alike."""
    draw = Draw(rng)
    return draw.crowd(draw.truth + rng.laplace(0, 7, len(draw.task)))


def difficulty(rng: Rng) -> Crowd:
    """Half of the tasks are ten times as hard, workers alike."""
    draw = Draw(rng)
    sd = np.where(rng.random(len(draw.truths)) < 0.5, 3.0, 30.0)[draw.task]
    return draw.crowd(draw.truth + sd * draw.noise)


def slips(rng: Rng) -> Crowd:
    """One answer in ten is anywhere on the scale."""
    draw = Draw(rng)
    lost = rng.random(len(draw.task)) < 0.1
    return draw.crowd(np.where(lost, rng.uniform(0, 100, len(lost)), draw.truth + 5 * draw.noise))


def guessers(rng: Rng) -> Crowd:
    """A third of the workers answer anywhere on the scale."""
    draw = Draw(rng)
    lost = draw.some(1 / 3)
    return draw.crowd(np.where(lost, rng.uniform(0, 100, len(lost)), draw.truth + 8 * draw.noise))


# What looks like agreement and is none


def straight_liners(rng: Rng, share: float = 0.2, per_task: int = 5) -> Crowd:
    """Ratings 1..5; a fifth of the workers always give the commonest."""
    truths = rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], 200, p=[0.05, 0.1, 0.2, 0.4, 0.25])
    draw = Draw(rng, 200, per_task, 20, truths=truths)
    honest = np.clip(np.round(draw.truth + 0.9 * draw.noise), 1, 5)
    return draw.crowd(np.where(draw.some(share), 4.0, honest))


def straight_liners_fine(rng: Rng, share: float = 0.2) -> Crowd:
    """A fine scale; a fifth of the workers always answer its middle."""
    draw = Draw(rng, per_task=6)
    return draw.crowd(np.where(draw.some(share), 50.0, draw.truth + 10 * draw.noise))


def zeros(rng: Rng, lazy: float = 0.0) -> Crowd:
    """About 74 % zeros: many see nothing where others do; truths are the expected opinion."""
    visible = rng.beta(0.6, 1.7, 200)
    strength = 20 + 60 * visible
    draw = Draw(rng, 200, 10, 50, truths=visible * strength)
    eye = draw.of_workers(rng.normal(0, 0.7, draw.n_workers))
    odds = np.log(visible / (1 - visible))[draw.task] + eye
    seen = rng.random(len(draw.task)) < 1 / (1 + np.exp(-odds))
    reported = np.clip(strength[draw.task] * (1 + 0.3 * draw.noise), 1, 100)
    value = np.where(seen, reported, 0.0)
    return draw.crowd(np.where(draw.some(lazy), 0.0, value) if lazy else value)


def zeros_censored(rng: Rng) -> Crowd:
    """Answers below 0 are given as 0; so are truths; workers differ in noise."""
    raw = rng.normal(-15, 30, 200)
    draw = Draw(rng, 200, 8, 40, truths=np.maximum(raw, 0))
    sd = draw.of_workers(rng.choice([5.0, 15.0, 30.0], draw.n_workers))
    return draw.crowd(np.maximum(raw[draw.task] - 5 + sd * draw.noise, 0).round())


def yes_no(rng: Rng) -> Crowd:
    """Answers are 0 or 100, truths the share of those who say 100."""
    draw = Draw(rng, 200, 10, 40, truths=100 * rng.beta(1, 2, 200))
    return draw.crowd(np.where(rng.random(len(draw.task)) * 100 < draw.truth, 100.0, 0.0))


def yes_no_some(rng: Rng) -> Crowd:
    """Two workers in five answer 0 or 100 by chance about the truth; the others are noisy."""
    draw = Draw(rng, 200, 8, 40, truths=100 * rng.beta(2, 2, 200))
    coin = np.where(rng.random(len(draw.task)) * 100 < draw.truth, 100.0, 0.0)
    fine = np.clip(draw.truth + 25 * draw.noise, 0, 100)
    return draw.crowd(np.where(draw.some(0.4), coin, fine))


def copies(rng: Rng, share: float = 0.3) -> Crowd:
    """Three workers in ten give the answers of one, who is as noisy as anybody."""
    draw = Draw(rng, 200, 8, 80)
    source = draw.truths + 12 * rng.standard_normal(len(draw.truths))
    return draw.crowd(np.where(draw.some(share), source[draw.task], draw.truth + 12 * draw.noise))


def camps(rng: Rng, share: float = 0.4) -> Crowd:
    """Two camps: two fifths see every task otherwise, and agree among themselves better."""
    draw = Draw(rng, 200, 8, 40)
    other = draw.truths + rng.normal(0, 15, len(draw.truths))
    in_other = draw.some(share)
    return draw.crowd(
        np.where(in_other, other[draw.task] + 4 * draw.noise, draw.truth + 12 * draw.noise)
    )


def camps_shift(rng: Rng) -> Crowd:
    """Two fifths of the workers are 20 too high; the truth is with the others."""
    draw = Draw(rng, 200, 6, 30)
    return draw.crowd(draw.truth + 20 * draw.some(0.4) + 8 * draw.noise)


def camps_between(rng: Rng) -> Crowd:
    """Half of the workers are 15 too high, half 15 too low, and the precise ones are all high."""
    draw = Draw(rng, 200, 6, 30)
    high = draw.some(0.5)
    return draw.crowd(draw.truth + np.where(high, 15 + 4 * draw.noise, -15 + 12 * draw.noise))


def shared(rng: Rng) -> Crowd:
    """Workers share errors: half of the noise is the task's own, the truth is what it is."""
    draw = Draw(rng)
    common = rng.normal(0, 8, len(draw.truths))[draw.task]
    return draw.crowd(draw.truth + common + 8 * draw.noise)


def centre(rng: Rng) -> Crowd:
    """Half of the workers answer half-way to the middle: precise, agreeing, and wrong."""
    draw = Draw(rng, 200, 6, 30)
    shy = 50 + 0.5 * (draw.truth - 50) + 4 * draw.noise
    return draw.crowd(np.where(draw.some(0.5), shy, draw.truth + 12 * draw.noise))


def reticent(rng: Rng) -> Crowd:
    """Half of the workers say a tenth of what they see, each from a zero of his own: all agree."""
    draw = Draw(rng, 200, 8, 40, truths=rng.gamma(0.5, 30.0, 200))
    offset = draw.of_workers(rng.normal(0, 8, draw.n_workers))
    little = 0.1 * draw.truth + 3 * draw.noise
    return draw.crowd(offset + np.where(draw.some(0.5), little, draw.truth + 12 * draw.noise))


# What no Gaussian is


def skewed(rng: Rng) -> Crowd:
    """Noise is exponential less its mean: the mean is right, the median low."""
    draw = Draw(rng)
    return draw.crowd(draw.truth + rng.exponential(12, len(draw.task)) - 12)


def skewed_workers(rng: Rng) -> Crowd:
    """The same where workers differ in scale, truths the mean."""
    draw = Draw(rng, 200, 8, 40)
    scale = draw.of_workers(rng.choice([4.0, 12.0, 30.0], draw.n_workers))
    return draw.crowd(draw.truth + scale * (rng.exponential(1, len(draw.task)) - 1))


def log_normal(rng: Rng) -> Crowd:
    """Counts of very different size, noise in proportion; truths the mean answer."""
    truths = np.exp(rng.normal(3, 1.2, 200))
    draw = Draw(rng, truths=truths)
    return draw.crowd(draw.truth * np.exp(0.5 * draw.noise - 0.125))


def one_sided(rng: Rng) -> Crowd:
    """Answers fall short of the truth by an exponential: as counting what one may overlook."""
    draw = Draw(rng)
    return draw.crowd(draw.truth - rng.exponential(8, len(draw.task)) + 2 * draw.noise)


def ceiling(rng: Rng, per_task: int = 5, per_worker: int = 20, lazy: float = 0.0) -> Crowd:
    """Ratings 1..5, most of them 4 and 5, truths finer than the scale."""
    draw = Draw(rng, 200, per_task, per_worker, np.clip(rng.normal(4.3, 0.7, 200), 1, 5))
    value = np.clip(np.round(draw.truth + 0.9 * draw.noise), 1, 5)
    return draw.crowd(np.where(draw.some(lazy), 5.0, value) if lazy else value)


def ratings(rng: Rng) -> Crowd:
    """Ratings 1..5 in whole numbers, low noise: many tasks where all agree."""
    draw = Draw(rng, truths=rng.uniform(1, 5, 200))
    return draw.crowd(np.clip(np.round(draw.truth + 0.4 * draw.noise), 1, 5))


def rounded(rng: Rng) -> Crowd:
    """Half of the workers round to tens, and are as noisy as the others."""
    draw = Draw(rng)
    value = draw.truth + 8 * draw.noise
    return draw.crowd(np.where(draw.some(0.5), 10 * np.round(value / 10), value))


def scales(rng: Rng) -> Crowd:
    """Some workers stretch the scale about its middle, some shrink it."""
    draw = Draw(rng, 200, 6, 30)
    slope = draw.of_workers(rng.choice([0.5, 1.0, 1.5], draw.n_workers))
    return draw.crowd(50 + slope * (draw.truth - 50) + 6 * draw.noise)


def wrong_unit(rng: Rng) -> Crowd:
    """Every seventh worker answers in another unit, a tenth of what is asked."""
    draw = Draw(rng, 200, 6, 30)
    value = draw.truth + 6 * draw.noise
    return draw.crowd(np.where(draw.some(1 / 7), value / 10, value))


def sizes(rng: Rng) -> Crowd:
    """Tasks of two kinds, a hundred times apart in scale and noise."""
    draw = Draw(rng)
    kind = np.where(rng.random(len(draw.truths)) < 0.5, 1.0, 0.01)
    draw.truths, scale = draw.truths * kind, kind[draw.task]
    return draw.crowd((draw.truth + 10 * draw.noise) * scale)


# Who answers what


def busy_good(rng: Rng, sd: float = 3.0) -> Crowd:
    """One worker answers nearly everything, and well; others twenty each."""
    draw = Draw(rng, 200, 5, 20)
    task = np.flatnonzero(rng.random(200) < 0.95)
    draw.noise[:] *= 10.0
    draw.noise = np.append(draw.noise, sd * rng.standard_normal(len(task)))
    draw.task = np.append(draw.task, task)
    draw.worker = np.append(draw.worker, np.full(len(task), draw.n_workers))
    return draw.crowd(draw.truths[draw.task] + draw.noise)


def busy_biased(rng: Rng) -> Crowd:
    """One worker answers nearly everything, precisely, and 10 too high."""
    draw = busy_good(rng, 2.0)
    answers = draw.answers
    busiest = answers.worker == np.argmax(answers.worker_degree)
    value = answers.value[:, 0] + 10.0 * busiest
    task = np.asarray(answers.task_ids)[answers.task]
    shifted = vp.Answers.from_arrays(task, np.asarray(answers.worker_ids)[answers.worker], value)
    order = {t: i for i, t in enumerate(answers.task_ids.tolist())}
    return Crowd(shifted, draw.truth[[order[t] for t in shifted.task_ids.tolist()]])


def newcomers(rng: Rng) -> Crowd:
    """Workers differ in noise and give two answers each."""
    draw = Draw(rng, 200, 4, 2)
    sd = rng.choice([3.0, 10.0, 30.0], draw.n_workers)
    return draw.crowd(draw.truth + draw.of_workers(sd) * draw.noise)


def thin(rng: Rng, sds: tuple[float, ...] = (3.0, 10.0, 30.0)) -> Crowd:
    """One or two answers a task, workers differ in noise."""
    draw = Draw(rng, 300, 2, 20)
    sd = draw.of_workers(rng.choice(sds, draw.n_workers))
    kept = (rng.random(len(draw.task)) < 0.7) | (np.arange(len(draw.task)) % 2 == 0)
    return draw.crowd(draw.truth + sd * draw.noise, kept)


def careful_on_hard(rng: Rng) -> Crowd:
    """Good workers are given the hard tasks, so that they look as noisy as the others."""
    draw = Draw(rng, 200, 6, 30)
    hard = rng.random(len(draw.truths)) < 0.5
    good = draw.some(0.5)
    sd = np.where(hard[draw.task], 20.0, 5.0) * np.where(good, 0.7, 1.4)
    kept = (hard[draw.task] == good) | (rng.random(len(sd)) < 0.3)
    return draw.crowd(draw.truth + sd * draw.noise, kept)


def easy_pickers(rng: Rng) -> Crowd:
    """A third of the workers answer only what is easy and guess the middle of what is not."""
    draw = Draw(
        rng, 200, 6, 30, truths=np.where(rng.random(200) < 0.6, 50.0, rng.uniform(0, 100, 200))
    )
    return draw.crowd(
        np.where(draw.some(1 / 3), 50.0 + 2 * draw.noise, draw.truth + 10 * draw.noise)
    )


MODEL = {
    "paper_3_6": partial(levels, n_tasks=300, per_task=3, per_worker=6),
    "paper_5_5": partial(levels, per_task=5, per_worker=5),
    "paper_10_50": partial(levels, per_task=10, per_worker=50),
}
SIMPLE: tuple[Make, ...] = (alike, levels, bias, tails, laplace, difficulty, slips, guessers)
MISLEADING: tuple[Make, ...] = (
    *(straight_liners, straight_liners_fine, zeros, zeros_censored, yes_no, yes_no_some),
    *(copies, camps, camps_shift, camps_between, shared, centre, reticent, skewed, skewed_workers),
    *(log_normal, one_sided, ceiling, ratings, rounded, scales, wrong_unit, sizes),
    *(busy_good, busy_biased, newcomers, thin, careful_on_hard, easy_pickers),
)
VARIED: dict[str, Make] = {
    "alike_sparse": partial(alike, per_task=3, per_worker=2),
    "alike_complete": partial(alike, n_tasks=30, per_task=10, per_worker=30),
    "alike_three_workers": partial(alike, n_tasks=60, per_task=3, per_worker=60),
    "alike_few_tasks": partial(alike, n_tasks=8, per_task=12, per_worker=8),
    "straight_liners_40": partial(straight_liners, share=0.4, per_task=10),
    "straight_liners_fine_10": partial(straight_liners_fine, share=0.1),
    "zeros_lazy": partial(zeros, lazy=0.2),
    "zeros_lazy_40": partial(zeros, lazy=0.4),
    "copies_two": partial(copies, share=0.1),
    "copies_three": partial(copies, share=0.15),
    "camps_20": partial(camps, share=0.2),
    "ceiling_lazy": partial(ceiling, lazy=0.3),
    "ceiling_sparse": partial(ceiling, per_task=3, per_worker=3),
    "busy_bad": partial(busy_good, sd=30.0),
    "thin_alike": partial(thin, sds=(10.0,)),
}
CROWDS: dict[str, Make] = {
    **{make.__name__: make for make in (*SIMPLE, *MISLEADING)},
    **VARIED,
    **MODEL,
}
