"""Enumeration where most workers have settled on a level: only what can matter is summed.

Once messages are sharp, nearly all of a task's K^l configurations have negligible weight. A worker
whose incoming message leaves little but its best level is *settled* there; the few others are
*free* to have either of their two best. The sum is over all configurations of the free workers, and
those in which one worker has yet another level (or two, in the message to one of them). A strict
bound on what is left out is computed first (M26); a task for which it is too large is left to plain
enumeration. The first messages of all are flat, so that no worker has settled yet; so there is a
cheap guess to start from.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats

# Squares (Q/2) beyond which no task is settled: levels do not explain its answers.
_MOST_SQUARES = 600.0
# Weights of changes are cut here: beyond it their configuration is far below all accuracy, and
# products of two of them must not overflow.
_HIGHEST = 277.0
# A message below the first log contradicts a level that the worker's others leave above the
# second: it must then be more precise than this kernel can. Errors at any other level are
# below the accuracy, e^-20 by default, and such a level then below e^-60 in the worker's belief.
_CONTRADICTING, _STILL_POSSIBLE = -40.0, -40.0


def guess(
    value: Floats,
    prior_mean: Floats,
    prior_precision: float,
    incoming: Floats,
    levels: Floats,
    out: Floats,
) -> None:
    """Write a rough log message to every worker, largest entry 0, at a cost of l K per task.

    The others' answers are averaged by their expected precisions w; the truth is taken as Gaussian
    about that average, with the variance that the average really has::

        m(k) ∝ N(A_u | Σ_{v≠u} w_v A_v / W, s_k + Σ_{v≠u} w_v² E[s_v] / W²),  W = Σ_{v≠u} w_v  (M27)
    """  # fmt: skip
    share = np.exp(incoming - incoming.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    weight, variance = share @ (1.0 / levels), share @ levels
    pull = weight[:, :, None] * value
    noise = weight**2 * variance
    total = weight.sum(axis=1, keepdims=True) + prior_precision
    # The part of a sum without one worker never vanishes in rounding.
    rest = np.maximum(total - weight, 1e-12 * total)
    pull_of_all = pull.sum(axis=1, keepdims=True) + prior_precision * prior_mean[:, None]
    mean = (pull_of_all - pull) / rest[:, :, None]
    noise_of_rest = noise.sum(axis=1, keepdims=True) + prior_precision - noise
    spread = levels + (np.maximum(noise_of_rest, 0.0) / rest**2)[:, :, None]
    squared = ((value - mean) ** 2).sum(axis=2)[:, :, None]
    out[:] = -0.5 * (squared / spread + value.shape[2] * np.log(spread))
    out -= out.max(axis=2, keepdims=True)


def choose_free(
    value: Floats,
    prior_mean: Floats,
    prior_precision: float,
    incoming: Floats,
    levels: Floats,
    accuracy: float,
    most_free: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many workers of each task stay free (-1: too many), and all, least settled first.

    With b the best levels, Q their weighted sum of squares, and for every worker::

        r_v(k) = m_v(k) / m_v(b) max(1, (s_b / s_k)^(d/2))

    all that is left out weighs at most this much of what is kept, and must be below ``accuracy``.
    R_v is the sum of r_v over all levels but the best, or but the best two of a free worker::

        1/2 (Σ R_v)² Π_free (1 + r_v(second best)) e^(Q/2)                                 (M26)
    """  # fmt: skip
    n, degree, n_levels = incoming.shape
    best = incoming.argmax(axis=2)
    root = levels ** (0.5 * value.shape[2])
    gain = np.maximum(root[best][:, :, None] / root, 1.0)
    doubt = np.exp(incoming - incoming.max(axis=2, keepdims=True)) * gain
    doubt[np.arange(n_levels) == best[:, :, None]] = 0.0
    second = np.take_along_axis(doubt, np.argsort(-incoming, axis=2, kind="stable"), axis=2)[
        :, :, 1
    ]
    doubt = doubt.sum(axis=2)
    _, _, _, squares = _fit(value, prior_mean, prior_precision, 1.0 / levels[best])
    order = np.argsort(-doubt, axis=1, kind="stable")
    doubt, second = (np.take_along_axis(part, order, axis=1) for part in (doubt, second))
    n_free = np.full(n, -1)
    bound = 0.5 * np.exp(np.minimum(0.5 * squares, _MOST_SQUARES))
    bounded = 0.5 * squares <= _MOST_SQUARES
    # Bounds may underflow; the weights are then still smaller than this.
    doubt = np.maximum(doubt, 1e-300)
    for f in range(min(most_free, degree) + 1):
        left_out = doubt.sum(axis=1) ** 2 * bound
        n_free[(n_free < 0) & bounded & (left_out <= accuracy)] = f
        if f < degree:
            doubt[:, f] = np.maximum(doubt[:, f] - second[:, f], 0.0)
            bound = bound * (1.0 + second[:, f])
    return n_free, order


