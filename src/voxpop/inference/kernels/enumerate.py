"""Joint enumeration: sum over all configurations of the levels of a task's workers.

Exact for any dimension; the cost grows as levels ** answers. Messages are linear inside a task
("linear split"): the factor is seen as a matrix, left half of the workers by right half, and is
contracted with each half's messages in turn, so that no message is ever divided by itself. Where
a result is so small that the linear form may have underflowed, it is computed again in logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from scipy.special import logsumexp

from voxpop.arrays import Floats
from voxpop.inference.kernels.posterior import Posterior, mixture_quantiles

# Linear sums below this may have lost terms: exp(-460), while float64 ends near exp(-700).
_UNSAFE = 1e-200
_ROWS_AT_ONCE = 8


@dataclass(frozen=True, eq=False)
class Configurations:
    """All ways to give one of K levels to each of l workers, the first worker slowest.

    ``precision[u, c]`` is the precision w_u of worker u in configuration c, ``total[c]`` is
    W = 1/tau² + Σ_u w_u, ``offset[c]`` is log W + Σ_u log s_u, ``pair[p, c]`` is w_u w_v / W of
    the p-th pair of workers; with a proper prior, l more rows pair each worker with the prior.
    """

    n_levels: int
    degree: int
    precision: Floats
    total: Floats
    offset: Floats
    pair: Floats


@lru_cache(maxsize=16)
def configurations(
    levels: tuple[float, ...], degree: int, prior_precision: float
) -> Configurations:
    """List the configurations; they depend on the model and the degree only."""
    # Digits of the configuration's number, the first worker's leading. np.indices would stop at 64
    # workers, of whom there may be more with a single level.
    n_levels = len(levels)
    place = np.array([n_levels**u for u in reversed(range(degree))])
    choice = np.arange(n_levels**degree) // place[:, None] % n_levels
    s = np.array(levels)[choice]
    precision = 1.0 / s
    total = prior_precision + precision.sum(axis=0)
    # In this order: the product of two precisions may be more than float64 holds.
    rows = [precision[u] * (precision[v] / total) for u, v in combinations(range(degree), 2)]
    if prior_precision > 0:
        rows += [precision[u] * (prior_precision / total) for u in range(degree)]
    pair = np.array(rows).reshape(-1, choice.shape[1])
    offset = np.log(total) + np.log(s).sum(axis=0)
    return Configurations(n_levels, degree, precision, total, offset, pair)


def log_factor(value: Floats, prior_mean: Floats, c: Configurations) -> Floats:
    """Log of the task factor for every configuration, shape (n, C).

    With D_uv = |A_u - A_v|² and D_u0 = |A_u - nu|²::

        log C_i = -d/2 (log W + Σ_u log s_u)
                  - 1/(2W) [ Σ_{u<v} w_u w_v D_uv + Σ_u w_u D_u0 / tau² ]              (M2)
    """
    left, right = np.triu_indices(c.degree, 1)
    distance = ((value[:, left] - value[:, right]) ** 2).sum(axis=2)
    if len(c.pair) > len(left):
        to_prior = ((value - prior_mean[:, None]) ** 2).sum(axis=2)
        distance = np.concatenate([distance, to_prior], axis=1)
    return np.asarray(-0.5 * (value.shape[2] * c.offset + _multiply(distance, c.pair)))


def _multiply(a: Floats, b: Floats) -> Floats:
    """Matrix product in which a row comes out the same beside any other rows.

    How a matrix product rounds depends on its shape, so all shapes are the same.
    """
    rows = -(-len(a) // _ROWS_AT_ONCE) * _ROWS_AT_ONCE
    padded = np.zeros((rows, a.shape[1]))
    padded[: len(a)] = a
    product = padded.reshape(rows // _ROWS_AT_ONCE, _ROWS_AT_ONCE, a.shape[1]) @ b
    return np.asarray(product.reshape(rows, -1)[: len(a)])


def scaled_factor(log_c: Floats) -> Floats:
    """Turn log factors into linear ones with largest entry 1; in place."""
    log_c -= log_c.max(axis=1, keepdims=True)
    return np.exp(log_c, out=log_c)


def send(
    value: Floats,
    prior_mean: Floats,
    incoming: Floats,
    c: Configurations,
    factor: Floats,
    out: Floats,
) -> None:
    """Write the log message of every task to each of its workers (M3), largest entry 0.

    ``factor`` is ``scaled_factor(log_factor(...))``, kept by the caller or made anew.
    """
    n, degree, k = incoming.shape
    message = np.exp(incoming - incoming.max(axis=2, keepdims=True))
    half = degree // 2
    left, right = message[:, :half], message[:, half:]
    matrix = factor.reshape(n, k**half, -1)
    # M10: what each half sees once the other half is summed out.
    seen_by_left = np.matmul(matrix, _joint(right)[:, :, None])[:, :, 0]
    seen_by_right = np.matmul(_joint(left)[:, None, :], matrix)[:, 0, :]
    _leave_one_out(seen_by_left, left, out[:, :half])
    _leave_one_out(seen_by_right, right, out[:, half:])
    unsafe = (out < _UNSAFE).any(axis=(1, 2))
    with np.errstate(divide="ignore"):
        np.log(out, out=out)
    if unsafe.any():
        log_c = log_factor(value[unsafe], prior_mean[unsafe], c)
        out[unsafe] = _send_in_logs(log_c, incoming[unsafe])
    out -= out.max(axis=2, keepdims=True)


def _joint(message: Floats) -> Floats:
    """Outer product of the messages of several workers, (n, h, K) -> (n, K**h)."""
    n, degree, _ = message.shape
    joint = np.ones((n, 1))
    for u in range(degree):
        joint = (joint[:, :, None] * message[:, u, None, :]).reshape(n, -1)
    return joint


def _leave_one_out(seen: Floats, message: Floats, out: Floats) -> None:
    """Sum a half's table over all its workers but u, with their messages, for every u."""
    n, degree, k = message.shape
    for u in range(degree):
        table = seen.reshape(n, k**u, k, -1)
        before, after = _joint(message[:, :u]), _joint(message[:, u + 1 :])
        out[:, u] = np.einsum("nakb,na,nb->nk", table, before, after, optimize=False)


