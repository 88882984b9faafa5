"""Integration over the truth: the same messages at a cost linear in the number of answers.

Inside the integral over a task's truth the workers are independent, so all messages of a task
come from one product of one-dimensional functions (M12)-(M13). Nodes follow the local scale of
the integrand (M14), fine near the answers and coarse between them, which keeps their number in
the hundreds for any ratio of the levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.kernels.posterior import Posterior

# Linear sums below this may have lost terms to underflow and are done again in logs.
_UNSAFE = 1e-250
# Most nodes to spend on the empty space between answers that no level reaches across.
_MOST_WIDE_NODES = 6000.0
# Least sd that nodes try to resolve, as a share of the range of a task's answers.
_FINEST = 1e-12
# Numbers in flight while workers' functions are worked out: 8 MB.
_NUMBERS_IN_FLIGHT = 1_000_000
# Lengths that numpy adds up without a remainder.
_WHOLE_LENGTH = 64
# The posterior's quantiles interpolate between nodes, and so want them closer.
QUANTILE_REFINEMENT = 3.0


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes x (n, Q) of the integral of each task, and weights; past its end a task weighs 0."""

    x: Floats
    weight: Floats


def place_nodes(
    value: Floats,
    levels: Floats,
    prior_mean: Floats,
    prior_variance: float,
    accuracy: float,
    refinement: float = 1.0,
) -> Nodes:
    """Choose the nodes of a block of tasks, ``value`` (n, l), for an error near ``accuracy``.

    The step at x is ``alpha / sqrt(W(x))``, with W the precision that Gaussians of local variance
    smallest level + (distance / reach)² would multiply up to, beside the least there can be::

        W(x) = Σ_u 1 / (s_min + ((x - A_u) / c)²) + l / s_max + 1 / tau²               (M14)

    Nodes are the orbit x' = x + alpha / sqrt(W(x)), weights the product of its derivatives: an
    analytic map of the integers, on which the trapezoid rule converges exponentially. A constant
    factor in all weights of a task does not matter, since messages and moments are normalised.
    """
    alpha = np.pi * np.sqrt(2.0 / np.log(2.0 / accuracy))
    padding = np.sqrt(2.0 * np.log(1.0 / accuracy))
    # Measured against enumeration: a reach of 1.5 paddings keeps the error below the asked one.
    reach = 1.5 * padding
    alpha /= refinement
    n, degree = value.shape
    narrow, wide = levels.min(), levels.max()
    low, high = value.min(axis=1), value.max(axis=1)
    if np.isfinite(prior_variance):
        # However precise the workers, their mean is drawn to the prior's: no further out than this.
        pull = (degree / narrow) / (degree / narrow + 1.0 / prior_variance)
        low = prior_mean + np.minimum(pull * (low - prior_mean), 0.0)
        high = prior_mean + np.maximum(pull * (high - prior_mean), 0.0)
    # The flattest that the product of all others can be, which a tail outside follows.
    margin = padding / np.sqrt(max(degree - 1, 1) / wide + 1.0 / prior_variance)
    low, high = low - margin, high + margin
    least = degree / wide + 1.0 / prior_variance
    flattest = np.minimum(least, (alpha * _MOST_WIDE_NODES / (high - low)) ** 2)
    centre = _far_centres(value, wide, prior_mean, 1.0 / prior_variance, flattest < least)
    # A step that the spacing of floating-point numbers would swallow leads nowhere.
    finest = np.maximum(narrow, (_FINEST * (high - low)) ** 2)[:, None]
    x, weight = low.copy(), np.ones(n)
    xs, weights = [], []
    while True:
        inside = x <= high
        xs.append(x)
        weights.append(np.where(inside, weight, 0.0))
        if not inside.any():
            break
        distance = x[:, None] - value
        precision = 1.0 / (finest + (distance / reach) ** 2)
        total = precision.sum(axis=1) + flattest
        slope = (distance * precision * precision).sum(axis=1)
        if centre is not None:
            distance = x[:, None] - centre
            precision = 1.0 / (np.maximum(1.0 / least, finest) + (distance / reach) ** 2)
            precision[flattest >= least] = 0.0
            total += precision.sum(axis=1)
            slope += (distance * precision * precision).sum(axis=1)
        slope *= -2.0 / reach**2
        step = alpha / np.sqrt(total)
        x = x + step
        weight = weight * (1.0 - 0.5 * step * slope / total)
    # Sums over nodes round by how many there are; so that tasks say the same in any block, these
    # are filled up to whole lengths with nodes that weigh nothing.
    missing = -len(xs) % _WHOLE_LENGTH
    xs += [x] * missing
    weights += [np.zeros(n)] * missing
    return Nodes(np.stack(xs, axis=1), np.stack(weights, axis=1))


