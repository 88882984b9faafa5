"""Where to integrate over a task's truth: zoom in on what matters, then follow the local scale.

With many answers the truth is known to a small part of the range of the answers. A coarse scan
with bounds that hold for certain finds that part (M14a); nodes are placed there only, with steps
that follow the local scale of the integrand (M14), so that their number does not grow with the
number of answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats

# Most nodes to spend on the empty space between answers that no level reaches across.
_MOST_WIDE_NODES = 6000.0
# Most nodes to spend on a range without narrower ones around the answers.
_MOST_EVEN_NODES = 128.0
# Limits to how far nodes stay fine around an answer: nats by which wide levels can be ruled out,
# and how far a message about an improbable level can draw the truth.
_MOST_RULED_OUT, _MOST_DRAWN = 1e4, 225.0
# Least sd that nodes try to resolve, as a share of the range of a task's answers: a step that the
# spacing of floating-point numbers would swallow leads nowhere.
_FINEST = 1e-12
# Numbers in flight while workers' functions are worked out: 8 MB.
_NUMBERS_IN_FLIGHT = 1_000_000
# Lengths that numpy adds up without a remainder.
_WHOLE_LENGTH = 64
# Points of one scan below and from its centre on, and at first how many sd apart; how few nodes are
# not worth a scan, and most scans.
_BELOW, _ABOVE, _APART = 11, 12, 2.0
_FEW_NODES, _MOST_SCANS = 64.0, 12
# Steps of the search for that centre.
_SEARCH = 3


@dataclass(frozen=True, eq=False)
class Tasks:
    """One-dimensional tasks, (n, l) answers, and the functions that their workers are to them.

    ``height`` (n, l, K) is log m_u(k) / sqrt(s_k), so that worker u is F_u(x) = Σ_k exp(height_k
    - (x - A_u)² / (2 s_k)) (M12).
    """

    value: Floats
    height: Floats
    levels: Floats
    prior_mean: Floats
    prior_precision: float

    @classmethod
    def hear(
        cls,
        value: Floats,
        incoming: Floats,
        levels: Floats,
        prior_mean: Floats,
        prior_variance: float,
    ) -> Tasks:
        """Take log messages (n, l, K) from the workers."""
        height = incoming - 0.5 * np.log(levels)
        return cls(value, height, levels, prior_mean, 1.0 / prior_variance)

    def rows(self, rows: NDArray[np.intp]) -> Tasks:
        """Return some of the tasks."""
        return Tasks(
            self.value[rows],
            self.height[rows],
            self.levels,
            self.prior_mean[rows],
            self.prior_precision,
        )

    def some_answers(self, n_points: int) -> Iterator[slice]:
        """Cut the answers so that numbers in flight stay few, however many answers."""
        n, degree = self.value.shape
        size = max(1, _NUMBERS_IN_FLIGHT // (n * n_points * len(self.levels)))
        return (slice(start, min(start + size, degree)) for start in range(0, degree, size))

    def log_prior(self, x: Floats) -> Floats:
        """Log density of the prior at x (n, Q), up to a constant."""
        if not self.prior_precision:
            return np.zeros_like(x)
        return np.asarray(-0.5 * self.prior_precision * (x - self.prior_mean[:, None]) ** 2)

    def terms(self, x: Floats, some: slice) -> tuple[Floats, Floats, Floats]:
        """Logs of some workers' functions at x, (n, u, Q); their terms, (n, u, K, Q), and sums.

        Both are over the largest term.
        """
        squared = (x[:, None, :] - self.value[:, some, None]) ** 2
        terms = -(0.5 / self.levels)[:, None] * squared[:, :, None, :]
        terms += self.height[:, some, :, None]
        top = terms.max(axis=2)
        terms -= top[:, :, None]
        np.exp(terms, out=terms)
        total = terms.sum(axis=2)
        return np.asarray(top + np.log(total)), terms, total

    def log_functions(self, x: Floats) -> Floats:
        """Logs of all workers' functions at x, (n, l, Q)."""
        log_f = np.empty((*self.value.shape, x.shape[1]))
        for some in self.some_answers(x.shape[1]):
            log_f[:, some] = self.terms(x, some)[0]
        return log_f


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes x (n, Q) of the integral of each task, and weights; past its end a task weighs 0."""

    x: Floats
    weight: Floats

    @property
    def log_weight(self) -> Floats:
        """Log of the weights; minus infinity past the end."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weight))


