"""One integral carries all of a noise model: tails, bias, difficulty, prior and bounds of a truth.

Every answer is a mixture of Gaussians about the truth (M28): level times tail times difficulty, all
on one grid of variances, wider by what is not known of the worker's bias. So a task's messages
about levels, bias and difficulty, its posterior, and the leave-one-out prediction of each answer
come from the same few sums over nodes (M29)-(M32).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr

from voxpop.arrays import Floats, Index

# Linear sums below this may have lost terms to underflow and are done again in logs.
_UNSAFE = 1e-250
# What is this many nats below the largest is lost in a sum to 15 digits.
_NEGLIGIBLE = 40.0
# Nodes near a bound get closer in proportion to their distance, times this: the change of variable
# log(distance) then has a step at which the trapezoid rule is exact to ten digits.
_BOUND_REACH = 3.0
# How near to a bound nodes go, as a share of the local sd.
_NEAREST = 1e-5
_MOST_NODES = 4000


@dataclass(frozen=True, eq=False)
class Grid:
    """Variances of the mixture, and how levels and classes of difficulty spread over them.

    ``mixing[c, k, g]`` is the share of variance g in an answer at level k to a task of class c.
    """

    variance: Floats
    mixing: Floats


@dataclass(frozen=True, eq=False)
class Block:
    """Rows (one coordinate of one task each) of equal degree: what a kernel needs to know of them.

    ``centre`` (n, l) are answers less what is believed of their workers' bias, ``spread`` (n, l)
    the variance of that belief, ``incoming`` (n, l, K) the workers' log messages with largest
    entry 0, ``log_class`` (n, C) the log probability of each class, from elsewhere.
    """

    centre: Floats
    spread: Floats
    incoming: Floats
    log_class: Floats
    x: Floats
    log_weight: Floats


@dataclass(frozen=True, eq=False)
class Heard:
    """What the rows say: to workers about level (n, l, K) and bias, about their class and truth.

    ``shift`` and ``shift_variance`` (n, l) are mean and variance of the bias less its expected
    value, the answer itself taken into account. ``evidence`` (n, C) is the log probability of the
    answers under each class, ``mass`` (n, C, Q) that of class and node together. ``pairs``
    (C, K, G) counts the answers expected at each class, level and variance.
    """

    message: Floats
    evidence: Floats
    shift: Floats
    shift_variance: Floats
    mass: Floats
    pairs: Floats


@dataclass(frozen=True, eq=False)
class Prediction:
    """Each answer as predicted by the others (n, l): log density, PIT, and moments.

    ``mean`` and ``truth_variance`` are those of x, ``variance`` that of the answer.
    """

    log_density: Floats
    pit: Floats
    mean: Floats
    truth_variance: Floats
    variance: Floats


def place(
    centre: Floats,
    narrow: Floats,
    wide: Floats,
    prior: tuple[Floats, float, float],
    bounds: tuple[Floats, Floats],
    accuracy: float,
) -> tuple[Floats, Floats]:
    """Choose nodes (n, Q) and log weights for rows of ``centre`` (n, l), as (M14) does.

    ``narrow`` (n, l) is the smallest variance of each answer, ``wide`` (n,) the largest of all,
    ``prior`` the centre (n,), smallest and largest variance of the truth's prior, infinite where
    there is none, ``bounds`` (n,) each the range of the truth.
    """
    alpha = np.pi * np.sqrt(2.0 / np.log(2.0 / accuracy))
    padding = np.sqrt(2.0 * np.log(1.0 / accuracy))
    reach = 1.5 * padding
    n, degree = centre.shape
    prior_centre, prior_narrow, prior_variance = prior
    least = degree / wide + 1.0 / prior_variance
    margin = padding / np.sqrt(max(degree - 1, 1) / wide + 1.0 / prior_variance)
    low, high = centre.min(axis=1) - margin, centre.max(axis=1) + margin
    if np.isfinite(prior_variance):
        low, high = np.minimum(low, prior_centre - margin), np.maximum(high, prior_centre + margin)
    flattest = np.maximum(least, 0.0)
    # A bound within reach is approached, never stepped over; at one far off nothing happens.
    finest = np.sqrt(1.0 / (degree / narrow.min(axis=1) + least))
    near = _NEAREST * finest
    low_bound, high_bound = bounds
    bounded_low, bounded_high = low < low_bound, high > high_bound
    low = np.where(bounded_low, low_bound + near, low)
    high = np.where(bounded_high, high_bound - near, high)
    high = np.maximum(high, low)
    x, log_weight = low.copy(), np.zeros(n)
    xs, log_weights = [], []
    while True:
        inside = x <= high
        xs.append(np.minimum(x, high))
        log_weights.append(np.where(inside, log_weight, -np.inf))
        if not inside.any() or len(xs) > _MOST_NODES:
            break
        distance = x[:, None] - centre
        precision = 1.0 / (narrow + (distance / reach) ** 2)
        total = precision.sum(axis=1) + flattest
        slope = (distance * precision * precision).sum(axis=1) * (-2.0 / reach**2)
        if np.isfinite(prior_narrow):
            gap = x - prior_centre
            of_prior = 1.0 / (prior_narrow + (gap / reach) ** 2)
            total = total + of_prior
            slope = slope - 2.0 / reach**2 * gap * of_prior * of_prior
        for bounded, bound in ((bounded_low, low_bound), (bounded_high, high_bound)):
            if bounded.any():
                gap = np.where(bounded, x - bound, np.inf)
                gap = np.where(np.abs(gap) < near, np.copysign(near, gap), gap)
                total = total + (_BOUND_REACH / gap) ** 2
                slope = slope - 2.0 * _BOUND_REACH**2 / gap**3
        step = alpha / np.sqrt(total)
        x = x + step
        log_weight = log_weight + np.log(np.maximum(1.0 - 0.5 * step * slope / total, 1e-12))
    return np.stack(xs, axis=1), np.stack(log_weights, axis=1)


class Integrand:
    """The functions of x that every sum over the nodes of a block is made of.

    With v_g the variances and gamma_u the spread of an answer, and the mixing of class c::

        N_ug(x) = N(a_u | x, v_g + gamma_u),  F_uc(x) = Σ_kg m_u(k) mixing[c, k, g] N_ug(x)   (M29)
        P_c(x) = prior(x) Π_u F_uc(x),        cavity_uc(x) = P_c(x) / F_uc(x)
    """

    def __init__(self, block: Block, grid: Grid) -> None:
        self._block, self._grid = block, grid
        self.variance = grid.variance + block.spread[:, :, None]
        self.distance = block.centre[:, :, None] - block.x[:, None, :]
        squared = self.distance**2
        self.gauss = np.exp(-0.5 * squared[:, :, None, :] / self.variance[..., None])
        self.gauss /= np.sqrt(self.variance)[..., None]
        linear = np.exp(block.incoming)
        self.share = [linear @ mixing for mixing in grid.mixing]
        self.log_p, self.log_cavity = [], []
        for c, share in enumerate(self.share):
            log_f = self._log_sums(share, c)
            self.log_p.append(block.log_weight + log_f.sum(axis=1))
            self.log_cavity.append(self.log_p[-1][:, None, :] - log_f)

    def _log_sums(self, share: Floats, c: int) -> Floats:
        """Log of F_uc at all nodes (n, l, Q).

        Where F underflows, it is set to a bound above it; where with that bound the node could
        matter to anybody else's cavity, it is worked out again in logs, until none could.
        """
        f = np.matmul(share[:, :, None, :], self.gauss)[:, :, 0, :]
        bounded = f < _UNSAFE
        log_f = np.log(np.maximum(f, _UNSAFE))
        while bounded.any():
            log_p = self._block.log_weight + log_f.sum(axis=1)
            cavity = log_p[:, None, :] - log_f
            matters = cavity > cavity.max(axis=2, keepdims=True) - _NEGLIGIBLE
            to_others = matters.sum(axis=1, keepdims=True) - matters > 0
            i, u, q = np.nonzero(bounded & to_others)
            if not len(i):
                break
            log_f[i, u, q] = self._log_terms(i, u, c, q)
            bounded[i, u, q] = False
        return np.asarray(log_f)

    def _log_terms(self, i: Index, u: Index, c: int, q: Index) -> Floats:
        variance = self.variance[i, u]
        log_gauss = -0.5 * (self.distance[i, u, q][:, None] ** 2 / variance + np.log(variance))
        return np.asarray(logsumexp(self._log_share(i, u, c) + log_gauss, axis=1))

    def _log_share(self, i: Index, u: Index, c: int) -> Floats:
        with np.errstate(divide="ignore"):
            log_mixing = np.log(self._grid.mixing[c])
        return np.asarray(logsumexp(self._block.incoming[i, u][:, :, None] + log_mixing, axis=1))

    def mass(self) -> tuple[Floats, Floats]:
        """Probability of every class and node (n, C, Q), and the log evidence for each class."""
        log_p = np.stack(self.log_p, axis=1)
        top = log_p.max(axis=(1, 2), keepdims=True)
        joint = np.exp(log_p - top)
        # Ten times the smallest number: log of nothing at all would be infinite.
        evidence = np.log(np.maximum(joint.sum(axis=2), 1e-300))
        joint *= np.exp(self._block.log_class)[:, :, None]
        joint /= np.maximum(joint.sum(axis=(1, 2), keepdims=True), 1e-300)
        return joint, evidence

    def cavities(self) -> tuple[Floats, list[Floats]]:
        """What all others say of x, each class weighed in, scaled so that none overflows."""
        log_class = self._block.log_class
        top = np.max(
            [v.max(axis=2) + log_class[:, c, None] for c, v in enumerate(self.log_cavity)], axis=0
        )
        linear = [
            np.exp(v + (log_class[:, c, None] - top)[..., None])
            for c, v in enumerate(self.log_cavity)
        ]
        return top, linear

    def log_message(self, i: Index, u: Index) -> Floats:
        """The messages of some edges about the level, in logs throughout."""
        variance = self.variance[i, u]
        log_gauss = -0.5 * (
            self.distance[i, u][:, None, :] ** 2 / variance[..., None] + np.log(variance)[..., None]
        )
        terms = []
        for c, cavity in enumerate(self.log_cavity):
            per_variance = logsumexp(log_gauss + cavity[i, u][:, None, :], axis=2)
            with np.errstate(divide="ignore"):
                log_mixing = np.log(self._grid.mixing[c])
            message = logsumexp(per_variance[:, None, :] + log_mixing, axis=2)
            terms.append(message + self._block.log_class[i, c][:, None])
        return np.asarray(logsumexp(np.stack(terms), axis=0))


def send(block: Block, grid: Grid) -> Heard:
    """Work out what rows say to their workers about level and bias, and about their class.

    The message about the level is the integral of what the others say times the answer's density
    there (M30); that about the bias is its mean and variance with the answer known (M31), given x
    and g a Gaussian, mixed over both::

        m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] ∫ cavity_uc(x) N_ug(x) dx
        b | x, g ~ N(w (a_u - x), w v_g),   w = gamma_u / (v_g + gamma_u)
    """
    f = Integrand(block, grid)
    top, cavities = f.cavities()
    message = np.zeros(block.incoming.shape)
    total = np.zeros(block.centre.shape)
    first, second = np.zeros_like(total), np.zeros_like(total)
    weight = block.spread[:, :, None] / f.variance
    level = np.exp(block.incoming)
    integrals = []
    for c, cavity in enumerate(cavities):
        integral = np.matmul(f.gauss, cavity[..., None])[..., 0]
        integrals.append(integral)
        message += integral @ grid.mixing[c].T
        share = f.share[c]
        total += (share * integral).sum(axis=2)
        if block.spread.any():
            pulled = cavity * f.distance
            by_first = np.matmul(f.gauss, pulled[..., None])[..., 0]
            by_second = np.matmul(f.gauss, (pulled * f.distance)[..., None])[..., 0]
            first += (share * weight * by_first).sum(axis=2)
            second += (share * (weight**2 * by_second + weight * grid.variance * integral)).sum(
                axis=2
            )
    # A level that explains an answer worse than another by 500 nats is out of the question, by
    # however much more; but where all levels are, their differences count.
    unsafe = message.max(axis=2) < _UNSAFE
    np.log(np.maximum(message, _UNSAFE), out=message)
    if unsafe.any():
        i, u = np.nonzero(unsafe)
        message[i, u] = f.log_message(i, u) - top[i, u][:, None]
    message -= message.max(axis=2, keepdims=True)
    lost = total < _UNSAFE
    total = np.where(lost, 1.0, total)
    # Where everything underflows, nothing is learned about the bias: it stays as it was.
    shift = np.where(lost, 0.0, first / total)
    variance = np.where(lost, block.spread, second / total - shift**2)
    share_of_one = level / np.where(lost, np.inf, total)[..., None]
    pairs = np.stack([np.einsum("nlk,nlg->kg", share_of_one, integral) for integral in integrals])
    mass, evidence = f.mass()
    return Heard(message, evidence, shift, np.maximum(variance, 0.0), mass, pairs * grid.mixing)


def predict(block: Block, grid: Grid) -> Prediction:
    """Predict each answer from all others of its row (M32): density, PIT, and where they see x."""
    f = Integrand(block, grid)
    _, cavities = f.cavities()
    mass, density, below, noise = (np.zeros(block.centre.shape) for _ in range(4))
    first, second = np.zeros_like(mass), np.zeros_like(mass)
    x = block.x[:, None, :]
    for c, cavity in enumerate(cavities):
        mass += cavity.sum(axis=2)
        first += (cavity * x).sum(axis=2)
        second += (cavity * x * x).sum(axis=2)
        share = f.share[c]
        noise += (share * f.variance).sum(axis=2) * cavity.sum(axis=2)
        density += (share * np.matmul(f.gauss, cavity[..., None])[..., 0]).sum(axis=2)
        for g in range(len(grid.variance)):
            sd = np.sqrt(f.variance[:, :, g])[..., None]
            below += share[:, :, g] * (cavity * ndtr(f.distance / sd)).sum(axis=2)
    # The workers' shares of the levels are known up to a factor.
    whole = np.exp(block.incoming).sum(axis=2)
    mean = first / mass
    truth_variance = np.maximum(second / mass - mean**2, 0.0)
    with np.errstate(divide="ignore"):
        log_density = np.log(density / mass / whole) - 0.5 * np.log(2.0 * np.pi)
    return Prediction(
        np.maximum(log_density, np.log(_UNSAFE)),
        np.clip(below / mass / whole, 0.0, 1.0),
        mean,
        truth_variance,
        truth_variance + noise / mass / whole,
    )
