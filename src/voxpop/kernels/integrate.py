"""Integration over the truth: the same messages at a cost linear in the number of answers.

Inside the integral over a task's truth the workers are independent, so all messages of a task
come from one product of one-dimensional functions (M12)-(M13). Nodes follow the local scale of
the integrand (M14), fine near the answers and coarse between them, which keeps their number in
the hundreds for any ratio of the levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from voxpop.arrays import Floats
from voxpop.kernels.posterior import Posterior

# Linear sums below this may have lost terms to underflow and are done again in logs.
_UNSAFE = 1e-250
# Most nodes to spend on the empty space between answers that no level reaches across.
_MOST_WIDE_NODES = 6000.0
# Least sd that nodes try to resolve, as a share of the range of a task's answers.
_FINEST = 1e-12
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
    half_precision = 0.5 / levels
    gauss, log_f = _worker_functions(value, incoming, levels, nodes)
    total = _log_prior(nodes, prior_mean, prior_variance) + log_f.sum(axis=1)
    cavity = total[:, None, :] - log_f
    highest = cavity.max(axis=2, keepdims=True)
    linear = np.exp(cavity - highest)
    np.matmul(gauss, linear[..., None], out=out[..., None])
    unsafe = out < _UNSAFE
    with np.errstate(divide="ignore"):
        np.log(out, out=out)
    if unsafe.any():
        i, u, k = np.nonzero(unsafe)
        squared = (nodes.x[i] - value[i, u, None]) ** 2
        out[i, u, k] = logsumexp(
            cavity[i, u] - highest[i, u] - half_precision[k, None] * squared, axis=1
        )
    out -= 0.5 * np.log(levels)
    out -= out.max(axis=2, keepdims=True)


def _worker_functions(
    value: Floats, incoming: Floats, levels: Floats, nodes: Nodes
) -> tuple[Floats, Floats]:
    """Return exp(-(x - A_u)²/(2 s_k)), shape (n, l, K, Q), and log F_u(x), shape (n, l, Q)."""
    half_precision = 0.5 / levels
    squared = (nodes.x[:, None, :] - value[:, :, None]) ** 2
    gauss = np.exp(-half_precision[:, None] * squared[:, :, None, :])
    scaled = incoming - 0.5 * np.log(levels)
    top = scaled.max(axis=2, keepdims=True)
    f = np.matmul(np.exp(scaled - top)[:, :, None, :], gauss)[:, :, 0, :]
    unsafe = f < _UNSAFE
    with np.errstate(divide="ignore"):
        log_f = np.log(f, out=f)
    if unsafe.any():
        i, u, q = np.nonzero(unsafe)
        exponent = (scaled - top)[i, u] - squared[i, u, q, None] * half_precision
        log_f[i, u, q] = logsumexp(exponent, axis=1)
    log_f += top
    return gauss, log_f


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
    _, log_f = _worker_functions(value, incoming, levels, nodes)
    log_p = _log_prior(nodes, prior_mean, prior_variance) + log_f.sum(axis=1)
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    estimate = (p * nodes.x).sum(axis=1)
    variance = (p * (nodes.x - estimate[:, None]) ** 2).sum(axis=1)
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