def place_nodes(tasks: Tasks, accuracy: float, refinement: float = 1.0) -> Nodes:
    """Choose the nodes of a block of tasks for an error near ``accuracy``.

    The step at x is ``alpha / sqrt(W(x))``, with W a precision that the integrand does not exceed
    there. Of worker u, levels below f_u weigh nothing anywhere, and at a distance d from the
    answer levels below (d / c_u)² weigh nothing beside w_u, a wide one that is not ruled out::

        W(x) = Σ_u [1 / w_u + (1 / f_u - 1 / w_u) / (1 + (x - A_u)² / (c_u² f_u))]
               + 1 / s_min + 1 / tau²                                                  (M14)

    in which 1 / s_min is for the message to a worker about the lowest level. Where it would take
    too many nodes, f_u and w_u are the lowest and the widest level, and 1 / s_min is left out.

    Nodes are the orbit x' = x + alpha / sqrt(W(x)), weights the product of its derivatives: an
    analytic map of the integers, on which the trapezoid rule converges exponentially. A constant
    factor in all weights of a task does not matter, since messages and moments are normalised.
    """
    alpha = np.pi * np.sqrt(2.0 / np.log(2.0 / accuracy))
    spare = np.log(1.0 / accuracy)
    low, high = _range(tasks, spare)
    finest = np.maximum(tasks.levels.min(), (_FINEST * (high - low)) ** 2)
    low, high = _zoom(tasks, low, high, accuracy, alpha)
    width = high - low
    fine, wide, behind = _credible_levels(tasks, spare)
    even = _in_order(1.0 / wide) + tasks.prior_precision + 1.0 / finest
    is_even = width * np.sqrt(even) <= alpha * _MOST_EVEN_NODES
    own = np.where(is_even, 1.0 / finest, 0.0)
    last = tasks.levels.argmax()
    ruled_out = tasks.height.max(axis=2) - tasks.height[:, :, last]
    fine = np.maximum(np.where(is_even[:, None], fine, 0.0), finest[:, None])
    wide = np.maximum(np.where(is_even[:, None], wide, tasks.levels[last]), fine)
    behind = np.where(is_even[:, None], behind, ruled_out)
    flat = _in_order(1.0 / wide) + tasks.prior_precision
    pull = _in_order(tasks.value / wide)
    if tasks.prior_precision:
        pull = pull + tasks.prior_precision * tasks.prior_mean
    # The message to u about s_k draws the truth from the mean of the others to sqrt(D² W / 4)
    # of its sd from the answer, or nearer, where D is the distance of that mean.
    drawn = 0.5 * (tasks.value - (pull / flat)[:, None]) ** 2 * flat[:, None]
    drawn = np.where(is_even[:, None], 0.0, np.minimum(drawn, _MOST_DRAWN * spare))
    reach_squared = 4.5 * (spare + np.minimum(behind, _MOST_RULED_OUT)) + drawn
    drop, decay = 1.0 / fine - 1.0 / wide, 1.0 / (reach_squared * fine)
    drop_decay = drop * decay
    flattest = np.minimum(flat, (alpha * _MOST_WIDE_NODES / width) ** 2)
    far = flattest < flat
    centre, near = _far_centres(tasks, wide, pull, flat, far), 1.0 / (4.5 * spare)
    alpha /= refinement
    shortest = 1e-15 * np.maximum(np.abs(low), np.abs(high))
    x, weight = low.copy(), np.ones(len(low))
    xs, weights = [], []
    while True:
        inside = x <= high
        xs.append(x)
        weights.append(np.where(inside, weight, 0.0))
        if not inside.any():
            break
        distance = x[:, None] - tasks.value
        fall = 1.0 / (1.0 + decay * distance**2)
        total = (drop * fall).sum(axis=1) + flattest + own
        slope = (drop_decay * distance * fall * fall).sum(axis=1)
        if centre is not None:
            distance = x[:, None] - centre
            fall = 1.0 / (np.maximum(1.0 / flat, finest)[:, None] + near * distance**2)
            fall[~far] = 0.0
            total += fall.sum(axis=1)
            slope += near * (distance * fall * fall).sum(axis=1)
        step = np.maximum(alpha / np.sqrt(total), shortest)
        x = x + step
        weight = weight * (1.0 + step * slope / total)
    # Sums over nodes round by how many there are; so that tasks say the same in any block, these
    # are filled up to whole lengths with nodes that weigh nothing.
    missing = -len(xs) % _WHOLE_LENGTH
    xs += [x] * missing
    weights += [np.zeros(len(x))] * missing
    return Nodes(np.stack(xs, axis=1), np.stack(weights, axis=1))


