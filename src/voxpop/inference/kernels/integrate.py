"""Integration over the truth: all messages of a task at a cost linear in the number of answers.

Inside the integral over one coordinate of a task's truth the workers are independent, so all
messages come from one product of one-dimensional functions (M12)-(M13). Every answer is a mixture
of Gaussians about the truth (M28): level times tail times difficulty, all on one grid of variances,
wider by what is not known of the worker's bias. The paper's noise is the grid of its levels, with
one class of difficulty and no bias. Messages about levels, bias and difficulty, the posterior, and
the leave-one-out prediction of each answer come from the same few sums over nodes (M29)-(M32).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr

from voxpop.arrays import Floats, Index
from voxpop.inference.kernels.nodes import Aim, Functions, Nodes, place_nodes
from voxpop.inference.kernels.posterior import Posterior

# Linear sums below this may have lost terms to underflow and are done again in logs.
_UNSAFE = 1e-250
# Shares below this may have lost terms; for placing nodes their largest term stands for them.
_UNSAFE_SHARE = 1e-290
# The posterior's quantiles interpolate between nodes, and so want them closer.
QUANTILE_REFINEMENT = 3.0
# Numbers in flight while Gaussians are evaluated: 8 MB.
_NUMBERS_IN_FLIGHT = 1_000_000


@dataclass(frozen=True, eq=False)
class NoiseGrid:
    """Variances of the mixture, and how levels and classes of difficulty spread over them.

    ``mixing[c, k, g]`` is the share of variance g in an answer at level k to a task of class c.
    """

    variance: Floats
    mixing: Floats

    @classmethod
    def plain(cls, levels: Floats) -> NoiseGrid:
        """The paper's noise: each level is a variance, and all tasks are of one class."""
        return cls(levels, np.eye(len(levels))[None])


@dataclass(frozen=True, eq=False)
class Law:
    """The common inputs of all rows of a block: noise, prior of the truths, and accuracy.

    The prior is a mixture of Gaussians about the row's own mean, with variances and weights (J,);
    without any it is flat. ``lowest`` is the lowest log message that is kept.
    """

    grid: NoiseGrid
    prior_variance: Floats
    prior_weight: Floats
    accuracy: float
    lowest: float = -np.inf


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows (one coordinate of one task each) of equal degree: the input of a kernel.

    ``centre`` (n, l) are answers minus the expected bias of their worker, ``spread`` (n, l)
    the variance of that belief, ``incoming`` (n, l, K) the workers' log messages with largest
    entry 0, ``log_class`` (n, C) the log probability of each class, from elsewhere, ``prior_mean``
    (n,) the centre of the prior, ``low`` and ``high`` (n,) the bounds of the truth, ``known`` (n,)
    the truth where it is known. All rows of a block are known or none.
    """

    centre: Floats
    spread: Floats
    incoming: Floats
    log_class: Floats
    prior_mean: Floats
    low: Floats
    high: Floats
    known: Floats


@dataclass(frozen=True, eq=False)
class Outgoing:
    """Messages of the rows: to workers about level (n, l, K) and bias, and about class and truth.

    ``shift`` and ``shift_variance`` (n, l) are mean and variance of the bias less its expected
    value, the answer itself taken into account. ``evidence`` (n, C) is the log probability of the
    answers under each class. The rest are sums over the rows that learning needs: ``pairs``
    (C, K, G) counts the answers expected at each class, level and variance, ``classes`` (C,) the
    rows of each class, ``components`` (J,) those of each component of the prior; ``pull`` and
    ``precision`` are the sums of x / v and 1 / v over the prior's components.
    """

    message: Floats
    evidence: Floats
    shift: Floats
    shift_variance: Floats
    pairs: Floats
    classes: Floats
    components: Floats
    pull: float
    precision: float


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Each answer as predicted by the others, (n, l) or (E,): log density, PIT, and moments.

    ``mean`` and ``truth_variance`` are those of x, ``variance`` that of the answer.
    """

    log_density: Floats
    pit: Floats
    mean: Floats
    truth_variance: Floats
    variance: Floats