def _far_centres(
    value: Floats, wide: float, prior_mean: Floats, prior_precision: float, far: NDArray[np.bool_]
) -> Floats | None:
    """Where the mass may lie far from every answer: only where all levels are the widest.

    Where answers are so far apart that nodes cannot fill the space between them (``far``), the
    product of all workers peaks at their mean, that of all others than u at theirs; finer nodes
    are needed around those l + 1 places, shape (n, l + 1). None where no task needs them.
    """
    if not far.any():
        return None
    total = value.sum(axis=1, keepdims=True)
    degree = value.shape[1]
    pull = prior_precision * prior_mean[:, None] if prior_precision else 0.0
    of_all = (total / wide + pull) / (degree / wide + prior_precision)
    of_others = ((total - value) / wide + pull) / (max(degree - 1, 1) / wide + prior_precision)
    return np.concatenate([of_all, of_others], axis=1)


def send(
    value: Floats,
    prior_mean: Floats,
    prior_variance: float,
    incoming: Floats,
    levels: Floats,
    nodes: Nodes,
    out: Floats,
) -> None:
    """Write the log message of every task to each of its workers (M13), largest entry 0.

    With F_v(x) = Σ_k m_v(k) N(A_v | x, s_k) and P(x) = prior(x) Π_v F_v(x)::

        m_{i→u}(k) ∝ ∫ P(x) / F_u(x) N(A_u | x, s_k) dx
    """
    log_f = np.empty((*value.shape, nodes.x.shape[1]))
    for some, part in _log_functions(value, incoming, levels, nodes):
        log_f[:, some] = part
    total = _log_prior(nodes, prior_mean, prior_variance) + log_f.sum(axis=1)
    for some in _some_answers(nodes, levels, value.shape[1]):
        # P / F_u takes the place of F_u.
        cavity = np.subtract(total[:, None, :], log_f[:, some], out=log_f[:, some])
        cavity -= cavity.max(axis=2, keepdims=True)
        gauss = _gauss(value[:, some], levels, nodes)
        found = np.einsum("nukq,nuq->nuk", gauss, np.exp(cavity), optimize=False)
        unsafe = found < _UNSAFE
        with np.errstate(divide="ignore"):
            np.log(found, out=found)
        if unsafe.any():
            i, u, k = np.nonzero(unsafe)
            squared = (nodes.x[i] - value[:, some][i, u, None]) ** 2
            found[i, u, k] = _log_sum(cavity[i, u] - (0.5 / levels)[k, None] * squared)
        out[:, some] = found
    out -= 0.5 * np.log(levels)
    out -= out.max(axis=2, keepdims=True)