def _range(tasks: Tasks, spare: float) -> tuple[Floats, Floats]:
    """Where a task's truth can be at all."""
    degree = tasks.value.shape[1]
    narrow, wide = tasks.levels.min(), tasks.levels.max()
    low, high = tasks.value.min(axis=1), tasks.value.max(axis=1)
    if tasks.prior_precision:
        # However precise the workers, their mean is drawn to the prior's: no further out than this.
        pull = (degree / narrow) / (degree / narrow + tasks.prior_precision)
        low = tasks.prior_mean + np.minimum(pull * (low - tasks.prior_mean), 0.0)
        high = tasks.prior_mean + np.maximum(pull * (high - tasks.prior_mean), 0.0)
    # The flattest that the product of all others can be, which a tail outside follows.
    flattest = max(degree - 1, 1) / wide + tasks.prior_precision
    margin = np.sqrt(2.0 * spare / flattest)
    return low - margin, high + margin


def _credible_levels(tasks: Tasks, spare: float) -> tuple[Floats, Floats, Floats]:
    """f_u and w_u of every worker, and how far w_u is behind the likeliest level, in nats: (n, l).

    ``spare`` is the log of what weighs nothing. No share of a level is larger anywhere than at the
    answer itself if it is below all that have weight. And a level s_k weighs nothing beside w where
    N(d, s_k) / N(d, w) has fallen by ``spare`` and what w is behind: with 1 / s_k - 1 / w above
    1 / (2 s_k), from d² = 4 s_k (spare + behind) on.
    """
    levels, height = tasks.levels, tasks.height
    best = height.max(axis=2, keepdims=True)
    fine = np.where(height >= best - spare - 3.0, levels, np.inf).min(axis=2)
    credible = np.where(height >= best - 2.0 * spare, levels, 0.0)
    widest = credible.argmax(axis=2)[:, :, None]
    behind = best - np.take_along_axis(height, widest, axis=2)
    return fine, credible.max(axis=2), behind[:, :, 0]


def _zoom(
    tasks: Tasks, low: Floats, high: Floats, accuracy: float, alpha: float
) -> tuple[Floats, Floats]:
    """Narrow the range down to where some message has mass; give up where that gains little."""
    low, high = low.copy(), high.copy()
    n, degree = tasks.value.shape
    narrow = tasks.levels.min()
    reach = 1.5 * np.sqrt(2.0 * np.log(1.0 / accuracy))
    peak = degree / narrow + tasks.prior_precision
    top = np.full(tasks.height.shape, -np.inf)
    centre, precision = _search(tasks)
    rows = np.arange(n)
    for _ in range(_MOST_SCANS):
        width = high[rows] - low[rows]
        # About as many nodes as there would be: fine at the answers, or evenly spread.
        local = 2.0 * reach * np.sqrt(degree) * np.arcsinh(0.5 * width / (reach * np.sqrt(narrow)))
        even = width * np.sqrt(precision[rows] + 1.0 / narrow)
        rows = rows[np.minimum(local, even) > alpha * _FEW_NODES]
        if not len(rows):
            break
        width = high[rows] - low[rows]
        x = _points(low[rows], high[rows], centre[rows], _APART / np.sqrt(precision[rows]))
        negligible = np.log(accuracy) - np.log1p(width * np.sqrt(peak))
        matters, centre[rows], top[rows] = _scan(tasks.rows(rows), x, negligible, top[rows])
        first = matters.argmax(axis=1)
        last = x.shape[1] - 1 - matters[:, ::-1].argmax(axis=1)
        at = np.arange(len(rows))
        low[rows], high[rows] = x[at, first], x[at, last]
        rows = rows[high[rows] - low[rows] <= 0.5 * width]
    return low, high


def _search(tasks: Tasks) -> tuple[Floats, Floats]:
    """Guess where the product of all workers peaks, and its precision there.

    The slope of log F_u is E[1/s] (A_u - x) under the shares of its levels at x; a peak is where
    these average out. The search starts at 0, which is the middle answer of a task.
    """
    x, total = np.zeros(len(tasks.value)), np.ones(len(tasks.value))
    per_level = 1.0 / tasks.levels
    for _ in range(_SEARCH):
        exponent = tasks.height - 0.5 * per_level * ((x[:, None] - tasks.value) ** 2)[:, :, None]
        share = np.exp(exponent - exponent.max(axis=2, keepdims=True))
        precision = (share * per_level).sum(axis=2) / share.sum(axis=2)
        total = _in_order(precision) + tasks.prior_precision
        pull = _in_order(precision * tasks.value)
        if tasks.prior_precision:
            pull = pull + tasks.prior_precision * tasks.prior_mean
        x = pull / total
    return x, total