def send(
    value: Floats, prior_mean: Floats, prior_precision: float, incoming: Floats, levels: Floats,
    accuracy: float, most_free: int, out: Floats,
) -> NDArray[np.bool_]:  # fmt: skip
    """Write the log messages (M3) of settled tasks, largest entry 0; return which those are.

    Accurate to the tolerance as probabilities; a message of, say, e^-100 may be off by some nats.
    """
    args = value, prior_mean, prior_precision, incoming, levels
    n_free, order = choose_free(*args, accuracy, most_free)
    for f in range(most_free + 1):
        rows = np.flatnonzero(n_free == f)
        if not len(rows):
            continue
        turn = order[rows] if f else np.broadcast_to(np.arange(value.shape[1]), order[rows].shape)
        at = rows[:, None], turn
        sent = _expand(value[at], prior_mean[rows], prior_precision, incoming[at], levels, f)
        # Rows of other tasks are left as they are: nothing was written there yet.
        out[at] = sent - sent.max(axis=2, keepdims=True)
    contradicts = (out < _CONTRADICTING) & (incoming > _STILL_POSSIBLE)
    return np.asarray((n_free >= 0) & ~contradicts.any(axis=(1, 2)))


def _expand(
    value: Floats,
    prior_mean: Floats,
    prior_precision: float,
    incoming: Floats,
    levels: Floats,
    n_free: int,
) -> Floats:
    """Sum over the two best levels of the first ``n_free`` workers, and one or two other changes.

    In one configuration of the free workers, with t_v(k) the weight of worker v at level k instead
    of its best one b, and E the interaction of two such changes::

        m(u, b) = 1 + Σ_{v≠u,k'} t_v(k'),                                                  (M25)
        m(u, k) = t_u(k) / m_u(k) [1 + Σ_{v≠u,k'} t_v(k') E_uv(k, k')]

    A free worker changes only from its best level, and not to its second.
    """  # fmt: skip
    degree, n_levels = incoming.shape[1:]
    level = np.argsort(-incoming, axis=2, kind="stable")
    at_levels = np.take_along_axis(incoming, level, axis=2)
    out = np.full(incoming.shape, -np.inf)
    for chosen in product((0, 1), repeat=n_free):
        at = np.array(chosen + (0,) * (degree - n_free))
        s = levels[level[:, np.arange(degree), at]]
        total, away, squared, squares = _fit(value, prior_mean, prior_precision, 1.0 / s)
        log_weight = at_levels[:, np.arange(degree), at].sum(axis=1)
        log_weight -= 0.5 * (value.shape[2] * (np.log(total) + np.log(s).sum(axis=1)) + squares)
        to = levels[level[:, :, 1:]]
        one, two = _changes(to, s, total, away, squared, value.shape[2])
        may = np.ones((degree, n_levels - 1), dtype=bool)
        may[:n_free, 0] = False
        may[at == 1] = False
        exponent = np.where(may, at_levels[:, :, 1:] - at_levels[:, :, :1] + one, -np.inf)
        weight = np.exp(np.minimum(exponent, _HIGHEST))
        others = ~np.eye(degree, dtype=bool)
        found = np.full(incoming.shape, -np.inf)
        found[:, :, 1:] = np.where(
            may, one + np.log1p(np.einsum("nvg,nufvg->nuf", weight, two, optimize=False)), -np.inf
        )
        found[:, np.arange(degree), at] = np.log1p((weight.sum(axis=2)[:, None] * others).sum(2))
        # A worker's own message is not part of the cavity.
        found += log_weight[:, None, None] - at_levels[:, np.arange(degree), at][:, :, None]
        np.put_along_axis(found, level, found.copy(), axis=2)
        np.logaddexp(out, found, out=out)
    return out


def _fit(
    value: Floats, prior_mean: Floats, prior_precision: float, precision: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """W, distances of the answers from the weighted mean, their squares, and the weighted sum."""
    total = prior_precision + precision.sum(axis=1)
    mean = (precision[:, :, None] * value).sum(axis=1) + prior_precision * prior_mean
    mean /= total[:, None]
    away = value - mean[:, None]
    squared = (away**2).sum(axis=2)
    squares = (precision * squared).sum(axis=1)
    squares += prior_precision * ((prior_mean - mean) ** 2).sum(axis=1)
    return total, away, squared, squares


def _changes(
    to: Floats, s: Floats, total: Floats, away: Floats, squared: Floats, dimension: int
) -> tuple[Floats, Floats]:
    """Log of C with one worker's level changed, (n, l, K-1), and interactions of two changes.

    With δ the change of precision, W' = W + δ, and e the distance of the answer from the mean::

        log C' / C = -d/2 log(W' s' / (W s)) - δ/2 W/W' |e|²

    and a second change then sees the distance e_v - δ_u / W' e_u. Both are those of (M2).
    """
    delta = 1.0 / to - 1.0 / s[:, :, None]
    after = total[:, None, None] + delta
    share = after / total[:, None, None]
    squares = delta / share * squared[:, :, None]
    one = -0.5 * (dimension * np.log(share * to / s[:, :, None]) + squares)
    # Axes: task, first worker, its level, second worker, its level.
    step = (delta / after)[:, :, :, None, None]
    moved = away[:, None, None] - step * away[:, :, None, None]
    first, second = after[:, :, :, None, None], delta[:, None, None]
    both = first + second
    # A worker changes only once.
    both = np.where(np.eye(s.shape[1], dtype=bool)[None, :, None, :, None], 1.0, both)
    squared_then = (moved**2).sum(axis=4)[:, :, :, :, None]
    gain = squares[:, None, None] - second * (first / both) * squared_then
    log_e = 0.5 * (dimension * np.log(first * share[:, None, None] / both) + gain)
    two = np.exp(np.minimum(log_e, _HIGHEST))
    two *= ~np.eye(s.shape[1], dtype=bool)[None, :, None, :, None]
    return one, two