def _some_answers(nodes: Nodes, levels: Floats, degree: int) -> Iterator[slice]:
    """Cut the answers of tasks so that numbers in flight stay few, however many answers."""
    size = max(1, _NUMBERS_IN_FLIGHT // (nodes.x.size * len(levels)))
    return (slice(start, min(start + size, degree)) for start in range(0, degree, size))


def _gauss(value: Floats, levels: Floats, nodes: Nodes) -> Floats:
    """exp(-(x - A_u)²/(2 s_k)), shape (n, l, K, Q)."""
    squared = (nodes.x[:, None, :] - value[:, :, None]) ** 2
    exponent = -(0.5 / levels)[:, None] * squared[:, :, None, :]
    return np.exp(exponent, out=exponent)


def _log_sum(exponent: Floats) -> Floats:
    """Log of the sum of exponentials over the last axis, added up in order."""
    top = exponent.max(axis=-1, keepdims=True)
    return np.asarray(
        top[..., 0] + np.log(np.einsum("...q->...", np.exp(exponent - top), optimize=False))
    )


def _log_functions(
    value: Floats, incoming: Floats, levels: Floats, nodes: Nodes
) -> Iterator[tuple[slice, Floats]]:
    """Work out log F_u(x), shape (n, some of the l, Q), for some answers after the other."""
    scaled = incoming - 0.5 * np.log(levels)
    top = scaled.max(axis=2, keepdims=True)
    scaled -= top
    for some in _some_answers(nodes, levels, value.shape[1]):
        gauss = _gauss(value[:, some], levels, nodes)
        f = np.einsum("nuk,nukq->nuq", np.exp(scaled[:, some]), gauss, optimize=False)
        unsafe = f < _UNSAFE
        with np.errstate(divide="ignore"):
            np.log(f, out=f)
        if unsafe.any():
            i, u, q = np.nonzero(unsafe)
            squared = (nodes.x[i, q] - value[:, some][i, u]) ** 2
            f[i, u, q] = _log_sum(scaled[:, some][i, u] - squared[:, None] * (0.5 / levels))
        f += top[:, some]
        yield some, f


def _log_prior(nodes: Nodes, prior_mean: Floats, prior_variance: float) -> Floats:
    with np.errstate(divide="ignore"):
        log_weight = np.log(nodes.weight)
    if np.isfinite(prior_variance):
        log_weight -= (nodes.x - prior_mean[:, None]) ** 2 / (2.0 * prior_variance)
    return np.asarray(log_weight)


def posterior(
    value: Floats,
    prior_mean: Floats,
    prior_variance: float,
    incoming: Floats,
    levels: Floats,
    accuracy: float,
    probabilities: Floats,
) -> Posterior:
    """Moments and quantiles of the truths from P(x), the product of all workers' functions."""
    nodes = place_nodes(
        value, levels, prior_mean, prior_variance, accuracy, refinement=QUANTILE_REFINEMENT
    )
    log_p = _log_prior(nodes, prior_mean, prior_variance)
    for _, part in _log_functions(value, incoming, levels, nodes):
        # One by one, so that it does not matter how they were cut.
        for u in range(part.shape[1]):
            log_p += part[:, u]
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    p /= np.einsum("nq->n", p, optimize=False)[:, None]
    estimate = np.einsum("nq,nq->n", p, nodes.x, optimize=False)
    squared = (nodes.x - estimate[:, None]) ** 2
    variance = np.einsum("nq,nq->n", p, squared, optimize=False)
    quantile = node_quantiles(p, nodes, probabilities)
    return Posterior(estimate[:, None], variance[:, None], quantile[:, None, :])


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
    weight = nodes.weight
    return _hermite(
        0.5 * (low + high),
        nodes.x[row, cell],
        nodes.x[row, cell + 1],
        *_steps(nodes.x, weight, row, cell),
    )


def _steps(
    x: Floats,
    weight: Floats,
    row: NDArray[np.intp],
    cell: NDArray[np.intp],
) -> tuple[Floats, Floats]:
    """Derivative of x by node number at both ends of a cell, from the weights' own scale."""
    first, last = weight[row, cell], weight[row, cell + 1]
    # Weights are known up to a factor; the step between the nodes gives it.
    mean = 0.5 * (first + last)
    scale = np.divide(
        x[row, cell + 1] - x[row, cell], mean, out=np.zeros_like(mean), where=mean > 0
    )
    return first * scale, last * scale


def _hermite(t: Floats, start: Floats, end: Floats, rise: Floats, fall: Floats) -> Floats:
    """Cubic through both ends of the unit interval with the slopes given there."""
    return np.asarray(
        start * (1 + 2 * t) * (1 - t) ** 2
        + rise * t * (1 - t) ** 2
        + end * t * t * (3 - 2 * t)
        - fall * t * t * (1 - t)
    )