def _points(low: Floats, high: Floats, centre: Floats, apart: Floats) -> Floats:
    """Points from low to high, (n, P): about ``apart`` at the centre, further apart away from it.

    Their distances from it grow geometrically, as bounds (M14a) of a Gaussian allow.
    """
    centre = np.clip(centre, low, high)
    sides = []
    for sign, end, m in ((-1.0, low, _BELOW), (1.0, high, _ABOVE)):
        far = sign * (end - centre)
        near = np.minimum(apart, far / m)
        ratio = np.divide(far, near, out=np.ones_like(far), where=near > 0.0)
        growth = np.exp(np.log(ratio) / (m - 1.0))
        offset = near[:, None] * growth[:, None] ** np.arange(m - 1.0)
        sides.append(np.concatenate([centre[:, None] + sign * offset, end[:, None]], axis=1))
    return np.concatenate([sides[0][:, ::-1], centre[:, None], sides[1]], axis=1)


def _scan(
    tasks: Tasks, x: Floats, negligible: Floats, top: Floats
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Tell between which neighbours of x (n, P) any message can have mass that shows.

    Let q be the log of the integrand of one message (M13). The curvature of log F_u is at least
    -E[1/s] under the shares of its levels at x, which falls with the distance from the answer; the
    curvature of q is at least minus their sum κ at the nearest points, with the message's own
    level. Between points a and b, h apart, q is therefore below its chord plus κ (x-a)(b-x) / 2::

        q <= max(q_a, q_b) + (κh²/2 - |q_a - q_b|)₊² / (2κh²)                         (M14a)

    What stays ``negligible`` beside the largest value of q at any point so far, ``top`` (n, l, K),
    is nothing. Returns (n, P-1), the point where P is largest, and the new top.
    """
    total, curvature = tasks.log_prior(x), np.full((len(x), x.shape[1] - 1), tasks.prior_precision)
    log_f = np.empty((*tasks.value.shape, x.shape[1]))
    per_level = 1.0 / tasks.levels
    share = np.exp(tasks.height - tasks.height.max(axis=2, keepdims=True))
    peak = (share * per_level).sum(axis=2) / share.sum(axis=2)
    for some in tasks.some_answers(x.shape[1]):
        log_f[:, some], terms, sums = tasks.terms(x, some)
        terms *= per_level[:, None]
        precision = terms.sum(axis=2) / sums
        away = x[:, None, :] - tasks.value[:, some, None]
        around = away[..., :-1] * away[..., 1:] <= 0.0
        nearest = np.maximum(precision[..., :-1], precision[..., 1:])
        nearest = np.where(around, peak[:, some, None], nearest)
        # One by one, so that it does not matter how they were cut.
        for u in range(nearest.shape[1]):
            total += log_f[:, some][:, u]
            curvature += nearest[:, u]
    bend = (curvature[:, None] + per_level[:, None]) * (np.diff(x) ** 2)[:, None]
    bend = np.maximum(bend, 1e-300)
    matters = np.zeros(curvature.shape, dtype=bool)
    top = top.copy()
    for some in tasks.some_answers(x.shape[1]):
        squared = (x[:, None, :] - tasks.value[:, some, None]) ** 2
        cavity = total[:, None] - log_f[:, some]
        q = cavity[:, :, None] - (0.5 * per_level)[:, None] * squared[:, :, None]
        np.maximum(top[:, some], q.max(axis=3), out=top[:, some])
        excess = np.maximum(0.5 * bend[:, None] - np.abs(np.diff(q)), 0.0)
        # The quotient is at most 1/4, where a square could overflow.
        bound = np.maximum(q[..., :-1], q[..., 1:]) + excess * (excess / (2.0 * bend[:, None]))
        claim = bound - top[:, some, :, None]
        matters |= claim.max(axis=(1, 2)) > negligible[:, None]
    highest = x[np.arange(len(x)), total.argmax(axis=1)]
    return matters, highest, top


def _far_centres(
    tasks: Tasks, wide: Floats, pull: Floats, flat: Floats, far: NDArray[np.bool_]
) -> Floats | None:
    """Where the mass may lie far from every answer: only where all levels are the widest.

    Where answers are so far apart that nodes cannot fill the space between them (``far``), the
    product of all workers peaks at their mean, that of all others than u at theirs; finer nodes
    are needed around those l + 1 places, shape (n, l + 1). None where no task needs them.
    """
    if not far.any():
        return None
    others = np.maximum(flat[:, None] - 1.0 / wide, 0.5 / wide)
    of_others = (pull[:, None] - tasks.value / wide) / others
    return np.concatenate([(pull / flat)[:, None], of_others], axis=1)


def _in_order(terms: Floats) -> Floats:
    """Sum over the last axis, term by term."""
    return np.asarray(np.add.accumulate(terms, axis=-1)[..., -1])