def functions(rows: Rows, law: Law, aim: Aim = Aim.MESSAGES) -> Functions:
    """The answers and the prior as functions of the truth (M12)."""
    grid, n = law.grid, len(rows.centre)
    degree, n_prior = rows.centre.shape[1], len(law.prior_variance)
    width = max(len(grid.variance), n_prior)
    size = (n, degree + (n_prior > 0), width)
    variance, height = np.full(size, np.inf), np.full((len(grid.mixing), *size), -np.inf)
    variance[:, :degree, : len(grid.variance)] = grid.variance + rows.spread[:, :, None]
    with np.errstate(divide="ignore"):
        for c, mixing in enumerate(grid.mixing):
            share, log_mixing = np.exp(rows.incoming) @ mixing, np.log(mixing)
            log_share = np.log(share)
            if (share < _UNSAFE_SHARE).any():
                largest = (rows.incoming[..., None] + log_mixing).max(axis=2)
                log_share = np.where(share < _UNSAFE_SHARE, largest, log_share)
            height[c, :, :degree, : len(grid.variance)] = log_share
        centre = rows.centre
        if n_prior:
            variance[:, degree, :n_prior] = law.prior_variance
            height[:, :, degree, :n_prior] = np.log(law.prior_weight)
            centre = np.concatenate([centre, rows.prior_mean[:, None]], axis=1)
    height -= np.where(np.isfinite(variance), 0.5 * np.log(variance), 0.0)
    return Functions(centre, variance, height, rows.log_class, degree, -law.lowest, aim)


def nodes_of(rows: Rows, law: Law, aim: Aim = Aim.MESSAGES, refinement: float = 1.0) -> Nodes:
    """Nodes to integrate over; of rows whose truth is known, the truth alone."""
    if np.isfinite(rows.known).all():
        return Nodes(rows.known[:, None], np.ones((len(rows.known), 1)))
    f = functions(rows, law, aim)
    return place_nodes(f, (rows.low, rows.high), law.accuracy, refinement)


