"""Where to integrate over a truth: zoom in on what matters, then follow the local scale.

With many answers the truth is known to a small part of the range of the answers. A coarse scan
with bounds that hold for certain finds that part (M14a); nodes are placed there only, with steps
that follow the local scale of the integrand (M14), so that their number does not grow with the
number of answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.inference.kernels.posterior import sum_in_order

# Most nodes to spend on the empty space between answers that no level reaches across.
_MOST_WIDE_NODES = 6000.0
# Most nodes to spend on a range without narrower ones around the answers.
_MOST_EVEN_NODES = 128.0
# Limits to how far nodes stay fine around an answer: nats by which wide levels can be ruled out,
# and how far a message about an improbable level can draw the truth; neither matters beyond the
# lowest message that counts.
_MOST_RULED_OUT, _MOST_DRAWN = 1e4, 225.0
# Nodes near a bound get closer in proportion to their distance, times this: the change of variable
# log(distance) then has a step at which the trapezoid rule is exact to ten digits.
_BOUND_REACH = 3.0
# How near to a bound nodes go, as a share of the local sd.
_NEAREST = 1e-5
# Numbers in flight while functions are evaluated: 8 MB.
_NUMBERS_IN_FLIGHT = 1_000_000
# Lengths that numpy adds up without a remainder.
_WHOLE_LENGTH = 64
# Points of a scan below its centre and above it, and how many sds apart they begin; nodes below
# which a scan does not pay, and most scans.
_BELOW, _ABOVE, _APART = 11, 12, 2.0
_FEW_NODES, _MOST_SCANS = 64.0, 12
# Where a scan gains little and so many nodes are left, the range is peeled from its ends: each
# point is nearer to the centre than the one before by this factor, so close that bounds are tight.
_MANY_NODES, _PEEL = 512.0, 1.25
# Steps of the search for that centre; nats below the lowest message that make an integral nothing.
_SEARCH, _UNHEARD = 3, 50.0


class Aim(Enum):
    """What is integrated on the nodes, which decides where they are.

    A message about an improbable level has its mass far from where the truth is, and it counts as
    long as its log does: nodes go that far only for MESSAGES. PREDICTIONS take the product of all
    functions and those of all but one, the POSTERIOR the first of these alone.
    """

    MESSAGES = "messages"
    PREDICTIONS = "predictions"
    POSTERIOR = "posterior"


@dataclass(frozen=True, eq=False)
class Functions:
    """The functions of the truth x whose product is integrated: one an answer, and the prior.

    Function u is F_u(x) = Σ_g exp(height_g - (x - centre_u)² / (2 variance_g)) (M12), with one set
    of heights (C, n, L, G) a class of difficulty. The first ``n_answers`` of the L functions are
    the answers'. ``log_class`` (n, C) is the log probability of each class. Components that a
    function does not have are -inf high and infinitely wide. ``depth`` is how far below the largest
    a log message still counts.
    """

    centre: Floats
    variance: Floats
    height: Floats
    log_class: Floats
    n_answers: int
    depth: float = np.inf
    aim: Aim = Aim.MESSAGES

    def rows(self, rows: NDArray[np.intp]) -> Functions:
        """Return the functions of some rows."""
        centre, variance, height = self.centre[rows], self.variance[rows], self.height[:, rows]
        log_class = self.log_class[rows]
        return replace(self, centre=centre, variance=variance, height=height, log_class=log_class)

    @property
    def answer_variance(self) -> Floats:
        """Variances of the answers' components (n, l, G), less room that only the prior needs."""
        variance = self.variance[:, : self.n_answers]
        return np.asarray(variance[:, :, (variance < np.inf).any(axis=(0, 1))])

    def some(self, n_points: int) -> Iterator[slice]:
        """Cut the functions so that numbers in flight stay few, however many answers."""
        n, n_functions, n_variances = self.variance.shape
        size = max(1, _NUMBERS_IN_FLIGHT // (n * n_points * n_variances))
        return (slice(i, min(i + size, n_functions)) for i in range(0, n_functions, size))

    def evaluate(self, x: Floats, some: slice, c: int) -> tuple[Floats, Floats]:
        """Logs of some functions at x, (n, u, Q), and the mean precision of their components."""
        rate = 0.5 / self.variance[:, some, :, None]
        squared = (x[:, None, :] - self.centre[:, some, None]) ** 2
        terms = self.height[c][:, some, :, None] - rate * squared[:, :, None]
        top = terms.max(axis=2)
        np.exp(terms - top[:, :, None], out=terms)
        total = terms.sum(axis=2)
        return top + np.log(total), 2.0 * (terms * rate).sum(axis=2) / total


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes x (n, Q) of the integral of each row, and weights; past its end a row weighs 0."""

    x: Floats
    weight: Floats

    @property
    def log_weight(self) -> Floats:
        """Log of the weights; minus infinity past the end."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.weight))


def place_nodes(
    f: Functions, bounds: tuple[Floats, Floats], accuracy: float, refinement: float = 1.0
) -> Nodes:
    """Choose the nodes of a block of rows for an error near ``accuracy``.

    The step at x is ``alpha / sqrt(W(x))``, with W a precision that the integrand does not exceed
    there (M14). Nodes are the orbit x' = x + alpha / sqrt(W(x)), weights the product of its
    derivatives: an analytic map of the integers, on which the trapezoid rule converges
    exponentially. A constant factor in all weights of a row does not matter, since messages and
    moments are normalised.
    """
    alpha = np.pi * np.sqrt(2.0 / np.log(2.0 / accuracy))
    spare = np.log(1.0 / accuracy)
    low, high, near, bounded = _range(f, bounds, spare)
    ends = low, high
    credible = _credible_components(f, spare)
    # Only messages are about components that have no weight.
    narrow = _narrow(f) if f.aim is Aim.MESSAGES else credible[0]
    low, high = _zoom(f, low, high, narrow, accuracy, alpha)
    # A bound that is no longer in the range has no effect.
    bounded = bounded[0] & (low == ends[0]), bounded[1] & (high == ends[1])
    flattest, peaks = _local_precision(f, credible, high - low, alpha, spare)
    x, weight = low, np.ones(len(low))
    xs, weights = [], []
    while True:
        inside = x <= high
        xs.append(np.minimum(x, high))
        weights.append(np.where(inside, weight, 0.0))
        if not inside.any():
            break
        total, slope = flattest, np.zeros(len(x))
        for centre, height, decay in peaks:
            distance = x[:, None] - centre
            fall = 1.0 / (1.0 + decay * distance**2)
            total = total + (height * fall).sum(axis=1)
            slope += (height * decay * distance * fall * fall).sum(axis=1)
        for is_bound, bound in zip(bounded, bounds, strict=True):
            if is_bound.any():
                gap = np.where(is_bound, x - bound, np.inf)
                gap = np.where(np.abs(gap) < near, np.copysign(near, gap), gap)
                total = total + (_BOUND_REACH / gap) ** 2
                slope += _BOUND_REACH**2 / gap**3
        # A step that the spacing of floating-point numbers would swallow leads nowhere.
        step = np.maximum(alpha / refinement / np.sqrt(total), 1e-15 * np.abs(x))
        x = x + step
        weight = weight * np.maximum(1.0 + step * slope / total, 1e-12)
    # Sums over nodes round by how many there are; so that rows say the same in any block, these
    # are filled up to whole lengths with nodes that weigh nothing.
    missing = -len(xs) % _WHOLE_LENGTH
    xs += xs[-1:] * missing
    weights += [np.zeros(len(x))] * missing
    return Nodes(np.stack(xs, axis=1), np.stack(weights, axis=1))


def _local_precision(
    f: Functions, credible: tuple[Floats, ...], width: Floats, alpha: float, spare: float
) -> tuple[Floats, list[tuple[Floats, Floats, Floats]]]:
    """W without bounds: the least of it (n,), and peaks ``height / (1 + decay (x - centre)²)``.

    Components of function u below f_u weigh nothing anywhere, and at a distance d from its centre
    those below (d / c_u)² weigh nothing beside w_u, a wide one that is not ruled out::

        W(x) = Σ_u [1 / w_u + (1 / f_u - 1 / w_u) / (1 + (x - A_u)² / (c_u² f_u))]
               + 1 / s_min + Σ_b (3 / (x - b))²                                        (M14)

    in which 1 / s_min is for the message to a worker about the lowest level, where messages are
    integrated, and b is a bound of the truth within reach. Where it would take too many nodes, w_u
    is the widest component, and 1 / s_min falls off with the distance from each answer, as the
    terms of f_u do.
    """
    fine, wide, behind, widest, ruled_out = credible
    narrow = _narrow(f) if f.aim is Aim.MESSAGES else np.full(fine.shape, np.inf)
    finest = narrow[:, : f.n_answers].min(axis=1)
    # Messages about the lowest levels: fine nodes everywhere if these are few, else at the answers.
    of_lowest = 1.0 / finest
    even = sum_in_order(1.0 / wide) + of_lowest
    is_even = (width * np.sqrt(even) <= alpha * _MOST_EVEN_NODES)[:, None]
    wide = np.maximum(np.where(is_even, wide, widest), fine)
    behind = np.where(is_even, behind, ruled_out)
    flat, pull = sum_in_order(1.0 / wide), sum_in_order(f.centre / wide)
    own_drop = np.where(is_even, 0.0, np.maximum(1.0 / narrow - 1.0 / wide, 0.0))
    own_drop[:, f.n_answers :] = 0.0
    # The message to u about s_k draws the truth from the mean of the others to sqrt(D² W / 4)
    # of its sd from the answer, or nearer, where D is the distance of that mean.
    drawn = 0.5 * (f.centre - (pull / flat)[:, None]) ** 2 * flat[:, None]
    drawn = np.minimum(drawn, min(_MOST_DRAWN * spare, f.depth))
    own_decay = 1.0 / ((4.5 * spare + drawn) * narrow)
    decay = 1.0 / (4.5 * (spare + np.minimum(behind, min(_MOST_RULED_OUT, f.depth))) * fine)
    # Where one of two terms is as narrow as the other and reaches as far, it is enough.
    drop = np.where((own_drop > 0.0) & (own_decay <= decay), 0.0, 1.0 / fine - 1.0 / wide)
    own_drop = np.where((drop > 0.0) & (fine <= narrow), 0.0, own_drop)
    peaks = [(f.centre, drop, decay), (f.centre, own_drop, own_decay)]
    flattest = np.minimum(flat, (alpha * _MOST_WIDE_NODES / np.maximum(width, 1e-300)) ** 2)
    far = flattest < flat
    if far.any():
        finest = np.minimum(finest, fine[:, : f.n_answers].min(axis=1))
        height = 1.0 / np.maximum(1.0 / flat, finest)[:, None]
        centre = _far_centres(f, wide, pull, flat)
        peaks.append((centre, far[:, None] * height, height / (4.5 * spare)))
    return flattest + np.where(is_even[:, 0], of_lowest, 0.0), peaks


def _narrow(f: Functions) -> Floats:
    """The narrowest component of each function (n, L)."""
    return np.asarray(np.where(_exists(f), f.variance, np.inf).min(axis=2))


def _narrowest(f: Functions) -> Floats:
    """The narrowest component of each answer (n, l)."""
    return _narrow(f)[:, : f.n_answers]


def _exists(f: Functions) -> NDArray[np.bool_]:
    """Return which components a function has, in any class."""
    return np.asarray(f.variance < np.inf)


def _range(
    f: Functions, bounds: tuple[Floats, Floats], spare: float
) -> tuple[Floats, Floats, Floats, tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Where a truth can be at all: low, high, how near nodes go to a bound, and where one is."""
    degree = f.n_answers
    variance = np.where(_exists(f), f.variance, 0.0).max(axis=2)
    wide = variance[:, :degree].max(axis=1)
    of_prior = 1.0 / variance[:, degree:].max(axis=1) if f.centre.shape[1] > degree else 0.0
    # The flattest that the product of all others can be, which a tail outside follows.
    margin = np.sqrt(2.0 * spare / (max(degree - 1, 1) / wide + of_prior))
    low, high = f.centre.min(axis=1) - margin, f.centre.max(axis=1) + margin
    near = _NEAREST / np.sqrt(degree / _narrowest(f).min(axis=1) + degree / wide + of_prior)
    # A bound within reach is approached, never stepped over; one far off is as good as none.
    bounded = low < bounds[0], high > bounds[1]
    low = np.where(bounded[0], bounds[0] + near, low)
    high = np.maximum(np.where(bounded[1], bounds[1] - near, high), low)
    return low, high, near, bounded


def _credible_components(
    f: Functions, spare: float
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """f_u and w_u of every function (n, L), and how far w_u is behind the likeliest, in nats.

    Then the widest component, and how far that one is behind. ``spare`` is the log of what weighs
    nothing. No share of a component is larger anywhere than at the centre if it is below all that
    have weight. And a component s weighs nothing beside w where N(d, s) / N(d, w) has fallen by
    ``spare`` and what w is behind: with 1 / s - 1 / w above 1 / (2 s), from d² = 4 s (spare +
    behind) on.
    """
    height = f.height.max(axis=0)
    best = height.max(axis=2, keepdims=True)
    fine = np.where(height >= best - spare - 3.0, f.variance, np.inf).min(axis=2)
    credible = np.where(height >= best - 2.0 * spare, f.variance, 0.0)
    existing = np.where(_exists(f), f.variance, 0.0)
    behind, ruled_out = (
        (best - np.take_along_axis(height, some.argmax(axis=2)[:, :, None], axis=2))[:, :, 0]
        for some in (credible, existing)
    )
    return fine, credible.max(axis=2), behind, existing.max(axis=2), ruled_out


def _zoom(
    f: Functions, low: Floats, high: Floats, narrow: Floats, accuracy: float, alpha: float
) -> tuple[Floats, Floats]:
    """Narrow the range down to where what is integrated has mass.

    ``narrow`` (n, L) are the narrowest components that can matter. Where a scan gains little and
    many nodes are left, the range is peeled from its ends.
    """
    low, high = low.copy(), high.copy()
    n, degree = len(low), f.n_answers
    of_prior, narrow = (1.0 / narrow[:, degree:]).sum(axis=1), narrow[:, :degree].min(axis=1)
    reach = 1.5 * np.sqrt(2.0 * np.log(1.0 / accuracy))
    peak = degree / narrow + of_prior
    top = np.full(_left_out(f)[0].shape, -np.inf)
    centre, precision = _search(f)
    rows, peels = np.arange(n), np.zeros(n, dtype=bool)
    for _ in range(_MOST_SCANS):
        width = high[rows] - low[rows]
        # About as many nodes as there would be: fine at the answers, or evenly spread.
        scale = reach * np.sqrt(narrow[rows])
        local = 2.0 * reach * np.sqrt(degree) * np.arcsinh(0.5 * width / scale)
        even = width * np.sqrt(precision[rows] + 1.0 / narrow[rows])
        least = np.where(peels[rows], _MANY_NODES, _FEW_NODES)
        rows = rows[np.minimum(local, even) > alpha * least]
        if not len(rows):
            break
        width = high[rows] - low[rows]
        apart = np.where(peels[rows], 0.0, _APART / np.sqrt(precision[rows]))
        x = _points(low[rows], high[rows], centre[rows], apart)
        negligible = np.log(accuracy) - np.log1p(width * np.sqrt(peak[rows]))
        matters, centre[rows], top[rows] = _scan(f.rows(rows), x, negligible, top[rows])
        first = matters.argmax(axis=1)
        last = x.shape[1] - 1 - matters[:, ::-1].argmax(axis=1)
        at = np.arange(len(rows))
        low[rows], high[rows] = x[at, first], x[at, last]
        is_slow = high[rows] - low[rows] > 0.5 * width
        gives_up = is_slow & peels[rows]
        peels[rows] |= is_slow
        rows = rows[~gives_up]
    return low, high


def _search(f: Functions) -> tuple[Floats, Floats]:
    """Guess where the product of all functions peaks, and its precision there.

    The slope of log F_u is E[1/s] (A_u - x) under the shares of its components at x; a peak is
    where these average out. The search starts at 0, which is the middle answer of a row.
    """
    x, total = np.zeros(len(f.centre)), np.ones(len(f.centre))
    height, per_variance = f.height.max(axis=0), 1.0 / f.variance
    for _ in range(_SEARCH):
        squared = ((x[:, None] - f.centre) ** 2)[:, :, None]
        exponent = height - 0.5 * per_variance * squared
        share = np.exp(exponent - exponent.max(axis=2, keepdims=True))
        precision = (share * per_variance).sum(axis=2) / share.sum(axis=2)
        total = sum_in_order(precision)
        x = sum_in_order(precision * f.centre) / total
    return x, total


def _points(low: Floats, high: Floats, centre: Floats, apart: Floats) -> Floats:
    """Points from low to high, (n, P): about ``apart`` at the centre, further apart away from it.

    Their distances from it grow geometrically, as bounds (M14a) of a Gaussian allow. Where
    ``apart`` is 0, they grow by the factor at which ranges are peeled.
    """
    centre = np.clip(centre, low, high)
    sides = []
    for sign, end, m in ((-1.0, low, _BELOW), (1.0, high, _ABOVE)):
        far = sign * (end - centre)
        near = np.where(apart > 0.0, np.minimum(apart, far / m), far * _PEEL ** (1.0 - m))
        ratio = np.divide(far, near, out=np.ones_like(far), where=near > 0.0)
        growth = np.exp(np.log(ratio) / (m - 1.0))
        offset = near[:, None] * growth[:, None] ** np.arange(m - 1.0)
        sides.append(np.concatenate([centre[:, None] + sign * offset, end[:, None]], axis=1))
    return np.concatenate([sides[0][:, ::-1], centre[:, None], sides[1]], axis=1)


def _scan(
    f: Functions, x: Floats, negligible: Floats, top: Floats
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Return between which neighbours of x (n, P) what is integrated can have mass that counts.

    Let q be the log of the integrand of one message (M13), for one class of difficulty. The
    curvature of log F_u is at least -E[1/s] under the shares of its components at x, which falls
    with the distance from its centre; the curvature of q is at least minus their sum κ at the
    nearest points, with the message's own component. Between points a and b, h apart, q is
    therefore below its chord plus κ (x-a)(b-x) / 2::

        q <= max(q_a, q_b) + (κh²/2 - |q_a - q_b|)₊ / 4                               (M14a)

    At each point the class counts where q is largest. Another one that is behind there by d_a and
    d_b may bend more by 2 (d_a + d_b) / h², since d_a (b-x) + d_b (x-a) is at least
    (d_a + d_b) (x-a)(b-x) / h.

    The product of all functions but one is as if an answer of infinite variance were at stake, that
    of all functions as if it were about no answer. What stays ``negligible`` beside the largest
    value of q at any point so far, ``top`` (n, U, V), is nothing; so is what is too far below the
    largest of one message. Returns (n, P-1), the point where P is largest, and the new top.
    """
    half_rate, centre, left_out = _left_out(f)
    step = np.diff(x)[:, None] ** 2
    best = np.full(x.shape, -np.inf)
    cavity = np.full((len(x), half_rate.shape[1], x.shape[1]), -np.inf)
    bend = np.full((len(x), half_rate.shape[1], x.shape[1] - 1), -np.inf)
    for c in range(len(f.height)):
        log_f, curvature = _log_functions(f, x, c)
        total = f.log_class[:, c, None] + sum_in_order(log_f.transpose(0, 2, 1))
        q = np.repeat(total[:, None], half_rate.shape[1], axis=1)
        q[:, :left_out] -= log_f[:, :left_out]
        np.maximum(bend, 0.5 * curvature[:, None] * step + q[..., :-1] + q[..., 1:], out=bend)
        np.maximum(cavity, q, out=cavity)
        np.maximum(best, total, out=best)
    bend -= cavity[..., :-1] + cavity[..., 1:]
    matters, top = np.zeros((len(x), x.shape[1] - 1), dtype=bool), top.copy()
    for u in range(half_rate.shape[1]):
        rate = half_rate[:, u, :, None]
        q = cavity[:, u, None] - rate * (x[:, None] - centre[:, u, None, None]) ** 2
        top[:, u] = np.maximum(top[:, u], q.max(axis=2))
        excess = np.maximum(bend[:, u, None] + rate * step - np.abs(np.diff(q)), 0.0)
        unheard = top[:, u].max(axis=1, keepdims=True) - f.depth - _UNHEARD
        over = np.maximum(top[:, u], unheard)[:, :, None]
        claim = np.maximum(q[..., :-1], q[..., 1:]) + 0.25 * excess - over
        matters |= claim.max(axis=1) > negligible[:, None]
    return matters, x[np.arange(len(x)), best.argmax(axis=1)], top


def _left_out(f: Functions) -> tuple[Floats, Floats, int]:
    """Integrands of a scan: products of all functions but one, U of them, times V Gaussians each.

    Returns half the precisions of these (n, U, V), their centres (n, U), and how many of the U
    products leave a function out: that of its own answer. The last one may be that of all.
    """
    if f.aim is Aim.MESSAGES:
        return 0.5 / f.answer_variance, f.centre[:, : f.n_answers], f.n_answers
    left_out = f.n_answers if f.aim is Aim.PREDICTIONS else 0
    flat = np.zeros((len(f.centre), left_out + 1, 1))
    return flat, flat[:, :, 0], left_out


def _log_functions(f: Functions, x: Floats, c: int) -> tuple[Floats, Floats]:
    """Logs of all functions of a class at x (n, L, P), and their curvature κ between neighbours."""
    log_f, precision = (np.empty((*f.centre.shape, x.shape[1])) for _ in range(2))
    for some in f.some(x.shape[1]):
        log_f[:, some], precision[:, some] = f.evaluate(x, some, c)
    share = np.exp(f.height[c] - f.height[c].max(axis=2, keepdims=True))
    peak = (share / f.variance).sum(axis=2) / share.sum(axis=2)
    away = x[:, None] - f.centre[:, :, None]
    around = away[..., :-1] * away[..., 1:] <= 0.0
    nearest = np.maximum(precision[..., :-1], precision[..., 1:])
    nearest = np.where(around, peak[:, :, None], nearest)
    return log_f, sum_in_order(nearest.transpose(0, 2, 1))


def _far_centres(f: Functions, wide: Floats, pull: Floats, flat: Floats) -> Floats:
    """Where the mass may lie far from every answer: only where all levels are the widest.

    Where answers are so far apart that nodes cannot fill the space between them, the product of all
    functions peaks at their mean, that of all others than u at theirs; finer nodes are needed
    around those L + 1 places, shape (n, L + 1).
    """
    others = np.maximum(flat[:, None] - 1.0 / wide, 0.5 / wide)
    of_others = (pull[:, None] - f.centre / wide) / others
    return np.concatenate([(pull / flat)[:, None], of_others], axis=1)
