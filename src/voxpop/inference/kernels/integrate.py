"""Integration over the truth: the same messages at a cost linear in the number of answers.

Inside the integral over a task's truth the workers are independent, so all messages of a task
come from one product of one-dimensional functions (M12)-(M13), on nodes that ``nodes`` places.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from voxpop.arrays import Floats
from voxpop.inference.kernels.nodes import Nodes, Tasks, place_nodes
from voxpop.inference.kernels.posterior import Posterior

# Linear sums below this may have lost terms to underflow and are done again in logs.
_UNSAFE = 1e-250
# The posterior's quantiles interpolate between nodes, and so want them closer.
QUANTILE_REFINEMENT = 3.0


def send(tasks: Tasks, nodes: Nodes, out: Floats) -> None:
    """Write the log message of every task to each of its workers (M13), largest entry 0.

    With F_v(x) = Σ_k m_v(k) N(A_v | x, s_k) and P(x) = prior(x) Π_v F_v(x)::

        m_{i→u}(k) ∝ ∫ P(x) / F_u(x) N(A_u | x, s_k) dx
    """
    x, half_rate = nodes.x, 0.5 / tasks.levels
    log_f = tasks.log_functions(x)
    total = nodes.log_weight + tasks.log_prior(x) + log_f.sum(axis=1)
    for some in tasks.some_answers(x.shape[1]):
        # P / F_u takes the place of F_u.
        cavity = np.subtract(total[:, None, :], log_f[:, some], out=log_f[:, some])
        cavity -= cavity.max(axis=2, keepdims=True)
        squared = (x[:, None, :] - tasks.value[:, some, None]) ** 2
        gauss = -half_rate[:, None] * squared[:, :, None, :]
        np.exp(gauss, out=gauss)
        found = np.einsum("nukq,nuq->nuk", gauss, np.exp(cavity), optimize=False)
        unsafe = found < _UNSAFE
        with np.errstate(divide="ignore"):
            np.log(found, out=found)
        if unsafe.any():
            i, u, k = np.nonzero(unsafe)
            found[i, u, k] = _log_sum(cavity[i, u] - half_rate[k, None] * squared[i, u])
        out[:, some] = found
    out -= 0.5 * np.log(tasks.levels)
    out -= out.max(axis=2, keepdims=True)


def _log_sum(exponent: Floats) -> Floats:
    """Log of the sum of exponentials over the last axis, added up in order."""
    top = exponent.max(axis=-1, keepdims=True)
    return np.asarray(
        top[..., 0] + np.log(np.einsum("...q->...", np.exp(exponent - top), optimize=False))
    )


def posterior(tasks: Tasks, accuracy: float, probabilities: Floats) -> Posterior:
    """Moments and quantiles of the truths from P(x), the product of all workers' functions."""
    nodes = place_nodes(tasks, accuracy, refinement=QUANTILE_REFINEMENT)
    log_p = nodes.log_weight + tasks.log_prior(nodes.x)
    for some in tasks.some_answers(nodes.x.shape[1]):
        part = tasks.terms(nodes.x, some)[0]
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