def _send_in_logs(log_c: Floats, incoming: Floats) -> Floats:
    """As :func:`send`, slice by slice in logs: slower, and safe for any finite input."""
    n, degree, k = incoming.shape
    belief = log_c + log_joint(incoming)
    out = np.empty_like(incoming)
    for u in range(degree):
        # A worker's own message is constant on a slice, so subtracting its log is exact.
        out[:, u] = logsumexp(belief.reshape(n, k**u, k, -1), axis=(1, 3)) - incoming[:, u]
    return out


def log_joint(incoming: Floats) -> Floats:
    """Sum of one log number per worker for every configuration, (n, l, K) -> (n, K**l)."""
    n, degree, _ = incoming.shape
    joint = np.zeros((n, 1))
    for u in range(degree):
        joint = (joint[:, :, None] + incoming[:, u, None, :]).reshape(n, -1)
    return joint


def belief(value: Floats, prior_mean: Floats, incoming: Floats, c: Configurations) -> Floats:
    """Probability of every configuration of a task's workers (M5), shape (n, C)."""
    log_belief = log_factor(value, prior_mean, c) + log_joint(incoming)
    table = scaled_factor(log_belief)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def posterior(
    table: Floats,
    value: Floats,
    prior_mean: Floats,
    prior_precision: float,
    c: Configurations,
    probabilities: Floats,
) -> Posterior:
    """Moments and quantiles of the truths, given the belief ``table`` (M6)-(M9).

    In configuration c the truth is Gaussian with mean (Σ_u w_u A_u + nu/tau²)/W and variance 1/W.
    """
    mean = np.einsum("nud,uc->ncd", value, c.precision / c.total)
    if prior_precision > 0:
        mean += prior_mean[:, None, :] * (prior_precision / c.total)[:, None]
    estimate = np.einsum("nc,ncd->nd", table, mean)
    spread = np.einsum("nc,ncd->nd", table, (mean - estimate[:, None, :]) ** 2)
    variance = spread + np.einsum("nc,c->n", table, 1.0 / c.total, optimize=False)[:, None]
    quantile = mixture_quantiles(table, mean, 1.0 / c.total, probabilities)
    return Posterior(estimate, variance, quantile)