class Integrand:
    """The functions of x that every sum over the nodes of a block is made of.

    With v_g the variances and gamma_u the spread of an answer, and the mixing of class c::

        N_ug(x) = N(a_u | x, v_g + gamma_u),  F_uc(x) = Σ_kg m_u(k) mixing[c, k, g] N_ug(x)   (M29)
        P_c(x) = prior(x) Π_u F_uc(x),        cavity_uc(x) = P_c(x) / F_uc(x)
    """

    def __init__(self, rows: Rows, law: Law, nodes: Nodes) -> None:
        self.rows, self.grid, self.x = rows, law.grid, nodes.x
        self.prior, log_prior = _prior_terms(nodes.x, rows.prior_mean, law)
        log_weight = nodes.log_weight + log_prior
        n_classes, (n, degree) = len(law.grid.mixing), rows.centre.shape
        n_nodes = nodes.x.shape[1]
        self.log_f = np.empty((n_classes, n, degree, n_nodes))
        self.log_p = np.repeat(log_weight[None], n_classes, axis=0)
        size = max(1, _NUMBERS_IN_FLIGHT // (n * n_nodes * len(law.grid.variance)))
        self._cuts = [slice(i, min(i + size, degree)) for i in range(0, degree, size)]
        self._kept: Gaussians | None = None
        for some in self._cuts:
            gaussians = self._kept = Gaussians(rows, law.grid, nodes.x, some)
            for c in range(n_classes):
                found = gaussians.log_function(c)
                self.log_f[c][:, some] = found
                # One by one, so that it does not matter how they were cut.
                for u in range(found.shape[1]):
                    self.log_p[c] += found[:, u]

    def answers(self) -> Iterator[tuple[slice, Gaussians, Floats, list[Floats]]]:
        """Some answers at a time: their Gaussians, and the cavity distributions of x.

        The cavities, one a class, (n, u, Q), have the class's probability in them and are scaled by
        exp(-top), top (n, u), so that none overflows.
        """
        log_class = self.rows.log_class
        for some in self._cuts:
            if self._kept is None or len(self._cuts) > 1:
                self._kept = Gaussians(self.rows, self.grid, self.x, some)
            cavity = [
                log_p[:, None] - log_f[:, some] + log_class[:, c, None, None]
                for c, (log_p, log_f) in enumerate(zip(self.log_p, self.log_f, strict=True))
            ]
            top = np.max([part.max(axis=2) for part in cavity], axis=0)
            yield some, self._kept, top, [np.exp(part - top[..., None]) for part in cavity]

    def mass(self) -> tuple[Floats, Floats]:
        """Probability of every class and node (n, C, Q), and the log evidence for each class."""
        log_p = self.log_p.transpose(1, 0, 2)
        joint = np.exp(log_p - log_p.max(axis=(1, 2), keepdims=True))
        # The log of zero would be infinite.
        evidence = np.log(np.maximum(np.einsum("ncq->nc", joint, optimize=False), 1e-300))
        joint *= np.exp(self.rows.log_class)[:, :, None]
        whole = np.einsum("ncq->nc", joint, optimize=False).sum(axis=1)
        return joint / np.maximum(whole, 1e-300)[:, None, None], evidence


class Gaussians:
    """N_ug at all nodes (n, u, G, Q) for some answers, and the shares of the variances."""

    def __init__(self, rows: Rows, grid: NoiseGrid, x: Floats, some: slice) -> None:
        self._incoming, self._grid = rows.incoming[:, some], grid
        self.variance = grid.variance + rows.spread[:, some, None]
        self.distance = rows.centre[:, some, None] - x[:, None, :]
        self.n = (self.distance**2)[:, :, None, :] * (-0.5 / self.variance)[..., None]
        np.exp(self.n, out=self.n)
        self.n /= np.sqrt(self.variance)[..., None]
        self.level = np.exp(self._incoming)
        self.share = [self.level @ mixing for mixing in grid.mixing]

    def log_function(self, c: int) -> Floats:
        """Log of F_uc at all nodes (n, u, Q); in logs throughout where it would underflow."""
        f = np.einsum("nug,nugq->nuq", self.share[c], self.n, optimize=False)
        i, u, q = np.nonzero(f < _UNSAFE)
        with np.errstate(divide="ignore"):
            log_f = np.log(f)
            if len(i):
                variance = self.variance[i, u]
                log_gauss = self.distance[i, u, q][:, None] ** 2 / variance + np.log(variance)
                log_mixing = np.log(self._grid.mixing[c])
                log_share = logsumexp(self._incoming[i, u][:, :, None] + log_mixing, axis=1)
                log_f[i, u, q] = logsumexp(log_share - 0.5 * log_gauss, axis=1)
        return np.asarray(log_f)

    def integrate(self, cavity: Floats) -> Floats:
        """∫ cavity_uc(x) N_ug(x) dx (n, u, G)."""
        return np.asarray(np.einsum("nugq,nuq->nug", self.n, cavity, optimize=False))

    def log_integrals(self, i: Index, u: Index, log_cavity: Floats) -> Floats:
        """The same for some answers in logs throughout, (m, G); their cavities are (m, Q)."""
        variance = self.variance[i, u]
        exponent = self.distance[i, u][:, None, :] ** 2 * (-0.5 / variance)[..., None]
        exponent += log_cavity[:, None, :]
        top = exponent.max(axis=2)
        total = np.einsum("mgq->mg", np.exp(exponent - top[..., None]), optimize=False)
        return np.asarray(top + np.log(total) - 0.5 * np.log(variance))


def send(rows: Rows, law: Law, nodes: Nodes) -> Outgoing:
    """Compute the messages of rows to their workers about level and bias, and about their class.

    The message about the level is the integral of the cavity distribution times the answer's
    density there (M30); that about the bias is its mean and variance with the answer known (M31),
    given x and g a Gaussian, mixed over both::

        m(k) ∝ Σ_c p(c) Σ_g mixing[c, k, g] ∫ cavity_uc(x) N_ug(x) dx
        b | x, g ~ N(w (a_u - x), w v_g),   w = gamma_u / (v_g + gamma_u)
    """
    f, grid = Integrand(rows, law, nodes), law.grid
    message = np.empty(rows.incoming.shape)
    shift, shift_variance = np.zeros_like(rows.centre), rows.spread.copy()
    pairs = np.zeros_like(grid.mixing)
    for some, gaussians, top, cavities in f.answers():
        integrals = [gaussians.integrate(cavity) for cavity in cavities]
        outgoing = sum(part @ mixing.T for part, mixing in zip(integrals, grid.mixing, strict=True))
        message[:, some] = _log_message(f, some, gaussians, top, np.asarray(outgoing), law.lowest)
        total = sum((s * part).sum(2) for s, part in zip(gaussians.share, integrals, strict=True))
        # Where everything underflows, nothing is learned about the bias, and nothing is counted.
        lost = np.asarray(total) < _UNSAFE
        total = np.where(lost, 1.0, total)
        if rows.spread.any():
            mean, square = _bias_moments(rows.spread[:, some], gaussians, cavities, integrals, grid)
            shift[:, some] = np.where(lost, 0.0, mean / total)
            found = np.maximum(square / total - shift[:, some] ** 2, 0.0)
            shift_variance[:, some] = np.where(lost, rows.spread[:, some], found)
        share = gaussians.level / np.where(lost, np.inf, total)[..., None]
        pairs += [np.einsum("nlk,nlg->kg", share, part) for part in integrals]
    mass, evidence = f.mass()
    components, pull, precision = _count_truths(f, mass.sum(axis=1), law)
    return Outgoing(
        message, evidence, shift, shift_variance, pairs * grid.mixing,
        mass.sum(axis=(0, 2)), components, pull, precision,
    )  # fmt: skip


def _log_message(
    f: Integrand, some: slice, gaussians: Gaussians, top: Floats, message: Floats, lowest: float
) -> Floats:
    """Logs of messages, largest entry 0; those that underflowed are computed again in logs."""
    unsafe = message.max(axis=2) < _UNSAFE
    if lowest < np.log(_UNSAFE):
        unsafe |= message.min(axis=2) < _UNSAFE
    log_message = np.log(np.maximum(message, _UNSAFE))
    if unsafe.any():
        i, u = np.nonzero(unsafe)
        with np.errstate(divide="ignore"):
            terms = [
                logsumexp(
                    gaussians.log_integrals(
                        i, u, (f.log_p[c][:, None] - f.log_f[c][:, some])[i, u]
                    )[:, None, :]
                    + np.log(mixing),
                    axis=2,
                )
                + f.rows.log_class[i, c][:, None]
                for c, mixing in enumerate(f.grid.mixing)
            ]
        log_message[i, u] = logsumexp(np.stack(terms), axis=0) - top[i, u][:, None]
    return np.asarray(log_message - log_message.max(axis=2, keepdims=True))


def _bias_moments(
    spread: Floats,
    gaussians: Gaussians,
    cavities: list[Floats],
    integrals: list[Floats],
    grid: NoiseGrid,
) -> tuple[Floats, Floats]:
    """First and second moment of the bias, up to the factor that all moments have (M31)."""
    first, second = np.zeros_like(spread), np.zeros_like(spread)
    weight = spread[:, :, None] / gaussians.variance
    for share, cavity, integral in zip(gaussians.share, cavities, integrals, strict=True):
        pulled = cavity * gaussians.distance
        once, twice = (gaussians.integrate(p) for p in (pulled, pulled * gaussians.distance))
        first += (share * weight * once).sum(axis=2)
        second += (share * (weight**2 * twice + weight * grid.variance * integral)).sum(axis=2)
    return first, second


def _prior_terms(x: Floats, mean: Floats, law: Law) -> tuple[Floats, Floats]:
    """Terms of the prior at x (n, Q), and the log of their sum.

    Terms, (J, n, Q), are over the widest one's exponential, so that none overflows and their sum
    does not underflow.
    """
    if not law.prior_variance.size:
        return np.empty((0, *x.shape)), np.zeros_like(x)
    squared = (x - mean[:, None]) ** 2
    widest = law.prior_variance.max()
    excess = -0.5 * (1.0 / law.prior_variance - 1.0 / widest)
    terms = np.exp(excess[:, None, None] * squared)
    terms *= (law.prior_weight / np.sqrt(law.prior_variance))[:, None, None]
    return terms, np.log(terms.sum(axis=0)) - 0.5 / widest * squared


def _count_truths(f: Integrand, mass: Floats, law: Law) -> tuple[Floats, float, float]:
    """Expected number of truths of each component of the prior, and sums that place its mean.

    x is taken from the prior's own mean, which all rows share.
    """
    if not law.prior_variance.size:
        return np.empty(0), 0.0, 0.0
    share = f.prior * (mass / f.prior.sum(axis=0))
    weight = np.tensordot(1.0 / law.prior_variance, share, axes=1)
    away = f.x - f.rows.prior_mean[:, None]
    return share.sum(axis=(1, 2)), float((weight * away).sum()), float(weight.sum())


def posterior(rows: Rows, law: Law, probabilities: Floats) -> tuple[Posterior, Floats]:
    """Moments and quantiles of the truths (n, 1), and the probabilities of the classes (n, C)."""
    nodes = nodes_of(rows, law, Aim.POSTERIOR, QUANTILE_REFINEMENT)
    joint, _ = Integrand(rows, law, nodes).mass()
    p = joint.sum(axis=1)
    estimate = np.einsum("nq,nq->n", p, nodes.x, optimize=False)
    squared = (nodes.x - estimate[:, None]) ** 2
    variance = np.einsum("nq,nq->n", p, squared, optimize=False)
    quantile = node_quantiles(p, nodes, probabilities)
    found = Posterior(estimate[:, None], variance[:, None], quantile[:, None, :])
    return found, joint.sum(axis=2)


def predict(rows: Rows, law: Law, nodes: Nodes) -> LeftOut:
    """Predict each answer from all others of its row (M32): density, PIT, and where they see x."""
    f = Integrand(rows, law, nodes)
    mass, first, second, noise, density, below = (np.zeros(rows.centre.shape) for _ in range(6))
    x = nodes.x[:, None, :]
    for some, gaussians, _, cavities in f.answers():
        for share, cavity in zip(gaussians.share, cavities, strict=True):
            of_class = cavity.sum(axis=2)
            mass[:, some] += of_class
            first[:, some] += (cavity * x).sum(axis=2)
            second[:, some] += (cavity * x * x).sum(axis=2)
            noise[:, some] += (share * gaussians.variance).sum(axis=2) * of_class
            density[:, some] += (share * gaussians.integrate(cavity)).sum(axis=2)
            for g in range(share.shape[2]):
                z = gaussians.distance / np.sqrt(gaussians.variance[:, :, g, None])
                below[:, some] += share[:, :, g] * (cavity * ndtr(z)).sum(axis=2)
    # The workers' shares of the levels are known up to a factor.
    whole = np.exp(rows.incoming).sum(axis=2)
    mean = first / mass
    truth_variance = np.maximum(second / mass - mean**2, 0.0)
    with np.errstate(divide="ignore"):
        log_density = np.log(density / mass / whole) - 0.5 * np.log(2.0 * np.pi)
    return LeftOut(
        np.maximum(log_density, np.log(_UNSAFE)),
        np.clip(below / mass / whole, 0.0, 1.0),
        mean,
        truth_variance,
        truth_variance + noise / mass / whole,
    )


def node_quantiles(p: Floats, nodes: Nodes, probabilities: Floats) -> Floats:
    """Invert the cumulated density: cubic in the node number, for the mass and for x."""
    n, q = p.shape
    if q == 1:
        return np.repeat(nodes.x, len(probabilities), axis=1)
    slope = np.gradient(p, axis=1)
    mass = 0.5 * (p[:, 1:] + p[:, :-1]) + (slope[:, :-1] - slope[:, 1:]) / 12.0
    cumulated = np.zeros((n, q))
    np.cumsum(np.maximum(mass, 0.0), axis=1, out=cumulated[:, 1:])
    target = probabilities * cumulated[:, -1:]
    cell = (cumulated[:, None, 1:] <= target[:, :, None]).sum(axis=2)
    cell = np.minimum(cell, q - 2)
    row = np.arange(n)[:, None]
    start, end = cumulated[row, cell], cumulated[row, cell + 1]
    low, high = np.zeros_like(target), np.ones_like(target)
    for _ in range(30):
        t = 0.5 * (low + high)
        below = _hermite(t, start, end, p[row, cell], p[row, cell + 1]) < target
        low, high = np.where(below, t, low), np.where(below, high, t)
    # Weights are steps of x by node number, up to a factor: the step between the nodes gives it.
    x, weight = nodes.x, nodes.weight
    rise, fall = weight[row, cell], weight[row, cell + 1]
    mean = 0.5 * (rise + fall)
    gap = x[row, cell + 1] - x[row, cell]
    scale = np.divide(gap, mean, out=np.zeros_like(mean), where=mean > 0)
    ends = x[row, cell], x[row, cell + 1]
    return _hermite(0.5 * (low + high), *ends, rise * scale, fall * scale)


def _hermite(t: Floats, start: Floats, end: Floats, rise: Floats, fall: Floats) -> Floats:
    """Cubic through both ends of the unit interval with the slopes given there."""
    return np.asarray(
        start * (1 + 2 * t) * (1 - t) ** 2
        + rise * t * (1 - t) ** 2
        + end * t * t * (3 - 2 * t)
        - fall * t * t * (1 - t)
    )
